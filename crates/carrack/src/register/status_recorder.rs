//! Writes the state of this process's copy to the register each second and at its end; and the copy's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_model::{RepeatEffect, TransferEvent, TransferProgress};

use super::copies::NotedCopy;
use crate::exit::ExitReason;
use crate::user_error::UserError;
use crate::views::report::{FinishedTransfer, TransferEventPresenter};

/// Interval of the writes.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Keeps the state of this process's copy in the register.
pub struct CopyStatusRecorder {
    noted: Arc<Mutex<NotedCopy>>,
    /// Time of the last write, and the bytes that were done then.
    written: (Instant, u64),
    /// True if the register is the only place where the copy can be followed.
    is_needed: bool,
}

impl CopyStatusRecorder {
    /// Creates the view of a copy that begins. If it `is_needed`, a failed write is an error.
    pub fn new(noted: Arc<Mutex<NotedCopy>>, is_needed: bool) -> CopyStatusRecorder {
        CopyStatusRecorder { noted, written: (Instant::now(), 0), is_needed }
    }

    fn lock_copy(&self) -> MutexGuard<'_, NotedCopy> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> io::Result<()> {
        let written = self.lock_copy().write();
        if self.is_needed { written } else { Ok(()) }
    }

    fn record_progress(&mut self, progress: &TransferProgress) -> io::Result<()> {
        let (at, bytes) = self.written;
        if at.elapsed() < WRITE_EVERY {
            return Ok(());
        }
        let moved = progress.bytes_done.saturating_sub(bytes);
        let rate = moved as f64 / at.elapsed().as_secs_f64();
        self.written = (Instant::now(), progress.bytes_done);
        let mut noted = self.lock_copy();
        let standing = noted.progress_mut();
        standing.entries_found = progress.entries_found;
        standing.bytes_found = progress.bytes_found;
        standing.scan_done = progress.scan_done;
        standing.entries_done = progress.entries_done;
        standing.bytes_done = progress.bytes_done;
        standing.entries_failed = progress.entries_failed;
        standing.bytes_per_s = rate as u64;
        drop(noted);
        self.write()
    }
}

impl TransferEventPresenter for CopyStatusRecorder {
    fn show_event(&mut self, event: &TransferEvent, _elapsed: Duration) -> io::Result<()> {
        match event {
            TransferEvent::Placed(arrival) => {
                self.lock_copy().progress_mut().makes_destination |=
                    arrival.nesting == RepeatEffect::NextTime;
                self.write()
            }
            TransferEvent::Connected { .. } => {
                self.lock_copy().progress_mut().has_begun = true;
                // The process that started the copy waits for this state.
                if self.is_needed { self.write() } else { Ok(()) }
            }
            TransferEvent::Progress(progress) => self.record_progress(progress),
            _ => Ok(()),
        }
    }

    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
        let summary = &ending.summary;
        let mut noted = self.lock_copy();
        let standing = noted.progress_mut();
        standing.exit = Some(ending.exit.code());
        // Entries of earlier sessions are done, too.
        standing.entries_done = standing.entries_done.max(summary.entries_done() + summary.entries_kept);
        standing.bytes_done = standing.bytes_done.max(summary.bytes_done + summary.bytes_kept);
        standing.entries_found = standing.entries_found.max(standing.entries_done + summary.entries_failed);
        standing.bytes_found = standing.bytes_found.max(standing.bytes_done);
        standing.scan_done |= ending.end == ExitReason::Reached;
        standing.entries_failed = summary.entries_failed;
        standing.bytes_per_s = 0;
        standing.reason = ending.troubles.last().map(|trouble| trouble.message.clone()).unwrap_or_default();
        drop(noted);
        self.write()
    }

    fn write_error(&self, error: &io::Error) -> UserError {
        UserError::new(format!("how the copy stands can't be noted: {error}"))
    }
}

/// A log file that is created with the first write. Write errors are ignored.
pub struct CopyLogFile {
    path: PathBuf,
    file: Option<File>,
}

impl CopyLogFile {
    /// Creates a log at a path, which may hold an earlier copy's.
    pub fn new(path: PathBuf) -> CopyLogFile {
        // There may be none.
        let _ = std::fs::remove_file(&path);
        CopyLogFile { path, file: None }
    }
}

impl Write for CopyLogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            self.file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path).ok();
        }
        let _ = self.file.as_mut().map(|file| file.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
