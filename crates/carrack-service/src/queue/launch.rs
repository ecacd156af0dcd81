//! `carrack queue-copy`: becomes a copy for a user.
//!
//! The queue's process starts it. It becomes the user who submitted the transfer, asks the kernel to end it
//! with the queue, and then replaces itself by `carrack cp`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use carrack_register::transfer_records::Umask;
use rustix::fs::Mode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, umask};

use crate::child::account::SystemAccount;

/// A state directory that can't exist: the queue alone keeps its copies in a register.
const NO_STATE: &str = "/dev/null";

/// The order for a copy.
#[derive(Debug)]
pub struct LaunchRequest<'a> {
    /// The user to become; without one, the process stays the daemon's user.
    pub user: Option<&'a str>,
    /// The umask for the files that it creates; without one, that of this process.
    pub umask: Option<Umask>,
    /// PID of the queue's process.
    pub parent: u32,
    /// The arguments of `carrack`.
    pub words: &'a [OsString],
}

/// The daemon's variables that its copies keep: the CA, the token and the ssh command.
const KEPT: [&str; 3] = ["CARRACK_CA", "CARRACK_TOKEN", "CARRACK_SSH"];

/// Becomes the copy; returns the error only if that failed.
pub fn become_copy(errand: &LaunchRequest<'_>) -> io::Error {
    match prepared(errand) {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    }
}

fn prepared(errand: &LaunchRequest<'_>) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("carrack").args(errand.words).env("XDG_STATE_HOME", NO_STATE);
    // The submitted options count, and not those of the daemon's environment, except the ways to reach other
    // hosts.
    for (name, _) in std::env::vars_os() {
        let is_option = name.as_bytes().starts_with(b"CARRACK_");
        if is_option && !KEPT.iter().any(|kept| name == *kept) {
            command.env_remove(name);
        }
    }
    if let Some(user) = errand.user {
        let account = SystemAccount::look_up(user)?;
        account.apply_to_process()?;
        let home = account.home();
        let directory = if home.is_dir() { home } else { Path::new("/") };
        // Root's environment is not passed to the user.
        let path = "/usr/local/bin:/usr/bin:/bin";
        command.env_clear().env("XDG_STATE_HOME", NO_STATE).env("PATH", path).current_dir(directory);
        command.env("HOME", home).env("USER", user).env("LOGNAME", user);
    }
    if let Some(bits) = errand.umask {
        umask(Mode::from_raw_mode(bits.bits()));
    }
    // After the change of the user, as the kernel clears this setting with it (prctl(2)).
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != errand.parent) {
        return Err(io::Error::other("the queue has ended"));
    }
    Ok(command)
}
