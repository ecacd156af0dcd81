//! Power cuts: a copy goes to a double that logs every operation; what a cut after any of them would leave is restored, the
//! same command runs again, and then everything is there.
//!
//! | variable | what |
//! | --- | --- |
//! | `CARRACK_CRASH_SEED` | another seed than 1 |
//! | `CARRACK_CRASH_IMAGES` | so many images for each kind of durability instead of 200, or `all`: each cut in every weather; beyond two minutes `CARRACK_TESTBED_LIFETIME_S` is to be larger too |
//! | `CARRACK_CRASH_ONLY` | `CUT:SEED`, as printed by a failure: this one only |
//!
//! What was done in which order differs a little from run to run: threads. Of a failed cut the image, as it was before the
//! command ran again, and the log are therefore kept.

use std::env;
use std::fs;
use std::path::Path;

use crate::common::power_cuts::{Copy, Cut, Durability, cuts, first_seed, plant_old, say, try_or_keep};
use crate::common::storage_double::StorageDouble;

/// In CI, of each kind of durability; each takes 20 to 60 ms.
const IMAGES: usize = 200;
/// Chains of power cuts, each during the resumption after the one before.
const CHAINS: u64 = 8;
const CUTS_IN_A_CHAIN: u64 = 4;

/// A double that records, and a copy that goes there.
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

/// Groups are made by time: on a machine that stood still while the log was made it has one of them, and little is resumed.
const LOGS_MAX: usize = 3;

/// The copy, and then every cut in its log that is asked for.
fn try_cuts(durability: Durability) {
    let has_resumed = (0..LOGS_MAX).any(|_| try_cuts_of_one_copy(durability));
    assert!(has_resumed, "hardly anything was resumed");
}

/// Whether what was recorded before the cuts was not copied again.
fn try_cuts_of_one_copy(durability: Durability) -> bool {
    let Some((double, copy)) = scene(durability) else { return true };
    let to = double.path("to");
    double.ask(&format!("rule {}", durability.rule()));
    let all = copy.run(&to);
    copy.assert_complete(&to);
    let log = double.log();
    // The images lie where the double was mounted: only then is it the same command.
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

/// The resumption is a transfer too: power fails in it, and in the one after.
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
