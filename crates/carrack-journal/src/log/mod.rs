//! The journal of a transfer at its sink: what is complete, for the next session of the same transfer.
//!
//! One file, append-only, of checksummed records; `docs/formats/journal.md` has its bytes. One process at a time writes to
//! it ([`Journal`]), any may look ([`peek`], [`inspect`]). What a record says was durable before it was written; that is its
//! writer's affair.

mod appender;
mod batch;
mod compaction;
mod error;
pub mod fuzzing;
mod header;
mod index;
mod journal;
mod place;
mod recovery;
mod scanner;
mod session;
#[cfg(test)]
mod tests;
mod unnamed;

pub use batch::Batch;
pub use error::JournalError;
pub use header::About;
pub use journal::{Contents, Journal, inspect, peek, read, set_aside};
pub use place::{file_name, id_of_file_name};
pub use recovery::{EntryKey, Partial, Recovered, Statistics};
pub use session::{SessionInfo, boot_id};

/// The newest version of the format that this build knows.
pub(crate) const VERSION: u16 = 1;
