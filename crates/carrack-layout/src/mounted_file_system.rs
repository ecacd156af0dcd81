//! One mounted file system: its layouts, and the striping of new files.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_plan::{Layout, SingleTarget};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file_ref::LayoutQueryFile;
use super::provider::{LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{RequestedLayout, StripeGeometry, StripeOutcome};
use crate::StorageTarget;

/// The kind of a file system, as far as it decides the layouts.
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

/// The layout of a file.
#[derive(Clone, Debug)]
pub struct FileLayout {
    /// The target of every offset; the file system's own target if the layout is unknown.
    pub layout: Arc<dyn Layout>,
    /// The shape of the layout, if it has one.
    pub geometry: Option<StripeGeometry>,
    /// Set if the data is in an archive, from where a read would restore it (Lustre's HSM).
    pub is_released: bool,
    /// Set if the data is in another storage system, of which this one has only a reference (Lustre's foreign
    /// layouts).
    pub is_foreign: bool,
    /// The reason why the layout, or a part of it, is unknown, as a message without the file's name.
    pub problem: Option<String>,
}

/// One mounted file system. Any number of threads may use it at once.
#[derive(Debug)]
pub struct MountedFileSystem {
    kind: FileSystemKind,
    mount_point: Option<PathBuf>,
    own: StorageTarget,
    /// The layout of files on the own target.
    whole: Arc<dyn Layout>,
    provider: Option<Box<dyn LayoutProvider>>,
    pieces: FileSystemTargets,
}

impl MountedFileSystem {
    pub(super) fn new(
        kind: FileSystemKind,
        mount_point: Option<PathBuf>,
        own: StorageTarget,
        provider: Option<Box<dyn LayoutProvider>>,
        pieces: FileSystemTargets,
    ) -> MountedFileSystem {
        let whole = Arc::new(SingleTarget { target: own.id });
        MountedFileSystem { kind, mount_point, own, whole, provider, pieces }
    }

    /// The kind of the file system.
    pub fn kind(&self) -> FileSystemKind {
        self.kind
    }

    /// The mount point, if the kernel reports it.
    pub fn mount_point(&self) -> Option<&Path> {
        self.mount_point.as_deref()
    }

    /// The target of files without a layout of their own: small files, and openings.
    pub fn own_target(&self) -> &StorageTarget {
        &self.own
    }

    /// The common prefix of the shared names of all its targets, up to a slash; the own target's name if it
    /// is one piece of storage.
    pub fn shared_name(&self) -> Option<&str> {
        self.pieces.scope().or(self.own.shared_name.as_deref())
    }

    /// Returns true if files may have their own targets, so that layouts are worth reading.
    pub fn has_layouts(&self) -> bool {
        self.provider.is_some()
    }

    /// Returns true if the data of files may be elsewhere: in an archive, from where a read would restore it,
    /// or in another storage system.
    pub fn may_have_absent_data(&self) -> bool {
        self.kind == FileSystemKind::Lustre
    }

    /// The layout of an open file of `size` bytes. `file` is open for reading or writing and lies on this
    /// file system.
    ///
    /// Never fails: unknown parts lie on the own target, and the layout contains the reason.
    pub fn layout_of(&self, file: BorrowedFd<'_>, size: u64) -> FileLayout {
        self.query_layout(&LayoutQueryFile::Open(file), size)
    }

    /// As [`MountedFileSystem::layout_of`] for `name` in `directory` (which may be `O_PATH`). Follows a link
    /// only with `follow`.
    ///
    /// Opens the file only if attributes don't contain the layout (BeeGFS, GPFS, CephFS with the kernel's
    /// client).
    pub fn layout_at(&self, directory: BorrowedFd<'_>, name: &[u8], follow: bool, size: u64) -> FileLayout {
        self.query_layout(&LayoutQueryFile::Named { directory, name, follow }, size)
    }

    fn query_layout(&self, file: &LayoutQueryFile<'_>, size: u64) -> FileLayout {
        let Some(provider) = &self.provider else { return self.single_target_layout(None) };
        match provider.layout_of(file, size, &self.pieces) {
            Ok(found) => FileLayout {
                layout: found.layout.unwrap_or_else(|| self.whole.clone()),
                geometry: found.geometry,
                is_released: found.is_released,
                is_foreign: found.is_foreign,
                problem: found.problem,
            },
            Err(MissingLayoutReason::Default) => self.single_target_layout(None),
            Err(MissingLayoutReason::Problem(problem)) => self.single_target_layout(Some(problem)),
        }
    }

    fn single_target_layout(&self, problem: Option<String>) -> FileLayout {
        FileLayout {
            layout: self.whole.clone(),
            geometry: None,
            is_released: false,
            is_foreign: false,
            problem,
        }
    }

    /// Creates the file `name` in `directory` for writing, with the requested striping set before the first
    /// byte.
    ///
    /// `flags` are those of the open; the flags of an exclusive creation are added. If the striping is
    /// refused, the file has its directory's default, and the outcome contains the reason.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn create(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
        stripe: &RequestedLayout,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        let file = LayoutFileToCreate { directory, name, flags, mode };
        match (stripe.request(), &self.provider) {
            (None, _) => Ok((file.create(OFlags::empty())?, StripeOutcome::Default)),
            (Some(request), Some(provider)) => provider.create(&file, &request),
            (Some(request), None) if request.is_auto => {
                Ok((file.create(OFlags::empty())?, StripeOutcome::Default))
            }
            (Some(_), None) => file.create_with_default(format!("{} has no stripes to set", self.kind)),
        }
    }
}
