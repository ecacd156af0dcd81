//! The public keys file of a daemon, in the format of ssh's `authorized_keys` (sshd(8)).
//!
//! One key a line: its type, its base64, its comment. The comment is required: it is the identity's name.
//! Lines with options are refused: this crate can't apply their restrictions, and ignoring them would grant
//! more than intended.

use std::collections::HashMap;

use thiserror::Error;

use crate::name::{IdentityNameError, check_identity_name};
use crate::public_key::PublicKey;

/// The longest line, in bytes: a P-256 key takes 160 and a name 255.
const MAX_LINE_BYTES: usize = 1024;

/// The most keys of a file, to bound its cost: 100 MB of lines.
pub const MAX_KEYS: usize = 100_000;

/// The types that a line may begin with.
const TYPES: [&str; 2] = ["ssh-ed25519", "ecdsa-sha2-nistp256"];

/// The beginnings of ssh's other key types.
const OTHER_TYPES: [&str; 4] = ["ssh-", "ecdsa-sha2-", "sk-", "rsa-sha2-"];

/// The problem of a refused line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyLineProblem {
    /// The line begins with something other than a key type.
    #[error(
        "the line does not begin with ssh-ed25519 or ecdsa-sha2-nistp256: options are not understood here"
    )]
    Options,
    /// The key has another type.
    #[error("only keys of the types ssh-ed25519 and ecdsa-sha2-nistp256 are admitted")]
    Type,
    /// The key can't be read.
    #[error("the key can't be read")]
    Key,
    /// The comment is not a valid name.
    #[error("the comment has to be the identity's name: {0}")]
    Name(#[from] IdentityNameError),
    /// An earlier line has the same key under another name.
    #[error("the same key stands in an earlier line under another name")]
    Twice,
    /// The line is longer than `MAX_LINE_BYTES`, or not text.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes, or no text")]
    Line,
    /// The file has more than [`MAX_KEYS`].
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
}

/// A refused line with its problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct KeyLineError {
    /// The line's number, from 1.
    pub line: usize,
    /// The problem.
    pub problem: KeyLineProblem,
}

impl KeyLineError {
    /// Advice for the administrator.
    pub fn hint(&self) -> Option<&'static str> {
        match self.problem {
            KeyLineProblem::Options => {
                Some("restrict the identity in the daemon's configuration, not in this file")
            }
            KeyLineProblem::Type => Some("make one with `ssh-keygen -t ed25519 -C NAME`"),
            KeyLineProblem::Name(IdentityNameError::Empty) => Some("write the identity's name after the key"),
            _ => None,
        }
    }
}

/// The key of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKey {
    /// The identity's name.
    pub name: String,
    /// The fingerprint as `ssh-keygen -l` shows it: `SHA256:` and base64.
    pub fingerprint: String,
}

/// The keys of a file, by their `SubjectPublicKeyInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    known: HashMap<Vec<u8>, AuthorizedKey>,
}

impl AuthorizedKeys {
    /// Reads a file's content. Returns the keys of its good lines, and the problems of the others.
    pub fn parse(content: &[u8]) -> (AuthorizedKeys, Vec<KeyLineError>) {
        let mut keys = AuthorizedKeys::default();
        let mut errors = Vec::new();
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            if let Err(problem) = keys.add_line(line) {
                errors.push(KeyLineError { line: index + 1, problem });
            }
            if errors.last().is_some_and(|error| error.problem == KeyLineProblem::TooMany) {
                break;
            }
        }
        (keys, errors)
    }

    /// The identity of a key.
    pub fn find(&self, spki: &[u8]) -> Option<&AuthorizedKey> {
        self.known.get(spki)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), KeyLineProblem> {
        let line = str::from_utf8(line).map_err(|_| KeyLineProblem::Line)?.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(KeyLineProblem::Line);
        }
        let (spki, known) = read_line(line)?;
        match self.known.get(&spki) {
            Some(before) if before.name != known.name => return Err(KeyLineProblem::Twice),
            None if self.known.len() == MAX_KEYS => return Err(KeyLineProblem::TooMany),
            _ => self.known.insert(spki, known),
        };
        Ok(())
    }
}

fn read_line(line: &str) -> Result<(Vec<u8>, AuthorizedKey), KeyLineProblem> {
    check_type(line.split_whitespace().next().unwrap_or_default())?;
    let ssh = ssh_key::PublicKey::from_openssh(line).map_err(|_| KeyLineProblem::Key)?;
    let key = PublicKey::from_ssh(ssh.key_data()).ok_or(KeyLineProblem::Key)?;
    let name = ssh.comment().trim().to_owned();
    check_identity_name(&name)?;
    let fingerprint = ssh.fingerprint(ssh_key::HashAlg::Sha256).to_string();
    Ok((key.spki().to_vec(), AuthorizedKey { name, fingerprint }))
}

fn check_type(word: &str) -> Result<(), KeyLineProblem> {
    match word {
        _ if TYPES.contains(&word) => Ok(()),
        _ if OTHER_TYPES.iter().any(|begin| word.starts_with(begin)) => Err(KeyLineProblem::Type),
        _ => Err(KeyLineProblem::Options),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    const P256: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHwf2HMM5TRXvo2SQJjsNkiDD5KqiiNjrGVv3UUh+mMT5RHxiRtOnlqvjhQtBq0VpmpCV/PwUdhOig4vkbqAcEc=";

    #[track_caller]
    fn problem(content: &str) -> KeyLineProblem {
        let (keys, errors) = AuthorizedKeys::parse(content.as_bytes());
        assert!(keys.is_empty(), "{keys:?}");
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].problem
    }

    #[test]
    fn both_types_are_read_with_their_names() {
        let content = format!("# people\n\n{ED25519} alice@example.org\n  {P256} Ada Lovelace\r\n");
        let (keys, errors) = AuthorizedKeys::parse(content.as_bytes());
        assert_eq!(errors, []);
        let mut known: Vec<_> =
            keys.known.values().map(|k| (k.name.as_str(), k.fingerprint.as_str())).collect();
        known.sort();
        // The fingerprints are those that `ssh-keygen -l` prints.
        assert_eq!(known[0].0, "Ada Lovelace");
        assert_eq!(known[1], ("alice@example.org", "SHA256:UCUiLr7Pjs9wFFJMDByLgc3NrtdU344OgUM45wZPcIQ"));
    }

    #[test]
    fn a_line_with_options_admits_nobody() {
        for options in ["from=\"10.0.0.0/8\" ", "restrict ", "command=\"/bin/x\",no-pty "] {
            assert_eq!(problem(&format!("{options}{ED25519} alice")), KeyLineProblem::Options);
        }
    }

    #[test]
    fn a_name_is_required() {
        assert_eq!(problem(ED25519), KeyLineProblem::Name(IdentityNameError::Empty));
        assert_eq!(problem(&format!("{ED25519} a\u{7}b")), KeyLineProblem::Name(IdentityNameError::Unseen));
    }

    #[test]
    fn other_types_and_damaged_keys_are_refused() {
        assert_eq!(problem("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ== alice"), KeyLineProblem::Type);
        assert_eq!(problem("sk-ssh-ed25519@openssh.com AAAA alice"), KeyLineProblem::Type);
        assert_eq!(problem("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA alice"), KeyLineProblem::Key);
        // The line's type differs from the type in its key.
        assert_eq!(problem(&P256.replace("ecdsa-sha2-nistp256 ", "ssh-ed25519 ")), KeyLineProblem::Key);
        assert_eq!(problem(&"x".repeat(MAX_LINE_BYTES + 1)), KeyLineProblem::Line);
    }

    #[test]
    fn one_key_has_one_name() {
        let content = format!("{ED25519} alice\n{ED25519} bob\n{ED25519} alice\n");
        let (keys, errors) = AuthorizedKeys::parse(content.as_bytes());
        assert_eq!(keys.len(), 1);
        assert_eq!(errors, [KeyLineError { line: 2, problem: KeyLineProblem::Twice }]);
        assert_eq!(keys.known.values().next().map(|known| known.name.as_str()), Some("alice"));
    }

    #[test]
    fn a_bad_line_does_not_lock_out_the_others() {
        let content = format!("nonsense\n{ED25519} alice\n");
        let (keys, errors) = AuthorizedKeys::parse(content.as_bytes());
        assert_eq!((keys.len(), errors.len(), errors[0].line), (1, 1, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (keys, _) = AuthorizedKeys::parse(&content);
            prop_assert!(keys.len() <= content.len());
        }

        #[test]
        fn a_cut_line_is_never_another_key(cut in 12usize..80) {
            let (keys, _) = AuthorizedKeys::parse(format!("{} alice", &ED25519[..cut]).as_bytes());
            prop_assert!(keys.is_empty());
        }
    }
}
