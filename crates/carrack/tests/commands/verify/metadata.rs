//! `carrack verify` of modes, times, owners, links, attributes and holes: after a copy, and after changes.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, lsetxattr, removexattr};
use rustix::process::geteuid;
use serde_json::{Value, json as value};

use super::{Daemon, Site, client, count, found};
use crate::common::process::{assert_exit, run};
use crate::common::sshd::Sshd;
use crate::common::tree::{plant, plant_rich};
use crate::common::{CARRACK, Places, say_skipped};

/// Returns a tree and its copy by `carrack cp` with these options, on a file system with attributes.
fn copied(plant: fn(&Path), options: &[&str]) -> Places {
    let places = Places::new();
    plant(&places.near("tree"));
    copy(&places, options);
    places
}

fn copy(places: &Places, options: &[&str]) {
    let mut command = Command::new(CARRACK);
    let output = run(command.arg("cp").args(options).arg(places.near("tree")).arg(places.far("tree")));
    assert_exit(&output, 0);
}

/// Returns the differences by their paths, each as a list; and the summary.
#[track_caller]
fn differences(places: &Places, options: &[&str], exit: i32) -> (Vec<Value>, Value) {
    let mut command = Command::new(CARRACK);
    command.args(["verify", "--json"]).args(options).arg(places.near("tree/")).arg(places.far("tree"));
    let output = run(&mut command);
    assert_exit(&output, exit);
    found(&output)
}

/// Returns the only difference, without its times of this day.
#[track_caller]
fn only(places: &Places, options: &[&str]) -> (String, Value) {
    let (differences, summary) = differences(places, options, 1);
    assert_eq!((differences.len(), &summary["differing"]), (1, &1.into()), "{differences:#?}");
    assert_eq!(differences[0]["what"], "metadata");
    (differences[0]["path"].as_str().unwrap().to_owned(), differences[0]["metadata"].clone())
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn a_copy_has_what_it_was_told_to_keep() {
    for (options, checks) in [
        (&["-r"][..], &[][..]),
        (&["-r", "--perms"], &["--perms"]),
        (&["-r", "--no-times"], &["--no-times"]),
        (&["-rO"], &["-O"]),
        (&["-a"], &["-a"]),
        (&["-aH", "--numeric-ids"], &["-aH", "--numeric-ids", "--modify-window=-1"]),
    ] {
        let places = copied(plant_rich, options);
        let (differences, summary) = differences(&places, checks, 0);
        assert!(differences.is_empty(), "{options:?}: {differences:#?}");
        assert_eq!(summary["equal"], count(&places.near("tree")));
    }
    let places = copied(plant_rich, &["-r", "--no-times"]);
    let (_, summary) = differences(&places, &[], 3);
    assert_eq!(summary["equal"], 0);
}

/// The same change is equal without `--perms`.
#[test]
fn another_mode_and_time_are_told() {
    let places = copied(plant, &["-r"]);
    let small = places.far("tree/sub/small");
    fs::set_permissions(&small, Permissions::from_mode(0o600)).unwrap();
    differences(&places, &[], 0);
    let mode = value!({"of": "mode", "source": "0640", "destination": "0600"});
    assert_eq!(only(&places, &["--perms"]), ("sub/small".to_owned(), value!([mode])));
    set_time(&small, 978_307_200);
    let (path, what) = only(&places, &["--perms"]);
    assert_eq!((&*path, &what[0]), ("sub/small", &mode));
    assert_eq!(
        (&what[1]["of"], &what[1]["destination"]),
        (&"time".into(), &"2001-01-01T00:00:00.000000000Z".into())
    );
    assert_eq!(only(&places, &[]).1[0]["of"], "time");
    differences(&places, &["--no-times"], 0);
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 978_307_200;
    differences(&places, &["--modify-window", &(seconds + 60).to_string()], 0);

    let mut talk = Command::new(CARRACK);
    talk.args(["verify", "--perms"]).arg(places.near("tree/")).arg(places.far("tree"));
    let output = run(&mut talk);
    assert_exit(&output, 1);
    let said = String::from_utf8(output.stdout).unwrap();
    let start =
        "differs    sub/small: mode 0600 where 0640 should be; time 2001-01-01T00:00:00.000000000Z where ";
    assert!(said.starts_with(start) && said.ends_with(" should be\n"), "{said}");
}

#[test]
fn an_entry_counts_once_whatever_differs_of_it() {
    let places = copied(plant, &["-a"]);
    for (path, bytes) in [("tree/big", 3_000_000), ("tree/sub/small", 5)] {
        fs::write(places.far(path), vec![b'x'; bytes]).unwrap();
    }
    fs::set_permissions(places.far("tree/empty"), Permissions::from_mode(0o700)).unwrap();
    let (differences, summary) = differences(&places, &["-a"], 1);
    let whats: Vec<_> = differences.iter().map(|line| (&line["path"], &line["what"])).collect();
    let expected = [
        ("big", "metadata"),
        ("big", "content"),
        ("empty", "metadata"),
        ("sub/small", "metadata"),
        ("sub/small", "content"),
    ];
    let expected = expected.map(|(path, what)| (value!(path), value!(what)));
    assert_eq!(whats, expected.each_ref().map(|(path, what)| (path, what)));
    let sound = count(&places.near("tree")) - 3;
    assert_eq!((&summary["differing"], &summary["equal"]), (&3.into(), &sound.into()));
}

#[test]
fn times_of_directories_and_links_are_compared() {
    let places = copied(plant, &["-r"]);
    set_time(&places.far("tree/sub"), 978_307_200);
    assert_eq!(only(&places, &[]).0, "sub");
    differences(&places, &["-O"], 0);
    let link = places.far("tree/link");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("sub/small", &link).unwrap();
    let (told, _) = differences(&places, &["-O"], 1);
    assert_eq!(told[0]["path"], "link");
}

#[test]
fn owners_and_attributes_are_told_by_name() {
    let places = copied(plant, &["-a"]);
    let small = places.far("tree/sub/small");
    if lsetxattr(&small, "user.more", b"x", XattrFlags::empty()).is_err() {
        return say_skipped("no attributes where temporary files are");
    }
    lsetxattr(places.near("tree/sub/small"), "user.less", b"x", XattrFlags::empty()).unwrap();
    differences(&places, &[], 0);
    let (path, what) = only(&places, &["--xattrs"]);
    let attribute = |name: &str, source: Option<&str>, destination: Option<&str>| value!({"of": "attribute", "name": name, "source": source, "destination": destination});
    let expected =
        [attribute("user.less", Some("a value"), None), attribute("user.more", None, Some("a value"))];
    assert_eq!((&*path, what), ("sub/small", value!(expected)));
    differences(&places, &["-a", "--no-xattrs"], 0);
    removexattr(&small, "user.more").unwrap();
    lsetxattr(&small, "user.less", b"y", XattrFlags::empty()).unwrap();
    let other = attribute("user.less", Some("a value"), Some("another value"));
    assert_eq!(only(&places, &["--xattrs"]).1, value!([other]));
    if !geteuid().is_root() {
        return say_skipped("only root gives files to others");
    }
    lchown(places.far("tree/link"), Some(54_321), Some(54_322)).unwrap();
    let (path, what) = only(&places, &["--owner", "--group"]);
    let told = |of: &str, number: &str| value!({"of": of, "source": "root", "destination": number});
    assert_eq!((&*path, what), ("link", value!([told("owner", "54321"), told("group", "54322")])));
    differences(&places, &["-a", "--no-owner", "--no-group", "--no-xattrs"], 0);
}

#[test]
fn names_of_one_file_are_told_where_they_are_not_one() {
    let places = Places::new();
    let tree = places.near("tree");
    plant(&tree);
    fs::write(tree.join("one"), "one").unwrap();
    fs::hard_link(tree.join("one"), tree.join("two")).unwrap();
    copy(&places, &["-rH"]);
    differences(&places, &["-a"], 0);
    let two = places.far("tree/two");
    let time = fs::metadata(&two).unwrap().modified().unwrap();
    let again = |directory: &Path| {
        let times = FileTimes::new().set_modified(time);
        File::open(&two).unwrap().set_times(times).unwrap();
        set_time(directory, 1);
        set_time(&tree, 1);
    };
    fs::remove_file(&two).unwrap();
    fs::write(&two, "one").unwrap();
    again(&places.far("tree"));
    let (path, what) = only(&places, &["-H"]);
    assert!(["one", "two"].contains(&&*path));
    assert_eq!((&what[0]["of"], &what[0]["source"]), (&"hard-link".into(), &"one file".into()));
    differences(&places, &[], 0);
    // The links are at the other end.
    fs::remove_file(tree.join("two")).unwrap();
    fs::write(tree.join("two"), "one").unwrap();
    File::open(tree.join("two")).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::remove_file(&two).unwrap();
    fs::hard_link(places.far("tree/one"), &two).unwrap();
    again(&places.far("tree"));
    assert_eq!(only(&places, &["-H"]).1[0]["source"], "another file");
}

#[test]
fn holes_that_were_filled_are_told_if_that_is_asked_for() {
    let places = Places::new();
    let tree = places.near("tree");
    fs::create_dir(&tree).unwrap();
    let file = File::create(tree.join("sparse")).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(b"data", 4 << 20).unwrap();
    copy(&places, &["-r"]);
    if fs::metadata(tree.join("sparse")).unwrap().blocks() * 512 > 1 << 20 {
        return say_skipped("no holes where temporary files are");
    }
    differences(&places, &["-S"], 0);
    let copy = places.far("tree/sparse");
    let time = fs::metadata(&copy).unwrap().modified().unwrap();
    let content = fs::read(&copy).unwrap();
    File::options().write(true).open(&copy).unwrap().write_all_at(&content, 0).unwrap();
    File::open(&copy).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    assert_eq!(only(&places, &["-S"]).1[0]["of"], "holes");
    differences(&places, &["-a"], 0);
}

#[test]
fn it_is_the_same_over_ssh_and_at_a_daemon() {
    let mode = value!([{"of": "mode", "source": "0640", "destination": "0600"}]);
    if let Some(sshd) = Sshd::start() {
        let places = copied(plant, &["-a"]);
        fs::set_permissions(places.far("tree/sub/small"), Permissions::from_mode(0o600)).unwrap();
        for (source, sink) in
            [("", "carrack-test:"), ("carrack-test:", ""), ("carrack-test:", "carrack-test:")]
        {
            let source = format!("{source}{}/", places.near("tree").display());
            let sink = format!("{sink}{}", places.far("tree").display());
            let mut command = Command::new(CARRACK);
            command.args(["verify", "-a", "--json", "--remote-carrack", CARRACK, &source, &sink]);
            let output = run(command.env("CARRACK_SSH", sshd.ssh()));
            assert_exit(&output, 1);
            let (differences, _) = found(&output);
            assert_eq!((differences.len(), &differences[0]["metadata"]), (1, &mode), "{source} {sink}");
        }
    }
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let near = tempfile::tempdir().unwrap();
    plant_rich(&near.path().join("tree"));
    let copied =
        Command::new("cp").arg("-a").arg(near.path().join("tree")).arg(site.path().join("data")).status();
    assert!(copied.unwrap().success());
    let url = format!("carrack://localhost:{}/data", daemon.address.port());
    let verify = |code: i32| {
        let output = run(&mut client(&site, near.path(), "bob", &["-a", "--json", "tree", &url]));
        assert_exit(&output, code);
        found(&output).0
    };
    assert_eq!(verify(0), [value!(null); 0]);
    fs::set_permissions(site.path().join("data/tree/sub/small"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(verify(1)[0]["metadata"], mode);
}
