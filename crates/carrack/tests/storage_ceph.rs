//! The whole way to and from CephFS (`testbed/ceph`).
//!
//! Each test has a cluster of its own and is skipped, with its reason, where that can't be had.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod common;

use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use common::file_system::FileSystem;
use common::tree::plant_rich;

fn ceph() -> Option<FileSystem> {
    FileSystem::start("ceph", &[])
}

/// Ceph counts seconds with 32 bits from 1970 on: before there is nothing, after 2106 neither.
fn plant_since_1970(tree: &Path) {
    plant_rich(tree);
    let first = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_nanos(1));
    File::open(tree.join("sub/deep/none")).unwrap().set_times(first).unwrap();
}

#[test]
fn a_rich_tree_there_and_back() {
    let Some(ceph) = ceph() else { return };
    ceph.takes_and_gives_back(plant_since_1970);
}

// Layouts: `carrack layout --json` names for each object the OSD that `ceph osd map cdata INODE.NUMBER` names;
// `--stripe=COUNT:SIZE` is set and read back from `ceph.file.layout`; `--stripe=preserve` keeps the source's.
