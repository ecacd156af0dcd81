//! Records on flash for spilled objects (L9): a preallocated file without a name, written and read past the
//! page cache.
//!
//! A record has the size of a slot. Any number of threads may write and read. A record returns to the log
//! when dropped; the file vanishes with the log and its records, however the process ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use rustix::io::{Errno, pread, pwrite};

/// Direct I/O requires addresses and lengths in multiples of this; slots are.
const ALIGNMENT: usize = 4_096;

/// Reasons why a log was not created.
#[derive(Debug, thiserror::Error)]
pub enum SpillLogCreationError {
    /// The size has no room for a single record.
    #[error("a spill of {0} bytes has no room for an object of {1} bytes")]
    TooSmall(u64, usize),
    /// The directory does not exist, or its file system has no unnamed files or no direct I/O.
    #[error("no spill in {}: {action}: {error}", .directory.display())]
    NoFile {
        /// The directory.
        directory: PathBuf,
        /// The failed step.
        action: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

/// The log. Its blocks are allocated at the start, so that no write fails for lack of space.
#[derive(Debug)]
pub struct SpillDataFile {
    file: OwnedFd,
    record_bytes: usize,
    record_count: usize,
    free: Mutex<FreeSpillRecordBitmap>,
}

/// Space for a slot's bytes, for its holder only.
#[derive(Debug)]
pub struct ReservedSpillSpace {
    log: Arc<SpillDataFile>,
    index: usize,
}

/// The free records, one bit each.
#[derive(Debug)]
struct FreeSpillRecordBitmap {
    words: Vec<u64>,
    free_count: usize,
}

impl SpillDataFile {
    /// Creates a log of `bytes` in `directory`, with records of `record_bytes` (a multiple of 4,096).
    ///
    /// # Errors
    /// [`SpillLogCreationError`], also if the disk has too little space.
    pub fn create(
        directory: &Path,
        bytes: u64,
        record_bytes: usize,
    ) -> Result<Arc<SpillDataFile>, SpillLogCreationError> {
        let record_count = usize::try_from(bytes).unwrap_or(usize::MAX) / record_bytes.max(1);
        if record_count == 0 || !record_bytes.is_multiple_of(ALIGNMENT) {
            return Err(SpillLogCreationError::TooSmall(bytes, record_bytes));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = open(directory, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| no_file(directory, "a file without a name, past the page cache", errno))?;
        let len = record_count as u64 * record_bytes as u64;
        fallocate(&file, FallocateFlags::empty(), 0, len)
            .map_err(|errno| no_file(directory, "its space", errno))?;
        let free = Mutex::new(FreeSpillRecordBitmap::new(record_count));
        Ok(Arc::new(SpillDataFile { file, record_bytes, record_count, free }))
    }

    /// Number of records.
    pub fn record_count(&self) -> usize {
        self.record_count
    }

    /// Number of free records.
    pub fn free_count(&self) -> usize {
        self.bitmap().free_count
    }

    /// A free record, if there is one.
    pub fn try_reserve(self: &Arc<Self>) -> Option<ReservedSpillSpace> {
        let index = self.bitmap().take()?;
        Some(ReservedSpillSpace { log: Arc::clone(self), index })
    }

    /// Bits change independently: after a panic the bitmap is still valid.
    fn bitmap(&self) -> MutexGuard<'_, FreeSpillRecordBitmap> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_file(directory: &Path, action: &'static str, errno: Errno) -> SpillLogCreationError {
    SpillLogCreationError::NoFile { directory: directory.to_owned(), action, error: errno.into() }
}

impl ReservedSpillSpace {
    fn offset(&self) -> u64 {
        self.index as u64 * self.log.record_bytes as u64
    }

    /// Writes the first `len` bytes of a slot, rounded up for direct I/O. Returns when the disk has them.
    ///
    /// # Errors
    /// The disk's error; the record's contents are then undefined.
    pub fn write(&self, slot: &[u8], len: usize) -> io::Result<()> {
        let wanted = self.padded_length(len, slot.len())?;
        let mut done = 0;
        while done < wanted {
            match pwrite(&self.log.file, &slot[done..wanted], self.offset() + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Reads the first `len` bytes of the record into a slot.
    ///
    /// # Errors
    /// The disk's error.
    pub fn read(&self, slot: &mut [u8], len: usize) -> io::Result<()> {
        let wanted = self.padded_length(len, slot.len())?;
        let mut done = 0;
        while done < wanted {
            match pread(&self.log.file, &mut slot[done..wanted], self.offset() + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn padded_length(&self, len: usize, slot_bytes: usize) -> io::Result<usize> {
        let wanted = len.next_multiple_of(ALIGNMENT);
        if wanted > slot_bytes.min(self.log.record_bytes) {
            return Err(Errno::INVAL.into());
        }
        Ok(wanted)
    }
}

impl Drop for ReservedSpillSpace {
    fn drop(&mut self) {
        self.log.bitmap().put_back(self.index);
    }
}

impl FreeSpillRecordBitmap {
    fn new(count: usize) -> FreeSpillRecordBitmap {
        let mut words = vec![u64::MAX; count.div_ceil(64)];
        if let (Some(last), used @ 1..) = (words.last_mut(), count % 64) {
            *last = (1 << used) - 1;
        }
        FreeSpillRecordBitmap { words, free_count: count }
    }

    /// Takes the first free record, so that few records are reused often.
    fn take(&mut self) -> Option<usize> {
        let (place, word) = self.words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= !(1 << bit);
        self.free_count -= 1;
        Some(place * 64 + bit)
    }

    fn put_back(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
        self.free_count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlotPool;

    /// A log on a disk, as file systems in memory may lack direct I/O. `None` on machines without a disk.
    fn log(records: u64) -> Option<Arc<SpillDataFile>> {
        let log = SpillDataFile::create(Path::new("/var/tmp"), records << 16, 64 << 10);
        log.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    #[test]
    fn records_hold_what_was_written() {
        let pool = SlotPool::new(128 << 10, 64 << 10).unwrap();
        let (mut slot, mut again) = (pool.lease().unwrap(), pool.lease().unwrap());
        let Some(log) = log(3) else { return };
        let records: Vec<ReservedSpillSpace> = std::iter::from_fn(|| log.try_reserve()).collect();
        assert_eq!((records.len(), log.free_count()), (3, 0));
        for (i, record) in records.iter().enumerate() {
            slot.bytes_mut().fill(i as u8 + 1);
            record.write(slot.bytes(), 50_001).unwrap();
        }
        for (i, record) in records.iter().enumerate() {
            record.read(again.bytes_mut(), 50_001).unwrap();
            assert!(again.bytes()[..50_001].iter().all(|byte| *byte == i as u8 + 1));
        }
        assert!(records[0].write(slot.bytes(), (64 << 10) + 1).is_err(), "that would be another one's");
        drop(records);
        assert_eq!((log.free_count(), log.try_reserve().unwrap().index), (3, 0));
    }

    #[test]
    fn every_record_is_held_once() {
        for count in [1, 63, 64, 65, 130] {
            let mut bitmap = FreeSpillRecordBitmap::new(count);
            let taken: Vec<usize> = std::iter::from_fn(|| bitmap.take()).collect();
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
            bitmap.put_back(count / 2);
            assert_eq!((bitmap.take(), bitmap.take()), (Some(count / 2), None));
        }
    }

    #[test]
    fn what_cannot_be_is_said_at_once() {
        fn error(directory: &str, bytes: u64) -> String {
            SpillDataFile::create(Path::new(directory), bytes, 64 << 10).unwrap_err().to_string()
        }
        assert!(error("/var/tmp", 4_096).contains("no room"));
        assert!(error("/nowhere", 1 << 20).contains("No such file"));
        assert!(error("/proc", 1 << 20).contains("no spill in /proc"));
        if log(1).is_some() {
            assert!(error("/var/tmp", 1 << 60).contains("its space"));
        }
    }
}
