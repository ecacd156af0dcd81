//! Directories that take different names for the same: without regard to case, or to how Unicode composes a character.
//!
//! Of two entries of one run whose names such a directory takes for the same, the second would replace the first. Each name that gets a
//! place is claimed for its path; the claim of another path fails. What stood there before the run is replaced as everywhere.
//!
//! Most file systems tell all names apart, which their number says: nothing is asked of them for a directory. ext4, tmpfs and others have a
//! flag for each directory. Cluster file systems are known by their mounts where a process serves them (FUSE). The rest is probed
//! once for each file system, with a temporary file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::RelPath;
use rustix::fs::{AtFlags, Dir, Mode, fstat, ioctl_getflags, openat, statat};
use rustix::io::Errno;
use unicode_normalization::UnicodeNormalization;

use crate::layout::{FileSystemKind, kind_of};
use crate::sink_file::create_flags;
use crate::target::magic_of;
use crate::{Identity, ScratchNames, SinkError, keep_times};

/// Claims that are remembered, of 16 bytes each. Beyond them a name that exists is claimed only if it is spelled like that.
const CLAIMS_MAX: usize = 1 << 20;

/// `FS_CASEFOLD_FL` (include/uapi/linux/fs.h).
const CASEFOLD: u32 = 0x4000_0000;

/// ext2 to ext4, tmpfs, F2FS, bcachefs (include/uapi/linux/magic.h): a directory has a flag.
const FLAGGED: [u32; 4] = [0xef53, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e];

/// XFS, Btrfs, ramfs, Lustre, Ceph, GPFS, BeeGFS: all names are different.
const EXACT: [u32; 7] =
    [0x5846_5342, 0x9123_683e, 0x8584_58f6, 0x0bd0_0bd0, 0x00c3_6400, 0x4750_4653, 0x1983_0326];

/// A name with a letter that is composed in two ways, and both with letters of the other case.
const COMPOSED: &str = "case\u{e9}";
const DECOMPOSED: &str = "casee\u{301}";

/// What a directory does not regard in names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Folding {
    case: bool,
    composition: bool,
}

/// A directory that takes different names for the same.
#[derive(Clone, Copy, Debug)]
pub struct FoldingDirectory {
    folding: Folding,
    /// Where the directory itself says so. Else its whole file system does, whose inode numbers may be no more than its names'.
    identity: Option<Identity>,
}

/// The names that were claimed beneath a destination. Any number of threads may claim.
#[derive(Debug)]
pub struct FoldedNames {
    scratch: Arc<ScratchNames>,
    /// The magic number of the root's file system, where all directories lie on that.
    magic: Option<u32>,
    file_systems: Mutex<HashMap<u64, Option<Folding>>>,
    /// The directory that was asked for last: files come one after another.
    last: Mutex<Option<(RelPath, Option<FoldingDirectory>)>>,
    claims: Mutex<HashMap<u64, u64>>,
    hasher: RandomState,
}

impl FoldedNames {
    /// For a destination `root`; with one file system beneath it nothing is asked of directories that tell all names apart.
    pub fn new(root: BorrowedFd<'_>, is_one_file_system: bool, scratch: Arc<ScratchNames>) -> FoldedNames {
        let magic = if is_one_file_system { magic_of(root).ok() } else { None };
        let (file_systems, last, claims) = Default::default();
        FoldedNames { scratch, magic, file_systems, last, claims, hasher: RandomState::new() }
    }

    /// What a directory that is to be filled, known as `path`, does; nothing if it tells all names apart.
    pub fn of(&self, directory: BorrowedFd<'_>, path: &RelPath) -> Option<FoldingDirectory> {
        if self.magic.is_some_and(|magic| EXACT.contains(&magic)) {
            return None;
        }
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = last().as_ref().filter(|(last, _)| last == path) {
            return *known;
        }
        let known = self.look(directory);
        *last() = Some((path.clone(), known));
        known
    }

    fn look(&self, directory: BorrowedFd<'_>) -> Option<FoldingDirectory> {
        let magic = self.magic.or_else(|| magic_of(directory).ok())?;
        if EXACT.contains(&magic) {
            return None;
        }
        if FLAGGED.contains(&magic) {
            let flags = ioctl_getflags(directory).ok()?;
            let folding = Folding { case: true, composition: true };
            return (flags.bits() & CASEFOLD != 0)
                .then_some(FoldingDirectory { folding, identity: Some(Identity::of_open(directory).ok()?) });
        }
        self.probed(directory, magic).map(|folding| FoldingDirectory { folding, identity: None })
    }

    fn probed(&self, directory: BorrowedFd<'_>, magic: u32) -> Option<Folding> {
        let device = fstat(directory).ok()?.st_dev;
        let known = self.file_systems.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
        known.unwrap_or_else(|| {
            let folding = match kind_of(directory, device, magic) {
                // Where no file can be made, nothing will be placed either.
                FileSystemKind::Plain | FileSystemKind::Set => {
                    keep_times(directory, || probe(directory, &self.scratch)).ok()?
                }
                // Served by a process: the file systems of `EXACT` by another way.
                _ => Folding::default(),
            };
            let folding = (folding.case || folding.composition).then_some(folding);
            self.file_systems.lock().unwrap_or_else(PoisonError::into_inner).insert(device, folding);
            folding
        })
    }

    /// Claims the place of `name` in the directory `held`, known as `path`.
    ///
    /// # Errors
    /// [`SinkError::SameName`] if another path has it.
    pub fn claim(
        &self,
        directory: &FoldingDirectory,
        held: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), SinkError> {
        let folding = directory.folding;
        let place = match directory.identity {
            Some(identity) => self.hasher.hash_one((identity, folding.fold(name))),
            None => self.hasher.hash_one((folding.fold(path.as_bytes()), folding.fold(name))),
        };
        match self.put(place, self.hasher.hash_one((path, name))) {
            Some(true) => Ok(()),
            Some(false) => Err(SinkError::SameName),
            None if is_spelled(held, name) => Ok(()),
            None => Err(SinkError::SameName),
        }
    }

    /// Claims a directory for its path: two of them would be one.
    ///
    /// # Errors
    /// As [`FoldedNames::claim`].
    pub fn claim_directory(&self, directory: &FoldingDirectory, path: &RelPath) -> Result<(), SinkError> {
        let place = match directory.identity {
            Some(identity) => self.hasher.hash_one(identity),
            None => self.hasher.hash_one(directory.folding.fold(path.as_bytes())),
        };
        match self.put(place, self.hasher.hash_one(path)) {
            Some(false) => Err(SinkError::SameName),
            _ => Ok(()),
        }
    }

    /// Whether an entry of this run has the place of `name` in a directory known as `path`, or may have it.
    pub fn is_taken(&self, directory: &FoldingDirectory, path: &RelPath, name: &[u8]) -> bool {
        let beneath = path.join(name).map(|inner| directory.folding.fold(inner.as_bytes()));
        let places = match directory.identity {
            Some(identity) => [Some(self.hasher.hash_one((identity, directory.folding.fold(name)))), None],
            None => [
                Some(
                    self.hasher
                        .hash_one((directory.folding.fold(path.as_bytes()), directory.folding.fold(name))),
                ),
                beneath.ok().map(|beneath| self.hasher.hash_one(beneath)),
            ],
        };
        let claims = self.claims();
        claims.len() >= CLAIMS_MAX || places.iter().flatten().any(|place| claims.contains_key(place))
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the place is the path's now; nothing if that can't be remembered.
    fn put(&self, place: u64, path: u64) -> Option<bool> {
        let mut claims = self.claims();
        if let Some(known) = claims.get(&place) {
            return Some(*known == path);
        }
        if claims.len() >= CLAIMS_MAX {
            return None;
        }
        claims.insert(place, path);
        Some(true)
    }
}

impl Folding {
    /// The same for all names that the directory takes for the same; for some others too, whose difference file systems judge differently.
    fn fold(self, name: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(name) {
            Ok(text) => {
                let text = if self.case { text.to_uppercase().to_lowercase() } else { text.to_owned() };
                if self.composition { text.nfd().collect::<String>().into() } else { text.into() }
            }
            Err(_) if self.case => name.to_ascii_lowercase(),
            Err(_) => name.to_owned(),
        }
    }
}

/// Makes a file, and looks for it by other names.
fn probe(directory: BorrowedFd<'_>, scratch: &ScratchNames) -> Result<Folding, Errno> {
    let create = |free: &[u8]| openat(directory, free, create_flags(), Mode::RUSR | Mode::WUSR);
    // A file system for ASCII alone does not compose.
    let created = scratch.create(COMPOSED.as_bytes(), create).or_else(|_| scratch.create(b"case", create));
    let (_, temporary) = created?;
    let name = String::from_utf8_lossy(temporary.as_bytes()).into_owned();
    let has =
        |other: String| other != name && statat(directory, other.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let folding = Folding {
        case: has(name.to_ascii_uppercase()),
        composition: has(name.replace(COMPOSED, DECOMPOSED)),
    };
    // What is known is known: a file that stays is one, not one for each directory.
    temporary.remove(directory);
    Ok(folding)
}

/// Whether nothing has the name, or what has it is spelled so.
fn is_spelled(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(errno) => errno == Errno::NOENT,
        Ok(_) => Dir::read_from(directory)
            .is_ok_and(|listing| listing.flatten().any(|entry| entry.file_name().to_bytes() == name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{IFlags, ioctl_setflags};
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    const BOTH: Folding = Folding { case: true, composition: true };

    #[test]
    fn names_that_are_taken_for_the_same_fold_to_the_same() {
        let fold = |name: &str| BOTH.fold(name.as_bytes());
        for (one, other) in [("Makefile", "mAKEFILE"), ("É", "e\u{301}"), ("ß", "SS"), ("Σ", "ς")] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("a"), fold("b"));
        let case = Folding { composition: false, ..BOTH };
        assert_ne!(case.fold("é".as_bytes()), case.fold("e\u{301}".as_bytes()));
        let composition = Folding { case: false, ..BOTH };
        assert_ne!(composition.fold(b"a"), composition.fold(b"A"));
        assert_eq!(BOTH.fold(b"A\xff"), b"a\xff");
    }

    fn claimed(directory: &FoldingDirectory) {
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let scratch = Arc::new(ScratchNames::new(None).unwrap());
        let names = FoldedNames::new(held.as_fd(), true, scratch);
        let (root, sub) = (RelPath::root(), RelPath::new(b"sub").unwrap());
        let claim = |path, name: &str| names.claim(directory, held.as_fd(), path, name.as_bytes());
        assert!(claim(&root, "a").is_ok() && claim(&root, "a").is_ok() && claim(&root, "b").is_ok());
        assert!(matches!(claim(&root, "A"), Err(SinkError::SameName)));
        // The same inode by another path is the same directory.
        assert_eq!(claim(&sub, "A").is_err(), directory.identity.is_some());
        assert!(names.claim_directory(directory, &sub).is_ok());
        assert!(names.claim_directory(directory, &sub).is_ok());
        let other = RelPath::new(b"SUB").unwrap();
        assert!(matches!(names.claim_directory(directory, &other), Err(SinkError::SameName)));
    }

    #[test]
    fn a_place_is_claimed_once() {
        let identity = Identity { dev: 1, ino: 2 };
        claimed(&FoldingDirectory { folding: BOTH, identity: None });
        claimed(&FoldingDirectory { folding: BOTH, identity: Some(identity) });
    }

    #[test]
    fn a_probe_tells_names_apart_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let scratch = ScratchNames::new(None).unwrap();
        let found = probe(held.as_fd(), &scratch).unwrap();
        assert_eq!(found, Folding { case: false, composition: false });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // In a directory that names can only be added to, the answer is the same.
        if ioctl_setflags(&held, IFlags::APPEND).is_ok() {
            let found = probe(held.as_fd(), &scratch);
            ioctl_setflags(&held, IFlags::empty()).unwrap();
            assert_eq!(found, Ok(Folding::default()));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        fs::write(dir.path().join("a"), "").unwrap();
        assert!(is_spelled(held.as_fd(), b"a") && is_spelled(held.as_fd(), b"A"));
    }
}
