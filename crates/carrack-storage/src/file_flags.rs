//! File flags (`chattr(1)`). `statx(2)` reads them without opening the file, `ioctl_iflags(2)` sets them on
//! an open one.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use carrack_model::FileFlags;
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

/// The flags of a file or directory; none for other types, or if the file system reports none.
pub(crate) fn flags_of(directory: BorrowedFd<'_>, name: &CStr, at: AtFlags) -> Option<FileFlags> {
    let found = statx(directory, name, at, StatxFlags::TYPE).ok()?;
    let file_type = FileType::from_raw_mode(found.stx_mode.into());
    // The low 32 bits are numbered as in `ioctl_iflags(2)`.
    let known = found.stx_attributes_mask.bits() as u32;
    let flags = FileFlags::new(known, found.stx_attributes.bits() as u32);
    let has_some = matches!(file_type, FileType::RegularFile | FileType::Directory) && flags.known() != 0;
    has_some.then_some(flags)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use carrack_model::{APPEND_ONLY, ExtraMetadata, IMMUTABLE, NO_DUMP};
    use rustix::fs::{CWD, IFlags, ioctl_setflags};

    use super::*;
    use crate::AttributeWriter;

    fn of(path: &Path) -> Option<FileFlags> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        flags_of(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
    }

    #[test]
    fn an_untrusting_keeper_sets_nothing_that_keeps_a_file_from_being_changed() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
        let path = dir.path().join("f");
        let file = File::create(&path).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        assert_eq!(of(&dir.path().join("link")), None);
        if ioctl_setflags(&file, IFlags::NODUMP).is_err() {
            return println!("skipped: tmpfs has no file flags here");
        }
        assert_eq!(of(&path).unwrap().active(), NO_DUMP);
        let keeper = AttributeWriter::new(false);
        let wanted = FileFlags::new(u32::MAX, IMMUTABLE | APPEND_ONLY | NO_DUMP);
        keeper.set_blocking_flags(file.as_fd(), wanted);
        keeper.set_blocking_flags(file.as_fd(), wanted.restricted_to(NO_DUMP));
        assert_eq!(keeper.losses().take_lines(), ["file flags of 1 entry not kept: the sink sets none"]);
        assert_eq!(of(&path).unwrap().active(), NO_DUMP);
        // A flag that the keeper never sets counts as no difference.
        let held = File::open(dir.path()).unwrap();
        fn would_flag(keeper: &AttributeWriter, held: &File, flags: FileFlags) -> bool {
            keeper.would_change_flags(
                &ExtraMetadata { flags: Some(flags), ..ExtraMetadata::default() },
                held.as_fd(),
                b"f",
            )
        }
        assert!(
            !would_flag(&keeper, &held, wanted) && would_flag(&AttributeWriter::new(true), &held, wanted)
        );
        assert!(would_flag(&keeper, &held, FileFlags::new(NO_DUMP, 0)));
        fs::remove_file(path).unwrap();
        assert!(!would_flag(&AttributeWriter::new(true), &held, wanted), "a missing file");
    }
}
