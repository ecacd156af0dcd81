//! The seam between what is the same on every file system and what each of them does in its own way.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_plan::Layout;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::file_ref::FileRef;
use super::geometry::Wish;
use super::registry::Pieces;
use super::{Geometry, StripeOutcome};

/// Knows how one file system places files. One for each mount, used by any number of threads at once.
pub(super) trait Provider: Send + Sync + fmt::Debug {
    /// Where the bytes of a file of `size` bytes lie.
    fn layout_of(&self, file: &FileRef<'_>, size: u64, pieces: &Pieces) -> Result<Found, NoLayout>;

    /// Creates a file with the wished striping, or with the default if that can't be had.
    fn create(&self, file: &NewFile<'_>, wish: &Wish<'_>) -> Result<(OwnedFd, StripeOutcome), Errno>;
}

/// A layout that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Nothing if the file lies where files without a layout lie.
    pub(super) layout: Option<Arc<dyn Layout>>,
    pub(super) geometry: Option<Geometry>,
    pub(super) is_released: bool,
    /// Why a part of it is not known.
    pub(super) problem: Option<String>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLayout {
    /// The file has none of its own, as is usual.
    Default,
    /// It could not be found out.
    Problem(String),
}

impl NoLayout {
    pub(super) fn problem(what: &str, why: impl fmt::Display) -> NoLayout {
        NoLayout::Problem(format!("{what}: {why}"))
    }
}

impl Found {
    pub(super) fn new(layout: Option<impl Layout + 'static>, geometry: Geometry) -> Found {
        let layout = layout.map(|layout| Arc::new(layout) as Arc<dyn Layout>);
        Found { layout, geometry: Some(geometry), is_released: false, problem: None }
    }
}

/// A file that is to be created.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFile<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
}

impl NewFile<'_> {
    /// Creates it; it must not exist.
    pub(super) fn create(&self, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = self.flags | OFlags::CREATE | OFlags::EXCL | more;
        openat(self.directory, self.name, flags, self.mode)
    }

    /// Creates it with the default layout, and says why.
    pub(super) fn refuse(&self, why: String) -> Result<(OwnedFd, StripeOutcome), Errno> {
        Ok((self.create(OFlags::empty())?, StripeOutcome::Refused(why)))
    }

    /// Creates it, calls `set` on it while it is empty, and creates it anew with the default if that fails.
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
                self.refuse(why)
            }
        }
    }
}
