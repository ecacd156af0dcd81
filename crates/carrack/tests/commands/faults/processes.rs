//! Processes from `/proc`. A process that ends meanwhile counts as absent.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// Returns the processes below a process, at any depth.
pub fn descendants(pid: i32) -> Vec<i32> {
    let children: Vec<i32> = threads(pid).iter().flat_map(|thread| children(thread)).collect();
    let below: Vec<i32> = children.iter().flat_map(|&child| descendants(child)).collect();
    [children, below].concat()
}

fn threads(pid: i32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| task.path()).collect()
}

fn children(thread: &Path) -> Vec<i32> {
    let text = fs::read_to_string(thread.join("children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns true if it exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

pub fn runs(pid: i32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
}

/// Returns its name in the kernel.
pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Returns the bytes that it passed to write(2) and similar calls.
pub fn written(pid: i32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// Sends a signal; returns true if a living process got it.
pub fn signal(pid: i32, signal: Signal) -> bool {
    is_alive(pid) && Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}
