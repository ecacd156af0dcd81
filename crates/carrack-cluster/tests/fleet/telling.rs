//! What records tell of entries that were not copied, and movers of themselves.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use carrack_register::transfer_operations::TransferOperations;
use carrack_register::transfer_records::{MoverAvailability, MoverRecord, TransferOptions, TransferState};

use crate::support::PATIENCE;
use crate::whole::{Fleet, MIB, noise, small_chunks};

#[test]
fn what_is_left_out_is_told() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = (fleet.manager(), fleet.mover("a", 2), fleet.mover("b", 2));
    fs::create_dir(fleet.at("a/tree")).unwrap();
    fs::write(fleet.at("a/tree/file"), b"content").unwrap();
    let _sockets = ["one", "two"].map(|name| UnixListener::bind(fleet.at("a/tree").join(name)).unwrap());
    let record = fleet.done(&fleet.submit("a/tree", "b/new", TransferOptions::default()).id);
    assert_eq!((record.tally.entries_skipped, record.tally.entries_failed), (2, 0), "{record:#?}");
    let mut told: Vec<_> = record.skipped.iter().map(|left| (&*left.path, &*left.reason)).collect();
    told.sort_unstable();
    let names: Vec<_> = told.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["one", "two"], "{told:?}");
    assert!(told.iter().all(|(_, reason)| reason.contains("socket")), "{told:?}");
    assert_eq!(fs::read_dir(fleet.at("b/new")).unwrap().count(), 1);
}

#[test]
fn a_large_file_that_changes_is_told_of_once() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = (fleet.manager(), fleet.mover("a", 4), fleet.mover("b", 4));
    fs::write(fleet.at("a/file"), noise(64 * MIB, 1)).unwrap();
    let slow = small_chunks().with("bwlimit", 6_000_000).with("pairs", 2);
    let id = fleet.submit("a/file", "b/file", slow).id;
    fleet.wait(&id, |record| record.tally.bytes_done > 0);
    let mut file = OpenOptions::new().append(true).open(fleet.at("a/file")).unwrap();
    file.write_all(b"more").unwrap();
    let record = fleet.wait(&id, |_| false);
    assert_eq!((record.state, record.tally.entries_failed), (TransferState::Done, 1), "{record:#?}");
    assert!(record.tally.chunks_done > 4, "{:?}", record.tally);
    assert_eq!(record.failures.len(), 1, "{:#?}", record.failures);
    assert_eq!(record.failures[0].kind, "changed");
}

#[test]
fn a_mover_is_as_fast_as_all_its_pairs_and_rests_when_they_are_over() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = (fleet.manager(), fleet.mover("a", 4), fleet.mover("b", 4));
    fs::write(fleet.at("a/file"), noise(16 * MIB, 1)).unwrap();
    let slow = small_chunks().with("bwlimit", 2_000_000).with("pairs", 1);
    let ids = ["b/one", "b/two"].map(|to| fleet.submit("a/file", to, slow.clone()).id);
    // Nothing until it has registered itself.
    let source = || -> Option<MoverRecord> {
        let movers = fleet.runtime.block_on(fleet.control.movers()).unwrap();
        movers.into_iter().find(|mover| mover.site == "a")
    };
    let began = Instant::now();
    let mut fastest = 0;
    // One pair has 2 MB/s, and what its bucket holds at first.
    while fastest < 3_000_000 {
        assert!(began.elapsed() < PATIENCE, "{fastest} bytes/s");
        fastest = fastest.max(source().map_or(0, |mover| mover.bytes_per_s));
        thread::sleep(Duration::from_millis(100));
    }
    ids.iter().for_each(|id| drop(fleet.done(id)));
    let began = Instant::now();
    while source().is_none_or(|mover| (mover.state, mover.bytes_per_s) != (MoverAvailability::Idle, 0)) {
        assert!(began.elapsed() < PATIENCE, "{:?}", source());
        thread::sleep(Duration::from_millis(100));
    }
}
