//! `carrack verify`, the whole path: on this host, over ssh, at a daemon; differing ranges, missing and
//! unreadable entries, manifests, and resuming after an interruption.

mod metadata;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use rustix::process::{Signal, geteuid};
use serde_json::{Value, json as value};

use crate::common;
use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::sshd::Sshd;
use crate::common::tree::{noise, plant, plant_rich};
use crate::common::{CARRACK, Places};
use crate::daemon::{Daemon, Site};

const MIB: u64 = 1 << 20;

/// Returns two equal trees.
fn pair(plant: fn(&Path)) -> Places {
    let places = Places::new();
    plant(&places.near("tree"));
    let copied = Command::new("cp").arg("-a").arg(places.near("tree")).arg(places.far("tree")).status();
    assert!(copied.unwrap().success());
    places
}

/// Compares contents alone: times of changed files differ anyway.
fn command(places: &Places, arguments: &[&str]) -> Command {
    let mut command = Command::new(CARRACK);
    command.args(["verify", "--no-times"]).args(arguments).current_dir(places.near(""));
    command
}

#[track_caller]
fn verify(places: &Places, arguments: &[&str]) -> Output {
    run(&mut command(places, arguments))
}

/// Returns the differences by their paths, and the summary.
#[track_caller]
fn found(output: &Output) -> (Vec<Value>, Value) {
    let mut lines = json(output);
    let summary = lines.pop().unwrap();
    assert_eq!(summary["event"], "summary", "{summary}");
    lines.sort_by_key(|line| line["path"].as_str().unwrap().to_owned());
    (lines, summary)
}

fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// Returns the number of entries of a tree, including itself.
fn count(root: &Path) -> u64 {
    let mut count = 1;
    for entry in fs::read_dir(root).unwrap().flatten() {
        count += if entry.file_type().unwrap().is_dir() { self::count(&entry.path()) } else { 1 };
    }
    count
}

fn arguments(places: &Places) -> [String; 3] {
    ["--json".into(), "tree".into(), places.far("").display().to_string()]
}

#[track_caller]
fn verify_json(places: &Places, more: &[&str]) -> Output {
    let all = arguments(places);
    verify(places, &[more, &all.each_ref().map(|text| &**text)].concat())
}

#[test]
fn equal_trees_are_equal_whichever_way_they_are_read() {
    let places = pair(plant_rich);
    for readback in ["destination", "both", "none"] {
        let output = verify_json(&places, &["--extra", "--readback", readback]);
        assert_exit(&output, 0);
        let (differences, summary) = found(&output);
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(summary["equal"], count(&places.near("tree")));
        assert_eq!((&summary["complete"], &summary["skipped"]), (&true.into(), &0.into()));
        assert_eq!(summary["bytes_read"], summary["bytes_equal"], "each file was read once");
    }
}

#[test]
fn flipped_bits_are_told_where_they_are() {
    let places = pair(plant);
    let huge = places.near("tree/huge");
    // Two ranges of 256 MiB and a little more, nearly all holes.
    let size = 2 * 256 * MIB + 12_345;
    for path in [&huge, &places.far("tree/huge")] {
        let file = File::create(path).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&noise(5_000), 77).unwrap();
    }
    let there = places.far("tree/huge");
    for offset in [0, 1_023, 1_024, 5 * MIB + 100, 256 * MIB, size - 1] {
        flip(&there, offset);
    }
    flip(&places.far("tree/sub/small"), 2);
    flip(&places.far("tree/big"), 2_999_999);
    let output = verify_json(&places, &[]);
    assert_exit(&output, 1);
    let (differences, summary) = found(&output);
    let ranges = |path: &str| {
        let found = differences.iter().find(|line| line["path"] == path).unwrap();
        assert_eq!((&found["what"], &found["is_cut"]), (&"content".into(), &false.into()));
        found["ranges"].clone()
    };
    let range = |offset: u64, bytes: u64| value!({"offset": offset, "bytes": bytes});
    let last = (size - 1) / 1_024 * 1_024;
    let expected = value!([
        range(0, 2_048),
        range((5 * MIB + 100) / 1_024 * 1_024, 1_024),
        range(256 * MIB, 1_024),
        range(last, size - last),
    ]);
    assert_eq!(ranges("tree/huge"), expected);
    assert_eq!(ranges("tree/sub/small"), value!([range(0, 5)]));
    let last = 2_999_999 / 1_024 * 1_024;
    assert_eq!(ranges("tree/big"), value!([range(last, 3_000_000 - last)]));
    assert_eq!((differences.len(), &summary["differing"]), (3, &3.into()));
    let talked = verify(&places, &["tree", places.far("").to_str().unwrap()]);
    let said = String::from_utf8(talked.stdout.clone()).unwrap();
    assert!(said.contains("differs    tree/sub/small: bytes 0-4\n"), "{said}");
    assert_says(&talked, &["3 differ or are missing"]);
}

#[test]
fn a_file_that_differs_everywhere_is_told_within_bounds() {
    let places = Places::new();
    let size = 100 * MIB;
    for (path, byte) in [(places.near("f"), 1), (places.far("f"), 2)] {
        fs::write(path, vec![byte; size as usize]).unwrap();
    }
    let output = verify(&places, &["--json", "f", places.far("f").to_str().unwrap()]);
    assert_exit(&output, 3);
    let (differences, _) = found(&output);
    assert_eq!(differences[0]["path"], ".");
    assert_eq!(differences[0]["ranges"], value!([{"offset": 0, "bytes": size}]));
    let scattered = File::options().write(true).open(places.far("f")).unwrap();
    scattered.write_all_at(&vec![1; size as usize], 0).unwrap();
    (0..size / 4_096).for_each(|n| scattered.write_all_at(&[2], n * 4_096).unwrap());
    let (differences, _) = found(&verify(&places, &["--json", "f", places.far("f").to_str().unwrap()]));
    assert_eq!(
        (differences[0]["ranges"].as_array().unwrap().len(), &differences[0]["is_cut"]),
        (1_000, &true.into())
    );
}

#[test]
fn whatever_else_is_wrong_is_told() {
    let places = pair(plant);
    let there = |path: &str| places.far("tree").join(path);
    fs::remove_file(there("sub/deep/none")).unwrap();
    fs::remove_file(there("link")).unwrap();
    symlink("elsewhere", there("link")).unwrap();
    fs::write(there("sub/small"), "smaller").unwrap();
    fs::remove_dir(there("empty")).unwrap();
    fs::write(there("empty"), "").unwrap();
    fs::create_dir_all(there("new/deep")).unwrap();
    fs::write(there("new/deep/file"), "x").unwrap();
    let at = |path: &str| format!("tree/{path}");
    let expected = [
        value!({"event": "difference", "path": at("empty"), "what": "kind", "source": "directory", "destination": "file"}),
        value!({"event": "difference", "path": at("link"), "what": "link"}),
        value!({"event": "difference", "path": at("sub/deep/none"), "what": "missing"}),
        value!({"event": "difference", "path": at("sub/small"), "what": "size", "source": 5, "destination": 7}),
    ];
    let output = verify_json(&places, &[]);
    assert_exit(&output, 1);
    assert_eq!(found(&output).0, expected);
    let (differences, summary) = found(&verify_json(&places, &["--extra"]));
    let extra = ["new", "new/deep", "new/deep/file"]
        .map(|path| value!({"event": "difference", "path": at(path), "what": "extra"}));
    let mut expected = [&expected[..], &extra].concat();
    expected.sort_by_key(|line| line["path"].as_str().unwrap().to_owned());
    assert_eq!(differences, expected);
    assert_eq!((&summary["extra"], &summary["differing"]), (&3.into(), &4.into()));
}

#[test]
fn what_is_no_file_is_left_out_and_what_cannot_be_read_is_told() {
    let places = pair(plant);
    let pipe = places.near("tree/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let output = verify_json(&places, &[]);
    assert_exit(&output, 0);
    let (differences, summary) = found(&output);
    assert_eq!((&differences[0]["what"], &summary["skipped"]), (&"skipped".into(), &1.into()));
    assert_eq!(differences[0]["path"], "tree/pipe");
    if geteuid().is_root() {
        common::say_skipped("root reads everything");
        return;
    }
    fs::set_permissions(places.far("tree/big"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::set_permissions(places.near("tree/sub/deep"), fs::Permissions::from_mode(0o0)).unwrap();
    let output = verify_json(&places, &[]);
    fs::set_permissions(places.near("tree/sub/deep"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_exit(&output, 1);
    let (differences, _) = found(&output);
    let sides: Vec<_> =
        differences.iter().filter(|line| line["what"] == "unreadable").map(|line| &line["side"]).collect();
    assert_eq!(sides, ["source", "destination"]);
}

/// The rules are those of `cp -r`.
#[test]
fn a_source_is_looked_for_where_cp_puts_it() {
    let places = pair(plant);
    let far = |path: &str| places.far(path).display().to_string();
    for (sources, destination) in [
        (&["tree"][..], "."),
        (&["tree"], "tree"),
        (&["tree/"], "tree"),
        (&["tree/."], "tree"),
        (&["tree/big"], "tree"),
        (&["tree/big"], "tree/big"),
        (&["tree/link"], "tree"),
        (&["tree/big", "tree/sub"], "tree"),
        (&["tree/sub/", "tree/sub"], "tree/sub/../sub/."),
    ] {
        let destination = far(destination);
        let all: Vec<&str> = sources.iter().copied().chain([&*destination]).collect();
        let output = verify(&places, &all);
        let code = if sources.len() == 2 && sources[0] == "tree/sub/" { 1 } else { 0 };
        assert_exit(&output, code);
    }
    for nowhere in [&["tree"][..], &["tree/big"]] {
        let output = verify(&places, &[nowhere, &[&far("none")]].concat());
        assert_exit(&output, 3);
        assert!(output.stdout.starts_with(b"missing    .\n"));
    }
    let output = verify(&places, &["none", &far("tree")]);
    assert_exit(&output, 3);
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("unreadable none: at the source: No such file")
    );
}

#[test]
fn command_lines_that_make_no_sense() {
    let places = pair(plant);
    let far = places.far("").display().to_string();
    for (arguments, said) in [
        (&["tree"][..], "nothing to compare with"),
        (&["--manifest", "m", "tree", &far], "a manifest stands for the sources"),
        (&["--extra", "tree/", "tree/sub", &far], "several sources"),
        (&["--manifest", "m", "--extra", &far], "cannot be used with"),
        (&["--manifest", "m", "-a", &far], "cannot be used with"),
        (&["--readback", "maybe", "tree", &far], "invalid value"),
        (&["http://x/y", &far], "does not speak http://"),
    ] {
        let output = verify(&places, arguments);
        assert_exit(&output, 2);
        assert_says(&output, &[said]);
    }
}

#[test]
fn a_manifest_of_a_copy_is_met_and_missed() {
    let places = Places::new();
    plant_rich(&places.near("tree"));
    let far = places.far("tree").display().to_string();
    let copied = run(Command::new(CARRACK)
        .args(["cp", "-r", "--manifest", "m", "tree/", &far])
        .current_dir(places.near("")));
    assert_exit(&copied, 0);
    let verify = |manifest: &str| verify(&places, &["--json", "--manifest", manifest, &far]);
    fs::write(places.near("empty"), "").unwrap();
    let output = verify("empty");
    assert_exit(&output, 3);
    assert_says(&output, &["names no file"]);
    // A manifest holds no names that are not UTF-8.
    let output = verify("m");
    assert_exit(&output, 1);
    let (differences, summary) = found(&output);
    assert_eq!((differences, &summary["differing"]), (Vec::new(), &0.into()));
    assert_says(&output, &["a manifest does not hold it"]);
    let lines = fs::read_to_string(places.near("m")).unwrap();
    let sound: String =
        lines.lines().filter(|line| !line.contains('\u{fffd}')).map(|line| format!("{line}\n")).collect();
    fs::write(places.near("sound"), &sound).unwrap();
    let output = verify("sound");
    assert_exit(&output, 0);
    assert_eq!(found(&output).1["equal"], sound.lines().count());

    flip(&places.far("tree/sizes/40000000"), 30_000_000);
    flip(&places.far("tree/sub/small"), 0);
    fs::remove_file(places.far("tree/sizes/0")).unwrap();
    fs::remove_file(places.far("tree/sizes/1")).unwrap();
    fs::create_dir(places.far("tree/sizes/1")).unwrap();
    let output = verify("sound");
    assert_exit(&output, 1);
    let found = found(&output).0;
    let found: Vec<_> =
        found.iter().map(|line| (line["path"].as_str().unwrap(), line["what"].as_str().unwrap())).collect();
    let expected =
        [("sizes/0", "missing"), ("sizes/1", "kind"), ("sizes/40000000", "digest"), ("sub/small", "digest")];
    assert_eq!(found, expected);

    fs::write(places.near("bad"), format!("{}\nnonsense\n", sound.lines().next().unwrap())).unwrap();
    let output = verify("bad");
    assert!([1, 3].contains(&output.status.code().unwrap()));
    assert_says(&output, &["bad, line 2: no BLAKE3 digest"]);
    fs::write(places.near("evil"), format!("{}  ../near/tree/big\n", "0".repeat(64))).unwrap();
    let output = verify("evil");
    assert_exit(&output, 3);
    assert_says(&output, &["evil, line 1: "]);
    let output = verify("none");
    assert_exit(&output, 3);
    assert_says(&output, &["none: No such file"]);
}

#[test]
fn what_was_equal_is_not_read_again() {
    let places = pair(plant_rich);
    let huge = 2 * 256 * MIB + 5;
    for path in ["near", "far"] {
        let path = places.near("").join("..").join(path).join("tree/huge");
        File::create(path).unwrap().set_len(huge).unwrap();
    }
    flip(&places.far("tree/big"), 7);
    flip(&places.far("tree/huge"), 300 * MIB);
    let state = places.near("state");
    let verify = || found(&verify_json(&places, &["--state", "state"]));
    let (differences, first) = verify();
    assert_eq!((differences.len(), &first["known"]), (2, &0.into()));
    assert!(state.exists());
    // Only the damaged files are read again, and of the huge one only the damaged range.
    let (differences, second) = verify();
    assert_eq!(differences.len(), 2);
    let wanted = 3_000_000 + MIB + 256 * MIB + MIB;
    let read = second["bytes_read"].as_u64().unwrap();
    assert_eq!(read, wanted, "{second}");
    let known = first["equal"].as_u64().unwrap() - second["known"].as_u64().unwrap();
    assert!(known > 0, "directories, links and empty files are looked at again");
    assert_eq!(first["equal"], second["equal"]);
    // A file that was changed since is read again.
    fs::write(places.far("tree/sub/small"), "Small").unwrap();
    let (differences, _) = verify();
    assert_eq!(differences.len(), 3);
    // When everything is equal, the state file is removed.
    fs::write(places.far("tree/sub/small"), "small").unwrap();
    flip(&places.far("tree/big"), 7);
    flip(&places.far("tree/huge"), 300 * MIB);
    let (differences, last) = verify();
    assert!(differences.is_empty() && last["known"].as_u64().unwrap() > 0);
    assert!(!state.exists());
    // The state of another comparison is left alone.
    fs::write(&state, "notes").unwrap();
    let output = verify_json(&places, &["--state", "state"]);
    assert_exit(&output, 3);
    assert_says(&output, &["--state state: it is the state of another comparison"]);
    assert_eq!(fs::read(&state).unwrap(), b"notes");
}

/// The daemon's rule is slow, so that there is time to interrupt the comparison.
#[test]
fn an_interrupted_comparison_goes_on() {
    let (site, near) = (Site::new(), tempfile::tempdir().unwrap());
    let (count, bytes, rate) = (120, 1_000_000, 20_000_000);
    for place in [near.path().join("tree"), site.path().join("data/tree")] {
        fs::create_dir(&place).unwrap();
        (0..count).for_each(|n| fs::write(place.join(n.to_string()), noise(bytes)).unwrap());
    }
    let slow = "read = true, sessions = 1, rate = \"20 MB/s\"";
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports().replace("read = true", slow)));
    let there = format!("carrack://localhost:{}/data", daemon.address.port());
    let verify =
        || client(&site, near.path(), "bob", &["--json", "--no-times", "--state", "state", "tree", &there]);
    let state = near.path().join("state");
    let running = Running::start(&mut verify());
    wait_for("something in the state", || fs::metadata(&state).ok().filter(|state| state.len() > 48 + 20));
    running.signal(Signal::INT);
    let output = running.end();
    assert_exit(&output, 130);
    let (_, first) = found(&output);
    assert_eq!(first["complete"], false);
    let began = Instant::now();
    // The first session counts until the daemon has seen its end.
    let output = wait_for("a place at the daemon", || {
        let output = run(&mut verify());
        (!talk(&output).contains("session")).then_some(output)
    });
    assert_exit(&output, 0);
    let (_, second) = found(&output);
    let number = |summary: &Value, name: &str| summary[name].as_u64().unwrap();
    assert_eq!(number(&second, "equal"), count + 1);
    assert!(number(&second, "known") >= 1);
    assert_eq!(
        number(&second, "known"),
        number(&first, "equal") - 1,
        "all that was equal, but the directory"
    );
    let read = number(&second, "bytes_read");
    assert_eq!(read, (count - number(&second, "known")) * bytes as u64);
    let least = read as f64 / rate as f64 - 0.5;
    assert!(began.elapsed().as_secs_f64() > least, "{read} bytes in {:?}", began.elapsed());
    assert!(!state.exists());
}

/// Returns `carrack verify` with a user's certificate.
fn client(site: &Site, near: &Path, who: &str, arguments: &[&str]) -> Command {
    site.identity(who);
    let mut command = Command::new(CARRACK);
    command.arg("verify").args(arguments).current_dir(near).env_remove("CARRACK_TOKEN");
    command.env("HOME", near).env("CARRACK_CA", site.path().join("authority/ca.pem"));
    command.arg("--identity").arg(site.path().join(format!("{who}.pem")));
    command
}

/// Returns a tree with several kinds of damage.
fn damaged() -> (Places, Vec<Value>) {
    let places = pair(plant_rich);
    flip(&places.far("tree/sizes/40000000"), 39_999_999);
    fs::remove_file(places.far("tree/sub/small")).unwrap();
    fs::write(places.far("tree/new"), "").unwrap();
    let (differences, _) = found(&verify_json(&places, &["--extra"]));
    assert_eq!(differences.len(), 3, "{differences:?}");
    (places, differences)
}

#[test]
fn the_same_is_found_over_ssh_whichever_end_is_far() {
    let Some(sshd) = Sshd::start() else { return };
    let (places, expected) = damaged();
    let carrack = CARRACK;
    for (source, destination) in
        [("", "carrack-test:"), ("carrack-test:", ""), ("carrack-test:", "carrack-test:")]
    {
        let source = format!("{source}{}", places.near("tree").display());
        let destination = format!("{destination}{}", places.far("").display());
        let mut command =
            command(&places, &["--json", "--extra", "--remote-carrack", carrack, &source, &destination]);
        let output = run(command.env("CARRACK_SSH", sshd.ssh()));
        assert_exit(&output, 1);
        let (differences, summary) = found(&output);
        assert_eq!((differences, &summary["complete"]), (expected.clone(), &true.into()));
    }
    let there = format!("carrack-test:{}", places.far("").display());
    let mut gone = command(&places, &["--remote-carrack", "/nowhere/carrack", "tree", &there]);
    let output = run(gone.env("CARRACK_SSH", sshd.ssh()));
    assert_exit(&output, 3);
}

#[test]
fn a_far_end_that_dies_ends_it_and_the_state_stays() {
    let Some(sshd) = Sshd::start() else { return };
    let places = pair(plant_rich);
    // The far end sends this number of bytes, and is gone.
    let script =
        format!("exec 3<&0\n{CARRACK} \"$@\" <&3 2>/dev/null | dd bs=1 count=1500 2>/dev/null &\nwait $!");
    let dying = places.script("dying carrack", &script);
    let there = format!("carrack-test:{}", places.far("").display());
    let mut command =
        command(&places, &["--json", "--state", "state", "--remote-carrack", &dying, "tree", &there]);
    let output = run(command.env("CARRACK_SSH", sshd.ssh()));
    assert!([1, 3].contains(&output.status.code().unwrap()), "{}", talk(&output));
    assert_says(&output, &["carrack: error: "]);
    assert_eq!(found(&output).1["complete"], false);
    assert!(places.near("state").exists());
}

#[test]
fn a_daemon_lets_verify_whoever_may_read() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let near = tempfile::tempdir().unwrap();
    plant_rich(&near.path().join("tree"));
    let copied =
        Command::new("cp").arg("-a").arg(near.path().join("tree")).arg(site.path().join("data")).status();
    assert!(copied.unwrap().success());
    let command = |who: &str, arguments: &[&str]| client(&site, near.path(), who, arguments);
    let url = |path: &str| format!("carrack://localhost:{}{path}", daemon.address.port());
    for (source, destination) in [("tree".into(), url("/data/")), (url("/data/tree/"), "tree".into())] {
        let output = run(&mut command("bob", &["--json", "--extra", &source, &destination]));
        assert_exit(&output, 0);
        assert_eq!(found(&output).1["equal"], count(&near.path().join("tree")));
    }
    fs::remove_file(site.path().join("data/tree/link")).unwrap();
    symlink("/etc", site.path().join("data/tree/link")).unwrap();
    flip(&site.path().join("data/tree/big"), 0);
    let output = run(&mut command("alice", &["--json", "--no-times", "tree", &url("/data")]));
    assert_exit(&output, 1);
    let whats: Vec<_> = found(&output).0.iter().map(|line| line["what"].clone()).collect();
    assert_eq!(whats, ["content", "link"]);
    // The daemon refuses a user without rights; names below a link that leads out are not found.
    let output = run(&mut command("bob", &["tree", &url("/other")]));
    assert_exit(&output, 3);
    assert_says(&output, &["no export other is open to you"]);
    fs::create_dir(near.path().join("link")).unwrap();
    fs::write(near.path().join("link/hostname"), "").unwrap();
    let output = run(&mut command("bob", &["--json", "link/", &url("/data/tree/link")]));
    let found = found(&output).0;
    assert!(
        found.iter().all(|line| ["missing", "kind", "unreadable"].contains(&line["what"].as_str().unwrap())),
        "{found:?}"
    );
    let audited = site.audited(4);
    assert!(
        audited.iter().any(|line| line["deed"] == "verify" && line["who"]["name"] == "bob"),
        "{audited:?}"
    );
}

/// The top of the tree may be a link, a file or a root.
#[test]
fn odd_tops() {
    let places = pair(plant);
    let far = |path: &str| -> PathBuf { places.far(path) };
    symlink(far("tree"), far("to-tree")).unwrap();
    symlink(places.near("tree"), places.near("to-tree")).unwrap();
    let through = far("to-tree").display().to_string();
    assert_exit(&verify(&places, &["tree/", &through]), 0);
    assert_exit(&verify(&places, &["to-tree/", &through]), 0);
    // A link that is named without a slash is compared itself, as in `cp -r`.
    let output = verify(&places, &["to-tree", far("").to_str().unwrap()]);
    assert_exit(&output, 3);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "differs    to-tree: the link leads elsewhere\n");
}
