//! A transfer of which nothing is moved says why.

use std::fs;

use carrack_cluster::curves::{PairCountCurveStore, PairCountRate, PairCurveRecord};
use carrack_cluster::pairs::{PairAssignmentStore, PairFilter};
use carrack_register::transfer_operations::{TransferControlOrder, TransferOperations};
use carrack_register::transfer_records::{
    TransferOptions, TransferRecord, TransferState, TransferSubmission, now_ms,
};

use crate::whole::{Fleet, MIB, noise};

fn waits_for(words: &'static str) -> impl Fn(&TransferRecord) -> bool {
    move |record| record.waits_for.contains(words)
}

/// Waits until it says so.
fn says(fleet: &Fleet, id: &str, words: &'static str) {
    let record = fleet.wait(id, waits_for(words));
    assert!(record.waits_for.contains(words), "{record:#?}");
}

/// Slow enough to be there as long as it is looked at.
fn slow() -> TransferOptions {
    TransferOptions::default().with("bwlimit", 1_000_000).with("pairs", 1)
}

#[test]
fn a_transfer_says_what_it_waits_for() {
    let Some(fleet) = Fleet::new() else { return };
    fs::write(fleet.at("a/file"), noise(64 * MIB, 1)).unwrap();
    let first = fleet.submit("a/file", "b/one", slow()).id;
    says(&fleet, &first, "no manager has taken it");
    let _manager = fleet.manager();
    says(&fleet, &first, "no mover at site a is there");
    let _source = fleet.mover("a", 4);
    says(&fleet, &first, "no mover at site b is there");
    let sink = fleet.mover("b", 1);
    let record = fleet.wait(&first, |record| record.tally.pairs > 0);
    assert_eq!((record.state, &*record.waits_for), (TransferState::Running, ""));

    let second = fleet.submit("a/file", "b/two", slow()).id;
    says(&fleet, &second, "the only mover of site b is full");
    let elsewhere = TransferSubmission {
        source: "a:/elsewhere/x".parse().unwrap(),
        ..fleet.runtime.block_on(fleet.control.transfer(&first)).unwrap().submission
    };
    let elsewhere = fleet.runtime.block_on(fleet.control.submit("alice", elsewhere)).unwrap().id;
    says(&fleet, &elsewhere, "no mover at site a reaches /elsewhere/x");

    let order =
        |id: &str, order| fleet.runtime.block_on(fleet.control.issue_order("alice", id, order)).unwrap();
    assert!(order(&second, TransferControlOrder::Pause).waits_for.contains("paused"));
    says(&fleet, &second, "paused");
    assert_eq!(order(&second, TransferControlOrder::Resume).waits_for, "");
    says(&fleet, &second, "full");
    order(&first, TransferControlOrder::Cancel);
    let record = fleet.wait(&first, |_| false);
    assert_eq!((record.state, &*record.waits_for), (TransferState::Cancelled, ""));
    let record = fleet.wait(&second, |record| record.tally.pairs > 0);
    assert_eq!(record.waits_for, "");
    // All that could carry it on has gone.
    drop(sink);
    says(&fleet, &second, "no mover at site b is there");
}

#[test]
fn limits_are_said_with_whose_they_are() {
    let Some(fleet) = Fleet::new() else { return };
    fs::write(fleet.at("a/file"), noise(64 * MIB, 1)).unwrap();
    let _manager = fleet.manager_with(|options| options.limits.per_user = Some(1));
    let _movers = (fleet.mover("a", 4), fleet.mover("b", 4));
    let first = fleet.submit("a/file", "b/one", slow()).id;
    fleet.wait(&first, |record| record.tally.pairs > 0);
    let second = fleet.submit("a/file", "b/two", slow()).id;
    says(&fleet, &second, "limits of user alice, who has 1 pairs at most");
}

#[test]
fn nobody_begins_it_before_its_time() {
    let Some(fleet) = Fleet::new() else { return };
    fs::write(fleet.at("a/file"), noise(MIB, 1)).unwrap();
    let _manager = fleet.manager();
    let _movers = (fleet.mover("a", 4), fleet.mover("b", 4));
    let start_ms = now_ms() + 8_000;
    let place = |site: &str, path: &str| format!("{site}:{}", fleet.at(path).display()).parse().unwrap();
    let submission = TransferSubmission {
        source: place("a", "a/file"),
        destination: place("b", "b/one"),
        options: TransferOptions::default(),
        priority: 5,
        label: String::new(),
        not_before_ms: Some(start_ms),
        umask: None,
    };
    let submit = |submission| fleet.runtime.block_on(fleet.control.submit("alice", submission));
    let record = submit(submission.clone()).unwrap();
    assert!(record.waits_for.starts_with("its start time, 2"), "{record:#?}");
    let record = fleet.wait(&record.id, |record| record.state != TransferState::Queued);
    assert!(now_ms() >= start_ms && record.waits_for.is_empty(), "{record:#?}");
    let record = fleet.wait(&record.id, |record| record.state.is_over());
    assert_eq!(record.state, TransferState::Done, "{record:#?}");
    assert!(record.started_ms.is_some_and(|ms| ms >= start_ms), "{record:#?}");
    let far = TransferSubmission { not_before_ms: Some(start_ms * 1000), ..submission };
    assert!(submit(far).is_err_and(|error| error.to_string().contains("more than a year")));
}

#[test]
fn what_is_urgent_goes_before_a_backlog_and_nothing_is_left_of_either() {
    let Some(fleet) = Fleet::new() else { return };
    fs::create_dir(fleet.at("a/tree")).unwrap();
    (0..3)
        .for_each(|number| fs::write(fleet.at(&format!("a/tree/{number}")), noise(10_000, number)).unwrap());
    let place = |site: &str, path: &str| format!("{site}:{}", fleet.at(path).display()).parse().unwrap();
    let submit = |number: usize, priority| {
        let submission = TransferSubmission {
            source: place("a", "a/tree"),
            destination: place("b", &format!("b/{number}")),
            options: TransferOptions::default(),
            priority,
            label: String::new(),
            not_before_ms: None,
            umask: None,
        };
        fleet.runtime.block_on(fleet.control.submit("alice", submission)).unwrap().id
    };
    let backlog: Vec<String> = (0..24).map(|number| submit(number, 0)).collect();
    let urgent = submit(24, 9);
    // One place for all of them.
    let _members = (fleet.mover("a", 1), fleet.mover("b", 1), fleet.manager());
    let ended = |id: &String| {
        let record = fleet.done(id);
        assert_eq!(record.tally.files_done, 3, "{record:#?}");
        record.ended_ms.unwrap()
    };
    let urgent_ended = ended(&urgent);
    let before = backlog.iter().filter(|id| ended(id) < urgent_ended).count();
    assert!(before <= 4, "{before} of {} had ended before it", backlog.len());
    let left = fleet.runtime.block_on(async {
        let pairs = PairAssignmentStore::open(&fleet.nats.bus().await).await.unwrap();
        pairs.list(PairFilter::Everybody).await.unwrap()
    });
    assert_eq!(left, []);
}

#[test]
fn a_transfer_begins_with_what_an_earlier_one_has_found() {
    let Some(fleet) = Fleet::new() else { return };
    fs::write(fleet.at("a/file"), noise(64 * MIB, 1)).unwrap();
    let points = [(1, 10), (3, 30), (4, 20)];
    let points = points.map(|(pairs, bytes_per_s)| PairCountRate { pairs, bytes_per_s });
    fleet.runtime.block_on(async {
        let curves = PairCountCurveStore::open(&fleet.nats.bus().await).await.unwrap();
        curves.put("a", "b", &PairCurveRecord::new(points.to_vec(), now_ms())).await.unwrap();
    });
    let _members = (fleet.mover("a", 4), fleet.mover("b", 4), fleet.manager());
    let options = TransferOptions::default().with("bwlimit", 1_000_000).with("chunk-size", 1 << 20);
    let id = fleet.submit("a/file", "b/one", options).id;
    let record = fleet.wait(&id, |record| record.tally.pairs_wanted > 0);
    assert_eq!(record.tally.pairs_wanted, 3, "{record:#?}");
}
