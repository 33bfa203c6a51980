//! Asks a server what [`Follow`] wants to know, for as long as somebody listens.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt as _};
use palisade_api::Kind;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::access::{Server, Unanswered, innermost};
use crate::answer::{has_resource, line};
use crate::follow::{Answer, Ask, Follow, News};
use crate::get::encoded;
use crate::pace::spread;
use crate::resource::Resource;

/// News of a kind. As long as it is held, the room that it takes is taken.
#[derive(Debug)]
pub struct Told {
    /// The kind.
    pub kind: Kind,
    /// The news.
    pub news: News,
    /// When they came.
    pub at: Instant,
    _room: OwnedSemaphorePermit,
}

/// How much may be told and not taken in yet: a listener that is slow slows the server down, and does not fill the
/// memory.
const ROOM: usize = 1_024;
const ROOM_OF_A_PAGE: u32 = 512;

/// While a server does not answer, one of all kinds asks as often as this, and the others when it has an answer,
/// whatever it is: a server that has just started may refuse one kind for seconds and serve the others.
const SCOUT: Duration = Duration::from_secs(4);

/// What those who follow kinds of one server share: room for what was told and not taken in yet, and the news that the
/// server answers again.
#[derive(Clone, Debug)]
pub struct Room {
    room: Arc<Semaphore>,
    answers: Arc<Notify>,
    scout: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            room: Arc::new(Semaphore::new(ROOM)),
            answers: Arc::default(),
            scout: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Room {
    async fn tell(&self, kind: Kind, news: News) -> Option<Told> {
        let weight = match &news {
            News::Page(_) => ROOM_OF_A_PAGE,
            News::Began
            | News::Complete
            | News::Set(_)
            | News::Gone(_)
            | News::Quiet
            | News::Absent
            | News::Trouble(_)
            | News::Fine => 1,
        };
        let at = Instant::now();
        if news == News::Fine {
            self.answers.notify_waiters();
        }
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await;
        let room = room.ok()?;
        Some(Told {
            kind,
            news,
            at,
            _room: room,
        })
    }

    /// Hands an answer on, and lets the others know if the server is not away any more.
    fn hear(&self, follow: &mut Follow, answer: Answer<'_>, random: u64) -> Vec<News> {
        let was_away = follow.is_away();
        let news = follow.heard(answer, random);
        if was_away && !follow.is_away() {
            self.answers.notify_waiters();
        }
        news
    }

    /// Rests, not longer than until a server that was away answers somebody.
    async fn rest(&self, time: Duration, is_away: bool, random: u64) {
        if !is_away {
            return tokio::time::sleep(time).await;
        }
        let scout = self.scout.try_acquire();
        let time = match &scout {
            Ok(_) => time.min(spread(SCOUT, random)),
            Err(_) => time,
        };
        // What was true while it slept need not be, and asking once more does no harm.
        let _ = tokio::time::timeout(time, self.answers.notified()).await;
    }
}

/// A server may end a watch after so many seconds; somewhat later for every other one.
const WATCH_SECONDS: u64 = 240;
/// A watch that says nothing for so long may be dead: servers in use say every minute that nothing has happened.
const SILENCE: Duration = Duration::from_secs(150);
/// The longest line of a watch: an object, of which servers keep a few megabytes at most.
const LONGEST_LINE: u64 = 64 << 20;

/// Follows the objects of a kind until nobody listens any more. `seed` makes the waits different from others'.
pub async fn follow(
    server: Server,
    resource: Resource,
    room: Room,
    seed: u64,
    tell: impl Fn(Told) -> bool,
) {
    let mut follow = Follow::default();
    let mut random = Random(seed);
    loop {
        let ask = follow.next();
        if let Ask::Watch(version) = ask {
            let seconds = WATCH_SECONDS + random.next() % WATCH_SECONDS;
            let mut path = resource.path();
            let _ = write!(
                path,
                "?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
                encoded(&version)
            );
            match server.stream(&path).await {
                Ok(lines) => {
                    let watching = Watching {
                        follow: &mut follow,
                        room: &room,
                        random: &mut random,
                        kind: resource.kind,
                    };
                    if watching.all(lines, &tell).await.is_none() {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    let news = room.hear(&mut follow, error.into(), random.next());
                    if tell_all(&room, resource.kind, news, &tell).await.is_none() {
                        return;
                    }
                    continue;
                }
            }
        }
        let answer = match ask {
            Ask::Rest(time) => {
                room.rest(time, follow.is_away(), random.next()).await;
                Answer::Rested
            }
            Ask::Discover => match server.get(&resource.group_path()).await {
                Ok(text) => match has_resource(&text, resource.plural) {
                    Ok(has) => Answer::Discovered(has),
                    Err(words) => Answer::Failed(words),
                },
                Err(error) => error.into(),
            },
            Ask::List(after) => match server.page(resource, None, after.as_deref()).await {
                Ok((page, text)) => Answer::Page(page, text),
                Err(error) => error.into(),
            },
            Ask::Watch(_) => continue,
        };
        let news = room.hear(&mut follow, answer, random.next());
        if tell_all(&room, resource.kind, news, &tell).await.is_none() {
            return;
        }
    }
}

impl From<Unanswered> for Answer<'static> {
    fn from(error: Unanswered) -> Answer<'static> {
        match error {
            Unanswered::Refused(refusal) => Answer::Refused(refusal),
            Unanswered::Failed(words) => Answer::Failed(words),
        }
    }
}

/// `None`: nobody listens any more.
async fn tell_all(
    room: &Room,
    kind: Kind,
    news: Vec<News>,
    tell: &impl Fn(Told) -> bool,
) -> Option<()> {
    for news in news {
        let told = room.tell(kind, news).await?;
        if !tell(told) {
            return None;
        }
    }
    Some(())
}

/// A watch that goes on.
struct Watching<'w> {
    follow: &'w mut Follow,
    room: &'w Room,
    random: &'w mut Random,
    kind: Kind,
}

impl Watching<'_> {
    /// Takes all lines; `None`: nobody listens any more.
    async fn all(
        self,
        mut lines: impl AsyncBufRead + Unpin,
        tell: &impl Fn(Told) -> bool,
    ) -> Option<()> {
        let random = self.random.next();
        let news = self.room.hear(self.follow, Answer::Opened, random);
        tell_all(self.room, self.kind, news, tell).await?;
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let mut limited = (&mut lines).take(LONGEST_LINE);
            let read = limited.read_until(b'\n', &mut buffer);
            let read = tokio::time::timeout(SILENCE, read).await;
            let text = std::str::from_utf8(&buffer);
            let (answer, is_over) = match (read, text) {
                (Err(_), _) => (Answer::Silent, true),
                (Ok(Err(error)), _) => (Answer::Failed(innermost(&error)), true),
                (Ok(Ok(0)), _) => (Answer::Ended, true),
                (Ok(Ok(_)), Err(_)) => (Answer::Failed("not a text".to_owned()), true),
                (Ok(Ok(_)), Ok(text)) if !text.ends_with('\n') => {
                    (Answer::Failed("the watch broke off".to_owned()), true)
                }
                (Ok(Ok(_)), Ok(text)) => match line(text) {
                    Ok(crate::answer::Line::Refused(refusal)) => (Answer::Refused(refusal), true),
                    Ok(line) => (Answer::Line(line), false),
                    Err(words) => (Answer::Failed(words), true),
                },
            };
            let news = self.room.hear(self.follow, answer, self.random.next());
            tell_all(self.room, self.kind, news, tell).await?;
            if is_over {
                return Some(());
            }
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

    use super::Room;
    use crate::answer::Refusal;
    use crate::follow::{Answer, Follow};

    #[test]
    fn whatever_a_server_answers_after_it_was_away_lets_all_ask_again() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let room = Room::default();
        let mut asked = Follow::default();
        room.hear(&mut asked, Answer::Failed("refused".to_owned()), 0);
        let began = Instant::now();
        runtime.block_on(async {
            // Somebody else asks every few seconds, so that this one would rest for long.
            let _scout = room.scout.try_acquire();
            let resting = room.rest(Duration::from_secs(30), true, 0);
            let answered = async {
                room.hear(&mut asked, Answer::Rested, 0);
                let refusal = Refusal {
                    code: 503,
                    ..Refusal::default()
                };
                room.hear(&mut asked, Answer::Refused(refusal), 0);
            };
            futures_util::future::join(resting, answered).await;
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
