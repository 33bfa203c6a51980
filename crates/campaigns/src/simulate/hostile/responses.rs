//! Responses of the API server, correct and malformed, read by `palisade_kube`; and the expected
//! objects after each.

use palisade_kube::Item;
use palisade_kube::reflector::{NextAction, Response};
use palisade_kube::response::{WatchLine, WatchLines, page_of};
use palisade_kube::split::{ObjectLocation, Splitter};
use serde_json::json;

use super::HostileRun;
use super::event_log::{Readable, SentObject, set};
use super::fault::ResponseFault;

/// Objects per page.
const PAGE: usize = 3;

/// Bodies that are no list of the kind, although a server may send them with 200.
const NOT_LISTS: [&str; 7] = [
    "",
    "{}",
    "null",
    "<html>",
    r#"{"items":[]}"#,
    r#"{"kind":"Status","metadata":{"resourceVersion":"9"},"status":"Success"}"#,
    r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#,
];

/// A line of a watch: the key, the version, and what is readable.
type SentLine = (usize, Option<usize>, Readable);

impl HostileRun<'_> {
    /// Sends a response, and records its objects.
    pub(super) fn send(&mut self, place: usize, request: &NextAction, fault: ResponseFault) {
        match (request, fault) {
            (_, ResponseFault::Failed) => {
                self.handle(place, Response::Failed("connection closed".to_owned()))
            }
            (
                NextAction::List(_) | NextAction::Watch(_) | NextAction::Discover,
                ResponseFault::Refused,
            ) => {
                let code = self.rng.pick(&[404, 410, 403, 429, 500]);
                self.refuse(place, code);
            }
            (NextAction::Discover, _) => {
                let Some(watched) = self.watched.get_mut(place) else {
                    return;
                };
                // The reflector believes the second denial of a kind; the server sends only one.
                let denies = fault == ResponseFault::NotFoundOnce && !watched.event_log.denied_last;
                watched.event_log.denied_last = denies;
                self.handle(place, Response::Discovered(!denies));
            }
            (NextAction::List(after), _) => self.list(place, after.as_deref(), fault),
            (NextAction::Watch(version), _) => self.watch(place, version, fault),
            (NextAction::Rest(_), _) => self.handle(place, Response::Rested),
        }
    }

    fn list(&mut self, place: usize, after: Option<&str>, fault: ResponseFault) {
        let Some(watched) = self.watched.get_mut(place) else {
            return;
        };
        let event_log = &mut watched.event_log;
        if after.is_none() {
            let objects = event_log.objects.iter().map(|(key, it)| (*key, *it));
            event_log.listed = (event_log.events.len() + 1, objects.collect());
        }
        let (moment, all) = event_log.listed.clone();
        let offset: usize = after.and_then(|it| it.parse().ok()).unwrap_or(0);
        let page = all.iter().skip(offset).take(PAGE);
        let page =
            page.map(|(key, version)| SentObject::new(event_log, *key, Some(*version), moment));
        let mut items: Vec<SentObject> = page.collect();
        if fault == ResponseFault::Reordered {
            items.reverse();
        }
        if fault == ResponseFault::Repeated
            && let Some((key, version)) = all.get(offset)
        {
            items.push(SentObject::new(event_log, *key, Some(*version), moment));
        }
        let chosen = self.rng.below(items.len().max(1) as u64) as usize;
        if let Some(item) = items.get_mut(chosen) {
            item.damage(fault, event_log);
        }
        let next = (offset + PAGE < all.len()).then(|| (offset + PAGE).to_string());
        let more = if fault == ResponseFault::SameToken {
            Some(offset.to_string())
        } else {
            next
        };
        let kind = event_log.resource.kind.name();
        let mut text = format!(
            r#"{{"kind":"{kind}List","metadata":{{"resourceVersion":"{moment}","continue":"{}"}},"items":["#,
            more.clone().unwrap_or_default()
        )
        .into_bytes();
        let mut is_whole = true;
        let mut sent = 0;
        for (number, item) in items.iter().enumerate() {
            if number > 0 {
                text.push(b',');
            }
            if number == chosen && fault == ResponseFault::CutInside {
                let length = self.rng.below(item.text.len() as u64) as usize;
                text.extend(item.text.iter().take(length));
                is_whole = false;
                break;
            }
            text.extend(&item.text);
            sent += 1;
            if number == chosen && fault == ResponseFault::CutBetween {
                is_whole = false;
                break;
            }
        }
        if is_whole {
            text.extend(b"]}");
        }
        let other_body = if fault == ResponseFault::OtherKind {
            let other = if kind == "Pod" { "Node" } else { "Pod" };
            Some(format!(
                r#"{{"kind":"{other}List","metadata":{{"resourceVersion":"{moment}"}},"items":[]}}"#
            ))
        } else if fault == ResponseFault::NoList {
            Some(self.rng.pick(&NOT_LISTS).to_owned())
        } else {
            None
        };
        if let Some(other_body) = other_body {
            text = other_body.into_bytes();
            sent = 0;
            is_whole = false;
        }
        let Some(watched) = self.watched.get_mut(place) else {
            return;
        };
        if after.is_none() {
            watched.expected.begin_list();
        }
        for item in items.iter().take(sent) {
            match (item.how, item.version) {
                (Readable::All, Some(version)) => watched.expected.set(item.key, version),
                (Readable::Identity, _) => watched.expected.set_unreadable(item.key),
                _ => watched.expected.set_unnamed(),
            }
        }
        if is_whole && more.is_none() {
            watched.expected.end_list();
        }
        self.page(place, &text, kind);
    }

    /// Reads a page.
    fn page(&mut self, place: usize, text: &[u8], kind: &str) {
        self.handle(place, Response::Opened);
        let mut splitter = Splitter::new(ObjectLocation::Items);
        let size = 1 + self.rng.below(200) as usize;
        for part in text.chunks(size) {
            match splitter.push(part) {
                Ok(pieces) => {
                    for piece in pieces {
                        self.handle(place, Response::Item(Item::of(piece)));
                    }
                }
                Err(message) => return self.handle(place, Response::Failed(message.to_owned())),
            }
        }
        let head = splitter.finish().map_err(str::to_owned);
        let response = match head.and_then(|(rest, taken)| page_of(kind, &rest, taken)) {
            Ok(page) => Response::Page(page),
            Err(message) => Response::Failed(message),
        };
        self.handle(place, response);
    }

    fn watch(&mut self, place: usize, version: &str, fault: ResponseFault) {
        let Some(watched) = self.watched.get(place) else {
            return;
        };
        let event_log = &watched.event_log;
        let first = version.parse().ok().and_then(|it: usize| it.checked_sub(1));
        let Some(first) = first.filter(|it| *it <= event_log.events.len()) else {
            // A resourceVersion that the server never sent.
            return self.refuse(place, 410);
        };
        let events = event_log.events.iter().enumerate().skip(first);
        let events =
            events.map(|(at, (key, version))| SentObject::new(event_log, *key, *version, at + 2));
        let mut lines: Vec<SentObject> = events.collect();
        let chosen = self.rng.below(lines.len().max(1) as u64) as usize;
        if fault == ResponseFault::Repeated
            && let Some(line) = lines.get(chosen)
        {
            let again = SentObject::new(event_log, line.key, line.version, line.moment);
            lines.insert(chosen, again);
        }
        let mut text: Vec<u8> = Vec::new();
        let mut sent: Vec<SentLine> = Vec::new();
        for (number, mut line) in lines.into_iter().enumerate() {
            let event = match line.version {
                None => "DELETED",
                Some(_) => "MODIFIED",
            };
            let begin = format!(r#"{{"type":"{event}","object":"#).into_bytes();
            if number != chosen {
                write_line(&mut text, &begin, &line.text);
                sent.push((line.key, line.version, line.how));
                continue;
            }
            line.damage(fault, event_log);
            if fault == ResponseFault::CutInside {
                let length = self.rng.below(line.text.len() as u64) as usize;
                text.extend(&begin);
                text.extend(line.text.iter().take(length));
                break;
            }
            if fault == ResponseFault::Garbage {
                text.extend(b"<html>\n");
                break;
            }
            if fault == ResponseFault::TooOldInside {
                let status = br#"{"kind":"Status","code":410}"#;
                write_line(&mut text, br#"{"type":"ERROR","object":"#, status);
                break;
            }
            if fault == ResponseFault::DeletedOtherKind {
                let mut object = event_log.json(line.key, 0, line.moment);
                set(&mut object, "kind", json!("ConfigMap"));
                let object = object.to_string().into_bytes();
                write_line(&mut text, br#"{"type":"DELETED","object":"#, &object);
                sent.push((line.key, None, Readable::Nothing));
            }
            if fault == ResponseFault::OddVersion {
                let odd = self.rng.pick(&["", "0", "x", "99999999999999999999", "-1"]);
                let plain = String::from_utf8_lossy(&line.text);
                let right = format!(r#""resourceVersion":"{}""#, line.moment);
                let wrong = format!(r#""resourceVersion":"{odd}""#);
                line.text = plain.replace(&right, &wrong).into_bytes();
            }
            write_line(&mut text, &begin, &line.text);
            sent.push((line.key, line.version, line.how));
        }
        self.lines(place, &text, sent);
    }

    /// Reads the lines of a watch, and records the object of each.
    fn lines(&mut self, place: usize, text: &[u8], sent: Vec<SentLine>) {
        self.handle(place, Response::Opened);
        let mut lines = WatchLines::default();
        let mut sent = sent.into_iter();
        let size = 1 + self.rng.below(200) as usize;
        for part in text.chunks(size) {
            let mut part = part;
            while !part.is_empty() {
                let (taken, line) = lines.push(part);
                part = part.get(taken..).unwrap_or_default();
                let Some(line) = line else {
                    continue;
                };
                let response = match line {
                    Ok(WatchLine::Refused(refusal)) => Response::Refused(refusal),
                    Ok(line) => {
                        self.note(place, sent.next());
                        Response::Line(line)
                    }
                    Err(message) => Response::Garbled(message),
                };
                self.handle(place, response);
                let next = self.watched.get(place).map(|it| it.reflector.next());
                if !matches!(next, Some(NextAction::Watch(_))) {
                    return;
                }
            }
        }
        let end = match lines.is_within() {
            true => Response::Failed("the watch ends inside a line".to_owned()),
            false => Response::Ended,
        };
        self.handle(place, end);
    }

    fn note(&mut self, place: usize, sent: Option<SentLine>) {
        let (Some(watched), Some((key, version, how))) = (self.watched.get_mut(place), sent) else {
            return;
        };
        match (how, version) {
            (Readable::All, Some(version)) => watched.expected.set(key, version),
            (Readable::All, None) => watched.expected.remove(key),
            (Readable::Identity, Some(_)) => watched.expected.set_unreadable(key),
            (Readable::Identity, None) | (Readable::Nothing, _) => watched.expected.set_unnamed(),
        }
    }
}

/// Writes one line of a watch.
fn write_line(text: &mut Vec<u8>, begin: &[u8], object: &[u8]) {
    text.extend(begin);
    text.extend(object);
    text.extend(b"}\n");
}
