//! Devices, named pipes and sockets: copied, synced, resumed, verified, and reported where they can't be
//! made.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::census::differences;
use super::{Ground, NOBODY, copy, is_root};
use crate::common::CARRACK;
use crate::common::process::{assert_exit, run};

/// The numbers of `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Makes a special file; returns false where not even root may.
pub fn node(path: &Path, kind: FileType, (major, minor): (u32, u32), mode: u32) -> bool {
    let made = mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), makedev(major, minor)).is_ok();
    if made {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    made
}

/// Plants two pipes, a socket and two devices.
fn plant(tree: &Path) -> bool {
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("f"), "content").unwrap();
    node(&tree.join("pipe"), FileType::Fifo, (0, 0), 0o640)
        && node(&tree.join("d/pipe"), FileType::Fifo, (0, 0), 0o666)
        && node(&tree.join("socket"), FileType::Socket, (0, 0), 0o755)
        && node(&tree.join("null"), FileType::CharacterDevice, NULL, 0o666)
        && node(&tree.join("d/disk"), FileType::BlockDevice, (7, 1_000_000), 0o600)
}

/// Returns a tree with all of them on tmpfs; `None` where they can't be made.
fn planted() -> Option<Ground> {
    let ground = is_root().then(Ground::tmpfs).flatten()?;
    if plant(&ground.path("tree")) {
        return Some(ground);
    }
    super::skip("not even root may make devices here");
    None
}

fn names(lines: &[String], what: &str) -> Vec<String> {
    lines.iter().filter_map(|line| line.strip_suffix(what)).map(ToOwned::to_owned).collect()
}

fn carrack(words: &[&str], from: &Path, to: &Path) -> Output {
    run(Command::new(CARRACK).args(words).arg(from).arg(to))
}

/// Returns the numbers of these names in the summary of `--json`.
fn counted<const N: usize>(output: &Output, names: [&str; N]) -> [u64; N] {
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    names.map(|name| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}")))
}

#[test]
fn each_kind_is_copied_where_it_is_asked_for() {
    let Some(ground) = planted() else { return };
    let tree = ground.path("tree");
    let missing = |options: &[&str], to: &str| {
        copy(options, &tree, &ground.path(to));
        names(&differences(&tree, &ground.path(to)), ": missing")
    };
    assert_eq!(missing(&["-r"], "plain"), ["d/disk", "d/pipe", "null", "pipe", "socket"]);
    assert_eq!(missing(&["-r", "--specials"], "specials"), ["d/disk", "null"]);
    assert_eq!(missing(&["-r", "--devices"], "devices"), ["d/pipe", "pipe", "socket"]);
    assert_eq!(missing(&["-a", "--no-devices"], "no-devices"), ["d/disk", "null"]);
    assert_eq!(missing(&["-a", "--no-specials"], "no-specials"), ["d/pipe", "pipe", "socket"]);
    assert_eq!(missing(&["-a"], "all"), [""; 0]);
    assert_eq!(differences(&tree, &ground.path("all")), [""; 0]);
    // A single device, under another name, in the place of a file.
    fs::write(ground.path("other"), "a file").unwrap();
    copy(&["-a"], &tree.join("null"), &ground.path("other"));
    let other = fs::symlink_metadata(ground.path("other")).unwrap();
    assert!(other.file_type().is_char_device() && other.rdev() == makedev(NULL.0, NULL.1));
}

#[test]
fn a_dry_run_makes_none() {
    let Some(ground) = planted() else { return };
    let output = carrack(&["cp", "-an"], &ground.path("tree"), &ground.path("to"));
    assert_exit(&output, 0);
    let listed = String::from_utf8_lossy(&output.stdout);
    ["pipe", "socket", "null", "d/disk"].iter().for_each(|name| assert!(listed.contains(name), "{listed}"));
    assert!(!ground.path("to").exists());
}

#[test]
fn a_sync_leaves_what_is_the_same_and_makes_what_is_not() {
    let Some(ground) = planted() else { return };
    let (tree, copied) = (ground.path("tree/"), ground.path("copied"));
    let sync = |options: &[&str]| {
        let output = carrack(&[&["sync", "-a", "--json"], options].concat(), &tree, &copied);
        assert_exit(&output, 0);
        counted(&output, ["specials_done", "entries_kept", "entries_deleted"])
    };
    assert_eq!(sync(&[]), [5, 0, 0]);
    assert_eq!(sync(&[]), [0, 6, 0]);
    let inode = |name: &str| fs::symlink_metadata(copied.join(name)).unwrap().ino();
    let (pipe, null) = (inode("pipe"), inode("null"));
    // Another mode and owner are set on existing files; another device, and another kind, are made anew.
    fs::set_permissions(tree.join("pipe"), fs::Permissions::from_mode(0o600)).unwrap();
    lchown(tree.join("null"), Some(54_321), Some(54_322)).unwrap();
    fs::remove_file(tree.join("d/disk")).unwrap();
    assert!(node(&tree.join("d/disk"), FileType::BlockDevice, (7, 1_000_001), 0o600));
    fs::remove_file(tree.join("d/pipe")).unwrap();
    assert!(node(&tree.join("d/pipe"), FileType::Socket, (0, 0), 0o600));
    fs::remove_file(tree.join("socket")).unwrap();
    assert_eq!(sync(&[]), [2, 3, 0]);
    assert_eq!((inode("pipe"), inode("null")), (pipe, null), "not made anew");
    assert_eq!(sync(&["--delete"])[2], 1, "the socket");
    assert_eq!(differences(&tree, &copied), [""; 0]);
    fs::remove_file(tree.join("null")).unwrap();
    fs::remove_file(tree.join("pipe")).unwrap();
    assert_eq!(sync(&["--delete"]), [0, 3, 2]);
    assert_eq!(differences(&tree, &copied), [""; 0]);
}

/// Entries that are right at the destination are not made again; the others are.
#[test]
fn a_copy_that_goes_on_keeps_those_that_are_there() {
    let Some(ground) = planted() else { return };
    let (tree, copied) = (ground.path("tree/"), ground.path("copied"));
    fs::create_dir_all(copied.join("f/in-the-way")).unwrap();
    let copy = |exit| {
        let output = carrack(&["cp", "-a", "--json"], &tree, &copied);
        assert_exit(&output, exit);
        counted(&output, ["specials_done", "files_done", "entries_kept"])
    };
    assert_eq!(copy(1), [5, 0, 0]);
    fs::remove_file(copied.join("null")).unwrap();
    fs::set_permissions(copied.join("d/pipe"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(copied.join("f")).unwrap();
    assert_eq!(copy(0), [2, 1, 3]);
    assert_eq!(differences(&tree, &copied), [""; 0]);
}

/// A user other than root makes pipes; the devices are reported once and are no failure. Existing entries in
/// their places stay.
#[test]
fn devices_that_may_not_be_made_are_told_once_with_their_count() {
    let Some(ground) = planted() else { return };
    let (tree, theirs, binary) = (ground.path("tree"), ground.path("theirs"), ground.path("carrack"));
    fs::create_dir_all(theirs.join("copy")).unwrap();
    fs::write(theirs.join("copy/null"), "old").unwrap();
    [&theirs, &theirs.join("copy")].iter().for_each(|path| lchown(path, Some(NOBODY), Some(NOBODY)).unwrap());
    fs::set_permissions(ground.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(CARRACK, &binary).unwrap();
    let mut command = Command::new(&binary);
    command.args(["cp", "-a"]).arg(tree.join("")).arg(theirs.join("copy")).env("HOME", &theirs);
    let output = run(command.uid(NOBODY).gid(NOBODY));
    assert_exit(&output, 0);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches("2 devices not made: not permitted").count(), 1, "{told}");
    assert_eq!(told.matches("not made").count(), 1, "{told}");
    assert!(told.contains("3 special files"), "{told}");
    let lines = differences(&tree, &theirs.join("copy"));
    assert_eq!(names(&lines, ": missing"), ["d/disk"]);
    assert_eq!(fs::read(theirs.join("copy/null")).unwrap(), b"old");
    let pipe = fs::symlink_metadata(theirs.join("copy/pipe")).unwrap();
    assert!(pipe.file_type().is_fifo() && pipe.mode() & 0o7777 == 0o640);
}

#[test]
fn another_device_is_a_difference() {
    let Some(ground) = planted() else { return };
    let (tree, copied) = (ground.path("tree"), ground.path("copied"));
    copy(&["-a"], &tree, &copied);
    let verify = |exit| {
        let output = carrack(&["verify", "--no-times", "--json"], &tree, &copied);
        assert_exit(&output, exit);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(verify(0).contains(r#""skipped":0"#));
    fs::remove_file(copied.join("null")).unwrap();
    assert!(node(&copied.join("null"), FileType::CharacterDevice, (1, 5), 0o666));
    fs::remove_file(copied.join("pipe")).unwrap();
    fs::write(copied.join("pipe"), "no pipe").unwrap();
    fs::remove_file(copied.join("socket")).unwrap();
    let told = verify(1);
    for line in [
        r#""path":"null","what":"device""#,
        r#""path":"pipe","what":"kind","source":"pipe""#,
        r#""path":"socket","what":"skipped""#,
        r#""differing":2"#,
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
}
