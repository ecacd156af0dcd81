//! The settings of both ends for objects on flash (L9).

use std::path::PathBuf;
use std::str::FromStr;

use bytesize::ByteSize;
use carrack_model::json_bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Flash for objects without slots (L9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillSettings {
    /// The source's directories. They are distributed among its lanes.
    pub source: Vec<SpillDirectory>,
    /// The sink's directories.
    pub sink: Vec<SpillDirectory>,
    /// Bytes that may be written at each end, to all of its directories together; `None` for no limit.
    pub budget: Option<u64>,
    /// True if a session continues without directories that can't be used, and reports that, in place of an
    /// error: for ends whose directories the user has not chosen. Not sent to the other end.
    #[serde(skip)]
    pub may_lack: bool,
}

/// A directory on flash, and the bytes that may be used there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillDirectory {
    /// Its path at the end that uses it.
    #[serde(with = "json_bytes")]
    pub directory: PathBuf,
    /// Bytes that are allocated from the start to the end of a session.
    pub bytes: u64,
}

/// The reason why a text is not a valid [`SpillDirectory`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpillDirectoryError {
    /// It has not the form DIR:SIZE.
    #[error("a directory and a size are needed, such as /nvme/spill:64GiB")]
    Shape,
    /// The path depends on a working directory.
    #[error("{} is not absolute, and that end may be another host", .0.display())]
    Relative(PathBuf),
}

impl FromStr for SpillDirectory {
    type Err = SpillDirectoryError;

    /// Parses `DIR:SIZE`, such as `/nvme/spill:64GiB`.
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
    /// Returns the settings of an end with its own directories in either role: a daemon or a mover.
    pub fn of_either_end(directories: &[SpillDirectory], budget: Option<u64>) -> SpillSettings {
        let directories = directories.to_vec();
        SpillSettings { source: directories.clone(), sink: directories, budget, may_lack: true }
    }
}
