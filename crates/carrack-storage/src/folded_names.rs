//! Directories that treat different names as equal: by case, or by the Unicode composition of a character.
//!
//! If two entries of one run have equal names in such a directory, the second would replace the first. Each
//! placed name is therefore claimed for its path, and the claim of another path fails. Entries from before
//! the run are replaced as everywhere.
//!
//! Most file systems distinguish all names. Their magic number shows this without a call for each directory.
//! ext4, tmpfs and others have a flag for each directory. Cluster file systems that a process serves (FUSE)
//! are known by their mounts. Others are probed once for each file system, with a temporary file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::RelPath;
use rustix::fs::{AtFlags, Dir, Mode, fstat, ioctl_getflags, openat, statat};
use rustix::io::Errno;
use unicode_normalization::UnicodeNormalization;

use crate::small_file_placement::create_flags;
use crate::{FileIdentity, ScratchNames, SinkError, preserve_times};
use carrack_layout::{FileSystemKind, kind_of, magic_of};

/// Bound of the claims, of 16 bytes each. Beyond it, an existing name is claimed only if it is spelled the
/// same.
const CLAIMS_MAX: usize = 1 << 20;

/// `FS_CASEFOLD_FL` (include/uapi/linux/fs.h).
const CASEFOLD: u32 = 0x4000_0000;

/// ext2 to ext4, tmpfs, F2FS, bcachefs (include/uapi/linux/magic.h), which have a flag for each directory.
const FLAGGED: [u32; 4] = [0xef53, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e];

/// XFS, Btrfs, ramfs, Lustre, Ceph, GPFS, BeeGFS, which distinguish all names.
const EXACT: [u32; 7] =
    [0x5846_5342, 0x9123_683e, 0x8584_58f6, 0x0bd0_0bd0, 0x00c3_6400, 0x4750_4653, 0x1983_0326];

/// A name with a letter that has two compositions. Both contain letters with another case.
const COMPOSED: &str = "case\u{e9}";
const DECOMPOSED: &str = "casee\u{301}";

/// The differences of names that a directory ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NameFolding {
    case: bool,
    composition: bool,
}

/// A directory that treats different names as equal.
#[derive(Clone, Copy, Debug)]
pub struct CaseFoldingDirectory {
    folding: NameFolding,
    /// Set if the directory's own flag says so. Otherwise its whole file system folds names, and inode
    /// numbers may depend on names there.
    identity: Option<FileIdentity>,
}

/// The claimed names beneath a destination. Any number of threads may claim.
#[derive(Debug)]
pub struct FoldedNames {
    scratch: Arc<ScratchNames>,
    /// The magic number of the root's file system, if all directories lie on it.
    magic: Option<u32>,
    file_systems: Mutex<HashMap<u64, Option<NameFolding>>>,
    /// The directory of the last call, as files of one directory come in sequence.
    last: Mutex<Option<(RelPath, Option<CaseFoldingDirectory>)>>,
    claims: Mutex<HashMap<u64, u64>>,
    hasher: RandomState,
}

impl FoldedNames {
    /// Claims names beneath the destination `root`. With `is_one_file_system`, the root's magic number counts
    /// for all directories.
    pub fn new(root: BorrowedFd<'_>, is_one_file_system: bool, scratch: Arc<ScratchNames>) -> FoldedNames {
        let magic = if is_one_file_system { magic_of(root).ok() } else { None };
        let (file_systems, last, claims) = Default::default();
        FoldedNames { scratch, magic, file_systems, last, claims, hasher: RandomState::new() }
    }

    /// The folding of a directory, known as `path`, at its first use; none if it distinguishes all names.
    pub fn folding_of(&self, directory: BorrowedFd<'_>, path: &RelPath) -> Option<CaseFoldingDirectory> {
        if self.magic.is_some_and(|magic| EXACT.contains(&magic)) {
            return None;
        }
        if let Some((_, known)) = self.last().as_ref().filter(|(last, _)| last == path) {
            return *known;
        }
        let known = self.detect_folding(directory);
        *self.last() = Some((path.clone(), known));
        known
    }
    fn last(&self) -> MutexGuard<'_, Option<(RelPath, Option<CaseFoldingDirectory>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn detect_folding(&self, directory: BorrowedFd<'_>) -> Option<CaseFoldingDirectory> {
        let magic = self.magic.or_else(|| magic_of(directory).ok())?;
        if EXACT.contains(&magic) {
            return None;
        }
        if FLAGGED.contains(&magic) {
            let flags = ioctl_getflags(directory).ok()?;
            let folding = NameFolding { case: true, composition: true };
            return (flags.bits() & CASEFOLD != 0).then_some(CaseFoldingDirectory {
                folding,
                identity: Some(FileIdentity::of_open(directory).ok()?),
            });
        }
        self.probed(directory, magic).map(|folding| CaseFoldingDirectory { folding, identity: None })
    }

    fn probed(&self, directory: BorrowedFd<'_>, magic: u32) -> Option<NameFolding> {
        let device = fstat(directory).ok()?.st_dev;
        let known = self.file_systems.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
        known.unwrap_or_else(|| {
            let folding = match kind_of(directory, device, magic) {
                // If the probe can't be created, no entry can be placed either.
                FileSystemKind::Plain | FileSystemKind::Set => {
                    preserve_times(directory, || probe(directory, &self.scratch)).ok()?
                }
                // The file systems of `EXACT`, served by a process.
                _ => NameFolding::default(),
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
        directory: &CaseFoldingDirectory,
        held: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), SinkError> {
        let folding = directory.folding;
        let place = match directory.identity {
            Some(identity) => self.hasher.hash_one((identity, folding.fold(name))),
            None => self.hasher.hash_one((folding.fold(path.as_bytes()), folding.fold(name))),
        };
        match self.insert_claim(place, self.hasher.hash_one((path, name))) {
            Some(true) => Ok(()),
            Some(false) => Err(SinkError::SameName),
            None if is_spelled(held, name) => Ok(()),
            None => Err(SinkError::SameName),
        }
    }

    /// Claims a directory for its path, as two directories with equal names would be one.
    ///
    /// # Errors
    /// As [`FoldedNames::claim`].
    pub fn claim_directory(&self, directory: &CaseFoldingDirectory, path: &RelPath) -> Result<(), SinkError> {
        let place = match directory.identity {
            Some(identity) => self.hasher.hash_one(identity),
            None => self.hasher.hash_one(directory.folding.fold(path.as_bytes())),
        };
        match self.insert_claim(place, self.hasher.hash_one(path)) {
            Some(false) => Err(SinkError::SameName),
            _ => Ok(()),
        }
    }

    /// Returns true if an entry of this run has, or may have, a name that equals `name` in a directory known
    /// as `path`.
    pub fn is_taken(&self, directory: &CaseFoldingDirectory, path: &RelPath, name: &[u8]) -> bool {
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

    /// Returns true if the place belongs to the path now; none if the bound of the claims is reached.
    fn insert_claim(&self, place: u64, path: u64) -> Option<bool> {
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

impl NameFolding {
    /// Maps names that the directory treats as equal to the same bytes. Some further names are mapped alike,
    /// as file systems differ on them.
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

/// Creates a file, and looks it up under other spellings.
fn probe(directory: BorrowedFd<'_>, scratch: &ScratchNames) -> Result<NameFolding, Errno> {
    // A file system for ASCII alone refuses the composed name.
    let (_, temporary) = scratch
        .create(COMPOSED.as_bytes(), |free| create_in(directory, free))
        .or_else(|_| scratch.create(b"case", |free| create_in(directory, free)))?;
    let name = String::from_utf8_lossy(temporary.as_bytes()).into_owned();
    let (upper, decomposed) = (name.to_ascii_uppercase(), name.replace(COMPOSED, DECOMPOSED));
    let folding = NameFolding {
        case: upper != name && exists(directory, &upper),
        composition: decomposed != name && exists(directory, &decomposed),
    };
    // If the removal fails, at most one file for each file system is left.
    temporary.remove(directory);
    Ok(folding)
}

fn create_in(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(directory, name, create_flags(), Mode::RUSR | Mode::WUSR)
}

fn exists(directory: BorrowedFd<'_>, name: &str) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Returns true if no entry has the name, or an entry has it in this spelling.
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

    const BOTH: NameFolding = NameFolding { case: true, composition: true };

    #[test]
    fn names_that_are_taken_for_the_same_fold_to_the_same() {
        fn fold(name: &str) -> Vec<u8> {
            BOTH.fold(name.as_bytes())
        }
        for (one, other) in [("Makefile", "mAKEFILE"), ("É", "e\u{301}"), ("ß", "SS"), ("Σ", "ς")] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("a"), fold("b"));
        let case = NameFolding { composition: false, ..BOTH };
        assert_ne!(case.fold("é".as_bytes()), case.fold("e\u{301}".as_bytes()));
        let composition = NameFolding { case: false, ..BOTH };
        assert_ne!(composition.fold(b"a"), composition.fold(b"A"));
        assert_eq!(BOTH.fold(b"A\xff"), b"a\xff");
    }

    fn claimed(directory: &CaseFoldingDirectory) {
        fn claim(claimed: (&FoldedNames, &CaseFoldingDirectory, &File), path: &RelPath, name: &str) -> bool {
            let (names, directory, held) = claimed;
            match names.claim(directory, held.as_fd(), path, name.as_bytes()) {
                Ok(()) => true,
                Err(SinkError::SameName) => false,
                Err(error) => panic!("{error}"),
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let scratch = Arc::new(ScratchNames::new(None).unwrap());
        let names = FoldedNames::new(held.as_fd(), true, scratch);
        let (root, sub) = (RelPath::root(), RelPath::new(b"sub").unwrap());
        let all = (&names, directory, &held);
        assert!(claim(all, &root, "a") && claim(all, &root, "a") && claim(all, &root, "b"));
        assert!(!claim(all, &root, "A"));
        // The same inode under another path is the same directory.
        assert_eq!(!claim(all, &sub, "A"), directory.identity.is_some());
        assert!(names.claim_directory(directory, &sub).is_ok());
        assert!(names.claim_directory(directory, &sub).is_ok());
        let other = RelPath::new(b"SUB").unwrap();
        assert!(matches!(names.claim_directory(directory, &other), Err(SinkError::SameName)));
    }

    #[test]
    fn a_place_is_claimed_once() {
        let identity = FileIdentity { dev: 1, ino: 2 };
        claimed(&CaseFoldingDirectory { folding: BOTH, identity: None });
        claimed(&CaseFoldingDirectory { folding: BOTH, identity: Some(identity) });
    }

    #[test]
    fn a_probe_tells_names_apart_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::open(dir.path()).unwrap();
        let scratch = ScratchNames::new(None).unwrap();
        let found = probe(held.as_fd(), &scratch).unwrap();
        assert_eq!(found, NameFolding { case: false, composition: false });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // An append-only directory gives the same answer.
        if ioctl_setflags(&held, IFlags::APPEND).is_ok() {
            let found = probe(held.as_fd(), &scratch);
            ioctl_setflags(&held, IFlags::empty()).unwrap();
            assert_eq!(found, Ok(NameFolding::default()));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        fs::write(dir.path().join("a"), "").unwrap();
        assert!(is_spelled(held.as_fd(), b"a") && is_spelled(held.as_fd(), b"A"));
    }
}
