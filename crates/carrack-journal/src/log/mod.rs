//! The journal of a transfer at its sink: the record from which later sessions resume.
//!
//! One append-only file of checksummed records; `docs/formats/journal.md` has its bytes. One process at a
//! time writes to it ([`Journal`]), any process may read it ([`peek`], [`inspect`]). The writer makes data
//! durable before it records them.

mod appender;
mod batch;
mod compaction;
mod error;
mod follower;
pub mod fuzzing;
mod header;
mod index;
mod journal;
mod location;
mod recovery;
mod scanner;
mod scratch_file;
mod session;
#[cfg(test)]
mod tests;

pub use batch::RecordBatch;
pub use error::JournalError;
pub use follower::JournalFollower;
pub use header::JournalSubject;
pub use journal::{Journal, JournalContents, inspect, peek, remove_damaged, remove_unfinished};
pub use location::{file_name, id_of_file_name};
pub use recovery::{EntryKey, JournalStatistics, PartialFile, RecoveredJournal};
pub use session::{JournalWriterIdentity, boot_id};

/// The newest version of the format that this build supports.
pub(crate) const VERSION: u16 = 1;
