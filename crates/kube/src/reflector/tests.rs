//! Answers in the order in which servers give them, and in orders that they should not.

use std::time::Duration;

use super::{NextAction, Reflector, Response, WatchEvent, WatchProblem};
use crate::item::Item;
use crate::response::{Page, StatusError, WatchLine};
use crate::split::SplitObject;

/// The middle of all waits.
const MIDDLE: u64 = 25;

fn page(version: &str, more: Option<&str>) -> Response {
    let page = Page {
        version: version.to_owned(),
        more: more.map(str::to_owned),
    };
    Response::Page(page)
}

/// An object of this moment.
fn item(version: &str) -> Item {
    let text = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#);
    Item::of(SplitObject::Whole(text.into_bytes()))
}

fn unnamed() -> Item {
    Item::of(SplitObject::Whole(b"{}".to_vec()))
}

fn set(version: &str) -> Response {
    Response::Line(WatchLine::Set(item(version)))
}

fn refused(code: u16) -> Response {
    Response::Refused(StatusError {
        code,
        message: format!("code {code}"),
        ..StatusError::default()
    })
}

fn failing(words: &str) -> WatchEvent {
    WatchEvent::Problem(WatchProblem::Failing(words.to_owned()))
}

/// A follower that watches from moment 10 on.
fn watching() -> Reflector {
    let mut follow = Reflector::new(false);
    follow.heard(page("10", None), MIDDLE);
    assert_eq!(follow.next(), NextAction::Watch("10".to_owned()));
    follow
}

fn rested(follow: &mut Reflector) -> NextAction {
    assert!(
        matches!(follow.next(), NextAction::Rest(_)),
        "{:?}",
        follow.next()
    );
    assert_eq!(follow.heard(Response::Rested, MIDDLE), []);
    follow.next()
}

#[test]
fn lists_page_by_page_then_watches() {
    let mut follow = Reflector::new(false);
    assert_eq!(follow.next(), NextAction::List(None));
    assert_eq!(
        follow.heard(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    let news = follow.heard(Response::Item(item("5")), MIDDLE);
    assert_eq!(news, [WatchEvent::Listed(item("5"))]);
    assert_eq!(follow.heard(page("7", Some("next")), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::List(Some("next".to_owned())));
    assert_eq!(follow.heard(Response::Opened, MIDDLE), []);
    let news = follow.heard(Response::Item(unnamed()), MIDDLE);
    assert_eq!(news, [WatchEvent::Listed(unnamed())]);
    assert_eq!(
        follow.heard(page("7", None), MIDDLE),
        [WatchEvent::ListComplete]
    );
    assert_eq!(follow.next(), NextAction::Watch("7".to_owned()));
    assert_eq!(
        follow.heard(set("8"), MIDDLE),
        [WatchEvent::Applied(item("8"))]
    );
    assert_eq!(follow.next(), NextAction::Watch("8".to_owned()));
}

#[test]
fn a_watch_that_ends_goes_on_from_the_last_moment_it_knew() {
    let mut follow = watching();
    let until = Response::Line(WatchLine::Until("99".to_owned()));
    assert_eq!(follow.heard(until, MIDDLE), [WatchEvent::Heartbeat]);
    assert_eq!(follow.heard(Response::Ended, MIDDLE), []);
    assert_eq!(follow.next(), NextAction::Watch("99".to_owned()));
}

#[test]
fn a_watch_that_flaps_is_slowed_down_and_then_begun_anew() {
    let mut follow = watching();
    for milliseconds in [200, 400, 800] {
        follow.heard(Response::Ended, MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    }
    follow.heard(Response::Ended, MIDDLE);
    assert_eq!(rested(&mut follow), NextAction::List(None));
}

#[test]
fn what_is_too_old_is_listed_again_at_once_but_not_for_ever() {
    let mut follow = watching();
    assert_eq!(follow.heard(refused(410), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::List(None));
    // The list is too old at its second page, again and again.
    follow.heard(page("11", Some("next")), MIDDLE);
    follow.heard(refused(410), MIDDLE);
    assert_eq!(rested(&mut follow), NextAction::List(None));
    assert_eq!(
        follow.heard(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    assert_eq!(
        follow.heard(page("12", None), MIDDLE),
        [WatchEvent::ListComplete]
    );
}

#[test]
fn a_refusal_inside_of_a_watch_is_one() {
    let mut follow = watching();
    let refusal = StatusError {
        code: 410,
        ..StatusError::default()
    };
    follow.heard(Response::Line(WatchLine::Refused(refusal)), MIDDLE);
    assert_eq!(follow.next(), NextAction::List(None));
}

#[test]
fn nothing_is_gone_because_a_server_is_away() {
    let mut follow = watching();
    let news = follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
    assert_eq!(news, [failing("refused")]);
    for _ in 0..20 {
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
        // The same trouble is told once.
        let news = follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(news, []);
    }
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(30)));
    rested(&mut follow);
    assert_eq!(
        follow.heard(set("11"), MIDDLE),
        [WatchEvent::Recovered, WatchEvent::Applied(item("11"))]
    );
}

#[test]
fn who_may_not_read_keeps_asking_and_keeps_what_is_known() {
    let mut follow = watching();
    let news = follow.heard(refused(403), MIDDLE);
    let forbidden = WatchProblem::Forbidden("code 403".to_owned());
    assert_eq!(news, [WatchEvent::Problem(forbidden)]);
    assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    // An expired token is another trouble, in other words.
    let news = follow.heard(refused(401), MIDDLE);
    let expired = WatchProblem::Forbidden("code 401".to_owned());
    assert_eq!(news, [WatchEvent::Problem(expired)]);
}

#[test]
fn a_kind_is_gone_only_if_the_server_says_that_it_has_no_such_kind() {
    let mut follow = watching();
    assert_eq!(follow.heard(refused(404), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::Discover);
    // It has: whoever said 404 was wrong, or the kind is back.
    assert_eq!(follow.heard(Response::Discovered(true), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::List(None));
    follow.heard(refused(404), MIDDLE);
    // Said once it may be a server that has just started, or the wrong one.
    assert_eq!(follow.heard(Response::Discovered(false), MIDDLE), []);
    assert_eq!(rested(&mut follow), NextAction::Discover);
    assert_eq!(
        follow.heard(Response::Discovered(false), MIDDLE),
        [WatchEvent::Absent]
    );
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(15)));
    // Told once, looked for again and again, and found when it comes.
    assert_eq!(rested(&mut follow), NextAction::Discover);
    assert_eq!(
        follow.heard(Response::Discovered(false), MIDDLE),
        [WatchEvent::Heartbeat]
    );
    rested(&mut follow);
    assert_eq!(follow.heard(Response::Discovered(true), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::List(None));
}

#[test]
fn a_kind_is_gone_only_if_the_server_says_so_twice_in_a_row() {
    let between = [
        Response::Discovered(true),
        refused(404),
        refused(503),
        Response::Failed("refused".to_owned()),
    ];
    for answer in between {
        let mut follow = watching();
        follow.heard(refused(404), MIDDLE);
        assert_eq!(follow.heard(Response::Discovered(false), MIDDLE), []);
        rested(&mut follow);
        let news = follow.heard(answer, MIDDLE);
        assert!(!news.contains(&WatchEvent::Absent), "{news:?}");
        while follow.next() != NextAction::Discover {
            match follow.next() {
                NextAction::Rest(_) => follow.heard(Response::Rested, MIDDLE),
                NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                    follow.heard(refused(404), MIDDLE)
                }
            };
        }
        assert_eq!(follow.heard(Response::Discovered(false), MIDDLE), []);
    }
}

#[test]
fn a_proxy_that_finds_nothing_takes_nothing_away() {
    for is_built_in in [true, false] {
        let mut follow = Reflector::new(is_built_in);
        follow.heard(page("10", None), MIDDLE);
        for _ in 0..50 {
            let news = match follow.next() {
                NextAction::Rest(_) => follow.heard(Response::Rested, MIDDLE),
                NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                    follow.heard(refused(404), MIDDLE)
                }
            };
            let harmless = |it: &WatchEvent| matches!(it, WatchEvent::Problem(_));
            assert!(news.iter().all(harmless), "{news:?}");
        }
    }
}

#[test]
fn what_every_server_has_is_never_absent() {
    let mut follow = Reflector::new(true);
    follow.heard(page("10", None), MIDDLE);
    for _ in 0..10 {
        let news = follow.heard(refused(404), MIDDLE);
        assert!(!news.contains(&WatchEvent::Absent), "{news:?}");
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    }
    let news = follow.heard(Response::Discovered(false), MIDDLE);
    assert!(!news.contains(&WatchEvent::Absent), "{news:?}");
}

#[test]
fn what_a_watch_cannot_name_is_listed_again_and_not_asked_for_again() {
    let lines = [
        Response::Line(WatchLine::Set(unnamed())),
        Response::Line(WatchLine::Gone(unnamed())),
        Response::Garbled("not an event".to_owned()),
    ];
    for line in lines {
        let mut follow = watching();
        let news = follow.heard(line, MIDDLE);
        assert!(
            matches!(news.first(), Some(WatchEvent::Problem(_))),
            "{news:?}"
        );
        assert_eq!(rested(&mut follow), NextAction::List(None));
    }
}

#[test]
fn a_list_that_does_not_go_on_is_begun_anew() {
    let mut follow = Reflector::new(true);
    follow.heard(Response::Opened, MIDDLE);
    follow.heard(page("7", Some("next")), MIDDLE);
    follow.heard(Response::Opened, MIDDLE);
    let news = follow.heard(page("7", Some("next")), MIDDLE);
    assert_eq!(news, [failing("the list does not go on")]);
    assert_eq!(rested(&mut follow), NextAction::List(None));
}

#[test]
fn a_failing_discovery_says_nothing_of_the_kind() {
    let mut follow = watching();
    follow.heard(refused(404), MIDDLE);
    let news = follow.heard(refused(503), MIDDLE);
    assert_eq!(news, [failing("code 503")]);
    assert_eq!(rested(&mut follow), NextAction::Discover);
}

#[test]
fn a_busy_server_says_when_to_come_again() {
    let mut follow = watching();
    let busy = StatusError {
        code: 429,
        retry_after: Some(7),
        ..StatusError::default()
    };
    follow.heard(Response::Refused(busy), MIDDLE);
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(7)));
}

#[test]
fn a_list_that_breaks_off_begins_anew() {
    let mut follow = Reflector::new(false);
    follow.heard(page("7", Some("next")), MIDDLE);
    follow.heard(Response::Failed("cut".to_owned()), MIDDLE);
    assert_eq!(rested(&mut follow), NextAction::List(None));
    assert_eq!(
        follow.heard(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    let news = follow.heard(page("9", None), MIDDLE);
    assert_eq!(news, [WatchEvent::ListComplete, WatchEvent::Recovered]);
}

#[test]
fn a_watch_that_is_answered_again_is_fine_though_nothing_happens() {
    let mut follow = watching();
    let news = follow.heard(refused(429), MIDDLE);
    assert_eq!(news, [failing("code 429")]);
    assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    let news = follow.heard(Response::Opened, MIDDLE);
    assert_eq!(news, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(follow.next(), NextAction::Watch("10".to_owned()));
}

#[test]
fn servers_that_open_watches_and_end_them_are_still_left_in_peace() {
    let mut follow = watching();
    for milliseconds in [200, 400, 800] {
        assert_eq!(
            follow.heard(Response::Opened, MIDDLE),
            [WatchEvent::Heartbeat]
        );
        follow.heard(Response::Ended, MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    }
}

#[test]
fn silence_is_no_trouble_but_makes_the_server_be_asked_again() {
    let mut follow = watching();
    follow.heard(set("11"), MIDDLE);
    assert_eq!(follow.heard(Response::Silent, MIDDLE), []);
    assert_eq!(follow.next(), NextAction::Watch("11".to_owned()));
    // A server that is away does not answer.
    let news = follow.heard(Response::Failed("no route".to_owned()), MIDDLE);
    assert_eq!(news, [failing("no route")]);
}

#[test]
fn a_server_that_answers_again_is_asked_when_it_wants() {
    let mut follow = watching();
    for _ in 0..10 {
        follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        assert!(follow.is_away());
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
        assert!(follow.is_away(), "a rest changes nothing");
    }
    // It has been away for long, and says now that it is not ready yet.
    let busy = Response::Refused(StatusError {
        code: 429,
        retry_after: Some(1),
        ..StatusError::default()
    });
    follow.heard(busy, MIDDLE);
    assert!(!follow.is_away());
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(1)));
    // However often it says so, it is not asked more and more seldom.
    for _ in 0..10 {
        rested(&mut follow);
        let busy = Response::Refused(StatusError {
            code: 429,
            retry_after: Some(1),
            ..StatusError::default()
        });
        follow.heard(busy, MIDDLE);
    }
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(5)));
}

#[test]
fn a_server_that_says_no_after_it_was_away_is_soon_asked_again() {
    let mut follow = watching();
    for _ in 0..10 {
        follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        rested(&mut follow);
    }
    for milliseconds in [200, 400, 800] {
        follow.heard(refused(403), MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        rested(&mut follow);
    }
}

#[test]
fn a_server_that_has_forgotten_what_was_before_it_was_away_is_listed_at_once() {
    let mut follow = watching();
    for _ in 0..10 {
        follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    }
    // It opens the watch and says inside of it that this moment is too old, as one that has just started does.
    let news = follow.heard(Response::Opened, MIDDLE);
    assert_eq!(news, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(follow.heard(refused(410), MIDDLE), []);
    assert_eq!(follow.next(), NextAction::List(None));
    // Should it not be ready to list, the time that it was away does not count.
    follow.heard(refused(403), MIDDLE);
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_millis(200)));
    assert_eq!(rested(&mut follow), NextAction::List(None));
}

#[test]
fn a_server_that_calls_fresh_lists_too_old_is_left_in_peace() {
    let mut follow = watching();
    follow.heard(Response::Opened, MIDDLE);
    follow.heard(refused(410), MIDDLE);
    for milliseconds in [400, 800, 1_600] {
        assert_eq!(follow.next(), NextAction::List(None));
        follow.heard(page("11", None), MIDDLE);
        follow.heard(Response::Opened, MIDDLE);
        follow.heard(refused(410), MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        rested(&mut follow);
    }
    // Once a watch has said something, the next time is the first.
    follow.heard(page("12", None), MIDDLE);
    follow.heard(Response::Opened, MIDDLE);
    follow.heard(set("13"), MIDDLE);
    follow.heard(refused(410), MIDDLE);
    assert_eq!(follow.next(), NextAction::List(None));
}

#[test]
fn a_server_that_opens_watches_and_breaks_them_off_is_asked_more_and_more_seldom() {
    let mut follow = watching();
    for milliseconds in [200, 400, 800, 1_600] {
        follow.heard(Response::Opened, MIDDLE);
        follow.heard(Response::Failed("cut".to_owned()), MIDDLE);
        assert!(!follow.is_away(), "it did answer");
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut follow), NextAction::Watch("10".to_owned()));
    }
}

#[test]
fn a_server_that_is_half_there_is_asked_more_and_more_seldom() {
    let mut follow = watching();
    for milliseconds in [200, 400, 800, 1_600] {
        let wait = Duration::from_millis(milliseconds);
        follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        rested(&mut follow);
        follow.heard(refused(503), MIDDLE);
        assert_eq!(follow.next(), NextAction::Rest(wait));
        rested(&mut follow);
    }
}

#[test]
fn a_kind_that_is_not_there_is_no_trouble_once_the_server_is_back() {
    let mut follow = watching();
    follow.heard(refused(404), MIDDLE);
    for _ in 0..2 {
        follow.heard(Response::Discovered(false), MIDDLE);
        assert_eq!(rested(&mut follow), NextAction::Discover);
    }
    for _ in 0..10 {
        follow.heard(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(rested(&mut follow), NextAction::Discover);
    }
    let news = follow.heard(Response::Discovered(false), MIDDLE);
    assert_eq!(news, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(follow.next(), NextAction::Rest(Duration::from_secs(15)));
}
