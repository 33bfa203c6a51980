//! Sends the requests of a [`Reflector`] to a server, for as long as the consumer listens.

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

/// An event of a kind. Its share of the [`WatchGate`] stays taken until it is dropped.
#[derive(Debug)]
pub struct WatchMessage {
    /// The kind.
    pub kind: Kind,
    /// The event.
    pub event: WatchEvent,
    /// When it arrived.
    pub at: Instant,
    _room: OwnedSemaphorePermit,
}

/// The bound of the events that are sent and not processed yet, in units of 1,024 bytes: a slow
/// consumer slows the server down instead of filling the memory.
const ROOM: u32 = 32_768;
const UNIT: usize = 1_024;

/// While a server does not answer, one kind at a time retries at this interval; the others follow
/// when it gets an answer, whatever that is. A server that has just started may refuse one kind for
/// seconds and serve the others.
const SCOUT: Duration = Duration::from_secs(4);
/// The answers of other kinds end a wait after an eighth of its time, or after this time if that is
/// less.
const LEAST_REST: Duration = Duration::from_secs(2);

/// The state that all watches of one server share: the bound of unprocessed events, and the
/// notification that the server answers again.
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
    async fn send(&self, kind: Kind, event: WatchEvent) -> Option<WatchMessage> {
        let bytes = match &event {
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
        // Every event has a cost beyond its bytes, hence the `+ 1`. One that is larger than the
        // whole bound waits until it is alone.
        let weight = u32::try_from(bytes / UNIT + 1).unwrap_or(ROOM).min(ROOM);
        // The time of arrival: the wait for room is a part of the latency.
        let at = Instant::now();
        // Before the wait for room: a slow consumer must not delay the other kinds.
        if event == WatchEvent::Recovered {
            self.answers.notify_waiters();
        }
        let permit = Arc::clone(&self.permits).acquire_many_owned(weight).await;
        let permit = permit.ok()?;
        Some(WatchMessage {
            kind,
            event,
            at,
            _room: permit,
        })
    }

    /// Passes a response to a reflector, and wakes the others if the server answers or serves
    /// again.
    fn handle(
        &self,
        reflector: &mut Reflector,
        response: Response,
        random: u64,
    ) -> Vec<WatchEvent> {
        let (was_away, was_unreached) = (reflector.is_away(), reflector.is_unreached());
        let events = reflector.handle(response, random);
        let answers = !reflector.is_away();
        if answers && (was_away || was_unreached && !reflector.is_unreached()) {
            self.answers.notify_waiters();
        }
        events
    }

    /// Waits, but not longer than until a server that was away answers another kind.
    async fn rest(&self, time: Duration, reflector: &Reflector, random: u64) {
        if !reflector.is_away() && !reflector.is_unreached() {
            return tokio::time::sleep(time).await;
        }
        // The permit is held until the end of the wait: its holder retries soon, the others wait
        // long.
        let scout = self.scout.try_acquire();
        let time = match &scout {
            Ok(_) => time.min(jitter(SCOUT, random)),
            Err(_) => time,
        };
        // If the answers change from request to request, kinds would wake each other all the time.
        let least = (time / 8).min(LEAST_REST);
        let mut answers = pin!(self.answers.notified());
        // Registered before the sleep: an answer during the sleep counts.
        answers.as_mut().enable();
        tokio::time::sleep(least).await;
        // The server may be away again by then; one more request does no harm.
        let _ = tokio::time::timeout(time - least, answers).await;
    }
}

/// The least time after which a server ends a watch, in seconds; the actual one is random up to
/// twice that. Watches of many nodes then do not end at the same moment.
const WATCH_SECONDS: u64 = 240;
/// A watch that is silent for this time may be dead: servers send a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Lists and watches the objects of a kind until `deliver` returns false. `seed` makes the jitter
/// different from that of others.
pub async fn follow(
    server: Server,
    resource: Resource,
    gate: WatchGate,
    seed: u64,
    deliver: impl Fn(WatchMessage) -> bool,
) {
    let mut reflector = Reflector::new(resource.is_built_in);
    let mut random = Random(seed);
    loop {
        let action = reflector.next();
        if let NextAction::Watch(version) = action {
            let seconds = WATCH_SECONDS + random.next() % WATCH_SECONDS;
            let mut path = resource.path();
            let _ = write!(
                path,
                "?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
                encoded(&version)
            );
            match server.stream(&path).await {
                Ok(lines) => {
                    let open = OpenResponse {
                        follow: &mut reflector,
                        gate: &gate,
                        random: &mut random,
                        resource,
                    };
                    if open.lines(lines, &deliver).await.is_none() {
                        return;
                    }
                    // Every event went through the reflector while the watch was read.
                    continue;
                }
                Err(error) => {
                    let events = gate.handle(&mut reflector, error.into(), random.next());
                    if send_all(&gate, resource.kind, events, &deliver)
                        .await
                        .is_none()
                    {
                        return;
                    }
                    continue;
                }
            }
        }
        let response = match action {
            NextAction::Rest(time) => {
                gate.rest(time, &reflector, random.next()).await;
                Response::Rested
            }
            NextAction::Discover => match server.has(resource).await {
                Ok(has) => Response::Discovered(has),
                Err(error) => error.into(),
            },
            NextAction::List(after) => {
                let open = OpenResponse {
                    follow: &mut reflector,
                    gate: &gate,
                    random: &mut random,
                    resource,
                };
                let path = page_path(resource, None, after.as_deref());
                match open.page(&server, &path, &deliver).await {
                    Some(response) => response,
                    None => return,
                }
            }
            NextAction::Watch(_) => continue,
        };
        let events = gate.handle(&mut reflector, response, random.next());
        if send_all(&gate, resource.kind, events, &deliver)
            .await
            .is_none()
        {
            return;
        }
    }
}

/// The interval of requests for one object.
const RETRY: Duration = Duration::from_secs(1);

/// Sends one object as soon as the server returns it, once. It is requested as a list, which needs
/// no other permission than lists do.
pub async fn follow_one(
    server: &Server,
    resource: Resource,
    name: &str,
    deliver: impl Fn(WatchMessage) -> bool,
) {
    let name = encoded(&format!("metadata.name={name}"));
    let path = format!("{}?limit=1&fieldSelector={name}", resource.path());
    loop {
        if let Some(item) = first(server, resource, &path).await
            && let Some(message) = WatchGate::default()
                .send(resource.kind, WatchEvent::Early(item))
                .await
        {
            deliver(message);
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns the first object of a list that has a readable name.
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
            RequestFailure::Refused(status) => Response::Refused(status),
            RequestFailure::Failed(cause) => Response::Failed(cause),
        }
    }
}

/// Sends events; `None`: the consumer has stopped.
async fn send_all(
    gate: &WatchGate,
    kind: Kind,
    events: Vec<WatchEvent>,
    deliver: &impl Fn(WatchMessage) -> bool,
) -> Option<()> {
    for event in events {
        let message = gate.send(kind, event).await?;
        if !deliver(message) {
            return None;
        }
    }
    Some(())
}

/// A page of a list or a watch while it is being read.
struct OpenResponse<'r> {
    follow: &'r mut Reflector,
    gate: &'r WatchGate,
    random: &'r mut Random,
    resource: Resource,
}

impl OpenResponse<'_> {
    async fn handle(
        &mut self,
        response: Response,
        deliver: &impl Fn(WatchMessage) -> bool,
    ) -> Option<()> {
        let events = self.gate.handle(self.follow, response, self.random.next());
        send_all(self.gate, self.resource.kind, events, deliver).await
    }

    /// Sends all objects of a page as they arrive. Returns the response for the page as a whole;
    /// `None`: the consumer has stopped.
    async fn page(
        mut self,
        server: &Server,
        path: &str,
        deliver: &impl Fn(WatchMessage) -> bool,
    ) -> Option<Response> {
        let mut objects = match server.objects(self.resource, path).await {
            Ok(objects) => objects,
            Err(error) => return Some(error.into()),
        };
        self.handle(Response::Opened, deliver).await?;
        loop {
            match objects.next().await {
                Ok(Some(found)) => {
                    for piece in found {
                        self.handle(Response::Item(Item::of(piece)), deliver)
                            .await?;
                    }
                }
                Ok(None) => break,
                Err(cause) => return Some(Response::Failed(cause)),
            }
        }
        Some(match objects.head() {
            Ok(page) => Response::Page(page),
            Err(cause) => Response::Failed(cause),
        })
    }

    /// Sends all events of a watch; `None`: the consumer has stopped.
    async fn lines(
        mut self,
        mut lines: impl AsyncBufRead + Unpin,
        deliver: &impl Fn(WatchMessage) -> bool,
    ) -> Option<()> {
        self.handle(Response::Opened, deliver).await?;
        let mut splitter = WatchLines::default();
        loop {
            let response = next_line(&mut lines, &mut splitter).await;
            let is_line = matches!(response, Response::Line(_));
            self.handle(response, deliver).await?;
            // A watch also ends when the reflector gives it up, for example after an object without
            // a name.
            if !is_line || !matches!(self.follow.next(), NextAction::Watch(_)) {
                return Some(());
            }
        }
    }
}

/// Returns the next response of a watch.
async fn next_line(bytes: &mut (impl AsyncBufRead + Unpin), splitter: &mut WatchLines) -> Response {
    loop {
        let arrived = match tokio::time::timeout(SILENCE, bytes.fill_buf()).await {
            Err(_) => return Response::Silent,
            Ok(Err(error)) => return Response::Failed(innermost(&error)),
            Ok(Ok([])) if splitter.is_within() => {
                return Response::Failed("the connection closed within a watch event".to_owned());
            }
            Ok(Ok([])) => return Response::Ended,
            Ok(Ok(arrived)) => arrived,
        };
        let (length, line) = splitter.push(arrived);
        bytes.consume_unpin(length);
        match line {
            None => {}
            Some(Ok(WatchLine::Refused(status))) => return Response::Refused(status),
            Some(Ok(line)) => return Response::Line(line),
            Some(Err(cause)) => return Response::Garbled(cause),
        }
    }
}

/// A splitmix64 generator; jitter needs nothing better.
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
    fn any_answer_after_an_outage_wakes_all_kinds() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let gate = WatchGate::default();
        let mut retrying = Reflector::new(true);
        gate.handle(&mut retrying, Response::Failed("refused".to_owned()), 0);
        let began = Instant::now();
        runtime.block_on(async {
            // Another kind has the permit, so this one would wait for long.
            let _scout = gate.scout.try_acquire();
            let mut away = Reflector::new(true);
            gate.handle(&mut away, Response::Failed("refused".to_owned()), 0);
            let resting = gate.rest(Duration::from_secs(30), &away, 0);
            let answering = async {
                gate.handle(&mut retrying, Response::Rested, 0);
                let status = StatusError {
                    code: 503,
                    ..StatusError::default()
                };
                gate.handle(&mut retrying, Response::Refused(status), 0);
            };
            futures_util::future::join(resting, answering).await;
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    /// A load balancer answers 503 for a server that is away; the first kind that is served wakes
    /// the others.
    #[test]
    fn the_first_kind_that_is_served_after_a_gateway_error_wakes_all() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        for (code, is_waiting) in [(502, true), (503, true), (504, true), (500, false)] {
            let gate = WatchGate::default();
            let refused = || {
                let mut reflector = Reflector::new(true);
                let status = StatusError {
                    code,
                    ..StatusError::default()
                };
                gate.handle(&mut reflector, Response::Refused(status), 0);
                reflector
            };
            let (mut retrying, waiting) = (refused(), refused());
            let began = Instant::now();
            runtime.block_on(async {
                let _scout = gate.scout.try_acquire();
                let resting = gate.rest(Duration::from_millis(400), &waiting, 0);
                let answering = async {
                    gate.handle(&mut retrying, Response::Rested, 0);
                    gate.handle(&mut retrying, Response::Opened, 0);
                };
                futures_util::future::join(resting, answering).await;
            });
            let was_woken = began.elapsed() < Duration::from_millis(350);
            assert_eq!(was_woken, is_waiting, "{code}");
        }
    }

    /// One of all kinds retries every few seconds.
    #[test]
    fn one_kind_retries_soon_while_the_server_is_away() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let gate = WatchGate::default();
        let mut reflector = Reflector::new(true);
        let status = StatusError {
            code: 503,
            ..StatusError::default()
        };
        gate.handle(&mut reflector, Response::Refused(status), 0);
        let took = runtime.block_on(async {
            let began = Instant::now();
            gate.rest(Duration::from_secs(30), &reflector, 0).await;
            began.elapsed()
        });
        let soon = Duration::from_secs(2)..Duration::from_secs(20);
        assert!(soon.contains(&took), "{took:?}");
    }
}
