//! Maps of owners from the source to the destination: `--usermap`, `--groupmap`, in rsync's syntax.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{NO_NUMBER, UserOrGroup};

/// Limit of the rules' text, which travels in one message.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The accounts that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedAccounts {
    /// Accounts with one of these numbers.
    Numbers(RangeInclusive<u32>),
    /// Accounts with this name at the source, in which `*`, `?` and `[a-z]` are wildcards.
    Named(String),
    /// Accounts without a name at the source.
    Nameless,
}

/// A rule: accounts and their replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOwnerRule {
    /// The accounts that the rule applies to.
    pub whose: MappedAccounts,
    /// The replacement, by name or number.
    pub becomes: UserOrGroup,
}

/// Rules, of which the first match applies. An account without a match stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileOwnerMap {
    text: String,
    rules: Vec<FileOwnerRule>,
}

/// Reasons why a text is not a list of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAccountMap {
    /// One rule is malformed.
    #[error("'{0}' is no FROM:TO, as in 'alice:bob', '1000-1999:guest' or '*:data'")]
    Rule(String),
    /// The text does not fit into a message.
    #[error("more than {} KiB of rules", TEXT_BYTES_MAX >> 10)]
    TooLong,
}

impl TryFrom<String> for FileOwnerMap {
    type Error = BadAccountMap;

    /// The empty text is the empty list.
    fn try_from(text: String) -> Result<FileOwnerMap, BadAccountMap> {
        if text.is_empty() { Ok(FileOwnerMap::default()) } else { FileOwnerMap::parse(&text) }
    }
}

impl From<FileOwnerMap> for String {
    fn from(list: FileOwnerMap) -> String {
        list.text
    }
}

impl FileOwnerMap {
    /// Parses `FROM:TO,FROM:TO`. FROM is a number, a range of numbers `LOW-HIGH`, a name with or without
    /// wildcards, or empty for accounts without a name; TO is a name or a number.
    ///
    /// # Errors
    /// The malformed rule.
    pub fn parse(text: &str) -> Result<FileOwnerMap, BadAccountMap> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadAccountMap::TooLong);
        }
        let mut rules = Vec::new();
        for part in text.split(',') {
            rules.push(rule_of(part).ok_or_else(|| BadAccountMap::Rule(part.to_owned()))?);
        }
        Ok(FileOwnerMap { text: text.to_owned(), rules })
    }

    /// The text of the rules; empty without rules.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The rules, of which the first match applies.
    pub fn rules(&self) -> &[FileOwnerRule] {
        &self.rules
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn rule_of(text: &str) -> Option<FileOwnerRule> {
    let (from, to) = text.split_once(':')?;
    let becomes = account(to)?;
    let range = from.split_once('-').and_then(|(low, high)| Some(number_of(low)?..=number_of(high)?));
    let whose = match (number_of(from), range) {
        (Some(number), _) => MappedAccounts::Numbers(number..=number),
        (None, Some(range)) if range.is_empty() => return None,
        (None, Some(range)) => MappedAccounts::Numbers(range),
        (None, None) if from.is_empty() => MappedAccounts::Nameless,
        (None, None) => MappedAccounts::Named(from.to_owned()),
    };
    Some(FileOwnerRule { whose, becomes })
}

fn number_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number != NO_NUMBER)
}

/// Parses a user or group: a number if the text is one, even if it is also the name of an account. `None` for
/// an empty text.
pub fn account(text: &str) -> Option<UserOrGroup> {
    match number_of(text) {
        _ if text.is_empty() => None,
        Some(number) => Some(UserOrGroup { number, name: Arc::default() }),
        None => Some(UserOrGroup { number: NO_NUMBER, name: text.as_bytes().into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_rsync_writes_them() {
        let map = FileOwnerMap::parse("7:8,100-199:guest,al*:bob,:nobody").unwrap();
        fn named(name: &str) -> UserOrGroup {
            UserOrGroup { number: NO_NUMBER, name: name.as_bytes().into() }
        }
        fn rule(whose: MappedAccounts, becomes: UserOrGroup) -> FileOwnerRule {
            FileOwnerRule { whose, becomes }
        }
        assert_eq!(
            map.rules(),
            [
                rule(MappedAccounts::Numbers(7..=7), UserOrGroup { number: 8, name: Arc::default() }),
                rule(MappedAccounts::Numbers(100..=199), named("guest")),
                rule(MappedAccounts::Named("al*".to_owned()), named("bob")),
                rule(MappedAccounts::Nameless, named("nobody")),
            ]
        );
        assert_eq!(FileOwnerMap::parse(map.as_str()), Ok(map));
        let dashed = FileOwnerMap::parse("web-data:0").unwrap();
        assert_eq!(dashed.rules()[0].whose, MappedAccounts::Named("web-data".to_owned()));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for bad in ["", "alice", "a:b,", "a:", "9-3:x", ":"] {
            assert!(matches!(FileOwnerMap::parse(bad), Err(BadAccountMap::Rule(_))), "{bad}");
        }
        assert!(FileOwnerMap::parse("a:b,c").unwrap_err().to_string().starts_with("'c' is no FROM:TO"));
        let long = format!("a:{}", "b".repeat(TEXT_BYTES_MAX));
        assert_eq!(FileOwnerMap::parse(&long), Err(BadAccountMap::TooLong));
        assert!(FileOwnerMap::default().is_empty() && FileOwnerMap::default().as_str().is_empty());
    }
}
