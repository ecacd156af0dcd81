//! Valid tokens, and invalid ones of each kind.

use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use serde_json::{Value, json};

use super::*;
use crate::proved_identity::{ProvedIdentity, ProvingCredential};

const NOW_S: u64 = 1_800_000_000;
const ISSUER: &str = "https://site.example.org";
const AUDIENCE: &str = "dtn1.example.org";

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// An issuer and a daemon that trusts it.
struct TokenFixture {
    pair: KeyPair,
    keys: TokenVerifier,
}

impl TokenFixture {
    fn new() -> TokenFixture {
        TokenFixture::with(&PKCS_ED25519)
    }

    fn with(algorithm: &'static rcgen::SignatureAlgorithm) -> TokenFixture {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let mut keys = TokenVerifier::default();
        keys.add_issuer(ISSUER, AUDIENCE, pair.public_key_pem().as_bytes()).unwrap();
        TokenFixture { pair, keys }
    }

    fn signer(&self) -> TokenSigner {
        TokenSigner::new(ISSUER, &self.pair.serialize_pem()).unwrap()
    }

    /// Signs any claims with the issuer's key (of Ed25519).
    fn sign(&self, claims: &Value) -> String {
        let key = EncodingKey::from_ed_der(self.pair.serialized_der());
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, &key).unwrap()
    }

    fn verify(&self, token: &str) -> Result<ValidToken, TokenError> {
        self.keys.verify(token, at(NOW_S))
    }

    /// Verifies good claims after a change.
    fn changed(&self, change: impl FnOnce(&mut Value)) -> Result<ValidToken, TokenError> {
        let mut claims = good();
        change(&mut claims);
        self.verify(&self.sign(&claims))
    }
}

fn good() -> Value {
    json!({
        "iss": ISSUER, "sub": "alice", "aud": AUDIENCE, "iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 600,
        "jti": "7", "scope": "storage.read:/data"
    })
}

fn grant(lifetime_s: u64) -> IssuedTokenContent {
    let scope = TokenScope::parse("storage.read:/data storage.create:/out").unwrap();
    let lifetime = Duration::from_secs(lifetime_s);
    IssuedTokenContent { subject: "alice".into(), audience: AUDIENCE.into(), scope, lifetime }
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        let digits = (0..=chunk.len()).map(|i| DIGITS[(bits >> (18 - 6 * i) & 63) as usize] as char);
        encoded.extend(digits);
    }
    encoded
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}.", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()))
}

#[test]
fn what_is_minted_is_believed() {
    for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256] {
        let world = TokenFixture::with(algorithm);
        let (text, id) = world.signer().mint(&grant(600), at(NOW_S)).unwrap();
        let token = world.verify(&text).unwrap();
        let how = ProvingCredential::Token { issuer: ISSUER.into(), id };
        assert_eq!(token.identity, ProvedIdentity { name: "alice".into(), how });
        assert_eq!((token.scope, token.expires), (grant(600).scope, at(NOW_S + 600)));
    }
}

#[test]
fn ids_differ() {
    let signer = TokenFixture::new().signer();
    let [first, second] = [(); 2].map(|()| signer.mint(&grant(60), at(NOW_S)).unwrap().1);
    assert_ne!(first, second);
}

#[test]
fn good_claims_are_good() {
    let world = TokenFixture::new();
    assert_eq!(world.verify(&world.sign(&good())).unwrap().identity.name, "alice");
    assert!(world.changed(|claims| claims["aud"] = json!(["other", AUDIENCE])).is_ok());
    assert!(world.changed(|claims| drop(claims.as_object_mut().unwrap().remove("nbf"))).is_ok());
    assert!(world.changed(|claims| claims["unknown"] = json!({"a": 1})).is_ok());
}

#[test]
fn without_a_signature_is_refused() {
    let world = TokenFixture::new();
    for algorithm in ["none", "None", "NONE", ""] {
        let token = unsigned(&json!({"alg": algorithm, "typ": "JWT"}), &good());
        assert_eq!(world.verify(&token), Err(TokenError::Header), "{algorithm}");
    }
    let token = unsigned(&json!({"alg": "EdDSA"}), &good());
    assert_eq!(world.verify(&token), Err(TokenError::Signature));
    assert_eq!(world.verify(&unsigned(&json!({"typ": "JWT"}), &good())), Err(TokenError::Header));
}

#[test]
fn an_hmac_with_the_public_key_is_refused() {
    for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256] {
        let world = TokenFixture::with(algorithm);
        let secrets = [
            world.pair.public_key_pem().into_bytes(),
            rcgen::PublicKeyData::subject_public_key_info(&world.pair),
            world.pair.public_key_raw().to_vec(),
        ];
        for secret in secrets {
            let key = EncodingKey::from_secret(&secret);
            let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &good(), &key).unwrap();
            assert_eq!(world.verify(&token), Err(TokenError::Header));
        }
    }
}

#[test]
fn another_key_is_refused_even_if_the_token_brings_it_along() {
    let (world, thief) = (TokenFixture::new(), TokenFixture::new());
    assert_eq!(world.verify(&thief.sign(&good())), Err(TokenError::Signature));
    let header = json!({
        "alg": "EdDSA", "kid": "1", "jku": "https://thief.example.org/",
        "jwk": {"kty": "OKP", "crv": "Ed25519", "x": base64url(thief.pair.public_key_raw())}
    });
    let body = unsigned(&header, &good());
    let signature = rcgen::SigningKey::sign(&thief.pair, body.trim_end_matches('.').as_bytes()).unwrap();
    assert_eq!(world.verify(&format!("{body}{}", base64url(&signature))), Err(TokenError::Signature));
}

#[test]
fn an_extension_that_has_to_be_understood_is_refused() {
    let world = TokenFixture::new();
    let header = Header { crit: Some(vec!["exp".into()]), ..Header::new(Algorithm::EdDSA) };
    let key = EncodingKey::from_ed_der(world.pair.serialized_der());
    let token = jsonwebtoken::encode(&header, &good(), &key).unwrap();
    assert_eq!(world.verify(&token), Err(TokenError::Header));
}

#[test]
fn each_claim_is_needed() {
    let world = TokenFixture::new();
    for claim in ["iss", "sub", "aud", "exp", "iat", "jti", "scope"] {
        let result = world.changed(|claims| drop(claims.as_object_mut().unwrap().remove(claim)));
        assert!(matches!(result, Err(TokenError::Claims(_))), "{claim}: {result:?}");
        let result = world.changed(|claims| claims[claim] = Value::Null);
        assert!(matches!(result, Err(TokenError::Claims(_))), "{claim}: {result:?}");
    }
    for claim in ["iss", "sub", "jti"] {
        for word in [String::new(), "x".repeat(MAX_WORD_BYTES + 1)] {
            let result = world.changed(|claims| claims[claim] = json!(word));
            assert!(matches!(result, Err(TokenError::Claims(_))), "{claim}: {result:?}");
        }
    }
    for times in [json!(-1), json!("1800000600"), json!(1e30), json!(true)] {
        let result = world.changed(|claims| claims["exp"] = times.clone());
        assert!(matches!(result, Err(TokenError::Claims(_))), "{times}: {result:?}");
    }
}

#[test]
fn a_claim_twice_is_refused() {
    let world = TokenFixture::new();
    let claims = good().to_string().replace("\"sub\":\"alice\"", "\"sub\":\"alice\",\"sub\":\"root\"");
    let body = format!("{}.{}", base64url(br#"{"alg":"EdDSA"}"#), base64url(claims.as_bytes()));
    let signature = rcgen::SigningKey::sign(&world.pair, body.as_bytes()).unwrap();
    let result = world.verify(&format!("{body}.{}", base64url(&signature)));
    assert!(matches!(result, Err(TokenError::Claims(_))), "{result:?}");
}

#[test]
fn for_somebody_else_is_refused() {
    let world = TokenFixture::new();
    assert_eq!(world.changed(|claims| claims["aud"] = json!("dtn2")), Err(TokenError::Audience));
    assert_eq!(world.changed(|claims| claims["aud"] = json!([])), Err(TokenError::Audience));
    assert_eq!(world.changed(|claims| claims["iss"] = json!("https://other")), Err(TokenError::Issuer));
}

#[test]
fn one_issuer_can_not_speak_for_another() {
    let mut world = TokenFixture::new();
    let other = TokenFixture::new();
    world.keys.add_issuer("https://other", AUDIENCE, other.pair.public_key_pem().as_bytes()).unwrap();
    assert_eq!(world.verify(&other.sign(&good())), Err(TokenError::Issuer));
    let mut claims = good();
    claims["iss"] = json!("https://other");
    assert_eq!(world.verify(&other.sign(&claims)).unwrap().identity.name, "alice");
}

#[test]
fn an_issuer_may_have_an_old_and_a_new_key() {
    let (old, mut new) = (TokenFixture::new(), TokenFixture::new());
    let both = [old.pair.public_key_pem(), new.pair.public_key_pem()].concat();
    new.keys = TokenVerifier::default();
    new.keys.add_issuer(ISSUER, AUDIENCE, both.as_bytes()).unwrap();
    assert!(new.verify(&old.sign(&good())).is_ok() && new.verify(&new.sign(&good())).is_ok());
}

#[test]
fn its_time_is_kept_with_half_a_minutes_leeway() {
    let world = TokenFixture::new();
    let token = world.sign(&good());
    for (now_s, result) in [
        (NOW_S - 31, Err(TokenError::NotYet)),
        (NOW_S - 30, Ok(())),
        (NOW_S + 629, Ok(())),
        (NOW_S + 630, Err(TokenError::Expired)),
        (0, Err(TokenError::NotYet)),
    ] {
        assert_eq!(world.keys.verify(&token, at(now_s)).map(drop), result, "{now_s}");
    }
    assert_eq!(world.changed(|claims| claims["nbf"] = json!(NOW_S + 31)), Err(TokenError::NotYet));
    assert_eq!(world.changed(|claims| claims["iat"] = json!(NOW_S + 31)), Err(TokenError::NotYet));
}

#[test]
fn a_life_that_is_too_long_is_refused() {
    let mut world = TokenFixture::new();
    let day_s = 24 * 3600;
    assert!(world.changed(|claims| claims["exp"] = json!(NOW_S + day_s)).is_ok());
    assert_eq!(
        world.changed(|claims| claims["exp"] = json!(NOW_S + day_s + 1)),
        Err(TokenError::LivesTooLong { limit_s: day_s })
    );
    assert_eq!(
        world.changed(|claims| claims["exp"] = json!(u64::MAX)),
        Err(TokenError::LivesTooLong { limit_s: day_s })
    );
    // An old `iat` does not help: the lifetime counts from it.
    assert_eq!(
        world.changed(|claims| claims["iat"] = json!(NOW_S - day_s)),
        Err(TokenError::LivesTooLong { limit_s: day_s })
    );
    world.keys.limit_lifetime(Duration::from_secs(60));
    assert_eq!(world.verify(&world.sign(&good())), Err(TokenError::LivesTooLong { limit_s: 60 }));
    world.keys.limit_lifetime(Duration::MAX);
    let result = world.changed(|claims| claims["exp"] = json!(u64::MAX));
    assert!(matches!(result, Err(TokenError::Claims(_))), "{result:?}");
}

#[test]
fn what_was_taken_back_is_refused() {
    let mut world = TokenFixture::new();
    world.keys.revoke("# stolen\n\n 8 \n");
    assert!(world.verify(&world.sign(&good())).is_ok());
    world.keys.revoke("7\r\n");
    assert_eq!(world.verify(&world.sign(&good())), Err(TokenError::Revoked));
}

#[test]
fn a_scope_or_subject_that_is_none_is_refused() {
    let world = TokenFixture::new();
    let result = world.changed(|claims| claims["scope"] = json!("openid")).map(drop);
    assert_eq!(result, Err(BadTokenScope::Empty.into()));
    let result = world.changed(|claims| claims["scope"] = json!("storage.read:/a/../b")).map(drop);
    assert!(matches!(result, Err(TokenError::Scope(BadTokenScope::Component(_)))));
    let result = world.changed(|claims| claims["sub"] = json!("al\u{202e}ice"));
    assert!(matches!(result, Err(TokenError::Subject(_))), "{result:?}");
}

#[test]
fn too_long_is_refused_unseen() {
    let world = TokenFixture::new();
    assert_eq!(world.verify(&"x".repeat(MAX_TOKEN_BYTES + 1)), Err(TokenError::TooLong));
}

#[test]
fn other_kinds_of_keys_are_no_issuers() {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let mut keys = TokenVerifier::default();
    let added = keys.add_issuer(ISSUER, AUDIENCE, pair.public_key_pem().as_bytes());
    assert!(matches!(added, Err(TokenKeysError::Kind { .. })), "{added:?}");
    assert!(matches!(keys.add_issuer("", AUDIENCE, b""), Err(TokenKeysError::Name)));
    let added = keys.add_issuer(ISSUER, AUDIENCE, pair.serialize_pem().as_bytes());
    assert!(matches!(added, Err(TokenKeysError::Pem { .. })), "{added:?}");
    assert!(keys.is_empty());
    assert!(matches!(TokenSigner::new(ISSUER, &pair.serialize_pem()), Err(MintError::Key)));
}

#[test]
fn what_would_be_refused_everywhere_is_not_minted() {
    let signer = TokenFixture::new().signer();
    for lifetime_s in [0, 24 * 3600 + 1] {
        assert!(matches!(signer.mint(&grant(lifetime_s), at(NOW_S)), Err(MintError::Lifetime)));
    }
    let nobody = IssuedTokenContent { subject: String::new(), ..grant(60) };
    assert!(matches!(signer.mint(&nobody, at(NOW_S)), Err(MintError::Subject(_))));
    let nowhere = IssuedTokenContent { audience: String::new(), ..grant(60) };
    assert!(matches!(signer.mint(&nowhere, at(NOW_S)), Err(MintError::Name)));
}

proptest! {
    #[test]
    fn a_changed_token_is_refused(at_byte in 0usize..500, to in "[A-Za-z0-9_.-]") {
        let world = TokenFixture::new();
        let (token, _) = world.signer().mint(&grant(60), at(NOW_S)).unwrap();
        let at_byte = at_byte % token.len();
        let changed = [&token[..at_byte], &to, &token[at_byte + 1..]].concat();
        prop_assert!(changed == token || world.verify(&changed).is_err());
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in "\\PC{0,60}") {
        prop_assert!(TokenFixture::new().verify(&text).is_err());
    }
}
