//! Losses: metadata or entries that could not be kept, by kind and reason. No failure: the contents are
//! right.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetadataLossKind {
    /// A property that an entry has once, such as "the owner".
    Part(String),
    /// A property that an entry has any number of; the plural noun.
    Several(String),
    /// Entries that were not created; the singular noun.
    Whole(String),
}

/// A loss with its count and reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataLoss {
    /// Kind of the loss.
    pub lost: MetadataLossKind,
    /// The reason.
    pub reason: String,
    /// Number of lost properties or entries.
    pub count: u64,
}

impl fmt::Display for MetadataLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MetadataLoss { lost, reason, count } = self;
        match lost {
            MetadataLossKind::Part(what) => {
                let entries = if *count == 1 { "entry" } else { "entries" };
                write!(f, "{what} of {count} {entries} not kept: {reason}")
            }
            MetadataLossKind::Several(what) => {
                let one = what.strip_suffix('s').filter(|_| *count == 1).unwrap_or(what);
                write!(f, "{count} {one} not kept: {reason}")
            }
            MetadataLossKind::Whole(noun) => {
                let plural = if *count == 1 { "" } else { "s" };
                write!(f, "{count} {noun}{plural} not made: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_with_their_count() {
        fn told(lost: MetadataLossKind, count: u64) -> String {
            MetadataLoss { lost, reason: "so".into(), count }.to_string()
        }
        fn owner() -> MetadataLossKind {
            MetadataLossKind::Part("the owner".into())
        }
        assert_eq!(told(owner(), 1), "the owner of 1 entry not kept: so");
        assert_eq!(told(owner(), 2), "the owner of 2 entries not kept: so");
        assert_eq!(told(MetadataLossKind::Several("ACLs".into()), 1), "1 ACL not kept: so");
        assert_eq!(told(MetadataLossKind::Several("ACLs".into()), 2), "2 ACLs not kept: so");
        assert_eq!(told(MetadataLossKind::Whole("device".into()), 1), "1 device not made: so");
        assert_eq!(told(MetadataLossKind::Whole("device".into()), 2), "2 devices not made: so");
    }
}
