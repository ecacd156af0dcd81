//! A storage target and its parameters.
//!
//! Owns the general knowledge of storage media, and the object sizes and depths that suit them.
//! [`FileSystems`](crate::FileSystems) find the targets of a file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::available_parallelism;

use carrack_model::{ServerId, TargetId};
use rustix::fs::fstatfs;
use rustix::io::Errno;

/// Largest object on a [`TargetAttachmentKind::Memory`] target: the data is still in the core's second-level
/// cache (1 to 2 MiB on server processors) when it is hashed and sent. Half of this size makes one large file
/// a tenth slower, as threads take turns at it twice as often, and files of 1 MiB, too; twice this size is
/// slower on several files (bench/PROFILES.md).
const OBJECT_BYTES_MEMORY: u32 = 512 << 10;

/// Largest object on other media: the stripe unit of the paper's Lustre (L1), and enough to keep a disk or a
/// server busy.
const OBJECT_BYTES: u32 = 1 << 20;

/// I/O threads on one device or server: enough to hide the latency of a request without flooding a disk.
const DEPTH: u32 = 8;

/// Bound of the counted disks of one target: more threads than this times [`DEPTH`] don't run anyway.
const DISKS_MAX: u32 = 32;

/// File systems in memory: tmpfs, ramfs (include/uapi/linux/magic.h).
const MEMORY_MAGICS: [u32; 2] = [0x0102_1994, 0x8584_58F6];

/// File systems on other hosts, or behind a process that may be: NFS, SMB, CIFS, SMB2, Lustre, Ceph, FUSE,
/// 9p, BeeGFS, GPFS, AFS, OrangeFS (include/uapi/linux/magic.h and the projects' own headers).
const NETWORK_MAGICS: [u32; 12] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    LUSTRE_MAGIC,
    0x00C3_6400,
    0x6573_5546,
    0x0102_1997,
    0x1983_0326,
    0x4750_4653,
    0x5346_414F,
    0x2003_0528,
];

/// The medium of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetAttachmentKind {
    /// The host's memory.
    Memory,
    /// A disk of the host.
    Device,
    /// Another host.
    Network,
}

/// A host with storage targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageServer {
    /// Its number within this process.
    pub id: ServerId,
    /// Its name in reports, as the file system has it: "10.0.0.2@tcp", "node3".
    pub name: Arc<str>,
}

/// One independent piece of storage and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageTarget {
    /// Its number within this process.
    pub id: TargetId,
    /// Its name in reports: "OST0007", "osd.3", "host:/brick", "sda", "md0 (sdb sdc)", "/mnt/d3", "tmpfs".
    pub label: Arc<str>,
    /// The name that all its clients share, on all hosts: "lfs01/OST0007", "host/sda". None if it has no
    /// other clients (memory), or is no single piece of storage.
    pub shared_name: Option<Arc<str>>,
    /// The host that it belonged to when it was met first. None if it is unknown, or changes from request to
    /// request.
    pub server: Option<StorageServer>,
    /// Its medium.
    pub medium: TargetAttachmentKind,
    /// Size of the objects of its files, in bytes; a power of two.
    pub object_bytes: u32,
    /// I/O threads that may work on it at once.
    pub depth: u32,
}

/// The names of a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetLabelAndName {
    pub(crate) label: Arc<str>,
    shared: Option<Arc<str>>,
    /// The name of its server.
    pub(crate) server: Option<Arc<str>>,
}

impl TargetLabelAndName {
    /// `scope` is the scope in which the label is unique; its own name is known to all hosts.
    pub(crate) fn new(label: &str, scope: Option<&str>) -> TargetLabelAndName {
        let shared = scope.map(|scope| format!("{scope}/{label}").into());
        TargetLabelAndName { label: label.into(), shared, server: None }
    }

    /// The same with the name of the target's server.
    pub(crate) fn on_server(self, server: Option<String>) -> TargetLabelAndName {
        TargetLabelAndName { server: server.map(Into::into), ..self }
    }
}

impl StorageTarget {
    /// A target of `disk_count` disks (or servers, or anything else that serves requests at the same time).
    pub(crate) fn new(
        id: TargetId,
        names: TargetLabelAndName,
        server: Option<StorageServer>,
        medium: TargetAttachmentKind,
        disk_count: usize,
    ) -> StorageTarget {
        let (object_bytes, depth) = match medium {
            TargetAttachmentKind::Memory => (OBJECT_BYTES_MEMORY, core_count()),
            TargetAttachmentKind::Device | TargetAttachmentKind::Network => {
                (OBJECT_BYTES, DEPTH * clamped(disk_count, 1, DISKS_MAX))
            }
        };
        let TargetLabelAndName { label, shared: shared_name, .. } = names;
        StorageTarget { id, label, shared_name, server, medium, object_bytes, depth }
    }
}

/// The magic number of a file system that does not report one.
pub const UNKNOWN_MAGIC: u32 = 0;

/// The magic number of Lustre (`LL_SUPER_MAGIC`).
pub const LUSTRE_MAGIC: u32 = 0x0BD0_0BD0;

/// The magic number of the file system of an open file (`f_type`, statfs(2)); [`UNKNOWN_MAGIC`] if a sandbox
/// refuses the call.
///
/// # Errors
/// Other errors of `fstatfs`.
pub fn magic_of(file: BorrowedFd<'_>) -> Result<u32, Errno> {
    match fstatfs(file) {
        // The number has 32 bits, sign-extended on some platforms.
        Ok(found) => Ok(found.f_type as u32),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(UNKNOWN_MAGIC),
        Err(errno) => Err(errno),
    }
}

impl TargetAttachmentKind {
    /// The medium of a file system with this `f_type`.
    pub fn of_magic(magic: u32) -> TargetAttachmentKind {
        if MEMORY_MAGICS.contains(&magic) {
            TargetAttachmentKind::Memory
        } else if NETWORK_MAGICS.contains(&magic) {
            TargetAttachmentKind::Network
        } else {
            TargetAttachmentKind::Device
        }
    }
}

fn clamped(count: usize, min: u32, max: u32) -> u32 {
    u32::try_from(count).unwrap_or(max).clamp(min, max)
}

fn core_count() -> u32 {
    available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSystems;
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};

    fn own_target(fd: BorrowedFd<'_>) -> StorageTarget {
        FileSystems::new(&[]).unwrap().file_system_of(fd).unwrap().own_target().clone()
    }

    #[test]
    fn files_of_one_directory_share_a_target() {
        let dir = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(dir.path()).unwrap();
        let handle = File::open(dir.path()).unwrap();
        let target = own_target(file.as_fd());
        assert_eq!(target, own_target(handle.as_fd()));
        assert!(target.depth >= 1 && target.object_bytes.is_multiple_of(4_096));
    }

    #[test]
    fn memory_is_known_by_its_magic() {
        let Ok(shm) = File::open("/dev/shm") else {
            println!("skipped: no /dev/shm");
            return;
        };
        let target = own_target(shm.as_fd());
        assert_eq!((target.medium, target.object_bytes), (TargetAttachmentKind::Memory, 512 << 10));
        assert_eq!(TargetAttachmentKind::of_magic(0x0BD0_0BD0), TargetAttachmentKind::Network);
        assert_eq!(TargetAttachmentKind::of_magic(0xEF53), TargetAttachmentKind::Device);
    }
}
