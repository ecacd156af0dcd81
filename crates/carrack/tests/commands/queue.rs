//! The queue of one machine, with the real daemon, real copies and every verb over its socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::process::{Serving, wait_at_most, wait_for};
use crate::common::{CARRACK, skip};

/// A directory with files to copy, and a daemon with a queue.
struct Site {
    // The daemon is dropped first: it writes into the directory.
    daemon: Option<Serving>,
    place: TempDir,
}

impl Site {
    fn new(more: &str) -> Site {
        let place = tempfile::tempdir().unwrap();
        let site = Site { place, daemon: None };
        fs::create_dir_all(site.path("src/sub")).unwrap();
        fs::write(site.path("src/sub/small"), b"small").unwrap();
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        fs::write(site.path("src/big"), (0..12_000_000).map(|_| noise()).collect::<Vec<u8>>()).unwrap();
        let shown = site.place.path().display();
        let config = format!("[queue]\ndirectory = \"{shown}/queue\"\nsocket = \"{shown}/socket\"\n{more}\n");
        fs::write(site.path("carrack.toml"), config).unwrap();
        site
    }

    fn started(more: &str) -> Site {
        let mut site = Site::new(more);
        site.start();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn start(&mut self) {
        let before = self.answers();
        // Options in the daemon's environment don't hold for submitted transfers.
        let variables = [("CARRACK_EXCLUDE", "*"), ("CARRACK_DELETE", "true")];
        self.daemon = Some(Serving::start_with(&self.path("carrack.toml"), &self.path("log"), &variables));
        wait_for("the queue answers", || (self.answers() > before).then_some(()));
    }

    fn answers(&self) -> usize {
        fs::read_to_string(self.path("log")).unwrap_or_default().matches("the queue answers").count()
    }

    /// Returns the number of clients that the daemon has accepted.
    fn connections(&self) -> usize {
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        let socket = format!(" {}", self.path("socket").display());
        // One socket of the list is the listener.
        table.lines().filter(|line| line.ends_with(&socket)).count().saturating_sub(1)
    }

    fn signal(&mut self, signal: Signal) {
        self.daemon.take().unwrap().end_by(signal);
    }

    /// Runs a command that asks this daemon.
    fn ask(&self, words: &[&str]) -> Output {
        self.command(CARRACK, words).output().unwrap()
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("CARRACK_SERVER", format!("unix:{}", self.path("socket").display()));
        // Copies of the user who tests are none of this test's.
        command.stdin(Stdio::null()).env("XDG_STATE_HOME", self.path("state"));
        command
    }

    #[track_caller]
    fn asked(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Lets the user `nobody` read the sources, and write to `open`.
    fn let_nobody_in(&self) {
        set_mode(self.place.path(), 0o755);
        fs::create_dir(self.path("open")).unwrap();
        set_mode(&self.path("open"), 0o777);
        // The user `nobody` can't enter root's directories: the command is copied for that user.
        fs::copy(CARRACK, self.path("carrack")).unwrap();
        set_mode(&self.path("carrack"), 0o755);
    }

    /// Runs a command of the user `nobody` that asks this daemon.
    fn ask_as_nobody(&self, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(self.path("carrack"));
        let server = format!("unix:{}", self.path("socket").display());
        command.args(words).env("CARRACK_SERVER", server).env_remove("HOME").output().unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &[&str], code: i32) -> String {
        let output = self.ask(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn local(&self, name: &str) -> String {
        format!("local:{}", self.path(name).display())
    }

    #[track_caller]
    fn submit(&self, to: &str, words: &[&str]) -> String {
        let (source, destination) = (self.local("src/"), self.local(to));
        self.asked(&[&["submit", &source, &destination], words].concat())
    }

    #[track_caller]
    fn record(&self, id: &str) -> Value {
        serde_json::from_str(&self.asked(&["status", "--json", id])).unwrap()
    }

    #[track_caller]
    fn wait_for_state(&self, id: &str, state: &str) -> Value {
        wait_for(&format!("{id} is {state}"), || {
            std::thread::sleep(Duration::from_millis(50));
            Some(self.record(id)).filter(|record| record["state"] == state)
        })
    }

    /// Waits until a part is at the destination.
    #[track_caller]
    fn wait_for_bytes(&self, id: &str) -> u64 {
        wait_for("bytes move", || {
            std::thread::sleep(Duration::from_millis(50));
            self.record(id)["tally"]["bytes_done"].as_u64().filter(|&bytes| bytes > 0)
        })
    }

    #[track_caller]
    fn assert_copied(&self, to: &str) {
        for name in ["big", "sub/small"] {
            let read = |tree: &str| fs::read(self.path(tree).join(name)).unwrap();
            assert!(read("src") == read(to), "{name}");
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// Returns the reason why no command can run as another user.
fn cannot_be_nobody() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can become somebody else");
    }
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    (!has_setpriv).then_some("there is no setpriv")
}

/// Returns the number of copies that run below this directory.
fn copies(place: &Path) -> usize {
    let place = place.display().to_string();
    let is_copy = |pid: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(&place) && line.contains("\0cp\0")
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| entry.file_name().to_str().is_some_and(is_copy)).count()
}

#[test]
fn a_transfer_is_submitted_carried_out_and_remembered() {
    let mut site = Site::started("");
    let id = site.submit("there", &["--wait", "--label", "first", "--checksum", "blake3"]);
    assert_eq!(id.len(), 16);
    site.assert_copied("there");
    let record = site.record(&id[..8]);
    assert_eq!((&record["state"], &record["submission"]["label"]), (&"done".into(), &"first".into()));
    let tally = &record["tally"];
    assert_eq!((&tally["files_done"], &tally["files_found"]), (&2.into(), &2.into()), "{tally}");
    assert_eq!((&tally["bytes_done"], &tally["bytes_moved"]), (&12_000_005.into(), &12_000_005.into()));
    assert_eq!(site.asked(&["wait", &id]), "");
    assert!(site.asked(&["status", &id]).contains("2 of 2"));
    assert_eq!(site.asked(&["movers"]), "no movers");
    assert_eq!(site.asked(&["status"]), "no transfers", "it is over");

    // A failed entry gives an exit code and a name.
    fs::create_dir_all(site.path("blocked/big")).unwrap();
    fs::write(site.path("blocked/big/x"), b"").unwrap();
    let blocked = site.submit("blocked", &[]);
    let said = site.refused(&["wait", &blocked], 1);
    assert!(said.contains("1 entry") && said.contains("hint: "), "{said}");
    let record = site.record(&blocked);
    assert_eq!(record["state"], "done");
    assert!(record["failures"][0]["path"].as_str().unwrap().ends_with("blocked/big"), "{record}");
    // Failed files are tried again.
    fs::remove_dir_all(site.path("blocked/big")).unwrap();
    site.asked(&["resume", &blocked]);
    site.asked(&["wait", &blocked]);
    site.assert_copied("blocked");

    let lost = site.asked(&["submit", &site.local("nothing"), &site.local("x")]);
    let said = site.refused(&["wait", &lost], 3);
    assert!(said.contains("nothing"), "{said}");

    site.signal(Signal::TERM);
    let said = site.refused(&["status"], 3);
    assert!(said.contains("[queue]"), "{said}");
    site.start();
    let listed = site.asked(&["transfers", "--json"]);
    let ids: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids, [lost, blocked, id]);
    assert_eq!(site.asked(&["transfers", "--json", "--limit", "1"]).lines().count(), 1);
}

#[test]
fn copies_have_the_umask_of_who_submitted_them() {
    let site = Site::started("");
    let set_mode =
        |name: &str, mode| fs::set_permissions(site.path(name), Permissions::from_mode(mode)).unwrap();
    set_mode("src", 0o777);
    set_mode("src/sub", 0o777);
    set_mode("src/sub/small", 0o666);
    set_mode("src/big", 0o777);
    for mask in [0o000, 0o027, 0o077] {
        let to = format!("there{mask:o}");
        let submit = format!("umask {mask:o}; exec \"$0\" \"$@\"");
        let mut command = site.command("sh", &["-c", &submit, CARRACK, "submit", "--wait"]);
        let output = command.args([site.local("src/"), site.local(&to)]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for (name, mode) in [("", 0o777), ("sub", 0o777), ("sub/small", 0o666), ("big", 0o777)] {
            let made = fs::metadata(site.path(&to).join(name)).unwrap().mode() & 0o7777;
            assert_eq!(made, mode & !mask, "{to}/{name}: {made:o}");
        }
        let id = String::from_utf8(output.stdout).unwrap();
        assert_eq!(site.record(id.trim())["submission"]["umask"], format!("{mask:04o}"));
    }
}

#[test]
fn a_transfer_waits_goes_on_and_ends_as_its_user_wants() {
    let site = Site::started("max_running = 1");
    let slow = ["--bwlimit", "4MB"];
    let paused = site.submit("paused", &slow);
    site.wait_for_bytes(&paused);
    site.asked(&["pause", &paused]);
    site.wait_for_state(&paused, "paused");
    assert_eq!(copies(site.place.path()), 0);
    // Another transfer has its turn now.
    let cancelled = site.submit("cancelled", &slow);
    site.wait_for_bytes(&cancelled);
    site.asked(&["cancel", &cancelled]);
    let said = site.refused(&["wait", &cancelled], 130);
    assert!(said.contains("was cancelled"), "{said}");
    assert!(!site.path("cancelled/big").exists(), "what has its name is complete");
    assert!(site.refused(&["resume", &cancelled], 3).contains("submit it again"));
    site.asked(&["cancel", &cancelled]);

    site.asked(&["resume", &paused]);
    let watched = site.asked(&["status", "--watch", "--json", &paused]);
    let records: Vec<Value> = watched.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(records.len() > 2, "{watched}");
    let last = records.last().unwrap();
    assert_eq!(last["state"], "done");
    site.assert_copied("paused");
    // It resumed: hardly anything moved twice.
    let moved = last["tally"]["bytes_moved"].as_u64().unwrap();
    assert!((12_000_005..20_000_000).contains(&moved), "{last}");
    assert!(site.refused(&["resume", &paused], 3).contains("nothing left to do"));
    assert!(site.refused(&["cancel", &paused], 3).contains("is over"));
}

#[test]
fn what_is_copied_and_kept_is_said_as_for_a_copy() {
    let site = Site::started("");
    fs::hard_link(site.path("src/sub/small"), site.path("src/another-name")).unwrap();
    for name in ["src/left.tmp", "src/taken.tmp"] {
        fs::write(site.path(name), "x").unwrap();
    }
    let limit = "mon-sun 00:00-12:00 1GB, 2GB";
    let options =
        ["--exclude", "*.tmp", "--include", "taken.tmp", "-a", "--no-owner", "--bwlimit", limit, "--wait"];
    let id = site.submit("dst", &options);
    site.assert_copied("dst");
    assert_eq!(fs::metadata(site.path("dst/another-name")).unwrap().nlink(), 2);
    assert!(site.path("dst/taken.tmp").exists() && !site.path("dst/left.tmp").exists());
    let kept = &site.record(&id)["submission"]["options"];
    let patterns = ["*.tmp", "!taken.tmp"];
    let expected =
        serde_json::json!({"archive": true, "no_owner": true, "bwlimit": limit, "patterns": patterns});
    assert_eq!(*kept, expected);
    let said = site.refused(&["submit", "--filter-from", "x", &site.local("src/"), &site.local("y")], 3);
    assert!(said.contains("--filter-from"), "{said}");
    let said = site.refused(&["submit", "--max-size", "many", &site.local("src/"), &site.local("y")], 2);
    assert!(said.contains("--max-size"), "{said}");
}

#[test]
fn a_sync_is_submitted_like_a_copy() {
    let site = Site::started("");
    fs::create_dir_all(site.path("dst/old")).unwrap();
    fs::write(site.path("dst/old/file"), "x").unwrap();
    let (from, to) = (site.local("src/"), site.local("dst"));
    let submit = |more: &[&str]| site.asked(&[&["submit", "--wait"], more, &[&*from, &*to]].concat());
    submit(&["--sync"]);
    site.assert_copied("dst/");
    assert!(site.path("dst/old/file").exists());
    let id = submit(&["--delete", "--stripe", "default", "--lanes", "2", "--retry", "3"]);
    assert!(!site.path("dst/old").exists());
    let expected = serde_json::json!({"delete": true, "lanes": 2, "retry": 3, "stripe": "default"});
    assert_eq!(site.record(&id)["submission"]["options"], expected);
}

#[test]
fn turns_go_by_priority() {
    let site = Site::started("max_running = 1");
    let first = site.submit("first", &["--bwlimit", "8MB"]);
    site.wait_for_state(&first, "running");
    let low = site.submit("low", &["--priority", "1"]);
    let high = site.submit("high", &["--priority", "8"]);
    let held = site.submit("held", &["--priority", "9"]);
    site.asked(&["pause", &held]);
    let started = |id: &str| site.wait_for_state(id, "done")["started_ms"].as_u64().unwrap();
    assert!(started(&high) < started(&low));
    assert_eq!(site.record(&held)["state"], "paused");
    site.asked(&["cancel", &held]);
    assert_eq!(site.record(&held)["state"], "cancelled");
}

#[test]
fn users_take_turns_and_only_some_may_say_what_is_urgent() {
    if let Some(why) = cannot_be_nobody() {
        return skip(why);
    }
    let site = Site::started("max_running = 1\npriorities = { nobody = 6 }");
    site.let_nobody_in();
    let first = site.submit("first", &["--bwlimit", "8MB"]);
    site.wait_for_state(&first, "running");
    let of_root = ["second", "third"].map(|to| site.submit(to, &[]));
    let (source, destination) = (site.local("src/sub"), site.local("open/"));
    let as_nobody =
        |priority: &str| site.ask_as_nobody(&["submit", "--priority", priority, &source, &destination]);
    let said = String::from_utf8(as_nobody("7").stderr).unwrap();
    assert!(said.contains("6 is the most") && said.contains("hint: "), "{said}");
    assert_eq!(site.asked(&["transfers", "--json"]).lines().count(), 3, "nothing of it is kept");
    let of_nobody = ["5", "5"].map(|priority| {
        let output = as_nobody(priority);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    });
    let started = |id: &String| site.wait_for_state(id, "done")["started_ms"].as_u64().unwrap();
    let [second, third] = of_root.each_ref().map(started);
    let [of_other, _] = of_nobody.each_ref().map(started);
    assert!(of_other < second && second < third, "{of_other}, {second}, {third}");
}

#[test]
fn what_ran_when_the_daemon_ended_goes_on_with_the_next_one() {
    let mut site = Site::started("");
    let id = site.submit("there", &["--bwlimit", "3MB"]);
    site.wait_for_bytes(&id);
    site.signal(Signal::TERM);
    assert_eq!(copies(site.place.path()), 0, "they end with the daemon");
    site.start();
    site.wait_for_state(&id, "running");
    // The command also ends without a message.
    let mut waiting = Command::new(CARRACK);
    let server = format!("unix:{}", site.path("socket").display());
    let mut waiting = waiting.args(["wait", &id]).env("CARRACK_SERVER", server).spawn().unwrap();
    wait_for("somebody waits", || (site.connections() > 0).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    site.signal(Signal::KILL);
    wait_for("the copies to end with the daemon", || (copies(site.place.path()) == 0).then_some(()));
    site.start();
    assert!(waiting.wait().unwrap().success(), "who waits goes on too");
    site.assert_copied("there");
    let record = site.record(&id);
    assert!(record["tally"]["bytes_moved"].as_u64().unwrap() < 24_000_000, "{record}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let site = Site::started("sites = { far = \"carrack://127.0.0.1:1/data\" }");
    let (here, there) = (site.local("src/"), site.local("x"));
    for (words, code, expected) in [
        (vec!["submit", "alcf:/x", &there], 3, "it knows local, far"),
        (vec!["submit", "/x", &there], 2, "SITE:/path"),
        (vec!["submit", &here, "local:/x/../y"], 2, "'..'"),
        (vec!["submit", "--pairs", "2", &here, &there], 3, "a fleet's"),
        (vec!["submit", "--spill", "/x:1GiB", &here, &there], 3, "administrator's"),
        (vec!["submit", "--cipher", "rot13", &here, &there], 2, "invalid value 'rot13'"),
        (vec!["submit", "--manifest", "4", &here, &there], 3, "`carrack verify`"),
        (vec!["submit", "--trash", &here, &there], 3, "--delete"),
        (vec!["submit", "--policy", "fifo", &here, &there], 2, "not a policy"),
        (vec!["status", "0000"], 3, "`carrack transfers`"),
        (vec!["resume", "0000000000000000"], 3, "there is no transfer"),
        (vec!["wait", "../x"], 3, "there is no transfer"),
        (vec!["status", "--server", "ftp://x"], 2, "unix:/path"),
    ] {
        let said = site.refused(&words, code);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    // An absent daemon is a failed transfer, with the message of cp.
    let far = site.asked(&["submit", &here, "far:/x"]);
    // A daemon may be starting: the connection is retried for a while.
    let record = wait_at_most(Duration::from_secs(60), "it fails", || {
        Some(site.record(&far)).filter(|record| record["state"] == "failed")
    });
    assert!(record["reason"].as_str().unwrap().contains("127.0.0.1"), "{record}");

    fs::create_dir(site.path("shared")).unwrap();
    fs::set_permissions(site.path("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(site.path("other.toml"), format!("[queue]\ndirectory = {:?}\n", site.path("shared"))).unwrap();
    let output =
        Command::new(CARRACK).args(["serve", "--config"]).arg(site.path("other.toml")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("chmod 700"), "{output:?}");

    // A directory has only one queue.
    let output =
        Command::new(CARRACK).args(["serve", "--config"]).arg(site.path("carrack.toml")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("is the queue of a daemon"), "{output:?}");
    let mut check = Command::new(CARRACK);
    let checked =
        check.args(["serve", "--check", "--config"]).arg(site.path("carrack.toml")).output().unwrap();
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.starts_with("queue in "), "{checked}");
}

#[test]
fn beside_exports_the_queue_is_a_process_of_its_own() {
    let mut site = Site::new("");
    let shown = site.place.path().display().to_string();
    let keys = |words: &[&str]| {
        let output = Command::new(CARRACK).arg("keys").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let authority = format!("{shown}/authority");
    keys(&["init", "--dir", &authority]);
    keys(&["issue", "server", "--dir", &authority, "--server", "localhost", "--out", &shown]);
    let exports = format!(
        "listen = [\"127.0.0.1:0\"]\n{}\n[tls]\ncertificate = \"{shown}/server.pem\"\nkey = \"{shown}/server-key.pem\"\n\
         client_ca = [\"{authority}/ca.pem\"]\n[[export]]\nname = \"data\"\npath = \"{shown}/src\"\nallow = [{{ identity = \"alice\", read = true }}]\n",
        fs::read_to_string(site.path("carrack.toml")).unwrap()
    );
    fs::write(site.path("carrack.toml"), exports).unwrap();
    site.start();
    let id = site.submit("there", &["--bwlimit", "4MB"]);
    site.wait_for_bytes(&id);
    let queue = queue_process(site.place.path()).unwrap();
    kill_process(queue, Signal::KILL).unwrap();
    wait_for("the queue to be started again", || (site.answers() == 2).then_some(()));
    site.asked(&["wait", &id]);
    site.assert_copied("there");
    site.signal(Signal::TERM);
    assert!(queue_process(site.place.path()).is_none(), "it ends with the daemon");
}

/// Returns the process of a daemon's queue.
fn queue_process(place: &Path) -> Option<Pid> {
    let place = place.display().to_string();
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_it = line.contains("\0serve-queue\0") && line.contains(&place);
        if is_it { Pid::from_raw(entry.file_name().to_str()?.parse().ok()?) } else { None }
    })
}

#[test]
fn copies_have_the_rights_of_their_user() {
    if let Some(why) = cannot_be_nobody() {
        return skip(why);
    }
    let site = Site::started("");
    site.let_nobody_in();
    let as_nobody = |words: &[&str]| site.ask_as_nobody(words);
    fs::write(site.path("secret"), b"root's").unwrap();
    set_mode(&site.path("secret"), 0o600);
    let output = as_nobody(&["submit", "--wait", &site.local("src/sub"), &site.local("open/")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = fs::metadata(site.path("open/sub/small")).unwrap();
    assert_eq!(metadata.uid(), 65_534);
    let output = as_nobody(&["submit", "--wait", &site.local("secret"), &site.local("open/")]);
    assert!(!output.status.success() && !site.path("open/secret").exists(), "{output:?}");

    let of_root = site.submit("there", &["--bwlimit", "1MB"]);
    let output = as_nobody(&["cancel", &of_root]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains("is root's"), "{said}");
    site.asked(&["cancel", &of_root]);
}

#[test]
fn the_python_client_speaks_with_the_daemon() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/tests");
    let mut python = Command::new("python3");
    python.args(["-W", "error", "-m", "unittest", "discover"]).arg(tests);
    python.env("CARRACK", CARRACK).env("PYTHONDONTWRITEBYTECODE", "1");
    match python.output() {
        Err(error) => skip(&format!("there is no python3: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("skipped"), "{said}");
        }
    }
}

#[test]
fn a_start_time_is_waited_for() {
    let mut site = Site::started("");
    let soon = site.submit("soon", &["--when", "3s"]);
    let later = site.submit("later", &["--when", "1h"]);
    let waits = |site: &Site, id: &str| site.record(id)["waits_for"].as_str().unwrap_or_default().to_owned();
    assert!(waits(&site, &later).starts_with("its start time, 2"), "{}", waits(&site, &later));
    assert!(site.asked(&["status"]).contains(&later));

    let done = site.wait_for_state(&soon, "done");
    let ms = |value: &Value| value.as_u64().unwrap();
    assert!(ms(&done["started_ms"]) >= ms(&done["submission"]["not_before_ms"]), "{done}");
    assert_eq!(done["waits_for"], Value::Null);
    site.assert_copied("soon");

    site.signal(Signal::TERM);
    site.start();
    assert_eq!(site.record(&later)["state"], "queued");
    site.asked(&["pause", &later]);
    assert_eq!(waits(&site, &later), "");
    site.asked(&["resume", &later]);
    assert!(waits(&site, &later).starts_with("its start time, 2"));
    site.asked(&["cancel", &later]);
    assert_eq!(
        (site.record(&later)["state"].as_str(), waits(&site, &later)),
        (Some("cancelled"), String::new())
    );
    assert!(!site.path("later").exists());
    let far = site.refused(&["submit", "--when", "900d", "local:/a", "local:/b"], 3);
    assert!(far.contains("more than a year"), "{far}");
}

#[test]
fn the_best_time_is_found_from_a_history() {
    let site = Site::started("");
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    // The storage is busy except from six to eight hours from now, each day.
    let of = |at_s: u64| if (at_s + 9 * 86_400 - now_s) % 86_400 / 7200 == 3 { 0.0 } else { 0.9 };
    let lines = (0..9 * 288).map(|slot| now_s - 9 * 86_400 + slot * 300);
    let lines: Vec<String> = lines.map(|at_s| format!("{at_s},lfs01/OST0000,{}", of(at_s))).collect();
    fs::write(site.path("load.csv"), format!("time,target,load\n{}\n", lines.join("\n"))).unwrap();
    let csv = site.path("load.csv").display().to_string();
    let best = ["--when=best", "--deadline", "20h", "--expect", "1h"];
    let id = site.submit("x", &[&best[..], &["--storage", "lfs01", "--csv", &csv]].concat());
    let record = site.record(&id);
    let waits_s = record["submission"]["not_before_ms"].as_u64().unwrap() / 1000 - now_s;
    assert!((5 * 3600..8 * 3600).contains(&waits_s), "{waits_s} s");
    let words = [&["submit", "local:/a", "local:/b"], &best[..], &["--storage", "lfs01"]].concat();
    let said = site.refused(&words, 3);
    assert!(said.contains("nothing is known of the load of lfs01") && said.contains("hint: "), "{said}");
}
