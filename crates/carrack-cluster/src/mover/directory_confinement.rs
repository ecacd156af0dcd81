//! Confinement of a mover to its directories.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_storage::{PathBase, RootDirectory};

/// The directories, held open: if another directory takes the place of one of them, or of a directory in one,
/// it is not reached.
#[derive(Clone, Debug)]
pub(super) struct ReachableRoots {
    /// The paths as given, without trailing slashes.
    names: Vec<PathBuf>,
    base: PathBase,
    /// The same directories with the paths by which they were opened.
    held: Arc<Vec<(PathBuf, RootDirectory)>>,
}

fn open_all(paths: &[PathBuf]) -> io::Result<Vec<RootDirectory>> {
    paths.iter().map(|path| RootDirectory::open(path)).collect()
}

impl ReachableRoots {
    /// Opens the directories.
    ///
    /// # Errors
    /// If one of them is no directory, or can't be opened.
    pub fn new(paths: &[PathBuf]) -> io::Result<ReachableRoots> {
        let names: Vec<PathBuf> = paths.iter().map(|path| path.components().collect()).collect();
        let held = Arc::new(names.iter().cloned().zip(open_all(&names)?).collect());
        Ok(ReachableRoots { base: PathBase::within(open_all(&names)?)?, names, held })
    }

    /// Returns the directories, each with its path.
    pub fn open_directories(&self) -> &Arc<Vec<(PathBuf, RootDirectory)>> {
        &self.held
    }

    /// Returns the paths as given.
    pub fn given_paths(&self) -> Vec<String> {
        self.names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Returns the base for resolving `path`, if it is beneath one of the directories. No link leads out of
    /// them.
    ///
    /// # Errors
    /// `PermissionDenied` if it is beneath none of them.
    pub fn base_for(&self, path: &Path) -> io::Result<PathBase> {
        if self.names.iter().any(|name| path.starts_with(name)) {
            return Ok(self.base.clone());
        }
        let names = self.given_paths().join(", ");
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not beneath what this mover reaches ({names})", path.display()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use carrack_storage::PathPurpose;

    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn open(reach: &ReachableRoots, path: &Path) -> io::Result<RootDirectory> {
        reach.base_for(path)?.open(path, PathPurpose::ReadThrough)
    }

    #[test]
    fn only_what_is_beneath_a_prefix_is_reached() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path();
        fs::create_dir_all(dir.join("in/deep")).unwrap();
        fs::create_dir(dir.join("out")).unwrap();
        symlink("../out", dir.join("in/leads")).unwrap();
        fs::write(dir.join("out/secret"), "secret").unwrap();
        let reach = ReachableRoots::new(&[dir.join("in"), dir.join("in/deep/")]).unwrap();
        assert_eq!(reach.given_paths().len(), 2);
        let inside = RootDirectory::open(&dir.join("in")).unwrap().identity();
        assert_eq!(open(&reach, &dir.join("in")).unwrap().identity(), inside);
        assert_eq!(
            open(&reach, &dir.join("in/deep")).unwrap().identity(),
            RootDirectory::open(&dir.join("in/deep")).unwrap().identity()
        );
        assert!(reach.base_for(&dir.join("out")).is_err() && reach.base_for(&dir.join("inside")).is_err());
        assert!(
            open(&reach, &dir.join("in/leads")).is_err() && open(&reach, &dir.join("in/../out")).is_err()
        );
        // A directory that takes the place of an opened one is not reached.
        fs::rename(dir.join("in"), dir.join("away")).unwrap();
        symlink("out", dir.join("in")).unwrap();
        assert_eq!(open(&reach, &dir.join("in")).unwrap().identity(), inside);
        assert!(
            reach
                .base_for(&dir.join("in/secret"))
                .unwrap()
                .look(&dir.join("in/secret"), PathPurpose::Read)
                .is_err()
        );
        assert!(ReachableRoots::new(&[dir.join("nowhere")]).is_err());
    }
}
