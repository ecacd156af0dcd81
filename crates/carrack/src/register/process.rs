//! Processes, known again by other commands: whether one that was noted still runs.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process, told from every other one: numbers are used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The host's node name.
    pub host: String,
    /// The kernel's boot id (random(4)).
    boot: String,
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the boot (proc_pid_stat(5)).
    ticks: u64,
}

impl Process {
    /// This one.
    pub fn own() -> Option<Process> {
        Process::numbered(std::process::id())
    }

    /// Whether it still runs.
    pub fn life(&self) -> Life {
        match Process::numbered(self.pid) {
            Some(now) if now == *self => Life::Running,
            _ if self.host != rustix::system::uname().nodename().to_string_lossy() => Life::Elsewhere,
            _ => Life::Ended,
        }
    }

    /// The one that has this number now.
    fn numbered(pid: u32) -> Option<Process> {
        let host = rustix::system::uname().nodename().to_str().ok()?.to_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; behind it the third field comes first, the state.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // One that is dead and not taken note of by its parent does nothing any more.
        fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
        let ticks = fields.nth(22 - 4)?.parse().ok()?;
        Some(Process { host, boot, pid, ticks })
    }
}

/// Whether a command still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Running,
    /// It does not.
    Ended,
    /// It was begun on another host that has the same home directory.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_told_apart() {
        let own = Process::own().unwrap();
        assert_eq!(own.life(), Life::Running);
        // The number is another process's by now.
        assert_eq!(Process { ticks: own.ticks + 1, ..own.clone() }.life(), Life::Ended);
        assert_eq!(Process { boot: "before".into(), ..own.clone() }.life(), Life::Ended);
        assert_eq!(Process { host: "elsewhere".into(), ..own }.life(), Life::Elsewhere);
    }
}
