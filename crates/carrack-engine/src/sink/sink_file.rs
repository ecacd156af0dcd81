//! One large file at the sink: announced by the comm thread, created by the I/O thread that has its first
//! object, written by many threads, and renamed when it is complete.
//!
//! Its parts own the values that change: [`super::write_combining`] the turns to write,
//! [`super::file_integrity`] digest and damage, [`super::file_byte_counts`] the counts.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use carrack_journal::{Blake3Subtree, FileDigestError, PartialFile};
use carrack_layout::RequestedLayout;
use carrack_model::{ByteRange, Entry, FileId, PartialCopyRange, RelPath, StripeChoice, TargetId};
use carrack_plan::Layout;
use carrack_storage::{SinkError, UncommittedFile};
use carrack_transport::IncomingObject;
use carrack_wire::decode_section;
use carrack_wire::message::{OpenFileMessage, RangesToSend, StripingMessage};

use super::file_byte_counts::LargeFileByteCounts;
use super::file_integrity::FileIntegrity;
use super::file_portion::RangesToReceive;
use super::write_combining::WriteDelegationQueue;
use super::write_method::stripe_for;
use crate::error::SessionError;
use crate::object_checksum::xxh3;

/// The values of a large file for the journal, which may need them after the file is closed.
pub(super) struct FileRecord {
    /// Its entry table, as announced.
    pub(super) table: Vec<u8>,
    pub(super) directory: RelPath,
    /// True if the journal has it.
    is_begun: AtomicBool,
}

impl FileRecord {
    /// Returns true if the journal has it.
    pub(super) fn is_in_journal(&self) -> bool {
        self.is_begun.load(Relaxed)
    }
}

/// An object that passed its check.
pub(super) struct CheckedObject {
    incoming: IncomingObject,
    /// Its range in the file. The file's table may follow the contents.
    range: ByteRange,
    subtrees: Vec<Blake3Subtree>,
}

impl CheckedObject {
    /// Creates an object with its range in the file, and its subtrees of the digest.
    pub(super) fn new(
        incoming: IncomingObject,
        range: ByteRange,
        subtrees: Vec<Blake3Subtree>,
    ) -> CheckedObject {
        let len = incoming.body().len() as u64;
        assert!(range.len <= len, "an object's contents lie in its slot");
        CheckedObject { incoming, range, subtrees }
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.incoming.body()[..self.range.len as usize]
    }

    pub(super) fn range(&self) -> ByteRange {
        self.range
    }

    pub(super) fn subtrees(&self) -> &[Blake3Subtree] {
        &self.subtrees
    }

    /// The ID in its ack.
    pub(super) fn object_id(&self) -> u64 {
        self.incoming.header.object.0
    }
}

/// A file between its announcement and its end. Dropping it removes the temporary file, unless the journal
/// has records for it.
pub(super) struct SinkFile {
    pub(super) id: u64,
    /// Its number in the journal.
    pub(super) number: u64,
    pub(super) record: Arc<FileRecord>,
    pub(super) entry: Entry,
    /// Its striping at the source.
    stripes: Option<StripingMessage>,
    /// The ranges that arrive in this session.
    pub(super) portion: RangesToReceive,
    growing: OnceLock<Result<UncommittedFile, SinkError>>,
    layout: OnceLock<Arc<dyn Layout>>,
    commit_queue: OnceLock<usize>,
    /// Objects that are left to a writing thread.
    pub(super) line: WriteDelegationQueue<CheckedObject>,
    pub(super) integrity: FileIntegrity,
    pub(super) bytes: LargeFileByteCounts,
}

impl SinkFile {
    /// Creates the file from the table of an open-file message; `part` is the range of a partial transfer.
    /// Touches no storage.
    pub(super) fn from_announcement(
        message: &OpenFileMessage,
        number: u64,
        part: Option<PartialCopyRange>,
    ) -> Result<SinkFile, SessionError> {
        let mut section = decode_section(&message.table)?;
        let (Some(entry), true) = (section.entries.pop(), section.entries.is_empty()) else {
            return Err(SessionError::Protocol("an open-file message is about one file".into()));
        };
        if entry.size() == 0 || entry.extras.as_ref().is_some_and(|extras| extras.same_as.is_some()) {
            return Err(SessionError::Protocol("an empty file or a link announced as a large file".into()));
        }
        let portion = RangesToReceive::from_announcement(message, entry.size(), part)?;
        let is_plain = message.coming.is_none() && !message.goes_on && portion.is_everything();
        if FileId(message.id).is_inline_announced() && !is_plain {
            return Err(SessionError::Protocol("a file by itself of which not all comes".into()));
        }
        Ok(SinkFile {
            id: message.id,
            number,
            record: Arc::new(FileRecord {
                table: message.table.clone(),
                directory: section.directory.sink.clone(),
                is_begun: AtomicBool::new(false),
            }),
            stripes: message.stripes.clone(),
            portion,
            growing: OnceLock::new(),
            layout: OnceLock::new(),
            commit_queue: OnceLock::new(),
            line: WriteDelegationQueue::default(),
            integrity: FileIntegrity::new(entry.size(), message.confirms),
            bytes: LargeFileByteCounts::new(entry.size()),
            entry,
        })
    }

    /// Resumes the file with the record of an earlier session.
    pub(super) fn resumed_from(mut self, past: PartialFile) -> Result<SinkFile, FileDigestError> {
        assert!(self.growing.get().is_none(), "what is held of a file is known before it is created");
        self.integrity.add_subtrees(&past.subtrees)?;
        self.number = past.number;
        self.record.is_begun.store(true, Relaxed);
        self.portion.resume_from(past);
        Ok(self)
    }

    /// Sets the ranges that arrive in this session, as several sessions carry the transfer.
    pub(super) fn with_session_ranges(
        mut self,
        coming: Option<&RangesToSend>,
    ) -> Result<SinkFile, SessionError> {
        assert!(self.growing.get().is_none(), "the ranges of a file are known before it is created");
        coming.map_or(Ok(()), |coming| self.portion.set_session_ranges(coming))?;
        Ok(self)
    }

    /// Returns true if it is an inline-announced file, which gets its name as soon as it is complete, without
    /// a message.
    pub(super) fn is_inline_announced(&self) -> bool {
        FileId(self.id).is_inline_announced()
    }

    /// Returns its intended striping.
    pub(super) fn requested_layout(
        &self,
        choice: &StripeChoice,
        slow: impl FnOnce() -> Vec<TargetId>,
    ) -> RequestedLayout {
        stripe_for(choice, self.stripes.as_ref(), self.entry.size(), slow)
    }

    /// Returns the file under its temporary name, which the first caller creates with `create`.
    pub(super) fn get_or_create(
        &self,
        create: impl FnOnce() -> Result<UncommittedFile, SinkError>,
    ) -> Result<&UncommittedFile, &SinkError> {
        self.growing.get_or_init(create).as_ref()
    }

    /// The file under its temporary name, if it was created.
    pub(super) fn uncommitted_file(&self) -> Option<&UncommittedFile> {
        self.growing.get().and_then(|growing| growing.as_ref().ok())
    }

    /// Sets its layout, by the thread that creates it.
    pub(super) fn set_layout(&self, layout: Arc<dyn Layout>) {
        let set = self.layout.set(layout);
        assert!(set.is_ok(), "one thread creates the file, so the layout is set once");
    }

    /// Returns its layout, once it is created, if there are several targets.
    pub(super) fn layout(&self) -> Option<&Arc<dyn Layout>> {
        self.layout.get()
    }

    /// The target of the byte at `offset`, if that is known.
    pub(super) fn target_at(&self, offset: u64) -> Option<TargetId> {
        self.layout.get().map(|layout| layout.extent_at(offset).target)
    }

    /// The number of its queue in the group commit, which `choose` gives once.
    pub(super) fn commit_queue(&self, choose: impl FnOnce() -> usize) -> usize {
        *self.commit_queue.get_or_init(choose)
    }

    /// Its directory.
    pub(super) fn directory(&self) -> &RelPath {
        &self.record.directory
    }

    /// Returns true if the journal has it.
    pub(super) fn is_in_journal(&self) -> bool {
        self.record.is_in_journal()
    }

    /// Notes that the journal has it: the temporary file is kept for a later session.
    pub(super) fn mark_recorded(&self) {
        assert!(self.uncommitted_file().is_some(), "what is recorded of a file was written to it");
        self.record.is_begun.store(true, Relaxed);
        if let Some(growing) = self.uncommitted_file() {
            growing.keep();
        }
    }

    /// Has the temporary file removed, whatever is recorded of it at this moment.
    pub(super) fn allow_removal(&self) {
        if let Some(growing) = self.uncommitted_file() {
            growing.discard();
        }
    }
}

/// Returns a tag for temporary names that differs between versions of a file, and between the names of one
/// version. It need not resist an attacker: only ranges that the journals record for exactly this version are
/// trusted.
pub(super) fn version_of(entry: &Entry, generation: u8) -> u16 {
    let mut text = entry.size().to_le_bytes().to_vec();
    text.extend_from_slice(&entry.metadata.mtime.seconds.to_le_bytes());
    text.extend_from_slice(&entry.metadata.mtime.nanoseconds.to_le_bytes());
    text.extend_from_slice(&entry.identity.to_le_bytes());
    // The first name is that of earlier versions of carrack.
    text.extend((generation > 0).then_some(generation));
    let [a, b, ..] = xxh3(&text);
    u16::from_le_bytes([a, b])
}

#[cfg(test)]
pub(super) mod tests {
    use carrack_machine::SlotPool;
    use carrack_model::{Metadata, ObjectId};
    use carrack_wire::{EntryTableEncoder, FrameHeader, FrameKind};

    use super::*;

    /// An open-file message of the file `d/f` of `size` bytes.
    pub(in crate::sink) fn message(id: u64, size: u64) -> OpenFileMessage {
        let mut table = Vec::new();
        EntryTableEncoder::new(&mut table).begin_section(&RelPath::new(b"d").unwrap(), None);
        EntryTableEncoder::new(&mut table).add_regular(b"f", size, &Metadata::default(), 0, None);
        OpenFileMessage { id, table, ..OpenFileMessage::default() }
    }

    /// An object of a file.
    pub(in crate::sink) fn incoming(pool: &SlotPool, file: u64, range: ByteRange) -> IncomingObject {
        let header = FrameHeader {
            kind: FrameKind::Object,
            body_len: range.len as u32,
            object: ObjectId(1),
            file: FileId(file),
            offset: range.offset,
            table_len: 0,
            lane: 0,
            check: [0; 32],
        };
        IncomingObject { header, slot: pool.lease().unwrap() }
    }

    #[test]
    fn a_file_by_itself_comes_whole() {
        let id = FileId::FIRST_BY_ITSELF.0;
        let file = SinkFile::from_announcement(&message(id, 100), 1, None).unwrap();
        assert!(file.is_inline_announced() && !file.is_in_journal() && file.uncommitted_file().is_none());
        assert_eq!(file.directory(), &RelPath::new(b"d").unwrap());
        let goes_on = OpenFileMessage { goes_on: true, ..message(id, 100) };
        let has_holes = OpenFileMessage { holes: vec![10, 20], ..message(id, 100) };
        let is_shared = OpenFileMessage { coming: Some(RangesToSend::default()), ..message(id, 100) };
        for partial in [&goes_on, &has_holes, &is_shared] {
            assert!(SinkFile::from_announcement(partial, 1, None).is_err());
            assert!(
                SinkFile::from_announcement(&OpenFileMessage { id: 1, ..partial.clone() }, 1, None).is_ok()
            );
        }
        assert!(
            SinkFile::from_announcement(&message(1, 0), 1, None).is_err(),
            "an empty file is no large file"
        );
    }

    #[test]
    fn a_file_is_created_once() {
        let file = SinkFile::from_announcement(&message(1, 100), 1, None).unwrap();
        assert!(file.get_or_create(|| Err(SinkError::Vanished)).is_err());
        assert!(
            file.get_or_create(|| panic!("what failed is not tried again")).is_err()
                && file.uncommitted_file().is_none()
        );
    }

    #[test]
    fn versions_have_names_of_their_own() {
        let [one, same, other] = [100, 100, 101].map(|size| {
            version_of(&SinkFile::from_announcement(&message(1, size), 1, None).unwrap().entry, 0)
        });
        assert!(one == same && one != other);
    }

    #[test]
    fn the_table_behind_an_object_is_no_content() {
        let pool = SlotPool::new(1 << 16, 4096).unwrap();
        let object = incoming(&pool, 1, ByteRange::new(0, 100));
        let checked = CheckedObject::new(object, ByteRange::new(0, 60), Vec::new());
        assert_eq!((checked.content().len(), checked.object_id()), (60, 1));
    }
}
