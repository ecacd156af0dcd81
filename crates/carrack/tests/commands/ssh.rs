//! The whole path over a real sshd: both directions, faults of the far side, and early ends.
//!
//! "Far" is another directory of this host. Every test has an sshd of its own and is skipped, with its
//! reason, where there is none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::sshd::Sshd;
use crate::common::tree::{assert_same, plant, plant_rich, temporary_names};
use crate::common::{CARRACK, Places, say_skipped, skip};

/// An sshd and two directories: commands run in the near one.
struct Site {
    sshd: Sshd,
    places: Places,
}

impl Deref for Site {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.places
    }
}

impl Site {
    #[track_caller]
    fn new() -> Option<Site> {
        Some(Site { sshd: Sshd::start()?, places: Places::new() })
    }

    /// Returns a far path as it is typed.
    fn remote(&self, path: &str) -> String {
        format!("carrack-test:{}", self.far(path).display())
    }

    /// Returns a far carrack that runs `script`.
    fn far_carrack(&self, script: &str) -> String {
        // The far shell reads the quotes.
        format!("'{}'", self.script("far carrack", script))
    }

    fn command_with(&self, far_carrack: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "--perms", "--remote-carrack", far_carrack]).args(arguments);
        command.current_dir(self.near("")).env("CARRACK_SSH", self.sshd.ssh());
        command
    }

    #[track_caller]
    fn copy_with(&self, far_carrack: &str, arguments: &[&str]) -> Output {
        run(&mut self.command_with(far_carrack, arguments))
    }

    #[track_caller]
    fn copy(&self, arguments: &[&str]) -> Output {
        self.copy_with(CARRACK, arguments)
    }

    /// Copies, and returns the transport of the data.
    #[track_caller]
    fn transport(&self, arguments: &[&str]) -> String {
        let output = self.copy(&[&["--json"], arguments].concat());
        assert_exit(&output, 0);
        let connected = json(&output).into_iter().find(|event| event["event"] == "connected");
        connected.unwrap()["transport"].as_str().unwrap().to_owned()
    }
}

/// The two directions; most tests run in both.
#[derive(Clone, Copy, Debug)]
enum Way {
    Push,
    Pull,
}

const WAYS: [Way; 2] = [Way::Push, Way::Pull];

// Contents that arrive.

#[test]
fn a_rich_tree_there_and_back() {
    let Some(site) = Site::new() else { return };
    plant_rich(&site.near("tree"));
    let there = site.copy(&["-r", "tree", &site.remote("")]);
    assert_exit(&there, 0);
    assert_says(
        &there,
        &["carrack: copied ", "data travelled private over 2 connections, sealed with aes-256-gcm"],
    );
    assert_same(&site.near("tree"), &site.far("tree"));
    assert_exit(&site.copy(&["-r", &site.remote("tree/"), "back"]), 0);
    assert_same(&site.near("tree"), &site.near("back"));
}

#[test]
fn over_ipv6() {
    let Some(site) = Site::new() else { return };
    if !site.sshd.has_ipv6() {
        return say_skipped("no IPv6 on loopback");
    }
    plant(&site.near("tree"));
    let there = site.remote("tree").replace("carrack-test:", "carrack-test6:");
    assert_eq!(site.transport(&["-r", "tree", &there]), "tcp");
    assert_eq!(site.transport(&["-r", &there, "back"]), "tcp");
    assert_same(&site.near("tree"), &site.near("back"));
}

#[test]
fn b3sum_accepts_the_manifest() {
    let Some(site) = Site::new() else { return };
    if Command::new("b3sum").arg("--version").output().is_err() {
        return skip("b3sum is missing");
    }
    plant_checkable(&site.near("tree"));
    let sums = site.near("sums");
    let manifest = ["-r", "--checksum", "blake3", "--manifest", "sums"];
    assert_exit(&site.copy(&[&manifest[..], &["tree", &site.remote("copy")]].concat()), 0);
    assert_eq!(b3sum_check(&sums, &site.far("copy")), 5);
    assert_exit(&site.copy(&[&manifest[..], &[&site.remote("copy"), "."]].concat()), 0);
    assert_eq!(b3sum_check(&sums, &site.near("")), 5);
}

/// Plants only names that a line of text can hold.
fn plant_checkable(root: &Path) {
    plant(root);
    fs::rename(root.join("sub/small"), root.join("sub/back\\slash")).unwrap();
    fs::write(root.join("sub/new\nline"), "new").unwrap();
    let unreadable = fs::read_dir(root.join("sub")).unwrap().map(|entry| entry.unwrap().path());
    unreadable.filter(|path| path.to_str().is_none()).for_each(|path| fs::remove_file(path).unwrap());
    fs::write(root.join("sub/$HOME 'it'"), "quoted").unwrap();
}

/// Returns the number of files that match the manifest.
#[track_caller]
fn b3sum_check(sums: &Path, directory: &Path) -> usize {
    let output = run(Command::new("b3sum").arg("--check").arg(sums).current_dir(directory));
    assert_exit(&output, 0);
    String::from_utf8(output.stdout).unwrap().matches(": OK\n").count()
}

#[test]
fn remote_paths_are_not_for_the_shell() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    let name = r#"it's "q" $HOME `id` *;& \ é"#;
    fs::create_dir(site.far(name)).unwrap();
    assert_exit(&site.copy(&["a", &site.remote(name)]), 0);
    assert_eq!(fs::read(site.far(name).join("a")).unwrap(), b"a");
    assert_exit(&site.copy(&["-r", &site.remote(name), "."]), 0);
    assert_same(&site.far(name), &site.near(name));
}

#[test]
fn relative_remote_paths_start_at_the_home_directory() {
    let Some(site) = Site::new() else { return };
    let Ok(place) = tempfile::Builder::new().prefix(".carrack-test-").tempdir_in(site.sshd.home()) else {
        return say_skipped("the home directory is not writable");
    };
    let name = place.path().file_name().and_then(OsStr::to_str).unwrap();
    plant(&site.near("tree"));
    assert_exit(&site.copy(&["-r", "tree", &format!("carrack-test:{name}/copy")]), 0);
    assert_same(&site.near("tree"), &place.path().join("copy"));
    assert_exit(&site.copy(&["-r", &format!("carrack-test:~/{name}/copy"), "back"]), 0);
    assert_same(&site.near("tree"), &site.near("back"));
}

#[test]
fn a_dry_run_lists_and_copies_nothing() {
    let Some(site) = Site::new() else { return };
    plant(&site.far("tree"));
    let output = site.copy(&["-rn", &site.remote("tree"), "copy"]);
    assert_exit(&output, 0);
    assert_eq!(output.stdout.split(|&byte| byte == b'\n').filter(|line| line.ends_with(b"big")).count(), 1);
    assert!(!site.near("copy").exists());
}

// Reports and exit codes.

#[test]
fn exit_codes_say_how_much_was_copied() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    let far = site.remote("");
    for (arguments, code) in [
        (&["a", &far][..], 0),
        (&["a", "missing", &far], 1),
        (&["--buffer", "1MiB", "a", &far], 2),
        (&["a", &site.remote("missing/directory/")], 3),
        (&[&site.remote("missing"), "."], 3),
    ] {
        let output = site.copy(arguments);
        assert_exit(&output, code);
        assert_eq!(talk(&output).contains("missing"), [1, 3].contains(&code), "{}", talk(&output));
    }
}

#[test]
fn json_lists_failures_and_ends_with_the_summary() {
    let Some(site) = Site::new() else { return };
    plant(&site.far("tree"));
    let output = site.copy(&["-r", "--json", &site.remote("tree"), &site.remote("missing"), "."]);
    assert_exit(&output, 1);
    let events = json(&output);
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of("connected"), of("failed"), of("summary")), (1, 1, 1));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"summary".into(), &1.into()));
    assert_eq!((&last["transport"], &last["files_done"]), (&"tcp".into(), &4.into()));
    assert!(talk(&output).is_empty(), "{}", talk(&output));
}

#[test]
fn json_ends_with_a_summary_although_nobody_answered() {
    let Some(site) = Site::new() else { return };
    let output = site.copy_with("/nonexistent/carrack", &["--json", &site.remote("a"), "."]);
    assert_exit(&output, 3);
    let events = json(&output);
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["event"], &events[0]["exit_code"]), (&"summary".into(), &3.into()));
    assert!(events[0]["errors"][0]["message"].as_str().unwrap().contains("was not found"), "{events:?}");
}

// Faults of the far side.

#[test]
fn a_far_carrack_that_does_not_start_is_named() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    let to = site.remote("");
    let unexecutable = site.far("unexecutable");
    fs::write(&unexecutable, "").unwrap();
    for (far_carrack, words) in [
        ("/nonexistent/carrack", ["/nonexistent/carrack was not found on carrack-test", "--remote-carrack"]),
        (unexecutable.to_str().unwrap(), ["can't be executed on carrack-test", "x bit"]),
        (&site.far_carrack("exit 5"), ["ended with status 5 before it said anything", "--version"]),
    ] {
        let output = site.copy_with(far_carrack, &["a", &to]);
        assert_exit(&output, 3);
        assert_says(&output, &words);
        assert_says(&output, &["\nhint: "]);
    }
}

#[test]
fn ssh_that_does_not_get_there_is_named() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    let refused = format!("{} -o Port=1", site.sshd.ssh());
    for (arguments, words) in [
        (&["a", "nobody.invalid:"][..], "could not connect to nobody.invalid"),
        (&["nobody.invalid:a", "."], "could not connect to nobody.invalid"),
        (&["--ssh", &refused, "a", "carrack-test:"], "could not connect to carrack-test"),
    ] {
        let output = site.copy(arguments);
        assert_exit(&output, 3);
        assert_says(&output, &[words, "\nhint: "]);
    }
}

#[test]
fn another_version_is_named() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    // The preamble offers versions 900 to 901.
    let preamble = r"printf 'carrack\000\204\003\205\003\000\000\000\000'; exec cat >/dev/null";
    let output = site.copy_with(&site.far_carrack(preamble), &["a", &site.remote("")]);
    assert_exit(&output, 3);
    assert_says(&output, &["versions 900 to 901", "\nhint: install the same version"]);
}

#[test]
fn something_else_than_carrack_is_quoted() {
    let Some(site) = Site::new() else { return };
    fs::write(site.near("a"), "a").unwrap();
    let output = site.copy_with(&site.far_carrack("echo I am a teapot"), &["a", &site.remote("")]);
    assert_exit(&output, 3);
    assert_says(&output, &["I am a teapot", "\nhint: "]);
}

#[test]
fn a_talkative_login_shell_does_no_harm() {
    let Some(site) = Site::new() else { return };
    plant(&site.near("tree"));
    let far_carrack = site.far_carrack(&format!("echo 'Welcome to carrack!'; exec '{CARRACK}' \"$@\""));
    assert_exit(&site.copy_with(&far_carrack, &["-r", "tree", &site.remote("")]), 0);
    assert_same(&site.near("tree"), &site.far("tree"));
    assert_exit(&site.copy_with(&far_carrack, &["-r", &site.remote("tree"), "."]), 0);
}

// Connections that carry the data.

#[test]
fn either_end_may_dial() {
    let Some(site) = Site::new() else { return };
    plant(&site.near("tree"));
    for dialer in ["source", "sink"] {
        let (far, near) = (site.remote(dialer), format!("back-{dialer}"));
        assert_eq!(site.transport(&["-r", "--connect-from", dialer, "tree", &far]), "tcp");
        assert_eq!(site.transport(&["-r", "--connect-from", dialer, &far, &near]), "tcp");
        assert_same(&site.near("tree"), &site.near(&near));
    }
}

/// Occupies a port on every address.
fn occupy_a_port() -> (TcpListener, u16) {
    // The port is below the kernel's range for outgoing connections, so that it stays free after its release.
    let ports = (10_000..20_000).cycle().skip(std::process::id() as usize % 10_000);
    let bind = |port| {
        let everywhere = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
        everywhere.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
    };
    let mut bound = ports.take(1_000).filter_map(|port| Some((bind(port).ok()?, port)));
    bound.next().unwrap()
}

#[test]
fn without_a_port_the_data_takes_the_ssh_pipe() {
    let Some(site) = Site::new() else { return };
    plant(&site.near("tree"));
    let (occupied, port) = occupy_a_port();
    let ports = port.to_string();
    let there = site.copy(&["-r", "--ports", &ports, "tree", &site.remote("")]);
    assert_exit(&there, 0);
    assert_says(
        &there,
        &["carrack: warning: no data connection could be made", "data travelled private through ssh"],
    );
    assert_same(&site.near("tree"), &site.far("tree"));
    assert_eq!(site.transport(&["-r", "--ports", &ports, &site.remote("tree"), "back"]), "ssh pipe");
    assert_same(&site.near("tree"), &site.near("back"));
    // Only the port was missing.
    drop(occupied);
    assert_eq!(site.transport(&["-r", "--ports", &ports, &site.remote("tree"), "again"]), "tcp");
}

// Early ends.

/// A transfer that takes seconds, and is past its first bytes.
struct Midway {
    site: Site,
    sink: PathBuf,
    running: Running,
}

/// Zeros that take no disk space; with a manifest they travel.
const MIDWAY_BYTES: u64 = 8 << 30;

/// Slow on every machine; and the run leaves no state for another.
const SLOWLY: [&str; 9] =
    ["--no-journal", "--streams", "1", "--io-threads", "1", "--buffer", "512KiB", "--object-size", "128KiB"];

/// Longest end of a transfer that is interrupted, or finds the other end gone: far less than the stall
/// timeout of a silent end.
const END_MAX: Duration = Duration::from_secs(30);

impl Midway {
    fn reach(way: Way) -> Option<Midway> {
        Midway::reach_with(way, &[])
    }

    fn reach_with(way: Way, options: &[&str]) -> Option<Midway> {
        let site = Site::new()?;
        let (source, sink, paths) = match way {
            Way::Push => (site.near("zeros"), site.far(""), ["zeros".into(), site.remote("")]),
            Way::Pull => (site.far("zeros"), site.near(""), [site.remote("zeros"), ".".into()]),
        };
        File::create(source).unwrap().set_len(MIDWAY_BYTES).unwrap();
        let mut command = site.command_with(CARRACK, &SLOWLY);
        command.arg("--manifest").arg(site.near("../manifest"));
        let running = Running::start(command.args(options).args(paths).process_group(0));
        wait_for("a file that grows", || (!temporary_names(&sink).is_empty()).then_some(()));
        Some(Midway { site, sink, running })
    }

    /// Ends the transfer, and returns its output. `left` temporary names remain when all its processes are
    /// gone.
    #[track_caller]
    fn end_by(self, left: usize, end: impl FnOnce(&Midway)) -> Output {
        let told = Instant::now();
        end(&self);
        let output = self.running.end();
        self.site.sshd.wait_for_no_session();
        assert!(told.elapsed() < END_MAX, "{:?}\n{}", told.elapsed(), talk(&output));
        // An interrupted process may outlive its session by a moment.
        let names = format!("{left} temporary names");
        wait_for(&names, || (temporary_names(&self.sink).len() == left).then_some(()));
        assert_eq!(fs::read_dir(&self.sink).unwrap().count(), left, "something got its name");
        output
    }
}

#[test]
fn a_far_end_that_is_killed_is_a_clean_error() {
    for way in WAYS {
        let Some(midway) = Midway::reach_with(way, &["--retry", "0"]) else { return };
        let session = midway.site.sshd.wait_for_session();
        // A far sink that was killed leaves its temporary name.
        let left = usize::from(matches!(way, Way::Push));
        let output = midway.end_by(left, |_| kill_process(session, Signal::KILL).unwrap());
        assert_exit(&output, 3);
        assert_says(&output, &["carrack: error: the "]);
    }
}

#[test]
fn a_near_end_that_is_killed_ends_the_far_one() {
    for way in WAYS {
        let Some(midway) = Midway::reach(way) else { return };
        let left = usize::from(matches!(way, Way::Pull));
        let output = midway.end_by(left, |midway| midway.running.signal(Signal::KILL));
        assert_eq!(output.status.code(), None);
    }
}

#[test]
fn a_far_end_that_hangs_does_not_hold_up_a_signal() {
    let Some(midway) = Midway::reach(Way::Push) else { return };
    let session = midway.site.sshd.wait_for_session();
    kill_process(session, Signal::STOP).unwrap();
    let told = Instant::now();
    midway.running.signal(Signal::TERM);
    assert_exit(&midway.running.end(), 130);
    assert!(told.elapsed() < END_MAX, "{:?}", told.elapsed());
    kill_process(session, Signal::KILL).unwrap();
}

#[test]
fn a_signal_ends_both_ends_and_leaves_nothing() {
    for way in WAYS {
        // Ctrl-C on a terminal reaches ssh too, `kill` only carrack.
        for end in [
            |midway: &Midway| midway.running.signal_group(Signal::INT),
            |midway: &Midway| midway.running.signal(Signal::TERM),
        ] {
            let Some(midway) = Midway::reach(way) else { return };
            let output = midway.end_by(0, end);
            assert_exit(&output, 130);
            assert_says(&output, &["interrupted"]);
        }
    }
}
