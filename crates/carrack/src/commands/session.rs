//! `carrack session`: the far end of a transfer, started over ssh by `carrack cp`.
//!
//! stdin and stdout are the control channel. They are replaced first of all, so that no stray print can reach
//! the channel: later output to stdout goes to stderr.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;

use carrack_engine::{
    AbortHandle, ControlChannel, ProcessOwnerAccessPolicy, SessionError, TransferOutcome, serve,
};
use carrack_model::ProtectionLevel;
use carrack_options::MetaSchedulerChoice;
use clap::Args;
use rustix::{io::fcntl_dupfd_cloexec, stdio};

use crate::exit::{ExitReason, ExitStatus};
use crate::output_watch::{self, StatusOutput};
use crate::register::tuner_store::TunerStore;
use crate::remote::tuner_endpoints::TransferEndNames;
use crate::sharing::grant_exchange;
use crate::signals::{self, OutputSignals};
use crate::user_error::UserError;

/// The lowest number of the channel's descriptors: far from those of standard streams.
const FIRST_FD: i32 = 10;

/// Answer one transfer
#[derive(Debug, Args)]
pub struct SessionCommandArgs {
    /// The lowest protection level of data
    #[arg(long, value_name = "LEVEL", default_value_t = ProtectionLevel::Private)]
    protection: ProtectionLevel,

    /// The meta-scheduler to ask here
    #[arg(long, value_name = "WHO", default_value = "auto")]
    sharing: MetaSchedulerChoice,
}

/// Serves one transfer.
pub fn run(args: &SessionCommandArgs) -> ExitStatus {
    if io::stdin().is_terminal() {
        let trouble = UserError::new("carrack session speaks with another carrack, not with people");
        trouble.hint("use `carrack cp`; it starts the session over ssh").print();
        return ExitStatus::Usage;
    }
    match prepare_session() {
        Ok((input, output, abort)) => {
            exit_status_of(&serve(ControlChannel::Pipes { input, output }, &access_policy(args), &abort))
        }
        Err(error) => {
            UserError::new(format!("the session can't start: {error}")).print();
            ExitStatus::Nothing
        }
    }
}

/// Returns the access policy of a session over ssh. Its tuner's history is kept under the caller's address:
/// if this end reads, the caller is the sink.
fn access_policy(args: &SessionCommandArgs) -> ProcessOwnerAccessPolicy {
    let access_policy =
        ProcessOwnerAccessPolicy::over_ssh(args.protection).with_sharing(grant_exchange(&args.sharing));
    let sites = TransferEndNames::of_session(access_policy.caller());
    access_policy.with_history(TunerStore::of_user().map(|store| store.history(sites)))
}

fn prepare_session() -> io::Result<(OwnedFd, OwnedFd, AbortHandle)> {
    let (input, output) = take_standard_streams()?;
    let abort = AbortHandle::new()?;
    signals::watch_signals(abort.clone(), || ())?;
    output_watch::start(OutputSignals::watch()?, abort.clone(), None, FarEndOutput(abort.clone()))?;
    Ok((input, output, abort))
}

/// The output of a far end to stderr, which ssh passes to the user.
struct FarEndOutput(AbortHandle);

impl StatusOutput for FarEndOutput {
    fn show_status(&self, _is_requested: bool) {
        let requests = self.0.outstanding_requests();
        self.warn(format!("waits for {}", requests.as_deref().unwrap_or("no storage")));
    }

    fn warn(&self, text: String) {
        // ssh may be gone.
        let _ = writeln!(io::stderr(), "carrack session: {text}");
    }
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
fn exit_status_of(outcome: &TransferOutcome) -> ExitStatus {
    let end = match &outcome.result {
        Ok(()) => ExitReason::Reached,
        Err(SessionError::Version(_)) => return ExitStatus::OtherVersion,
        Err(error) if error.is_interrupted() => ExitReason::Interrupted,
        Err(_) => ExitReason::Failed,
    };
    ExitStatus::of_transfer(end, &outcome.summary, outcome.summary.entries_done())
}
