//! The interface between the common code and the layouts of each file system.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_plan::Layout;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
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
pub(super) struct LayoutFileToCreate<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
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

    /// Creates the file, calls `set` while it is empty, and creates it anew with the default if that fails.
    pub(super) fn create_and_set(
        &self,
        more: OFlags,
        set: impl FnOnce(BorrowedFd<'_>) -> Result<StripeOutcome, String>,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        let file = self.create(more)?;
        match set(file.as_fd()) {
            Ok(outcome) => Ok((file, outcome)),
            Err(why) => {
                drop(file);
                unlinkat(self.directory, self.name, AtFlags::empty())?;
                self.create_with_default(why)
            }
        }
    }
}
