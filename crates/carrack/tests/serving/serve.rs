//! `carrack serve` as its clients and its administrator see it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{EndSettings, SessionRole};
use carrack_model::{AgreedTransferSpec, ProtectionLevel, SchedulingOptions};
use carrack_trust::{ClientCredential, RevokedCertificateSelector};
use rustix::process::Signal;

use crate::daemon;
use crate::daemon::{CARRACK, Copy, Daemon, PATIENCE, Site, noise, refusal, wait_until};

/// Writes a file of this many bytes to the site's directory; returns its path.
fn file(site: &Site, name: &str, len: usize) -> String {
    let path = site.path().join(name);
    fs::write(&path, noise(len)).unwrap();
    path.display().to_string()
}

fn path(site: &Site, name: &str) -> String {
    site.path().join(name).display().to_string()
}

/// Returns an address without a listener, which no other test uses: they are at 127.0.0.1.
fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.77.1:0").unwrap().local_addr().unwrap()
}

/// Returns a push that is slow enough for events to happen meanwhile.
fn slow_push(source: &str) -> Copy<'_> {
    let scheduling = SchedulingOptions { rate: 2_000_000, ..SchedulingOptions::default() };
    let settings = EndSettings { scheduling, ..EndSettings::default() };
    Copy { who: Some("alice"), settings, ..Copy::new(SessionRole::Source, source, "/data/slow") }
}

#[test]
fn data_goes_both_ways_and_the_log_says_so() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let source = file(&site, "file", 3_000_000);
    let pushed = site.copy(daemon.address, "alice", SessionRole::Source, &source, "/data/pushed");
    assert_eq!(refusal(&pushed), "");
    assert_eq!(fs::read(site.path().join("data/pushed")).unwrap(), noise(3_000_000));
    let pulled = site.copy(daemon.address, "bob", SessionRole::Sink, "/data/pushed", &path(&site, "pulled"));
    assert_eq!(refusal(&pulled), "");
    assert_eq!(fs::read(site.path().join("pulled")).unwrap(), noise(3_000_000));
    let lines = site.audited(2);
    for (line, (name, deed)) in lines.iter().zip([("alice", "write"), ("bob", "read")]) {
        assert_eq!(line["who"]["name"], name, "{line}");
        assert_eq!(line["who"]["how"], "certificate", "{line}");
        assert_eq!((&line["deed"], &line["export"]), (&deed.into(), &"data".into()), "{line}");
        assert_eq!(line["paths"], serde_json::json!(["/data/pushed"]), "{line}");
        assert_eq!((&line["protection"], &line["result"]), (&"private".into(), &"ok".into()), "{line}");
        assert_eq!(
            (&line["bytes"], &line["files"], &line["failed"]),
            (&3_000_000.into(), &1.into(), &0.into()),
            "{line}"
        );
        assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["cipher"].is_string() && line["seconds"].is_f64(), "{line}");
    }
    wait_until("no processes are left", || daemon.children().is_empty());
}

/// Within its sandbox a session makes its log on the daemon's flash, and works without a directory that can't
/// be used.
#[test]
fn sessions_have_the_daemons_flash() {
    let site = Site::new();
    let flash = path(&site, "flash");
    fs::create_dir(&flash).unwrap();
    if carrack_machine::SpillDataFile::create(flash.as_ref(), 1 << 20, 1 << 20).is_err() {
        return eprintln!("skipped: {flash} is on a file system that can't hold a log");
    }
    let spill = format!("[spill]\ndirectories = [\"/nowhere:64MiB\", \"{flash}:64MiB\"]");
    let daemon = Daemon::start(&site.write_config(&spill, &site.usual_exports()));
    let source = file(&site, "file", 6_000_000);
    let has_log = |(process, _): (i32, bool)| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.flat_map(|fd| fs::read_link(fd.path())).any(|file| file.starts_with(&flash))
    };
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        wait_until("a log on flash", || daemon.children().into_iter().any(has_log));
        assert_eq!(slow.join().unwrap(), "");
    });
    assert_eq!(fs::read(site.path().join("data/slow")).unwrap(), noise(6_000_000));
}

#[test]
fn what_is_not_open_is_not_there() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let path_of_x = path(&site, "x");
    let read = |path: &str| refusal(&site.copy(daemon.address, "alice", SessionRole::Sink, path, &path_of_x));
    assert_eq!(
        read("/other/file"),
        read("/nowhere/file").replace("nowhere", "other"),
        "unknown and forbidden"
    );
    assert!(read("/other/file").contains("no export other is open to you"), "{}", read("/other/file"));
    assert!(read("file").contains("exports that are open to you: data"), "{}", read("file"));
    assert!(read("/data/../other/file").contains("'..'"), "{}", read("/data/../other/file"));
    let source = file(&site, "file", 10);
    let written = site.copy(daemon.address, "bob", SessionRole::Source, &source, "/data/file");
    assert!(refusal(&written).contains("data does not let you write"), "{}", refusal(&written));
    let spec = AgreedTransferSpec { protection: ProtectionLevel::Clear, ..AgreedTransferSpec::default() };
    let open = Copy { who: Some("alice"), spec, ..Copy::new(SessionRole::Source, &source, "/data/file") };
    let clear = refusal(&site.copy_with(daemon.address, open));
    assert!(clear.contains("at least private"), "{clear}");
    assert_eq!(fs::read_dir(site.path().join("data")).unwrap().count(), 0);
    let lines = site.audited(7);
    assert!(lines.iter().all(|line| line["result"] != "ok"), "{lines:?}");
    let refused: Vec<_> = lines.iter().filter(|line| line["result"] == "refused").collect();
    assert_eq!(refused.len(), 6, "{lines:?}");
    assert!(
        refused.iter().all(|line| line["reason"].is_string() && line["who"]["name"].is_string()),
        "{lines:?}"
    );
}

#[test]
fn strangers_do_not_get_in() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let other = Site::new();
    let foreign = site.try_connect(daemon.address, Some(other.identity("alice")));
    let nobody = site.try_connect(daemon.address, None);
    for stranger in [foreign, nobody] {
        // TLS 1.3 notifies a client only after its own end of the handshake.
        let peer_says = stranger.map(|channel| {
            let peer = carrack_engine::PeerChannel::over_tls(channel, "127.0.0.1".into(), String::new());
            let transfer = carrack_engine::TransferRequest {
                spec: AgreedTransferSpec::default(),
                settings: EndSettings::default(),
                sources: vec!["/data/x".into()],
                destination: site.path().join("x"),
                identity: None,
                source_base: carrack_storage::PathBase::Anywhere,
                feed: None,
            };
            let abort = carrack_engine::AbortHandle::new().unwrap();
            carrack_engine::copy_with_peer(&transfer, SessionRole::Sink, peer, &daemon::Unheard, &abort)
                .result
        });
        assert!(!matches!(peer_says, Ok(Ok(()))), "{peer_says:?}");
    }
    let identity = site.identity("alice");
    site.authority().revoke(&RevokedCertificateSelector::Name("alice".into()), SystemTime::now()).unwrap();
    // The list holds once the daemon has read it.
    assert!(site.try_connect(daemon.address, Some(identity)).is_ok());
    daemon.signal(Signal::HUP);
    daemon.wait_for("reloaded");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        site.copy(daemon.address, "alice", SessionRole::Source, &file(&site, "file", 10), "/data/file")
    }));
    assert!(!matches!(outcome, Ok(outcome) if outcome.result.is_ok()));
    assert_eq!(fs::read_dir(site.path().join("data")).unwrap().count(), 0);
}

#[test]
fn tokens_let_do_what_they_and_the_rules_allow() {
    let site = Site::new();
    let shown = site.path().display();
    let tokens = format!(
        "[tokens]\nissuers = [{{ name = \"a site\", audience = \"this\", key = \"{shown}/authority/token.pem\" }}]\n"
    );
    let daemon = Daemon::start(&site.write_config("", &(tokens + &site.usual_exports())));
    let source = file(&site, "file", 1000);
    let push =
        |subject: &str, scope: &str, to: &str| {
            let token = site.token(subject, scope);
            refusal(&site.copy_with(
                daemon.address,
                Copy { token: &token, ..Copy::new(SessionRole::Source, &source, to) },
            ))
        };
    assert_eq!(push("alice", "storage.modify:/data", "/data/a"), "");
    assert_eq!(push("alice", "storage.modify:/data/in", "/data/in"), "");
    assert!(push("alice", "storage.modify:/data/in", "/data/b").contains("the token does not let you write"));
    assert!(push("alice", "storage.read:/data", "/data/b").contains("the token does not let you write"));
    assert!(push("bob", "storage.modify:/data", "/data/b").contains("data does not let you write"));
    assert!(push("dave", "storage.modify:/", "/data/b").contains("no export data is open to you"));
    let without = site.copy_with(daemon.address, Copy::new(SessionRole::Source, &source, "/data/b"));
    assert!(refusal(&without).contains("does not know who you are"), "{}", refusal(&without));
    let wrong = Copy { token: "a.b.c", ..Copy::new(SessionRole::Source, &source, "/data/b") };
    assert!(refusal(&site.copy_with(daemon.address, wrong)).contains("token"));
    let lines = site.audited(8);
    assert_eq!((&lines[0]["who"]["how"], &lines[0]["who"]["issuer"]), (&"token".into(), &"a site".into()));
    assert!(lines.iter().all(|line| !line.to_string().contains("eyJ")), "a token is in no log");
}

#[test]
fn a_key_of_ssh_is_enough() {
    let site = Site::new();
    let key = path(&site, "id_ed25519");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "alice", "-f", &key])
        .status();
    match made {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: ssh-keygen: {error}"),
    }
    let config = site.write_config("", &site.usual_exports());
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[tls]", &format!("[tls]\npublic_keys = \"{key}.pub\""))).unwrap();
    let daemon = Daemon::start(&config);
    let identity = ClientCredential::SshKey(fs::read(&key).unwrap());
    let source = file(&site, "file", 1000);
    let push = Copy { identity: Some(identity), ..Copy::new(SessionRole::Source, &source, "/data/file") };
    assert_eq!(refusal(&site.copy_with(daemon.address, push)), "");
    let who = &site.audited(1)[0]["who"];
    assert_eq!((&who["name"], &who["how"]), (&"alice".into(), &"key".into()));
    assert!(who["fingerprint"].as_str().unwrap().starts_with("SHA256:"), "{who}");
}

#[test]
fn quotas_are_kept() {
    let site = Site::new();
    let exports =
        site.usual_exports().replace("write = true }", "write = true, sessions = 1, rate = \"1 GB/s\" }");
    let daemon = Daemon::start(&site.write_config("", &exports));
    let source = file(&site, "file", 6_000_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        daemon.wait_for("alice on data");
        let second = site.copy(daemon.address, "alice", SessionRole::Sink, "/data/slow", "/nowhere");
        assert!(
            refusal(&second).contains("as many sessions on data as you may have, 1"),
            "{}",
            refusal(&second)
        );
        assert_eq!(slow.join().unwrap(), "");
    });
    wait_until("the session is over", || daemon.children().is_empty());
    assert_eq!(
        refusal(&site.copy(daemon.address, "alice", SessionRole::Sink, "/data/slow", &path(&site, "again"))),
        ""
    );
}

/// The rate holds for reading and writing: the daemon does not rely on the client.
#[test]
fn a_rate_is_kept_both_ways() {
    let site = Site::new();
    let exports =
        site.usual_exports().replace("write = true }", "write = true, sessions = 2, rate = \"4 MB/s\" }");
    let daemon = Daemon::start(&site.write_config("", &exports));
    let (source, back) = (file(&site, "file", 6_000_000), path(&site, "back"));
    for (role, from, to) in [
        (SessionRole::Source, source.as_str(), "/data/file"),
        (SessionRole::Sink, "/data/file", back.as_str()),
    ] {
        let began = Instant::now();
        assert_eq!(refusal(&site.copy(daemon.address, "alice", role, from, to)), "");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1_500), "6 MB at 2 MB/s, {role:?}: {took:?}");
    }
    assert_eq!(fs::read(back).unwrap(), noise(6_000_000));
}

#[test]
fn who_has_no_name_is_refused_and_that_is_in_the_log() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    // TLS without carrack's protocol: another program's client with a certificate of the same CA.
    let said = site.connect_as_something_else(daemon.address, "alice");
    let line = &site.audited(1)[0];
    assert_eq!((&line["result"], &line["who"]), (&"refused".into(), &serde_json::Value::Null), "{said}");
    assert!(line["reason"].as_str().unwrap().contains("not carrack's protocol"), "{line}");
}

#[test]
fn a_reload_changes_what_comes_next_and_only_if_it_is_good() {
    let site = Site::new();
    let config = site.write_config("", &site.usual_exports());
    let daemon = Daemon::start(&config);
    let source = file(&site, "file", 6_000_000);
    let good = fs::read_to_string(&config).unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        daemon.wait_for("alice on data");
        fs::write(&config, good.replace("read = true", "raed = true")).unwrap();
        daemon.signal(Signal::HUP);
        let said = daemon.wait_for("not reloaded");
        assert!(said.contains("unknown field `raed`") && said.contains("line"), "{said}");
        assert_eq!(
            refusal(&site.copy(daemon.address, "bob", SessionRole::Sink, "/data", &path(&site, "b"))),
            ""
        );
        fs::write(&config, good.replace("\"alice\"", "\"dora\"")).unwrap();
        daemon.signal(Signal::HUP);
        daemon.wait_for("carrack: reloaded");
        let refused = site.copy(daemon.address, "alice", SessionRole::Source, &source, "/data/new");
        assert!(refusal(&refused).contains("no export data"), "{}", refusal(&refused));
        assert_eq!(slow.join().unwrap(), "", "a session that runs goes on");
    });
    assert_eq!(refusal(&site.copy(daemon.address, "dora", SessionRole::Source, &source, "/data/new")), "");
}

#[test]
fn a_reload_may_move_the_port_and_the_log() {
    let site = Site::new();
    let (kept, left, new) = (free_address(), free_address(), free_address());
    let listen = |addresses: [std::net::SocketAddr; 2]| {
        let both = addresses.map(|address| format!("{:?}", address.to_string())).join(", ");
        site.write_config(&format!("listen = [{both}]"), &site.usual_exports())
    };
    let daemon = Daemon::start(&listen([kept, left]));
    let source = file(&site, "file", 1000);
    let copy = |address| refusal(&site.copy(address, "alice", SessionRole::Source, &source, "/data/file"));
    assert_eq!(copy(left), "");
    // A client may see its end before the log does.
    site.audited(1);
    listen([new, kept]);
    fs::rename(site.audit(), path(&site, "old.jsonl")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for("reloaded");
    assert_eq!((copy(kept), copy(new)), (String::new(), String::new()));
    assert!(std::net::TcpStream::connect(left).is_err());
    assert_eq!(site.audited(2).len(), 2, "the log is the new file");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listen([taken.local_addr().unwrap(), kept]);
    daemon.signal(Signal::HUP);
    assert!(daemon.wait_for("not reloaded").contains("can't be listened on"));
    assert_eq!(copy(new), "", "nothing has changed");
}

#[test]
fn a_drain_lets_sessions_end_and_nobody_in() {
    let site = Site::new();
    let pid_file = path(&site, "pid");
    let mut daemon =
        Daemon::start(&site.write_config(&format!("pid_file = {pid_file:?}"), &site.usual_exports()));
    assert_eq!(fs::read_to_string(&pid_file).unwrap().trim(), daemon.pid().to_string());
    let source = file(&site, "file", 6_000_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        daemon.wait_for("alice on data");
        daemon.signal(Signal::TERM);
        daemon.wait_for("may go on");
        assert!(site.try_connect(daemon.address, Some(site.identity("bob"))).is_err());
        assert_eq!(slow.join().unwrap(), "");
    });
    assert!(daemon.ended().success());
    assert!(!fs::exists(pid_file).unwrap());
    assert_eq!(site.audited(1)[0]["result"], "ok");
}

#[test]
fn a_drain_has_an_end_and_a_second_signal_brings_it() {
    for (top, signals) in [("drain_seconds = 1", 1), ("drain_seconds = 600", 2)] {
        let site = Site::new();
        let mut daemon = Daemon::start(&site.write_config(top, &site.usual_exports()));
        let source = file(&site, "file", 60_000_000);
        thread::scope(|scope| {
            let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
            daemon.wait_for("alice on data");
            wait_until("the transfer runs", || fs::read_dir(site.path().join("data")).unwrap().count() > 0);
            daemon.signal(Signal::TERM);
            daemon.wait_for("may go on");
            (1..signals).for_each(|_| daemon.signal(Signal::TERM));
            assert!(slow.join().unwrap().contains("told to end the session"), "the client is told");
        });
        assert!(daemon.ended().success());
        assert_eq!(site.audited(1)[0]["result"], "killed");
        assert_eq!(fs::read_dir(site.path().join("data")).unwrap().count(), 0, "no temporary name is left");
    }
}

#[test]
fn a_session_that_dies_is_in_the_log_and_the_daemon_lives() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let source = file(&site, "file", 60_000_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        daemon.wait_for("alice on data");
        let (pid, _) = daemon.children()[0];
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        assert_ne!(slow.join().unwrap(), "");
    });
    let line = &site.audited(1)[0];
    assert_eq!(
        (&line["result"], &line["reason"]),
        (&"killed".into(), &"its process died of signal 9".into())
    );
    assert_eq!((&line["who"]["name"], &line["deed"]), (&"alice".into(), &"write".into()));
    wait_until("no zombie is left", || daemon.children().is_empty());
    let source = file(&site, "small", 10);
    assert_eq!(refusal(&site.copy(daemon.address, "alice", SessionRole::Source, &source, "/data/next")), "");
}

#[test]
fn sessions_do_not_outlive_their_daemon() {
    let site = Site::new();
    let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
    let source = file(&site, "file", 60_000_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        daemon.wait_for("alice on data");
        wait_until("the transfer runs", || fs::read_dir(site.path().join("data")).unwrap().count() > 0);
        let (pid, _) = daemon.children()[0];
        daemon.signal(Signal::KILL);
        assert!(slow.join().unwrap().contains("told to end the session"));
        wait_until("the session ends", || !fs::exists(format!("/proc/{pid}/exe")).unwrap());
    });
    assert_eq!(fs::read_dir(site.path().join("data")).unwrap().count(), 0, "no temporary name is left");
}

#[test]
fn a_session_has_its_time() {
    let site = Site::new();
    let exports = format!("[limits]\nsession_seconds = 1\n{}", site.usual_exports());
    let daemon = Daemon::start(&site.write_config("", &exports));
    let source = file(&site, "file", 60_000_000);
    assert!(refusal(&site.copy_with(daemon.address, slow_push(&source))).contains("told to end the session"));
    assert_eq!(site.audited(1)[0]["reason"], "its time is over");
    drop(daemon);
}

#[test]
fn a_session_becomes_the_user_of_its_rule() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let site = Site::new();
    let exports = site.usual_exports().replace("write = true }", "write = true, user = \"nobody\" }");
    let config = site.write_config("", &exports);
    let daemon = Daemon::start(&config);
    let source = file(&site, "file", 6_000_000);
    // The engine clears the umask, here too.
    fs::set_permissions(site.path().join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    let failed =
        site.copy(daemon.address, "alice", SessionRole::Source, &source, "/data/file").summary.entries_failed;
    assert_eq!(failed, 1, "root's directory is not nobody's");
    assert_eq!(
        (&site.audited(1)[0]["result"], &site.audited(1)[0]["failed"]),
        (&"partial".into(), &1.into())
    );
    fs::set_permissions(site.path().join("data"), fs::Permissions::from_mode(0o777)).unwrap();
    let status = thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, slow_push(&source))));
        wait_until("the transfer runs", || fs::read_dir(site.path().join("data")).unwrap().count() > 0);
        let (pid, _) = *daemon.children().last().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert_eq!(slow.join().unwrap(), "");
        status
    });
    let ids = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let nobody = fs::metadata(site.path().join("data/slow")).unwrap();
    assert_ne!((nobody.uid(), nobody.gid()), (0, 0));
    assert_eq!(ids("Uid:"), vec![nobody.uid().to_string(); 4]);
    assert_eq!(ids("Gid:"), vec![nobody.gid().to_string(); 4]);
    assert_eq!(ids("Groups:"), [nobody.gid().to_string()]);
    assert_eq!(ids("CapEff:"), ["0000000000000000"]);
    assert_eq!(ids("CapPrm:"), ["0000000000000000"]);
    assert_eq!(ids("NoNewPrivs:"), ["1"]);
}

#[test]
fn check_says_what_would_be_done() {
    let site = Site::new();
    let config = site.write_config("", &site.usual_exports());
    let check =
        || Command::new(CARRACK).args(["serve", "--check", "--config"]).arg(&config).output().unwrap();
    let fine = check();
    let said = String::from_utf8(fine.stdout).unwrap();
    assert!(fine.status.success(), "{:?}", String::from_utf8_lossy(&fine.stderr));
    for line in [
        "listen on 127.0.0.1:0",
        "/data is ",
        "private at least",
        "  alice: read, write, list",
        "  bob: read, list",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let trouble = || String::from_utf8(check().stderr).unwrap();
    fs::set_permissions(site.path().join("server-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(trouble().contains("hint: `chmod 600 "), "{}", trouble());
    for name in ["server.pem", "server-key.pem", "authority/ca.pem"] {
        fs::remove_file(site.path().join(name)).unwrap();
    }
    let missing = trouble();
    for word in [
        "server.pem",
        "server-key.pem",
        "ca.pem",
        "`carrack keys init`",
        "`carrack keys issue NAME --server HOST`",
    ] {
        assert!(missing.contains(word), "{word}: {missing}");
    }
    assert_eq!(check().status.code(), Some(3));
    let nowhere = Command::new(CARRACK).args(["serve", "--check", "--config", "/nowhere"]).output().unwrap();
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("hint: packaging/carrack.toml"));
}

#[test]
fn a_session_is_not_for_people() {
    let output =
        Command::new(CARRACK).arg("serve-session").stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
}

/// The packages' sample is valid, also with its commented lines.
#[test]
fn the_sample_is_a_configuration() {
    let sample = include_str!("../../../../packaging/carrack.toml");
    let short = carrack_service::DaemonConfig::parse(sample).unwrap();
    assert_eq!(short.exports[0].allow.len(), 3);
    let is_key = |line: &str| {
        line.split_once(" = ")
            .is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    };
    let whole: Vec<&str> = sample
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|rest| is_key(rest) || rest.starts_with('[')).unwrap_or(line)
        })
        .collect();
    let whole = carrack_service::DaemonConfig::parse(&whole.join("\n")).unwrap();
    assert_eq!(whole.tokens.issuers.len(), 1);
    assert_eq!(short.limits, carrack_service::DaemonLimits::default());
    assert!(whole.queue.is_some() && short.queue.is_none());
    assert!(
        whole.limits.session_time_limit().is_some()
            && whole.pid_file.is_some()
            && whole.tls.public_keys.is_some()
    );
    assert_eq!(
        (&whole.listen, whole.drain()),
        (&short.listen, short.drain()),
        "the sample shows the defaults"
    );
}

#[test]
fn systemd_is_told_how_things_are() {
    let site = Site::new();
    let config = site.write_config("", &site.usual_exports());
    let heard = UnixDatagram::bind(site.path().join("notify")).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut daemon =
        Daemon::start_as(Command::new(CARRACK).env("NOTIFY_SOCKET", site.path().join("notify")), &config);
    let wait_for = |wanted: &str| {
        let mut said = [0; 200];
        loop {
            let count = heard.recv(&mut said).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            if String::from_utf8_lossy(&said[..count]).contains(wanted) {
                return;
            }
        }
    };
    wait_for("READY=1");
    wait_for("STATUS=0 sessions");
    daemon.signal(Signal::HUP);
    wait_for("RELOADING=1\nMONOTONIC_USEC=");
    wait_for("READY=1");
    daemon.signal(Signal::TERM);
    wait_for("STOPPING=1");
    assert!(daemon.ended().success());
}

#[test]
fn systemd_may_listen_instead() {
    let site = Site::new();
    let config = site.write_config("", &site.usual_exports());
    let port = free_address();
    let mut activating = match Command::new("systemd-socket-activate")
        .args(["-l", &port.to_string(), CARRACK, "serve", "--config"])
        .arg(&config)
        .stderr(std::process::Stdio::null())
        .spawn()
    {
        Ok(activating) => activating,
        Err(error) => return eprintln!("skipped: systemd-socket-activate: {error}"),
    };
    wait_until("somebody listens", || std::net::TcpStream::connect(port).is_ok());
    let source = file(&site, "file", 1000);
    let pushed = refusal(&site.copy(port, "alice", SessionRole::Source, &source, "/data/file"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&activating), Signal::TERM).unwrap();
    assert_eq!(pushed, "");
    assert!(activating.wait().unwrap().success());
}

#[test]
fn systemd_understands_the_units() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
    // The units are copied to a directory, with programs that exist.
    let site = tempfile::tempdir().unwrap();
    for name in ["carrack.service", "carrack.socket"] {
        let text = fs::read_to_string(format!("{units}/{name}")).unwrap();
        let unit = site.path().join(name);
        fs::write(&unit, text.replace("/usr/bin/carrack", CARRACK)).unwrap();
        // The engine clears the umask in other tests of this process.
        fs::set_permissions(&unit, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args([site.path().join("carrack.service"), site.path().join("carrack.socket")])
        .output();
    match verified {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("carrack."), "{said}");
        }
        Err(error) => eprintln!("skipped: systemd-analyze: {error}"),
    }
}
