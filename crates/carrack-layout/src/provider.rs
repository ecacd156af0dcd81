//! The interface between the common code and the layouts of each file system.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_plan::Layout;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::file_ref::LayoutQueryFile;
use super::layout_shape::StripeRequest;
use super::target_registry::FileSystemTargets;
use super::{StripeGeometry, StripeOutcome};

/// Reads and sets the layouts of one file system. One for each mount, used by any number of threads at once.
pub(super) trait LayoutProvider: Send + Sync + fmt::Debug {
    /// Reads the layout of a file of `size` bytes.
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason>;

    /// Returns the largest request of a client, if objects of that size suit the file system; a power of two.
    fn request_bytes(&self) -> Option<u32> {
        None
    }

    /// Creates a file with the requested striping, or with the default if that is refused.
    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        pieces: &FileSystemTargets,
    ) -> Result<(OwnedFd, StripeOutcome), Errno>;

    /// Opens a shared file that exists, which has the requested striping before its first byte if the file
    /// system permits that, also where the session that creates the file has not set it yet.
    fn open_shared(
        &self,
        file: &LayoutFileToCreate<'_>,
        _request: &StripeRequest<'_>,
        _pieces: &FileSystemTargets,
    ) -> Result<OwnedFd, Errno> {
        file.open(OFlags::empty())
    }

    /// Gives the new files in a directory the requested striping, or tells why that is not possible.
    fn set_default(&self, _directory: BorrowedFd<'_>, _request: &StripeRequest<'_>) -> StripeOutcome {
        StripeOutcome::Refused("its directories have no layouts".to_owned())
    }
}

/// A layout that was found.
#[derive(Clone, Debug)]
pub(super) struct FoundLayout {
    /// None if the file lies on the own target.
    pub(super) layout: Option<Arc<dyn Layout>>,
    pub(super) geometry: Option<StripeGeometry>,
    pub(super) is_released: bool,
    pub(super) is_foreign: bool,
    /// The reason why a part of the layout is unknown.
    pub(super) problem: Option<String>,
}

/// The reason for a missing layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MissingLayoutReason {
    /// The file has no layout of its own, as usual.
    Default,
    /// The layout could not be read.
    Problem(String),
}

impl MissingLayoutReason {
    pub(super) fn problem(what: &str, why: impl fmt::Display) -> MissingLayoutReason {
        MissingLayoutReason::Problem(format!("{what}: {why}"))
    }
}

impl FoundLayout {
    pub(super) fn new(layout: Option<impl Layout + 'static>, geometry: StripeGeometry) -> FoundLayout {
        let layout = layout.map(|layout| Arc::new(layout) as Arc<dyn Layout>);
        FoundLayout { layout, geometry: Some(geometry), is_released: false, is_foreign: false, problem: None }
    }
}

/// A file before its creation.
#[derive(Clone, Copy, Debug)]
pub struct LayoutFileToCreate<'a> {
    /// Its directory.
    pub directory: BorrowedFd<'a>,
    /// Its name.
    pub name: &'a [u8],
    /// The flags of the open; those of an exclusive creation are added, or taken away where it exists.
    pub flags: OFlags,
    /// The mode of a new file.
    pub mode: Mode,
    /// True if other sessions create the same file, or open it as soon as it exists.
    pub is_shared: bool,
}

impl LayoutFileToCreate<'_> {
    /// Creates the file; it must not exist.
    pub(super) fn create(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = self.flags | OFlags::CREATE | OFlags::EXCL | more;
        openat(self.directory, self.name, flags, self.mode)
    }

    /// Creates the file with the default layout, and reports the reason.
    pub(super) fn create_with_default(&self, why: String) -> Result<(OwnedFd, StripeOutcome), Errno> {
        Ok((self.create(OFlags::empty())?, StripeOutcome::Refused(why)))
    }

    /// Opens the file, which exists.
    pub(super) fn open(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = self.flags.difference(OFlags::CREATE | OFlags::EXCL) | more;
        openat(self.directory, self.name, flags, Mode::empty())
    }

    /// Opens the file, which exists, and calls `set`; if that fails, it has the striping of another session
    /// or the default.
    pub(super) fn open_and_set(
        &self,
        more: OFlags,
        set: impl FnOnce(BorrowedFd<'_>) -> Result<StripeOutcome, String>,
    ) -> Result<OwnedFd, Errno> {
        let file = self.open(more)?;
        match set(file.as_fd()) {
            Ok(_) => Ok(file),
            Err(_) => self.open(OFlags::empty()),
        }
    }

    /// Creates the file, calls `set` while it is empty, and creates it anew with the default if that fails. A
    /// shared file is opened anew with the default, as another session may have written to it.
    pub(super) fn create_and_set(
        &self,
        more: OFlags,
        set: impl FnOnce(BorrowedFd<'_>) -> Result<StripeOutcome, String>,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        let file = self.create(more)?;
        match set(file.as_fd()) {
            Ok(outcome) => Ok((file, outcome)),
            Err(why) if self.is_shared => {
                // Where there are bytes, another session has set the striping, or reported its refusal.
                let is_written = fstat(&file)?.st_size > 0;
                let outcome = if is_written { StripeOutcome::Default } else { StripeOutcome::Refused(why) };
                Ok((self.open(OFlags::empty())?, outcome))
            }
            Err(why) => {
                drop(file);
                unlinkat(self.directory, self.name, AtFlags::empty())?;
                self.create_with_default(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn shared(directory: BorrowedFd<'_>) -> LayoutFileToCreate<'_> {
        LayoutFileToCreate { directory, name: b"f", flags: OFlags::RDWR, mode: Mode::RWXU, is_shared: true }
    }

    fn refuse(_: BorrowedFd<'_>) -> Result<StripeOutcome, String> {
        Err("no".to_owned())
    }

    /// The other session opens the file before its striping is set, and writes.
    #[test]
    fn a_shared_file_keeps_its_name_when_its_striping_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let file = shared(directory.as_fd());
        let (mine, outcome) = file
            .create_and_set(OFlags::empty(), |_| {
                let other = file.open_and_set(OFlags::empty(), refuse).unwrap();
                File::from(other).write_all_at(b"theirs", 0).unwrap();
                Err("it has data".to_owned())
            })
            .unwrap();
        assert_eq!(outcome, StripeOutcome::Default);
        File::from(mine).write_all_at(b" and mine", 6).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"theirs and mine");
        assert_eq!(file.create_and_set(OFlags::empty(), refuse).unwrap_err(), Errno::EXIST);
    }

    #[test]
    fn a_refusal_of_a_shared_file_without_data_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let (_, outcome) = shared(directory.as_fd()).create_and_set(OFlags::empty(), refuse).unwrap();
        assert_eq!(outcome, StripeOutcome::Refused("no".to_owned()));
    }

    #[test]
    fn the_striping_of_a_shared_file_is_set_by_whoever_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let file = shared(directory.as_fd());
        let mut order = Vec::new();
        file.create_and_set(OFlags::empty(), |_| {
            file.open_and_set(OFlags::empty(), |_| {
                order.push("the one that opens it");
                Ok(StripeOutcome::Set)
            })
            .unwrap();
            order.push("the one that creates it");
            Ok(StripeOutcome::Set)
        })
        .unwrap();
        assert_eq!(order, ["the one that opens it", "the one that creates it"]);
    }
}
