//! Identifiers. Newtypes, so that a file's number can't be passed where an object's is meant.

use std::fmt;
use std::str::FromStr;

/// A file that travels as objects of its own, numbered by the source within a session, from 1; files that announce themselves
/// apart from the others, from [`FileId::FIRST_BY_ITSELF`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// The first of the files that announce themselves.
    pub const FIRST_BY_ITSELF: FileId = FileId(1 << 63);

    /// Whether the file's first object says what it is, and the sink commits it as soon as it is whole. Such ids reach the sink
    /// in any order, as objects do.
    pub fn is_by_itself(self) -> bool {
        self >= FileId::FIRST_BY_ITSELF
    }
}

/// An object (or a bundle) that travels, numbered by the source within a session, from 1.
///
/// A second reading of the same extent is a new object with a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// One independent piece of storage (L2's "OST"): opaque, equal for two extents exactly if they lie on the same piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u64);

/// What is copied where: the same for the same sources and destination, whenever the command is run.
///
/// Written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub [u8; 16]);

/// One run of a command: random, and the same in all of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunToken(pub [u8; 16]);

/// A text is not 32 hexadecimal digits.
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
