//! Entries that `--delete` must not remove: those that this run has not proven absent, mounts, and entries
//! that the sources as a whole lack.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{ENDS, Ground, counted, names};
use crate::common::process::{Running, assert_exit, run};
use crate::common::{CARRACK, DIRECT_SHELL, say_skipped};

const DELETIONS: [&str; 2] = ["--delete", "--delete-before"];

/// A mount, which is unmounted on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system in memory; `None` where that is not allowed.
    pub fn memory(at: &Path) -> Option<Mounted> {
        Mounted::by(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], at)
    }

    /// Mounts a directory a second time.
    pub fn bind(from: &Path, at: &Path) -> Option<Mounted> {
        Mounted::by(&["--bind", from.to_str()?], at)
    }

    fn by(options: &[&str], at: &Path) -> Option<Mounted> {
        let made = Command::new("mount").args(options).arg(at).output().ok()?;
        made.status.success().then(|| Mounted(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may be unmounted already.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

impl Ground {
    /// Runs a sync, and calls `happens` when the scan is over and a file of the source is being sent.
    fn sync_while(&self, (from, to): (&str, &str), delete: &str, happens: impl FnOnce()) -> Output {
        fs::write(self.path("src/large"), vec![7; 1_000_000]).unwrap();
        let mut command = Command::new(CARRACK);
        command.args(["sync", "--json", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK, delete]);
        // The report on a far source's scan comes within a second.
        command.args(["--bwlimit", "400kB", "--object-size", "128KiB"]);
        let (source, sink) = (self.path("src"), self.path("dst"));
        let syncing = Running::start(
            command.arg(format!("{from}{}/", source.display())).arg(format!("{to}{}", sink.display())),
        );
        syncing.wait_for_report(r#""scan_done":true"#);
        happens();
        syncing.end()
    }
}

#[test]
fn what_vanishes_after_the_scan_stays() {
    for ends in ENDS {
        let ground = Ground::new();
        fs::create_dir_all(ground.path("src/still")).unwrap();
        fs::create_dir_all(ground.path("dst/still")).unwrap();
        ground.write("dst/still/old", "", 1_000);
        let output = ground.sync_while(ends, "--delete", || {
            fs::remove_dir_all(ground.path("src/d")).unwrap();
        });
        assert_exit(&output, 1);
        assert_eq!(names(&ground.path("dst/d")), ["e", "g"], "{ends:?}");
        assert_eq!(ground.read("dst/d/e/h"), "content");
        assert!(told(&output).contains("it changed during this run"), "{ends:?}: {}", told(&output));
        assert!(!ground.path("dst/still/old").exists(), "{ends:?}: what is proven to be gone goes");
    }
}

/// The scan has passed the new place and has not reached the old one.
#[test]
fn what_moves_during_the_run_stays() {
    let ground = Ground::new();
    let output = ground.sync_while(("", "host:"), "--delete", || {
        fs::rename(ground.path("src/d/e"), ground.path("src/e")).unwrap();
    });
    assert_exit(&output, 1);
    assert_eq!(ground.read("dst/d/e/h"), "content");
}

#[test]
fn a_source_that_gets_another_directory_in_its_place_deletes_nothing() {
    for ends in [("", ""), ("host:", "")] {
        let ground = Ground::new();
        ground.write("dst/x", "", 1_000);
        ground.write("dst/d/e/x", "", 1_000);
        let output = ground.sync_while(ends, "--delete", || {
            fs::rename(ground.path("src"), ground.path("away")).unwrap();
            fs::create_dir(ground.path("src")).unwrap();
        });
        assert_exit(&output, 1);
        assert!(ground.path("dst/x").exists() && ground.path("dst/d/e/x").exists(), "{ends:?}");
        let told = told(&output);
        assert!(told.contains("during this run"), "{told}");
    }
}

#[test]
fn a_mount_that_goes_or_comes_during_the_run_costs_nothing() {
    let prepare = || {
        let ground = Ground::new();
        for path in ["src/m", "dst/m", "other"] {
            fs::create_dir(ground.path(path)).unwrap();
        }
        ground.write("dst/m/f", "x", 1_000);
        ground
    };
    for ends in [("", ""), ("", "host:"), ("host:", "")] {
        let ground = prepare();
        let point = ground.path("src/m");
        let Some(mounted) = Mounted::memory(&point) else { return say_skipped("can't mount") };
        ground.write("src/m/f", "x", 1_000);
        let output = ground.sync_while(ends, "--delete", || drop(mounted));
        assert_exit(&output, 1);
        assert_eq!(ground.read("dst/m/f"), "x", "{ends:?}: unmounted");
        let ground = prepare();
        ground.write("src/m/f", "x", 1_000);
        let (point, other) = (ground.path("src/m"), ground.path("other"));
        let mut mounted = None;
        let output = ground.sync_while(ends, "--delete", || mounted = Mounted::bind(&other, &point));
        assert_exit(&output, 1);
        assert_eq!(ground.read("dst/m/f"), "x", "{ends:?}: mounted over");
    }
}

#[test]
fn what_is_mounted_beneath_the_destination_stays() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        for path in ["dst/gone/m", "dst/d/m", "src/d/m", "same"] {
            fs::create_dir_all(ground.path(path)).unwrap();
        }
        let (gone, shared) = (ground.path("dst/gone/m"), ground.path("dst/d/m"));
        let Some(_gone) = Mounted::memory(&gone) else { return say_skipped("can't mount") };
        // The mount is of the same device.
        let Some(_shared) = Mounted::bind(&ground.path("same"), &shared) else {
            return say_skipped("can't mount");
        };
        for name in ["dst/gone/m/keep", "dst/gone/f", "dst/d/m/keep"] {
            ground.write(name, "", 1_000);
        }
        let output = ground.sync(ends, &[delete], 0);
        assert!(ground.path("dst/gone/m/keep").exists() && ground.path("same/keep").exists(), "{ends:?}");
        assert_eq!(counted(&output, "entries_deleted"), 1, "{ends:?}");
        assert!(
            told(&output).contains("mounts beneath the destination stay with what is in them (2)"),
            "{}",
            told(&output)
        );
        let output = ground.sync(ends, &[delete, "--delete-mounts"], 0);
        assert_eq!(counted(&output, "entries_deleted"), 2, "{ends:?}");
        assert_eq!((names(&gone).len(), names(&ground.path("same")).len()), (0, 0));
    }
}

/// The source has another kind of entry in its place.
#[test]
fn a_mount_does_not_give_way() {
    let ground = Ground::new();
    fs::create_dir_all(ground.path("dst/new/m")).unwrap();
    ground.write("src/new", "content", 1_000);
    let point = ground.path("dst/new/m");
    let Some(_mounted) = Mounted::memory(&point) else { return say_skipped("can't mount") };
    ground.write("dst/new/m/keep", "", 1_000);
    ground.sync(("", "host:"), &["--delete"], 1);
    assert!(ground.path("dst/new/m/keep").exists());
}

#[test]
fn a_source_without_entries_empties_nothing() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        let output = ground.sync(ends, &[delete, "--exclude", "*", "--delete-excluded"], 1);
        assert!(told(&output).contains("--delete-all"), "{}", told(&output));
        fs::remove_dir_all(ground.path("src")).unwrap();
        fs::create_dir(ground.path("src")).unwrap();
        let output = ground.sync(ends, &[delete], 1);
        assert!(told(&output).contains("--delete-all"), "{}", told(&output));
        assert_eq!(ground.read("dst/d/e/h"), "content", "{ends:?}");
        ground.sync(ends, &[delete, "--delete-all"], 0);
        assert!(names(&ground.path("dst")).is_empty(), "{ends:?}");
        ground.sync(ends, &[delete], 0);
    }
}

#[test]
fn what_an_unset_variable_leaves_is_no_source_to_delete_by() {
    let ground = Ground::new();
    symlink("/", ground.path("top")).unwrap();
    let shown = |path: &str| ground.path(path).into_os_string().into_string().unwrap();
    let (target, source, top) = (shown("dst"), format!("{}/", shown("src")), shown("top"));
    for (from, to) in [
        ("host:", &*target),
        ("host:/", &target),
        ("/", &target),
        (&source, "host:"),
        (&source, "/"),
        (&source, "/tmp/.."),
        (&source, &top),
        (&source, "carrack://host/data//"),
        ("carrack://host/data/run//", &target),
    ] {
        let output = run(dry_deletion().args([from, to]));
        assert_exit(&output, 2);
        assert!(told(&output).contains("--delete-all"), "{from} {to}: {}", told(&output));
    }
    // Only the far end knows the directory of this path.
    let home = ground.path("dst").canonicalize().unwrap();
    let home_of_far_end = format!("host:{}/d/..", home.display());
    let output = run(dry_deletion().env("HOME", &home).args([&source, &home_of_far_end]));
    assert_exit(&output, 1);
    let told = told(&output);
    assert!(told.contains("--delete-all") && !told.contains("deleting"), "{told}");
}

fn dry_deletion() -> Command {
    let mut command = Command::new(CARRACK);
    command.args(["sync", "-n", "--delete", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]);
    command
}

#[test]
fn one_of_several_sources_without_entries_is_a_mistake_too() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        fs::create_dir(ground.path("unmounted")).unwrap();
        ground.write("dst/x", "", 1_000);
        let mut command = Command::new(CARRACK);
        command.args(["sync", delete, "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]);
        let sources = ["src", "unmounted"].map(|path| format!("{}{}/", ends.0, ground.path(path).display()));
        let output = run(command.args(sources).arg(format!("{}{}", ends.1, ground.path("dst").display())));
        assert_exit(&output, 1);
        assert!(told(&output).contains("unmounted"), "{}", told(&output));
        assert!(ground.path("dst/x").exists(), "{ends:?}");
    }
}

/// A dry run lists the entries that a run deletes, and ends as the run does.
#[test]
fn a_dry_run_tells_what_the_run_does() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        for path in ["dst/gone/m", "dst/old/.carrack-trash", "dst/more/in"] {
            fs::create_dir_all(ground.path(path)).unwrap();
        }
        for name in ["dst/gone/f", "dst/old/keep.o", "dst/old/f", "dst/more/in/f"] {
            ground.write(name, "", 1_000);
        }
        let point = ground.path("dst/gone/m");
        let Some(_mounted) = Mounted::memory(&point) else { return say_skipped("can't mount") };
        let would = |options: &[&str], exit| {
            let output = ground.sync(ends, &[options, &["-n"]].concat(), exit);
            let mut goes: Vec<String> = told(&output)
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                .filter(|line| line["event"] == "would_delete")
                .map(|line| line["path"].as_str().unwrap().to_owned())
                .collect();
            goes.sort();
            (goes, told(&output).contains("mounts beneath the destination stay with what is in them (1)"))
        };
        let options = [delete, "--exclude", "*.o"];
        for limited in [["--max-delete", "4"], ["--max-delete", "10%"]] {
            would(&[&options[..], &limited].concat(), 1);
        }
        let goes = ["gone/f", "more", "more/in", "more/in/f", "old/f"].map(str::to_owned);
        assert_eq!(would(&options, 0), (goes.to_vec(), true), "{ends:?}");
        let output = ground.sync(ends, &options, 0);
        assert_eq!(counted(&output, "entries_deleted"), 5, "{ends:?}");
        assert_eq!(names(&ground.path("dst")), ["d", "f", "gone", "link", "old"]);
    }
}

#[test]
fn a_backup_where_the_source_has_a_directory_stays() {
    for ends in ENDS {
        let ground = Ground::new();
        for path in ["src/sub", "dst/sub", "dst/a"] {
            fs::create_dir(ground.path(path)).unwrap();
        }
        for name in ["src/sub/f", "dst/sub/x", "dst/a/y"] {
            ground.write(name, "content", 1_000);
        }
        let output = ground.sync(ends, &["--delete", "--backup-dir", "sub"], 0);
        assert!(told(&output).contains("backups of deleted entries"), "{}", told(&output));
        assert_eq!(counted(&output, "entries_deleted"), 2, "{ends:?}");
        for _ in 0..2 {
            assert_eq!(names(&ground.path("dst/sub")), [".carrack-backup", "a", "f", "x"], "{ends:?}");
            assert_eq!(ground.read("dst/sub/a/y"), "content");
            let output = ground.sync(ends, &["--delete"], 0);
            assert_eq!(counted(&output, "entries_deleted"), 0, "{ends:?}");
        }
    }
}

#[test]
fn nothing_in_a_backup_is_replaced_by_the_source() {
    for ends in ENDS {
        for way in [&["--backup-dir", "old"][..], &["--trash"]] {
            let ground = Ground::new();
            ground.write("src/keep", "", 1_000);
            ground.write("dst/gone", "the last copy", 1_000);
            let options = [&["--delete"], way].concat();
            ground.sync(ends, &options, 0);
            let backup = if way.len() == 2 {
                "old".to_owned()
            } else {
                let run = names(&ground.path("dst/.carrack-trash"));
                format!(".carrack-trash/{}", run.iter().find(|name| name.starts_with('2')).unwrap())
            };
            fs::create_dir_all(ground.path(&format!("src/{backup}"))).unwrap();
            ground.write(&format!("src/{backup}/gone"), "the source's", 1_000);
            ground.write(&format!("src/{backup}/more"), "the source's", 1_000);
            for options in [&options[..], &["--delete"], &[]] {
                let output = ground.sync(ends, options, 1);
                assert!(told(&output).contains("nothing in a backup is replaced"), "{}", told(&output));
                assert_eq!(
                    ground.read(&format!("dst/{backup}/gone")),
                    "the last copy",
                    "{ends:?} {options:?}"
                );
            }
            assert_eq!(ground.read(&format!("dst/{backup}/more")), "the source's");
        }
    }
}

#[test]
fn a_file_system_that_is_not_mounted_from_the_start_costs_nothing() {
    let ground = Ground::new();
    for path in ["src/disk", "dst/disk"] {
        fs::create_dir(ground.path(path)).unwrap();
    }
    ground.write("dst/disk/f", "x", 1_000);
    ground.write("dst/d/x", "x", 1_000);
    let line =
        format!("UUID=0 {} ext4 noauto 0 0\n", ground.path("src/disk").canonicalize().unwrap().display());
    fs::write(ground.path("fstab"), line).unwrap();
    let script = r#"mount --bind "$0" /etc/fstab && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(ground.path("fstab")).args([CARRACK, "sync", "--delete"]);
    let can = run(Command::new("unshare").args(["-m", "true"]));
    if !can.status.success() || !Path::new("/etc/fstab").exists() {
        return say_skipped("can't have mounts and an /etc/fstab of its own");
    }
    let source = format!("{}/", ground.path("src").display());
    let output = run(command.arg(source).arg(ground.path("dst")));
    assert_exit(&output, 1);
    assert!(told(&output).contains("is not mounted"), "{}", told(&output));
    assert_eq!(ground.read("dst/disk/f"), "x");
    assert!(!ground.path("dst/d/x").exists());
}

#[test]
fn nothing_is_deleted_where_something_failed_at_the_destination() {
    for ends in ENDS {
        let ground = Ground::new();
        fs::create_dir_all(ground.path("dst/blocked/in")).unwrap();
        ground.write("dst/blocked/in/keep.o", "", 1_000);
        ground.write("src/blocked", "content", 1_000);
        ground.write("dst/x", "", 1_000);
        let output = ground.sync(ends, &["--delete", "--exclude", "*.o"], 1);
        assert!(ground.path("dst/x").exists(), "{ends:?}");
        let told = told(&output);
        assert!(
            told.contains("something failed at the destination (1)") && told.contains("(1 entries)"),
            "{told}"
        );
    }
}

#[test]
fn a_part_of_the_destination_is_a_limit() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        fs::create_dir(ground.path("dst/gone")).unwrap();
        for number in 0..3 {
            ground.write(&format!("dst/gone/{number}"), "", 1_000);
        }
        // 4 of the 10 entries would be deleted.
        let output = ground.sync(ends, &[delete, "--max-delete", "39%"], 1);
        assert_eq!(counted(&output, "entries_deleted"), 0, "{ends:?}");
        assert!(told(&output).contains("4 of 10 entries"), "{}", told(&output));
        assert_eq!(names(&ground.path("dst/gone")).len(), 3);
        let output = ground.sync(ends, &[delete, "--max-delete", "40%"], 0);
        assert_eq!(counted(&output, "entries_deleted"), 4, "{ends:?}");
    }
}

#[test]
fn what_patterns_leave_out_goes_if_that_is_asked_for() {
    for ends in ENDS {
        let ground = Ground::new();
        fs::create_dir(ground.path("src/out")).unwrap();
        fs::create_dir_all(ground.path("dst/out/in")).unwrap();
        ground.write("src/a.o", "", 1_000);
        for name in ["dst/a.o", "dst/d/b.o", "dst/out/in/f"] {
            ground.write(name, "", 1_000);
        }
        let options = ["--delete", "--exclude", "*.o", "--exclude", "out/"];
        assert_eq!(counted(&ground.sync(ends, &options, 0), "entries_deleted"), 0, "{ends:?}");
        let options = [&options[..], &["--delete-excluded"]].concat();
        assert_eq!(counted(&ground.sync(ends, &options, 0), "entries_deleted"), 5, "{ends:?}");
        assert_eq!(names(&ground.path("dst")), ["d", "f", "link"]);
    }
}

#[test]
fn what_goes_can_be_kept_in_the_destination() {
    for (ends, delete) in ENDS.into_iter().flat_map(|ends| DELETIONS.map(|option| (ends, option))) {
        let ground = Ground::new();
        fs::create_dir_all(ground.path("dst/gone/deep")).unwrap();
        for name in ["dst/x", "dst/gone/deep/y", "dst/gone/z", "dst/gone/stays.o"] {
            ground.write(name, "old", 1_000);
        }
        symlink("x", ground.path("dst/d/l")).unwrap();
        let options = [delete, "--backup-dir", "old/today", "--exclude", "*.o"];
        let output = ground.sync(ends, &options, 0);
        assert_eq!(counted(&output, "entries_deleted"), 5, "{ends:?}");
        for name in ["x", "gone/deep/y", "gone/z"] {
            assert_eq!(ground.read(&format!("dst/old/today/{name}")), "old", "{ends:?}");
        }
        assert!(ground.path("dst/old/today/d/l").is_symlink());
        assert_eq!(names(&ground.path("dst/gone")), ["stays.o"], "{ends:?}");
        // A later deletion removes neither a backup nor the trash.
        ground.write("dst/x", "newer", 1_000);
        ground.sync(ends, &[delete, "--trash"], 0);
        assert_eq!(names(&ground.path("dst")), [".carrack-trash", "d", "f", "link", "old"]);
        ground.sync(ends, &[delete], 0);
        assert_eq!(ground.read("dst/old/today/x"), "old");
        let runs = names(&ground.path("dst/.carrack-trash"));
        assert_eq!(runs.len(), 2, "the marker, and a run: {runs:?}");
        assert_eq!(ground.read(&format!("dst/.carrack-trash/{}/x", runs[1])), "newer");
        assert!(ground.path(&format!("dst/.carrack-trash/{}/gone/stays.o", runs[1])).exists());
    }
}

#[test]
fn a_backup_lies_beneath_the_destination() {
    let ground = Ground::new();
    for directory in ["/tmp/x", "../x", "."] {
        ground.write("dst/x", "", 1_000);
        let output = ground.sync(("", "host:"), &["--delete", "--backup-dir", directory], 2);
        assert!(told(&output).contains("beneath the destination"), "{}", told(&output));
        assert!(ground.path("dst/x").exists());
    }
}

#[test]
fn a_source_in_the_destination_is_not_deleted() {
    for (from, to) in [("", ""), ("", "host:"), ("host:", "host:")] {
        let ground = Ground::new();
        let source = |path: &str| format!("{from}{}", ground.path(path).display());
        let refused: [&[String]; 3] =
            [&[source("dst/d/")], &[source("src/"), source("dst/d/g")], &[source("src/"), source("dst/d/e")]];
        for (sources, delete) in refused.into_iter().flat_map(|words| DELETIONS.map(|option| (words, option)))
        {
            let output = sync_all(sources, &format!("{to}{}", ground.path("dst").display()), &[delete]);
            assert_exit(&output, 3);
            assert!(told(&output).contains("lies in a directory"), "{}", told(&output));
        }
        assert_eq!(ground.read("dst/d/e/h"), "content");
        // Nothing is deleted in the directory that holds it.
        let output =
            sync_all(&[source("dst/d/e")], &format!("{to}{}", ground.path("dst").display()), &["--delete"]);
        assert_exit(&output, 0);
        assert_eq!((ground.read("dst/e/h"), ground.read("dst/d/e/h")), ("content".into(), "content".into()));
    }
}

fn sync_all(sources: &[String], destination: &str, options: &[&str]) -> Output {
    let mut command = Command::new(CARRACK);
    command.args(["sync", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]).args(options);
    run(command.args(sources).arg(destination))
}

/// The first source wins, however fast each is read.
#[test]
fn of_two_sources_with_an_entry_for_one_place_the_first_counts() {
    for (from, to) in ENDS {
        let ground = Ground::new();
        fs::create_dir_all(ground.path("other/f")).unwrap();
        fs::create_dir(ground.path("other/d")).unwrap();
        for name in ["other/f/in", "other/d/g", "other/d/e", "other/new"] {
            ground.write(name, "other", 5_000);
        }
        let sources = ["src/", "other/"].map(|path| format!("{from}{}/", ground.path(path).display()));
        let output = sync_all(&sources, &format!("{to}{}", ground.path("dst").display()), &[]);
        assert_exit(&output, 1);
        let told = told(&output);
        assert_eq!(told.matches("was named before").count(), 3, "{told}");
        for name in ["f", "d/g", "d/e/h"] {
            assert_eq!(ground.read(&format!("dst/{name}")), "content", "{from} {to}");
        }
        assert_eq!(ground.read("dst/new"), "other");
    }
}

/// A further source is not in the synced directory's contents, but it is a source.
#[test]
fn further_sources_are_not_deleted() {
    let ground = Ground::new();
    fs::create_dir_all(ground.path("other/tree")).unwrap();
    ground.write("other/file", "file", 1_000);
    ground.write("other/tree/f", "f", 1_000);
    ground.write("dst/x", "", 1_000);
    let mut command = Command::new(CARRACK);
    let source = format!("{}/", ground.path("src").display());
    command.args(["sync", "-q", "--delete"]).arg(source).arg(ground.path("other/file"));
    let output = run(command.arg(ground.path("other/tree")).arg(ground.path("dst")));
    assert_exit(&output, 0);
    assert_eq!(names(&ground.path("dst")), ["d", "f", "file", "link", "tree"]);
}
