//! Every way to prove to NATS who one is, and to have NATS prove who it is: real servers, certificates and
//! keys; and what is said when one of them is not the right one.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use carrack_cluster::bus::{BusOptions, NatsBus, NatsLogin, NatsTls};
use carrack_cluster::error::BusError;
use carrack_trust::{
    CLIENT_LIFETIME, CertificateAuthority, CertificateUse, KeySignatureAlgorithm, SERVER_LIFETIME,
};
use nkeys::KeyPair;

use crate::support::{Server, free_ports, server_program, until};

/// A directory with what servers and their users prove themselves by.
struct Site {
    dir: tempfile::TempDir,
    port: u16,
}

impl Site {
    /// With a CA, a server's certificate for `localhost`, and a client's; `None` where there are no servers
    /// to be had.
    fn new() -> Option<Site> {
        server_program()?;
        let site = Site { dir: tempfile::tempdir().unwrap(), port: free_ports(1)[0] };
        let now = SystemTime::now();
        for name in ["ours", "theirs"] {
            let directory = site.at(name);
            let authority =
                CertificateAuthority::init(&directory, name, KeySignatureAlgorithm::P256, now).unwrap();
            let server = CertificateUse::Server { names: vec!["localhost".to_owned()] };
            authority.issue("server", &server, SERVER_LIFETIME, &directory, now).unwrap();
            let client = CertificateUse::Client { subject: "mover".to_owned() };
            authority.issue("client", &client, CLIENT_LIFETIME, &directory, now).unwrap();
        }
        Some(site)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.at(name), content).unwrap();
        self.at(name)
    }

    fn start(&self, more: &str) -> Server {
        let store = self.at("store");
        let text = format!(
            "listen: 127.0.0.1:{}\njetstream {{ store_dir: {store:?}, sync_interval: always }}\n{more}\n",
            self.port
        );
        Server::start(&self.file("server.conf", &text), &[], self.port)
    }

    /// A server's TLS, with more options of it.
    fn tls(&self, more: &str) -> String {
        let [cert, key, ca] =
            ["ours/server.pem", "ours/server-key.pem", "ours/ca.pem"].map(|name| self.at(name));
        format!("tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}{more} }}")
    }

    fn options(&self, scheme: &str, login: NatsLogin, tls: NatsTls) -> BusOptions {
        let servers = vec![format!("{scheme}://localhost:{}", self.port)];
        BusOptions { servers, login, tls, ..BusOptions::default() }
    }

    fn trusting(&self, authority: &str, identity: Option<&str>) -> NatsTls {
        let identity = identity.map(|identity| {
            (self.at(&format!("{identity}/client.pem")), self.at(&format!("{identity}/client-key.pem")))
        });
        NatsTls { required: true, ca: Some(self.at(&format!("{authority}/ca.pem"))), identity }
    }
}

/// It is let in, and can do what a manager does.
async fn works(options: &BusOptions) {
    let bus = NatsBus::connect(options).await.unwrap_or_else(|error| panic!("{error}: {:?}", error.hint()));
    bus.create_missing_streams(None).await.unwrap();
}

/// It is not, and is told what to do.
async fn is_told(options: &BusOptions, hint: &str) {
    let error = NatsBus::connect(options).await.err().expect("it is not let in");
    let told = error.hint().unwrap_or_default();
    assert!(matches!(error, BusError::Connect { .. }) && told.contains(hint), "{error}; hint: {told}");
}

#[tokio::test]
async fn the_server_is_believed_by_its_ca_and_its_name() {
    let Some(site) = Site::new() else { return };
    let server = site.start(&site.tls(""));
    let options = |scheme, tls| site.options(scheme, NatsLogin::None, tls);
    works(&options("tls", site.trusting("ours", None))).await;
    // The CA alone says that there has to be TLS.
    works(&options("nats", site.trusting("ours", None))).await;
    is_told(&options("tls", site.trusting("theirs", None)), "--nats-ca").await;
    is_told(&options("tls", NatsTls::default()), "--nats-ca").await;
    let by_address = BusOptions {
        servers: vec![format!("tls://127.0.0.1:{}", site.port)],
        ..options("tls", site.trusting("ours", None))
    };
    is_told(&by_address, "as its certificate does").await;
    let nowhere = NatsTls { ca: Some(site.at("nowhere.pem")), ..NatsTls::default() };
    let error = NatsBus::connect(&options("tls", nowhere)).await.err().unwrap();
    assert!(matches!(&error, BusError::Material { path, .. } if path.ends_with("nowhere.pem")), "{error}");

    // What is connected goes on with the next server, as the first connection was made.
    let bus = NatsBus::connect(&options("tls", site.trusting("ours", None))).await.unwrap();
    drop(server);
    until("silence", || bus.disconnected_for().is_some()).await;
    let _server = site.start(&site.tls(""));
    until("a connection again", || bus.disconnected_for().is_none()).await;
    bus.create_missing_streams(None).await.unwrap();

    // A server without TLS is not spoken to in the clear where TLS is wanted.
    let plain = Site::new().unwrap();
    let _server = plain.start("");
    let tls = plain.trusting("ours", None);
    assert!(NatsBus::connect(&plain.options("tls", NatsLogin::None, tls)).await.is_err());
}

#[tokio::test]
async fn a_client_is_believed_by_its_certificate() {
    let Some(site) = Site::new() else { return };
    let users = "authorization { users: [ { user: \"CN=mover\" } ] }";
    let _server = site.start(&format!("{}\n{users}", site.tls(", verify_and_map: true")));
    let with = |identity| site.options("tls", NatsLogin::None, site.trusting("ours", identity));
    works(&with(Some("ours"))).await;
    is_told(&with(None), "--nats-cert").await;
    is_told(&with(Some("theirs")), "--nats-cert").await;
    // The key of another certificate.
    let mixed = NatsTls {
        identity: Some((site.at("ours/client.pem"), site.at("theirs/client-key.pem"))),
        ..site.trusting("ours", None)
    };
    is_told(&site.options("tls", NatsLogin::None, mixed), "--nats-key").await;
}

#[tokio::test]
async fn passwords_and_tokens_are_of_files() {
    let Some(site) = Site::new() else { return };
    let [right, wrong] = [site.file("right", "secret\n"), site.file("wrong", "guess\n")];
    let password = |file: &PathBuf| NatsLogin::Password { user: "mover".into(), file: file.clone() };
    let options = |login| site.options("tls", login, site.trusting("ours", None));
    let user = "authorization { users: [ { user: mover, password: secret } ] }";
    let server = site.start(&format!("{}\n{user}", site.tls("")));
    works(&options(password(&right))).await;
    is_told(&options(password(&wrong)), "another secret").await;
    is_told(&options(NatsLogin::None), "--nats-creds").await;
    drop(server);

    let _server = site.start(&format!("{}\nauthorization {{ token: secret }}", site.tls("")));
    works(&options(NatsLogin::Token(right.clone()))).await;
    is_told(&options(NatsLogin::Token(wrong)), "another secret").await;
    is_told(&options(NatsLogin::None), "--nats-token-file").await;
    let empty = NatsLogin::Token(site.file("empty", "\n"));
    let error = NatsBus::connect(&options(empty)).await.err().unwrap();
    assert!(matches!(error, BusError::Material { .. }), "{error}");
}

#[tokio::test]
async fn a_seed_signs_what_the_server_asks() {
    let Some(site) = Site::new() else { return };
    let [ours, other] = [KeyPair::new_user(), KeyPair::new_user()];
    let seed =
        |name: &str, key: &KeyPair| NatsLogin::Seed(site.file(name, &format!("{}\n", key.seed().unwrap())));
    let options = |login| site.options("tls", login, site.trusting("ours", None));
    let users = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", ours.public_key());
    let _server = site.start(&format!("{}\n{users}", site.tls("")));
    works(&options(seed("ours.nk", &ours))).await;
    is_told(&options(seed("other.nk", &other)), "another secret").await;
    is_told(&options(NatsLogin::Seed(site.file("none.nk", "password\n"))), "begins with SU").await;
    is_told(&options(NatsLogin::None), "--nats-seed").await;
}

#[tokio::test]
async fn credentials_are_of_an_operators_account() {
    let Some(site) = Site::new() else { return };
    let (operator, account, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let everything = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,
        "conn":-1,"leaf":-1,"mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1}"#;
    let ours = token(&operator, &account, "account", everything);
    // JetStream is not for the system's own account.
    let theirs =
        token(&operator, &system, "account", r#""limits":{"subs":-1,"data":-1,"payload":-1,"conn":-1}"#);
    let text = format!(
        "operator: {}\nresolver: MEMORY\nsystem_account: {1}\nresolver_preload: {{ {1}: {theirs}, {2}: {ours} }}",
        token(&operator, &operator, "operator", ""),
        system.public_key(),
        account.public_key()
    );
    let _server = site.start(&format!("{}\n{text}", site.tls("")));
    let options = |login| site.options("tls", login, site.trusting("ours", None));
    let user = KeyPair::new_user();
    let limits = r#""subs":-1,"data":-1,"payload":-1"#;
    let creds = |name: &str, signed_by: &KeyPair, seed: &KeyPair| {
        let text = credentials(&token(signed_by, &user, "user", limits), &seed.seed().unwrap());
        NatsLogin::Credentials(site.file(name, &text))
    };
    works(&options(creds("ours.creds", &account, &user))).await;
    // Of an account that the server does not know, and with a seed that is not the user's.
    is_told(&options(creds("stranger.creds", &KeyPair::new_account(), &user)), "another secret").await;
    is_told(&options(creds("thief.creds", &account, &KeyPair::new_user())), "another secret").await;
    is_told(&options(NatsLogin::None), "--nats-creds").await;
    let broken = NatsLogin::Credentials(site.file("broken.creds", "eyJ0\n"));
    let error = NatsBus::connect(&options(broken)).await.err().unwrap();
    assert!(matches!(&error, BusError::Material { path, .. } if path.ends_with("broken.creds")), "{error}");
}

/// A JWT as NATS has them: signed by an nkey, about another one.
fn token(issuer: &KeyPair, subject: &KeyPair, kind: &str, claims: &str) -> String {
    let comma = if claims.is_empty() { "" } else { "," };
    let body = format!(
        r#"{{"jti":"1","iat":1700000000,"iss":"{}","sub":"{}","name":"{kind}","nats":{{{claims}{comma}"type":"{kind}","version":2}}}}"#,
        issuer.public_key(),
        subject.public_key()
    );
    let signed = format!("{}.{}", base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#), base64(body.as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(&signature))
}

/// A file as `nsc` writes them.
fn credentials(token: &str, seed: &str) -> String {
    let mut text = String::new();
    for (what, content) in [("NATS USER JWT", token), ("USER NKEY SEED", seed)] {
        writeln!(text, "-----BEGIN {what}-----\n{content}\n------END {what}------\n").unwrap();
    }
    text
}

/// Of the kind that stands in URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let of_three = |three: &[u8]| {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = move |place: usize| char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]);
        (0..=three.len()).map(digit).collect::<Vec<_>>()
    };
    bytes.chunks(3).flat_map(of_three).collect()
}
