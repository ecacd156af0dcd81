use super::*;

const T: &str = "t";

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fault(mover: &str, other: &str, kind: MoverFaultKind) -> MoverFault {
    let reason = format!("{mover} {kind:?}");
    MoverFault { transfer: T.into(), mover: mover.into(), other: other.into(), kind, reason }
}

#[test]
fn a_mover_is_left_out_for_longer_with_each_fault_and_well_after_one_success() {
    let mut health = MoverHealth::new();
    for (now, until) in [(0, 2), (10, 14), (20, 28)] {
        health.record_fault(at(now), &fault("a", "x", MoverFaultKind::Passing));
        assert_eq!(health.quarantine_of(at(now), T, "a").map(|illness| illness.until), Some(at(until)));
        assert!(health.quarantine_of(at(until), T, "a").is_none(), "it is tried again");
    }
    assert!(health.quarantine_of(at(20), "another transfer", "a").is_none());
    health.record_success(at(21), T, "a");
    assert!(health.quarantine_of(at(21), T, "a").is_none());
    health.record_fault(at(30), &fault("a", "x", MoverFaultKind::Passing));
    assert_eq!(health.quarantine_of(at(30), T, "a").map(|illness| illness.strikes), Some(1));
    for seconds in 0..60 {
        health.record_fault(at(seconds), &fault("b", "x", MoverFaultKind::Passing));
    }
    assert_eq!(
        health.quarantine_of(at(59), T, "b").map(|illness| illness.until),
        Some(at(59) + LEFT_OUT_MAX)
    );
}

#[test]
fn storage_that_hangs_and_a_mover_that_nobody_reaches_concern_all_transfers() {
    for kind in [MoverFaultKind::Hung, MoverFaultKind::Unreachable] {
        let mut health = MoverHealth::new();
        health.record_fault(at(0), &fault("a", "x", kind));
        assert!(health.quarantine_of(at(1), "another transfer", "a").is_some(), "{kind:?}");
    }
}

#[test]
fn no_transfer_fails_by_one_mover_of_two() {
    let mut health = MoverHealth::new();
    for second in 0..9 {
        health.record_fault(at(second), &fault("b", "x", MoverFaultKind::Refused));
        let verdict = health.verdict(at(second), T, &["x"], &["a", "b"]);
        assert_eq!(verdict, TransferHealthVerdict::GoOn, "{second}");
    }
    health.record_fault(at(9), &fault("a", "x", MoverFaultKind::Refused));
    assert_eq!(
        health.verdict(at(9), T, &["x"], &["a", "b"]),
        TransferHealthVerdict::Fail("b Refused".into())
    );
    health.record_success(at(9), T, "a");
    assert_eq!(health.verdict(at(9), T, &["x"], &["a", "b"]), TransferHealthVerdict::GoOn);
}

#[test]
fn one_that_is_alone_may_refuse_three_times_and_a_full_one_once() {
    let mut health = MoverHealth::new();
    for second in [0, 10] {
        health.record_fault(at(second), &fault("a", "x", MoverFaultKind::Refused));
        assert!(matches!(health.verdict(at(second), T, &["x"], &["a"]), TransferHealthVerdict::Wait(_)));
    }
    health.record_fault(at(20), &fault("a", "x", MoverFaultKind::Refused));
    assert!(matches!(health.verdict(at(20), T, &["x"], &["a"]), TransferHealthVerdict::Fail(_)));
    let mut health = MoverHealth::new();
    health.record_fault(at(0), &fault("a", "x", MoverFaultKind::Full));
    assert_eq!(health.verdict(at(0), T, &["x"], &["a"]), TransferHealthVerdict::Fail("a Full".into()));
    assert_eq!(health.verdict(at(0), T, &["x"], &["a", "b"]), TransferHealthVerdict::GoOn, "b may have room");
}

/// A reachable mover reports a full file system; a mover that stays unreachable would report the same.
#[test]
fn a_full_destination_is_full_for_whoever_is_not_reached() {
    let mut health = MoverHealth::new();
    health.record_fault(at(0), &fault("a", "x", MoverFaultKind::Full));
    for second in [0, 10] {
        health.record_fault(at(second), &fault("b", "x", MoverFaultKind::Unreachable));
        assert!(!matches!(
            health.verdict(at(second), T, &["x"], &["a", "b"]),
            TransferHealthVerdict::Fail(_)
        ));
    }
    health.record_fault(at(20), &fault("b", "x", MoverFaultKind::Unreachable));
    assert_eq!(health.verdict(at(20), T, &["x"], &["a", "b"]), TransferHealthVerdict::Fail("a Full".into()));
    // Another mover may succeed once it is reachable again.
    health.record_fault(at(21), &fault("a", "x", MoverFaultKind::Refused));
    assert!(!matches!(health.verdict(at(21), T, &["x"], &["a", "b"]), TransferHealthVerdict::Fail(_)));
}

#[test]
fn what_may_pass_is_waited_for() {
    let mut health = MoverHealth::new();
    for _ in 0..20 {
        health.record_fault(at(0), &fault("a", "x", MoverFaultKind::Hung));
        health.record_fault(at(0), &fault("b", "x", MoverFaultKind::Passing));
    }
    let TransferHealthVerdict::Wait(words) = health.verdict(at(1), T, &["x"], &["a", "b"]) else {
        panic!("no wait")
    };
    assert!(words.contains("all 2 movers") && words.contains("tried again in 30"), "{words}");
    assert_eq!(health.verdict(at(1), T, &["x"], &[]), TransferHealthVerdict::GoOn);
}

#[test]
fn whom_others_reach_is_not_to_blame() {
    let mut health = MoverHealth::new();
    health.record_success(at(0), T, "a");
    let blamed = health.record_fault(at(1), &fault("a", "x", MoverFaultKind::Unreachable));
    assert_eq!(blamed, "x");
    assert!(health.quarantine_of(at(1), T, "a").is_none() && health.quarantine_of(at(1), T, "x").is_some());
    // An old fault does not count.
    assert_eq!(health.record_fault(at(100), &fault("a", "x", MoverFaultKind::Unreachable)), "a");
    health.retain_movers(|mover| mover == "x");
    assert!(health.quarantine_of(at(100), T, "a").is_none());
}

#[test]
fn doubts_end_with_an_entry_that_nobody_can_copy() {
    let mut health = MoverHealth::new();
    health.record_fault(at(0), &fault("a", "x", MoverFaultKind::Doubted));
    assert!(health.quarantine_of(at(1), T, "a").is_some());
    health.clear_doubts(T);
    assert!(health.quarantine_of(at(1), T, "a").is_none());
    health.record_fault(at(2), &fault("a", "x", MoverFaultKind::Refused));
    health.clear_doubts(T);
    assert!(health.quarantine_of(at(2), T, "a").is_some());
    health.forget(T);
    assert!(health.quarantine_of(at(2), T, "a").is_none());
}
