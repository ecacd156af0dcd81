//! The user's rules for owners (`--usermap`, `--groupmap`), applied at the source, where names and numbers
//! are known.

use std::ops::RangeInclusive;
use std::sync::Arc;

use carrack_model::{FileOwnerMap, MappedAccounts, UserOrGroup};
use globset::{Glob, GlobMatcher};

/// The rules in the order of their precedence.
#[derive(Debug, Default)]
pub(crate) struct OwnerMappingRules(Vec<(OwnerTest, UserOrGroup)>);

#[derive(Debug)]
enum OwnerTest {
    Numbers(RangeInclusive<u32>),
    Named(GlobMatcher),
    Nameless,
}

impl OwnerMappingRules {
    pub(crate) fn new(map: &FileOwnerMap) -> OwnerMappingRules {
        let rules =
            map.rules().iter().filter_map(|rule| Some((compile_test(&rule.whose)?, rule.becomes.clone())));
        OwnerMappingRules(rules.collect())
    }

    /// Returns the account by which the first matching rule replaces an owner. `name` is called only by rules
    /// on names.
    pub(crate) fn mapped_account(&self, number: u32, name: impl Fn() -> Arc<[u8]>) -> Option<UserOrGroup> {
        self.0.iter().find(|(test, _)| test.matches(number, &name)).map(|(_, account)| account.clone())
    }
}

impl OwnerTest {
    fn matches(&self, number: u32, name: impl Fn() -> Arc<[u8]>) -> bool {
        match self {
            OwnerTest::Numbers(numbers) => numbers.contains(&number),
            OwnerTest::Named(pattern) => {
                std::str::from_utf8(&name()).is_ok_and(|name| pattern.is_match(name))
            }
            OwnerTest::Nameless => name().is_empty(),
        }
    }
}

/// A name that is no valid pattern stands for itself.
fn compile_test(whose: &MappedAccounts) -> Option<OwnerTest> {
    match whose {
        MappedAccounts::Numbers(numbers) => Some(OwnerTest::Numbers(numbers.clone())),
        MappedAccounts::Named(name) => {
            let pattern = Glob::new(name).or_else(|_| Glob::new(&globset::escape(name)));
            Some(OwnerTest::Named(pattern.ok()?.compile_matcher()))
        }
        MappedAccounts::Nameless => Some(OwnerTest::Nameless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let map = "alice:1,al*:2,100-199:3,b?b:4,x[y:5,:6";
        let rules = OwnerMappingRules::new(&FileOwnerMap::parse(map).unwrap());
        for (number, name, expected) in [
            (7, "alice", Some(1)),
            (7, "albert", Some(2)),
            (150, "albert", Some(2)),
            (150, "carol", Some(3)),
            (200, "carol", None),
            (7, "bob", Some(4)),
            (7, "x[y", Some(5)),
            (7, "", Some(6)),
            (0, "root", None),
        ] {
            let becomes =
                rules.mapped_account(number, || name.as_bytes().into()).map(|account| account.number);
            assert_eq!(becomes, expected, "{number} {name}");
        }
    }

    #[test]
    fn names_are_asked_for_only_where_they_count() {
        let rules = OwnerMappingRules::new(&FileOwnerMap::parse("1-9:1").unwrap());
        assert_eq!(rules.mapped_account(3, || panic!("asked")).unwrap().number, 1);
        assert!(OwnerMappingRules::default().mapped_account(3, || panic!("asked")).is_none());
    }
}
