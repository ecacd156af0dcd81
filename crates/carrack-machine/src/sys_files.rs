//! The kernel's files (`/proc`, `/sys`) as text, relative to a root, so that one reader serves this machine
//! and a copy of another machine's files.
//!
//! Unreadable files are `None` and no error: in a container most of them are missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Files in a root directory.
#[derive(Clone, Debug)]
pub struct SysFiles {
    root: PathBuf,
}

impl SysFiles {
    /// The files of this machine.
    pub fn of_this_machine() -> SysFiles {
        SysFiles::with_root("/")
    }

    /// The files of another machine in `root`.
    pub fn with_root(root: impl AsRef<Path>) -> SysFiles {
        let root = root.as_ref();
        SysFiles { root: root.canonicalize().unwrap_or_else(|_| root.to_path_buf()) }
    }

    /// The trimmed text of a file. `path` is relative to the root, in all functions here.
    pub fn read_text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// Parses the text of a file.
    pub fn read_value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.read_text(path)?.parse().ok()
    }

    /// Sorted names in a directory.
    pub fn list_directory(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path)).ok()?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }

    /// Returns true if the path exists.
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Resolves links; the result is relative to the root. `None` outside of the root or for a missing file.
    pub fn resolve_links(&self, path: &str) -> Option<String> {
        let real = self.root.join(path).canonicalize().ok()?;
        Some(real.strip_prefix(&self.root).ok()?.to_str()?.to_string())
    }

    /// Overwrites a file. The kernel returns an error for an invalid value.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = fs::File::options().write(true).truncate(true).open(self.root.join(path))?;
        io::Write::write_all(&mut file, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = SysFiles::with_root(dir.path());
        assert_eq!(
            (files.read_text("a"), files.list_directory("a"), files.resolve_links("a")),
            (None, None, None)
        );
        assert!(!files.exists("a") && files.write("a", "1").is_err());
    }

    #[test]
    fn texts_values_and_links_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/n"), "42\n").unwrap();
        std::os::unix::fs::symlink("d/n", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        let files = SysFiles::with_root(dir.path());
        assert_eq!((files.read_value("link"), files.read_value::<u8>("d")), (Some(42u8), None));
        assert_eq!((files.resolve_links("link").as_deref(), files.resolve_links("out")), (Some("d/n"), None));
        assert_eq!(files.list_directory("").unwrap(), ["d", "link", "out"]);
        files.write("d/n", "7").unwrap();
        assert_eq!(files.read_value("d/n"), Some(7));
    }
}
