//! The remains of an unfinished transfer at its sink: journals, and the temporary files that they record.
//!
//! Only files in a journal are removed, and only those with temporary names; a journal that a process has
//! locked is left. The journal is removed last: after a failure it still records the remaining files.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use carrack_journal::{Journal, JournalContents, JournalError, PartialFile, boot_id, id_of_file_name};
use carrack_model::{RelPath, TransferId, escape};
use carrack_storage::{RootDirectory, ScratchNames, preserve_times};
use rustix::fs::{AtFlags, Dir, unlinkat};
use rustix::io::Errno;

use crate::session::shared_journal_directory;

/// The reason why a file was not removed.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// A journal can't be read, or a process has locked it.
    #[error("{path}: {error}")]
    Journal {
        /// Its path.
        path: String,
        /// The problem.
        error: JournalError,
    },
    /// A journal records a file that is not a temporary one.
    #[error("{0}: not a temporary name; the journal is left as it is")]
    NotTemporary(String),
    /// An error of the system.
    #[error("{path}: {error}")]
    System {
        /// The path of the file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Removes the temporary files beneath `root` that a journal records. Returns their number.
///
/// # Errors
/// For the first file that can't be removed.
pub fn remove_temporaries(root: &RootDirectory, contents: &JournalContents) -> Result<u64, LeftoverError> {
    let mut removed = 0;
    for partial in &contents.partials {
        removed += u64::from(remove_temporary(root, partial)?);
    }
    Ok(removed)
}

/// Removes the temporary file of a begun file. Returns true if it existed.
pub(crate) fn remove_temporary(root: &RootDirectory, partial: &PartialFile) -> Result<bool, LeftoverError> {
    let path = escape(&root.full_path(&partial.directory, &partial.temporary));
    if !ScratchNames::is_temporary(&partial.temporary) {
        return Err(LeftoverError::NotTemporary(path));
    }
    let directory = match root.open_directory(&partial.directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(LeftoverError::System { path, error }),
        Ok(directory) => directory,
    };
    preserve_times(directory.as_fd(), || match unlinkat(&directory, &*partial.temporary, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(LeftoverError::System { path, error: errno.into() }),
    })
}

/// Removes the remains of a transfer that several sessions carried from the destination's directory. Returns
/// the numbers of journals and temporary files. Nothing is removed while a process has one of the journals.
///
/// # Errors
/// For the first file that can't be removed; earlier ones stay removed.
pub fn clear_shared_leftovers(root: &RootDirectory, id: TransferId) -> Result<(u64, u64), LeftoverError> {
    let name = shared_journal_directory(id);
    let relative =
        RelPath::new(name.as_bytes()).map_err(|_| system(&name)(ErrorKind::InvalidInput.into()))?;
    let directory = match root.open_directory(&relative) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, 0)),
        opened => opened.map_err(system(&name))?,
    };
    let boot = boot_id().map_err(system("the kernel's boot id"))?;
    let journals = lock_all_journals(directory.as_fd(), &name, boot)?;
    let mut temporaries = 0;
    for (_, contents) in &journals {
        temporaries += remove_temporaries(root, contents)?;
    }
    let count = journals.len() as u64;
    for (journal, _) in journals {
        journal.remove().map_err(|error| LeftoverError::Journal { path: name.clone(), error })?;
    }
    let held = root.open_directory(&RelPath::root()).map_err(system(&name))?;
    preserve_times(held.as_fd(), || match unlinkat(&held, &*name, AtFlags::REMOVEDIR) {
        // Files of others keep the directory.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok((count, temporaries)),
        Err(errno) => Err(system(&name)(errno.into())),
    })
}

/// Locks all journals of a directory, or none.
fn lock_all_journals(
    directory: BorrowedFd<'_>,
    path: &str,
    boot: [u8; 16],
) -> Result<Vec<(Journal, JournalContents)>, LeftoverError> {
    let entries = Dir::read_from(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|errno| system(path)(errno.into()))?;
    let names: Vec<CString> = entries.iter().map(|entry| entry.file_name().to_owned()).collect();
    let ids = names.iter().filter_map(|name| id_of_file_name(name.to_bytes()));
    let mut journals = Vec::new();
    for id in ids {
        match Journal::lock_for_removal(directory, id, boot) {
            Ok(seized) => journals.push(seized),
            Err(JournalError::Missing) => {}
            Err(error) => return Err(LeftoverError::Journal { path: path.to_owned(), error }),
        }
    }
    Ok(journals)
}

fn system(path: &str) -> impl Fn(io::Error) -> LeftoverError + '_ {
    move |error| LeftoverError::System { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_names_are_removed() {
        for (name, is) in [
            (&b".f.carrack-0123abcd"[..], true),
            (b"..carrack-01234567", true),
            (b"f.carrack-01234567", false),
            (b".f.carrack-0123456", false),
            (b".f.carrack-0123456x", false),
            (b".bashrc", false),
            (b"", false),
        ] {
            assert_eq!(ScratchNames::is_temporary(name), is, "{}", escape(name));
        }
    }
}
