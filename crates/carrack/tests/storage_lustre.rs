//! The whole way to and from a striped file system: the double of Lustre (`testbed/lustre`), with a few targets.
//!
//! Each test has one of its own and is skipped, with its reason, where nobody can mount.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod common;

use std::fs;

use common::file_system::{FileSystem, plant_large};
use common::tree::{assert_same, plant, plant_rich};

fn lustre(options: &[&str]) -> Option<FileSystem> {
    FileSystem::start("lustre", options)
}

/// Bytes that were written to each target.
fn written(lustre: &FileSystem) -> Vec<u64> {
    let traffic = fs::read_to_string(lustre.path(".control/traffic")).unwrap();
    traffic.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_rich_tree_there_and_back() {
    let Some(lustre) = lustre(&["--stripe", "3:65536"]) else { return };
    lustre.takes_and_gives_back(plant_rich);
}

#[test]
fn a_tree_there_and_back_past_the_page_cache() {
    let Some(lustre) = lustre(&["--direct", "--stripe", "2:1048576"]) else { return };
    lustre.takes_and_gives_back(plant);
}

#[test]
fn one_slow_target_delays_and_harms_nothing() {
    let Some(lustre) = lustre(&["--stripe", "-1:1048576", "--delay-ms", "2:20"]) else { return };
    lustre.takes_and_gives_back(plant);
    assert!(written(&lustre).iter().all(|&bytes| bytes > 0));
}

#[test]
fn from_one_striped_file_system_to_another() {
    let (Some(from), Some(to)) = (lustre(&["--stripe", "4:65536"]), lustre(&[])) else { return };
    plant_large(&from.path("tree"), 0);
    from.copy(&[&from.path("tree"), &to.path("tree")]);
    assert_same(&from.path("tree"), &to.path("tree"));
}

// Layouts: what `carrack layout --json` says is what `lustre.lov` says; `--stripe=COUNT:SIZE` is set and read back;
// `--stripe=preserve` keeps counts, sizes and pools of the source.
