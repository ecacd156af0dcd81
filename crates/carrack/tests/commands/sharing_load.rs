//! Storage targets whose load is measured: a fake Prometheus, a real daemon or a real manager, and the grants
//! and reports that follow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::process::{Running, Serving, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::{CARRACK, skip};

/// Bytes per second that a target can bear, in each configuration here.
const CAPACITY: f64 = 1e9;

/// Answers instant queries as Prometheus does, until it is dropped: the bytes per second that computation
/// moves at each target, by the label `target`.
struct Pretended {
    at: SocketAddr,
    rates: Arc<Mutex<Rates>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

type Rates = BTreeMap<String, f64>;

impl Pretended {
    fn with(target: &str, rate: f64) -> Pretended {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let rates = Arc::new(Mutex::new(Rates::from([(target.to_owned(), rate)])));
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, over) = (rates.clone(), is_over.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                // A client that has read enough closes the connection.
                let _ = answer(stream.unwrap(), &told.lock().unwrap());
            }
        });
        Pretended { at, rates, is_over, thread: Some(thread) }
    }

    fn set(&self, target: &str, rate: f64) {
        self.rates.lock().unwrap().insert(target.to_owned(), rate);
    }

    /// Returns a `[sharing.health]` that queries it each second, with the past in a file.
    fn health(&self, history: &Path) -> String {
        format!(
            "[sharing.health]\nprometheus = \"http://{}\"\nread_bytes = \"rate(x[$window])\"\ntarget_name = \"{{target}}\"\n\
             every_s = 1\ncapacity = \"1 GB/s\"\nhistory = {history:?}\n",
            self.at
        )
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(self.at);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream, rates: &Rates) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let at_s = now_s() as f64;
    let series = |(target, rate): (&String, &f64)| json!({"metric": {"target": target}, "value": [at_s, rate.to_string()]});
    let result: Vec<Value> = rates.iter().map(series).collect();
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string();
    // Replies are sent one after the other, so no client may keep a connection.
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Writes three days in which a target was used and idle in turns of five minutes: it is about to be used.
fn history(place: &TempDir, target: &str, load: f64) -> PathBuf {
    let mut text = "time,target,load\n".to_owned();
    let now = now_s() / 300;
    for slot in now - 3 * 288..now {
        let is_used = (now + 1 - slot).is_multiple_of(2);
        writeln!(text, "{},{target},{}", slot * 300, if is_used { load * CAPACITY } else { 0.0 }).unwrap();
    }
    let path = place.path().join("history.csv");
    fs::write(&path, text).unwrap();
    path
}

fn near(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - wanted).abs() < 0.02)
}

/// Returns a target whose load is known, as `carrack targets --json` shows it.
fn loaded(shown: &Output, name: &str) -> Option<Value> {
    let targets = if shown.status.success() { json(shown) } else { Vec::new() };
    targets.into_iter().find(|target| target["target"] == name && !target["load"].is_null())
}

#[test]
fn a_daemon_shows_and_grants_by_the_load_and_says_once_that_it_is_unknown() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let prometheus = Pretended::with("lfs01/OST0007", 0.5 * CAPACITY);
    let health = prometheus.health(&history(&place, "lfs01/OST0007", 0.8));
    fs::write(path("carrack.toml"), format!("[sharing]\nsocket = {:?}\n{health}", path("socket"))).unwrap();
    let _daemon = Serving::start(&path("carrack.toml"), &path("log"));
    let show = |words: &[&str]| {
        run(Command::new(CARRACK).args(["targets", "--json"]).args(words).arg("--socket").arg(path("socket")))
    };
    let seen = wait_for("the load is told", || loaded(&show(&["lfs01"]), "lfs01/OST0007"));
    assert!(near(&seen["load"], 0.5), "{seen}");
    let is_foretold =
        |seen: &Value| seen["load_expected"].as_f64().is_some_and(|load| (0.7..0.9).contains(&load));
    let seen =
        wait_for("what is expected is told", || loaded(&show(&[]), "lfs01/OST0007").filter(is_foretold));
    // Of 500 ms the larger load leaves about a fifth.
    assert!((50..150).contains(&seen["burst_ms"].as_u64().unwrap()), "{seen}");

    a_copy_has_what_computation_leaves(&place, &prometheus, &show);

    drop(prometheus);
    let log = || fs::read_to_string(path("log")).unwrap();
    wait_for("it is said", || log().contains("computation's load is not known").then_some(()));
    thread::sleep(Duration::from_millis(2_200));
    let words = log().lines().filter(|line| line.contains("computation's load is not known")).count();
    assert_eq!(words, 1, "{}", log());
    assert!(loaded(&show(&[]), "lfs01/OST0007").is_some(), "it is believed for a while");
}

/// The target is in use: temporary files are on it.
fn a_copy_has_what_computation_leaves(
    place: &TempDir,
    prometheus: &Pretended,
    show: &impl Fn(&[&str]) -> Output,
) {
    let path = |name: &str| place.path().join(name);
    if talk(&show(&[place.path().to_str().unwrap()])).contains("lies on nothing") {
        return skip("temporary files lie in memory");
    }
    fs::write(path("big"), vec![7; 32 << 20]).unwrap();
    let mut copy = Command::new(CARRACK);
    copy.args(["cp", "--bwlimit", "6MB", "--sharing"]).arg(path("socket")).arg(path("big")).arg(path("copy"));
    let mut copying = copy.stderr(Stdio::null()).spawn().unwrap();
    let held = |shown: &Output| {
        json(shown).into_iter().find(|target| target["holders"].as_array().is_some_and(|all| !all.is_empty()))
    };
    let free = wait_for("the copy has a target", || held(&show(&[])));
    assert_eq!((&free["burst_ms"], &free["load"]), (&json!(500), &Value::Null), "{free}");
    let name = free["target"].as_str().unwrap();
    prometheus.set(name, CAPACITY);
    let busy = wait_for("its load is told", || loaded(&show(&[]), name));
    assert!(busy["load"].as_f64().unwrap() > 0.9 && busy["burst_ms"].as_u64().unwrap() < 100, "{busy}");
    // A twentieth of the target's time is left, and computation ends before the copy does.
    assert!(copying.try_wait().unwrap().is_none());
    prometheus.set(name, 0.0);
    wait_for("it has all again", || loaded(&show(&[]), name).filter(|target| target["burst_ms"] == 500));
    assert!(copying.wait().unwrap().success());
    assert!(fs::read(path("big")).unwrap() == fs::read(path("copy")).unwrap());
}

/// A server of `testbed/nats`, which ends on drop; `None` where it is not installed.
struct Nats {
    dir: TempDir,
    url: String,
}

const NATS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/nats");

impl Nats {
    fn start() -> Option<Nats> {
        let found = Command::new(NATS).arg("binary").output().unwrap();
        if !found.status.success() {
            skip(&String::from_utf8_lossy(&found.stderr));
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut up = Command::new(NATS);
        up.args(["up", "--dir"]).arg(dir.path().join("nats")).env("CARRACK_TESTBED_LIFETIME_S", "600");
        let up = up.output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        Some(Nats { dir, url: String::from_utf8(up.stdout).unwrap().trim().to_owned() })
    }

    fn carrack(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(words).env("CARRACK_NATS", &self.url);
        command
    }

    /// Starts a manager that shares out the targets of the site east by this file.
    fn manager(&self, name: &str, text: &str) -> Running {
        let file = self.dir.path().join(name);
        fs::write(&file, text).unwrap();
        Running::start(&mut self.carrack(&["manager", "--share", &format!("east={}", file.display())]))
    }

    fn show(&self, words: &[&str]) -> Output {
        run(&mut self.carrack(&[&["targets", "--json"], words].concat()))
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = Command::new(NATS).arg("down").arg(self.dir.path().join("nats")).status();
    }
}

#[test]
fn a_site_is_measured_by_the_manager_that_shares_it_and_by_its_file() {
    let Some(nats) = Nats::start() else { return };
    let place = tempfile::tempdir().unwrap();
    let prometheus = Pretended::with("lfs01/OST0007", 0.5 * CAPACITY);
    let health = prometheus.health(&history(&place, "lfs01/OST0007", 0.8));
    let first = nats.manager("first.toml", &format!("[sharing]\n{health}"));
    let seen = wait_for("the load is told", || loaded(&nats.show(&["--site", "east"]), "lfs01/OST0007"));
    assert!(near(&seen["load"], 0.5), "{seen}");
    assert!(loaded(&nats.show(&["--site", "east", "lfs02"]), "lfs01/OST0007").is_none());
    let west = nats.show(&["--site", "west"]);
    assert_exit(&west, 3);
    assert_says(
        &west,
        &["nobody shares out the storage targets of site west", "hint: `carrack manager --share west`"],
    );

    // The next manager has a file without measurements, and begins without load.
    let second = nats.manager("second.toml", "[sharing]\nusers = 2\n");
    first.signal(Signal::TERM);
    let first = first.end();
    assert_says(&first, &["computation's load is measured by http://127.0.0.1:"]);
    assert_eq!(talk(&first).matches("shares out the storage targets of east").count(), 1, "{}", talk(&first));
    let shown = wait_for("the next one answers", || {
        Some(nats.show(&["--site", "east"])).filter(|shown| shown.status.success())
    });
    assert_eq!(json(&shown), Vec::<Value>::new());
    second.signal(Signal::TERM);
    assert_exit(&second.end(), 0);
}

#[test]
fn what_a_site_cannot_have_is_refused_with_its_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("site.toml");
    let manage = |shares: &[&str]| {
        let mut manager = Command::new(CARRACK);
        manager.args(["manager", "--nats", "nats://127.0.0.1:1"]);
        run(shares.iter().fold(&mut manager, |manager, share| manager.args(["--share", share])))
    };
    let of_file = format!("east={}", file.display());
    for (text, said) in [
        (
            "[sharing]\nsocket = \"/s\"\n",
            &["line 2 (socket = \"/s\")", "over NATS", "hint: take socket out"][..],
        ),
        ("[sharing.classes.a]\nusers = [\"alice\"]\n", &["line 2 ", "hint: take users and groups out"]),
        ("[sharing]\nburst = 5\n", &["line 2 ", "unknown field `burst`", "hint: "]),
    ] {
        fs::write(&file, text).unwrap();
        let refused = manage(&[&of_file]);
        assert_exit(&refused, 3);
        assert_says(&refused, said);
    }
    fs::remove_file(&file).unwrap();
    assert_says(&manage(&[&of_file]), &["site.toml: No such file"]);
    assert_says(&manage(&["east", &of_file]), &["--share names east twice"]);
    assert_exit(&manage(&["ea st"]), 2);
}
