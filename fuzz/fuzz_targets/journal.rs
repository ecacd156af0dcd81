//! A journal's file. Input: a mode (1 byte). Even: the file's bytes as they are. Odd: records, which are sealed as a journal's
//! own: kind (1 byte), bytes of the body (2 bytes, little-endian), the body.
#![no_main]

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use carrack_fuzz::Input;
use carrack_journal::{JournalSubject, Journal, RecoveredJournal, JournalWriterIdentity, file_name, fuzzing, inspect};
use carrack_model::{TransferExecutionId, Timestamp, TransferId, check_name};
use libfuzzer_sys::fuzz_target;

const ID: TransferId = TransferId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let bytes = if input.byte() % 2 == 0 { input.0.to_vec() } else { sealed(&mut input) };
    // In memory, where syncing costs nothing.
    let place = PathBuf::from(format!("/dev/shm/carrack-fuzz-journal-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a directory in memory");
    fs::write(place.join(file_name(ID)), &bytes).expect("a file in memory");
    check(&place, bytes.len() as u64);
    fs::remove_dir_all(&place).expect("the directory is there");
});

fn about() -> JournalSubject {
    JournalSubject {
        id: ID,
        place: 0,
        sources: vec![b"a".to_vec()],
        destination: b"b".to_vec(),
        root: b"/b".to_vec(),
        software: String::new(),
        created: Timestamp::default(),
    }
}

fn session() -> JournalWriterIdentity {
    let run = TransferExecutionId([1; 16]);
    JournalWriterIdentity { run, boot: [9; 16], host: "h".into(), pid: 1, pid_start: 1, soft: false }
}

fn sealed(input: &mut Input<'_>) -> Vec<u8> {
    let mut records = Vec::new();
    while let Some([kind, low, high]) = input.take() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(input.0.len());
        let (body, rest) = input.0.split_at(len);
        input.0 = rest;
        records.push((kind, body));
    }
    fuzzing::encode_journal(&about(), &records).expect("a short header")
}

/// What it says stays what it says: looked at, opened, opened again, shortened, and opened after that.
fn check(place: &Path, file_bytes: u64) {
    let directory = File::open(place).expect("the directory");
    let Ok(looked) = inspect(directory.as_fd(), ID, [9; 16]) else { return };
    assert_eq!(looked.statistics.journal_bytes + looked.statistics.cut_bytes, file_bytes);
    let open = || Journal::open(directory.as_fd(), ID, &session()).expect("it was opened before").1;
    let first = open();
    assert_eq!((&*looked.partials, looked.statistics), (first.partials(), first.statistics()));
    check_partials(&first);
    let again = open();
    assert_eq!((again.statistics().cut_bytes, again.statistics().forgotten_records), (0, 0));
    assert_same(&first, &again);
    if let Some((journal, shortened)) =
        fuzzing::compact(directory.as_fd(), &about(), &session()).expect("it was opened before")
    {
        drop(journal);
        assert_same(&first, &shortened);
        let last = open();
        assert_eq!(last.statistics().void_records, 0);
        assert_same(&first, &last);
    }
}

fn check_partials(recovered: &RecoveredJournal) {
    for partial in recovered.partials() {
        assert_eq!(check_name(&partial.name), Ok(()));
        assert_eq!(check_name(&partial.temporary), Ok(()));
        let ends = partial.held.iter().chain(partial.subtrees.iter().map(|subtree| subtree.range));
        for range in ends {
            assert!(range.end().is_some_and(|end| end <= partial.size));
        }
    }
}

fn assert_same(one: &RecoveredJournal, other: &RecoveredJournal) {
    assert_eq!(one.partials(), other.partials());
    assert_eq!(one.name_count(), other.name_count());
    assert_eq!(one.statistics().done, other.statistics().done);
}
