//! What ends a command before its time: signals, and whatever ssh has to end with it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

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
}

impl Reins {
    /// Watches signals from now on; once in a process.
    pub fn take() -> Result<Reins, Trouble> {
        watch().map_err(|error| Trouble::new(format!("signals can't be watched: {error}")))
    }

    /// For an ssh that is about to be started.
    pub fn leash(&self) -> Leash {
        let leash = Leash::default();
        self.leashes.lock().unwrap_or_else(PoisonError::into_inner).push(leash.clone());
        leash
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
    Ok(Reins { abort, leashes, signalled })
}
