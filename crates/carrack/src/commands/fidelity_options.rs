//! What of an entry is kept beyond contents, mode and modification time.

use carrack_model::{Account, AccountMap, Fidelity, Kept, ModeChange, account};
use clap::{ArgAction, Args};

const FIDELITY: &str = "What of a file is kept";

/// Options of `carrack cp` alone.
#[derive(Clone, Debug, Default, Args)]
pub struct FidelityArgs {
    /// Keep everything that can be kept: --recursive, with exact modes, owners, groups, extended attributes, ACLs, hard links, devices, named pipes and sockets
    ///
    /// Each can be left out: --no-perms, --no-times, --no-owner, --no-group, --no-xattrs, --no-acls, --no-hard-links, --no-devices, --no-specials. What can't be kept at the
    /// destination (only root may give files to others and make devices, not every file system has attributes) is told once, with a count and the
    /// reason; it is no failure without --strict.
    #[arg(short, long, help_heading = FIDELITY)]
    pub archive: bool,

    /// Give every entry the mode that it has at the source, whatever the umask is and whatever is there
    ///
    /// Without it what is there keeps its mode, and new entries get the permission bits of the source less the umask, as with `cp -r`.
    /// Set-user-ID and set-group-ID bits stay only where the owner or group they belong to is kept too.
    #[arg(long, overrides_with = "no_perms", help_heading = FIDELITY)]
    perms: bool,

    /// With --archive: leave modes out, and ACLs, which are part of them
    #[arg(long, overrides_with = "perms", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_perms: bool,

    /// Change the modes of the source by these clauses before they are used: `go-w`, `D2775,F664`, `u=rwX,go=rX`
    ///
    /// As with rsync: symbolic or octal, for directories alone with D in front, for all else with F; a clause without u, g, o or a leaves
    /// the bits of the umask alone. Without --perms the umask is taken off afterwards, and what is there keeps its mode.
    #[arg(long, value_name = "MODES", value_parser = ModeChange::parse, help_heading = FIDELITY)]
    chmod: Option<ModeChange>,

    /// Leave modification times out
    #[arg(long, help_heading = FIDELITY)]
    no_times: bool,

    /// Leave modification times of directories out
    #[arg(short = 'O', long, help_heading = FIDELITY)]
    omit_dir_times: bool,

    /// Keep owners, by name where the destination's host has it, else by number
    #[arg(long, overrides_with = "no_owner", help_heading = FIDELITY)]
    owner: bool,

    /// With --archive: leave owners out
    #[arg(long, overrides_with = "owner", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_owner: bool,

    /// Keep groups, by name where the destination's host has it, else by number
    #[arg(long, overrides_with = "no_group", help_heading = FIDELITY)]
    group: bool,

    /// With --archive: leave groups out
    #[arg(long, overrides_with = "group", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_group: bool,

    /// Owners and groups by number, whatever they are called
    #[arg(long, help_heading = FIDELITY)]
    numeric_ids: bool,

    /// Give everything to USER and GROUP, by name or number; one of the two may be left out (`alice`, `:staff`)
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_chown, help_heading = FIDELITY)]
    chown: Option<Chown>,

    /// Give what FROM owns to TO: `alice:bob,1000-1999:guest,*:data`
    ///
    /// The first rule that matches counts; what none matches keeps its owner. FROM is whose it is at the source: a number, a range of numbers, a name
    /// with or without `*`, `?`, `[a-z]`, or nothing for numbers without a name. TO is a name or number at the destination.
    #[arg(long, value_name = "FROM:TO,...", value_parser = AccountMap::parse, conflicts_with = "chown", help_heading = FIDELITY)]
    usermap: Option<AccountMap>,

    /// The same for groups
    #[arg(long, value_name = "FROM:TO,...", value_parser = AccountMap::parse, conflicts_with = "chown", help_heading = FIDELITY)]
    groupmap: Option<AccountMap>,

    /// Keep extended attributes: `user.*`, and for root those that only root may set
    #[arg(long, overrides_with = "no_xattrs", help_heading = FIDELITY)]
    xattrs: bool,

    /// With --archive: leave extended attributes out
    #[arg(long, overrides_with = "xattrs", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_xattrs: bool,

    /// Keep POSIX ACLs, and with them --perms; who is named in them is told by number
    #[arg(long, overrides_with = "no_acls", help_heading = FIDELITY)]
    acls: bool,

    /// With --archive: leave ACLs out
    #[arg(long, overrides_with = "acls", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_acls: bool,

    /// Keep which names are one file's; a file with several names is copied once
    #[arg(short = 'H', long, overrides_with = "no_hard_links", help_heading = FIDELITY)]
    hard_links: bool,

    /// With --archive: make each name a file of its own
    #[arg(long, overrides_with = "hard_links", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_hard_links: bool,

    /// Make character and block devices anew, which only root may; their contents are not copied
    #[arg(long, overrides_with = "no_devices", help_heading = FIDELITY)]
    devices: bool,

    /// With --archive: leave devices out
    #[arg(long, overrides_with = "devices", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_devices: bool,

    /// Make named pipes and sockets anew
    #[arg(long, overrides_with = "no_specials", help_heading = FIDELITY)]
    specials: bool,

    /// With --archive: leave named pipes and sockets out
    #[arg(long, overrides_with = "specials", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_specials: bool,

    /// Keep file flags: immutable, append-only (both only root may set) and no-dump, as `chattr` sets them
    ///
    /// No part of --archive: what is immutable at the destination can be neither replaced nor deleted by a later run.
    #[arg(long, help_heading = FIDELITY)]
    file_flags: bool,

    /// Take it for a failure that something can't be kept at the destination: modes, times, owners, attributes, hard links, devices
    ///
    /// Without it that is told once, with a count and the reason, and the exit code is 0. With it the exit code is 1; everything is copied all the same.
    #[arg(long, help_heading = FIDELITY)]
    pub strict: bool,
}

/// Whose everything becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chown {
    user: Option<Account>,
    group: Option<Account>,
}

impl FidelityArgs {
    /// What a source tells.
    pub fn fidelity(&self) -> Fidelity {
        let (user, group) = self.chown.clone().map_or((None, None), |chown| (chown.user, chown.group));
        let kept = Kept {
            users: (self.archive || self.owner) && !self.no_owner || user.is_some() || self.usermap.is_some(),
            groups: (self.archive || self.group) && !self.no_group
                || group.is_some()
                || self.groupmap.is_some(),
            attributes: (self.archive || self.xattrs) && !self.no_xattrs,
            acls: (self.archive || self.acls) && !self.no_acls && !self.no_perms,
            hard_links: (self.archive || self.hard_links) && !self.no_hard_links,
            devices: (self.archive || self.devices) && !self.no_devices,
            specials: (self.archive || self.specials) && !self.no_specials,
            file_flags: self.file_flags,
        };
        let (user_map, group_map) = (self.usermap.clone(), self.groupmap.clone());
        Fidelity {
            kept,
            numeric_ids: self.numeric_ids,
            user,
            group,
            user_map: user_map.unwrap_or_default(),
            group_map: group_map.unwrap_or_default(),
            perms: (self.archive || self.perms || kept.acls) && !self.no_perms,
            mode_change: self.chmod.clone().unwrap_or_default(),
            omit_times: self.no_times,
            omit_dir_times: self.omit_dir_times,
        }
    }
}

fn parse_chown(text: &str) -> Result<Chown, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let chown = Chown { user: account(user), group: account(group) };
    match (&chown.user, &chown.group) {
        (None, None) => Err("neither a user nor a group".to_owned()),
        _ => Ok(chown),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use std::sync::Arc;

    use carrack_model::NO_NUMBER;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: FidelityArgs,
    }

    const ARCHIVE: Kept = Kept { file_flags: false, ..Kept::ALL };

    fn kept(options: &[&str]) -> Kept {
        let words = ["cp"].iter().chain(options);
        Line::try_parse_from(words).unwrap().args.fidelity().kept
    }

    #[test]
    fn an_archive_has_everything_but_what_is_left_out() {
        assert_eq!(kept(&[]), Kept::default());
        assert_eq!(kept(&["-a"]), ARCHIVE);
        assert_eq!(kept(&["-a", "--no-owner"]), Kept { users: false, ..ARCHIVE });
        assert_eq!(
            kept(&[
                "-a",
                "--no-acls",
                "--no-xattrs",
                "--no-group",
                "--no-hard-links",
                "--no-devices",
                "--no-specials"
            ]),
            Kept { users: true, ..Kept::default() }
        );
        assert_eq!(kept(&["-a", "--file-flags"]), Kept::ALL);
        assert_eq!(kept(&["--devices"]), Kept { devices: true, ..Kept::default() });
        assert_eq!(kept(&["--specials"]), Kept { specials: true, ..Kept::default() });
        assert_eq!(kept(&["-a", "--no-devices"]), Kept { devices: false, ..ARCHIVE });
        assert_eq!(kept(&["--no-owner", "--owner"]), Kept { users: true, ..Kept::default() });
        assert_eq!(kept(&["--xattrs"]), Kept { attributes: true, ..Kept::default() });
        assert_eq!(kept(&["--chown", ":staff"]), Kept { groups: true, ..Kept::default() });
    }

    #[test]
    fn modes_are_kept_by_request() {
        let perms = |options: &[&str]| {
            let words = ["cp"].iter().chain(options);
            Line::try_parse_from(words).unwrap().args.fidelity().perms
        };
        for (options, is_kept) in [
            (&[][..], false),
            (&["-a"], true),
            (&["--perms"], true),
            (&["--acls"], true),
            (&["-a", "--no-perms"], false),
            (&["--acls", "--no-perms"], false),
            (&["--no-perms", "--perms"], true),
        ] {
            assert_eq!(perms(options), is_kept, "{options:?}");
        }
        assert_eq!(kept(&["-a", "--no-perms"]), Kept { acls: false, ..ARCHIVE });
        assert!(Line::try_parse_from(["cp", "--chmod", "u+q"]).is_err());
    }

    #[test]
    fn rules_for_owners_keep_owners_and_exclude_one_for_all() {
        assert_eq!(kept(&["--usermap", "a:b"]), Kept { users: true, ..Kept::default() });
        assert_eq!(kept(&["--groupmap", "a:b", "--no-group"]), Kept { groups: true, ..Kept::default() });
        let refused = |options: &[&str]| Line::try_parse_from(["cp"].iter().chain(options)).is_err();
        assert!(refused(&["--usermap", "alice"]));
        assert!(refused(&["--usermap", "a:b", "--chown", "c"]));
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
            assert_eq!(parse_chown(text), Ok(Chown { user, group }), "{text}");
        }
        assert!(parse_chown("").is_err() && parse_chown(":").is_err());
    }
}
