//! File flags (`chattr(1)`), by the numbers of `ioctl_iflags(2)`, as far as `statx(2)` reports them.

/// The file or directory can't be changed or renamed (`FS_IMMUTABLE_FL`).
pub const IMMUTABLE: u32 = 0x10;
/// The file can only grow; the directory only gets new entries (`FS_APPEND_FL`).
pub const APPEND_ONLY: u32 = 0x20;
/// `dump(8)` skips the file (`FS_NODUMP_FL`).
pub const NO_DUMP: u32 = 0x40;

const ALL: u32 = IMMUTABLE | APPEND_ONLY | NO_DUMP;

/// The flags of a file, and the flags that its file system supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileFlags {
    known: u32,
    set: u32,
}

impl FileFlags {
    /// The flags `set` among the supported ones in `known`; other bits are ignored.
    pub fn new(known: u32, set: u32) -> FileFlags {
        let known = known & ALL;
        FileFlags { known, set: set & known }
    }

    /// The supported flags.
    pub fn known(self) -> u32 {
        self.known
    }

    /// The flags that are set.
    pub fn active(self) -> u32 {
        self.set
    }

    /// Restricts the supported flags to `flags`.
    pub fn restricted_to(self, flags: u32) -> FileFlags {
        FileFlags::new(self.known & flags, self.set)
    }

    /// The flags that prevent changes, and so are set last.
    pub fn write_protecting(self) -> FileFlags {
        self.restricted_to(IMMUTABLE | APPEND_ONLY)
    }

    /// Returns true if a file with the flags `other` needs a change, as far as both ends support the flags.
    pub fn differs_from(self, other: FileFlags) -> bool {
        (self.set ^ other.set) & self.known & other.known != 0
    }

    /// Encodes the flags.
    pub fn to_bytes(self) -> [u8; 8] {
        let both = u64::from(self.known) | u64::from(self.set) << 32;
        both.to_le_bytes()
    }

    /// Decodes the flags of [`FileFlags::to_bytes`]; `None` for a wrong length.
    pub fn from_bytes(bytes: &[u8]) -> Option<FileFlags> {
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
        assert_eq!((flags.known(), flags.active()), (IMMUTABLE | NO_DUMP, NO_DUMP));
        assert_eq!(flags.to_bytes(), [0x50, 0, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(FileFlags::from_bytes(&flags.to_bytes()), Some(flags));
        assert_eq!(FileFlags::from_bytes(&[0xff; 8]), Some(FileFlags::new(ALL, ALL)));
        assert_eq!(FileFlags::from_bytes(&[0; 7]), None);
    }

    #[test]
    fn what_only_one_of_them_knows_is_no_difference() {
        let (all, some) = (FileFlags::new(ALL, IMMUTABLE), FileFlags::new(NO_DUMP, 0));
        assert!(!all.differs_from(some) && !some.differs_from(all));
        assert!(all.differs_from(FileFlags::new(ALL, 0)));
        assert_eq!(all.write_protecting().active(), IMMUTABLE);
        assert_eq!(some.write_protecting(), FileFlags::default());
    }
}
