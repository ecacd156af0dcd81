//! Protection levels of the data between two hosts, with GridFTP's names (RFC 2228: clear, safe, private).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network attacker's power over the data. The control channel is authenticated and encrypted at every
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtectionLevel {
    /// Can read and change them: only a check against accidents is sent.
    Clear,
    /// Can read them: each object carries an authentication tag.
    Safe,
    /// Can do neither: each object is encrypted and carries an authentication tag.
    #[default]
    Private,
}

impl ProtectionLevel {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ProtectionLevel::Clear => "clear",
            ProtectionLevel::Safe => "safe",
            ProtectionLevel::Private => "private",
        }
    }

    /// Returns true if objects are sealed.
    pub fn seals(self) -> bool {
        self != ProtectionLevel::Clear
    }
}

impl fmt::Display for ProtectionLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProtectionLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clear" => Ok(ProtectionLevel::Clear),
            "safe" => Ok(ProtectionLevel::Safe),
            "private" => Ok(ProtectionLevel::Private),
            other => Err(format!("unknown protection {other:?}: use private, safe or clear")),
        }
    }
}

/// The algorithm of the seals (RFC 5116, RFC 8439).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SealCipher {
    /// AES-256-GCM.
    #[default]
    Aes256Gcm,
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305: for machines without AES instructions.
    ChaCha20Poly1305,
}

impl SealCipher {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            SealCipher::Aes256Gcm => "aes-256-gcm",
            SealCipher::Aes128Gcm => "aes-128-gcm",
            SealCipher::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }
}

impl fmt::Display for SealCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SealCipher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305];
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
        for level in [ProtectionLevel::Clear, ProtectionLevel::Safe, ProtectionLevel::Private] {
            assert_eq!(level.name().parse(), Ok(level));
        }
        for cipher in [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305] {
            assert_eq!(cipher.name().parse(), Ok(cipher));
        }
        assert!("confidential".parse::<ProtectionLevel>().is_err() && "rot13".parse::<SealCipher>().is_err());
    }

    #[test]
    fn levels_are_ordered() {
        assert!(
            ProtectionLevel::Clear < ProtectionLevel::Safe
                && ProtectionLevel::Safe < ProtectionLevel::Private
        );
        assert_eq!(ProtectionLevel::default(), ProtectionLevel::Private);
        assert!(!ProtectionLevel::Clear.seals() && ProtectionLevel::Safe.seals());
    }
}
