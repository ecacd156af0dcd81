//! `carrack sync`: a copy that leaves out what the destination has, and may remove what the sources have not.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::time::Duration;

use carrack_model::{Backup, Deletion, ModifyWindow, RelPath, Sync};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::cp;
use super::cp_options::CpArgs;
use crate::exit::{self, Exit};
use crate::trouble::Trouble;

/// The heading of its own options.
pub const SYNC: &str = "What is sent, and what is deleted";

/// Make directories at the destination like the sources: send only what differs
///
/// As `carrack cp -r`, whose options it has too, but a file that the destination has with the same size and modification time is not sent; with
/// --archive a mode or owner that differs is set. What is to be sent is asked while the sources are scanned; several threads compare at the destination.
///
/// The destination is always a directory: `carrack sync tree host:data` makes data/tree like tree, whether data is there or not, and
/// `carrack sync tree/ host:data` makes data like tree.
#[derive(Debug, Args)]
#[command(
    after_long_help = after_long_help(),
    override_usage = "carrack sync [OPTIONS] SOURCE... DESTINATION"
)]
pub struct SyncArgs {
    #[command(flatten)]
    copying: Copying,

    /// Compare contents, by BLAKE3, where sizes are the same; whatever the times are (`rsync --checksum`)
    #[arg(short, long, help_heading = SYNC)]
    contents: bool,

    /// Take modification times for equal that are SECONDS apart at most, fractions allowed; -1: only those that are equal to the nanosecond
    ///
    /// Where the destination's file system stores coarse times (Lustre, FAT, SMB, many NFS servers), the time that it stores of the source's is
    /// equal without it. FAT in another time zone, or at the other side of a change of the clock, needs 3601.
    #[arg(long, value_name = "SECONDS", value_parser = parse_window, default_value = "0", hide_default_value = true, allow_negative_numbers = true, help_heading = SYNC)]
    modify_window: Window,

    /// Leave files alone that are newer at the destination
    #[arg(short, long, help_heading = SYNC)]
    update: bool,

    /// Make nothing that is not at the destination
    #[arg(long, help_heading = SYNC)]
    existing: bool,

    /// Leave alone whatever is at the destination
    #[arg(long, help_heading = SYNC)]
    ignore_existing: bool,

    /// When everything is sent, delete what the destination has and the sources have not
    ///
    /// Only within directories that are sources, and only what the scan of this run has proven not to be there; not if anything failed
    /// at either end. What a pattern leaves out stays; so does what is left out by size or time, as it is at the source, and what is mounted
    /// beneath the destination. --dry-run lists what would be deleted. At a daemon, whoever may write may delete.
    #[arg(long, conflicts_with = "files_from", group = "deleting", help_heading = SYNC)]
    delete: bool,

    /// The same before anything is sent, for a destination that is nearly full
    ///
    /// The sources are scanned once more for that. What can't be opened to be read is only met afterwards.
    #[arg(long, conflicts_with = "files_from", group = "deleting", help_heading = SYNC)]
    delete_before: bool,

    /// Delete also where a source has no entry at all, or an end is `host:`, `/` or the home directory
    ///
    /// Without it that is taken for a mistake, such as a variable that is not set or a file system that is not mounted.
    #[arg(long, help_heading = SYNC)]
    delete_all: bool,

    /// Delete at the destination also what the patterns leave out
    #[arg(long, help_heading = SYNC)]
    delete_excluded: bool,

    /// Delete also in file systems that are mounted beneath the destination
    #[arg(long, help_heading = SYNC)]
    delete_mounts: bool,

    /// Delete no more than N entries, or nothing if that were more than N% of those at the destination; then the exit code is 1
    #[arg(long, value_name = "N|N%", help_heading = SYNC)]
    max_delete: Option<MaxDelete>,

    /// Move what is deleted to DIR beneath the destination, where it keeps its path; later runs leave DIR alone
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(parse_backup), help_heading = SYNC)]
    backup_dir: Option<BackupDirectory>,

    /// The same, to a directory with the time of the run in .carrack-trash of the destination
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

/// How much is deleted at most.
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

/// The value of `--modify-window`.
#[derive(Clone, Copy, Debug)]
struct Window(ModifyWindow);

/// Syncs.
pub fn run(args: SyncArgs) -> Exit {
    if let Some(option) = args.of_deletion_alone() {
        Trouble::new(format!("{option} is about what is deleted, and nothing is to be"))
            .hint("add --delete or --delete-before, or leave it out")
            .tell();
        return Exit::Usage;
    }
    let sync = args.sync();
    let mut copy = args.copying.0;
    copy.recursive = true;
    copy.sync = Some(sync);
    copy.destination_mut().into_iter().for_each(as_directory);
    cp::run(&copy)
}

impl SyncArgs {
    /// An option that means nothing, as nothing is to be deleted.
    fn of_deletion_alone(&self) -> Option<&'static str> {
        let given = [
            (self.delete_all, "--delete-all"),
            (self.delete_excluded, "--delete-excluded"),
            (self.delete_mounts, "--delete-mounts"),
            (self.max_delete.is_some(), "--max-delete"),
            (self.backup_dir.is_some(), "--backup-dir"),
            (self.trash, "--trash"),
        ];
        let deletes = self.delete || self.delete_before;
        given.into_iter().find(|(is_given, _)| *is_given && !deletes).map(|(_, option)| option)
    }

    fn sync(&self) -> Sync {
        Sync {
            by_contents: self.contents,
            modify_window: self.modify_window.0,
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            deletion: (self.delete || self.delete_before).then(|| self.deletion()),
        }
    }

    fn deletion(&self) -> Deletion {
        let (most, most_percent) = match self.max_delete {
            Some(MaxDelete::Entries(count)) => (Some(count), None),
            Some(MaxDelete::Percent(percent)) => (None, Some(percent)),
            None => (None, None),
        };
        let directory = self.backup_dir.as_ref().map(|path| Backup::Directory(path.0.as_bytes().into()));
        Deletion {
            most,
            most_percent,
            first: self.delete_before,
            by_empty_sources: self.delete_all,
            excluded: self.delete_excluded,
            mounts: self.delete_mounts,
            backup: directory.or(self.trash.then_some(Backup::Trash)),
        }
    }
}

/// Seconds, of which nanoseconds count.
fn parse_window(text: &str) -> Result<Window, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, or -1".to_owned())?;
    match seconds {
        -1.0 => Ok(Window(ModifyWindow::Exact)),
        0.0 => Ok(Window(ModifyWindow::Stored)),
        _ => Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|window| u64::try_from(window.as_nanos()).ok())
            .map(|nanoseconds| Window(ModifyWindow::Within { nanoseconds }))
            .ok_or_else(|| "0 or more seconds, or -1".to_owned()),
    }
}

/// Only so the same command does the same once the destination is there. What ends with a colon is a home directory.
fn as_directory(destination: &mut OsString) {
    if !destination.as_bytes().ends_with(b"/") && !destination.as_bytes().ends_with(b":") {
        destination.push("/");
    }
}

/// The options of `carrack cp`, without its description, which would take the place of this command's.
#[derive(Debug)]
struct Copying(CpArgs);

impl Args for Copying {
    fn augment_args(command: Command) -> Command {
        let copy = CpArgs::augment_args(Command::new("cp"));
        let is_implied = |arg: &Arg| arg.get_id() == "recursive";
        let args = copy.get_arguments().map(|arg| arg.clone().hide(arg.is_hide_set() || is_implied(arg)));
        command.args(args.collect::<Vec<Arg>>()).groups(copy.get_groups().cloned())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Copying::augment_args(command)
    }
}

impl FromArgMatches for Copying {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Copying, clap::Error> {
        CpArgs::from_arg_matches(matches).map(Copying)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Examples:
  carrack sync tree/ host:data      data is to have what tree has
  carrack sync -a --delete tree/ host:data
                                    and nothing else, with owners
  carrack sync -n --delete tree/ host:data
                                    what would be done?
  carrack sync --delete --max-delete 10% --trash tree/ host:data
                                    what goes is in data/.carrack-trash
  carrack sync --exclude '*.o' --exclude build/ tree host:

";
    format!("{EXAMPLES}{}", exit::help())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SyncArgs,
    }

    fn parse(words: &[&str]) -> Result<SyncArgs, clap::Error> {
        Line::try_parse_from([&["sync"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn options_arrive() {
        let sync = parse(&["a", "b"]).unwrap().sync();
        assert_eq!(sync, Sync::default());
        for (word, window) in [
            ("0", Some(ModifyWindow::Stored)),
            ("-1", Some(ModifyWindow::Exact)),
            ("1.5", Some(ModifyWindow::Within { nanoseconds: 1_500_000_000 })),
            ("-2", None),
            ("soon", None),
        ] {
            let parsed = parse(&["--modify-window", word, "a", "b"]);
            assert_eq!(parsed.ok().map(|args| args.sync().modify_window), window, "{word}");
        }
        let words =
            ["-cu", "--existing", "--ignore-existing", "--delete", "--max-delete", "7", "-a", "a", "b"];
        let args = parse(&words).unwrap();
        assert_eq!(args.sync().deletion, Some(Deletion { most: Some(7), ..Deletion::default() }));
        let words = ["--delete-before", "--max-delete", "7%", "--delete-excluded", "--trash", "a", "b"];
        let first = Deletion {
            most_percent: Some(7),
            first: true,
            excluded: true,
            backup: Some(Backup::Trash),
            ..Deletion::default()
        };
        assert_eq!(parse(&words).unwrap().sync().deletion, Some(first));
        let words = ["--delete", "--delete-all", "--delete-mounts", "--backup-dir", "old", "a", "b"];
        let kept = Deletion {
            by_empty_sources: true,
            mounts: true,
            backup: Some(Backup::Directory(b"old"[..].into())),
            ..Deletion::default()
        };
        assert_eq!(parse(&words).unwrap().sync().deletion, Some(kept));
        let sync = args.sync();
        assert!(sync.by_contents && sync.update && sync.existing && sync.ignore_existing);
        assert!(args.copying.0.fidelity.archive);
        for bad in [
            &["--delete", "--files-from", "f", "a", "b"][..],
            &["--delete-before", "--files-from", "f", "a", "b"],
            &["--delete-before", "--delete", "a", "b"],
            &["--delete", "--max-delete", "101%", "a", "b"],
            &["--delete", "--max-delete", "-1", "a", "b"],
            &["--delete", "--trash", "--backup-dir", "old", "a", "b"],
            &["--spill-budget", "1GiB", "a", "b"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        for alone in
            [&["--max-delete", "7", "a", "b"][..], &["--delete-all", "a", "b"], &["--trash", "a", "b"]]
        {
            assert_eq!(parse(alone).unwrap().of_deletion_alone(), Some(alone[0]));
        }
        assert_eq!(parse(&words).unwrap().of_deletion_alone(), None);
    }

    #[test]
    fn the_destination_is_a_directory() {
        for (typed, meant) in [("a", "a/"), ("a/", "a/"), ("h:", "h:"), ("h:a", "h:a/"), (".", "./")] {
            let mut path = OsString::from(typed);
            as_directory(&mut path);
            assert_eq!(path, meant);
        }
    }

    #[test]
    fn it_describes_itself() {
        use clap::CommandFactory;
        Line::command().debug_assert();
        let help = Line::command().render_long_help().to_string();
        assert!(help.contains("Make directories at the destination like the sources"), "{help}");
        assert!(!help.contains("--recursive\n") && help.contains("--exclude"), "{help}");
    }
}
