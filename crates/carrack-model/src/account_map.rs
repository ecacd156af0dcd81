//! Whose entries become at the destination, by whose they are at the source: `--usermap`, `--groupmap`, written as rsync's.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::{Account, NO_NUMBER};

/// Bytes of all rules together, which travel in one message.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Who has one of these numbers.
    Numbers(RangeInclusive<u32>),
    /// Who is called so at the source; `*`, `?` and `[a-z]` stand for others.
    Named(String),
    /// Who has no name at the source.
    Nameless,
}

/// One of them, and who he becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRule {
    /// Whom it is about.
    pub whose: Whose,
    /// By name or number.
    pub becomes: Account,
}

/// Rules, of which the first one that matches counts. Who matches none stays who he is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountMap {
    text: String,
    rules: Vec<AccountRule>,
}

/// What is no list of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAccountMap {
    /// One of them is none.
    #[error("'{0}' is no FROM:TO, as in 'alice:bob', '1000-1999:guest' or '*:data'")]
    Rule(String),
    /// They don't fit into a message.
    #[error("more than {} KiB of rules", TEXT_BYTES_MAX >> 10)]
    TooLong,
}

impl AccountMap {
    /// Reads `FROM:TO,FROM:TO`. FROM is a number, a range of numbers `LOW-HIGH`, a name with or without wildcards, or nothing for who
    /// has no name; TO is a name or a number.
    ///
    /// # Errors
    /// What is no rule.
    pub fn parse(text: &str) -> Result<AccountMap, BadAccountMap> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadAccountMap::TooLong);
        }
        let rule = |part: &str| rule_of(part).ok_or_else(|| BadAccountMap::Rule(part.to_owned()));
        let rules = text.split(',').map(rule).collect::<Result<_, _>>()?;
        Ok(AccountMap { text: text.to_owned(), rules })
    }

    /// As it was written; empty without rules.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first one counts.
    pub fn rules(&self) -> &[AccountRule] {
        &self.rules
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn rule_of(text: &str) -> Option<AccountRule> {
    let (from, to) = text.split_once(':')?;
    let becomes = account(to)?;
    let number = |text: &str| text.parse().ok().filter(|&number: &u32| number != NO_NUMBER);
    let range = from.split_once('-').and_then(|(low, high)| Some(number(low)?..=number(high)?));
    let whose = match (number(from), range) {
        (Some(number), _) => Whose::Numbers(number..=number),
        (None, Some(range)) if range.is_empty() => return None,
        (None, Some(range)) => Whose::Numbers(range),
        (None, None) if from.is_empty() => Whose::Nameless,
        (None, None) => Whose::Named(from.to_owned()),
    };
    Some(AccountRule { whose, becomes })
}

/// A user or group as typed: a number is one, also where somebody has it as his name. Nobody for an empty text.
pub fn account(text: &str) -> Option<Account> {
    let number = text.parse().ok().filter(|&number| number != NO_NUMBER);
    match number {
        _ if text.is_empty() => None,
        Some(number) => Some(Account { number, name: Arc::default() }),
        None => Some(Account { number: NO_NUMBER, name: text.as_bytes().into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_rsync_writes_them() {
        let map = AccountMap::parse("7:8,100-199:guest,al*:bob,:nobody").unwrap();
        let named = |name: &str| Account { number: NO_NUMBER, name: name.as_bytes().into() };
        let rule = |whose, becomes| AccountRule { whose, becomes };
        assert_eq!(
            map.rules(),
            [
                rule(Whose::Numbers(7..=7), Account { number: 8, name: Arc::default() }),
                rule(Whose::Numbers(100..=199), named("guest")),
                rule(Whose::Named("al*".to_owned()), named("bob")),
                rule(Whose::Nameless, named("nobody")),
            ]
        );
        assert_eq!(AccountMap::parse(map.as_str()), Ok(map));
        let dashed = AccountMap::parse("web-data:0").unwrap();
        assert_eq!(dashed.rules()[0].whose, Whose::Named("web-data".to_owned()));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for bad in ["", "alice", "a:b,", "a:", "9-3:x", ":"] {
            assert!(matches!(AccountMap::parse(bad), Err(BadAccountMap::Rule(_))), "{bad}");
        }
        assert!(AccountMap::parse("a:b,c").unwrap_err().to_string().starts_with("'c' is no FROM:TO"));
        let long = format!("a:{}", "b".repeat(TEXT_BYTES_MAX));
        assert_eq!(AccountMap::parse(&long), Err(BadAccountMap::TooLong));
        assert!(AccountMap::default().is_empty() && AccountMap::default().as_str().is_empty());
    }
}
