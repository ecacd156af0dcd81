//! `carrack sync` against rsync: small random trees and options, after which both destinations have to be the same.
//!
//! Each case follows from its number. `CARRACK_CASES` says how many there are, `CARRACK_CASE` names one to look at.
//! docs/from-rsync.md says where the two differ, and why; such cases are not made here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::common::process::run;
use crate::common::{CARRACK, skip};

const CASES: u64 = 1_000;

/// SplitMix64: a case has to be the same everywhere.
struct Chance {
    state: u64,
    /// Times differ by seconds or not at all.
    coarse: bool,
    /// Links are followed: some lead to directories.
    follows: bool,
    /// Some directories stand where other entries are to be, and the contrary.
    conflicts: bool,
}

impl Chance {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Directory,
    File(String),
    Link(String),
}

/// An entry as it is planted, and as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    what: What,
    mode: u32,
    mtime: (i64, i64),
}

/// By path; directories come before what is in them.
type Tree = BTreeMap<String, Item>;

fn item(chance: &mut Chance, what: What) -> Item {
    let mode = match what {
        What::Directory => chance.of(&[0o755, 0o700, 0o775]),
        What::File(_) => chance.of(&[0o644, 0o600, 0o755]),
        What::Link(_) => 0o777,
    };
    // Of few, so that equal ones meet.
    let (seconds, nanoseconds) = (chance.below(3), chance.below(3));
    let nanoseconds = [0, 1, 999_999_999][if chance.coarse { seconds } else { nanoseconds }];
    let mtime = (1_600_000_000 + 10 * seconds as i64, nanoseconds);
    Item { what, mode, mtime }
}

fn content(chance: &mut Chance) -> String {
    let bytes = chance.of(&[0, 1, 9, 10, 11, 300]);
    chance.of(&["x", "y"]).repeat(bytes)
}

fn leaf(chance: &mut Chance) -> Item {
    let what = match chance.below(4) {
        0 if chance.follows => What::Link(chance.of(&["f0", "d0", "d1", "../f1", "../x"]).to_owned()),
        0 => What::Link(chance.of(&["f0", "gone", "../x"]).to_owned()),
        _ => What::File(content(chance)),
    };
    item(chance, what)
}

/// Directories and other entries have different names.
fn grow(chance: &mut Chance, tree: &mut Tree, above: &str, depth: usize) {
    for name in ["f0", "f1", "f2.o", "keep.o", "g.c"] {
        if chance.one_in(2) {
            let leaf = leaf(chance);
            tree.insert(format!("{above}{name}"), leaf);
        }
    }
    for name in ["d0", "d1"] {
        if depth > 0 && chance.one_in(2) {
            let directory = item(chance, What::Directory);
            tree.insert(format!("{above}{name}"), directory);
            grow(chance, tree, &format!("{above}{name}/"), depth - 1);
        }
    }
}

fn source(chance: &mut Chance) -> Tree {
    let mut tree = Tree::new();
    let root = item(chance, What::Directory);
    tree.insert(String::new(), root);
    grow(chance, &mut tree, "", 2);
    tree
}

/// Another kind of entry than the source has of that name.
fn conflict(chance: &mut Chance, tree: &mut Tree, path: &str, item: &Item) {
    if item.what == What::Directory {
        let leaf = leaf(chance);
        tree.insert(path.to_owned(), leaf);
        return;
    }
    let mut plant = |path: String, what: What| {
        let item = self::item(chance, what);
        tree.insert(path, item);
        chance.one_in(3)
    };
    if plant(path.to_owned(), What::Directory) {
        return;
    }
    if plant(format!("{path}/inner"), What::Directory) {
        plant(format!("{path}/inner/x"), What::File("x".to_owned()));
    }
    // Patterns may leave it out.
    if plant(format!("{path}/y"), What::File(String::new())) {
        plant(format!("{path}/y.o"), What::File(String::new()));
    }
}

/// What stands at the destination before: the source with some things changed, missing, and added.
fn before(chance: &mut Chance, source: &Tree) -> Tree {
    let mut tree = Tree::new();
    let root = item(chance, What::Directory);
    tree.insert(String::new(), root);
    grow(chance, &mut tree, "", 1);
    let is_directory = |item: &Item| item.what == What::Directory;
    for (path, item) in source {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !tree.get(parent).is_some_and(is_directory) || path.is_empty() || chance.one_in(5) {
            continue;
        }
        if chance.conflicts && !tree.contains_key(path) && chance.one_in(5) {
            conflict(chance, &mut tree, path, item);
            continue;
        }
        let mut item = item.clone();
        if chance.one_in(3) {
            item.mtime = self::item(chance, What::Directory).mtime;
        }
        match &mut item.what {
            What::File(text) if chance.one_in(3) => *text = text.replace('x', "z"),
            What::Link(text) if chance.one_in(3) => text.push('0'),
            What::File(_) | What::Directory if chance.one_in(3) => item.mode ^= 0o040,
            _ => {}
        }
        tree.insert(path.clone(), item);
    }
    tree
}

fn touch(path: &Path, (seconds, nanoseconds): (i64, i64)) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn plant(root: &Path, tree: &Tree) {
    for (path, item) in tree {
        let path = root.join(path);
        match &item.what {
            What::Directory => fs::create_dir(&path).unwrap(),
            What::File(text) => fs::write(&path, text).unwrap(),
            What::Link(text) => symlink(text, &path).unwrap(),
        }
    }
    for (path, item) in tree.iter().rev() {
        let path = root.join(path);
        if !matches!(item.what, What::Link(_)) {
            fs::set_permissions(&path, fs::Permissions::from_mode(item.mode)).unwrap();
        }
        touch(&path, item.mtime);
    }
}

fn found(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![String::new()];
    while let Some(path) = waiting.pop() {
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        let what = if metadata.is_dir() {
            for entry in fs::read_dir(&full).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                waiting.push(if path.is_empty() { name } else { format!("{path}/{name}") });
            }
            What::Directory
        } else if metadata.is_symlink() {
            What::Link(fs::read_link(&full).unwrap().into_os_string().into_string().unwrap())
        } else {
            What::File(fs::read_to_string(&full).unwrap())
        };
        let mtime = (metadata.mtime(), metadata.mtime_nsec());
        tree.insert(path, Item { what, mode: metadata.mode() & 0o7777, mtime });
    }
    tree
}

/// The same options as both know them.
fn options(chance: &mut Chance) -> (Vec<String>, Vec<String>) {
    let (mut ours, mut theirs) = (vec!["-a".to_owned()], vec!["-a".to_owned()]);
    for (our, their) in [
        ("--delete", "--delete"),
        ("--contents", "--checksum"),
        ("--update", "--update"),
        ("--existing", "--existing"),
        ("--ignore-existing", "--ignore-existing"),
        ("--max-size=10", "--max-size=10"),
        ("--min-size=10", "--min-size=10"),
    ] {
        let is_often = our == "--delete";
        if chance.one_in(if is_often { 2 } else { 5 }) {
            ours.push(our.to_owned());
            theirs.push(their.to_owned());
        }
    }
    let before = |options: &mut Vec<String>| {
        let delete = options.iter_mut().find(|option| *option == "--delete");
        delete.into_iter().for_each(|option| *option = "--delete-before".to_owned());
    };
    if chance.one_in(2) {
        before(&mut ours);
        before(&mut theirs);
    }
    match chance.below(6) {
        0 => {
            ours.push("--copy-links".to_owned());
            // When deleting rsync has met all failures only if it does so in the end.
            theirs.push("--copy-links".to_owned());
            let delete = theirs.iter_mut().find(|option| *option == "--delete");
            delete.into_iter().for_each(|option| *option = "--delete-after".to_owned());
        }
        1 => {
            ours.push("--safe-links".to_owned());
            theirs.push("--safe-links".to_owned());
        }
        _ => {}
    }
    // The last one that matches counts here, the first one there.
    let mut patterns = Vec::new();
    for (pattern, excludes) in
        [("*.o", true), ("keep.o", false), ("/f1", true), ("d1/", true), ("/d0/g.c", true), ("d0/", false)]
    {
        if chance.one_in(4) {
            patterns.push(format!("--{}={pattern}", if excludes { "exclude" } else { "include" }));
        }
    }
    if ours.iter().any(|option| option.starts_with("--delete")) {
        // rsync believes a source that is empty, or of which the patterns leave nothing.
        ours.push("--delete-all".to_owned());
    }
    ours.extend(patterns.iter().cloned());
    theirs.extend(patterns.into_iter().rev());
    (ours, theirs)
}

/// Directories that are not the source's have the time at which something in them went.
fn without_times_of_others(mut tree: Tree, source: &Tree) -> Tree {
    for (path, item) in &mut tree {
        let is_theirs = source.get(path).is_some_and(|item| item.what == What::Directory);
        if item.what == What::Directory && !is_theirs {
            item.mtime = (0, 0);
        }
    }
    tree
}

/// Nothing if both did the same.
fn case(number: u64) -> Option<String> {
    let mut chance = Chance { state: number, coarse: false, follows: false, conflicts: false };
    let (ours, theirs) = options(&mut chance);
    // What is newer is newer by more than a second for rsync, if it is to look at nanoseconds else.
    chance.coarse = ours.iter().any(|option| option == "--update");
    chance.follows = ours.iter().any(|option| option == "--copy-links");
    let may_conflict = |option: &String| {
        let differs = ["--copy-links", "--ignore-existing"].contains(&&**option);
        !differs && !option.contains("=/") && !option.contains("=d1/")
    };
    chance.conflicts = ours.iter().all(may_conflict) && chance.one_in(2);
    let may_fail = chance.follows || chance.conflicts;
    let ground = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = |name: &str| ground.path().join(name);
    let source = source(&mut chance);
    let mut before = before(&mut chance, &source);
    plant(&place("src"), &source);
    if chance.follows {
        // As with other directories: nothing else is in their place.
        before.retain(|path, item| item.what == What::Directory || !place("src").join(path).is_dir());
    }
    plant(&place("ours"), &before);
    plant(&place("theirs"), &before);
    let mut carrack = Command::new(CARRACK);
    carrack.args(["sync", "-q", "--no-journal", "--buffer", "8MiB", "--sharing", "off"]).args(&ours);
    let output = run(carrack.arg(place("src/")).arg(place("ours")));
    let ours_failed = failed(&output, 1, may_fail);
    let mut rsync = Command::new("rsync");
    // To the nanosecond, as carrack.
    rsync.arg("--modify-window=-1").args(&theirs);
    let output = run(rsync.arg(place("src/")).arg(place("theirs/")));
    let theirs_failed = failed(&output, 23, may_fail);
    let our_tree = without_times_of_others(found(&place("ours")), &source);
    let their_tree = without_times_of_others(found(&place("theirs")), &source);
    let names: std::collections::BTreeSet<&String> = our_tree.keys().chain(their_tree.keys()).collect();
    let mut differing: Vec<String> = names
        .into_iter()
        .filter(|&path| our_tree.get(path) != their_tree.get(path))
        // Nothing is deleted where something failed; rsync goes on.
        .filter(|&path| !ours_failed || source.contains_key(path) || our_tree.get(path) != before.get(path))
        .map(|path| {
            let of = |tree: &Tree| format!("{:?}", tree.get(path));
            format!(
                "'{path}'\n  source {}\n  before {}\n  ours   {}\n  theirs {}",
                of(&source),
                of(&before),
                of(&our_tree),
                of(&their_tree)
            )
        })
        .collect();
    if ours_failed != theirs_failed {
        differing.push(format!(
            "conflicts {}, failed: ours {ours_failed}, theirs {theirs_failed}",
            chance.conflicts
        ));
    }
    (!differing.is_empty()).then(|| format!("case {number} {ours:?}\n{}", differing.join("\n")))
}

/// Whether something could not be copied, which happens only where links lead nowhere and where something else is in the way.
fn failed(output: &std::process::Output, exit: i32, may_fail: bool) -> bool {
    let code = output.status.code();
    assert!(code == Some(0) || may_fail && code == Some(exit), "{output:?}");
    code != Some(0)
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn both_leave_the_same_tree() {
    if !Command::new("rsync").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip("no rsync to compare with");
    }
    if let Some(number) = number_in("CARRACK_CASE") {
        return assert_eq!(case(number), None);
    }
    let (next, most) = (AtomicU64::new(0), number_in("CARRACK_CASES").unwrap_or(CASES));
    let work = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        numbers.take_while(|number| *number < most).filter_map(case).collect::<Vec<String>>()
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let differing: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let shown: Vec<&str> = differing.iter().take(5).map(String::as_str).collect();
    assert!(differing.is_empty(), "{} of {most} differ:\n{}", differing.len(), shown.join("\n\n"));
}
