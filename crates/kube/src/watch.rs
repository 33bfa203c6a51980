//! Asks a server what [`Reflector`] wants to know, for as long as somebody listens.

use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::io::{AsyncBufRead, AsyncBufReadExt as _};
use palisade_api::Kind;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::access::{RequestFailure, Server, innermost};
use crate::backoff::jitter;
use crate::get::{encoded, page_path};
use crate::item::Item;
use crate::reflector::{NextAction, Reflector, Response, WatchEvent};
use crate::resource::Resource;
use crate::response::{WatchLine, WatchLines};

/// News of a kind. As long as it is held, the room that it takes is taken.
#[derive(Debug)]
pub struct WatchMessage {
    /// The kind.
    pub kind: Kind,
    /// The news.
    pub event: WatchEvent,
    /// When they came.
    pub at: Instant,
    _room: OwnedSemaphorePermit,
}

/// How much may be told and not taken in yet, in units of so many bytes: a listener that is slow slows the server down,
/// and does not fill the memory.
const ROOM: u32 = 32_768;
const UNIT: usize = 1_024;

/// While a server does not answer, one of all kinds asks as often as this, and the others when it has an answer,
/// whatever it is: a server that has just started may refuse one kind for seconds and serve the others.
const SCOUT: Duration = Duration::from_secs(4);
/// What others hear ends a rest of an eighth of its time at the earliest, or of so long.
const LEAST_REST: Duration = Duration::from_secs(2);

/// What those who follow kinds of one server share: room for what was told and not taken in yet, and the news that the
/// server answers again.
#[derive(Clone, Debug)]
pub struct WatchGate {
    permits: Arc<Semaphore>,
    answers: Arc<Notify>,
    scout: Arc<Semaphore>,
}

impl Default for WatchGate {
    fn default() -> WatchGate {
        WatchGate {
            permits: Arc::new(Semaphore::new(ROOM as usize)),
            answers: Arc::default(),
            scout: Arc::new(Semaphore::new(1)),
        }
    }
}

impl WatchGate {
    async fn send(&self, kind: Kind, news: WatchEvent) -> Option<WatchMessage> {
        let bytes = match &news {
            WatchEvent::Early(item)
            | WatchEvent::Listed(item)
            | WatchEvent::Applied(item)
            | WatchEvent::Deleted(item) => item.size(),
            WatchEvent::ListStarted
            | WatchEvent::ListComplete
            | WatchEvent::Heartbeat
            | WatchEvent::Absent
            | WatchEvent::Problem(_)
            | WatchEvent::Recovered => 0,
        };
        // Small ones take more than their bytes, and one that takes everything is told alone.
        let weight = u32::try_from(bytes / UNIT + 1).unwrap_or(ROOM).min(ROOM);
        let at = Instant::now();
        if news == WatchEvent::Recovered {
            self.answers.notify_waiters();
        }
        let room = Arc::clone(&self.permits).acquire_many_owned(weight).await;
        let room = room.ok()?;
        Some(WatchMessage {
            kind,
            event: news,
            at,
            _room: room,
        })
    }

    /// Hands an answer on, and lets the others know if the server is not away any more, or serves again.
    fn hear(&self, follow: &mut Reflector, answer: Response, random: u64) -> Vec<WatchEvent> {
        let (was_away, was_unreached) = (follow.is_away(), follow.is_unreached());
        let news = follow.heard(answer, random);
        let is_there = !follow.is_away();
        if is_there && (was_away || was_unreached && !follow.is_unreached()) {
            self.answers.notify_waiters();
        }
        news
    }

    /// Rests, not longer than until a server that was not there answers somebody.
    async fn rest(&self, time: Duration, follow: &Reflector, random: u64) {
        if !follow.is_away() && !follow.is_unreached() {
            return tokio::time::sleep(time).await;
        }
        let scout = self.scout.try_acquire();
        let time = match &scout {
            Ok(_) => time.min(jitter(SCOUT, random)),
            Err(_) => time,
        };
        // Where answers change from one question to the next, kinds would wake each other all the time.
        let least = (time / 8).min(LEAST_REST);
        let mut answers = pin!(self.answers.notified());
        answers.as_mut().enable();
        tokio::time::sleep(least).await;
        // What was true while it slept need not be, and asking once more does no harm.
        let _ = tokio::time::timeout(time - least, answers).await;
    }
}

/// A server may end a watch after so many seconds; somewhat later for every other one.
const WATCH_SECONDS: u64 = 240;
/// A watch that says nothing for so long may be dead: servers in use say every minute that nothing has happened.
const SILENCE: Duration = Duration::from_secs(150);

/// Follows the objects of a kind until nobody listens any more. `seed` makes the waits different from others'.
pub async fn follow(
    server: Server,
    resource: Resource,
    room: WatchGate,
    seed: u64,
    tell: impl Fn(WatchMessage) -> bool,
) {
    let mut follow = Reflector::new(resource.is_built_in);
    let mut random = Random(seed);
    loop {
        let ask = follow.next();
        if let NextAction::Watch(version) = ask {
            let seconds = WATCH_SECONDS + random.next() % WATCH_SECONDS;
            let mut path = resource.path();
            let _ = write!(
                path,
                "?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
                encoded(&version)
            );
            match server.stream(&path).await {
                Ok(lines) => {
                    let reading = OpenResponse {
                        follow: &mut follow,
                        gate: &room,
                        random: &mut random,
                        resource,
                    };
                    if reading.lines(lines, &tell).await.is_none() {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    let news = room.hear(&mut follow, error.into(), random.next());
                    if send_all(&room, resource.kind, news, &tell).await.is_none() {
                        return;
                    }
                    continue;
                }
            }
        }
        let answer = match ask {
            NextAction::Rest(time) => {
                room.rest(time, &follow, random.next()).await;
                Response::Rested
            }
            NextAction::Discover => match server.has(resource).await {
                Ok(has) => Response::Discovered(has),
                Err(error) => error.into(),
            },
            NextAction::List(after) => {
                let reading = OpenResponse {
                    follow: &mut follow,
                    gate: &room,
                    random: &mut random,
                    resource,
                };
                let path = page_path(resource, None, after.as_deref());
                match reading.page(&server, &path, &tell).await {
                    Some(answer) => answer,
                    None => return,
                }
            }
            NextAction::Watch(_) => continue,
        };
        let news = room.hear(&mut follow, answer, random.next());
        if send_all(&room, resource.kind, news, &tell).await.is_none() {
            return;
        }
    }
}

/// Between two questions for one object.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Tells of one object as soon as the server says what it is, and not of the others. It is asked for as a part of a list,
/// which who may list may read.
pub async fn follow_one(
    server: &Server,
    resource: Resource,
    name: &str,
    tell: impl Fn(WatchMessage) -> bool,
) {
    let name = encoded(&format!("metadata.name={name}"));
    let path = format!("{}?limit=1&fieldSelector={name}", resource.path());
    loop {
        if let Some(item) = first(server, resource, &path).await
            && let Some(told) = WatchGate::default()
                .send(resource.kind, WatchEvent::Early(item))
                .await
        {
            tell(told);
            return;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// The first object of a list that says who it is.
async fn first(server: &Server, resource: Resource, path: &str) -> Option<Item> {
    let mut objects = server.objects(resource, path).await.ok()?;
    while let Ok(Some(found)) = objects.next().await {
        let mut items = found.into_iter().map(Item::of);
        if let Some(item) = items.find(|it| matches!(it, Item::Named(_))) {
            return Some(item);
        }
    }
    None
}

impl From<RequestFailure> for Response {
    fn from(error: RequestFailure) -> Response {
        match error {
            RequestFailure::Refused(refusal) => Response::Refused(refusal),
            RequestFailure::Failed(words) => Response::Failed(words),
        }
    }
}

/// `None`: nobody listens any more.
async fn send_all(
    room: &WatchGate,
    kind: Kind,
    news: Vec<WatchEvent>,
    tell: &impl Fn(WatchMessage) -> bool,
) -> Option<()> {
    for news in news {
        let told = room.send(kind, news).await?;
        if !tell(told) {
            return None;
        }
    }
    Some(())
}

/// A page of a list, or a watch, that is being read.
struct OpenResponse<'r> {
    follow: &'r mut Reflector,
    gate: &'r WatchGate,
    random: &'r mut Random,
    resource: Resource,
}

impl OpenResponse<'_> {
    async fn hear(&mut self, answer: Response, tell: &impl Fn(WatchMessage) -> bool) -> Option<()> {
        let news = self.gate.hear(self.follow, answer, self.random.next());
        send_all(self.gate, self.resource.kind, news, tell).await
    }

    /// Tells of all objects of a page as they arrive. What came of the page as a whole; `None`: nobody listens any more.
    async fn page(
        mut self,
        server: &Server,
        path: &str,
        tell: &impl Fn(WatchMessage) -> bool,
    ) -> Option<Response> {
        let mut objects = match server.objects(self.resource, path).await {
            Ok(objects) => objects,
            Err(error) => return Some(error.into()),
        };
        self.hear(Response::Opened, tell).await?;
        loop {
            match objects.next().await {
                Ok(Some(found)) => {
                    for piece in found {
                        self.hear(Response::Item(Item::of(piece)), tell).await?;
                    }
                }
                Ok(None) => break,
                Err(words) => return Some(Response::Failed(words)),
            }
        }
        Some(match objects.head() {
            Ok(page) => Response::Page(page),
            Err(words) => Response::Failed(words),
        })
    }

    /// Takes all lines of a watch; `None`: nobody listens any more.
    async fn lines(
        mut self,
        mut lines: impl AsyncBufRead + Unpin,
        tell: &impl Fn(WatchMessage) -> bool,
    ) -> Option<()> {
        self.hear(Response::Opened, tell).await?;
        let mut read = WatchLines::default();
        loop {
            let answer = next_line(&mut lines, &mut read).await;
            let is_line = matches!(answer, Response::Line(_));
            self.hear(answer, tell).await?;
            // A watch is given up as well when it tells of what nobody can name.
            if !is_line || !matches!(self.follow.next(), NextAction::Watch(_)) {
                return Some(());
            }
        }
    }
}

/// What a watch says next.
async fn next_line(bytes: &mut (impl AsyncBufRead + Unpin), read: &mut WatchLines) -> Response {
    loop {
        let arrived = match tokio::time::timeout(SILENCE, bytes.fill_buf()).await {
            Err(_) => return Response::Silent,
            Ok(Err(error)) => return Response::Failed(innermost(&error)),
            Ok(Ok([])) if read.is_within() => {
                return Response::Failed("the watch broke off".to_owned());
            }
            Ok(Ok([])) => return Response::Ended,
            Ok(Ok(arrived)) => arrived,
        };
        let (length, line) = read.push(arrived);
        bytes.consume_unpin(length);
        match line {
            None => {}
            Some(Ok(WatchLine::Refused(refusal))) => return Response::Refused(refusal),
            Some(Ok(line)) => return Response::Line(line),
            Some(Err(words)) => return Response::Garbled(words),
        }
    }
}

/// Numbers that look random; waits need no better ones.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::WatchGate;
    use crate::reflector::{Reflector, Response};
    use crate::response::StatusError;

    #[test]
    fn whatever_a_server_answers_after_it_was_away_lets_all_ask_again() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let room = WatchGate::default();
        let mut asked = Reflector::new(true);
        room.hear(&mut asked, Response::Failed("refused".to_owned()), 0);
        let began = Instant::now();
        runtime.block_on(async {
            // Somebody else asks every few seconds, so that this one would rest for long.
            let _scout = room.scout.try_acquire();
            let mut away = Reflector::new(true);
            room.hear(&mut away, Response::Failed("refused".to_owned()), 0);
            let resting = room.rest(Duration::from_secs(30), &away, 0);
            let answered = async {
                room.hear(&mut asked, Response::Rested, 0);
                let refusal = StatusError {
                    code: 503,
                    ..StatusError::default()
                };
                room.hear(&mut asked, Response::Refused(refusal), 0);
            };
            futures_util::future::join(resting, answered).await;
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    /// A load balancer answers 503 for a server that is away; whoever is served first lets the others ask.
    #[test]
    fn whoever_is_served_after_the_server_could_not_be_reached_lets_all_ask_again() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        for (code, is_waiting) in [(502, true), (503, true), (504, true), (500, false)] {
            let room = WatchGate::default();
            let refused = || {
                let mut follow = Reflector::new(true);
                let refusal = StatusError {
                    code,
                    ..StatusError::default()
                };
                room.hear(&mut follow, Response::Refused(refusal), 0);
                follow
            };
            let (mut asked, waiting) = (refused(), refused());
            let began = Instant::now();
            runtime.block_on(async {
                let _scout = room.scout.try_acquire();
                let resting = room.rest(Duration::from_millis(400), &waiting, 0);
                let answered = async {
                    room.hear(&mut asked, Response::Rested, 0);
                    room.hear(&mut asked, Response::Opened, 0);
                };
                futures_util::future::join(resting, answered).await;
            });
            let was_woken = began.elapsed() < Duration::from_millis(350);
            assert_eq!(was_woken, is_waiting, "{code}");
        }
    }

    /// One of all asks every few seconds.
    #[test]
    fn one_asks_soon_where_the_server_cannot_be_reached() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let room = WatchGate::default();
        let mut follow = Reflector::new(true);
        let refusal = StatusError {
            code: 503,
            ..StatusError::default()
        };
        room.hear(&mut follow, Response::Refused(refusal), 0);
        let took = runtime.block_on(async {
            let began = Instant::now();
            room.rest(Duration::from_secs(30), &follow, 0).await;
            began.elapsed()
        });
        let soon = Duration::from_secs(2)..Duration::from_secs(20);
        assert!(soon.contains(&took), "{took:?}");
    }
}
