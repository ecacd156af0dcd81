//! Selection of the entries to copy: patterns, sizes, times and lists, with the source here and far away.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::common;
use crate::common::process::{assert_exit, assert_says, run};
use crate::common::{CARRACK, DIRECT_SHELL, Unprivileged};

fn plant(root: &Path) {
    for directory in ["src/a/build", "src/b", "src/keep"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (name, bytes, seconds) in [
        ("a/f.c", 10, 1_000),
        ("a/f.o", 2_000, 2_000),
        ("a/build/x", 10, 3_000),
        ("b/f.c", 5_000, 4_000),
        ("keep/k.o", 3, 5_000),
        ("top", 0, 6_000),
    ] {
        let path = root.join("src").join(name);
        fs::write(&path, vec![7; bytes]).unwrap();
        let when = UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(when).unwrap();
    }
    std::os::unix::fs::symlink("top", root.join("src/link")).unwrap();
}

fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())),
            }
        }
    }
    found
}

/// Returns the entries of a planted tree that arrive; the same for either far end.
fn arrives(options: &[&str], exit: i32) -> (String, String) {
    let mut answers = BTreeSet::new();
    for (from, to) in [("", ""), ("host:", ""), ("", "host:")] {
        let dir = tempfile::tempdir().unwrap();
        plant(dir.path());
        let (source, sink) = (dir.path().join("src"), dir.path().join("dst"));
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-rv", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]).args(options);
        command.current_dir(dir.path());
        let output =
            run(command.arg(format!("{from}{}/", source.display())).arg(format!("{to}{}", sink.display())));
        assert_exit(&output, exit);
        let told = String::from_utf8_lossy(&output.stderr);
        let told: Vec<&str> = told.lines().filter(|line| line.contains("left out")).collect();
        let top = format!("{from}{}", dir.path().display());
        let mut told: Vec<String> = told.iter().map(|line| line.replace(&top, "")).collect();
        told.sort();
        answers.insert((files(&sink).into_iter().collect::<Vec<_>>().join(" "), told.join("\n")));
    }
    assert_eq!(answers.len(), 1, "{answers:#?}");
    answers.pop_first().unwrap()
}

#[test]
fn patterns_are_those_of_gitignore_and_what_is_left_out_is_told() {
    let options = ["--exclude", "*.o", "--exclude", "build/", "--include", "/keep/*.o"];
    let (found, told) = arrives(&options, 0);
    assert_eq!(found, "a/f.c b/f.c keep/k.o link top");
    assert!(told.contains("carrack: left out: /src/a/build: excluded"), "{told}");
    assert!(told.contains("/src/a/f.o: excluded") && told.contains("2 entries left out"), "{told}");
}

#[test]
fn sizes_times_and_links() {
    assert_eq!(arrives(&["--min-size", "10", "--max-size", "2k"], 0).0, "a/build/x a/f.c a/f.o link");
    assert_eq!(arrives(&["--newer", "@4000", "--skip-links"], 0).0, "keep/k.o top");
}

#[test]
fn links_are_followed_on_request() {
    let dir = tempfile::tempdir().unwrap();
    for (options, ends) in
        [("-rL", ("", "")), ("-aL", ("host:", "")), ("-aL", ("", "host:")), ("-aL", ("host:", "host:"))]
    {
        let (source, sink) = (dir.path().join("src"), dir.path().join("dst"));
        plant(dir.path());
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/g"), "far").unwrap();
        for (text, link) in [("../outside", "way"), ("gone", "dangling"), ("..", "a/up")] {
            std::os::unix::fs::symlink(text, source.join(link)).unwrap();
        }
        let mut command = Command::new(CARRACK);
        command.args(["cp", options, "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]);
        command.arg(format!("{}{}/", ends.0, source.display()));
        let output = run(command.arg(format!("{}{}", ends.1, sink.display())));
        assert_exit(&output, 1);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("a link to 'gone', which is not there"), "{told}");
        assert!(told.contains("a/up: a link leads back to a directory that it stands in"), "{told}");
        let found = files(&sink).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(found, "a/build/x a/f.c a/f.o b/f.c keep/k.o link top way/g", "{ends:?}");
        assert!(fs::symlink_metadata(sink.join("link")).unwrap().is_file());
        assert_eq!(fs::read_to_string(sink.join("way/g")).unwrap(), "far");
        for made in [&source, &sink, &dir.path().join("outside")] {
            fs::remove_dir_all(made).unwrap();
        }
    }
}

#[test]
fn a_file_reached_by_links_is_copied_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let (source, sink) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir_all(source.join("d")).unwrap();
    // A file in a bundle, and a large file.
    for (name, bytes) in [("small", 10), ("large", 3 << 20)] {
        fs::write(source.join("d").join(name), vec![5; bytes]).unwrap();
        fs::hard_link(source.join("d").join(name), source.join("d").join(format!("{name}2"))).unwrap();
        std::os::unix::fs::symlink(format!("d/{name}"), source.join(format!("a-{name}"))).unwrap();
        std::os::unix::fs::symlink(format!("d/{name}"), source.join(format!("b-{name}"))).unwrap();
    }
    let options = ["sync", "-aHL", "--contents"];
    for _ in 0..2 {
        let output = run(Command::new(CARRACK).args(options).arg(source.join("")).arg(&sink));
        assert_exit(&output, 0);
    }
    let names = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::symlink_metadata(sink.join(name)).unwrap();
        assert!(metadata.is_file(), "{name}");
        metadata.nlink()
    };
    assert_eq!((names("d/small"), names("a-small"), names("b-small")), (2, 1, 1));
    assert_eq!((names("d/large"), names("a-large"), names("b-large")), (2, 1, 1));
    assert_eq!(fs::read(sink.join("a-large")).unwrap(), vec![5; 3 << 20]);
}

#[test]
fn links_that_lead_out_are_left_out_on_request() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    for (text, link) in [("../outside", "way"), ("../top", "a/inside"), ("/etc/hosts", "b/absolute")] {
        std::os::unix::fs::symlink(text, dir.path().join("src").join(link)).unwrap();
    }
    let mut command = Command::new(CARRACK);
    command.args(["cp", "-rv", "--safe-links"]).arg(dir.path().join("src/"));
    let output = run(command.arg(dir.path().join("dst")));
    assert_exit(&output, 0);
    let found = files(&dir.path().join("dst")).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found, "a/build/x a/f.c a/f.o a/inside b/f.c keep/k.o link top");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("2 entries left out") && told.contains("way: a link that leads out"), "{told}");
}

#[test]
fn a_list_names_what_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    fs::write(&list, "a\n./top\n").unwrap();
    let option = format!("--files-from={}", list.display());
    assert_eq!(arrives(&[&option], 0).0, "a/build/x a/f.c a/f.o top");
    fs::write(&list, "b/f.c\nb/gone\n").unwrap();
    assert_eq!(arrives(&[&option], 1).0, "b/f.c");
}

/// The test mounts a file system within the source, where mounts are allowed.
#[test]
fn other_file_systems_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    let inner = dir.path().join("src/b");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return common::skip("nothing can be mounted here");
    }
    fs::write(inner.join("other"), "x").unwrap();
    let sink = dir.path().join("dst");
    let output = run(Command::new(CARRACK).args(["cp", "-rx"]).arg(dir.path().join("src")).arg(&sink));
    let _ = Command::new("umount").arg(&inner).status();
    assert_exit(&output, 0);
    assert!(sink.join("a/f.c").exists() && !sink.join("b").exists());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for options in [&["--exclude", "{a"][..], &["--files-from", "/no/such/file"], &["--newer", "soon"]] {
        let output = run(Command::new(CARRACK).args(["cp", "-r"]).args(options).args(["a", "b"]));
        assert_exit(&output, 2);
    }
}

#[test]
fn a_directory_that_can_not_be_listed_gives_what_is_named_in_it() {
    for from in ["", "host:"] {
        let user = Unprivileged::new();
        for name in ["src/x/in/deep", "src/open", "dst"] {
            user.directory(name);
        }
        for (name, bytes) in [("x/f", 10), ("x/large", 9 << 20), ("x/in/deep/g", 10), ("open/h", 10)] {
            fs::write(user.path("src").join(name), vec![7; bytes]).unwrap();
        }
        fs::write(user.path("list"), "x/f\nx/in/deep\nx/gone\n").unwrap();
        user.give();
        user.set_mode("src/x/in", 0o111);
        user.set_mode("src/x", 0o111);
        let copy = |words: &[&str], source: &str, sink: &str| {
            let mut command = user.command();
            command.args(["cp", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK]).args(words);
            run(command.arg(format!("{from}{}", user.path(source).display())).arg(user.path(sink)))
        };
        for name in ["f", "large"] {
            assert_exit(&copy(&[], &format!("src/x/{name}"), &format!("dst/{name}")), 0);
            let arrived = fs::read(user.path("dst").join(name)).unwrap();
            assert!(arrived == vec![7; if name == "f" { 10 } else { 9 << 20 }], "{name}");
        }
        // One file of the list does not exist.
        let listed = copy(&["-r", "--files-from", "list"], "src/", "dst/listed");
        assert_exit(&listed, 1);
        assert_says(&listed, &["x/gone"]);
        let arrived = ["x/f", "x/in/deep/g"].map(str::to_owned);
        assert_eq!(files(&user.path("dst/listed")), BTreeSet::from(arrived));
        // In a tree these are the only failures.
        assert_exit(&copy(&["-r"], "src/", "dst/tree"), 1);
        assert_eq!(files(&user.path("dst/tree")), BTreeSet::from(["open/h".to_owned()]));
    }
}
