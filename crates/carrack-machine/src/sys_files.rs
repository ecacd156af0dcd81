//! The kernel's files (`/proc`, `/sys`) as text, relative to a root, so that the same reader serves this machine and a
//! tree that stands for another.
//!
//! Whatever can't be read is nothing: in a container most of it is missing, and that is no error here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Files beneath a root.
#[derive(Clone, Debug)]
pub struct SysFiles {
    root: PathBuf,
}

impl SysFiles {
    /// Those of this machine.
    pub fn here() -> SysFiles {
        SysFiles::beneath("/")
    }

    /// Those of the machine whose files were copied beneath `root`.
    pub fn beneath(root: impl AsRef<Path>) -> SysFiles {
        let root = root.as_ref();
        SysFiles { root: root.canonicalize().unwrap_or_else(|_| root.to_path_buf()) }
    }

    /// Text without blanks around it. `path` is relative to the root, as everywhere here.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// What [`SysFiles::text`] says as a value.
    pub fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, sorted.
    pub fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path)).ok()?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }

    /// Whether there is something.
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Where links lead, relative to the root; nothing where that is outside or not there.
    pub fn real(&self, path: &str) -> Option<String> {
        let real = self.root.join(path).canonicalize().ok()?;
        Some(real.strip_prefix(&self.root).ok()?.to_str()?.to_string())
    }

    /// Replaces what a file says. The kernel answers a bad value with an error here.
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
        let files = SysFiles::beneath(dir.path());
        assert_eq!((files.text("a"), files.names("a"), files.real("a")), (None, None, None));
        assert!(!files.exists("a") && files.write("a", "1").is_err());
    }

    #[test]
    fn texts_values_and_links_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/n"), "42\n").unwrap();
        std::os::unix::fs::symlink("d/n", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        let files = SysFiles::beneath(dir.path());
        assert_eq!((files.value("link"), files.value::<u8>("d")), (Some(42u8), None));
        assert_eq!((files.real("link").as_deref(), files.real("out")), (Some("d/n"), None));
        assert_eq!(files.names("").unwrap(), ["d", "link", "out"]);
        files.write("d/n", "7").unwrap();
        assert_eq!(files.value("d/n"), Some(7));
    }
}
