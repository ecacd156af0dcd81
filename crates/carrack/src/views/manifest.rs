//! The file that `--manifest` writes: one line for each complete file, as `b3sum` prints it, in order of
//! completion.
//!
//! It gets its name when the transfer has ended ([`TemporaryOutputFile`]), so that an incomplete manifest
//! never has that name.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use carrack_journal::manifest_line;

use crate::views::pending_file::TemporaryOutputFile;

/// A manifest that is being written.
#[derive(Debug)]
pub struct ManifestWriter {
    file: BufWriter<TemporaryOutputFile>,
    report: ManifestLineCounts,
}

/// The counts of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestLineCounts {
    /// Lines.
    pub lines: u64,
    /// Lines whose file `b3sum --check` can't find, because of its name.
    pub uncheckable: u64,
}

impl ManifestWriter {
    /// Begins the manifest that will be at `path`, in place of a regular file (for a link, the file that it
    /// leads to).
    pub fn create(path: &Path) -> io::Result<ManifestWriter> {
        let file = BufWriter::new(TemporaryOutputFile::create(path)?);
        Ok(ManifestWriter { file, report: ManifestLineCounts::default() })
    }

    /// Adds a file that is complete at the destination.
    pub fn add(&mut self, digest: &[u8; 32], path: &[u8]) -> io::Result<()> {
        let line = manifest_line(digest, path);
        self.file.write_all(&line.bytes)?;
        self.report.lines += 1;
        self.report.uncheckable += u64::from(!line.is_checkable);
        Ok(())
    }

    /// Gives the manifest its name, durably.
    pub fn finish(self) -> io::Result<ManifestLineCounts> {
        self.file.into_inner()?.finish()?;
        Ok(self.report)
    }

    /// Returns the lines so far.
    pub fn line_count(&self) -> u64 {
        self.report.lines
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let mut manifest = ManifestWriter::create(&path).unwrap();
        manifest.add(&[1; 32], b"a/b").unwrap();
        manifest.add(&[2; 32], b"\xff").unwrap();
        assert!(!path.exists());
        assert_eq!(manifest.finish().unwrap(), ManifestLineCounts { lines: 2, uncheckable: 1 });
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("{}  a/b\n", "01".repeat(32))), "{text}");
        assert_eq!(names(directory.path()), ["sums"]);
    }

    #[test]
    fn leaves_the_old_one_and_nothing_else_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        fs::write(&path, "old").unwrap();
        let mut manifest = ManifestWriter::create(&path).unwrap();
        manifest.add(&[1; 32], b"a").unwrap();
        drop(manifest);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(directory.path()), ["sums"]);
    }

    #[test]
    fn b3sum_would_accept_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sums");
        let digest = blake3::hash(b"contents");
        let mut manifest = ManifestWriter::create(&path).unwrap();
        manifest.add(digest.as_bytes(), b"name").unwrap();
        manifest.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}  name\n", digest.to_hex()));
    }
}
