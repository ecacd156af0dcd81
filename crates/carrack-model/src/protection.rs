//! Protection levels of the data between two hosts, with GridFTP's names (RFC 2228: clear, safe, private).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network attacker's power over the data. The control channel is authenticated and encrypted at every
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protection {
    /// Can read and change them: only a check against accidents is sent.
    Clear,
    /// Can read them: each object carries an authentication tag.
    Safe,
    /// Can do neither: each object is encrypted and carries an authentication tag.
    #[default]
    Private,
}

impl Protection {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Clear => "clear",
            Protection::Safe => "safe",
            Protection::Private => "private",
        }
    }

    /// Returns true if objects are sealed.
    pub fn seals(self) -> bool {
        self != Protection::Clear
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clear" => Ok(Protection::Clear),
            "safe" => Ok(Protection::Safe),
            "private" => Ok(Protection::Private),
            other => Err(format!("unknown protection {other:?}: use private, safe or clear")),
        }
    }
}

/// The algorithm of the seals (RFC 5116, RFC 8439).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cipher {
    /// AES-256-GCM.
    #[default]
    Aes256Gcm,
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305: for machines without AES instructions.
    ChaCha20Poly1305,
}

impl Cipher {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes256Gcm => "aes-256-gcm",
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cipher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
        let found = all.into_iter().find(|cipher| cipher.name() == text);
        found.ok_or_else(|| {
            format!("unknown cipher {text:?}: use aes-256-gcm, aes-128-gcm or chacha20-poly1305")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for level in [Protection::Clear, Protection::Safe, Protection::Private] {
            assert_eq!(level.name().parse(), Ok(level));
        }
        for cipher in [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            assert_eq!(cipher.name().parse(), Ok(cipher));
        }
        assert!("confidential".parse::<Protection>().is_err() && "rot13".parse::<Cipher>().is_err());
    }

    #[test]
    fn levels_are_ordered() {
        assert!(Protection::Clear < Protection::Safe && Protection::Safe < Protection::Private);
        assert_eq!(Protection::default(), Protection::Private);
        assert!(!Protection::Clear.seals() && Protection::Safe.seals());
    }
}
