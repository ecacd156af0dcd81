//! A copy as a process: its start, its output and its end.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use carrack_register::transfer_records::Umask;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The hidden command of [`super::become_copy`].
pub const COMMAND: &str = "queue-copy";

/// The longest line of a copy's output: a path has 4 KiB, and escapes make it longer.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// Bytes that are kept from the end of a copy's messages to people.
const SAID_BYTES: u64 = 2 << 10;

/// The user for whom a copy runs.
#[derive(Clone, Copy, Debug)]
pub struct CopyUser<'a> {
    /// The user whose rights it has; without one, the daemon's.
    pub user: Option<&'a str>,
    /// The umask for the files that it creates; without one, the daemon's.
    pub umask: Option<Umask>,
}

/// A running copy.
pub struct RunningCopy {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: File,
}

impl RunningCopy {
    /// Starts a copy. `stderr` is a file for its messages to people, which has no name afterwards. The
    /// calling thread must outlive the process: the kernel ends the process with the thread
    /// (PR_SET_PDEATHSIG, prctl(2)).
    pub fn start(words: &[String], whose: CopyUser<'_>, stderr: &Path) -> io::Result<RunningCopy> {
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
            // Ctrl-C is for the daemon, which ends its copies in order.
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(RunningCopy { child, stdout: BufReader::new(stdout), stderr: said })
    }

    /// Returns its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a descriptor that signals reach it by, even after its PID was reused.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }

    /// Passes every line of its output to `hear` until its end; then returns its exit code and the end of its
    /// messages.
    pub fn read_output(mut self, mut hear: impl FnMut(&str)) -> io::Result<(Option<i32>, String)> {
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
        Ok((code, last_messages(&mut self.stderr)))
    }
}

/// Returns the messages in one line, for the reason of a record.
fn last_messages(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    // Without them the exit code alone tells the end.
    let _ = file
        .seek(SeekFrom::Start(len.saturating_sub(SAID_BYTES)))
        .and_then(|_| file.take(SAID_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").trim_start_matches("carrack: error: ").to_owned()
}
