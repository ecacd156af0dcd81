//! What ends a command before its time: signals, `--timeout`, and whatever ssh has to end with it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use carrack_engine::Abort;

use crate::signals::{self, Signalled};
use crate::ssh::Leash;
use crate::trouble::Trouble;

/// Held from a command's start.
#[derive(Clone)]
pub struct Reins {
    /// Interrupts the engine.
    pub abort: Abort,
    leashes: Arc<Mutex<Vec<Leash>>>,
    signalled: Signalled,
    is_late: Arc<AtomicBool>,
}

impl Reins {
    /// Watches signals from now on; once in a process.
    pub fn take() -> Result<Reins, Trouble> {
        watch().map_err(|error| Trouble::new(format!("signals can't be watched: {error}")))
    }

    /// For an ssh that is about to be started.
    pub fn leash(&self) -> Leash {
        let leash = Leash::default();
        let mut leashes = self.leashes.lock().unwrap_or_else(PoisonError::into_inner);
        // Of earlier sessions of this command.
        leashes.retain(|leash| !leash.has_ended());
        leashes.push(leash.clone());
        drop(leashes);
        leash
    }

    /// Ends the command after so long, as a signal would.
    pub fn end_after(&self, longest: Duration) -> Result<(), Trouble> {
        let (abort, is_late) = (self.abort.clone(), Arc::clone(&self.is_late));
        let wait = move || {
            // Somebody else may end it before.
            if !abort.wait(longest) {
                is_late.store(true, SeqCst);
                abort.interrupt();
            }
        };
        let started = thread::Builder::new().name("timeout".into()).spawn(wait);
        started.map(drop).map_err(|error| Trouble::new(format!("--timeout can't be watched: {error}")))
    }

    /// Whether its time was over before anything else ended it.
    pub fn is_late(&self) -> bool {
        self.is_late.load(SeqCst) && !self.signalled.is_set()
    }

    /// Whether a signal came, or something else ends the command.
    pub fn is_told_to_end(&self) -> bool {
        self.signalled.is_set() || self.abort.is_set()
    }
}

fn watch() -> io::Result<Reins> {
    let (abort, leashes) = (Abort::new()?, Arc::<Mutex<Vec<Leash>>>::default());
    let cut = {
        let leashes = Arc::clone(&leashes);
        move || leashes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Leash::kill)
    };
    let signalled = signals::watch(abort.clone(), cut)?;
    Ok(Reins { abort, leashes, signalled, is_late: Arc::default() })
}
