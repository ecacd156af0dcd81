//! Cancellation of a command: by signals, `--timeout` or `--stop-at`, together with its ssh processes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_engine::AbortHandle;

use crate::remote::ssh::ChildGuard;
use crate::signals::{self, SignalFlag};
use crate::user_error::UserError;

/// Longest interval between two reads of the clock.
const CLOCK_IS_ASKED: Duration = Duration::from_secs(10);

/// The cancellation of a command; it exists from the command's start.
#[derive(Clone)]
pub struct StopControl {
    /// Interrupts the engine.
    pub abort: AbortHandle,
    child_guards: Arc<Mutex<Vec<ChildGuard>>>,
    signalled: SignalFlag,
    is_late: Arc<AtomicBool>,
}

impl StopControl {
    /// Watches signals from now on; once in a process.
    pub fn watch_signals() -> Result<StopControl, UserError> {
        start_signal_watch().map_err(|error| UserError::new(format!("signals can't be watched: {error}")))
    }

    /// Returns a handle for an ssh process that is about to be started.
    pub fn child_guard(&self) -> ChildGuard {
        let child_guard = ChildGuard::default();
        let mut child_guards = self.child_guards.lock().unwrap_or_else(PoisonError::into_inner);
        // These belong to earlier sessions of this command.
        child_guards.retain(|child_guard| !child_guard.has_ended());
        child_guards.push(child_guard.clone());
        drop(child_guards);
        child_guard
    }

    /// Ends the command after this time, as a signal would.
    pub fn end_after(&self, longest: Duration) -> Result<(), UserError> {
        let began = Instant::now();
        self.end_when("--timeout", move || longest.saturating_sub(began.elapsed()))
    }

    /// Ends the command at a moment, in seconds since 1970: by the wall clock, which may be set, and which
    /// runs while the machine sleeps.
    pub fn end_at(&self, moment_s: i64) -> Result<(), UserError> {
        let moment = UNIX_EPOCH + Duration::from_secs(u64::try_from(moment_s).unwrap_or(0));
        self.end_when("--stop-at", move || moment.duration_since(SystemTime::now()).unwrap_or_default())
    }

    fn end_when(&self, option: &str, left: impl Fn() -> Duration + Send + 'static) -> Result<(), UserError> {
        let (abort, is_late) = (self.abort.clone(), Arc::clone(&self.is_late));
        let started = thread::Builder::new().name("timeout".into()).spawn(move || {
            while !left().is_zero() {
                // The command may end before.
                if abort.wait(left().min(CLOCK_IS_ASKED)) {
                    return;
                }
            }
            is_late.store(true, SeqCst);
            abort.interrupt();
        });
        started.map(drop).map_err(|error| UserError::new(format!("{option} can't be watched: {error}")))
    }

    /// Returns true if the time was over before a signal came.
    pub fn has_timed_out(&self) -> bool {
        self.is_late.load(SeqCst) && !self.signalled.is_set()
    }

    /// Returns true if a signal came, or the command ends for another reason.
    pub fn is_stop_requested(&self) -> bool {
        self.signalled.is_set() || self.abort.is_set()
    }
}

fn start_signal_watch() -> io::Result<StopControl> {
    let (abort, child_guards) = (AbortHandle::new()?, Arc::<Mutex<Vec<ChildGuard>>>::default());
    let cut = {
        let child_guards = Arc::clone(&child_guards);
        move || child_guards.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(ChildGuard::kill)
    };
    let signalled = signals::watch_signals(abort.clone(), cut)?;
    Ok(StopControl { abort, child_guards, signalled, is_late: Arc::default() })
}
