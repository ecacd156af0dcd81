//! Neither end holds a large directory in memory, however slow the caller is. This binary has no other test,
//! as the test measures its process.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::ops::ControlFlow::Continue;
use std::path::Path;
use std::thread;
use std::time::Duration;

use carrack_engine::{
    AbortHandle, BrowseItem, PathOperationRequest, RemotePathOperation, perform_remote_operation,
};
use common::*;

const ENTRIES: usize = 20_000;

/// If either end held all names, memory would grow by more than this.
const GROWTH_KIB_MAX: u64 = 2 << 10;

fn memory_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn list(path: &Path) -> u64 {
    let (here, there) = channel();
    let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
    let (mut count, mut name_bytes) = (0, 0);
    let mut slowly = |found| {
        let BrowseItem::Entry(entry) = found else { panic!("{found:?}") };
        (count, name_bytes) = (count + 1, name_bytes + entry.name.len());
        if count % 2_000 == 0 {
            thread::sleep(Duration::from_millis(20));
        }
        Continue(())
    };
    let browsing = PathOperationRequest { operation: RemotePathOperation::List, path: path.into() };
    let summary =
        perform_remote_operation(peer(here), &browsing, &mut slowly, &AbortHandle::new().unwrap()).unwrap();
    assert_eq!((summary.done_count, summary.failed_count), (count as u64, 0));
    assert_eq!(name_bytes, count * 200);
    serving.join().unwrap().result.unwrap();
    summary.done_count
}

#[test]
fn a_large_directory_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    (0..ENTRIES).for_each(|n| drop(fs::File::create(dir.path().join(format!("{n:0200}"))).unwrap()));
    let small = tempfile::tempdir().unwrap();
    (0..600).for_each(|n| drop(fs::File::create(small.path().join(format!("{n:0200}"))).unwrap()));
    // The memory of any session is allocated before the measurement.
    assert_eq!(list(small.path()), 600);
    // Resets the peak (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory_kib("VmHWM");
    assert_eq!(list(dir.path()), ENTRIES as u64);
    let after = memory_kib("VmHWM");
    assert!(after < before + GROWTH_KIB_MAX, "{before} KiB, then {after} KiB");
}
