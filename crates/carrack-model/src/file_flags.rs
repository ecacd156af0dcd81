//! What may be done with a file beyond its mode (`chattr(1)`): the flags of `ioctl_iflags(2)` that `statx(2)` tells, by their
//! numbers there.

/// Nobody may change the file or directory, or name it otherwise (`FS_IMMUTABLE_FL`).
pub const IMMUTABLE: u32 = 0x10;
/// The file may only grow; entries may only come to the directory (`FS_APPEND_FL`).
pub const APPEND_ONLY: u32 = 0x20;
/// `dump(8)` leaves it out (`FS_NODUMP_FL`).
pub const NO_DUMP: u32 = 0x40;

const ALL: u32 = IMMUTABLE | APPEND_ONLY | NO_DUMP;

/// Those that a file has, and those of which its file system tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileFlags {
    known: u32,
    set: u32,
}

impl FileFlags {
    /// Of what is `set` among what is `known`; other bits are none of these.
    pub fn new(known: u32, set: u32) -> FileFlags {
        let known = known & ALL;
        FileFlags { known, set: set & known }
    }

    /// Of which something is known.
    pub fn known(self) -> u32 {
        self.known
    }

    /// Those that the file has.
    pub fn set(self) -> u32 {
        self.set
    }

    /// Only these.
    pub fn among(self, flags: u32) -> FileFlags {
        FileFlags::new(self.known & flags, self.set)
    }

    /// Those that keep a file from being changed at all, and so are set when nothing else is to be done with it.
    pub fn fastening(self) -> FileFlags {
        self.among(IMMUTABLE | APPEND_ONLY)
    }

    /// Whether one that has `other` would have to be changed, as far as both are known.
    pub fn differs_from(self, other: FileFlags) -> bool {
        (self.set ^ other.set) & self.known & other.known != 0
    }

    /// Eight bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let both = u64::from(self.known) | u64::from(self.set) << 32;
        both.to_le_bytes()
    }

    /// What [`FileFlags::to_bytes`] gave; nothing for other bytes.
    pub fn of_bytes(bytes: &[u8]) -> Option<FileFlags> {
        let both = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(FileFlags::new(both as u32, (both >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_their_bytes_and_others_are_none() {
        let flags = FileFlags::new(IMMUTABLE | NO_DUMP, NO_DUMP | APPEND_ONLY);
        assert_eq!((flags.known(), flags.set()), (IMMUTABLE | NO_DUMP, NO_DUMP));
        assert_eq!(flags.to_bytes(), [0x50, 0, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(FileFlags::of_bytes(&flags.to_bytes()), Some(flags));
        assert_eq!(FileFlags::of_bytes(&[0xff; 8]), Some(FileFlags::new(ALL, ALL)));
        assert_eq!(FileFlags::of_bytes(&[0; 7]), None);
    }

    #[test]
    fn what_only_one_of_them_knows_is_no_difference() {
        let (all, some) = (FileFlags::new(ALL, IMMUTABLE), FileFlags::new(NO_DUMP, 0));
        assert!(!all.differs_from(some) && !some.differs_from(all));
        assert!(all.differs_from(FileFlags::new(ALL, 0)));
        assert_eq!(all.fastening().set(), IMMUTABLE);
        assert_eq!(some.fastening(), FileFlags::default());
    }
}
