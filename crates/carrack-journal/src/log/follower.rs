//! A reader of a journal that another process writes to, which continues where it stopped.
//!
//! Reading the whole journal each time would take time quadratic in its length. The reader changes nothing,
//! takes no lock, and holds no descriptor between two reads.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;

use carrack_model::{RelPath, TransferId};

use super::JournalError;
use super::header::JournalHeader;
use super::index::{FileFingerprint, FileFingerprintIndex, JournalIndexBuilder};
use super::journal::header_of;
use super::location::JournalLocation;
use super::recovery::{EntryKey, JournalReader, PartialFile};
use super::scanner::RecordScanner;

/// Complete files that are held outside of the indexes: 2 MiB.
const RECENT_MAX: usize = 1 << 16;

/// Number of indexes at which the journal is read anew into one: each costs a search for each name.
const INDEXES_MAX: usize = 16;

/// The contents of a transfer's journal, up to the last read.
pub struct JournalFollower {
    id: TransferId,
    boot: [u8; 16],
    read: Option<JournalFollowerState>,
    recent_max: usize,
}

struct JournalFollowerState {
    header: JournalHeader,
    /// End of the records that were read.
    offset: u64,
    reading: JournalReader,
    /// Complete files of earlier reads.
    indexes: Vec<FileFingerprintIndex>,
    /// Complete files since, by the hashes of their names.
    recent: HashMap<u64, FileFingerprint>,
}

impl JournalFollowerState {
    fn from_whole_journal(
        file: &File,
        header: JournalHeader,
        boot: [u8; 16],
        mut builder: JournalIndexBuilder,
    ) -> Result<JournalFollowerState, JournalError> {
        let mut reading = JournalReader::new(&header, boot, true);
        let mut scanner = RecordScanner::starting_at(file, &header, header.len)?;
        let offset = reading.read_records(&mut scanner, |fingerprint| builder.add(fingerprint))?;
        let indexes = vec![builder.finish()?];
        Ok(JournalFollowerState { header, offset, reading, indexes, recent: HashMap::new() })
    }

    /// Returns true if reading can continue. A journal that was compacted meanwhile has another key.
    fn can_continue(&self, header: &JournalHeader, len: u64) -> bool {
        self.header == *header && self.offset <= len && self.indexes.len() < INDEXES_MAX
    }
}

fn new_builder(place: &JournalLocation) -> Result<JournalIndexBuilder, JournalError> {
    let directory = place.directory.try_clone();
    directory.map(JournalIndexBuilder::new).map_err(JournalError::doing("opening the journal's directory"))
}

impl JournalFollower {
    /// A follower of a transfer's journal in `boot` (see [`super::boot_id`]), before its first read.
    pub fn new(id: TransferId, boot: [u8; 16]) -> JournalFollower {
        JournalFollower { id, boot, read: None, recent_max: RECENT_MAX }
    }

    /// Bytes of the journal that were read.
    pub fn bytes_read(&self) -> u64 {
        self.read.as_ref().map_or(0, |read| read.offset)
    }

    /// Reads the records added to the journal in `directory` since the last call.
    ///
    /// # Errors
    /// [`JournalError::Missing`], and those of [`super::peek`].
    pub fn catch_up(&mut self, directory: BorrowedFd<'_>) -> Result<(), JournalError> {
        let place = JournalLocation::new(directory, self.id)?;
        let file = place.open()?;
        let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
        let header = header_of(&file, self.id)?;
        let Some(mut read) = self.read.take().filter(|read| read.can_continue(&header, len)) else {
            let builder = new_builder(&place)?;
            self.read = Some(JournalFollowerState::from_whole_journal(&file, header, self.boot, builder)?);
            return Ok(());
        };
        let mut scanner = RecordScanner::starting_at(&file, &header, read.offset)?;
        let JournalFollowerState { offset, reading, indexes, recent, .. } = &mut read;
        *offset = reading.read_records(&mut scanner, |fingerprint| {
            recent.insert(fingerprint.name, fingerprint);
            if recent.len() >= self.recent_max {
                let mut builder = new_builder(&place)?;
                recent.drain().try_for_each(|(_, fingerprint)| builder.add(fingerprint))?;
                indexes.push(builder.finish()?);
            }
            Ok(())
        })?;
        // After an error there is no state, and the journal is read anew.
        self.read = Some(read);
        Ok(())
    }

    /// Returns true if the file with this key is complete under its name.
    ///
    /// # Errors
    /// Those of reading the index.
    pub fn is_done(&self, directory: &RelPath, key: &EntryKey<'_>) -> Result<bool, JournalError> {
        let Some(read) = &self.read else { return Ok(false) };
        let Some(wanted) = read.reading.fingerprint(directory, key) else { return Ok(false) };
        if let Some(found) = read.recent.get(&wanted.name) {
            return Ok(*found == wanted);
        }
        // The last record of a name counts.
        for index in read.indexes.iter().rev() {
            if let Some(found) = index.find(wanted.name)? {
                return Ok(found == wanted);
            }
        }
        Ok(false)
    }

    /// The unfinished files with the temporary name `temporary`; without subtrees.
    pub fn partials_named(&self, temporary: &[u8]) -> impl Iterator<Item = &PartialFile> {
        self.read.iter().flat_map(move |read| read.reading.partials_named(temporary))
    }
}

#[cfg(test)]
impl JournalFollower {
    /// All unfinished files.
    pub(super) fn partials(&self) -> impl Iterator<Item = &PartialFile> {
        self.read.iter().flat_map(|read| read.reading.partials())
    }

    /// Sets the number of complete files that are held outside of the indexes.
    pub(super) fn with_recent(self, recent_max: usize) -> JournalFollower {
        JournalFollower { recent_max, ..self }
    }
}
