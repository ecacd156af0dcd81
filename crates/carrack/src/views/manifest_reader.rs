//! Reads a manifest line by line.
//!
//! Paths begin at the destination: a leading `./` has no meaning, a path that leads elsewhere is an error.
//! The first invalid line ends the reading; a line whose name could not be written (it was not UTF-8) is
//! reported, counted, and skipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use carrack_engine::ManifestEntry;
use carrack_journal::read_manifest_line;
use carrack_model::limits::PATH_BYTES_MAX;
use carrack_model::{RelPath, escape};

use crate::remote::browser::print_entry_failure;

/// The longest path, with every byte escaped, and the text in front of the path.
const LINE_BYTES_MAX: u64 = 2 * PATH_BYTES_MAX as u64 + 128;

/// A manifest from the next line on.
pub struct ManifestLines {
    reader: BufReader<File>,
    path: PathBuf,
    line_number: u64,
    lost_count: u64,
}

impl ManifestLines {
    /// Opens the file.
    pub fn open(path: &Path) -> io::Result<ManifestLines> {
        let reader =
            BufReader::new(File::open(path).map_err(|error| with_file_position(path, None, &error))?);
        Ok(ManifestLines { reader, path: path.to_owned(), line_number: 0, lost_count: 0 })
    }

    /// Returns the number of lines that name no file.
    pub fn lost_count(&self) -> u64 {
        self.lost_count
    }

    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        self.line_number += 1;
        if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 >= LINE_BYTES_MAX {
            return Err(io::Error::other("the line is too long"));
        }
        Ok((!line.is_empty()).then_some(line))
    }

    /// Returns the next entry; `None` at the end.
    fn next_entry(&mut self) -> io::Result<Option<ManifestEntry>> {
        loop {
            let Some(line) = self.read_line()? else { return self.check_end() };
            let (digest, path) = read_manifest_line(&line).map_err(io::Error::other)?;
            if path.windows(3).any(|bytes| bytes == "\u{fffd}".as_bytes()) {
                self.lost_count += 1;
                print_entry_failure(None, &path, "its name is not UTF-8, and a manifest does not hold it");
                continue;
            }
            let mut rest = &path[..];
            while let Some(after) = rest.strip_prefix(b"./") {
                rest = after;
            }
            let path = RelPath::new(rest).map_err(io::Error::other)?;
            return Ok(Some(ManifestEntry { path, digest }));
        }
    }

    /// Returns `None` at the end of the file; an empty line is an error.
    fn check_end(&mut self) -> io::Result<Option<ManifestEntry>> {
        if self.reader.fill_buf()?.is_empty() { Ok(None) } else { Err(io::Error::other("an empty line")) }
    }
}

impl Iterator for ManifestLines {
    type Item = io::Result<ManifestEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.next_entry().transpose()?;
        Some(entry.map_err(|error| with_file_position(&self.path, Some(self.line_number), &error)))
    }
}

fn with_file_position(path: &Path, line: Option<u64>, error: &io::Error) -> io::Error {
    let path = escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    let line = line.map_or(String::new(), |line| format!(", line {line}"));
    io::Error::new(error.kind(), format!("{path}{line}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> (Vec<Result<String, String>>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        std::fs::write(&path, content).unwrap();
        let mut listed = ManifestLines::open(&path).unwrap();
        let entries = listed.by_ref().take(9);
        let entries = entries
            .map(|entry| entry.map(|entry| entry.path.to_string()).map_err(|error| error.to_string()))
            .collect();
        (entries, listed.lost_count())
    }

    #[test]
    fn lines_are_read_and_errors_name_them() {
        let hex = "ab".repeat(32);
        let (entries, lost) = read(&format!("{hex}  a/b\n{hex}  ././c\n{hex}  x\u{fffd}\n{hex}  d"));
        assert_eq!((entries, lost), (["a/b", "c", "d"].map(|path| Ok(path.to_owned())).to_vec(), 1));
        assert_eq!(read("").0, []);
        for bad in ["", "no line", "  a", "/etc/passwd", "../a", "a/../b", "a//b"] {
            let line = if bad.contains(['/', '.']) { format!("{hex}  {bad}") } else { bad.to_owned() };
            let (entries, _) = read(&format!("{hex}  good\n{line}\n{hex}  more\n"));
            let error = entries[1].as_ref().unwrap_err();
            assert!(entries[0].is_ok() && error.contains("/m, line 2: "), "{bad:?}: {entries:?}");
        }
        assert!(read(&"x".repeat(200_000)).0[0].as_ref().unwrap_err().contains("line 1"));
    }
}
