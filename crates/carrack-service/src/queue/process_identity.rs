//! Names of processes: PID, start time and boot ID, so that a name never stands for another process with a
//! reused PID.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the name `PID.TICKS.BOOT`, as stored; `None` if there is no such process.
pub fn identity_of_pid(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have any characters; the first field after it is the third one
    // (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(22 - 4)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    (state != "Z").then(|| format!("{pid}.{ticks}.{}", boot.trim()))
}

/// Returns the PID of the process with this name, if it still runs.
fn find_running_pid(name: &str) -> Option<Pid> {
    let pid: u32 = name.split('.').next()?.parse().ok()?;
    (identity_of_pid(pid)? == name).then(|| Pid::from_raw(pid.try_into().ok()?)).flatten()
}

/// Signals the process of this name; returns true if it was there.
pub fn signal(name: &str, signal: Signal) -> bool {
    find_running_pid(name).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Returns true if the process of this name still runs.
pub fn is_running(name: &str) -> bool {
    find_running_pid(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let own = identity_of_pid(std::process::id()).unwrap();
        assert!(is_running(&own));
        let (pid, rest) = own.split_once('.').unwrap();
        assert!(!is_running(&format!("{pid}.1{rest}")), "another start");
        assert!(!is_running("nonsense") && !is_running(""));
    }
}
