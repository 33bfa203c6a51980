//! Answers of a server, right and broken, read as `palisade_kube` reads them; and what has to be known after each.

use palisade_kube::Item;
use palisade_kube::reflector::{NextAction, Response};
use palisade_kube::response::{WatchLine, WatchLines, page_of};
use palisade_kube::split::{ObjectLocation, Splitter};
use serde_json::json;

use super::Play;
use super::broken::Broken;
use super::log::{How, Said, set};

/// Objects of one page.
const PAGE: usize = 3;

/// Text that is no list of the kind, although a server may send it with 200.
const NO_LISTS: [&str; 7] = [
    "",
    "{}",
    "null",
    "<html>",
    r#"{"items":[]}"#,
    r#"{"kind":"Status","metadata":{"resourceVersion":"9"},"status":"Success"}"#,
    r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#,
];

/// What a line of a watch says: of whom, the version, and what can be read of it.
type Told = (usize, Option<usize>, How);

impl Play<'_> {
    /// Gives an answer, and notes what it says.
    pub(super) fn give(&mut self, place: usize, ask: &NextAction, broken: Broken) {
        match (ask, broken) {
            (_, Broken::Failed) => self.hear(place, Response::Failed("broken off".to_owned())),
            (
                NextAction::List(_) | NextAction::Watch(_) | NextAction::Discover,
                Broken::Refused,
            ) => {
                let code = self.rng.pick(&[404, 410, 403, 429, 500]);
                self.refuse(place, code);
            }
            (NextAction::Discover, _) => {
                let Some(followed) = self.followed.get_mut(place) else {
                    return;
                };
                // That a kind is gone is believed if it is said twice, so that it is said once.
                let denies = broken == Broken::NotFoundOnce && !followed.log.has_denied;
                followed.log.has_denied = denies;
                self.hear(place, Response::Discovered(!denies));
            }
            (NextAction::List(after), _) => self.list(place, after.as_deref(), broken),
            (NextAction::Watch(version), _) => self.watch(place, version, broken),
            (NextAction::Rest(_), _) => self.hear(place, Response::Rested),
        }
    }

    fn list(&mut self, place: usize, after: Option<&str>, broken: Broken) {
        let Some(followed) = self.followed.get_mut(place) else {
            return;
        };
        let log = &mut followed.log;
        if after.is_none() {
            let objects = log.objects.iter().map(|(key, it)| (*key, *it));
            log.listed = (log.events.len() + 1, objects.collect());
        }
        let (moment, all) = log.listed.clone();
        let offset: usize = after.and_then(|it| it.parse().ok()).unwrap_or(0);
        let page = all.iter().skip(offset).take(PAGE);
        let page = page.map(|(key, version)| Said::new(log, *key, Some(*version), moment));
        let mut items: Vec<Said> = page.collect();
        if broken == Broken::Reordered {
            items.reverse();
        }
        if broken == Broken::Repeated
            && let Some((key, version)) = all.get(offset)
        {
            items.push(Said::new(log, *key, Some(*version), moment));
        }
        let chosen = self.rng.below(items.len().max(1) as u64) as usize;
        if let Some(item) = items.get_mut(chosen) {
            item.damage(broken, log);
        }
        let next = (offset + PAGE < all.len()).then(|| (offset + PAGE).to_string());
        let more = if broken == Broken::SameToken {
            Some(offset.to_string())
        } else {
            next
        };
        let kind = log.resource.kind.name();
        let mut text = format!(
            r#"{{"kind":"{kind}List","metadata":{{"resourceVersion":"{moment}","continue":"{}"}},"items":["#,
            more.clone().unwrap_or_default()
        )
        .into_bytes();
        let mut is_whole = true;
        let mut told = 0;
        for (number, item) in items.iter().enumerate() {
            if number > 0 {
                text.push(b',');
            }
            if number == chosen && broken == Broken::CutInside {
                let length = self.rng.below(item.text.len() as u64) as usize;
                text.extend(item.text.iter().take(length));
                is_whole = false;
                break;
            }
            text.extend(&item.text);
            told += 1;
            if number == chosen && broken == Broken::CutBetween {
                is_whole = false;
                break;
            }
        }
        if is_whole {
            text.extend(b"]}");
        }
        let instead = if broken == Broken::OtherKind {
            let other = if kind == "Pod" { "Node" } else { "Pod" };
            Some(format!(
                r#"{{"kind":"{other}List","metadata":{{"resourceVersion":"{moment}"}},"items":[]}}"#
            ))
        } else if broken == Broken::NoList {
            Some(self.rng.pick(&NO_LISTS).to_owned())
        } else {
            None
        };
        if let Some(instead) = instead {
            text = instead.into_bytes();
            told = 0;
            is_whole = false;
        }
        let Some(followed) = self.followed.get_mut(place) else {
            return;
        };
        if after.is_none() {
            followed.known.list_begins();
        }
        for item in items.iter().take(told) {
            match (item.how, item.version) {
                (How::Readable, Some(version)) => followed.known.said(item.key, version),
                (How::Unreadable, _) => followed.known.said_unreadably(item.key),
                _ => followed.known.said_of_nobody(),
            }
        }
        if is_whole && more.is_none() {
            followed.known.list_ends();
        }
        self.page(place, &text, kind);
    }

    /// Reads a page.
    fn page(&mut self, place: usize, text: &[u8], kind: &str) {
        self.hear(place, Response::Opened);
        let mut splitter = Splitter::new(ObjectLocation::Items);
        let size = 1 + self.rng.below(200) as usize;
        for part in text.chunks(size) {
            match splitter.push(part) {
                Ok(pieces) => {
                    for piece in pieces {
                        self.hear(place, Response::Item(Item::of(piece)));
                    }
                }
                Err(words) => return self.hear(place, Response::Failed(words.to_owned())),
            }
        }
        let head = splitter.finish().map_err(str::to_owned);
        let answer = match head.and_then(|(rest, taken)| page_of(kind, &rest, taken)) {
            Ok(page) => Response::Page(page),
            Err(words) => Response::Failed(words),
        };
        self.hear(place, answer);
    }

    fn watch(&mut self, place: usize, version: &str, broken: Broken) {
        let Some(followed) = self.followed.get(place) else {
            return;
        };
        let log = &followed.log;
        let first = version.parse().ok().and_then(|it: usize| it.checked_sub(1));
        let Some(first) = first.filter(|it| *it <= log.events.len()) else {
            // A moment that never was.
            return self.refuse(place, 410);
        };
        let events = log.events.iter().enumerate().skip(first);
        let events = events.map(|(at, (key, version))| Said::new(log, *key, *version, at + 2));
        let mut lines: Vec<Said> = events.collect();
        let chosen = self.rng.below(lines.len().max(1) as u64) as usize;
        if broken == Broken::Repeated
            && let Some(line) = lines.get(chosen)
        {
            let again = Said::new(log, line.key, line.version, line.moment);
            lines.insert(chosen, again);
        }
        let mut text: Vec<u8> = Vec::new();
        let mut told: Vec<Told> = Vec::new();
        for (number, mut line) in lines.into_iter().enumerate() {
            let event = match line.version {
                None => "DELETED",
                Some(_) => "MODIFIED",
            };
            let begin = format!(r#"{{"type":"{event}","object":"#).into_bytes();
            if number != chosen {
                say(&mut text, &begin, &line.text);
                told.push((line.key, line.version, line.how));
                continue;
            }
            line.damage(broken, log);
            if broken == Broken::CutInside {
                let length = self.rng.below(line.text.len() as u64) as usize;
                text.extend(&begin);
                text.extend(line.text.iter().take(length));
                break;
            }
            if broken == Broken::Garbage {
                text.extend(b"<html>\n");
                break;
            }
            if broken == Broken::TooOldInside {
                let status = br#"{"kind":"Status","code":410}"#;
                say(&mut text, br#"{"type":"ERROR","object":"#, status);
                break;
            }
            if broken == Broken::GoneOfAnotherKind {
                let mut object = log.json(line.key, 0, line.moment);
                set(&mut object, "kind", json!("ConfigMap"));
                let object = object.to_string().into_bytes();
                say(&mut text, br#"{"type":"DELETED","object":"#, &object);
                told.push((line.key, None, How::Unnamed));
            }
            if broken == Broken::OddVersion {
                let odd = self.rng.pick(&["", "0", "x", "99999999999999999999", "-1"]);
                let plain = String::from_utf8_lossy(&line.text);
                let right = format!(r#""resourceVersion":"{}""#, line.moment);
                let wrong = format!(r#""resourceVersion":"{odd}""#);
                line.text = plain.replace(&right, &wrong).into_bytes();
            }
            say(&mut text, &begin, &line.text);
            told.push((line.key, line.version, line.how));
        }
        self.lines(place, &text, told);
    }

    /// Reads the lines of a watch, and notes what each says.
    fn lines(&mut self, place: usize, text: &[u8], told: Vec<Told>) {
        self.hear(place, Response::Opened);
        let mut lines = WatchLines::default();
        let mut told = told.into_iter();
        let size = 1 + self.rng.below(200) as usize;
        for part in text.chunks(size) {
            let mut part = part;
            while !part.is_empty() {
                let (taken, line) = lines.push(part);
                part = part.get(taken..).unwrap_or_default();
                let Some(line) = line else {
                    continue;
                };
                let answer = match line {
                    Ok(WatchLine::Refused(refusal)) => Response::Refused(refusal),
                    Ok(line) => {
                        self.note(place, told.next());
                        Response::Line(line)
                    }
                    Err(words) => Response::Garbled(words),
                };
                self.hear(place, answer);
                let next = self.followed.get(place).map(|it| it.follow.next());
                if !matches!(next, Some(NextAction::Watch(_))) {
                    return;
                }
            }
        }
        let end = match lines.is_within() {
            true => Response::Failed("the watch breaks off".to_owned()),
            false => Response::Ended,
        };
        self.hear(place, end);
    }

    fn note(&mut self, place: usize, told: Option<Told>) {
        let (Some(followed), Some((key, version, how))) = (self.followed.get_mut(place), told)
        else {
            return;
        };
        match (how, version) {
            (How::Readable, Some(version)) => followed.known.said(key, version),
            (How::Readable, None) => followed.known.gone(key),
            (How::Unreadable, Some(_)) => followed.known.said_unreadably(key),
            (How::Unreadable, None) | (How::Unnamed, _) => followed.known.said_of_nobody(),
        }
    }
}

/// One line of a watch.
fn say(text: &mut Vec<u8>, begin: &[u8], object: &[u8]) {
    text.extend(begin);
    text.extend(object);
    text.extend(b"}\n");
}
