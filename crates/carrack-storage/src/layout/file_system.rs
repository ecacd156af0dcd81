//! One mounted file system: how it places files, and what of that can be wished for.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_plan::{Layout, SingleTarget};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file_ref::FileRef;
use super::provider::{NewFile, NoLayout, Provider};
use super::registry::Pieces;
use super::{Geometry, Stripe, StripeOutcome};
use crate::StorageTarget;

/// What kind of file system it is, as far as that decides where files lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSystemKind {
    /// Lustre: stripes over OSTs.
    Lustre,
    /// CephFS: objects over OSDs.
    CephFs,
    /// GlusterFS: whole files on bricks.
    Gluster,
    /// BeeGFS: chunks over storage targets.
    BeeGfs,
    /// GPFS (IBM Storage Scale): blocks over disks.
    Gpfs,
    /// One of the mounts that the user declared as a set.
    Set,
    /// Any other: one target for all of its files.
    Plain,
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileSystemKind::Lustre => "Lustre",
            FileSystemKind::CephFs => "CephFS",
            FileSystemKind::Gluster => "GlusterFS",
            FileSystemKind::BeeGfs => "BeeGFS",
            FileSystemKind::Gpfs => "GPFS",
            FileSystemKind::Set => "a set of mounts",
            FileSystemKind::Plain => "a plain file system",
        })
    }
}

/// Where a file lies.
#[derive(Clone, Debug)]
pub struct FileLayout {
    /// For every offset the target; the file system's own where nothing better is known.
    pub layout: Arc<dyn Layout>,
    /// Its shape, where it has one.
    pub geometry: Option<Geometry>,
    /// Whether its data is in an archive, from where reading would bring it back (Lustre's HSM).
    pub is_released: bool,
    /// Why the layout, or a part of it, could not be found out; for people, without the file's name.
    pub problem: Option<String>,
}

/// One mounted file system. Any number of threads may ask it at once.
#[derive(Debug)]
pub struct FileSystem {
    kind: FileSystemKind,
    mount_point: Option<PathBuf>,
    own: StorageTarget,
    /// On the own target.
    whole: Arc<dyn Layout>,
    provider: Option<Box<dyn Provider>>,
    pieces: Pieces,
}

impl FileSystem {
    pub(super) fn new(
        kind: FileSystemKind,
        mount_point: Option<PathBuf>,
        own: StorageTarget,
        provider: Option<Box<dyn Provider>>,
        pieces: Pieces,
    ) -> FileSystem {
        let whole = Arc::new(SingleTarget { target: own.id });
        FileSystem { kind, mount_point, own, whole, provider, pieces }
    }

    /// What kind it is.
    pub fn kind(&self) -> FileSystemKind {
        self.kind
    }

    /// Where it is mounted, if the kernel says.
    pub fn mount_point(&self) -> Option<&Path> {
        self.mount_point.as_deref()
    }

    /// Where files without a layout of their own are queued: small ones, and openings.
    pub fn own_target(&self) -> &StorageTarget {
        &self.own
    }

    /// What the shared names of all its targets begin with, up to a slash; its own target's where it is one piece of storage.
    pub fn shared_name(&self) -> Option<&str> {
        self.pieces.scope().or(self.own.shared_name.as_deref())
    }

    /// Whether files may lie on targets of their own, so that it is worth asking for layouts.
    pub fn has_layouts(&self) -> bool {
        self.provider.is_some()
    }

    /// Whether files may have been released to an archive, so that reading them would bring them back.
    pub fn may_release(&self) -> bool {
        self.kind == FileSystemKind::Lustre
    }

    /// Where an open file of `size` bytes lies. `file` is open for reading or writing and lies on this file system.
    ///
    /// Never fails: what can't be found out lies on the own target, and the layout says why.
    pub fn layout_of(&self, file: BorrowedFd<'_>, size: u64) -> FileLayout {
        self.find(&FileRef::Open(file), size)
    }

    /// As [`FileSystem::layout_of`] for `name` in `directory` (which may be `O_PATH`); a link is followed only if
    /// `follow` says so.
    ///
    /// Opens the file only where attributes don't tell enough (BeeGFS, GPFS, CephFS with the kernel's client).
    pub fn layout_at(&self, directory: BorrowedFd<'_>, name: &[u8], follow: bool, size: u64) -> FileLayout {
        self.find(&FileRef::Named { directory, name, follow }, size)
    }

    fn find(&self, file: &FileRef<'_>, size: u64) -> FileLayout {
        let Some(provider) = &self.provider else { return self.whole(None) };
        match provider.layout_of(file, size, &self.pieces) {
            Ok(found) => FileLayout {
                layout: found.layout.unwrap_or_else(|| self.whole.clone()),
                geometry: found.geometry,
                is_released: found.is_released,
                problem: found.problem,
            },
            Err(NoLayout::Default) => self.whole(None),
            Err(NoLayout::Problem(problem)) => self.whole(Some(problem)),
        }
    }

    fn whole(&self, problem: Option<String>) -> FileLayout {
        FileLayout { layout: self.whole.clone(), geometry: None, is_released: false, problem }
    }

    /// Creates the file `name` in `directory` for writing, with the wished striping set before the first byte.
    ///
    /// `flags` says how to open it; that it is created, and must not exist, is added. Where the striping can't be had
    /// the file has its directory's default, and the outcome says why.
    ///
    /// # Errors
    /// What `open` says.
    pub fn create(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
        stripe: &Stripe,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        let file = NewFile { directory, name, flags, mode };
        match (stripe.wish(), &self.provider) {
            (None, _) => Ok((file.create(OFlags::empty())?, StripeOutcome::Default)),
            (Some(wish), Some(provider)) => provider.create(&file, &wish),
            (Some(wish), None) if wish.is_auto => Ok((file.create(OFlags::empty())?, StripeOutcome::Default)),
            (Some(_), None) => file.refuse(format!("{} has no stripes to set", self.kind)),
        }
    }
}
