//! One mounted file system: its layouts, and the striping of new files.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use carrack_plan::{Layout, SingleTarget};
use rustix::fs::{CWD, OFlags};
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
    /// GlusterFS: whole files, or their shards, on bricks.
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
    /// The layout that the root of the file system gives to new files, once it was asked for.
    root_default: OnceLock<Option<StripeGeometry>>,
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
        let root_default = OnceLock::new();
        MountedFileSystem { kind, mount_point, own, whole, provider, pieces, root_default }
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

    /// The size of requests that suits its files, a power of two, if that is more than elsewhere.
    pub fn request_bytes(&self) -> Option<u32> {
        self.pieces.request_bytes()
    }

    /// The shape of the layout that a directory (`O_PATH` will do) gives to new files; none if none is told.
    pub fn default_geometry_of(&self, directory: BorrowedFd<'_>) -> Option<StripeGeometry> {
        self.default_of(&LayoutQueryFile::Held(directory))
    }

    /// As [`MountedFileSystem::default_geometry_of`], if it differs from that of the whole file system, which
    /// directories without their own show too.
    pub fn own_default_geometry_of(&self, directory: BorrowedFd<'_>) -> Option<StripeGeometry> {
        if self.kind != FileSystemKind::Lustre {
            return None;
        }
        let found = self.default_geometry_of(directory)?;
        let of_all = self.root_default.get_or_init(|| {
            let root = self.mount_point.as_ref()?.as_os_str().as_bytes();
            self.default_of(&LayoutQueryFile::Named { directory: CWD, name: root, follow: true })
        });
        (of_all.as_ref() != Some(&found)).then_some(found)
    }

    fn default_of(&self, directory: &LayoutQueryFile<'_>) -> Option<StripeGeometry> {
        self.provider.as_ref()?.layout_of(directory, 0, &self.pieces).ok()?.geometry
    }

    /// Gives the new files in a directory (`O_PATH` will do) the layout of another one's.
    pub fn set_default(&self, directory: BorrowedFd<'_>, geometry: &StripeGeometry) -> StripeOutcome {
        let stripe = RequestedLayout::Like(geometry.clone());
        match (stripe.request(), &self.provider) {
            (None, _) => StripeOutcome::Default,
            (Some(request), Some(provider)) => provider.set_default(directory, &request),
            (Some(_), None) => StripeOutcome::Refused(format!("{} has no stripes to set", self.kind)),
        }
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

    /// Creates a file for writing, with the requested striping set before the first byte.
    ///
    /// If the striping is refused, the file has its directory's default, and the outcome contains the reason.
    ///
    /// # Errors
    /// Those of `open`; `EEXIST` for a shared file if another session was faster.
    pub fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        stripe: &RequestedLayout,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        match (stripe.request(), &self.provider) {
            (None, _) => Ok((file.create(OFlags::empty())?, StripeOutcome::Default)),
            (Some(request), Some(provider)) => {
                let (file, outcome) = provider.create(file, &request, &self.pieces)?;
                let is_flat = self.kind != FileSystemKind::Lustre && !request.components.is_empty();
                match outcome {
                    StripeOutcome::Set if is_flat => {
                        let why = format!("striped as its widest component: {} has no others", self.kind);
                        Ok((file, StripeOutcome::Refused(why)))
                    }
                    outcome => Ok((file, outcome)),
                }
            }
            (Some(request), None) if request.auto.is_some() => {
                Ok((file.create(OFlags::empty())?, StripeOutcome::Default))
            }
            (Some(_), None) => file.create_with_default(format!("{} has no stripes to set", self.kind)),
        }
    }

    /// Opens a shared file that another session has created or is creating; it has the requested striping
    /// before its first byte.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_shared(
        &self,
        file: &LayoutFileToCreate<'_>,
        stripe: &RequestedLayout,
    ) -> Result<OwnedFd, Errno> {
        match (stripe.request(), &self.provider) {
            (Some(request), Some(provider)) => provider.open_shared(file, &request, &self.pieces),
            _ => file.open(OFlags::empty()),
        }
    }
}
