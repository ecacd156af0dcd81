//! An attacker swaps directories and links of an export, as fast as the machine can, while others copy to and
//! from it through `carrack serve`: nothing outside is read, written, or even touched.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::{EndSettings, SessionRole};
use carrack_model::AgreedTransferSpec;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat_with};

use crate::daemon::{Copy, Daemon, Site, noise, wait_until};

/// Duration of the attack; `CARRACK_RACE_SECONDS` overrides it.
const SECONDS: u64 = 3;

/// Contents that must not leave, searched in all copies.
const SECRET: &[u8] = b"the secret that lies beside the export";

/// Directories of the copied tree, each with a small and a large file.
const DIRECTORIES: usize = 6;

/// More than one object.
const LARGE_BYTES: usize = 300_000;

/// The transfers in and out of the export at the same time.
struct Race {
    site: Site,
    daemon: Daemon,
    over: AtomicBool,
    swaps: AtomicU64,
    /// Transfers that ended, and failed entries in them.
    transfers: AtomicU64,
    failed: AtomicU64,
}

impl Race {
    fn new() -> Race {
        let site = Site::new();
        let path = site.path();
        for number in 0..DIRECTORIES {
            // The sources, the export and the outside have the same names.
            for tree in ["source", "data/out", "outside"] {
                let directory = path.join(format!("{tree}/d{number}/deep"));
                fs::create_dir_all(&directory).unwrap();
                let is_outside = tree == "outside";
                let small = if is_outside { SECRET.to_vec() } else { noise(100) };
                let large =
                    if is_outside { SECRET.repeat(LARGE_BYTES / SECRET.len()) } else { noise(LARGE_BYTES) };
                fs::write(directory.join("small"), small).unwrap();
                fs::write(directory.join("large"), large).unwrap();
            }
            // Each directory has a link at the same level that leads out: relative, absolute, and to a file.
            for tree in ["data/in", "data/out"] {
                let evil = path.join(format!("{tree}/evil{number}"));
                fs::create_dir_all(path.join(tree)).unwrap();
                match number % 2 {
                    0 => symlink(format!("../../outside/d{number}"), evil).unwrap(),
                    _ => symlink(path.join(format!("outside/d{number}")), evil).unwrap(),
                }
            }
        }
        // The identity is made now, so that the copies need not make it at the same time.
        site.identity("alice");
        let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
        let counter = AtomicU64::default;
        let over = AtomicBool::new(false);
        Race { site, daemon, over, swaps: counter(), transfers: counter(), failed: counter() }
    }

    /// Exchanges directories and their entries with links that lead out, and back.
    fn swap(&self) {
        let path = self.site.path();
        for number in (0..DIRECTORIES).cycle() {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            for (tree, links) in [("data/in/source", "data/in"), ("data/out", "data/out")] {
                let directory = path.join(format!("{tree}/d{number}"));
                for victim in [directory.clone(), directory.join("deep"), directory.join("deep/large")] {
                    self.exchange(&victim, &path.join(format!("{links}/evil{number}")));
                }
            }
        }
    }

    fn exchange(&self, victim: &Path, evil: &Path) {
        // The second exchange restores the entry, so that the race continues.
        for _ in 0..2 {
            if exchange_inside(victim, evil).is_ok() {
                self.swaps.fetch_add(1, Ordering::Relaxed);
            }
            thread::yield_now();
        }
    }

    /// Copies during the attack. Failures are expected; the arrived files are checked.
    fn copy(&self, role: SessionRole) {
        let path = self.site.path();
        let shown = path.display();
        while !self.over.load(Ordering::Relaxed) {
            let back = path.join("back");
            let (from, to) = match role {
                SessionRole::Source => (format!("{shown}/source"), "/data/in".to_owned()),
                SessionRole::Sink => ("/data/out".to_owned(), format!("{shown}/back")),
            };
            let spec =
                AgreedTransferSpec { slot_bytes: 128 << 10, streams: 2, ..AgreedTransferSpec::default() };
            let settings = EndSettings { io_threads: 2, ..EndSettings::default() };
            let copy = Copy { who: Some("alice"), spec, settings, ..Copy::new(role, &from, &to) };
            let outcome = self.site.copy_with(self.daemon.address, copy);
            self.transfers.fetch_add(1, Ordering::Relaxed);
            self.failed.fetch_add(outcome.summary.entries_failed, Ordering::Relaxed);
            if role == SessionRole::Sink && back.exists() {
                assert_no_secret_in(&back);
                fs::remove_dir_all(&back).unwrap();
            }
        }
    }
}

/// Exchanges two entries whose directories are reached over no link. A victim that appears between the two
/// exchanges leaves a link in its place; following that link to the next victim would change files outside.
fn exchange_inside(victim: &Path, evil: &Path) -> io::Result<()> {
    let directory_of = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(CWD, path.parent().unwrap(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
    };
    let (victims, evils) = (directory_of(victim)?, directory_of(evil)?);
    let [victim, evil] = [victim, evil].map(|path| path.file_name().unwrap());
    Ok(renameat_with(victims, victim, evils, evil, RenameFlags::EXCHANGE)?)
}

fn assert_no_secret_in(directory: &Path) {
    for at in everything_in(directory) {
        if at.is_file() && !at.is_symlink() {
            let content = fs::read(&at).unwrap();
            assert!(
                !content.windows(SECRET.len()).any(|window| window == SECRET),
                "{} got out",
                at.display()
            );
        }
    }
}

fn everything_in(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_path_buf()]);
    while let Some(at) = pending.pop() {
        if at.is_dir() && !at.is_symlink() {
            pending.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push(at);
    }
    found
}

/// Returns all entries outside of the export, as `stat` and `cat` show them; access times are left out, as
/// this reads too.
fn outside(site: &Site) -> BTreeMap<PathBuf, String> {
    let describe = |at: PathBuf| {
        let status = fs::symlink_metadata(&at).unwrap();
        let content =
            if status.is_file() { blake3::hash(&fs::read(&at).unwrap()).to_string() } else { String::new() };
        let said = format!(
            "{:o} {} {} {} {}.{} {content}",
            status.mode(),
            status.ino(),
            status.nlink(),
            status.len(),
            status.mtime(),
            status.mtime_nsec()
        );
        (at, said)
    };
    everything_in(&site.path().join("outside")).into_iter().map(describe).collect()
}

#[test]
fn no_swap_of_links_and_directories_leads_out() {
    let seconds = std::env::var("CARRACK_RACE_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let race = &Race::new();
    let before = outside(&race.site);
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| race.swap());
        let copies: Vec<_> = [SessionRole::Source, SessionRole::Sink]
            .into_iter()
            .map(|role| scope.spawn(move || race.copy(role)))
            .collect();
        while began.elapsed() < Duration::from_secs(seconds) && copies.iter().all(|copy| !copy.is_finished())
        {
            thread::sleep(Duration::from_millis(20));
        }
        race.over.store(true, Ordering::Relaxed);
    });
    assert_eq!(outside(&race.site), before);
    let [swaps, transfers, failed] =
        [&race.swaps, &race.transfers, &race.failed].map(|counter| counter.load(Ordering::Relaxed));
    eprintln!("{swaps} swaps during {transfers} transfers in {seconds} s; {failed} entries failed");
    assert!(swaps > 100 && transfers > 2, "no race: {swaps} swaps, {transfers} transfers");
    assert!(failed > 0, "nothing was in anybody's way: the race never hit");
    wait_until("all sessions are over", || race.daemon.children().is_empty());
    // After the attack everything works.
    let from = race.site.path().join("source").display().to_string();
    let outcome = race.site.copy(race.daemon.address, "alice", SessionRole::Source, &from, "/data/calm");
    assert!(outcome.result.is_ok() && outcome.summary.entries_failed == 0, "{outcome:?}");
}
