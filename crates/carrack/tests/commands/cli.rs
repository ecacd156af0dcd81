//! The wiring of the command: arguments to exit code, the session over an ssh stand-in, signals.
//!
//! The stand-in runs the far command on this host, in another directory, as ssh does: host first, then the
//! command's words.

mod environment;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::tree::{assert_same, plant};
use crate::common::{CARRACK, Places};

/// The least value of `--object-size`.
const OBJECT_BYTES_MIN: usize = 128 << 10;

/// The near directory is where commands run, the far one the home on the other host.
struct World(Places);

impl Deref for World {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.0
    }
}

impl World {
    fn new() -> World {
        World(Places::new())
    }

    /// Returns an ssh stand-in that runs the far command on this host.
    fn working_ssh(&self) -> String {
        self.script("working", &format!("shift; cd '{}' && exec sh -c \"$*\"", self.far("").display()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.near("")).env("CARRACK_SSH", self.working_ssh());
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    /// Copies, with the far carrack named.
    #[track_caller]
    fn copy(&self, arguments: &[&str]) -> Output {
        self.run(&[&["cp", "--remote-carrack", CARRACK][..], arguments].concat())
    }
}

#[test]
fn nonsense_is_a_usage_error_with_a_hint() {
    let world = World::new();
    for arguments in
        [&["cp", "g:a", "i", "h:b"][..], &["cp", "-ohost:a", "b"], &["cp", "--buffer", "1MiB", "a", "b"]]
    {
        let output = world.run(arguments);
        assert_exit(&output, 2);
        assert!(output.stdout.is_empty());
    }
    assert!(talk(&world.run(&["cp", "g:a", "i", "h:b"])).contains("\nhint: run carrack once for each host"));
}

/// A directory without a mode from a source gets the mode of mkdir(1).
#[test]
fn a_destination_that_is_made_has_the_users_umask() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::write(world.near("a"), "a").unwrap();
    std::fs::write(world.near("b"), "b").unwrap();
    for (umask, mode) in [("027", 0o750), ("077", 0o700)] {
        let script = format!("umask {umask}; exec \"$0\" cp a b new{umask}/");
        let mut shell = Command::new("sh");
        let ended = shell.args(["-c", &script, CARRACK]).current_dir(world.near("")).output().unwrap();
        assert_exit(&ended, 0);
        let made = std::fs::metadata(world.near(&format!("new{umask}"))).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn a_tree_within_this_host() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.run(&["cp", "-r", "tree", "copy"]);
    assert_exit(&output, 0);
    assert!(output.stdout.is_empty());
    assert!(talk(&output).starts_with("carrack: copied 4 files"), "{}", talk(&output));
    assert_same(&world.near("tree"), &world.near("copy"));
}

/// The page of `--report`, for a copy in which a file fails.
#[test]
fn a_report_is_one_page_whatever_the_names_are() {
    let world = World::new();
    let tree = world.near("tree");
    fs::create_dir(&tree).unwrap();
    for name in [&b"<b>whole"[..], b"<i>in the way\xff"] {
        fs::write(tree.join(OsStr::from_bytes(name)), vec![7; 3 << 20]).unwrap();
    }
    fs::create_dir_all(world.near("to").join(OsStr::from_bytes(b"<i>in the way\xff"))).unwrap();
    let output = world.run(&["cp", "-r", "--report", "page.html", "tree/", "to"]);
    assert_exit(&output, 1);
    let page = fs::read_to_string(world.near("page.html")).unwrap();
    for words in
        ["<h1 class=\"bad\">carrack cp: partial", "&lt;i&gt;in the way\\xff", "in-the-way", "&lt;b&gt;whole"]
    {
        assert!(page.contains(words), "{words}\n{page}");
    }
    // The source's own numbers: 2 files of one size, and the bytes that were read and sent.
    for words in ["2 files</p>", "2 MiB to 4 MiB", "lane 0", "read</text>", "written</text>"] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    assert!(!page.contains("<i>") && !page.contains("<b>") && !page.contains("<script"));

    assert_exit(&world.run(&["sync", "--report", "page.html", "tree", "from-sync"]), 0);
    assert!(fs::read_to_string(world.near("page.html")).unwrap().contains("carrack sync: complete"));
}

/// A sink that the user started gets the source's reports, though the source is far.
#[test]
fn a_report_of_a_copy_from_the_far_host_knows_the_source() {
    let world = World::new();
    fs::create_dir(world.far("tree")).unwrap();
    fs::write(world.far("tree/big"), vec![7; 9 << 20]).unwrap();
    assert_exit(&world.copy(&["-r", "--report", "page.html", "host:tree", "copy"]), 0);
    let page = fs::read_to_string(world.near("page.html")).unwrap();
    for words in ["1 file</p>", "8 MiB to 16 MiB", "tree/big", "lane 0", "sent</text>"] {
        assert!(page.contains(words), "{words}\n{page}");
    }
}

#[test]
fn a_failed_copy_has_a_report_and_one_that_cannot_be_written_is_refused_before() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    assert_exit(&world.run(&["cp", "--report", "page.html", "missing", "b"]), 3);
    assert!(fs::read_to_string(world.near("page.html")).unwrap().contains("nothing was copied"));
    let refused = world.run(&["cp", "--report", ".", "a", "b"]);
    assert_exit(&refused, 3);
    assert!(talk(&refused).contains("--report .: it exists and is not a regular file"), "{}", talk(&refused));
    assert!(!world.near("b").exists());
}

#[test]
fn the_live_view_needs_a_terminal_and_the_copy_does_not() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    let output = world.run(&["cp", "--tui", "a", "b"]);
    assert_exit(&output, 0);
    let said = talk(&output);
    assert!(said.starts_with("carrack: warning: --tui needs a terminal at stderr"), "{said}");
    assert!(said.contains("carrack: copied 1 file") && !said.contains('\x1b'), "{said}");
}

/// On a terminal of script(1): q ends the copy as Ctrl-C does, and the terminal is restored.
#[test]
fn q_ends_the_live_view_and_the_copy() {
    const ENTERED: &str = "\x1b[?1049h";
    const LEFT: &str = "\x1b[?1049l";
    let world = World::new();
    fs::write(world.near("big"), vec![7; 60 << 20]).unwrap();
    let words = format!("stty rows 24 cols 80; exec '{CARRACK}' cp --tui --bwlimit 2MB big copy");
    let mut terminal = Command::new("script")
        .args(["-qec", &words, "/dev/null"])
        .current_dir(world.near(""))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let (mut shown, mut some) = (Vec::new(), [0; 4_096]);
    let mut is_asked = false;
    while let Ok(len @ 1..) = screen.read(&mut some) {
        shown.extend_from_slice(&some[..len]);
        if !is_asked && String::from_utf8_lossy(&shown).contains("q ends") {
            keys.write_all(b"q").unwrap();
            is_asked = true;
        }
    }
    let shown = String::from_utf8_lossy(&shown);
    assert_eq!(terminal.wait().unwrap().code(), Some(130), "{shown}");
    let (before, after) = shown.split_once(LEFT).expect("the terminal is given back");
    assert!(before.contains(ENTERED) && before.contains("big → copy"), "{shown}");
    assert!(after.contains("carrack: interrupted") && !after.contains(ENTERED), "{shown}");
    assert!(!world.near("copy").exists());
}

/// A thread that has read a part of a file lets others read the rest: also when the limit of open files (128)
/// is reached, and more wait.
#[test]
fn more_large_files_than_may_be_open() {
    let world = World::new();
    let from = world.near("from");
    fs::create_dir(&from).unwrap();
    for number in 0..150 {
        // More objects than a thread reads in a row, which is 16; no holes, which are not read.
        fs::write(from.join(number.to_string()), vec![7; 17 * OBJECT_BYTES_MIN + number]).unwrap();
    }
    assert_exit(&world.run(&["cp", "-r", "--object-size", "128KiB", "from", "to"]), 0);
    assert_same(&from, &world.near("to"));
}

#[test]
fn a_tree_to_the_far_host_and_back() {
    let world = World::new();
    plant(&world.near("tree"));
    let there = world.copy(&["-r", "tree", "localhost:"]);
    assert_exit(&there, 0);
    assert_same(&world.near("tree"), &world.far("tree"));
    assert_says(&there, &["data travelled private over 2 connections, sealed with aes-256-gcm"]);
    let back = world.copy(&["-r", "localhost:tree/", "back"]);
    assert_exit(&back, 0);
    assert_same(&world.near("tree"), &world.near("back"));
}

#[test]
fn looking_making_and_removing_here_and_over_ssh() {
    let world = World::new();
    for (prefix, place) in [("", world.near("")), ("localhost:", world.far(""))] {
        let at = |path: &str| format!("{prefix}{path}");
        let go = |command: &str, more: &[&str]| {
            world.run(&[&[command, "--remote-carrack", CARRACK][..], more].concat())
        };
        assert_exit(&go("mkdir", &["-p", &at("d/e")]), 0);
        fs::write(place.join("d/f"), "12345").unwrap();
        let listed = go("ls", &[&at("d")]);
        assert_exit(&listed, 0);
        let mut names: Vec<&[u8]> = listed.stdout.split_inclusive(|&byte| byte == b'\n').collect();
        names.sort_unstable();
        assert_eq!(names, [b"e\n", b"f\n"]);
        let stat = go("stat", &["--json", &at("d/f"), &at("none")]);
        assert_exit(&stat, 1);
        assert_eq!((json(&stat).len(), &json(&stat)[0]["size_bytes"]), (1, &5.into()));
        assert_says(&stat, &["none: No such file or directory"]);
        assert_exit(&go("rm", &["-r", &at("d")]), 2);
        assert_exit(&go("rm", &["--yes", &at("d")]), 3);
        assert_exit(&go("rm", &["--yes", "-r", &at("d")]), 0);
        assert!(!place.join("d").exists());
    }
    let listed = world.run(&["ls"]);
    assert_exit(&listed, 0);
    let silent = world.script("silent", "exit 255");
    let lost = run(world.command(&["ls", "localhost:"]).env("CARRACK_SSH", silent));
    assert_exit(&lost, 3);
    assert_says(&lost, &["silent could not connect to localhost"]);
}

/// ssh's rule: no entry of a directory is created with more rights than the umask allows.
#[test]
fn the_umask_of_the_far_end_holds_for_directories() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let strict = world.script(
        "strict",
        &format!("umask 077; shift; cd '{}' && exec sh -c \"$*\"", world.far("").display()),
    );
    let words = ["mkdir", "--remote-carrack", CARRACK, "localhost:d"];
    assert_exit(&run(world.command(&words).env("CARRACK_SSH", strict)), 0);
    assert_eq!(fs::metadata(world.far("d")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn json_ends_with_the_summary() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-r", "--json", "--checksum", "blake3", "tree", "localhost:"]);
    assert_exit(&output, 0);
    let events = json(&output);
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of("connected"), of("file_digest"), of("summary")), (1, 4, 1));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"summary".into(), &0.into()));
    assert!(talk(&output).is_empty(), "{}", talk(&output));
}

#[test]
fn a_manifest_holds_each_files_digest() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-r", "--manifest", "sums", "tree", "localhost:copy"]);
    assert_exit(&output, 0);
    let sums = fs::read_to_string(world.near("sums")).unwrap();
    let big = blake3::hash(&fs::read(world.near("tree/big")).unwrap()).to_hex();
    assert!(sums.contains(&format!("{big}  big\n")), "{sums}");
    assert_eq!(sums.lines().count(), 4);
    assert_says(&output, &["can't find 1 file by its name"]);
}

#[test]
fn no_file_beside_the_data_replaces_a_copied_one() {
    let world = World::new();
    for path in ["tree/sub/f", "tree/m", "dst/tree/sub/f", "log"] {
        fs::create_dir_all(world.near(path).parent().unwrap()).unwrap();
        fs::write(world.near(path), "data").unwrap();
    }
    for (words, said) in [
        (&["--manifest", "tree/m", "tree/m", "dst"][..], "is a source"),
        (&["--log-file", "tree/m", "tree/m", "dst"], "is a source"),
        (&["--manifest", "log", "tree/m", "log"], "is the destination"),
        (&["-r", "--manifest", "tree/new", "tree", "dst"], "lies in a source"),
        (&["-r", "--report", "tree/sub/f", "tree", "h:dst"], "lies in a source"),
        (&["-r", "--report", "dst/tree/sub/f", "tree", "dst"], "is the copy of"),
        (&["-r", "--log-file", "dst/tree/sub/f", "tree/", "dst/tree"], "is the copy of"),
        (&["-r", "--manifest", "dst/m", "tree/m", "dst"], "is the copy of"),
        (&["--manifest", "new", "--report", "./new", "tree/m", "dst"], "is the file of --manifest"),
    ] {
        let output = world.copy(words);
        assert_exit(&output, 2);
        assert_says(&output, &[said, "name another file"]);
    }
    assert!(!world.near("new").exists() && !world.near("dst/m").exists());
    for path in ["tree/sub/f", "tree/m", "dst/tree/sub/f", "log"] {
        assert_eq!(fs::read_to_string(world.near(path)).unwrap(), "data", "{path}");
    }
    let beside =
        ["-r", "--manifest", "dst/sums", "--report", "dst/page", "--log-file", "dst/log", "tree", "dst"];
    assert_exit(&world.copy(&beside), 0);
    // What a far source has is known at the end.
    fs::create_dir(world.far("tree")).unwrap();
    fs::write(world.far("tree/sums"), "data").unwrap();
    let output = world.copy(&["-r", "--manifest", "dst/sums", "localhost:tree/", "dst"]);
    assert_says(&output, &["a file got this name, or was changed, while the copy ran"]);
    assert_eq!(fs::read_to_string(world.near("dst/sums")).unwrap(), "data");
}

#[test]
fn a_dry_run_lists_and_copies_nothing() {
    let world = World::new();
    plant(&world.near("tree"));
    let output = world.copy(&["-rn", "tree", "localhost:copy"]);
    assert_exit(&output, 0);
    assert!(output.stdout.split(|&b| b == b'\n').any(|line| line.ends_with(b"big")));
    assert!(!world.far("copy").exists());
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    fs::create_dir(world.near("to")).unwrap();
    let some = world.run(&["cp", "a", "missing", "to"]);
    assert_exit(&some, 1);
    assert_says(&some, &["missing"]);
    assert!(world.near("to/a").exists());
    assert_exit(&world.run(&["cp", "missing", "to"]), 3);
}

#[test]
fn ssh_explains_why_nobody_answers() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    for (script, words) in [("exit 255", "could not connect to h"), ("exit 127", "was not found on h")] {
        // The script reads first: a far shell lives long enough to get a message.
        let ssh = world.script("broken", &format!("head -c 16 >/dev/null; {script}"));
        let mut command = world.command(&["cp", "--ssh", &ssh, "a", "h:"]);
        let output = run(command.env("CARRACK_SSH", "false"));
        assert_exit(&output, 3);
        assert_says(&output, &[words, "\nhint: "]);
    }
}

#[test]
fn a_signal_ends_it_and_its_ssh() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    let pid_file = world.near("pid");
    let script = format!("echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec sleep 1000", pid_file.display());
    let ssh = world.script("silent", &script);
    let running = Running::start(&mut world.command(&["cp", "--ssh", &ssh, "a", "h:"]));
    wait_for("ssh", || pid_file.exists().then_some(()));
    running.signal(Signal::TERM);
    assert_exit(&running.end(), 130);
    let ssh_pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(ssh_pid.trim()).exists());
}

#[test]
fn nobody_at_the_other_end_of_a_session_is_no_crash() {
    let output = World::new().run(&["session"]);
    assert_exit(&output, 3);
    assert!(talk(&output).is_empty(), "{}", talk(&output));
}

#[test]
fn what_storage_cannot_do_is_said_once() {
    let world = World::new();
    for name in ["one", "two"] {
        fs::create_dir_all(world.near("tree")).unwrap();
        fs::write(world.near("tree").join(name), vec![7; 3 << 20]).unwrap();
    }
    let output = world.copy(&["-r", "--stripe=4:1MiB", "tree", "far:striped"]);
    assert_exit(&output, 0);
    assert_eq!(talk(&output).matches("can't be striped").count(), 1, "{}", talk(&output));
    assert_same(&world.near("tree"), &world.far("striped"));
    // A request for less than that is satisfied by the given striping.
    let output = world.copy(&["-r", "--stripe=auto", "tree", "far:auto"]);
    assert_exit(&output, 0);
    assert!(!talk(&output).contains("stripe"), "{}", talk(&output));
}

#[test]
fn targets_are_told_in_a_table_and_as_json() {
    let world = World::new();
    fs::write(world.near("f"), vec![7; 3 << 20]).unwrap();
    let output = world.copy(&["-v", "--max-inflight-per-target=2", "f", "far:g"]);
    assert_exit(&output, 0);
    for words in ["source targets:", "sink targets:", "3.0 MiB"] {
        assert!(talk(&output).contains(words), "{words}: {}", talk(&output));
    }
    let output = world.copy(&["--json", "--max-inflight-per-target=2", "f", "far:h"]);
    assert_exit(&output, 0);
    let sides: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["event"] == "targets" && line["targets"][0]["bytes"] == 3 << 20)
        .map(|line| line["side"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(["source", "sink"].iter().all(|side| sides.iter().any(|told| told == side)), "{sides:?}");
}

/// A copy uses the options of the user's file, a profile and the environment.
#[test]
fn options_come_from_elsewhere_too() {
    let world = World::new();
    plant(&world.near("tree"));
    let config = world.near("config/carrack/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let with = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("XDG_CONFIG_HOME", world.near("config"));
        command
    };
    fs::write(&config, "recursive = true\n\n[profile.mine]\nmanifest = \"sums\"\n").unwrap();
    assert_exit(&run(&mut with(&["cp", "--profile", "mine", "tree", "copy"])), 0);
    assert_same(&world.near("tree"), &world.near("copy"));
    assert!(fs::metadata(world.near("sums")).unwrap().len() > 0);
    assert_exit(&run(with(&["cp", "tree", "dry"]).env("CARRACK_DRY_RUN", "1")), 0);
    assert!(!world.near("dry").exists());
    assert_exit(&run(&mut with(&["cp", "--no-config", "tree", "flat"])), 3);

    let path = run(&mut with(&["config", "path"]));
    assert_eq!(path.stdout, [config.to_str().unwrap().as_bytes(), b"\n"].concat());
    let shown =
        run(&mut with(&["config", "show", "cp", "--json", "--profile", "mine", "--", "--streams", "3"]));
    assert_exit(&shown, 0);
    let rows: Vec<serde_json::Value> =
        shown.stdout.split(|&b| b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let place = |option: &str| {
        let row = rows.iter().find(|row| row["option"] == option).unwrap();
        (row["origin"].as_str().unwrap(), row["place"].as_str().unwrap_or_default())
    };
    assert_eq!(place("recursive"), ("file", &*format!("{}:1", config.display())));
    assert_eq!(place("manifest"), ("profile", &*format!("profile mine, {}:4", config.display())));
    assert_eq!((place("streams").0, place("buffer").0), ("command line", "default"));

    fs::write(&config, "\nbufer = \"1GiB\"\n").unwrap();
    let refused = run(&mut with(&["cp", "tree", "other"]));
    assert_exit(&refused, 2);
    assert!(
        talk(&refused).contains("config.toml:2: there is no option bufer")
            && talk(&refused).ends_with("hint: is it buffer?\n")
    );
    assert!(!world.near("other").exists());
}

/// In a pull the far end gets no limit: this end follows the timetable.
#[test]
fn a_timetable_bounds_the_rate() {
    let world = World::new();
    fs::write(world.far("big"), vec![7; 6_000_000]).unwrap();
    let hour =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 3_600 % 24;
    let table = format!("{:02}:00-{:02}:00 2MB, off", (hour + 23) % 24, (hour + 2) % 24);
    let copy = |options: &[&str], from: &str, to: &str| {
        let words =
            [&["cp", "--remote-carrack", CARRACK, "--bwlimit", &table][..], options, &[from, to]].concat();
        let began = std::time::Instant::now();
        let output = run(world.command(&words).env("TZ", "UTC0"));
        (output, began.elapsed().as_secs_f64())
    };
    let (output, seconds) = copy(&["--buffer", "4MiB"], "host:big", "big");
    assert_exit(&output, 0);
    assert!(seconds > 2.4, "6 MB at 2 MB/s took {seconds} s");
    assert_eq!(fs::read(world.near("big")).unwrap().len(), 6_000_000);
    let (output, seconds) = copy(&["--json"], "big", "copy");
    assert_exit(&output, 0);
    assert!(json(&output).iter().any(|event| event["limiter"] == "rate limit"), "{:?}", json(&output));
    assert!(seconds > 2.4, "6 MB at 2 MB/s took {seconds} s");
    let (output, _) = copy(&[], "host:big", "other:copy");
    assert_exit(&output, 2);
    assert_says(&output, &["both are far", "hint: give one rate"]);
}
