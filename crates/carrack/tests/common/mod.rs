//! The common part of the command's test programs: trees and their census, processes with a time limit, a
//! private sshd, file systems to copy to.

#![allow(dead_code)] // Each test program uses its part.
#![allow(clippy::unwrap_used)] // Also in helpers.

pub mod file_system;
pub mod power_cuts;
pub mod process;
pub mod sshd;
pub mod storage_double;
pub mod tree;

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The command under test.
pub const CARRACK: &str = env!("CARGO_BIN_EXE_carrack");

/// The ssh stand-in of tests without a login: it runs the command on this host.
pub const DIRECT_SHELL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/direct-shell");

/// Prints why a test does nothing, past the test harness, which captures the output of passing tests.
pub fn say_skipped(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {}", reason.trim_end());
}

/// Prints the same; a failure where all installable programs must be there (`CI=true`).
#[track_caller]
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
    say_skipped(reason);
}

/// Returns a free port below the kernel's range for outgoing connections. Each call returns another.
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ports = PORTS.end - PORTS.start;
    let begin = (std::process::id().wrapping_mul(101) % u32::from(ports)) as u16;
    let next = || PORTS.start + (begin + NEXT.fetch_add(1, Relaxed) % ports) % ports;
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    std::iter::repeat_with(next).take(ports.into()).find(is_free).expect("a free port")
}

/// Two directories that stand for two hosts, which are removed on drop.
pub struct Places {
    root: tempfile::TempDir,
}

impl Drop for Places {
    fn drop(&mut self) {
        // A directory without write permission can't be emptied.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.root.path()).status();
    }
}

impl Places {
    pub fn new() -> Places {
        let root = tempfile::tempdir().unwrap();
        for name in ["near", "far"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Places { root }
    }

    pub fn near(&self, path: &str) -> PathBuf {
        self.root.path().join("near").join(path)
    }

    pub fn far(&self, path: &str) -> PathBuf {
        self.root.path().join("far").join(path)
    }

    /// Writes a program to the parent of the two.
    pub fn script(&self, name: &str, script: &str) -> String {
        let path = self.root.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

/// A directory of an unprivileged user, to test denied permissions.
pub struct Unprivileged {
    root: tempfile::TempDir,
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(self.root.path()).status();
    }
}

impl Unprivileged {
    /// The user that root becomes.
    const ID: u32 = 4_242;

    pub fn new() -> Unprivileged {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Unprivileged { root }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Makes a directory, with those above it.
    pub fn directory(&self, path: &str) -> PathBuf {
        fs::create_dir_all(self.path(path)).unwrap();
        self.path(path)
    }

    pub fn set_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn mode_of(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Gives everything there to the user.
    pub fn give(&self) {
        if is_root() {
            let owner = format!("{0}:{0}", Self::ID);
            let given = Command::new("chown").args(["-R", &owner]).arg(self.root.path()).status();
            assert!(given.unwrap().success());
        }
    }

    /// Returns the command as that user.
    pub fn command(&self) -> Command {
        let mut command = Command::new(CARRACK);
        command.env("HOME", self.root.path()).env("XDG_STATE_HOME", self.root.path().join("state"));
        command.current_dir(self.root.path());
        if is_root() {
            command.uid(Self::ID).gid(Self::ID);
        }
        command
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
