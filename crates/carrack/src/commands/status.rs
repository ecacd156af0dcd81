//! `carrack status`: how submitted transfers are.

use std::io::{self, IsTerminal, Write};

use carrack_cluster::control::ControlError;
use carrack_cluster::records::TransferRecord;
use clap::Args;

use super::target_options::{Target, TargetArgs, control};
use super::wait::last;
use crate::background::{self, Background, Standing};
use crate::exit::{self, Exit};
use crate::transfer_report::{line, write_json, write_list, write_transfer};
use crate::trouble::Trouble;

/// Of all transfers, those that are not over are among the latest.
const LOOKED_AT: usize = 10_000;

/// Show a submitted transfer or a copy in the background, or all that are not over
#[derive(Debug, Args)]
#[command(after_long_help = exit::help())]
pub struct StatusArgs {
    /// Its ID, or the beginning of it; without it all that are not over are listed
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// Show it again whenever it changes (a copy in the background: its log at the end), until it is over; the exit code is its own then
    #[arg(long, short, requires = "id")]
    watch: bool,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: TargetArgs,
}

/// Shows it.
pub fn run(args: &StatusArgs) -> Exit {
    let background = Background::of_user();
    let copy = |id: &String| background.as_ref()?.find(id);
    if let Some(copy) = args.id.as_ref().and_then(copy) {
        return show_copy(&copy, args.watch, args.json);
    }
    let copies = match (&args.id, &background) {
        (None, Some(background)) => background.running(),
        _ => Vec::new(),
    };
    if let Err(trouble) = copies.iter().try_for_each(|copy| written(list_copy(copy, args.json)).map(drop)) {
        trouble.tell();
        return Exit::Nothing;
    }
    let shown = control(&args.target).and_then(|target| match (&args.id, args.watch) {
        (Some(id), true) => watch(&target, id, args.json),
        (Some(id), false) => show(&target, id, args.json),
        (None, _) => list(&target, args.json),
    });
    match shown {
        Ok(exit) => exit,
        // Who has no daemon needs none for copies in the background.
        Err(_) if !copies.is_empty() && !args.target.is_named() => Exit::Complete,
        Err(trouble) => {
            trouble.tell();
            Exit::Nothing
        }
    }
}

fn list_copy(copy: &Standing, as_json: bool) -> io::Result<()> {
    if as_json { background::show(copy, true) } else { writeln!(io::stdout(), "{}", copy.line()) }
}

/// One that this user has in the background.
fn show_copy(copy: &Standing, to_its_end: bool, as_json: bool) -> Exit {
    let shown = match to_its_end {
        true => background::wait(&copy.id),
        false => written(background::show(copy, as_json)),
    };
    shown.unwrap_or_else(|trouble| {
        trouble.tell();
        Exit::Nothing
    })
}

fn show(target: &Target, id: &str, as_json: bool) -> Result<Exit, Trouble> {
    let record = target.wait(target.control.transfer(id))?;
    let mut out = io::stdout().lock();
    written(match as_json {
        true => write_json(&[record], &mut out),
        false => write_transfer(&record, &mut out),
    })
}

fn list(target: &Target, as_json: bool) -> Result<Exit, Trouble> {
    let mut records = target.wait(target.control.transfers(LOOKED_AT, None))?;
    records.retain(|record| !record.state.is_over());
    write_all(&records, as_json)
}

/// Writes a list of transfers.
pub fn write_all(records: &[TransferRecord], as_json: bool) -> Result<Exit, Trouble> {
    let mut out = io::stdout().lock();
    written(match as_json {
        true => write_json(records, &mut out),
        false => write_list(records, &mut out),
    })
}

/// What came of writing.
pub fn written(result: io::Result<()>) -> Result<Exit, Trouble> {
    match result {
        Ok(()) => Ok(Exit::Complete),
        // A reader who leaves early has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Complete),
        Err(error) => Err(Trouble::new(format!("writing to stdout: {error}"))),
    }
}

fn watch(target: &Target, id: &str, as_json: bool) -> Result<Exit, Trouble> {
    let mut out = io::stdout().lock();
    // A terminal that can take its line back shows one line that changes.
    let is_live =
        !as_json && out.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let seen = |record: &TransferRecord| {
        let shown = match (as_json, is_live) {
            (true, _) => write_json(&[record], &mut out),
            (_, true) => write!(out, "\r\x1b[K{}", line(record)),
            _ => writeln!(out, "{}", line(record)),
        };
        let shown = shown.and_then(|()| out.flush());
        shown.map_err(|error| ControlError::Away(format!("writing to stdout: {error}")))
    };
    let record = target.wait(last(target, id, seen))?;
    let mut out = io::stdout().lock();
    if is_live {
        let _ = writeln!(out, "\r\x1b[K");
    }
    if !as_json {
        written(write_transfer(&record, &mut out))?;
    }
    Ok(Exit::of_record(&record))
}
