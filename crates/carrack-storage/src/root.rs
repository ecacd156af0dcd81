//! A held directory beneath which names are resolved, at both ends.
//!
//! Owns one descriptor. Paths are never resolved through the current directory, a symbolic link or `..`, so
//! that no name of a hostile peer leads out of it. Only a source whose user wants links followed follows
//! them, within its base if there is one. Any number of threads may use a root.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use carrack_model::RelPath;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, readlinkat_raw};
use rustix::io::Errno;

use crate::base::{ResolvedPath, SourceLinkConfinement};
use crate::beneath::{DIRECTORY, PASSAGE, open_beneath, open_child, open_following_links};
use crate::modes::{PROVISIONAL, ProvisionalModeOutcome, mark_provisional};
use crate::{FileIdentity, MountIdentity};

/// Bound of the parents followed through `..`: no path that the kernel reports is deeper.
const ANCESTORS_MAX: usize = 65_536;

/// The handling of links in the paths beneath a root.
#[derive(Debug)]
enum PathLinkResolution {
    /// A link fails the resolution.
    Kept,
    /// Links are followed, also out of the root.
    Followed,
    /// Links are followed within the root's base.
    FollowedWithin(SourceLinkConfinement),
}

/// A name and its directory, by which a file is opened. If links are followed within a base, these are the
/// link's target.
#[derive(Debug)]
pub struct DirectoryRelativeName<'a> {
    directory: LocatedDirectory<'a>,
    name: Cow<'a, [u8]>,
    /// Set if the open call follows a link of that name.
    pub follow: bool,
}

#[derive(Debug)]
enum LocatedDirectory<'a> {
    Given(BorrowedFd<'a>),
    Reached(OwnedFd),
}

impl<'a> DirectoryRelativeName<'a> {
    fn in_directory(directory: BorrowedFd<'a>, name: &'a [u8], follow: bool) -> DirectoryRelativeName<'a> {
        DirectoryRelativeName { directory: LocatedDirectory::Given(directory), name: name.into(), follow }
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns true if a link led to the name.
    pub(crate) fn was_link(&self) -> bool {
        matches!(self.directory, LocatedDirectory::Reached(_))
    }
}

impl AsFd for DirectoryRelativeName<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.directory {
            LocatedDirectory::Given(directory) => *directory,
            LocatedDirectory::Reached(directory) => directory.as_fd(),
        }
    }
}

/// A directory that the user named, held open (as `O_PATH`: it need not be readable).
#[derive(Debug)]
pub struct RootDirectory {
    handle: OwnedFd,
    path: PathBuf,
    identity: FileIdentity,
    /// The base beneath which it was opened.
    top: Option<FileIdentity>,
    links: PathLinkResolution,
    /// Set if mkdir(2) gives directories the whole mode [`PROVISIONAL`] here.
    keeps_mkdir_mode: AtomicBool,
    /// Directories that could not get the mode [`PROVISIONAL`] since the last call.
    unmarked_count: AtomicU64,
}

impl RootDirectory {
    /// Holds the directory `path`, following links in it, as the user named them.
    ///
    /// # Errors
    /// Those of `open`; `ENOTDIR` if it is no directory.
    pub fn open(path: &Path) -> io::Result<RootDirectory> {
        RootDirectory::open_anywhere(path, true)
    }

    /// As [`RootDirectory::open`], but without `follow` a link as the last name is refused.
    pub(crate) fn open_anywhere(path: &Path, follow: bool) -> io::Result<RootDirectory> {
        let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let handle = openat(CWD, path, PASSAGE | no_follow, Mode::empty())?;
        let identity = FileIdentity::of_open(&handle)?;
        Ok(RootDirectory::new(handle, path.to_path_buf(), identity, None))
    }

    /// Holds an open directory without a path.
    pub(crate) fn from_handle(handle: OwnedFd) -> io::Result<RootDirectory> {
        let identity = FileIdentity::of_open(&handle)?;
        Ok(RootDirectory::new(handle, PathBuf::new(), identity, Some(identity)))
    }

    /// Holds a directory that was resolved beneath the base `top`; `path` is its name in messages.
    pub(crate) fn from_handle_beneath(
        handle: OwnedFd,
        path: PathBuf,
        top: FileIdentity,
    ) -> io::Result<RootDirectory> {
        let identity = FileIdentity::of_open(&handle)?;
        Ok(RootDirectory::new(handle, path, identity, Some(top)))
    }

    fn new(
        handle: OwnedFd,
        path: PathBuf,
        identity: FileIdentity,
        top: Option<FileIdentity>,
    ) -> RootDirectory {
        let (keeps_mkdir_mode, unmarked_count) = Default::default();
        RootDirectory {
            handle,
            path,
            identity,
            top,
            links: PathLinkResolution::Kept,
            keeps_mkdir_mode,
            unmarked_count,
        }
    }

    /// The identity of the directory.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The path that [`RootDirectory::open`] or [`crate::PathBase::open`] was called with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which the kernel knows the directory, without links.
    ///
    /// # Errors
    /// Without `/proc`.
    pub(crate) fn real_path(&self) -> io::Result<PathBuf> {
        let descriptor = self.handle.as_raw_fd();
        std::fs::read_link(format!("/proc/self/fd/{descriptor}"))
    }

    /// The directory that the path leads to now. A root beneath a base is returned as it is, since its path
    /// is only a name in messages.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn open_again(&self) -> io::Result<(FileIdentity, MountIdentity)> {
        let again = match self.top {
            None => Some(openat(CWD, &self.path, PASSAGE, Mode::empty())?),
            Some(_) => None,
        };
        let again = again.as_ref().map_or(self.as_fd(), AsFd::as_fd);
        Ok((FileIdentity::of_open(again)?, MountIdentity::of(again)?))
    }

    /// Follows links in paths beneath the root, also out of it, for a source that copies the targets of
    /// links.
    pub(crate) fn with_links_followed(self) -> RootDirectory {
        RootDirectory { links: PathLinkResolution::Followed, ..self }
    }

    /// Follows links beneath the root within `confines`.
    pub(crate) fn with_links_confined(self, confines: SourceLinkConfinement) -> RootDirectory {
        RootDirectory { links: PathLinkResolution::FollowedWithin(confines), ..self }
    }

    /// Returns true if links beneath the root are followed.
    pub fn follows_links(&self) -> bool {
        !matches!(self.links, PathLinkResolution::Kept)
    }

    /// Returns true if they are followed only within its base.
    pub fn is_confined(&self) -> bool {
        matches!(self.links, PathLinkResolution::FollowedWithin(_))
    }

    /// Finds the name and directory by which the file `name` in the directory at `path`, one beneath this, is
    /// opened.
    ///
    /// # Errors
    /// `EXDEV` for a link that leads out of the base, `ELOOP` for a link to itself, else those of `open`.
    pub fn locate<'a>(
        &self,
        directory: BorrowedFd<'a>,
        path: &RelPath,
        name: &'a [u8],
    ) -> Result<DirectoryRelativeName<'a>, Errno> {
        let PathLinkResolution::FollowedWithin(confines) = &self.links else {
            return Ok(DirectoryRelativeName::in_directory(directory, name, self.follows_links()));
        };
        if readlinkat_raw(directory, name, &mut [0_u8; 1][..]).is_err() {
            return Ok(DirectoryRelativeName::in_directory(directory, name, false));
        }
        let path = path.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        let ResolvedPath { holder, name, .. } = confines.follow(self.as_fd(), &path)?;
        let name = name.map_or(Cow::Borrowed(&b"."[..]), |name| Cow::Owned(name.into()));
        Ok(DirectoryRelativeName { directory: LocatedDirectory::Reached(holder), name, follow: false })
    }

    /// The identities of the root and of every directory above it, up to `/`. A root beneath a base reports
    /// nothing above the base.
    ///
    /// # Errors
    /// Those of `open` and `stat` on a parent; an error if the root is no longer beneath its base.
    pub fn ancestors(&self) -> io::Result<Vec<FileIdentity>> {
        let mut found = vec![self.identity];
        let mut held: Option<OwnedFd> = None;
        while found.len() < ANCESTORS_MAX && found.last() != self.top.as_ref() {
            let from = held.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            let above = openat(from, c"..", PASSAGE, Mode::empty())?;
            let identity = FileIdentity::of_open(&above)?;
            if found.last() == Some(&identity) {
                break;
            }
            found.push(identity);
            held = Some(above);
        }
        match self.top {
            Some(top) if found.last() != Some(&top) => Err(io::Error::other("it was moved out of its base")),
            _ => Ok(found),
        }
    }

    /// Opens the directory `path` beneath this root for reading; the empty path is the root.
    ///
    /// # Errors
    /// `ELOOP` or `ENOTDIR` if a link that is not followed or a file is in the path, else those of `open`.
    pub fn open_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        Ok(self.open_inside(path, DIRECTORY)?)
    }

    /// As [`RootDirectory::open_directory`], but opens an unreadable directory with `O_PATH`.
    ///
    /// # Errors
    /// As [`RootDirectory::open_directory`].
    pub fn enter_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.open_directory(path).or_else(|error| match Errno::from_io_error(&error) {
            Some(Errno::ACCESS) => Ok(self.open_inside(path, PASSAGE)?),
            _ => Err(error),
        })
    }

    fn open_inside(&self, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        match &self.links {
            PathLinkResolution::Kept => open_beneath(self.as_fd(), path, flags),
            PathLinkResolution::Followed => open_following_links(self.as_fd(), path, flags),
            PathLinkResolution::FollowedWithin(confines) => {
                confines.open_directory(self.as_fd(), path, flags)
            }
        }
    }

    /// Opens the directory at `path` beneath this root with `O_PATH`; its last name is in `directory`.
    pub(crate) fn enter_child_directory(
        &self,
        directory: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<OwnedFd, Errno> {
        self.open_child_inside(directory, path, PASSAGE)
    }

    /// Opens the directory at `path` beneath this root for reading; its last name is in `directory`.
    pub(crate) fn open_child_directory(
        &self,
        directory: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<OwnedFd, Errno> {
        self.open_child_inside(directory, path, DIRECTORY)
    }

    fn open_child_inside(
        &self,
        directory: BorrowedFd<'_>,
        path: &RelPath,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let (_, name) = path.split_last().ok_or(Errno::NOENT)?;
        match &self.links {
            PathLinkResolution::Kept => open_child(directory, name, flags),
            PathLinkResolution::Followed => openat(directory, name, flags, Mode::empty()),
            PathLinkResolution::FollowedWithin(confines) => match open_child(directory, name, flags) {
                Err(Errno::LOOP | Errno::NOTDIR) => confines.open_directory(self.as_fd(), path, flags),
                answer => answer,
            },
        }
    }

    /// As [`RootDirectory::enter_directory`], but creates missing directories, with a mode for their owner
    /// alone, which marks that their final mode is set at the end (see [`crate::DirectoryMetadataSpool`]).
    ///
    /// Several threads may create the same directory at once.
    ///
    /// # Errors
    /// As [`RootDirectory::open_directory`], and those of `mkdir`.
    pub fn make_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        match self.make_with(path, PROVISIONAL, DIRECTORY) {
            // A drop box is writable but not readable.
            Err(Errno::ACCESS) => Ok(self.make_with(path, PROVISIONAL, PASSAGE)?),
            made => Ok(made?),
        }
    }

    /// Takes the number of new directories that keep the mode 0700, as the file system changes no modes.
    pub fn take_unmarked_count(&self) -> u64 {
        self.unmarked_count.swap(0, Relaxed)
    }

    /// Makes a directory for this program alone, which keeps mode 0700.
    ///
    /// # Errors
    /// As [`RootDirectory::make_directory`].
    pub fn make_private_directory(&self, path: &RelPath) -> io::Result<OwnedFd> {
        Ok(self.make_with(path, Mode::RWXU, DIRECTORY)?)
    }

    /// As [`RootDirectory::make_directory`], with `mode` less the umask, and opened with `flags`.
    pub(crate) fn make_with(&self, path: &RelPath, mode: Mode, flags: OFlags) -> Result<OwnedFd, Errno> {
        match open_beneath(self.as_fd(), path, flags) {
            Err(Errno::NOENT) => self.make_missing(path, mode, flags),
            answer => answer,
        }
    }

    /// Tries the common case first, in which only the last component is missing.
    fn make_missing(&self, path: &RelPath, mode: Mode, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some((parent, name)) = path.split_last() else { return Err(Errno::NOENT) };
        match open_beneath(self.as_fd(), &parent, PASSAGE) {
            Ok(parent) => self.make_child(parent.as_fd(), name, mode, flags),
            Err(Errno::NOENT) => self.make_all(path, mode, flags),
            Err(errno) => Err(errno),
        }
    }

    fn make_all(&self, path: &RelPath, mode: Mode, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut components = path.components().peekable();
        let mut held: Option<OwnedFd> = None;
        while let Some(name) = components.next() {
            let from = held.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            let flags = if components.peek().is_some() { PASSAGE } else { flags };
            held = Some(match open_child(from, name, flags) {
                Err(Errno::NOENT) => self.make_child(from, name, mode, flags)?,
                answer => answer?,
            });
        }
        held.ok_or(Errno::NOENT)
    }

    fn make_child(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        mode: Mode,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        match mkdirat(parent, name, mode) {
            Ok(()) if mode == PROVISIONAL && !self.keeps_mkdir_mode.load(Relaxed) => {
                let made = open_child(parent, name, flags)?;
                let marked = mark_provisional(made.as_fd());
                self.keeps_mkdir_mode.store(marked == ProvisionalModeOutcome::AtOnce, Relaxed);
                self.unmarked_count.fetch_add((marked == ProvisionalModeOutcome::Not).into(), Relaxed);
                Ok(made)
            }
            Ok(()) | Err(Errno::EXIST) => open_child(parent, name, flags),
            Err(errno) => Err(errno),
        }
    }

    /// The path of `name` in `directory` beneath this root as the user knows it.
    pub fn full_path(&self, directory: &RelPath, name: &[u8]) -> Box<[u8]> {
        let mut full = self.path.as_os_str().as_bytes().to_vec();
        for part in [directory.as_bytes(), name] {
            if part.is_empty() {
                continue;
            }
            if !full.is_empty() && !full.ends_with(b"/") {
                full.push(b'/');
            }
            full.extend_from_slice(part);
        }
        full.into_boxed_slice()
    }
}

impl AsFd for RootDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn rel(path: &[u8]) -> RelPath {
        RelPath::new(path).unwrap()
    }

    #[test]
    fn follows_links_in_the_given_path_only() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        let root = RootDirectory::open(&dir.path().join("link")).unwrap();
        assert_eq!(root.identity().ino, fs::metadata(dir.path().join("real")).unwrap().ino());
        assert!(RootDirectory::open(&dir.path().join("nothing")).is_err());
    }

    #[test]
    fn a_planted_link_stops_both_opening_and_making() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        for planted in [&b"out"[..], b"out/new", b"out/new/deep", b"file", b"file/new"] {
            for answer in [root.open_directory(&rel(planted)), root.make_directory(&rel(planted))] {
                let errno = Errno::from_io_error(&answer.unwrap_err()).unwrap();
                assert!(matches!(errno, Errno::LOOP | Errno::NOTDIR), "{planted:?}: {errno:?}");
            }
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn makes_what_is_missing_with_a_provisional_mode() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        let path = rel(b"a/b\xff/new\nline");
        let made = FileIdentity::of_open(root.make_directory(&path).unwrap()).unwrap();
        assert_eq!(made, FileIdentity::of_open(root.open_directory(&path).unwrap()).unwrap());
        fn mode_of(dir: &tempfile::TempDir, name: &str) -> u32 {
            fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777
        }
        assert_eq!(mode_of(&dir, "a"), 0o1700);
        root.make_private_directory(&rel(b"p")).unwrap();
        assert_eq!(mode_of(&dir, "p"), 0o700);
        let itself = FileIdentity::of_open(root.make_directory(&RelPath::root()).unwrap()).unwrap();
        assert_eq!(itself, root.identity());
    }

    #[test]
    fn threads_may_race_to_make_the_same_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let numbers = 0..50;
                        let paths = numbers.map(|n| rel(format!("x/{n}/y/{n}").as_bytes()));
                        paths.filter(|path| root.make_directory(path).is_ok()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
        });
        assert_eq!(made, 400);
    }

    #[test]
    fn paths_beyond_path_max_are_made_and_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDirectory::open(dir.path()).unwrap();
        let path = RelPath::new(&vec![vec![b'd'; 200]; 300].join(&b'/')).unwrap();
        assert!(path.as_bytes().len() > 60_000);
        let made = FileIdentity::of_open(root.make_directory(&path).unwrap()).unwrap();
        assert_eq!(made, FileIdentity::of_open(root.open_directory(&path).unwrap()).unwrap());
        let next = path.join(b"e").unwrap();
        assert!(root.make_directory(&next).is_ok());
    }

    #[test]
    fn ancestors_lead_to_the_top() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        let above = RootDirectory::open(dir.path()).unwrap();
        let ancestors = RootDirectory::open(&dir.path().join("a")).unwrap().ancestors().unwrap();
        assert_eq!(ancestors[1], above.identity());
        assert_eq!(*ancestors.last().unwrap(), RootDirectory::open(Path::new("/")).unwrap().identity());
    }

    #[test]
    fn shows_paths_as_the_user_gave_them() {
        let root = RootDirectory::open(Path::new("/")).unwrap();
        assert_eq!(&*root.full_path(&rel(b"a/b"), b"c"), b"/a/b/c");
        let root = RootDirectory::open(Path::new(".")).unwrap();
        assert_eq!(&*root.full_path(&RelPath::root(), b"c"), b"./c");
        assert_eq!(&*root.full_path(&RelPath::root(), b""), b".");
    }
}
