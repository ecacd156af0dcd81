//! Credentials that are invalid, or for another purpose.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use carrack_model::{AgreedTransferSpec, ProtectionLevel};
use carrack_trust::{ClientCredential, TokenSigner};
use carrack_wire::message::{ControlMessage, HelloMessage};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::Attack;
use super::arena::{Arena, mint};
use super::client::{Client, End, hello, reading, spec, writing};

const MINUTES: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);

pub const ATTACKS: &[Attack] = &[
    ("a certificate of another authority", "alert: UnknownCA", |arena| {
        shown(arena, arena.foreign.identity("mallory"))
    }),
    ("a certificate that its owner has signed", "alert: UnknownCA", |arena| {
        let path = arena.foreign.path().join("authority");
        shown_as_it_is(arena, &path.join("ca.pem"), &path.join("ca-key.pem"))
    }),
    ("an expired certificate", "alert: CertificateExpired", |arena| named(arena, "expired")),
    ("a certificate of the day after tomorrow", "alert: CertificateExpired", |arena| named(arena, "early")),
    ("a revoked certificate", "alert: CertificateRevoked", |arena| named(arena, "taken-back")),
    ("a server's certificate", "alert: UnsupportedCertificate", |arena| named(arena, "server")),
    ("another protocol of a known client", "alert: NoApplicationProtocol", |arena| {
        let mut config = ClientConfig::clone(&arena.config_of("mallory"));
        config.alpn_protocols = vec![b"h2".to_vec()];
        ask_with(arena, config, writing(b"/data/in"))
    }),
    ("no protocol of a known client", "closed", |arena| {
        let mut config = ClientConfig::clone(&arena.config_of("mallory"));
        config.alpn_protocols.clear();
        ask_with(arena, config, writing(b"/data/in"))
    }),
    ("nobody", "refused: the daemon does not know who you are", |arena| token(arena, "", "/data/in")),
    ("somebody without a rule", "refused: no export data is open to you", |arena| {
        ask(arena, "stranger", writing(b"/data/in"))
    }),
    ("a right to read, used to write", "refused: database does not let you write", |arena| {
        ask(arena, "mallory", writing(b"/database/rows"))
    }),
    ("an export of somebody else's, and one that there isn't", "refused: no export", |arena| {
        let ends = [&b"/closed/x"[..], b"/nowhere/x"].map(|path| ask(arena, "mallory", reading(&[path], 4)));
        assert_eq!(
            ends[0].to_string(),
            ends[1].to_string().replace("nowhere", "closed"),
            "they can be told apart"
        );
        let [_, end] = ends;
        end
    }),
    ("two exports at once", "refused: the paths are of several exports", |arena| {
        ask(arena, "mallory", reading(&[b"/data/tree", b"/database/rows"], 4))
    }),
    (
        "less protection than the export wants: clear",
        "refused: the other end does not let data travel clear",
        |arena| protected(arena, ProtectionLevel::Clear),
    ),
    (
        "less protection than the export wants: safe",
        "refused: the other end does not let data travel safe",
        |arena| protected(arena, ProtectionLevel::Safe),
    ),
    (
        "a protection that there isn't",
        "refused: the peer broke the protocol: a control message that can't be read: unknown variant `None`",
        |arena| {
            let mut hello = writing(b"/data/in");
            hello.spec = hello.spec.replacen("\"Private\"", "\"None\"", 1);
            ask(arena, "mallory", hello)
        },
    ),
    (
        "a cipher that there isn't",
        "refused: the peer broke the protocol: a control message that can't be read: unknown variant `None`",
        |arena| {
            let mut hello = writing(b"/data/in");
            hello.spec = hello.spec.replacen("\"Aes256Gcm\"", "\"None\"", 1);
            ask(arena, "mallory", hello)
        },
    ),
    ("a token that has expired", "refused: the token has expired", |arena| {
        let token = arena.token("this", "storage.modify:/data", MINUTES, SystemTime::now() - HOUR);
        self::token(arena, &token, "/data/in")
    }),
    ("a token that is not valid yet", "refused: the token is not valid yet", |arena| {
        let token = arena.token("this", "storage.modify:/data", MINUTES, SystemTime::now() + HOUR);
        self::token(arena, &token, "/data/in")
    }),
    ("a token that lives too long", "refused: the token is made to live longer than 3600 s", |arena| {
        let token = arena.token("this", "storage.modify:/data", 3 * HOUR, SystemTime::now());
        self::token(arena, &token, "/data/in")
    }),
    ("a token for another daemon", "refused: the token is for another audience", |arena| {
        let token = arena.token("that", "storage.modify:/data", MINUTES, SystemTime::now());
        self::token(arena, &token, "/data/in")
    }),
    ("a token of an issuer of the same name", "refused: the token's signature is of no issuer", |arena| {
        let signer = arena.foreign.authority().token_signer().expect("an issuer");
        token(arena, &mallorys(&signer), "/data/in")
    }),
    (
        "a token that says it is of another issuer",
        "refused: the token says it is of another issuer",
        |arena| {
            let key = fs::read_to_string(arena.site.path().join("authority/token-key.pem")).expect("a key");
            token(arena, &mallorys(&TokenSigner::new("another site", &key).expect("an issuer")), "/data/in")
        },
    ),
    ("a token that was taken back", "refused: the token is revoked", |arena| {
        let revoked = fs::read_to_string(arena.site.path().join("revoked-token")).expect("a token");
        token(arena, &revoked, "/data/in")
    }),
    ("a token to read, used to write", "refused: the token does not let you write there", |arena| {
        scope(arena, "storage.read:/data", "/data/in")
    }),
    ("a token to create, used to replace", "refused: the token does not let you write there", |arena| {
        scope(arena, "storage.create:/data", "/data/in")
    }),
    ("a token for a path beside", "refused: the token does not let you write there", |arena| {
        scope(arena, "storage.modify:/data/inside", "/data/in")
    }),
    ("a token for the path above, by its name", "refused: the token does not let you write there", |arena| {
        scope(arena, "storage.modify:/data/in", "/data/inside")
    }),
    ("a token for /data, used for /database", "refused: the token does not let you read there", |arena| {
        let hello = reading(&[b"/database/rows"], 4);
        let token = arena.token("this", "storage.read:/data", MINUTES, SystemTime::now());
        ask_with(arena, ClientConfig::clone(&arena.config_with(None)), HelloMessage { token, ..hello })
    }),
    ("a token's path that leads out with dots", "refused: the token does not let you write there", |arena| {
        scope(arena, "storage.modify:/data/in", "/data/in/../tree")
    }),
    ("a token that gives more than the rule", "refused: database does not let you write", |arena| {
        scope(arena, "storage.modify:/", "/database/rows")
    }),
    ("a token without a signature", "refused: this is no token", |arena| {
        let [_, claims, _] = pieces(arena);
        token(arena, &format!("{}.{claims}.", base64(br#"{"alg":"none","typ":"JWT"}"#)), "/data/in")
    }),
    (
        "a token with its signature cut off",
        "refused: the token's signature is of no issuer that is known here",
        |arena| {
            let [header, claims, _] = pieces(arena);
            token(arena, &format!("{header}.{claims}."), "/data/in")
        },
    ),
    ("a token whose secret would be the public key", "refused: this is no token", |arena| {
        let [_, claims, signature] = pieces(arena);
        token(
            arena,
            &format!("{}.{claims}.{signature}", base64(br#"{"alg":"HS256","typ":"JWT"}"#)),
            "/data/in",
        )
    }),
    (
        "a token with other claims than were signed",
        "refused: the token's signature is of no issuer",
        |arena| {
            let [header, _, signature] = pieces(arena);
            let claims = base64(br#"{"iss":"a site","sub":"alice","aud":"this","exp":99999999999,"iat":0,"jti":"1","scope":"storage.modify:/"}"#);
            token(arena, &format!("{header}.{claims}.{signature}"), "/data/in")
        },
    ),
    ("a token of 200 kB", "refused: the token is longer than", |arena| {
        token(arena, &"A".repeat(200_000), "/data/in")
    }),
    ("a token of noise", "refused: this is no token", |arena| token(arena, "\u{1b}[2J.\0.é", "/data/in")),
    ("a bad token beside a good certificate", "refused: this is no token", |arena| {
        ask(arena, "mallory", HelloMessage { token: "a.b.c".into(), ..writing(b"/data/in") })
    }),
];

/// Requests mallory's rights with an invalid certificate.
fn shown(arena: &Arena, identity: ClientCredential) -> End {
    ask_with(arena, ClientConfig::clone(&arena.config_with(Some(identity))), writing(b"/data/in"))
}

/// Does the same with files that carrack's own client would not present.
fn shown_as_it_is(arena: &Arena, chain: &Path, key: &Path) -> End {
    let chain = CertificateDer::pem_file_iter(chain).expect("a chain").map(|pem| pem.expect("PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).expect("a key");
    let mut config = ClientConfig::clone(&arena.config_with(None));
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
    ask_with(arena, config, writing(b"/data/in"))
}

/// Presents the site's files of this name, independent of their purpose.
fn named(arena: &Arena, name: &str) -> End {
    let path = arena.site.path();
    shown_as_it_is(arena, &path.join(format!("{name}.pem")), &path.join(format!("{name}-key.pem")))
}

/// Returns the outcome of a hello.
pub fn ask(arena: &Arena, who: &str, hello: HelloMessage) -> End {
    ask_with(arena, ClientConfig::clone(&arena.config_of(who)), hello)
}

fn ask_with(arena: &Arena, config: ClientConfig, hello: HelloMessage) -> End {
    let asking = || {
        let mut client = Client::connect(arena.address(), config.into())?;
        client.preambles()?;
        client.say(ControlMessage::Hello(hello));
        Ok(client.end())
    };
    asking().unwrap_or_else(|end| end)
}

fn protected(arena: &Arena, protection: ProtectionLevel) -> End {
    let spec = AgreedTransferSpec { protection, ..spec() };
    ask(arena, "mallory", HelloMessage { destination: Some(b"/data/in".to_vec()), ..hello(&spec) })
}

/// Asks to write, with only a token.
fn token(arena: &Arena, token: &str, path: &str) -> End {
    let hello = HelloMessage { token: token.into(), ..writing(path.as_bytes()) };
    ask_with(arena, ClientConfig::clone(&arena.config_with(None)), hello)
}

fn scope(arena: &Arena, scope: &str, path: &str) -> End {
    token(arena, &arena.token("this", scope, MINUTES, SystemTime::now()), path)
}

fn mallorys(signer: &TokenSigner) -> String {
    mint(signer, "this", "storage.modify:/data", MINUTES, SystemTime::now()).0
}

/// Returns header, claims and signature of a valid token.
fn pieces(arena: &Arena) -> [String; 3] {
    let token = arena.token("this", "storage.modify:/data", MINUTES, SystemTime::now());
    let pieces: Vec<_> = token.split('.').map(str::to_owned).collect();
    pieces.try_into().expect("three pieces")
}

/// Encodes as in tokens (RFC 4648, 5, without padding).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let piece = |piece: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(piece.get(at).copied().unwrap_or(0)));
        (0..=piece.len()).map(|at| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char).collect::<String>()
    };
    bytes.chunks(3).map(piece).collect()
}
