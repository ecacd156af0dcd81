//! Handshakes in memory: the peers that each end accepts and refuses.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    AlertDescription, CertificateError as Refusal, Error, HandshakeKind, ProtocolVersion, ServerConnection,
};

use super::fixture::{FixedClock, HOST, NOW_S, TestTlsHandshake, TlsFixture, identity, keys, now};
use super::*;
use crate::authority::{CLIENT_LIFETIME, RevokedCertificateSelector, SERVER_LIFETIME};
use crate::proved_identity::ProvingCredential;
use crate::public_key::KeySignatureAlgorithm;
use crate::public_keys::AuthorizedKeys;

/// A key made by `ssh-keygen -t ed25519` for these tests alone, and the same key with a passphrase.
const SSH_KEY: &str = include_str!("testdata/ssh_ed25519");
const SSH_KEY_PUBLIC: &str = include_str!("testdata/ssh_ed25519.pub");
const SSH_KEY_ENCRYPTED: &str = include_str!("testdata/ssh_encrypted");
const SSH_KEY_P256: &str = include_str!("testdata/ssh_ecdsa");

fn certificate(refusal: &Refusal) -> impl Fn(&Error) -> bool {
    move |error| *error == Error::InvalidCertificate(refusal.clone())
}

fn is_expired(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(Refusal::Expired | Refusal::ExpiredContext { .. }))
}

fn is_wrong_purpose(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(Refusal::InvalidPurpose | Refusal::InvalidPurposeContext { .. })
    )
}

#[test]
fn a_certificate_of_the_ca_is_accepted() {
    for kind in [KeySignatureAlgorithm::Ed25519, KeySignatureAlgorithm::P256] {
        let site = TlsFixture::with(kind);
        let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(site.client("alice"))));
        let identity = meeting.identity(&AuthorizedKeys::default());
        assert_eq!(identity.name, "alice");
        assert!(matches!(identity.how, ProvingCredential::Certificate { .. }));
    }
}

#[test]
fn what_is_agreed_is_the_best_there_is() {
    let site = TlsFixture::new();
    let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(site.client("alice"))));
    assert_eq!(meeting.server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert!(speaks_carrack(meeting.server.alpn_protocol()) && speaks_carrack(meeting.client.alpn_protocol()));
    let group = meeting.server.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn both_ends_derive_the_same_secret() {
    let site = TlsFixture::new();
    let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(site.client("alice"))));
    let [ours, theirs] = [
        meeting.client.export_keying_material([0; 32], b"a label", Some(b"a context")).unwrap(),
        meeting.server.export_keying_material([0; 32], b"a label", Some(b"a context")).unwrap(),
    ];
    assert_eq!(ours, theirs);
}

#[test]
fn no_session_is_resumed() {
    let site = TlsFixture::new();
    let server = server_config_at(&site.server(), Arc::new(FixedClock(NOW_S))).unwrap();
    // A client that would, if it could.
    let mut client = Arc::unwrap_or_clone(
        client_config_at(&site.trusting_client(Some(site.client("alice"))), Arc::new(FixedClock(NOW_S)))
            .unwrap(),
    );
    client.resumption = rustls::client::Resumption::in_memory_sessions(8);
    client.enable_early_data = true;
    let client = Arc::new(client);
    for _ in 0..2 {
        let mut meeting = TestTlsHandshake::between(server.clone(), client.clone(), HOST);
        meeting.assert_accepted();
        assert_eq!(meeting.server.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(meeting.client.tls13_tickets_received(), 0);
        assert!(meeting.server.early_data().is_none());
    }
}

#[test]
fn certificates_end() {
    let site = TlsFixture::new();
    let (server, client) = (site.server(), site.trusting_client(Some(site.client("alice"))));
    let end_s = NOW_S + CLIENT_LIFETIME.as_secs();
    TestTlsHandshake::at(end_s - 1, &server, &client, HOST).assert_accepted();
    TestTlsHandshake::at(end_s + 1, &server, &client, HOST)
        .assert_refused(is_expired, AlertDescription::CertificateExpired);
    let early = TestTlsHandshake::at(NOW_S - 301, &server, &client, HOST);
    assert!(matches!(
        early.client_error,
        Some(Error::InvalidCertificate(Refusal::NotValidYet | Refusal::NotValidYetContext { .. }))
    ));
}

#[test]
fn a_server_that_has_expired_is_not_believed() {
    let site = TlsFixture::new();
    let end_s = NOW_S + SERVER_LIFETIME.as_secs();
    let meeting = TestTlsHandshake::at(end_s + 1, &site.server(), &site.trusting_client(None), HOST);
    assert!(is_expired(meeting.client_error.as_ref().unwrap()));
}

#[test]
fn what_is_revoked_is_refused_and_nothing_else() {
    let site = TlsFixture::new();
    let [alice, bob] = ["alice", "bob"].map(|name| site.trusting_client(Some(site.client(name))));
    site.authority.revoke(&RevokedCertificateSelector::Name("alice".into()), now()).unwrap();
    let server = site.server();
    TestTlsHandshake::of(&server, &alice)
        .assert_refused(certificate(&Refusal::Revoked), AlertDescription::CertificateRevoked);
    TestTlsHandshake::of(&server, &bob).assert_accepted();
    // Without the list the revocation is unknown. Long after it was made the list still counts.
    TestTlsHandshake::of(&TlsServerCredentials { crls: Vec::new(), ..server.clone() }, &alice)
        .assert_accepted();
    TestTlsHandshake::at(NOW_S + 89 * 24 * 3600, &server, &alice, HOST)
        .assert_refused(certificate(&Refusal::Revoked), AlertDescription::CertificateRevoked);
}

#[test]
fn a_revoked_server_is_not_believed() {
    let site = TlsFixture::new();
    site.authority.revoke(&RevokedCertificateSelector::Name("dtn1".into()), now()).unwrap();
    let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(site.client("alice"))));
    assert_eq!(meeting.client_error, Some(Error::InvalidCertificate(Refusal::Revoked)));
}

#[test]
fn a_list_of_one_ca_does_not_shut_out_another() {
    let (site, other) = (TlsFixture::new(), TlsFixture::new());
    let mallory = site.trusting_client(Some(other.client("mallory")));
    let server = TlsServerCredentials {
        client_cas: [site.read("ca.pem"), other.read("ca.pem")].concat(),
        ..site.server()
    };
    TestTlsHandshake::of(&server, &mallory).assert_accepted();
    other.authority.revoke(&RevokedCertificateSelector::Name("mallory".into()), now()).unwrap();
    let crls = [site.read("revoked.pem"), other.read("revoked.pem")].concat();
    TestTlsHandshake::of(&TlsServerCredentials { crls, ..server }, &mallory)
        .assert_refused(certificate(&Refusal::Revoked), AlertDescription::CertificateRevoked);
}

#[test]
fn another_ca_is_not_trusted_whatever_its_name() {
    // Both are called "a site"; a part of their names is random.
    let (site, other) = (TlsFixture::new(), TlsFixture::new());
    let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(other.client("alice"))));
    meeting.assert_refused(certificate(&Refusal::UnknownIssuer), AlertDescription::UnknownCA);
    let meeting = TestTlsHandshake::of(&site.server(), &other.trusting_client(Some(site.client("bob"))));
    assert_eq!(meeting.client_error, Some(Error::InvalidCertificate(Refusal::UnknownIssuer)));
    // An impostor with the same name, byte by byte.
    let meeting = TestTlsHandshake::of(&site.server(), &site.trusting_client(Some(impostor(&site))));
    assert_eq!(meeting.server_error, Some(Error::InvalidCertificate(Refusal::BadSignature)));
}

/// A client's certificate that names the site's CA as issuer, signed with another key.
fn impostor(site: &TlsFixture) -> ClientCredential {
    let issuer = rcgen::Issuer::from_ca_cert_der(
        &crate::pem::certificates(&site.read("ca.pem")).unwrap()[0],
        KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(),
    )
    .unwrap();
    let pair = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let chain = params.signed_by(&pair, &issuer).unwrap().pem().into_bytes();
    ClientCredential::Certificate { chain, key: pair.serialize_pem().into() }
}

#[test]
fn a_client_that_shows_a_servers_certificate_is_refused() {
    let site = TlsFixture::new();
    let made = client_config(&site.trusting_client(Some(identity(&site.server))));
    assert!(matches!(made, Err(TlsConfigError::NotForClients { .. })));
    // A server that doesn't request a client certificate.
    let server = server_config_at(&site.server(), Arc::new(FixedClock(NOW_S))).unwrap();
    let client = reckless_client(&site, &identity(&site.server));
    let meeting = TestTlsHandshake::between(server, client, HOST);
    assert!(is_wrong_purpose(meeting.server_error.as_ref().unwrap()), "{:?}", meeting.server_error);
}

#[test]
fn a_server_that_shows_a_clients_certificate_is_refused() {
    let site = TlsFixture::new();
    let ClientCredential::Certificate { chain, key } = site.client("alice") else { unreachable!() };
    let made =
        server_config(&TlsServerCredentials { chain: chain.clone(), key: key.clone(), ..site.server() });
    assert!(matches!(made, Err(TlsConfigError::NotForServers { .. })));
    let server = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(crate::pem::certificates(&chain).unwrap(), crate::pem::private_key(&key).unwrap())
        .unwrap();
    let client = client_config_at(&site.trusting_client(None), Arc::new(FixedClock(NOW_S))).unwrap();
    let meeting = TestTlsHandshake::between(Arc::new(server), client, "alice");
    let error = meeting.client_error.unwrap();
    assert!(
        is_wrong_purpose(&error)
            || matches!(error, Error::InvalidCertificate(Refusal::NotValidForNameContext { .. })),
        "{error:?}"
    );
}

#[test]
fn a_server_of_another_name_is_not_believed() {
    let site = TlsFixture::new();
    let client = site.trusting_client(Some(site.client("alice")));
    for host in ["dtn2.example.org", "example.org", "x.dtn1.example.org", "10.0.0.8"] {
        let error = TestTlsHandshake::at(NOW_S, &site.server(), &client, host).client_error.unwrap();
        let is_reason = matches!(
            error,
            Error::InvalidCertificate(Refusal::NotValidForName | Refusal::NotValidForNameContext { .. })
        );
        assert!(is_reason && handshake_hint(&error).is_some(), "{host}: {error:?}");
    }
    TestTlsHandshake::at(NOW_S, &site.server(), &client, "10.0.0.7").assert_accepted();
}

#[test]
fn a_key_in_the_file_is_accepted() {
    let site = TlsFixture::new();
    let public_keys = keys(SSH_KEY_PUBLIC);
    let server = TlsServerCredentials { public_keys: public_keys.clone(), ..site.server() };
    let client = site.trusting_client(Some(ClientCredential::SshKey(SSH_KEY.into())));
    let identity = TestTlsHandshake::of(&server, &client).identity(&public_keys);
    assert_eq!(identity.name, "bob@example.org");
    // As `ssh-keygen -l` prints it.
    let fingerprint = include_str!("testdata/ssh_ed25519.fingerprint").trim().to_owned();
    assert_eq!(identity.how, ProvingCredential::Key { fingerprint });
    // Also without any CA.
    let server = TlsServerCredentials { client_cas: Vec::new(), crls: Vec::new(), ..server };
    TestTlsHandshake::of(&server, &client).assert_accepted();
    // And together with certificates of the CA.
    let server = TlsServerCredentials { public_keys, ..site.server() };
    TestTlsHandshake::of(&server, &site.trusting_client(Some(site.client("alice")))).assert_accepted();
}

#[test]
fn a_key_that_is_not_in_the_file_is_refused() {
    let site = TlsFixture::new();
    let client = site.trusting_client(Some(ClientCredential::SshKey(SSH_KEY.into())));
    let other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti bob";
    for public_keys in [keys(""), keys(other)] {
        let server = TlsServerCredentials { public_keys, ..site.server() };
        TestTlsHandshake::of(&server, &client)
            .assert_refused(certificate(&Refusal::UnknownIssuer), AlertDescription::UnknownCA);
    }
}

/// A self-signed certificate for a P-256 key, valid until `end_s`, and the key's line of a public keys file.
fn self_signed(end_s: u64, uses: &[ExtendedKeyUsagePurpose]) -> (ClientCredential, String) {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(end_s)).into();
    params.extended_key_usages = uses.to_vec();
    let chain = params.self_signed(&pair).unwrap().pem().into_bytes();
    let point = ssh_key::public::EcdsaPublicKey::from_sec1_bytes(pair.public_key_raw()).unwrap();
    let line = ssh_key::PublicKey::new(point.into(), "carol").to_openssh().unwrap();
    (ClientCredential::Certificate { chain, key: pair.serialize_pem().into() }, line)
}

#[test]
fn a_self_signed_certificate_of_a_known_key_counts_until_its_end() {
    let site = TlsFixture::new();
    let (identity, line) = self_signed(NOW_S + 60, &[ExtendedKeyUsagePurpose::ClientAuth]);
    let public_keys = keys(&line);
    let server = TlsServerCredentials { public_keys: public_keys.clone(), ..site.server() };
    let client = site.trusting_client(Some(identity));
    // The name is the file's, not the certificate's.
    assert_eq!(TestTlsHandshake::of(&server, &client).identity(&public_keys).name, "carol");
    TestTlsHandshake::at(NOW_S + 61, &server, &client, HOST)
        .assert_refused(is_expired, AlertDescription::CertificateExpired);
}

#[test]
fn who_shows_a_certificate_without_its_key_is_refused() {
    let site = TlsFixture::new();
    let (ClientCredential::Certificate { chain, .. }, line) = self_signed(NOW_S + 60, &[]) else {
        unreachable!()
    };
    let ClientCredential::Certificate { key, .. } = self_signed(NOW_S + 60, &[]).0 else { unreachable!() };
    let stolen = ClientCredential::Certificate { chain: chain.clone(), key };
    assert!(matches!(
        client_config(&site.trusting_client(Some(stolen.clone()))),
        Err(TlsConfigError::Refused(_))
    ));
    let server = TlsServerCredentials { public_keys: keys(&line), ..site.server() };
    let server = server_config_at(&server, Arc::new(FixedClock(NOW_S))).unwrap();
    let meeting = TestTlsHandshake::between(server, reckless_client(&site, &stolen), HOST);
    assert_eq!(meeting.server_error, Some(Error::InvalidCertificate(Refusal::BadSignature)));
}

/// A client that shows any identity that it is given.
fn reckless_client(site: &TlsFixture, identity: &ClientCredential) -> Arc<rustls::ClientConfig> {
    #[derive(Debug)]
    struct AlwaysCertificate(Arc<rustls::sign::CertifiedKey>);
    impl rustls::client::ResolvesClientCert for AlwaysCertificate {
        fn resolve(
            &self,
            _: &[&[u8]],
            _: &[rustls::SignatureScheme],
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let ClientCredential::Certificate { chain, key } = identity else { unreachable!() };
    let key = provider().key_provider.load_private_key(crate::pem::private_key(key).unwrap()).unwrap();
    let shown = rustls::sign::CertifiedKey::new(crate::pem::certificates(chain).unwrap(), key);
    let mut config = Arc::unwrap_or_clone(
        client_config_at(&site.trusting_client(None), Arc::new(FixedClock(NOW_S))).unwrap(),
    );
    config.client_auth_cert_resolver = Arc::new(AlwaysCertificate(Arc::new(shown)));
    Arc::new(config)
}

#[test]
fn without_a_certificate_only_where_tokens_count() {
    let site = TlsFixture::new();
    let nobody = site.trusting_client(None);
    TestTlsHandshake::of(&site.server(), &nobody).assert_refused(
        |error| *error == Error::NoCertificatesPresented,
        AlertDescription::CertificateRequired,
    );
    let tokens = TlsServerCredentials { tokens: true, ..site.server() };
    let meeting = TestTlsHandshake::of(&tokens, &nobody);
    meeting.assert_accepted();
    assert!(meeting.server.peer_certificates().is_none());
    // Tokens don't let a bad certificate pass.
    let other = TlsFixture::new();
    let meeting = TestTlsHandshake::of(&tokens, &site.trusting_client(Some(other.client("alice"))));
    assert!(meeting.server_error.is_some());
    // A server may accept tokens alone.
    let only = TlsServerCredentials { client_cas: Vec::new(), crls: Vec::new(), ..tokens };
    TestTlsHandshake::of(&only, &nobody).assert_accepted();
    TestTlsHandshake::of(&only, &site.trusting_client(Some(site.client("bob"))))
        .assert_refused(certificate(&Refusal::UnknownIssuer), AlertDescription::UnknownCA);
}

#[test]
fn another_application_protocol_is_refused() {
    let site = TlsFixture::new();
    let server = server_config_at(&site.server(), Arc::new(FixedClock(NOW_S))).unwrap();
    let trust = site.trusting_client(Some(site.client("alice")));
    let mut client = Arc::unwrap_or_clone(client_config_at(&trust, Arc::new(FixedClock(NOW_S))).unwrap());
    client.alpn_protocols = vec![b"h2".to_vec()];
    let meeting = TestTlsHandshake::between(server.clone(), Arc::new(client.clone()), HOST);
    assert_eq!(meeting.server_error, Some(Error::NoApplicationProtocol));
    // A client that offers no protocol passes TLS; the check afterwards shows it.
    client.alpn_protocols.clear();
    let meeting = TestTlsHandshake::between(server, Arc::new(client), HOST);
    meeting.assert_accepted();
    assert!(!speaks_carrack(meeting.server.alpn_protocol()));
}

/// A ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2) in a record: no `supported_versions`.
fn hello_of_tls12() -> Vec<u8> {
    let suites = [0xc0, 0x2b, 0xc0, 0x2c, 0x00, 0x9c];
    let extensions = [
        0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x1d, // supported_groups: x25519
        0x00, 0x0d, 0x00, 0x06, 0x00, 0x04, 0x04, 0x03, 0x08, 0x07, // signature_algorithms
        0x00, 0x0b, 0x00, 0x02, 0x01, 0x00, // ec_point_formats
    ];
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, suites.len() as u8]);
    body.extend(suites);
    body.extend([1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn tls_before_1_3_is_refused() {
    let site = TlsFixture::new();
    let mut server = ServerConnection::new(server_config(&site.server()).unwrap()).unwrap();
    server.read_tls(&mut &hello_of_tls12()[..]).unwrap();
    let error = server.process_new_packets().unwrap_err();
    let reason = rustls::PeerIncompatible::SupportedVersionsExtensionRequired;
    assert_eq!(error, Error::PeerIncompatible(reason));
    let mut answer = Vec::new();
    server.write_tls(&mut answer).unwrap();
    // An alert record: fatal, protocol_version.
    assert_eq!((answer[0], &answer[5..7]), (21, &[2, 70][..]));
}

#[test]
fn material_that_would_weaken_a_server_makes_none() {
    let site = TlsFixture::new();
    let good = site.server();
    fn refusal(trust: TlsServerCredentials) -> TlsConfigError {
        server_config(&trust).map(drop).unwrap_err()
    }
    let leaf = TlsServerCredentials { client_cas: good.chain.clone(), crls: Vec::new(), ..good.clone() };
    assert!(matches!(refusal(leaf), TlsConfigError::NoAuthority { .. }));
    let nobody = TlsServerCredentials { client_cas: Vec::new(), crls: Vec::new(), ..good.clone() };
    assert!(matches!(refusal(nobody), TlsConfigError::NobodyAdmitted));
    let nonsense = TlsServerCredentials { crls: b"nonsense".to_vec(), ..good.clone() };
    assert!(matches!(refusal(nonsense), TlsConfigError::Pem { .. }));
    let no_key = TlsServerCredentials { key: good.chain.clone(), ..good.clone() };
    assert!(matches!(refusal(no_key), TlsConfigError::Pem { .. }));
    let other_key = TlsServerCredentials { key: TlsFixture::new().server().key, ..good.clone() };
    assert!(matches!(refusal(other_key), TlsConfigError::Refused(Error::InconsistentKeys(_))));
    let foreign = TlsFixture::new().read("revoked.pem");
    assert!(matches!(
        refusal(TlsServerCredentials { crls: foreign, ..good }),
        TlsConfigError::ForeignList { .. }
    ));
}

#[test]
fn ssh_keys_that_can_not_be_used_say_why() {
    let site = TlsFixture::new();
    fn refusal(site: &TlsFixture, key: &str) -> TlsConfigError {
        client_config(&site.trusting_client(Some(ClientCredential::SshKey(key.into()))))
            .map(drop)
            .unwrap_err()
    }
    let encrypted = refusal(&site, SSH_KEY_ENCRYPTED);
    assert!(matches!(encrypted, TlsConfigError::EncryptedKey), "{encrypted}");
    assert!(encrypted.hint().unwrap().contains("ssh-keygen -t ed25519 -N ''"));
    assert!(matches!(refusal(&site, SSH_KEY_P256), TlsConfigError::KeyType(_)));
    assert!(matches!(refusal(&site, "nonsense"), TlsConfigError::SshKey(_)));
    assert!(matches!(refusal(&site, SSH_KEY_PUBLIC), TlsConfigError::SshKey(_)));
}

#[test]
fn secrets_are_not_shown() {
    let site = TlsFixture::new();
    let shown = format!("{:?} {:?}", site.server(), site.trusting_client(Some(site.client("alice"))));
    assert!(
        !shown.contains("PRIVATE")
            && !shown.contains("45, 45, 45, 45, 45, 66, 69, 71, 73, 78, 32, 80, 82, 73")
    );
}

/// Returns true if a program has a symbol. It is given in two parts, as the tests' own text is in it, too.
fn holds(program: &[u8], symbol: [&str; 2]) -> bool {
    let symbol = symbol.concat();
    program.windows(symbol.len()).any(|bytes| bytes == symbol.as_bytes())
}

/// Its start takes 25 ms of the processor in each process, and a daemon starts one for each connection.
#[test]
fn the_processors_jitter_is_no_source_of_random_numbers() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // The symbols are there to look for.
    assert!(holds(&program, ["CTR_DRBG", "_generate"]));
    assert!(!holds(&program, ["jent_read", "_entropy"]), "see .cargo/config.toml");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn material_of_any_bytes_makes_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let pem = [b"-----BEGIN CERTIFICATE-----\n", &bytes[..], b"\n-----END CERTIFICATE-----\n"].concat();
        for bytes in [bytes, pem] {
            let trust = TlsServerCredentials { chain: bytes.clone(), key: bytes.clone(), ..TlsServerCredentials::default() };
            prop_assert!(server_config(&trust).is_err());
            let identity = Some(ClientCredential::SshKey(bytes.clone()));
            let trust = ClientTrust { cas: Some(bytes), crls: Vec::new(), identity };
            prop_assert!(client_config(&trust).is_err());
        }
    }
}
