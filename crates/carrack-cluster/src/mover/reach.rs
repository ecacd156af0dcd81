//! The directories that a mover reaches, and nothing beside them.

use std::io;
use std::path::{Path, PathBuf};

use carrack_storage::{Base, Root};

/// One directory.
#[derive(Clone, Debug)]
struct Prefix {
    /// As it was named, without a trailing slash.
    named: PathBuf,
    /// Without links.
    real: PathBuf,
}

/// All that were named.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    prefixes: Vec<Prefix>,
}

/// A path beneath a prefix.
#[derive(Debug)]
pub(super) struct Place {
    /// Where it begins.
    pub base: Base,
    /// From there.
    pub path: PathBuf,
}

impl Reach {
    /// # Errors
    /// If one of them is no directory, or can't be read.
    pub fn new(paths: &[PathBuf]) -> io::Result<Reach> {
        let prefix = |path: &PathBuf| {
            let real = path.canonicalize()?;
            Root::open(&real)?;
            Ok(Prefix { named: path.components().collect(), real })
        };
        Ok(Reach { prefixes: paths.iter().map(prefix).collect::<io::Result<_>>()? })
    }

    /// The prefixes, as they were named.
    pub fn names(&self) -> Vec<String> {
        self.prefixes.iter().map(|prefix| prefix.named.to_string_lossy().into_owned()).collect()
    }

    /// The place that `path` names, if it is beneath one of the prefixes: the longest one. No link leads out of it.
    ///
    /// # Errors
    /// `PermissionDenied` if it is beneath none of them, or what opening says.
    pub fn place(&self, path: &Path) -> io::Result<Place> {
        let holding = self.prefixes.iter().filter(|prefix| path.starts_with(&prefix.named));
        let Some(prefix) = holding.max_by_key(|prefix| prefix.named.as_os_str().len()) else {
            let names = self.names().join(", ");
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not beneath what this mover reaches ({names})", path.display()),
            ));
        };
        let rest = path.strip_prefix(&prefix.named).unwrap_or(path);
        Ok(Place { base: Base::beneath(Root::open(&prefix.real)?), path: Path::new("/").join(rest) })
    }

    /// Where a path leads that is read without a base, if no link of it leads out.
    ///
    /// # Errors
    /// As [`Reach::place`].
    pub fn real(&self, path: &Path) -> io::Result<PathBuf> {
        self.place(path)?;
        let real = path.canonicalize()?;
        if self.prefixes.iter().any(|prefix| real.starts_with(&prefix.real)) {
            return Ok(real);
        }
        let message = format!("{} leads out of what this mover reaches", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

#[cfg(test)]
mod tests {
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
        let reach = Reach::new(&[at("in"), at("in/deep")]).unwrap();
        assert_eq!(reach.place(&at("in/x/y")).unwrap().path, Path::new("/x/y"));
        assert_eq!(reach.place(&at("in/deep/y")).unwrap().path, Path::new("/y"), "the longest one");
        assert_eq!(reach.place(&at("in")).unwrap().path, Path::new("/"));
        assert!(reach.place(&at("out")).is_err() && reach.place(&at("inside")).is_err());
        assert!(reach.real(&at("in/deep")).is_ok());
        assert!(reach.real(&at("in/leads")).is_err());
        assert!(Reach::new(&[at("nowhere")]).is_err());
    }
}
