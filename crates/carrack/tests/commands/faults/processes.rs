//! Processes as `/proc` tells of them. Whatever ends meanwhile is as if it had not been there.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// Below a process, at any depth.
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

/// Whether it is there and not only waited for.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

pub fn runs(pid: i32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
}

/// Its name as the kernel has it.
pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Bytes that it gave to write(2) and the like.
pub fn written(pid: i32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// Whether there was a living process that got it.
pub fn signal(pid: i32, signal: Signal) -> bool {
    is_alive(pid) && Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}
