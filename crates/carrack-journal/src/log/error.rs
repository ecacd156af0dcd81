//! What can be wrong with a journal, and what to do about it.

use std::io;

use rustix::io::Errno;

use super::SessionInfo;

/// Why something was not done with a journal. Its scope is the transfer, its side the sink.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no journal of this transfer here.
    #[error("there is no such journal")]
    Missing,
    /// There is a journal already: open it.
    #[error("there is a journal already")]
    Exists,
    /// A live process has the journal. Its last session, where it can be read: the caller decides what to do.
    #[error("another process has the journal{}", holder(.0))]
    Busy(Option<Box<SessionInfo>>),
    /// The file does not begin as a journal does.
    #[error("not a carrack journal")]
    NotAJournal,
    /// Somebody else made it, who must not say what is copied here.
    #[error("the journal belongs to another user (uid {0})")]
    Foreign(u32),
    /// A newer carrack wrote it.
    #[error("a journal of version {0}, and this carrack knows versions up to {known}", known = super::VERSION)]
    Newer(u16),
    /// Its header is damaged: nothing in it can be trusted.
    #[error("the journal's header is damaged")]
    DamagedHeader,
    /// One record would be larger than a journal may hold.
    #[error("a record of {0} bytes is too large for a journal")]
    TooLarge(u64),
    /// An earlier write failed, and nothing is recorded on top of it.
    #[error("the journal was given up after a write to it failed")]
    Poisoned,
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl JournalError {
    /// For `map_err`: what was tried.
    pub(super) fn doing<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> JournalError {
        move |error| JournalError::Failed { doing, source: error.into() }
    }

    /// Whether the file can't be read as a journal, so that nothing is lost with it.
    pub fn is_damage(&self) -> bool {
        matches!(self, JournalError::NotAJournal | JournalError::DamagedHeader)
    }

    /// Whether the transfer can be done without this journal. What another process or a newer carrack does with it may depend
    /// on it, and storage that fails is no place for files either.
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

    /// What a user can do, where there is something.
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

fn holder(session: &Option<Box<SessionInfo>>) -> String {
    let Some(session) = session else { return String::new() };
    format!(": process {} on {}", session.pid, carrack_model::escape(session.host.as_bytes()))
}
