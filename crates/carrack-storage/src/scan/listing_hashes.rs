//! The record of a scan, as proof of missing names at the source: a seal for each completely listed
//! directory.
//!
//! A seal is a keyed hash of the directory's identity (device, inode, mount, time of birth), of its change
//! time, and of all names in its listing. A directory with the same seal later is the same one with the same
//! names, so a name that is missing now was missing during the scan. A directory with another seal, or
//! without one, proves nothing. Memory: 16 bytes for each directory, none for files. Used by all threads of a
//! scan, and later by those of the deletion.

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use carrack_model::RelPath;
use rustix::fs::{AtFlags, Dir, Statx, StatxFlags, fstat, statx};
use rustix::io::Errno;

use super::{ScanRoot, ScanRootScope};
use crate::RootDirectory;
use crate::status::MountIdentity;
use carrack_layout::{fstab_points, mount_points};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): an ID that is never reused for a later mount. Older kernels ignore it.
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The requested fields of a directory's status; one call.
const ASKED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID).union(MOUNT_ID_UNIQUE);

/// The reason why a directory proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceProofFailure {
    /// The scan did not list it, or not completely.
    Unseen,
    /// It has changed since the run began, or another directory has its path.
    Changed,
    /// Its file system is not mounted.
    Unmounted,
}

/// The record of one scan.
#[derive(Debug)]
pub struct ScanListingProof {
    keys: RandomState,
    /// The records of the roots.
    roots: Vec<ScanRootRecord>,
    seals: Mutex<CompleteListingHashes>,
    /// Start of the run, in nanoseconds since 1970.
    begun_ns: i128,
    /// The directory that was last found unchanged: its key, and the hash of its identity and change time.
    proven: Mutex<Option<(u64, u64)>>,
}

#[derive(Debug)]
struct ScanRootRecord {
    mount: Option<MountIdentity>,
    /// True if its file system counts links of directories.
    is_linked: bool,
    /// Number of entries that the scan found beneath it.
    entry_count: AtomicU64,
    /// The mount points at the start of the run, with the mounts' IDs, and those that `/etc/fstab` requires;
    /// none if the kernel does not report them.
    mounts: Option<HashMap<RelPath, Option<u64>>>,
}

#[derive(Debug, Default)]
struct CompleteListingHashes {
    /// Pairs of the directory's key and its seal.
    pairs: Vec<(u64, u64)>,
    is_sorted: bool,
}

/// The seal of a directory that is being listed.
pub(super) struct ListingHasher {
    state: u64,
    names: u64,
    /// Number of copied entries.
    pub entry_count: u64,
}

impl ScanListingProof {
    /// Records a scan of `roots` in a run that began at `begun`.
    pub fn new(roots: &[ScanRoot], begun: SystemTime) -> ScanListingProof {
        let points = FstabRequiredMounts::read();
        ScanListingProof {
            keys: RandomState::new(),
            roots: roots.iter().map(|root| ScanRootRecord::new(root, &points)).collect(),
            seals: Mutex::default(),
            begun_ns: since_1970(begun),
            proven: Mutex::default(),
        }
    }

    /// Returns true if the scan found any entries beneath the root of this index.
    pub fn has_entries(&self, root_index: usize) -> bool {
        self.roots[root_index].entry_count.load(Relaxed) > 0
    }

    /// Returns true if the scan listed the directory `path` of the root.
    pub fn has_seen(&self, root_index: usize, path: &RelPath) -> bool {
        self.seal_of(self.key(root_index, path)).is_some()
    }

    /// Checks that the root is the scanned directory and still has its path.
    ///
    /// # Errors
    /// The reason, as a message.
    pub fn check_root(&self, root_index: usize, root: &RootDirectory) -> Result<(), String> {
        let stat = fstat(root).map_err(|errno| io::Error::from(errno).to_string())?;
        if stat.st_nlink == 0 && self.roots[root_index].is_linked {
            return Err("it was removed".to_owned());
        }
        let mount = MountIdentity::of(root.as_fd()).ok();
        if mount != self.roots[root_index].mount {
            return Err("it lies on another file system than when the run began".to_owned());
        }
        match root.open_again() {
            Ok(again) if again.0 == root.identity() && Some(again.1) == mount => Ok(()),
            Ok(_) => Err("another directory has its path".to_owned()),
            Err(error) => Err(format!("it can't be opened by its path: {error}")),
        }
    }

    /// Checks that `held`, the directory `path` of a root, is the listed one, with the same names.
    ///
    /// # Errors
    /// The reason why it proves nothing.
    pub fn check_listing(
        &self,
        (root_index, root): (usize, &ScanRoot),
        path: &RelPath,
        held: BorrowedFd<'_>,
        is_local: bool,
    ) -> Result<(), AbsenceProofFailure> {
        let key = self.key(root_index, path);
        let seal = self.seal_of(key).ok_or(AbsenceProofFailure::Unseen)?;
        self.roots[root_index].check_mounts(path, held, root.root.follows_links())?;
        let found = ListedDirectoryStamp::of(held).map_err(|_| AbsenceProofFailure::Changed)?;
        // The clock of another host proves nothing, nor does a future time.
        if is_local && found.ctime_ns > self.begun_ns && found.ctime_ns <= since_1970(SystemTime::now()) {
            return Err(AbsenceProofFailure::Changed);
        }
        let state = self.keys.hash_one(&found);
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        if *proven == Some((key, state)) {
            return Ok(());
        }
        let names = self.hash_names(held).map_err(|_| AbsenceProofFailure::Changed)?;
        if self.keys.hash_one((state, names)) != seal {
            return Err(AbsenceProofFailure::Changed);
        }
        *proven = Some((key, state));
        Ok(())
    }

    /// Starts the seal of a directory that was just opened. A directory without a status gets no seal.
    pub(super) fn start_seal(&self, held: BorrowedFd<'_>) -> Option<Box<ListingHasher>> {
        let state = ListedDirectoryStamp::of(held).ok()?;
        Some(Box::new(ListingHasher { state: self.keys.hash_one(&state), names: 0, entry_count: 0 }))
    }

    /// Adds a name of the listing.
    pub(super) fn add_name(&self, sealing: &mut ListingHasher, name: &[u8]) {
        sealing.names = sealing.names.wrapping_add(self.keys.hash_one(name));
    }

    /// Ends the seal of a directory that was listed completely.
    pub(super) fn finish_seal(&self, root_index: usize, path: &RelPath, sealing: &ListingHasher) {
        self.roots[root_index].entry_count.fetch_add(sealing.entry_count, Relaxed);
        let pair = (self.key(root_index, path), self.keys.hash_one((sealing.state, sealing.names)));
        let mut seals = self.seals();
        seals.is_sorted = false;
        seals.pairs.push(pair);
    }

    fn key(&self, root_index: usize, path: &RelPath) -> u64 {
        self.keys.hash_one((root_index, path.as_bytes()))
    }

    fn seal_of(&self, key: u64) -> Option<u64> {
        let mut seals = self.seals();
        if !seals.is_sorted {
            seals.pairs.sort_unstable();
            seals.is_sorted = true;
        }
        let index = seals.pairs.binary_search_by_key(&key, |pair| pair.0).ok()?;
        Some(seals.pairs[index].1)
    }

    fn seals(&self) -> MutexGuard<'_, CompleteListingHashes> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of the names' hashes, which does not depend on their order.
    fn hash_names(&self, held: BorrowedFd<'_>) -> io::Result<u64> {
        let mut sum = 0_u64;
        for entry in Dir::read_from(held)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                sum = sum.wrapping_add(self.keys.hash_one(name));
            }
        }
        Ok(sum)
    }
}

impl ScanRootRecord {
    fn new(root: &ScanRoot, points: &FstabRequiredMounts) -> ScanRootRecord {
        let mounts = match &root.what {
            ScanRootScope::Tree { .. } => points.mount_points_beneath(&root.root),
            ScanRootScope::Name { .. } => None,
        };
        let mount = MountIdentity::of(root.root.as_fd()).ok();
        let is_linked = fstat(&root.root).is_ok_and(|stat| stat.st_nlink > 0);
        ScanRootRecord { mount, is_linked, entry_count: AtomicU64::new(0), mounts }
    }

    /// Checks that a directory lies on the same mount as at the start of the run.
    fn check_mounts(
        &self,
        path: &RelPath,
        held: BorrowedFd<'_>,
        follows: bool,
    ) -> Result<(), AbsenceProofFailure> {
        let Some(mounts) = &self.mounts else { return Ok(()) };
        let mut nearest = Some(path.clone());
        let mut expected = self.mount.and_then(|mount| mount.id);
        while let Some(directory) = nearest {
            match mounts.get(&directory) {
                Some(None) => return Err(AbsenceProofFailure::Unmounted),
                Some(Some(id)) => {
                    expected = Some(*id);
                    break;
                }
                None => nearest = directory.split_last().map(|(above, _)| above),
            }
        }
        let found = MountIdentity::of(held).ok().and_then(|mount| mount.id);
        // Followed links may lead to any mount.
        if follows || expected.is_none() || found == expected {
            Ok(())
        } else {
            Err(AbsenceProofFailure::Changed)
        }
    }
}

/// The present mount points, and those that `/etc/fstab` requires.
struct FstabRequiredMounts {
    mounted: Vec<(PathBuf, u64)>,
    wanted: Vec<PathBuf>,
}

impl FstabRequiredMounts {
    /// Reads the mount points; empty if the kernel or the administrator reports none.
    fn read() -> FstabRequiredMounts {
        let mounted = mount_points(&fs::read("/proc/self/mountinfo").unwrap_or_default());
        FstabRequiredMounts { mounted, wanted: fstab_points(&fs::read("/etc/fstab").unwrap_or_default()) }
    }

    /// The mount points at or beneath a directory. A file system of `/etc/fstab` that is not mounted has no
    /// ID.
    fn mount_points_beneath(&self, root: &RootDirectory) -> Option<HashMap<RelPath, Option<u64>>> {
        let top = root.real_path().ok().filter(|_| !self.mounted.is_empty())?;
        let mut points = HashMap::new();
        for point in &self.wanted {
            let is_mounted = self.mounted.iter().any(|(mounted, _)| mounted == point);
            if let Some(path) = path_beneath(&top, point).filter(|_| !is_mounted) {
                points.insert(path, None);
            }
        }
        // Of several mounts at one point, the last one covers the others.
        for (point, id) in &self.mounted {
            if let Some(path) = path_beneath(&top, point) {
                points.insert(path, Some(*id));
            }
        }
        Some(points)
    }
}

fn path_beneath(top: &Path, point: &Path) -> Option<RelPath> {
    RelPath::new(point.strip_prefix(top).ok()?.as_os_str().as_bytes()).ok()
}

/// Identity and change time of a directory, as far as its file system and the kernel report them.
#[derive(Hash)]
struct ListedDirectoryStamp {
    device: (u32, u32),
    ino: u64,
    mount: u64,
    born: (i64, u32),
    ctime_ns: i128,
}

impl ListedDirectoryStamp {
    fn of(held: BorrowedFd<'_>) -> io::Result<ListedDirectoryStamp> {
        match statx(held, c"", AtFlags::EMPTY_PATH, ASKED) {
            Ok(found) => Ok(ListedDirectoryStamp::of_statx(&found)),
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => {
                let stat = fstat(held)?;
                let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
                let ctime_ns = nanoseconds(stat.st_ctime, stat.st_ctime_nsec as u32);
                Ok(ListedDirectoryStamp { device, ino: stat.st_ino, mount: 0, born: (0, 0), ctime_ns })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn of_statx(found: &Statx) -> ListedDirectoryStamp {
        let has_mount = found.stx_mask & (StatxFlags::MNT_ID | MOUNT_ID_UNIQUE).bits() != 0;
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        ListedDirectoryStamp {
            device: (found.stx_dev_major, found.stx_dev_minor),
            ino: found.stx_ino,
            mount: if has_mount { found.stx_mnt_id } else { 0 },
            born: if has_birth { born } else { (0, 0) },
            ctime_ns: nanoseconds(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        }
    }
}

/// Nanoseconds since 1970.
fn since_1970(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

fn nanoseconds(seconds: i64, nanoseconds: u32) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SourceScan;

    /// Scans a root; returns it with the record.
    fn scanned(path: &Path, begun: SystemTime) -> (ScanRoot, ScanListingProof) {
        let what = ScanRootScope::Tree { sink: RelPath::root() };
        let root = ScanRoot { root: Arc::new(RootDirectory::open(path).unwrap()), what };
        let record = Arc::new(ScanListingProof::new(std::slice::from_ref(&root), begun));
        let roots = vec![root.clone()];
        let scan = SourceScan {
            roots,
            threads: 2,
            destination: None,
            extras: None,
            filter: None,
            record: Some(Arc::clone(&record)),
        };
        scan.run(&|_| std::ops::ControlFlow::Continue(()));
        drop(scan);
        (root, Arc::into_inner(record).unwrap())
    }

    fn prove(root: &ScanRoot, record: &ScanListingProof, path: &str) -> Result<(), AbsenceProofFailure> {
        let path = RelPath::new(path.as_bytes()).unwrap();
        let held = root.root.open_directory(&path).unwrap();
        record.check_listing((0, root), &path, held.as_fd(), true)
    }

    #[test]
    fn a_directory_proves_something_while_it_is_as_it_was_scanned() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/b", "c", "d"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("a/f"), "x").unwrap();
        let (root, record) = scanned(dir.path(), SystemTime::now());
        assert!(record.has_entries(0) && record.check_root(0, &root.root).is_ok());
        for path in ["", "a", "a/b", "c", "d"] {
            assert_eq!(prove(&root, &record, path), Ok(()), "{path}");
        }
        fs::remove_file(dir.path().join("a/f")).unwrap();
        fs::create_dir(dir.path().join("c/new")).unwrap();
        fs::remove_dir(dir.path().join("d")).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        for (path, doubt) in [
            ("", AbsenceProofFailure::Changed),
            ("a", AbsenceProofFailure::Changed),
            ("c", AbsenceProofFailure::Changed),
            ("c/new", AbsenceProofFailure::Unseen),
            ("d", AbsenceProofFailure::Changed),
        ] {
            assert_eq!(prove(&root, &record, path), Err(doubt), "{path}");
        }
        assert_eq!(prove(&root, &record, "a/b"), Ok(()));
    }

    /// Before the scan reaches it, an entry may have moved into a directory that was already scanned.
    #[test]
    fn a_directory_that_changed_before_it_was_scanned_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let begun = SystemTime::now() - std::time::Duration::from_secs(60);
        let (root, record) = scanned(dir.path(), begun);
        assert_eq!(prove(&root, &record, ""), Err(AbsenceProofFailure::Changed));
        assert!(!record.has_entries(0), "it is empty");
        let held = root.root.open_directory(&RelPath::root()).unwrap();
        let answer = record.check_listing((0, &root), &RelPath::root(), held.as_fd(), false);
        assert_eq!(answer, Ok(()), "the clock of another host is not asked");
    }

    #[test]
    fn a_root_that_is_gone_or_has_another_path_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root");
        fs::create_dir(&path).unwrap();
        let (root, record) = scanned(&path, SystemTime::now());
        fs::rename(&path, dir.path().join("moved")).unwrap();
        assert!(record.check_root(0, &root.root).unwrap_err().contains("can't be opened"));
        fs::create_dir(&path).unwrap();
        assert!(record.check_root(0, &root.root).unwrap_err().contains("another directory"));
        fs::remove_dir(dir.path().join("moved")).unwrap();
        assert_eq!(record.check_root(0, &root.root).unwrap_err(), "it was removed");
    }

    #[test]
    fn what_is_to_be_mounted_and_is_not_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["disk/sub", "other"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let (root, mut record) = scanned(dir.path(), SystemTime::now());
        let top = root.root.real_path().unwrap();
        let own = MountIdentity::of(root.root.as_fd()).unwrap().id;
        let elsewhere = vec![("/elsewhere".into(), 0)];
        let points =
            FstabRequiredMounts { mounted: elsewhere, wanted: vec![top.join("disk"), "/elsewhere".into()] };
        record.roots[0].mounts = points.mount_points_beneath(&root.root);
        for (path, proof) in [
            ("disk", Err(AbsenceProofFailure::Unmounted)),
            ("disk/sub", Err(AbsenceProofFailure::Unmounted)),
            ("other", Ok(())),
        ] {
            assert_eq!(prove(&root, &record, path), proof, "{path}");
        }
        let Some(own) = own else { return println!("skipped: the kernel tells no mount IDs") };
        for (id, proof) in [(own, Ok(())), (own + 1, Err(AbsenceProofFailure::Changed))] {
            let points =
                FstabRequiredMounts { mounted: vec![(top.join("disk"), id)], wanted: vec![top.join("disk")] };
            record.roots[0].mounts = points.mount_points_beneath(&root.root);
            assert_eq!(prove(&root, &record, "disk/sub"), proof);
        }
    }
}
