//! The handling of symbolic links' times by a file system, probed with a temporary link.
//!
//! Most file systems set them like those of files. File systems in user space may ignore them, or follow the
//! link: an SFTP server sets times and owner of the link's target. The temporary link points to itself, so
//! that no such call reaches another file.

use std::os::fd::BorrowedFd;

use carrack_model::Timestamp;
use rustix::fs::{AtFlags, Timestamps, fstatfs, statat, symlinkat, unlinkat, utimensat};
use rustix::io::Errno;

use crate::small_file_placement::{both_times, times};
use crate::status::mtime_of;
use crate::stored_times::is_out_of_range;
use crate::{ScratchNames, preserve_times};

/// `f_type` of the file systems that are probed: FUSE, and SMB's two clients (statfs(2)).
const ASKED_FILE_SYSTEMS: [u32; 3] = [0x6573_5546, 0xff53_4d42, 0xfe53_4d42];

const PROBE: Timestamp = Timestamp { seconds: 1_234_567_891, nanoseconds: 0 };

/// The effect of setting a link's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkTimeSupport {
    /// The time is set, or refused with an error.
    Alone,
    /// The time is set only together with the access time.
    Both,
    /// The time is ignored.
    Ignored,
    /// Calls on a link change its target.
    Followed,
}

impl LinkTimeSupport {
    /// Makes the temporary link only on file systems that may differ from [`LinkTimeSupport::Alone`].
    pub(crate) fn detect(directory: BorrowedFd<'_>, scratch: &ScratchNames) -> LinkTimeSupport {
        let is_asked =
            fstatfs(directory).is_ok_and(|found| ASKED_FILE_SYSTEMS.contains(&(found.f_type as u32)));
        if is_asked {
            preserve_times(directory, || probe(directory, scratch)).unwrap_or(LinkTimeSupport::Alone)
        } else {
            LinkTimeSupport::Alone
        }
    }

    /// Returns true if a link keeps the time that was set.
    pub(crate) fn are_kept(self) -> bool {
        matches!(self, LinkTimeSupport::Alone | LinkTimeSupport::Both)
    }
}

fn probe(directory: BorrowedFd<'_>, scratch: &ScratchNames) -> Result<LinkTimeSupport, Errno> {
    let ((), temporary) = scratch.create(b"link", |free| symlinkat(free, directory, free))?;
    let name = temporary.as_bytes();
    let found = classify(|times| {
        utimensat(directory, name, times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(mtime_of(&statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?))
    });
    unlinkat(directory, name, AtFlags::empty())?;
    Ok(found)
}

/// Judges by `set`, which sets times of the link and reads its time back.
fn classify(set: impl Fn(&Timestamps) -> Result<Timestamp, Errno>) -> LinkTimeSupport {
    for (times, way) in [(times(PROBE), LinkTimeSupport::Alone), (both_times(PROBE), LinkTimeSupport::Both)] {
        match set(&times) {
            Ok(stored) if !is_out_of_range(PROBE, stored) => return way,
            Ok(_) => {}
            Err(Errno::NOENT | Errno::LOOP) => return LinkTimeSupport::Followed,
            // The links of the transfer will meet the same error.
            Err(_) => return LinkTimeSupport::Alone,
        }
    }
    LinkTimeSupport::Ignored
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::UTIME_OMIT;

    use super::*;

    #[test]
    fn what_a_file_system_makes_of_a_links_time_is_told_apart() {
        let now = Timestamp { seconds: 1_900_000_000, nanoseconds: 0 };
        fn told(times: &Timestamps) -> Timestamp {
            Timestamp { seconds: times.last_modification.tv_sec, nanoseconds: 0 }
        }
        assert_eq!(classify(|times| Ok(told(times))), LinkTimeSupport::Alone);
        let both = classify(|times| match times.last_access.tv_nsec {
            UTIME_OMIT => Ok(now),
            _ => Ok(told(times)),
        });
        assert_eq!(both, LinkTimeSupport::Both);
        assert_eq!(classify(|_| Ok(now)), LinkTimeSupport::Ignored);
        assert_eq!(classify(|_| Err(Errno::NOENT)), LinkTimeSupport::Followed);
        assert_eq!(classify(|_| Err(Errno::LOOP)), LinkTimeSupport::Followed);
        assert_eq!(classify(|_| Err(Errno::PERM)), LinkTimeSupport::Alone);
    }

    #[test]
    fn the_temporary_link_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        assert_eq!(probe(held.as_fd(), &ScratchNames::new(None).unwrap()), Ok(LinkTimeSupport::Alone));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
