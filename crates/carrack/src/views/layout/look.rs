//! Looks up the layouts of the paths that the user named.
//!
//! Reads attributes only: no file's bytes are read, and released files stay in their archive.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_layout::{FileLayout, FileSystems, MountedFileSystem};
use carrack_model::escape;
use carrack_storage::RootDirectory;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};

use super::{LayoutViewPathKind, PathLayout, TargetBytes, tree_totals};
use crate::user_error::UserError;

/// Looks up the layouts of paths.
pub struct LayoutLooker {
    file_systems: FileSystems,
    is_recursive: bool,
}

impl LayoutLooker {
    /// Creates a looker with `sets` as in [`FileSystems::new`]; `is_recursive` adds up the files below
    /// directories.
    pub fn new(sets: &[PathBuf], is_recursive: bool) -> Result<LayoutLooker, UserError> {
        let file_systems = FileSystems::new(sets).map_err(|error| {
            UserError::new(format!("--targets: {}", escape(error.to_string().as_bytes())))
                .hint("name each mount once, by its mount point")
        })?;
        Ok(LayoutLooker { file_systems, is_recursive })
    }

    /// Looks up the layout of `path`; a link is followed.
    pub fn look_up(&self, path: &Path) -> Result<PathLayout, UserError> {
        let held = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| lookup_error(path, &errno.into()))?;
        let stat = fstat(&held).map_err(|errno| lookup_error(path, &errno.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let file_system = self
                    .file_systems
                    .file_system_of(held.as_fd())
                    .map_err(|error| lookup_error(path, &error))?;
                Ok(self.file(path, &stat, &file_system))
            }
            FileType::Directory => {
                // The directory is opened again, which mounts an automount point.
                let root = RootDirectory::open(path).map_err(|error| lookup_error(path, &error))?;
                let file_system = self
                    .file_systems
                    .file_system_of(root.as_fd())
                    .map_err(|error| lookup_error(path, &error))?;
                Ok(if self.is_recursive {
                    tree_totals::sum(path, root, &file_system, &self.file_systems)
                } else {
                    directory(path, &file_system)
                })
            }
            _ => Err(UserError::new(format!("{}: not a regular file or directory", escaped_path(path)))
                .hint("only regular files and directories have a layout")),
        }
    }

    fn file(&self, path: &Path, stat: &Stat, file_system: &MountedFileSystem) -> PathLayout {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let FileLayout { layout, geometry, is_released, problem, .. } = query_layout(path, file_system, size);
        let bytes = if is_released { Vec::new() } else { layout.bytes_per_target(0..size) };
        let targets = layout.targets().iter().zip(bytes);
        let targets =
            targets.map(|(id, bytes)| tree_totals::target_bytes(&self.file_systems, *id, bytes)).collect();
        let what = LayoutViewPathKind::File { size, is_released, layout };
        placement(path, file_system, what, LayoutTargets { geometry, targets, problem })
    }
}

/// The results of a look-up besides the kind of the path.
#[derive(Default)]
pub(super) struct LayoutTargets {
    pub geometry: Option<carrack_layout::StripeGeometry>,
    pub targets: Vec<TargetBytes>,
    pub problem: Option<String>,
}

pub(super) fn placement(
    path: &Path,
    file_system: &MountedFileSystem,
    what: LayoutViewPathKind,
    found: LayoutTargets,
) -> PathLayout {
    let LayoutTargets { geometry, targets, problem } = found;
    PathLayout {
        path: path.as_os_str().as_bytes().into(),
        kind: file_system.kind(),
        mount_point: file_system.mount_point().map(Path::to_path_buf),
        what,
        geometry,
        targets,
        problem,
    }
}

/// Returns the geometry of new files, if the directory tells it. A file system that doesn't tell it is no
/// problem.
pub(super) fn default_geometry(
    path: &Path,
    file_system: &MountedFileSystem,
) -> Option<carrack_layout::StripeGeometry> {
    query_layout(path, file_system, 0).geometry.filter(|geometry| !geometry.components.is_empty())
}

fn directory(path: &Path, file_system: &MountedFileSystem) -> PathLayout {
    let what = LayoutViewPathKind::Directory { own_target: file_system.own_target().label.clone() };
    let geometry = default_geometry(path, file_system);
    placement(path, file_system, what, LayoutTargets { geometry, ..LayoutTargets::default() })
}

fn query_layout(path: &Path, file_system: &MountedFileSystem, size: u64) -> FileLayout {
    file_system.layout_at(CWD, path.as_os_str().as_bytes(), true, size)
}

fn escaped_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn lookup_error(path: &Path, error: &io::Error) -> UserError {
    let path = escaped_path(path);
    match error.kind() {
        io::ErrorKind::NotFound => UserError::new(format!("{path}: no such file or directory"))
            .hint("check its spelling; a link may lead nowhere"),
        io::ErrorKind::PermissionDenied => UserError::new(format!("{path}: permission denied"))
            .hint("run as a user who may enter the directories above it"),
        _ => UserError::new(format!("{path}: {error}")),
    }
}
