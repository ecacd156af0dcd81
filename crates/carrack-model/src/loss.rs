//! What could not be kept of entries, of one kind and for one reason. No failure: the contents are right.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lost {
    /// What an entry has once, such as "the owner".
    Part(String),
    /// What an entry has any number of; the word for several.
    Several(String),
    /// Entries that are not there at all; the word for one of them.
    Whole(String),
}

/// How often it was, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What it is.
    pub lost: Lost,
    /// Why it could not be kept.
    pub reason: String,
    /// Owners, modes, attributes and the like, or entries that were not made.
    pub count: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { lost, reason, count } = self;
        match lost {
            Lost::Part(what) => {
                let entries = if *count == 1 { "entry" } else { "entries" };
                write!(f, "{what} of {count} {entries} not kept: {reason}")
            }
            Lost::Several(what) => {
                let one = what.strip_suffix('s').filter(|_| *count == 1).unwrap_or(what);
                write!(f, "{count} {one} not kept: {reason}")
            }
            Lost::Whole(noun) => {
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
        let told = |lost: Lost, count| Loss { lost, reason: "so".into(), count }.to_string();
        let owner = || Lost::Part("the owner".into());
        assert_eq!(told(owner(), 1), "the owner of 1 entry not kept: so");
        assert_eq!(told(owner(), 2), "the owner of 2 entries not kept: so");
        assert_eq!(told(Lost::Several("ACLs".into()), 1), "1 ACL not kept: so");
        assert_eq!(told(Lost::Several("ACLs".into()), 2), "2 ACLs not kept: so");
        assert_eq!(told(Lost::Whole("device".into()), 1), "1 device not made: so");
        assert_eq!(told(Lost::Whole("device".into()), 2), "2 devices not made: so");
    }
}
