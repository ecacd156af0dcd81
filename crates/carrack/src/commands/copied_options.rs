//! What of `carrack cp` says which entries are copied and what of them is kept, for submitted transfers: looked at here as for a copy, and
//! handed on as typed.

use carrack_service::queue::COPY_OPTIONS;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::fidelity_options::FidelityArgs;
use super::select_options::SelectArgs;
use crate::trouble::Trouble;

/// Files of this command's machine and directory, which the one that carries it out does not read.
const FROM_FILES: [&str; 3] = ["files-from", "filter-from", "from0"];

/// Options in the order in which they were typed.
#[derive(Clone, Debug, Default)]
pub struct CopiedArgs {
    words: Vec<String>,
    from_file: Option<&'static str>,
}

impl CopiedArgs {
    /// `--name` or `--name=value` each.
    ///
    /// # Errors
    /// If one would have a file read.
    pub fn words(&self) -> Result<Vec<String>, Trouble> {
        match self.from_file {
            None => Ok(self.words.clone()),
            Some(name) => {
                let message =
                    format!("--{name} is an option of `carrack cp`, and none of submitted transfers");
                Err(Trouble::new(message)
                    .hint("use --include and --exclude, or submit the directories that are wanted"))
            }
        }
    }
}

/// The name that clap knows an option by, if it was typed; those of patterns are as typed.
fn typed_id(matches: &ArgMatches, name: &str) -> Option<String> {
    let is_there = |id: &String| matches.ids().any(|known| known.as_str() == id);
    let id = [name.to_owned(), name.replace('-', "_")].into_iter().find(is_there)?;
    (matches.value_source(&id) == Some(ValueSource::CommandLine)).then_some(id)
}

impl Args for CopiedArgs {
    fn augment_args(command: Command) -> Command {
        let command = SelectArgs::augment_args(FidelityArgs::augment_args(command));
        let hide = |command: Command, name: &str| {
            let ids = [name.to_owned(), name.replace('-', "_")];
            command.mut_args(|arg| if ids.iter().any(|id| arg.get_id() == id) { arg.hide(true) } else { arg })
        };
        FROM_FILES.iter().fold(command, |command, name| hide(command, name))
    }

    fn augment_args_for_update(command: Command) -> Command {
        CopiedArgs::augment_args(command)
    }
}

impl FromArgMatches for CopiedArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<CopiedArgs, clap::Error> {
        let mut words: Vec<(usize, String)> = Vec::new();
        for (name, has_value) in &COPY_OPTIONS {
            let Some(id) = typed_id(matches, name) else { continue };
            let places = matches.indices_of(&id).into_iter().flatten();
            let values = matches.get_raw(&id).into_iter().flatten();
            words.extend(places.zip(values).map(|(place, value)| match has_value {
                true => (place, format!("--{name}={}", value.to_string_lossy())),
                false => (place, format!("--{name}")),
            }));
        }
        words.sort();
        let from_file = FROM_FILES.into_iter().find(|name| typed_id(matches, name).is_some());
        Ok(CopiedArgs { words: words.into_iter().map(|(_, word)| word).collect(), from_file })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = CopiedArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        copied: CopiedArgs,
    }

    fn words(typed: &[&str]) -> Result<Vec<String>, String> {
        let line = Line::try_parse_from(["submit"].iter().chain(typed)).map_err(|error| error.to_string())?;
        line.copied.words().map_err(|trouble| trouble.message)
    }

    #[test]
    fn options_are_handed_on_in_their_order() {
        let typed = ["--exclude", "*.o", "-a", "--no-owner", "--include=keep.o", "--exclude", "/top", "-x"];
        let expected = [
            "--exclude=*.o",
            "--archive",
            "--no-owner",
            "--include=keep.o",
            "--exclude=/top",
            "--one-file-system",
        ];
        assert_eq!(words(&typed).unwrap(), expected);
        assert_eq!(words(&[]).unwrap(), [""; 0]);
        assert_eq!(
            words(&["--max-size", "1GiB", "--chown", ":data"]).unwrap(),
            ["--max-size=1GiB", "--chown=:data"]
        );
    }

    #[test]
    fn what_makes_no_sense_for_a_copy_makes_none_here() {
        for typed in [&["--max-size", "many"][..], &["--usermap", "alice"], &["-L", "--skip-links"]] {
            assert!(words(typed).unwrap_err().starts_with("error"), "{typed:?}");
        }
        assert!(words(&["--filter-from", "x"]).unwrap_err().contains("--filter-from"));
        assert!(!Line::command().render_long_help().to_string().contains("--files-from"));
    }

    /// Whoever adds one decides whether it is handed on.
    #[test]
    fn every_option_is_handed_on_or_refused() {
        let command = Line::command();
        let names = command.get_arguments().filter_map(|arg| arg.get_long()).filter(|name| *name != "help");
        let is_known =
            |name: &&str| COPY_OPTIONS.iter().any(|(known, _)| known == name) || FROM_FILES.contains(name);
        let missing: Vec<&str> = names.filter(|name| !is_known(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
