//! The whole path to and from a striped file system: the double of Lustre (`testbed/lustre`), with a few
//! targets.
//!
//! Each test has a double of its own and is skipped, with its reason, where mounts are not allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::file_system::{FileSystem, layout, plant_large};
use crate::common::process::{assert_exit, json, run};
use crate::common::tree::{assert_same_to_the_second, noise, plant, plant_rich};

fn lustre(options: &[&str]) -> Option<FileSystem> {
    FileSystem::start("lustre", options)
}

/// Returns the bytes that were written to each target.
fn written(lustre: &FileSystem) -> Vec<u64> {
    let traffic = fs::read_to_string(lustre.path(".control/traffic")).unwrap();
    traffic.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_rich_tree_there_and_back() {
    let Some(lustre) = lustre(&["--stripe", "3:65536"]) else { return };
    lustre.takes_and_gives_back_as(plant_rich, assert_same_to_the_second);
}

#[test]
fn a_tree_there_and_back_past_the_page_cache() {
    let Some(lustre) = lustre(&["--direct", "--stripe", "2:1048576"]) else { return };
    lustre.takes_and_gives_back_as(plant, assert_same_to_the_second);
}

#[test]
fn one_slow_target_delays_and_harms_nothing() {
    let Some(lustre) = lustre(&["--stripe", "-1:1048576", "--delay-ms", "2:20"]) else { return };
    lustre.takes_and_gives_back_as(plant, assert_same_to_the_second);
    assert!(written(&lustre).iter().all(|&bytes| bytes > 0));
}

/// Small files wait in the queues of their targets: those of healthy ones are read while the first request of a
/// slow one is under way.
#[test]
fn small_files_of_healthy_targets_do_not_wait_for_a_slow_one() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    let mut slow = BTreeSet::new();
    for number in 0..160 {
        let path = lustre.path("tree").join(number.to_string());
        fs::write(&path, noise(300_000 + number)).unwrap();
        if layout(&path).bytes_on.contains_key("OST0000") {
            slow.insert(number.to_string());
        }
    }
    assert_eq!(slow.len(), 40, "the double has four targets");
    fs::write(lustre.path(".control/delay"), "0:4000").unwrap();
    let mut carrack = Command::new(env!("CARGO_BIN_EXE_carrack"));
    carrack.args(["cp", "-r", "--io-threads", "4", "--tune", "off", "--source-io", "buffered"]);
    let mut copy = carrack.args([lustre.path("tree"), lustre.local("to")]).spawn().unwrap();
    let copied = |of_slow: bool| {
        let names = fs::read_dir(lustre.local("to")).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.') && slow.contains(name) == of_slow).count()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while copied(false) < 108 && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let (of_healthy, of_slow) = (copied(false), copied(true));
    copy.kill().unwrap();
    copy.wait().unwrap();
    fs::write(lustre.path(".control/delay"), "0:0").unwrap();
    assert!(of_healthy >= 108, "{of_healthy} of 120");
    assert!(of_slow <= 4, "{of_slow} of the slow target's: one bundle is its first request");
}

#[test]
fn from_one_striped_file_system_to_another() {
    let (Some(from), Some(to)) = (lustre(&["--stripe", "4:65536"]), lustre(&[])) else { return };
    plant_large(&from.path("tree"), 0);
    from.copy(&[&from.path("tree"), &to.path("tree")]);
    assert_same_to_the_second(&from.path("tree"), &to.path("tree"));
}

/// Lustre stores whole seconds; the fractions are no loss.
#[test]
fn whole_seconds_are_the_times_that_were_told() {
    let Some(lustre) = lustre(&["--stripe", "2:65536"]) else { return };
    let tree = lustre.local("tree");
    plant_rich(&tree);
    fs::hard_link(tree.join("sub/small"), tree.join("again")).unwrap();
    lustre.copy(&["-a".as_ref(), tree.as_os_str(), lustre.path("tree").as_os_str()]);
    assert_same_to_the_second(&tree, &lustre.path("tree"));
    let sync = |options: &[&str], from: &str, to: &str| {
        let mut command = Command::new(common::CARRACK);
        command.args(["sync", "-a", "--json"]).args(options);
        let output = run(command.arg(from).arg(to));
        assert_exit(&output, 0);
        json(&output).pop().unwrap()["files_done"].as_u64().unwrap()
    };
    let (there, back) = (lustre.path("tree"), lustre.local("back"));
    let [tree, there, back] = [&tree, &there, &back].map(|path| format!("{}/", path.display()));
    assert_eq!(sync(&[], &tree, &there), 0);
    assert!(sync(&["--modify-window=-1"], &tree, &there) > 10);
    fs::write(lustre.local("tree/sub/deep/none"), "some").unwrap();
    assert_eq!(sync(&[], &tree, &there), 1);
    assert!(sync(&[], &there, &back) > 10);
    assert_eq!(sync(&[], &there, &back), 0);
}

// Layouts.

/// Returns the bytes by the targets' names, as `lfs` writes them.
fn by_name(bytes: &[u64]) -> BTreeMap<String, u64> {
    let named = bytes.iter().enumerate().map(|(ost, &bytes)| (format!("OST{ost:04x}"), bytes));
    named.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn a_layout_says_what_each_target_holds() {
    let Some(lustre) = lustre(&["--stripe", "3:65536"]) else { return };
    fs::write(lustre.path("f"), noise(1_000_001)).unwrap();
    let said = layout(&lustre.path("f"));
    assert_eq!(said.bytes_on, by_name(&written(&lustre)));
    assert_eq!((&*said.file_system, said.stripe_bytes, said.stripe_count), ("lustre", Some(65_536), Some(3)));
}

#[test]
fn a_wished_striping_is_what_files_get() {
    let Some(lustre) = lustre(&[]) else { return };
    plant_large(&lustre.local("tree"), 0);
    lustre.copy(&[
        "--stripe=3:131072".as_ref(),
        lustre.local("tree").as_os_str(),
        lustre.path("tree").as_os_str(),
    ]);
    assert_same_to_the_second(&lustre.local("tree"), &lustre.path("tree"));
    for entry in fs::read_dir(lustre.path("tree/large")).unwrap() {
        let said = layout(&entry.unwrap().path());
        assert_eq!((said.stripe_bytes, said.stripe_count, said.bytes_on.len()), (Some(131_072), Some(3), 3));
    }
}

#[test]
fn a_sources_striping_is_preserved() {
    let (Some(from), Some(to)) = (lustre(&["--stripe", "2:262144"]), lustre(&[])) else { return };
    plant_large(&from.path("tree"), 0);
    from.copy(&["--stripe=preserve".as_ref(), from.path("tree").as_os_str(), to.path("tree").as_os_str()]);
    assert_same_to_the_second(&from.path("tree"), &to.path("tree"));
    for entry in fs::read_dir(to.path("tree/large")).unwrap() {
        let said = layout(&entry.unwrap().path());
        assert_eq!((said.stripe_bytes, said.stripe_count), (Some(262_144), Some(2)));
    }
}

/// Returns the output of `carrack cp -r` of the tree, and its exit code.
fn copied(lustre: &FileSystem, more: &[&str], to: &str) -> (String, Option<i32>) {
    let mut carrack = Command::new(env!("CARGO_BIN_EXE_carrack"));
    carrack.args(["cp", "-r"]).args(more).args([lustre.path("tree"), lustre.local(to)]);
    let said = carrack.output().unwrap();
    (String::from_utf8_lossy(&said.stderr).into_owned(), said.status.code())
}

#[test]
fn a_foreign_file_is_told_of_and_not_copied_as_an_empty_one() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    for name in ["empty", "foreign"] {
        fs::write(lustre.path("tree").join(name), "").unwrap();
    }
    let path = lustre.path("tree/foreign");
    rustix::fs::setxattr(path, "user.foreign", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    for (more, to) in [(&[][..], "without"), (&["--recall"], "with")] {
        let (said, code) = copied(&lustre, more, to);
        assert_eq!((code, said.matches("foreign storage system").count()), (Some(1), 1), "{said}");
        let (empty, foreign) = (lustre.local(to).join("empty"), lustre.local(to).join("foreign"));
        assert!(empty.exists() && !foreign.exists(), "{said}");
    }
}

#[test]
fn released_files_stay_in_their_archive_unless_they_are_to_be_recalled() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    let names = ["small", "large", "small in the archive", "large in the archive"];
    for (name, bytes) in names.iter().zip([1_000, 3 << 20, 1_000, 3 << 20]) {
        fs::write(lustre.path("tree").join(name), noise(bytes)).unwrap();
    }
    let released = |name: &str| {
        let found = rustix::fs::getxattr(lustre.path("tree").join(name), "user.released", &mut [0; 9][..]);
        found.is_ok()
    };
    for name in &names[2..] {
        let path = lustre.path("tree").join(name);
        rustix::fs::setxattr(path, "user.released", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    }

    let (said, code) = copied(&lustre, &[], "without");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("released to an archive").count(), 2, "{said}");
    for name in names {
        let is_in_archive = name.ends_with("archive");
        assert_eq!(
            (lustre.local("without").join(name).exists(), released(name)),
            (!is_in_archive, is_in_archive)
        );
    }

    let (said, code) = copied(&lustre, &["--recall"], "with");
    assert_eq!(code, Some(0), "{said}");
    for name in names {
        assert!(lustre.local("with").join(name).exists() && !released(name), "{name}");
    }
}
