//! `carrack queue-copy`: becomes a copy of somebody's.
//!
//! The queue's process starts it, and it replaces itself by `carrack cp`, after it has become the user who submitted the
//! transfer and has asked the kernel to end it with the queue.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use carrack_register::records::Umask;
use rustix::fs::Mode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, umask};

use crate::child::account::Account;

/// Nobody can make a directory beneath it: a copy of the queue's is remembered by the queue and nowhere else.
const NO_STATE: &str = "/dev/null";

/// Who and what.
#[derive(Debug)]
pub struct Errand<'a> {
    /// Whom to become; without it the process stays who it is.
    pub user: Option<&'a str>,
    /// What is taken from the modes of what it makes; without it what this process has.
    pub umask: Option<Umask>,
    /// The process that has started this one.
    pub parent: u32,
    /// The arguments of `carrack`.
    pub words: &'a [OsString],
}

/// Variables of a daemon that its own copies have: whom they believe, who they are, and how they log in elsewhere.
const KEPT: [&str; 3] = ["CARRACK_CA", "CARRACK_TOKEN", "CARRACK_SSH"];

/// Returns only if it could not be done; why.
pub fn become_copy(errand: &Errand<'_>) -> io::Error {
    match prepared(errand) {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    }
}

fn prepared(errand: &Errand<'_>) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("carrack").args(errand.words).env("XDG_STATE_HOME", NO_STATE);
    // What was submitted holds, whatever options the daemon's environment has: but for how other hosts are reached.
    for (name, _) in std::env::vars_os() {
        let is_option = name.as_bytes().starts_with(b"CARRACK_");
        if is_option && !KEPT.iter().any(|kept| name == *kept) {
            command.env_remove(name);
        }
    }
    if let Some(user) = errand.user {
        let account = Account::look_up(user)?;
        account.become_it()?;
        let home = account.home();
        let directory = if home.is_dir() { home } else { Path::new("/") };
        // What is root's environment is none of the user's.
        let path = "/usr/local/bin:/usr/bin:/bin";
        command.env_clear().env("XDG_STATE_HOME", NO_STATE).env("PATH", path).current_dir(directory);
        command.env("HOME", home).env("USER", user).env("LOGNAME", user);
    }
    if let Some(bits) = errand.umask {
        umask(Mode::from_raw_mode(bits.bits()));
    }
    // Becoming somebody else has the kernel forget it (prctl(2)), so it comes after.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != errand.parent) {
        return Err(io::Error::other("the queue has ended"));
    }
    Ok(command)
}
