//! Filters in the languages of rsync and rclone, with either end far away.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::process::{assert_exit, assert_says, run};
use crate::common::{CARRACK, DIRECT_SHELL};

/// The ends of a copy: here, or far away.
const ENDS: [(&str, &str); 4] = [("", ""), ("host:", ""), ("", "host:"), ("host:", "host:")];

fn plant(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, *name).unwrap();
    }
}

fn files(root: &Path) -> String {
    let (mut found, mut left) = (BTreeSet::new(), vec![root.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())),
            }
        }
    }
    found.into_iter().collect::<Vec<_>>().join(" ")
}

/// Syncs `src/` to `dst` in a directory.
fn sync(place: &Path, (from, to): (&str, &str), options: &[&str]) -> Output {
    let mut command = Command::new(CARRACK);
    command
        .args(["sync", "-a", "--no-journal", "--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK])
        .args(options);
    command.arg(format!("{from}{}/src/", place.display())).arg(format!("{to}{}/dst", place.display()));
    run(command.current_dir(place))
}

/// Returns the files of the destination after a sync over old files, which are the same for all ends.
fn synced(source: &[&str], old: &[&str], options: &[&str]) -> String {
    let mut found = BTreeSet::new();
    for ends in ENDS {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dst")).unwrap();
        plant(&dir.path().join("src"), source);
        plant(&dir.path().join("dst"), old);
        fs::write(dir.path().join("RULES"), "# objects\n- *.o\n+ */\n").unwrap();
        fs::write(dir.path().join("LIST"), "*.o\n; logs\n- *.log\n").unwrap();
        for directory in ["src/d", "dst/d"] {
            if dir.path().join(directory).is_dir() {
                fs::write(dir.path().join(directory).join(".rules"), "- x\nP kept\n").unwrap();
            }
        }
        assert_exit(&sync(dir.path(), ends, options), 0);
        found.insert(files(&dir.path().join("dst")));
    }
    assert_eq!(found.len(), 1, "{found:#?}");
    found.pop_first().unwrap()
}

#[test]
fn rules_of_rsync_hide_and_protect_at_either_end() {
    let source = ["a", "a.o", "d/x", "d/b", "e/x"];
    let old = ["old.o", "gone", "d/x", "d/kept", "d/gone"];
    let delete = |words: &[&str]| synced(&source, &old, &[&["--delete"], words].concat());
    assert_eq!(delete(&["--filter", "- *.o"]), "a d/.rules d/b d/x e/x old.o");
    assert_eq!(delete(&["--filter", "H *.o"]), "a d/.rules d/b d/x e/x");
    assert_eq!(delete(&["--filter", "P *.o"]), "a a.o d/.rules d/b d/x e/x old.o");
    assert_eq!(delete(&["--filter", "merge RULES"]), "a d/.rules d/b d/x e/x old.o");
    assert_eq!(delete(&["--exclude-from", "LIST"]), "a d/.rules d/b d/x e/x old.o");
    assert_eq!(delete(&["--filter", "- *.o", "--delete-excluded"]), "a d/.rules d/b d/x e/x");
    // The file's rules are for its directory.
    assert_eq!(delete(&["--filter", ": .rules"]), "a a.o d/.rules d/b d/kept d/x e/x");
    assert_eq!(delete(&["--include-from", "LIST", "--filter", "- /a*"]), "a.o d/.rules d/b d/x e/x");
}

#[test]
fn rules_of_rclone_exclude_and_protect_at_either_end() {
    let source = ["a.jpg", "b.txt", "d/c.jpg", "d/e.txt", "tmp/f.jpg"];
    let old = ["old.txt", "old.jpg"];
    let words = [
        "--delete",
        "--rclone-filter",
        "- /tmp/",
        "--rclone-filter",
        "+ *.{jpg,png}",
        "--rclone-filter",
        "- *",
    ];
    assert_eq!(synced(&source, &old, &words), "a.jpg d/c.jpg old.txt");
}

#[test]
fn files_in_another_language_are_refused_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    plant(&dir.path().join("src"), &["a"]);
    plant(&dir.path().join("dst"), &["old.log"]);
    fs::write(dir.path().join("rules"), "# mine\n- *.log\n").unwrap();
    let refused = sync(dir.path(), ("", ""), &["--delete", "--filter-from", "rules"]);
    assert_exit(&refused, 2);
    assert_says(
        &refused,
        &["rules:2: '- *.log'", "gitignore(5)", "--filter 'merge rules'", "--rclone-filter-from rules"],
    );
    for words in [
        &["--exclude", "- *.log"][..],
        &["--exclude", "*.log", "--filter", "- *.o"],
        &["--filter", "-/ x"],
        &["--filter", "x"],
        &["--filter", "merge nowhere"],
        &["--rclone-filter", "x"],
        &["--rclone-filter-from", "src"],
    ] {
        assert_exit(&sync(dir.path(), ("", ""), &[&["--delete"], words].concat()), 2);
    }
    assert_eq!(files(&dir.path().join("dst")), "old.log");
    assert_exit(&sync(dir.path(), ("", ""), &["--delete", "--filter", "merge rules"]), 0);
    assert_eq!(files(&dir.path().join("dst")), "a old.log");
    assert_exit(&sync(dir.path(), ("", ""), &["--delete", "--rclone-filter-from", "rules"]), 0);
    assert_eq!(files(&dir.path().join("dst")), "a old.log");
}

/// What a file of rules says is unknown: nothing is copied from its directory, and nothing deleted.
#[test]
fn directories_with_unknown_rules_stay_as_they_are() {
    for ends in ENDS {
        let dir = tempfile::tempdir().unwrap();
        plant(&dir.path().join("src"), &["a", "d/b", "d/e/f"]);
        plant(&dir.path().join("dst"), &["gone", "d/gone"]);
        fs::write(dir.path().join("src/d/.rules"), "- b\nnonsense\n").unwrap();
        let failed = sync(dir.path(), ends, &["--delete", "--filter", ": .rules"]);
        assert_exit(&failed, 1);
        assert_says(&failed, &["the filter rules in .rules are unknown: line 2: 'nonsense'"]);
        assert_eq!(files(&dir.path().join("dst")), "a d/gone gone");
        // The destination's file, which the source does not have.
        fs::remove_file(dir.path().join("src/d/.rules")).unwrap();
        fs::write(dir.path().join("dst/d/.rules"), "nonsense\n").unwrap();
        let failed = sync(dir.path(), ends, &["--delete", "--filter", ": .rules"]);
        assert_exit(&failed, 1);
        assert_says(&failed, &["nothing is deleted in it"]);
        assert_eq!(files(&dir.path().join("dst")), "a d/.rules d/b d/e/f d/gone");
        let refused = sync(dir.path(), ends, &["--delete-before", "--filter", ": .rules"]);
        assert_exit(&refused, 3);
        assert_says(&refused, &["--delete-before", "hint: "]);
    }
}
