use std::time::Duration;

use carrack_model::TargetId;

use super::client::{GrantClient, GrantClientSettings, GrantServerPresence};
use super::messages::{GrantClientReport, GrantReply, TargetGrant};
use super::simulation::{MIB, ms};
use crate::policy::{StorageRequestTiming, TargetState};

const X: TargetId = TargetId(1);
const Y: TargetId = TargetId(2);

fn client() -> GrantClient {
    let mut client = GrantClient::new("c", "", GrantClientSettings::default());
    client.add_target(X, "x");
    client.add_target(Y, "y");
    client
}

fn state(target: TargetId, waiting: usize, in_service: u32) -> TargetState {
    TargetState {
        server: None,
        target,
        waiting,
        waiting_bytes: waiting as u64 * MIB,
        in_service,
        depth: 8,
        paused_until: Duration::ZERO,
        is_blocked: false,
    }
}

fn grant(id: u64, target: &str, starts_in: u64, ends_in: u64, others_wait: bool) -> TargetGrant {
    TargetGrant {
        id,
        target: target.into(),
        starts_in_us: starts_in * 1_000,
        ends_in_us: ends_in * 1_000,
        bytes_max: others_wait.then_some(3 * MIB),
        requests_max: None,
        others_wait,
    }
}

fn answer(batch: &GrantClientReport, grants: &[TargetGrant]) -> GrantReply {
    GrantReply { epoch: 7, number: batch.number, grants: grants.to_vec(), ..GrantReply::default() }
}

/// A client with an answer at 1 ms.
fn granted(grants: &[TargetGrant]) -> GrantClient {
    let mut client = client();
    let batch = client.take_due_batch(ms(0), &[state(X, 9, 0), state(Y, 9, 0)]).unwrap();
    client.apply_reply(ms(1), &answer(&batch, grants));
    client
}

#[test]
fn nobody_waits_for_the_first_answer() {
    let mut client = client();
    assert!(client.may_start(X, 0, ms(0)) && client.may_start(TargetId(99), 0, ms(0)));
    assert!(!client.may_start(X, 1, ms(0)) && client.may_start(TargetId(99), 1, ms(0)), "with one request");
    let batch = client.take_due_batch(ms(0), &[state(X, 9, 0)]).unwrap();
    assert_eq!((batch.asks.len(), &*batch.asks[0].target, batch.asks[0].bytes), (1, "x", 9 * MIB));
    client.apply_reply(ms(1), &answer(&batch, &[]));
    assert!(!client.may_start(X, 0, ms(1)), "others have it");
    assert!(client.may_start(Y, 0, ms(1)), "it was not asked for");
    // It is asked for at once when there is work.
    assert!(client.take_due_batch(ms(5), &[state(X, 9, 0), state(Y, 1, 0)]).is_none(), "not that soon");
    assert_eq!(client.take_due_batch(ms(10), &[state(X, 9, 0), state(Y, 1, 0)]).unwrap().asks.len(), 2);
    assert!(
        client.take_due_batch(ms(20), &[state(X, 9, 0), state(Y, 1, 0)]).is_none(),
        "both were asked for"
    );
    assert_eq!(client.batch_at(), ms(110));
}

#[test]
fn works_on_what_it_has_while_it_has_it() {
    let client = granted(&[grant(1, "x", 0, 100, false), grant(2, "y", 50, 100, false)]);
    assert!(
        client.may_start(X, 0, ms(1)) && client.may_start(X, 0, ms(99)) && !client.may_start(X, 0, ms(100))
    );
    assert!(
        !client.may_start(Y, 0, ms(50)) && client.may_start(Y, 0, ms(51)) && !client.may_start(Y, 0, ms(100))
    );
    assert_eq!((client.opens_at(Y, ms(2)), client.opens_at(Y, ms(51))), (Some(ms(51)), None));
}

#[test]
fn makes_no_more_requests_than_it_may() {
    let mut beside_computation = grant(1, "x", 0, 500, false);
    beside_computation.requests_max = Some(2);
    let client = granted(&[beside_computation, grant(2, "y", 0, 500, false)]);
    let may = |target| [0, 1, 2, 7].map(|in_service| client.may_start(target, in_service, ms(10)));
    assert_eq!((may(X), may(Y)), ([true, true, false, false], [true; 4]));
}

#[test]
fn begins_nothing_that_others_would_wait_for() {
    let mut client = granted(&[grant(1, "x", 0, 100, true), grant(2, "y", 0, 100, false)]);
    for target in [X, Y] {
        // They took 40 and 60 ms, of which each waited for the request before it: 20 ms apart.
        for (took, ended) in [(20, 20), (40, 40), (60, 60)] {
            client.record_finish(target, StorageRequestTiming { time: ms(took), bytes: 1 }, ms(ended));
        }
    }
    let may = |target, now| [0, 1, 2, 3].map(|in_service| client.may_start(target, in_service, ms(now)));
    assert_eq!(may(X, 20), [true; 4], "four are done within 80 ms");
    assert_eq!(may(X, 60), [true, true, false, false]);
    assert_eq!(may(X, 99), [true, false, false, false], "one may be late");
    assert_eq!(may(X, 100), [false; 4]);
    assert_eq!(may(Y, 99), [true; 4], "nobody waits");
}

#[test]
fn stops_at_the_bytes_and_gives_back() {
    let mut client = granted(&[grant(1, "x", 0, 500, true), grant(2, "y", 0, 500, false)]);
    for step in 0..3 {
        assert!(client.may_start(X, 0, ms(10)));
        client.record_start(X, MIB, ms(10));
        client.record_finish(X, StorageRequestTiming { time: ms(7), bytes: MIB }, ms(20 + step));
    }
    assert!(!client.may_start(X, 0, ms(23)) && client.may_start(Y, 0, ms(23)));
    let batch = client.take_due_batch(ms(24), &[state(X, 6, 0), state(Y, 9, 0)]).unwrap();
    let [back] = &batch.returns[..] else { panic!("{batch:?}") };
    assert_eq!((back.id, back.objects, back.bytes, back.busy_us), (1, 3, 3 * MIB, 21_000));
    assert_eq!((batch.bytes_moved, batch.asks.len(), batch.held.len()), (3 * MIB, 2, 1));
    // It is repeated until the server has answered it; an earlier answer does not bring it back.
    let again = client.take_due_batch(ms(124), &[state(X, 6, 0), state(Y, 9, 0)]).unwrap();
    assert_eq!(again.returns, batch.returns);
    client.apply_reply(ms(125), &answer(&batch, &[grant(2, "y", 0, 500, false)]));
    let last = client.take_due_batch(ms(224), &[state(X, 6, 0), state(Y, 9, 0)]).unwrap();
    assert_eq!(last.returns, []);
}

#[test]
fn a_deadline_is_for_what_goes_over_shared_targets() {
    let mut client = granted(&[grant(1, "x", 0, 900, false)]);
    let mut left_at = |now, moved, left| {
        client.set_deadline(ms(1_000), moved, left);
        let deadline = client.take_due_batch(ms(now), &[state(X, 9, 0)]).unwrap().deadline.unwrap();
        client.record_finish(X, StorageRequestTiming { time: ms(7), bytes: 2 * MIB }, ms(now));
        (deadline.bytes_left / MIB, deadline.in_ms)
    };
    assert_eq!(left_at(101, 0, 100 * MIB), (100, 899));
    // Read and written by one process: it has moved twice the bytes that arrived.
    assert_eq!(left_at(301, MIB, 99 * MIB), (198, 699));
    assert_eq!(left_at(1_501, 2 * MIB, 98 * MIB), (196, 0));
    // Mostly between targets that are not shared.
    assert_eq!(left_at(1_701, 60 * MIB, 40 * MIB), (4, 0));
}

#[test]
fn waits_a_moment_for_the_next_object_before_it_gives_back() {
    let idle = [state(X, 0, 0), state(Y, 0, 0)];
    let mut client = granted(&[grant(1, "x", 0, 500, true), grant(2, "y", 0, 2_000, false)]);
    client.record_finish(X, StorageRequestTiming { time: ms(7), bytes: MIB }, ms(20));
    assert!(client.take_due_batch(ms(60), &idle).is_none());
    let batch = client.take_due_batch(ms(70), &idle).unwrap();
    assert_eq!(batch.returns.iter().map(|held| held.id).collect::<Vec<_>>(), [1]);
    // A grant without other waiting clients is kept, and reported as idle.
    assert!(batch.held.len() == 1 && batch.held[0].is_idle && batch.asks.is_empty());
}

#[test]
fn goes_on_when_the_server_is_away_and_says_so_once() {
    let queues = [state(X, 9, 0), state(Y, 9, 0)];
    let mut client = granted(&[grant(1, "x", 0, 200, true)]);
    let mut last = None;
    let mut away_at = None;
    for at in (10..3_000).step_by(10) {
        last = client.take_due_batch(ms(at), &queues).or(last);
        if let Some(notice) = client.take_notice() {
            assert_eq!((notice, away_at.replace(at)), (GrantServerPresence::Unmanaged, None));
        }
        assert!(client.may_start(X, 0, ms(at)), "what it had it goes on with, at {at}");
        assert_eq!(client.may_start(Y, 0, ms(at)), away_at.is_some());
    }
    // The first batch without an answer is that of 100 ms.
    assert_eq!(away_at, Some(1_100));
    let last = last.unwrap();
    client.apply_reply(ms(3_000), &GrantReply { is_settling: true, ..answer(&last, &[]) });
    assert!(!client.is_managed(), "it has only begun to listen");
    let next = client.take_due_batch(ms(3_100), &queues).unwrap();
    client.apply_reply(ms(3_101), &answer(&next, &[grant(9, "y", 0, 500, true)]));
    assert_eq!((client.take_notice(), client.take_notice()), (Some(GrantServerPresence::Managed), None));
    assert!(client.may_start(Y, 0, ms(3_102)) && !client.may_start(X, 0, ms(3_102)));
}

#[test]
fn keeps_no_more_than_it_has_threads_for() {
    let settings = GrantClientSettings { threads: 2, ..GrantClientSettings::default() };
    let mut client = GrantClient::new("c", "", settings);
    let targets: Vec<TargetId> = (0..6).map(TargetId).collect();
    targets.iter().for_each(|target| client.add_target(*target, &format!("t{}", target.0)));
    let states = |served: u64| -> Vec<TargetState> {
        targets.iter().map(|target| state(*target, 5, u32::from(target.0 < served))).collect()
    };
    let batch = client.take_due_batch(ms(0), &states(0)).unwrap();
    let grants: Vec<TargetGrant> =
        (0..6).map(|id| grant(id + 1, &format!("t{id}"), 0, 500, id != 5)).collect();
    client.apply_reply(ms(1), &answer(&batch, &grants));
    let batch = client.take_due_batch(ms(120), &states(2)).unwrap();
    let back: Vec<u64> = batch.returns.iter().map(|held| held.id).collect();
    assert_eq!(back, [3, 4, 5], "two are in use, and one is wanted by nobody");
}

#[test]
fn who_has_nothing_to_do_is_silent() {
    let mut client = client();
    assert!(client.take_due_batch(ms(0), &[state(X, 0, 0)]).is_none());
    let batch = client.take_due_batch(ms(500), &[state(X, 1, 0)]).unwrap();
    client.apply_reply(ms(501), &answer(&batch, &[]));
    assert!(client.take_due_batch(ms(700), &[state(X, 0, 0)]).is_none());
    assert!(client.take_due_batch(ms(9_000), &[state(X, 0, 0)]).is_none());
    assert_eq!(client.take_notice(), None);
    assert!(client.may_start(X, 0, ms(9_000)), "it may have changed hands since");
    assert!(client.leave().leaves);
}
