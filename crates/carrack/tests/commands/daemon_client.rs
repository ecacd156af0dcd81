//! `carrack://` on the command line, with a real daemon: copies, listings, mkdir, rm, and the messages for
//! refused or failed requests.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use carrack_trust::{CertificateUse, SERVER_LIFETIME};
use rustix::process::Signal;

use crate::common;
use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::tree::{assert_same, plant};
use crate::daemon::{CARRACK, Daemon, Site};

/// A site with a daemon, and a client's directory.
struct World {
    site: Site,
    daemon: Daemon,
    near: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World::of(Site::new(), "")
    }

    /// Creates a world with additions to the daemon's configuration.
    fn of(site: Site, more: &str) -> World {
        let daemon = Daemon::start(&site.write_config("", &(more.to_owned() + &site.usual_exports())));
        World { site, daemon, near: tempfile::tempdir().unwrap() }
    }

    fn near(&self, name: &str) -> PathBuf {
        self.near.path().join(name)
    }

    /// Returns the URL of an export's path.
    fn url(&self, path: &str) -> String {
        format!("carrack://localhost:{}{path}", self.daemon.address.port())
    }

    fn ca(&self) -> PathBuf {
        self.site.path().join("authority/ca.pem")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(arguments).current_dir(self.near.path());
        command.env("HOME", self.near.path()).env("CARRACK_CA", self.ca()).env_remove("CARRACK_TOKEN");
        command
    }

    /// Returns a command with a user's certificate.
    fn command_as(&self, who: &str, arguments: &[&str]) -> Command {
        self.site.identity(who);
        let mut command = self.command(arguments);
        command.arg("--identity").arg(self.site.path().join(format!("{who}.pem")));
        command
    }

    #[track_caller]
    fn alice(&self, arguments: &[&str]) -> Output {
        run(&mut self.command_as("alice", arguments))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_tree_to_the_daemon_and_back() {
    let world = World::new();
    plant(&world.near("tree"));
    let there = world.alice(&["cp", "-r", "tree", &world.url("/data/")]);
    assert_exit(&there, 0);
    assert_says(
        &there,
        &["copied 4 files", "data travelled private over 2 connections, sealed with aes-256-gcm"],
    );
    assert_same(&world.near("tree"), &world.site.path().join("data/tree"));
    let back = world.alice(&["cp", "-r", "--json", &world.url("/data/tree/"), "back"]);
    assert_exit(&back, 0);
    assert_same(&world.near("tree"), &world.near("back"));
    let connected = json(&back).into_iter().find(|event| event["event"] == "connected");
    assert_eq!(connected.unwrap()["transport"], "tcp");
    let lines = world.site.audited(2);
    assert_eq!((&lines[1]["who"]["name"], &lines[1]["result"]), (&"alice".into(), &"ok".into()));
}

#[test]
fn nobody_leaves_programs_with_anothers_rights() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let tree = world.near("tree");
    fs::create_dir_all(tree.join("shared")).unwrap();
    fs::write(tree.join("small"), "#!/bin/sh").unwrap();
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    for (name, mode) in [("shared", 0o2775), ("small", 0o4755), ("large", 0o6755)] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_exit(&world.alice(&["cp", "-r", "--perms", "tree", &world.url("/data/")]), 0);
    for (name, mode) in [("shared", 0o775), ("small", 0o755), ("large", 0o755)] {
        let there = fs::metadata(world.site.path().join("data/tree").join(name)).unwrap();
        assert_eq!(there.permissions().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn where_the_users_files_are_they_need_not_be_named() {
    let world = World::new();
    let home = world.near(".config/carrack");
    fs::create_dir_all(&home).unwrap();
    world.site.identity("alice");
    for (from, to) in [("alice.pem", "identity.pem"), ("alice-key.pem", "identity-key.pem")] {
        fs::copy(world.site.path().join(from), home.join(to)).unwrap();
    }
    fs::copy(world.ca(), home.join("ca.pem")).unwrap();
    let output = run(world.command(&["ls", &world.url("/")]).env_remove("CARRACK_CA"));
    assert_exit(&output, 0);
    assert_eq!(said(&output), "data\n");
}

#[test]
fn wildcards_of_the_daemons_paths_are_expanded_but_for_removals() {
    let world = World::new();
    let url = |path| world.url(path);
    for (name, text) in [("1.nc", "1"), ("2.nc", "22"), ("x.txt", "x"), (".nc", "hidden")] {
        fs::create_dir_all(world.near("near")).unwrap();
        fs::write(world.near("near").join(name), text).unwrap();
        fs::create_dir_all(world.site.path().join("data/d")).unwrap();
        fs::write(world.site.path().join("data/d").join(name), text).unwrap();
    }
    let listed = world.alice(&["ls", &url("/data/d/*.nc")]);
    assert_exit(&listed, 0);
    let mut names: Vec<String> = said(&listed).lines().map(str::to_owned).collect();
    names.sort_unstable();
    assert_eq!(names, ["1.nc", "2.nc"]);
    assert_exit(&world.alice(&["ls", &url("/data/d/*.none")]), 3);

    let stats = world.alice(&["stat", "--json", &url("/data/d/[12].nc")]);
    assert_exit(&stats, 0);
    let sizes: Vec<_> = json(&stats).into_iter().map(|stat| stat["size_bytes"].clone()).collect();
    assert_eq!(sizes, [1, 2]);

    let verified = world.alice(&["verify", &url("/data/d/*.nc"), "near"]);
    assert_exit(&verified, 0);
    assert_says(&verified, &["2 entries are equal"]);
    fs::write(world.near("near/2.nc"), "23").unwrap();
    assert_exit(&world.alice(&["verify", &url("/data/d/*.nc"), "near"]), 1);

    assert_exit(&world.alice(&["rm", "--yes", &url("/data/d/*.nc")]), 3);
    assert!(world.site.path().join("data/d/1.nc").exists());
}

#[test]
fn looking_making_and_removing() {
    let world = World::new();
    let url = |path| world.url(path);
    assert_exit(&world.alice(&["mkdir", "-p", &url("/data/a/b"), &url("/data/a b")]), 0);
    fs::write(world.site.path().join("data/a/new\nline"), "12345").unwrap();
    for (path, names) in [("/", vec!["data"]), ("/data", vec!["a", "a b"]), ("/data/a%20b", vec![])] {
        let output = world.alice(&["ls", &url(path)]);
        assert_exit(&output, 0);
        let listed = said(&output);
        let mut listed: Vec<&str> = listed.lines().collect();
        listed.sort_unstable();
        assert_eq!(listed, names, "{path}");
    }
    let long = said(&world.alice(&["ls", "-l", &url("/data/a")]));
    assert!(long.contains("           5 ") && long.contains("Z new\\nline\n"), "{long}");
    assert!(said(&world.alice(&["ls", "-l", &url("/")])).starts_with("export "));
    let stat = world.alice(&["stat", "--json", &url("/data/a/new%0aline"), &url("/data")]);
    assert_exit(&stat, 0);
    let stats = json(&stat);
    assert_eq!((&stats[0]["size_bytes"], &stats[0]["type"]), (&5.into(), &"file".into()));
    assert_eq!(stats[1]["type"], "directory");

    // Without a terminal there is no question.
    let asked = world.alice(&["rm", "-r", &url("/data/a")]);
    assert_exit(&asked, 2);
    assert_says(&asked, &["nobody is there to be asked", "--yes"]);
    assert!(world.site.path().join("data/a/b").exists());
    let full = world.alice(&["rm", "--yes", &url("/data/a"), &url("/data/a%20b")]);
    assert_exit(&full, 1);
    assert_says(&full, &["carrack: failed: carrack://", "/data/a: ", "not empty"]);
    assert_exit(&world.alice(&["rm", "-r", "--yes", &url("/data/a/")]), 0);
    assert_eq!(fs::read_dir(world.site.path().join("data")).unwrap().count(), 0);
    assert_exit(&world.alice(&["rm", "-r", "--yes", &url("/data")]), 3);
    assert!(world.site.path().join("data").exists());
}

#[test]
fn rights_are_told_apart_from_what_is_not_there() {
    let world = World::new();
    fs::write(world.site.path().join("data/f"), "x").unwrap();
    fs::write(world.near("f"), "x").unwrap();
    let bob = |arguments: &[&str]| run(&mut world.command_as("bob", arguments));
    assert_exit(&bob(&["ls", &world.url("/data")]), 0);
    for arguments in [
        &["mkdir", &world.url("/data/x")][..],
        &["rm", "--yes", &world.url("/data/f")],
        &["cp", "f", &world.url("/data/g")],
    ] {
        let refused = bob(arguments);
        assert_exit(&refused, 3);
        assert_says(&refused, &["data does not let you", "hint: ask the daemon's administrator"]);
    }
    for path in ["/other/f", "/nowhere/f"] {
        assert_says(&bob(&["stat", &world.url(path)]), &["is open to you"]);
    }
    let missing = bob(&["stat", &world.url("/data/none")]);
    assert_exit(&missing, 3);
    assert_says(&missing, &["error: /data/none: No such file"]);
    assert_says(&bob(&["ls", &world.url("/data/../data")]), &["/data/../data: "]);
    assert_eq!(fs::read(world.site.path().join("data/f")).unwrap(), b"x");
}

#[test]
fn whoever_is_not_believed_is_told_why() {
    let world = World::new();
    let url = world.url("/data");
    let nobody = run(&mut world.command(&["ls", &url]));
    assert_exit(&nobody, 3);
    assert_says(&nobody, &["does not accept you: it wants to know who you are", "hint: ", "--identity"]);
    fs::write(world.near("f"), "x").unwrap();
    let nobody = run(&mut world.command(&["cp", "f", &world.url("/data/f")]));
    assert_exit(&nobody, 3);
    assert_says(&nobody, &["does not accept you: it wants to know who you are"]);

    let other = Site::new();
    other.identity("mallory");
    let stranger = run(world.command(&["ls", &url, "--identity"]).arg(other.path().join("mallory.pem")));
    assert_says(&stranger, &["it knows neither your key nor who signed your certificate"]);

    let unknown = run(world
        .command_as("alice", &["ls", &url])
        .env("CARRACK_CA", other.path().join("authority/ca.pem")));
    assert_exit(&unknown, 3);
    assert_says(&unknown, &["can't prove who it is", "an authority that is not known here", "hint: "]);

    let by_address = format!("carrack://127.0.0.1:{}/data", world.daemon.address.port());
    assert_says(&world.alice(&["ls", &by_address]), &["its certificate is for another name", "hint: "]);

    let port = common::free_port();
    let nobody = world.alice(&["ls", &format!("carrack://localhost:{port}/data")]);
    assert_exit(&nobody, 3);
    assert_says(&nobody, &[&format!("nobody listens at localhost, port {port}"), "hint: `carrack serve`"]);

    let absent = run(&mut world.command(&["ls", &url, "--identity", "absent.pem"]));
    assert_says(&absent, &["absent.pem: No such file"]);
}

#[test]
fn a_revoked_daemon_is_not_believed() {
    let world = World::new();
    world
        .site
        .authority()
        .revoke(
            &carrack_trust::RevokedCertificateSelector::Name("server".into()),
            std::time::SystemTime::now(),
        )
        .unwrap();
    let output = world.alice(&["ls", &world.url("/data")]);
    assert_exit(&output, 3);
    assert_says(&output, &["can't prove who it is: its certificate is revoked"]);
}

#[test]
fn a_token_does_instead_of_a_certificate() {
    let site = Site::new();
    let token_key = site.path().join("authority/token.pem");
    let tokens = format!(
        "[tokens]\nissuers = [{{ name = \"a site\", audience = \"this\", key = \"{}\" }}]\n",
        token_key.display()
    );
    let world = World::of(site, &tokens);
    fs::write(world.near("f"), "x").unwrap();
    let token = world.site.token("alice", "storage.modify:/data/in storage.read:/data");
    fs::write(world.near("token"), format!("{token}\n")).unwrap();
    let url = world.url("/data");
    let exposed = run(&mut world.command(&["ls", "--token-file", "token", &url]));
    assert_says(&exposed, &["token can be read by others", "hint: chmod 600"]);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(world.near("token"), private).unwrap();
    assert_exit(&run(&mut world.command(&["mkdir", "--token-file", "token", &world.url("/data/in")])), 0);
    assert_exit(&run(&mut world.command(&["cp", "--token-file", "token", "f", &world.url("/data/in/f")])), 0);
    let elsewhere = run(&mut world.command(&["cp", "--token-file", "token", "f", &world.url("/data/f")]));
    assert_exit(&elsewhere, 3);
    assert_says(&elsewhere, &["the token does not let you write there"]);
    let listed = run(world.command(&["ls", &url]).env("CARRACK_TOKEN", &token));
    assert_eq!((said(&listed), talk(&listed)), ("in\n".to_owned(), String::new()));
    let listed = run(world.command(&["ls", &world.url("/")]).env("CARRACK_TOKEN", &token));
    assert_eq!(said(&listed), "data\n");
    let warned = run(&mut world.command(&["ls", "--token", &token, &url]));
    assert_exit(&warned, 0);
    assert_says(&warned, &["warning: everybody on this host can see --token"]);
    let forged = run(world.command(&["ls", &url]).env("CARRACK_TOKEN", "aa.bb.cc"));
    assert_exit(&forged, 3);
}

#[test]
fn nothing_leads_out_of_a_tokens_scope() {
    let site = Site::new();
    let token_key = site.path().join("authority/token.pem");
    let tokens = format!(
        "[tokens]\nissuers = [{{ name = \"a site\", audience = \"this\", key = \"{}\" }}]\n",
        token_key.display()
    );
    let world = World::of(site, &tokens);
    let data = world.site.path().join("data");
    for directory in ["pub/d", "secret/d", "in"] {
        fs::create_dir_all(data.join(directory)).unwrap();
    }
    fs::write(data.join("secret/key"), "secret").unwrap();
    fs::write(data.join("pub/d/f"), "open").unwrap();
    for (text, link) in [
        ("../secret/key", "key"),
        ("../secret", "out"),
        ("../secret/gone", "gone"),
        ("d", "near"),
        ("d/f", "file"),
    ] {
        std::os::unix::fs::symlink(text, data.join("pub").join(link)).unwrap();
    }
    fs::write(world.near("f"), "x").unwrap();
    let token =
        world.site.token("alice", "storage.read:/data/pub storage.modify:/data/in storage.modify:/data/new");
    let with_token = |arguments: &[&str]| run(world.command(arguments).env("CARRACK_TOKEN", &token));
    for (path, to) in
        [("/data/pub/key", "stolen"), ("/data/pub/out/key", "stolen"), ("/data/pub/gone", "stolen")]
    {
        let refused = with_token(&["cp", &world.url(path), to]);
        assert_exit(&refused, 3);
        assert_says(&refused, &["Invalid cross-device link"]);
    }
    assert_exit(&with_token(&["cp", "-r", &world.url("/data/pub/out/"), "stolen-tree"]), 3);
    assert_ne!(with_token(&["verify", &world.url("/data/pub/key"), "f"]).status.code(), Some(0));
    assert!(!world.near("stolen").exists() && !world.near("stolen-tree").exists());
    assert_exit(&with_token(&["cp", &world.url("/data/pub/file"), "through"]), 0);
    assert_exit(&with_token(&["cp", "-r", &world.url("/data/pub/near/"), "tree"]), 0);
    assert_eq!(fs::read(world.near("through")).unwrap(), fs::read(world.near("tree/f")).unwrap());

    // A journal lies only where the token allows writing, too.
    for directory in ["/secret", "/pub", "/"] {
        let journal = ["cp", "-r", "--journal-dir", directory, "tree", &world.url("/data/in/")];
        let refused = with_token(&journal);
        assert_exit(&refused, 3);
        assert_says(&refused, &["the directory for the journal", "Permission denied"]);
    }
    assert_exit(&with_token(&["cp", "-r", "--journal-dir", "/in", "tree", &world.url("/data/in/")]), 0);
    // A scope that does not exist yet is made, and no entry next to it.
    assert_exit(&with_token(&["cp", "-r", "tree", &world.url("/data/new")]), 0);
    assert_exit(&with_token(&["cp", "f", &world.url("/data/new/f")]), 0);
    let names = |path: &str| {
        let mut names: Vec<_> =
            fs::read_dir(data.join(path)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        (names(""), names("secret"), names("new")),
        (
            ["in", "new", "pub", "secret"].map(Into::into).to_vec(),
            ["d", "key"].map(Into::into).to_vec(),
            ["f"].map(Into::into).to_vec(),
        )
    );
}

#[test]
fn a_signal_ends_a_copy_cleanly() {
    let world = World::new();
    fs::write(world.near("big"), vec![7; 50_000_000]).unwrap();
    let data = world.site.path().join("data");
    let arguments = ["cp", "--no-journal", "--bwlimit", "2MB", "big", &world.url("/data/big")];
    let running = Running::start(&mut world.command_as("alice", &arguments));
    wait_for("the beginning", || fs::read_dir(&data).unwrap().next()).unwrap();
    running.signal(Signal::INT);
    assert_exit(&running.end(), 130);
    wait_for("the end", || fs::read_dir(&data).unwrap().next().is_none().then_some(()));
    assert_ne!(world.site.audited(1)[0]["result"], "ok");
}

#[test]
fn nonsense_is_a_usage_error() {
    let world = World::new();
    for arguments in [
        &["cp", "a", "carrack://h/"][..],
        &["cp", "a", "carrack://me@h/data"],
        &["cp", "a", "carrack://h:99999/data"],
        &["stat", "carrack://h/"],
        &["rm", "--yes", "carrack://h"],
        &["ls", "carrack://h/a%2Fb"],
        &["mkdir", "carrack://h/a?b"],
        &["ls", "--token", "a", "--token-file", "b", "carrack://h/a"],
        &["ls", "-l", "--json", "."],
    ] {
        let output = world.alice(arguments);
        assert_exit(&output, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_daemon_with_the_certificate_of_another_host_is_not_believed() {
    let site = Site::new();
    let purpose = CertificateUse::Server { names: vec!["elsewhere.example.org".into()] };
    fs::remove_file(site.path().join("server.pem")).unwrap();
    fs::remove_file(site.path().join("server-key.pem")).unwrap();
    site.authority()
        .issue("server", &purpose, SERVER_LIFETIME, site.path(), std::time::SystemTime::now())
        .unwrap();
    let world = World::of(site, "");
    let output = world.alice(&["ls", &world.url("/data")]);
    assert_exit(&output, 3);
    assert_says(&output, &["its certificate is for another name"]);
}
