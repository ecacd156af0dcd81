//! Sessions over TLS with certificates of a site's own authority, as between a daemon and its clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow::Continue;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{
    AbortHandle, AccessPolicy, BrowseItem, ControlChannel, PathOperationRequest, PeerChannel,
    RemotePathOperation, SessionError, SessionRole, TlsHandshakeError, TransferOutcome, copy_with_peer,
    perform_remote_operation, serve,
};
use carrack_model::{ProtectionLevel, TransferEvent};
use carrack_transport::TlsChannel;
use carrack_trust::{
    AuthorizedKeys, CLIENT_LIFETIME, CertificateAuthority, CertificateUse, ClientCredential, ClientTrust,
    KeySignatureAlgorithm, ProvedIdentity, SERVER_LIFETIME, TlsServerCredentials, client_config,
    server_config,
};
use rustls::{AlertDescription, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::common::export::ExportHouse;
use crate::common::*;

const LIMIT_S: u64 = 120;
const HOST: &str = "dtn1.example.org";

/// A certificate authority, and the certificates that it issued.
struct Site {
    root: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    fn new() -> Site {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("authority");
        let authority = CertificateAuthority::init(
            &directory,
            "a site",
            KeySignatureAlgorithm::Ed25519,
            SystemTime::now(),
        )
        .unwrap();
        let site = Site { root, authority };
        site.issue("dtn1", &CertificateUse::Server { names: vec![HOST.into()] }, SERVER_LIFETIME);
        site
    }

    fn issue(&self, name: &str, purpose: &CertificateUse, lifetime: Duration) {
        self.authority.issue(name, purpose, lifetime, self.root.path(), SystemTime::now()).unwrap();
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.root.path().join(file)).unwrap()
    }

    fn client(&self, name: &str) -> Option<ClientCredential> {
        self.issue(name, &CertificateUse::Client { subject: name.into() }, CLIENT_LIFETIME);
        let (chain, key) = (self.read(&format!("{name}.pem")), self.read(&format!("{name}-key.pem")));
        Some(ClientCredential::Certificate { chain, key })
    }

    fn server_config(&self) -> Arc<ServerConfig> {
        let (chain, key) = (self.read("dtn1.pem"), self.read("dtn1-key.pem"));
        let client_cas = self.read("authority/ca.pem");
        server_config(&TlsServerCredentials { chain, key, client_cas, ..TlsServerCredentials::default() })
            .unwrap()
    }

    fn client_config(&self, identity: Option<ClientCredential>) -> Arc<ClientConfig> {
        let cas = Some(self.read("authority/ca.pem"));
        client_config(&ClientTrust { cas, crls: Vec::new(), identity }).unwrap()
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(LIMIT_S)
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn call(socket: TcpStream, config: Arc<ClientConfig>) -> Result<PeerChannel, TlsHandshakeError> {
    let channel = TlsChannel::client(socket, config, HOST.try_into().unwrap(), deadline())?;
    Ok(PeerChannel::over_tls(channel, "127.0.0.1".into(), String::new()))
}

/// Serves one caller; returns the caller's name and the outcome.
fn answer(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    access_policy: &dyn AccessPolicy,
) -> Result<(String, TransferOutcome), TlsHandshakeError> {
    let channel = TlsChannel::server(socket, config, deadline())?;
    let shown = channel.peer_certificates().unwrap();
    let identity = ProvedIdentity::of_peer(shown, &AuthorizedKeys::default()).unwrap();
    let outcome = serve(ControlChannel::Tls(Box::new(channel)), access_policy, &AbortHandle::new().unwrap());
    Ok((identity.name, outcome))
}

#[test]
fn trees_go_both_ways_at_every_level_and_the_server_knows_who_comes() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    let (source, export) = (dir.path().join("src"), dir.path().join("export"));
    rich_tree(&source);
    fs::create_dir(&export).unwrap();
    for level in [ProtectionLevel::Clear, ProtectionLevel::Safe, ProtectionLevel::Private] {
        let pushed = format!("/data/{level}");
        let back = dir.path().join(format!("back {level}"));
        for (role, from, to) in [
            (SessionRole::Source, source.as_path(), Path::new(&pushed)),
            (SessionRole::Sink, Path::new(&pushed), &back),
        ] {
            let mut transfer = transfer(&[from], to);
            transfer.spec.protection = level;
            let (here, there) = sockets();
            let config = site.server_config();
            let access_policy = ExportHouse::new(&export, ProtectionLevel::Clear);
            let serving = thread::spawn(move || answer(there, config, &access_policy).unwrap());
            let peer =
                call(here, site.client_config(site.client(&format!("alice-{level}-{role:?}")))).unwrap();
            let recorder = Recorder::default();
            let outcome = copy_with_peer(&transfer, role, peer, &recorder, &AbortHandle::new().unwrap());
            let (who, served) = serving.join().unwrap();
            assert!(outcome.result.is_ok(), "{level} {role:?}: {:?} {:?}", outcome.result, served.result);
            assert_eq!((recorder.failures(), who), (Vec::new(), format!("alice-{level}-{role:?}")));
            assert!(streams(&recorder).unwrap() > 0, "data connections of their own");
        }
        assert_same(&source, &export.join(level.to_string()));
        assert_same(&source, &back);
    }
}

/// Returns the number of data connections.
fn streams(recorder: &Recorder) -> Option<u32> {
    recorder.events().into_iter().find_map(|event| match event {
        TransferEvent::Connected { streams, .. } => Some(streams),
        _ => None,
    })
}

#[test]
fn browsing_goes_over_tls_too() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    (0..1_500).for_each(|n| write(&dir.path().join(format!("many/{n}")), b"x"));
    let ask = |operation, path: &str| {
        let (here, there) = sockets();
        let (config, access_policy) =
            (site.server_config(), ExportHouse::new(dir.path(), ProtectionLevel::Private));
        let serving = thread::spawn(move || answer(there, config, &access_policy).unwrap());
        let peer = call(here, site.client_config(site.client(&format!("bob{}", path.len())))).unwrap();
        let mut names = Vec::new();
        let mut keep = |found| {
            names.push(match found {
                BrowseItem::Entry(entry) => entry.name,
                BrowseItem::Export(name) => name,
                BrowseItem::Failed { path, .. } => path,
            });
            Continue(())
        };
        let browsing = PathOperationRequest { operation, path: path.into() };
        let done = perform_remote_operation(peer, &browsing, &mut keep, &AbortHandle::new().unwrap());
        serving.join().unwrap();
        (done.map(|summary| summary.done_count).map_err(|error| error.to_string()), names.len())
    };
    assert_eq!(ask(RemotePathOperation::List, "/data/many"), (Ok(1_500), 1_500));
    assert_eq!(ask(RemotePathOperation::List, "/"), (Ok(1_001), 1_001));
    assert_eq!(ask(RemotePathOperation::MakeDirectory { parents: true }, "/data/new/deep"), (Ok(1), 0));
    assert_eq!(ask(RemotePathOperation::Remove { recursive: true }, "/data/many/"), (Ok(1_501), 0));
    assert!(
        ask(RemotePathOperation::Stat, "/data/missing")
            .0
            .unwrap_err()
            .contains("/data/missing: No such file")
    );
    assert!(dir.path().join("new/deep").is_dir() && !dir.path().join("many").exists());
}

/// In TLS 1.3 a client learns that the server rejects it only when it reads.
#[test]
fn a_client_that_is_not_accepted_hears_why() {
    let (site, other) = (Site::new(), Site::new());
    let dir = tempfile::tempdir().unwrap();
    for (identity, reason) in [
        (None, AlertDescription::CertificateRequired),
        (other.client("mallory"), AlertDescription::UnknownCA),
    ] {
        for is_copy in [true, false] {
            let (here, there) = sockets();
            let (config, access_policy) =
                (site.server_config(), ExportHouse::new(dir.path(), ProtectionLevel::Private));
            let serving = thread::spawn(move || answer(there, config, &access_policy).map(|_| ()));
            // The client's handshake ends before the server has checked the certificate.
            let peer = call(here, site.client_config(identity.clone())).unwrap();
            let abort = AbortHandle::new().unwrap();
            let error = if is_copy {
                let transfer = transfer(&[dir.path()], Path::new("/data/x"));
                copy_with_peer(&transfer, SessionRole::Source, peer, &Recorder::default(), &abort)
                    .result
                    .unwrap_err()
            } else {
                let browsing =
                    PathOperationRequest { operation: RemotePathOperation::List, path: "/".into() };
                perform_remote_operation(peer, &browsing, &mut |_| Continue(()), &abort).unwrap_err()
            };
            let SessionError::Tls(TlsHandshakeError::Tls(rustls::Error::AlertReceived(alert))) = error else {
                panic!("{error:?}")
            };
            assert_eq!(alert, reason);
            assert!(matches!(serving.join().unwrap(), Err(TlsHandshakeError::Tls(_))));
        }
    }
}

/// One side of the man in the middle.
struct Leg {
    socket: TcpStream,
    tls: Connection,
}

impl Leg {
    fn new(socket: TcpStream, tls: Connection) -> Leg {
        socket.set_nonblocking(true).unwrap();
        Leg { socket, tls }
    }

    /// Returns the decrypted bytes; `None` if the other end left.
    fn take(&mut self) -> Option<Vec<u8>> {
        while self.tls.wants_write() && self.tls.write_tls(&mut self.socket).is_ok() {}
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => return None,
            Ok(_) => _ = self.tls.process_new_packets().ok()?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        let mut bytes = Vec::new();
        match self.tls.reader().read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock && bytes.is_empty() => None,
            _ => Some(bytes),
        }
    }
}

/// A man in the middle with valid certificates for both ends, which forwards all bytes unchanged; returns
/// their number.
fn relay(mut near: Leg, mut far: Leg) -> usize {
    let mut passed = 0;
    for leg in [&mut near, &mut far] {
        leg.tls.set_buffer_limit(None);
    }
    while let (Some(asked), Some(answered)) = (near.take(), far.take()) {
        far.tls.writer().write_all(&asked).unwrap();
        near.tls.writer().write_all(&answered).unwrap();
        passed += asked.len() + answered.len();
        if asked.is_empty() && answered.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    passed
}

/// Both sides have valid certificates. The exporters of the two control channels (RFC 8446 §7.5) differ, and
/// so do the keys of the data connections, although both ends have the same session key.
#[test]
fn whoever_ends_tls_in_the_middle_gets_no_data_connection() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("src/f"), &noise(300_000, 1));
    let export = dir.path().join("export");
    fs::create_dir(&export).unwrap();
    let moved = |between: bool, name: &str| {
        let (here, near) = sockets();
        let (far, there) = sockets();
        let (config, access_policy) =
            (site.server_config(), ExportHouse::new(&export, ProtectionLevel::Private));
        let middle = between.then(|| {
            let near = Leg::new(
                near.try_clone().unwrap(),
                ServerConnection::new(site.server_config()).unwrap().into(),
            );
            let config = site.client_config(site.client(&format!("stolen-{name}")));
            let tls = ClientConnection::new(config, HOST.try_into().unwrap()).unwrap();
            let far = Leg::new(far.try_clone().unwrap(), tls.into());
            thread::spawn(move || relay(near, far))
        });
        // Without a man in the middle both ends are connected directly.
        let (here, there) = if between { (here, there) } else { sockets() };
        let serving = thread::spawn(move || answer(there, config, &access_policy).unwrap());
        let peer = call(here, site.client_config(site.client(name))).unwrap();
        let recorder = Recorder::default();
        let transfer = transfer(&[&dir.path().join("src/f")], Path::new(&format!("/data/{name}")));
        let outcome =
            copy_with_peer(&transfer, SessionRole::Source, peer, &recorder, &AbortHandle::new().unwrap());
        let (who, _) = serving.join().unwrap();
        let passed = middle.map_or(0, |middle| middle.join().unwrap());
        (outcome.result.is_ok(), streams(&recorder), passed > 300_000, who)
    };
    assert_eq!(moved(false, "direct"), (true, Some(2), false, "direct".to_owned()));
    // The data takes the control channel, which the man in the middle has.
    assert_eq!(moved(true, "tapped"), (true, Some(0), true, "stolen-tapped".to_owned()));
}
