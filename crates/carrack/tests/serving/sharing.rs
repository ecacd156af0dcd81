//! Storage targets that transfers share: a real meta-scheduler, its clients by hand, real copies that ask it,
//! and the reports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use carrack_engine::{EndSettings, GrantExchange, SessionRole};
use carrack_model::SchedulingOptions;
use carrack_plan::grants::{GrantClientReport, GrantReply, GrantRequest, GrantSettings};
use carrack_service::queue::name_of_user;
use carrack_service::sharing::GrantServerConnection;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common;
use crate::common::process::{Serving, assert_exit, assert_says, run, wait_for};
use crate::common::{CARRACK, skip};
use crate::daemon;
use crate::daemon::{Copy, Daemon, Site, noise};

/// A daemon that shares targets out, and has no other task unless asked for.
struct Sharer {
    // The daemon is dropped first: it writes into the directory.
    daemon: Option<Serving>,
    place: TempDir,
}

impl Sharer {
    /// Starts a daemon; `classes` goes into the table of classes, `more` before everything.
    fn started(classes: &str, more: &str) -> Sharer {
        let mut sharer = Sharer { place: tempfile::tempdir().unwrap(), daemon: None };
        let socket = sharer.path("socket").display().to_string();
        let more = more.replace("PLACE", &sharer.place.path().display().to_string());
        let text = format!("{more}\n[sharing]\nsocket = \"{socket}\"\n[sharing.classes]\n{classes}\n");
        fs::write(sharer.path("carrack.toml"), text).unwrap();
        sharer.start();
        sharer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn exchange(&self) -> GrantServerConnection {
        GrantServerConnection::new(&self.path("socket"))
    }

    /// Writes the configuration anew, and reloads it.
    fn change(&self, text: &str) {
        fs::write(self.path("carrack.toml"), text).unwrap();
        self.daemon.as_ref().unwrap().signal(Signal::HUP);
    }

    fn start(&mut self) {
        self.daemon = Some(Serving::start(&self.path("carrack.toml"), &self.path("log")));
        wait_for("targets are granted", || self.exchange().probe().ok());
        // It listens before it grants.
        sleep(GrantSettings::default().silence_limit());
    }

    fn signal(&mut self, signal: Signal) {
        self.daemon.take().unwrap().end_by(signal);
    }

    fn show(&self, words: &[&str]) -> Output {
        run(Command::new(CARRACK).arg("targets").args(words).arg("--socket").arg(self.path("socket")))
    }

    /// Returns the output of `carrack targets --json`.
    #[track_caller]
    fn targets(&self, words: &[&str]) -> Vec<Value> {
        let output = self.show(&[&["--json"], words].concat());
        assert_exit(&output, 0);
        common::process::json(&output)
    }

    /// Returns true if temporary files lie on storage that others could use too.
    fn is_of_use(&self) -> bool {
        let shown = self.show(&[self.place.path().to_str().unwrap()]);
        shown.status.success() || !String::from_utf8_lossy(&shown.stderr).contains("lies on nothing")
    }

    /// Waits for the holder of a target.
    #[track_caller]
    fn wait_for_holder(&self) -> Value {
        wait_for("somebody has a target", || {
            self.targets(&[]).iter().find_map(|target| target["holders"].get(0).cloned())
        })
    }
}

fn asking(client: &str, number: u64, class: &str, target: &str) -> GrantClientReport {
    let asks = vec![GrantRequest { target: target.to_owned(), objects: 1, bytes: 1, waits_us: 0 }];
    GrantClientReport {
        client: client.into(),
        number,
        class: class.into(),
        threads: 4,
        asks,
        ..GrantClientReport::default()
    }
}

fn own_name() -> String {
    name_of_user(rustix::process::geteuid().as_raw())
}

#[test]
fn one_has_it_the_other_waits_and_everybody_sees_that() {
    let mut sharer = Sharer::started("", "");
    let (first, second) = (sharer.exchange(), sharer.exchange());
    let held = first.exchange(&asking("a", 1, "", "lfs01/OST0007")).unwrap();
    assert_eq!(held.grants.len(), 1, "{held:?}");
    let waits = second.exchange(&asking("b", 1, "", "lfs01/OST0007")).unwrap();
    assert_eq!((waits.grants.len(), waits.epoch), (0, held.epoch), "{waits:?}");
    // The turn changes within half a second, which the command may take to begin.
    let mut number = 1;
    wait_for("one has it and the other waits", || {
        number += 1;
        let ask = |exchange: &GrantServerConnection, client| {
            exchange.exchange(&asking(client, number, "", "lfs01/OST0007"))
        };
        let _ = (ask(&first, "a"), ask(&second, "b"));
        let shown = sharer.targets(&["lfs01"]);
        assert_eq!((shown.len(), &shown[0]["target"]), (1, &"lfs01/OST0007".into()));
        let of = |what: &str| shown[0][what][0]["client"].as_str().map(str::to_owned);
        let mut seen = [of("holders")?, of("waiting")?];
        seen.sort();
        (seen == ["a", "b"].map(|client| format!("{}/{client}", own_name()))).then_some(())
    });
    assert_eq!(sharer.targets(&["lfs02"]), Vec::<Value>::new());
    let table = String::from_utf8(sharer.show(&[]).stdout).unwrap();
    assert!(table.starts_with("TARGET") && table.contains("lfs01/OST0007"), "{table}");

    // Another start has another epoch, and the client connects again on its own.
    sharer.signal(Signal::KILL);
    assert!(first.exchange(&asking("a", number + 1, "", "lfs01/OST0007")).is_err());
    sharer.start();
    let anew = first.exchange(&asking("a", number + 2, "", "lfs01/OST0007")).unwrap();
    assert!(anew.epoch != held.epoch && anew.epoch != 0, "{anew:?}");

    sharer.signal(Signal::TERM);
    assert!(!sharer.path("socket").exists());
    let away = sharer.show(&[]);
    assert_exit(&away, 3);
    assert_says(&away, &["hint: ", "[sharing]"]);
}

#[test]
fn a_class_that_is_not_for_you_is_as_none() {
    let classes = format!(
        "mine = {{ weight = 4, users = [{:?}] }}\ntheirs = {{ weight = 4, users = [\"nobody-of-this-name\"] }}",
        own_name()
    );
    let sharer = Sharer::started(&classes, "");
    let exchange = sharer.exchange();
    for (class, expected) in [("mine", "mine"), ("theirs", ""), ("default", ""), ("unheard-of", "")] {
        let answer: GrantReply = exchange.exchange(&asking(class, 1, class, "fs/x")).unwrap();
        assert_eq!(answer.class, expected, "{class}");
    }
    let refused = exchange.exchange(&asking("", 1, "", "fs/x")).unwrap_err();
    assert!(refused.to_string().contains("a client's name"), "{refused}");
}

/// Returns the epoch of a meta-scheduler without the class urgent.
#[track_caller]
fn epoch_without_class(exchange: &GrantServerConnection) -> u64 {
    let answer = exchange.exchange(&asking("a", 1, "urgent", "fs/x")).unwrap();
    assert_eq!(answer.class, "");
    answer.epoch
}

#[test]
fn a_hangup_has_classes_read_again_and_nothing_is_given_up() {
    let sharer = Sharer::started("", "");
    let exchange = sharer.exchange();
    let epoch = epoch_without_class(&exchange);
    let log = || fs::read_to_string(sharer.path("log")).unwrap();
    let with = |more: &str| format!("[sharing]\nsocket = {:?}\n{more}\n", sharer.path("socket"));
    sharer.change(&with("users = 3\nclasses = { urgent = { weight = 4 } }"));
    let mut number = 1;
    let mut ask = || {
        number += 1;
        exchange.exchange(&asking("a", number, "urgent", "fs/x")).unwrap()
    };
    let urgent = wait_for("the class counts", || Some(ask()).filter(|answer| answer.class == "urgent"));
    assert_eq!((urgent.epoch, urgent.grants.len()), (epoch, 1), "{urgent:?}");
    assert_eq!(sharer.targets(&["fs"])[0]["users_max"], 3);
    sharer.change(&with("users = 0"));
    wait_for("what is wrong is said", || log().contains("not read again: ").then_some(()));
    assert!(log().contains("line 3 (users = 0)") && log().contains("hint: "), "{}", log());
    assert_eq!(ask().class, "urgent");
    let elsewhere = sharer.path("elsewhere");
    sharer.change(&format!("[sharing]\nsocket = {elsewhere:?}\n"));
    wait_for("the class is gone", || ask().class.is_empty().then_some(()));
    assert!(log().contains("are read at the start only") && !elsewhere.exists(), "{}", log());
}

#[test]
fn a_daemon_with_exports_has_its_classes_read_again_too() {
    let site = Site::new();
    let socket = site.path().join("socket");
    let config = |classes: &str| {
        let sharing = format!("[sharing]\nsocket = {socket:?}\nclasses = {{ {classes} }}\n");
        site.write_config("", &format!("{}{sharing}", site.usual_exports()))
    };
    let daemon = Daemon::start(&config(""));
    daemon.wait_for("targets are granted");
    let exchange = GrantServerConnection::new(&socket);
    let epoch = epoch_without_class(&exchange);
    config("urgent = { weight = 4 }");
    daemon.signal(Signal::HUP);
    daemon.wait_for("[sharing] is read again");
    let answer = exchange.exchange(&asking("b", 1, "urgent", "fs/x")).unwrap();
    assert_eq!((&*answer.class, answer.epoch), ("urgent", epoch));
}

#[test]
fn what_is_not_there_is_told() {
    let queue = "[queue]\ndirectory = \"PLACE/queue\"\nsocket = \"PLACE/queue.sock\"";
    let sharer = Sharer::started("", "");
    let server = format!("unix:{}", sharer.path("socket").display());
    let submit = run(Command::new(CARRACK).args(["submit", "--server", &server, "local:/a", "local:/b"]));
    assert_exit(&submit, 3);
    assert_says(&submit, &["keeps no queue"]);
    // The queue's socket serves both, that of sharing only itself.
    let both = Sharer::started("", queue);
    let shown = run(Command::new(CARRACK).args(["targets", "--socket"]).arg(both.path("queue.sock")));
    assert_exit(&shown, 0);
    let mode = |name: &str| fs::metadata(both.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("socket"), 0o666);
    assert_eq!(mode("queue.sock"), if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 });
    let server = format!("unix:{}", both.path("socket").display());
    let listed = run(Command::new(CARRACK).args(["cancel", "--server", &server, "0123456789abcdef"]));
    assert_says(&listed, &["keeps no queue"]);
    drop(both);
    // Without [sharing] there are no grants.
    let place = tempfile::tempdir().unwrap();
    let text = queue.replace("PLACE", &place.path().display().to_string());
    fs::write(place.path().join("carrack.toml"), text).unwrap();
    let mut serve = Command::new(CARRACK);
    serve.args(["serve", "--quiet", "--config"]).arg(place.path().join("carrack.toml"));
    let mut daemon = serve.spawn().unwrap();
    let socket = place.path().join("queue.sock");
    let shown = wait_for("the queue answers", || {
        let shown = run(Command::new(CARRACK).args(["targets", "--socket"]).arg(&socket));
        String::from_utf8_lossy(&shown.stderr).contains("no storage targets").then_some(shown)
    });
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_exit(&shown, 3);
    assert_says(&shown, &["hint: "]);
}

#[test]
fn a_copy_asks_and_gives_everything_back() {
    let sharer = Sharer::started("urgent = { weight = 4 }", "");
    if !sharer.is_of_use() {
        return skip("temporary files lie in memory");
    }
    fs::write(sharer.path("big"), noise(12 << 20)).unwrap();
    let copy = |sharing: &str, to: &str| {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "--class", "urgent", "--bwlimit", "6MB", "--sharing", sharing]);
        command.arg(sharer.path("big")).arg(sharer.path(to)).stderr(Stdio::null()).spawn().unwrap()
    };
    let socket = sharer.path("socket").display().to_string();
    let mut asking = copy(&socket, "copied");
    let holder = sharer.wait_for_holder();
    assert_eq!(holder["class"], "urgent");
    assert!(holder["client"].as_str().unwrap().starts_with(&format!("{}/", own_name())), "{holder}");
    assert!(asking.wait().unwrap().success());
    assert!(fs::read(sharer.path("big")).unwrap() == fs::read(sharer.path("copied")).unwrap());
    assert!(sharer.targets(&[]).iter().all(|target| target["holders"] == Value::Array(Vec::new())));
    // A client with sharing off does not ask.
    let mut alone = copy("off", "alone");
    sleep(Duration::from_millis(700));
    assert!(sharer.targets(&[]).iter().all(|target| target["holders"] == Value::Array(Vec::new())));
    assert!(alone.wait().unwrap().success());
    // A named socket without a listener is reported, and the copy continues.
    let mut lonely = Command::new(CARRACK);
    lonely.args(["cp", "--verbose", "--bwlimit", "6MB", "--sharing"]).arg(sharer.path("nobody"));
    let lonely = run(lonely.arg(sharer.path("big")).arg(sharer.path("lonely")));
    assert_exit(&lonely, 0);
    assert_says(&lonely, &["meta-server does not answer"]);
}

#[test]
fn the_copies_of_a_queue_ask_its_own_daemon() {
    let queue = "[queue]\ndirectory = \"PLACE/queue\"\nsocket = \"PLACE/queue.sock\"";
    let sharer = Sharer::started("urgent = { weight = 4 }", queue);
    if !sharer.is_of_use() {
        return skip("temporary files lie in memory");
    }
    fs::write(sharer.path("big"), noise(12 << 20)).unwrap();
    let server = format!("unix:{}", sharer.path("queue.sock").display());
    let local = |name: &str| format!("local:{}", sharer.path(name).display());
    let mut submit = Command::new(CARRACK);
    submit.args(["submit", "--wait", "--class", "urgent", "--bwlimit", "6MB", "--server", &server]);
    let mut submitted = submit.args([local("big"), local("copied")]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(sharer.wait_for_holder()["class"], "urgent");
    assert!(submitted.wait().unwrap().success());
}

/// Within its sandbox a session of the daemon reaches the meta-scheduler, and sends its client's class.
#[test]
fn sessions_of_the_daemon_ask_too() {
    let site = Site::new();
    let socket = site.path().join("socket");
    let sharing = format!("[sharing]\nsocket = {socket:?}\nclasses = {{ urgent = {{ weight = 4 }} }}\n");
    let config = site.write_config("", &format!("{}{sharing}", site.usual_exports()));
    let daemon = Daemon::start(&config);
    daemon.wait_for("targets are granted");
    let show =
        |words: &[&str]| run(Command::new(CARRACK).arg("targets").args(words).arg("--socket").arg(&socket));
    if !show(&[site.path().to_str().unwrap()]).status.success() {
        return skip("temporary files lie in memory");
    }
    // A source always has waiting work.
    fs::write(site.path().join("data/big"), noise(12 << 20)).unwrap();
    let destination = site.path().join("copied").display().to_string();
    let scheduling = SchedulingOptions { rate: 6_000_000, ..SchedulingOptions::default() };
    let settings = EndSettings { class: "urgent".to_owned(), scheduling, ..EndSettings::default() };
    let copy =
        Copy { who: Some("alice"), settings, ..Copy::new(SessionRole::Sink, "/data/big", &destination) };
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| site.copy_with(daemon.address, copy));
        let holder = wait_for("the session has a target", || {
            let shown = common::process::json(&show(&["--json"]));
            shown.iter().find_map(|target| target["holders"].get(0).cloned())
        });
        assert_eq!(holder["class"], "urgent", "{holder}");
        assert_eq!(daemon::refusal(&copying.join().unwrap()), "");
    });
}
