//! An attacker under the base: threads swap directories, files and links there as fast as they can, while
//! others make, write, list, look, read and remove beneath it. Nothing outside may be touched, nor anything
//! of it be seen; and no hostile name may lead there.
//!
//! `CARRACK_RACE_SECONDS` says how long each race takes (2 by default). Every test runs a second time in a
//! process of its own whose kernel answers `ENOSYS` to `openat2`, as one before Linux 5.6 does.
#![allow(clippy::unwrap_used)] // Also in helpers.
#![allow(unsafe_code)] // Installing the filter that takes `openat2` away.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow::Continue;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use carrack_layout::{FileSystems, RequestedLayout};
use carrack_model::{Metadata, ModifyWindow, RelPath, SourceReadMethod, Timestamp};
use carrack_storage::{
    AttributeWriter, CommitCare, DestinationTimePrecision, DirectoryMetadataSpool, EntryPlace, FileIdentity,
    ListingItem, NewLargeFileSpec, PathBase, PathPurpose, RootDirectory, ScratchNames, SourceFile,
    UncommittedFile, WriteIoMethod, place_small, place_symlink,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Names that stand outside only.
const OUTSIDE_NAMES: [&str; 4] = ["canary", "shut", "deep", "victim"];

const SECRET: &[u8] = b"nobody beneath the base may read this";

/// `top/base`, which is attacked, and `top/outside`, which is watched.
struct Arena {
    dir: tempfile::TempDir,
}

/// What can be seen of one file or directory outside, its contents apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    status: [i64; 12],
    content: Vec<u8>,
}

impl Arena {
    fn new() -> Arena {
        let arena = Arena { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(arena.outside().join("deep/deep")).unwrap();
        fs::create_dir(arena.outside().join("shut")).unwrap();
        for file in ["canary", "victim", "deep/canary", "deep/deep/canary", "shut/victim"] {
            fs::write(arena.outside().join(file), SECRET).unwrap();
        }
        fs::create_dir(arena.base()).unwrap();
        arena
    }

    fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// Everything outside: names, contents, modes, owners, links, and times of change.
    fn outside_now(&self) -> BTreeMap<PathBuf, Seen> {
        let mut seen = BTreeMap::new();
        let mut pending = vec![self.outside()];
        while let Some(path) = pending.pop() {
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            seen.insert(path, Seen { status: status(&found), content });
        }
        seen
    }
}

fn status(found: &fs::Metadata) -> [i64; 12] {
    [
        found.dev() as i64,
        found.ino() as i64,
        i64::from(found.mode()),
        found.nlink() as i64,
        i64::from(found.uid()),
        i64::from(found.gid()),
        found.size() as i64,
        found.blocks() as i64,
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ]
}

/// What happened, to show that it was a race.
#[derive(Debug, Default)]
struct Counts {
    swaps: AtomicU64,
    done: [AtomicU64; 8],
    refused: [AtomicU64; 8],
}

const WORKS: [&str; 8] = ["make", "place", "grow", "link", "list", "read", "remove", "metadata"];

impl Counts {
    fn note<T, E>(&self, work: usize, result: &Result<T, E>) {
        let counter = if result.is_ok() { &self.done[work] } else { &self.refused[work] };
        counter.fetch_add(1, Relaxed);
    }

    fn print(&self, seconds: u64) {
        println!("{seconds} s: {} swaps", self.swaps.load(Relaxed));
        for (index, work) in WORKS.iter().enumerate() {
            let (done, refused) = (self.done[index].load(Relaxed), self.refused[index].load(Relaxed));
            println!("{work:>9}: {done} done, {refused} refused");
        }
    }
}

fn rel(path: impl AsRef<[u8]>) -> RelPath {
    RelPath::new(path.as_ref()).unwrap()
}

const METADATA: Metadata = Metadata { mode: 0o640, mtime: Timestamp { seconds: 1, nanoseconds: 2 } };

/// Directories that are swapped, at both levels.
const TOPS: [&str; 3] = ["d0", "d1", "d2"];

/// Swaps, lets others run for a moment, and brings back what they removed.
fn attack(arena: &Arena, index: usize, counts: &Counts, over: &AtomicBool) {
    let base = arena.base();
    let top = base.join(TOPS[index]);
    let (link, inner, file) =
        (base.join(format!("l{index}")), base.join(format!("m{index}")), base.join(format!("f{index}")));
    let swap = |a: &Path, b: &Path| {
        let swapped = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
        counts.swaps.fetch_add(u64::from(swapped.is_ok()), Relaxed);
    };
    let mut chance = index as u64 + 1;
    while !over.load(Relaxed) {
        // Knuth's constants for a linear congruential generator (MMIX).
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match chance >> 60 {
            0..6 => swap(&top, &link),
            6..10 => swap(&top.join("sub"), &inner),
            10..14 => swap(&top.join("file"), &file),
            14 => heal(arena, index),
            _ => thread::sleep(Duration::from_micros((chance >> 50) % 64)),
        }
        (0..(chance >> 40) % 1_024).for_each(|_| std::hint::spin_loop());
    }
}

/// Whatever was removed or replaced of what is swapped is there again: of each two, one is a link out.
fn heal(arena: &Arena, index: usize) {
    let base = arena.base();
    let top = base.join(TOPS[index]);
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let pairs = [
        (top.clone(), base.join(format!("l{index}")), out_of(arena, index)),
        (top.join("sub"), base.join(format!("m{index}")), "../../outside".into()),
        (top.join("file"), base.join(format!("f{index}")), arena.outside().join("victim")),
    ];
    for (_, link, text) in pairs.iter().filter(|(real, link, _)| !is_link(real) && !is_link(link)) {
        let _ = fs::remove_file(link);
        let _ = fs::remove_dir_all(link);
        let _ = symlink(text, link);
    }
    let _ = fs::create_dir(&top);
    if !is_link(&top) {
        let _ = fs::create_dir(top.join("sub"));
    }
    let _ = symlink(TOPS[index], base.join(format!("in{index}")));
}

/// The text of a link out: absolute, relative, or through `/proc`.
fn out_of(arena: &Arena, index: usize) -> PathBuf {
    let outside = arena.outside();
    match index {
        0 => outside,
        1 => "../outside".into(),
        _ => PathBuf::from(format!("/proc/self/root{}", outside.display())),
    }
}

/// What works beneath the base has.
struct Tools {
    base: PathBase,
    root: Arc<RootDirectory>,
    scratch: ScratchNames,
    file_systems: FileSystems,
}

impl Tools {
    fn new(arena: &Arena) -> Tools {
        let root = Arc::new(RootDirectory::open(&arena.base()).unwrap());
        Tools {
            base: PathBase::Beneath(Arc::clone(&root)),
            root,
            scratch: ScratchNames::new(None).unwrap(),
            file_systems: FileSystems::new(&[]).unwrap(),
        }
    }

    fn grow(&self, directory: OwnedFd, name: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
        let file_system = self.file_systems.file_system_of(directory.as_fd())?;
        let spec = NewLargeFileSpec {
            size: 9_000,
            file_system: &file_system,
            stripe: &RequestedLayout::Default,
            io: WriteIoMethod::Cached,
            part_offset: None,
        };
        let (growing, _) = UncommittedFile::create(directory, name, spec, &self.scratch)?;
        growing.write_at(&[7; 9_000], 0)?;
        Ok(growing.commit(&METADATA, true)?)
    }

    fn list(&self, path: &Path) -> std::io::Result<()> {
        self.base.list(path, &mut |listing| {
            if let ListingItem::Entries(entries) = listing {
                for entry in entries {
                    assert!(
                        !OUTSIDE_NAMES.iter().any(|name| name.as_bytes() == &*entry.name),
                        "{entry:?} is outside"
                    );
                }
            }
            Continue(())
        })
    }

    /// As an engine reads a source that was named.
    fn read(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let looked = self.base.look(path, PathPurpose::ReadThrough)?;
        self.base.open_to_ask(path)?;
        if looked.is_directory {
            let root = self.base.open(path, PathPurpose::ReadThrough)?;
            // An error is fine: it may have been moved; a directory outside is not.
            let _ = root.ancestors();
            return Ok(());
        }
        let EntryPlace { root, name, follow } = self.base.hold(path, true)?;
        let file = SourceFile::open(root.as_fd(), &name, follow, SourceReadMethod::Buffered)?;
        let mut content = [0; 64];
        let count = file.read_at(&mut content, 0)?;
        assert!(!content[..count].starts_with(&SECRET[..8]), "read what is outside");
        Ok(())
    }

    /// One of everything in one of the directories.
    fn work(&self, top: &str, round: u64, counts: &Counts) {
        let sub = format!("{top}/sub");
        let made = self.root.make_directory(&rel(format!("{sub}/x/{}", round % 8)));
        counts.note(0, &made);
        for directory in [top, &sub] {
            let Ok(held) = self.root.make_directory(&rel(directory)) else { continue };
            let placed =
                place_small(held.as_fd(), b"file", b"small", &METADATA, CommitCare::default(), &self.scratch);
            counts.note(1, &placed);
            let link = place_symlink(held.as_fd(), b"link", b"../../outside", &METADATA, &self.scratch);
            counts.note(3, &link);
            counts.note(2, &self.grow(held, b"file"));
        }
        for path in [top.to_owned(), sub.clone(), format!("{sub}/x"), "/".into()] {
            counts.note(4, &self.list(Path::new(&path)));
            counts.note(4, &self.base.stat(Path::new(&path)));
        }
        let inner_link = format!("in{}/sub/file", &top[1..]);
        for path in [top.to_owned(), format!("{top}/file"), format!("{sub}/file"), inner_link] {
            counts.note(5, &self.read(Path::new(&path)));
        }
        counts.note(0, &self.base.make_directory(Path::new(&format!("{sub}/y/{}", round % 8)), true));
        counts.note(0, &self.base.make_destination(Path::new(&format!("{sub}/z"))));
        let mut spool =
            DirectoryMetadataSpool::new(Arc::clone(&self.root), Arc::new(AttributeWriter::new(true)));
        [top, &sub].iter().for_each(|path| {
            spool.record_directory(&rel(path), &Metadata { mode: 0o777, ..METADATA }, None).unwrap()
        });
        let done = spool.finish(&DestinationTimePrecision::new(ModifyWindow::Stored, None), |_| {
            counts.note(7, &Err::<(), ()>(()))
        });
        (0..done).for_each(|_| counts.note(7, &Ok::<(), ()>(())));
        if round.is_multiple_of(3) {
            for path in [format!("{sub}/x"), format!("{sub}/link"), sub.clone(), top.to_owned()] {
                counts.note(6, &self.base.remove(Path::new(&path), true, &mut |_| Continue(())));
            }
        }
    }
}

#[test]
fn nothing_outside_is_touched_while_links_are_swapped() {
    let seconds: u64 = std::env::var("CARRACK_RACE_SECONDS").map_or(2, |text| text.parse().unwrap());
    let arena = Arena::new();
    (0..TOPS.len()).for_each(|index| heal(&arena, index));
    let before = arena.outside_now();
    let (tools, counts, over) = (Tools::new(&arena), Counts::default(), AtomicBool::new(false));
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..TOPS.len())
            .map(|index| {
                scope.spawn({
                    let (arena, counts, over) = (&arena, &counts, &over);
                    move || attack(arena, index, counts, over)
                })
            })
            .collect();
        let workers: Vec<_> = TOPS
            .iter()
            .map(|top| {
                let (tools, counts) = (&tools, &counts);
                scope.spawn(move || {
                    let mut round = 0;
                    while Instant::now() < end {
                        tools.work(top, round, counts);
                        round += 1;
                    }
                })
            })
            .collect();
        let worked: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Relaxed);
        attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
        worked.into_iter().for_each(|result| result.unwrap());
    });
    counts.print(seconds);
    assert_eq!(arena.outside_now(), before);
    let sum = |counters: &[AtomicU64]| counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>();
    assert!(counts.swaps.load(Relaxed) > 100 && sum(&counts.done) > 100 && sum(&counts.refused) > 10);
}

/// Names that no operation may be led astray by.
fn hostile(arena: &Arena) -> Vec<Vec<u8>> {
    let outside = arena.outside();
    let outside = outside.to_str().unwrap();
    let texts = [
        "..".into(),
        "../".into(),
        "../outside".into(),
        "../outside/canary".into(),
        "/..".into(),
        "/../outside/shut".into(),
        "a/../../outside/shut".into(),
        "a/..".into(),
        "a/../..".into(),
        "./../outside/deep".into(),
        "a//..//..//outside//shut".into(),
        outside.to_owned(),
        format!("{outside}/canary"),
        format!("//{outside}/shut"),
        "out".into(),
        "out/".into(),
        "out/canary".into(),
        "out/shut/".into(),
        "out/deep/deep".into(),
        "out/../outside/canary".into(),
        "victim-link".into(),
        "up".into(),
        "up/outside/shut".into(),
        "out-and-in/a".into(),
        "loop".into(),
        "loop/canary".into(),
        "magic".into(),
        "magic/etc".into(),
        "/proc/self/root".into(),
        format!("/proc/self/root{outside}/shut"),
        "/proc/self/cwd/canary".into(),
        "proc/self/fd/0".into(),
        "/dev/fd/0".into(),
        "a\0/../../outside/shut".into(),
        "\0".into(),
        "out\0".into(),
        "n".repeat(256),
        "n/".repeat(40_000),
        "../".repeat(1_000),
        "..\u{2215}outside".into(),
        "%2e%2e/outside".into(),
    ];
    let mut names: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    names.push(b"\xff\xfe/..".to_vec());
    names
}

#[test]
fn no_hostile_name_leads_out() {
    let arena = Arena::new();
    let base_path = arena.base();
    fs::create_dir(base_path.join("a")).unwrap();
    fs::create_dir(base_path.join("inner")).unwrap();
    for (text, name) in [
        ("../outside", "out"),
        ("../outside/victim", "victim-link"),
        ("..", "up"),
        ("../base", "out-and-in"),
        ("loop", "loop"),
        ("/proc/self/root", "magic"),
    ] {
        symlink(text, base_path.join(name)).unwrap();
    }
    let before = arena.outside_now();
    let identities: Vec<FileIdentity> = before
        .values()
        .map(|seen| FileIdentity { dev: seen.status[0] as u64, ino: seen.status[1] as u64 })
        .chain([arena.dir.path(), Path::new("/")].map(|path| RootDirectory::open(path).unwrap().identity()))
        .collect();
    let is_outside = |identity: FileIdentity| identities.contains(&identity);
    let tools = Tools::new(&arena);
    let names = hostile(&arena);
    assert!(names.len() >= 15);
    for name in &names {
        let path = Path::new(OsStr::from_bytes(name));
        let shown = carrack_model::escape(&name[..name.len().min(80)]);
        for purpose in [PathPurpose::Read, PathPurpose::ReadThrough, PathPurpose::Write, PathPurpose::Browse]
        {
            assert!(!tools.base.open(path, purpose).is_ok_and(|root| is_outside(root.identity())), "{shown}");
            assert!(
                !tools.base.look(path, purpose).is_ok_and(|looked| is_outside(looked.identity)),
                "{shown}"
            );
        }
        for follow in [false, true] {
            let held = tools.base.hold(path, follow);
            assert!(!held.is_ok_and(|named| named.follow || is_outside(named.root.identity())), "{shown}");
        }
        assert!(!tools.base.leads_to(path).is_ok_and(|(holder, _)| is_outside(holder)), "{shown}");
        if let Ok(held) = tools.base.open_to_ask(path) {
            let found = File::from(held).metadata().unwrap();
            assert!(!is_outside(FileIdentity { dev: found.dev(), ino: found.ino() }), "{shown}");
        }
        let _ = tools.read(path);
        let _ = tools.list(path);
        let sets = [path.to_path_buf()];
        let as_set = tools.base.file_systems(&sets);
        assert!(as_set.is_err() || tools.base.open(path, PathPurpose::Write).is_ok(), "{shown}");
        for parents in [false, true] {
            let _ = tools.base.make_directory(path, parents);
        }
        let _ = tools.base.make_destination(path);
        for recursive in [false, true] {
            let _ = tools.base.remove(path, recursive, &mut |_| Continue(()));
        }
        // What the engine writes is named so.
        if let Ok(path) = RelPath::new(name) {
            let _ = tools.root.make_directory(&path);
        }
    }
    assert_eq!(arena.outside_now(), before);
    assert!(base_path.join("inner").is_dir(), "what is beneath the base is removed by its name only");
}

/// Runs the other tests where there is no `openat2`.
#[test]
fn the_walk_by_components_holds_as_well() {
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program)
        .args(["--exact", "--ignored", "--nocapture", "without_openat2"])
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "needs a process of its own: the_walk_by_components_holds_as_well"]
fn without_openat2() {
    take_openat2_away();
    let probe = rustix::fs::openat2(
        CWD,
        c".",
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
        rustix::fs::ResolveFlags::BENEATH,
    );
    assert_eq!(probe.unwrap_err(), rustix::io::Errno::NOSYS);
    no_hostile_name_leads_out();
    nothing_outside_is_touched_while_links_are_swapped();
}

/// For this thread and those that it starts (seccomp(2), with a classic BPF program on `struct
/// seccomp_data`).
fn take_openat2_away() {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the system call is the first word.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_openat2 as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain numbers; no memory is passed.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies them.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::from_ref(&filter), 0, 0)
    };
    assert_eq!((unprivileged, installed), (0, 0), "{}", std::io::Error::last_os_error());
}
