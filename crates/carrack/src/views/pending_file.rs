//! A file that appears when it is complete: a manifest, a report.
//!
//! It is written under a temporary name in its own directory and gets its name at the end, so that an
//! incomplete file never has that name. If it is dropped before the end, nothing is left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file under a temporary name.
#[derive(Debug)]
pub struct TemporaryOutputFile {
    file: File,
    path: PathBuf,
    temporary: TemporaryNameCleanup,
}

/// A name that is removed when the file is dropped.
#[derive(Debug)]
struct TemporaryNameCleanup(PathBuf);

impl Drop for TemporaryNameCleanup {
    fn drop(&mut self) {
        // After the rename the name no longer exists; another error can't be handled.
        let _ = fs::remove_file(&self.0);
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
        let before = fs::metadata(&path).ok().map(|found| found.permissions());
        let mode = before.as_ref().map_or(0o666, |before| before.mode() & 0o777);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        let pending = TemporaryOutputFile { file, path, temporary: TemporaryNameCleanup(temporary) };
        // The umask may have removed some of the permissions.
        before.map_or(Ok(()), |before| pending.file.set_permissions(before))?;
        Ok(pending)
    }

    /// Gives the file its name, durably.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary.0, &self.path)?;
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
