//! `carrack journals` on journals of interrupted transfers: its output, and the files that it removes.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carrack_journal::{Journal, JournalSubject, JournalWriterIdentity, RecordBatch, file_name};
use carrack_model::{ByteRange, Metadata, RelPath, Timestamp, TransferExecutionId, TransferId};
use carrack_wire::EntryTableEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::CARRACK;
use crate::common::process::{assert_exit, assert_says, json, run, talk};

const ID: TransferId = TransferId([0xab; 16]);

/// A destination of an interrupted transfer: `small` and `d/done` are complete, and half of `d/big` is there.
struct Site {
    place: TempDir,
}

impl Site {
    /// The journal is returned too, since it is in use.
    fn new() -> (Site, Journal) {
        let site = Site { place: tempfile::tempdir().unwrap() };
        let root = site.root();
        fs::create_dir_all(root.join("d")).unwrap();
        fs::write(root.join("small"), b"12345").unwrap();
        fs::write(root.join("d/.big.carrack-0000002a"), vec![7; 4_096]).unwrap();
        let journal = site.journal(&root, b".big.carrack-0000002a");
        (site, journal)
    }

    fn journal(&self, root: &Path, temporary: &[u8]) -> Journal {
        let about = JournalSubject {
            id: ID,
            place: 1,
            sources: vec![b"a\x1b[2J".to_vec(), b"b".to_vec()],
            destination: b"new".to_vec(),
            root: root.as_os_str().as_bytes().to_vec(),
            software: "0.1.0".into(),
            created: Timestamp { seconds: 1_800_000_000, nanoseconds: 0 },
        };
        let session = JournalWriterIdentity::of_this_process(TransferExecutionId([1; 16]), false).unwrap();
        let directory = File::open(self.place.path()).unwrap();
        let journal = Journal::create(directory.as_fd(), &about, &session).unwrap();
        let mut batch = RecordBatch::new();
        batch.add_small(&table("", b"small", 5));
        batch.add_begin(1, &table("d", b"done", 1 << 20), b".done.carrack-00000029");
        batch.add_begin(2, &table("d", b"big", 8_192), temporary);
        batch.add_held_ranges(2, [ByteRange::new(0, 1_024), ByteRange::new(4_096, 3_072)], &[]);
        batch.add_done(1);
        journal.append(&batch, true).unwrap();
        journal
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("new")
    }

    fn file(&self) -> PathBuf {
        self.place.path().join(file_name(ID))
    }

    #[track_caller]
    fn journals(&self, arguments: &[&str]) -> Output {
        run(Command::new(CARRACK).arg("journals").args(arguments).current_dir(self.place.path()))
    }

    #[track_caller]
    fn line(&self, arguments: &[&str]) -> Value {
        let output = self.journals(arguments);
        assert_exit(&output, 0);
        let mut lines = json(&output);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }
}

fn table(directory: &str, name: &[u8], size: u64) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
    writer.add_regular(name, size, &Metadata::default(), 1, None);
    table
}

#[test]
fn journals_are_listed_with_how_far_they_came() {
    let (site, journal) = Site::new();
    let line = site.line(&["list", "--json"]);
    for (field, value) in [
        ("id", json!("ab".repeat(16))),
        ("created", json!("2027-01-15T08:00:00Z")),
        ("sources", json!(["a\\u{1b}[2J", "b"])),
        ("destination", json!("new")),
        ("is_in_use", json!(true)),
        ("complete_files", json!(2)),
        ("complete_bytes", json!((1 << 20) + 5)),
        ("partial_files", json!(1)),
        ("partial_bytes", json!(4_096)),
        ("damaged_bytes", json!(0)),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    assert_eq!(line["process"]["pid"], json!(std::process::id()));
    assert!(line.get("partials").is_none());
    drop(journal);
    assert_eq!(site.line(&["list", "--json", "."])["is_in_use"], json!(false));
    let table = site.journals(&["list"]);
    assert_exit(&table, 0);
    let text = String::from_utf8(table.stdout).unwrap();
    for words in [
        "to           new",
        "in use       no",
        "complete     2 files, 1.0 MiB",
        "unfinished   1 file, 4.0 KiB",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn unfinished_files_are_shown_with_their_ranges() {
    let (site, journal) = Site::new();
    drop(journal);
    let ranges = json!([{"offset": 0, "length": 1_024}, {"offset": 4_096, "length": 3_072}]);
    let file = site.file();
    for name in [file.to_str().unwrap(), &"ab".repeat(16), &format!("./{}", "ab".repeat(16))] {
        let partials = &site.line(&["inspect", "--json", name])["partials"];
        assert_eq!(partials.as_array().unwrap().len(), 1);
        assert_eq!((&partials[0]["path"], &partials[0]["ranges"]), (&json!("d/big"), &ranges), "{name}");
        assert_eq!((&partials[0]["size"], &partials[0]["held_bytes"]), (&json!(8_192), &json!(4_096)));
    }
    let text = String::from_utf8(site.journals(&["inspect", file.to_str().unwrap()]).stdout).unwrap();
    assert!(
        text.contains(" 50.0% of   8.0 KiB  d/big") && text.contains("offset 4096, length 3072"),
        "{text}"
    );
}

#[test]
fn a_dropped_journal_takes_its_temporary_files_along_and_nothing_else() {
    let (site, journal) = Site::new();
    let file = site.file();
    let file = file.to_str().unwrap();
    let busy = site.journals(&["drop", file]);
    assert_exit(&busy, 3);
    assert_says(&busy, &["another process has the journal", &std::process::id().to_string(), "hint: "]);
    assert!(site.file().exists() && site.root().join("d/.big.carrack-0000002a").exists());
    drop(journal);
    fs::write(site.root().join("d/.other.carrack-0000002b"), b"another transfer's").unwrap();
    let dropped = site.journals(&["drop", file]);
    assert_exit(&dropped, 0);
    assert_says(&dropped, &["temporary files removed: 1"]);
    assert!(!site.file().exists() && !site.root().join("d/.big.carrack-0000002a").exists());
    assert_eq!(fs::read(site.root().join("small")).unwrap(), b"12345");
    assert!(site.root().join("d/.other.carrack-0000002b").exists());
    let again = site.journals(&["drop", file]);
    assert_exit(&again, 3);
    assert_says(&again, &["there is no such journal"]);
}

#[test]
fn a_destination_that_moved_or_is_gone() {
    let (site, journal) = Site::new();
    drop(journal);
    let elsewhere = site.place.path().join("elsewhere");
    fs::rename(site.root(), &elsewhere).unwrap();
    let name = "ab".repeat(16);
    let moved = site.journals(&["drop", &name, "--root", "elsewhere"]);
    assert_exit(&moved, 0);
    assert!(!elsewhere.join("d/.big.carrack-0000002a").exists(), "{}", talk(&moved));
    drop(site.journal(&site.root(), b".big.carrack-0000002a"));
    let gone = site.journals(&["drop", &name]);
    assert_exit(&gone, 0);
    assert_says(&gone, &["temporary files removed: 0"]);
    assert!(!site.file().exists());
}

/// Any user may have made a file that looks like a journal.
#[test]
fn a_journal_cannot_have_other_files_removed() {
    let (site, journal) = Site::new();
    journal.remove().unwrap();
    fs::write(site.root().join("d/precious"), b"x").unwrap();
    drop(site.journal(&site.root(), b"precious"));
    let refused = site.journals(&["drop", &"ab".repeat(16)]);
    assert_exit(&refused, 3);
    assert_says(&refused, &["not a temporary name"]);
    assert!(site.root().join("d/precious").exists() && site.file().exists());
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_shown() {
    let (site, journal) = Site::new();
    drop(journal);
    let mut newer = fs::read(site.file()).unwrap();
    newer[8] = 2;
    let other = TransferId([0xcd; 16]);
    fs::write(site.place.path().join(file_name(other)), &newer).unwrap();
    fs::write(site.place.path().join(".carrack-not.journal"), b"x").unwrap();
    let output = site.journals(&["list", "--json"]);
    assert_exit(&output, 1);
    assert_says(&output, &["a journal of version 2", "hint: "]);
    assert_eq!(json(&output).len(), 1);
    let nothing = site.journals(&["list", "new", "missing"]);
    assert_exit(&nothing, 3);
    assert_says(&nothing, &["missing: "]);
    assert_exit(&site.journals(&["list", "new"]), 0);
    let wrong = site.journals(&["inspect", "new/small"]);
    assert_exit(&wrong, 3);
    assert_says(&wrong, &["not the name of a journal"]);
}
