//! The scope of a token: operations beneath paths, as in the WLCG token profile
//! ("storage.read:/EXPORT/path").
//!
//! `storage.read` includes `storage.stat`, as a tree can't be read without listing it; `storage.modify`
//! includes `storage.create`, as in the profile. No other operation includes another.

use std::fmt;

use thiserror::Error;

/// The most permissions of a token.
pub const MAX_PERMISSIONS: usize = 64;

/// An operation at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScopeOperation {
    /// List a directory; read names, sizes and times.
    Stat,
    /// Read files.
    Read,
    /// Make new files and directories; existing ones stay unchanged.
    Create,
    /// Change, replace and remove existing entries.
    Modify,
}

/// A right over transfers of a queue (`carrack api`): `transfers.read`, `transfers.modify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferApiRight {
    /// See transfers.
    Read,
    /// Submit, cancel, pause and resume transfers; includes `Read`.
    Modify,
}

/// The reason why a scope is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadTokenScope {
    /// It names an unknown storage operation.
    #[error("{0:?} is no storage permission: they are storage.stat, .read, .create and .modify")]
    Operation(String),
    /// A storage permission has no absolute path.
    #[error("{0:?} has no absolute path: write storage.read:/EXPORT/path")]
    Path(String),
    /// A path has `.`, `..`, or an invalid name.
    #[error("{0:?} has a path with '.', '..' or a name that can't be one")]
    Component(String),
    /// It names an unknown right over transfers.
    #[error("{0:?} is no right over transfers: they are transfers.read and transfers.modify")]
    Transfers(String),
    /// It has no permission.
    #[error("it has no storage permission and no right over transfers")]
    Empty,
    /// More than [`MAX_PERMISSIONS`].
    #[error("it has more than {MAX_PERMISSIONS} permissions")]
    TooMany,
}

/// The names of a path from the root on; empty for the root.
type TokenPathComponents = Vec<Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPermission {
    operation: TokenScopeOperation,
    beneath: TokenPathComponents,
}

/// The permissions of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenScope {
    permissions: Vec<PathPermission>,
    /// The strongest of its rights over transfers.
    transfers: Option<TransferApiRight>,
}

impl TokenScope {
    /// Reads permissions that are separated by blanks. Words that begin with neither `storage.` nor
    /// `transfers.` belong to other services and are ignored.
    ///
    /// # Errors
    /// The first invalid permission: it invalidates the whole scope.
    pub fn parse(text: &str) -> Result<TokenScope, BadTokenScope> {
        let mut permissions = Vec::new();
        for word in text.split_ascii_whitespace().filter(|word| word.starts_with("storage.")) {
            if permissions.len() == MAX_PERMISSIONS {
                return Err(BadTokenScope::TooMany);
            }
            permissions.push(permission(word)?);
        }
        let mut transfers = None;
        for word in text.split_ascii_whitespace().filter(|word| word.starts_with("transfers.")) {
            transfers = match (word, transfers) {
                ("transfers.modify", _) | ("transfers.read", Some(TransferApiRight::Modify)) => {
                    Some(TransferApiRight::Modify)
                }
                ("transfers.read", _) => Some(TransferApiRight::Read),
                _ => return Err(BadTokenScope::Transfers(word.to_owned())),
            };
        }
        if permissions.is_empty() && transfers.is_none() {
            return Err(BadTokenScope::Empty);
        }
        Ok(TokenScope { permissions, transfers })
    }

    /// Returns true if the scope has this right over transfers. It does not check their owner.
    pub fn allows_transfers(&self, right: TransferApiRight) -> bool {
        match self.transfers {
            Some(TransferApiRight::Modify) => true,
            Some(TransferApiRight::Read) => right == TransferApiRight::Read,
            None => false,
        }
    }

    /// Returns true if `operation` is allowed at `path`, which is absolute and taken literally
    /// (`/EXPORT/sub/path`). A path with `.` or `..` is never allowed.
    pub fn allows(&self, operation: TokenScopeOperation, path: &[u8]) -> bool {
        let Some(path) = components(path) else { return false };
        self.permissions
            .iter()
            .any(|permission| permission.operation.covers(operation) && path.starts_with(&permission.beneath))
    }

    /// The paths beneath `/TOP` where one of `operations` is allowed, relative to it. The empty path stands
    /// for all of `/TOP`.
    pub fn allowed_paths_beneath(&self, top: &[u8], operations: &[TokenScopeOperation]) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        for PathPermission { operation, beneath } in &self.permissions {
            if !operations.iter().any(|&wanted| operation.covers(wanted)) {
                continue;
            }
            match &beneath[..] {
                [] => parts.push(Vec::new()),
                [first, rest @ ..] if first == top => parts.push(rest.join(&b'/')),
                _ => {}
            }
        }
        parts
    }
}

impl fmt::Display for TokenScope {
    /// As in a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(right) = self.transfers {
            let blank = if self.permissions.is_empty() { "" } else { " " };
            let word = if right == TransferApiRight::Modify { "modify" } else { "read" };
            write!(f, "transfers.{word}{blank}")?;
        }
        for (index, permission) in self.permissions.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(f, "{blank}storage.{}:", permission.operation.word())?;
            if permission.beneath.is_empty() {
                f.write_str("/")?;
            }
            for component in &permission.beneath {
                write!(f, "/{}", percent_encoded(component))?;
            }
        }
        Ok(())
    }
}

impl TokenScopeOperation {
    fn word(self) -> &'static str {
        match self {
            TokenScopeOperation::Stat => "stat",
            TokenScopeOperation::Read => "read",
            TokenScopeOperation::Create => "create",
            TokenScopeOperation::Modify => "modify",
        }
    }

    fn from_word(word: &str) -> Option<TokenScopeOperation> {
        [
            TokenScopeOperation::Stat,
            TokenScopeOperation::Read,
            TokenScopeOperation::Create,
            TokenScopeOperation::Modify,
        ]
        .into_iter()
        .find(|operation| operation.word() == word)
    }

    fn covers(self, wanted: TokenScopeOperation) -> bool {
        self == wanted
            || matches!(
                (self, wanted),
                (TokenScopeOperation::Read, TokenScopeOperation::Stat)
                    | (TokenScopeOperation::Modify, TokenScopeOperation::Create)
            )
    }
}

fn permission(word: &str) -> Result<PathPermission, BadTokenScope> {
    let (operation, path) = word.split_once(':').unwrap_or((word, ""));
    let operation = operation
        .strip_prefix("storage.")
        .and_then(TokenScopeOperation::from_word)
        .ok_or_else(|| BadTokenScope::Operation(word.to_owned()))?;
    if !path.starts_with('/') {
        return Err(BadTokenScope::Path(word.to_owned()));
    }
    let beneath = encoded_components(path).ok_or_else(|| BadTokenScope::Component(word.to_owned()))?;
    Ok(PathPermission { operation, beneath })
}

/// The names of an absolute path; `None` if one is invalid. Repeated slashes count once.
fn components(path: &[u8]) -> Option<TokenPathComponents> {
    let names = path.strip_prefix(b"/")?.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names.map(|name| is_name(name).then(|| name.to_vec())).collect()
}

/// The same for a path in a scope, with percent-encoding (RFC 3986, 2.1).
fn encoded_components(path: &str) -> Option<TokenPathComponents> {
    let names = path.strip_prefix('/')?.split('/').filter(|name| !name.is_empty());
    names.map(|name| percent_decoded(name).filter(|name| is_name(name))).collect()
}

fn is_name(name: &[u8]) -> bool {
    name != b"." && name != b".." && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' { digit(bytes.next()?)? << 4 | digit(bytes.next()?)? } else { byte });
    }
    Some(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|value| value as u8)
}

/// Encodes all but RFC 3986's unreserved characters.
fn percent_encoded(name: &[u8]) -> String {
    let mut encoded = String::new();
    for &byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(text: &str) -> TokenScope {
        TokenScope::parse(text).unwrap()
    }

    #[test]
    fn parts_are_what_lies_beneath_a_name() {
        let scope = scope(
            "storage.read:/data/a/b storage.read:/data/c%20d storage.modify:/data/e storage.read:/database",
        );
        fn parts(scope: &TokenScope, top: &str, operations: &[TokenScopeOperation]) -> Vec<String> {
            let parts = scope.allowed_paths_beneath(top.as_bytes(), operations);
            parts.into_iter().map(|part| String::from_utf8(part).unwrap()).collect()
        }
        assert_eq!(parts(&scope, "data", &[TokenScopeOperation::Read]), ["a/b", "c d"]);
        assert_eq!(
            parts(&scope, "data", &[TokenScopeOperation::Stat, TokenScopeOperation::Modify]),
            ["a/b", "c d", "e"]
        );
        assert_eq!(parts(&scope, "database", &[TokenScopeOperation::Read]), [""]);
        assert!(parts(&scope, "dat", &[TokenScopeOperation::Read]).is_empty());
        assert!(parts(&scope, "database", &[TokenScopeOperation::Modify]).is_empty());
        assert_eq!(
            self::scope("storage.read:/").allowed_paths_beneath(b"any", &[TokenScopeOperation::Read]),
            [Vec::<u8>::new()]
        );
    }

    #[test]
    fn allows_beneath_its_path_and_nowhere_else() {
        let scope = scope("storage.read:/data/run7");
        for (path, is_allowed) in [
            ("/data/run7", true),
            ("/data/run7/", true),
            ("/data//run7/a/b", true),
            ("/data/run77", false),
            ("/data/run", false),
            ("/data", false),
            ("/", false),
            ("/data/run7/../run8", false),
            ("/data/run7/..", false),
            ("/data/./run7", false),
            ("data/run7", false),
            ("", false),
            ("/data/run7/a\0b", false),
        ] {
            assert_eq!(scope.allows(TokenScopeOperation::Read, path.as_bytes()), is_allowed, "{path:?}");
        }
    }

    #[test]
    fn each_operation_covers_what_it_says() {
        use TokenScopeOperation::{Create, Modify, Read, Stat};
        for (word, allowed) in [
            ("stat", &[Stat][..]),
            ("read", &[Stat, Read]),
            ("create", &[Create]),
            ("modify", &[Create, Modify]),
        ] {
            let scope = scope(&format!("storage.{word}:/e"));
            for operation in [Stat, Read, Create, Modify] {
                assert_eq!(
                    scope.allows(operation, b"/e/x"),
                    allowed.contains(&operation),
                    "{word} {operation:?}"
                );
            }
        }
    }

    #[test]
    fn several_permissions_add_up_and_do_not_mix() {
        let scope = scope("openid storage.read:/in  storage.create:/out");
        assert!(
            scope.allows(TokenScopeOperation::Read, b"/in/a")
                && scope.allows(TokenScopeOperation::Create, b"/out/a")
        );
        assert!(
            !scope.allows(TokenScopeOperation::Read, b"/out/a")
                && !scope.allows(TokenScopeOperation::Create, b"/in/a")
        );
    }

    #[test]
    fn the_root_covers_all() {
        assert!(scope("storage.read:/").allows(TokenScopeOperation::Read, b"/any/thing"));
    }

    #[test]
    fn names_may_be_encoded() {
        let scope = scope("storage.read:/data/my%20run%25");
        assert!(scope.allows(TokenScopeOperation::Read, b"/data/my run%/x"));
        assert!(!scope.allows(TokenScopeOperation::Read, b"/data/my%20run%25/x"));
    }

    #[test]
    fn what_is_not_understood_makes_the_scope_void() {
        for (text, error) in [
            ("", BadTokenScope::Empty),
            ("openid profile", BadTokenScope::Empty),
            ("STORAGE.read:/a", BadTokenScope::Empty),
            ("storage.read", BadTokenScope::Path("storage.read".into())),
            ("storage.read:", BadTokenScope::Path("storage.read:".into())),
            ("storage.read:a", BadTokenScope::Path("storage.read:a".into())),
            ("storage.write:/a", BadTokenScope::Operation("storage.write:/a".into())),
            ("storage.Read:/a", BadTokenScope::Operation("storage.Read:/a".into())),
        ] {
            assert_eq!(TokenScope::parse(text), Err(error), "{text:?}");
        }
        for path in ["/a/../b", "/..", "/a/.", "/%2e%2E/b", "/a%2Fb", "/a%00", "/a%2", "/a%zz", "/a%+1"] {
            let word = format!("storage.read:{path}");
            let text = format!("storage.read:/good {word}");
            assert_eq!(TokenScope::parse(&text), Err(BadTokenScope::Component(word)), "{path}");
        }
        assert_eq!(
            TokenScope::parse(&"storage.read:/a ".repeat(MAX_PERMISSIONS + 1)),
            Err(BadTokenScope::TooMany)
        );
    }

    fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let name = proptest::collection::vec(1u8..=255, 1..6);
        proptest::collection::vec(name.prop_filter("a name", |name| is_name(name)), 0..5)
    }

    fn path_of(names: &[Vec<u8>]) -> Vec<u8> {
        let mut path = vec![b'/'];
        path.extend(names.join(&b'/'));
        path
    }

    proptest! {
        #[test]
        fn writing_and_reading_it_give_the_same(beneath in names()) {
            let scope = TokenScope { permissions: vec![PathPermission { operation: TokenScopeOperation::Modify, beneath }], transfers: None };
            prop_assert_eq!(TokenScope::parse(&scope.to_string()), Ok(scope));
        }

        #[test]
        fn is_a_prefix_of_names(beneath in names(), path in names(), below in names()) {
            let scope = TokenScope { permissions: vec![PathPermission { operation: TokenScopeOperation::Read, beneath: beneath.clone() }], transfers: None };
            prop_assert_eq!(scope.allows(TokenScopeOperation::Read, &path_of(&path)), path.starts_with(&beneath));
            prop_assert!(scope.allows(TokenScopeOperation::Read, &path_of(&[beneath, below].concat())));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(storage\\.(read|stat):)?[/.%a-f0-9 ]{0,30}") {
            if let Ok(scope) = TokenScope::parse(&text) {
                prop_assert!(!scope.allows(TokenScopeOperation::Read, b"/a/../b"));
            }
        }
    }
}
