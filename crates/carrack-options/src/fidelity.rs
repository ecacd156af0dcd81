//! Metadata of entries that are kept in addition to contents, mode and modification time.

use carrack_model::{ChownOption, FidelityOptions, FileOwnerMap, MetadataFidelity, ModeChange};
use clap::{ArgAction, Args};

const FIDELITY: &str = "Metadata";

#[expect(missing_docs, reason = "clap would take it for the command's")]
#[derive(Clone, Debug, Default, Args)]
pub struct FidelityArgs {
    /// Copy directories, and keep all metadata, as `rsync -aHAX`
    ///
    /// That is --recursive, with exact modes, owners, groups, extended attributes, ACLs, hard links, devices,
    /// named pipes and sockets. Each can be left out: --no-perms, --no-times, --no-owner, --no-group,
    /// --no-xattrs, --no-acls, --no-hard-links, --no-devices, --no-specials. Losses at the destination (only
    /// root may give files to others and make devices, not every file system has attributes) are reported
    /// once, with a count and the reason; they are no failure without --strict.
    #[arg(short, long, help_heading = FIDELITY)]
    pub archive: bool,

    /// Keep modes, owners, groups and times, as `cp -p`
    ///
    /// That is --perms, --owner and --group; times are kept anyway. Each can be left out: --no-perms,
    /// --no-owner, --no-group, --no-times.
    #[arg(short, long, help_heading = FIDELITY)]
    preserve: bool,

    /// Give every entry its mode at the source, independent of the umask and of existing modes
    ///
    /// Without it existing entries keep their modes, and new entries get the permission bits of the source
    /// less the umask, as with `cp -r`. Set-user-ID and set-group-ID bits stay only if the owner or group to
    /// which they belong is kept too.
    #[arg(long, overrides_with = "no_perms", help_heading = FIDELITY)]
    perms: bool,

    /// With --archive: leave modes out, and ACLs, which are part of them
    #[arg(long, overrides_with = "perms", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_perms: bool,

    /// Change the modes of the source by these clauses before they are used: `go-w`, `D2775,F664`,
    /// `u=rwX,go=rX`
    ///
    /// As with rsync: symbolic or octal, for directories alone with D in front, for all other entries with F;
    /// a clause without u, g, o or a leaves the bits of the umask alone. Without --perms the umask is
    /// subtracted afterwards, and existing entries keep their modes.
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

    /// Keep owners and groups by number, independent of their names
    #[arg(long, help_heading = FIDELITY)]
    numeric_ids: bool,

    /// Give everything to USER and GROUP, by name or number; one of the two may be left out (`alice`,
    /// `:staff`)
    #[arg(long, value_name = "USER:GROUP", value_parser = ChownOption::parse, help_heading = FIDELITY)]
    chown: Option<ChownOption>,

    /// Give entries of FROM to TO: `alice:bob,1000-1999:guest,*:data`
    ///
    /// The first matching rule counts; without a match an entry keeps its owner. FROM is the owner at the
    /// source: a number, a range of numbers, a name with or without `*`, `?`, `[a-z]`, or nothing for numbers
    /// without a name. TO is a name or number at the destination.
    #[arg(long, value_name = "FROM:TO,...", value_parser = FileOwnerMap::parse, conflicts_with = "chown", help_heading = FIDELITY)]
    usermap: Option<FileOwnerMap>,

    /// The same for groups
    #[arg(long, value_name = "FROM:TO,...", value_parser = FileOwnerMap::parse, conflicts_with = "chown", help_heading = FIDELITY)]
    groupmap: Option<FileOwnerMap>,

    /// Keep extended attributes: `user.*`, and for root those that only root may set
    #[arg(long, overrides_with = "no_xattrs", help_heading = FIDELITY)]
    xattrs: bool,

    /// With --archive: leave extended attributes out
    #[arg(long, overrides_with = "xattrs", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_xattrs: bool,

    /// Keep POSIX ACLs, and with them --perms; the users and groups in them are kept by number
    #[arg(long, overrides_with = "no_acls", help_heading = FIDELITY)]
    acls: bool,

    /// With --archive: leave ACLs out
    #[arg(long, overrides_with = "acls", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_acls: bool,

    /// Keep hard links; a file with several names is copied once
    #[arg(short = 'H', long, overrides_with = "no_hard_links", help_heading = FIDELITY)]
    hard_links: bool,

    /// With --archive: make each name a file of its own
    #[arg(long, overrides_with = "hard_links", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_hard_links: bool,

    /// Recreate character and block devices, as root; their contents are not copied
    #[arg(long, overrides_with = "no_devices", help_heading = FIDELITY)]
    devices: bool,

    /// With --archive: leave devices out
    #[arg(long, overrides_with = "devices", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_devices: bool,

    /// Recreate named pipes and sockets
    #[arg(long, overrides_with = "no_specials", help_heading = FIDELITY)]
    specials: bool,

    /// With --archive: leave named pipes and sockets out
    #[arg(long, overrides_with = "specials", action = ArgAction::SetTrue, help_heading = FIDELITY)]
    no_specials: bool,

    /// Keep file flags: immutable, append-only (both only root may set) and no-dump, as `chattr` sets them
    ///
    /// Not a part of --archive: an immutable file at the destination can be neither replaced nor deleted by a
    /// later run.
    #[arg(long, help_heading = FIDELITY)]
    file_flags: bool,

    /// Count losses at the destination as a failure: modes, times, owners, attributes, hard links, devices
    ///
    /// Without it losses are reported once, with a count and the reason, and the exit code is 0. With it the
    /// exit code is 1; everything is copied all the same.
    #[arg(long, help_heading = FIDELITY)]
    pub strict: bool,
}

impl FidelityArgs {
    /// Returns the metadata that a source sends.
    pub fn fidelity(&self) -> MetadataFidelity {
        self.options().fidelity()
    }

    /// Returns the same, with modes by default.
    pub fn with_modes(&self) -> MetadataFidelity {
        let options = self.options();
        FidelityOptions { perms: options.perms.or(Some(true)), ..options }.fidelity()
    }

    fn options(&self) -> FidelityOptions {
        fn choice(yes: bool, no: bool) -> Option<bool> {
            (yes || no).then_some(yes)
        }

        FidelityOptions {
            archive: self.archive,
            perms: choice(self.perms || self.preserve && !self.no_perms, self.no_perms),
            chmod: self.chmod.clone(),
            no_times: self.no_times,
            omit_dir_times: self.omit_dir_times,
            owner: choice(self.owner || self.preserve && !self.no_owner, self.no_owner),
            group: choice(self.group || self.preserve && !self.no_group, self.no_group),
            numeric_ids: self.numeric_ids,
            chown: self.chown.clone(),
            usermap: self.usermap.clone(),
            groupmap: self.groupmap.clone(),
            xattrs: choice(self.xattrs, self.no_xattrs),
            acls: choice(self.acls, self.no_acls),
            hard_links: choice(self.hard_links, self.no_hard_links),
            devices: choice(self.devices, self.no_devices),
            specials: choice(self.specials, self.no_specials),
            file_flags: self.file_flags,
            strict: self.strict,
        }
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::KeptMetadata;
    use clap::Parser;

    use super::*;

    const ARCHIVE: KeptMetadata = KeptMetadata { file_flags: false, ..KeptMetadata::ALL };

    #[derive(Debug, Parser)]
    struct TestFidelityCommandLine {
        #[command(flatten)]
        args: FidelityArgs,
    }

    fn fidelity(typed: &[&str]) -> Option<MetadataFidelity> {
        TestFidelityCommandLine::try_parse_from(["cp"].iter().chain(typed))
            .ok()
            .map(|line| line.args.fidelity())
    }

    #[test]
    fn an_archive_has_everything_but_what_is_left_out() {
        for (words, kept) in [
            (&[][..], KeptMetadata::default()),
            (&["--archive"], ARCHIVE),
            (&["--archive", "--no-owner"], KeptMetadata { users: false, ..ARCHIVE }),
            (&["--no-owner", "--archive"], KeptMetadata { users: false, ..ARCHIVE }),
            (&["--no-owner", "--owner"], KeptMetadata { users: true, ..KeptMetadata::default() }),
            (&["--owner", "--no-owner"], KeptMetadata::default()),
            (&["-p"], KeptMetadata { users: true, groups: true, ..KeptMetadata::default() }),
            (&["--preserve", "--no-owner"], KeptMetadata { groups: true, ..KeptMetadata::default() }),
            (&["--archive", "--file-flags"], KeptMetadata::ALL),
            (&["--archive", "--no-perms"], KeptMetadata { acls: false, ..ARCHIVE }),
            (&["--devices"], KeptMetadata { devices: true, ..KeptMetadata::default() }),
            (&["--archive", "--no-specials"], KeptMetadata { specials: false, ..ARCHIVE }),
            (&["--chown=:staff"], KeptMetadata { groups: true, ..KeptMetadata::default() }),
            (&["--usermap=a:b", "--no-owner"], KeptMetadata { users: true, ..KeptMetadata::default() }),
            (
                &["--xattrs", "--hard-links"],
                KeptMetadata { attributes: true, hard_links: true, ..KeptMetadata::default() },
            ),
        ] {
            assert_eq!(fidelity(words).unwrap().kept, kept, "{words:?}");
        }
    }

    #[test]
    fn modes_are_kept_by_request() {
        for (words, perms) in [
            (&[][..], false),
            (&["--archive"], true),
            (&["--acls"], true),
            (&["-p"], true),
            (&["-p", "--no-perms"], false),
            (&["--no-perms", "--perms"], true),
            (&["--acls", "--no-perms"], false),
        ] {
            assert_eq!(fidelity(words).unwrap().perms, perms, "{words:?}");
        }
    }

    #[test]
    fn values_and_times_are_as_typed() {
        let found =
            fidelity(&["--chmod=go-w", "--groupmap=1:2", "--numeric-ids", "--no-times", "--omit-dir-times"])
                .unwrap();
        assert_eq!((found.mode_change.as_str(), found.group_map.as_str()), ("go-w", "1:2"));
        assert!(found.numeric_ids && found.omit_times && found.omit_dir_times);
    }

    #[test]
    fn letters_and_what_makes_no_sense() {
        assert_eq!(fidelity(&["-aHO"]), fidelity(&["--archive", "--hard-links", "--omit-dir-times"]));
        for typed in [&["--usermap", "alice"][..], &["--usermap", "a:b", "--chown", "c"], &["--chmod", "u+q"]]
        {
            assert_eq!(fidelity(typed), None, "{typed:?}");
        }
    }
}
