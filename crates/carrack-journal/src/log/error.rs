//! Errors of the journal, and their remedies.

use std::io;

use rustix::io::Errno;

use super::JournalWriterIdentity;

/// Error of an operation on a journal. Its scope is the transfer, its side the sink.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory has no journal of this transfer.
    #[error("there is no such journal")]
    Missing,
    /// The journal exists: open it.
    #[error("there is a journal already")]
    Exists,
    /// A live process has the journal. Holds its last session, if readable; the caller decides.
    #[error("another process has the journal{}", holder(.0))]
    Busy(Option<Box<JournalWriterIdentity>>),
    /// The file has no journal header.
    #[error("not a carrack journal")]
    NotAJournal,
    /// Another user owns the journal, and must not decide which files are copied.
    #[error("the journal belongs to another user (uid {0})")]
    Foreign(u32),
    /// A newer carrack wrote it.
    #[error("a journal of version {0}, and this carrack knows versions up to {known}", known = super::VERSION)]
    Newer(u16),
    /// The header is damaged: no record can be trusted.
    #[error("the journal's header is damaged")]
    DamagedHeader,
    /// A record exceeds the format's limit.
    #[error("a record of {0} bytes is too large for a journal")]
    TooLarge(u64),
    /// An earlier write failed, and no record may follow it.
    #[error("the journal was given up after a write to it failed")]
    Poisoned,
    /// A system call failed.
    #[error("{doing}: {source}")]
    Failed {
        /// The failed step.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl JournalError {
    /// For `map_err`: adds the failed step.
    pub(super) fn doing<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> JournalError {
        move |error| JournalError::Failed { doing, source: error.into() }
    }

    /// Returns true if the file can't be read as a journal, so that its removal loses nothing.
    pub fn is_damage(&self) -> bool {
        matches!(self, JournalError::NotAJournal | JournalError::DamagedHeader)
    }

    /// Returns true if the transfer can be done without this journal. Another process or a newer carrack may
    /// depend on its journal, and a file system with I/O errors should get no files either.
    pub fn is_dispensable(&self) -> bool {
        match self {
            JournalError::NotAJournal
            | JournalError::DamagedHeader
            | JournalError::Foreign(_)
            | JournalError::TooLarge(_) => true,
            JournalError::Failed { source, .. } => Errno::from_io_error(source) != Some(Errno::IO),
            _ => false,
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JournalError::Busy(_) => Some("wait for the other transfer, or end it"),
            JournalError::Newer(_) => {
                Some("use the carrack that wrote it, or drop the journal and start again")
            }
            JournalError::Foreign(_) => {
                Some("have it removed, or keep your own elsewhere with --journal-dir")
            }
            JournalError::NotAJournal | JournalError::DamagedHeader => {
                Some("remove the file to start the transfer from its beginning")
            }
            JournalError::Failed { source, .. } => hint_of(source),
            _ => None,
        }
    }
}

fn hint_of(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error().map(Errno::from_raw_os_error)? {
        Errno::NOSPC | Errno::DQUOT => {
            Some("free some space, or keep the journal elsewhere with --journal-dir")
        }
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            Some("--journal-dir names a directory that can be written to")
        }
        _ => None,
    }
}

fn holder(session: &Option<Box<JournalWriterIdentity>>) -> String {
    let Some(session) = session else { return String::new() };
    format!(": process {} on {}", session.pid, carrack_model::escape(session.host.as_bytes()))
}
