//! Options of scp, rsync and `carrack sync` that `carrack cp` does not have: the error names the way to the
//! same result.

use carrack_options::SyncOptions;
use clap::error::{ContextKind, ContextValue};
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

/// Returns the error about a command that only other programs have.
pub fn foreign_command_error(error: &clap::Error) -> Option<UserError> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (_, message, hint) = COMMANDS.iter().find(|(known, ..)| known == name)?;
    Some(UserError::new(*message).hint(*hint))
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
        let line = foreign_command_error(&error).unwrap().line();
        assert!(
            ["carrack cp", "carrack verify", "carrack rm"].iter().all(|way| line.contains(way)),
            "{line}"
        );
    }

    #[test]
    fn the_help_does_not_show_them() {
        let help = command::<CpArgs>().render_long_help().to_string();
        assert!(!help.contains("--max-delete") && !help.contains("--compress"), "{help}");
    }
}
