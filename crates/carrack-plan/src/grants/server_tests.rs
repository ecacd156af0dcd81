use std::collections::BTreeMap;
use std::time::Duration;

use super::simulation::ms;
use super::{
    GrantClientClass, GrantClientReport, GrantReply, GrantRequest, GrantServer, GrantSettings,
    GrantUseReport, MovedBytes, TargetComputeLoad,
};

/// A server that has listened for long enough.
fn server() -> GrantServer {
    GrantServer::new(GrantSettings::default(), BTreeMap::new(), 7, Duration::ZERO)
}

fn batch(client: &str, number: u64, targets: &[&str]) -> GrantClientReport {
    let ask =
        |target: &&str| GrantRequest { target: (*target).to_owned(), objects: 1, bytes: 1, waits_us: 0 };
    GrantClientReport {
        client: client.to_owned(),
        number,
        epoch: 7,
        threads: 8,
        asks: targets.iter().map(ask).collect(),
        ..GrantClientReport::default()
    }
}

/// Returns the grants of an answer as the client repeats them.
fn held(answer: &GrantReply) -> Vec<GrantUseReport> {
    let held = |grant: &super::TargetGrant| GrantUseReport {
        id: grant.id,
        target: grant.target.clone(),
        starts_in_us: grant.starts_in_us,
        ends_in_us: grant.ends_in_us,
        ..GrantUseReport::default()
    };
    answer.grants.iter().map(held).collect()
}

/// The spans of the grants on a target, in milliseconds.
fn spans(answer: &GrantReply) -> Vec<(u64, u64)> {
    answer.grants.iter().map(|grant| (grant.starts_in_us / 1_000, grant.ends_in_us / 1_000)).collect()
}

#[test]
fn who_is_alone_goes_on_until_another_comes() {
    let mut server = server();
    let first = server.answer(ms(1_000), &batch("a", 1, &["x", "y"]));
    assert_eq!(spans(&first), [(0, 2_000), (0, 2_000)]);
    assert!(first.grants.iter().all(|grant| !grant.others_wait && grant.bytes_max.is_none()));
    // Another client comes in the middle of a burst; the holder hears of it with its next batch.
    assert_eq!(server.answer(ms(1_350), &batch("b", 1, &["x"])).grants, []);
    let again =
        server.answer(ms(1_360), &GrantClientReport { held: held(&first), ..batch("a", 2, &["x", "y"]) });
    assert_eq!(spans(&again), [(0, 140), (0, 2_000)]);
    assert!(again.grants[0].others_wait && !again.grants[1].others_wait);
    assert_eq!(again.grants[0].bytes_max, Some(256 << 20));
    // The next burst is promised before the last one has ended.
    assert_eq!(spans(&server.answer(ms(1_400), &batch("b", 2, &["x"]))), [(100, 600)]);
    let own = server.answer(ms(1_450), &GrantClientReport { held: held(&again), ..batch("a", 3, &["x"]) });
    assert_eq!(spans(&own), [(0, 50), (0, 2_000)]);
    let view = server.targets(ms(1_450));
    let names: Vec<&str> = view[0].holders.iter().map(|holder| &*holder.client).collect();
    assert_eq!((&*view[0].target, names, view[0].waiting.len()), ("x", vec!["a", "b"], 0));
}

#[test]
fn what_is_given_back_early_the_next_one_has_at_once() {
    let mut server = server();
    let first = server.answer(ms(1_000), &batch("a", 1, &["x"]));
    server.answer(ms(1_300), &batch("b", 1, &["x"]));
    let again = server.answer(ms(1_310), &GrantClientReport { held: held(&first), ..batch("a", 2, &["x"]) });
    assert_eq!(spans(&server.answer(ms(1_320), &batch("b", 2, &["x"]))), [(180, 680)]);
    let back = GrantClientReport { returns: held(&again), ..batch("a", 3, &[]) };
    assert_eq!(server.answer(ms(1_330), &back).grants, []);
    // A repetition has no effect.
    server.answer(ms(1_331), &GrantClientReport { number: 4, ..back });
    assert_eq!(spans(&server.answer(ms(1_340), &batch("b", 3, &["x"]))), [(0, 2_000)]);
}

#[test]
fn what_is_held_and_not_used_is_free() {
    let mut server = server();
    let first = server.answer(ms(1_000), &batch("a", 1, &["x"]));
    let mut idle = held(&first);
    idle[0].is_idle = true;
    let kept = server.answer(ms(1_100), &GrantClientReport { held: idle, ..batch("a", 2, &[]) });
    assert_eq!(spans(&kept), [(0, 2_000)], "as long as nobody wants it");
    assert_eq!(spans(&server.answer(ms(1_150), &batch("b", 1, &["x"]))), [(0, 2_000)]);
    let gone = server.answer(ms(1_200), &GrantClientReport { held: held(&kept), ..batch("a", 3, &["x"]) });
    assert_eq!(gone.grants, []);
}

#[test]
fn who_is_not_heard_of_keeps_nobody_waiting() {
    let mut server = server();
    server.answer(ms(1_000), &batch("dead", 1, &["x"]));
    server.answer(ms(1_010), &batch("dead too", 1, &["x"]));
    let mut number = 0;
    let mut ask = |server: &mut GrantServer, at| {
        number += 1;
        server.answer(ms(at), &batch("b", number, &["x"])).grants.first().cloned()
    };
    for at in (1_020..2_800).step_by(100) {
        assert_eq!(ask(&mut server, at), None, "a lease at {at}");
    }
    let grant = ask(&mut server, 2_850).expect("it ends soon");
    assert_eq!(grant.starts_in_us, 150_000);
    let mut number = 100;
    for at in (2_900..6_000).step_by(100) {
        number += 1;
        server.answer(ms(at), &batch("b", number, &["x"]));
    }
    let clients: Vec<String> = server
        .targets(ms(6_000))
        .iter()
        .flat_map(|view| view.waiting.iter().map(|w| w.client.clone()))
        .collect();
    assert_eq!(clients, [""; 0], "nobody waits for the dead");
}

#[test]
fn a_batch_that_was_overtaken_changes_nothing() {
    let mut server = server();
    let first = server.answer(ms(1_000), &batch("a", 2, &["x"]));
    let late = server.answer(ms(1_010), &batch("a", 1, &["y"]));
    assert_eq!((late.number, late.grants.len()), (0, 0));
    let again = server.answer(ms(1_020), &GrantClientReport { held: held(&first), ..batch("a", 3, &["x"]) });
    assert_eq!(again.grants[0].id, first.grants[0].id);
    assert!(server.targets(ms(1_020)).iter().all(|view| view.target == "x"));
}

#[test]
fn one_that_leaves_leaves_everything() {
    let mut server = server();
    server.answer(ms(1_000), &batch("a", 1, &["x", "y"]));
    server.answer(ms(1_010), &batch("b", 1, &["x", "y"]));
    server.answer(ms(1_020), &GrantClientReport { leaves: true, ..batch("a", 2, &[]) });
    assert_eq!(spans(&server.answer(ms(1_030), &batch("b", 2, &["x", "y"]))), [(0, 2_000), (0, 2_000)]);
}

#[test]
fn a_server_that_has_begun_anew_takes_up_what_it_is_told() {
    let mut old = server();
    let first = old.answer(ms(1_000), &batch("a", 1, &["x"]));
    let mut new = GrantServer::new(GrantSettings::default(), BTreeMap::new(), 8, ms(1_100));
    // Another client comes first, and waits.
    let other = new.answer(ms(1_110), &batch("b", 1, &["x"]));
    assert!(other.is_settling && other.grants.is_empty());
    let own = new.answer(ms(1_150), &GrantClientReport { held: held(&first), ..batch("a", 2, &["x"]) });
    assert_eq!((own.epoch, spans(&own)), (8, vec![(0, 500)]), "a burst, as another one waits");
    for (number, at) in [(2, 1_200), (3, 1_300), (4, 1_400)] {
        assert_eq!(
            new.answer(ms(at), &GrantClientReport { epoch: 8, ..batch("b", number, &["x"]) }).grants,
            []
        );
    }
    let next = new.answer(ms(1_500), &GrantClientReport { epoch: 8, ..batch("b", 5, &["x"]) });
    assert_eq!(spans(&next), [(150, 650)]);
    // A late grant of an unknown server is not adopted.
    let late = new.answer(ms(1_700), &GrantClientReport { held: held(&first), ..batch("c", 1, &["x"]) });
    assert_eq!(late.grants, []);
}

#[test]
fn what_was_adopted_beyond_the_limit_ends_with_the_burst() {
    let first = server().answer(ms(1_000), &batch("a", 1, &["x"]));
    let mut new = GrantServer::new(GrantSettings::default(), BTreeMap::new(), 8, ms(1_100));
    let mut latest = [first.clone(), first];
    let mut number = 1;
    for at in (1_110..4_000).step_by(50) {
        number += 1;
        for (client, answer) in ["a", "b"].iter().zip(&mut latest) {
            let epoch = answer.epoch;
            *answer = new.answer(
                ms(at),
                &GrantClientReport { epoch, held: held(answer), ..batch(client, number, &["x"]) },
            );
        }
        let users: usize =
            latest.iter().map(|answer| spans(answer).iter().filter(|span| span.0 == 0).count()).sum();
        assert!(users == 1 || (users == 2 && at < 1_700), "{users} at {at}");
    }
}

#[test]
fn a_busy_target_rests_between_bursts() {
    let mut server = server();
    server.set_load("x", TargetComputeLoad { present: 0.2, expected: 0.5 }, ms(900));
    let first = server.answer(ms(1_000), &batch("a", 1, &["x"]));
    assert_eq!(spans(&first), [(0, 125)]);
    let mut starts = Vec::new();
    let mut number = 1;
    for at in (1_010..3_000).step_by(10) {
        number += 1;
        let answer = server.answer(ms(at), &batch("a", number, &["x"]));
        starts.extend(
            answer.grants.iter().map(|grant| at + grant.starts_in_us / 1_000).filter(|start| *start > at),
        );
    }
    starts.dedup();
    assert_eq!(starts, [1_500, 2_000, 2_500, 3_000]);
    let view = &server.targets(ms(3_000))[0];
    assert_eq!((view.load, view.load_expected, view.burst_ms), (Some(0.2), Some(0.5), 125));
}

#[test]
fn an_unknown_class_is_nobodys() {
    let classes = [("known".to_owned(), GrantClientClass::default())].into();
    let mut server = GrantServer::new(GrantSettings::default(), classes, 7, Duration::ZERO);
    let class = |server: &mut GrantServer, name: &str, class: &str| {
        server
            .answer(ms(1_000), &GrantClientReport { class: class.to_owned(), ..batch(name, 1, &["x"]) })
            .class
    };
    assert_eq!(class(&mut server, "a", "known"), "known");
    assert_eq!(class(&mut server, "b", "unheard of"), "");
}

#[test]
fn other_settings_leave_grants_and_change_what_comes() {
    let class = |weight| GrantClientClass { weight, ..GrantClientClass::default() };
    let classes = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), class(4))).collect();
    let mut server = GrantServer::new(GrantSettings::default(), classes(&["old"]), 7, Duration::ZERO);
    let of =
        |class: &str, number| GrantClientReport { class: class.to_owned(), ..batch("a", number, &["x"]) };
    let before = server.answer(ms(1_000), &of("old", 1));
    assert_eq!((&*before.class, before.grants.len(), before.is_settling), ("old", 1, false));
    let settings = GrantSettings { users: 3, ..GrantSettings::default() };
    server.change(settings, classes(&["new"]), ms(1_050));
    assert_eq!(server.targets(ms(1_060))[0].holders.len(), 1, "it goes on with what it has");
    let after = server.answer(ms(1_100), &GrantClientReport { epoch: 7, ..of("old", 2) });
    assert_eq!((&*after.class, after.epoch, after.is_settling), ("", 7, false));
    assert_eq!(server.answer(ms(1_200), &GrantClientReport { epoch: 7, ..of("new", 3) }).class, "new");
    assert_eq!(server.targets(ms(1_200))[0].users_max, 3);
}

#[test]
fn threads_bound_what_one_has_of_what_others_want() {
    let mut server = server();
    let names: Vec<String> = (0..8).map(|target| format!("t{target}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut latest = [GrantReply::default(), GrantReply::default()];
    let mut number = 0;
    for at in (1_000..3_000).step_by(50) {
        number += 1;
        for (client, answer) in ["a", "b"].iter().zip(&mut latest) {
            let told = GrantClientReport { threads: 4, held: held(answer), ..batch(client, number, &all) };
            *answer = server.answer(ms(at), &told);
        }
    }
    let now = |answer: &GrantReply| answer.grants.iter().filter(|grant| grant.starts_in_us == 0).count();
    assert!(latest.iter().all(|answer| (3..=5).contains(&now(answer))), "{latest:?}");
}

#[test]
fn what_was_moved_is_counted_once_however_often_it_is_told() {
    let mut server = server();
    let moved = |bytes| vec![MovedBytes { target: "x".to_owned(), bytes }];
    for (number, bytes) in [(1, 0), (2, 10), (3, 10), (4, 30), (5, 70)] {
        // For any grants, and with or without a wish for more.
        let asks: &[&str] = if number < 4 { &["x"] } else { &[] };
        server.answer(
            ms(1_000 + 10 * number),
            &GrantClientReport { moved: moved(bytes), ..batch("a", number, asks) },
        );
    }
    server.answer(ms(1_100), &GrantClientReport { moved: moved(75), leaves: true, ..batch("a", 6, &[]) });
    assert_eq!(server.moved_bytes().collect::<Vec<_>>(), [("x", 75)]);
    // A client that began before the server reports bytes that no server counted.
    let other =
        |number, bytes| GrantClientReport { epoch: 7, moved: moved(bytes), ..batch("b", number, &["x"]) };
    server.answer(ms(1_200), &other(1, 1_000));
    server.answer(ms(1_210), &other(2, 1_005));
    assert_eq!(server.moved_bytes().collect::<Vec<_>>(), [("x", 80)]);
    server.answer(ms(1_220), &GrantClientReport { leaves: true, ..batch("b", 3, &[]) });
    assert!(server.clients().next().is_none() && !server.has_client("a"));
}
