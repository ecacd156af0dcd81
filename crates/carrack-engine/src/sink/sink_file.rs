//! One large file at the sink: announced by the comm thread, created by the I/O thread that brings its first object,
//! written by many, renamed when whole.

use std::sync::{Mutex, OnceLock, PoisonError};

use carrack_journal::{DigestError, FileDigest, Subtree};
use carrack_model::{Entry, RelPath};
use carrack_storage::{GrowingFile, Root, ScratchNames, SinkError};
use carrack_wire::decode_section;

use crate::error::SessionError;

/// A file between its announcement and its end. Dropping it takes the temporary name away.
pub(super) struct SinkFile {
    pub(super) id: u64,
    pub(super) directory: RelPath,
    pub(super) entry: Entry,
    growing: OnceLock<Result<GrowingFile, SinkError>>,
    digest: Mutex<FileDigest>,
    /// Whoever holds it writes.
    pen: Mutex<()>,
}

impl SinkFile {
    /// From the table of an open-file message. Touches no storage.
    pub(super) fn announced(id: u64, table: &[u8]) -> Result<SinkFile, SessionError> {
        let mut section = decode_section(table)?;
        let (Some(entry), true) = (section.entries.pop(), section.entries.is_empty()) else {
            return Err(SessionError::Protocol("an open-file message is about one file".into()));
        };
        if entry.size() == 0 {
            return Err(SessionError::Protocol("an empty file or a link announced as a large file".into()));
        }
        let directory = section.directory.sink.clone();
        let digest = Mutex::new(FileDigest::new(entry.size()));
        Ok(SinkFile { id, directory, entry, growing: OnceLock::new(), digest, pen: Mutex::default() })
    }

    /// The file under its temporary name; created by the first caller.
    pub(super) fn growing(&self, root: &Root, scratch: &ScratchNames) -> Result<&GrowingFile, &SinkError> {
        self.growing.get_or_init(|| self.create(root, scratch)).as_ref()
    }

    fn create(&self, root: &Root, scratch: &ScratchNames) -> Result<GrowingFile, SinkError> {
        let held = root.make_directory(&self.directory).map_err(SinkError::of_directory)?;
        GrowingFile::create(held, &self.entry.name, self.entry.size(), scratch)
    }

    /// Writes an object; if `in_turn`, while no other thread does.
    pub(super) fn write(
        &self,
        growing: &GrowingFile,
        body: &[u8],
        offset: u64,
        in_turn: bool,
    ) -> Result<(), SinkError> {
        let _pen = in_turn.then(|| self.pen.lock().unwrap_or_else(PoisonError::into_inner));
        growing.write_at(body, offset)
    }

    /// An object's part of the digest.
    pub(super) fn add_subtrees(&self, subtrees: &[Subtree]) -> Result<(), DigestError> {
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        subtrees.iter().try_for_each(|subtree| digest.add(*subtree))
    }

    /// Gives the file its metadata and its name.
    pub(super) fn commit(&self) -> Result<(), SinkError> {
        match self.growing.get() {
            Some(Ok(growing)) => growing.commit(&self.entry.metadata),
            // Only a file with objects becomes whole, and the first of them created it.
            _ => Ok(()),
        }
    }

    pub(super) fn digest(&self) -> Result<[u8; 32], DigestError> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner).clone().finish()
    }
}
