//! Metadata that copies keep: trees are copied there and back and compared attribute by attribute, and with
//! the result of rsync.

mod census;
mod every_way;
mod flags;
mod plant;
mod refusals;
mod rights;
mod specials;
mod through_fleet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, lsetxattr};

use crate::common;
use crate::common::process::{assert_exit, run, talk};
use crate::common::{CARRACK, skip};
use census::differences;

/// An account that owns no files.
const NOBODY: u32 = 65_534;

/// Each with the command that makes it. In ext4, values of 64 KiB need inodes of their own.
const FILE_SYSTEMS: [(&str, &[&str]); 3] = [
    ("ext4", &["mkfs.ext4", "-q", "-F", "-O", "ea_inode"]),
    ("xfs", &["mkfs.xfs", "-q"]),
    ("btrfs", &["mkfs.btrfs", "-q"]),
];

/// A directory on a file system of its own, which is unmounted on drop.
struct Ground {
    name: &'static str,
    root: tempfile::TempDir,
    is_mounted: bool,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("--lazy").arg(self.path("")).status();
        }
    }
}

impl Ground {
    fn tmpfs() -> Option<Ground> {
        let root = tempfile::tempdir_in("/dev/shm").ok()?;
        fs::create_dir(root.path().join("mnt")).unwrap();
        Some(Ground { name: "tmpfs", root, is_mounted: false })
    }

    /// Makes a file system with `make` in an image file, which a loop device mounts; `None`, with a printed
    /// reason, where that is not possible.
    fn mounted(name: &'static str, make: &[&str]) -> Option<Ground> {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, mount) = (root.path().join("image"), root.path().join("mnt"));
        fs::create_dir(&mount).unwrap();
        File::create(&image).unwrap().set_len(1 << 30).unwrap();
        let made = Command::new(make[0]).args(&make[1..]).arg(&image).output();
        let mounted =
            made.and_then(|_| Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount).output());
        match mounted {
            Ok(output) if output.status.success() => Some(Ground { name, root, is_mounted: true }),
            other => {
                skip(&format!("no {name} in a loop device: {other:?}"));
                None
            }
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("mnt").join(path)
    }
}

fn is_root() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root can give files to others");
    }
    rustix::process::geteuid().is_root()
}

fn grounds() -> Vec<Ground> {
    if !is_root() {
        return Vec::new();
    }
    let mounted = FILE_SYSTEMS.iter().filter_map(|(name, make)| Ground::mounted(name, make));
    Ground::tmpfs().into_iter().chain(mounted).collect()
}

/// Files that [`plant::change_extras`] changes.
const CHANGED: [&str; 4] = ["attributes/255-2000000", "attributes/3000-10", "acls/large", "owners/file1"];

/// Runs a sync; returns the summary.
fn sync(options: &[&str], from: &Path, to: &Path) -> serde_json::Value {
    let output = run(Command::new(CARRACK).args(["sync", "--json"]).args(options).arg(from.join("")).arg(to));
    assert_exit(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn copy(options: &[&str], from: &Path, to: &Path) -> String {
    let mut command = Command::new(CARRACK);
    let output = run(command.arg("cp").args(options).arg(from).arg(to));
    assert_exit(&output, 0);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_archive_keeps_everything_there_and_back() {
    for ground in grounds() {
        let (tree, there, back) = (ground.path("tree"), ground.path("there"), ground.path("back"));
        fs::create_dir(&tree).unwrap();
        plant::plant(&tree);
        for (from, to) in [(&tree, &there), (&there, &back)] {
            let told = copy(&["-a"], from, to);
            assert!(!told.contains("not kept") && !told.contains("not made"), "{}: {told}", ground.name);
            let lines = differences(from, to);
            assert!(lines.is_empty(), "{}: {lines:#?}", ground.name);
            let mut verify = Command::new(CARRACK);
            let output = run(verify.args(["verify", "-aS", "--file-flags"]).arg(from.join("")).arg(to));
            assert_exit(&output, 0);
        }
        // A second copy over the existing files.
        copy(&["-a"], &tree.join(""), &back);
        assert_eq!(differences(&tree, &back), [""; 0], "{}", ground.name);
    }
}

#[test]
fn rsync_keeps_no_more() {
    let has_rsync =
        Command::new("rsync").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_rsync {
        return skip("no rsync to compare with");
    }
    for ground in grounds() {
        let (tree, ours, theirs) = (ground.path("tree"), ground.path("ours"), ground.path("theirs"));
        fs::create_dir(&tree).unwrap();
        plant::plant(&tree);
        copy(&["-a"], &tree, &ours);
        let status = Command::new("rsync").arg("-aHAXS").arg(tree.join("")).arg(&theirs).status().unwrap();
        assert!(status.success());
        let lost = differences(&tree, &theirs);
        println!("{}: rsync has {} otherwise: {lost:#?}", ground.name, lost.len());
        let worse: Vec<_> =
            differences(&tree, &ours).into_iter().filter(|line| !lost.contains(line)).collect();
        assert!(worse.is_empty(), "{}: {worse:#?}", ground.name);
    }
}

/// Only an attribute, an ACL or an owner changed: the contents are not written again.
#[test]
fn a_sync_brings_up_to_date_what_changed_alone() {
    for ground in grounds() {
        let (tree, copy) = (ground.path("tree"), ground.path("copy"));
        fs::create_dir(&tree).unwrap();
        plant::plant(&tree);
        // The root has the same name at both ends.
        sync(&["-a"], &tree, &copy);
        assert_eq!(differences(&tree, &copy), [""; 0], "{}", ground.name);
        let number = |path: &str| fs::metadata(copy.join(path)).unwrap().ino();
        let before = CHANGED.map(number);
        plant::change_extras(&tree, &copy);
        assert!(differences(&tree, &copy).len() > CHANGED.len(), "{}", ground.name);
        let without = sync(&["-a", "--no-xattrs", "--no-acls", "--no-owner", "--no-group"], &tree, &copy);
        assert!(differences(&tree, &copy).len() > CHANGED.len(), "{}: {without}", ground.name);
        let dry = sync(&["-a", "-n"], &tree, &copy);
        assert!(differences(&tree, &copy).len() > CHANGED.len(), "{}: {dry}", ground.name);
        let with = sync(&["-a"], &tree, &copy);
        assert_eq!(differences(&tree, &copy), [""; 0], "{}: {with}", ground.name);
        assert_eq!(with["bytes_done"], 0, "{}: {with}", ground.name);
        assert_eq!(before, CHANGED.map(number), "{}: made anew", ground.name);
    }
}

/// The destination's directory gives ACLs to all new entries.
#[test]
fn what_a_directory_would_give_is_not_kept() {
    for ground in grounds() {
        let (tree, place) = (ground.path("tree"), ground.path("place"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(tree.join("d")).unwrap();
        fs::create_dir(&place).unwrap();
        for name in ["small", "large", "d/inside"] {
            fs::write(tree.join(name), vec![b'x'; if name == "large" { 3_000_000 } else { 7 }]).unwrap();
        }
        if !plant::share_by_default(&place) {
            skip(&format!("{} has no ACLs", ground.name));
            continue;
        }
        copy(&["-a"], &tree, &place.join("copy"));
        assert_eq!(differences(&tree, &place.join("copy")), [""; 0], "{}", ground.name);
    }
}

#[test]
fn nothing_beyond_is_kept_unless_asked_for() {
    for ground in grounds() {
        let (tree, plain) = (ground.path("tree"), ground.path("plain"));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("f"), "x").unwrap();
        lchown(tree.join("f"), Some(54_321), Some(54_322)).unwrap();
        lsetxattr(tree.join("f"), "user.a", b"v", XattrFlags::empty()).unwrap();
        copy(&["-r"], &tree, &plain);
        let found = fs::metadata(plain.join("f")).unwrap();
        assert_eq!((found.uid(), found.gid()), (0, 0), "{}", ground.name);
        let lines = differences(&tree, &plain);
        assert_eq!(lines.len(), 3, "{}: {lines:#?}", ground.name);
    }
}

#[test]
fn lustres_own_attributes_are_not_of_the_copy() {
    let Some(ground) = is_root().then(Ground::tmpfs).flatten() else { return };
    let (tree, to) = (ground.path("tree"), ground.path("to"));
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/f"), "x").unwrap();
    for path in [tree.join("d"), tree.join("d/f")] {
        for name in ["trusted.lov", "trusted.lma", "trusted.kept"] {
            lsetxattr(&path, name, b"v", XattrFlags::empty()).unwrap();
        }
    }
    copy(&["-a"], &tree, &to);
    for path in [to.join("d"), to.join("d/f")] {
        let has = |name| rustix::fs::lgetxattr(&path, name, &mut [0; 9][..]).is_ok();
        assert_eq!([has("trusted.lov"), has("trusted.lma"), has("trusted.kept")], [false, false, true]);
    }
}

#[test]
fn each_can_be_left_out_and_owners_can_be_given() {
    let Some(ground) = is_root().then(Ground::tmpfs).flatten() else { return };
    let tree = ground.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    lchown(tree.join("f"), Some(54_321), Some(54_322)).unwrap();
    lsetxattr(tree.join("f"), "user.a", b"v", XattrFlags::empty()).unwrap();
    let owner = |options: &[&str], to: &str| {
        copy(options, &tree, &ground.path(to));
        let found = fs::metadata(ground.path(to).join("f")).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(owner(&["-a", "--no-owner"], "a"), (0, 54_322));
    assert_eq!(owner(&["-a", "--no-group", "--no-xattrs"], "b"), (54_321, 0));
    assert_eq!(differences(&tree, &ground.path("b")).len(), 2, "the group and the attribute");
    assert_eq!(owner(&["-r", "--chown", "nobody:7"], "c"), (NOBODY, 7));
    assert_eq!(owner(&["-a", "--chown", ":8", "--numeric-ids"], "d"), (54_321, 8));
    // A mistyped name is found before any file is copied.
    for (option, name) in [
        ("--chown=no-such-user", "user 'no-such-user'"),
        ("--chown=:no-such-group", "group 'no-such-group'"),
        ("--usermap=54321:no-such-user", "user 'no-such-user'"),
        ("--groupmap=*:no-such-group", "group 'no-such-group'"),
    ] {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-a", option]).arg(&tree).arg(ground.path("e"));
        let refused = run(&mut command);
        assert_exit(&refused, 3);
        let told = talk(&refused);
        assert!(told.contains(&format!("there is no {name} at the destination")), "{told}");
        assert!(told.contains("or give a number") && !ground.path("e").exists(), "{told}");
    }
}

/// The mapping is that of rsync.
#[test]
fn owners_become_others_by_rules() {
    let Some(ground) = is_root().then(Ground::tmpfs).flatten() else { return };
    let tree = ground.path("tree");
    fs::create_dir(&tree).unwrap();
    // root, daemon, bin, nobody; the last two numbers have no account.
    let numbers = [0, 1, 2, NOBODY, 54_321, 54_399];
    for number in numbers {
        let path = tree.join(number.to_string());
        fs::write(&path, "x").unwrap();
        lchown(&path, Some(number), Some(number)).unwrap();
    }
    let rules = [
        "daemon:7",
        "*:7",
        "d*:7,b?n:nobody,*:9",
        "0:5,54321-54398:6",
        ":8,nobody:0",
        "root:bin,[b-d]*:4",
        "1:2,2:1,2-9:3",
    ];
    for (number, rules) in rules.into_iter().enumerate() {
        let owners = |there: &Path| {
            numbers.map(|number| {
                let found = fs::metadata(there.join(number.to_string())).unwrap();
                (found.uid(), found.gid())
            })
        };
        let (ours, theirs) = (ground.path(&format!("ours{number}")), ground.path(&format!("theirs{number}")));
        // Some of these groups have other names, or none.
        let group_rules = rules.replace("nobody:", "nogroup:").replace(":nobody", ":nogroup");
        copy(&["-r", "--usermap", rules, "--groupmap", &group_rules], &tree, &ours);
        let mut rsync = Command::new("rsync");
        rsync.args(["-rog", &format!("--usermap={rules}"), &format!("--groupmap={group_rules}")]);
        if !rsync.arg(tree.join("")).arg(theirs.join("")).status().is_ok_and(|status| status.success()) {
            return skip("no rsync to compare with");
        }
        assert_eq!(owners(&ours), owners(&theirs), "{rules}");
        assert_ne!(owners(&ours), owners(&tree), "{rules}");
    }
}

/// The names are copied alone, with names that are separate files at the destination, and after a failure of
/// the first name.
#[test]
fn names_of_one_file_stay_together() {
    let root = tempfile::tempdir().unwrap();
    let (tree, there) = (root.path().join("tree"), root.path().join("there"));
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("one"), "content").unwrap();
    for name in ["a/two", "a/b/three"] {
        fs::hard_link(tree.join("one"), tree.join(name)).unwrap();
    }
    let names = |path: &str| fs::metadata(there.join(path)).unwrap().nlink();
    copy(&["-r"], &tree, &there);
    assert_eq!(["one", "a/two", "a/b/three"].map(names), [1; 3]);
    let told = copy(&["-rH"], &tree.join(""), &there);
    assert_eq!(["one", "a/two", "a/b/three"].map(names), [3; 3], "{told}");
    assert_eq!(differences(&tree, &there), [""; 0]);
    // The same names have other contents.
    fs::write(tree.join("one"), "other contents").unwrap();
    copy(&["-a", "--checksum", "blake3"], &tree.join(""), &there);
    assert_eq!(differences(&tree, &there), [""; 0]);
}

/// A hole is neither read nor sent: a file of 1 TB with 1 MiB of data takes no longer than the data.
#[test]
fn holes_cost_nothing() {
    let data = common::tree::noise(1 << 20);
    // The smaller file comes first: zeros of the large one would fill the machine.
    for size in [1_000_000_000, 1_000_000_000_000] {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let (file, copied) = (root.path().join("file"), root.path().join("copy"));
        let sparse = File::create(&file).unwrap();
        sparse.set_len(size).unwrap();
        sparse.write_all_at(&data, size / 2).unwrap();
        let began = std::time::Instant::now();
        copy(&[], &file, &copied);
        let took = began.elapsed();
        println!("{size} bytes with 1 MiB in them: {took:?}");
        // A terabyte of zeros would take minutes.
        assert!(took < std::time::Duration::from_secs(60), "{took:?}");
        let found = fs::metadata(&copied).unwrap();
        assert_eq!(found.len(), size);
        assert!(found.blocks() * 512 < 4 << 20, "{} blocks", found.blocks());
        let mut held = vec![0; data.len()];
        File::open(&copied).unwrap().read_exact_at(&mut held, size / 2).unwrap();
        assert!(held == data);
    }
}

/// Full bundles have no room for all of their holes; files with digests keep them, too.
#[test]
fn holes_of_small_files_are_kept_as_far_as_there_is_room() {
    const FILES: usize = 200;
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let tree = root.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        let file = File::create(tree.join(number.to_string())).unwrap();
        file.set_len(20 << 10).unwrap();
        file.write_all_at(&common::tree::noise(100 + number), 0).unwrap();
    }
    let sparse = |root: &Path| {
        let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        files.filter(|file| file.blocks() * 512 < file.len()).count()
    };
    if sparse(&tree) < FILES {
        return skip("no holes in /var/tmp");
    }
    let manifest = root.path().join("manifest");
    let manifest = manifest.to_str().unwrap();
    for (name, options, least) in [
        ("whole", &["-r"][..], FILES),
        ("digests", &["-r", "--manifest", manifest], FILES),
        ("tight", &["-r", "--object-size", "128KiB", "--buffer", "1MiB"], FILES / 2),
    ] {
        let copied = root.path().join(name);
        copy(options, &tree, &copied);
        for number in 0..FILES {
            let [source, copied] =
                [&tree, &copied].map(|root| fs::read(root.join(number.to_string())).unwrap());
            assert!(source == copied, "{name}: {number}");
        }
        assert!(sparse(&copied) >= least, "{name}: {} of {FILES}", sparse(&copied));
    }
    assert_eq!(fs::read_to_string(manifest).unwrap().lines().count(), FILES);
}

/// A user other than root keeps the permitted metadata, and the rest is reported once and is no failure.
#[test]
fn what_may_not_be_set_is_told_once_with_its_count() {
    let Some(ground) = is_root().then(Ground::tmpfs).flatten() else { return };
    let (tree, theirs) = (ground.path("tree"), ground.path("theirs"));
    for directory in [&tree, &theirs] {
        fs::create_dir(directory).unwrap();
    }
    fs::set_permissions(ground.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    lchown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    for number in 0..10 {
        let path = tree.join(number.to_string());
        fs::write(&path, "x").unwrap();
        lsetxattr(&path, "user.a", b"v", XattrFlags::empty()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    let binary = ground.path("carrack");
    fs::copy(CARRACK, &binary).unwrap();
    let mut command = Command::new(&binary);
    command
        .args(["cp", "-a"])
        .arg(&tree)
        .arg(theirs.join("copy"))
        .uid(NOBODY)
        .gid(NOBODY)
        .env("HOME", &theirs);
    let output = run(&mut command);
    assert_exit(&output, 0);
    let told = String::from_utf8_lossy(&output.stderr);
    for what in ["owner", "group"] {
        let line = format!("the {what} of 11 entries not kept: not permitted");
        assert_eq!(told.matches(&line).count(), 1, "{told}");
    }
    assert_eq!(told.matches("not kept").count(), 2, "{told}");
    let lines = differences(&tree, &theirs.join("copy"));
    assert!(lines.iter().all(|line| line.contains(": owner:") || line.contains(": group:")), "{lines:#?}");
}
