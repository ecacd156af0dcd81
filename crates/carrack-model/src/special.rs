//! Special files: devices, named pipes and sockets (inode(7)).
//!
//! [`Special::to_bytes`] and [`Special::from_bytes`] encode and decode one format: `docs/formats/wire.md`,
//! extra 138.

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
pub enum Special {
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device, such as a disk.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket, without a listener until a process binds it anew.
    Socket,
}

impl Special {
    /// Returns true for a device, which gives access to the kernel to every user who may open it.
    pub fn is_device(&self) -> bool {
        matches!(self, Special::CharacterDevice(_) | Special::BlockDevice(_))
    }

    /// The noun for people.
    pub fn noun(&self) -> &'static str {
        match self {
            Special::CharacterDevice(_) | Special::BlockDevice(_) => "device",
            Special::Fifo => "named pipe",
            Special::Socket => "socket",
        }
    }

    /// Encodes a letter, as in `ls -l` and `mknod` (`c`, `b`, `p`, `s`), then major and minor; 0 for pipes
    /// and sockets.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        const NONE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };
        let (letter, DeviceNumber { major, minor }) = match self {
            Special::CharacterDevice(number) => (b'c', *number),
            Special::BlockDevice(number) => (b'b', *number),
            Special::Fifo => (b'p', NONE),
            Special::Socket => (b's', NONE),
        };
        let mut bytes = [0; BYTES];
        bytes[0] = letter;
        bytes[1..5].copy_from_slice(&major.to_le_bytes());
        bytes[5..].copy_from_slice(&minor.to_le_bytes());
        bytes
    }

    /// Decodes; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Special> {
        let &[letter, a, b, c, d, e, f, g, h] = bytes else { return None };
        let (major, minor) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        match (letter, major, minor) {
            (b'c', ..) => Some(Special::CharacterDevice(DeviceNumber { major, minor })),
            (b'b', ..) => Some(Special::BlockDevice(DeviceNumber { major, minor })),
            (b'p', 0, 0) => Some(Special::Fifo),
            (b's', 0, 0) => Some(Special::Socket),
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
        for special in
            [Special::CharacterDevice(number), Special::BlockDevice(number), Special::Fifo, Special::Socket]
        {
            assert_eq!(Special::from_bytes(&special.to_bytes()), Some(special));
        }
        let null = Special::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
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
            assert_eq!(Special::from_bytes(bad), None, "{bad:?}");
        }
    }
}
