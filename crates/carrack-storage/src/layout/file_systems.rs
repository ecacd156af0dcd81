//! The file systems that one end of a transfer works on, each looked at once.
//!
//! Owns what is known of them and the numbers of their targets. Used by any number of threads at once; a thread that
//! meets a device first looks at it, others meanwhile may do the same in vain.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use carrack_model::TargetId;
use rustix::fs::fstat;
use thiserror::Error;

use super::beegfs::BeeGfs;
use super::ceph::{self, CephFs};
use super::disk::Disks;
use super::file_ref::{FileRef, descriptor_path};
use super::gluster::Gluster;
use super::gpfs::Gpfs;
use super::lustre::Lustre;
use super::mount_table::{Mount, mount_of, mounts_beneath};
use super::provider::Provider;
use super::registry::{Pieces, Registry, TargetKey};
use super::{FileSystem, FileSystemKind};
use crate::target::{Names, magic_of};
use crate::{Base, Identity, Medium, Purpose, StorageTarget};

const LUSTRE_MAGIC: u32 = 0x0BD0_0BD0;
const CEPH_MAGIC: u32 = 0x00C3_6400;
const BEEGFS_MAGIC: u32 = 0x1983_0326;
const GPFS_MAGIC: u32 = 0x4750_4653;
const FUSE_MAGIC: u32 = 0x6573_5546;

/// What is known of the file systems that an end works on. Shared by all its threads; grows as devices are met.
#[derive(Debug)]
pub struct FileSystems {
    /// The mounts that the user declared, by device number.
    set: HashMap<u64, Member>,
    known: RwLock<HashMap<u64, Arc<FileSystem>>>,
    registry: Arc<Registry>,
    sysfs: PathBuf,
    /// Whether names of disks, servers and mounts are told to nobody: those who see an export need not know where it lies.
    is_discreet: bool,
}

#[derive(Debug)]
struct Member {
    identity: Identity,
    path: PathBuf,
}

/// Why mounts can't be a set.
#[derive(Debug, Error)]
pub enum SetError {
    /// One of them can't be opened, or is no directory.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// As the user named it.
        path: PathBuf,
        /// What `open` or `stat` said.
        #[source]
        error: io::Error,
    },
    /// Two directories of one mount are one target, not two.
    #[error("{} and {} lie on one file system", first.display(), second.display())]
    SameFileSystem {
        /// As the user named it.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

impl FileSystems {
    /// Knows nothing but `sets`: mount directories that the user declared as one set, each mount one target.
    ///
    /// # Errors
    /// [`SetError`]; a directory that is named twice counts once.
    pub fn new(sets: &[PathBuf]) -> Result<FileSystems, SetError> {
        FileSystems::on(&Base::Anywhere, sets)
    }

    /// The same, where the mounts are named beneath a base.
    ///
    /// # Errors
    /// As [`FileSystems::new`].
    pub fn on(base: &Base, sets: &[PathBuf]) -> Result<FileSystems, SetError> {
        FileSystems::with_sysfs(base, sets, Path::new("/sys"))
    }

    fn with_sysfs(base: &Base, sets: &[PathBuf], sysfs: &Path) -> Result<FileSystems, SetError> {
        let mut set: HashMap<u64, Member> = HashMap::new();
        for path in sets {
            let root = base
                .open(path, Purpose::Write)
                .map_err(|error| SetError::Unusable { path: path.clone(), error })?;
            let identity = root.identity();
            let other = set.insert(identity.dev, Member { identity, path: path.clone() });
            if let Some(other) = other.filter(|other| other.identity != identity) {
                return Err(SetError::SameFileSystem { first: other.path, second: path.clone() });
            }
        }
        let (known, registry) = (RwLock::default(), Arc::default());
        let is_discreet = base.is_confined();
        Ok(FileSystems { set, known, registry, sysfs: sysfs.to_path_buf(), is_discreet })
    }

    /// The file system of an open file or directory (`O_PATH` will do).
    ///
    /// # Errors
    /// What `fstat` and `fstatfs` say.
    pub fn of(&self, fd: BorrowedFd<'_>) -> io::Result<Arc<FileSystem>> {
        let device = fstat(fd)?.st_dev;
        if let Some(known) = self.known(device) {
            return Ok(known);
        }
        let magic = magic_of(fd)?;
        let found = Arc::new(self.look_at(fd, device, magic));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        Ok(known.entry(device).or_insert(found).clone())
    }

    /// The file system with a device number (`st_dev`), if one of its files has been met.
    pub fn known(&self, device: u64) -> Option<Arc<FileSystem>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
    }

    /// A target that some layout has named.
    pub fn target(&self, id: TargetId) -> Option<StorageTarget> {
        let target = self.registry.get(id)?;
        let label =
            if self.is_discreet { format!("target {}", id.0).into() } else { Arc::clone(&target.label) };
        Some(StorageTarget { label, ..target })
    }

    /// All targets that layouts have named so far.
    pub fn targets(&self) -> Vec<StorageTarget> {
        self.registry.all()
    }

    /// How many disks and servers are mounted beneath an open directory (`O_PATH` will do); none if it is a file.
    pub fn mounts_beneath(&self, directory: BorrowedFd<'_>) -> usize {
        fs::read_link(descriptor_path(directory)).map_or(0, |path| mounts_beneath(&path))
    }

    fn look_at(&self, fd: BorrowedFd<'_>, device: u64, magic: u32) -> FileSystem {
        let mount = mount_of(fd, device);
        let (kind, provider) = match self.set.contains_key(&device) {
            true => (FileSystemKind::Set, None),
            false => choose_provider(fd, magic, mount.as_ref()),
        };
        let scope = match provider {
            Some(_) => shared_scope(kind, fd, mount.as_ref()),
            None => None,
        };
        let own = self.own_target(device, magic, mount.as_ref(), provider.is_some());
        let pieces = Pieces::new(self.registry.clone(), device, &own, scope);
        FileSystem::new(kind, mount.map(|mount| mount.point), own, provider, pieces)
    }

    /// What files without a layout of their own lie on: the disks, the memory, or the mount.
    /// Where files have layouts it is no one piece of storage (`has_pieces`), and shared with nobody.
    fn own_target(&self, device: u64, magic: u32, mount: Option<&Mount>, has_pieces: bool) -> StorageTarget {
        let medium = Medium::of_magic(magic);
        let disks = Disks::of(&self.sysfs, device);
        let is_on_disks = disks.is_some();
        let disk_count = disks.as_ref().map_or(1, |disks| disks.members.len());
        let (mut key, label) = match disks {
            Some(disks) => (TargetKey::Host(disks.key().into()), disks.label),
            None => whole_mount(device, medium, mount),
        };
        let scope = (!has_pieces).then(|| own_scope(medium, is_on_disks, mount)).flatten();
        let mut names = Names::new(&label, scope.as_deref());
        if let Some(member) = self.set.get(&device) {
            // Its user's name for it here; others, who need not have named it, meet at what it is.
            key = TargetKey::FileSystem(device);
            names.label = label_of(&member.path).into();
        }
        let met = self.registry.meet(key, || names.clone(), medium, disk_count);
        // With as many targets as that, files of this one are queued with those of target 0: nobody's.
        met.unwrap_or_else(|| StorageTarget::new(TargetId(0), names, medium, disk_count))
    }
}

/// Memory is one target, however often it is mounted; so is what several mounts have as their source (btrfs).
fn whole_mount(device: u64, medium: Medium, mount: Option<&Mount>) -> (TargetKey, String) {
    let own = TargetKey::FileSystem(device);
    match mount {
        Some(mount) if medium == Medium::Memory => (TargetKey::Host("memory".into()), mount.kind.clone()),
        Some(mount) if medium == Medium::Device && mount.source.is_absolute() => {
            (TargetKey::Host(label_of(&mount.source).into()), label_of(&mount.point))
        }
        Some(mount) => (own, label_of(&mount.point)),
        None => (own, format!("device {device}")),
    }
}

/// What the label of a file system without pieces is unique in: the servers' name for it, or this host.
/// Nothing of the kernel's own file systems, such as `/proc`; an overlay is a container's, on some disk.
fn own_scope(medium: Medium, is_on_disks: bool, mount: Option<&Mount>) -> Option<String> {
    match medium {
        Medium::Memory => None,
        Medium::Device => {
            let is_storage = |mount: &Mount| mount.source.is_absolute() || mount.kind == "overlay";
            (is_on_disks || mount.is_some_and(is_storage)).then(host_name)
        }
        Medium::Network => Some(label_of(&mount?.source)),
    }
}

/// How everybody who mounts it calls a file system with pieces.
fn shared_scope(kind: FileSystemKind, fd: BorrowedFd<'_>, mount: Option<&Mount>) -> Option<Arc<str>> {
    let source = label_of(&mount?.source);
    let name = match kind {
        // "10.0.0.1@tcp:10.0.0.2@tcp:/lfs01/home": whichever servers were named.
        FileSystemKind::Lustre => {
            let path = source.rsplit_once(":/").map_or(&*source, |(_, path)| path);
            path.split('/').find(|name| !name.is_empty())?.to_owned()
        }
        FileSystemKind::CephFs => ceph::cluster(fd).unwrap_or_else(|| "cephfs".into()),
        // A brick is named with its host.
        FileSystemKind::Gluster => "glusterfs".into(),
        FileSystemKind::BeeGfs => "beegfs".into(),
        FileSystemKind::Gpfs => source,
        FileSystemKind::Set | FileSystemKind::Plain => return None,
    };
    Some(name.into())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn label_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The kind of the file system that an open file or directory lies on, whether or not the user declared it as one of a set.
pub(crate) fn kind_of(fd: BorrowedFd<'_>, device: u64, magic: u32) -> FileSystemKind {
    choose_provider(fd, magic, mount_of(fd, device).as_ref()).0
}

/// By the magic number first; what runs in a process (FUSE) is known by the mount's type, and else by trying.
fn choose_provider(
    fd: BorrowedFd<'_>,
    magic: u32,
    mount: Option<&Mount>,
) -> (FileSystemKind, Option<Box<dyn Provider>>) {
    let (kind, provider): (_, Box<dyn Provider>) = match (magic, mount.map_or("", |mount| &mount.kind)) {
        (LUSTRE_MAGIC, _) => (FileSystemKind::Lustre, Box::new(Lustre)),
        (CEPH_MAGIC, _) => (FileSystemKind::CephFs, Box::new(CephFs::new(true, mount))),
        (BEEGFS_MAGIC, _) => (FileSystemKind::BeeGfs, Box::new(BeeGfs)),
        (GPFS_MAGIC, _) => (FileSystemKind::Gpfs, Box::new(Gpfs::default())),
        (FUSE_MAGIC, "fuse.ceph-fuse" | "fuse.ceph") => {
            (FileSystemKind::CephFs, Box::new(CephFs::new(false, mount)))
        }
        (FUSE_MAGIC, "fuse.glusterfs") => (FileSystemKind::Gluster, Box::new(Gluster)),
        (FUSE_MAGIC, _) if Lustre::answers(&FileRef::Held(fd)) => (FileSystemKind::Lustre, Box::new(Lustre)),
        _ => return (FileSystemKind::Plain, None),
    };
    (kind, Some(provider))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::PASSAGE;
    use crate::layout::{Stripe, StripeOutcome};
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use rustix::io::Errno;
    use std::fs::{self, File};
    use std::os::fd::AsFd;

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
        let found = systems.of(shm.as_fd()).unwrap();
        assert_eq!((found.kind(), found.has_layouts()), (FileSystemKind::Plain, false));
        let own = found.own_target();
        assert_eq!((&*own.label, own.medium, own.object_bytes), ("tmpfs", Medium::Memory, 512 << 10));
        assert_eq!((systems.target(own.id).as_ref(), &own.shared_name), (Some(own), &None));
        assert_eq!(systems.targets().len(), 1);
    }

    #[test]
    fn a_file_and_its_directory_are_on_one_file_system() {
        let systems = none();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = tempfile::tempfile_in(dir.path()).unwrap();
        let held = openat(CWD, dir.path(), PASSAGE, Mode::empty()).unwrap();
        let device = fstat(&file).unwrap().st_dev;
        assert!(systems.known(device).is_none());
        let found = systems.of(held.as_fd()).unwrap();
        assert!(Arc::ptr_eq(&found, &systems.of(file.as_fd()).unwrap()));
        assert!(Arc::ptr_eq(&found, &systems.known(device).unwrap()));
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
        if Disks::of(Path::new("/sys"), device).is_none() {
            println!("skipped: / is not on a disk that sysfs knows");
            return;
        }
        let systems = none();
        let own = systems.of(root.as_fd()).unwrap().own_target().clone();
        assert!(!own.label.contains('/') && own.medium == Medium::Device, "{own:?}");
        assert_eq!(own.shared_name.as_deref(), Some(&*format!("{}/{}", host_name(), own.label)));
    }

    #[test]
    fn what_is_the_kernels_own_is_shared_with_nobody() {
        let proc = File::open("/proc").unwrap();
        assert_eq!(none().of(proc.as_fd()).unwrap().own_target().shared_name, None);
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
        let found = systems.of(held.as_fd()).unwrap();
        assert_eq!((found.kind(), &*found.own_target().label), (FileSystemKind::Set, "/dev/shm"));
        // Who has declared nothing has to meet those who have.
        let disk = File::open(dir.path()).unwrap();
        let shared =
            |systems: &FileSystems| systems.of(disk.as_fd()).unwrap().own_target().shared_name.clone();
        assert_eq!(shared(&systems), shared(&none()));
        assert!(shared(&systems).is_some());
    }

    #[test]
    fn what_can_not_be_a_set_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), b"x").unwrap();
        fs::create_dir(at("a")).unwrap();
        fs::create_dir(at("b")).unwrap();
        for path in [at("none"), at("file")] {
            let error = FileSystems::new(std::slice::from_ref(&path)).unwrap_err();
            assert!(matches!(&error, SetError::Unusable { path: named, .. } if *named == path));
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
        }
        let error = FileSystems::new(&[at("a"), at("b")]).unwrap_err();
        assert!(matches!(error, SetError::SameFileSystem { .. }), "{error}");
        assert!(FileSystems::new(&[at("a"), at("a")]).is_ok());
    }

    #[test]
    fn files_are_created_once_and_stripes_refused_where_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let systems = none();
        let found = systems.of(handle.as_fd()).unwrap();
        let create = |name: &[u8], stripe: &Stripe| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            found.create(handle.as_fd(), name, flags, Mode::RUSR | Mode::WUSR, stripe)
        };
        let fixed = Stripe::Fixed { count: 4, stripe_bytes: None, pool: None };
        assert_eq!(create(b"a", &Stripe::Default).unwrap().1, StripeOutcome::Default);
        assert_eq!(create(b"b", &Stripe::Auto { file_bytes: 5 << 30 }).unwrap().1, StripeOutcome::Default);
        assert!(matches!(create(b"c", &fixed).unwrap().1, StripeOutcome::Refused(_)));
        assert_eq!(create(b"a", &Stripe::Default).unwrap_err(), Errno::EXIST);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
