//! File flags: immutable, append-only and no-dump files have their flags at the destination too.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{Ground, NOBODY, copy, grounds, sync};
use crate::common::process::{Running, assert_exit, json, run, wait_for};
use crate::common::{CARRACK, skip};

const ALL: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND).union(IFlags::NODUMP);

/// Clears the flags on drop: otherwise the files could not be removed.
struct Loosened<'a>(&'a Ground);

impl Drop for Loosened<'_> {
    fn drop(&mut self) {
        loosen(&self.0.path(""));
    }
}

fn loosen(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_file() || metadata.is_dir() {
        let _ = set(path, IFlags::empty());
    }
    if metadata.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| loosen(&entry.path()));
    }
}

pub fn flags(path: &Path) -> IFlags {
    ioctl_getflags(File::open(path).unwrap()).unwrap() & ALL
}

pub fn set(path: &Path, flags: IFlags) -> rustix::io::Result<()> {
    let file = File::open(path).unwrap();
    let others = ioctl_getflags(&file)? - ALL;
    ioctl_setflags(&file, others | flags)
}

/// Small and large files, one with two names, and a directory that is not empty.
const FLAGGED: [(&str, IFlags); 7] = [
    ("immutable", IFlags::IMMUTABLE),
    ("append-only", IFlags::APPEND),
    ("no-dump", IFlags::NODUMP),
    ("large", IFlags::IMMUTABLE.union(IFlags::NODUMP)),
    ("linked", IFlags::IMMUTABLE),
    ("sealed", IFlags::IMMUTABLE),
    ("sealed/inside", IFlags::APPEND),
];

/// Plants files with flags; returns true if the file system has flags.
pub fn plant(tree: &Path) -> bool {
    fs::create_dir_all(tree.join("sealed/deep")).unwrap();
    for name in ["immutable", "append-only", "no-dump", "linked", "plain", "sealed/inside", "sealed/deep/f"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 3_000_000]).unwrap();
    fs::hard_link(tree.join("linked"), tree.join("another-name")).unwrap();
    FLAGGED.iter().rev().all(|(name, flags)| set(&tree.join(name), *flags).is_ok())
}

pub fn assert_same(tree: &Path, there: &Path, file_system: &str) {
    for (name, expected) in FLAGGED {
        assert_eq!(flags(&tree.join(name)), expected, "{file_system}: {name} at the source");
        assert_eq!(flags(&there.join(name)), expected, "{file_system}: {name}");
    }
    for name in ["plain", "sealed/deep", "sealed/deep/f"] {
        assert_eq!(flags(&there.join(name)), IFlags::empty(), "{file_system}: {name}");
    }
}

#[test]
fn flags_are_kept_and_repeating_does_nothing() {
    for ground in grounds() {
        let _loosened = Loosened(&ground);
        let (tree, there) = (ground.path("tree"), ground.path("there"));
        if !plant(&tree) {
            skip(&format!("{} has no file flags", ground.name));
            continue;
        }
        let options = ["-a", "--file-flags"];
        let told = copy(&options, &tree, &there);
        assert!(!told.contains("not kept"), "{}: {told}", ground.name);
        assert_same(&tree, &there, ground.name);
        assert_eq!(fs::metadata(there.join("linked")).unwrap().nlink(), 2, "{}", ground.name);
        let summary = sync(&options, &tree, &there);
        assert_eq!(summary["bytes_done"], 0, "{}: {summary}", ground.name);
        assert_same(&tree, &there, ground.name);
        // Only flags, modes and times change, at either end.
        for (path, flags) in [
            (tree.join("plain"), IFlags::NODUMP),
            (there.join("immutable"), IFlags::empty()),
            (there.join("sealed"), IFlags::APPEND),
            (there.join("plain"), IFlags::IMMUTABLE),
        ] {
            set(&path, flags).unwrap();
        }
        set(&tree.join("append-only"), IFlags::empty()).unwrap();
        fs::set_permissions(tree.join("append-only"), fs::Permissions::from_mode(0o640)).unwrap();
        set(&tree.join("append-only"), IFlags::APPEND).unwrap();
        let summary = sync(&options, &tree, &there);
        assert_eq!(summary["bytes_done"], 0, "{}: {summary}", ground.name);
        assert_eq!(flags(&there.join("plain")), IFlags::NODUMP, "{}", ground.name);
        assert_eq!(fs::metadata(there.join("append-only")).unwrap().mode() & 0o777, 0o640, "{}", ground.name);
        set(&tree.join("plain"), IFlags::empty()).unwrap();
        sync(&options, &tree, &there);
        assert_same(&tree, &there, ground.name);
        // Without the option no flags are read, and none change.
        copy(&["-a"], &tree, &ground.path("without"));
        assert_eq!(flags(&ground.path("without/immutable")), IFlags::empty(), "{}", ground.name);
    }
}

/// Returns the size of the journals next to the destination.
fn journal_bytes(ground: &Ground) -> u64 {
    let entries = fs::read_dir(ground.path("")).unwrap().map(Result::unwrap);
    let journals = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".journal"));
    journals.map(|journal| journal.metadata().unwrap().len()).sum()
}

/// Flags come last: a copy that is killed has set none, and the resumed copy sets those of existing files
/// too.
#[test]
fn who_goes_on_sets_flags_of_what_was_there() {
    let Some(ground) = super::is_root().then(Ground::tmpfs).flatten() else { return };
    let _loosened = Loosened(&ground);
    let (tree, there) = (ground.path("tree"), ground.path("there"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("slow"), vec![7; 12_000_000]).unwrap();
    if !plant(&tree) || set(&tree.join("slow"), IFlags::IMMUTABLE).is_err() {
        return skip("no file flags here");
    }
    let command = |limit: &[&str]| {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-a", "--file-flags", "--json", "--group-time", "50"]).args(limit);
        command.arg(tree.join("")).arg(there.join(""));
        command
    };
    let first = Running::start(&mut command(&["--bwlimit", "2MB"]));
    // Either file may come first.
    let copied = || -> Vec<_> {
        ["large", "slow"].map(|name| there.join(name)).into_iter().filter(|f| f.exists()).collect()
    };
    wait_for("the first large file", || (!copied().is_empty()).then_some(()));
    // The file must be recorded: with the group that was being filled, and the previous group may not be
    // durable yet.
    for _ in 0..2 {
        let before = journal_bytes(&ground);
        wait_for("a record", || (journal_bytes(&ground) > before).then_some(()));
    }
    drop(first);
    let [copied] = copied().try_into().expect("one is there, and one is not");
    assert_eq!(flags(&copied) & IFlags::IMMUTABLE, IFlags::empty());
    let output = run(&mut command(&[]));
    assert_exit(&output, 0);
    let summary = json(&output).pop().unwrap();
    assert!(summary["entries_kept"].as_u64().unwrap() > 0, "{summary}");
    assert_same(&tree, &there, "tmpfs");
    assert_eq!(flags(&there.join("slow")), IFlags::IMMUTABLE);
}

/// A file that can't be changed is reported, and stays as it is.
#[test]
fn what_is_immutable_is_not_replaced() {
    let Some(ground) = super::is_root().then(Ground::tmpfs).flatten() else { return };
    let _loosened = Loosened(&ground);
    let (tree, there) = (ground.path("tree"), ground.path("there"));
    if !plant(&tree) {
        return skip("no file flags here");
    }
    copy(&["-a", "--file-flags"], &tree, &there);
    set(&tree.join("immutable"), IFlags::empty()).unwrap();
    fs::write(tree.join("immutable"), "other contents").unwrap();
    let mut command = Command::new(CARRACK);
    command.args(["sync", "-a", "--file-flags"]).arg(tree.join("")).arg(&there);
    let output = run(&mut command);
    assert_exit(&output, 1);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("chattr -i"), "{told}");
    assert_eq!(fs::read(there.join("immutable")).unwrap(), b"immutable");
}

/// A user who may not set flags loses nothing else.
#[test]
fn who_may_not_set_flags_is_told() {
    let Some(ground) = super::is_root().then(Ground::tmpfs).flatten() else { return };
    let _loosened = Loosened(&ground);
    let (tree, there) = (ground.path("tree"), ground.path("there"));
    if !plant(&tree) {
        return skip("no file flags here");
    }
    fs::create_dir(&there).unwrap();
    std::os::unix::fs::chown(&there, Some(NOBODY), Some(NOBODY)).unwrap();
    for path in [ground.path(""), ground.root.path().to_path_buf()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(CARRACK);
    command.args(["cp", "-r", "--file-flags"]).arg(tree.join("")).arg(&there).uid(NOBODY).gid(NOBODY);
    let output = run(command.env("HOME", &there).current_dir("/"));
    assert_exit(&output, 0);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("file flags of 7 entries not kept: not permitted"), "{told}");
    assert_eq!(flags(&there.join("no-dump")), IFlags::NODUMP);
    assert_eq!(fs::read(there.join("immutable")).unwrap(), b"immutable");
}
