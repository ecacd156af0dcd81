//! The home directory, if it belongs to this process's user: only there does carrack read a configuration and
//! keep state.
//!
//! `su` and `sudo` without `-`, cron and containers leave HOME at another user's directory, at `/`, or at a
//! directory that does not exist. Such a directory stays as it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Returns the user's home directory.
///
/// # Errors
/// The reason why there is none, as a text.
pub fn user_home() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    checked_own_directory(home.ok_or("HOME is not set to an absolute path")?)
}

fn checked_own_directory(home: PathBuf) -> Result<PathBuf, String> {
    let shown = home.display();
    if home.parent().is_none() {
        return Err("HOME is the root directory".to_owned());
    }
    match fs::metadata(&home) {
        Err(error) => Err(format!("HOME is {shown}: {error}")),
        Ok(metadata) if !metadata.is_dir() => Err(format!("HOME is {shown}, which is no directory")),
        Ok(metadata) if metadata.uid() != geteuid().as_raw() => {
            Err(format!("HOME is {shown}, which belongs to another user"))
        }
        Ok(_) => Ok(home),
    }
}

/// Returns the directory that a variable of the XDG Base Directory Specification names, else the directory
/// `below` in the user's home.
pub fn xdg(variable: &str, below: impl AsRef<Path>) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    match named {
        // The directory itself may be created, but not its parent.
        Some(named) => Some(named).filter(|named| named.parent().is_some_and(Path::is_dir)),
        None => Some(user_home().ok()?.join(below)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_a_directory_of_ones_own() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(checked_own_directory(home.path().to_owned()), Ok(home.path().to_owned()));
        fs::write(home.path().join("file"), "").unwrap();
        for (path, words) in [
            (home.path().join("none"), "No such file"),
            (home.path().join("file"), "no directory"),
            ("/".into(), "the root directory"),
        ] {
            let refused = checked_own_directory(path).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(home.path(), Some(4242), None).unwrap();
            assert!(checked_own_directory(home.path().to_owned()).unwrap_err().ends_with("another user"));
        }
    }
}
