//! Reads a journal's records one after the other, up to the first that is torn or damaged.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use zerocopy::FromBytes;

use super::JournalError;
use super::batch::{BODY_BYTES_MAX, HEAD_BYTES, Kind, RawHead, check_of};
use super::header::{Header, Key};

/// Bytes of one read: large enough that reading is not what takes time.
const READ_BYTES: usize = 1 << 20;

/// A record that is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub kind: Kind,
    pub body: &'a [u8],
    /// Where in the file it begins.
    pub offset: u64,
}

impl Record<'_> {
    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        (HEAD_BYTES + self.body.len()) as u64
    }
}

/// Reads records. Holds one of them at a time, and never more bytes than the file has.
pub(super) struct Scanner<'a> {
    input: BufReader<Section<'a>>,
    key: Key,
    /// The present record, with its head.
    record: Vec<u8>,
    /// Where the next record begins.
    offset: u64,
    end: u64,
}

impl<'a> Scanner<'a> {
    /// From the first record to `end`, or the file's end if that is before.
    pub fn new(file: &'a File, header: &Header, end: u64) -> Result<Scanner<'a>, JournalError> {
        let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
        let (offset, end) = (header.len, end.min(len));
        let input = BufReader::with_capacity(READ_BYTES, Section { file, offset, end });
        Ok(Scanner { input, key: header.key, record: Vec::new(), offset, end })
    }

    /// Where the records that are whole end, as far as they were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record; nothing if there is no whole one.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        match self.fill().map_err(JournalError::doing("reading the journal"))? {
            None => Ok(None),
            Some(kind) => {
                let offset = self.offset;
                self.offset += self.record.len() as u64;
                Ok(Some(Record { kind, body: &self.record[HEAD_BYTES..], offset }))
            }
        }
    }

    /// Reads the next record and checks it.
    fn fill(&mut self) -> io::Result<Option<Kind>> {
        let remaining = self.end.saturating_sub(self.offset);
        if remaining < HEAD_BYTES as u64 {
            return Ok(None);
        }
        self.record.resize(HEAD_BYTES, 0);
        if !self.read_from(0)? {
            return Ok(None);
        }
        let Ok(head) = RawHead::ref_from_bytes(&self.record) else { return Ok(None) };
        let (body_len, kind) = (head.body_len.get() as usize, Kind::of(head.kind));
        if body_len > BODY_BYTES_MAX || body_len as u64 > remaining - HEAD_BYTES as u64 {
            return Ok(None);
        }
        self.record.resize(HEAD_BYTES + body_len, 0);
        Ok(if self.read_from(HEAD_BYTES)? && self.is_whole() { kind } else { None })
    }

    /// Fills the record's bytes from `start` on; false if the file ends before, as another process may cut it.
    fn read_from(&mut self, start: usize) -> io::Result<bool> {
        match self.input.read_exact(&mut self.record[start..]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    fn is_whole(&self) -> bool {
        let check = check_of(&self.record, self.key, self.offset);
        self.record[..8] == check.to_le_bytes()
    }
}

/// A file from one offset to another; leaves its position alone.
struct Section<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..room], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
