//! Atomic writes of files, by one writer at a time.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use rustix::fs::{FlockOperation, flock};

use super::error::AuthorityError;
use crate::certificate::hex;

/// The mode of public files.
pub(super) const PUBLIC: u32 = 0o644;

/// The mode of secret files.
pub(super) const SECRET: u32 = 0o600;

/// Held while a process changes the directory. The kernel releases it if the process dies.
pub(super) struct DirectoryLock(#[expect(dead_code, reason = "it is what is held")] File);

impl DirectoryLock {
    /// Waits for the lock.
    pub fn take(directory: &Path) -> Result<DirectoryLock, AuthorityError> {
        let path = directory.join(".lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).mode(SECRET).open(&path);
        let file = open.map_err(AuthorityError::io(&path))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| AuthorityError::io(&path)(error.into()))?;
        Ok(DirectoryLock(file))
    }
}

/// Makes a directory for its owner alone, with its parents. An existing directory stays unchanged.
pub(super) fn make_directory(path: &Path) -> Result<(), AuthorityError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(AuthorityError::io(path))
}

/// Writes a file, which must not exist.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    let partial = write_partial(path, content, mode)?;
    // Unlike a rename, a link never replaces a file, on any file system.
    let linked = fs::hard_link(&partial, path);
    let _ = fs::remove_file(&partial);
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(AuthorityError::Exists(path.into())),
        Err(error) => Err(AuthorityError::io(path)(error)),
        Ok(()) => sync_directory(path),
    }
}

/// Replaces a file.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    let partial = write_partial(path, content, mode)?;
    if let Err(error) = fs::rename(&partial, path) {
        let _ = fs::remove_file(&partial);
        return Err(AuthorityError::io(path)(error));
    }
    sync_directory(path)
}

fn write_partial(path: &Path, content: &[u8], mode: u32) -> Result<PathBuf, AuthorityError> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| AuthorityError::Random)?;
    let partial = path.with_extension(format!("{}.partial", hex(&random)));
    let written = write_durably(&partial, content, mode);
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.map_err(AuthorityError::io(path))?;
    Ok(partial)
}

fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(SECRET).open(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> Result<(), AuthorityError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|file| file.sync_all()).map_err(AuthorityError::io(directory))
}
