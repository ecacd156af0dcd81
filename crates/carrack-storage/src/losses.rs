//! What could not be kept of entries: counted by kind and reason, and told once each. No failure: the contents are right.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Kinds and reasons that are counted; what comes beyond them is counted together.
const KINDS_MAX: usize = 64;

/// Any number of threads count.
#[derive(Debug, Default)]
pub struct Losses {
    counts: Mutex<BTreeMap<(What, String), u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Part of an entry.
    Part(String),
    /// Entries that are not there at all; the word for one of them.
    Whole(String),
}

impl Losses {
    /// `what` of one more entry could not be kept, because of `reason`.
    pub fn count(&self, what: &str, reason: &str) {
        self.count_one(What::Part(what.to_owned()), reason);
    }

    /// One more `noun` could not be made, because of `reason`.
    pub fn count_whole(&self, noun: &str, reason: &str) {
        self.count_one(What::Whole(noun.to_owned()), reason);
    }

    fn count_one(&self, what: What, reason: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (what, reason.to_owned());
        let key = match counts.len() < KINDS_MAX || counts.contains_key(&key) {
            true => key,
            false => (What::Part("other metadata".to_owned()), "various reasons".to_owned()),
        };
        *counts.entry(key).or_default() += 1;
    }

    /// A line for each, and nothing is counted any more.
    pub fn take_lines(&self) -> Vec<String> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        let line = |((what, reason), count)| match what {
            What::Part(what) => {
                let entries = if count == 1 { "entry" } else { "entries" };
                format!("{what} of {count} {entries} not kept: {reason}")
            }
            What::Whole(noun) => {
                let plural = if count == 1 { "" } else { "s" };
                format!("{count} {noun}{plural} not made: {reason}")
            }
        };
        counts.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_once_with_their_count() {
        let losses = Losses::default();
        losses.count("the owner", "not permitted");
        losses.count("the owner", "not permitted");
        losses.count("an ACL", "not supported");
        losses.count_whole("device", "not permitted");
        losses.count_whole("device", "not permitted");
        losses.count_whole("socket", "not permitted");
        let told = [
            "an ACL of 1 entry not kept: not supported",
            "the owner of 2 entries not kept: not permitted",
            "2 devices not made: not permitted",
            "1 socket not made: not permitted",
        ];
        assert_eq!(losses.take_lines(), told);
        assert!(losses.take_lines().is_empty());
    }

    #[test]
    fn there_is_a_bound_to_the_kinds() {
        let losses = Losses::default();
        (0..1_000).for_each(|number| losses.count(&number.to_string(), "so"));
        assert_eq!(losses.take_lines().len(), KINDS_MAX + 1);
    }
}
