//! What ends a command before its time: signals, and the ssh that has to end with it.

use std::io;

use carrack_engine::Abort;

use crate::signals::{self, Signalled};
use crate::ssh::Leash;
use crate::trouble::Trouble;

/// Held from a command's start.
#[derive(Clone)]
pub struct Reins {
    /// Interrupts the engine.
    pub abort: Abort,
    /// On a running ssh.
    pub leash: Leash,
    signalled: Signalled,
}

impl Reins {
    /// Watches signals from now on; once in a process.
    pub fn take() -> Result<Reins, Trouble> {
        watch().map_err(|error| Trouble::new(format!("signals can't be watched: {error}")))
    }

    /// Whether a signal came, or something else ends the command.
    pub fn is_told_to_end(&self) -> bool {
        self.signalled.is_set() || self.abort.is_set()
    }
}

fn watch() -> io::Result<Reins> {
    let (abort, leash) = (Abort::new()?, Leash::default());
    let cut = {
        let leash = leash.clone();
        move || leash.kill()
    };
    let signalled = signals::watch(abort.clone(), cut)?;
    Ok(Reins { abort, leash, signalled })
}
