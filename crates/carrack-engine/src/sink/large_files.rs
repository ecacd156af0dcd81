//! The beginnings and ends of large files: creation, commit, the end of a session's part, and abort.
//!
//! I/O threads use it, several at once, each with another file or with the object that ends a file.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::{EntryFailure, FailureKind, FileId, RangeSet, text_without_errno};
use carrack_storage::{RootDirectory, SinkError, UncommittedFile};
use carrack_wire::message::{ControlMessage, DamagedRanges, FileReference};
use carrack_wire::{ranges_from_message, ranges_to_message};
use rustix::io::Errno;

use super::commit_group::WrittenFileOutcome;
use super::context::SinkContext;
use super::directory_access::with_access;
use super::entry_replacement::EntryReplacement;
use super::lane::SinkLane;
use super::large_file_creation::get_or_create_file;
use super::recorded_state::is_in_place;
use super::sink_file::SinkFile;
use crate::counters::ThreadActivity;
use crate::error::SessionError;
use crate::storage_retries::sink_error_may_pass;
use crate::wire_layout;

/// Begins and ends the large files of a lane.
#[derive(Clone, Copy)]
pub(super) struct SinkLargeFileHandler<'a> {
    lane: &'a SinkLane<'a>,
    sink: &'a SinkContext<'a>,
}

impl<'a> SinkLargeFileHandler<'a> {
    pub(super) fn new(lane: &'a SinkLane<'a>) -> SinkLargeFileHandler<'a> {
        SinkLargeFileHandler { lane, sink: lane.sink }
    }

    /// Creates an announced file, and sends its layout to the source.
    pub(super) fn create(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        let Some(root) = &self.sink.destination.root else {
            return Err(SessionError::Protocol("a file in a dry run".into()));
        };
        assert!(self.sink.sizing.is_sorting, "a file is created ahead if objects wait for their targets");
        // The writing of its first object reports an error.
        if get_or_create_file(self.lane, root, file).is_ok()
            && let Some(layout) = file.layout()
        {
            self.lane.queue.add_targets(&self.sink.destination.storage, layout.targets());
            let message = wire_layout::to_message(file.id, &**layout, file.entry.size());
            self.lane.send_message(ControlMessage::FilePlaced(message));
        }
        Ok(())
    }

    /// Ends a file of which all objects have arrived: it gets its name, or its damaged ranges are requested
    /// again.
    pub(super) fn commit(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if file.portion.is_part() {
            return Err(SessionError::Protocol("a part that was treated as a whole file".into()));
        }
        if self.is_damaged(file)? {
            return Ok(());
        }
        if self.give_final_name(file)? {
            self.lane.send_message(ControlMessage::FileDone(FileReference { id: file.id }));
        }
        Ok(())
    }

    /// Ends this session's part of a file; other sessions write the rest.
    pub(super) fn finish_part(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if !file.portion.is_part() {
            return Err(SessionError::Protocol("a whole file that was treated as a part".into()));
        }
        if self.is_damaged(file)? {
            return Ok(());
        }
        match self.extend(file)? {
            Ok(()) => self.lane.send_message(ControlMessage::FileDone(FileReference { id: file.id })),
            Err((kind, detail)) => self.fail_file(file, kind, detail)?,
        }
        Ok(())
    }

    /// Extends a part that ends in a hole to the announced size.
    fn extend(&self, file: &Arc<SinkFile>) -> Result<Result<(), (FailureKind, String)>, SessionError> {
        assert!(file.portion.is_part(), "a whole file is extended when it gets its name");
        if !file.portion.ends_in_hole() {
            return Ok(Ok(()));
        }
        let Some(root) = &self.sink.destination.root else { return Err(SessionError::Internal) };
        Ok(self.lane.counters.time(ThreadActivity::Storage, || {
            match get_or_create_file(self.lane, root, file) {
                Ok(growing) => growing.extend().map_err(|error| error_kind_and_detail(&error)),
                Err(error) => Err(error_kind_and_detail(error)),
            }
        }))
    }

    /// Aborts a file that the source gave up.
    pub(super) fn discard(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if let (Some(root), true) =
            (&self.sink.destination.root, self.sink.history.is_shared() && !file.portion.is_part())
        {
            // Other sessions wrote to it. A file that can't be opened need not be removed.
            let _ = get_or_create_file(self.lane, root, file);
        }
        if file.uncommitted_file().is_some() || file.is_in_journal() {
            return self.discard_contents(file);
        }
        self.lane.counters.bytes_done.fetch_sub(file.bytes.uncount_all(), Relaxed);
        Ok(())
    }

    /// Ends an inline-announced file of which all bytes are written. The ack of its last object tells the
    /// source; a failure is reported before that ack.
    pub(super) fn close(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        assert!(file.is_inline_announced(), "others are closed by the source");
        let id = FileId(file.id);
        if self.give_final_name(file)? {
            self.lane.files.commit(id)?;
        } else {
            // The source aborts it.
            self.lane.files.give_up(id);
        }
        Ok(())
    }

    /// Gives up a file that can't be written. The failure is reported once, and sent to the source before the
    /// object's ack.
    pub(super) fn give_up(
        &self,
        file: &Arc<SinkFile>,
        kind: FailureKind,
        detail: String,
    ) -> Result<(), SessionError> {
        if self.lane.files.give_up(FileId(file.id)) {
            self.fail_file(file, kind, detail)?;
        }
        Ok(())
    }

    /// Returns true if the readback found damaged ranges, or writes may be lost: these are then requested
    /// from the source.
    fn is_damaged(&self, file: &Arc<SinkFile>) -> Result<bool, SessionError> {
        let committer = self.sink.committer()?;
        let has_lost_writes = file.integrity.has_lost_writes();
        if !committer.reads_back() && !has_lost_writes {
            return Ok(false);
        }
        // Nothing that may be lost is recorded.
        committer.commit_file_and_wait(file)?;
        let arriving = file.portion.held_ranges().missing_of(file.entry.size());
        let mut damage = file.integrity.take_damage();
        file.integrity.take_lost_writes(arriving).iter().for_each(|range| {
            damage.cover(range);
        });
        if !damage.is_empty() {
            self.request_damaged_ranges(file, &damage)?;
        }
        Ok(!damage.is_empty())
    }

    /// Requests the ranges that differ from the written bytes once more.
    fn request_damaged_ranges(&self, file: &Arc<SinkFile>, damage: &RangeSet) -> Result<(), SessionError> {
        assert!(!damage.is_empty(), "something has to come once more");
        let size = file.entry.size();
        let asked = ranges_to_message(damage);
        let told = ranges_from_message(&asked, size)?;
        self.lane.counters.bytes_done.fetch_sub(file.bytes.uncount(told.covered_bytes()), Relaxed);
        self.lane.files.reopen(file, told.missing_of(size));
        self.lane.send_message(ControlMessage::FileLacks(DamagedRanges { id: file.id, ranges: asked }));
        Ok(())
    }

    /// Gives a complete file its metadata and its name. Returns false after a failure, which is reported.
    fn give_final_name(&self, file: &Arc<SinkFile>) -> Result<bool, SessionError> {
        assert!(!file.portion.is_part(), "a part gets its name when others have brought the rest");
        let syncs = self.sink.committer()?.syncs_before_naming();
        let Some(root) = &self.sink.destination.root else { return Err(SessionError::Internal) };
        if let Some(growing) = file.uncommitted_file() {
            let way = EntryReplacement::new(self.lane);
            way.remove_blocking_directory(growing.directory(), file.directory(), &file.entry.name)?;
        }
        let committed = self.lane.counters.time(ThreadActivity::Storage, || {
            match get_or_create_file(self.lane, root, file) {
                Ok(growing) => {
                    let _outstanding = self.sink.destination.requests.begin(file.target_at(0));
                    with_access(self.sink, file.directory(), || self.publish(file, growing, syncs))
                        .map_err(|error| error_kind_and_detail(&error))
                }
                Err(error) => Err(error_kind_and_detail(error)),
            }
        });
        match committed {
            Ok(()) => {}
            // The temporary file stays for a later session.
            Err(_) if self.sink.spec.part.is_some() && self.lane.is_stopped() => {
                return Err(SessionError::PeerGone);
            }
            // Another session was faster: the same version of the file has its name.
            Err(_) if self.sink.history.is_shared() && self.has_its_name(root, file) => {}
            Err((kind, detail)) => {
                // An inline-announced file is complete for the source.
                let is_requested = !file.is_inline_announced()
                    && file.integrity.has_lost_writes()
                    && self.is_damaged(file)?;
                if !is_requested {
                    self.fail_file(file, kind, detail)?;
                }
                return Ok(false);
            }
        }
        self.record_named_file(file).map(|()| true)
    }

    /// Sets the metadata and the name; with `syncs` the contents are made durable before.
    fn publish(&self, file: &SinkFile, growing: &UncommittedFile, syncs: bool) -> Result<(), SinkError> {
        let dress = self.sink.attributes.metadata_to_set(&file.entry.metadata, file.entry.extras.as_deref());
        if file.portion.part_offset().is_some() {
            return growing.commit_part(dress, syncs, &|| !self.lane.is_stopped());
        }
        self.lane.check_takeover()?;
        let mut writes = file.integrity.lock_writes();
        if writes.are_lost() {
            return Err(SinkError::Write { action: "writing back", error: Errno::IO.into() });
        }
        if file.portion.ends_in_hole() {
            growing.extend()?;
        }
        let committed = growing.commit_with(dress, syncs, &|rename| self.lane.request(None, rename));
        if committed.as_ref().is_err_and(sink_error_may_pass) && growing.has_temporary_name() {
            writes.mark_lost();
        }
        committed
    }

    fn has_its_name(&self, root: &RootDirectory, file: &SinkFile) -> bool {
        let held = root.open_directory(file.directory());
        held.is_ok_and(|held| is_in_place(self.lane, file.directory(), held.as_fd(), &file.entry))
    }

    /// Counts and reports a failure before the source gets a reply: the source must know of the failure
    /// before it takes the file for done.
    fn fail_file(&self, file: &Arc<SinkFile>, kind: FailureKind, detail: String) -> Result<(), SessionError> {
        self.discard_contents(file)?;
        self.lane.fail(EntryFailure {
            path: self.sink.destination.path(file.directory(), &file.entry.name),
            kind,
            detail,
        })?;
        self.lane.send_message(ControlMessage::FileFailed(FileReference { id: file.id }));
        Ok(())
    }

    /// Discards the file: its bytes are of no use, now or later. Of a shared file the other sessions' parts
    /// may be.
    fn discard_contents(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        self.lane.counters.bytes_done.fetch_sub(file.bytes.uncount_all(), Relaxed);
        if file.portion.is_part() {
            return Ok(());
        }
        file.allow_removal();
        self.sink.committer()?.add_end(file, WrittenFileOutcome::Dropped)
    }

    fn record_named_file(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        self.sink.committer()?.add_end(file, WrittenFileOutcome::Done)?;
        let entry = &file.entry;
        self.lane.note_flags(file.directory(), &entry.name, entry.metadata.mtime, entry.extras.as_deref())?;
        self.lane.counters.files_done.fetch_add(1, Relaxed);
        if self.sink.spec.report_digests {
            let digest = file.integrity.finish().map_err(|e| SessionError::Protocol(e.to_string()))?;
            self.lane.report_digest(file.directory(), &file.entry.name, file.entry.size(), digest);
        }
        Ok(())
    }
}

/// Returns an error as it is reported for a file.
fn error_kind_and_detail(error: &SinkError) -> (FailureKind, String) {
    (error.kind(), text_without_errno(&error))
}
