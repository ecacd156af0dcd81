//! What could not be kept of entries: counted by kind and reason, and told once each. No failure: the contents are right.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Kinds and reasons that are counted; what comes beyond them is counted together.
const KINDS_MAX: usize = 64;

/// Any number of threads count.
#[derive(Debug, Default)]
pub struct Losses {
    counts: Mutex<BTreeMap<(String, String), u64>>,
}

impl Losses {
    /// `what` of one more entry could not be kept, because of `reason`.
    pub fn count(&self, what: &str, reason: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (what.to_owned(), reason.to_owned());
        let key = match counts.len() < KINDS_MAX || counts.contains_key(&key) {
            true => key,
            false => ("other metadata".to_owned(), "various reasons".to_owned()),
        };
        *counts.entry(key).or_default() += 1;
    }

    /// A line for each, and nothing is counted any more.
    pub fn take_lines(&self) -> Vec<String> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        let line = |((what, reason), count): ((String, String), u64)| {
            let entries = if count == 1 { "entry" } else { "entries" };
            format!("{what} of {count} {entries} not kept: {reason}")
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
        let told =
            ["an ACL of 1 entry not kept: not supported", "the owner of 2 entries not kept: not permitted"];
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
