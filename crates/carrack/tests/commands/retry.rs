//! `carrack cp` when the network breaks, daemons are stopped and time runs out; and `carrack resume`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use crate::common;
use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::daemon::{CARRACK, Daemon, Site, noise};

/// A file that takes seconds at [`RATE`].
const FILE_BYTES: usize = 6_000_000;
const RATE: &str = "2MB";

/// A site with a daemon at a port that stays its own, and a client's directory.
struct World {
    site: Site,
    config: PathBuf,
    port: u16,
    near: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let site = Site::new();
        let port = common::free_port();
        let top = format!("listen = [\"127.0.0.1:{port}\"]\ndrain_seconds = 0\n");
        let config = site.write_config(&top, &site.usual_exports());
        site.identity("alice");
        let near = tempfile::tempdir().unwrap();
        fs::write(near.path().join("file"), noise(FILE_BYTES)).unwrap();
        World { site, config, port, near }
    }

    fn daemon(&self) -> Daemon {
        Daemon::start(&self.config)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.near.path());
        command.env("HOME", self.near.path()).env_remove("XDG_STATE_HOME").env_remove("CARRACK_TOKEN");
        command.env("CARRACK_CA", self.site.path().join("authority/ca.pem"));
        command
    }

    /// Returns a command by which alice copies `file` into the export, slowly.
    fn push(&self, options: &[&str]) -> Command {
        self.push_from("file", options)
    }

    fn push_from(&self, source: &str, options: &[&str]) -> Command {
        self.push_at(RATE, source, options)
    }

    fn push_at(&self, rate: &str, source: &str, options: &[&str]) -> Command {
        let url = format!("carrack://localhost:{}/data/", self.port);
        let identity = self.site.path().join("alice.pem");
        let words = ["cp", "--bwlimit", rate, "--identity", identity.to_str().unwrap()];
        self.command(&[&words, options, &[source, &url]].concat())
    }

    /// Returns the ssh stand-in, and the file in which it records its processes, which become the far
    /// carracks.
    fn ssh(&self) -> (String, PathBuf) {
        let (stand_in, pids) = (self.near.path().join("stand-in"), self.near.path().join("pids"));
        let script = format!("#!/bin/sh\necho $$ >>'{}'\nshift\nexec \"$@\"\n", pids.display());
        fs::write(&stand_in, script).unwrap();
        fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
        (stand_in.to_str().unwrap().to_owned(), pids)
    }

    fn arrived(&self) -> PathBuf {
        self.site.path().join("data/file")
    }

    #[track_caller]
    fn assert_arrived(&self) {
        assert!(fs::read(self.arrived()).unwrap() == noise(FILE_BYTES), "other bytes");
    }

    /// Waits until the file is being written.
    fn wait_until_moving(&self) {
        self.wait_until_moving_to("data");
    }

    fn wait_until_moving_to(&self, directory: &str) {
        wait_for("the file is being written", || {
            let entries = fs::read_dir(self.site.path().join(directory)).into_iter().flatten().flatten();
            let is_growing = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
            entries.map(|entry| entry.path()).find(|path| is_growing(path))
        });
    }

    /// Returns the transfers in the list of `carrack resume`.
    #[track_caller]
    fn listed(&self) -> Vec<serde_json::Value> {
        let listed = run(&mut self.command(&["resume", "--json"]));
        assert_exit(&listed, 0);
        json(&listed)
    }
}

fn kill_children(daemon: &Daemon) {
    for (pid, _) in daemon.children() {
        // The process may have ended in between.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
}

#[track_caller]
fn assert_went_on(world: &World, output: &Output) {
    assert_exit(output, 0);
    assert_says(output, &["trying again in", "copied 1 file"]);
    world.assert_arrived();
    assert!(world.listed().is_empty());
}

#[test]
fn a_session_that_is_killed_is_followed_by_another() {
    let world = World::new();
    let daemon = world.daemon();
    let copying = Running::start(&mut world.push(&[]));
    world.wait_until_moving();
    kill_children(&daemon);
    assert_went_on(&world, &copying.end());
}

#[test]
fn a_far_process_over_ssh_that_is_killed_is_followed_by_another() {
    let world = World::new();
    let (ssh, pids) = world.ssh();
    let far = world.site.path().join("data/");
    let to = format!("host:{}/", far.display());
    let options = ["cp", "--ssh", &ssh, "--remote-carrack", CARRACK, "--bwlimit", RATE];
    let copying = Running::start(&mut world.command(&[&options[..], &["file", &to]].concat()));
    world.wait_until_moving();
    let pid = fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_went_on(&world, &copying.end());
    assert_eq!(fs::read_to_string(&pids).unwrap().lines().count(), 2);
}

#[test]
fn a_directory_that_an_earlier_try_has_made_is_not_gone_into() {
    let world = World::new();
    let (ssh, pids) = world.ssh();
    fs::create_dir(world.near.path().join("tree")).unwrap();
    fs::rename(world.near.path().join("file"), world.near.path().join("tree/file")).unwrap();
    let made = world.site.path().join("data/made");
    let to = format!("host:{}", made.display());
    // Without a journal the destination does not show which transfer has made it.
    let options = ["cp", "-r", "--no-journal", "--ssh", &ssh, "--remote-carrack", CARRACK, "--bwlimit", RATE];
    let mut command = world.command(&[&options[..], &["tree", &to]].concat());
    let copying = Running::start(&mut command);
    world.wait_until_moving_to("data/made");
    let pid = fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let told = copying.end();
    assert_exit(&told, 0);
    assert_says(
        &told,
        &["trying again in", &format!("to {to}\n"), "run again, this command would copy into"],
    );
    let names = || {
        let names = fs::read_dir(&made).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| !name.to_str().unwrap().starts_with('.')).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["file"]);

    fs::remove_dir_all(&made).unwrap();
    let copying = Running::start(&mut command);
    world.wait_until_moving_to("data/made");
    copying.signal(Signal::KILL);
    copying.end();
    let id = world.listed()[0]["id"].as_str().unwrap().to_owned();
    assert_exit(&run(&mut world.command(&["resume", &id])), 0);
    assert_eq!(names(), ["file"]);
    // The command itself copies into it by now, and says so.
    let again = run(&mut world.command(&[&options[..7], &["tree", &to]].concat()));
    assert_exit(&again, 0);
    assert_says(&again, &[&format!("to {to}/tree\n")]);
    assert_exit(&run(&mut world.command(&[&options[..7], &["-T", "tree", &to]].concat())), 0);
}

#[test]
fn a_copy_between_two_far_ends_goes_on_too() {
    let world = World::new();
    let daemon = world.daemon();
    let (ssh, pids) = world.ssh();
    let from = format!("host:{}", world.near.path().join("file").display());
    let options = ["--ssh", &ssh, "--remote-carrack", CARRACK];
    let copying = Running::start(&mut world.push_from(&from, &options));
    world.wait_until_moving();
    kill_children(&daemon);
    assert_went_on(&world, &copying.end());
    assert_eq!(fs::read_to_string(&pids).unwrap().lines().count(), 2, "both ends are gone to again");
}

#[test]
fn a_daemon_that_is_stopped_or_killed_and_started_again_is_waited_for() {
    for signal in [Signal::TERM, Signal::KILL] {
        let world = World::new();
        let mut daemon = world.daemon();
        let copying = Running::start(&mut world.push(&[]));
        world.wait_until_moving();
        daemon.signal(signal);
        daemon.ended();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let _again = world.daemon();
        assert_went_on(&world, &copying.end());
    }
}

#[test]
fn without_retries_the_first_break_is_the_end() {
    let world = World::new();
    let daemon = world.daemon();
    let copying = Running::start(&mut world.push(&["--retry", "0"]));
    world.wait_until_moving();
    kill_children(&daemon);
    let output = copying.end();
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", talk(&output));
    assert!(!talk(&output).contains("trying again"), "{}", talk(&output));
    assert!(!world.arrived().exists());
}

#[test]
fn what_was_never_there_is_told_at_once_or_soon() {
    let world = World::new();
    // A daemon may be about to be restarted.
    let output = run(&mut world.push(&["--retry", "1"]));
    assert_exit(&output, 3);
    assert_says(&output, &["nobody listens at localhost", "trying again in"]);
    let identity = world.site.path().join("alice.pem");
    let nowhere = ["cp", "--identity", identity.to_str().unwrap(), "file", "carrack://nowhere.invalid/data/"];
    let no_name = run(&mut world.command(&nowhere));
    let no_ssh = run(&mut world.command(&["cp", "--ssh", "false", "file", "host:x"]));
    for (output, words) in [(no_name, "can't be found"), (no_ssh, "ended with status 1")] {
        assert_exit(&output, 3);
        assert_says(&output, &[words]);
        assert!(!talk(&output).contains("trying again"), "{}", talk(&output));
    }
}

#[test]
fn a_daemon_that_starts_while_somebody_tries_is_found() {
    let world = World::new();
    let copying = Running::start(&mut world.push(&[]));
    std::thread::sleep(std::time::Duration::from_millis(700));
    let _daemon = world.daemon();
    assert_went_on(&world, &copying.end());
}

#[test]
fn whoever_finds_no_room_waits_for_a_turn() {
    let world = World::new();
    let text = fs::read_to_string(&world.config).unwrap();
    fs::write(&world.config, format!("{text}\n[limits]\nsessions_per_identity = 1\n")).unwrap();
    let _daemon = world.daemon();
    // This client holds its connection.
    let url = format!("carrack://localhost:{}/data/", world.port);
    let identity = world.site.path().join("alice.pem");
    let slowly = ["cp", "--bwlimit", "20kB", "--identity", identity.to_str().unwrap(), "file", &url];
    let copying = Running::start(&mut world.command(&slowly));
    world.wait_until_moving();
    fs::write(world.near.path().join("small"), "x").unwrap();
    let refused = run(&mut world.push_from("small", &["--retry", "0"]));
    assert_exit(&refused, 3);
    assert_says(&refused, &["as many sessions as one may have, 1"]);
    // Waits for a turn are not counted as retries.
    let waiting = Running::start(&mut world.push_from("small", &["--retry", "1"]));
    world.site.audited(3);
    copying.signal(Signal::INT);
    let waited = waiting.end();
    assert_exit(&waited, 0);
    assert_says(&waited, &["as many sessions as one may have, 1; trying again in"]);
    copying.end();
}

#[test]
fn a_far_program_that_hangs_at_its_start_is_not_waited_for() {
    if fs::File::open("/dev/tty").is_ok() {
        return eprintln!("skipped: there is a terminal, at which ssh could ask");
    }
    let world = World::new();
    let script = world.near.path().join("hangs");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command =
        world.command(&["cp", "--ssh", script.to_str().unwrap(), "--stall-timeout", "1", "file", "h:x"]);
    let output = run(&mut command);
    assert_exit(&output, 3);
    assert_says(&output, &["has said nothing for 1 s"]);
    assert!(!talk(&output).contains("trying again"));
}

#[test]
fn data_goes_through_the_control_channel_where_that_is_wanted() {
    let world = World::new();
    let _daemon = world.daemon();
    fs::write(world.near.path().join("small"), "x").unwrap();
    let pushed = run(&mut world.push_from("small", &["--via", "ssh", "-v"]));
    assert_exit(&pushed, 0);
    assert!(!talk(&pushed).contains("no data connection"), "{}", talk(&pushed));
    assert_says(&pushed, &["TLS"]);
    for from in ["source", "sink"] {
        let (ssh, _) = world.ssh();
        let far = world.site.path().join(from);
        let way = ["cp", "--ssh", &ssh, "--remote-carrack", CARRACK, "--via", "ssh", "--connect-from", from];
        let there = format!("host:{}", far.display());
        assert_exit(&run(&mut world.command(&[&way[..], &["small", &there]].concat())), 0);
        let back = run(&mut world.command(&[&way[..], &["--json", &there, "back"]].concat()));
        assert_exit(&back, 0);
        assert_eq!(fs::read(world.near.path().join("back")).unwrap(), b"x");
        let connected = json(&back).into_iter().find(|event| event["event"] == "connected").unwrap();
        assert_eq!(connected["streams"], 0, "{connected}");
    }
}

#[test]
fn a_transfer_ends_when_its_time_is_over_also_while_it_waits() {
    let world = World::new();
    let mut daemon = world.daemon();
    let output = run(&mut world.push(&["--timeout", "1", "--json", "--no-journal"]));
    assert_exit(&output, 124);
    assert_says(&output, &["did not end within 1 s (--timeout)", "run the same command again"]);
    let end = json(&output).pop().unwrap();
    assert_eq!((&end["outcome"], &end["exit_code"]), (&"timed_out".into(), &124.into()));
    assert!(!world.arrived().exists());

    let copying = Running::start(&mut world.push(&["--timeout", "2", "--retry", "64"]));
    world.wait_until_moving();
    daemon.signal(Signal::KILL);
    daemon.ended();
    let output = copying.end();
    assert_exit(&output, 124);
    assert_says(&output, &["trying again in"]);
}

#[test]
fn a_command_that_can_only_fail_is_no_transfer() {
    let world = World::new();
    let near = |path: &str| world.near.path().join(path).to_str().unwrap().to_owned();
    std::fs::write(near("here"), "x").unwrap();
    for (from, to) in [("not-there", "new"), ("here", "no/such/directory/new")] {
        assert_exit(&run(&mut world.command(&["cp", &near(from), &near(to)])), 3);
        assert!(world.listed().is_empty(), "{from} {to}");
    }
    // A far end without a listener may appear later.
    let far = format!("carrack://127.0.0.1:{}/data/x", world.port);
    assert_exit(&run(&mut world.command(&["cp", "--retry", "0", &near("here"), &far])), 3);
    assert_eq!(world.listed().len(), 1);
}

#[test]
fn what_did_not_end_can_be_listed_run_again_and_forgotten() {
    let world = World::new();
    let _daemon = world.daemon();
    assert!(world.listed().is_empty());
    let copying = Running::start(&mut world.push(&[]));
    world.wait_until_moving();
    let listed = world.listed();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"running".into()));
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let refused = run(&mut world.command(&["resume", &id]));
    assert_exit(&refused, 3);
    assert_says(&refused, &["this copy is running, as process "]);
    copying.signal(Signal::KILL);
    copying.end();

    assert_eq!(world.listed()[0]["state"], "ended");
    let shown = run(&mut world.command(&["resume"]));
    let text = String::from_utf8(shown.stdout.clone()).unwrap();
    assert!(
        text.contains(&id) && text.contains("not running") && text.contains("cp --bwlimit 2MB"),
        "{text}"
    );
    // From another directory: the copy runs in its own.
    let again = run(world.command(&["resume", &id[..6]]).current_dir("/"));
    assert_exit(&again, 0);
    assert_says(&again, &["copied 1 file"]);
    world.assert_arrived();
    assert!(world.listed().is_empty());

    assert_exit(&run(&mut world.push(&["--timeout", "1"])), 124);
    assert_eq!(world.listed()[0]["id"], id.as_str(), "the same command is the same transfer");
    assert_exit(&run(&mut world.command(&["resume", "--forget", &id])), 0);
    assert!(world.listed().is_empty());

    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The stop is in the middle: two of the six megabytes may be there already.
    let stopped = run(&mut world.push_at("500kB", "file", &["--stop-at", &format!("@{}", now_s + 4)]));
    assert_exit(&stopped, 124);
    assert_says(&stopped, &["the transfer did not end before 20", "(--stop-at)", "`carrack resume`"]);
    assert_exit(&run(&mut world.push(&["--stop-at", &format!("@{now_s}")])), 2);
    let journal = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|kind| kind == "journal");
    let kept = fs::read_dir(world.site.path().join("data")).unwrap().flatten().filter(journal).count();
    assert_eq!((kept, &world.listed()[0]["id"]), (1, &id.clone().into()));
    // The resumed copy does not stop again, as that time is over.
    assert_exit(&run(&mut world.command(&["resume", &id])), 0);
    world.assert_arrived();
    assert!(world.listed().is_empty());
    let unknown = run(&mut world.command(&["resume", &id]));
    assert_exit(&unknown, 3);
    assert_says(&unknown, &["there is no copy"]);
}

#[test]
fn dry_runs_secrets_and_what_has_no_home_are_not_remembered() {
    let world = World::new();
    let fails = |arguments: &[&str]| assert_exit(&run(&mut world.command(arguments)), 3);
    fails(&["cp", "-n", "no-such-file", "x"]);
    // The port has no listener.
    let far = format!("carrack://127.0.0.1:{}/data/x", world.port);
    fails(&["cp", "--retry", "0", "--token", "secret", "file", &far]);
    assert!(world.listed().is_empty());
    fails(&["cp", "--retry", "0", "file", &far]);
    assert_eq!(world.listed().len(), 1);
    let homeless = |arguments: &[&str]| run(world.command(arguments).env_remove("HOME"));
    assert_exit(&homeless(&["cp", "file", "copy"]), 0);
    assert_says(&homeless(&["resume"]), &["no place where copies could be remembered"]);
}
