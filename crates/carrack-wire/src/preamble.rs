//! The first 16 bytes in each direction: magic and protocol versions.

/// The newest protocol version that this build speaks.
pub const PROTOCOL_VERSION: u16 = 12;

/// The oldest protocol version that this build speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 12;

/// Bytes of a preamble.
pub const PREAMBLE_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"carrack\0";

/// The beginning of the line of a far shell that waits for a program, as no carrack is installed there. The
/// near end's start script chooses what follows.
pub const WAITING_SHELL_PREFIX: &[u8] = b"carrack-waits ";

/// Magic and version range. All versions of the protocol begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Oldest version that the sender speaks.
    pub version_min: u16,
    /// Newest version that the sender speaks.
    pub version_max: u16,
}

/// Reasons why the two ends can't talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreambleError {
    /// The bytes are no preamble.
    #[error("the other side does not speak carrack's protocol")]
    NotCarrack,
    /// No version in common.
    #[error(
        "the other side speaks protocol versions {theirs_min} to {theirs_max}, this one {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
    )]
    NoCommonVersion {
        /// The peer's oldest version.
        theirs_min: u16,
        /// The peer's newest version.
        theirs_max: u16,
    },
}

impl Preamble {
    /// The preamble of this build.
    pub const OURS: Preamble = Preamble { version_min: PROTOCOL_VERSION_MIN, version_max: PROTOCOL_VERSION };

    /// Encodes the preamble.
    pub fn encode(self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version_min.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.version_max.to_le_bytes());
        bytes
    }

    /// Reads a peer's preamble.
    pub fn decode(bytes: &[u8; PREAMBLE_BYTES]) -> Result<Preamble, PreambleError> {
        if bytes[..8] != MAGIC {
            return Err(PreambleError::NotCarrack);
        }
        Ok(Preamble {
            version_min: u16::from_le_bytes([bytes[8], bytes[9]]),
            version_max: u16::from_le_bytes([bytes[10], bytes[11]]),
        })
    }

    /// Returns the position of a preamble in `text`: a login shell may print text before it.
    pub fn find(text: &[u8]) -> Option<usize> {
        text.windows(MAGIC.len()).position(|window| window == MAGIC)
    }

    /// Returns the line of a far shell that waits for a program, if `text` ends with one.
    pub fn waiting_shell_line(text: &[u8]) -> Option<&[u8]> {
        let line = text.strip_suffix(b"\n")?;
        let begin = line.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        line.get(begin..).filter(|line| line.starts_with(WAITING_SHELL_PREFIX))
    }

    /// The newest version that both ends speak.
    pub fn negotiate_version(self) -> Result<u16, PreambleError> {
        let version = self.version_max.min(PROTOCOL_VERSION);
        if version < self.version_min || version < PROTOCOL_VERSION_MIN {
            return Err(PreambleError::NoCommonVersion {
                theirs_min: self.version_min,
                theirs_max: self.version_max,
            });
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_shell_is_known_by_its_whole_line() {
        let found = |text: &'static [u8]| Preamble::waiting_shell_line(text);
        assert_eq!(found(b"carrack-waits Linux\n"), Some(&b"carrack-waits Linux"[..]));
        assert_eq!(found(b"Welcome!\ncarrack-waits x\n"), Some(&b"carrack-waits x"[..]));
        for other in
            [&b""[..], b"\n", b"carrack-waits x", b"no carrack-waits x\n", b"carrack-waits x\nmore\n"]
        {
            assert_eq!(found(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn the_example_of_the_format_document() {
        assert_eq!(&Preamble::OURS.encode(), b"carrack\0\x0c\x00\x0c\x00\0\0\0\0");
    }

    /// Sessions with an older preamble end at once, and fuzzing would meet nothing else.
    #[test]
    fn the_fuzz_seeds_are_of_this_version() {
        let seed = include_bytes!("../../../fuzz/seeds/preamble/ours");
        let hint = "cargo run --manifest-path fuzz/Cargo.toml --example seeds";
        assert_eq!(seed, &Preamble::OURS.encode(), "write them again: {hint}");
    }

    #[test]
    fn agrees_on_the_newest_common_version() {
        fn between(version_min: u16, version_max: u16) -> Result<u16, PreambleError> {
            Preamble { version_min, version_max }.negotiate_version()
        }
        assert_eq!(
            Preamble::decode(&Preamble::OURS.encode()).unwrap().negotiate_version(),
            Ok(PROTOCOL_VERSION)
        );
        assert_eq!(between(1, PROTOCOL_VERSION + 1), Ok(PROTOCOL_VERSION));
        assert!(between(1, PROTOCOL_VERSION_MIN - 1).is_err());
        assert!(between(PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 1).is_err());
    }

    #[test]
    fn finds_itself_behind_a_shell_greeting() {
        let mut text = b"Welcome to carrack-host!\n".to_vec();
        text.extend(Preamble::OURS.encode());
        assert_eq!(Preamble::find(&text), Some(25));
        assert_eq!(Preamble::find(b"Welcome"), None);
        assert_eq!(Preamble::decode(b"0123456789abcdef"), Err(PreambleError::NotCarrack));
    }
}
