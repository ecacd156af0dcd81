//! State that carrack keeps for its user between commands: small files in `$XDG_STATE_HOME/carrack` (XDG Base
//! Directory Specification; `~/.local/state` by default).
//!
//! No command depends on them: a file that can't be written is left out.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::register::home_directory;

/// Returns the directory of one kind of state of this process's user; `None` if the user has no home
/// directory.
pub fn user_state_directory(kind: &str) -> Option<PathBuf> {
    Some(home_directory::xdg("XDG_STATE_HOME", ".local/state")?.join("carrack").join(kind))
}

/// Writes a file in such a directory: atomically, by renaming a temporary file.
pub fn write(directory: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    make_directory(directory)?;
    let path = directory.join(name);
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let written = write_private(&temporary, content).and_then(|()| fs::rename(&temporary, &path));
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(path)
}

/// Creates such a directory, unless it exists.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Writes a file that only its user can read: other users may not be meant to see the paths.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_whole_and_private() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/carrack/kind");
        for content in [&b"long before"[..], b"short"] {
            let path = write(&directory, "a.json", content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        // A file does not replace a directory.
        fs::create_dir_all(home.path().join("a.json/x")).unwrap();
        assert!(write(home.path(), "a.json", b"x").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        assert!(write(Path::new("/dev/null/state"), "a.json", b"x").is_err());
    }
}
