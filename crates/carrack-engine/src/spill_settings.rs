//! What both ends are told of flash that may hold objects (L9).

use std::path::PathBuf;
use std::str::FromStr;

use bytesize::ByteSize;
use carrack_model::json_bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Flash that holds what slots have no room for (L9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillSettings {
    /// The source's; none for none. With several lanes they are dealt out.
    pub source: Vec<SpillDirectory>,
    /// The sink's.
    pub sink: Vec<SpillDirectory>,
    /// Bytes that may be written at each end, to all of its directories together; any number without it.
    pub budget: Option<u64>,
    /// Whether a session goes without the directories that can't be used, and says so, instead of ending: for ends whose directories the
    /// user has not chosen. Does not travel.
    #[serde(skip)]
    pub may_lack: bool,
}

/// A directory on flash, and how much of it may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillDirectory {
    /// At the end that uses it.
    #[serde(with = "json_bytes")]
    pub directory: PathBuf,
    /// Bytes that are taken from the start to the end of a session.
    pub bytes: u64,
}

/// Why something is no [`SpillDirectory`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpillDirectoryError {
    /// Not DIR:SIZE.
    #[error("a directory and a size are needed, such as /nvme/spill:64GiB")]
    Shape,
    /// A place that depends on where a process is.
    #[error("{} is not absolute, and that end may be another host", .0.display())]
    Relative(PathBuf),
}

impl FromStr for SpillDirectory {
    type Err = SpillDirectoryError;

    /// `DIR:SIZE`, such as `/nvme/spill:64GiB`.
    fn from_str(text: &str) -> Result<SpillDirectory, SpillDirectoryError> {
        let (directory, size) = text.rsplit_once(':').ok_or(SpillDirectoryError::Shape)?;
        let directory = PathBuf::from(directory);
        match size.trim().parse() {
            Err(_) | Ok(ByteSize(0)) => Err(SpillDirectoryError::Shape),
            Ok(ByteSize(_)) if !directory.is_absolute() => Err(SpillDirectoryError::Relative(directory)),
            Ok(ByteSize(bytes)) => Ok(SpillDirectory { directory, bytes }),
        }
    }
}

impl SpillSettings {
    /// An end's own directories, whichever end it is: those of a daemon or a mover.
    pub fn of_either_end(directories: &[SpillDirectory], budget: Option<u64>) -> SpillSettings {
        let directories = directories.to_vec();
        SpillSettings { source: directories.clone(), sink: directories, budget, may_lack: true }
    }
}
