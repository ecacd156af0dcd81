//! Syncs with deletion while their source changes, vanishes, and is mounted and unmounted at random moments,
//! next to rsync in the same runs.
//!
//! The promise: no file that was at the source at any moment of the run is removed from the destination. Each
//! run follows from its number. `CARRACK_DELETE_RUNS` is the number of runs, `CARRACK_DELETE_RUN` names one.
//! docs/design/testing-faults.md has the figures of a long campaign.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::deletion::Mounted;
use crate::common::CARRACK;
use crate::common::process::Running;

const RUNS: u64 = 50;

/// Longest time from the opening of the source to an event; about the duration of a run.
const LATEST_MS: u64 = 300;

/// The user `nobody`, by convention: an unreadable directory is unreadable to that user.
const NOBODY: u32 = 65_534;

/// SplitMix64: a run must be the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % count
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The whole source is removed.
    Removed,
    /// The whole source gets another name, and perhaps an empty directory its name.
    Renamed,
    Replaced,
    DirectoryRemoved,
    FileRemoved,
    /// A directory, or a file, moves to a place where the scan was, or has not been.
    DirectoryMoved,
    FileMoved,
    /// A directory vanishes, and comes back.
    Flickers,
    Unreadable,
    /// A mounted file system is unmounted; a mount hides a directory.
    Unmounted,
    Remounted,
    MountedOver,
    SourceMountedOver,
}

const EVENTS: [Event; 9] = [
    Event::Removed,
    Event::Renamed,
    Event::Replaced,
    Event::DirectoryRemoved,
    Event::FileRemoved,
    Event::DirectoryMoved,
    Event::FileMoved,
    Event::Flickers,
    Event::Unreadable,
];

const MOUNT_EVENTS: [Event; 4] =
    [Event::Unmounted, Event::Remounted, Event::MountedOver, Event::SourceMountedOver];

const DIRECTORIES: [&str; 6] = ["a", "a/in", "b", "m", "m/in", "z"];

struct Field {
    /// Mounts are dropped before their directory is removed.
    mounts: Vec<Mounted>,
    root: tempfile::TempDir,
}

impl Drop for Field {
    /// Unmounts also what a rename has taken elsewhere, and what another mount has hidden.
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        let below: Vec<&Path> = points.filter(|point| point.starts_with(self.root.path())).collect();
        for point in below.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(point).output();
        }
    }
}

impl Field {
    /// Creates a source, some of whose directories are mounts, and two copies with files that were never at
    /// the source.
    fn new(chance: &mut Chance, mounts: bool) -> Field {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut field = Field { mounts: Vec::new(), root };
        fs::create_dir_all(field.path("src/m")).unwrap();
        if mounts && chance.below(2) == 0 {
            field.mounts.extend(Mounted::memory(&field.path("src/m")));
        }
        for directory in DIRECTORIES {
            fs::create_dir_all(field.path("src").join(directory)).unwrap();
            for name in 0..1 + chance.below(4) {
                fs::write(field.path("src").join(directory).join(format!("f{name}")), directory).unwrap();
            }
        }
        for copy in ["ours", "theirs"] {
            let copied = Command::new("cp").arg("-a").arg(field.path("src")).arg(field.path(copy)).status();
            assert!(copied.unwrap().success());
            for directory in DIRECTORIES {
                fs::write(field.path(copy).join(directory).join("never-there"), "").unwrap();
            }
        }
        // These files take the time of the run, before the small files and after them.
        for name in ["src/a/large", "src/z/large"] {
            fs::write(field.path(name), vec![7; 100_000 + chance.below(150_000) as usize]).unwrap();
        }
        field
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Returns the files and directories of the source, or of a copy.
    fn files(&self, tree: &str) -> BTreeSet<PathBuf> {
        let (top, mut found, mut waiting) = (self.path(tree), BTreeSet::new(), vec![PathBuf::new()]);
        while let Some(path) = waiting.pop() {
            for entry in fs::read_dir(top.join(&path)).into_iter().flatten().flatten() {
                let inner = path.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(inner.clone());
                }
                found.insert(inner);
            }
        }
        found
    }

    /// Events that an earlier event made impossible are skipped.
    fn happens(&mut self, event: Event, chance: &mut Chance) {
        let directory = self.path("src").join(chance.of(&DIRECTORIES));
        let other = self.path("src").join(chance.of(&DIRECTORIES));
        let is_mounted = !self.mounts.is_empty();
        match event {
            Event::Removed => drop(fs::remove_dir_all(self.path("src"))),
            Event::Renamed => drop(fs::rename(self.path("src"), self.path("away"))),
            Event::Replaced => {
                let _ = fs::rename(self.path("src"), self.path("away"))
                    .and_then(|()| fs::create_dir(self.path("src")));
            }
            Event::DirectoryRemoved => drop(fs::remove_dir_all(&directory)),
            Event::FileRemoved => drop(fs::remove_file(directory.join("f0"))),
            Event::DirectoryMoved => drop(fs::rename(&directory, other.join("moved"))),
            Event::FileMoved => drop(fs::rename(directory.join("f0"), other.join("moved"))),
            Event::Flickers => {
                let _ = fs::rename(&directory, self.path("away"));
                thread::sleep(Duration::from_millis(chance.below(40)));
                let _ = fs::rename(self.path("away"), &directory);
            }
            Event::Unreadable => {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o0);
                let _ = fs::set_permissions(&directory, mode);
            }
            Event::Unmounted => self.mounts.clear(),
            Event::Remounted if is_mounted => {
                self.mounts.clear();
                self.mounts.extend(Mounted::memory(&self.path("src/m")));
            }
            Event::Remounted => {}
            Event::MountedOver => self.mounts.extend(Mounted::memory(&directory)),
            Event::SourceMountedOver => self.mounts.extend(Mounted::memory(&self.path("src"))),
        }
    }
}

/// Starts a program, and waits until it has opened the source, which from then on is the source of this run.
fn start(command: &mut Command, source: &Path) -> Running {
    let running = Running::start(command);
    let descriptors = PathBuf::from(format!("/proc/{}/fd", running.id()));
    let deadline = Instant::now() + Duration::from_secs(60);
    // rsync changes to that directory.
    let directory = PathBuf::from(format!("/proc/{}/cwd", running.id()));
    let is_there = |link: &Path| fs::read_link(link).is_ok_and(|path| path.starts_with(source));
    loop {
        let opened: Vec<PathBuf> =
            fs::read_dir(&descriptors).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let has_ended = opened.is_empty();
        let has_opened = is_there(&directory) || opened.iter().any(|link| is_there(link));
        if has_ended || has_opened || Instant::now() > deadline {
            break;
        }
        thread::sleep(Duration::from_micros(200));
    }
    running
}

/// The losses of both programs.
#[derive(Default)]
struct Losses {
    ours: Vec<PathBuf>,
    theirs: usize,
    /// Files that were never at the source and are gone: deletion has worked.
    ours_deleted: usize,
    theirs_deleted: usize,
    told: String,
}

fn one_run(number: u64, mounts: bool, has_rsync: bool) -> Losses {
    let mut chance = Chance(number);
    let mut field = Field::new(&mut chance, mounts);
    let before = field.files("src");
    let as_nobody = mounts && chance.below(3) == 0;
    if as_nobody {
        let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(field.root.path()).status();
        assert!(owned.unwrap().success());
    }
    let source = field.path("src");
    let mut typed = source.clone().into_os_string();
    typed.push("/");
    let before_all = chance.below(4) == 0;
    let mut carrack = Command::new(CARRACK);
    carrack.args(["sync", "--no-journal", "--buffer", "8MiB", "--sharing", "off", "--bwlimit", "1500KB"]);
    carrack.args(["--object-size", "128KiB", if before_all { "--delete-before" } else { "--delete" }]);
    carrack.env("HOME", field.root.path()).env("XDG_STATE_HOME", field.path("state"));
    carrack.arg(&typed).arg(field.path("ours"));
    let mut rsync = Command::new("rsync");
    rsync.args(["-r", "--times", "--bwlimit=1500", if before_all { "--delete-before" } else { "--delete" }]);
    rsync.arg(&typed).arg(field.path("theirs")).stdout(Stdio::null()).stderr(Stdio::null());
    if as_nobody {
        carrack.uid(NOBODY);
        rsync.uid(NOBODY);
    }
    let theirs = has_rsync.then(|| start(&mut rsync, &source));
    let ours = start(&mut carrack, &source);
    let mut moments: Vec<u64> = (0..1 + chance.below(3)).map(|_| chance.below(LATEST_MS)).collect();
    moments.sort_unstable();
    let (began, mut events) = (Instant::now(), Vec::new());
    for moment in moments {
        thread::sleep(Duration::from_millis(moment).saturating_sub(began.elapsed()));
        let is_mount = mounts && chance.below(2) == 0;
        let event = if is_mount { chance.of(&MOUNT_EVENTS) } else { chance.of(&EVENTS) };
        field.happens(event, &mut chance);
        events.push((moment, event));
    }
    let output = ours.end();
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "run {number}: {output:?}");
    if let Some(theirs) = theirs {
        theirs.end();
    }
    let lost = |copy: &str| {
        let left = field.files(copy);
        before.iter().filter(|path| !path.ends_with("large") && !left.contains(*path)).cloned().collect()
    };
    let (ours, theirs): (Vec<PathBuf>, Vec<PathBuf>) = (lost("ours"), lost("theirs"));
    let deleted = |copy: &str| {
        let is_gone = |directory: &&&str| !field.path(copy).join(directory).join("never-there").exists();
        DIRECTORIES.iter().filter(is_gone).count()
    };
    Losses {
        theirs: theirs.len(),
        ours_deleted: deleted("ours"),
        theirs_deleted: deleted("theirs"),
        told: format!(
            "run {number} {events:?}: exit {:?}, lost {ours:?}\n{}",
            output.status.code(),
            String::from_utf8_lossy(&output.stderr)
        ),
        ours,
    }
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn nothing_is_deleted_that_was_at_the_source_during_the_run() {
    let scratch = tempfile::tempdir().unwrap();
    let mounts = Mounted::memory(scratch.path()).is_some();
    if !mounts {
        crate::common::say_skipped("the runs with mounts: can't mount");
    }
    let has_rsync = Command::new("rsync").arg("--version").output().is_ok_and(|said| said.status.success());
    let runs: Vec<u64> = match number_in("CARRACK_DELETE_RUN") {
        Some(number) => vec![number],
        None => (0..number_in("CARRACK_DELETE_RUNS").unwrap_or(RUNS)).collect(),
    };
    let next = AtomicU64::new(0);
    let work = || {
        let number = || runs.get(next.fetch_add(1, Ordering::Relaxed) as usize).copied();
        std::iter::from_fn(number).map(|number| one_run(number, mounts, has_rsync)).collect::<Vec<Losses>>()
    };
    let losses: Vec<Losses> = thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let sum = |count: fn(&Losses) -> usize| losses.iter().map(count).sum::<usize>();
    let lossy = |is_lossy: fn(&&Losses) -> bool| losses.iter().filter(is_lossy).count();
    println!(
        "{} runs: carrack lost {} entries in {} runs and deleted {} that were never at the source; rsync {} in {}, and {}",
        losses.len(),
        sum(|run| run.ours.len()),
        lossy(|run| !run.ours.is_empty()),
        sum(|run| run.ours_deleted),
        sum(|run| run.theirs),
        lossy(|run| run.theirs > 0),
        sum(|run| run.theirs_deleted),
    );
    let told: Vec<&str> =
        losses.iter().filter(|run| !run.ours.is_empty()).map(|run| &*run.told).take(5).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert!(losses.len() < 20 || sum(|run| run.ours_deleted) > 0, "nothing was deleted at all");
}
