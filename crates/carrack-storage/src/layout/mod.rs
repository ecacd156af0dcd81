//! Temporary: replaced by the providers' branch.
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use carrack_model::TargetId;
use carrack_plan::{Layout, SingleTarget};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::StorageTarget;

mod geometry;
pub use geometry::{ComponentGeometry, Geometry, Pattern, STRIPE_COUNT_ALL, Stripe, StripeOutcome};
/// .
pub struct FileLayout {
    /// .
    pub layout: Arc<dyn Layout>,
    /// .
    pub geometry: Option<Geometry>,
    /// .
    pub is_released: bool,
    /// .
    pub problem: Option<String>,
}
/// .
#[derive(Debug)]
pub struct FileSystem {
    own: StorageTarget,
}
/// .
#[derive(Debug, Default)]
pub struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}
impl FileSystems {
    /// .
    pub fn new(_sets: &[PathBuf]) -> io::Result<FileSystems> {
        Ok(FileSystems::default())
    }
    /// .
    pub fn of(&self, fd: BorrowedFd<'_>) -> io::Result<Arc<FileSystem>> {
        let device = fstat(fd)?.st_dev;
        let own = StorageTarget::of(fd)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(device).or_insert_with(|| Arc::new(FileSystem { own }))))
    }
    /// .
    pub fn known(&self, device: u64) -> Option<Arc<FileSystem>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
    }
    /// .
    pub fn target(&self, id: TargetId) -> Option<StorageTarget> {
        self.known(id.0).map(|fs| fs.own.clone())
    }
    /// .
    pub fn targets(&self) -> Vec<StorageTarget> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().map(|fs| fs.own.clone()).collect()
    }
}
impl FileSystem {
    /// .
    pub fn own_target(&self) -> &StorageTarget {
        &self.own
    }
    /// .
    pub fn has_layouts(&self) -> bool {
        false
    }
    /// .
    pub fn layout_of(&self, _file: BorrowedFd<'_>, _size: u64) -> FileLayout {
        FileLayout {
            layout: Arc::new(SingleTarget { target: self.own.id }),
            geometry: None,
            is_released: false,
            problem: None,
        }
    }
    /// .
    pub fn layout_at(&self, directory: BorrowedFd<'_>, _name: &[u8], _follow: bool, size: u64) -> FileLayout {
        self.layout_of(directory, size)
    }
    /// .
    pub fn create(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
        _stripe: &Stripe,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        Ok((openat(directory, name, flags | OFlags::CREATE | OFlags::EXCL, mode)?, StripeOutcome::Default))
    }
}
impl FileSystems {
    /// .
    pub fn has_mounts_beneath(&self, path: &std::path::Path) -> bool {
        let Ok(path) = std::fs::canonicalize(path) else { return false };
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|mount| {
            let mount = std::path::Path::new(mount);
            mount != path && mount.starts_with(&path)
        })
    }
}
