//! The scan against real trees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use carrack_model::limits::SCAN_BATCH_ENTRIES_MAX;
use carrack_model::{EntryKind, FailureKind, Metadata, RelPath, Timestamp};
use rustix::fs::{FileType, Mode, mkdirat, mknodat};

use super::*;

/// The result of a walk: sink path → kind and metadata; directories have no kind.
type TestScanResult = BTreeMap<Vec<u8>, (Option<EntryKind>, Metadata)>;

fn tree(path: &Path, sink: &[u8]) -> ScanRoot {
    let root = Arc::new(RootDirectory::open(path).unwrap());
    ScanRoot { root, what: ScanRootScope::Tree { sink: RelPath::new(sink).unwrap() } }
}

fn scan(roots: Vec<ScanRoot>, threads: usize) -> SourceScan {
    SourceScan { roots, threads, destination: None, extras: None, filter: None, record: None }
}

fn collect(scan: &SourceScan) -> Vec<ScannedItem> {
    let all = Mutex::new(Vec::new());
    scan.run(&|found| {
        all.lock().unwrap().push(found);
        ControlFlow::Continue(())
    });
    all.into_inner().unwrap()
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// The entries beneath the sink path `base`; checks the guarantees about sections.
fn seen(found: &[ScannedItem], base: &[u8]) -> TestScanResult {
    let mut seen = TestScanResult::new();
    for found in found {
        let ScannedItem::Section(section, _) = found else { panic!("{found:?}") };
        assert!(section.entries.len() <= SCAN_BATCH_ENTRIES_MAX);
        let directory = section.directory.sink.as_bytes();
        match section.metadata {
            Some(metadata) => assert!(seen.insert(directory.to_vec(), (None, metadata)).is_none()),
            None => assert!(!section.entries.is_empty()),
        }
        assert!(seen.contains_key(directory), "the first section carries the metadata");
        if let Some((parent, _)) = section.directory.sink.split_last()
            && directory != base
        {
            assert!(seen.contains_key(parent.as_bytes()), "parents come first");
        }
        for entry in &section.entries {
            let value = (Some(entry.kind.clone()), entry.metadata);
            assert!(seen.insert(joined(directory, &entry.name), value).is_none());
        }
    }
    seen
}

/// The same by the standard library, with a recursion for each directory.
fn reference(path: &Path, sink: &[u8], seen: &mut TestScanResult) {
    let status = fs::symlink_metadata(path).unwrap();
    let kind = if status.is_dir() {
        None
    } else if status.is_symlink() {
        let target = fs::read_link(path).unwrap().as_os_str().as_bytes().into();
        Some(EntryKind::Symlink { target })
    } else {
        Some(EntryKind::Regular { size: status.len() })
    };
    let mtime = Timestamp { seconds: status.mtime(), nanoseconds: status.mtime_nsec() as u32 };
    seen.insert(sink.to_vec(), (kind, Metadata { mode: status.mode() & 0o7777, mtime }));
    if status.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let name = entry.unwrap().file_name();
            reference(&path.join(&name), &joined(sink, name.as_bytes()), seen);
        }
    }
}

fn plant(base: &Path, width: usize, depth: usize) {
    for n in 0..width {
        fs::write(base.join(format!("file {n}")), vec![b'x'; n * 100]).unwrap();
        symlink(format!("file {n}"), base.join(format!("link {n}"))).unwrap();
        if depth > 0 {
            let below = base.join(format!("dir {n}"));
            fs::create_dir(&below).unwrap();
            plant(&below, width, depth - 1);
        }
    }
}

#[test]
fn any_number_of_threads_finds_what_a_simple_walk_finds() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), 5, 3);
    for name in [&b"new\nline"[..], b"\xff\xfe", &[b'n'; 255]] {
        let below = dir.path().join("dir 1").join(OsStr::from_bytes(name));
        fs::create_dir(&below).unwrap();
        fs::write(below.join(OsStr::from_bytes(name)), b"x").unwrap();
    }
    symlink("/nonexistent", dir.path().join("dangling")).unwrap();
    symlink(dir.path(), dir.path().join("loop")).unwrap();
    for sink in [&b""[..], b"copy/of it"] {
        let mut expected = TestScanResult::new();
        reference(dir.path(), sink, &mut expected);
        for threads in [1, 2, 8] {
            let found = collect(&scan(vec![tree(dir.path(), sink)], threads));
            assert_eq!(seen(&found, sink), expected, "{threads} threads");
        }
    }
}

#[test]
fn a_wide_directory_comes_in_bounded_sections() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..20_000 {
        File::create(dir.path().join(format!("{n:05}"))).unwrap();
    }
    for n in 0..3_000 {
        fs::create_dir(dir.path().join(format!("a directory with a longer name, number {n}"))).unwrap();
    }
    let found = collect(&scan(vec![tree(dir.path(), b"")], 2));
    let seen = seen(&found, b"");
    assert_eq!(seen.len(), 23_001);
    assert!(found.len() < 3_000 + 200, "{} sections", found.len());
    assert_eq!(seen.values().filter(|(kind, _)| kind.is_some()).count(), 20_000);
}

#[test]
fn a_break_ends_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), 6, 3);
    for threads in [1, 4] {
        let calls = AtomicUsize::new(0);
        scan(vec![tree(dir.path(), b""), tree(dir.path(), b"again")], threads).run(&|_| match calls
            .fetch_add(1, Ordering::SeqCst)
        {
            0..3 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        let calls = calls.into_inner();
        assert!((4..4 + threads).contains(&calls), "{calls} calls by {threads} threads");
    }
}

#[test]
fn a_panic_in_the_callers_code_does_not_hang_the_others() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), 4, 3);
    let scan = scan(vec![tree(dir.path(), b"")], 4);
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scan.run(&|_| panic!("meant by the test"));
    }));
    assert!(answer.is_err());
}

#[test]
fn special_files_are_skipped_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let handle = File::open(dir.path()).unwrap();
    mknodat(&handle, "pipe", FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    fs::write(dir.path().join("file"), b"x").unwrap();
    let mut skipped = Vec::new();
    for found in collect(&scan(vec![tree(dir.path(), b"")], 1)) {
        match found {
            ScannedItem::Skipped { path, reason } => skipped.push((path, reason)),
            ScannedItem::Section(section, _) => assert_eq!(section.entries.len(), 1),
            ScannedItem::Failed(failure) => panic!("{failure}"),
        }
    }
    skipped.sort();
    let full = ["pipe", "socket"].map(|name| dir.path().join(name).as_os_str().as_bytes().into());
    let [pipe, socket] = full;
    let expected = [(pipe, "a named pipe".to_owned()), (socket, "a socket".to_owned())];
    assert_eq!(skipped, expected);
}

#[test]
fn single_names_keep_their_place_and_may_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"12345").unwrap();
    symlink("file", dir.path().join("link")).unwrap();
    fn single(dir: &Path, name: &[u8], sink_name: &[u8], follow: bool) -> ScanRoot {
        let what = ScanRootScope::Name {
            name: name.into(),
            sink_directory: RelPath::new(b"to").unwrap(),
            sink_name: sink_name.into(),
            follow,
        };
        ScanRoot { root: Arc::new(RootDirectory::open(dir).unwrap()), what }
    }
    fn section(found: &ScannedItem) -> &DirectorySection {
        match found {
            ScannedItem::Section(section, _) => section,
            other => panic!("{other:?}"),
        }
    }
    fn failure_kind(found: &ScannedItem) -> FailureKind {
        match found {
            ScannedItem::Failed(failure) => failure.kind,
            other => panic!("{other:?}"),
        }
    }
    let roots = vec![
        single(dir.path(), b"file", b"file", false),
        single(dir.path(), b"link", b"other", true),
        single(dir.path(), b"link", b"link", false),
        single(dir.path(), b"none", b"none", false),
        single(dir.path(), b"file", b"..", false),
    ];
    let found = collect(&scan(roots, 1));
    let sections = [section(&found[0]), section(&found[1]), section(&found[2])];
    assert_eq!(sections[0].entries[0].source_name, None);
    assert_eq!(sections[0].directory.sink.as_bytes(), b"to");
    assert_eq!(sections[1].directory.root_index, 1);
    assert_eq!(sections[1].entries[0].kind, EntryKind::Regular { size: 5 });
    assert_eq!(sections[1].entries[0].name_at_source(), b"link");
    assert_eq!(&*sections[1].entries[0].name, b"other");
    assert_eq!(sections[2].entries[0].kind, EntryKind::Symlink { target: (*b"file").into() });
    assert!(found[..3].iter().all(|f| matches!(f, ScannedItem::Section(s, _) if s.metadata.is_none())));
    assert_eq!(failure_kind(&found[3]), FailureKind::Missing);
    assert_eq!(failure_kind(&found[4]), FailureKind::BadName);
}

#[test]
fn the_destination_is_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), 3, 1);
    let destination = RootDirectory::open(&dir.path().join("dir 1")).unwrap().identity();
    let mut walk = scan(vec![tree(dir.path(), b"")], 2);
    walk.destination = Some(destination);
    let found = collect(&walk);
    let failures: Vec<_> = found
        .iter()
        .filter_map(|f| match f {
            ScannedItem::Failed(failure) => Some(failure),
            _ => None,
        })
        .collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].kind, FailureKind::IntoItself);
    assert!(failures[0].path.ends_with(b"/dir 1"));
}

#[test]
fn a_directory_that_can_not_be_opened_is_told() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read everything");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("closed")).unwrap();
    let closed = dir.path().join("closed");
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let found = collect(&scan(vec![tree(dir.path(), b"")], 1));
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert!(found.iter().any(|f| matches!(f, ScannedItem::Failed(e) if e.kind == FailureKind::Unreadable)));
}

#[test]
fn a_directory_that_vanishes_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("gone")).unwrap();
    let failures = Mutex::new(Vec::new());
    scan(vec![tree(dir.path(), b"")], 1).run(&|found| {
        match found {
            // The root's section comes before its subdirectories are opened.
            ScannedItem::Section(..) => fs::remove_dir(dir.path().join("gone")).unwrap(),
            ScannedItem::Failed(failure) => failures.lock().unwrap().push(failure.kind),
            ScannedItem::Skipped { .. } => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(failures.into_inner().unwrap(), [FailureKind::Missing]);
}

/// Makes a chain of directories, each with a file and two further directories.
///
/// The chain's names end in a number, so that they come before and after the others in the listings.
fn plant_chain(base: &Path, levels: usize, name_bytes: usize) {
    let mut held: rustix::fd::OwnedFd = File::open(base).unwrap().into();
    for level in 0..levels {
        let name = format!("{level:d>name_bytes$}");
        for beside in ["a beside", "z beside"] {
            mkdirat(&held, beside, Mode::RWXU).unwrap();
        }
        let flags = crate::small_file_placement::create_flags();
        rustix::fs::openat(&held, "file", flags, Mode::RUSR).unwrap();
        mkdirat(&held, &*name, Mode::RWXU).unwrap();
        held = crate::beneath::open_child(held.as_fd(), name.as_bytes(), crate::beneath::DIRECTORY).unwrap();
    }
}

#[test]
fn a_tree_deeper_than_path_max_is_walked_whole() {
    let dir = tempfile::tempdir().unwrap();
    plant_chain(dir.path(), 300, 100);
    for threads in [1, 3] {
        let found = collect(&scan(vec![tree(dir.path(), b"")], threads));
        let seen = seen(&found, b"");
        let longest = seen.keys().map(Vec::len).max().unwrap();
        assert!(longest > 30_000);
        assert_eq!(seen.len(), 1 + 300 * 4, "{threads} threads");
    }
}

#[test]
fn paths_beyond_the_limit_are_told() {
    let dir = tempfile::tempdir().unwrap();
    plant_chain(dir.path(), 260, 255);
    let found = collect(&scan(vec![tree(dir.path(), b"")], 1));
    let failures: Vec<_> = found
        .iter()
        .filter_map(|f| match f {
            ScannedItem::Failed(failure) => Some(failure.kind),
            _ => None,
        })
        .collect();
    assert_eq!(failures, [FailureKind::BadName; 3], "the three directories in the last one");
    assert!(found.len() > 255 * 3);
}

/// The number of this process's descriptors of entries beneath `base`.
fn open_beneath_count(base: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(base)).count()
}

#[test]
fn a_deep_tree_takes_a_bounded_number_of_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    plant_chain(dir.path(), 400, 4);
    let (open_most, sections) = (AtomicUsize::new(0), AtomicUsize::new(0));
    scan(vec![tree(dir.path(), b"")], 1).run(&|found| {
        assert!(matches!(found, ScannedItem::Section(..)), "{found:?}");
        if sections.fetch_add(1, Ordering::SeqCst) % 10 == 0 {
            open_most.fetch_max(open_beneath_count(dir.path()), Ordering::SeqCst);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(sections.into_inner(), 1 + 400 * 3);
    let open_most = open_most.into_inner();
    assert!(open_most <= OPEN_LEVELS_PER_THREAD_MAX + 2, "{open_most} directories were open at once");
    assert!(open_most > OPEN_LEVELS_PER_THREAD_MAX / 2, "{open_most}: the test does not reach the bound");
}

#[test]
fn names_of_a_list_that_are_not_there_fail_unless_the_scan_was_stopped() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "").unwrap();
    let names: Vec<Box<[u8]>> = vec![b"a"[..].into(), b"gone"[..].into()];
    let selection = carrack_model::ScanSelection { names: Some(names.into()), ..Default::default() };
    let filter = ScanFilter::new(&selection).unwrap().map(Arc::new);
    let scan = SourceScan { filter, ..scan(vec![tree(dir.path(), b"")], 1) };
    let found = collect(&scan);
    let Some(ScannedItem::Failed(failure)) = found.last() else { panic!("{found:?}") };
    assert_eq!((failure.kind, found.len()), (FailureKind::Missing, 2));
    assert_eq!(&*failure.path, dir.path().join("gone").as_os_str().as_bytes());
    let calls = AtomicUsize::new(0);
    scan.run(&|_| {
        calls.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Break(())
    });
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn what_a_filter_leaves_out_is_told_and_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("out/deep")).unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    for name in ["out/f", "in/f", "in/f.o"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    let patterns = vec!["out/".to_owned(), "*.o".to_owned()];
    let selection = carrack_model::ScanSelection { patterns, ..Default::default() };
    let filter = ScanFilter::new(&selection).unwrap().map(Arc::new);
    let found = collect(&SourceScan { filter, ..scan(vec![tree(dir.path(), b"")], 1) });
    let mut left_out: Vec<Vec<u8>> = found
        .iter()
        .filter_map(|found| match found {
            ScannedItem::Skipped { path, reason } if reason == "excluded" => Some(path.to_vec()),
            _ => None,
        })
        .collect();
    left_out.sort();
    let expected = ["in/f.o", "out"].map(|name| dir.path().join(name).into_os_string().into_encoded_bytes());
    assert_eq!(left_out, expected);
    let sections: Vec<ScannedItem> =
        found.into_iter().filter(|found| matches!(found, ScannedItem::Section(..))).collect();
    let names: Vec<Vec<u8>> = seen(&sections, b"").into_keys().collect();
    assert_eq!(names, [&b""[..], b"in", b"in/f"]);
}

/// A scan that follows links.
fn following(path: &Path, threads: usize) -> SourceScan {
    let root = Arc::new(RootDirectory::open(path).unwrap().with_links_followed());
    let what = ScanRootScope::Tree { sink: RelPath::root() };
    let links = carrack_model::LinkPolicy::Followed;
    let filter = ScanFilter::new(&carrack_model::ScanSelection { links, ..Default::default() }).unwrap();
    SourceScan { filter: filter.map(Arc::new), ..scan(vec![ScanRoot { root, what }], threads) }
}

fn sections_and_failures(
    found: Vec<ScannedItem>,
) -> (TestScanResult, BTreeMap<Vec<u8>, (FailureKind, String)>) {
    let (sections, others): (Vec<ScannedItem>, Vec<ScannedItem>) =
        found.into_iter().partition(|found| matches!(found, ScannedItem::Section(..)));
    let failures = others.into_iter().map(|found| match found {
        ScannedItem::Failed(failure) => (failure.path.to_vec(), (failure.kind, failure.detail)),
        other => panic!("{other:?}"),
    });
    (seen(&sections, b""), failures.collect())
}

#[test]
fn followed_links_are_what_they_lead_to() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("deep")).unwrap();
    fs::write(outside.path().join("deep/g"), "outside").unwrap();
    fs::write(dir.path().join("f"), "file").unwrap();
    symlink("f", dir.path().join("to-file")).unwrap();
    symlink(outside.path(), dir.path().join("to-directory")).unwrap();
    symlink("gone", dir.path().join("dangling")).unwrap();
    symlink("self", dir.path().join("self")).unwrap();
    let (seen, failures) = sections_and_failures(collect(&following(dir.path(), 1)));
    let names: Vec<&[u8]> = seen.keys().map(Vec::as_slice).collect();
    let expected: [&[u8]; 6] =
        [b"", b"f", b"to-directory", b"to-directory/deep", b"to-directory/deep/g", b"to-file"];
    assert_eq!(names, expected);
    assert_eq!(seen[&b"to-file"[..]].0, Some(EntryKind::Regular { size: 4 }));
    let [dangling, itself] = ["dangling", "self"].map(|name| dir.path().join(name));
    let dangling = &failures[dangling.as_os_str().as_bytes()];
    assert_eq!(*dangling, (FailureKind::Missing, "a link to 'gone', which is not there".to_owned()));
    let itself = &failures[itself.as_os_str().as_bytes()];
    assert_eq!((failures.len(), itself.0), (2, FailureKind::ReadError));
}

#[test]
fn links_that_lead_back_end() {
    for threads in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/a/b")).unwrap();
        fs::write(dir.path().join("tree/a/f"), "x").unwrap();
        symlink("..", dir.path().join("tree/a/up")).unwrap();
        symlink("../../..", dir.path().join("tree/a/b/above")).unwrap();
        let (seen, failures) = sections_and_failures(collect(&following(&dir.path().join("tree"), threads)));
        let names: Vec<&[u8]> = seen.keys().map(Vec::as_slice).collect();
        assert_eq!(names, [&b""[..], b"a", b"a/b", b"a/b/above", b"a/f"]);
        let told: Vec<&[u8]> = failures.keys().map(Vec::as_slice).collect();
        let paths = ["tree/a/b/above/tree", "tree/a/up"].map(|name| dir.path().join(name));
        assert_eq!(told, paths.each_ref().map(|path| path.as_os_str().as_bytes()));
        assert!(failures.values().all(|(_, detail)| detail.contains("leads back")), "{failures:?}");
    }
}

/// The same beneath a base that no link leads out of.
fn following_beneath(base: &Path, path: &Path) -> SourceScan {
    let base = crate::PathBase::within(vec![RootDirectory::open(base).unwrap()]).unwrap();
    let root = Arc::new(base.open_following(path).unwrap());
    let what = ScanRootScope::Tree { sink: RelPath::root() };
    SourceScan { roots: vec![ScanRoot { root, what }], ..following(path, 2) }
}

#[test]
fn followed_links_stay_beneath_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    for name in ["base/tree/d", "base/other/deep", "outside/deep"] {
        fs::create_dir_all(top.join(name)).unwrap();
    }
    for name in ["base/other/deep/g", "outside/deep/secret", "base/tree/d/f"] {
        fs::write(top.join(name), "1234").unwrap();
    }
    for (text, name) in [
        ("d/f", "file"),
        ("../other", "directory"),
        ("../../../base/other", "out-and-in"),
        ("../../outside", "out"),
        ("../../outside/deep/secret", "secret"),
        ("gone", "dangling"),
        ("self", "self"),
        ("file", "twice"),
        ("..", "d/up"),
    ] {
        symlink(text, top.join("base/tree").join(name)).unwrap();
    }
    symlink(top.join("base/other/deep/g"), top.join("base/tree/absolute")).unwrap();
    symlink(top.join("outside/deep/secret"), top.join("base/tree/absolute-out")).unwrap();
    symlink(top.join("base/../outside/deep/secret"), top.join("base/tree/absolute-up")).unwrap();
    // These are reached through another link.
    symlink("deep/g", top.join("base/other/to-g")).unwrap();
    symlink("../tree/out", top.join("base/other/to-out")).unwrap();
    let (seen, failures) =
        sections_and_failures(collect(&following_beneath(&top.join("base"), &top.join("base/tree"))));
    let names: Vec<&str> = seen.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    let expected = [
        "",
        "absolute",
        "d",
        "d/f",
        "directory",
        "directory/deep",
        "directory/deep/g",
        "directory/to-g",
        "file",
        "twice",
    ];
    assert_eq!(names, expected);
    assert_eq!(seen[&b"twice"[..]].0, Some(EntryKind::Regular { size: 4 }));
    let tree = top.join("base/tree");
    for name in ["out", "secret", "out-and-in", "absolute-out", "absolute-up", "directory/to-out"] {
        let (kind, detail) = &failures[tree.join(name).as_os_str().as_bytes()];
        assert!(*kind == FailureKind::Unreadable && detail.contains("leads out"), "{name} {detail}");
    }
    let dangling = (FailureKind::Missing, "a link to 'gone', which is not there".to_owned());
    assert_eq!(failures[tree.join("dangling").as_os_str().as_bytes()], dangling);
    for name in ["self", "d/up"] {
        assert!(failures[tree.join(name).as_os_str().as_bytes()].1.contains("leads back"), "{name}");
    }
    assert_eq!(failures.len(), 9, "{failures:?}");
}
