//! A test site whose server handshakes with clients in memory, at a given time.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, ClientConnection, Error, ServerConnection};

use super::{ClientCredential, ClientTrust, TlsServerCredentials, client_config_at, server_config_at};
use crate::authority::{
    CLIENT_LIFETIME, CertificateAuthority, CertificateUse, IssuedCertificate, SERVER_LIFETIME,
};
use crate::proved_identity::ProvedIdentity;
use crate::public_key::KeySignatureAlgorithm;
use crate::public_keys::AuthorizedKeys;

pub(super) const NOW_S: u64 = 1_800_000_000;
pub(super) const HOST: &str = "dtn1.example.org";

#[derive(Debug)]
pub(super) struct FixedClock(pub u64);

impl TimeProvider for FixedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S)
}

/// An authority with a server.
pub(super) struct TlsFixture {
    root: tempfile::TempDir,
    pub authority: CertificateAuthority,
    pub server: IssuedCertificate,
}

impl TlsFixture {
    pub fn new() -> TlsFixture {
        TlsFixture::with(KeySignatureAlgorithm::Ed25519)
    }

    pub fn with(kind: KeySignatureAlgorithm) -> TlsFixture {
        let root = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::init(root.path(), "a site", kind, now()).unwrap();
        let purpose = CertificateUse::Server { names: vec![HOST.into(), "10.0.0.7".into()] };
        let server = authority.issue("dtn1", &purpose, SERVER_LIFETIME, root.path(), now()).unwrap();
        TlsFixture { root, authority, server }
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.root.path().join(file)).unwrap()
    }

    pub fn client(&self, name: &str) -> ClientCredential {
        let purpose = CertificateUse::Client { subject: name.into() };
        identity(&self.authority.issue(name, &purpose, CLIENT_LIFETIME, self.root.path(), now()).unwrap())
    }

    /// A server that accepts the site's certificates.
    pub fn server(&self) -> TlsServerCredentials {
        TlsServerCredentials {
            chain: fs::read(&self.server.chain).unwrap(),
            key: fs::read(&self.server.key).unwrap(),
            client_cas: self.read("ca.pem"),
            crls: self.read("revoked.pem"),
            ..TlsServerCredentials::default()
        }
    }

    /// A client that trusts the site's servers.
    pub fn trusting_client(&self, identity: Option<ClientCredential>) -> ClientTrust {
        ClientTrust { cas: Some(self.read("ca.pem")), crls: self.read("revoked.pem"), identity }
    }
}

pub(super) fn identity(issued: &IssuedCertificate) -> ClientCredential {
    ClientCredential::Certificate {
        chain: fs::read(&issued.chain).unwrap(),
        key: fs::read(&issued.key).unwrap(),
    }
}

pub(super) fn keys(content: &str) -> Arc<AuthorizedKeys> {
    let (keys, errors) = AuthorizedKeys::parse(content.as_bytes());
    assert_eq!(errors, []);
    Arc::new(keys)
}

/// The result of a handshake: both connections, and the error of each end.
pub(super) struct TestTlsHandshake {
    pub client: ClientConnection,
    pub server: ServerConnection,
    pub client_error: Option<Error>,
    pub server_error: Option<Error>,
}

impl TestTlsHandshake {
    pub fn of(server: &TlsServerCredentials, client: &ClientTrust) -> TestTlsHandshake {
        TestTlsHandshake::at(NOW_S, server, client, HOST)
    }

    pub fn at(
        now_s: u64,
        server: &TlsServerCredentials,
        client: &ClientTrust,
        host: &str,
    ) -> TestTlsHandshake {
        let server = server_config_at(server, Arc::new(FixedClock(now_s))).unwrap();
        let client = client_config_at(client, Arc::new(FixedClock(now_s))).unwrap();
        TestTlsHandshake::between(server, client, host)
    }

    pub fn between(
        server: Arc<rustls::ServerConfig>,
        client: Arc<rustls::ClientConfig>,
        host: &str,
    ) -> TestTlsHandshake {
        let host = ServerName::try_from(host.to_owned()).unwrap();
        let client = ClientConnection::new(client, host).unwrap();
        let server = ServerConnection::new(server).unwrap();
        let mut meeting = TestTlsHandshake { client, server, client_error: None, server_error: None };
        meeting.exchange_messages();
        meeting
    }

    /// Exchanges messages until neither end has any to send.
    fn exchange_messages(&mut self) {
        while self.client.wants_write() || self.server.wants_write() {
            let error = pass(&mut self.client, &mut self.server);
            self.server_error = self.server_error.take().or(error);
            let error = pass(&mut self.server, &mut self.client);
            self.client_error = self.client_error.take().or(error);
        }
    }

    /// The client's identity. Panics if either end failed.
    #[track_caller]
    pub fn identity(&self, keys: &AuthorizedKeys) -> ProvedIdentity {
        self.assert_accepted();
        ProvedIdentity::of_peer(self.server.peer_certificates().unwrap(), keys).unwrap()
    }

    #[track_caller]
    pub fn assert_accepted(&self) {
        assert_eq!((&self.server_error, &self.client_error), (&None, &None));
        assert!(!self.server.is_handshaking() && !self.client.is_handshaking());
    }

    /// Asserts that the server refused the client for this reason, and that the client got the alert.
    #[track_caller]
    pub fn assert_refused(&self, is_reason: impl Fn(&Error) -> bool, alert: AlertDescription) {
        let reason = self.server_error.as_ref().expect("the server refuses");
        assert!(is_reason(reason), "{reason:?}");
        assert_eq!(self.client_error, Some(Error::AlertReceived(alert)));
        assert!(self.server.is_handshaking());
    }
}

fn pass<A, B>(from: &mut rustls::ConnectionCommon<A>, to: &mut rustls::ConnectionCommon<B>) -> Option<Error>
where
    A: rustls::SideData,
    B: rustls::SideData,
{
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest as &mut dyn io::Read).unwrap();
        if let Err(error) = to.process_new_packets() {
            return Some(error);
        }
    }
    None
}
