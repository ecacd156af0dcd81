//! The source files, and the directory for copies.
//!
//! Used by the parent, which makes, checks and removes them, and by the workers, which only need the paths.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use carrack_bench::noise;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::options::Sizes;

/// Small files in each directory.
pub const FILES_PER_DIRECTORY: u64 = 100;

/// Bytes that the parent writes and compares at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A directory for the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    directory: PathBuf,
}

impl Place {
    /// Makes the source files.
    pub fn make(directory: &Path, sizes: &Sizes) -> Result<Place> {
        let place = Place { directory: directory.to_owned() };
        fs::create_dir(place.sources()).context("creating the sources")?;
        let piece = noise(PIECE_BYTES, 0);
        (0..sizes.file_count)
            .try_for_each(|index| write_stamped(&place.source(index), index, sizes.file_bytes, piece.clone()))
            .context("writing the large files")?;
        write_small(&place.small_sources(), sizes).context("writing the small files")?;
        place.clear_copies()?;
        Ok(place)
    }

    /// Returns the path of a large source file.
    pub fn source(&self, index: u64) -> PathBuf {
        self.sources().join(format!("large{index}"))
    }

    /// Returns the path of a large copy.
    pub fn copy(&self, index: u64) -> PathBuf {
        self.copies().join(format!("large{index}"))
    }

    /// Returns the parent of the directories with small source files.
    pub fn small_sources(&self) -> PathBuf {
        self.sources().join("small")
    }

    /// Returns the parent of the directories for small copies.
    pub fn small_copies(&self) -> PathBuf {
        self.copies().join("small")
    }

    /// Removes the copies, so that their memory is free again.
    pub fn clear_copies(&self) -> Result<()> {
        match fs::remove_dir_all(self.copies()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("removing copies"),
            _ => fs::create_dir(self.copies()).context("creating a directory for copies"),
        }
    }

    /// Checks the copies of a measurement.
    pub fn verify_copies(&self, kind: Kind, sizes: &Sizes) -> Result<()> {
        match kind {
            Kind::Local(_) => (0..sizes.file_count).try_for_each(|index| {
                let len = fs::metadata(self.copy(index))?.len();
                ensure!(len == sizes.file_bytes, "{len} bytes were written");
                Ok(())
            }),
            Kind::Transfer(_) => (0..sizes.file_count)
                .try_for_each(|index| compare_contents(&self.source(index), &self.copy(index))),
            Kind::Small(_) => {
                let count = count_small(&self.small_copies(), sizes.small_bytes)?;
                ensure!(count == sizes.small_count, "{count} of {} files were written", sizes.small_count);
                Ok(())
            }
        }
    }

    fn sources(&self) -> PathBuf {
        self.directory.join("source")
    }

    fn copies(&self) -> PathBuf {
        self.directory.join("copy")
    }
}

/// Returns a directory's name and its number of small files; `None` beyond the last directory.
pub fn small_directory(index: u64, sizes: &Sizes) -> Option<(String, u64)> {
    let before = index * FILES_PER_DIRECTORY;
    let count = sizes.small_count.checked_sub(before).filter(|&left| left > 0)?;
    Some((format!("directory{index:05}"), count.min(FILES_PER_DIRECTORY)))
}

/// Returns the names of the small files in every directory.
pub fn small_names() -> Vec<CString> {
    let name = |index| CString::new(format!("file{index:02}")).expect("digits have no NUL");
    (0..FILES_PER_DIRECTORY).map(name).collect()
}

/// Writes a file whose pieces all begin with their file and offset, so that misplaced pieces are noticed.
fn write_stamped(path: &Path, index: u64, file_bytes: u64, mut piece: Vec<u8>) -> Result<()> {
    let mut file = File::create_new(path)?;
    let mut offset = 0;
    while offset < file_bytes {
        piece[..8].copy_from_slice(&index.to_le_bytes());
        piece[8..16].copy_from_slice(&offset.to_le_bytes());
        let len = (file_bytes - offset).min(PIECE_BYTES as u64);
        file.write_all(&piece[..len as usize])?;
        offset += len;
    }
    Ok(())
}

fn write_small(parent: &Path, sizes: &Sizes) -> Result<()> {
    fs::create_dir(parent)?;
    let (names, content) = (small_names(), noise(sizes.small_bytes as usize, 1));
    for (directory, count) in (0..).map_while(|index| small_directory(index, sizes)) {
        let directory = parent.join(directory);
        fs::create_dir(&directory)?;
        for name in &names[..count as usize] {
            fs::write(directory.join(name.to_string_lossy().as_ref()), &content)?;
        }
    }
    Ok(())
}

fn compare_contents(source: &Path, copy: &Path) -> Result<()> {
    let (mut source, mut copy) = (File::open(source)?, File::open(copy)?);
    let mut left = source.metadata()?.len();
    ensure!(copy.metadata()?.len() == left, "the copy of a file is not as long as the file");
    let (mut expected, mut found) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    while left > 0 {
        let len = left.min(PIECE_BYTES as u64) as usize;
        source.read_exact(&mut expected[..len])?;
        copy.read_exact(&mut found[..len])?;
        ensure!(expected[..len] == found[..len], "the copy of a file is not what the file is");
        left -= len as u64;
    }
    Ok(())
}

fn count_small(parent: &Path, small_bytes: u64) -> Result<u64> {
    let mut count = 0;
    for directory in fs::read_dir(parent)? {
        for file in fs::read_dir(directory?.path())? {
            let len = file?.metadata()?.len();
            ensure!(len == small_bytes, "a small file has {len} bytes");
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Congestion, ReceiveWay, SendWay, Transfer};

    const SIZES: Sizes = Sizes {
        file_count: 2,
        file_bytes: (1 << 20) + 5,
        block_bytes: 1 << 10,
        small_count: 250,
        small_bytes: 10,
    };

    const TRANSFER: Kind = Kind::Transfer(Transfer {
        send: SendWay::Read,
        receive: ReceiveWay::Write,
        streams: 1,
        congestion: Congestion::Cubic,
    });

    #[test]
    fn the_last_directory_is_not_full() {
        let counts: Vec<u64> =
            (0..).map_while(|index| small_directory(index, &SIZES)).map(|(_, count)| count).collect();
        assert_eq!(counts, [100, 100, 50]);
    }

    #[test]
    fn notices_a_missing_copy_a_short_one_and_a_changed_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::make(scratch.path(), &SIZES).unwrap();
        assert_eq!(count_small(&place.small_sources(), 10).unwrap(), 250);
        let verify = || place.verify_copies(TRANSFER, &SIZES).map_err(|error| error.to_string());
        assert!(verify().is_err());
        (0..2).for_each(|index| assert!(fs::copy(place.source(index), place.copy(index)).is_ok()));
        assert_eq!(verify(), Ok(()));
        let mut bytes = fs::read(place.copy(1)).unwrap();
        bytes[1 << 20] ^= 1;
        fs::write(place.copy(1), &bytes).unwrap();
        assert!(verify().unwrap_err().contains("not what"));
        fs::write(place.copy(1), &bytes[1..]).unwrap();
        assert!(verify().unwrap_err().contains("not as long"));
        place.clear_copies().unwrap();
        assert!(!place.copy(1).exists());
    }
}
