//! Output of a running command at other times than those of its events: on SIGUSR1 and SIGUSR2, regularly in
//! a batch job, and while an interrupted command does not end.
//!
//! Owns one thread, which runs until the process ends. It is not the thread that ends the process at a second
//! signal: output may block.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::AbortHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::signals::{OutputRequest, OutputSignals};
use crate::views::report::TransferOutput;

/// The time that an interrupted command may take before it says what it waits for, and the time to the second
/// message, which doubles from then on.
const SAID_AFTER: Duration = Duration::from_secs(1);
const SAID_AGAIN: Duration = Duration::from_secs(10);

/// Shows the status of a command.
pub trait StatusOutput: Send + 'static {
    /// Shows the status; `is_requested` is false for a regular one.
    fn show_status(&self, is_requested: bool);

    /// Shows more messages from now on, or fewer again.
    fn toggle_verbosity(&self) {}

    /// Shows a warning.
    fn warn(&self, text: String) {
        crate::user_error::warn(&text);
    }
}

impl StatusOutput for TransferOutput {
    fn show_status(&self, is_requested: bool) {
        TransferOutput::show_status(self, is_requested);
    }

    fn toggle_verbosity(&self) {
        TransferOutput::toggle_verbosity(self);
    }

    fn warn(&self, text: String) {
        TransferOutput::warn(self, text);
    }
}

/// Starts the thread. With `every` the status is shown at this interval.
pub fn start(
    signals: OutputSignals,
    abort: AbortHandle,
    every: Option<Duration>,
    output: impl StatusOutput,
) -> io::Result<()> {
    let watch = OutputWatch {
        signals,
        abort,
        every,
        status_due: every.map(|every| Instant::now() + every),
        warning_due: None,
        warning_wait: SAID_AGAIN,
    };
    thread::Builder::new().name("status".into()).spawn(move || watch.run(&output)).map(drop)
}

struct OutputWatch {
    signals: OutputSignals,
    abort: AbortHandle,
    every: Option<Duration>,
    status_due: Option<Instant>,
    /// The time of the next message about the end, once the command is interrupted.
    warning_due: Option<Instant>,
    warning_wait: Duration,
}

impl OutputWatch {
    fn run(mut self, output: &impl StatusOutput) {
        loop {
            self.wait();
            for request in self.signals.take_requests() {
                match request {
                    OutputRequest::Status => output.show_status(true),
                    OutputRequest::ToggleVerbosity => output.toggle_verbosity(),
                }
            }
            let now = Instant::now();
            if let (Some(every), Some(due)) = (self.every, self.status_due)
                && now >= due
            {
                self.status_due = Some(now + every);
                output.show_status(false);
            }
            self.check_interruption(now, output);
        }
    }

    /// Says what an interrupted command waits for.
    fn check_interruption(&mut self, now: Instant, output: &impl StatusOutput) {
        if !self.abort.is_set() {
            return;
        }
        match self.warning_due {
            None => self.warning_due = Some(now + SAID_AFTER),
            Some(due) if now >= due => {
                self.warning_due = Some(now + self.warning_wait);
                self.warning_wait *= 2;
                let awaited = self.abort.outstanding_requests();
                let awaited = awaited.as_deref().unwrap_or("the other end, or its own threads");
                let text = format!("interrupted, waits for {awaited}; another signal ends it at once");
                output.warn(text);
            }
            Some(_) => {}
        }
    }

    /// Waits for a signal, the interruption, or the time of the next output.
    fn wait(&self) {
        let due = [self.status_due, self.warning_due].into_iter().flatten().min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut fds: Vec<PollFd<'_>> =
            self.signals.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if self.warning_due.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.abort.readiness(), PollFlags::IN));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // EINTR, or a shortage of memory, which passes.
            thread::sleep(Duration::from_millis(10));
        }
    }
}
