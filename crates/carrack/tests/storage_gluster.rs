//! The whole way to and from GlusterFS (`testbed/gluster`), for each kind of volume.
//!
//! Each test has a volume of its own and is skipped, with its reason, where that can't be had.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod common;

use std::path::Path;
use std::process::Command;

use common::file_system::FileSystem;
use common::process::{assert_exit, run};
use common::tree::plant_rich;

fn gluster(kind: &str) -> Option<FileSystem> {
    FileSystem::start("gluster", &["--kind", kind])
}

#[test]
fn a_rich_tree_to_bricks_and_back() {
    let Some(gluster) = gluster("distribute") else { return };
    gluster.takes_and_gives_back(plant_rich);
}

#[test]
fn a_rich_tree_to_pairs_of_bricks_and_back() {
    let Some(gluster) = gluster("replicate") else { return };
    gluster.takes_and_gives_back(plant_rich);
}

#[test]
fn a_rich_tree_to_shards_and_back() {
    let Some(gluster) = gluster("shard") else { return };
    gluster.takes_and_gives_back_as(plant_rich, assert_same_but_times);
}

/// GlusterFS 10 forgets times that are set where files are cut into shards, with `touch` as well.
#[track_caller]
fn assert_same_but_times(expected: &Path, copy: &Path) {
    assert_exit(&run(Command::new("diff").args(["-r", "--no-dereference"]).args([expected, copy])), 0);
}

// Layouts: `carrack layout --json` names the brick that `getfattr -n trusted.glusterfs.pathinfo` names.
