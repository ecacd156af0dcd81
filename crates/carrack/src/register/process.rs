//! Processes, identified across commands: whether a recorded process still runs.

use std::fs;

use serde::{Deserialize, Serialize};

/// The identity of a process: process IDs alone are reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The host's node name.
    pub host: String,
    /// The kernel's boot id (random(4)).
    boot: String,
    /// Its process ID.
    pub pid: u32,
    /// Start, in ticks since the boot (proc_pid_stat(5)).
    ticks: u64,
}

impl ProcessIdentity {
    /// Returns this process.
    pub fn of_this_process() -> Option<ProcessIdentity> {
        ProcessIdentity::of_pid(std::process::id())
    }

    /// Returns the state of the process.
    pub fn liveness(&self) -> RecordedProcessLiveness {
        match ProcessIdentity::of_pid(self.pid) {
            Some(now) if now == *self => RecordedProcessLiveness::Running,
            _ if self.host != rustix::system::uname().nodename().to_string_lossy() => {
                RecordedProcessLiveness::Elsewhere
            }
            _ => RecordedProcessLiveness::Ended,
        }
    }

    /// Returns the process that has this ID now.
    fn of_pid(pid: u32) -> Option<ProcessIdentity> {
        let host = rustix::system::uname().nodename().to_str().ok()?.to_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold any character; after it follows the third field, the state.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // A zombie counts as ended.
        fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
        let ticks = fields.nth(22 - 4)?.parse().ok()?;
        Some(ProcessIdentity { host, boot, pid, ticks })
    }
}

/// The state of a recorded process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedProcessLiveness {
    /// It still runs.
    Running,
    /// It has ended.
    Ended,
    /// It was begun on another host that has the same home directory.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_told_apart() {
        let own = ProcessIdentity::of_this_process().unwrap();
        assert_eq!(own.liveness(), RecordedProcessLiveness::Running);
        // Another process has the number by now.
        assert_eq!(
            ProcessIdentity { ticks: own.ticks + 1, ..own.clone() }.liveness(),
            RecordedProcessLiveness::Ended
        );
        assert_eq!(
            ProcessIdentity { boot: "before".into(), ..own.clone() }.liveness(),
            RecordedProcessLiveness::Ended
        );
        assert_eq!(
            ProcessIdentity { host: "elsewhere".into(), ..own }.liveness(),
            RecordedProcessLiveness::Elsewhere
        );
    }
}
