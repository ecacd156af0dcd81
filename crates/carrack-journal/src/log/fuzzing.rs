//! Access to the journal's internals for the fuzz target (`fuzz/`): sealed records of arbitrary contents. Not
//! part of the interface.

use std::os::fd::BorrowedFd;

use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

use super::batch::{RawJournalRecordHead, record_checksum};
use super::compaction::is_possible;
use super::header::{self, JournalNonce};
use super::journal::OpenedJournal;
use super::{Journal, JournalError, JournalSubject, JournalWriterIdentity, RecoveredJournal};

/// Encodes a journal of records with the given kinds and bodies.
///
/// # Errors
/// [`JournalError::TooLarge`] if `about` is too large.
pub fn encode_journal(about: &JournalSubject, records: &[(u8, &[u8])]) -> Result<Vec<u8>, JournalError> {
    let key = JournalNonce([7; 16]);
    let mut bytes = header::encode(about, key)?;
    for (kind, body) in records {
        let start = bytes.len();
        let body_len = U32::new(body.len() as u32);
        let head = RawJournalRecordHead { check: U64::new(0), body_len, kind: *kind, reserved: [0; 3] };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(body);
        let check = record_checksum(&bytes[start..], key, start as u64);
        bytes[start..start + 8].copy_from_slice(&check.to_le_bytes());
    }
    Ok(bytes)
}

/// Opens a journal and compacts it even if it is not worthwhile; `None` if that is not possible.
///
/// # Errors
/// Those of [`Journal::open`].
pub fn compact(
    directory: BorrowedFd<'_>,
    about: &JournalSubject,
    session: &JournalWriterIdentity,
) -> Result<Option<(Journal, RecoveredJournal)>, JournalError> {
    let opening = OpenedJournal::new(directory, about.id, session.boot)?;
    if !is_possible(opening.findings()) {
        return Ok(None);
    }
    opening.compact(session).map(Some)
}
