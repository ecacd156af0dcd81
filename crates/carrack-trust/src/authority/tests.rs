//! Authorities in temporary directories, with the time passed in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use super::*;
use crate::certificate::SubjectAlternativeName;

const NOW_S: u64 = 1_800_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S)
}

struct AuthorityFixture {
    root: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl AuthorityFixture {
    fn new() -> AuthorityFixture {
        AuthorityFixture::with(KeySignatureAlgorithm::Ed25519)
    }

    fn with(kind: KeySignatureAlgorithm) -> AuthorityFixture {
        let root = tempfile::tempdir().unwrap();
        let authority =
            CertificateAuthority::init(&root.path().join("authority"), "a site", kind, now()).unwrap();
        AuthorityFixture { root, authority }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.path().join("authority").join(file)
    }

    fn mode(&self, file: &str) -> u32 {
        fs::metadata(self.path(file)).unwrap().permissions().mode() & 0o7777
    }

    fn issue(
        &self,
        name: &str,
        purpose: &CertificateUse,
        lifetime: Duration,
    ) -> Result<IssuedCertificate, AuthorityError> {
        self.authority.issue(name, purpose, lifetime, &self.path(""), now())
    }

    fn client(&self, name: &str) -> IssuedCertificate {
        self.issue(name, &client(name), CLIENT_LIFETIME).unwrap()
    }

    fn standing(&self, issued: &IssuedCertificate) -> CertificateStatus {
        let pem = fs::read(&issued.chain).unwrap();
        self.authority.standing(&pem::certificates(&pem).unwrap()[0]).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let mut files: Vec<_> = fs::read_dir(self.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    }
}

fn client(subject: &str) -> CertificateUse {
    CertificateUse::Client { subject: subject.into() }
}

fn server(names: &[&str]) -> CertificateUse {
    CertificateUse::Server { names: names.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn a_new_one_has_its_files_and_nothing_else() {
    for kind in [KeySignatureAlgorithm::Ed25519, KeySignatureAlgorithm::P256] {
        let world = AuthorityFixture::with(kind);
        let files = ["ca-key.pem", "ca.pem", "issued.jsonl", "revoked.pem", "token-key.pem", "token.pem"];
        assert_eq!(world.files()[1..], files);
        for (file, mode) in files.into_iter().zip([0o600, 0o644, 0o600, 0o644, 0o600, 0o644]) {
            assert_eq!(world.mode(file), mode, "{file}");
        }
        let directory = fs::metadata(world.path("")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(directory, 0o700);
        let certificate = world.authority.certificate();
        assert!(certificate.uses.authority && !certificate.uses.server && !certificate.uses.client);
        let years = (certificate.not_after_s - NOW_S as i64) / (365 * 24 * 3600);
        assert_eq!((years, world.authority.name()), (10, "a site"));
    }
}

#[test]
fn one_is_never_replaced() {
    let world = AuthorityFixture::new();
    let before = fs::read(world.path("ca-key.pem")).unwrap();
    let again = CertificateAuthority::init(&world.path(""), "another", KeySignatureAlgorithm::P256, now());
    assert!(matches!(again, Err(AuthorityError::Exists(_))), "{again:?}");
    // Nor does it replace the remains of an authority.
    fs::remove_file(world.path("ca.pem")).unwrap();
    let again = CertificateAuthority::init(&world.path(""), "another", KeySignatureAlgorithm::P256, now());
    assert!(matches!(again, Err(AuthorityError::Exists(_))), "{again:?}");
    assert_eq!(fs::read(world.path("ca-key.pem")).unwrap(), before);
    assert!(matches!(CertificateAuthority::open(&world.path("")), Err(AuthorityError::Missing(_))));
}

#[test]
fn a_server_gets_its_names() {
    let world = AuthorityFixture::with(KeySignatureAlgorithm::P256);
    let names = server(&["DTN1.example.org", "10.0.0.7", "fe80::1"]);
    let issued = world.issue("dtn1", &names, SERVER_LIFETIME).unwrap();
    let certificate = &issued.certificate;
    assert_eq!(
        certificate.names,
        [
            SubjectAlternativeName::Dns("dtn1.example.org".into()),
            SubjectAlternativeName::Ip("10.0.0.7".parse().unwrap()),
            SubjectAlternativeName::Ip("fe80::1".parse().unwrap()),
        ]
    );
    assert!(certificate.uses.server && !certificate.uses.client && !certificate.uses.authority);
    assert_eq!(certificate.not_after_s, NOW_S as i64 + 397 * 24 * 3600);
    assert_eq!(certificate.not_before_s, NOW_S as i64 - 300);
    assert_eq!((world.mode("dtn1.pem"), world.mode("dtn1-key.pem")), (0o644, 0o600));
    let chain = pem::certificates(&fs::read(&issued.chain).unwrap()).unwrap();
    assert_eq!((chain.len(), &chain[1]), (2, &world.authority.der));
}

#[test]
fn a_client_gets_its_name() {
    let world = AuthorityFixture::new();
    let issued = world.issue("alice", &client("alice@example.org"), CLIENT_LIFETIME).unwrap();
    assert_eq!(issued.certificate.common_names, ["alice@example.org"]);
    assert!(issued.certificate.uses.client && !issued.certificate.uses.server);
    assert_eq!(issued.certificate.not_after_s, NOW_S as i64 + 90 * 24 * 3600);
    assert_ne!(issued.certificate.serial, world.client("bob").certificate.serial);
    assert_eq!(issued.certificate.serial.len(), 32);
}

#[test]
fn nothing_outlives_the_authority() {
    let world = AuthorityFixture::new();
    let end_s = world.authority.certificate().not_after_s;
    let long = world.issue("a", &client("a"), days(100_000)).unwrap();
    assert_eq!(long.certificate.not_after_s, end_s);
    assert_eq!(world.issue("b", &client("b"), Duration::MAX).unwrap().certificate.not_after_s, end_s);
    let end = now() + AUTHORITY_LIFETIME;
    let late = world.authority.issue("c", &client("c"), CLIENT_LIFETIME, &world.path(""), end);
    assert!(matches!(late, Err(AuthorityError::Over)), "{late:?}");
    assert!(matches!(world.issue("d", &client("d"), Duration::ZERO), Err(AuthorityError::Lifetime)));
}

#[test]
fn files_that_are_there_stay() {
    let world = AuthorityFixture::new();
    for (name, file) in [("alice", "alice.pem"), ("bob", "bob-key.pem")] {
        fs::write(world.path(file), "mine").unwrap();
        let refused = world.issue(name, &client(name), CLIENT_LIFETIME);
        assert!(matches!(refused, Err(AuthorityError::Exists(_))), "{file}: {refused:?}");
        assert_eq!(fs::read(world.path(file)).unwrap(), b"mine");
    }
    // A dangling link exists too.
    std::os::unix::fs::symlink("/nowhere", world.path("link.pem")).unwrap();
    assert!(matches!(world.issue("link", &client("x"), CLIENT_LIFETIME), Err(AuthorityError::Exists(_))));
    assert_eq!(world.authority.index().unwrap().entries, []);
    let left = world.files().into_iter().filter(|file| file.contains("partial") || file == "link-key.pem");
    assert_eq!(left.count(), 0);
}

#[test]
fn names_that_would_leave_the_directory_or_hit_its_own_files_are_refused() {
    let world = AuthorityFixture::new();
    let before = world.files();
    for name in
        ["", "..", "a/b", "/a", ".a", "-a", "ca", "ca-key", "revoked", "token", "a-key", "a.pem", "a b", "ä"]
    {
        let refused = world.issue(name, &client("a"), CLIENT_LIFETIME);
        assert!(matches!(refused, Err(AuthorityError::FileName(_))), "{name:?}: {refused:?}");
    }
    for name in ["", "a b", "*.example.org", "a..b", "-", "1.2.3.4.5"] {
        let refused = world.issue("a", &server(&[name]), SERVER_LIFETIME);
        assert!(matches!(refused, Err(AuthorityError::HostName(_))), "{name:?}: {refused:?}");
    }
    assert!(matches!(world.issue("a", &server(&[]), SERVER_LIFETIME), Err(AuthorityError::NoHostName)));
    assert!(matches!(world.issue("a", &client("a\n"), CLIENT_LIFETIME), Err(AuthorityError::Subject(_))));
    let long = client(&"x".repeat(MAX_SUBJECT_BYTES + 1));
    assert!(matches!(world.issue("a", &long, CLIENT_LIFETIME), Err(AuthorityError::SubjectTooLong)));
    assert_eq!(world.files(), before);
}

#[test]
fn what_is_revoked_is_on_the_list() {
    let world = AuthorityFixture::new();
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| world.client(name));
    let pem = fs::read(&carol.chain).unwrap();
    for which in [
        RevokedCertificateSelector::Name("alice".into()),
        RevokedCertificateSelector::Serial(bob.certificate.serial.to_uppercase()),
        RevokedCertificateSelector::Certificate(pem),
    ] {
        let revoked = world.authority.revoke(&which, now()).unwrap();
        assert_eq!((revoked.len(), revoked[0].was_before), (1, false));
    }
    for issued in [&alice, &bob, &carol] {
        assert_eq!(world.standing(issued), CertificateStatus::Revoked { since_s: NOW_S as i64 });
    }
    assert_eq!(world.standing(&dave), CertificateStatus::Good);
    assert_eq!((world.mode("revoked.pem"), world.mode("issued.jsonl")), (0o644, 0o600));
}

#[test]
fn revoking_twice_keeps_the_first_time_and_mends_the_list() {
    let world = AuthorityFixture::new();
    let empty = fs::read(world.path("revoked.pem")).unwrap();
    let alice = world.client("alice");
    let which = RevokedCertificateSelector::Name("alice".into());
    world.authority.revoke(&which, now()).unwrap();
    // As if the process had died between index and list.
    fs::write(world.path("revoked.pem"), empty).unwrap();
    assert_eq!(world.standing(&alice), CertificateStatus::Good);
    let again = world.authority.revoke(&which, now() + days(1)).unwrap();
    assert!(again[0].was_before);
    assert_eq!(world.standing(&alice), CertificateStatus::Revoked { since_s: NOW_S as i64 });
}

#[test]
fn a_name_stands_for_all_that_were_issued_by_it() {
    let world = AuthorityFixture::new();
    let first = world.client("alice");
    let old = world.path("old.pem");
    fs::rename(&first.chain, &old).unwrap();
    fs::remove_file(&first.key).unwrap();
    let second = world.client("alice");
    assert_eq!(
        world.authority.revoke(&RevokedCertificateSelector::Name("alice".into()), now()).unwrap().len(),
        2
    );
    let first = IssuedCertificate { chain: old, ..first };
    assert!(matches!(world.standing(&first), CertificateStatus::Revoked { .. }));
    assert!(matches!(world.standing(&second), CertificateStatus::Revoked { .. }));
}

#[test]
fn what_was_not_issued_here_can_not_be_revoked() {
    let (world, other) = (AuthorityFixture::new(), AuthorityFixture::new());
    let foreign = other.client("alice");
    let list = fs::read(world.path("revoked.pem")).unwrap();
    for which in [
        RevokedCertificateSelector::Name("alice".into()),
        RevokedCertificateSelector::Serial(foreign.certificate.serial.clone()),
        RevokedCertificateSelector::Certificate(fs::read(&foreign.chain).unwrap()),
    ] {
        let refused = world.authority.revoke(&which, now());
        assert!(matches!(refused, Err(AuthorityError::Unknown(_))), "{refused:?}");
    }
    let refused =
        world.authority.revoke(&RevokedCertificateSelector::Certificate(b"nonsense".to_vec()), now());
    assert!(matches!(refused, Err(AuthorityError::Pem(_))), "{refused:?}");
    assert_eq!(fs::read(world.path("revoked.pem")).unwrap(), list);
    assert_eq!(world.standing(&foreign), CertificateStatus::Foreign);
    assert_eq!(world.authority.standing(&world.authority.der).unwrap(), CertificateStatus::Own);
}

#[test]
fn a_list_of_somebody_else_is_not_believed() {
    let (world, other) = (AuthorityFixture::new(), AuthorityFixture::new());
    let alice = world.client("alice");
    fs::copy(other.path("revoked.pem"), world.path("revoked.pem")).unwrap();
    let der = pem::certificates(&fs::read(&alice.chain).unwrap()).unwrap();
    let standing = world.authority.standing(&der[0]);
    assert!(matches!(standing, Err(AuthorityError::Damaged { .. })), "{standing:?}");
}

#[test]
fn another_authoritys_key_signs_nothing() {
    let (world, other) = (AuthorityFixture::new(), AuthorityFixture::new());
    fs::copy(other.path("ca-key.pem"), world.path("ca-key.pem")).unwrap();
    let refused = world.issue("alice", &client("alice"), CLIENT_LIFETIME);
    assert!(matches!(refused, Err(AuthorityError::NoPair)), "{refused:?}");
}

#[test]
fn a_damaged_index_stops_everything() {
    let world = AuthorityFixture::new();
    world.client("alice");
    fs::write(world.path("issued.jsonl"), "{}").unwrap();
    let refused = world.authority.revoke(&RevokedCertificateSelector::Name("alice".into()), now());
    assert!(matches!(refused, Err(AuthorityError::Damaged { .. })), "{refused:?}");
    assert!(matches!(world.issue("bob", &client("b"), CLIENT_LIFETIME), Err(AuthorityError::Damaged { .. })));
}

#[test]
fn several_at_once_lose_nothing() {
    let world = AuthorityFixture::new();
    thread::scope(|scope| {
        for worker in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..5 {
                    world.client(&format!("client-{worker}-{turn}"));
                }
                world
                    .authority
                    .revoke(&RevokedCertificateSelector::Name(format!("client-{worker}-0")), now())
                    .unwrap();
            });
        }
    });
    let index = world.authority.index().unwrap();
    assert_eq!(index.entries.len(), 20);
    let list = fs::read(world.path("revoked.pem")).unwrap();
    assert_eq!(new_certificate::revocations(&list, &world.authority.der).unwrap().len(), 4);
}

#[test]
fn of_several_that_want_one_name_one_gets_it() {
    let world = AuthorityFixture::new();
    let winners = thread::scope(|scope| {
        let tries: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| world.issue("alice", &client("alice"), CLIENT_LIFETIME).is_ok()))
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(winners, 1);
    assert_eq!(world.authority.index().unwrap().entries.len(), 1);
}

#[test]
fn tokens_are_signed_with_a_key_of_their_own() {
    let world = AuthorityFixture::with(KeySignatureAlgorithm::P256);
    let [certificates, tokens] =
        ["ca-key.pem", "token-key.pem"].map(|file| fs::read(world.path(file)).unwrap());
    assert_ne!(certificates, tokens);
    let grant = crate::IssuedTokenContent {
        subject: "alice".into(),
        audience: "dtn1".into(),
        scope: crate::TokenScope::parse("storage.read:/data").unwrap(),
        lifetime: Duration::from_secs(60),
    };
    let (token, _) = world.authority.token_signer().unwrap().mint(&grant, now()).unwrap();
    let mut keys = crate::TokenVerifier::default();
    keys.add_issuer("a site", "dtn1", &fs::read(world.path("token.pem")).unwrap()).unwrap();
    assert_eq!(keys.verify(&token, now()).unwrap().identity.name, "alice");
}
