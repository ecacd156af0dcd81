//! Reads a journal's records in order, up to the first torn or damaged one.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use zerocopy::FromBytes;

use super::JournalError;
use super::batch::{BODY_BYTES_MAX, HEAD_BYTES, RawJournalRecordHead, RecordKind, record_checksum};
use super::header::{JournalHeader, JournalNonce};

/// Bytes of one read, large enough that system calls don't dominate.
const READ_BYTES: usize = 1 << 20;

/// A whole record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawJournalRecord<'a> {
    pub kind: RecordKind,
    pub body: &'a [u8],
    /// Offset of the record in the file.
    pub offset: u64,
}

impl RawJournalRecord<'_> {
    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        (HEAD_BYTES + self.body.len()) as u64
    }
}

/// Reads records. Holds one at a time, and never more bytes than the file has.
pub(super) struct RecordScanner<'a> {
    input: BufReader<JournalRangeReader<'a>>,
    key: JournalNonce,
    /// The current record, with its head.
    record: Vec<u8>,
    /// Offset of the next record.
    offset: u64,
    end: u64,
}

impl<'a> RecordScanner<'a> {
    /// Scans from the first record to `end`, or to an earlier end of file.
    pub fn new(file: &'a File, header: &JournalHeader, end: u64) -> Result<RecordScanner<'a>, JournalError> {
        let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
        Ok(RecordScanner::between(file, header, header.len, end.min(len)))
    }

    /// Scans from a record at `offset` to the end of the file.
    pub fn starting_at(
        file: &'a File,
        header: &JournalHeader,
        offset: u64,
    ) -> Result<RecordScanner<'a>, JournalError> {
        let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
        Ok(RecordScanner::between(file, header, offset, len.max(offset)))
    }

    fn between(file: &'a File, header: &JournalHeader, offset: u64, end: u64) -> RecordScanner<'a> {
        let input = BufReader::with_capacity(READ_BYTES, JournalRangeReader { file, offset, end });
        RecordScanner { input, key: header.key, record: Vec::new(), offset, end }
    }

    /// End of the whole records that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record; `None` at the first torn or damaged record.
    pub fn next(&mut self) -> Result<Option<RawJournalRecord<'_>>, JournalError> {
        match self.read_record().map_err(JournalError::doing("reading the journal"))? {
            None => Ok(None),
            Some(kind) => {
                let offset = self.offset;
                self.offset += self.record.len() as u64;
                Ok(Some(RawJournalRecord { kind, body: &self.record[HEAD_BYTES..], offset }))
            }
        }
    }

    /// Reads the next record and checks it.
    fn read_record(&mut self) -> io::Result<Option<RecordKind>> {
        let remaining = self.end.saturating_sub(self.offset);
        if remaining < HEAD_BYTES as u64 {
            return Ok(None);
        }
        self.record.resize(HEAD_BYTES, 0);
        if !self.read_from(0)? {
            return Ok(None);
        }
        let Ok(head) = RawJournalRecordHead::ref_from_bytes(&self.record) else { return Ok(None) };
        let (body_len, kind) = (head.body_len.get() as usize, RecordKind::of(head.kind));
        if body_len > BODY_BYTES_MAX || body_len as u64 > remaining - HEAD_BYTES as u64 {
            return Ok(None);
        }
        self.record.resize(HEAD_BYTES + body_len, 0);
        Ok(if self.read_from(HEAD_BYTES)? && self.has_valid_check() { kind } else { None })
    }

    /// Fills the record's bytes from `start` on; false if the file ends before, as another process may
    /// truncate it.
    fn read_from(&mut self, start: usize) -> io::Result<bool> {
        match self.input.read_exact(&mut self.record[start..]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    fn has_valid_check(&self) -> bool {
        let check = record_checksum(&self.record, self.key, self.offset);
        self.record[..8] == check.to_le_bytes()
    }
}

/// A section of a file; does not move the file's position.
struct JournalRangeReader<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for JournalRangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..room], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
