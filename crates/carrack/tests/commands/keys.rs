//! `carrack keys`: its files, its reports, and its refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::SystemTime;

use carrack_trust::{
    ClientCredential, ClientTrust, CredentialPaths as ClientPlaces, TlsServerCredentials,
    TokenScopeOperation, TokenVerifier, client_config, server_config,
};
use serde_json::Value;

use crate::common::CARRACK;
use crate::common::process::{assert_exit, assert_says, json, run, talk};

/// A home directory with the files of `carrack keys`.
struct World {
    home: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World { home: tempfile::tempdir().unwrap() }
    }

    fn with_authority() -> World {
        let world = World::new();
        assert_exit(&world.keys(&["init", "--name", "a site"]), 0);
        world
    }

    #[track_caller]
    fn keys(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(CARRACK);
        command.arg("keys").args(arguments).current_dir(self.home.path()).env("HOME", self.home.path());
        run(&mut command)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.home.path().join(".config/carrack/authority").join(file)
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }

    fn mode(&self, file: &str) -> u32 {
        fs::metadata(self.path(file)).unwrap().permissions().mode() & 0o7777
    }

    /// Returns the report of `show --json` on one of the authority's files.
    #[track_caller]
    fn show(&self, file: &str) -> Value {
        let output = self.keys(&["show", "--json", self.path(file).to_str().unwrap()]);
        assert_exit(&output, 0);
        json(&output).remove(0)
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn an_authority_is_made_once() {
    let world = World::new();
    let output = world.keys(&["init"]);
    assert_exit(&output, 0);
    assert_says(&output, &["made the authority 'carrack at ", "keep ca-key.pem for yourself"]);
    for (file, mode) in [("", 0o700), ("ca.pem", 0o644), ("ca-key.pem", 0o600), ("revoked.pem", 0o644)] {
        assert_eq!(world.mode(file), mode, "{file}");
    }
    let before = world.read("ca-key.pem");
    let again = world.keys(&["init"]);
    assert_exit(&again, 3);
    assert_says(&again, &["is there already", "\nhint: move it away"]);
    assert_eq!(world.read("ca-key.pem"), before);
    assert_eq!(world.show("ca.pem")["standing"], "own");
}

#[test]
fn what_it_issues_makes_a_daemon_and_a_client() {
    for kind in ["ed25519", "p256"] {
        let world = World::new();
        assert_exit(&world.keys(&["init", "--key", kind]), 0);
        assert_exit(&world.keys(&["issue", "dtn1", "--server", "dtn1.example.org,10.0.0.7"]), 0);
        assert_exit(&world.keys(&["issue", "alice"]), 0);
        for (file, mode) in
            [("dtn1.pem", 0o644), ("dtn1-key.pem", 0o600), ("alice.pem", 0o644), ("alice-key.pem", 0o600)]
        {
            assert_eq!(world.mode(file), mode, "{file}");
        }
        let server = TlsServerCredentials {
            chain: world.read("dtn1.pem"),
            key: world.read("dtn1-key.pem"),
            client_cas: world.read("ca.pem"),
            crls: world.read("revoked.pem"),
            ..TlsServerCredentials::default()
        };
        server_config(&server).unwrap();
        let identity = ClientCredential::Certificate {
            chain: world.read("alice.pem"),
            key: world.read("alice-key.pem"),
        };
        let client =
            ClientTrust { cas: Some(world.read("ca.pem")), crls: Vec::new(), identity: Some(identity) };
        client_config(&client).unwrap();
    }
}

#[test]
fn a_client_finds_its_files_where_they_are_put() {
    let world = World::with_authority();
    assert_exit(&world.keys(&["issue", "identity", "--subject", "alice", "--out", ".config/carrack"]), 0);
    let user = world.home.path().join(".config/carrack");
    fs::copy(world.path("ca.pem"), user.join("ca.pem")).unwrap();
    let places = ClientPlaces { user: Some(user), host: "/nonexistent".into(), ..ClientPlaces::default() };
    client_config(&places.client_trust().unwrap()).unwrap();
}

#[test]
fn show_says_what_a_certificate_is() {
    let world = World::with_authority();
    assert_exit(&world.keys(&["issue", "dtn1", "--server", "dtn1.example.org", "--server", "::1"]), 0);
    assert_exit(&world.keys(&["issue", "alice", "--subject", "alice@site", "--lifetime", "30d"]), 0);
    let (server, client) = (world.show("dtn1.pem"), world.show("alice.pem"));
    assert_eq!(server["names"], serde_json::json!(["DNS:dtn1.example.org", "IP:::1"]));
    assert_eq!((&server["use"], &server["identity"]), (&"server".into(), &Value::Null));
    assert_eq!((&client["use"], &client["identity"]), (&"client".into(), &"alice@site".into()));
    assert_eq!((&client["standing"], &client["is_valid_now"]), (&"good".into(), &true.into()));
    let output = world.keys(&[
        "show",
        world.path("dtn1.pem").to_str().unwrap(),
        world.path("alice.pem").to_str().unwrap(),
    ]);
    let table = text(&output);
    for words in [
        "dtn1.pem\n",
        "\n\n",
        "  names        DNS:dtn1.example.org, IP:::1\n",
        "  use          client\n",
        "  identity     alice@site\n",
        "  standing     not revoked\n",
        client["serial"].as_str().unwrap(),
        client["fingerprint"].as_str().unwrap(),
        client["valid_until"].as_str().unwrap(),
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn without_an_authority_nobody_knows_what_is_revoked() {
    let (world, stranger) = (World::with_authority(), World::new());
    assert_exit(&world.keys(&["issue", "alice"]), 0);
    let file = world.path("alice.pem");
    let output = stranger.keys(&["show", file.to_str().unwrap()]);
    assert_exit(&output, 0);
    assert!(text(&output).contains("standing     unknown: there is no authority here"), "{}", text(&output));
    let named = stranger.keys(&["show", "--dir", "nowhere", file.to_str().unwrap()]);
    assert_exit(&named, 3);
    assert_says(&named, &["there is no authority in nowhere", "\nhint: "]);
    let other = World::with_authority();
    let output = other.keys(&["show", file.to_str().unwrap()]);
    assert!(text(&output).contains("unknown: it is not of the authority here"), "{}", text(&output));
}

#[test]
fn show_goes_on_after_what_is_no_certificate() {
    let world = World::with_authority();
    let (ca, key) = (world.path("ca.pem"), world.path("ca-key.pem"));
    let output = world.keys(&["show", key.to_str().unwrap(), "missing.pem", ca.to_str().unwrap()]);
    assert_exit(&output, 1);
    assert_says(&output, &["there is no certificate in it", "missing.pem: No such file"]);
    assert!(text(&output).contains("use          authority"));
    assert!(!text(&output).contains("PRIVATE") && !talk(&output).contains("PRIVATE"));
}

#[test]
fn revoking_takes_a_name_a_number_or_a_file() {
    let world = World::with_authority();
    for name in ["alice", "bob", "carol", "dave"] {
        assert_exit(&world.keys(&["issue", name]), 0);
    }
    let serial = world.show("bob.pem")["serial"].as_str().unwrap().to_owned();
    let file = world.path("carol.pem");
    for what in ["alice", &serial, file.to_str().unwrap()] {
        let output = world.keys(&["revoke", what]);
        assert_exit(&output, 0);
        assert_says(&output, &["revoked '", "revoked.pem: give it to the daemons"]);
    }
    for (name, standing) in [("alice", "revoked"), ("bob", "revoked"), ("carol", "revoked"), ("dave", "good")]
    {
        let shown = world.show(&format!("{name}.pem"));
        assert_eq!(
            (&shown["standing"], shown["revoked_since"].is_string()),
            (&standing.into(), standing == "revoked")
        );
    }
    assert_says(&world.keys(&["revoke", "alice"]), &["(it was before)"]);
    let unknown = world.keys(&["revoke", "mallory"]);
    assert_exit(&unknown, 3);
    assert_says(&unknown, &["nothing was issued here as \"mallory\""]);
}

#[test]
fn a_token_is_what_the_authority_signs() {
    let world = World::with_authority();
    let output = world.keys(&[
        "token",
        "--subject",
        "robot",
        "--audience",
        "dtn1",
        "--scope",
        "storage.read:/data/run7",
        "--scope",
        "storage.create:/out",
        "--lifetime",
        "5m",
    ]);
    assert_exit(&output, 0);
    let mut keys = TokenVerifier::default();
    keys.add_issuer("a site", "dtn1", &world.read("token.pem")).unwrap();
    let token = keys.verify(text(&output).trim_end(), SystemTime::now()).unwrap();
    assert_eq!(token.identity.name, "robot");
    assert!(token.scope.allows(TokenScopeOperation::Read, b"/data/run7/x"));
    assert!(token.scope.allows(TokenScopeOperation::Create, b"/out/x"));
    assert!(!token.scope.allows(TokenScopeOperation::Read, b"/out/x"));
    // The message has its ID, not the token.
    assert!(!talk(&output).contains(text(&output).trim_end()));
}

#[test]
fn what_makes_no_sense_makes_nothing() {
    let world = World::with_authority();
    let token = |scope: &str, lifetime: &str| {
        world.keys(&["token", "--subject", "a", "--audience", "b", "--scope", scope, "--lifetime", lifetime])
    };
    for (output, words) in [
        (token("storage.read:/a/../b", "1h"), "'.', '..'"),
        (token("storage.write:/a", "1h"), "no storage permission"),
        (token("storage.read:/a", "2d"), "between 1 second and 24 hours"),
        (world.keys(&["issue", "../evil"]), "can't be the name of files"),
        (world.keys(&["issue", "ca"]), "can't be the name of files"),
        (world.keys(&["issue", "x", "--server", "not a host"]), "no host name or address"),
        (world.keys(&["issue", "x", "--subject", "a\tb"]), "control or invisible"),
        (world.keys(&["--dir", "nowhere", "issue", "x"]), "there is no authority in nowhere"),
    ] {
        assert_exit(&output, 3);
        assert_says(&output, &[words]);
        assert!(output.stdout.is_empty());
    }
    for arguments in
        [&["issue"][..], &["issue", "x", "--lifetime", "0d"], &["init", "--key", "rsa"], &["frob"]]
    {
        assert_exit(&world.keys(arguments), 2);
    }
    assert!(!world.path("x.pem").exists() && !world.path("x-key.pem").exists());
}
