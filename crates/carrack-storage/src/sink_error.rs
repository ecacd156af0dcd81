//! Errors of writes at the sink.

use std::io;

use carrack_model::{FailureKind, SpecialFile};
use rustix::io::Errno;

/// The reason why an entry could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The storage is full or over quota: every further file will fail too.
    #[error("no space: {0}")]
    NoSpace(#[source] io::Error),
    /// A directory has the name of a file or link, or a file or link the name of a directory.
    #[error("something else stands there: {0}")]
    InTheWay(#[source] io::Error),
    /// A device, pipe or socket has the name; only another special file replaces it.
    #[error("a {} stands there, which is not replaced", .0.noun())]
    Special(SpecialFile),
    /// The file system does not take this name.
    #[error("the file system refuses the name: {0}")]
    BadName(#[source] io::Error),
    /// The temporary file of an earlier session is gone.
    #[error("what an earlier session left of it is gone; run the same command again")]
    Vanished,
    /// The destination of a partial transfer is not a regular file.
    #[error("no regular file stands there, and a part of a file goes into one or into none")]
    NotRegular,
    /// The destination of a partial transfer was changed during each attempt.
    #[error("what stands there was changed each time its other bytes were copied")]
    Unsteady,
    /// Another program has locked the destination of a partial transfer.
    #[error("another program holds a lock on what stands there (flock)")]
    Locked,
    /// The session ends.
    #[error("the session ended before it had its name")]
    Ended,
    /// Readback found other bytes than were written.
    #[error("what was written is not what the storage holds")]
    Damaged,
    /// The storage miscounted the file's size.
    #[error("{size} bytes were written, the storage says that the file has {held}")]
    WrongSize {
        /// The size that the storage reports.
        held: u64,
        /// The number of bytes written.
        size: u64,
    },
    /// The contents are complete and in place, but the mode or times are wrong.
    #[error("{action} failed: {error}")]
    Metadata {
        /// The metadata that could not be set.
        action: &'static str,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The operation is denied even to the owner (`EPERM`), mostly by file flags.
    #[error(
        "{action} failed: {error}; `lsattr` shows whether it or its directory is immutable or append-only, `chattr -i -a` ends that; with a sticky bit (ls -ld: t) only owners replace files"
    )]
    NotPermitted {
        /// The operation.
        action: &'static str,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// Another entry of the same run has this name.
    #[error(
        "another entry has this name here: the file system does not tell them apart (case, or how Unicode composes a character)"
    )]
    SameName,
    /// The file system makes no symbolic links.
    #[error(
        "a symbolic link can't be made here: {0}; `--skip-links` leaves links out, `--copy-links` copies what they lead to"
    )]
    NoSymlinks(#[source] io::Error),
    /// Any other error. Nothing was placed, and the destination is unchanged.
    #[error("{action} failed: {error}")]
    Write {
        /// The operation.
        action: &'static str,
        /// The cause.
        #[source]
        error: io::Error,
    },
}

impl SinkError {
    /// The name of this error in reports.
    pub fn kind(&self) -> FailureKind {
        match self {
            SinkError::NoSpace(_) => FailureKind::NoSpace,
            SinkError::InTheWay(_) | SinkError::Special(_) | SinkError::NotRegular => FailureKind::InTheWay,
            SinkError::BadName(_) | SinkError::SameName => FailureKind::BadName,
            SinkError::Unsteady => FailureKind::Changed,
            SinkError::Vanished
            | SinkError::Locked
            | SinkError::Ended
            | SinkError::NotPermitted { .. }
            | SinkError::NoSymlinks(_) => FailureKind::WriteError,
            SinkError::Damaged | SinkError::WrongSize { .. } => FailureKind::Corrupt,
            SinkError::Metadata { .. } => FailureKind::Metadata,
            SinkError::Write { .. } => FailureKind::WriteError,
        }
    }

    /// Returns true if the mode of a directory in the path denied the operation (`EACCES`).
    pub fn is_denied(&self) -> bool {
        let SinkError::Write { error, .. } = self else { return false };
        Errno::from_io_error(error) == Some(Errno::ACCESS)
    }

    /// Returns true if no directory has the name, or another type of entry has it.
    pub fn is_no_directory(&self) -> bool {
        match self {
            SinkError::InTheWay(_) => true,
            SinkError::Write { error, .. } => Errno::from_io_error(error) == Some(Errno::NOENT),
            _ => false,
        }
    }

    /// Converts a failure of [`crate::RootDirectory::open_directory`] or
    /// [`crate::RootDirectory::make_directory`].
    pub fn of_directory(error: io::Error) -> SinkError {
        SinkError::of("opening or making its directory", error)
    }

    /// Converts a failure of [`crate::read_existing_entry`] before a file is placed.
    pub fn of_lookup(error: io::Error) -> SinkError {
        SinkError::of("looking for what stands there", error)
    }

    fn of(action: &'static str, error: io::Error) -> SinkError {
        match Errno::from_io_error(&error) {
            Some(errno) => SinkError::of_name_call(action, errno),
            None => SinkError::Write { action, error },
        }
    }

    /// Converts the failure of a call that takes a name.
    pub(crate) fn of_name_call(action: &'static str, errno: Errno) -> SinkError {
        match errno {
            Errno::ISDIR | Errno::NOTDIR | Errno::LOOP => SinkError::InTheWay(errno.into()),
            Errno::NAMETOOLONG | Errno::ILSEQ | Errno::INVAL => SinkError::BadName(errno.into()),
            errno => SinkError::of_call(action, errno),
        }
    }

    /// Converts the failure of any other call.
    pub(crate) fn of_call(action: &'static str, errno: Errno) -> SinkError {
        match errno {
            Errno::NOSPC | Errno::DQUOT => SinkError::NoSpace(errno.into()),
            Errno::PERM => SinkError::NotPermitted { action, error: errno.into() },
            errno => SinkError::Write { action, error: errno.into() },
        }
    }

    /// Converts the failure to make a symbolic link.
    pub(crate) fn of_symlink_call(errno: Errno) -> SinkError {
        match errno {
            Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => {
                SinkError::NoSymlinks(errno.into())
            }
            errno => SinkError::of_name_call("linking", errno),
        }
    }

    pub(crate) fn of_metadata_call(action: &'static str, errno: Errno) -> SinkError {
        SinkError::Metadata { action, error: errno.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_the_cause_and_messages_say_it() {
        for (errno, kind) in [
            (Errno::NOSPC, FailureKind::NoSpace),
            (Errno::DQUOT, FailureKind::NoSpace),
            (Errno::ISDIR, FailureKind::InTheWay),
            (Errno::NAMETOOLONG, FailureKind::BadName),
            (Errno::ACCESS, FailureKind::WriteError),
        ] {
            assert_eq!(SinkError::of_name_call("creating", errno).kind(), kind);
            assert_eq!(SinkError::of_directory(errno.into()).kind(), kind);
        }
        assert_eq!(SinkError::of_call("writing", Errno::INVAL).kind(), FailureKind::WriteError);
        for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert!(SinkError::of_symlink_call(errno).to_string().contains("--copy-links"));
        }
        assert_eq!(SinkError::of_symlink_call(Errno::NAMETOOLONG).kind(), FailureKind::BadName);
        let message = SinkError::of_call("writing", Errno::IO).to_string();
        assert!(
            message.starts_with("writing failed: ") && message.contains("nput/output error"),
            "{message}"
        );
    }
}
