//! `carrack session`: the far end of a transfer, started over ssh by `carrack cp`.
//!
//! stdin and stdout are the control channel. They are replaced first of all, so that no stray print can reach
//! the channel: later output to stdout goes to stderr.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;

use carrack_engine::{Abort, Channel, Outcome, OwnHouse, serve};
use carrack_model::Protection;
use carrack_options::Sharer;
use clap::Args;
use rustix::{io::fcntl_dupfd_cloexec, stdio};

use crate::exit::{End, Exit};
use crate::register::tuner_store::TunerStore;
use crate::remote::sites::Sites;
use crate::sharing::sharing;
use crate::signals;
use crate::trouble::Trouble;

/// The lowest number of the channel's descriptors: far from those of standard streams.
const FIRST_FD: i32 = 10;

/// Answer one transfer
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The lowest protection level of data
    #[arg(long, value_name = "LEVEL", default_value_t = Protection::Private)]
    protection: Protection,

    /// The meta-scheduler to ask here
    #[arg(long, value_name = "WHO", default_value = "auto")]
    sharing: Sharer,
}

/// Serves one transfer.
pub fn run(args: &SessionArgs) -> Exit {
    if io::stdin().is_terminal() {
        let trouble = Trouble::new("carrack session speaks with another carrack, not with people");
        trouble.hint("use `carrack cp`; it starts the session over ssh").tell();
        return Exit::Usage;
    }
    match prepare() {
        Ok((input, output, abort)) => end(&serve(Channel::Pipes { input, output }, &house(args), &abort)),
        Err(error) => {
            Trouble::new(format!("the session can't start: {error}")).tell();
            Exit::Nothing
        }
    }
}

/// Returns the access policy of a session over ssh. Its tuner's history is kept under the caller's address:
/// if this end reads, the caller is the sink.
fn house(args: &SessionArgs) -> OwnHouse {
    let house = OwnHouse::over_ssh(args.protection).with_sharing(sharing(&args.sharing));
    let sites = Sites::of_session(house.caller());
    house.with_history(TunerStore::of_user().map(|store| store.history(sites)))
}

fn prepare() -> io::Result<(OwnedFd, OwnedFd, Abort)> {
    let (input, output) = take_standard_streams()?;
    let abort = Abort::new()?;
    signals::watch(abort.clone(), || ())?;
    Ok((input, output, abort))
}

/// Returns the control channel; `/dev/null` and stderr replace it from now on.
fn take_standard_streams() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_FD)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_FD)?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok((input, output))
}

/// Returns the exit code. Errors were sent over the control channel, and the near end prints them.
fn end(outcome: &Outcome) -> Exit {
    let end = match &outcome.result {
        Ok(()) => End::Reached,
        Err(error) if error.is_interrupted() => End::Interrupted,
        Err(_) => End::Failed,
    };
    Exit::of_transfer(end, &outcome.summary, outcome.summary.entries_done())
}
