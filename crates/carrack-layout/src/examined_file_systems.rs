//! The file systems of one end of a transfer, each examined once.
//!
//! Owns the knowledge of them and the numbers of their targets. Any number of threads may use it at once. The
//! first thread on a device examines it; others may do the same in vain meanwhile.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use carrack_model::TargetId;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use thiserror::Error;

use super::beegfs::BeeGfsProvider;
use super::ceph::{self, CephFsProvider};
use super::disk::DeviceDisks;
use super::file_ref::{LayoutQueryFile, descriptor_path};
use super::gluster::GlusterProvider;
use super::gpfs::GpfsProvider;
use super::lustre::LustreProvider;
use super::mount_table::{MountRecord, mount_of, mounts_beneath};
use super::provider::LayoutProvider;
use super::target_registry::{FileSystemTargets, TargetKey, TargetRegistry};
use super::{FileSystemKind, MountedFileSystem};
use crate::target::{LUSTRE_MAGIC, TargetLabelAndName, magic_of};
use crate::{StorageTarget, TargetAttachmentKind};

const CEPH_MAGIC: u32 = 0x00C3_6400;
const BEEGFS_MAGIC: u32 = 0x1983_0326;
const GPFS_MAGIC: u32 = 0x4750_4653;
const FUSE_MAGIC: u32 = 0x6573_5546;

/// The file systems that an end works on. Shared by all its threads; grows with each new device.
#[derive(Debug)]
pub struct FileSystems {
    /// The mounts that the user declared, by device number.
    set: HashMap<u64, DeclaredMount>,
    known: RwLock<HashMap<u64, Arc<MountedFileSystem>>>,
    registry: Arc<TargetRegistry>,
    /// Set if names of disks, servers and mounts are hidden: users of an export need not know its storage.
    is_discreet: bool,
}

#[derive(Debug)]
struct DeclaredMount {
    inode: u64,
    path: PathBuf,
    /// The server that the user named.
    server: Option<String>,
}

/// The reason why mounts can't be a set.
#[derive(Debug, Error)]
pub enum DeclaredMountsError {
    /// One of them can't be opened, or is no directory.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// The path as the user named it.
        path: PathBuf,
        /// The error of `open` or `stat`.
        #[source]
        error: io::Error,
    },
    /// Two directories of one mount are one target, not two.
    #[error("{} and {} lie on one file system", first.display(), second.display())]
    SameFileSystem {
        /// The first path as the user named it.
        first: PathBuf,
        /// The second path.
        second: PathBuf,
    },
}

impl FileSystems {
    /// Starts with `sets` only: mount directories that the user declared as one set, with one target for each
    /// mount, in the form of [`split_declared_mount`].
    ///
    /// # Errors
    /// [`DeclaredMountsError`]; a directory that is named twice counts once.
    pub fn new(sets: &[PathBuf]) -> Result<FileSystems, DeclaredMountsError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        FileSystems::with_opener(sets, false, |path| Ok(openat(CWD, path, flags, Mode::empty())?))
    }

    /// As [`FileSystems::new`], with `open` to open the directory of a mount's path. With `is_discreet` the
    /// names of disks, servers and mounts are hidden.
    ///
    /// # Errors
    /// As [`FileSystems::new`].
    pub fn with_opener<D: AsFd>(
        sets: &[PathBuf],
        is_discreet: bool,
        open: impl Fn(&Path) -> io::Result<D>,
    ) -> Result<FileSystems, DeclaredMountsError> {
        let mut set: HashMap<u64, DeclaredMount> = HashMap::new();
        for declared in sets {
            let (server, path) = split_declared_mount(declared);
            let path = path.to_path_buf();
            let stat = open(&path)
                .and_then(|directory| Ok(fstat(directory)?))
                .map_err(|error| DeclaredMountsError::Unusable { path: path.clone(), error })?;
            let server = server.map(str::to_owned);
            let mount = DeclaredMount { inode: stat.st_ino, path: path.clone(), server };
            let other = set.insert(stat.st_dev, mount);
            if let Some(other) = other.filter(|other| other.inode != stat.st_ino) {
                return Err(DeclaredMountsError::SameFileSystem { first: other.path, second: path });
            }
        }
        let (known, registry) = (RwLock::default(), Arc::default());
        Ok(FileSystems { set, known, registry, is_discreet })
    }

    /// The file system of an open file or directory (`O_PATH` will do).
    ///
    /// # Errors
    /// Those of `fstat` and `fstatfs`.
    pub fn file_system_of(&self, fd: BorrowedFd<'_>) -> io::Result<Arc<MountedFileSystem>> {
        let device = fstat(fd)?.st_dev;
        if let Some(known) = self.known_file_system(device) {
            return Ok(known);
        }
        let magic = magic_of(fd)?;
        let found = Arc::new(self.examine(fd, device, magic));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        Ok(known.entry(device).or_insert(found).clone())
    }

    /// The file system with a device number (`st_dev`), if it was examined already.
    pub fn known_file_system(&self, device: u64) -> Option<Arc<MountedFileSystem>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
    }

    /// A target that a layout has named.
    pub fn target(&self, id: TargetId) -> Option<StorageTarget> {
        let mut target = self.registry.get(id)?;
        if self.is_discreet {
            target.label = format!("target {}", id.0).into();
            if let Some(server) = &mut target.server {
                server.name = format!("server {}", server.id.0).into();
            }
        }
        Some(target)
    }

    /// The name of a target for messages: its label, and its server if that is known; of a mount that is the
    /// mounted device.
    pub fn target_description(&self, id: TargetId) -> Option<String> {
        let target = self.target(id)?;
        if let Some(server) = &target.server {
            return Some(format!("{} ({})", target.label, server.name));
        }
        let is_mount = target.medium == TargetAttachmentKind::Network && target.label.starts_with('/');
        let shared = target.shared_name.filter(|_| is_mount && !self.is_discreet);
        Some(match shared.as_deref().and_then(|name| name.strip_suffix(&format!("/{}", target.label))) {
            Some(device) => format!("{} ({device})", target.label),
            None => target.label.to_string(),
        })
    }

    /// All targets that layouts have named so far.
    pub fn targets(&self) -> Vec<StorageTarget> {
        self.registry.all()
    }

    /// The number of disks and servers mounted beneath an open directory (`O_PATH` will do); none if it is a
    /// file.
    pub fn mounts_beneath(&self, directory: BorrowedFd<'_>) -> usize {
        fs::read_link(descriptor_path(directory)).map_or(0, |path| mounts_beneath(&path))
    }

    fn examine(&self, fd: BorrowedFd<'_>, device: u64, magic: u32) -> MountedFileSystem {
        let mount = mount_of(fd, device);
        let (kind, provider) = if self.set.contains_key(&device) {
            (FileSystemKind::Set, None)
        } else {
            choose_provider(fd, magic, mount.as_ref())
        };
        let scope = match provider {
            Some(_) => shared_scope(kind, fd, mount.as_ref()),
            None => None,
        };
        let own = self.own_target(device, magic, mount.as_ref(), provider.is_some());
        let request_bytes = provider.as_ref().and_then(|provider| provider.request_bytes());
        let pieces = FileSystemTargets::new(self.registry.clone(), device, &own, scope)
            .with_request_bytes(request_bytes);
        MountedFileSystem::new(kind, mount.map(|mount| mount.point), own, provider, pieces)
    }

    /// The target of files without a layout of their own: the disks, the memory, or the mount. If files have
    /// layouts (`has_pieces`), it is no single piece of storage and has no shared name.
    fn own_target(
        &self,
        device: u64,
        magic: u32,
        mount: Option<&MountRecord>,
        has_pieces: bool,
    ) -> StorageTarget {
        let medium = TargetAttachmentKind::of_magic(magic);
        let disks = DeviceDisks::of(Path::new("/sys"), device);
        let is_on_disks = disks.is_some();
        let disk_count = disks.as_ref().map_or(1, |disks| disks.members.len());
        let (mut key, label) = match disks {
            Some(disks) => (TargetKey::Host(disks.key().into()), disks.label),
            None => mount_target(device, medium, mount),
        };
        let scope = (!has_pieces).then(|| own_scope(medium, is_on_disks, mount)).flatten();
        let server = if has_pieces { None } else { mount.and_then(mount_server) };
        let mut names = TargetLabelAndName::new(&label, scope.as_deref()).on_server(server);
        if let Some(member) = self.set.get(&device) {
            // The label is the user's name for it here; other hosts share it by its storage.
            key = TargetKey::FileSystem(device);
            names.label = label_of(&member.path).into();
            names.server = member.server.as_deref().map(Into::into).or(names.server);
        }
        let met = self.registry.get_or_insert(key, || names.clone(), medium, disk_count);
        // If there are too many targets, files of this one are queued with those of target 0, which stands
        // for none.
        met.unwrap_or_else(|| StorageTarget::new(TargetId(0), names, None, medium, disk_count))
    }
}

/// A mount as a single target. Memory is one target for all its mounts, and so is the common source of
/// several mounts (btrfs).
fn mount_target(
    device: u64,
    medium: TargetAttachmentKind,
    mount: Option<&MountRecord>,
) -> (TargetKey, String) {
    let own = TargetKey::FileSystem(device);
    match mount {
        Some(mount) if medium == TargetAttachmentKind::Memory => {
            (TargetKey::Host("memory".into()), mount.kind.clone())
        }
        Some(mount) if medium == TargetAttachmentKind::Device && mount.source.is_absolute() => {
            (TargetKey::Host(label_of(&mount.source).into()), label_of(&mount.point))
        }
        Some(mount) => (own, label_of(&mount.point)),
        None => (own, format!("device {device}")),
    }
}

/// The scope in which the label of a file system without pieces is unique: the servers' name for it, or this
/// host. None for the kernel's own file systems, such as `/proc`; an overlay is a container's, on a disk.
fn own_scope(medium: TargetAttachmentKind, is_on_disks: bool, mount: Option<&MountRecord>) -> Option<String> {
    match medium {
        TargetAttachmentKind::Memory => None,
        TargetAttachmentKind::Device => {
            let is_storage = is_on_disks
                || mount.is_some_and(|mount| mount.source.is_absolute() || mount.kind == "overlay");
            is_storage.then(host_name)
        }
        TargetAttachmentKind::Network => Some(label_of(&mount?.source)),
    }
}

/// The server of a mount that has a single one: NFS (`host:/export`) and SMB (`//host/share`).
fn mount_server(mount: &MountRecord) -> Option<String> {
    let source = mount.source.to_str()?;
    let server = match &*mount.kind {
        "nfs" | "nfs4" => source.split_once(":/")?.0,
        "cifs" | "smb3" => source.strip_prefix("//")?.split('/').next()?,
        _ => return None,
    };
    Some(server.to_owned()).filter(|server| !server.is_empty())
}

/// Splits a declared mount: `DIR`, or `SERVER=DIR` if several mounts are of one server. A directory whose
/// first component contains `=` is written with a slash before it.
pub fn split_declared_mount(declared: &Path) -> (Option<&str>, &Path) {
    let split = declared.to_str().and_then(|text| text.split_once('='));
    match split.filter(|(server, _)| !server.is_empty() && !server.contains('/')) {
        Some((server, path)) => (Some(server), Path::new(path)),
        None => (None, declared),
    }
}

/// The name of a file system with pieces that all its clients share.
fn shared_scope(kind: FileSystemKind, fd: BorrowedFd<'_>, mount: Option<&MountRecord>) -> Option<Arc<str>> {
    let source = label_of(&mount?.source);
    let name = match kind {
        FileSystemKind::Lustre => lustre_name(&source)?,
        FileSystemKind::CephFs => ceph::cluster_id(fd).unwrap_or_else(|| "cephfs".into()),
        // The name of a brick contains its host.
        FileSystemKind::Gluster => "glusterfs".into(),
        FileSystemKind::BeeGfs => "beegfs".into(),
        FileSystemKind::Gpfs => source,
        FileSystemKind::Set | FileSystemKind::Plain => return None,
    };
    Some(name.into())
}

/// The name of a Lustre file system, from the source of its mount: `10.0.0.1@tcp:10.0.0.2@tcp:/lfs01/home`.
/// The list of servers may differ from client to client.
fn lustre_name(source: &str) -> Option<String> {
    let path = source.rsplit_once(":/").map_or(source, |(_, path)| path);
    path.split('/').find(|name| !name.is_empty()).map(str::to_owned)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn label_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The kind of the file system of an open file or directory, even if the user declared it as one of a set.
pub fn kind_of(fd: BorrowedFd<'_>, device: u64, magic: u32) -> FileSystemKind {
    choose_provider(fd, magic, mount_of(fd, device).as_ref()).0
}

/// Chooses by the magic number first. A file system in a process (FUSE) is known by its mount's type, else by
/// a trial.
fn choose_provider(
    fd: BorrowedFd<'_>,
    magic: u32,
    mount: Option<&MountRecord>,
) -> (FileSystemKind, Option<Box<dyn LayoutProvider>>) {
    let (kind, provider): (_, Box<dyn LayoutProvider>) = match (magic, mount.map_or("", |mount| &mount.kind))
    {
        (LUSTRE_MAGIC, _) => (FileSystemKind::Lustre, lustre_provider(mount)),
        (CEPH_MAGIC, _) => (FileSystemKind::CephFs, Box::new(CephFsProvider::new(true, mount))),
        (BEEGFS_MAGIC, _) => (FileSystemKind::BeeGfs, Box::new(BeeGfsProvider)),
        (GPFS_MAGIC, _) => (FileSystemKind::Gpfs, Box::new(GpfsProvider::default())),
        (FUSE_MAGIC, "fuse.ceph-fuse" | "fuse.ceph") => {
            (FileSystemKind::CephFs, Box::new(CephFsProvider::new(false, mount)))
        }
        (FUSE_MAGIC, "fuse.glusterfs") => {
            let point = mount.map(|mount| &*mount.point);
            (FileSystemKind::Gluster, Box::new(GlusterProvider::new(point)))
        }
        (FUSE_MAGIC, _) if LustreProvider::answers(&LayoutQueryFile::Held(fd)) => {
            (FileSystemKind::Lustre, lustre_provider(mount))
        }
        _ => return (FileSystemKind::Plain, None),
    };
    (kind, Some(provider))
}

fn lustre_provider(mount: Option<&MountRecord>) -> Box<LustreProvider> {
    let name = mount.and_then(|mount| lustre_name(&label_of(&mount.source)));
    Box::new(LustreProvider::new(name.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayoutFileToCreate;
    use crate::mount_table::parse_table;
    use crate::{RequestedLayout, StripeOutcome};
    use rustix::io::Errno;
    use std::fs::File;

    fn none() -> FileSystems {
        FileSystems::new(&[]).unwrap()
    }

    #[test]
    fn memory_is_one_target() {
        let Ok(shm) = File::open("/dev/shm") else {
            println!("skipped: no /dev/shm");
            return;
        };
        let systems = none();
        let found = systems.file_system_of(shm.as_fd()).unwrap();
        assert_eq!((found.kind(), found.has_layouts()), (FileSystemKind::Plain, false));
        let own = found.own_target();
        assert_eq!(
            (&*own.label, own.medium, own.object_bytes),
            ("tmpfs", TargetAttachmentKind::Memory, 512 << 10)
        );
        assert_eq!((systems.target(own.id).as_ref(), &own.shared_name), (Some(own), &None));
        assert_eq!(systems.targets().len(), 1);
    }

    #[test]
    fn a_file_and_its_directory_are_on_one_file_system() {
        let systems = none();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = tempfile::tempfile_in(dir.path()).unwrap();
        let held = openat(CWD, dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let device = fstat(&file).unwrap().st_dev;
        assert!(systems.known_file_system(device).is_none());
        let found = systems.file_system_of(held.as_fd()).unwrap();
        assert!(Arc::ptr_eq(&found, &systems.file_system_of(file.as_fd()).unwrap()));
        assert!(Arc::ptr_eq(&found, &systems.known_file_system(device).unwrap()));
        let layout = found.layout_of(file.as_fd(), 5);
        assert_eq!(layout.layout.targets(), [found.own_target().id]);
        assert!(layout.problem.is_none() && layout.geometry.is_none() && !layout.is_released);
        assert!(found.own_target().object_bytes.is_power_of_two());
        println!("{found:?}");
    }

    #[test]
    fn this_machines_disk_has_a_name() {
        let root = File::open("/").unwrap();
        let device = fstat(&root).unwrap().st_dev;
        if DeviceDisks::of(Path::new("/sys"), device).is_none() {
            println!("skipped: / is not on a disk that sysfs knows");
            return;
        }
        let systems = none();
        let own = systems.file_system_of(root.as_fd()).unwrap().own_target().clone();
        assert!(!own.label.contains('/') && own.medium == TargetAttachmentKind::Device, "{own:?}");
        assert_eq!(own.shared_name.as_deref(), Some(&*format!("{}/{}", host_name(), own.label)));
    }

    #[test]
    fn what_is_the_kernels_own_is_shared_with_nobody() {
        let proc = File::open("/proc").unwrap();
        assert_eq!(none().file_system_of(proc.as_fd()).unwrap().own_target().shared_name, None);
    }

    #[test]
    fn a_declared_mount_is_one_target() {
        let shm = PathBuf::from("/dev/shm");
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let sets = [dir.path().to_path_buf(), shm.clone(), shm.clone()];
        let (Ok(systems), Ok(held)) = (FileSystems::new(&sets), File::open(&shm)) else {
            println!("skipped: no /dev/shm");
            return;
        };
        let found = systems.file_system_of(held.as_fd()).unwrap();
        assert_eq!((found.kind(), &*found.own_target().label), (FileSystemKind::Set, "/dev/shm"));
        // A host without the declaration has to share the target with hosts that have it.
        let disk = File::open(dir.path()).unwrap();
        fn shared(systems: &FileSystems, disk: &File) -> Option<Arc<str>> {
            systems.file_system_of(disk.as_fd()).unwrap().own_target().shared_name.clone()
        }
        assert_eq!(shared(&systems, &disk), shared(&none(), &disk));
        assert!(shared(&systems, &disk).is_some());
    }

    #[test]
    fn a_declared_mount_may_name_its_server() {
        for (declared, server, path) in [
            ("/mnt/a", None, "/mnt/a"),
            ("nas1=/mnt/a", Some("nas1"), "/mnt/a"),
            ("nas1=a=b", Some("nas1"), "a=b"),
            ("./a=b", None, "./a=b"),
            ("/mnt/a=b", None, "/mnt/a=b"),
            ("=a", None, "=a"),
        ] {
            assert_eq!(split_declared_mount(Path::new(declared)), (server, Path::new(path)), "{declared}");
        }
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let systems = FileSystems::new(&[format!("nas1={}", dir.path().display()).into()]).unwrap();
        let own = systems.file_system_of(held.as_fd()).unwrap().own_target().clone();
        assert_eq!((&*own.label, &*own.server.unwrap().name), (dir.path().to_str().unwrap(), "nas1"));
    }

    #[test]
    fn a_mount_of_a_server_has_its_name() {
        let table = b"1 0 0:9 / /a rw - nfs4 nas1:/export rw\n2 0 0:9 / /a rw - nfs [fd00::1]:/ rw\n\
                      3 0 0:9 / /a rw - cifs //nas2/share/x rw\n4 0 8:2 / /a rw - xfs /dev/a:/b rw\n\
                      5 0 0:9 / /a rw - fuse.glusterfs h:/v rw\n";
        let servers: Vec<_> = parse_table(table).map(|mount| mount_server(&mount)).collect();
        assert_eq!(
            servers,
            [Some("nas1"), Some("[fd00::1]"), Some("nas2"), None, None].map(|s| s.map(str::to_owned))
        );
    }

    #[test]
    fn what_can_not_be_a_set_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::write(top.join("file"), b"x").unwrap();
        fs::create_dir(top.join("a")).unwrap();
        fs::create_dir(top.join("b")).unwrap();
        for path in [top.join("none"), top.join("file")] {
            let error = FileSystems::new(std::slice::from_ref(&path)).unwrap_err();
            assert!(matches!(&error, DeclaredMountsError::Unusable { path: named, .. } if *named == path));
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
        }
        let error = FileSystems::new(&[top.join("a"), top.join("b")]).unwrap_err();
        assert!(matches!(error, DeclaredMountsError::SameFileSystem { .. }), "{error}");
        assert!(FileSystems::new(&[top.join("a"), top.join("a")]).is_ok());
    }

    #[test]
    fn files_are_created_once_and_stripes_refused_where_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let systems = none();
        let found = systems.file_system_of(handle.as_fd()).unwrap();
        let fixed = RequestedLayout::Fixed { count: 4, stripe_bytes: None, pool: None };
        let auto = RequestedLayout::Auto { file_bytes: 5 << 30, avoided: Vec::new() };
        let outcomes = [(b"a", &RequestedLayout::Default), (b"b", &auto), (b"c", &fixed), (b"a", &auto)].map(
            |(name, stripe)| {
                let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
                let file =
                    LayoutFileToCreate { directory: handle.as_fd(), name, flags, mode, is_shared: false };
                found.create(&file, stripe).map(|(_, outcome)| outcome)
            },
        );
        let [a, b, c, again] = outcomes;
        assert_eq!((a, b), (Ok(StripeOutcome::Default), Ok(StripeOutcome::Default)));
        assert!(matches!(c, Ok(StripeOutcome::Refused(_))));
        assert_eq!(again, Err(Errno::EXIST));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
