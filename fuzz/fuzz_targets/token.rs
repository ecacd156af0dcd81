//! Which tokens are believed. Input: whether the rest is a token or claims (1 byte; bit 0: claims, which
//! the issuer signs), then the text.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use carrack_fuzz::site::Site;
use carrack_trust::{ProvingCredential, TokenScope, TokenError, TokenVerifier, check_identity_name};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The time at which tokens are looked at, seconds since 1970.
const NOW_S: u64 = 1_700_000_000;

/// How far clocks may be apart, and how long tokens may live.
const LEEWAY_S: u64 = 30;
const LIFETIME_S: u64 = 3600;

static KEYS: LazyLock<(TokenVerifier, EncodingKey)> = LazyLock::new(|| {
    let site = Site::new();
    let mut keys = TokenVerifier::default();
    keys.add_issuer("us", "here", &site.read("authority/token.pem")).expect("a key");
    keys.revoke("taken-back");
    keys.limit_lifetime(Duration::from_secs(LIFETIME_S));
    let key = EncodingKey::from_ed_pem(&site.read("authority/token-key.pem")).expect("a key");
    (keys, key)
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let (keys, key) = &*KEYS;
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
    if choice & 1 == 0 {
        let verified = keys.verify(&String::from_utf8_lossy(text), now);
        assert!(verified.is_err(), "a token that nobody signed: {verified:?}");
        return;
    }
    let Ok(claims) = serde_json::from_slice::<Value>(text) else { return };
    let Ok(token) = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, key) else { return };
    let verified = keys.verify(&token, now);
    assert_eq!(verified.is_ok(), is_good(&claims, token.len()), "{claims}: {verified:?}");
    match verified {
        Ok(token) => {
            assert_eq!(Some(token.identity.name.as_str()), claims["sub"].as_str());
            assert!(matches!(token.identity.how, ProvingCredential::Token { issuer, .. } if issuer == "us"));
            assert_eq!(
                Some(token.scope),
                claims["scope"].as_str().and_then(|scope| TokenScope::parse(scope).ok())
            );
        }
        Err(error) => assert!(!matches!(error, TokenError::Signature), "it is signed"),
    }
});

/// Whether the claims are all there and say what they have to, by another way than the crate's.
fn is_good(claims: &Value, token_bytes: usize) -> bool {
    let word = |name: &str| claims[name].as_str().filter(|word| (1..=512).contains(&word.len()));
    let (Some("us"), Some(subject), Some(id)) = (word("iss"), word("sub"), word("jti")) else { return false };
    let is_for_here = match &claims["aud"] {
        Value::String(one) => one == "here",
        Value::Array(all) => all.iter().all(Value::is_string) && all.iter().any(|one| one == "here"),
        _ => false,
    };
    let (Some(until), Some(made)) = (claims["exp"].as_u64(), claims["iat"].as_u64()) else { return false };
    let from = match &claims["nbf"] {
        Value::Null => made,
        from => match from.as_u64() {
            Some(from) => from.max(made),
            None => return false,
        },
    };
    let is_now =
        from <= NOW_S + LEEWAY_S && until > NOW_S - LEEWAY_S && until.saturating_sub(made) <= LIFETIME_S;
    let scope = claims["scope"].as_str();
    is_for_here
        && is_now
        && id != "taken-back"
        && check_identity_name(subject).is_ok()
        && scope.is_some_and(|scope| TokenScope::parse(scope).is_ok())
        && token_bytes <= carrack_trust::MAX_TOKEN_BYTES
}
