//! `carrack resume`: lists the copies that were begun and not completed, and runs one again.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use carrack_model::escape;
use clap::Args;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;

use super::orders;
use crate::exit::{self, ExitStatus};
use crate::lifetime::format_moment;
use crate::options::transfer_server::ServerConnectionArgs;
use crate::register::copies::ArgumentText;
use crate::register::process::RecordedProcessLiveness;
use crate::register::{CopyStore, LocalCopyRecord, no_register_error};
use crate::user_error::UserError;
use crate::views::json::write_line as write_json_line;
use crate::views::output::stdout_error;

/// The fewest digits by which an ID may be abbreviated.
const PREFIX_MIN: usize = 4;

/// Digits of a submitted transfer's ID; a copy's has 32.
const SUBMITTED_DIGITS: usize = 16;

/// List unfinished copies, or run one again
///
/// An ID of exactly 16 digits is a submitted transfer's (`carrack submit`): its queue or fleet resumes it, or
/// tries its failed files again. Any other is a copy's of this user.
///
/// The command that `carrack cp` was runs again in its directory: files that the destination has already do
/// not travel again. Listed are copies that have not ended with exit code 0; `carrack transfers` lists all.
/// Copies are recorded in ~/.local/state/carrack/transfers (XDG_STATE_HOME); a command with --token can't be
/// run again, as its secret is not kept.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct ResumeArgs {
    /// Its ID, or the first digits; without it all are listed
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// Remove it from the list, and do not run it
    #[arg(long, requires = "id")]
    forget: bool,

    /// List one JSON object a line
    #[arg(long, conflicts_with = "id")]
    json: bool,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

/// Lists copies, runs one again, or removes one from the register.
pub fn run(args: &ResumeArgs) -> ExitStatus {
    let done = match &args.id {
        None => list(args.json),
        Some(id) if !args.forget && is_submitted_id(id) => {
            return orders::send_order(
                id,
                &args.target,
                carrack_register::transfer_operations::TransferControlOrder::Resume,
            );
        }
        Some(id) if args.forget => forget(id),
        Some(id) => exec_copy(id),
    };
    ExitStatus::of_command_result(done)
}

fn is_submitted_id(id: &str) -> bool {
    id.len() == SUBMITTED_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn copies() -> Result<CopyStore, UserError> {
    CopyStore::of_user().ok_or_else(no_register_error)
}

/// Returns the copies that are not complete.
fn incomplete_copies(copies: &CopyStore) -> Result<Vec<LocalCopyRecord>, UserError> {
    let mut all = copies
        .list()
        .map_err(|error| UserError::new(format!("the list of copies can't be read: {error}")))?;
    all.retain(|copy| !copy.is_complete());
    Ok(all)
}

fn list(as_json: bool) -> Result<ExitStatus, UserError> {
    let mut out = io::stdout().lock();
    for transfer in incomplete_copies(&copies()?)?.into_iter().filter(|copy| !copy.arguments.is_empty()) {
        let written = if as_json {
            write_json_line(&ResumableLine::of(&transfer), &mut out)
        } else {
            write_line(&transfer, &mut out)
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitStatus::Nothing),
            Err(error) => return Err(stdout_error(&error)),
            Ok(()) => {}
        }
    }
    Ok(ExitStatus::Complete)
}

fn write_line(transfer: &LocalCopyRecord, out: &mut impl Write) -> io::Result<()> {
    let life = match transfer.process_liveness() {
        RecordedProcessLiveness::Running => format!("running, process {}", transfer.pid()),
        RecordedProcessLiveness::Ended => "not running".to_owned(),
        RecordedProcessLiveness::Elsewhere => format!("begun on {}", escape(transfer.host().as_bytes())),
    };
    let began = format_moment(i64::try_from(transfer.started).unwrap_or(i64::MAX));
    writeln!(
        out,
        "{}  {began}  {life}\n    in {}: {}",
        transfer.id,
        escaped_argument(&transfer.directory),
        command_line(transfer)
    )
}

/// Returns the command line as a shell would take it, if it is text.
fn command_line(transfer: &LocalCopyRecord) -> String {
    let words: Vec<String> = transfer
        .arguments
        .iter()
        .map(|word| shell_words::quote(&escaped_argument(word)).into_owned())
        .collect();
    words.join(" ")
}

fn escaped_argument(word: &ArgumentText) -> String {
    word.get().map_or_else(|| "?".to_owned(), |word| escape(word.as_bytes()))
}

#[derive(Serialize)]
struct ResumableLine<'a> {
    id: &'a str,
    started: u64,
    state: &'static str,
    host: &'a str,
    pid: u32,
    directory: &'a ArgumentText,
    arguments: &'a [ArgumentText],
}

impl<'a> ResumableLine<'a> {
    fn of(copy: &'a LocalCopyRecord) -> ResumableLine<'a> {
        ResumableLine {
            id: &copy.id,
            started: copy.started,
            state: match copy.process_liveness() {
                RecordedProcessLiveness::Running => "running",
                RecordedProcessLiveness::Ended => "ended",
                RecordedProcessLiveness::Elsewhere => "elsewhere",
            },
            host: copy.host(),
            pid: copy.pid(),
            directory: &copy.directory,
            arguments: &copy.arguments,
        }
    }
}

/// Returns the copy whose ID begins with these digits.
fn find(copies: &CopyStore, id: &str) -> Result<LocalCopyRecord, UserError> {
    let wanted = id.to_ascii_lowercase();
    let mut found: Vec<LocalCopyRecord> =
        incomplete_copies(copies)?.into_iter().filter(|transfer| transfer.id.starts_with(&wanted)).collect();
    let shown = escape(id.as_bytes());
    match (found.pop(), found.is_empty(), wanted.len() >= PREFIX_MIN) {
        (Some(transfer), true, true) => Ok(transfer),
        (Some(_), false, true) => Err(UserError::new(format!("{shown} is the beginning of several copies"))
            .hint("give more of its digits; `carrack resume` lists them")),
        (_, _, false) => Err(UserError::new(format!("{shown} is too short to name a copy"))
            .hint("`carrack resume` lists them")),
        (None, ..) => Err(UserError::new(format!("there is no copy {shown}"))
            .hint("`carrack resume` lists those that did not come to their end")),
    }
}

fn forget(id: &str) -> Result<ExitStatus, UserError> {
    let copies = copies()?;
    let transfer = find(&copies, id)?;
    copies.forget(&transfer).map_err(|error| UserError::new(format!("it can't be forgotten: {error}")))?;
    Ok(ExitStatus::Complete)
}

/// Executes the command in place of this process; returns only if that fails.
fn exec_copy(id: &str) -> Result<ExitStatus, UserError> {
    let transfer = find(&copies()?, id)?;
    match transfer.process_liveness() {
        RecordedProcessLiveness::Ended => {}
        RecordedProcessLiveness::Running => {
            let message = format!("this copy is running, as process {}", transfer.pid());
            return Err(UserError::new(message).hint("wait for it, or end it"));
        }
        RecordedProcessLiveness::Elsewhere => {
            let host = escape(transfer.host().as_bytes());
            return Err(UserError::new(format!("this copy was begun on {host}, and may be running there"))
                .hint(format!("run `carrack resume {}` on {host}", transfer.id)));
        }
    }
    if transfer.arguments.is_empty() {
        let message = "this copy's command is not kept: it had a secret in it, or read from a pipe";
        return Err(UserError::new(message).hint("give the command again, or forget it with --forget"));
    }
    let words = transfer.arguments.iter().map(ArgumentText::get).collect::<Option<Vec<_>>>();
    let (Some(directory), Some([program, arguments @ ..])) = (transfer.directory.get(), words.as_deref())
    else {
        return Err(
            UserError::new("what is remembered of this copy can't be read").hint("forget it with --forget")
        );
    };
    let arguments = if transfer.standing.makes_destination {
        with_no_target_directory(arguments)
    } else {
        arguments.to_vec()
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program).args(&arguments).current_dir(&directory);
    let error = command.exec();
    let shown = escape(directory.as_bytes());
    Err(UserError::new(format!("it can't be run again in {shown}: {error}")))
}

/// Returns the arguments of a copy that makes its destination so that they copy to the same place once it
/// exists.
fn with_no_target_directory(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = arguments.to_vec();
    if let Some(command) = words.iter().position(|word| word == "cp") {
        words.insert(command + 1, "--no-target-directory".into());
    }
    words
}

const EXAMPLES: &str = "\
Examples:
  carrack resume                    what was begun and has not ended
  carrack resume 3f9a               run that one again
  carrack resume --forget 3f9a      it is not wanted any more
  carrack resume 0123456789abcdef   go on with one that was submitted

";
