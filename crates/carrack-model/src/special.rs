//! Special files: devices, named pipes and sockets (inode(7)).
//!
//! [`SpecialFile::to_bytes`] and [`SpecialFile::from_bytes`] encode and decode one format:
//! `docs/formats/wire.md`, extra 138.

/// Encoded bytes.
const BYTES: usize = 9;

/// A device number: driver and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device.
    pub minor: u32,
}

/// A special file, which has no contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialFile {
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device, such as a disk.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket, without a listener until a process binds it anew.
    Socket,
}

impl SpecialFile {
    /// Returns true for a device, which gives access to the kernel to every user who may open it.
    pub fn is_device(&self) -> bool {
        matches!(self, SpecialFile::CharacterDevice(_) | SpecialFile::BlockDevice(_))
    }

    /// The noun for people.
    pub fn noun(&self) -> &'static str {
        match self {
            SpecialFile::CharacterDevice(_) | SpecialFile::BlockDevice(_) => "device",
            SpecialFile::Fifo => "named pipe",
            SpecialFile::Socket => "socket",
        }
    }

    /// Encodes a letter, as in `ls -l` and `mknod` (`c`, `b`, `p`, `s`), then major and minor; 0 for pipes
    /// and sockets.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        const NONE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };
        let (letter, DeviceNumber { major, minor }) = match self {
            SpecialFile::CharacterDevice(number) => (b'c', *number),
            SpecialFile::BlockDevice(number) => (b'b', *number),
            SpecialFile::Fifo => (b'p', NONE),
            SpecialFile::Socket => (b's', NONE),
        };
        let mut bytes = [0; BYTES];
        bytes[0] = letter;
        bytes[1..5].copy_from_slice(&major.to_le_bytes());
        bytes[5..].copy_from_slice(&minor.to_le_bytes());
        bytes
    }

    /// Decodes; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<SpecialFile> {
        let &[letter, a, b, c, d, e, f, g, h] = bytes else { return None };
        let (major, minor) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        match (letter, major, minor) {
            (b'c', ..) => Some(SpecialFile::CharacterDevice(DeviceNumber { major, minor })),
            (b'b', ..) => Some(SpecialFile::BlockDevice(DeviceNumber { major, minor })),
            (b'p', 0, 0) => Some(SpecialFile::Fifo),
            (b's', 0, 0) => Some(SpecialFile::Socket),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_survive_their_bytes() {
        let number = DeviceNumber { major: 0xfff, minor: u32::MAX };
        for special in [
            SpecialFile::CharacterDevice(number),
            SpecialFile::BlockDevice(number),
            SpecialFile::Fifo,
            SpecialFile::Socket,
        ] {
            assert_eq!(SpecialFile::from_bytes(&special.to_bytes()), Some(special));
        }
        let null = SpecialFile::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
        assert_eq!(null.to_bytes(), *b"c\x01\0\0\0\x03\0\0\0");
    }

    #[test]
    fn other_bytes_are_nothing() {
        for bad in [
            &b""[..],
            b"c\0\0\0\0\0\0\0",
            b"c\0\0\0\0\0\0\0\0\0",
            b"d\0\0\0\0\0\0\0\0",
            b"p\x01\0\0\0\0\0\0\0",
        ] {
            assert_eq!(SpecialFile::from_bytes(bad), None, "{bad:?}");
        }
    }
}
