//! Policies, limits and ways of writing: all files arrive with each of them.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_model::{
    FailureSide, SchedulingOptions, SchedulingPolicyChoice, SinkIoMethod, SourceReadMethod, TargetReport,
    TransferEvent,
};
use carrack_plan::ScheduledRateLimits;

use crate::common::*;

fn policies() -> Vec<SchedulingPolicyChoice> {
    let mut policies: Vec<SchedulingPolicyChoice> =
        ["round-robin", "threshold:100,1,3", "adaptive"].iter().map(|text| text.parse().unwrap()).collect();
    policies.push(SchedulingPolicyChoice::Adaptive { nice: true });
    policies
}

#[test]
fn every_policy_and_way_of_writing_copies_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    write(&source.join("large"), &noise(5 << 20, 1));
    for (number, policy) in policies().into_iter().enumerate() {
        for (sink_io, way) in [
            (SinkIoMethod::Direct, Way::Push),
            (SinkIoMethod::Writeback, Way::Pull),
            (SinkIoMethod::Buffered, Way::Local),
        ] {
            let destination = dir.path().join(format!("{number}-{sink_io:?}"));
            let mut transfer = transfer(&[&source], &destination);
            transfer.settings.sink_io = sink_io;
            transfer.settings.source_io = SourceReadMethod::Direct;
            // With these settings both ends take objects one by one from their target queues.
            transfer.settings.scheduling =
                SchedulingOptions { policy, in_flight_max: 2, ..SchedulingOptions::default() };
            copy_well(way, &transfer);
            assert_same(&source, &destination);
            assert_clean(&destination);
        }
    }
}

#[test]
fn few_slots_and_one_request_at_a_time_suffice() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.spec.slot_bytes = 128 << 10;
        transfer.settings.pool_bytes = 0;
        transfer.settings.scheduling.in_flight_max = 1;
        copy_well(way, &transfer);
        assert_same(&source, &destination);
    }
}

#[test]
fn a_rate_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("large"), &noise(4 << 20, 1));
    for i in 0..40 {
        write(&source.join(format!("small{i}")), &noise(100_000, i));
    }
    let of_all = SchedulingOptions { rate: 8 << 20, ..SchedulingOptions::default() };
    let of_each = SchedulingOptions { target_rate: 8 << 20, ..SchedulingOptions::default() };
    for (number, (scheduling, lanes)) in
        [(of_all, 1), (of_each, 1), (of_all, 2), (of_each, 2)].into_iter().enumerate()
    {
        let destination = dir.path().join(format!("dst{number}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.settings.scheduling = scheduling;
        transfer.settings.lanes = lanes;
        let began = Instant::now();
        copy_well(Way::Push, &transfer);
        // 7.8 MiB at 8 MiB/s, less a burst of 50 ms and the last object, after which there is no wait.
        assert!(began.elapsed() > Duration::from_millis(750), "{:?}", began.elapsed());
        assert_same(&source, &destination);
    }
}

/// Either end can have the timetable; the other end receives no limit.
#[test]
fn a_rate_follows_the_time_at_either_end() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("large"), &noise(24 << 20, 1));
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.settings.pool_bytes = 8 << 20;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let slow = (now, 4 << 20);
        transfer.settings.timetable =
            Some(ScheduledRateLimits::new(vec![slow, (now + Duration::from_secs(2), 0)]));
        let began = Instant::now();
        copy_well(way, &transfer);
        let took = began.elapsed();
        // 24 MiB at 4 MiB/s would take 6 s; the two slow seconds leave 16 MiB, of which the source may be 8
        // MiB ahead.
        assert!(
            (Duration::from_millis(1_500)..Duration::from_millis(4_500)).contains(&took),
            "{way:?}: {took:?}"
        );
        assert_same(&source, &destination);
    }
}

#[test]
fn the_targets_of_both_ends_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("large"), &noise(3 << 20, 1));
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.settings.scheduling.in_flight_max = 3;
        let (outcome, recorder) = copy(way, &transfer);
        assert!(outcome.result.is_ok());
        for side in [FailureSide::Source, FailureSide::Sink] {
            let told = recorder.events().into_iter().rev().find_map(|event| match event {
                TransferEvent::Targets { side: told, targets } if told == side => Some(targets),
                _ => None,
            });
            let targets: Vec<TargetReport> = told.unwrap_or_default();
            assert_eq!(targets.len(), 1, "{way:?}, {side:?}");
            assert!(!targets[0].label.is_empty() && targets[0].bytes >= 3 << 20, "{targets:?}");
            assert_eq!(targets[0].waiting, 0);
        }
    }
}

#[test]
fn mounts_of_a_set_are_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("f"), b"x");
    for set in ["a", "b"] {
        fs::create_dir(dir.path().join(set)).unwrap();
    }
    let mut transfer = transfer(&[&source], &dir.path().join("dst"));
    transfer.settings.target_sets = vec![dir.path().join("a"), dir.path().join("b")];
    let (outcome, _) = copy(Way::Local, &transfer);
    let error = outcome.result.unwrap_err();
    assert!(error.to_string().contains("one file system"), "{error}");
    assert!(error.hint().is_some());
    transfer.settings.target_sets = vec![dir.path().join("a"), dir.path().join("not there")];
    copy_well(Way::Local, &transfer);
}
