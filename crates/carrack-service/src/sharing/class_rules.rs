//! Rules for the use of classes, by account and by group, whose lookups are cached.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::unistd::{Group, Uid, User, getgrouplist};

/// Lifetime of a cached result: a new member of a group gets its class after this time.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Upper bound of cached results; users and classes have few.
const REMEMBERED_MAX: usize = 4_096;

/// The users of a class: every user, if both lists are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingClassUsers {
    /// Accounts.
    pub users: Option<Vec<String>>,
    /// Groups, whose members the system tells.
    pub groups: Option<Vec<String>>,
}

impl SharingClassUsers {
    fn includes_everyone(&self) -> bool {
        self.users.is_none() && self.groups.is_none()
    }

    /// Returns true if this user is a member. May ask other hosts. A UID without an account is in no list.
    pub(super) fn includes(&self, uid: u32) -> bool {
        let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return self.includes_everyone() };
        let is_named = self.users.iter().flatten().any(|name| *name == user.name);
        self.includes_everyone()
            || is_named
            || self.groups.as_ref().is_some_and(|groups| is_in_any_group(&user, groups))
    }
}

fn is_in_any_group(user: &User, groups: &[String]) -> bool {
    let Ok(name) = CString::new(user.name.clone()) else { return false };
    let own = getgrouplist(&name, user.gid).unwrap_or_default();
    groups.iter().any(|group| matches!(Group::from_name(group), Ok(Some(group)) if own.contains(&group.gid)))
}

/// The classes, each with its users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUserRules(BTreeMap<String, SharingClassUsers>);

impl ClassUserRules {
    /// Creates the rules, by the classes' names.
    pub fn new(classes: BTreeMap<String, SharingClassUsers>) -> ClassUserRules {
        ClassUserRules(classes)
    }

    /// Returns the users of this class; `None` if every user may use it, or for an unknown class, which has
    /// no effect.
    pub(super) fn members(&self, class: &str) -> Option<&SharingClassUsers> {
        self.0.get(class).filter(|members| !members.includes_everyone())
    }
}

/// Cache of lookups.
#[derive(Debug, Default)]
pub(super) struct MembershipCache(HashMap<(u32, String), (bool, Instant)>);

impl MembershipCache {
    pub(super) fn get(&self, uid: u32, class: &str) -> Option<bool> {
        let (may_use, at) = self.0.get(&(uid, class.to_owned()))?;
        (at.elapsed() < REMEMBERED).then_some(*may_use)
    }

    pub(super) fn put(&mut self, uid: u32, class: &str, may_use: bool) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert((uid, class.to_owned()), (may_use, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(users: &[&str], groups: &[&str]) -> SharingClassUsers {
        SharingClassUsers { users: Some(list(users)), groups: Some(list(groups)) }
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn accounts_and_groups_are_those_of_the_system() {
        let (nobody, stranger) = (65_534, 3_999_999_999);
        let Ok(Some(root)) = Group::from_gid(0.into()) else { return };
        assert!(of(&["root"], &[]).includes(0) && of(&[], &[&root.name]).includes(0));
        assert!(
            !of(&["root"], &[&root.name]).includes(nobody) && !of(&["x"], &["no-such-group"]).includes(0)
        );
        assert!(SharingClassUsers::default().includes(stranger) && !of(&["root"], &[]).includes(stranger));
    }

    #[test]
    fn what_is_known_is_not_asked_again() {
        let mut known = MembershipCache::default();
        known.put(7, "a", true);
        known.put(8, "a", false);
        assert_eq!(
            (known.get(7, "a"), known.get(8, "a"), known.get(7, "b")),
            (Some(true), Some(false), None)
        );
        (0..2 * REMEMBERED_MAX as u32).for_each(|uid| known.put(uid, "a", true));
        assert!(known.0.len() <= REMEMBERED_MAX);
    }
}
