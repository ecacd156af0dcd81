//! A copy as a process: started, heard, told to end.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use carrack_register::records::Umask;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The hidden command of [`super::become_copy`].
pub const COMMAND: &str = "queue-copy";

/// The longest line that a copy may say: a path has 4 KiB, which escapes make longer.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// Of what a copy says to people, the end is kept.
const SAID_BYTES: u64 = 2 << 10;

/// Whom a copy is made for.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// Whose rights it has; without it the daemon's.
    pub user: Option<&'a str>,
    /// Taken from the modes of what it makes; without it the daemon's.
    pub umask: Option<Umask>,
}

/// A copy that runs.
pub struct Copy {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: File,
}

impl Copy {
    /// Starts one. `stderr` is a file for what it says to people, which has no name afterwards. The thread that calls this
    /// has to outlive the process: the kernel ends the one with the other (PR_SET_PDEATHSIG, prctl(2)).
    pub fn start(words: &[String], whose: Whose<'_>, stderr: &Path) -> io::Result<Copy> {
        let said =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(stderr)?;
        std::fs::remove_file(stderr)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("carrack").arg(COMMAND).arg("--parent").arg(std::process::id().to_string());
        if let Some(user) = whose.user {
            command.arg("--user").arg(user);
        }
        if let Some(umask) = whose.umask {
            command.arg("--umask").arg(umask.to_string());
        }
        let mut child = command
            .arg("--")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said.try_clone()?)
            // Ctrl-C is for the daemon, which knows what to do about its copies.
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Copy { child, stdout: BufReader::new(stdout), stderr: said })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it can be signalled by as long as somebody has it.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }

    /// Hears every line until it says no more; then its exit code, and the end of what it said to people.
    pub fn hear(mut self, mut hear: impl FnMut(&str)) -> io::Result<(Option<i32>, String)> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = (&mut self.stdout).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if count == 0 {
                break;
            }
            hear(&String::from_utf8_lossy(&line));
        }
        let code = self.child.wait()?.code();
        Ok((code, last_words(&mut self.stderr)))
    }
}

/// In one line, as a record's reason has it.
fn last_words(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    // Without it the end is told by the exit code alone.
    let _ = file
        .seek(SeekFrom::Start(len.saturating_sub(SAID_BYTES)))
        .and_then(|_| file.take(SAID_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").trim_start_matches("carrack: error: ").to_owned()
}
