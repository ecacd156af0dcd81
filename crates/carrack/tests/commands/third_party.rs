//! Copies between two far hosts that this host only controls: over ssh stand-ins, at daemons, and both mixed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::process::{assert_exit, assert_says, json, run};
use crate::common::tree::{assert_same, plant};
use crate::daemon::{CARRACK, Daemon, Site};

/// A controller, two hosts behind ssh (each a directory of its own), and a daemon.
struct World {
    site: Site,
    daemon: Daemon,
    here: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let site = Site::new();
        let daemon = Daemon::start(&site.write_config("", &site.usual_exports()));
        let here = tempfile::tempdir().unwrap();
        for host in ["left", "right"] {
            fs::create_dir(here.path().join(host)).unwrap();
        }
        site.identity("alice");
        World { site, daemon, here }
    }

    fn on(&self, host: &str, path: &str) -> PathBuf {
        self.here.path().join(host).join(path)
    }

    fn url(&self, path: &str) -> String {
        format!("carrack://localhost:{}{path}", self.daemon.address.port())
    }

    /// Returns an ssh stand-in that runs the far command in the directory with the host's name.
    fn ssh(&self) -> String {
        let path = self.here.path().join("stand-in");
        let script = format!(
            "#!/bin/sh\nhost=$1; shift; cd '{}'/\"$host\" 2>/dev/null || exit 255; exec sh -c \"$*\"\n",
            self.here.path().display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn copy(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "--remote-carrack", CARRACK, "--ssh", &self.ssh()]);
        command.env("HOME", self.here.path()).env("CARRACK_CA", self.site.path().join("authority/ca.pem"));
        command.arg("--identity").arg(self.site.path().join("alice.pem"));
        run(command.args(arguments).current_dir(self.here.path()))
    }
}

#[test]
fn between_hosts_over_ssh() {
    let world = World::new();
    plant(&world.on("left", "tree"));
    let copied = world.copy(&["-r", "left:tree", "right:"]);
    assert_exit(&copied, 0);
    assert_says(
        &copied,
        &["copied 4 files", "private directly between the two hosts, sealed with aes-256-gcm"],
    );
    assert_same(&world.on("left", "tree"), &world.on("right", "tree"));

    let listed = world.copy(&["-r", "--json", "--connect-from", "sink", "left:tree/", "right:again"]);
    assert_exit(&listed, 0);
    let events = json(&listed);
    assert!(events.iter().any(|event| event["event"] == "connected" && event["transport"] == "direct"));
    assert_eq!(events.last().unwrap()["files_done"], 4);
    assert_same(&world.on("left", "tree"), &world.on("right", "again"));
    assert!(!world.here.path().join("tree").exists(), "nothing comes here");
}

#[test]
fn between_a_host_and_a_daemon_and_within_daemons() {
    let world = World::new();
    plant(&world.on("left", "tree"));
    assert_exit(&world.copy(&["-r", "left:tree", &world.url("/data/")]), 0);
    assert_same(&world.on("left", "tree"), &world.site.path().join("data/tree"));
    let manifest = world.here.path().join("m");
    let manifest = manifest.to_str().unwrap();
    assert_exit(
        &world.copy(&["-r", "--manifest", manifest, &world.url("/data/tree"), &world.url("/data/copy")]),
        0,
    );
    assert_same(&world.on("left", "tree"), &world.site.path().join("data/copy"));
    assert_eq!(fs::read_to_string(manifest).unwrap().lines().count(), 4);
    assert_exit(&world.copy(&["-r", &world.url("/data/copy/"), "right:back"]), 0);
    assert_same(&world.on("left", "tree"), &world.on("right", "back"));
    // The log has both ends of the second copy, and neither saw more than its own.
    let lines = world.site.audited(4);
    assert!(lines.iter().all(|line| line["result"] == "ok" && line["who"]["name"] == "alice"), "{lines:?}");
}

#[test]
fn through_here_where_nothing_else_leads() {
    let world = World::new();
    plant(&world.on("left", "tree"));
    for (number, to) in ["right:relayed", &world.url("/data/relayed")].into_iter().enumerate() {
        let copied = world.copy(&["-r", "--relay", "left:tree", to]);
        assert_exit(&copied, 0);
        assert_says(&copied, &["copied 4 files", "private through this host"]);
        let copy = [world.on("right", "relayed"), world.site.path().join("data/relayed")];
        assert_same(&world.on("left", "tree"), &copy[number]);
    }
    // A port in use can't be listened at.
    let taken =
        std::net::TcpListener::bind("[::]:0").or_else(|_| std::net::TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let stuck = world.copy(&["-r", "--ports", &port, "left:tree", "right:direct"]);
    assert_exit(&stuck, 3);
    assert_says(&stuck, &["left can't reach right", "no port to listen on", "--relay"]);
    assert!(!world.on("right", "direct").exists(), "nothing is made before the data has a way there");
    assert_exit(&world.copy(&["-r", "--ports", &port, "--relay", "left:tree", "right:direct"]), 0);
    assert_same(&world.on("left", "tree"), &world.on("right", "direct"));
}

#[test]
fn whose_trouble_it_is_is_said() {
    let world = World::new();
    plant(&world.on("left", "tree"));
    for (from, to, words) in [
        ("left:tree", "nowhere:", "could not connect to nowhere"),
        ("nowhere:tree", "right:", "could not connect to nowhere"),
        ("left:absent", "right:", "absent"),
        ("left:tree", "right:no/such/place", "the destination no/such can't be used"),
        ("left:tree", &world.url("/closed/x"), "no export closed is open to you"),
    ] {
        let failed = world.copy(&["-r", from, to]);
        assert_exit(&failed, 3);
        assert_says(&failed, &[words]);
    }
    let alone = world.copy(&["-r", "--relay", "left:tree", "here"]);
    assert_exit(&alone, 2);
    assert_says(&alone, &["--relay", "two far hosts"]);
}
