//! A large file, which travels as separate objects, from its opening to its end.
//!
//! Several threads read and confirm its objects in any order. `FileProgress` counts them, and the thread that
//! ends the last object gets the next step from [`LargeFileNextStep`]. A file that can't be completed is
//! *aborted*: no further object is read, and the sink drops the file when none is in flight.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carrack_model::limits::OBJECT_ATTEMPTS_MAX;
use carrack_model::{CopiedDirectoryPaths, Entry, FileId, LargeFileProgress, RangeSet, TargetId};
use carrack_plan::{FileCursor, Layout, ObjectExtent};
use carrack_storage::SourceFile;
use carrack_transport::SendfileSourceFile;
use carrack_wire::message::OpenFileMessage;

use super::chunks::{FilePart, SourceChunkMembership};

/// A large file before its opening.
pub(super) struct UnopenedFile {
    pub(super) directory: Arc<CopiedDirectoryPaths>,
    pub(super) entry: Entry,
    /// The number of earlier tries.
    pub(super) attempts: u32,
    /// The ranges that the sink holds, if the file was offered.
    pub(super) held: Option<Arc<RangeSet>>,
    /// The part that this session handles, or `None` for the whole file.
    pub(super) part: Option<FilePart>,
    /// The chunk of the file, if the work comes in chunks.
    pub(super) chunk: Option<SourceChunkMembership>,
}

impl UnopenedFile {
    /// Returns the bytes to send, held ranges included.
    pub(super) fn bytes(&self) -> u64 {
        self.part.map_or(self.entry.size(), |part| part.range().len)
    }
}

/// The next step for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LargeFileNextStep {
    /// Other threads still have objects of the file.
    Wait,
    /// The sink has everything. Commit the file if it is unchanged. An inline-announced file was checked
    /// before its last object left, and is done.
    Commit,
    /// The file is aborted, and none of its objects is in flight.
    Abort(FileAbortReason),
}

/// The reason for an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAbortReason {
    /// The reason was reported.
    Reported,
    /// It changed while it was read: it may be tried again.
    Changed,
}

/// A large file between its announcement and its end.
pub(super) struct OpenSourceLargeFile {
    pub(super) id: FileId,
    /// The scan's find, with the entry as of the opening.
    pub(super) found: UnopenedFile,
    pub(super) source: Arc<SourceFile>,
    /// The target where it was queued to be opened.
    pub(super) target: TargetId,
    /// The bytes for this session to send.
    pub(super) wanted_bytes: u64,
    opened: Instant,
    /// Its layout at the sink, once the sink has sent it.
    layout_at_sink: OnceLock<Box<dyn Layout>>,
    progress: Mutex<FileProgress>,
    announcement: FileAnnouncementState,
    /// True if the sink waits for the source's word on each range: an object may carry zeros in place of
    /// bytes that could not be read.
    confirms: bool,
}

/// The way in which the sink learns of a file.
struct FileAnnouncementState {
    /// The entry table that the file's own first object carries, if that announces it.
    table: Option<Vec<u8>>,
    /// True once the sink knows the file.
    is_made: AtomicBool,
}

struct FileProgress {
    /// Cursors that may still have objects.
    cursors: usize,
    /// Objects cut without a final ack.
    in_flight: u64,
    /// Bytes that the sink has not confirmed.
    unconfirmed_bytes: u64,
    /// The first reason for which the file can't be completed.
    aborted: Option<FileAbortReason>,
    is_committed: bool,
    /// Counts requests of the sink for bytes that its storage does not hold.
    refills: u32,
}

impl OpenSourceLargeFile {
    pub(super) fn new(
        id: FileId,
        source: Arc<SourceFile>,
        target: TargetId,
        found: UnopenedFile,
        wanted_bytes: u64,
    ) -> OpenSourceLargeFile {
        let progress = Mutex::new(FileProgress {
            cursors: 1,
            in_flight: 0,
            unconfirmed_bytes: wanted_bytes,
            aborted: None,
            is_committed: false,
            refills: 0,
        });
        OpenSourceLargeFile {
            id,
            found: UnopenedFile { held: None, ..found },
            source,
            target,
            wanted_bytes,
            opened: Instant::now(),
            layout_at_sink: OnceLock::new(),
            progress,
            announcement: FileAnnouncementState { table: None, is_made: AtomicBool::new(true) },
            confirms: false,
        }
    }

    /// Has each range confirmed to the sink.
    pub(super) fn with_confirmations(self) -> OpenSourceLargeFile {
        OpenSourceLargeFile { confirms: true, ..self }
    }

    /// Returns true if an acked object is to be confirmed now: no error has been met in the file. The error
    /// of an object is known before its ack.
    pub(super) fn confirms_acked(&self) -> bool {
        self.confirms && self.progress().aborted.is_none()
    }

    /// Makes the file inline-announced: its first object carries this table.
    pub(super) fn with_inline_table(self, table: Vec<u8>) -> OpenSourceLargeFile {
        assert!(self.id.is_inline_announced(), "only such a file is announced by an object");
        let announcement = FileAnnouncementState { table: Some(table), is_made: AtomicBool::new(false) };
        OpenSourceLargeFile { announcement, ..self }
    }

    /// Returns true if the sink commits the file without a message as soon as it is whole.
    pub(super) fn is_inline_announced(&self) -> bool {
        self.id.is_inline_announced()
    }

    /// Returns the entry table for the next object, or `None` if the sink knows the file.
    pub(super) fn table_to_send(&self) -> Option<&[u8]> {
        self.announcement.table.as_deref().filter(|_| !self.is_announced())
    }

    /// Notes that the sink knows the file.
    pub(super) fn mark_announced(&self) {
        self.announcement.is_made.store(true, Relaxed);
    }

    pub(super) fn is_announced(&self) -> bool {
        self.announcement.is_made.load(Relaxed)
    }

    /// Returns the message that replaces a damaged inline announcement.
    pub(super) fn announcement(&self) -> Option<OpenFileMessage> {
        self.announcement.table.clone().map(|table| OpenFileMessage {
            id: self.id.0,
            table,
            ..OpenFileMessage::default()
        })
    }

    fn progress(&self) -> MutexGuard<'_, FileProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since it was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Returns a report of its present state, under the path that the user knows.
    pub(super) fn report(&self, path: Box<[u8]>) -> LargeFileProgress {
        LargeFileProgress {
            path,
            bytes: self.wanted_bytes,
            bytes_done: self.confirmed_bytes(),
            open_ms: self.age().as_millis() as u64,
        }
    }

    /// Bytes that the sink has confirmed.
    pub(super) fn confirmed_bytes(&self) -> u64 {
        self.wanted_bytes.saturating_sub(self.progress().unconfirmed_bytes)
    }

    /// Cuts the next object. Returns `None` if there is none, or the file is aborted.
    pub(super) fn cut(&self, cursor: &mut FileCursor) -> Option<ObjectExtent> {
        let mut progress = self.progress();
        if progress.aborted.is_some() {
            return None;
        }
        assert!(progress.cursors > 0, "a cursor cuts objects until its end");
        let extent = cursor.next()?;
        progress.in_flight += 1;
        Some(extent)
    }

    /// Sets the number of cursors that will cut the file.
    pub(super) fn expect_cursors(&self, count: usize) {
        let mut progress = self.progress();
        assert!(progress.cursors == 1, "the cursors of a file are counted before one of them ends");
        progress.cursors = count;
    }

    /// Ends a cursor: it was exhausted, or the file is aborted.
    pub(super) fn end_cursor(&self) -> LargeFileNextStep {
        let mut progress = self.progress();
        assert!(progress.cursors > 0, "each cursor ends once");
        progress.cursors -= 1;
        progress.step()
    }

    /// Sets the file's layout at the sink, which the sink has sent.
    pub(super) fn set_sink_layout(&self, layout: Box<dyn Layout>) {
        // A second answer changes nothing.
        let _ = self.layout_at_sink.set(layout);
    }

    /// The sink's target of the byte at `offset`, if it is known.
    pub(super) fn sink_target_at(&self, offset: u64) -> Option<TargetId> {
        self.layout_at_sink.get().map(|layout| layout.extent_at(offset).target)
    }

    /// Counts an object of `len` bytes that the sink has acked.
    pub(super) fn confirm_object(&self, len: u64) -> LargeFileNextStep {
        let mut progress = self.progress();
        progress.end_object();
        assert!(len <= progress.unconfirmed_bytes, "each byte is confirmed once");
        progress.unconfirmed_bytes -= len;
        progress.step()
    }

    /// Ends an object that will not arrive, and with it the file. Returns true the first time, so that the
    /// failure is reported once.
    pub(super) fn end_lost_object(&self, reason: FileAbortReason) -> (bool, LargeFileNextStep) {
        let mut progress = self.progress();
        progress.end_object();
        let is_first = progress.aborted.is_none();
        progress.aborted.get_or_insert(reason);
        (is_first, progress.step())
    }

    /// Aborts the file.
    pub(super) fn abort(&self, reason: FileAbortReason) -> LargeFileNextStep {
        let mut progress = self.progress();
        progress.aborted.get_or_insert(reason);
        progress.step()
    }

    /// Notes that the sink was told to commit. Its answer follows.
    pub(super) fn mark_committed(&self) {
        let mut progress = self.progress();
        assert!(progress.cursors == 0 && progress.in_flight == 0, "what is committed is all at the sink");
        assert!(!progress.is_committed, "a file is committed once");
        progress.is_committed = true;
    }

    /// Prepares to send bytes again that the sink's storage does not hold as written. Fails after too many
    /// tries.
    pub(super) fn prepare_resend(&self, bytes: u64) -> Result<(), LargeFileNextStep> {
        let mut progress = self.progress();
        progress.is_committed = false;
        progress.refills += 1;
        if progress.refills >= OBJECT_ATTEMPTS_MAX {
            progress.aborted.get_or_insert(FileAbortReason::Reported);
            return Err(progress.step());
        }
        assert!(
            progress.cursors == 0 && progress.in_flight == 0,
            "a committed file has no object on its way"
        );
        progress.cursors = 1;
        progress.unconfirmed_bytes = bytes;
        Ok(())
    }

    pub(super) fn is_committed(&self) -> bool {
        self.progress().is_committed
    }
}

impl SendfileSourceFile for OpenSourceLargeFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.source.descriptor()
    }

    fn report_failed_extent(&self) {
        // The next try reads the file into slots and finds the reason. No step follows before this object is
        // acked.
        self.abort(FileAbortReason::Changed);
    }
}

impl FileProgress {
    fn end_object(&mut self) {
        assert!(self.in_flight > 0, "an object ends once, and was cut before");
        self.in_flight -= 1;
    }

    fn step(&self) -> LargeFileNextStep {
        match self.aborted {
            _ if self.cursors > 0 || self.in_flight > 0 => LargeFileNextStep::Wait,
            Some(reason) => LargeFileNextStep::Abort(reason),
            None if self.unconfirmed_bytes == 0 => LargeFileNextStep::Commit,
            None => LargeFileNextStep::Wait,
        }
    }
}
