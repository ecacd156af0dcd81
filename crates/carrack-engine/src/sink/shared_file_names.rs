//! The temporary names of large files to which several sessions write, and what becomes of one that is gone.
//!
//! The sessions agree on a name without a message: it follows from the file's version. If a file of that name
//! is gone although journals record ranges of it (somebody removed it), none of those ranges may be counted
//! for a file that takes its place: the sessions go on with the next name. The file fails, as parts that were
//! reported as done are lost: in a session that knows the earlier name, and at the end, where the records are
//! compared with the file. A later run sends the missing parts.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use carrack_model::{Entry, RelPath};
use carrack_storage::{ScratchNames, SinkError};
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::sibling_sessions::SiblingRecords;
use super::sink_file::version_of;

/// Names that are tried for one version of a file: each but the last is gone.
const GENERATIONS_MAX: u8 = 32;

/// Files whose names are remembered.
const REMEMBERED_MAX: usize = 65_536;

/// The names that this session uses.
#[derive(Default)]
pub(super) struct SharedFileNames(Mutex<HashMap<SharedFileVersion, u8>>);

type SharedFileVersion = (RelPath, Box<[u8]>, u16);

/// The name of a file that several sessions write.
pub(super) struct SharedFileName {
    pub(super) temporary: Box<[u8]>,
    generation: u8,
}

impl SharedFileName {
    /// Returns the present name of a file in `held`. `records` are read if the first name is free.
    pub(super) fn find<'r>(
        scratch: &ScratchNames,
        held: BorrowedFd<'_>,
        (directory, entry): (&RelPath, &Entry),
        records: impl FnOnce() -> Option<SiblingRecords<'r>>,
    ) -> Result<SharedFileName, SinkError> {
        let first = SharedFileName::new(scratch, entry, 0);
        if is_there(held, &first.temporary) {
            return Ok(first);
        }
        let records = records().ok_or(SinkError::Vanished)?;
        (0..GENERATIONS_MAX)
            .map(|generation| SharedFileName::new(scratch, entry, generation))
            .find(|name| {
                is_there(held, &name.temporary)
                    || records.held_ranges(directory, entry, &name.temporary).is_empty()
            })
            .ok_or(SinkError::Vanished)
    }

    /// True if no file of this version is gone.
    pub(super) fn is_first(&self) -> bool {
        self.generation == 0
    }

    fn new(scratch: &ScratchNames, entry: &Entry, generation: u8) -> SharedFileName {
        let temporary = scratch.shared_name(&entry.name, version_of(entry, generation));
        SharedFileName { temporary, generation }
    }
}

impl SharedFileNames {
    /// Notes that this session uses a name.
    ///
    /// # Errors
    /// [`SinkError::Vanished`] if it has used an earlier one for the same version of the file.
    pub(super) fn note(
        &self,
        directory: &RelPath,
        entry: &Entry,
        name: &SharedFileName,
    ) -> Result<(), SinkError> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= REMEMBERED_MAX {
            used.clear();
        }
        let version = (directory.clone(), entry.name.clone(), version_of(entry, 0));
        let known = *used.entry(version).or_insert(name.generation);
        if known == name.generation { Ok(()) } else { Err(SinkError::Vanished) }
    }
}

fn is_there(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    !matches!(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}
