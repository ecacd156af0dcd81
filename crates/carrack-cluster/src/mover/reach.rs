//! Confinement of a mover to its directories.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_storage::{Base, Root};

/// The directories, held open: if another directory takes the place of one of them, or of a directory in one,
/// it is not reached.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The paths as given, without trailing slashes.
    names: Vec<PathBuf>,
    base: Base,
    /// The same directories with the paths by which they were opened.
    held: Arc<Vec<(PathBuf, Root)>>,
}

impl Reach {
    /// Opens the directories.
    ///
    /// # Errors
    /// If one of them is no directory, or can't be opened.
    pub fn new(paths: &[PathBuf]) -> io::Result<Reach> {
        let names: Vec<PathBuf> = paths.iter().map(|path| path.components().collect()).collect();
        let open = || names.iter().map(|path| Root::open(path)).collect::<io::Result<Vec<_>>>();
        let held = Arc::new(names.iter().cloned().zip(open()?).collect());
        Ok(Reach { base: Base::within(open()?)?, names, held })
    }

    /// Returns the directories, each with its path.
    pub fn held(&self) -> &Arc<Vec<(PathBuf, Root)>> {
        &self.held
    }

    /// Returns the paths as given.
    pub fn names(&self) -> Vec<String> {
        self.names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Returns the base for resolving `path`, if it is beneath one of the directories. No link leads out of
    /// them.
    ///
    /// # Errors
    /// `PermissionDenied` if it is beneath none of them.
    pub fn base_for(&self, path: &Path) -> io::Result<Base> {
        if self.names.iter().any(|name| path.starts_with(name)) {
            return Ok(self.base.clone());
        }
        let names = self.names().join(", ");
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not beneath what this mover reaches ({names})", path.display()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use carrack_storage::Purpose;

    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_beneath_a_prefix_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("in/deep")).unwrap();
        fs::create_dir(at("out")).unwrap();
        symlink("../out", at("in/leads")).unwrap();
        fs::write(at("out/secret"), "secret").unwrap();
        let reach = Reach::new(&[at("in"), at("in/deep/")]).unwrap();
        assert_eq!(reach.names().len(), 2);
        let identity = |path: &Path| Root::open(path).unwrap().identity();
        let open = |path: PathBuf| reach.base_for(&path)?.open(&path, Purpose::ReadThrough);
        assert_eq!(open(at("in")).unwrap().identity(), identity(&at("in")));
        assert_eq!(open(at("in/deep")).unwrap().identity(), identity(&at("in/deep")));
        assert!(reach.base_for(&at("out")).is_err() && reach.base_for(&at("inside")).is_err());
        assert!(open(at("in/leads")).is_err() && open(at("in/../out")).is_err());
        // A directory that takes the place of an opened one is not reached.
        fs::rename(at("in"), at("away")).unwrap();
        symlink("out", at("in")).unwrap();
        assert_eq!(open(at("in")).unwrap().identity(), identity(&at("away")));
        assert!(reach.base_for(&at("in/secret")).unwrap().look(&at("in/secret"), Purpose::Read).is_err());
        assert!(Reach::new(&[at("nowhere")]).is_err());
    }
}
