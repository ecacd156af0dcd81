//! One file that travels as objects of its own, from its opening to its end.
//!
//! Its objects are read and answered by several threads in any order; `Progress` counts them, and whoever brings the
//! last one learns from [`Step`] what comes next. A file that can't be completed is *doomed*: nothing more of it is
//! read, and when none of its objects is on its way any more it is abandoned.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carrack_model::limits::OBJECT_ATTEMPTS_MAX;
use carrack_model::{Directory, Entry, FileId, TargetId};
use carrack_plan::{FileCursor, Layout, ObjectExtent};
use carrack_storage::SourceFile;
use carrack_transport::ExtentFile;
use carrack_wire::message::OpenFile;

use super::chunks::{FilePart, InChunk};
use super::queue::Opening;

/// What comes next for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Others still have objects of it.
    Wait,
    /// Everything is at the sink: see whether it changed, then commit. A file by itself was looked at before its last object left,
    /// and is done.
    Settle,
    /// It is doomed, and nothing of it is on its way.
    Abandon(Doom),
}

/// Why a file can't be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doom {
    /// The reason was reported.
    Reported,
    /// It changed while it was read: it may be tried again.
    Changed,
}

/// A large file between its announcement and its end.
pub(super) struct LargeFile {
    pub(super) id: FileId,
    pub(super) directory: Arc<Directory>,
    /// As it was when opened.
    pub(super) entry: Entry,
    pub(super) source: SourceFile,
    /// Where it was queued to be opened.
    pub(super) target: TargetId,
    /// How often it was tried before.
    pub(super) attempts: u32,
    /// What of it is this session's; all if nothing is said.
    pub(super) part: Option<FilePart>,
    /// The chunk that it is of, if work comes so.
    pub(super) chunk: Option<InChunk>,
    /// Where it lies at the sink, once that has said so.
    place: OnceLock<Box<dyn Layout>>,
    progress: Mutex<Progress>,
    opened: Instant,
    /// Bytes of it that are this session's to send.
    pub(super) wanted_bytes: u64,
    /// What announces it, if its own first object does.
    table: Option<Vec<u8>>,
    is_announced: AtomicBool,
}

struct Progress {
    /// Cursors that may still have objects.
    cursors: usize,
    /// Objects cut and not answered for good.
    in_flight: u64,
    /// Bytes that the sink has not confirmed.
    unconfirmed_bytes: u64,
    doom: Option<Doom>,
    is_committed: bool,
    /// How often the sink's storage lacked something.
    refills: u32,
}

impl LargeFile {
    pub(super) fn new(
        id: FileId,
        source: SourceFile,
        target: TargetId,
        opening: Opening,
        wanted_bytes: u64,
    ) -> LargeFile {
        let Opening { directory, entry, attempts, part, chunk, .. } = opening;
        let progress = Mutex::new(Progress {
            cursors: 1,
            in_flight: 0,
            unconfirmed_bytes: wanted_bytes,
            doom: None,
            is_committed: false,
            refills: 0,
        });
        LargeFile {
            id,
            directory,
            entry,
            source,
            target,
            attempts,
            part,
            chunk,
            place: OnceLock::new(),
            progress,
            opened: Instant::now(),
            wanted_bytes,
            table: None,
            is_announced: AtomicBool::new(true),
        }
    }

    /// The same, announced by its first object with this table.
    pub(super) fn announced_by_object(self, table: Vec<u8>) -> LargeFile {
        LargeFile { table: Some(table), is_announced: AtomicBool::new(false), ..self }
    }

    /// Whether the sink commits it without another word as soon as it is whole.
    pub(super) fn is_by_itself(&self) -> bool {
        self.id.is_by_itself()
    }

    /// The table that the next object has to carry; nothing if the sink was told of the file.
    pub(super) fn table_to_send(&self) -> Option<&[u8]> {
        self.table.as_deref().filter(|_| !self.is_announced())
    }

    /// The sink is told of it.
    pub(super) fn announced(&self) {
        self.is_announced.store(true, Relaxed);
    }

    pub(super) fn is_announced(&self) -> bool {
        self.is_announced.load(Relaxed)
    }

    /// What a message says of it where its first object did not arrive well.
    pub(super) fn announcement(&self) -> Option<OpenFile> {
        self.table.clone().map(|table| OpenFile { id: self.id.0, table, ..OpenFile::default() })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when it has been open.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Bytes that the sink has confirmed.
    pub(super) fn confirmed_bytes(&self) -> u64 {
        self.wanted_bytes.saturating_sub(self.progress().unconfirmed_bytes)
    }

    /// Cuts the next object; nothing if there is none, or none is wanted any more.
    pub(super) fn cut(&self, cursor: &mut FileCursor) -> Option<ObjectExtent> {
        let mut progress = self.progress();
        if progress.doom.is_some() {
            return None;
        }
        let extent = cursor.next()?;
        progress.in_flight += 1;
        Some(extent)
    }

    /// So many cursors will cut it.
    pub(super) fn expect_cursors(&self, count: usize) {
        self.progress().cursors = count;
    }

    /// A cursor is gone: it was exhausted, or the file is doomed.
    pub(super) fn cursor_ended(&self) -> Step {
        let mut progress = self.progress();
        progress.cursors -= 1;
        progress.step()
    }

    /// The sink has said where the file lies there.
    pub(super) fn placed_at_sink(&self, layout: Box<dyn Layout>) {
        // A second answer changes nothing.
        let _ = self.place.set(layout);
    }

    /// The sink's target of the byte at `offset`, if it is known.
    pub(super) fn place_at_sink(&self, offset: u64) -> Option<TargetId> {
        self.place.get().map(|layout| layout.extent_at(offset).target)
    }

    /// The sink has an object of `len` bytes.
    pub(super) fn confirmed(&self, len: u64) -> Step {
        let mut progress = self.progress();
        progress.in_flight -= 1;
        progress.unconfirmed_bytes = progress.unconfirmed_bytes.saturating_sub(len);
        progress.step()
    }

    /// An object will not arrive, and with it the file; true the first time, so that one failure is reported once.
    pub(super) fn lost_one(&self, doom: Doom) -> (bool, Step) {
        let mut progress = self.progress();
        progress.in_flight -= 1;
        let is_first = progress.doom.is_none();
        progress.doom.get_or_insert(doom);
        (is_first, progress.step())
    }

    /// The sink or the last look at the file says that it can't be completed.
    pub(super) fn doom(&self, doom: Doom) -> Step {
        let mut progress = self.progress();
        progress.doom.get_or_insert(doom);
        progress.step()
    }

    /// The sink was told to commit; what comes now is its answer.
    pub(super) fn commit(&self) {
        self.progress().is_committed = true;
    }

    /// The sink's storage does not hold these bytes as they were written: they go once more, unless that happened too often.
    pub(super) fn lacks(&self, bytes: u64) -> Result<(), Step> {
        let mut progress = self.progress();
        progress.is_committed = false;
        progress.refills += 1;
        if progress.refills >= OBJECT_ATTEMPTS_MAX {
            progress.doom.get_or_insert(Doom::Reported);
            return Err(progress.step());
        }
        progress.cursors = 1;
        progress.unconfirmed_bytes = bytes;
        Ok(())
    }

    pub(super) fn is_committed(&self) -> bool {
        self.progress().is_committed
    }
}

impl ExtentFile for LargeFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.source.descriptor()
    }

    fn spoilt(&self) {
        // The next try reads the file into slots, and sees what is wrong with it. Nothing comes next before this object
        // is answered.
        self.doom(Doom::Changed);
    }
}

impl Progress {
    fn step(&self) -> Step {
        match self.doom {
            _ if self.cursors > 0 || self.in_flight > 0 => Step::Wait,
            Some(doom) => Step::Abandon(doom),
            None if self.unconfirmed_bytes == 0 => Step::Settle,
            None => Step::Wait,
        }
    }
}
