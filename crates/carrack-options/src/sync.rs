//! Options of a sync: the comparison of entries, and deletion.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use carrack_model::{DeletionBackup, DeletionRules, RelPath, SyncRules};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::modify_window::{ModifyWindowOption, parse_window};
use crate::user_error::UserError;

/// The heading of these options.
pub const SYNC: &str = "Comparison and deletion";

/// Options without effect unless entries are deleted.
pub(crate) const OF_DELETION: [&str; 6] =
    ["--delete-all", "--delete-excluded", "--delete-mounts", "--max-delete", "--backup-dir", "--trash"];

#[expect(missing_docs, reason = "clap would take it for the command's")]
#[derive(Clone, Debug, Args)]
pub struct SyncOptions {
    /// Compare contents, by BLAKE3, of files with equal sizes
    ///
    /// Independent of their modification times, as `rsync --checksum`.
    #[arg(short, long, help_heading = SYNC)]
    contents: bool,

    /// Count modification times as equal that are SECONDS apart at most, fractions allowed; -1: only those
    /// that are equal to the nanosecond
    ///
    /// If the destination's file system stores coarse times (Lustre, FAT, SMB, many NFS servers), its stored
    /// form of the source's time is equal without it. FAT in another time zone, or at the other side of a
    /// change of the clock, needs 3601.
    #[arg(long, value_name = "SECONDS", value_parser = parse_window, default_value = "0", hide_default_value = true, allow_negative_numbers = true, help_heading = SYNC)]
    modify_window: ModifyWindowOption,

    /// Leave files alone that are newer at the destination
    #[arg(short, long, help_heading = SYNC)]
    update: bool,

    /// Create nothing that is missing at the destination
    #[arg(long, help_heading = SYNC)]
    existing: bool,

    /// Leave existing entries at the destination alone
    #[arg(long, help_heading = SYNC)]
    ignore_existing: bool,

    /// Delete destination entries that the sources lack, after all is sent
    ///
    /// Only within directories that are sources, and only entries that the scan of this run has proven to be
    /// missing; not if anything failed at either end. Entries that a pattern leaves out stay, as do those
    /// left out by size or time, which exist at the source, and file systems mounted beneath the destination.
    /// --dry-run lists the deletions. At a daemon, the right to write includes that to delete.
    #[arg(long, conflicts_with_all = ["files_from", "only"], group = "deleting", help_heading = SYNC)]
    delete: bool,

    /// The same before anything is sent, for a destination that is nearly full
    ///
    /// The sources are scanned once more for that. Entries that can't be opened for reading are only found
    /// afterwards.
    #[arg(long, conflicts_with_all = ["files_from", "only"], group = "deleting", help_heading = SYNC)]
    delete_before: bool,

    /// Also delete if a source has no entry at all, or an end is `host:`, `/` or the home directory
    ///
    /// Without it these cases count as mistakes, such as an unset variable or a file system that is not
    /// mounted.
    #[arg(long, help_heading = SYNC)]
    delete_all: bool,

    /// Also delete destination entries that the patterns leave out
    #[arg(long, help_heading = SYNC)]
    delete_excluded: bool,

    /// Also delete in file systems that are mounted beneath the destination
    #[arg(long, help_heading = SYNC)]
    delete_mounts: bool,

    /// Delete N entries at most, or nothing if it were more than N%
    ///
    /// Percent of the entries at the destination. The exit code is 1 if anything stays for that reason.
    #[arg(long, value_name = "N|N%", help_heading = SYNC)]
    max_delete: Option<MaxDelete>,

    /// Move deleted entries to DIR beneath the destination, where they keep their paths; later runs leave DIR
    /// alone
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(parse_backup), help_heading = SYNC)]
    backup_dir: Option<BackupDirectory>,

    /// Move deleted entries to .carrack-trash of the destination
    ///
    /// As --backup-dir, to a directory with the time of the run.
    #[arg(long, conflicts_with = "backup_dir", help_heading = SYNC)]
    trash: bool,
}

/// The value of `--backup-dir`: a path beneath the destination.
#[derive(Clone, Debug)]
struct BackupDirectory(RelPath);

fn parse_backup(typed: OsString) -> Result<BackupDirectory, String> {
    let typed = typed.as_bytes();
    let path = RelPath::new(typed.strip_suffix(b"/").unwrap_or(typed));
    let path = path.ok().filter(|path| !path.is_root());
    path.map(BackupDirectory).ok_or_else(|| "a path beneath the destination is needed, without ..".to_owned())
}

/// Upper bound of deleted entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaxDelete {
    Entries(u64),
    Percent(u32),
}

impl FromStr for MaxDelete {
    type Err = String;

    fn from_str(text: &str) -> Result<MaxDelete, String> {
        let most = match text.strip_suffix('%') {
            Some(number) => number.parse().ok().filter(|percent| *percent <= 100).map(MaxDelete::Percent),
            None => text.parse().ok().map(MaxDelete::Entries),
        };
        most.ok_or_else(|| "a number of entries, or of percent up to 100%, is needed".to_owned())
    }
}

impl SyncOptions {
    /// Returns the parsed options.
    ///
    /// # Errors
    /// If an option of deletion is given without a deletion.
    pub fn sync_rules(&self) -> Result<SyncRules, UserError> {
        if let Some(option) = self.stray_deletion_option() {
            let message = format!("{option} is about what is deleted, and nothing is to be");
            return Err(UserError::new(message).hint("add --delete or --delete-before, or leave it out"));
        }
        Ok(SyncRules {
            by_contents: self.contents,
            modify_window: self.modify_window.0,
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            deletion: (self.delete || self.delete_before).then(|| self.deletion()),
        })
    }

    /// Returns an option of deletion that is given without a deletion.
    fn stray_deletion_option(&self) -> Option<&'static str> {
        let given = [
            self.delete_all,
            self.delete_excluded,
            self.delete_mounts,
            self.max_delete.is_some(),
            self.backup_dir.is_some(),
            self.trash,
        ];
        let deletes = self.delete || self.delete_before;
        let mut alone = OF_DELETION.into_iter().zip(given).filter(|(_, is_given)| *is_given && !deletes);
        alone.next().map(|(option, _)| option)
    }

    fn deletion(&self) -> DeletionRules {
        let (most, most_percent) = match self.max_delete {
            Some(MaxDelete::Entries(count)) => (Some(count), None),
            Some(MaxDelete::Percent(percent)) => (None, Some(percent)),
            None => (None, None),
        };
        let directory =
            self.backup_dir.as_ref().map(|path| DeletionBackup::Directory(path.0.as_bytes().into()));
        DeletionRules {
            most,
            most_percent,
            first: self.delete_before,
            by_empty_sources: self.delete_all,
            excluded: self.delete_excluded,
            mounts: self.delete_mounts,
            backup: directory.or(self.trash.then_some(DeletionBackup::Trash)),
        }
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::ModifyWindow;
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestSyncCommandLine {
        #[command(flatten)]
        args: SyncOptions,
        #[arg(long)]
        files_from: Option<String>,
        #[arg(long)]
        only: Vec<String>,
    }

    fn parse(words: &[&str]) -> Result<SyncOptions, clap::Error> {
        TestSyncCommandLine::try_parse_from([&["sync"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn options_arrive() {
        let sync = parse(&[]).unwrap().sync_rules().unwrap();
        assert_eq!(sync, SyncRules::default());
        for (word, window) in [
            ("0", Some(ModifyWindow::Stored)),
            ("-1", Some(ModifyWindow::Exact)),
            ("1.5", Some(ModifyWindow::Within { nanoseconds: 1_500_000_000 })),
            ("-2", None),
            ("soon", None),
        ] {
            let parsed = parse(&["--modify-window", word]);
            assert_eq!(parsed.ok().map(|args| args.sync_rules().unwrap().modify_window), window, "{word}");
        }
        let words = ["-cu", "--existing", "--ignore-existing", "--delete", "--max-delete", "7"];
        let args = parse(&words).unwrap();
        assert_eq!(
            args.sync_rules().unwrap().deletion,
            Some(DeletionRules { most: Some(7), ..DeletionRules::default() })
        );
        let words = ["--delete-before", "--max-delete", "7%", "--delete-excluded", "--trash"];
        let first = DeletionRules {
            most_percent: Some(7),
            first: true,
            excluded: true,
            backup: Some(DeletionBackup::Trash),
            ..DeletionRules::default()
        };
        assert_eq!(parse(&words).unwrap().sync_rules().unwrap().deletion, Some(first));
        let words = ["--delete", "--delete-all", "--delete-mounts", "--backup-dir", "old"];
        let kept = DeletionRules {
            by_empty_sources: true,
            mounts: true,
            backup: Some(DeletionBackup::Directory(b"old"[..].into())),
            ..DeletionRules::default()
        };
        assert_eq!(parse(&words).unwrap().sync_rules().unwrap().deletion, Some(kept));
        let sync = args.sync_rules().unwrap();
        assert!(sync.by_contents && sync.update && sync.existing && sync.ignore_existing);
        for bad in [
            &["--delete-before", "--delete"][..],
            &["--delete", "--max-delete", "101%"],
            &["--delete", "--max-delete", "-1"],
            &["--delete", "--trash", "--backup-dir", "old"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        for alone in [&["--max-delete", "7"][..], &["--delete-all"], &["--trash"]] {
            assert_eq!(parse(alone).unwrap().stray_deletion_option(), Some(alone[0]));
        }
        assert_eq!(parse(&words).unwrap().stray_deletion_option(), None);
    }
}
