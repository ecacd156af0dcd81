//! No data is lost: seeded faults over real processes, a short campaign here, a long one with `bench/faults`.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CARRACK_FAULT_RUNS` | number of runs; more than the short campaign's makes the sets larger |
//! | `CARRACK_FAULT_SEED` | seed of the first run; the others count on from it |
//! | `CARRACK_FAULT_LONG` | `1`: large sets for any number of runs, to repeat a run of a long campaign |
//! | `CARRACK_FAULT_DIR` | directory for the runs' directories |
//! | `CARRACK_FAULT_REPORT` | a file for the sums, in JSON |
//! | `CARRACK_BIN` | the program under test, in the place of this build's |
//!
//! A run that fails prints its seed and leaves its directory.

pub mod attempt;
pub mod campaign;
pub mod chance;
pub mod double;
pub mod fault;
pub mod injector;
pub mod network;
pub mod plan;
pub mod processes;
pub mod promises;
pub mod set;
pub mod shim;
pub mod stage;
pub mod verdict;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common;
use crate::common::sshd::Sshd;
use campaign::{campaign, say};
use chance::Chance;
use fault::{Edit, Fault, Kind};
use plan::{Abilities, Plan, Way};
use set::Set;
use shim::Shim;
use stage::can_mount;
use verdict::{Verdict, after, between};

/// Enough runs for every kind of fault, and for some kinds twice.
const SHORT_RUNS: u64 = 25;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[test]
fn nothing_is_lost() {
    let shim = match Shim::build() {
        Ok(shim) => shim,
        Err(why) => return common::skip(&format!("no way into the network of the campaign: {why}")),
    };
    let (ssh, mount) = (Sshd::start().is_some(), can_mount());
    if !mount {
        common::skip("small file systems can't be mounted here: no run meets a full one");
    }
    let double = match double::missing() {
        None => true,
        Some(why) => {
            common::skip(&format!("no run meets storage that fails: {why}"));
            false
        }
    };
    let runs = number_from("CARRACK_FAULT_RUNS").unwrap_or(SHORT_RUNS);
    let long = runs > SHORT_RUNS || number_from("CARRACK_FAULT_LONG") == Some(1);
    let seed = number_from("CARRACK_FAULT_SEED").unwrap_or(1);
    let figures = campaign(seed, runs, Abilities { ssh, mount, double, long }, &shim);
    say(&figures.to_string());
    if let Some(path) = std::env::var_os("CARRACK_FAULT_REPORT") {
        fs::write(path, figures.json().to_string()).unwrap();
    }
    assert!(figures.failed.is_empty(), "seeds of the runs that failed: {:?}", figures.failed);
    assert!(figures.injected() * 2 > runs, "hardly any fault hit anything");
}

// Tests of the campaign.

const ALL: Abilities = Abilities { ssh: true, mount: true, double: true, long: false };

#[test]
fn a_short_campaign_has_every_way_and_every_kind_of_fault() {
    let plans: Vec<Plan> = (1..=SHORT_RUNS).map(|seed| Plan::new(seed, ALL)).collect();
    let kinds: BTreeSet<String> = plans.iter().map(|plan| first_word(plan.faults[0].0)).collect();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
    assert!(Way::ALL.iter().all(|way| plans.iter().any(|plan| plan.way == *way)));
    assert!(plans.iter().any(|plan| plan.faults.len() == 3));
}

fn first_word(fault: Fault) -> String {
    format!("{fault:?}").split('(').next().unwrap().to_owned()
}

#[test]
fn a_seed_is_a_plan() {
    assert_eq!(Plan::new(7, ALL).to_string(), Plan::new(7, ALL).to_string());
    assert_ne!(Plan::new(7, ALL).to_string(), Plan::new(7 + Kind::ALL.len() as u64, ALL).to_string());
    let without = Abilities { ssh: false, mount: false, double: false, long: false };
    let meets_none =
        |plan: Plan| !plan.way.is_ssh() && !plan.has(Fault::Full) && plan.has_ill_sink().is_none();
    assert!((0..100).all(|seed| meets_none(Plan::new(seed, without))));
}

/// Plants a set and a perfect copy.
fn copied(directory: &Path) -> Set {
    let (root, sink) = (directory.join("set"), directory.join("copy"));
    let plan = (1..).map(|seed| Plan::new(seed, ALL)).find(|plan| plan.bytes <= 2 << 20).unwrap();
    fs::create_dir(&sink).unwrap();
    let set = Set::plant(&root, &directory.join("spare"), &sink, &plan, &mut Chance::new(1)).unwrap();
    assert_eq!(between(&set, &sink).unwrap(), Verdict::default(), "nothing is copied yet");
    assert!(!after(&set, &sink, 1).unwrap().lost.is_empty(), "nothing is copied yet");
    copy(&root, &sink);
    set
}

fn copy(root: &Path, sink: &Path) {
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("-a").arg(root.join(".")).arg(sink).status().unwrap().success());
}

#[test]
fn a_perfect_copy_is_accepted_and_nothing_less() {
    let directory = tempfile::tempdir().unwrap();
    let set = copied(directory.path());
    let sink = directory.path().join("copy");
    assert_eq!(after(&set, &sink, 1).unwrap(), Verdict::default());

    let file = sink.join("d0/f0");
    let content = fs::read(&file).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, &content[..content.len() - 1]).unwrap();
    assert_eq!(between(&set, &sink).unwrap().wrong.len(), 1, "a partial file");
    fs::write(&file, &content).unwrap();
    assert_eq!(between(&set, &sink).unwrap(), Verdict::default());
    assert_eq!(after(&set, &sink, 1).unwrap().wrong.len(), 1, "another time");
    fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    fs::remove_file(sink.join("link")).unwrap();
    fs::remove_file(sink.join("only here")).unwrap();
    fs::write(sink.join("empty/.a.carrack-0123abcd"), "").unwrap();
    fs::write(sink.join(format!(".carrack-{:032x}.journal", 1)), "").unwrap();
    let verdict = after(&set, &sink, 1).unwrap();
    assert_eq!(
        (verdict.lost.len(), verdict.leftovers.len(), verdict.journals.len()),
        (2, 1, 1),
        "{verdict:?}"
    );
}

#[test]
fn versions_are_those_of_their_time() {
    for edit in [Edit::Patch, Edit::Append, Edit::Truncate, Edit::Replace, Edit::Delete] {
        let directory = tempfile::tempdir().unwrap();
        let mut set = copied(directory.path());
        let sink = directory.path().join("copy");
        assert!(set.edit(edit, 2, &mut Chance::new(3)).unwrap());
        assert_eq!(between(&set, &sink).unwrap(), Verdict::default(), "{edit:?}");
        assert_eq!(after(&set, &sink, 2).unwrap(), Verdict::default(), "{edit:?} came meanwhile");
        // A copy of a deleted file may stay.
        let is_wrong = |verdict: Verdict| verdict.wrong.iter().any(|words| words.contains("not the content"));
        assert_eq!(is_wrong(after(&set, &sink, 3).unwrap()), edit != Edit::Delete, "{edit:?} came before");
    }
}
