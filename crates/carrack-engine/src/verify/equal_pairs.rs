//! The entries that earlier runs of a comparison found equal, in a file: the same command continues after an
//! interruption.
//!
//! A header of 48 bytes (16 of magic, 32 of the comparison's identity), then blocks: the number of keys (u32,
//! little-endian), 16 bytes of BLAKE3 over that number and the keys, and the keys, 16 bytes each in rising
//! order. The file is only appended to; at the next opening blocks are merged into large ones, in a new file
//! that replaces the old file. A block that a crash cut off fails its check, and its entries are compared
//! again. Memory: 16 bytes for each 256 keys, and one large block while the file is opened.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::mem;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

const MAGIC: &[u8; 16] = b"carrack verify 1";
const HEADER_BYTES: u64 = 48;
const KEY_BYTES: usize = 16;

/// Keys of one block: 64 MiB.
const BLOCK_KEYS_MAX: usize = 4 << 20;

/// Keys that are searched in one read.
const FENCE_KEYS: usize = 256;

/// The number of waiting keys, and the time since the last block, at which a new block is written.
const WAITING_KEYS_MAX: usize = 4_096;
const WAITING: Duration = Duration::from_secs(1);

/// The reason why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum EqualEntriesFileError {
    /// An error of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file belongs to another comparison.
    #[error("it is the state of another comparison, or no state at all")]
    Other,
    /// Another process has locked it.
    #[error("another carrack uses it")]
    InUse,
}

/// The known equal entries; [`EqualPairs::disabled`] keeps none.
#[derive(Debug, Default)]
pub struct EqualPairs {
    store: Option<EqualPairStore>,
    /// The reason why no more entries are kept.
    trouble: Option<io::Error>,
}

#[derive(Debug)]
struct EqualPairStore {
    file: File,
    path: PathBuf,
    /// Blocks of earlier runs.
    blocks: Vec<VerifiedEntryKeyBlock>,
    end: u64,
    waiting: Vec<u128>,
    written_at: Instant,
}

/// The place of a block's keys, and every 256th key.
#[derive(Debug)]
struct VerifiedEntryKeyBlock {
    offset: u64,
    count: usize,
    fences: Vec<u128>,
}

impl EqualPairs {
    /// Knows and keeps no entries.
    pub fn disabled() -> EqualPairs {
        EqualPairs::default()
    }

    /// Opens or creates the file at `path`; `identity` identifies the comparison.
    ///
    /// # Errors
    /// [`EqualEntriesFileError`]; an existing file is not changed then.
    pub fn open(path: &Path, identity: &[u8; 32]) -> Result<EqualPairs, EqualEntriesFileError> {
        let file = options().create(true).truncate(false).open(path)?;
        lock(&file)?;
        let header = [&MAGIC[..], identity].concat();
        let store = match file.metadata()?.len() {
            0 => EqualPairStore::begin(file, path.to_owned(), &header)?,
            _ => EqualPairStore::merge_from(&file, path, &header)?,
        };
        Ok(EqualPairs { store: Some(store), trouble: None })
    }

    /// Returns true if an earlier run kept this key.
    pub(super) fn has(&mut self, key: u128) -> bool {
        let Some(store) = &self.store else { return false };
        match store.has(key) {
            Ok(found) => found,
            Err(error) => {
                self.give_up(error);
                false
            }
        }
    }

    /// Keeps a key.
    pub(super) fn add(&mut self, key: u128) {
        let Some(store) = &mut self.store else { return };
        if let Err(error) = store.add(key) {
            self.give_up(error);
        }
    }

    /// Leaves the file for another run.
    ///
    /// # Errors
    /// The reason why not all keys are in it.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(store) = &mut self.store {
            store.write_waiting()?;
        }
        self.trouble.map_or(Ok(()), Err)
    }

    /// Removes the file, as everything is equal.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn remove(self) -> io::Result<()> {
        self.store.map_or(Ok(()), |store| fs::remove_file(store.path))
    }

    /// Stops reading and writing the file, whose present keys stay.
    fn give_up(&mut self, error: io::Error) {
        self.store = None;
        self.trouble.get_or_insert(error);
    }
}

impl EqualPairStore {
    fn begin(file: File, path: PathBuf, header: &[u8]) -> io::Result<EqualPairStore> {
        file.write_all_at(header, 0)?;
        Ok(EqualPairStore::new(file, path, Vec::new(), HEADER_BYTES))
    }

    fn new(file: File, path: PathBuf, blocks: Vec<VerifiedEntryKeyBlock>, end: u64) -> EqualPairStore {
        EqualPairStore { file, path, blocks, end, waiting: Vec::new(), written_at: Instant::now() }
    }

    /// Merges the blocks of the file into large blocks of a new file.
    fn merge_from(old: &File, path: &Path, header: &[u8]) -> Result<EqualPairStore, EqualEntriesFileError> {
        let mut reader = BufReader::new(old);
        let mut found = vec![0; HEADER_BYTES as usize];
        if read_up_to(&mut reader, &mut found)? < found.len() || found != header {
            return Err(EqualEntriesFileError::Other);
        }
        let new_path = new_file_path(path);
        let file = options().create(true).truncate(true).open(&new_path)?;
        lock(&file)?;
        file.write_all_at(header, 0)?;
        let mut store = EqualPairStore::new(file, path.to_owned(), Vec::new(), HEADER_BYTES);
        let mut keys = Vec::new();
        while let Some(more) = read_block(&mut reader)? {
            if keys.len() + more.len() > BLOCK_KEYS_MAX {
                store.gather(mem::take(&mut keys))?;
            }
            keys.extend(more);
        }
        store.gather(keys)?;
        store.file.sync_data()?;
        fs::rename(new_path, path)?;
        Ok(store)
    }

    /// Writes a block that can be searched.
    fn gather(&mut self, mut keys: Vec<u128>) -> io::Result<()> {
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(());
        }
        let offset = self.end + 4 + 16;
        let fences = keys.iter().copied().step_by(FENCE_KEYS).collect();
        self.append(&keys)?;
        self.blocks.push(VerifiedEntryKeyBlock { offset, count: keys.len(), fences });
        Ok(())
    }

    fn append(&mut self, keys: &[u128]) -> io::Result<()> {
        assert!(keys.len() <= BLOCK_KEYS_MAX, "the next run can read each block");
        let count = (keys.len() as u32).to_le_bytes();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&count);
        keys.iter().for_each(|key| _ = hasher.update(&key.to_be_bytes()));
        let mut writer = BufWriter::new(EqualPairsWriter { file: &self.file, offset: self.end });
        writer.write_all(&count)?;
        writer.write_all(&hasher.finalize().as_bytes()[..16])?;
        keys.iter().try_for_each(|key| writer.write_all(&key.to_be_bytes()))?;
        writer.flush()?;
        self.end += (4 + 16 + keys.len() * KEY_BYTES) as u64;
        Ok(())
    }

    fn has(&self, key: u128) -> io::Result<bool> {
        for block in &self.blocks {
            if block.has(&self.file, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add(&mut self, key: u128) -> io::Result<()> {
        self.waiting.push(key);
        let is_due = self.waiting.len() >= WAITING_KEYS_MAX || self.written_at.elapsed() >= WAITING;
        if is_due { self.write_waiting() } else { Ok(()) }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        self.written_at = Instant::now();
        let mut keys = mem::take(&mut self.waiting);
        keys.sort_unstable();
        if keys.is_empty() { Ok(()) } else { self.append(&keys) }
    }
}

impl VerifiedEntryKeyBlock {
    fn has(&self, file: &File, key: u128) -> io::Result<bool> {
        let Some(fence) = self.fences.partition_point(|&fence| fence <= key).checked_sub(1) else {
            return Ok(false);
        };
        let first = fence * FENCE_KEYS;
        assert!(first < self.count, "each fence is a key of its block");
        let count = FENCE_KEYS.min(self.count - first);
        let mut bytes = [0; FENCE_KEYS * KEY_BYTES];
        let bytes = &mut bytes[..count * KEY_BYTES];
        file.read_exact_at(bytes, self.offset + (first * KEY_BYTES) as u64)?;
        let (keys, _) = bytes.as_chunks::<KEY_BYTES>();
        Ok(keys.binary_search(&key.to_be_bytes()).is_ok())
    }
}

/// Returns the next block, or `None` at the end, and at an invalid block.
fn read_block(reader: &mut impl Read) -> io::Result<Option<Vec<u128>>> {
    let mut head = [0; 4 + 16];
    if read_up_to(reader, &mut head)? < head.len() {
        return Ok(None);
    }
    let (count, check) = head.split_at(4);
    let key_count = u32::from_le_bytes(count.try_into().expect("four bytes")) as usize;
    if key_count > BLOCK_KEYS_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; key_count * KEY_BYTES];
    if read_up_to(reader, &mut bytes)? < bytes.len() {
        return Ok(None);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(count).update(&bytes);
    if hasher.finalize().as_bytes()[..16] != *check {
        return Ok(None);
    }
    Ok(Some(bytes.as_chunks::<KEY_BYTES>().0.iter().map(|key| u128::from_be_bytes(*key)).collect()))
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Writes at an offset of a file.
struct EqualPairsWriter<'a> {
    file: &'a File,
    offset: u64,
}

impl Write for EqualPairsWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn lock(file: &File) -> Result<(), EqualEntriesFileError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(EqualEntriesFileError::InUse),
        Err(errno) => Err(EqualEntriesFileError::Io(errno.into())),
    }
}

fn new_file_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: [u8; 32] = [7; 32];

    fn key(n: u64) -> u128 {
        u128::from_be_bytes(blake3::hash(&n.to_le_bytes()).as_bytes()[..16].try_into().unwrap())
    }

    fn open(path: &Path) -> EqualPairs {
        EqualPairs::open(path, &ABOUT).unwrap()
    }

    #[test]
    fn what_was_kept_is_known_to_the_next_run_and_the_one_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        for run in 0..3 {
            let mut kept = open(&path);
            let known = (0..10_000).filter(|&n| kept.has(key(n))).count();
            assert_eq!(known, run * 3_000, "before run {run}");
            (run * 3_000..(run + 1) * 3_000).for_each(|n| kept.add(key(n as u64)));
            kept.finish().unwrap();
        }
        let mut kept = open(&path);
        assert!((0..9_000).all(|n| kept.has(key(n))) && !(9_000..20_000).any(|n| kept.has(key(n))));
        assert!(!kept.has(0) && !kept.has(u128::MAX));
        kept.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn wherever_it_is_cut_or_damaged_nothing_is_known_that_was_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut kept = open(&path);
        for n in 0..20 {
            kept.add(key(n));
            kept.store.as_mut().unwrap().write_waiting().unwrap();
        }
        kept.finish().unwrap();
        let whole = fs::read(&path).unwrap();
        let block_bytes = (whole.len() - HEADER_BYTES as usize) / 20;
        for cut in HEADER_BYTES as usize..whole.len() {
            let complete = ((cut - HEADER_BYTES as usize) / block_bytes) as u64;
            for damaged in [false, true] {
                let mut bytes = whole.clone();
                if damaged {
                    bytes[cut] ^= 0x10
                } else {
                    bytes.truncate(cut)
                }
                fs::write(&path, bytes).unwrap();
                let mut kept = open(&path);
                assert!((0..20).all(|n| kept.has(key(n)) == (n < complete)), "{cut} {damaged}");
            }
        }
    }

    #[test]
    fn neither_another_comparisons_nor_a_used_one_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let kept = open(&path);
        assert!(matches!(EqualPairs::open(&path, &ABOUT), Err(EqualEntriesFileError::InUse)));
        kept.finish().unwrap();
        assert!(matches!(EqualPairs::open(&path, &[8; 32]), Err(EqualEntriesFileError::Other)));
        fs::write(&path, "my notes").unwrap();
        assert!(matches!(EqualPairs::open(&path, &ABOUT), Err(EqualEntriesFileError::Other)));
        assert_eq!(fs::read(&path).unwrap(), b"my notes");
    }
}
