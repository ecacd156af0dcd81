//! How much a power cut may cost, and how far written data is trusted.

use std::fmt;

/// When what a sink has written is made durable, and recorded in its journal (L12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Each object before it is answered: nothing that was counted is ever written twice.
    Each,
    /// In groups, by bytes and time, while the transfer goes on.
    #[default]
    Group,
    /// At the end of the transfer. What was recorded before counts as long as the sink's host does not start anew.
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

/// What convinces the sink that an object is where it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Its check, right before it is written.
    #[default]
    Object,
    /// That, and reading it again from the storage, past the page cache.
    Readback,
}
