//! Owners of a journal, and files that are no journals.

use std::os::unix::fs::FileExt;

use super::*;
use crate::log::appender::JournalAppender;
use crate::log::header::JournalNonce;
use crate::log::journal::OpenedJournal;

#[test]
fn one_process_at_a_time_and_the_other_one_learns_who() {
    let ground = TestJournalDirectory::new();
    let journal = ground.create(&session(1, false));
    let Err(JournalError::Busy(Some(holder))) = ground.open(&session(2, false)) else { panic!("not busy") };
    assert_eq!(*holder, session(1, false));
    let made = Journal::create(ground.directory.as_fd(), &about(), &session(2, false));
    assert!(matches!(made, Err(JournalError::Exists)), "{made:?}");
    assert!(inspect(ground.directory.as_fd(), ID, [0; 16]).unwrap().is_in_use);
    drop(journal);
    assert!(!inspect(ground.directory.as_fd(), ID, [0; 16]).unwrap().is_in_use);
    let (journal, recovered) = ground.open(&session(2, true)).unwrap();
    assert_eq!(recovered.last_session(), Some(&session(1, false)));
    let contents = inspect(ground.directory.as_fd(), ID, [2; 16]).unwrap();
    assert_eq!(contents.last_session, Some(session(2, true)));
    assert_eq!((contents.about, contents.statistics.sessions), (about(), 2));
    journal.remove().unwrap();
    assert_eq!(ground.names(), 0);
    assert_eq!(peek(ground.directory.as_fd(), ID).unwrap(), None);
    assert!(matches!(ground.open(&session(2, false)), Err(JournalError::Missing)));
}

#[test]
fn what_another_process_left_half_made_is_no_journal() {
    let ground = TestJournalDirectory::new();
    let half = ground.place.path().join(format!("{}.new", file_name(ID)));
    fs::write(&half, [0xff; 10_000]).unwrap();
    assert_eq!(peek(ground.directory.as_fd(), ID).unwrap(), None);
    drop(ground.create(&session(1, false)));
    assert!(!half.exists());
    fs::write(&half, [0xff; 10_000]).unwrap();
    let held = File::open(&half).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    remove_unfinished(ground.directory.as_fd(), ID);
    assert!(half.exists(), "a process has it");
    drop(held);
    remove_unfinished(ground.directory.as_fd(), ID);
    assert!(!half.exists());
    let (_, recovered) = ground.open(&session(1, false)).unwrap();
    assert_eq!((recovered.statistics().records, recovered.statistics().cut_bytes), (1, 0));
}

#[test]
fn a_journal_that_cannot_be_shortened_goes_on_as_it_is() {
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    let before = ground.bytes();
    fs::create_dir(ground.place.path().join(format!("{}.new", file_name(ID)))).unwrap();
    let opening = OpenedJournal::new(ground.directory.as_fd(), ID, [1; 16]).unwrap();
    let (journal, _) = opening.compact(&session(1, false)).unwrap();
    let mut batch = RecordBatch::new();
    batch.add_done(1);
    journal.append(&batch, true).unwrap();
    assert_eq!(ground.bytes()[..before.len()], before);
    drop(journal);
    assert_eq!(ground.open(&session(1, false)).unwrap().1.statistics().records, 3);
}

#[test]
fn who_takes_a_journal_to_remove_it_writes_nothing() {
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    let before = ground.bytes();
    let (journal, contents) = Journal::lock_for_removal(ground.directory.as_fd(), ID, [1; 16]).unwrap();
    assert_eq!((contents.about, contents.is_in_use), (about(), false));
    let mut batch = RecordBatch::new();
    batch.add_done(1);
    assert!(matches!(journal.append(&batch, true), Err(JournalError::Poisoned)));
    assert_eq!(ground.bytes(), before);
    assert!(matches!(ground.open(&session(1, false)), Err(JournalError::Busy(Some(_)))));
    journal.remove().unwrap();
    assert_eq!(ground.names(), 0);
}

#[test]
fn nothing_is_written_after_an_error() {
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    let before = ground.bytes();
    let unwritable = File::open(ground.file()).unwrap();
    let mut end = JournalAppender::new(unwritable, JournalNonce([0; 16]), before.len() as u64);
    let mut batch = RecordBatch::new();
    batch.add_done(1);
    assert!(matches!(end.append(&batch, true), Err(JournalError::Failed { .. })));
    assert!(matches!(end.append(&batch, true), Err(JournalError::Poisoned)));
    assert_eq!(ground.bytes(), before);
}

#[test]
fn what_is_no_journal_is_refused_with_the_reason() {
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    let good = ground.bytes();
    let with = |offset: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[offset..offset + bytes.len()].copy_from_slice(bytes);
        TestJournalDirectory::with(&changed)
    };
    let look = |ground: &TestJournalDirectory| peek(ground.directory.as_fd(), ID).unwrap_err();
    assert!(matches!(look(&with(8, &[2, 0])), JournalError::Newer(2)));
    assert!(matches!(look(&with(0, b"C")), JournalError::NotAJournal));
    assert!(matches!(look(&with(12, &[0xff; 4])), JournalError::DamagedHeader));
    assert!(matches!(look(&with(12, &[0; 4])), JournalError::DamagedHeader));
    assert!(matches!(look(&with(60, &[0xff; 4])), JournalError::DamagedHeader));
    assert!(matches!(look(&TestJournalDirectory::with(b"")), JournalError::NotAJournal));
    let ground = TestJournalDirectory::new();
    fs::create_dir(ground.file()).unwrap();
    assert!(matches!(look(&ground), JournalError::NotAJournal));
    let ground = TestJournalDirectory::new();
    std::os::unix::fs::symlink("/etc/passwd", ground.file()).unwrap();
    assert!(matches!(look(&ground), JournalError::NotAJournal));
    let newer = look(&with(8, &[2, 0]));
    assert!(newer.to_string().contains("version 2") && newer.hint().is_some(), "{newer}");
}

/// A disk may return an older journal's blocks after a crash; they are no records of this journal.
#[test]
fn records_of_another_journal_or_place_do_not_count() {
    let mut batch = RecordBatch::new();
    batch.add_small(&table("", |w| w.add_regular(b"a", 1, &metadata(), 1, None)));
    let tails: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let ground = TestJournalDirectory::new();
            let journal = ground.create(&session(1, false));
            let start = ground.bytes().len();
            journal.append(&batch, true).unwrap();
            journal.append(&batch, true).unwrap();
            ground.bytes().split_off(start)
        })
        .collect();
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    let start = ground.bytes().len() as u64;
    let file = File::options().write(true).open(ground.file()).unwrap();
    file.write_all_at(&tails[0], start).unwrap();
    let (_, recovered) = ground.open(&session(1, false)).unwrap();
    assert_eq!(recovered.statistics().cut_bytes, tails[0].len() as u64);
    assert_eq!(recovered.name_count(), 0);
    let half = tails[0].len() / 2;
    assert_ne!(tails[0][..half], tails[0][half..], "the same record twice has two checks");
}

#[test]
fn names_are_found_by_their_ids() {
    assert_eq!(file_name(ID), ".carrack-000102030405060708090a0b0c0d0e0f.journal");
    assert_eq!(id_of_file_name(file_name(ID).as_bytes()), Some(ID));
    for other in [".carrack-00.journal", ".carrack-000102030405060708090a0b0c0d0e0f.journal.new", "x", ""] {
        assert_eq!(id_of_file_name(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_journal_of_somebody_else_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    std::os::unix::fs::chown(ground.file(), Some(4_242), None).unwrap();
    let refused = [
        ground.open(&session(1, false)).map(|_| ()),
        peek(ground.directory.as_fd(), ID).map(|_| ()),
        inspect(ground.directory.as_fd(), ID, [1; 16]).map(|_| ()),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, JournalError::Foreign(4_242)), "{error}");
        assert!(error.hint().is_some());
    }
    // The directory's owner can replace files there anyway.
    std::os::unix::fs::chown(ground.place.path(), Some(4_242), None).unwrap();
    assert!(ground.open(&session(1, false)).is_ok());
}

#[test]
fn a_damaged_journal_makes_way_for_the_next_one() {
    let ground = TestJournalDirectory::with(b"");
    assert!(peek(ground.directory.as_fd(), ID).unwrap_err().is_damage());
    remove_damaged(ground.directory.as_fd(), ID).unwrap();
    assert_eq!(peek(ground.directory.as_fd(), ID).unwrap(), None);
    let journal = ground.create(&session(1, false));
    assert_eq!(ground.names(), 1);
    journal.remove().unwrap();
    assert_eq!(ground.names(), 0);
}

#[test]
fn what_somebody_else_has_begun_is_not_believed() {
    let ground = TestJournalDirectory::new();
    drop(ground.create(&session(1, false)));
    if std::os::unix::fs::chown(ground.file(), Some(4_242), None).is_err() {
        return println!("skipped: only root gives files away");
    }
    let found = peek(ground.directory.as_fd(), ID);
    assert!(matches!(found, Err(JournalError::Foreign(4_242))), "{found:?}");
    assert!(found.unwrap_err().is_dispensable());
    // Nor does another user's unfinished journal count.
    fs::rename(ground.file(), format!("{}.new", ground.file().display())).unwrap();
    let made = Journal::create(ground.directory.as_fd(), &about(), &session(1, false));
    assert!(matches!(made, Err(JournalError::Foreign(4_242))), "{made:?}");
}

#[test]
fn modes_are_remembered_until_they_are_restored() {
    let ground = TestJournalDirectory::new();
    let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
    let journal = ground.create(&session(1, true));
    let mut batch = RecordBatch::new();
    batch.add_mode(&path("d"), 0o555);
    batch.add_modes_restored();
    for (name, mode) in [("", 0o500), ("d/e", 0o555), ("d/e", 0o755)] {
        batch.add_mode(&path(name), mode);
    }
    journal.append(&batch, true).unwrap();
    drop(journal);
    let expected = [(path(""), 0o500), (path("d/e"), 0o555)];
    let modes = |recovered: &RecoveredJournal| -> Vec<_> {
        recovered.changed_modes().map(|(path, mode)| (path.clone(), mode)).collect()
    };
    // The same in another boot, and in a compacted journal.
    let opening = OpenedJournal::new(ground.directory.as_fd(), ID, [2; 16]).unwrap();
    drop(opening.compact(&session(2, false)).unwrap());
    let (journal, recovered) = ground.open(&session(2, false)).unwrap();
    assert_eq!(modes(&recovered), expected);
    batch.clear();
    batch.add_modes_restored();
    journal.append(&batch, true).unwrap();
    drop(journal);
    assert_eq!(modes(&ground.open(&session(2, false)).unwrap().1), []);
}
