//! Destinations that store less, or refuse requests: coarse times, a small range of times, no modes, no
//! times, no hard links, no symbolic links, names without case. Contents are right all the same, and losses
//! are reported once.

#![allow(unsafe_code)] // Installing the filter that has system calls refused.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::{Ground, NOBODY, is_root};
use crate::common::process::{assert_exit, assert_says, json, run, talk};
use crate::common::tree::{noise, temporary_names};
use crate::common::{CARRACK, skip};

/// Plants small and large files, one with two names, and directories; no time is a whole second.
fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    for name in ["one", "two", "sub/three"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::write(tree.join("sub/large"), noise(3_000_000)).unwrap();
    fs::hard_link(tree.join("one"), tree.join("sub/other")).unwrap();
    for (number, name) in ["one", "two", "sub/three", "sub/large", "sub/empty", "sub"].iter().enumerate() {
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000 + number as u64, 123_456_789);
        set_time(&tree.join(name), time);
    }
}

fn set_time(path: &Path, time: SystemTime) {
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn carrack(words: &[&str], from: &Path, to: &Path) -> Output {
    run(Command::new(CARRACK).args(words).arg(from.join("")).arg(to))
}

fn assert_contents_but_journals(tree: &Path, copy: &Path) {
    for name in ["one", "two", "sub/three", "sub/large", "sub/other"] {
        assert_eq!(fs::read(copy.join(name)).unwrap(), fs::read(tree.join(name)).unwrap(), "{name}");
    }
}

fn assert_contents(tree: &Path, copy: &Path) {
    assert_contents_but_journals(tree, copy);
    assert_eq!(temporary_names(copy), [""; 0].map(Path::new));
}

fn summary(output: &Output) -> serde_json::Value {
    json(output).pop().unwrap()
}

/// ext4 with 128-byte inodes has whole seconds up to 2038.
#[test]
fn coarse_times_are_the_times_that_were_told() {
    if !is_root() {
        return;
    }
    let Some(ground) = Ground::mounted("ext4", &["mkfs.ext4", "-q", "-F", "-I", "128"]) else { return };
    let tree = tempfile::tempdir().unwrap();
    let (tree, there) = (tree.path(), ground.path("there"));
    plant(tree);
    symlink("one", tree.join("link")).unwrap();
    let copied = carrack(&["cp", "-av"], tree, &there);
    assert_exit(&copied, 0);
    assert_says(&copied, &["the destination's file system stores times to 1 s"]);
    assert_contents(tree, &there);
    assert_eq!(fs::metadata(there.join("one")).unwrap().nlink(), 2);
    for name in ["future", "past"] {
        fs::write(tree.join(name), name).unwrap();
    }
    set_time(&tree.join("future"), SystemTime::UNIX_EPOCH + Duration::new(5_000_000_000, 5));
    set_time(&tree.join("past"), SystemTime::UNIX_EPOCH - Duration::new(1_000_000_000, 5));
    let sync = |options: &[&str]| {
        let output = carrack(&[&["sync", "-a", "--json"], options].concat(), tree, &there);
        assert_exit(&output, 0);
        let summary = summary(&output);
        ["files_done", "losses"].map(|name| summary[name].as_u64().unwrap())
    };
    assert_eq!(sync(&[]), [2, 1], "what there is no room for is told");
    assert_eq!(sync(&[]), [0, 0]);
    set_time(&tree.join("two"), SystemTime::UNIX_EPOCH + Duration::new(1_600_000_002, 0));
    assert_eq!(sync(&[]), [1, 0], "a second later is another time");
    assert!(sync(&["--modify-window=-1"])[0] > 3);
    set_time(&tree.join("two"), SystemTime::UNIX_EPOCH + Duration::new(1_600_000_004, 0));
    assert_eq!(sync(&["--modify-window=2.5"]), [0, 0]);
}

/// Makes the kernel refuse system calls of the command (seccomp(2), with a classic BPF program on `struct
/// seccomp_data`).
fn refuse(command: &mut Command, calls: &[libc::c_long], errno: i32) {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: plain numbers; no memory is passed.
        let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies
        // them.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::from_ref(&filter), 0, 0)
        };
        match (unprivileged, installed) {
            (0, 0) => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: two system calls, and no memory is taken.
    unsafe { command.pre_exec(install) };
}

const MODES: [libc::c_long; 2] = [libc::SYS_fchmod, libc::SYS_fchmodat];
const TIMES: [libc::c_long; 1] = [libc::SYS_utimensat];
const LINKS: [libc::c_long; 1] = [libc::SYS_linkat];
const FILE_SYSTEMS: [libc::c_long; 2] = [libc::SYS_statfs, libc::SYS_fstatfs];
const SYMLINKS: [libc::c_long; 1] = [libc::SYS_symlinkat];

/// Copies and syncs with refused calls; returns the output of the copy.
fn copied(calls: &[libc::c_long], errno: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
    plant(&tree);
    let carrack = |words: &[&str]| {
        let mut command = Command::new(CARRACK);
        refuse(&mut command, calls, errno);
        run(command.args(words).arg(tree.join("")).arg(&there))
    };
    let copied = carrack(&["cp", "-a"]);
    assert_exit(&copied, 0);
    assert_contents(&tree, &there);
    for name in ["one", "sub/large", "sub"] {
        let [own, told] = [&there, &tree].map(|root| fs::metadata(root.join(name)).unwrap().mode() & 0o777);
        assert_eq!(own & !told, 0, "{name} is {own:o}, {told:o} at the source");
    }
    let second = carrack(&["sync", "-a", "--json"]);
    assert_exit(&second, 0);
    assert_eq!(summary(&second)["files_done"], 0, "{errno}: {}", talk(&second));
    fs::remove_dir_all(&there).unwrap();
    let strict = carrack(&["cp", "-a", "--strict"]);
    assert_exit(&strict, 1);
    assert_contents(&tree, &there);
    talk(&copied)
}

#[test]
fn a_refused_mode_is_a_loss() {
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS] {
        let told = copied(&MODES, errno);
        assert!(told.contains("warning: the mode of ") && told.contains(" entries not kept: "), "{told}");
    }
}

/// Without `--perms` the mode of the replaced file holds.
#[test]
fn a_file_that_is_replaced_opens_no_wider_where_modes_are_refused() {
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS] {
        let dir = tempfile::tempdir().unwrap();
        let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
        plant(&tree);
        fs::create_dir_all(there.join("sub")).unwrap();
        for name in ["one", "sub/large"] {
            fs::write(there.join(name), "older").unwrap();
            fs::set_permissions(there.join(name), fs::Permissions::from_mode(0o600)).unwrap();
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mut command = Command::new(CARRACK);
        refuse(&mut command, &MODES, errno);
        let output = run(command.arg("sync").arg(tree.join("")).arg(&there));
        assert_exit(&output, 0);
        assert_contents(&tree, &there);
        for name in ["one", "sub/large"] {
            let mode = fs::metadata(there.join(name)).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name} after {errno}");
        }
        assert_says(&output, &["the mode of ", " entries not kept: "]);
    }
}

#[test]
fn a_refused_time_is_a_loss() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let told = copied(&TIMES, errno);
        assert!(told.contains("warning: the time of ") && told.contains(" entries not kept: "), "{told}");
    }
}

#[test]
fn a_hard_link_that_can_not_be_made_is_a_file_of_its_own() {
    for errno in [libc::EPERM, libc::EMLINK, libc::EXDEV, libc::EOPNOTSUPP] {
        let told = copied(&LINKS, errno);
        assert!(told.contains("warning: 1 hard link not kept: "), "{told}");
    }
}

/// It is then treated as an unknown file system.
#[test]
fn a_file_system_that_can_not_be_asked_what_it_is_takes_a_copy() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let dir = tempfile::tempdir().unwrap();
        let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
        plant(&tree);
        for (words, done) in [(&["cp", "-a", "--json"][..], 5), (&["sync", "-a", "--json"], 0)] {
            let mut command = Command::new(CARRACK);
            refuse(&mut command, &FILE_SYSTEMS, errno);
            let output = run(command.args(words).arg(tree.join("")).arg(&there));
            assert_exit(&output, 0);
            assert_contents(&tree, &there);
            let summary = summary(&output);
            assert_eq!((&summary["files_done"], &summary["losses"]), (&done.into(), &0.into()), "{summary}");
        }
    }
}

/// Without its limits the process uses the usual ones.
#[test]
fn a_process_that_can_not_ask_for_its_limits_copies() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let dir = tempfile::tempdir().unwrap();
        let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
        plant(&tree);
        let mut command = Command::new(CARRACK);
        refuse(&mut command, &[libc::SYS_prlimit64], errno);
        assert_exit(&run(command.args(["cp", "-a"]).arg(tree.join("")).arg(&there)), 0);
        assert_contents(&tree, &there);
    }
}

/// No other entry takes its place, so it is a failure and not a loss.
#[test]
fn a_symbolic_link_that_can_not_be_made_is_a_failure_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
    plant(&tree);
    symlink("one", tree.join("link")).unwrap();
    for (options, code) in [(&["cp", "-r"][..], 1), (&["cp", "-rL"], 0), (&["cp", "-r", "--skip-links"], 0)] {
        let mut command = Command::new(CARRACK);
        refuse(&mut command, &SYMLINKS, libc::EPERM);
        let output = run(command.args(options).arg(tree.join("")).arg(&there));
        assert_exit(&output, code);
        assert_contents_but_journals(&tree, &there);
        let is_told = talk(&output).contains("`--skip-links` leaves links out, `--copy-links`");
        assert_eq!(is_told, code == 1, "{}", talk(&output));
    }
}

/// Only the owner may set mode and time of a file then, and root has given the file away.
#[test]
fn root_without_cap_fowner_keeps_modes_and_times_of_others_files() {
    const CAP_FOWNER: libc::c_ulong = 3;
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
    plant(&tree);
    for (name, mode) in [("two", 0o640), ("sub", 0o2750), ("sub/three", 0o604), ("sub/large", 0o600)] {
        chown(tree.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let of = |root: &Path, name: &str| {
        let found = fs::metadata(root.join(name)).unwrap();
        (found.uid(), found.gid(), found.mode(), found.mtime(), found.mtime_nsec())
    };
    for (words, done) in [(&["cp", "-a", "--json"][..], 5), (&["sync", "-a", "--json"], 0)] {
        let mut command = Command::new(CARRACK);
        let drop_capability = || {
            // SAFETY: plain numbers; no memory is passed.
            match unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_FOWNER, 0, 0, 0) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: a system call, and no memory is taken.
        unsafe { command.pre_exec(drop_capability) };
        let output = run(command.args(words).arg(tree.join("")).arg(&there));
        assert_exit(&output, 0);
        let summary = summary(&output);
        assert_eq!((&summary["files_done"], &summary["losses"]), (&done.into(), &0.into()), "{summary}");
        for name in ["two", "sub", "sub/three", "sub/large"] {
            assert_eq!(of(&there, name), of(&tree, name), "{name}");
        }
    }
}

/// The copying user may not set the mode and the time of the other user's directory.
#[test]
fn a_colleagues_directory_takes_a_copy() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
    plant(&tree);
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(CARRACK);
    command.args(["cp", "-r"]).arg(tree.join("")).arg(&there).uid(NOBODY).gid(NOBODY);
    let output = run(command.env("HOME", dir.path()));
    assert_exit(&output, 0);
    assert_contents(&tree, &there);
}

/// A bundle of small files is not complete then, and some of its files are in their places.
#[test]
fn what_is_complete_on_a_full_disk_counts() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (mount, tree) = (root.path().join("mnt"), root.path().join("tree"));
    fs::create_dir(&mount).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&mount).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skip("no tmpfs can be mounted");
    }
    let ground = Ground { name: "tmpfs", root, is_mounted: true };
    fs::create_dir(&tree).unwrap();
    for number in 0..100 {
        fs::write(tree.join(number.to_string()), noise(4_000)).unwrap();
    }
    let there = ground.path("there");
    let output = carrack(&["cp", "-r", "--json"], &tree, &there);
    assert_exit(&output, 1);
    let complete = (0..100).filter(|number| there.join(number.to_string()).exists()).count();
    assert!(complete > 0, "{}", talk(&output));
    assert_eq!(summary(&output)["files_done"], complete);
}

/// exFAT by FUSE ignores case; it has no hard links, and ignores a modification time alone.
///
/// Either of two entries may come first. The first keeps its place with all its contents, also those that
/// existed before, and the second fails with all entries in it.
#[test]
fn two_entries_never_share_a_place() {
    if !is_root() {
        return;
    }
    let Some(ground) = exfat() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path(), ground.path("there"));
    plant(tree);
    let sync = || carrack(&["sync", "-a", "--json"], tree, &there);
    for done in [5, 0] {
        let output = sync();
        assert_exit(&output, 0);
        assert_eq!(summary(&output)["files_done"], done, "{}", talk(&output));
        assert_contents(tree, &there);
    }
    // The conflicts are with a small and a large file, and with a directory.
    fs::create_dir(tree.join("SUB")).unwrap();
    fs::write(tree.join("SUB/four"), "another").unwrap();
    fs::write(tree.join("TWO"), "a longer one").unwrap();
    fs::write(tree.join("sub/LARGE"), noise(2_000_000)).unwrap();
    for _ in 0..2 {
        let output = sync();
        assert_exit(&output, 1);
        let failed = failed_beneath(&there, &output);
        let told = format!("{failed:?} {}", talk(&output));
        let is_in = |name: &&str| failed.contains(*name);
        assert_eq!(["two", "TWO"].iter().filter(|name| is_in(name)).count(), 1, "{told}");
        let old =
            ["sub", "sub/three", "sub/other", "sub/large", "sub/LARGE"].iter().filter(|name| is_in(name));
        match ["SUB", "SUB/four"].map(|name| failed.contains(name)) {
            [true, true] => assert_eq!((old.count(), failed.len()), (1, 4), "one of the large files: {told}"),
            [false, false] => assert_eq!((old.count(), failed.len()), (5, 6), "all in the old one: {told}"),
            _ => panic!("a part of a directory: {told}"),
        }
        let is_whole = |name: &str, other: &str| {
            let read = fs::read(there.join(name)).unwrap();
            [name, other].iter().any(|name| read == fs::read(tree.join(name)).unwrap())
        };
        assert!(is_whole("two", "TWO") && is_whole("sub/large", "sub/LARGE"), "one of the two, and whole");
        assert!(is_whole("sub/three", "sub/three") && is_whole("sub/other", "sub/other"));
    }
}

/// Returns the entries that failed.
fn failed_beneath(there: &Path, output: &Output) -> BTreeSet<String> {
    let events = json(output).into_iter().filter(|event| event["event"] == "failed");
    let path = |event: serde_json::Value| event["path"].as_str().unwrap().to_owned();
    let relative = |path: String| Path::new(&path).strip_prefix(there).unwrap().to_str().unwrap().to_owned();
    events.map(path).map(relative).collect()
}

/// An entry that the source has in another spelling, or that was just placed, is not deleted.
#[test]
fn a_name_of_another_case_is_the_same_to_a_deletion() {
    if !is_root() {
        return;
    }
    let Some(ground) = exfat() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path(), ground.path("there"));
    fs::create_dir_all(there.join("DIR")).unwrap();
    fs::create_dir(tree.join("dir")).unwrap();
    for (name, old) in [("readme", "README"), ("dir/f", "DIR/F")] {
        fs::write(tree.join(name), "x").unwrap();
        fs::write(there.join(old), "x").unwrap();
    }
    fs::write(there.join("gone"), "x").unwrap();
    for _ in 0..2 {
        carrack(&["sync", "--delete"], tree, &there);
        assert!(there.join("readme").exists() && there.join("dir/f").exists());
        assert!(!there.join("gone").exists());
    }
    fs::write(tree.join("place"), "x").unwrap();
    fs::create_dir(tree.join("PLACE")).unwrap();
    fs::write(tree.join("PLACE/f"), "x").unwrap();
    let output = carrack(&["sync"], tree, &there);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
}

/// As in a bare chroot: attributes and owners are kept, and the mode of a file that must not be opened is a
/// loss.
#[test]
fn without_proc_little_is_lost() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (dir.path().join("tree"), dir.path().join("there"));
    plant(&tree);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    for name in ["one", "pipe"] {
        chown(tree.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    if setxattr(tree.join("two"), "user.test", b"value", XattrFlags::empty()).is_err() {
        return skip("no attributes here");
    }
    let script = "umount -l /proc && exec \"$@\"";
    for (words, done, losses) in [(["cp", "-a", "--json"], 5, 1), (["sync", "-a", "--json"], 0, 1)] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", CARRACK]).args(words);
        let output = run(command.arg(tree.join("")).arg(&there));
        assert_exit(&output, 0);
        assert_eq!(summary(&output)["files_done"], done, "{}", talk(&output));
        assert_eq!(summary(&output)["losses"], losses, "{}", String::from_utf8_lossy(&output.stdout));
    }
    let mut value = [0; 10];
    assert_eq!(getxattr(there.join("two"), "user.test", &mut value[..]).unwrap(), 5);
    for name in ["one", "pipe"] {
        assert_eq!(fs::symlink_metadata(there.join(name)).unwrap().uid(), NOBODY, "{name}");
    }
}

/// NTFS-3G returns the ACL of a file, but lists none.
#[test]
fn an_acl_that_is_not_listed_is_copied() {
    let made: [&[&str]; 2] = [&["mkntfs", "-Q", "-F", "-q"], &["ntfs-3g", "-o", "permissions,acl"]];
    if !is_root() {
        return;
    }
    let Some(ground) = served("NTFS", made) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (tree, there) = (ground.path("tree"), dir.path().join("there"));
    fs::create_dir(&tree).unwrap();
    for name in ["listed", "plain"] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, user) in
        [(1_u16, 6_u16, u32::MAX), (2, 6, NOBODY), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend_from_slice(&[tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend_from_slice(&user.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    setxattr(tree.join("listed"), name, &acl, XattrFlags::empty()).unwrap();
    if setxattr(dir.path(), name, &acl, XattrFlags::empty()).is_err() {
        return skip("no ACLs here");
    }
    assert_exit(&carrack(&["cp", "-a"], &tree, &there), 0);
    let has = |name: &str| getxattr(there.join(name), "system.posix_acl_access", &mut [0; 256][..]).is_ok();
    assert_eq!(["listed", "plain"].map(has), [true, false]);
    let second = carrack(&["sync", "-a", "--json"], &tree, &there);
    assert_eq!(summary(&second)["files_done"], 0, "{}", talk(&second));
}

fn exfat() -> Option<Ground> {
    served("exFAT", [&["mkfs.exfat"], &["mount", "-t", "exfat-fuse", "-o", "loop"]])
}

/// Makes a file system in an image with one command, and mounts it by FUSE with the other.
fn served(name: &'static str, [make, mount_by]: [&[&str]; 2]) -> Option<Ground> {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let (image, mount) = (root.path().join("image"), root.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    File::create(&image).unwrap().set_len(100 << 20).unwrap();
    let succeeds = |words: &[&str], paths: &[&Path]| {
        let output = Command::new(words[0]).args(&words[1..]).args(paths).output();
        output.is_ok_and(|output| output.status.success())
    };
    let is_mounted = succeeds(make, &[&image]) && succeeds(mount_by, &[&image, &mount]);
    if !is_mounted {
        skip(&format!("no {name} by FUSE"));
        return None;
    }
    Some(Ground { name, root, is_mounted })
}
