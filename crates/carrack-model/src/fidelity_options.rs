//! The options for kept metadata, and their translation to a [`MetadataFidelity`].

use crate::{FileOwnerMap, KeptMetadata, MetadataFidelity, ModeChange, UserOrGroup, account};

/// The owner of everything: `--chown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChownOption {
    /// The user, if one is given.
    pub user: Option<UserOrGroup>,
    /// The group, if one is given.
    pub group: Option<UserOrGroup>,
}

impl ChownOption {
    /// Parses `USER:GROUP`; either may be missing.
    ///
    /// # Errors
    /// Both are missing.
    pub fn parse(text: &str) -> Result<ChownOption, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let chown = ChownOption { user: account(user), group: account(group) };
        match (&chown.user, &chown.group) {
            (None, None) => Err("neither a user nor a group".to_owned()),
            _ => Ok(chown),
        }
    }
}

/// The options as typed. Of an option and its opposite (`--owner`, `--no-owner`) the last one counts; without
/// either [`archive`](Self::archive) decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FidelityOptions {
    /// `--archive`: everything except the excluded kinds.
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
    pub chown: Option<ChownOption>,
    /// `--usermap`.
    pub usermap: Option<FileOwnerMap>,
    /// `--groupmap`.
    pub groupmap: Option<FileOwnerMap>,
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
    /// `--strict`: metadata that can't be kept are a failure.
    pub strict: bool,
}

impl FidelityOptions {
    /// The resulting [`MetadataFidelity`].
    pub fn fidelity(&self) -> MetadataFidelity {
        let (user, group) = self.chown.clone().map_or((None, None), |chown| (chown.user, chown.group));
        let archive = self.archive;
        let kept = KeptMetadata {
            users: self.owner.unwrap_or(archive) || user.is_some() || self.usermap.is_some(),
            groups: self.group.unwrap_or(archive) || group.is_some() || self.groupmap.is_some(),
            attributes: self.xattrs.unwrap_or(archive),
            // ACLs are part of a mode.
            acls: self.acls.unwrap_or(archive) && self.perms != Some(false),
            hard_links: self.hard_links.unwrap_or(archive),
            devices: self.devices.unwrap_or(archive),
            specials: self.specials.unwrap_or(archive),
            file_flags: self.file_flags,
        };
        MetadataFidelity {
            kept,
            numeric_ids: self.numeric_ids,
            user,
            group,
            user_map: self.usermap.clone().unwrap_or_default(),
            group_map: self.groupmap.clone().unwrap_or_default(),
            perms: self.perms.unwrap_or(archive || kept.acls),
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

    #[test]
    fn accounts_are_names_or_numbers() {
        fn named(name: &str) -> Option<UserOrGroup> {
            Some(UserOrGroup { number: NO_NUMBER, name: name.as_bytes().into() })
        }
        fn numbered(number: u32) -> Option<UserOrGroup> {
            Some(UserOrGroup { number, name: Arc::default() })
        }
        for (text, user, group) in [
            ("alice", named("alice"), None),
            ("alice:", named("alice"), None),
            (":staff", None, named("staff")),
            ("7:8", numbered(7), numbered(8)),
            ("7:staff", numbered(7), named("staff")),
            ("4294967295:1", named("4294967295"), numbered(1)),
        ] {
            assert_eq!(ChownOption::parse(text), Ok(ChownOption { user, group }), "{text}");
        }
        assert!(ChownOption::parse("").is_err() && ChownOption::parse(":").is_err());
    }
}
