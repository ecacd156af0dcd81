//! `carrack rm`: removes entries, from its arguments to its exit code. Nothing is removed without a
//! confirmation.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use carrack_engine::{BrowseItem, RemotePathOperation};
use carrack_model::escape;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::options::far_end_connection::FarArgs;
use crate::remote::browser::{RemoteBrowser, RemotePathCommandOutcome, locations, print_entry_failure};
use crate::user_error::UserError;

/// Most locations that are listed with the question.
const SHOWN_MAX: usize = 20;

/// Remove files and directories here, on a host or at a daemon
///
/// Asks first; `--yes` answers. Links are removed, not followed. Entries that can't be removed are reported,
/// and the others removed.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct RemoveFilesArgs {
    #[arg(help = "Entries to remove: PATH, [user@]host:PATH or carrack://host[:port]/EXPORT/PATH")]
    #[arg(required = true, num_args = 1.., value_name = "LOCATION", value_hint = ValueHint::AnyPath)]
    locations: Vec<OsString>,

    /// Remove directories with everything in them; without it only empty ones
    #[arg(short, long)]
    recursive: bool,

    /// Don't ask; needed without a terminal
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    far: FarArgs,
}

/// Removes the entries.
pub fn run(args: &RemoveFilesArgs) -> ExitStatus {
    remove(args).unwrap_or_else(|exit| exit)
}

/// Removes the entries. An error is the exit code of a command that could not begin.
fn remove(args: &RemoveFilesArgs) -> Result<ExitStatus, ExitStatus> {
    let locations = locations(&args.locations)?;
    if !args.yes && !io::stdin().is_terminal() {
        let trouble = UserError::new("nobody is there to be asked, and nothing was removed");
        trouble.hint("--yes removes without a question").print();
        return Err(ExitStatus::Usage);
    }
    // The question comes before signals are watched, so that a signal ends the command there.
    if !args.yes && !ask_for_confirmation(args, &mut io::stdin().lock(), &mut io::stderr()) {
        return Err(ExitStatus::Nothing);
    }
    let browser = RemoteBrowser::new(&args.far)?;
    let mut tally = RemotePathCommandOutcome::default();
    for location in &locations {
        let ended =
            browser.run(location, RemotePathOperation::Remove { recursive: args.recursive }, &mut |found| {
                if let BrowseItem::Failed { path, detail } = &found {
                    print_entry_failure(location.far.as_ref(), path, detail);
                }
                ControlFlow::Continue(())
            });
        if !tally.add(ended) {
            break;
        }
    }
    Ok(tally.exit_status())
}

/// Lists the locations and asks for a confirmation. Every answer but yes is no.
fn ask_for_confirmation(args: &RemoveFilesArgs, answers: &mut dyn BufRead, talk: &mut dyn Write) -> bool {
    let asked = print_confirmation_prompt(args, talk);
    let mut answer = String::new();
    let heard = asked.and_then(|()| answers.read_line(&mut answer));
    heard.is_ok() && matches!(&*answer.trim().to_ascii_lowercase(), "y" | "yes")
}

fn print_confirmation_prompt(args: &RemoveFilesArgs, talk: &mut dyn Write) -> io::Result<()> {
    let with = if args.recursive { " with everything in it" } else { "" };
    if let [only] = &args.locations[..] {
        write!(talk, "carrack: remove {}{with}? [y/N] ", escape(only.as_bytes()))?;
        return talk.flush();
    }
    for location in args.locations.iter().take(SHOWN_MAX) {
        writeln!(talk, "  {}", escape(location.as_bytes()))?;
    }
    let count = args.locations.len();
    if count > SHOWN_MAX {
        writeln!(talk, "  and {} more", count - SHOWN_MAX)?;
    }
    let with = if args.recursive { ", each with everything in it" } else { "" };
    write!(talk, "carrack: remove these {count}{with}? [y/N] ")?;
    talk.flush()
}

const EXAMPLES: &str = "\
Examples:
  carrack rm carrack://dtn1.site.org/data/run7/big.h5
  carrack rm -r --yes me@dtn1:data/run7

";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str], answer: &str) -> (bool, String) {
        let args = crate::options::tests::parse(words).unwrap();
        let mut talk = Vec::new();
        let is_confirmed = ask_for_confirmation(&args, &mut answer.as_bytes(), &mut talk);
        (is_confirmed, String::from_utf8(talk).unwrap())
    }

    #[test]
    fn only_yes_is_yes() {
        for (answer, is_yes) in [
            ("y\n", true),
            ("Yes\n", true),
            (" y ", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yep\n", false),
            ("no y\n", false),
        ] {
            assert_eq!(asked(&["a"], answer).0, is_yes, "{answer:?}");
        }
    }

    #[test]
    fn the_question_shows_what_would_go() {
        assert_eq!(asked(&["a\x1b"], "").1, "carrack: remove a\\u{1b}? [y/N] ");
        assert_eq!(asked(&["-r", "h:a"], "").1, "carrack: remove h:a with everything in it? [y/N] ");
        let question = asked(&["-r", "a", "b"], "").1;
        assert_eq!(question, "  a\n  b\ncarrack: remove these 2, each with everything in it? [y/N] ");
        let many: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
        let question = asked(&many.iter().map(String::as_str).collect::<Vec<_>>(), "").1;
        assert!(question.contains("f19\n  and 10 more\n") && !question.contains("f20"), "{question}");
    }
}
