//! Names of users and groups, and their numbers, as this host knows them (nsswitch.conf(5)).
//!
//! A static program can't load the C library's modules for directory services such as LDAP: what its own C
//! library does not find, it asks getent(1) for.

use std::process::{Command, Stdio};

use nix::unistd::{Gid, Group, Uid, User};

/// Returns the name of a user; none if there is none or the lookup fails.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    known.or_else(|| ask_system("passwd", &uid.to_string()).map(|(name, _)| name))
}

/// Returns the name of a group; none if there is none or the lookup fails.
pub(crate) fn group_name(gid: u32) -> Option<String> {
    let known = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    known.or_else(|| ask_system("group", &gid.to_string()).map(|(name, _)| name))
}

/// Returns the number of a user; none if there is none or the lookup fails.
pub(crate) fn user_number(name: &str) -> Option<u32> {
    let known = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    known.or_else(|| ask_system("passwd", name).filter(|(found, _)| found == name).map(|(_, uid)| uid))
}

/// Returns the number of a group; none if there is none or the lookup fails.
pub(crate) fn group_number(name: &str) -> Option<u32> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    known.or_else(|| ask_system("group", name).filter(|(found, _)| found == name).map(|(_, gid)| gid))
}

/// Asks the host's own C library, if that is not this program's.
fn ask_system(database: &str, key: &str) -> Option<(String, u32)> {
    if cfg!(target_env = "musl") { ask_getent(database, key) } else { None }
}

/// Returns the name and the number of an entry of getent(1), which takes a number for a number.
fn ask_getent(database: &str, key: &str) -> Option<(String, u32)> {
    let mut command = Command::new("getent");
    let asked =
        command.args(["--", database, key]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let line = String::from_utf8(asked.stdout).ok()?;
    let mut fields = line.lines().next()?.split(':');
    let (name, number) = (fields.next()?, fields.nth(1)?);
    Some((name.to_owned(), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrator_has_a_name_and_a_number() {
        assert_eq!((user_name(0).as_deref(), user_number("root")), (Some("root"), Some(0)));
        assert_eq!((group_name(0).as_deref(), group_number("root")), (Some("root"), Some(0)));
        assert_eq!((user_number("no such user"), group_number("no such group")), (None, None));
    }

    #[test]
    fn the_hosts_own_library_answers_too() {
        if Command::new("getent").output().is_err() {
            return;
        }
        assert_eq!(ask_getent("passwd", "0"), Some(("root".to_owned(), 0)));
        assert_eq!(ask_getent("group", "root"), Some(("root".to_owned(), 0)));
        assert_eq!(ask_getent("passwd", "no such user"), None);
        assert_eq!(ask_getent("passwd", "--help"), None);
    }
}
