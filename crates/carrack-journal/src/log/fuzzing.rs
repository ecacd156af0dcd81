//! What the fuzz target reaches of the journal's inside (`fuzz/`): records that are sealed, whatever they say. No part of the
//! interface.

use std::os::fd::BorrowedFd;

use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

use super::batch::{RawHead, check_of};
use super::compaction::is_possible;
use super::header::{self, Key};
use super::journal::Opening;
use super::{About, Journal, JournalError, Recovered, SessionInfo};

/// The bytes of a journal with these records: what kind each says that it is, and its body.
///
/// # Errors
/// [`JournalError::TooLarge`] if `about` is.
pub fn journal_of(about: &About, records: &[(u8, &[u8])]) -> Result<Vec<u8>, JournalError> {
    let key = Key([7; 16]);
    let mut bytes = header::encode(about, key)?;
    for (kind, body) in records {
        let start = bytes.len();
        let body_len = U32::new(body.len() as u32);
        let head = RawHead { check: U64::new(0), body_len, kind: *kind, reserved: [0; 3] };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(body);
        let check = check_of(&bytes[start..], key, start as u64);
        bytes[start..start + 8].copy_from_slice(&check.to_le_bytes());
    }
    Ok(bytes)
}

/// Opens a journal and shortens it, worthwhile or not; nothing if that is not possible.
///
/// # Errors
/// Those of [`Journal::open`].
pub fn compact(
    directory: BorrowedFd<'_>,
    about: &About,
    session: &SessionInfo,
) -> Result<Option<(Journal, Recovered)>, JournalError> {
    let opening = Opening::new(directory, about.id, session.boot)?;
    if !is_possible(opening.findings()) {
        return Ok(None);
    }
    opening.compact(session).map(Some)
}
