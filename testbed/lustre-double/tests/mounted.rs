//! The double, mounted: what a client of Lustre sees, in the cases that matter to a mover.
//!
//! Skipped, with the reason, where nobody can mount.

#![allow(clippy::unwrap_used)] // Also in helpers.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

const MIB: usize = 1 << 20;
/// `O_LOV_DELAY_CREATE`.
const DELAY_CREATE: i32 = 0x2100;
/// Many times what anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The mounted double; dropped, it is told to end, which unmounts it.
struct Mounted {
    process: Child,
    root: tempfile::TempDir,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.end();
    }
}

impl Mounted {
    fn start(options: &[&str]) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: mounting takes root and /dev/fuse");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("mnt")).unwrap();
        let mut mounted = Mounted { process: Mounted::spawn(root.path(), options), root };
        mounted.wait_until_mounted();
        Some(mounted)
    }

    fn spawn(root: &Path, options: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carrack-testbed-lustre"));
        command.current_dir(root).args(["--targets", "ost0,ost1,ost2,ost3", "--mdt", "mdt"]);
        command.args(["--pool", "flash=1,3"]).args(options).arg("mnt").stdin(Stdio::null());
        command.spawn().unwrap()
    }

    fn wait_until_mounted(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.path(".control").exists() {
            assert!(Instant::now() < deadline, "it doesn't mount");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it, which unmounts it.
    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }

    fn restart(&mut self, options: &[&str]) {
        self.end();
        assert!(!self.path(".control").exists(), "still mounted");
        self.process = Mounted::spawn(self.root.path(), options);
        self.wait_until_mounted();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("mnt").join(path)
    }

    fn control(&self, name: &str) -> String {
        fs::read_to_string(self.path(".control").join(name)).unwrap()
    }

    /// Objects on all targets.
    fn objects(&self) -> usize {
        (0..4).map(|ost| fs::read_dir(self.root.path().join(format!("ost{ost}"))).unwrap().count()).sum()
    }

    fn lov(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(self.path(path), "lustre.lov", &mut value)?;
        value.truncate(length);
        Ok(value)
    }

    /// A file's targets, from the bytes of a plain layout without a pool.
    fn targets(&self, path: &str) -> Vec<u8> {
        self.lov(path).unwrap()[32..].chunks(24).map(|object| object[20]).collect()
    }

    fn set_lov(&self, path: &str, value: &[u8]) -> Result<(), Errno> {
        rustix::fs::setxattr(self.path(path), "lustre.lov", value, XattrFlags::empty())
    }

    /// New, and without a layout.
    fn create_delayed(&self, path: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(DELAY_CREATE);
        options.open(self.path(path)).unwrap()
    }
}

/// The head of lov_user_md_v1 (or _v3, with a pool) that a client sets.
fn wish(count: u16, stripe_bytes: u32, first: u16, pool: &str) -> Vec<u8> {
    let magic: u32 = if pool.is_empty() { 0x0BD1_0BD0 } else { 0x0BD3_0BD0 };
    let mut bytes = [magic.to_le_bytes(), [0; 4]].concat();
    bytes.extend([0; 16]);
    bytes.extend(stripe_bytes.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    if !pool.is_empty() {
        bytes.extend(pool.bytes().chain(std::iter::repeat(0)).take(16));
    }
    bytes
}

const ANY: u16 = 0xffff;

fn errno(result: std::io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

// Layouts.

#[test]
fn a_wish_before_the_first_write_is_granted() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    let mut file = mounted.create_delayed("f");
    assert_eq!(mounted.lov("f"), Err(Errno::NODATA));
    assert_eq!(errno(file.write_all(b"x")), Some(Errno::BADF.raw_os_error()));
    mounted.set_lov("f", &wish(3, 65_536, ANY, "")).unwrap();
    file.write_all(&vec![7; 5 * 65_536]).unwrap();
    assert_eq!(mounted.targets("f"), [0, 1, 2]);
    assert_eq!(mounted.control("traffic"), "0 0 131072\n1 0 131072\n2 0 65536\n3 0 0\n");
    assert_eq!(mounted.lov("f").unwrap()[28..32], [3, 0, 0, 0]);
}

#[test]
fn a_late_wish_changes_nothing_and_says_nothing() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    File::create(mounted.path("f")).unwrap();
    let before = mounted.lov("f");
    assert_eq!(mounted.set_lov("f", &wish(4, 65_536, ANY, "")), Ok(()));
    assert_eq!((mounted.lov("f"), mounted.targets("f").len()), (before, 1));

    let Some(strict) = Mounted::start(&["--refuse-late-layouts"]) else { return };
    File::create(strict.path("f")).unwrap();
    assert_eq!(strict.set_lov("f", &wish(4, 65_536, ANY, "")), Err(Errno::EXIST));
}

#[test]
fn nonsense_is_refused() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    mounted.create_delayed("f");
    for (value, expected) in [
        (wish(1, 65_536, ANY, "tape"), Errno::INVAL),
        (wish(1, 65_537, ANY, ""), Errno::INVAL),
        (wish(1, 65_536, 4, ""), Errno::INVAL),
        (vec![1; 40], Errno::INVAL),
        (vec![0xd0, 0x0b, 0xd1, 0x0b], Errno::RANGE),
    ] {
        assert_eq!(mounted.set_lov("f", &value), Err(expected), "{value:x?}");
    }
    mounted.set_lov("f", &wish(2, 0, ANY, "flash")).unwrap();
    let lov = mounted.lov("f").unwrap();
    assert_eq!((&lov[32..38], [lov[48 + 20], lov[72 + 20]]), (&b"flash\0"[..], [1, 3]));
}

#[test]
fn a_directorys_default_is_inherited() {
    let Some(mounted) = Mounted::start(&["--stripe", "-1:65536"]) else { return };
    assert_eq!(mounted.lov("").unwrap()[24..], [0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]);
    fs::create_dir(mounted.path("d")).unwrap();
    let two = wish(2, 131_072, ANY, "");
    mounted.set_lov("d", &two).unwrap();
    fs::create_dir(mounted.path("d/deeper")).unwrap();
    fs::write(mounted.path("d/deeper/f"), "x").unwrap();
    fs::write(mounted.path("f"), "x").unwrap();
    assert_eq!((mounted.targets("d/deeper/f").len(), mounted.targets("f").len()), (2, 4));
    assert_eq!(mounted.lov("d/deeper").unwrap()[24..], two[24..]);
    mounted.set_lov("d", &wish(0, 0, ANY, "")).unwrap();
    assert_eq!(mounted.lov("d"), mounted.lov(""));
}

#[test]
fn the_attribute_is_listed() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    fs::write(mounted.path("f"), "x").unwrap();
    rustix::fs::setxattr(mounted.path("f"), "user.mine", b"1", XattrFlags::empty()).unwrap();
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(mounted.path("f"), &mut names).unwrap();
    assert_eq!(&names[..length], b"user.mine\0lustre.lov\0trusted.lov\0");
}

// Files and names.

#[test]
fn data_lies_in_stripes_on_the_targets() {
    let Some(mounted) = Mounted::start(&["--stripe", "2:65536"]) else { return };
    let data: Vec<u8> = (0..3 * 65_536 + 5).map(|at: u32| (at / 65_536 + 1) as u8).collect();
    fs::write(mounted.path("f"), &data).unwrap();
    let object = |ost: &str| {
        let entry = fs::read_dir(mounted.root.path().join(ost)).unwrap().next().unwrap().unwrap();
        fs::read(entry.path()).unwrap()
    };
    let expect = |parts: &[(u8, usize)]| -> Vec<u8> {
        parts.iter().flat_map(|&(byte, count)| std::iter::repeat_n(byte, count)).collect()
    };
    assert!(object("ost0") == expect(&[(1, 65_536), (3, 65_536)]));
    assert!(object("ost1") == expect(&[(2, 65_536), (4, 5)]));
    assert_eq!(fs::read(mounted.path("f")).unwrap(), data);
}

#[test]
fn a_restart_finds_everything() {
    let Some(mut mounted) = Mounted::start(&["--stripe", "4:65536"]) else { return };
    fs::write(mounted.path("f"), vec![7; MIB]).unwrap();
    let (lov, targets) = (mounted.lov("f"), mounted.targets("f"));
    mounted.restart(&[]);
    assert_eq!((mounted.lov("f"), mounted.targets("f")), (lov, targets));
    assert_eq!(fs::read(mounted.path("f")).unwrap(), vec![7; MIB]);
}

#[test]
fn objects_go_with_the_last_name_and_handle() {
    let Some(mounted) = Mounted::start(&["--stripe", "2:65536"]) else { return };
    fs::write(mounted.path("f"), vec![1; MIB]).unwrap();
    fs::hard_link(mounted.path("f"), mounted.path("g")).unwrap();
    let mut open = File::open(mounted.path("f")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    fs::remove_file(mounted.path("g")).unwrap();
    assert_eq!(mounted.objects(), 2);
    let mut data = Vec::new();
    open.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), MIB);
    drop(open);
    wait_until(|| mounted.objects() == 0);

    fs::write(mounted.path("a"), "a").unwrap();
    fs::write(mounted.path("b"), "b").unwrap();
    fs::rename(mounted.path("a"), mounted.path("b")).unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"a");
    wait_until(|| mounted.objects() == 2);
}

/// The kernel closes when it likes.
fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn names_as_on_any_other_file_system() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    for name in ["a", "b"] {
        fs::write(mounted.path(name), name).unwrap();
    }
    let rename = |flags| rustix::fs::renameat_with(CWD, mounted.path("a"), CWD, mounted.path("b"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename(RenameFlags::EXCHANGE), Ok(()));
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"b");

    std::os::unix::fs::symlink("a", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("a"));
    fs::create_dir(mounted.path("many")).unwrap();
    for number in 0..1_000 {
        rustix::fs::mknodat(
            CWD,
            mounted.path("many").join(number.to_string()),
            rustix::fs::FileType::RegularFile,
            Mode::RUSR,
            0,
        )
        .unwrap();
    }
    let mut names: Vec<u32> = fs::read_dir(mounted.path("many"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    names.sort_unstable();
    assert!(names.into_iter().eq(0..1_000));
    assert!(fs::remove_dir(mounted.path("many")).is_err());
    fs::remove_dir_all(mounted.path("many")).unwrap();

    let mut listed: Vec<_> =
        fs::read_dir(mounted.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    listed.sort();
    assert_eq!(listed, ["a", "b", "link"], "the control directory is not listed");
}

#[test]
fn attributes_are_kept() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    let file = File::create(mounted.path("f")).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::chownat(
        CWD,
        mounted.path("f"),
        Some(rustix::fs::Uid::from_raw(12)),
        Some(rustix::fs::Gid::from_raw(34)),
        AtFlags::empty(),
    )
    .unwrap();
    let before_1970 = std::time::UNIX_EPOCH - Duration::from_nanos(1);
    file.set_modified(before_1970).unwrap();
    file.write_all_at(b"", 0).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o100_640, 12, 34));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-1, 0), "whole seconds, as Lustre has them");
    file.write_all_at(b"new", 0).unwrap();
    assert!(mounted.path("f").metadata().unwrap().mtime() > 0);
}

#[test]
fn sizes_are_cut_and_extended() {
    let Some(mounted) = Mounted::start(&["--stripe", "3:65536"]) else { return };
    let mut file = File::options().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
    file.write_all(&vec![1; 400_000]).unwrap();
    file.set_len(100_000).unwrap();
    file.set_len(300_000).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 500_000).unwrap();
    file.rewind().unwrap();
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), 500_000);
    assert!(data[..100_000].iter().all(|&byte| byte == 1) && data[100_000..].iter().all(|&byte| byte == 0));
    file.sync_all().unwrap();
}

#[test]
fn there_are_no_nameless_files() {
    let Some(mounted) = Mounted::start(&[]) else { return };
    let opened = rustix::fs::open(mounted.path(""), OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR);
    assert_eq!(opened.err(), Some(Errno::OPNOTSUPP));
}

// What it is for.

#[test]
fn delays_are_a_targets_own_and_can_be_changed() {
    let Some(mounted) = Mounted::start(&["--stripe", "1:65536", "--delay-ms", "1:300"]) else { return };
    for name in ["on0", "on1"] {
        fs::write(mounted.path(name), "x").unwrap();
    }
    let seconds = |name: &str| {
        let start = Instant::now();
        fs::read(mounted.path(name)).unwrap();
        start.elapsed().as_secs_f64()
    };
    assert!(seconds("on1") >= 0.3);
    assert_eq!(mounted.control("delay"), "0:0\n1:300\n2:0\n3:0\n");
    fs::write(mounted.path(".control/delay"), "0:300\n1:0\n").unwrap();
    assert!(seconds("on0") >= 0.3);
    assert!(fs::write(mounted.path(".control/delay"), "7:1").is_err());
}

#[test]
fn a_slow_target_does_not_hold_up_the_others() {
    let Some(mounted) = Mounted::start(&["--stripe", "1:65536"]) else { return };
    for name in ["on0", "on1"] {
        fs::write(mounted.path(name), vec![1; MIB]).unwrap();
    }
    fs::write(mounted.path(".control/delay"), "0:2000").unwrap();
    let file = File::open(mounted.path("on0")).unwrap();
    thread::scope(|scope| {
        let slow: Vec<_> = (0..8)
            .map(|part| {
                let file = &file;
                scope.spawn(move || file.read_exact_at(&mut vec![0; MIB / 8], part * MIB as u64 / 8).unwrap())
            })
            .collect();
        fs::read(mounted.path("on1")).unwrap();
        assert!(slow.iter().any(|thread| !thread.is_finished()), "the fast one was not first");
    });
}

#[test]
fn it_ends_as_soon_as_the_last_file_is_closed() {
    let Some(mut lustre) = Mounted::start(&[]) else { return };
    let open = File::create(lustre.path("open")).unwrap();
    kill_process(Pid::from_child(&lustre.process), Signal::TERM).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(lustre.process.try_wait().unwrap().is_none());
    drop(open);
    let deadline = Instant::now() + PATIENCE;
    while lustre.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it doesn't end");
        thread::sleep(Duration::from_millis(5));
    }
}
