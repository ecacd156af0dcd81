//! What a source is told of flash that may hold objects (L9), and how that travels.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use carrack_model::limits::SPILL_DIRECTORIES_MAX;
use carrack_wire::message::{self, MessageError};

/// Flash that holds what slots have no room for (L9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillSettings {
    /// None for none. With several lanes they are dealt out.
    pub directories: Vec<SpillDirectory>,
    /// Bytes that may be written to all of them together; any number without it.
    pub budget: Option<u64>,
}

/// A directory on flash, and how much of it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillDirectory {
    /// At the source.
    pub directory: PathBuf,
    /// Bytes that are taken from the start to the end of a session.
    pub bytes: u64,
}

impl SpillSettings {
    pub(crate) fn to_messages(&self) -> Vec<message::SpillDirectory> {
        let to_message = |at: &SpillDirectory| message::SpillDirectory {
            directory: at.directory.as_os_str().as_bytes().to_vec(),
            bytes: at.bytes,
        };
        self.directories.iter().map(to_message).collect()
    }

    pub(crate) fn from_message(message: &message::Settings) -> Result<SpillSettings, MessageError> {
        if message.spill.len() > SPILL_DIRECTORIES_MAX {
            return Err(MessageError::OutOfRange("the number of spill directories"));
        }
        let from_message = |at: &message::SpillDirectory| SpillDirectory {
            directory: OsStr::from_bytes(&at.directory).into(),
            bytes: at.bytes,
        };
        Ok(SpillSettings {
            directories: message.spill.iter().map(from_message).collect(),
            budget: (message.spill_budget > 0).then_some(message.spill_budget),
        })
    }
}
