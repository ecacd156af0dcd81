//! `carrack sync`: the entries that are sent, kept and deleted, with either end far away.

mod deletion;
mod deletion_campaign;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::process::Signal;

use crate::common::process::{Running, assert_exit, run, wait_for};
use crate::common::{CARRACK, DIRECT_SHELL, Unprivileged};

/// A source and a destination that is equal to it.
struct Ground {
    root: tempfile::TempDir,
}

/// The places of source and destination.
const ENDS: [(&str, &str); 4] = [("", ""), ("host:", ""), ("", "host:"), ("host:", "host:")];

impl Ground {
    fn new() -> Ground {
        let ground = Ground { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(ground.path("src/d/e")).unwrap();
        for name in ["src/f", "src/d/g", "src/d/e/h"] {
            ground.write(name, "content", 1_000);
        }
        symlink("f", ground.path("src/link")).unwrap();
        ground.sync(("", ""), &[], 0);
        ground
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str, seconds: u64) {
        fs::write(self.path(path), text).unwrap();
        let when = UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(self.path(path)).unwrap().set_modified(when).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn sync(&self, (from, to): (&str, &str), options: &[&str], exit: i32) -> Output {
        let mut command = Command::new(CARRACK);
        command.args(["sync", "--json", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]).args(options);
        let (source, sink) = (self.path("src"), self.path("dst"));
        let output =
            run(command.arg(format!("{from}{}/", source.display())).arg(format!("{to}{}", sink.display())));
        assert_exit(&output, exit);
        output
    }
}

/// Returns the number of that name in the summary.
fn counted(output: &Output, name: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    summary[name].as_u64().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_equal_stays_and_what_differs_is_sent() {
    for ends in ENDS {
        let ground = Ground::new();
        let inode = |path: &str| fs::symlink_metadata(ground.path(path)).unwrap().ino();
        let (before, link) = (inode("dst/f"), inode("dst/link"));
        let output = ground.sync(ends, &[], 0);
        assert_eq!((counted(&output, "files_done"), counted(&output, "entries_kept")), (0, 4), "{ends:?}");
        ground.write("src/d/g", "CONTENT", 2_000);
        ground.write("src/d/new", "new", 1_000);
        fs::set_permissions(ground.path("src/f"), fs::Permissions::from_mode(0o600)).unwrap();
        let mode = || fs::metadata(ground.path("dst/f")).unwrap().mode() & 0o7777;
        let mode_before = mode();
        let output = ground.sync(ends, &[], 0);
        assert_eq!((counted(&output, "files_done"), counted(&output, "entries_kept")), (2, 3), "{ends:?}");
        assert_eq!(mode(), mode_before, "what is there keeps its mode: {ends:?}");
        let output = ground.sync(ends, &["--perms"], 0);
        assert_eq!((counted(&output, "files_done"), counted(&output, "entries_kept")), (0, 5), "{ends:?}");
        assert_eq!((ground.read("dst/d/g"), ground.read("dst/d/new")), ("CONTENT".into(), "new".into()));
        assert_eq!((inode("dst/f"), inode("dst/link")), (before, link), "not made anew: {ends:?}");
        assert_eq!(mode(), 0o600, "the mode alone was set: {ends:?}");
    }
}

#[test]
fn contents_are_compared_where_they_count() {
    for ends in ENDS {
        let ground = Ground::new();
        ground.write("dst/f", "damaged", 1_000);
        ground.write("dst/d/g", "content", 5_000);
        assert_eq!(counted(&ground.sync(ends, &["-n"], 0), "entries_listed"), 1, "{ends:?}: the time of g");
        let output = ground.sync(ends, &["--contents"], 0);
        assert_eq!(counted(&output, "files_done"), 1, "{ends:?}");
        assert_eq!(ground.read("dst/f"), "content");
        assert_eq!(fs::metadata(ground.path("dst/d/g")).unwrap().mtime(), 1_000, "its time was set");
    }
}

#[test]
fn what_may_be_made_and_replaced_is_said() {
    let ground = Ground::new();
    ground.write("src/f", "new content", 2_000);
    ground.write("src/new", "x", 1_000);
    fs::create_dir(ground.path("src/fresh")).unwrap();
    let output = ground.sync(("", "host:"), &["--ignore-existing", "--existing"], 0);
    assert_eq!(counted(&output, "files_done"), 0);
    let output = ground.sync(("", "host:"), &["--existing"], 0);
    assert_eq!(counted(&output, "files_done"), 1);
    assert_eq!(names(&ground.path("dst")), ["d", "f", "link"]);
    ground.write("dst/f", "newer", 9_000);
    ground.sync(("host:", ""), &["--update"], 0);
    assert_eq!((ground.read("dst/f"), ground.read("dst/new")), ("newer".into(), "x".into()));
    ground.sync(("host:", ""), &["--ignore-existing"], 0);
    assert_eq!(ground.read("dst/f"), "newer");
}

/// For a destination without room for old and new files.
#[test]
fn what_is_to_go_goes_before_anything_is_sent_if_that_is_asked_for() {
    for (option, is_first) in [("--delete-before", true), ("--delete", false)] {
        let ground = Ground::new();
        ground.write("dst/old", "", 1_000);
        fs::write(ground.path("src/new"), vec![7; 3_000_000]).unwrap();
        let (source, sink) = (ground.path("src"), ground.path("dst"));
        let mut command = Command::new(CARRACK);
        command.args(["sync", "-q", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK, option]);
        command.args(["--bwlimit", "1MB"]).arg(format!("{}/", source.display()));
        let copying = Running::start(command.arg(format!("host:{}", sink.display())));
        let is_whole = || ground.path("dst/new").exists();
        let deadline = Instant::now() + Duration::from_secs(60);
        while ground.path("dst/old").exists() && !is_whole() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(is_whole(), !is_first, "{option}");
        assert_exit(&copying.end(), 0);
        assert_eq!(names(&ground.path("dst")), ["d", "f", "link", "new"], "{option}");
    }
}

#[test]
fn what_the_source_has_not_is_deleted() {
    let options = ["--delete", "--delete-before"];
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| options.map(|option| (ends, option))) {
        let ground = Ground::new();
        fs::create_dir_all(ground.path("dst/gone/deep")).unwrap();
        fs::create_dir_all(ground.path("outside")).unwrap();
        symlink("../outside", ground.path("dst/d/way-out")).unwrap();
        for name in ["dst/x", "dst/gone/deep/y", "dst/d/z", "dst/d/z.o", "outside/stays"] {
            ground.write(name, "", 1_000);
        }
        let options = [delete, "--exclude", "*.o"];
        let told = ground.sync(ends, &[&options[..], &["-n"]].concat(), 0);
        assert_eq!(counted(&told, "entries_to_delete"), 6, "{ends:?}: {told:?}");
        assert!(ground.path("dst/gone/deep/y").exists());
        let told = ground.sync(ends, &options, 0);
        assert_eq!(counted(&told, "entries_deleted"), 6, "{ends:?}");
        assert_eq!(names(&ground.path("dst")), ["d", "f", "link"]);
        assert_eq!(names(&ground.path("dst/d")), ["e", "g", "z.o"]);
        assert!(ground.path("outside/stays").exists());
        // A file that is left out by its size exists at the source.
        ground.sync(ends, &[delete, "--max-size", "1"], 0);
        assert_eq!(names(&ground.path("dst/d")), ["e", "g"]);
        let mtime = |path: &str| fs::metadata(ground.path(path)).unwrap().modified().unwrap();
        assert_eq!(mtime("dst/d"), mtime("src/d"), "set after the deletion");
    }
}

#[test]
fn no_more_is_deleted_than_is_allowed() {
    for ends in ENDS {
        let ground = Ground::new();
        fs::create_dir(ground.path("dst/gone")).unwrap();
        for number in 0..10 {
            ground.write(&format!("dst/gone/{number}"), "", 1_000);
        }
        let told = ground.sync(ends, &["--delete", "--max-delete", "4"], 1);
        assert_eq!(counted(&told, "entries_deleted"), 4, "{ends:?}");
        assert_eq!(names(&ground.path("dst/gone")).len(), 6);
        let told = ground.sync(ends, &["--delete", "--max-delete", "7"], 0);
        assert_eq!((counted(&told, "entries_deleted"), ground.path("dst/gone").exists()), (7, false));
    }
}

#[test]
fn nothing_is_deleted_where_something_failed_at_the_source() {
    let options = ["--delete", "--delete-before"];
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| options.map(|option| (ends, option))) {
        let ground = Ground::new();
        ground.write("dst/x", "", 1_000);
        let list = ground.path("no/such/source");
        let mut command = Command::new(CARRACK);
        command.args(["sync", delete, "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]);
        let of = |path: &Path| format!("{}{}/", ends.0, path.display());
        command.arg(of(&ground.path("src"))).arg(of(&list));
        let output = run(command.arg(format!("{}{}", ends.1, ground.path("dst").display())));
        assert_exit(&output, 1);
        assert!(ground.path("dst/x").exists(), "{ends:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("nothing was deleted, as something failed at the source"), "{told}");
    }
}

/// The rule holds for failures of the scan, not only of named sources.
#[test]
fn nothing_is_deleted_where_something_within_a_source_failed() {
    for (ends, delete) in
        ENDS.into_iter().flat_map(|ends| ["--delete", "--delete-before"].map(|one| (ends, one)))
    {
        let ground = Ground::new();
        ground.write("dst/x", "", 1_000);
        symlink("nowhere", ground.path("src/d/broken")).unwrap();
        ground.write("src/d/fresh", "", 1_000);
        let told = ground.sync(ends, &[delete, "--copy-links"], 1);
        assert_eq!((counted(&told, "entries_deleted"), counted(&told, "entries_failed")), (0, 1), "{ends:?}");
        assert!(ground.path("dst/x").exists() && ground.path("dst/d/fresh").exists(), "{ends:?}");
    }
}

/// Only entries within the sources' directories may be deleted.
#[test]
fn what_lies_beside_a_source_stays() {
    let ground = Ground::new();
    ground.write("dst/beside", "", 1_000);
    let run_once = || {
        let mut command = Command::new(CARRACK);
        let output = run(command
            .args(["sync", "-q", "--delete"])
            .arg(ground.path("src/d"))
            .arg(ground.path("src/f"))
            .arg(ground.path("dst")));
        assert_exit(&output, 0);
    };
    ground.write("dst/d/x", "", 1_000);
    run_once();
    assert_eq!(names(&ground.path("dst")), ["beside", "d", "f", "link"]);
    assert_eq!(names(&ground.path("dst/d")), ["e", "g"]);
    run_once();
    assert_eq!(names(&ground.path("dst/d")), ["e", "g"], "the same command does the same");
}

/// Plants small and large files, links and further names of files, each where the destination has a
/// directory; and directories where it has files and links.
fn plant_conflicts(ground: &Ground) {
    ground.write("src/small", "content", 1_000);
    fs::write(ground.path("src/large"), vec![7; 3_000_000]).unwrap();
    fs::hard_link(ground.path("src/small"), ground.path("src/z-name")).unwrap();
    symlink("small", ground.path("src/a-link")).unwrap();
    for directory in ["dst/small/in", "dst/large/in", "dst/z-name/in", "dst/a-link/in"] {
        fs::create_dir_all(ground.path(directory)).unwrap();
        ground.write(&format!("{directory}/old.o"), "", 1_000);
    }
    fs::create_dir_all(ground.path("src/tree/deep")).unwrap();
    ground.write("src/tree/deep/f", "deep", 1_000);
    fs::create_dir(ground.path("src/other")).unwrap();
    fs::create_dir(ground.path("outside")).unwrap();
    ground.write("outside/stays", "", 1_000);
    ground.write("dst/tree", "a file", 1_000);
    symlink("../outside", ground.path("dst/other")).unwrap();
}

#[test]
fn what_is_of_another_kind_gives_way() {
    for ends in ENDS {
        let ground = Ground::new();
        plant_conflicts(&ground);
        let told = ground.sync(ends, &["-a", "--delete", "-n"], 0);
        assert_eq!(counted(&told, "entries_to_delete"), 6, "{ends:?}: {told:?}");
        assert!(ground.path("dst/small/in/old.o").exists() && ground.path("dst/tree").is_file());
        // Entries that are left out replace nothing.
        let told = ground.sync(ends, &["-a", "--delete", "-n", "--max-size", "1"], 0);
        assert_eq!(counted(&told, "entries_to_delete"), 3, "{ends:?}: {told:?}");
        // Excluded entries keep their directories; other entries than directories are replaced.
        let told = ground.sync(ends, &["-a", "--delete", "--exclude", "*.o"], 1);
        assert_eq!((counted(&told, "entries_deleted"), counted(&told, "entries_failed")), (0, 4), "{ends:?}");
        assert_eq!(ground.read("dst/tree/deep/f"), "deep");
        assert!(ground.path("dst/other").is_dir() && !ground.path("dst/other").is_symlink());
        assert!(ground.path("outside/stays").exists(), "links are not followed");
        let told = ground.sync(ends, &["-a"], 1);
        assert_eq!((counted(&told, "entries_deleted"), counted(&told, "entries_failed")), (0, 4), "{ends:?}");
        assert!(
            ["small", "large", "z-name", "a-link"]
                .iter()
                .all(|name| ground.path(&format!("dst/{name}/in/old.o")).exists())
        );
        let told = ground.sync(ends, &["-a", "--delete"], 0);
        assert_eq!(counted(&told, "entries_deleted"), 12, "{ends:?}");
        assert_eq!(
            (ground.read("dst/small"), ground.read("dst/z-name")),
            ("content".into(), "content".into())
        );
        assert_eq!(fs::metadata(ground.path("dst/large")).unwrap().len(), 3_000_000);
        assert_eq!(fs::read_link(ground.path("dst/a-link")).unwrap(), Path::new("small"));
        let told = ground.sync(ends, &["-a", "--delete"], 0);
        assert_eq!((counted(&told, "files_done"), counted(&told, "entries_deleted")), (0, 0), "{ends:?}");
    }
}

/// Nothing in them is lost.
#[test]
fn empty_directories_give_way_without_deletion() {
    let ground = Ground::new();
    ground.write("src/small", "content", 1_000);
    fs::write(ground.path("src/large"), vec![7; 3_000_000]).unwrap();
    for name in ["dst/small", "dst/large"] {
        fs::create_dir(ground.path(name)).unwrap();
    }
    ground.sync(("", "host:"), &[], 0);
    assert_eq!(ground.read("dst/small"), "content");
    assert_eq!(fs::metadata(ground.path("dst/large")).unwrap().len(), 3_000_000);
}

#[test]
fn what_gives_way_counts_as_deleted() {
    let ground = Ground::new();
    plant_conflicts(&ground);
    let told = ground.sync(("host:", ""), &["-a", "--delete", "--max-delete", "5"], 1);
    assert_eq!(counted(&told, "entries_deleted"), 5);
    let told = ground.sync(("host:", ""), &["-a", "--delete", "--max-delete", "7"], 0);
    assert_eq!(counted(&told, "entries_deleted"), 7);
}

/// Plants every kind of entry: small files, a large one, a directory with files, another kind of entry.
fn plant_read_only(user: &Unprivileged, change: &str) {
    for (path, bytes) in
        [("src/ro/a", 10), ("src/ro/large", 9 << 20), ("src/ro/in/b", 10), ("src/ro/new/c", 10)]
    {
        user.directory(path.rsplit_once('/').unwrap().0);
        fs::write(user.path(path), change.repeat(bytes / change.len() + 1)).unwrap();
    }
    symlink(change, user.path("src/ro/link")).unwrap();
}

#[test]
fn own_directories_that_are_read_only_are_written_to_and_stay_so() {
    let read_only = ["ro/in", "ro", ""];
    for (from, to) in [("", ""), ("host:", ""), ("", "host:")] {
        let user = Unprivileged::new();
        plant_read_only(&user, "new");
        for name in ["dst/ro/in", "dst/ro/gone/deep", "dst/away"] {
            fs::write(user.directory(name).join("stale"), "old").unwrap();
        }
        fs::write(user.path("dst/ro/a"), "old").unwrap();
        user.give();
        for path in ["dst/ro/gone/deep", "dst/ro/gone", "dst/away"] {
            user.set_mode(path, 0o500);
        }
        for path in read_only {
            user.set_mode(&format!("src/{path}"), 0o555);
            user.set_mode(&format!("dst/{path}"), 0o555);
        }
        let sync = |options: &[&str]| {
            let mut command = user.command();
            command.args(["sync", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]).args(options);
            let (source, sink) = (user.path("src"), user.path("dst"));
            run(command.arg(format!("{from}{}/", source.display())).arg(format!("{to}{}", sink.display())))
        };
        assert_exit(&sync(&["--delete"]), 0);
        let alike =
            Command::new("diff").arg("-r").args([user.path("src"), user.path("dst")]).output().unwrap();
        assert!(alike.status.success(), "{from} {to}: {}", String::from_utf8_lossy(&alike.stdout));
        read_only.iter().for_each(|path| assert_eq!(user.mode_of(&format!("dst/{path}")), 0o555, "{path}"));
        let left = fs::read_dir(user.path("dst")).unwrap().count();
        assert_eq!(left, 1, "no journal stays");
        // Equal entries stay.
        assert_exit(&sync(&["--delete"]), 0);
    }
}

#[test]
fn a_drop_box_is_written_to_without_being_read() {
    for to in ["", "host:"] {
        let user = Unprivileged::new();
        user.directory("src/d");
        fs::write(user.path("src/d/f"), "small").unwrap();
        fs::write(user.path("src/large"), vec![7; 9 << 20]).unwrap();
        user.directory("dst/d");
        user.give();
        user.set_mode("dst/d", 0o311);
        user.set_mode("dst", 0o300);
        let mut command = user.command();
        command.args(["cp", "-r", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]);
        let sink = format!("{to}{}", user.path("dst").display());
        let output = run(command.arg(format!("{}/", user.path("src").display())).arg(sink));
        assert_exit(&output, 0);
        user.set_mode("dst", 0o700);
        user.set_mode("dst/d", 0o700);
        assert_eq!(fs::read_to_string(user.path("dst/d/f")).unwrap(), "small");
        assert_eq!(fs::read(user.path("dst/large")).unwrap(), vec![7; 9 << 20]);
        assert_eq!(fs::read_dir(user.path("dst")).unwrap().count(), 2, "nothing else is left");
    }
}

/// A power cut can leave a new file with the time and size of the source's, and zeros.
#[test]
fn a_file_that_an_interrupted_run_did_not_record_is_sent_again() {
    const SIZE: usize = 200 << 10;
    for options in [&[][..], &["--ignore-existing"]] {
        let ground = Ground::new();
        let content = |index: usize| vec![b'a' + (index % 20) as u8; SIZE];
        for index in 0..40 {
            fs::write(ground.path(&format!("src/new{index}")), content(index)).unwrap();
        }
        // Nothing of a group is recorded before the group is complete.
        let mut command = Command::new(CARRACK);
        command.args(["sync", "--bwlimit", "1MB", "--group-size", "1GiB", "--group-time", "3600000"]);
        let (source, sink) = (ground.path("src"), ground.path("dst"));
        let running = Running::start(command.args(options).arg(format!("{}/", source.display())).arg(&sink));
        let named = || (0..40).map(|index| format!("dst/new{index}")).find(|name| ground.path(name).exists());
        let torn = wait_for("a new file", named);
        running.signal(Signal::KILL);
        running.end();
        let time = fs::metadata(ground.path(&torn)).unwrap().modified().unwrap();
        fs::write(ground.path(&torn), vec![0; SIZE]).unwrap();
        File::options().write(true).open(ground.path(&torn)).unwrap().set_modified(time).unwrap();
        ground.sync(("", ""), options, 0);
        for index in 0..40 {
            assert!(fs::read(ground.path(&format!("dst/new{index}"))).unwrap() == content(index), "{index}");
        }
    }
}
