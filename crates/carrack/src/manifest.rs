//! The file that `--manifest` writes: one line for each complete file, as `b3sum` prints it, in order of completion.
//!
//! It grows under a temporary name in its own directory and gets its name when the transfer has ended, so that under
//! its name there is never half a manifest. Dropped before that, it leaves nothing.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use carrack_journal::manifest_line;

/// A manifest that grows.
#[derive(Debug)]
pub struct Manifest {
    file: BufWriter<File>,
    path: PathBuf,
    temporary: Temporary,
    report: ManifestReport,
}

/// What is in a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestReport {
    /// Lines.
    pub lines: u64,
    /// Those whose file `b3sum --check` can't find, because of its name.
    pub uncheckable: u64,
}

/// A name that is removed when nobody needs it any more.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing of that name; nothing can be done about another error.
        let _ = fs::remove_file(&self.0);
    }
}

impl Manifest {
    /// Begins the manifest that will be at `path`, replacing a regular file (the one that a link leads to).
    pub fn create(path: &Path) -> io::Result<Manifest> {
        let path = match fs::canonicalize(path) {
            Ok(found) if found.is_file() => found,
            Ok(_) => return Err(io::Error::other("it exists and is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let temporary = temporary_beside(&path)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let temporary = Temporary(temporary);
        Ok(Manifest { file: BufWriter::new(file), path, temporary, report: ManifestReport::default() })
    }

    /// Adds a file that is complete at the destination.
    pub fn add(&mut self, digest: &[u8; 32], path: &[u8]) -> io::Result<()> {
        let line = manifest_line(digest, path);
        self.file.write_all(&line.bytes)?;
        self.report.lines += 1;
        self.report.uncheckable += u64::from(!line.is_checkable);
        Ok(())
    }

    /// Gives it its name, durably.
    pub fn finish(mut self) -> io::Result<ManifestReport> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary.0, &self.path)?;
        File::open(directory_of(&self.path))?.sync_all()?;
        Ok(self.report)
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.report.lines
    }
}

/// `.NAME.PID.carrack-tmp`; the name is cut where it would get too long.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let mut hidden = OsString::from(".");
    hidden.push(if name.len() <= 200 { name } else { "manifest".as_ref() });
    hidden.push(format!(".{}.carrack-tmp", std::process::id()));
    Ok(directory_of(path).join(hidden))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn appears_only_when_finished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        let mut manifest = Manifest::create(&path).unwrap();
        manifest.add(&[1; 32], b"a/b").unwrap();
        manifest.add(&[2; 32], b"\xff").unwrap();
        assert!(!path.exists());
        assert_eq!(manifest.finish().unwrap(), ManifestReport { lines: 2, uncheckable: 1 });
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("{}  a/b\n", "01".repeat(32))), "{text}");
        assert_eq!(names(directory.path()), ["sums"]);
    }

    #[test]
    fn leaves_the_old_one_and_nothing_else_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        fs::write(&path, "old").unwrap();
        let mut manifest = Manifest::create(&path).unwrap();
        manifest.add(&[1; 32], b"a").unwrap();
        drop(manifest);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(directory.path()), ["sums"]);
    }

    #[test]
    fn follows_a_link_and_refuses_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        Manifest::create(&link).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "");
        assert!(link.is_symlink());
        for path in [directory.path(), Path::new("/dev/null"), Path::new("/nonexistent/x"), Path::new("..")] {
            assert!(Manifest::create(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn b3sum_would_accept_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        let digest = blake3::hash(b"contents");
        let mut manifest = Manifest::create(&path).unwrap();
        manifest.add(digest.as_bytes(), b"name").unwrap();
        manifest.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}  name\n", digest.to_hex()));
    }
}
