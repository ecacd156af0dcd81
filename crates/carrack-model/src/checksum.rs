//! The hashes that protect an object between the source's read and the sink's write.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The check sent with every object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectChecksumAlgorithm {
    /// No check by carrack; only TCP's 16-bit sum remains.
    None,
    /// XXH3 with 128 bits: finds every accident, no adversary.
    #[default]
    Xxh3,
    /// BLAKE3 chaining values; they also give each file's BLAKE3 digest without a second read.
    Blake3,
}

impl ObjectChecksumAlgorithm {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ObjectChecksumAlgorithm::None => "none",
            ObjectChecksumAlgorithm::Xxh3 => "xxh3",
            ObjectChecksumAlgorithm::Blake3 => "blake3",
        }
    }
}

impl fmt::Display for ObjectChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ObjectChecksumAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(ObjectChecksumAlgorithm::None),
            "xxh3" => Ok(ObjectChecksumAlgorithm::Xxh3),
            "blake3" => Ok(ObjectChecksumAlgorithm::Blake3),
            other => Err(format!("unknown checksum {other:?}: use xxh3, blake3 or none")),
        }
    }
}
