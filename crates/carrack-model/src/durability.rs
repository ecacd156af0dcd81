//! When written data become durable, and how they are verified.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The time at which the sink makes data durable and records them in its journal (L12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// Each object before its answer: no object that was counted is written twice.
    Each,
    /// In groups, by bytes and time, during the transfer.
    #[default]
    Group,
    /// At the end of the transfer. Earlier records count until the sink's host reboots.
    End,
}

impl Durability {
    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Each => "each",
            Durability::Group => "group",
            Durability::End => "end",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The sink's verification of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteVerification {
    /// The object's check, right before the write.
    #[default]
    Object,
    /// The check and a readback from the storage, past the page cache.
    Readback,
}
