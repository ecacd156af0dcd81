//! Options and commands of cp, scp and rsync that carrack does not have, and those of `carrack sync` that
//! `carrack cp` does not have: the error names the way to the same result.

use std::ffi::OsString;

use carrack_options::SyncOptions;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::user_error::UserError;

/// The option of compression, which neither a copy nor a sync has.
const COMPRESS: &str = "compress";

/// rsync's option for what a terminal shows in any case: accepted, without effect.
const PROGRESS: &str = "progress";

/// Prefix of the IDs of options of `carrack sync` among the arguments of `carrack cp`.
const OF_SYNC: &str = "of-sync-";

/// The option that was given and is refused.
#[derive(Clone, Debug, Default)]
pub struct RefusedRsyncArgs {
    refused: Option<String>,
}

impl RefusedRsyncArgs {
    /// Returns true for an option that only `carrack sync` has.
    pub fn is_sync_option(arg: &Arg) -> bool {
        arg.get_id().as_str().starts_with(OF_SYNC)
    }

    /// Refuses the option.
    ///
    /// # Errors
    /// If one was given.
    pub fn check(&self) -> Result<(), UserError> {
        match self.refused.as_deref() {
            None => Ok(()),
            Some(COMPRESS) => Err(UserError::new(
                "carrack does not compress (-z): networks that it is made for are faster than compression",
            )
            .hint("leave -z out; on a slow line `--via ssh -e 'ssh -C'` lets ssh compress the data")),
            Some(name) => Err(UserError::new(format!("--{name} is an option of `carrack sync`")).hint(
                format!("carrack sync --{name} SOURCE... DESTINATION; a sync copies directories as -r"),
            )),
        }
    }
}

/// Commands of other programs, with the way to the same result.
const COMMANDS: [(&str, &str, &str); 1] = [(
    "mv",
    "carrack moves no files: it copies them, and what is verified can be removed",
    "`carrack cp -r SRC DST`, then `carrack verify SRC DST`, then `carrack rm -r SRC`",
)];

/// Options of cp, scp and rsync, with what there is in their place.
const OPTIONS: [(&[&str], &str); 17] = [
    (&["-t", "--times"], "leave it out: times are kept always"),
    (&["-l", "--links"], "leave it out: symbolic links are copied as links; a rate is --bwlimit's"),
    (&["-R", "--relative"], "`carrack cp -r` copies directories; paths as they are given are --files-from's"),
    (
        &["-f", "--force", "--ignore-errors"],
        "leave it out: files are replaced when their copies are complete",
    ),
    (
        &["--inplace", "-W", "--whole-file", "--no-whole-file"],
        "leave it out: a file that differs is sent whole, and replaced at once",
    ),
    (
        &["--partial", "--partial-dir", "--append", "--append-verify"],
        "leave it out: the same command, run again, sends only what is missing",
    ),
    (
        &["--remove-source-files", "--remove-sent-files"],
        "copy, then `carrack verify SOURCE DESTINATION`, then `carrack rm -r SOURCE`",
    ),
    (&["-C", "--cvs-exclude"], "write the patterns to a file, and name it with --exclude-from"),
    (&["-F"], "--filter ': .rsync-filter'"),
    (&["-o", "-4", "-6"], "options of ssh go into its command: --ssh 'ssh -o …'"),
    (&["-3"], "data goes directly between both hosts; --relay sends it through this one"),
    (&["-m", "--prune-empty-dirs"], "leave it out: empty directories are copied too"),
    (&["--mkpath"], "`carrack mkdir -p` makes the directories above the destination"),
    (&["--size-only"], "size and time are compared; --modify-window allows a difference in time"),
    (
        &["--human-readable", "--info", "--out-format"],
        "leave it out: sizes have units; --json is for programs",
    ),
    (&["-D"], "-a copies devices and pipes too"),
    (&["--rsync-path"], "--remote-carrack COMMAND"),
];

/// Returns the error about a command or an option that only other programs have.
pub fn foreign_word_error(error: &clap::Error) -> Option<UserError> {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) {
        let (_, message, hint) = COMMANDS.iter().find(|(known, ..)| known == name)?;
        return Some(UserError::new(*message).hint(*hint));
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = typed.split(['=', ' ']).next().unwrap_or(typed);
    let (_, instead) = OPTIONS.iter().find(|(names, _)| names.contains(&name))?;
    Some(UserError::new(format!("{name} is an option of other programs")).hint(*instead))
}

fn is_help_in_bundle(word: &str) -> bool {
    word.len() > 2 && word.starts_with('-') && !word.starts_with("--") && word.contains('h')
}

/// Commands with sources and destinations, which get `-h` from people who want readable sizes, as rsync and
/// ls take it.
const COMMANDS_WITH_PATHS: [&str; 7] = ["cp", "sync", "submit", "ls", "stat", "rm", "verify"];

/// Returns the error about `-h` beside other words: help, and exit status 0, would hide from a script that
/// nothing was done.
pub fn help_beside_words_error(words: &[OsString]) -> Option<UserError> {
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy());
    let command = words.next().filter(|command| COMMANDS_WITH_PATHS.contains(&&**command))?;
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    let bundled = words.iter().any(|word| is_help_in_bundle(word));
    let beside_path =
        words.iter().any(|word| word == "-h") && words.iter().any(|word| !word.starts_with('-'));
    (bundled || beside_path).then(|| {
        UserError::new("-h is for help, and nothing was done")
            .hint(format!("leave -h out, sizes have units anyway; help is `carrack {command} -h`"))
    })
}

/// Returns the options of `carrack sync` alone, hidden.
fn hidden_sync_options() -> Vec<Arg> {
    let sync = SyncOptions::augment_args(Command::new("sync"));
    let mut args = Vec::new();
    for option in sync.get_arguments() {
        let Some(name) = option.get_long() else { continue };
        let takes_value = option.get_action().takes_values();
        let action = if takes_value { ArgAction::Append } else { ArgAction::SetTrue };
        let arg = Arg::new(format!("{OF_SYNC}{name}")).long(name.to_owned()).action(action).hide(true);
        args.push(match option.get_short() {
            Some(letter) => arg.short(letter),
            None => arg,
        });
    }
    args
}

impl Args for RefusedRsyncArgs {
    fn augment_args(command: Command) -> Command {
        let compress = Arg::new(COMPRESS).short('z').long(COMPRESS).action(ArgAction::SetTrue).hide(true);
        let progress = Arg::new(PROGRESS).long(PROGRESS).action(ArgAction::SetTrue).hide(true);
        command
            .args([compress.overrides_with(COMPRESS), progress.overrides_with(PROGRESS)])
            .args(hidden_sync_options())
    }

    fn augment_args_for_update(command: Command) -> Command {
        RefusedRsyncArgs::augment_args(command)
    }
}

impl FromArgMatches for RefusedRsyncArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RefusedRsyncArgs, clap::Error> {
        let mut ids = matches.ids().map(|id| id.as_str());
        let refused = ids.find(|id| {
            (*id == COMPRESS || id.starts_with(OF_SYNC))
                && matches.value_source(id) == Some(ValueSource::CommandLine)
        });
        Ok(RefusedRsyncArgs { refused: refused.map(|id| id.trim_start_matches(OF_SYNC).to_owned()) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RefusedRsyncArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::cp::CpArgs;
    use crate::options::tests::{command, parse};

    fn refused(words: &[&str]) -> Option<String> {
        let args = parse::<CpArgs>(&[words, &["a", "b"]].concat()).unwrap();
        args.foreign.check().err().map(|trouble| trouble.line())
    }

    #[test]
    fn options_of_a_sync_name_it() {
        for words in [&["--delete"][..], &["-u"], &["--update"], &["--existing"], &["--max-delete", "5"]] {
            let line = refused(words).unwrap();
            assert!(line.contains("carrack sync --"), "{line}");
        }
        assert!(refused(&["-z"]).unwrap().contains("compress"));
        for words in [&[][..], &["--progress"], &["-vv"], &["-rp", "-P", "22"]] {
            assert_eq!(refused(words), None, "{words:?}");
        }
    }

    #[test]
    fn a_move_is_a_copy_a_comparison_and_a_removal() {
        let carrack = crate::options::config::command_with_valued_flags();
        let error = carrack.try_get_matches_from(["carrack", "mv", "a", "h:b"]).unwrap_err();
        let line = foreign_word_error(&error).unwrap().line();
        assert!(
            ["carrack cp", "carrack verify", "carrack rm"].iter().all(|way| line.contains(way)),
            "{line}"
        );
    }

    #[test]
    fn options_of_others_have_a_hint() {
        let carrack = crate::options::config::command_with_valued_flags();
        for name in OPTIONS.iter().flat_map(|(names, _)| *names) {
            let error =
                carrack.clone().try_get_matches_from(["carrack", "sync", name, "a", "h:b"]).unwrap_err();
            assert!(
                foreign_word_error(&error).is_some_and(|trouble| trouble.hint.is_some()),
                "{name}: {error}"
            );
        }
        let wrong =
            carrack.clone().try_get_matches_from(["carrack", "cp", "--frobnicate", "a", "b"]).unwrap_err();
        assert!(foreign_word_error(&wrong).is_none());
    }

    #[test]
    fn help_beside_paths_is_an_error() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            help_beside_words_error(&words).is_some()
        };
        for line in ["carrack sync -avh a h:b", "carrack cp a b -h", "carrack ls -lh h:", "carrack sync -avh"]
        {
            assert!(of(line), "{line}");
        }
        for line in [
            "carrack cp -h",
            "carrack -h",
            "carrack cp --help",
            "carrack help cp",
            "carrack cp -- -h",
            "carrack topo -h x",
        ] {
            assert!(!of(line), "{line}");
        }
    }

    #[test]
    fn the_help_does_not_show_them() {
        let help = command::<CpArgs>().render_long_help().to_string();
        assert!(!help.contains("--max-delete") && !help.contains("--compress"), "{help}");
    }
}
