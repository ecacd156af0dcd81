//! Objects that go to flash: at the source while the far end takes none, over a real sshd, to a sink that is
//! stopped for a while; at the sink while its storage takes none, to a file system that is made slow for a
//! while.
//!
//! Skipped, with its reason, where there is no sshd, or no FUSE.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::common::CARRACK;
use crate::common::process::{Running, assert_exit, assert_says, run, talk, wait_for};
use crate::common::sshd::Sshd;
use crate::common::storage_double::StorageDouble;
use crate::common::tree::{assert_same, noise};

/// Much slower than the sink and than flash, also while other tests run: where the sink limits a copy from
/// its beginning, flash is left alone.
const SLOW: [&str; 6] = ["--bwlimit", "12MiB", "--buffer", "16MiB", "--retry", "0"];

/// A source on a disk (memory has no use for flash) and a destination behind an sshd.
struct Site {
    sshd: Sshd,
    root: TempDir,
}

impl Site {
    #[track_caller]
    fn new() -> Option<Site> {
        let site = Site { sshd: Sshd::start()?, root: tempfile::tempdir_in("/var/tmp").unwrap() };
        plant(&site.path("source"));
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn copy(&self, more: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r", "--perms", "-v", "--remote-carrack", CARRACK]).args(SLOW).args(more);
        command.arg(self.path("source")).arg(format!("carrack-test:{}", self.path("copy").display()));
        command.env("CARRACK_SSH", self.sshd.ssh());
        command
    }

    /// Copies; the far end is stopped in the middle until `meanwhile` returns.
    #[track_caller]
    fn copy_with_a_pause(&self, more: &[&str], meanwhile: impl FnOnce(&Running)) -> Output {
        let running = Running::start(&mut self.copy(more));
        let session = self.sshd.wait_for_session();
        wait_for("data at the sink", || (bytes_in(&self.path("copy")) > 20_000_000).then_some(()));
        kill_process(session, Signal::STOP).unwrap();
        meanwhile(&running);
        kill_process(session, Signal::CONT).unwrap();
        running.end()
    }

    #[track_caller]
    fn assert_copied(&self, output: &Output) {
        assert_exit(output, 0);
        assert_same(&self.path("source"), &self.path("copy"));
    }
}

fn plant(source: &Path) {
    fs::create_dir(source).unwrap();
    for number in 0..3 {
        fs::write(source.join(number.to_string()), noise(40_000_000 + number)).unwrap();
    }
    for number in 0..200 {
        fs::write(source.join(format!("small {number}")), noise(10_000 + number)).unwrap();
    }
}

/// A source on a disk, and a destination whose writes can be made slow; both ends are one process.
struct SlowSink {
    double: StorageDouble,
    root: TempDir,
}

impl SlowSink {
    #[track_caller]
    fn new() -> Option<SlowSink> {
        let double = StorageDouble::start(&[], |_| ())?;
        let site = SlowSink { double, root: tempfile::tempdir_in("/var/tmp").unwrap() };
        plant(&site.root.path().join("source"));
        Some(site)
    }

    /// Copies; twice in the middle a write takes half a second until `meanwhile` returns.
    #[track_caller]
    fn copy_with_pauses(&self, meanwhile: impl Fn(&Running)) -> Output {
        let to = self.double.path("copy");
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r", "-v", "--no-journal"]).args(SLOW);
        command.args(["--sink-spill", &format!("{}:1GiB", self.root.path().display())]);
        let running = Running::start(command.arg(self.root.path().join("source")).arg(&to));
        wait_for("data at the sink", || (bytes_in(&to) > 20_000_000).then_some(()));
        for _ in 0..2 {
            self.double.ask("rule delay=500:write:count=all");
            meanwhile(&running);
            self.double.ask("clear");
            // Some of the spilled objects are back in the queues.
            thread::sleep(Duration::from_millis(300));
        }
        running.end()
    }

    #[track_caller]
    fn assert_copied(&self, output: &Output) {
        assert_exit(output, 0);
        assert_same(&self.root.path().join("source"), &self.double.path("copy"));
    }
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Waits until objects go to the sink's flash, and some more do.
#[track_caller]
fn pause(running: &Running) {
    running.wait_for_words("receiving on into it");
    thread::sleep(Duration::from_millis(1_500));
}

/// Waits until a source, which writes nothing else, has written this number of bytes to flash.
#[track_caller]
fn wait_for_spilt(running: &Running, bytes: u64) {
    let path = format!("/proc/{}/io", running.id());
    wait_for("objects on flash", || {
        let counters = fs::read_to_string(&path).unwrap();
        let written = counters.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        (written.parse::<u64>().unwrap() >= bytes).then_some(())
    });
}

/// Returns the nameless log of a process in a directory.
fn log_of(running: &Running, directory: &Path) -> File {
    let own = |link: &PathBuf| {
        fs::read_link(link)
            .is_ok_and(|to| to.starts_with(directory) && to.to_string_lossy().ends_with("(deleted)"))
    };
    let descriptors = fs::read_dir(format!("/proc/{}/fd", running.id())).unwrap();
    let path = descriptors.map(|entry| entry.unwrap().path()).find(own).expect("an open log");
    File::options().write(true).open(path).unwrap()
}

#[test]
fn what_cannot_leave_goes_there_and_comes_back() {
    let Some(site) = Site::new() else { return };
    let spill = format!("{}:1GiB", site.root.path().display());
    let output = site.copy_with_a_pause(&["--spill", &spill], |running| wait_for_spilt(running, 20_000_000));
    site.assert_copied(&output);
    assert_says(&output, &["reading on into it", "objects leave again as usual", "at most at a time"]);
    // The log has no name there, and no file is left.
    assert_eq!(fs::read_dir(site.root.path()).unwrap().count(), 2);
}

#[test]
fn what_flash_forgets_is_read_again() {
    let Some(site) = Site::new() else { return };
    let spill = format!("{}:64MiB", site.root.path().display());
    let output = site.copy_with_a_pause(&["--spill", &spill], |running| {
        wait_for_spilt(running, 20_000_000);
        let log = log_of(running, site.root.path());
        log.write_all_at(&vec![0xee; 64 << 20], 0).unwrap();
    });
    site.assert_copied(&output);
    assert_says(&output, &["an object was lost, and is read again"]);
}

#[test]
fn what_the_sinks_storage_does_not_take_goes_there_and_comes_back() {
    let Some(site) = SlowSink::new() else { return };
    let output = site.copy_with_pauses(pause);
    site.assert_copied(&output);
    assert_says(&output, &["receiving on into it", "written again as usual", "at most at a time"]);
    assert_eq!(fs::read_dir(site.root.path()).unwrap().count(), 1, "what is there has no name");
}

#[test]
fn what_flash_at_the_sink_forgets_is_sent_again() {
    let Some(site) = SlowSink::new() else { return };
    let output = site.copy_with_pauses(|running| {
        pause(running);
        let log = log_of(running, site.root.path());
        log.write_all_at(&vec![0xee; 64 << 20], 0).unwrap();
    });
    site.assert_copied(&output);
    assert_says(&output, &["an object was lost, and is read again"]);
}

#[test]
fn no_more_is_written_than_may_be() {
    let Some(site) = Site::new() else { return };
    let spill = format!("{}:1GiB", site.root.path().display());
    let more = ["--spill", &spill, "--spill-budget", "10MiB"];
    let output =
        site.copy_with_a_pause(&more, |running| running.wait_for_words("as much was written as may be"));
    site.assert_copied(&output);
    assert_says(&output, &["as much was written as may be"]);
    let said = talk(&output);
    let written = said.lines().find(|line| line.contains("at most at a time")).unwrap();
    assert!(written.contains(" 9.") || written.contains("10.0 MiB"), "{written}");
}

#[test]
fn a_directory_that_will_not_do_ends_it_at_once() {
    let Some(site) = Site::new() else { return };
    let wrong =
        [("/nowhere:1GiB", "/nowhere"), ("/var/tmp:900PiB", "its space"), ("/var/tmp:1KiB", "no room")];
    let ends = ["--spill", "--sink-spill"];
    for (end, (spill, why)) in ends.iter().flat_map(|end| wrong.map(|wrong| (*end, wrong))) {
        let output = run(&mut site.copy(&[end, spill]));
        assert_ne!(output.status.code(), Some(0));
        assert_says(&output, &[why, "hint: name a directory on flash"]);
        assert!(!site.path("copy").join("0").exists());
    }
}
