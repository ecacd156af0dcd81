//! Options of `carrack cp` that a submitted transfer does not have: they are refused, with a hint.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::user_error::UserError;

const NOBODY: &str = "nobody logs in anywhere: data goes from mover to mover";

/// Name, true if it has a value, and the hint. `carrack-options` has the refused ones among the options of
/// every transfer.
const OPTIONS: [(&str, bool, &str); 22] = [
    ("recursive", false, "leave it out: directories are copied with everything in them"),
    ("background", false, "leave it out: a submitted transfer goes on without this command"),
    ("dry-run", false, "`carrack cp -n` lists what would be copied"),
    ("manifest", true, "`carrack cp --manifest` writes one, and `carrack verify` compares afterwards"),
    ("relay", false, "data goes from mover to mover"),
    ("ssh", true, NOBODY),
    ("ssh-port", true, NOBODY),
    ("ssh-identity", true, NOBODY),
    ("ssh-jump", true, NOBODY),
    ("remote-carrack", true, NOBODY),
    ("no-bootstrap", false, NOBODY),
    ("bootstrap-dir", true, NOBODY),
    ("identity", true, "movers prove themselves to each other; the API wants a token (--token-file)"),
    ("token", true, "movers prove themselves to each other; the API's is named by --token-file"),
    ("connect-timeout", true, "whoever carries the transfer out tries again by himself"),
    ("json", false, "stdout has the ID only; `carrack status --json` has the rest"),
    ("report", true, "`carrack cp --report` writes one; `carrack status` tells of submitted transfers"),
    ("log-file", true, "`carrack log ID` prints the messages of a submitted transfer"),
    ("stats", true, "`carrack status --watch` shows how it does"),
    ("tui", false, "`carrack status --watch` shows how it does"),
    ("quiet", false, "redirect stderr; stdout has the ID only"),
    ("verbose", false, "`carrack status --watch` tells more"),
];

/// Those of the options that were given.
#[derive(Clone, Debug, Default)]
pub struct UnsupportedOptions(Vec<&'static (&'static str, bool, &'static str)>);

impl UnsupportedOptions {
    /// Refuses the first of the options.
    ///
    /// # Errors
    /// If one was given.
    pub fn check(&self) -> Result<(), UserError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _, instead)) => {
                let message =
                    format!("--{name} is an option of `carrack cp`, and none of submitted transfers");
                Err(UserError::new(message).hint(*instead))
            }
        }
    }
}

impl Args for UnsupportedOptions {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, (name, has_value, _)| {
            let action = if *has_value { ArgAction::Append } else { ArgAction::SetTrue };
            command.arg(Arg::new(*name).long(*name).action(action).hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        UnsupportedOptions::augment_args(command)
    }
}

impl FromArgMatches for UnsupportedOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<UnsupportedOptions, clap::Error> {
        let named = OPTIONS
            .iter()
            .filter(|(name, ..)| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine));
        Ok(UnsupportedOptions(named.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = UnsupportedOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::submit::SubmitArgs;
    use crate::options::cp::CpArgs;
    use crate::options::tests::{command, parse};

    /// A new option of `cp` is either carried out by `submit` or listed above.
    #[test]
    fn every_option_of_cp_is_carried_out_or_refused() {
        let submit = command::<SubmitArgs>();
        let known: Vec<&str> = submit.get_arguments().filter_map(Arg::get_long).collect();
        let cp = command::<CpArgs>();
        let told = cp.get_arguments().filter(|arg| !arg.is_hide_set());
        let missing: Vec<&str> =
            told.filter_map(Arg::get_long).filter(|name| !known.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        assert!(parse::<UnsupportedOptions>(&[]).unwrap().check().is_ok());
        let refused = parse::<UnsupportedOptions>(&["--manifest", "4"]).unwrap().check().unwrap_err();
        assert!(refused.message.contains("--manifest") && refused.hint.unwrap().contains("verify"));
        assert!(parse::<UnsupportedOptions>(&["--dry-run"]).unwrap().check().is_err());
        assert!(!command::<UnsupportedOptions>().render_long_help().to_string().contains("manifest"));
    }
}
