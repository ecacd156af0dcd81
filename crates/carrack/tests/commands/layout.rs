//! `carrack layout` on the file systems of this machine: its reports, and its failures.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::process::{assert_exit, assert_says, json, run, talk};
use crate::common::{CARRACK, Places, say_skipped};

#[track_caller]
fn layout(directory: &Path, arguments: &[&str]) -> Output {
    run(Command::new(CARRACK).arg("layout").args(arguments).current_dir(directory))
}

/// Returns the line of one path.
#[track_caller]
fn line(directory: &Path, arguments: &[&str]) -> Value {
    let output = layout(directory, &[&["--json"], arguments].concat());
    assert_exit(&output, 0);
    let mut lines = json(&output);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn sparse(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

/// Returns directories in `/var/tmp`, mostly on a disk, and in memory.
fn directories() -> Vec<tempfile::TempDir> {
    let made = ["/var/tmp", "/dev/shm"].map(tempfile::tempdir_in);
    made.into_iter().filter_map(|dir| dir.map_err(|error| say_skipped(&error.to_string())).ok()).collect()
}

#[test]
fn a_file_on_a_plain_file_system_lies_on_one_target() {
    for dir in directories() {
        sparse(&dir.path().join("big"), 10 << 40);
        let line = line(dir.path(), &["--extents", "big"]);
        assert_eq!((&line["path"], &line["size"]), (&json!("big"), &json!(10u64 << 40)));
        let target = &line["targets"][0]["target"];
        assert_eq!(line["targets"], json!([{"target": target, "bytes": 10u64 << 40}]));
        assert_eq!(line["extents"], json!([{"offset": 0, "length": 10u64 << 40, "target": target}]));
        assert_eq!((&line["imbalance"], &line["released"]), (&json!(1.0), &json!(false)));
        assert!(line["file_system"].is_string() && line.get("problem").is_none(), "{line}");
        let table = text(&layout(dir.path(), &["big"]));
        for words in ["big\n  file system ", "10.0 TiB", "100.0%", target.as_str().unwrap()] {
            assert!(table.contains(words), "{words}: {table}");
        }
    }
}

#[test]
fn memory_is_called_by_its_name() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return say_skipped("no /dev/shm") };
    let line = line(dir.path(), &["."]);
    assert_eq!((&line["type"], &line["own_target"]), (&json!("directory"), &json!("tmpfs")));
    assert_eq!((&line["size"], &line["targets"]), (&Value::Null, &json!([])));
}

#[test]
fn a_tree_is_added_up_without_following_links() {
    for dir in directories() {
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        (0..700).for_each(|index| sparse(&tree.join(format!("a/{index}")), index));
        sparse(&tree.join("a/b/big"), 1 << 40);
        sparse(&dir.path().join("outside"), 1 << 30);
        symlink("../outside", tree.join("link")).unwrap();
        symlink("..", tree.join("up")).unwrap();
        let sum = (1u64 << 40) + 699 * 700 / 2;
        let line = line(dir.path(), &["-r", "tree"]);
        assert_eq!((&line["files"], &line["size"]), (&json!(701), &json!(sum)), "{line}");
        assert_eq!(line["targets"], json!([{"target": line["own_target"], "bytes": sum}]));
        assert_eq!((&line["imbalance"], &line["released_files"]), (&json!(1.0), &json!(0)));
    }
}

#[test]
fn links_that_are_named_are_followed() {
    let places = Places::new();
    fs::create_dir(places.near("d")).unwrap();
    sparse(&places.near("d/f"), 7);
    symlink("d/f", places.near("file")).unwrap();
    symlink("d", places.near("directory")).unwrap();
    symlink("nowhere", places.near("dangling")).unwrap();
    assert_eq!(line(&places.near(""), &["file"])["size"], json!(7));
    assert_eq!(line(&places.near(""), &["-r", "directory"])["files"], json!(1));
    assert_exit(&layout(&places.near(""), &["dangling"]), 3);
}

#[test]
fn an_empty_file_and_an_empty_directory_are_even() {
    let places = Places::new();
    sparse(&places.near("f"), 0);
    let file = line(&places.near(""), &["--extents", "f"]);
    assert_eq!((&file["imbalance"], &file["extents"]), (&json!(1.0), &json!([])));
    let directory = line(&places.near(""), &["-r", "../far"]);
    assert_eq!((&directory["files"], &directory["size"]), (&json!(0), &json!(0)));
    assert_eq!((&directory["imbalance"], &directory["targets"]), (&json!(1.0), &json!([])));
}

#[test]
fn names_of_any_bytes_are_told_safely() {
    let places = Places::new();
    let name = std::ffi::OsStr::from_bytes(b"odd\n\x1b\xff");
    sparse(&places.near("").join(name), 1);
    let command = |json: &[&str]| {
        let output =
            run(Command::new(CARRACK).arg("layout").args(json).arg(name).current_dir(places.near("")));
        assert_exit(&output, 0);
        output
    };
    assert!(text(&command(&[])).starts_with("odd\\n\\u{1b}\\xff\n"));
    let lines = json(&command(&["--json"]));
    assert_eq!((lines.len(), &lines[0]["path_hex"]), (1, &json!("6f64640a1bff")));
}

#[test]
fn what_failed_does_not_hide_what_did_not() {
    let places = Places::new();
    sparse(&places.near("f"), 1);
    let output = layout(&places.near(""), &["--json", "none", "f", "/dev/null"]);
    assert_exit(&output, 1);
    assert_eq!(json(&output).len(), 1);
    assert_says(
        &output,
        &["error: none: no such file", "hint: ", "/dev/null: not a regular file or directory"],
    );
    let output = layout(&places.near(""), &["none"]);
    assert_exit(&output, 3);
    assert!(output.stdout.is_empty());
}

#[test]
fn what_may_not_be_seen_is_told() {
    let places = Places::new();
    fs::create_dir_all(places.near("tree/closed")).unwrap();
    sparse(&places.near("tree/f"), 3);
    sparse(&places.near("tree/closed/f"), 3);
    fs::set_permissions(places.near("tree/closed"), Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(places.near("tree/closed")).is_ok() {
        fs::set_permissions(places.near("tree/closed"), Permissions::from_mode(0o755)).unwrap();
        return say_skipped("this user may read everything");
    }
    let file = layout(&places.near(""), &["tree/closed/f"]);
    assert_exit(&file, 3);
    assert_says(&file, &["tree/closed/f: permission denied", "hint: run as a user"]);
    let tree = layout(&places.near(""), &["--json", "-r", "tree"]);
    assert_exit(&tree, 1);
    assert_eq!(json(&tree)[0]["files"], json!(1));
    assert_says(&tree, &["tree/closed: ", "ermission denied"]);
    let closed = layout(&places.near(""), &["-r", "tree/closed"]);
    assert_exit(&closed, 3);
    assert!(closed.stdout.is_empty());
    fs::set_permissions(places.near("tree/closed"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn files_that_may_not_be_read_are_shown() {
    let places = Places::new();
    sparse(&places.near("f"), 5);
    fs::set_permissions(places.near("f"), Permissions::from_mode(0o000)).unwrap();
    assert_eq!(line(&places.near(""), &["f"])["size"], json!(5));
}

#[test]
fn declared_mounts_are_a_target_each() {
    let (Ok(disk), Ok(shm)) = (tempfile::tempdir_in("/var/tmp"), tempfile::tempdir_in("/dev/shm")) else {
        return say_skipped("no /dev/shm");
    };
    let (disk, shm) = (disk.path().to_str().unwrap(), shm.path().to_str().unwrap());
    sparse(&Path::new(shm).join("f"), 5);
    let line = line(Path::new(shm), &["--targets", &format!("{disk},{shm}"), "f"]);
    assert_eq!((&line["file_system"], &line["targets"][0]["target"]), (&json!("set"), &json!(shm)));
    for sets in [format!("{disk},{disk}/none"), format!("{shm},/dev/shm")] {
        let output = layout(Path::new(shm), &["--targets", &sets, "f"]);
        assert_exit(&output, 2);
        assert_says(&output, &["--targets: ", "hint: name each mount once"]);
    }
}

#[test]
fn paths_are_told_apart_and_nonsense_is_refused() {
    let places = Places::new();
    for name in ["a", "b"] {
        File::create(places.near(name)).unwrap().write_all(b"12345").unwrap();
    }
    let blocks = text(&layout(&places.near(""), &["a", "b"]));
    assert!(blocks.starts_with("a\n") && blocks.contains("\n\nb\n") && blocks.contains("5 B"), "{blocks}");
    for arguments in [&[][..], &["-r", "--extents", "a"], &["--frob", "a"]] {
        let output = layout(&places.near(""), arguments);
        assert_exit(&output, 2);
        assert!(!talk(&output).is_empty());
    }
}

#[test]
fn a_reader_who_leaves_is_no_death() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return say_skipped("no /dev/full") };
    let places = Places::new();
    let output =
        Command::new(CARRACK).args(["layout", "."]).current_dir(places.near("")).stdout(full).output();
    let output = output.unwrap();
    assert_exit(&output, 3);
    assert_says(&output, &["writing to stdout: "]);
}
