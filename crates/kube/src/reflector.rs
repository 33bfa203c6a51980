//! Following the objects of one kind: what to ask the server next, and what follows from its answers.
//!
//! First everything is listed, page by page, then what changes is watched from that moment on. Whoever
//! drives it asks what it is told to ask, and hands on what it says. It knows no clock and no network.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::backoff::{Backoff, jitter};
use crate::item::Item;
use crate::response::{Page, StatusError, WatchLine};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Ask whether the server has the kind at all.
    Discover,
    /// Ask for a page of the list, the first or the one after this.
    List(Option<String>),
    /// Watch what happens after this moment, line by line.
    Watch(String),
    /// Ask nothing for so long.
    Rest(Duration),
}

/// What came of it.
#[derive(Debug)]
pub enum Response {
    /// Whether the server has the kind.
    Discovered(bool),
    /// The server has begun to answer with a page of the list, or the watch.
    Opened,
    /// An object of the page.
    Item(Item),
    /// All of the page was taken in, and this is its head.
    Page(Page),
    /// A line of the watch.
    Line(WatchLine),
    /// The watch has said nothing for so long that it may be dead, and was given up.
    Silent,
    /// The watch was ended in order.
    Ended,
    /// The server refused.
    Refused(StatusError),
    /// Something broke on the way, in words.
    Failed(String),
    /// The watch said what is no line of a watch, in words. Asked for the same moment it would say so again.
    Garbled(String),
    /// The rest is over.
    Rested,
}

/// What has become known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object as it was before all objects were listed: what a list or a watch says of it is newer.
    Early(Item),
    /// All objects follow, one by one; nothing is known to be gone before the last one.
    ListStarted,
    /// One of them.
    Listed(Item),
    /// That was the last: whatever was not among them is gone.
    ListComplete,
    /// An object is new or different.
    Applied(Item),
    /// An object is gone.
    Deleted(Item),
    /// Nothing has happened for a while, says the server.
    Heartbeat,
    /// The server has no such kind, so that there are no objects.
    Absent,
    /// Something is wrong; what was known is still what is known.
    Problem(WatchProblem),
    /// It is not wrong any more.
    Recovered,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchProblem {
    /// The server does not let us read these objects.
    Forbidden(String),
    /// The server cannot be asked, or does not answer as it should.
    Failing(String),
}

impl WatchProblem {
    /// In words.
    pub fn words(&self) -> &str {
        match self {
            WatchProblem::Forbidden(words) | WatchProblem::Failing(words) => words,
        }
    }
}

/// A kind that a server does not have is asked for again so often.
const ABSENT: Duration = Duration::from_secs(15);
/// That a server does not have a kind is believed when it says so twice, with so much time in between.
const SAY_AGAIN: Duration = Duration::from_millis(500);
/// A server that says when it wants to be asked again is not asked later than after so long, or when it wants.
const ASKED_TO_WAIT: Duration = Duration::from_secs(5);
/// A watch that ends at once so often in a row is not worth its name.
const FLAPS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReflectorState {
    Discovering,
    Listing(Option<String>),
    Watching(String),
    Resting(Duration, Box<ReflectorState>),
}

/// Follows the objects of one kind.
#[derive(Debug)]
pub struct Reflector {
    state: ReflectorState,
    /// Whether every server has the kind: then it cannot be absent, whatever a server or a proxy says (D150).
    is_built_in: bool,
    /// Whether the server is known not to have the kind.
    is_absent: bool,
    /// Whether the server has just said once that it does not have the kind.
    may_be_absent: bool,
    /// When to ask again where the server does not answer at all.
    away: Backoff,
    /// When to ask again where it answers, but not as it should. How long it was away before does not count.
    failing: Backoff,
    /// When to list anew where the server says again and again that what is asked for is too old.
    stale: Backoff,
    /// What was said to be wrong.
    trouble: Option<WatchProblem>,
    /// Whether this watch has said anything yet.
    has_heard: bool,
    /// How many watches in a row ended without having said anything.
    flaps: u32,
    /// Whether the server has begun to answer this watch.
    is_open: bool,
    /// Whether the server did not answer at all when it was last asked.
    is_away: bool,
    /// Whether somebody in front of the server last answered that it cannot be reached.
    is_unreached: bool,
}

impl Reflector {
    /// Follows a kind that every server has, or one that comes with a definition of its own.
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

    /// What to do next. As long as a watch goes on, this stays the same.
    pub fn next(&self) -> NextAction {
        match &self.state {
            ReflectorState::Discovering => NextAction::Discover,
            ReflectorState::Listing(after) => NextAction::List(after.clone()),
            ReflectorState::Watching(version) => NextAction::Watch(version.clone()),
            ReflectorState::Resting(time, _) => NextAction::Rest(*time),
        }
    }

    /// Whether the server did not answer at all when it was last asked: when it answers somebody else, it is worth
    /// asking again.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Whether somebody in front of the server last answered that it cannot be reached, as a load balancer does: when it serves
    /// somebody else, it is worth asking again.
    pub fn is_unreached(&self) -> bool {
        self.is_unreached
    }

    /// Takes an answer; `random` is any number. What follows from it, in order.
    pub fn heard(&mut self, answer: Response, random: u64) -> Vec<WatchEvent> {
        let state = std::mem::replace(&mut self.state, ReflectorState::Listing(None));
        let mut news = Vec::new();
        if !matches!(answer, Response::Rested) {
            // One that begins to answer and breaks off is not away.
            self.is_away = matches!(answer, Response::Failed(_)) && !self.is_open;
            self.is_unreached = match &answer {
                Response::Refused(it) | Response::Line(WatchLine::Refused(it)) => {
                    // A server that says itself when to ask again knows best.
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
        let is_said = match &answer {
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
        self.is_open = matches!(answer, Response::Opened) || (self.is_open && is_said);
        if !matches!(answer, Response::Discovered(false) | Response::Rested) {
            self.may_be_absent = false;
        }
        self.state = match (state, answer) {
            (ReflectorState::Resting(_, then), Response::Rested) => *then,
            (resting @ ReflectorState::Resting(..), _) => resting,
            (ReflectorState::Discovering, Response::Discovered(true)) => {
                self.is_absent = false;
                ReflectorState::Listing(None)
            }
            (ReflectorState::Discovering, Response::Discovered(false)) => {
                self.not_there(random, &mut news)
            }
            (ReflectorState::Listing(after), Response::Opened) => {
                news.extend(after.is_none().then_some(WatchEvent::ListStarted));
                ReflectorState::Listing(after)
            }
            (ReflectorState::Listing(after), Response::Item(item)) => {
                news.push(WatchEvent::Listed(item));
                ReflectorState::Listing(after)
            }
            (ReflectorState::Listing(after), Response::Page(page)) => {
                self.listed(after.as_deref(), page, random, &mut news)
            }
            (ReflectorState::Watching(before), Response::Line(WatchLine::Set(item))) => {
                let next = self.object_event(before, &item, random, &mut news);
                news.push(WatchEvent::Applied(item));
                next
            }
            (ReflectorState::Watching(before), Response::Line(WatchLine::Gone(item))) => {
                let next = self.object_event(before, &item, random, &mut news);
                news.push(WatchEvent::Deleted(item));
                next
            }
            (ReflectorState::Watching(_), Response::Line(WatchLine::Until(version))) => {
                self.flows(&mut news);
                news.push(WatchEvent::Heartbeat);
                ReflectorState::Watching(version)
            }
            (ReflectorState::Watching(version), Response::Opened) => {
                // Whether it is worth its name will show, but the server answers: where nothing happens it need not say
                // more for a long time.
                news.extend(self.trouble.take().map(|_| WatchEvent::Recovered));
                news.push(WatchEvent::Heartbeat);
                ReflectorState::Watching(version)
            }
            // Whether the server is still there is seen when it is asked again.
            (ReflectorState::Watching(version), Response::Ended | Response::Silent) => {
                self.ended(version, random)
            }
            (state, Response::Refused(refusal) | Response::Line(WatchLine::Refused(refusal))) => {
                self.refused(state, &refusal, random, &mut news)
            }
            (state, Response::Failed(words)) => {
                self.has_heard = false;
                self.failed(state, WatchProblem::Failing(words), random, &mut news)
            }
            (ReflectorState::Watching(_), Response::Garbled(words)) => {
                self.has_heard = false;
                self.failed(
                    ReflectorState::Listing(None),
                    WatchProblem::Failing(words),
                    random,
                    &mut news,
                )
            }
            // Whatever does not answer what was asked is as good as no answer.
            (state, _) => {
                let trouble = WatchProblem::Failing("an answer that was not asked for".to_owned());
                self.failed(state, trouble, random, &mut news)
            }
        };
        news
    }

    /// Something is as it should be.
    fn works(&mut self, news: &mut Vec<WatchEvent>) {
        self.has_heard = true;
        self.flaps = 0;
        self.away.succeed();
        self.failing.succeed();
        if self.trouble.take().is_some() {
            news.push(WatchEvent::Recovered);
        }
    }

    /// A watch says what it is there to say.
    fn flows(&mut self, news: &mut Vec<WatchEvent>) {
        self.stale.succeed();
        self.works(news);
    }

    /// The server says that it does not have the kind. One answer may be that of a server that has just started, or of
    /// another one behind the same address, and what follows from it is that policies are not enforced any more.
    fn not_there(&mut self, random: u64, news: &mut Vec<WatchEvent>) -> ReflectorState {
        if self.is_built_in {
            let trouble =
                WatchProblem::Failing("the server says that there is no such kind".to_owned());
            return self.failed(ReflectorState::Listing(None), trouble, random, news);
        }
        if !self.is_absent && !std::mem::replace(&mut self.may_be_absent, true) {
            return rest(jitter(SAY_AGAIN, random), ReflectorState::Discovering);
        }
        // It answers, also where it says nothing new.
        self.works(news);
        let was_absent = std::mem::replace(&mut self.is_absent, true);
        news.push(match was_absent {
            true => WatchEvent::Heartbeat,
            false => WatchEvent::Absent,
        });
        rest(jitter(ABSENT, random), ReflectorState::Discovering)
    }

    /// A watch tells of an object. One that does not say who it is may be any, so that everything is asked for once more.
    fn object_event(
        &mut self,
        before: String,
        item: &Item,
        random: u64,
        news: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        match item {
            Item::Named(named) => {
                self.flows(news);
                let version = &named.version;
                ReflectorState::Watching(match version.is_empty() {
                    true => before,
                    false => version.clone(),
                })
            }
            Item::Unnamed(words) => {
                let trouble = WatchProblem::Failing(format!("the watch tells of {words}"));
                self.has_heard = false;
                self.failed(ReflectorState::Listing(None), trouble, random, news)
            }
        }
    }

    fn listed(
        &mut self,
        after: Option<&str>,
        page: Page,
        random: u64,
        news: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        match page.more {
            Some(more) if after == Some(more.as_str()) => {
                let trouble = WatchProblem::Failing("the list does not go on".to_owned());
                self.failed(ReflectorState::Listing(None), trouble, random, news)
            }
            Some(more) => ReflectorState::Listing(Some(more)),
            None => {
                news.push(WatchEvent::ListComplete);
                self.works(news);
                self.has_heard = false;
                ReflectorState::Watching(page.version)
            }
        }
    }

    /// A watch ends now and then, which is as it should be; one that always ends at once is not.
    fn ended(&mut self, version: String, random: u64) -> ReflectorState {
        if std::mem::take(&mut self.has_heard) {
            return ReflectorState::Watching(version);
        }
        self.flaps += 1;
        let wait = self.failing.fail(random);
        if self.flaps > FLAPS {
            self.flaps = 0;
            return rest(wait, ReflectorState::Listing(None));
        }
        rest(wait, ReflectorState::Watching(version))
    }

    fn refused(
        &mut self,
        state: ReflectorState,
        refusal: &StatusError,
        random: u64,
        news: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        self.has_heard = false;
        if refusal.is_too_old() {
            // It is nobody's fault, but a server that says so of a fresh list has to be left in peace.
            let wait = self.stale.fail(random);
            return match self.stale.failures() {
                1 => ReflectorState::Listing(None),
                _ => rest(wait, ReflectorState::Listing(None)),
            };
        }
        if refusal.is_missing() && !self.is_built_in && state != ReflectorState::Discovering {
            // Only what a server says of all its kinds is believed: proxies say that nothing is there, too.
            return ReflectorState::Discovering;
        }
        let words = match (refusal.message.as_str(), refusal.code) {
            ("", code) => format!("the server answers {code}"),
            (message, _) => message.to_owned(),
        };
        let trouble = match refusal.is_forbidden() {
            true => WatchProblem::Forbidden(words),
            false => WatchProblem::Failing(words),
        };
        let state = self.failed(state, trouble, random, news);
        match (state, refusal.retry_after) {
            (ReflectorState::Resting(wait, then), Some(seconds)) => {
                // It answers again and knows best, however long it was away; but it may say a second for ever.
                let asked = jitter(Duration::from_secs(seconds.min(300)), random);
                ReflectorState::Resting(wait.min(ASKED_TO_WAIT).max(asked), then)
            }
            (state, _) => state,
        }
    }

    /// It goes on where it was, later. A list begins anew: its pages are of one moment.
    fn failed(
        &mut self,
        state: ReflectorState,
        trouble: WatchProblem,
        random: u64,
        news: &mut Vec<WatchEvent>,
    ) -> ReflectorState {
        let wait = match self.is_away {
            true => self.away.fail(random),
            false => self.failing.fail(random),
        };
        if self.trouble.as_ref() != Some(&trouble) {
            self.trouble = Some(trouble.clone());
            news.push(WatchEvent::Problem(trouble));
        }
        let then = match state {
            ReflectorState::Listing(_) => ReflectorState::Listing(None),
            // Where a server was away for long, what it says of old moments is not worth much either, but it says
            // so itself.
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
