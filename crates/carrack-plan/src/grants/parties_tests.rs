use std::collections::BTreeMap;
use std::time::Duration;

use super::simulation::ms;
use super::{
    GrantClientReport, GrantReply, GrantRequest, GrantServer, GrantSettings, GrantUseReport, MovedBytes,
    TargetComputeLoad, TargetGrant,
};

fn server() -> GrantServer {
    GrantServer::new(GrantSettings::default(), BTreeMap::new(), 7, Duration::ZERO)
}

/// A batch of an end of session `s`; of a client of its own if that is empty.
fn batch(session: &str, client: &str, number: u64, targets: &[&str]) -> GrantClientReport {
    let ask =
        |target: &&str| GrantRequest { target: (*target).to_owned(), objects: 1, bytes: 1, waits_us: 0 };
    GrantClientReport {
        client: client.to_owned(),
        session: session.to_owned(),
        number,
        epoch: 7,
        threads: 8,
        asks: targets.iter().map(ask).collect(),
        ..GrantClientReport::default()
    }
}

fn held(answer: &GrantReply, is_idle: bool) -> Vec<GrantUseReport> {
    let held = |grant: &TargetGrant| GrantUseReport {
        id: grant.id,
        target: grant.target.clone(),
        starts_in_us: grant.starts_in_us,
        ends_in_us: grant.ends_in_us,
        is_idle,
        ..GrantUseReport::default()
    };
    answer.grants.iter().map(held).collect()
}

fn spans(answer: &GrantReply) -> Vec<(u64, u64)> {
    answer.grants.iter().map(|grant| (grant.starts_in_us / 1_000, grant.ends_in_us / 1_000)).collect()
}

#[test]
fn the_ends_of_a_session_work_on_a_target_together() {
    let mut server = server();
    let reader = server.answer(ms(1_000), &batch("s", "reader", 1, &["x"]));
    let writer = server.answer(ms(1_010), &batch("s", "writer", 1, &["x"]));
    assert_eq!((spans(&reader), spans(&writer)), (vec![(0, 2_000)], vec![(0, 2_000)]));
    assert_eq!(reader.grants[0].id, writer.grants[0].id);
    assert!(!writer.grants[0].others_wait);
    let view = server.targets(ms(1_010));
    assert_eq!((view[0].holders.len(), view[0].waiting.len()), (1, 0));
    let mut known: Vec<&str> = server.clients().collect();
    known.sort_unstable();
    assert_eq!(known, ["reader", "writer"]);
    assert!(server.has_client("reader") && server.has_client("writer") && !server.has_client("s"));
}

#[test]
fn together_they_have_one_turn() {
    let mut server = server();
    let mut of_ends = Duration::ZERO;
    let mut of_other = Duration::ZERO;
    let mut last: BTreeMap<&str, GrantReply> = BTreeMap::new();
    for step in 1..600_u64 {
        let now = ms(1_000 + step * 20);
        for (session, client) in [("s", "reader"), ("s", "writer"), ("", "other")] {
            let told = last.get(client).map_or_else(Vec::new, |answer| held(answer, false));
            let said = GrantClientReport { held: told, ..batch(session, client, step, &["x"]) };
            let answer = server.answer(now, &said);
            let runs = answer.grants.iter().any(|grant| grant.starts_in_us == 0);
            match client {
                "other" if runs => of_other += ms(20),
                "writer" if runs => of_ends += ms(20),
                _ => {}
            }
            last.insert(client, answer);
        }
        let view = server.targets(now);
        let running = view[0].holders.iter().filter(|holder| holder.starts_in_us == 0).count();
        assert!(running <= 1, "{view:?}");
    }
    let share = of_ends.as_secs_f64() / (of_ends + of_other).as_secs_f64();
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn what_one_end_gives_back_the_other_one_keeps() {
    let mut server = server();
    let reader = server.answer(ms(1_000), &batch("s", "reader", 1, &["x"]));
    let writer = server.answer(ms(1_010), &batch("s", "writer", 1, &["x"]));
    // The reader has no more work for it; the writer that uses it keeps it.
    let idle = GrantClientReport { held: held(&reader, true), ..batch("s", "reader", 2, &[]) };
    server.answer(ms(1_020), &idle);
    let uses = GrantClientReport { held: held(&writer, false), ..batch("s", "writer", 2, &["x"]) };
    server.answer(ms(1_030), &uses);
    assert_eq!(server.answer(ms(1_040), &batch("", "other", 1, &["x"])).grants, []);
    let back = GrantClientReport { returns: held(&reader, true), ..batch("s", "reader", 3, &[]) };
    assert_eq!(server.answer(ms(1_050), &back).grants, [], "it is not told of what it gave back");
    let again = server.answer(ms(1_060), &GrantClientReport { number: 3, ..uses });
    assert_eq!(spans(&again).len(), 1);
    // When both are done, the other client gets it.
    let back = GrantClientReport { returns: held(&again, true), ..batch("s", "writer", 4, &[]) };
    server.answer(ms(1_070), &back);
    assert_eq!(spans(&server.answer(ms(1_080), &batch("", "other", 2, &["x"]))), [(0, 2_000)]);
}

#[test]
fn an_end_hears_of_its_own_targets_only() {
    let mut server = server();
    server.answer(ms(1_000), &batch("s", "reader", 1, &["x"]));
    let writer = server.answer(ms(1_010), &batch("s", "writer", 1, &["y"]));
    let targets: Vec<&str> = writer.grants.iter().map(|grant| &*grant.target).collect();
    assert_eq!(targets, ["y"]);
    // The reader's wish is still asked for.
    assert_eq!(server.targets(ms(1_010)).len(), 2);
    let view = server.targets(ms(1_010));
    assert!(view.iter().all(|target| target.holders.len() == 1));
}

#[test]
fn an_end_that_leaves_or_dies_takes_nothing_from_the_other_one() {
    let mut server = server();
    server.answer(ms(1_000), &GrantClientReport { epoch: 0, ..batch("s", "reader", 1, &["x"]) });
    let told = GrantClientReport {
        bytes_moved: 5,
        moved: vec![MovedBytes { target: "x".into(), bytes: 5 }],
        ..batch("s", "reader", 2, &["x"])
    };
    server.answer(ms(1_005), &told);
    let writer = server.answer(ms(1_010), &batch("s", "writer", 1, &["x"]));
    server.answer(ms(1_020), &GrantClientReport { leaves: true, ..batch("s", "reader", 3, &[]) });
    assert!(!server.has_client("reader"));
    let told = GrantClientReport {
        held: held(&writer, false),
        moved: vec![MovedBytes { target: "x".into(), bytes: 3 }],
        ..batch("s", "writer", 2, &["x"])
    };
    assert_eq!(spans(&server.answer(ms(1_030), &told)), [(0, 2_000)]);
    assert_eq!(server.moved_bytes().collect::<Vec<_>>(), [("x", 8)]);
    // The last end ends the session.
    server.answer(ms(1_040), &GrantClientReport { leaves: true, ..batch("s", "writer", 3, &[]) });
    assert_eq!(server.clients().count(), 0);
    // A silent end is forgotten with its lease.
    server.answer(ms(2_000), &batch("t", "dead", 1, &["x", "y"]));
    for step in 0..200 {
        server.answer(ms(2_010 + step * 20), &batch("t", "alive", step + 1, &["x"]));
    }
    assert!(!server.has_client("dead") && server.has_client("alive"));
    assert_eq!(server.answer(ms(6_020), &batch("t", "alive", 201, &["x"])).grants.len(), 1);
    assert_eq!(spans(&server.answer(ms(6_030), &batch("", "other", 1, &["y"]))), [(0, 2_000)]);
}

#[test]
fn what_computation_leaves_is_for_both_together() {
    let mut server = server();
    let load = TargetComputeLoad { present: 0.5, expected: 0.5 };
    server.set_load("x", load, ms(1_000));
    let alone = server.answer(ms(1_000), &batch("s", "reader", 1, &["x"]));
    let most = alone.grants[0].requests_max;
    let told = GrantClientReport { held: held(&alone, false), ..batch("s", "reader", 2, &["x"]) };
    server.answer(ms(1_010), &told);
    let writer = server.answer(ms(1_020), &batch("s", "writer", 1, &["x"]));
    let part = writer.grants.first().and_then(|grant| grant.requests_max);
    assert_eq!(part, most.map(|most| (most / 2).max(1)));
}
