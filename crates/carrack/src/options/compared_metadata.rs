//! Metadata that `carrack verify` compares: options by the names of those by which `carrack cp` keeps
//! metadata, with the same defaults.

use carrack_engine::MetadataChecks;
use carrack_model::FidelityOptions;
use carrack_options::{ModifyWindowOption, parse_window};
use clap::{ArgAction, Args};

const METADATA: &str = "Metadata";

/// Options of `carrack verify` alone.
#[derive(Clone, Debug, Args)]
pub struct VerifyMetadataArgs {
    /// Compare all metadata that `carrack cp --archive` keeps
    ///
    /// These are modes, times, owners, groups, extended attributes, ACLs and hard links. Each can be left
    /// out: --no-perms, --no-times, --no-owner, --no-group, --no-xattrs, --no-acls, --no-hard-links. Without
    /// it, and without an option below, the modification times of files, directories and links are compared,
    /// which a copy keeps without options.
    #[arg(short, long, conflicts_with = "manifest", help_heading = METADATA)]
    archive: bool,

    /// Modes, owners and groups, which `carrack cp -p` keeps
    #[arg(short, long, conflicts_with = "manifest", help_heading = METADATA)]
    preserve: bool,

    /// Modes of files, directories and special files: permission bits, set-ID bits and the sticky bit
    #[arg(long, overrides_with = "no_perms", conflicts_with = "manifest", help_heading = METADATA)]
    perms: bool,

    /// With --archive: leave modes out, and ACLs, which are part of them
    #[arg(long, overrides_with = "perms", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_perms: bool,

    /// Leave modification times out
    #[arg(long, help_heading = METADATA)]
    no_times: bool,

    /// Leave modification times of directories out
    #[arg(short = 'O', long, help_heading = METADATA)]
    omit_dir_times: bool,

    /// Most seconds by which equal times may differ; -1: only those that are equal to the nanosecond
    /// [default: what the destination's file system stores of the source's time is equal]
    #[arg(long, value_name = "SECONDS", value_parser = parse_window, default_value = "0", hide_default_value = true, allow_negative_numbers = true, help_heading = METADATA)]
    modify_window: ModifyWindowOption,

    /// Owners, by name where they have one at both ends, else by number
    #[arg(long, overrides_with = "no_owner", conflicts_with = "manifest", help_heading = METADATA)]
    owner: bool,

    /// With --archive: leave owners out
    #[arg(long, overrides_with = "owner", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_owner: bool,

    /// Groups, by name where they have one at both ends, else by number
    #[arg(long, overrides_with = "no_group", conflicts_with = "manifest", help_heading = METADATA)]
    group: bool,

    /// With --archive: leave groups out
    #[arg(long, overrides_with = "group", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_group: bool,

    /// Owners and groups by number, regardless of their names
    #[arg(long, help_heading = METADATA)]
    numeric_ids: bool,

    /// Extended attributes: `user.*`, and where both ends run as root those that only root may set
    #[arg(long, overrides_with = "no_xattrs", conflicts_with = "manifest", help_heading = METADATA)]
    xattrs: bool,

    /// With --archive: leave extended attributes out
    #[arg(long, overrides_with = "xattrs", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_xattrs: bool,

    /// POSIX ACLs, and with them --perms
    #[arg(long, overrides_with = "no_acls", conflicts_with = "manifest", help_heading = METADATA)]
    acls: bool,

    /// With --archive: leave ACLs out
    #[arg(long, overrides_with = "acls", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_acls: bool,

    /// Hard links: the names of the same file, within one source
    #[arg(short = 'H', long, overrides_with = "no_hard_links", conflicts_with = "manifest", help_heading = METADATA)]
    hard_links: bool,

    /// With --archive: leave hard links out
    #[arg(long, overrides_with = "hard_links", action = ArgAction::SetTrue, help_heading = METADATA)]
    no_hard_links: bool,

    /// File flags: immutable, append-only and no-dump, where both file systems have them; no part of
    /// --archive
    #[arg(long, conflicts_with = "manifest", help_heading = METADATA)]
    file_flags: bool,

    /// Holes of files: reported where more than half of those of 64 KiB or more in a file are filled; no part
    /// of --archive
    ///
    /// Compared by the bytes that each storage allocated for a file. A file system that compresses, or
    /// allocates in advance, may give wrong results.
    #[arg(short = 'S', long, conflicts_with = "manifest", help_heading = METADATA)]
    sparse: bool,
}

impl VerifyMetadataArgs {
    /// Returns the metadata to compare.
    pub fn checks(&self) -> MetadataChecks {
        fn choice(yes: bool, no: bool) -> Option<bool> {
            (yes || no).then_some(yes)
        }

        let options = FidelityOptions {
            archive: self.archive,
            perms: choice(self.perms || self.preserve && !self.no_perms, self.no_perms),
            no_times: self.no_times,
            omit_dir_times: self.omit_dir_times,
            owner: choice(self.owner || self.preserve && !self.no_owner, self.no_owner),
            group: choice(self.group || self.preserve && !self.no_group, self.no_group),
            numeric_ids: self.numeric_ids,
            xattrs: choice(self.xattrs, self.no_xattrs),
            acls: choice(self.acls, self.no_acls),
            hard_links: choice(self.hard_links, self.no_hard_links),
            file_flags: self.file_flags,
            ..FidelityOptions::default()
        };
        let ModifyWindowOption(window) = self.modify_window;
        MetadataChecks { fidelity: options.fidelity(), holes: self.sparse, window }
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{KeptMetadata, MetadataFidelity, ModifyWindow};
    use carrack_options::FidelityArgs;
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct TestVerifyCommandLine {
        #[command(flatten)]
        args: VerifyMetadataArgs,
        #[arg(long)]
        manifest: bool,
    }

    #[derive(Debug, Parser)]
    struct TestCopyCommandLine {
        #[command(flatten)]
        args: FidelityArgs,
    }

    fn checks(words: &[&str]) -> MetadataChecks {
        TestVerifyCommandLine::try_parse_from(["verify"].iter().chain(words)).unwrap().args.checks()
    }

    fn kept(words: &[&str]) -> MetadataFidelity {
        TestCopyCommandLine::try_parse_from(["cp"].iter().chain(words)).unwrap().args.fidelity()
    }

    #[test]
    fn what_is_compared_is_what_a_copy_with_the_same_options_keeps() {
        let command = TestVerifyCommandLine::command();
        let words = command.get_arguments().filter(|arg| !arg.get_action().takes_values());
        let words = words.filter_map(|arg| arg.get_long());
        let words: Vec<String> = words
            .filter(|name| !["help", "sparse", "manifest"].contains(name))
            .map(|name| format!("--{name}"))
            .collect();
        assert!(words.len() > 15, "{words:?}");
        assert_eq!(checks(&[]).fidelity, kept(&[]));
        for word in &words {
            assert_eq!(checks(&[word]).fidelity, kept(&[word]), "{word}");
            if word != "--archive" {
                assert_eq!(checks(&["-a", word]).fidelity, kept(&["-a", word]), "{word}");
            }
        }
    }

    #[test]
    fn defaults_letters_and_windows() {
        assert_eq!(checks(&[]), MetadataChecks::default());
        let all = checks(&["-aSHO", "--file-flags", "--modify-window", "1.5"]);
        assert!(all.holes && all.fidelity.perms && all.fidelity.omit_dir_times);
        assert_eq!(all.fidelity.kept, KeptMetadata::ALL);
        assert_eq!(all.window, ModifyWindow::Within { nanoseconds: 1_500_000_000 });
        assert_eq!(checks(&["--modify-window", "-1"]).window, ModifyWindow::Exact);
    }

    #[test]
    fn a_manifest_holds_no_metadata() {
        for word in ["-a", "--perms", "--owner", "--group", "--xattrs", "--acls", "-H", "--file-flags", "-S"]
        {
            assert!(TestVerifyCommandLine::try_parse_from(["verify", "--manifest", word]).is_err(), "{word}");
        }
        assert!(TestVerifyCommandLine::try_parse_from(["verify", "--manifest", "--no-times"]).is_ok());
    }
}
