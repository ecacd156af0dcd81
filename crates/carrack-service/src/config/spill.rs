//! Flash of this machine that holds objects of sessions while the other end, or the storage, does not take
//! them.

use carrack_engine::{SpillDirectory, SpillSettings};
use carrack_model::limits::SPILL_DIRECTORIES_MAX;
use serde::{Deserialize, Deserializer};

use super::value::{error_with_hint, optional_size};

/// `[spill]`: each session may use this much of each directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillConfig {
    /// `DIR:SIZE`, as `carrack cp --spill` takes them.
    #[serde(deserialize_with = "directories")]
    pub directories: Vec<SpillDirectory>,
    /// Upper bound of bytes that a session writes to all directories together.
    #[serde(default, deserialize_with = "optional_size")]
    budget: Option<u64>,
}

impl SpillConfig {
    /// Returns the settings of a session, at either end.
    pub fn settings(&self) -> SpillSettings {
        SpillSettings::of_either_end(&self.directories, self.budget)
    }
}

fn directories<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SpillDirectory>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    if !(1..=SPILL_DIRECTORIES_MAX).contains(&texts.len()) {
        let hint = format!("name 1 to {SPILL_DIRECTORIES_MAX}, or leave [spill] out");
        return Err(error_with_hint(format!("{} directories", texts.len()), hint));
    }
    texts
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error| error_with_hint(format!("{text:?}: {error}"), "write \"/nvme/spill:64GiB\""))
        })
        .collect()
}
