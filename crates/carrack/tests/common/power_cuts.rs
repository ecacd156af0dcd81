//! A copy whose destination loses power: its files, the moment of the cut, and the entries that must be there
//! before and after the same command has run again.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::CARRACK;
use super::process::{assert_exit, json, run};
use super::storage_double::StorageDouble;
use super::tree::{Entry, assert_same_entries, census, noise, plant};

/// The number of weathers, see `testbed/storage-double/src/power_cut.rs`.
const WEATHERS: u64 = 5;

/// A copy of a tree into a directory that is not empty.
pub struct Copy {
    from: PathBuf,
    durability: Durability,
    /// The destination's entries after a complete copy.
    complete: Vec<Entry>,
    /// Paths below the destination that are replaced, with their allowed contents: the old or the new.
    replaced: BTreeMap<PathBuf, [Vec<u8>; 2]>,
}

impl Copy {
    /// Plants the source, for a destination in which `plant_old` has made `old`.
    pub fn plant(from: &Path, old: &Path, durability: Durability) -> Copy {
        plant_new(from);
        let mut complete = census(from);
        complete.extend(census(old).into_iter().filter(|entry| entry.path.ends_with("bystander")));
        complete.sort();
        let names = fs::read_dir(old.join("old")).unwrap().map(|entry| entry.unwrap().file_name());
        let paths = names.map(|name| Path::new("old").join(name)).filter(|path| !path.ends_with("bystander"));
        let both = |path: &Path| [contents(&old.join(path)), contents(&from.join(path))];
        let replaced = paths.map(|path| (path.clone(), both(&path))).collect();
        Copy { from: from.to_owned(), durability, complete, replaced }
    }

    /// Runs the command, which must succeed; returns the copied bytes.
    #[track_caller]
    pub fn run(&self, to: &Path) -> u64 {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r", "--json", "--object-size", "128KiB"]).args(self.durability.options());
        let output = run(command.arg(self.from.join("")).arg(to));
        assert_exit(&output, 0);
        json(&output).last().unwrap()["bytes_done"].as_u64().unwrap()
    }

    /// Checks that all entries are there, and no others: neither temporary names nor journals.
    #[track_caller]
    pub fn assert_complete(&self, to: &Path) {
        assert_same_entries(&self.complete, &census(to));
    }

    /// Checks that every path with old content holds that or the new. (New small files may be torn until the
    /// next run.)
    #[track_caller]
    pub fn assert_old_or_new(&self, to: &Path) {
        for (path, allowed) in &self.replaced {
            let there = contents(&to.join(path));
            assert!(allowed.contains(&there), "{} is neither old nor new", path.display());
        }
    }

    /// Checks the state after a power cut, and runs the command again; returns the copied bytes.
    #[track_caller]
    pub fn resume(&self, to: &Path) -> u64 {
        self.assert_old_or_new(to);
        let copied = self.run(to);
        self.assert_complete(to);
        copied
    }
}

/// Plants every kind of source: small files, files of many objects, empty ones, links.
fn plant_new(root: &Path) {
    plant(root);
    for number in 0..12 {
        fs::write(root.join(format!("sub/small{number}")), noise(1_000 * number + 1)).unwrap();
    }
    for (name, bytes) in [("old/large", 1_500_001), ("old/small", 5_000), ("large", 2_222_222)] {
        fs::create_dir_all(root.join("old")).unwrap();
        fs::write(root.join(name), noise(bytes)).unwrap();
    }
    for number in 0..6 {
        fs::write(root.join(format!("old/small{number}")), noise(9_000 + number)).unwrap();
    }
    symlink("new target", root.join("old/link")).unwrap();
}

/// Plants the destination's old files: other contents under some of the names, and a file that is not copied.
pub fn plant_old(root: &Path) {
    let root = root.join("to/old");
    fs::create_dir_all(&root).unwrap();
    for (name, bytes) in [("large", 1_200_000), ("small", 7_000), ("bystander", 300_000)] {
        fs::write(root.join(name), noise(bytes + 1)).unwrap();
    }
    for number in 0..6 {
        fs::write(root.join(format!("small{number}")), noise(20_000 + number)).unwrap();
    }
    symlink("old target", root.join("link")).unwrap();
}

/// The moment at which data is made durable and recorded. (`end` promises nothing for a power cut.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Each,
    /// Groups are made by time, since there is too little data; the double is slow enough for several groups.
    Group,
}

impl Durability {
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Durability::Each => &["--durability", "each"],
            Durability::Group => &["--durability", "group"],
        }
    }

    /// Returns the rule that slows the double down while the log is made.
    pub fn rule(self) -> &'static str {
        match self {
            Durability::Each => "delay=0:write:count=all",
            Durability::Group => "delay=60:write:count=all",
        }
    }
}

/// The moment of a power cut, and the fate of unsynced data.
#[derive(Clone, Copy)]
pub struct Cut {
    /// The number of operations before it.
    pub operations: usize,
    pub seed: u64,
}

/// Tries a cut; a failure leaves the image and the log, and prints their directory.
pub fn try_or_keep(double: &StorageDouble, cut: Cut, log: &[String], attempt: impl Fn(Cut) -> u64) -> u64 {
    catch_unwind(AssertUnwindSafe(|| attempt(cut))).unwrap_or_else(|panic| {
        let place = tempfile::Builder::new().prefix("carrack-crash-").tempdir().unwrap().keep();
        double.ask(&cut.image(&place.join("image")));
        fs::write(place.join("log"), log.join("\n")).unwrap();
        let last = log[..cut.operations].last().map_or("nothing", |line| line);
        eprintln!("CARRACK_CRASH_ONLY={}:{}, after: {last}", cut.operations, cut.seed);
        eprintln!("kept in {}", place.display());
        resume_unwind(panic)
    })
}

impl Cut {
    /// Returns the request to the double.
    pub fn image(self, place: &Path) -> String {
        format!("image {} {} {}", self.operations, self.seed, place.display())
    }
}

/// Returns a file's bytes, or a link's target.
fn contents(path: &Path) -> Vec<u8> {
    match fs::read_link(path) {
        Ok(target) => target.as_os_str().as_bytes().to_vec(),
        Err(_) => fs::read(path).unwrap_or_default(),
    }
}

/// Returns the seed of all chance.
pub fn first_seed() -> u64 {
    env::var("CARRACK_CRASH_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// Returns the cuts that the environment asks for: spread over the log, the weathers in turn.
pub fn cuts(operations: usize, images: usize) -> Vec<Cut> {
    let seed = first_seed();
    if let Ok(only) = env::var("CARRACK_CRASH_ONLY") {
        let (operations, seed) = only.split_once(':').unwrap();
        return vec![Cut { operations: operations.parse().unwrap(), seed: seed.parse().unwrap() }];
    }
    let spread = |count: usize| {
        let cut = move |index| Cut {
            operations: index * operations / (count - 1),
            seed: seed * 1_000 + index as u64,
        };
        (0..count).map(cut).collect()
    };
    match env::var("CARRACK_CRASH_IMAGES") {
        Ok(all) if all == "all" => {
            let weathers = |operations| (0..WEATHERS).map(move |weather| (operations, weather));
            let every = (0..=operations).flat_map(weathers);
            every.map(|(operations, weather)| Cut { operations, seed: seed * 1_000 + weather }).collect()
        }
        Ok(count) => spread(count.parse().unwrap()),
        Err(_) => spread(images),
    }
}

/// Prints past the test harness, which captures the output of passing tests.
pub fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}
