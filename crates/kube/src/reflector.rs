//! The list and watch of one kind: from responses of the server to the next request, without I/O.
//!
//! All objects are listed first, page by page; then changes are watched from the resource version
//! of the list. The driver sends the requests and passes the responses in. This module has no clock
//! and no network.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::backoff::{Backoff, jitter};
use crate::item::Item;
use crate::response::{Page, StatusError, WatchLine};

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Find out whether the server has the kind at all.
    Discover,
    /// Request a page of the list: the first, or the one after this continue token.
    List(Option<String>),
    /// Watch changes after this resource version, line by line.
    Watch(String),
    /// Wait for this time.
    Rest(Duration),
}

/// A response, or what came instead of one.
#[derive(Debug)]
pub enum Response {
    /// The server has the kind, or has not.
    Discovered(bool),
    /// The server has begun to send a page of the list, or the watch.
    Opened,
    /// An object of the page.
    Item(Item),
    /// The page is complete; this is its metadata.
    Page(Page),
    /// A line of the watch.
    Line(WatchLine),
    /// The watch was silent for too long. It may be dead and was closed.
    Silent,
    /// The server ended the watch normally.
    Ended,
    /// The server refused the request.
    Refused(StatusError),
    /// The request or the connection failed, with the cause.
    Failed(String),
    /// The watch sent something other than a watch event, with the cause. From the same resource
    /// version it would send the same.
    Garbled(String),
    /// The wait is over.
    Rested,
}

/// An event for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object that was requested before the list. A list or a watch has a newer state of it.
    Early(Item),
    /// A list begins: all objects follow one by one. Which objects are gone is known at its end.
    ListStarted,
    /// An object of the list.
    Listed(Item),
    /// The list is complete: objects that it does not have are gone.
    ListComplete,
    /// An object is new or different.
    Applied(Item),
    /// An object was deleted.
    Deleted(Item),
    /// The server is alive; nothing has changed.
    Heartbeat,
    /// The server does not have the kind: there are no objects.
    Absent,
    /// The kind cannot be read; the known state stays valid.
    Problem(WatchProblem),
    /// The kind can be read again.
    Recovered,
}

/// Why a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchProblem {
    /// The server forbids it.
    Forbidden(String),
    /// The server cannot be reached, or does not answer as it must.
    Failing(String),
}

impl WatchProblem {
    /// Returns the cause.
    pub fn words(&self) -> &str {
        match self {
            WatchProblem::Forbidden(cause) | WatchProblem::Failing(cause) => cause,
        }
    }
}

/// The interval of discovery while a kind is absent.
const ABSENT: Duration = Duration::from_secs(15);
/// The time between the two answers that make a kind count as absent.
const SAY_AGAIN: Duration = Duration::from_millis(500);
/// The longest own backoff if the server requests one (`Retry-After`). A longer one of the server
/// counts.
const REQUESTED_WAIT: Duration = Duration::from_secs(5);
/// The number of watches in a row that may end without an event. After one more the list is
/// repeated.
const FLAPS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReflectorState {
    Discovering,
    Listing(Option<String>),
    Watching(String),
    Resting(Duration, Box<ReflectorState>),
}

/// The list and watch of one kind.
#[derive(Debug)]
pub struct Reflector {
    state: ReflectorState,
    /// Whether every server has the kind. It is never absent then, whatever a server or a proxy
    /// answers (D150).
    is_built_in: bool,
    /// Whether the kind is absent.
    is_absent: bool,
    /// Whether the last answer was the first that denies the kind.
    may_be_absent: bool,
    /// The backoff while the server does not answer at all.
    away: Backoff,
    /// The backoff while it answers wrongly. The time of an outage before does not count.
    failing: Backoff,
    /// The backoff of lists whose resource version expires again and again.
    stale: Backoff,
    /// The problem that the consumer knows of.
    trouble: Option<WatchProblem>,
    /// Whether this watch has sent an event.
    has_heard: bool,
    /// The number of watches in a row that ended without an event.
    flaps: u32,
    /// Whether the server has begun to answer this request.
    is_open: bool,
    /// Whether the last request got no answer at all.
    is_away: bool,
    /// Whether a load balancer in front of the server last answered that the server cannot be
    /// reached.
    is_unreached: bool,
}

impl Reflector {
    /// Creates the list and watch of a kind that every server has, or of one that comes with a CRD.
    pub fn new(is_built_in: bool) -> Reflector {
        Reflector {
            state: ReflectorState::Listing(None),
            is_built_in,
            is_absent: false,
            may_be_absent: false,
            away: Backoff::default(),
            failing: Backoff::default(),
            stale: Backoff::default(),
            trouble: None,
            has_heard: false,
            flaps: 0,
            is_open: false,
            is_away: false,
            is_unreached: false,
        }
    }

    /// Returns the next request. It stays the same while a watch continues.
    pub fn next(&self) -> NextAction {
        match &self.state {
            ReflectorState::Discovering => NextAction::Discover,
            ReflectorState::Listing(after) => NextAction::List(after.clone()),
            ReflectorState::Watching(version) => NextAction::Watch(version.clone()),
            ReflectorState::Resting(time, _) => NextAction::Rest(*time),
        }
    }

    /// Returns whether the last request got no answer at all. A retry is worthwhile as soon as the
    /// server answers another request.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Returns whether a load balancer last answered that the server cannot be reached. A retry is
    /// worthwhile as soon as the server serves another request.
    pub fn is_unreached(&self) -> bool {
        self.is_unreached
    }

    /// Handles a response; `random` is any number. Returns the events that follow, in order.
    pub fn handle(&mut self, response: Response, random: u64) -> Vec<WatchEvent> {
        let state = std::mem::replace(&mut self.state, ReflectorState::Listing(None));
        let mut events = Vec::new();
        self.note_reachability(&response);
        // The two denials must follow each other: any other answer is a sign that the kind exists,
        // or that the server is not in order.
        if !matches!(response, Response::Discovered(false) | Response::Rested) {
            self.may_be_absent = false;
        }
        self.state = match (state, response) {
            (ReflectorState::Resting(_, then), Response::Rested) => *then,
            // A late response to an earlier request.
            (resting @ ReflectorState::Resting(..), _) => resting,
            (ReflectorState::Discovering, Response::Discovered(true)) => {
                self.is_absent = false;
                ReflectorState::Listing(None)
            }
            (ReflectorState::Discovering, Response::Discovered(false)) => {
                self.kind_denied(random, &mut events)
            }
            (ReflectorState::Listing(after), Response::Opened) => {
                // Only the first page starts a list; the others belong to it.
                events.extend(after.is_none().then_some(WatchEvent::ListStarted));
                ReflectorState::Listing(after)
            }
            (ReflectorState::Listing(after), Response::Item(item)) => {
                events.push(WatchEvent::Listed(item));
                ReflectorState::Listing(after)
            }
            (ReflectorState::Listing(after), Response::Page(page)) => {
                self.listed(after.as_deref(), page, random, &mut events)
            }
            (ReflectorState::Watching(before), Response::Line(WatchLine::Set(item))) => {
                let next = self.object_event(before, &item, random, &mut events);
                events.push(WatchEvent::Applied(item));
                next
            }
            (ReflectorState::Watching(before), Response::Line(WatchLine::Deleted(item))) => {
                let next = self.object_event(before, &item, random, &mut events);
                events.push(WatchEvent::Deleted(item));
                next
            }
            (ReflectorState::Watching(_), Response::Line(WatchLine::Bookmark(version))) => {
                self.note_watch_event(&mut events);
                events.push(WatchEvent::Heartbeat);
                ReflectorState::Watching(version)
            }
            (ReflectorState::Watching(version), Response::Opened) => {
                // `flaps` is not reset: the watch may still end at once. But the server answers,
                // and where nothing happens it may be silent for a long time.
                events.extend(self.trouble.take().map(|_| WatchEvent::Recovered));
                events.push(WatchEvent::Heartbeat);
                ReflectorState::Watching(version)
            }
            // The next request shows whether the server is still there.
            (ReflectorState::Watching(version), Response::Ended | Response::Silent) => {
                self.ended(version, random)
            }
            (state, Response::Refused(refusal) | Response::Line(WatchLine::Refused(refusal))) => {
                self.refused(state, &refusal, random, &mut events)
            }
            (state, Response::Failed(cause)) => {
                self.has_heard = false;
                self.failed(state, WatchProblem::Failing(cause), random, &mut events)
            }
            (ReflectorState::Watching(_), Response::Garbled(cause)) => {
                self.list_again(cause, random, &mut events)
            }
            // A response to another request is as good as none.
            (state, _) => {
                let problem = WatchProblem::Failing("an unexpected response".to_owned());
                self.failed(state, problem, random, &mut events)
            }
        };
        events
    }

    /// Records whether the server answers at all, and whether it is in the middle of an answer.
    fn note_reachability(&mut self, response: &Response) {
        // The end of a wait is no answer of the server.
        if !matches!(response, Response::Rested) {
            // A server that breaks off in the middle of an answer is there.
            self.is_away = matches!(response, Response::Failed(_)) && !self.is_open;
            self.is_unreached = match response {
                Response::Refused(it) | Response::Line(WatchLine::Refused(it)) => {
                    // `Retry-After` comes from the server itself, not from a load balancer.
                    matches!(it.code, 502..=504) && it.retry_after.is_none()
                }
                Response::Line(_)
                | Response::Item(_)
                | Response::Discovered(_)
                | Response::Opened
                | Response::Page(_)
                | Response::Silent
                | Response::Ended
                | Response::Failed(_)
                | Response::Garbled(_)
                | Response::Rested => false,
            };
        }
        let has_content = match response {
            Response::Line(line) => !matches!(line, WatchLine::Refused(_)),
            Response::Item(_) => true,
            Response::Discovered(_)
            | Response::Opened
            | Response::Page(_)
            | Response::Silent
            | Response::Ended
            | Response::Refused(_)
            | Response::Failed(_)
            | Response::Garbled(_)
            | Response::Rested => false,
        };
        self.is_open = matches!(response, Response::Opened) || (self.is_open && has_content);
    }

    /// Records that the server works: resets backoff and reports the recovery.
    fn note_success(&mut self, events: &mut Vec<WatchEvent>) {
        self.has_heard = true;
        self.flaps = 0;
        self.away.succeed();
        self.failing.succeed();
        if self.trouble.take().is_some() {
            events.push(WatchEvent::Recovered);
        }
    }

    /// Records that a watch delivers. A resource version that it accepts is not too old.
    fn note_watch_event(&mut self, events: &mut Vec<WatchEvent>) {
        self.stale.succeed();
        self.note_success(events);
    }

    /// Handles a denial of the kind. A single one may come from a server that has just started, or
    /// from another one behind the same address, and its consequence is that policies end (D150).
    fn kind_denied(&mut self, random: u64, events: &mut Vec<WatchEvent>) -> ReflectorState {
        if self.is_built_in {
            let problem = WatchProblem::Failing("the server reports no such kind".to_owned());
            return self.failed(ReflectorState::Listing(None), problem, random, events);
        }
        if !self.is_absent && !std::mem::replace(&mut self.may_be_absent, true) {
            return rest(jitter(SAY_AGAIN, random), ReflectorState::Discovering);
        }
        // A denial is an answer: the server is reachable again.
        self.note_success(events);
        let was_absent = std::mem::replace(&mut self.is_absent, true);
        events.push(match was_absent {
            true => WatchEvent::Heartbeat,
            false => WatchEvent::Absent,
        });
        rest(jitter(ABSENT, random), ReflectorState::Discovering)
    }

    /// Handles an object of a watch. One without a readable name may be any object, so everything
    /// is listed again.
    fn object_event(
        &mut self,
        before: String,
        item: &Item,
        random: u64,
        events: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        match item {
            Item::Named(named) => {
                self.note_watch_event(events);
                // The watch resumes from here when it ends. Without a version, the last one stays
                // valid: the server repeats what came after it.
                let version = &named.version;
                ReflectorState::Watching(match version.is_empty() {
                    true => before,
                    false => version.clone(),
                })
            }
            Item::Unnamed(cause) => {
                self.list_again(format!("the watch sent {cause}"), random, events)
            }
        }
    }

    /// Ends a watch that sent what it must not. From the same resource version it would send the
    /// same, so everything is listed again.
    fn list_again(
        &mut self,
        cause: String,
        random: u64,
        events: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        self.has_heard = false;
        let problem = WatchProblem::Failing(cause);
        self.failed(ReflectorState::Listing(None), problem, random, events)
    }

    fn listed(
        &mut self,
        after: Option<&str>,
        page: Page,
        random: u64,
        events: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        match page.more {
            // The same token again would be requested for ever.
            Some(more) if after == Some(more.as_str()) => {
                let problem =
                    WatchProblem::Failing("the server repeated a continue token".to_owned());
                self.failed(ReflectorState::Listing(None), problem, random, events)
            }
            Some(more) => ReflectorState::Listing(Some(more)),
            None => {
                events.push(WatchEvent::ListComplete);
                self.note_success(events);
                self.has_heard = false;
                ReflectorState::Watching(page.version)
            }
        }
    }

    /// Handles the end of a watch. Servers end watches regularly; one that always ends at once is a
    /// failure.
    fn ended(&mut self, version: String, random: u64) -> ReflectorState {
        if std::mem::take(&mut self.has_heard) {
            return ReflectorState::Watching(version);
        }
        self.flaps += 1;
        let wait = self.failing.fail(random);
        // Perhaps the resource version is the cause: the list gets a new one.
        if self.flaps > FLAPS {
            self.flaps = 0;
            return rest(wait, ReflectorState::Listing(None));
        }
        rest(wait, ReflectorState::Watching(version))
    }

    fn refused(
        &mut self,
        state: ReflectorState,
        error: &StatusError,
        random: u64,
        events: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        self.has_heard = false;
        if error.is_too_old() {
            // Normal after an outage, so the first list follows at once. A server that rejects a
            // fresh list must not be flooded.
            let wait = self.stale.fail(random);
            return match self.stale.failures() {
                1 => ReflectorState::Listing(None),
                _ => rest(wait, ReflectorState::Listing(None)),
            };
        }
        if error.is_missing() && !self.is_built_in && state != ReflectorState::Discovering {
            // Only discovery shows that a kind is absent: proxies answer 404 to everything, too
            // (D150).
            return ReflectorState::Discovering;
        }
        let cause = match (error.message.as_str(), error.code) {
            ("", code) => format!("the server answered {code}"),
            (message, _) => message.to_owned(),
        };
        let problem = match error.is_forbidden() {
            true => WatchProblem::Forbidden(cause),
            false => WatchProblem::Failing(cause),
        };
        let state = self.failed(state, problem, random, events);
        match (state, error.retry_after) {
            (ReflectorState::Resting(wait, then), Some(seconds)) => {
                // The server knows best when it is ready. But it may request one second for ever,
                // so the own backoff counts as well, up to a limit.
                let requested = jitter(Duration::from_secs(seconds.min(300)), random);
                ReflectorState::Resting(wait.min(REQUESTED_WAIT).max(requested), then)
            }
            (state, _) => state,
        }
    }

    /// Resumes after a backoff. A list restarts: its pages belong to one resource version.
    fn failed(
        &mut self,
        state: ReflectorState,
        problem: WatchProblem,
        random: u64,
        events: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        let wait = match self.is_away {
            true => self.away.fail(random),
            false => self.failing.fail(random),
        };
        // The same problem is reported once.
        if self.trouble.as_ref() != Some(&problem) {
            self.trouble = Some(problem.clone());
            events.push(WatchEvent::Problem(problem));
        }
        let then = match state {
            ReflectorState::Listing(_) => ReflectorState::Listing(None),
            // After a long outage the version may have expired. The server then answers 410.
            ReflectorState::Watching(version) => ReflectorState::Watching(version),
            ReflectorState::Discovering => ReflectorState::Discovering,
            ReflectorState::Resting(_, then) => *then,
        };
        rest(wait, then)
    }
}

fn rest(wait: Duration, then: ReflectorState) -> ReflectorState {
    ReflectorState::Resting(wait, Box::new(then))
}
