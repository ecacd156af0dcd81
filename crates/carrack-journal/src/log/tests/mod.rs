//! The journal against a simple model, cut and damaged at any byte; its owners; and the document's example.

mod example;
mod model;
mod nonsense;
mod owners;

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use carrack_model::{Metadata, RelPath, Timestamp, TransferExecutionId, TransferId};
use carrack_wire::EntryTableEncoder;
use tempfile::TempDir;

use super::*;

const ID: TransferId = TransferId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn about() -> JournalSubject {
    JournalSubject {
        id: ID,
        place: 1,
        sources: vec![b"src".to_vec(), b"other".to_vec()],
        destination: b"new".to_vec(),
        root: b"/data/new".to_vec(),
        software: "0.1.0".into(),
        created: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 },
    }
}

fn session(boot: u8, soft: bool) -> JournalWriterIdentity {
    JournalWriterIdentity {
        run: TransferExecutionId([3; 16]),
        boot: [boot; 16],
        host: "sink".into(),
        pid: 4_321,
        pid_start: 77,
        soft,
    }
}

fn metadata() -> Metadata {
    Metadata { mode: 0o644, mtime: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } }
}

/// A directory for journals.
struct TestJournalDirectory {
    place: TempDir,
    directory: OwnedFd,
}

impl TestJournalDirectory {
    fn new() -> TestJournalDirectory {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap().into();
        TestJournalDirectory { place, directory }
    }

    fn with(bytes: &[u8]) -> TestJournalDirectory {
        let ground = TestJournalDirectory::new();
        fs::write(ground.file(), bytes).unwrap();
        ground
    }

    fn file(&self) -> Box<Path> {
        self.place.path().join(file_name(ID)).into()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.file()).unwrap()
    }

    fn create(&self, session: &JournalWriterIdentity) -> Journal {
        Journal::create(self.directory.as_fd(), &about(), session).unwrap()
    }

    fn open(&self, session: &JournalWriterIdentity) -> Result<(Journal, RecoveredJournal), JournalError> {
        Journal::open(self.directory.as_fd(), ID, session)
    }

    fn names(&self) -> usize {
        fs::read_dir(self.place.path()).unwrap().count()
    }
}

fn table(directory: &str, write: impl FnOnce(&mut EntryTableEncoder<'_>)) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
    write(&mut writer);
    table
}
