//! What a token allows. Input: scope and path, with a byte 0xff between them.
#![no_main]

use carrack_trust::{TokenScopeOperation, TokenScope};
use libfuzzer_sys::fuzz_target;

const OPERATIONS: [(TokenScopeOperation, &str); 4] = [
    (TokenScopeOperation::Stat, "stat"),
    (TokenScopeOperation::Read, "read"),
    (TokenScopeOperation::Create, "create"),
    (TokenScopeOperation::Modify, "modify"),
];

fuzz_target!(|data: &[u8]| {
    let mut pieces = data.splitn(2, |&byte| byte == 0xff);
    let (text, path) = (pieces.next().unwrap_or_default(), pieces.next().unwrap_or_default());
    let Ok(text) = str::from_utf8(text) else { return };
    let Ok(scope) = TokenScope::parse(text) else { return };
    let again = TokenScope::parse(&scope.to_string());
    assert_eq!(again.as_ref(), Ok(&scope), "written again it reads the same");
    for (operation, word) in OPERATIONS {
        let is_allowed = scope.allows(operation, path);
        assert_eq!(is_allowed, is_allowed_by(text, word, path), "{word} of {path:?} by {text:?}");
        // No way leads up or sideways.
        let up = [path, b"/.."].concat();
        assert!(!scope.allows(operation, &up));
        if is_allowed {
            assert!(scope.allows(operation, &[path, b"/below"].concat()));
        }
    }
});

/// The same by comparing texts.
fn is_allowed_by(text: &str, wanted: &str, path: &[u8]) -> bool {
    let covers =
        |word: &str| word == wanted || matches!((word, wanted), ("read", "stat") | ("modify", "create"));
    let Some(path) = normal(path) else { return false };
    text.split_ascii_whitespace().filter_map(|word| word.strip_prefix("storage.")).any(|permission| {
        let Some((word, beneath)) = permission.split_once(':') else { return false };
        let Some(beneath) = decoded(beneath).as_deref().and_then(normal) else { return false };
        covers(word) && path.starts_with(&beneath)
    })
}

/// A path with one slash behind each name, so that a beginning of it is one of whole names; nothing with dots.
fn normal(path: &[u8]) -> Option<Vec<u8>> {
    let names = path.strip_prefix(b"/")?.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let mut normal = Vec::new();
    for name in names {
        if name == b"." || name == b".." || name.contains(&0) {
            return None;
        }
        normal.extend_from_slice(name);
        normal.push(b'/');
    }
    Some(normal)
}

/// Without percent signs; nothing where a slash was hidden in one.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let byte = u8::from_str_radix(piece.get(..2)?, 16).ok().filter(|_| !piece.starts_with('+'))?;
        if byte == b'/' {
            return None;
        }
        bytes.push(byte);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    Some(bytes)
}
