//! The options that say what of a file is kept, as they are typed for `carrack cp`: the one place where they become a [`Fidelity`].

use crate::{Account, AccountMap, Fidelity, Kept, ModeChange, account};

/// Whose everything becomes: `--chown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chown {
    /// The user, if one is given.
    pub user: Option<Account>,
    /// The group, likewise.
    pub group: Option<Account>,
}

impl Chown {
    /// Reads `USER:GROUP`, of which one may be left out.
    ///
    /// # Errors
    /// If there is neither.
    pub fn parse(text: &str) -> Result<Chown, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let chown = Chown { user: account(user), group: account(group) };
        match (&chown.user, &chown.group) {
            (None, None) => Err("neither a user nor a group".to_owned()),
            _ => Ok(chown),
        }
    }
}

/// What was typed. Where an option has an opposite (`--owner`, `--no-owner`), the last of both counts, and without either
/// [`archive`](Self::archive) decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FidelityOptions {
    /// `--archive`: everything that is not left out by name.
    pub archive: bool,
    /// `--perms`, `--no-perms`.
    pub perms: Option<bool>,
    /// `--chmod`.
    pub chmod: Option<ModeChange>,
    /// `--no-times`.
    pub no_times: bool,
    /// `--omit-dir-times`.
    pub omit_dir_times: bool,
    /// `--owner`, `--no-owner`.
    pub owner: Option<bool>,
    /// `--group`, `--no-group`.
    pub group: Option<bool>,
    /// `--numeric-ids`.
    pub numeric_ids: bool,
    /// `--chown`.
    pub chown: Option<Chown>,
    /// `--usermap`.
    pub usermap: Option<AccountMap>,
    /// `--groupmap`.
    pub groupmap: Option<AccountMap>,
    /// `--xattrs`, `--no-xattrs`.
    pub xattrs: Option<bool>,
    /// `--acls`, `--no-acls`.
    pub acls: Option<bool>,
    /// `--hard-links`, `--no-hard-links`.
    pub hard_links: Option<bool>,
    /// `--devices`, `--no-devices`.
    pub devices: Option<bool>,
    /// `--specials`, `--no-specials`.
    pub specials: Option<bool>,
    /// `--file-flags`.
    pub file_flags: bool,
    /// `--strict`: what can't be kept is a failure.
    pub strict: bool,
}

impl FidelityOptions {
    /// Takes in one option, `--name` or `--name=value`; whether it is one of these.
    ///
    /// # Errors
    /// What is wrong with its value, or with having it beside an earlier one.
    pub fn take(&mut self, word: &str) -> Result<bool, String> {
        let Some(name) = word.strip_prefix("--") else { return Ok(false) };
        let is_one = match name.split_once('=') {
            Some((name, value)) => {
                self.take_value(name, value).map_err(|error| format!("--{name}: {error}"))?
            }
            None => self.take_switch(name),
        };
        let has_map = self.usermap.is_some() || self.groupmap.is_some();
        match is_one && has_map && self.chown.is_some() {
            true => Err("--chown can't be used with --usermap and --groupmap".to_owned()),
            false => Ok(is_one),
        }
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let map = |value: &str| AccountMap::parse(value).map_err(|error| error.to_string());
        match name {
            "chmod" => self.chmod = Some(ModeChange::parse(value).map_err(|error| error.to_string())?),
            "chown" => self.chown = Some(Chown::parse(value)?),
            "usermap" => self.usermap = Some(map(value)?),
            "groupmap" => self.groupmap = Some(map(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_switch(&mut self, name: &str) -> bool {
        let switch = match name {
            "archive" => &mut self.archive,
            "no-times" => &mut self.no_times,
            "omit-dir-times" => &mut self.omit_dir_times,
            "numeric-ids" => &mut self.numeric_ids,
            "file-flags" => &mut self.file_flags,
            "strict" => &mut self.strict,
            _ => return self.take_choice(name),
        };
        *switch = true;
        true
    }

    fn take_choice(&mut self, name: &str) -> bool {
        let (name, is_kept) = name.strip_prefix("no-").map_or((name, true), |name| (name, false));
        let choice = match name {
            "perms" => &mut self.perms,
            "owner" => &mut self.owner,
            "group" => &mut self.group,
            "xattrs" => &mut self.xattrs,
            "acls" => &mut self.acls,
            "hard-links" => &mut self.hard_links,
            "devices" => &mut self.devices,
            "specials" => &mut self.specials,
            _ => return false,
        };
        *choice = Some(is_kept);
        true
    }

    /// What they come to.
    pub fn fidelity(&self) -> Fidelity {
        let (user, group) = self.chown.clone().map_or((None, None), |chown| (chown.user, chown.group));
        let wanted = |choice: Option<bool>| choice.unwrap_or(self.archive);
        let kept = Kept {
            users: wanted(self.owner) || user.is_some() || self.usermap.is_some(),
            groups: wanted(self.group) || group.is_some() || self.groupmap.is_some(),
            attributes: wanted(self.xattrs),
            // They are part of a mode.
            acls: wanted(self.acls) && self.perms != Some(false),
            hard_links: wanted(self.hard_links),
            devices: wanted(self.devices),
            specials: wanted(self.specials),
            file_flags: self.file_flags,
        };
        Fidelity {
            kept,
            numeric_ids: self.numeric_ids,
            user,
            group,
            user_map: self.usermap.clone().unwrap_or_default(),
            group_map: self.groupmap.clone().unwrap_or_default(),
            perms: self.perms.unwrap_or(self.archive || kept.acls),
            mode_change: self.chmod.clone().unwrap_or_default(),
            omit_times: self.no_times,
            omit_dir_times: self.omit_dir_times,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::NO_NUMBER;

    const ARCHIVE: Kept = Kept { file_flags: false, ..Kept::ALL };

    fn taken(words: &[&str]) -> Result<FidelityOptions, String> {
        let mut options = FidelityOptions::default();
        for word in words {
            assert!(options.take(word)?, "{word}");
        }
        Ok(options)
    }

    fn fidelity(words: &[&str]) -> Fidelity {
        taken(words).unwrap().fidelity()
    }

    #[test]
    fn an_archive_has_everything_but_what_is_left_out() {
        for (words, kept) in [
            (&[][..], Kept::default()),
            (&["--archive"], ARCHIVE),
            (&["--archive", "--no-owner"], Kept { users: false, ..ARCHIVE }),
            (&["--no-owner", "--archive"], Kept { users: false, ..ARCHIVE }),
            (&["--no-owner", "--owner"], Kept { users: true, ..Kept::default() }),
            (&["--owner", "--no-owner"], Kept::default()),
            (&["--archive", "--file-flags"], Kept::ALL),
            (&["--archive", "--no-perms"], Kept { acls: false, ..ARCHIVE }),
            (&["--devices"], Kept { devices: true, ..Kept::default() }),
            (&["--archive", "--no-specials"], Kept { specials: false, ..ARCHIVE }),
            (&["--chown=:staff"], Kept { groups: true, ..Kept::default() }),
            (&["--usermap=a:b", "--no-owner"], Kept { users: true, ..Kept::default() }),
            (&["--xattrs", "--hard-links"], Kept { attributes: true, hard_links: true, ..Kept::default() }),
        ] {
            assert_eq!(fidelity(words).kept, kept, "{words:?}");
        }
    }

    #[test]
    fn modes_are_kept_by_request() {
        for (words, perms) in [
            (&[][..], false),
            (&["--archive"], true),
            (&["--acls"], true),
            (&["--no-perms", "--perms"], true),
            (&["--acls", "--no-perms"], false),
        ] {
            assert_eq!(fidelity(words).perms, perms, "{words:?}");
        }
    }

    #[test]
    fn values_and_times_are_as_typed() {
        let found =
            fidelity(&["--chmod=go-w", "--groupmap=1:2", "--numeric-ids", "--no-times", "--omit-dir-times"]);
        assert_eq!((found.mode_change.as_str(), found.group_map.as_str()), ("go-w", "1:2"));
        assert!(found.numeric_ids && found.omit_times && found.omit_dir_times);
        assert!(taken(&["--strict"]).unwrap().strict);
    }

    #[test]
    fn what_is_none_of_them_is_left_to_others_and_what_is_wrong_is_told() {
        let mut options = FidelityOptions::default();
        for word in [
            "archive",
            "-a",
            "--exclude=*.o",
            "--no-exclude",
            "--archive=yes",
            "--chown",
            "--no-times=1",
            "--times",
        ] {
            assert_eq!(options.take(word), Ok(false), "{word}");
        }
        assert_eq!(options, FidelityOptions::default());
        for words in [&["--chmod=q"][..], &["--chown=:"], &["--usermap=a"], &["--chown=a", "--groupmap=1:2"]]
        {
            assert!(taken(words).unwrap_err().starts_with("--"), "{words:?}");
        }
    }

    #[test]
    fn accounts_are_names_or_numbers() {
        let named = |name: &str| Some(Account { number: NO_NUMBER, name: name.as_bytes().into() });
        let numbered = |number| Some(Account { number, name: Arc::default() });
        for (text, user, group) in [
            ("alice", named("alice"), None),
            ("alice:", named("alice"), None),
            (":staff", None, named("staff")),
            ("7:8", numbered(7), numbered(8)),
            ("7:staff", numbered(7), named("staff")),
            ("4294967295:1", named("4294967295"), numbered(1)),
        ] {
            assert_eq!(Chown::parse(text), Ok(Chown { user, group }), "{text}");
        }
        assert!(Chown::parse("").is_err() && Chown::parse(":").is_err());
    }
}
