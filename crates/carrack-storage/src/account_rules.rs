//! Who an owner becomes by the user's rules (`--usermap`, `--groupmap`), at the source, where names and numbers are known.

use std::ops::RangeInclusive;
use std::sync::Arc;

use carrack_model::{Account, AccountMap, Whose};
use globset::{Glob, GlobMatcher};

/// Rules in the order in which they are tried.
#[derive(Debug, Default)]
pub(crate) struct AccountRules(Vec<(Test, Account)>);

#[derive(Debug)]
enum Test {
    Numbers(RangeInclusive<u32>),
    Named(GlobMatcher),
    Nameless,
}

impl AccountRules {
    pub(crate) fn new(map: &AccountMap) -> AccountRules {
        let rules = map.rules().iter().filter_map(|rule| Some((test(&rule.whose)?, rule.becomes.clone())));
        AccountRules(rules.collect())
    }

    /// Who it becomes, if a rule is about it. `name` is asked for only if a rule has one.
    pub(crate) fn of(&self, number: u32, name: impl Fn() -> Arc<[u8]>) -> Option<Account> {
        let is_it = |test: &Test| match test {
            Test::Numbers(numbers) => numbers.contains(&number),
            Test::Named(pattern) => {
                let name = name();
                std::str::from_utf8(&name).is_ok_and(|name| pattern.is_match(name))
            }
            Test::Nameless => name().is_empty(),
        };
        self.0.iter().find(|(test, _)| is_it(test)).map(|(_, account)| account.clone())
    }
}

/// What is no pattern is a name.
fn test(whose: &Whose) -> Option<Test> {
    match whose {
        Whose::Numbers(numbers) => Some(Test::Numbers(numbers.clone())),
        Whose::Named(name) => {
            let pattern = Glob::new(name).or_else(|_| Glob::new(&globset::escape(name)));
            Some(Test::Named(pattern.ok()?.compile_matcher()))
        }
        Whose::Nameless => Some(Test::Nameless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let map = "alice:1,al*:2,100-199:3,b?b:4,x[y:5,:6";
        let rules = AccountRules::new(&AccountMap::parse(map).unwrap());
        let becomes =
            |number, name: &str| rules.of(number, || name.as_bytes().into()).map(|account| account.number);
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
            assert_eq!(becomes(number, name), expected, "{number} {name}");
        }
    }

    #[test]
    fn names_are_asked_for_only_where_they_count() {
        let rules = AccountRules::new(&AccountMap::parse("1-9:1").unwrap());
        assert_eq!(rules.of(3, || panic!("asked")).unwrap().number, 1);
        assert!(AccountRules::default().of(3, || panic!("asked")).is_none());
    }
}
