//! Power cuts: a copy goes to a double that logs every operation; the state that a cut after any operation
//! would leave is restored, the same command runs again, and then all files are complete.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CARRACK_CRASH_SEED` | another seed than 1 |
//! | `CARRACK_CRASH_IMAGES` | images for each kind of durability instead of 200, or `all` |
//! | `CARRACK_CRASH_ONLY` | `CUT:SEED`, as printed by a failure: only this cut |
//!
//! `all` tries each cut in every weather; beyond two minutes `CARRACK_TESTBED_LIFETIME_S` must be larger too.
//!
//! Threads make the order of the operations differ a little from run to run. So a failed cut keeps its image,
//! as it was before the command ran again, and its log.

use std::env;
use std::fs;
use std::path::Path;

use crate::common::power_cuts::{Copy, Cut, Durability, cuts, first_seed, plant_old, say, try_or_keep};
use crate::common::storage_double::StorageDouble;

/// Images in CI, for each kind of durability; each takes 20 to 60 ms.
const IMAGES: usize = 200;
/// Chains of power cuts, each during the resumption after the previous cut.
const CHAINS: u64 = 8;
const CUTS_IN_A_CHAIN: u64 = 4;

/// Returns a double that records, and a copy to it.
fn scene(durability: Durability) -> Option<(StorageDouble, Copy)> {
    let double = StorageDouble::start(&["--record"], plant_old)?;
    let copy = Copy::plant(&double.local("from"), &double.local("first/to"), durability);
    Some((double, copy))
}

fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// Tries for a log with several groups. Groups are made by time: if the machine stands still while the log is
/// made, it has a single group, and little is resumed.
const LOGS_MAX: usize = 3;

/// Copies, and then tries every cut in the log that is asked for.
fn try_cuts(durability: Durability) {
    let has_resumed = (0..LOGS_MAX).any(|_| try_cuts_of_one_copy(durability));
    assert!(has_resumed, "hardly anything was resumed");
}

/// Returns true if objects recorded before the cuts were not copied again.
fn try_cuts_of_one_copy(durability: Durability) -> bool {
    let Some((double, copy)) = scene(durability) else { return true };
    let to = double.path("to");
    double.ask(&format!("rule {}", durability.rule()));
    let all = copy.run(&to);
    copy.assert_complete(&to);
    let log = double.log();
    // The images are at the path where the double was mounted: only then is it the same command.
    double.ask("unmount");

    let cuts = cuts(log.len(), IMAGES);
    let attempt = |cut| {
        empty(&double.path(""));
        double.ask(&Cut::image(cut, &double.path("")));
        copy.resume(&to)
    };
    let copied_again: u64 = cuts.iter().map(|&cut| try_or_keep(&double, cut, &log, attempt)).sum();
    let (count, operations, seed) = (cuts.len(), log.len(), first_seed());
    let average = copied_again / count as u64;
    say(&format!(
        "{count} power cuts in a copy of {operations} operations and {all} bytes, {durability:?}, seed {seed}; \
         copied again: {average} bytes on average"
    ));
    env::var_os("CARRACK_CRASH_ONLY").is_some() || average < all * 4 / 5
}

#[test]
fn a_power_cut_after_any_operation_loses_nothing() {
    try_cuts(Durability::Each);
}

#[test]
fn nor_does_one_between_groups() {
    try_cuts(Durability::Group);
}

/// The resumption is a transfer too: power fails in it, and in the next one.
#[test]
fn power_cuts_in_a_row_lose_nothing() {
    for chain in 0..CHAINS {
        let Some((double, copy)) = scene(Durability::Each) else { return };
        let to = double.path("to");
        for cut in 0..CUTS_IN_A_CHAIN {
            copy.run(&to);
            let operations = double.log().len();
            let seed = first_seed() * 1_000 + chain * CUTS_IN_A_CHAIN + cut;
            let after = operations * (1 + (seed as usize * 7) % 9) / 10;
            let weather = double.ask(&format!("cut {after} {seed}"));
            copy.assert_old_or_new(&to);
            say(&format!("chain {chain}: cut {after} of {operations}, seed {seed}, {}", weather.trim()));
        }
        copy.run(&to);
        copy.assert_complete(&to);
    }
}
