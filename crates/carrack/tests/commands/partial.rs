//! `carrack cp --offset --length`: a part of a file replaces the same bytes of the destination, which has its
//! old content or all of the new part at any time; and `carrack verify` of the same part.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::tree::{noise, temporary_names};
use crate::common::{CARRACK, DIRECT_SHELL, Places, skip};

const OBJECT: usize = 128 << 10;

/// Bytes of the source.
const SIZE: usize = 4 * OBJECT + 77;

fn old_bytes(size: usize) -> Vec<u8> {
    noise(size + 1)[1..].iter().map(|byte| byte ^ 0x5a).collect()
}

/// Returns the old contents with a part replaced.
fn overlaid(old: &[u8], source: &[u8], offset: usize, len: usize) -> Vec<u8> {
    let end = source.len().min(offset.saturating_add(len));
    let mut expected = old.to_vec();
    expected.resize(old.len().max(end), 0);
    expected[offset..end].copy_from_slice(&source[offset..end]);
    expected
}

fn command(places: &Places, words: &[&str]) -> Command {
    let mut command = Command::new(CARRACK);
    command.args(words).current_dir(places.near(""));
    command
}

#[track_caller]
fn copy(places: &Places, words: &[&str]) -> Output {
    run(&mut command(places, &[&["cp", "--object-size", "128KiB"], words].concat()))
}

/// Returns a source, and a destination with the old contents, if any.
fn places(old: Option<&[u8]>) -> Places {
    let places = Places::new();
    fs::write(places.near("f"), noise(SIZE)).unwrap();
    if let Some(old) = old {
        fs::write(places.far("f"), old).unwrap();
    }
    places
}

/// Checks that only the file is left, if it is there.
#[track_caller]
fn assert_tidy(places: &Places, is_there: bool) {
    let names: Vec<_> =
        fs::read_dir(places.far("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, if is_there { vec!["f"] } else { vec![] });
}

#[test]
fn a_part_lies_over_what_is_there() {
    let source = noise(SIZE);
    let ways: [&[&str]; 5] = [
        &[],
        &["--checksum", "blake3", "--json"],
        &["--verify", "readback", "--durability", "each"],
        &["--sink-io", "direct", "--source-io", "direct"],
        &["--checksum", "none", "--no-journal"],
    ];
    let mut count = 0;
    for offset in [0, 1, OBJECT - 1, OBJECT, OBJECT + 1, SIZE - 1] {
        for len in [Some(1), Some(OBJECT - 1), Some(OBJECT), Some(OBJECT + 1), None] {
            for old in [None, Some(OBJECT / 2), Some(SIZE), Some(SIZE + OBJECT)] {
                let before = old.map(old_bytes);
                let places = places(before.as_deref());
                let (at, length) = (format!("--offset={offset}"), len.map(|len| format!("--length={len}")));
                let far = places.far("f").display().to_string();
                let words: Vec<&str> = [at.as_str()].into_iter().chain(length.as_deref()).collect();
                let way = ways[count % ways.len()];
                let output = copy(&places, &[way, &words, &["f", &far]].concat());
                assert_exit(&output, 0);
                let expected =
                    overlaid(before.as_deref().unwrap_or_default(), &source, offset, len.unwrap_or(SIZE));
                let found = fs::read(places.far("f")).unwrap();
                assert!(found == expected, "{words:?} over {old:?} by {way:?}: {}", found.len());
                assert_tidy(&places, true);
                count += 1;
            }
        }
    }
}

#[test]
fn a_part_comes_over_ssh_and_between_two_far_hosts() {
    let source = noise(SIZE);
    for (from, to) in [("", "h:"), ("h:", ""), ("one:", "two:")] {
        let before = old_bytes(SIZE + 9);
        let places = places(Some(&before));
        let (from, to) =
            (format!("{from}{}", places.near("f").display()), format!("{to}{}", places.far("f").display()));
        let far = ["--ssh", DIRECT_SHELL, "--remote-carrack", CARRACK];
        let output = copy(&places, &[&far, &["--offset=1000", "--length=200KiB", &*from, &*to][..]].concat());
        assert_exit(&output, 0);
        assert!(
            fs::read(places.far("f")).unwrap() == overlaid(&before, &source, 1_000, 200 << 10),
            "{from} {to}"
        );
        assert_tidy(&places, true);
        let compared = run(&mut command(
            &places,
            &[&["verify", "--offset=1000", "--length=200KiB"], &far[..], &[&*from, &*to]].concat(),
        ));
        assert_exit(&compared, 0);
    }
}

#[test]
fn what_can_not_be_a_part_is_refused_before_anything_changes() {
    let places = places(None);
    fs::write(places.near("empty"), "").unwrap();
    fs::create_dir(places.near("directory")).unwrap();
    let far = places.far("f").display().to_string();
    for (words, code, says) in [
        (
            &["--offset=524365", "f", &*far][..],
            3,
            "has 524365 bytes, and the part would begin at byte 524365",
        ),
        (&["--offset=1TiB", "--length=1", "f", &far], 3, "has 524365 bytes"),
        (&["--offset=0", "empty", &far], 3, "has 0 bytes"),
        (&["--length=5", "directory", &far], 3, "is a directory, and a part is of one regular file"),
        (&["--length=5", "f", "empty", &far], 3, "a part is of one file, and these are 2"),
        (&["--length=5", "-r", "f", &far], 2, "-r is for directories"),
        (&["--length=5", "-a", "f", &far], 2, "leave -a out"),
        (&["--length=5", "--manifest=m", "f", &far], 2, "leave --manifest out"),
        (&["--length=0", "f", &far], 2, "above 0"),
    ] {
        let output = copy(&places, words);
        assert_exit(&output, code);
        assert!(talk(&output).contains(says), "{words:?}: {}", talk(&output));
        assert_tidy(&places, false);
    }
    let output = run(&mut command(&places, &["sync", "--length=5", "f", &far]));
    assert_exit(&output, 2);
    assert_says(&output, &["a sync compares whole files", "hint: use carrack cp"]);
    assert!(!places.near("m").exists());
    // Only a regular file takes a part.
    symlink(places.near("empty"), places.far("f")).unwrap();
    let output = copy(&places, &["--length=5", "f", &far]);
    assert_exit(&output, 3);
    assert_says(&output, &["no regular file stands there"]);
    assert_eq!(fs::read(places.near("empty")).unwrap(), b"");
    assert!(fs::symlink_metadata(places.far("f")).unwrap().is_symlink());
}

#[test]
fn the_destination_keeps_its_mode_and_is_newer_for_a_sync() {
    let places = places(Some(&old_bytes(SIZE)));
    let far = places.far("f");
    fs::set_permissions(&far, fs::Permissions::from_mode(0o604)).unwrap();
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let stamped = FileTimes::new().set_modified(past);
    for path in [&places.near("f"), &far] {
        File::options().write(true).open(path).unwrap().set_times(stamped).unwrap();
    }
    let target = far.display().to_string();
    assert_exit(&copy(&places, &["--offset=7", "--length=1KiB", "f", &target]), 0);
    let found = fs::metadata(&far).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o604);
    assert!(found.modified().unwrap().elapsed().unwrap() < Duration::from_secs(120));
    // The destination has the source's size, with other contents.
    let output = run(&mut command(&places, &["sync", "f", places.far("").to_str().unwrap()]));
    assert_exit(&output, 0);
    assert!(fs::read(&far).unwrap() == noise(SIZE), "{}", talk(&output));
}

/// Starts a copy of the part that takes seconds, and kills it when some bytes are recorded.
fn killed(places: &Places, words: &[&str]) {
    let slow = ["cp", "--object-size", "128KiB", "--bwlimit=300KB", "--group-time=20"];
    let running = Running::start(&mut command(places, &[&slow, words].concat()));
    let has_some = || {
        let names = temporary_names(&places.far(""));
        let blocks = names
            .iter()
            .filter_map(|name| fs::metadata(places.far("").join(name)).ok())
            .map(|found| found.blocks())
            .sum::<u64>();
        (blocks * 512 >= 2 * OBJECT as u64).then_some(())
    };
    wait_for("a part of the part", has_some);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::KILL);
    running.end();
}

#[test]
fn a_part_goes_on_after_a_kill_and_takes_the_destination_as_it_is_then() {
    let source = noise(SIZE);
    for old in [None, Some(SIZE + 5_000)] {
        let before = old.map(old_bytes);
        let places = places(before.as_deref());
        let far = places.far("f").display().to_string();
        let words = ["--offset=100001", "--length=400000", "f", &far];
        killed(&places, &words);
        assert_eq!(fs::read(places.far("f")).ok(), before, "the old content, while it is not complete");
        // Other parts, and the whole file, are other transfers.
        let other = places.far("g").display().to_string();
        assert_exit(&copy(&places, &["f", &other]), 0);
        assert!(fs::read(places.far("g")).unwrap() == source);
        fs::remove_file(places.far("g")).unwrap();
        let mut now = before.clone().unwrap_or_default();
        if old.is_some() {
            now[..50].fill(1);
            now.truncate(SIZE + 3_000);
            fs::write(places.far("f"), &now).unwrap();
        }
        let output = copy(&places, &[&["--json"], &words[..]].concat());
        assert_exit(&output, 0);
        assert!(fs::read(places.far("f")).unwrap() == overlaid(&now, &source, 100_001, 400_000));
        let summary = json(&output).pop().unwrap();
        let kept = summary["bytes_kept"].as_u64().unwrap();
        assert!(kept >= OBJECT as u64 / 2 && kept < 400_000, "it went on: {summary}");
        assert_tidy(&places, true);
    }
}

#[test]
fn a_whole_copy_takes_nothing_that_a_part_has_left_and_the_other_way_round() {
    let source = noise(SIZE);
    for (first, then) in
        [(&["--offset=1", "--length=500000"][..], &[][..]), (&[], &["--offset=1", "--length=500000"])]
    {
        let before = old_bytes(SIZE);
        let places = places(Some(&before));
        let far = places.far("f").display().to_string();
        killed(&places, &[first, &["f", &far]].concat());
        let output = copy(&places, &[&["--json"], then, &["f", &far]].concat());
        assert_exit(&output, 0);
        assert_eq!(json(&output).pop().unwrap()["bytes_kept"], 0);
        let expected = if then.is_empty() { source.clone() } else { overlaid(&before, &source, 1, 500_000) };
        assert!(fs::read(places.far("f")).unwrap() == expected);
    }
}

#[test]
fn a_source_that_changes_leaves_the_destination_as_it_was() {
    let before = old_bytes(SIZE);
    let places = places(Some(&before));
    let far = places.far("f").display().to_string();
    let slow =
        ["cp", "--object-size", "128KiB", "--bwlimit=400KB", "--offset=9", "--length=450000", "f", &far];
    let running = Running::start(&mut command(&places, &slow));
    let source = File::options().write(true).open(places.near("f")).unwrap();
    let mut running = Some(running);
    let output = wait_for("its end", || {
        source.write_all_at(&[1], 300_000).unwrap();
        match running.take()?.try_end_within(Duration::from_millis(20)) {
            Ok(output) => Some(output),
            Err(still) => {
                running = Some(still);
                None
            }
        }
    });
    assert_exit(&output, 3);
    assert_says(&output, &["it changed while it was read"]);
    assert!(fs::read(places.far("f")).unwrap() == before);
}

#[test]
fn a_full_disk_leaves_the_old_content() {
    let before = old_bytes(2 << 20);
    let places = places(Some(&before));
    let script = places.script(
        "full",
        "set -e\nmount -t tmpfs -o size=3m none \"$1\"\ncp \"$2\" \"$1/f\"\nset +e\n\
         \"$3\" cp --offset=9 --length=400000 f \"$1/f\"\ncode=$?\n\
         cmp \"$1/f\" \"$2\" || exit 99\nls -A \"$1\" | grep -v '^f$' | grep -v journal && exit 98\nexit $code",
    );
    let disk = places.near("disk");
    fs::create_dir(&disk).unwrap();
    let run_in = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m"]).args(program).current_dir(places.near(""));
        run(&mut command)
    };
    if !run_in(&["mount", "-t", "tmpfs", "none", disk.to_str().unwrap()]).status.success() {
        return skip("no mount of its own");
    }
    let old = places.far("f").display().to_string();
    // The disk holds 2 MiB, and the new version needs as much again.
    let output = run_in(&["sh", &script, disk.to_str().unwrap(), &old, CARRACK]);
    assert_exit(&output, 3);
    assert_says(&output, &["no space"]);
}

#[test]
fn parts_are_compared() {
    let places = places(None);
    let far = places.far("f").display().to_string();
    let verify = |words: &[&str]| run(&mut command(&places, &[&["verify"], words, &["f", &far]].concat()));
    let part = ["--offset=1001", "--length=300000"];
    let output = verify(&part);
    assert_exit(&output, 3);
    assert_says(&output, &["bytes 1001-301000 were compared, and no others"]);
    assert_exit(&copy(&places, &[&part[..], &["f", &far]].concat()), 0);
    let output = verify(&part);
    assert_exit(&output, 0);
    assert_says(&output, &["carrack: bytes 1001-301000 are equal (293.0 KiB)"]);
    let summary = json(&verify(&[&["--json"], &part[..]].concat())).pop().unwrap();
    let expected = serde_json::json!({ "offset": 1_001, "bytes": 300_000 });
    assert_eq!((&summary["part"], &summary["bytes_equal"]), (&expected, &300_000.into()));
    assert_exit(&verify(&[]), 3);
    // The zeros before it, and an end that is too short.
    let output = verify(&["--json", "--length=300000"]);
    assert_exit(&output, 3);
    assert_eq!(json(&output)[0]["ranges"][0]["offset"], 0);
    let output = verify(&["--offset=1001"]);
    assert_exit(&output, 3);
    assert!(String::from_utf8_lossy(&output.stdout).contains("301001 bytes where 524365 should be"));
    // A byte in the part, and a byte outside.
    let there = File::options().write(true).open(places.far("f")).unwrap();
    there.write_all_at(&[noise(SIZE)[1_000] ^ 1], 1_000).unwrap();
    assert_exit(&verify(&part), 0);
    there.write_all_at(&[noise(SIZE)[200_000] ^ 1], 200_000).unwrap();
    let output = verify(&[&["--json"], &part[..]].concat());
    assert_exit(&output, 3);
    let range = json(&output)[0]["ranges"][0].clone();
    let (offset, bytes) = (range["offset"].as_u64().unwrap(), range["bytes"].as_u64().unwrap());
    assert!((offset..offset + bytes).contains(&200_000) && bytes <= 1_024, "{range}");
    for (words, says) in [
        (&["--offset=9MiB"][..], "the part would begin at byte 9437184"),
        (&["--offset=1", "--archive"], "cannot be used with"),
        (&["--offset=1", "--extra"], "cannot be used with"),
    ] {
        let output = verify(words);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{words:?}");
        assert!(talk(&output).contains(says), "{words:?}: {}", talk(&output));
    }
    let directory = |path: &Path| path.display().to_string();
    let output = run(&mut command(&places, &["verify", "--length=1", &directory(&places.near("")), &far]));
    assert_exit(&output, 3);
    assert_says(&output, &["is no regular file, and a part is of one"]);
}
