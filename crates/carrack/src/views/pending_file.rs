//! A file that appears when it is complete: a manifest, a report.
//!
//! It is written under a temporary name in its own directory and gets its name at the end, so that an
//! incomplete file never has that name. If it is dropped before the end, nothing is left. A file that got the
//! name in the meantime, which may be one of the copy's, is not replaced.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use carrack_model::escape;

/// A file under a temporary name.
#[derive(Debug)]
pub struct TemporaryOutputFile {
    file: File,
    path: PathBuf,
    /// The file that it replaces.
    before: Option<FileVersion>,
    temporary: TemporaryNameCleanup,
}

/// A name that is removed when the file is dropped.
#[derive(Debug)]
struct TemporaryNameCleanup {
    path: PathBuf,
    is_kept: bool,
}

impl Drop for TemporaryNameCleanup {
    fn drop(&mut self) {
        if !self.is_kept {
            // After the rename the name no longer exists; another error can't be handled.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What tells a file and its contents from others.
#[derive(Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    mtime: Option<SystemTime>,
}

impl FileVersion {
    fn of(found: &Metadata) -> FileVersion {
        FileVersion {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            mtime: found.modified().ok(),
        }
    }
}

impl TemporaryOutputFile {
    /// Begins the file that will be at `path`, in place of a regular file (for a link, the file that it leads
    /// to), whose permissions it gets.
    pub fn create(path: &Path) -> io::Result<TemporaryOutputFile> {
        let path = match fs::canonicalize(path) {
            Ok(found) if found.is_file() => found,
            Ok(_) => return Err(io::Error::other("it exists and is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let temporary = temporary_beside(&path)?;
        let found = fs::metadata(&path).ok();
        let (before, rights) = (found.as_ref().map(FileVersion::of), found.map(|found| found.permissions()));
        let mode = rights.as_ref().map_or(0o666, |rights| rights.mode() & 0o777);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        let temporary = TemporaryNameCleanup { path: temporary, is_kept: false };
        let pending = TemporaryOutputFile { file, path, before, temporary };
        // The umask may have removed some of the permissions.
        rights.map_or(Ok(()), |rights| pending.file.set_permissions(rights))?;
        Ok(pending)
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// Those of the file system; a file that has got the name since the start stays, and this one keeps its
    /// temporary name, which the error says.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if fs::metadata(&self.path).ok().as_ref().map(FileVersion::of) != self.before {
            self.temporary.is_kept = true;
            let kept = escape(self.temporary.path.as_os_str().as_bytes());
            let text = "a file got this name, or was changed, while the copy ran, and stays; this one is";
            return Err(io::Error::other(format!("{text} {kept}")));
        }
        fs::rename(&self.temporary.path, &self.path)?;
        File::open(directory_of(&self.path))?.sync_all()
    }
}

impl Write for TemporaryOutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns `.NAME.PID.carrack-tmp`; a name that would get too long is replaced.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let mut hidden = OsString::from(".");
    hidden.push(if name.len() <= 200 { name } else { "pending".as_ref() });
    hidden.push(format!(".{}.carrack-tmp", std::process::id()));
    Ok(directory_of(path).join(hidden))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_came_meanwhile_stays() {
        for existed in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("f");
            if existed {
                fs::write(&path, "old").unwrap();
            }
            let mut pending = TemporaryOutputFile::create(&path).unwrap();
            pending.write_all(b"manifest").unwrap();
            fs::write(directory.path().join("copy"), "new").unwrap();
            fs::rename(directory.path().join("copy"), &path).unwrap();
            let refused = pending.finish().unwrap_err().to_string();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            let kept = Path::new(refused.rsplit(' ').next().unwrap());
            assert_eq!(fs::read_to_string(kept).unwrap(), "manifest", "{refused}");
        }
    }

    #[test]
    fn follows_a_link_and_refuses_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o620)).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        TemporaryOutputFile::create(&link).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o620);
        for path in [directory.path(), Path::new("/dev/null"), Path::new("/nonexistent/x"), Path::new("..")] {
            assert!(TemporaryOutputFile::create(path).is_err(), "{path:?}");
        }
    }
}
