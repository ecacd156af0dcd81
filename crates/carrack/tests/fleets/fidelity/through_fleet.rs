//! The same tree through a fleet of real processes: any number of movers keeps the metadata that `carrack cp
//! -a` keeps.
//!
//! It needs the same programs as `fleet.rs`, and is skipped where that is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use carrack_register::transfer_records::{SITE_MARK, TransferRecord, TransferState};
use rustix::fs::{FileType, IFlags, XattrFlags, lgetxattr, lsetxattr};

use super::census::differences;
use super::specials::node;
use super::{copy, flags, is_root, plant};
use crate::common::file_system::{FileSystem, layout, plant_large};
use crate::common::process::{assert_exit, assert_says, wait_at_most};
use crate::common::skip;
use crate::common::storage_double::StorageDouble;
use crate::common::tree::{assert_same_to_the_second, noise};
use crate::fleet::stage::{Manner, PATIENCE, SITES, Stage};

/// Bytes for the tree and its copy.
const BYTES: u64 = 3 << 30;

/// Movers at each site.
const MOVERS: u8 = 2;

/// Small enough that each pair has many chunks, and large files are in parts.
const CHUNK: &str = "--chunk-size=1MiB";

/// A user without an account.
const SOMEBODY: u32 = 54_321;

fn stage(options: &[&str]) -> Option<Stage> {
    let mut stage = is_root().then(|| Stage::start(1, BYTES)).flatten()?;
    stage.start_manager("manager");
    for number in 1..=MOVERS {
        let manner = Manner { options, ..Manner::default() };
        SITES.iter().for_each(|site| stage.start_mover_so(site, number, manner));
    }
    stage.wait_for_movers(2 * usize::from(MOVERS));
    Some(stage)
}

/// Submits a copy of the contents of `tree`, and waits for its end.
fn carry(stage: &Stage, options: &[&str]) -> TransferRecord {
    let (from, to) = (stage.location(SITES[0], "tree/"), stage.location(SITES[1], "there"));
    let words = [&["submit", "--wait", "--buffer=16MiB", CHUNK, &from, &to], options].concat();
    let record = stage.record(&stage.asked(&words));
    assert_eq!((record.state, record.tally.entries_failed), (TransferState::Done, 0), "{record:#?}");
    record
}

/// Returns the metadata that a fleet must keep and has lost.
fn lost(stage: &Stage) -> Vec<String> {
    differences(&stage.seen("east/tree"), &stage.seen("west/there"))
}

#[test]
fn a_fleet_keeps_everything_that_an_archive_keeps() {
    let Some(stage) = stage(&["--keep-owners"]) else { return };
    let tree = stage.seen("east/tree");
    fs::create_dir(&tree).unwrap();
    plant::plant(&tree);
    // The second copy goes over the existing files.
    for _ in 0..2 {
        let record = carry(&stage, &["-a"]);
        assert_eq!(lost(&stage), [""; 0], "{record:#?}");
        assert_eq!((record.losses.len(), record.tally.entries_skipped), (0, 0), "{record:#?}");
        assert_eq!(record.tally.files_done, record.tally.files_found, "{record:#?}");
        assert!(record.tally.chunks_done > 50, "{record:#?}");
    }
    let left =
        fs::read_dir(stage.seen("west")).unwrap().flatten().filter(|entry| entry.file_name() != SITE_MARK);
    assert_eq!(left.count(), 1, "journals are left");
}

/// Plants a program with set-ID bits, a device, and attributes that every user may set.
fn plant_rights(tree: &Path) -> bool {
    fs::create_dir(tree).unwrap();
    let program = tree.join("program");
    fs::write(&program, "x").unwrap();
    lchown(&program, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    for name in ["user.a", "trusted.a"] {
        lsetxattr(&program, name, b"v", XattrFlags::empty()).unwrap();
    }
    fs::hard_link(&program, tree.join("again")).unwrap();
    node(&tree.join("pipe"), FileType::Fifo, (0, 0), 0o644);
    node(&tree.join("null"), FileType::CharacterDevice, (1, 3), 0o666)
}

/// Submitters get no rights through the root account of the movers, unless these were started with the
/// option.
#[test]
fn movers_that_keep_no_owners_give_no_rights_and_tell_it() {
    let Some(stage) = stage(&[]) else { return };
    let has_device = plant_rights(&stage.seen("east/tree"));
    let record = carry(&stage, &["-a"]);
    let there = stage.seen("west/there");
    let found = fs::metadata(there.join("program")).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777, found.nlink()), (0, 0, 0o755, 2));
    let has = |name: &str| lgetxattr(there.join("program"), name, &mut [0; 8][..]).is_ok();
    assert_eq!((has("user.a"), has("trusted.a")), (true, false));
    assert!(there.join("pipe").exists() && !there.join("null").exists());
    // The losses are of the file, the pipe and the directory; the device is not there at all.
    for told in ["owner and group of 3 entries not kept", "1 extended attribute not kept"] {
        assert!(record.losses.iter().any(|line| line.starts_with(told)), "{told}: {record:#?}");
    }
    let made_none = |line: &String| line.starts_with("1 device not made");
    assert_eq!(record.losses.iter().any(made_none), has_device, "{record:#?}");
    assert!(
        stage.asked(&["status", &record.id]).contains("lost         owner and group of 3 entries not kept")
    );

    let (from, to) = (stage.location(SITES[0], "tree/"), stage.location(SITES[1], "there"));
    let strict = stage.ask(&["submit", "--wait", "-a", "--strict", &from, &to]);
    assert_exit(&strict, 1);
    assert_says(&strict, &["--strict", "could not be kept"]);
    for (option, reason) in
        [("--via=ssh", "data connections to each other"), ("--exclude={a", "is no pattern")]
    {
        let refused = stage.ask(&["submit", option, &from, &to]);
        assert_exit(&refused, 3);
        assert_says(&refused, &[reason]);
    }
}

/// Plants files of several sizes and ages in directories, links, and entries that only patterns distinguish.
fn plant_selection(tree: &Path) {
    for directory in ["build", "src/deep", "empty", "only-objects"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["a.o", "keep.o", "src/b.o", "src/c", "src/deep/d", "build/e", "only-objects/f.o", "old"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::write(tree.join("src/large"), vec![7; 5 << 20]).unwrap();
    fs::File::options().append(true).open(tree.join("old")).unwrap().set_modified(old).unwrap();
    symlink("c", tree.join("src/inside")).unwrap();
    symlink("../../outside", tree.join("src/leads-out")).unwrap();
}

/// Movers leave out the same entries as one copy, and the record counts them.
#[test]
fn a_fleet_leaves_out_what_a_copy_leaves_out() {
    let Some(stage) = stage(&[]) else { return };
    let tree = stage.seen("east/tree");
    plant_selection(&tree);
    let file = stage.seen("patterns");
    fs::write(&file, "# objects\n*.o\n!keep.o\n/build/\n").unwrap();
    let from_file = format!("--filter-from={}", file.display());
    for (number, options) in [
        &["--exclude=*.o", "--include=keep.o", "--exclude=/build/"][..],
        &[&from_file],
        &["--filter=+ keep.o", "--filter=- *.o", "--filter=- /build/"],
        &["--rclone-filter=+ keep.o", "--rclone-filter=- *.o", "--rclone-filter=- /build/**"],
        &["--min-size=1MiB"],
        &["--max-size=100", "--newer=2001-10-01T00:00:00Z", "--safe-links"],
        &["--newer=1d", "--skip-links", "--one-file-system"],
    ]
    .iter()
    .enumerate()
    {
        let expected = stage.seen("west").join(format!("expected{number}"));
        copy(&[&["-r", "--perms"], *options].concat(), &tree, &expected);
        let _ = fs::remove_dir_all(stage.seen("west/there"));
        let record = carry(&stage, options);
        assert_eq!(differences(&expected, &stage.seen("west/there")), [""; 0], "{options:?} {record:#?}");
        assert!(record.tally.entries_skipped > 0, "{options:?} {record:#?}");
    }
}

/// An entry that only the destination has, in a census.
const EXTRA: &str = "\"extra\": was not there";

/// Plants small files, and two that travel in parts.
fn plant_to_sync(tree: &Path) {
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("many/{number}")), vec![7; 1_000]).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 5 << 20]).unwrap();
    fs::write(tree.join("other"), vec![7; 5 << 20]).unwrap();
}

/// Writes other contents, with a time this number of seconds from now.
fn change(path: &Path, bytes: usize, seconds: i64) {
    fs::write(path, vec![8; bytes]).unwrap();
    let now = SystemTime::now();
    let offset = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { now - offset } else { now + offset };
    fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Returns the files at the destination, with inode numbers, which change when a file is written anew.
fn written(root: &Path) -> BTreeMap<PathBuf, u64> {
    let directories = [root.to_path_buf(), root.join("many")];
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).unwrap().flatten());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| (entry.path(), entry.metadata().unwrap().ino())).collect()
}

/// Equal files do not travel again, independent of the movers and the parts that brought them.
#[test]
fn a_fleet_sends_what_differs() {
    let Some(stage) = stage(&[]) else { return };
    let (tree, there) = (stage.seen("east/tree"), stage.seen("west/there"));
    plant_to_sync(&tree);
    fs::create_dir_all(there.join("many")).unwrap();
    fs::write(there.join("extra"), "extra").unwrap();
    let size = |path: &str| fs::metadata(there.join(path)).map(|found| found.len()).ok();
    // Returns the names of written files.
    let sync = |options: &[&str]| -> Vec<String> {
        let before = written(&there);
        let tally = carry(&stage, &[&["--sync"], options].concat()).tally;
        assert_eq!(tally.files_done, tally.files_found, "{tally:#?}");
        let after = written(&there).into_iter().filter(|(path, inode)| before.get(path) != Some(inode));
        after.map(|(path, _)| path.strip_prefix(&there).unwrap().display().to_string()).collect()
    };

    assert_eq!(sync(&[]).len(), 302);
    assert_eq!(lost(&stage), [EXTRA]);
    assert_eq!(sync(&[]), [""; 0]);

    change(&tree.join("large"), 4 << 20, 60);
    change(&tree.join("many/7"), 1_000, 60);
    assert_eq!(sync(&[]), ["large", "many/7"]);
    assert_eq!(lost(&stage), [EXTRA]);

    // Newer files stay with --update, and all existing files with --ignore-existing.
    for name in ["large", "many/9"] {
        change(&there.join(name), 3, 3_600);
    }
    change(&there.join("other"), 4, -3_600);
    fs::write(tree.join("many/new"), "new").unwrap();
    assert_eq!(sync(&["--ignore-existing"]), ["many/new"]);
    assert_eq!(sync(&["--update"]), ["other"]);
    assert_eq!([size("large"), size("many/9"), size("other")], [Some(3), Some(3), Some(5 << 20)]);
    assert_eq!(sync(&[]), ["large", "many/9"]);
    assert_eq!(lost(&stage), [EXTRA]);

    // No file is made with --existing.
    for name in ["large", "many/1"] {
        fs::remove_file(there.join(name)).unwrap();
    }
    change(&tree.join("many/2"), 2_000, 60);
    assert_eq!(sync(&["--existing"]), ["many/2"]);
    assert_eq!([size("large"), size("many/1")], [None, None]);
    let hidden = |name: &str| name.contains("carrack");
    let left =
        fs::read_dir(&there).unwrap().flatten().filter(|entry| hidden(&entry.file_name().to_string_lossy()));
    assert_eq!(left.count(), 0, "journals are left");
}

/// Links are copied as their targets, as in one copy, if the target is below the movers' paths; no other file
/// is read.
#[test]
fn a_fleet_copies_what_links_lead_to() {
    let Some(stage) = stage(&[]) else { return };
    let (tree, there, east) = (stage.seen("east/tree"), stage.seen("west/there"), stage.seen("east"));
    for directory in [tree.join("d/deep"), east.join("beside/inner"), stage.seen("secrets")] {
        fs::create_dir_all(directory).unwrap();
    }
    for (path, bytes) in [
        (tree.join("d/f"), 1_000),
        (east.join("beside/inner/large"), 5 << 20),
        (east.join("beside/small"), 2_000),
        (stage.seen("secrets/secret"), 3_000),
    ] {
        fs::write(path, vec![7; bytes]).unwrap();
    }
    for (text, name) in [
        ("d/f", "to-file"),
        ("to-file", "twice"),
        ("../beside", "to-directory"),
        ("../beside/inner/large", "to-large"),
        ("../../beside/small", "d/out-of-the-tree"),
    ] {
        symlink(text, tree.join(name)).unwrap();
    }
    // The link has the path that the movers use on their hosts.
    let known_as = PathBuf::from(stage.location(SITES[0], "beside/small").split_once(':').unwrap().1);
    symlink(&known_as, tree.join("absolute")).unwrap();
    let expected = stage.seen("west/expected");
    copy(&["-rL", "--perms", "--exclude=absolute"], &tree, &expected);
    let record = carry(&stage, &["-L"]);
    let differ: Vec<String> =
        differences(&expected, &there).into_iter().filter(|line| !line.contains("absolute")).collect();
    assert_eq!(differ, [""; 0], "{record:#?}");
    assert_eq!(fs::read(there.join("absolute")).unwrap().len(), 2_000);
    assert!(!there.join("to-directory").is_symlink() && record.tally.chunks_done > 10, "{record:#?}");

    for (text, name) in
        [("../../secrets", "out"), ("../../secrets/secret", "secret"), ("..", "d/up"), ("gone", "dangling")]
    {
        symlink(text, tree.join(name)).unwrap();
    }
    let (from, to) = (stage.location(SITES[0], "tree/"), stage.location(SITES[1], "again"));
    let output = stage.ask(&["submit", "--wait", "-L", CHUNK, &from, &to]);
    assert_exit(&output, 1);
    let again = stage.seen("west/again");
    assert!(again.join("to-directory/inner/large").is_file() && again.join("twice").is_file());
    for name in ["out", "secret", "d/up", "dangling"] {
        assert!(fs::symlink_metadata(again.join(name)).is_err(), "{name}");
    }
    let failed = stage.records().into_iter().find(|record| record.tally.entries_failed > 0).unwrap();
    let told = |name: &str| {
        let failures = failed.failures.iter();
        failures
            .filter(|failure| failure.path.ends_with(name))
            .map(|failure| &*failure.detail)
            .collect::<String>()
    };
    assert_eq!(failed.tally.entries_failed, 4, "{failed:#?}");
    assert!(
        told("tree/out").contains("leads out") && told("tree/secret").contains("leads out"),
        "{failed:#?}"
    );
    assert!(told("d/up").contains("leads back") && told("dangling").contains("not there"), "{failed:#?}");

    // A link that is named is copied as its target.
    for (name, made) in [("tree/to-large", "one"), ("tree/to-directory", "other")] {
        let (from, to) = (stage.location(SITES[0], name), stage.location(SITES[1], made));
        stage.asked(&["submit", "--wait", "-L", CHUNK, &from, &to]);
    }
    assert!(stage.seen("west/one").is_file() && !stage.seen("west/one").is_symlink());
    assert!(stage.seen("west/other/inner/large").is_file());
}

/// The process that ends the transfer sets flags after all other work: parts, further names and directories
/// are in time.
#[test]
fn a_fleet_keeps_file_flags() {
    let Some(stage) = stage(&["--keep-owners"]) else { return };
    let (tree, there) = (stage.seen("east/tree"), stage.seen("west/there"));
    if !flags::plant(&tree) {
        return skip("no file flags here");
    }
    let options = ["-a", "--file-flags"];
    let record = carry(&stage, &options);
    flags::assert_same(&tree, &there, "the first time");
    assert_eq!((lost(&stage), record.losses), (vec![], vec![]));
    assert_eq!(record.tally.files_done, record.tally.files_found);
    assert_eq!(fs::metadata(there.join("linked")).unwrap().nlink(), 2);
    assert!(record.tally.chunks_done > 3, "{:#?}", record.tally);

    // A file with the right flags stays; missing flags are set, and surplus ones cleared.
    flags::set(&there.join("immutable"), IFlags::empty()).unwrap();
    flags::set(&there.join("large"), IFlags::APPEND).unwrap();
    flags::set(&there.join("plain"), IFlags::IMMUTABLE).unwrap();
    let bytes = carry(&stage, &[&options[..], &["--sync"]].concat()).tally.bytes_moved;
    flags::assert_same(&tree, &there, "synced");
    assert_eq!((lost(&stage), bytes), (vec![], 0));

    // The destination itself holds the journals until the end.
    flags::set(&tree, IFlags::IMMUTABLE | IFlags::NODUMP).unwrap();
    let record = carry(&stage, &[&options[..], &["--sync"]].concat());
    assert_eq!(flags::flags(&there), IFlags::NODUMP);
    assert!(record.losses.iter().any(|line| line.contains("journals are in it")), "{record:#?}");
    let journals = fs::read_dir(&there).unwrap().flatten();
    let left = journals.filter(|entry| entry.file_name().to_string_lossy().contains("carrack")).count();
    assert_eq!(left, 0);
}

/// A submitter makes no file at a mover's host that its owner can't remove.
#[test]
fn movers_that_keep_no_owners_set_no_flags_and_tell_it() {
    let Some(stage) = stage(&[]) else { return };
    let tree = stage.seen("east/tree");
    if !flags::plant(&tree) {
        return skip("no file flags here");
    }
    let record = carry(&stage, &["--file-flags"]);
    for (name, expected) in
        [("immutable", IFlags::empty()), ("no-dump", IFlags::NODUMP), ("sealed", IFlags::empty())]
    {
        assert_eq!(flags::flags(&stage.seen("west/there").join(name)), expected, "{name}");
    }
    let told = record.losses.iter().any(|line| line.contains("file flags of 7 entries not kept"));
    assert!(told, "{:#?}", record.losses);
}

/// The rate of a timetable holds for each pair.
#[test]
fn a_fleet_follows_a_timetable() {
    let Some(stage) = stage(&[]) else { return };
    fs::create_dir(stage.seen("east/tree")).unwrap();
    fs::write(stage.seen("east/tree/large"), vec![7; 12 << 20]).unwrap();
    let began = Instant::now();
    carry(&stage, &["--pairs=1", "--bwlimit=00:00-24:00 2MiB, 1GiB"]);
    // Six seconds, less the movers' burst.
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
    fs::remove_dir_all(stage.seen("west/there")).unwrap();
    // At the other rate it would take hours.
    carry(&stage, &["--pairs=1", "--bwlimit=00:00-24:00 off, 1kB"]);
    assert_eq!(lost(&stage), [""; 0]);
}

/// Plants entries that only the destination has: directories with this number of files each.
fn plant_many(there: &Path, directories: u32, files: u32) {
    for directory in 0..directories {
        let directory = there.join(format!("gone-{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..files).for_each(|file| drop(fs::File::create(directory.join(file.to_string())).unwrap()));
    }
}

/// Returns the number of these directories that are left.
fn gone_left(there: &Path) -> usize {
    let is_one = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("gone-");
    fs::read_dir(there).unwrap().flatten().filter(is_one).count()
}

#[test]
fn a_fleet_deletes_and_others_go_on_when_the_movers_are_killed_that_delete() {
    const DIRECTORIES: u32 = 200;
    let Some(mut stage) = stage(&[]) else { return };
    let (tree, there) = (stage.seen("east/tree"), stage.seen("west/there"));
    plant_to_sync(&tree);
    let (from, to) = (stage.location(SITES[0], "tree/"), stage.location(SITES[1], "there"));
    let words = ["submit", "--sync", "--delete", "--buffer=16MiB", CHUNK, &from, &to];

    plant_many(&there, 2, 3);
    let limited = stage.ask(&[&words[..], &["--wait", "--max-delete=7"]].concat());
    assert_exit(&limited, 1);
    assert_says(&limited, &["1 entry of transfer"]);
    let status = stage.asked(&["status", String::from_utf8(limited.stdout).unwrap().trim_end()]);
    assert!(
        status.contains("more entries are to be deleted than --max-delete allows: they stay"),
        "{status}"
    );
    assert_eq!(gone_left(&there), 2);

    plant_many(&there, DIRECTORIES, 1_000);
    let id = stage.asked(&words);
    while gone_left(&there) == DIRECTORIES as usize {
        std::thread::sleep(Duration::from_millis(1));
    }
    ["west1", "west2"].into_iter().for_each(|mover| stage.kill(mover));
    let left = gone_left(&there);
    assert!((1..DIRECTORIES as usize).contains(&left), "{left} are left: they were killed too late");
    [3, 4].into_iter().for_each(|number| stage.start_mover(SITES[1], number));
    stage.asked(&["wait", &id]);
    let record = stage.record(&id);
    assert_eq!((record.state, record.tally.entries_failed), (TransferState::Done, 0), "{record:#?}");
    assert_eq!(lost(&stage), [""; 0], "{record:#?}");
    // Deletions by the killed movers are not counted.
    let count = record.tally.entries_deleted;
    assert!(count > 0 && count < u64::from(DIRECTORIES) * 1_001, "{record:#?}");
    assert!(stage.asked(&["status", &id]).contains(&format!("deleted      {count} entr")));
}

/// A destination with a slash at its end is a directory, and that of a sync always is: as with `carrack cp`
/// and `carrack sync`.
#[test]
fn a_destination_with_a_slash_is_made_and_holds_the_source() {
    let Some(stage) = stage(&[]) else { return };
    fs::create_dir(stage.seen("east/tree")).unwrap();
    fs::write(stage.seen("east/tree/f"), "f").unwrap();
    for (words, source, name, made) in [
        (&["submit", "--wait"][..], "tree", "a/", "a/tree/f"),
        (&["submit", "--wait", "--sync"], "tree", "b", "b/tree/f"),
        (&["submit", "--wait", "--sync"], "tree/", "c", "c/f"),
        (&["submit", "--wait"], "tree/f", "d/", "d/f"),
    ] {
        let (from, to) = (stage.location(SITES[0], source), stage.location(SITES[1], name));
        // The second time it has the same meaning.
        for _ in 0..2 {
            stage.asked(&[words, &[&from, &to]].concat());
            assert!(stage.seen("west").join(made).is_file(), "{source} {name}");
            let count = fs::read_dir(stage.seen("west").join(name)).unwrap().count();
            assert_eq!(count, 1, "{source} {name}");
        }
    }
}

/// Each part of a file is written by another session; the first makes the file.
#[test]
fn a_fleet_stripes_large_files() {
    let lustre = |options: &[&str]| is_root().then(|| FileSystem::start("lustre", options)).flatten();
    let (Some(from), Some(to)) = (lustre(&["--stripe", "2:262144"]), lustre(&[])) else { return };
    let [from, to] = [from.path(""), to.path("")];
    // The mount precedes the fleet's hosts, which see only earlier mounts.
    let Some(stage) = stage(&["--path", from.to_str().unwrap(), "--path", to.to_str().unwrap()]) else {
        return;
    };
    plant_large(&from.join("tree"), 0);
    for (option, name, stripes) in
        [("--stripe=3:131072", "wished", (131_072, 3)), ("--stripe=preserve", "preserved", (262_144, 2))]
    {
        let source = format!("{}:{}", SITES[0], from.join("tree/").display());
        let destination = format!("{}:{}", SITES[1], to.join(name).display());
        let id = stage.asked(&["submit", "--wait", "--buffer=16MiB", CHUNK, option, &source, &destination]);
        let record = stage.record(&id);
        assert!(record.tally.chunks_done > 4, "{record:#?}");
        assert_same_to_the_second(&from.join("tree"), &to.join(name));
        for entry in fs::read_dir(to.join(name).join("large")).unwrap() {
            let said = layout(&entry.unwrap().path());
            assert_eq!(
                (said.stripe_bytes, said.stripe_count),
                (Some(stripes.0), Some(stripes.1)),
                "{option}"
            );
        }
    }
}

/// On storage with a long service time, the bytes that are read in a round trip don't show the possible rate.
#[test]
fn each_reader_has_a_chunk_where_storage_takes_its_time() {
    const READERS: usize = 8;
    let options = ["--direct", "--threads", "64"];
    let plant = |root: &Path| fs::write(root.join("large"), noise(48 << 20)).unwrap();
    let Some(double) = is_root().then(|| StorageDouble::start(&options, plant)).flatten() else { return };
    // The mount precedes the fleet's hosts, which see only earlier mounts.
    let Some(mut stage) = stage(&["--path", double.path("").to_str().unwrap()]) else { return };
    double.ask("rule hang:read:count=all:path=large");
    let source = format!("{}:{}", SITES[0], double.path("large").display());
    let destination = stage.location(SITES[1], "copy");
    let readers = READERS.to_string();
    let fixed = ["--tune=off", "--pairs=1", "--io-threads", &readers, "--max-inflight-per-target", &readers];
    stage.start_command(
        "submit",
        &[&["submit", "--wait", CHUNK], &fixed[..], &[&source, &destination]].concat(),
    );
    wait_at_most(PATIENCE, "a chunk for each reader", || {
        double.ask("rules").lines().any(|line| line == format!("hanging {READERS}")).then_some(())
    });
    ["clear", "release"].iter().for_each(|word| drop(double.ask(word)));
    wait_at_most(PATIENCE, "the end", || {
        stage.records().iter().all(|record| record.state.is_over()).then_some(())
    });
    assert_eq!(fs::read(stage.seen("west/copy")).unwrap(), noise(48 << 20));
}
