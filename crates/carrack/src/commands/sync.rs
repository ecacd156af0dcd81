//! `carrack sync`: a copy that leaves out files that the destination has, and may remove entries that the
//! sources lack.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use carrack_options::SyncOptions;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::cp;
use crate::exit::{self, ExitStatus};
use crate::options::cp::CpArgs;
use crate::options::foreign::RefusedRsyncArgs;

/// Make a destination like its sources: send only what differs
///
/// As `carrack cp -r`, whose options it has too, but a file that the destination has with the same size and
/// modification time is not sent; with --archive a mode or owner that differs is set. The comparison runs
/// while the sources are scanned; several threads compare at the destination.
///
/// The destination is always a directory: `carrack sync tree host:data` makes data/tree like tree, whether
/// data is there or not, and `carrack sync tree/ host:data` makes data like tree.
#[derive(Debug, Args)]
#[command(
    after_long_help = exit::help(EXAMPLES),
    override_usage = "carrack sync [OPTIONS] SOURCE... DESTINATION"
)]
pub struct SyncArgs {
    #[command(flatten)]
    copying: CopyOptions,

    #[command(flatten)]
    difference: SyncOptions,
}

/// Runs the sync.
pub fn run(args: SyncArgs) -> ExitStatus {
    let sync = match args.difference.sync_rules() {
        Ok(sync) => sync,
        Err(trouble) => {
            trouble.print();
            return ExitStatus::Usage;
        }
    };
    let mut copy = args.copying.0;
    copy.recursive = true;
    copy.sync = Some(sync);
    if !copy.transfer.no_target_directory {
        copy.destination_mut().into_iter().for_each(append_slash);
    }
    cp::run(&copy)
}

/// Makes the destination a directory, so that the same command has the same result once it exists. A path
/// that ends with a colon is a home directory.
fn append_slash(destination: &mut OsString) {
    if !destination.as_bytes().ends_with(b"/") && !destination.as_bytes().ends_with(b":") {
        destination.push("/");
    }
}

/// The options of `carrack cp` without its description, which would replace this command's.
#[derive(Debug)]
struct CopyOptions(CpArgs);

impl Args for CopyOptions {
    fn augment_args(command: Command) -> Command {
        let copy = CpArgs::augment_args(Command::new("cp"));
        let args = copy.get_arguments().filter(|arg| !RefusedRsyncArgs::is_sync_option(arg)).map(|arg| {
            let is_implied = arg.get_id() == "recursive";
            arg.clone().hide(arg.is_hide_set() || is_implied)
        });
        command.args(args.collect::<Vec<Arg>>()).groups(copy.get_groups().cloned())
    }

    fn augment_args_for_update(command: Command) -> Command {
        CopyOptions::augment_args(command)
    }
}

impl FromArgMatches for CopyOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<CopyOptions, clap::Error> {
        CpArgs::from_arg_matches(matches).map(CopyOptions)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::command;

    fn parse(words: &[&str]) -> Result<SyncArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn options_of_a_copy_are_its_own_too_as_far_as_they_go_together() {
        let args = parse(&["-cu", "--delete", "-a", "a", "b"]).unwrap();
        assert!(
            args.copying.0.spec(false).unwrap().recursive
                && args.difference.sync_rules().unwrap().deletion.is_some()
        );
        for bad in [
            &["--delete", "--files-from", "f", "a", "b"][..],
            &["--delete-before", "--files-from", "f", "a", "b"],
            &["--spill-budget", "1GiB", "a", "b"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_destination_is_a_directory() {
        for (typed, meant) in [("a", "a/"), ("a/", "a/"), ("h:", "h:"), ("h:a", "h:a/"), (".", "./")] {
            let mut path = OsString::from(typed);
            append_slash(&mut path);
            assert_eq!(path, meant);
        }
    }

    #[test]
    fn it_describes_itself() {
        command::<SyncArgs>().debug_assert();
        let help = command::<SyncArgs>().render_long_help().to_string();
        assert!(help.contains("Make a destination like its sources"), "{help}");
        assert!(!help.contains("--recursive\n") && help.contains("--exclude"), "{help}");
    }
}
