//! Several lanes (N2): everything arrives, whatever their number, and what goes wrong in one of them ends them all.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use carrack_model::{FailureKind, TransferSpec};
use common::*;

const LANES: [usize; 4] = [1, 2, 3, 8];

/// 12 MiB in a few large files, and more small ones than one object takes.
fn tree(root: &Path) {
    rich_tree(root);
    for i in 0..6 {
        write(&root.join(format!("large{i}")), &noise(2 << 20, i));
    }
    for i in 0..1_500 {
        write(&root.join(format!("many/{}/{i}", i % 7)), &noise(i as usize % 3_000, i));
    }
}

#[test]
fn every_number_of_lanes_moves_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    tree(&source);
    for way in WAYS {
        let mut summaries = Vec::new();
        for lanes in LANES {
            let destination = dir.path().join(format!("{way:?}-{lanes}"));
            let mut transfer = transfer(&[&source], &destination);
            transfer.spec = TransferSpec { slot_bytes: 128 << 10, ..transfer.spec };
            transfer.settings.lanes = lanes;
            transfer.settings.io_threads = 4;
            summaries.push(copy_well(way, &transfer).summary);
            assert_same(&source, &destination);
            assert_clean(&destination);
            fs::remove_dir_all(&destination).unwrap();
        }
        let first = &summaries[0];
        assert!(summaries.iter().all(|summary| summary == first), "{way:?}: {summaries:?}");
    }
}

#[test]
fn the_pipe_has_one_lane() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    tree(&source);
    let destination = dir.path().join("dst");
    let mut transfer = transfer(&[&source], &destination);
    transfer.settings.lanes = 4;
    // Nobody can listen there.
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    transfer.settings.ports = Some(port..=port);
    copy_well(Way::Push, &transfer);
    assert_same(&source, &destination);
}

#[test]
fn failures_of_all_lanes_are_told_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    for i in 0..40 {
        write(&source.join(format!("f{i:02}")), &noise(300 << 10, i));
    }
    let destination = dir.path().join("dst");
    for i in (0..40).step_by(4) {
        // A directory that is not empty stands in the way.
        write(&destination.join(format!("f{i:02}/in/the/way")), b"!");
    }
    let mut transfer = transfer(&[&source.join("")], &destination);
    transfer.spec = TransferSpec { slot_bytes: 128 << 10, ..transfer.spec };
    transfer.settings.lanes = 4;
    transfer.settings.io_threads = 4;
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!((outcome.summary.files_done, outcome.summary.entries_failed), (30, 10));
    let failed = recorder.failed();
    assert_eq!(failed.len(), 10);
    assert!(failed.iter().all(|(kind, _)| *kind != FailureKind::Missing), "{failed:?}");
    assert!(destination.join("f00/in/the/way").exists());
}

#[test]
fn a_small_load_stays_on_the_first_lane() {
    // N7: the other lanes' slots are never touched, so that their memory costs nothing.
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("one"), b"a");
    let destination = dir.path().join("dst");
    let mut transfer = transfer(&[&source], &destination);
    transfer.settings.lanes = 8;
    copy_well(Way::Pull, &transfer);
    assert_same(&source, &destination);
}
