//! Trees with every entry that makes trees hard, and their census.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The default of `--object-size`.
const OBJECT_BYTES: usize = 1 << 20;

/// Returns bytes that differ from place to place.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = count as u64 | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(step).take(count).collect()
}

/// Plants a little of everything: an object's size and more, empty entries, a link, odd names.
pub fn plant(root: &Path) {
    // The umask is the same for all tests, and for the programs that they start.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("big"), noise(3_000_000)).unwrap();
    fs::write(root.join("sub/small"), b"small").unwrap();
    fs::write(root.join("sub/deep/none"), b"").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"sub/odd\n\xff")), b"odd").unwrap();
    fs::set_permissions(root.join("sub/small"), Permissions::from_mode(0o640)).unwrap();
    symlink("sub/small", root.join("link")).unwrap();
}

/// Plants sizes around the edges of objects, names of any bytes, depth, modes, times to the nanosecond, links
/// of all kinds.
pub fn plant_rich(root: &Path) {
    plant(root);
    plant_sizes(&root.join("sizes"));
    plant_names(&root.join("names"));
    plant_links(&root.join("links"));
    // Modes come last, since they change directories.
    plant_modes(&root.join("modes"));
    plant_times(root);
}

fn plant_sizes(root: &Path) {
    fs::create_dir(root).unwrap();
    let edges = [4096, OBJECT_BYTES / 8, OBJECT_BYTES, 2 * OBJECT_BYTES];
    let around = edges.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]);
    for size in around.chain([0, 1, 40_000_000]) {
        fs::write(root.join(size.to_string()), noise(size)).unwrap();
    }
}

fn plant_names(root: &Path) {
    let deep: PathBuf = std::iter::repeat_n("d", 100).collect();
    fs::create_dir_all(root.join(&deep)).unwrap();
    fs::write(root.join(deep).join("f"), "at the bottom").unwrap();
    let every_byte: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let longest = [b'n'; 255];
    for name in [&every_byte[..], &longest, b"-rf", b" ", b"it's", b"...", b"\\", b"$(reboot)", b"a:b", b"~"]
    {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
}

fn plant_links(root: &Path) {
    fs::create_dir(root).unwrap();
    for (name, target) in [
        ("dangling", "nowhere".as_bytes()),
        ("absolute", b"/etc/hostname"),
        ("upwards", b"../sizes"),
        ("itself", b"itself"),
        ("bytes", b"\xff\n"),
    ] {
        symlink(OsStr::from_bytes(target), root.join(name)).unwrap();
    }
}

fn plant_modes(root: &Path) {
    fs::create_dir_all(root.join("closed")).unwrap();
    fs::write(root.join("closed/inside"), "a read-only directory has files too").unwrap();
    // These modes survive the umask.
    for mode in [0o400, 0o644, 0o711, 0o755] {
        let path = root.join(format!("{mode:o}"));
        fs::write(&path, "mode").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(root.join("closed"), Permissions::from_mode(0o555)).unwrap();
}

fn plant_times(root: &Path) {
    let after = |seconds, ns| SystemTime::UNIX_EPOCH + Duration::new(seconds, ns);
    for (path, time) in [
        ("big", after(1, 1)),
        ("sub/small", after(4_102_444_800, 999_999_999)),
        ("sub/deep/none", SystemTime::UNIX_EPOCH - Duration::from_nanos(1)),
        ("sub", after(1_234_567_890, 123_456_789)),
        ("empty", after(1_000_000_000, 7)),
    ] {
        let file = File::open(root.join(path)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

/// One entry of a tree, as far as a copy keeps it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub path: PathBuf,
    mode: u32,
    /// Seconds and nanoseconds; not kept for links.
    mtime: Option<(i64, i64)>,
    /// The hash of a file, the target of a link.
    contents: Vec<u8>,
}

/// Returns all entries in a directory, and the directory.
pub fn census(root: &Path) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() && !path.is_symlink() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push(entry(root, &path));
    }
    found.sort();
    found
}

fn entry(root: &Path, path: &Path) -> Entry {
    let metadata = fs::symlink_metadata(path).unwrap();
    let contents = match () {
        _ if metadata.is_symlink() => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        _ if metadata.is_file() => hash(path).to_vec(),
        _ => Vec::new(),
    };
    Entry {
        path: path.strip_prefix(root).unwrap().to_owned(),
        mode: metadata.mode(),
        mtime: (!metadata.is_symlink()).then(|| (metadata.mtime(), metadata.mtime_nsec())),
        contents,
    }
}

/// Hashes a file that may be larger than memory.
fn hash(path: &Path) -> [u8; 32] {
    *blake3::Hasher::new().update_reader(File::open(path).unwrap()).unwrap().finalize().as_bytes()
}

/// Checks that both hold the same; prints the differences.
#[track_caller]
pub fn assert_same(expected: &Path, copy: &Path) {
    assert_same_entries(&census(expected), &census(copy));
}

/// Checks the same without times.
#[track_caller]
pub fn assert_same_but_times(expected: &Path, copy: &Path) {
    let timeless = |root| -> Vec<Entry> {
        census(root).into_iter().map(|entry| Entry { mtime: None, ..entry }).collect()
    };
    assert_same_entries(&timeless(expected), &timeless(copy));
}

/// Checks the same where times are whole seconds.
#[track_caller]
pub fn assert_same_to_the_second(expected: &Path, copy: &Path) {
    let whole = |root| -> Vec<Entry> {
        let cut = |entry: Entry| Entry { mtime: entry.mtime.map(|(seconds, _)| (seconds, 0)), ..entry };
        census(root).into_iter().map(cut).collect()
    };
    assert_same_entries(&whole(expected), &whole(copy));
}

/// Checks the same for earlier censuses. An entry that a directory lists twice, as GlusterFS may, counts
/// once.
#[track_caller]
pub fn assert_same_entries(expected: &[Entry], copy: &[Entry]) {
    let (expected, copy): (BTreeSet<&Entry>, BTreeSet<&Entry>) =
        (expected.iter().collect(), copy.iter().collect());
    let missing: Vec<_> = expected.difference(&copy).collect();
    let extra: Vec<_> = copy.difference(&expected).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
}

/// Returns carrack's temporary names in a directory, including journals.
pub fn temporary_names(directory: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).unwrap().map(|entry| PathBuf::from(entry.unwrap().file_name()));
    names.filter(|name| is_temporary(name)).collect()
}

/// Returns true if a path's last name is one of these.
pub fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".") && contains(name, b".carrack-"))
}

fn contains(name: &OsStr, part: &[u8]) -> bool {
    name.as_bytes().windows(part.len()).any(|window| window == part)
}
