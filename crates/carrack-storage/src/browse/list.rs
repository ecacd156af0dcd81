//! Listing one directory in the batches of the kernel, so that no list of a whole directory is held.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use carrack_model::limits::SCAN_BATCH_ENTRIES_MAX;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use super::ListedEntry;
use crate::beneath::{DIRECTORY, open_beneath, open_child};
use crate::{PathBase, PathPurpose};

/// Bytes of the names of one `getdents` call, as in glibc.
const LISTING_BYTES: usize = 32 << 10;

/// An item of a listing.
#[derive(Debug)]
pub enum ListingItem {
    /// Some of the entries, at most [`SCAN_BATCH_ENTRIES_MAX`], in the order of the file system.
    Entries(Vec<ListedEntry>),
    /// An entry whose status can't be read.
    Failed {
        /// Its name.
        name: Box<[u8]>,
        /// The cause.
        error: io::Error,
    },
}

impl PathBase {
    /// Lists the directory `path` without `.` and `..`. Entries that vanish meanwhile are left out.
    ///
    /// Ends early if `found` returns `Break`. A link is no directory, except for [`PathBase::Anywhere`] with
    /// a trailing slash.
    ///
    /// # Errors
    /// As [`PathBase::open`], and those of `getdents`; `found` may have been called before.
    pub fn list(&self, path: &Path, found: &mut dyn FnMut(ListingItem) -> ControlFlow<()>) -> io::Result<()> {
        let directory = self.open_to_list(path)?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(&directory, &mut buffer);
        let mut batch = ListingBatch { entries: Vec::with_capacity(SCAN_BATCH_ENTRIES_MAX), found };
        while let Some(entry) = listing.next() {
            let flow = match entry {
                Ok(entry) => batch.add_entry(&directory, entry.file_name()),
                Err(Errno::INTR) => ControlFlow::Continue(()),
                Err(errno) => return Err(errno.into()),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        // The listing ends here with either answer.
        let _ = batch.flush();
        Ok(())
    }

    fn open_to_list(&self, path: &Path) -> io::Result<OwnedFd> {
        if !self.is_confined() {
            return Ok(openat(CWD, path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
        }
        let spot = self.spot(path, PathPurpose::Browse)?;
        let holder = spot.holder.as_fd();
        Ok(match &spot.name {
            Some(name) => open_child(holder, name, DIRECTORY)?,
            None => open_beneath(holder, &carrack_model::RelPath::root(), DIRECTORY)?,
        })
    }
}

struct ListingBatch<'a> {
    entries: Vec<ListedEntry>,
    found: &'a mut dyn FnMut(ListingItem) -> ControlFlow<()>,
}

impl ListingBatch<'_> {
    fn add_entry(&mut self, directory: &OwnedFd, name: &CStr) -> ControlFlow<()> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return ControlFlow::Continue(());
        }
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.entries.push(ListedEntry::of(name.to_bytes(), &stat)),
            Err(Errno::NOENT) => {}
            Err(errno) => {
                (self.found)(ListingItem::Failed { name: name.to_bytes().into(), error: errno.into() })?;
            }
        }
        if self.entries.len() < SCAN_BATCH_ENTRIES_MAX { ControlFlow::Continue(()) } else { self.flush() }
    }

    fn flush(&mut self) -> ControlFlow<()> {
        if self.entries.is_empty() {
            return ControlFlow::Continue(());
        }
        let entries = mem::replace(&mut self.entries, Vec::with_capacity(SCAN_BATCH_ENTRIES_MAX));
        (self.found)(ListingItem::Entries(entries))
    }
}
