//! What the source has not goes at the destination, once, when everything else is there; and what keeps it
//! from going.

use std::fs;
use std::path::Path;

use carrack_register::transfer_operations::{TransferControlOrder, TransferOperations};
use carrack_register::transfer_records::{TransferOptions, TransferRecord, TransferState};

use super::whole::{Fleet, Member, assert_same, small_chunks, tree};

fn members(fleet: &Fleet) -> Vec<Member> {
    let mut members = vec![fleet.manager()];
    members.extend(["a", "a", "b", "b"].map(|site| fleet.mover(site, 2)));
    members
}

/// A sync of the contents with `--delete`.
fn sync(fleet: &Fleet, words: &[&str]) -> TransferRecord {
    let options = TransferOptions::from_words(&[&["--sync", "--delete"], words].concat()).unwrap();
    let id = fleet.submit("a/tree/", "b/there", options).id;
    fleet.done(&id)
}

/// Extraneous entries: 1 and a directory with 3.
const EXTRA: u64 = 5;

fn plant_extra(there: &Path) {
    fs::create_dir_all(there.join("gone/deep")).unwrap();
    for name in ["extra", "gone/a", "gone/deep/b"] {
        fs::write(there.join(name), name).unwrap();
    }
}

fn has_extra(there: &Path) -> [bool; 2] {
    ["extra", "gone/deep/b"].map(|name| there.join(name).exists())
}

#[test]
fn what_the_source_has_not_goes_when_everything_is_there() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = members(&fleet);
    tree(&fleet.at("a/tree"));
    let (source, there) = (fleet.at("a/tree"), fleet.at("b/there"));
    plant_extra(&there);
    let options = small_chunks().with("sync", true).with("delete", true);
    let record = fleet.done(&fleet.submit("a/tree/", "b/there", options).id);
    assert_same(&source, &there);
    assert_eq!((record.tally.entries_deleted, record.tally.entries_failed), (EXTRA, 0), "{record:#?}");
    assert_eq!((record.version, record.undeleted.len()), (3, 0), "{record:#?}");

    // What patterns leave out stays, and a single file has nothing to delete.
    plant_extra(&there);
    fs::write(there.join("gone/keep.o"), "o").unwrap();
    let record = sync(&fleet, &["--exclude=*.o", "--exclude=/large/"]);
    assert_eq!(record.tally.entries_deleted, EXTRA - 1, "{record:#?}");
    assert!(there.join("gone/keep.o").exists() && there.join("large/two").exists());
    let record = sync(&fleet, &["--exclude=*.o", "--delete-excluded"]);
    assert_eq!(record.tally.entries_deleted, 2, "{record:#?}");
    plant_extra(&there);
    let options = TransferOptions::from_words(&["--sync", "--delete"]).unwrap();
    let record = fleet.done(&fleet.submit("a/tree/large/two", "b/there/large/", options).id);
    assert_eq!((record.tally.entries_deleted, has_extra(&there)), (0, [true; 2]), "{record:#?}");

    // What is kept of it.
    let record = sync(&fleet, &["--backup-dir=old"]);
    assert_eq!(record.tally.entries_deleted, EXTRA, "{record:#?}");
    assert!(there.join("old/gone/deep/b").exists() && !there.join("gone").exists());
    plant_extra(&there);
    let record = sync(&fleet, &["--trash"]);
    let trash = fs::read_dir(there.join(".carrack-trash")).unwrap().map(|entry| entry.unwrap().path());
    let kept = trash.filter(|time| time.join("gone/deep/b").exists()).count();
    assert_eq!((record.tally.entries_deleted, kept, has_extra(&there)), (EXTRA, 1, [false; 2]));
    assert_eq!(fleet.names_in("b/there"), [".carrack-trash", "empty", "large", "old", "small"]);
}

#[test]
fn nothing_goes_where_it_may_not() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = members(&fleet);
    let (source, there) = (fleet.at("a/tree"), fleet.at("b/there"));
    fs::create_dir_all(source.join("empty")).unwrap();
    fs::write(source.join("f"), "f").unwrap();
    plant_extra(&there);
    let kept = |record: &TransferRecord, failed: u64| {
        assert_eq!((record.tally.entries_deleted, has_extra(&there)), (0, [true; 2]), "{record:#?}");
        assert_eq!(record.tally.entries_failed, failed, "{record:#?}");
    };

    // More than may go: none does, however often it is tried.
    for words in ["--max-delete=4", "--max-delete=10%"] {
        let record = sync(&fleet, &[words]);
        kept(&record, 1);
        assert!(record.failures[0].detail.contains("than --max-delete allows: they stay"), "{record:#?}");
    }

    // Something has failed.
    fs::write(source.join("gone"), "a file").unwrap();
    let record = sync(&fleet, &[]);
    kept(&record, 1);
    assert_eq!(record.undeleted, ["nothing was deleted, as something failed"], "{record:#?}");
    fs::remove_file(source.join("gone")).unwrap();

    // A source without any entry is a mistake, unless it is said that it is none.
    fs::remove_file(source.join("f")).unwrap();
    fs::remove_dir(source.join("empty")).unwrap();
    let record = sync(&fleet, &[]);
    kept(&record, 1);
    assert!(record.failures[0].detail.contains("--delete-all"), "{record:#?}");
    let record = sync(&fleet, &["--delete-all"]);
    assert_eq!((record.tally.entries_deleted, record.tally.entries_failed), (EXTRA + 2, 0), "{record:#?}");
    assert_eq!(fleet.names_in("b/there"), [""; 0]);
}

#[test]
fn a_number_that_is_not_exceeded_and_what_holds_the_source() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = members(&fleet);
    let there = fleet.at("b/there");
    fs::create_dir_all(fleet.at("a/tree/empty")).unwrap();
    plant_extra(&there);
    // A file in the place of an empty directory of the source gives way at the end, and is no failure.
    fs::write(there.join("empty"), "in the way").unwrap();
    let record = sync(&fleet, &["--max-delete=5"]);
    assert_eq!((record.tally.entries_deleted, record.tally.entries_failed), (EXTRA, 0), "{record:#?}");
    assert!(there.join("empty").is_dir() && has_extra(&there) == [false; 2]);

    let options = TransferOptions::from_words(&["--sync", "--delete"]).unwrap();
    let id = fleet.submit("a/tree/empty/", "a/tree", options).id;
    let record = fleet.wait(&id, |_| false);
    assert_eq!(record.state, TransferState::Failed, "{record:#?}");
    assert!(record.reason.contains("where something is to be deleted"), "{record:#?}");
    assert!(fleet.at("a/tree/empty").is_dir());
}

#[test]
fn what_is_cancelled_deletes_nothing() {
    let Some(fleet) = Fleet::new() else { return };
    let there = fleet.at("b/there");
    fs::create_dir_all(fleet.at("a/tree")).unwrap();
    fs::write(fleet.at("a/tree/f"), vec![7; 30 << 20]).unwrap();
    plant_extra(&there);
    let _members = members(&fleet);
    let slow = small_chunks().with("sync", true).with("delete", true).with("bwlimit", 4_000_000);
    let id = fleet.submit("a/tree/", "b/there", slow).id;
    fleet.wait(&id, |record| record.tally.bytes_moved > 0);
    fleet.runtime.block_on(fleet.control.issue_order("alice", &id, TransferControlOrder::Cancel)).unwrap();
    let record = fleet.wait(&id, |_| false);
    assert_eq!((record.state, has_extra(&there)), (TransferState::Cancelled, [true; 2]), "{record:#?}");
}

/// Directories of the destination that only it has, each with so many files: full ones, and all.
fn gone(there: &Path, files: usize) -> (usize, usize) {
    let all = fs::read_dir(there).unwrap().map(|entry| entry.unwrap());
    let all = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("gone-"));
    let counts = all.map(|entry| fs::read_dir(entry.path()).map_or(0, Iterator::count));
    counts.fold((0, 0), |(full, all), count| (full + usize::from(count == files), all + 1))
}

/// Whoever deletes ends where it is: what was answered before goes no more.
#[test]
fn a_deletion_that_is_paused_ends_and_goes_on_when_it_is_resumed() {
    const DIRECTORIES: usize = 400;
    const FILES: usize = 1_000;
    let Some(fleet) = Fleet::new() else { return };
    let _members = members(&fleet);
    let there = fleet.at("b/there");
    fs::create_dir_all(fleet.at("a/tree/empty")).unwrap();
    for directory in 0..DIRECTORIES {
        let directory = there.join(format!("gone-{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..FILES).for_each(|file| drop(fs::File::create(directory.join(file.to_string())).unwrap()));
    }
    let options = TransferOptions::from_words(&["--sync", "--delete"]).unwrap();
    let id = fleet.submit("a/tree/", "b/there", options).id;
    // All of them, and "empty" once it is there.
    while fs::read_dir(&there).unwrap().count() >= DIRECTORIES {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let order = |order| fleet.runtime.block_on(fleet.control.issue_order("alice", &id, order)).unwrap();
    order(TransferControlOrder::Pause);
    std::thread::sleep(std::time::Duration::from_secs(4));
    let (full, all) = gone(&there, FILES);
    assert!(all > 0, "it was over before it was paused");
    assert!(full + 1 >= all, "{full} of {all} are as they were");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(gone(&there, FILES), (full, all), "it goes on though it is paused");
    order(TransferControlOrder::Resume);
    let record = fleet.done(&id);
    assert_eq!((gone(&there, FILES), record.tally.entries_failed), ((0, 0), 0), "{record:#?}");
}
