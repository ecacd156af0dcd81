//! Identifiers. Newtypes, so that a file ID can't be passed as an object ID.

use std::fmt;
use std::str::FromStr;

/// A large file, numbered by the source within a session, from 1; an inline-announced file from
/// [`FileId::FIRST_BY_ITSELF`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// The first ID of an inline-announced file.
    pub const FIRST_BY_ITSELF: FileId = FileId(1 << 63);

    /// Returns true for an inline-announced file, which the sink commits as soon as it is whole. Such IDs
    /// reach the sink in any order, as objects do.
    pub fn is_inline_announced(self) -> bool {
        self >= FileId::FIRST_BY_ITSELF
    }
}

/// An object or a bundle, numbered by the source within a session, from 1.
///
/// A second read of the same extent is a new object with a new ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// One independent piece of storage (L2's "OST"): opaque, equal for two extents if and only if they lie on
/// the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u64);

/// A host with storage targets behind one network link (LADS 2.1's "OSS"). Numbers are dense: 0, 1, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// The ID of a transfer: equal for equal sources and destination, at every run of the command.
///
/// Written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub [u8; 16]);

/// One run of a command: random, and the same in all of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferExecutionId(pub [u8; 16]);

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATransferId;

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TransferId {
    type Err = NotATransferId;

    fn from_str(text: &str) -> Result<TransferId, NotATransferId> {
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotATransferId);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| NotATransferId)?;
        Ok(TransferId(number.to_be_bytes()))
    }
}

impl fmt::Display for NotATransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transfer's id has 32 hexadecimal digits")
    }
}

impl std::error::Error for NotATransferId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_32_digits() {
        let id = TransferId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        let text = "000102030405060708090a0b0c0d0eff";
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_uppercase().parse(), Ok(id));
        for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace("ff", "+f")] {
            assert_eq!(wrong.parse::<TransferId>(), Err(NotATransferId), "{wrong}");
        }
    }
}
