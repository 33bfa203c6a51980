//! Responses in the order in which servers send them, and in wrong orders.

use std::time::Duration;

use super::{NextAction, Reflector, Response, WatchEvent, WatchProblem};
use crate::item::Item;
use crate::response::{Page, StatusError, WatchLine};
use crate::split::SplitObject;

/// The middle of the jitter.
const MIDDLE: u64 = 25;

fn page(version: &str, more: Option<&str>) -> Response {
    let page = Page {
        version: version.to_owned(),
        more: more.map(str::to_owned),
        remaining: None,
    };
    Response::Page(page)
}

/// An object with this resource version.
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

fn failing(cause: &str) -> WatchEvent {
    WatchEvent::Problem(WatchProblem::Failing(cause.to_owned()))
}

/// A reflector that watches from resource version 10.
fn watching() -> Reflector {
    let mut reflector = Reflector::new(false);
    reflector.handle(page("10", None), MIDDLE);
    assert_eq!(reflector.next(), NextAction::Watch("10".to_owned()));
    reflector
}

fn rested(reflector: &mut Reflector) -> NextAction {
    assert!(
        matches!(reflector.next(), NextAction::Rest(_)),
        "{:?}",
        reflector.next()
    );
    assert_eq!(reflector.handle(Response::Rested, MIDDLE), []);
    reflector.next()
}

#[test]
fn lists_page_by_page_then_watches() {
    let mut reflector = Reflector::new(false);
    assert_eq!(reflector.next(), NextAction::List(None));
    assert_eq!(
        reflector.handle(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    let events = reflector.handle(Response::Item(item("5")), MIDDLE);
    assert_eq!(events, [WatchEvent::Listed(item("5"))]);
    assert_eq!(reflector.handle(page("7", Some("next")), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::List(Some("next".to_owned())));
    assert_eq!(reflector.handle(Response::Opened, MIDDLE), []);
    let events = reflector.handle(Response::Item(unnamed()), MIDDLE);
    assert_eq!(events, [WatchEvent::Listed(unnamed())]);
    assert_eq!(
        reflector.handle(page("7", None), MIDDLE),
        [WatchEvent::ListComplete]
    );
    assert_eq!(reflector.next(), NextAction::Watch("7".to_owned()));
    assert_eq!(
        reflector.handle(set("8"), MIDDLE),
        [WatchEvent::Applied(item("8"))]
    );
    assert_eq!(reflector.next(), NextAction::Watch("8".to_owned()));
}

#[test]
fn a_watch_that_ends_resumes_from_its_last_version() {
    let mut reflector = watching();
    let until = Response::Line(WatchLine::Bookmark("99".to_owned()));
    assert_eq!(reflector.handle(until, MIDDLE), [WatchEvent::Heartbeat]);
    assert_eq!(reflector.handle(Response::Ended, MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::Watch("99".to_owned()));
}

#[test]
fn a_flapping_watch_has_a_backoff_and_then_a_new_list() {
    let mut reflector = watching();
    for milliseconds in [200, 400, 800] {
        reflector.handle(Response::Ended, MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    }
    reflector.handle(Response::Ended, MIDDLE);
    assert_eq!(rested(&mut reflector), NextAction::List(None));
}

#[test]
fn an_expired_version_is_listed_again_at_once_but_not_for_ever() {
    let mut reflector = watching();
    assert_eq!(reflector.handle(refused(410), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::List(None));
    // The list expires at its second page, again and again.
    reflector.handle(page("11", Some("next")), MIDDLE);
    reflector.handle(refused(410), MIDDLE);
    assert_eq!(rested(&mut reflector), NextAction::List(None));
    assert_eq!(
        reflector.handle(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    assert_eq!(
        reflector.handle(page("12", None), MIDDLE),
        [WatchEvent::ListComplete]
    );
}

#[test]
fn an_error_event_of_a_watch_is_a_refusal() {
    let mut reflector = watching();
    let refusal = StatusError {
        code: 410,
        ..StatusError::default()
    };
    reflector.handle(Response::Line(WatchLine::Refused(refusal)), MIDDLE);
    assert_eq!(reflector.next(), NextAction::List(None));
}

#[test]
fn an_outage_removes_no_objects() {
    let mut reflector = watching();
    let events = reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
    assert_eq!(events, [failing("refused")]);
    for _ in 0..20 {
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
        // The same problem is reported once.
        let events = reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(events, []);
    }
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(30)));
    rested(&mut reflector);
    assert_eq!(
        reflector.handle(set("11"), MIDDLE),
        [WatchEvent::Recovered, WatchEvent::Applied(item("11"))]
    );
}

#[test]
fn a_forbidden_list_is_retried_and_keeps_the_objects() {
    let mut reflector = watching();
    let events = reflector.handle(refused(403), MIDDLE);
    let forbidden = WatchProblem::Forbidden("code 403".to_owned());
    assert_eq!(events, [WatchEvent::Problem(forbidden)]);
    assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    // An expired token is another problem.
    let events = reflector.handle(refused(401), MIDDLE);
    let expired = WatchProblem::Forbidden("code 401".to_owned());
    assert_eq!(events, [WatchEvent::Problem(expired)]);
}

#[test]
fn a_404_of_a_list_is_checked_by_discovery() {
    let mut reflector = watching();
    assert_eq!(reflector.handle(refused(404), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::Discover);
    // The kind exists: the 404 was wrong, or the kind is back.
    assert_eq!(reflector.handle(Response::Discovered(true), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::List(None));
    reflector.handle(refused(404), MIDDLE);
    // A single denial may come from a server that has just started, or from the wrong one.
    assert_eq!(reflector.handle(Response::Discovered(false), MIDDLE), []);
    assert_eq!(rested(&mut reflector), NextAction::Discover);
    assert_eq!(
        reflector.handle(Response::Discovered(false), MIDDLE),
        [WatchEvent::Absent]
    );
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(15)));
    // Reported once, discovered periodically, and found when it appears.
    assert_eq!(rested(&mut reflector), NextAction::Discover);
    assert_eq!(
        reflector.handle(Response::Discovered(false), MIDDLE),
        [WatchEvent::Heartbeat]
    );
    rested(&mut reflector);
    assert_eq!(reflector.handle(Response::Discovered(true), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::List(None));
}

#[test]
fn a_kind_is_absent_only_after_two_discoveries_in_a_row_lack_it() {
    let between = [
        Response::Discovered(true),
        refused(404),
        refused(503),
        Response::Failed("refused".to_owned()),
    ];
    for response in between {
        let mut reflector = watching();
        reflector.handle(refused(404), MIDDLE);
        assert_eq!(reflector.handle(Response::Discovered(false), MIDDLE), []);
        rested(&mut reflector);
        let events = reflector.handle(response, MIDDLE);
        assert!(!events.contains(&WatchEvent::Absent), "{events:?}");
        while reflector.next() != NextAction::Discover {
            match reflector.next() {
                NextAction::Rest(_) => reflector.handle(Response::Rested, MIDDLE),
                NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                    reflector.handle(refused(404), MIDDLE)
                }
            };
        }
        assert_eq!(reflector.handle(Response::Discovered(false), MIDDLE), []);
    }
}

#[test]
fn a_404_of_a_proxy_removes_no_objects() {
    for is_built_in in [true, false] {
        let mut reflector = Reflector::new(is_built_in);
        reflector.handle(page("10", None), MIDDLE);
        for _ in 0..50 {
            let events = match reflector.next() {
                NextAction::Rest(_) => reflector.handle(Response::Rested, MIDDLE),
                NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                    reflector.handle(refused(404), MIDDLE)
                }
            };
            let harmless = |it: &WatchEvent| matches!(it, WatchEvent::Problem(_));
            assert!(events.iter().all(harmless), "{events:?}");
        }
    }
}

#[test]
fn a_built_in_kind_is_never_absent() {
    let mut reflector = Reflector::new(true);
    reflector.handle(page("10", None), MIDDLE);
    for _ in 0..10 {
        let events = reflector.handle(refused(404), MIDDLE);
        assert!(!events.contains(&WatchEvent::Absent), "{events:?}");
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    }
    let events = reflector.handle(Response::Discovered(false), MIDDLE);
    assert!(!events.contains(&WatchEvent::Absent), "{events:?}");
}

#[test]
fn after_an_object_without_a_name_the_kind_is_listed_again() {
    let lines = [
        Response::Line(WatchLine::Set(unnamed())),
        Response::Line(WatchLine::Deleted(unnamed())),
        Response::Garbled("not an event".to_owned()),
    ];
    for line in lines {
        let mut reflector = watching();
        let events = reflector.handle(line, MIDDLE);
        assert!(
            matches!(events.first(), Some(WatchEvent::Problem(_))),
            "{events:?}"
        );
        assert_eq!(rested(&mut reflector), NextAction::List(None));
    }
}

#[test]
fn a_list_that_does_not_advance_restarts() {
    let mut reflector = Reflector::new(true);
    reflector.handle(Response::Opened, MIDDLE);
    reflector.handle(page("7", Some("next")), MIDDLE);
    reflector.handle(Response::Opened, MIDDLE);
    let events = reflector.handle(page("7", Some("next")), MIDDLE);
    assert_eq!(events, [failing("the server repeated a continue token")]);
    assert_eq!(rested(&mut reflector), NextAction::List(None));
}

#[test]
fn a_failing_discovery_does_not_make_a_kind_absent() {
    let mut reflector = watching();
    reflector.handle(refused(404), MIDDLE);
    let events = reflector.handle(refused(503), MIDDLE);
    assert_eq!(events, [failing("code 503")]);
    assert_eq!(rested(&mut reflector), NextAction::Discover);
}

#[test]
fn retry_after_of_a_busy_server_is_followed() {
    let mut reflector = watching();
    let busy = StatusError {
        code: 429,
        retry_after: Some(7),
        ..StatusError::default()
    };
    reflector.handle(Response::Refused(busy), MIDDLE);
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(7)));
}

#[test]
fn a_truncated_list_restarts() {
    let mut reflector = Reflector::new(false);
    reflector.handle(page("7", Some("next")), MIDDLE);
    reflector.handle(Response::Failed("cut".to_owned()), MIDDLE);
    assert_eq!(rested(&mut reflector), NextAction::List(None));
    assert_eq!(
        reflector.handle(Response::Opened, MIDDLE),
        [WatchEvent::ListStarted]
    );
    let events = reflector.handle(page("9", None), MIDDLE);
    assert_eq!(events, [WatchEvent::ListComplete, WatchEvent::Recovered]);
}

#[test]
fn a_watch_recovers_when_it_is_opened_though_nothing_happens() {
    let mut reflector = watching();
    let events = reflector.handle(refused(429), MIDDLE);
    assert_eq!(events, [failing("code 429")]);
    assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    let events = reflector.handle(Response::Opened, MIDDLE);
    assert_eq!(events, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(reflector.next(), NextAction::Watch("10".to_owned()));
}

#[test]
fn watches_that_end_at_once_have_a_backoff() {
    let mut reflector = watching();
    for milliseconds in [200, 400, 800] {
        assert_eq!(
            reflector.handle(Response::Opened, MIDDLE),
            [WatchEvent::Heartbeat]
        );
        reflector.handle(Response::Ended, MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    }
}

#[test]
fn a_silent_watch_is_reopened_without_a_problem() {
    let mut reflector = watching();
    reflector.handle(set("11"), MIDDLE);
    assert_eq!(reflector.handle(Response::Silent, MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::Watch("11".to_owned()));
    // A server that is away does not answer.
    let events = reflector.handle(Response::Failed("no route".to_owned()), MIDDLE);
    assert_eq!(events, [failing("no route")]);
}

#[test]
fn retry_after_counts_after_an_outage() {
    let mut reflector = watching();
    for _ in 0..10 {
        reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        assert!(reflector.is_away());
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
        assert!(reflector.is_away(), "a wait changes nothing");
    }
    // After a long outage the server is not ready yet.
    let busy = Response::Refused(StatusError {
        code: 429,
        retry_after: Some(1),
        ..StatusError::default()
    });
    reflector.handle(busy, MIDDLE);
    assert!(!reflector.is_away());
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(1)));
    // However often it answers that, the backoff does not grow.
    for _ in 0..10 {
        rested(&mut reflector);
        let busy = Response::Refused(StatusError {
            code: 429,
            retry_after: Some(1),
            ..StatusError::default()
        });
        reflector.handle(busy, MIDDLE);
    }
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(5)));
}

#[test]
fn the_backoff_of_refusals_restarts_after_an_outage() {
    let mut reflector = watching();
    for _ in 0..10 {
        reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        rested(&mut reflector);
    }
    for milliseconds in [200, 400, 800] {
        reflector.handle(refused(403), MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        rested(&mut reflector);
    }
}

#[test]
fn an_expired_version_after_an_outage_is_listed_at_once() {
    let mut reflector = watching();
    for _ in 0..10 {
        reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    }
    // It opens the watch and rejects the resource version inside, as a restarted server does.
    let events = reflector.handle(Response::Opened, MIDDLE);
    assert_eq!(events, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(reflector.handle(refused(410), MIDDLE), []);
    assert_eq!(reflector.next(), NextAction::List(None));
    // If it is not ready to list, the time of the outage does not count.
    reflector.handle(refused(403), MIDDLE);
    assert_eq!(
        reflector.next(),
        NextAction::Rest(Duration::from_millis(200))
    );
    assert_eq!(rested(&mut reflector), NextAction::List(None));
}

#[test]
fn a_server_that_rejects_fresh_lists_has_a_backoff() {
    let mut reflector = watching();
    reflector.handle(Response::Opened, MIDDLE);
    reflector.handle(refused(410), MIDDLE);
    for milliseconds in [400, 800, 1_600] {
        assert_eq!(reflector.next(), NextAction::List(None));
        reflector.handle(page("11", None), MIDDLE);
        reflector.handle(Response::Opened, MIDDLE);
        reflector.handle(refused(410), MIDDLE);
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        rested(&mut reflector);
    }
    // After a watch has sent an event, the next time is the first again.
    reflector.handle(page("12", None), MIDDLE);
    reflector.handle(Response::Opened, MIDDLE);
    reflector.handle(set("13"), MIDDLE);
    reflector.handle(refused(410), MIDDLE);
    assert_eq!(reflector.next(), NextAction::List(None));
}

#[test]
fn watches_that_break_off_have_a_growing_backoff() {
    let mut reflector = watching();
    for milliseconds in [200, 400, 800, 1_600] {
        reflector.handle(Response::Opened, MIDDLE);
        reflector.handle(Response::Failed("cut".to_owned()), MIDDLE);
        assert!(!reflector.is_away(), "the server answered");
        let wait = Duration::from_millis(milliseconds);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        assert_eq!(rested(&mut reflector), NextAction::Watch("10".to_owned()));
    }
}

#[test]
fn alternating_failures_have_growing_backoffs() {
    let mut reflector = watching();
    for milliseconds in [200, 400, 800, 1_600] {
        let wait = Duration::from_millis(milliseconds);
        reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        rested(&mut reflector);
        reflector.handle(refused(503), MIDDLE);
        assert_eq!(reflector.next(), NextAction::Rest(wait));
        rested(&mut reflector);
    }
}

#[test]
fn an_absent_kind_is_no_problem_after_an_outage() {
    let mut reflector = watching();
    reflector.handle(refused(404), MIDDLE);
    for _ in 0..2 {
        reflector.handle(Response::Discovered(false), MIDDLE);
        assert_eq!(rested(&mut reflector), NextAction::Discover);
    }
    for _ in 0..10 {
        reflector.handle(Response::Failed("refused".to_owned()), MIDDLE);
        assert_eq!(rested(&mut reflector), NextAction::Discover);
    }
    let events = reflector.handle(Response::Discovered(false), MIDDLE);
    assert_eq!(events, [WatchEvent::Recovered, WatchEvent::Heartbeat]);
    assert_eq!(reflector.next(), NextAction::Rest(Duration::from_secs(15)));
}
