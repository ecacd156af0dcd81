//! The double, mounted: a file system as programs expect it, told what to do through its socket.
//!
//! Skipped, with the reason, where nobody can mount.

#![allow(clippy::unwrap_used)] // Also in helpers.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// Many times what anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The mounted double; dropped, it is told to end, which unmounts it.
struct Mounted {
    process: Child,
    root: tempfile::TempDir,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It can only fail for a process that has ended.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let ended = self.process.wait();
        if !thread::panicking() {
            assert!(ended.unwrap().success());
        }
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
        fs::create_dir(root.path().join("from")).unwrap();
        fs::write(root.path().join("from/f"), "first").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_carrack-testbed-storage"));
        command.current_dir(root.path()).args(["serve", "--control", "control", "--from", "from"]);
        let process = command.args(options).arg("mnt").stdin(Stdio::null()).spawn().unwrap();
        let mounted = Mounted { process, root };
        wait_until("it is mounted", || mounted.path("f").exists());
        Some(mounted)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("mnt").join(path)
    }

    #[track_caller]
    fn ask(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.root.path().join("control")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_suffix("ok\n").unwrap_or_else(|| panic!("{line}: {answer}")).to_owned()
    }
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap()
}

#[test]
fn files_directories_links_and_attributes() {
    let Some(double) = Mounted::start(&[]) else { return };
    assert_eq!(fs::read(double.path("f")).unwrap(), b"first");
    fs::create_dir_all(double.path("d/e")).unwrap();
    let file = File::create(double.path("d/g")).unwrap();
    file.write_all_at(b"there", 1 << 20).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    file.set_modified(std::time::UNIX_EPOCH - Duration::from_nanos(1)).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec()), (0o640, -1, 999_999_999));
    assert_eq!((metadata.len(), metadata.blocks()), ((1 << 20) + 5, 8));
    file.set_len(3).unwrap();
    assert_eq!(fs::read(double.path("d/g")).unwrap(), [0; 3]);
    fallocate(&file, FallocateFlags::empty(), 0, 9).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9);

    symlink("anywhere", double.path("l")).unwrap();
    assert_eq!(fs::read_link(double.path("l")).unwrap(), Path::new("anywhere"));
    fs::hard_link(double.path("f"), double.path("d/h")).unwrap();
    assert_eq!(fs::metadata(double.path("f")).unwrap().nlink(), 2);
    assert_eq!(errno(fs::remove_dir(double.path("d")).unwrap_err()), Errno::NOTEMPTY);
    assert_eq!(errno(File::create_new(double.path("f")).unwrap_err()), Errno::EXIST);
    let refused = renameat_with(CWD, double.path("l"), CWD, double.path("f"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(Errno::EXIST));
    renameat_with(CWD, double.path("l"), CWD, double.path("f"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(double.path("l")).unwrap(), b"first");

    // Without a name, while it is open.
    let held = File::open(double.path("d/h")).unwrap();
    fs::remove_file(double.path("d/h")).unwrap();
    fs::rename(double.path("d/g"), double.path("l")).unwrap();
    let mut text = String::new();
    (&held).read_to_string(&mut text).unwrap();
    assert_eq!((&*text, held.metadata().unwrap().nlink()), ("first", 0));
    let mut names: Vec<_> =
        fs::read_dir(double.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["d", "f", "l"]);
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let Some(double) = Mounted::start(&["--record"]) else { return };
    let file = File::create(double.path("g")).unwrap();
    (&file).write_all(b"kept").unwrap();
    file.sync_data().unwrap();
    File::open(double.path("")).unwrap().sync_all().unwrap();
    (&file).write_all(b"lost").unwrap();
    drop(file);
    let log = double.ask("log");
    let log: Vec<_> = log.lines().collect();
    assert_eq!(log, ["create g", "write g 0+4", "datasync g", "syncdir ", "write g 4+4"]);

    let image = double.root.path().join("image");
    assert_eq!(double.ask(&format!("image 4 4 {}", image.display())), "Everything\n");
    assert_eq!(fs::read(image.join("g")).unwrap(), b"kept");
    assert_eq!(double.ask("cut 5 0"), "Nothing\n");
    assert_eq!(fs::read(double.path("g")).unwrap(), b"kept");
    assert_eq!(fs::read(double.path("f")).unwrap(), b"first");
    assert_eq!(double.ask("log"), "");

    double.ask("unmount");
    assert!(!double.path("g").exists());
    double.ask("mount");
    assert!(double.path("g").exists());
}

#[test]
fn rules_fail_what_they_name() {
    let Some(double) = Mounted::start(&["--rule", "ENOSPC:write:path=g:nth=2"]) else { return };
    let mut file = File::create(double.path("g")).unwrap();
    file.write_all(b"first").unwrap();
    assert_eq!(errno(file.write_all(b"second").unwrap_err()), Errno::NOSPC);
    file.write_all(b"third").unwrap();
    double.ask("rule EIO:sync");
    assert_eq!(errno(file.sync_all().unwrap_err()), Errno::IO);
    file.sync_all().unwrap();
    double.ask("rule EDQUOT:rename:count=all");
    assert_eq!(errno(fs::rename(double.path("g"), double.path("f")).unwrap_err()), Errno::DQUOT);
    assert_eq!(fs::read(double.path("f")).unwrap(), b"first");
    assert!(double.ask("rules").contains("ENOSPC:write:path=g:nth=2 matches=3 hits=1"));
    double.ask("clear");
    fs::rename(double.path("g"), double.path("f")).unwrap();
    assert_eq!(fs::read(double.path("f")).unwrap(), b"firstthird");
}

#[test]
fn what_hangs_goes_on_when_released() {
    let Some(double) = Mounted::start(&["--rule", "hang:sync"]) else { return };
    let file = OpenOptions::new().write(true).open(double.path("f")).unwrap();
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_all());
        wait_until("it hangs", || double.ask("rules").contains("hanging 1"));
        double.ask("release");
        syncing.join().unwrap().unwrap();
    });
}

#[test]
fn damage_is_at_rest_behind_the_page_cache() {
    let Some(double) = Mounted::start(&["--rule", "flip:write"]) else { return };
    let data = vec![7; 10_000];
    fs::write(double.path("g"), &data).unwrap();
    assert_eq!(fs::read(double.path("g")).unwrap(), data);
    let file = File::open(double.path("g")).unwrap();
    let fresh = || {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let damaged = fs::read(double.path("g")).unwrap();
        (0..data.len()).filter(|&at| damaged[at] != data[at]).collect::<Vec<_>>()
    };
    let [at] = fresh()[..] else { panic!("one byte of {:?}", fresh()) };
    let report = double.ask("rules");
    let flipped = report.lines().last().unwrap();
    let parts: Vec<&str> = flipped.split(' ').collect();
    assert_eq!((parts[0], parts[1].parse(), parts[3]), ("flipped", Ok(at), "g"));

    let mut expected = vec![at, 9_999];
    double.ask("flip 9999 7 g");
    expected.sort_unstable();
    assert_eq!(fresh(), expected);
}
