//! A process by name: its number, when it started and since which boot, so that a number that is used again names nobody.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// `PID.TICKS.BOOT`, as the store keeps it; nothing if there is no such process.
pub fn name_of(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; behind it the third field comes first (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(22 - 4)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    (state != "Z").then(|| format!("{pid}.{ticks}.{}", boot.trim()))
}

/// The number of the process of this name if it still runs.
fn running(name: &str) -> Option<Pid> {
    let pid: u32 = name.split('.').next()?.parse().ok()?;
    (name_of(pid)? == name).then(|| Pid::from_raw(pid.try_into().ok()?)).flatten()
}

/// Signals the process of this name; whether it was there.
pub fn signal(name: &str, signal: Signal) -> bool {
    running(name).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Whether it still runs.
pub fn is_running(name: &str) -> bool {
    running(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let own = name_of(std::process::id()).unwrap();
        assert!(is_running(&own));
        let (pid, rest) = own.split_once('.').unwrap();
        assert!(!is_running(&format!("{pid}.1{rest}")), "another start");
        assert!(!is_running("nonsense") && !is_running(""));
    }
}
