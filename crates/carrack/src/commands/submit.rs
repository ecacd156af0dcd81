//! `carrack submit`: hands a transfer to a machine's queue or to a fleet.

use std::io::{self, Write};

use carrack_options::SubmittedArgs;
use carrack_register::transfer_records::{SiteLocation, TransferSubmission, Umask};
use clap::Args;
use rustix::fs::Mode;
use rustix::process::umask;

use super::wait::await_end;
use crate::exit::{self, ExitStatus};
use crate::options::start_time::StartTimeArgs;
use crate::options::transfer_server::{ServerConnectionArgs, connect_to_register};
use crate::options::unsupported::UnsupportedOptions;
use crate::user_error::UserError;

/// Submit a transfer to the queue of a machine or to a fleet
///
/// It is carried out when its turn comes.
///
/// SRC and DST are SITE:/path; the site `local` is the machine of the daemon that is asked. They have the
/// same meaning as for `carrack cp -r`, or with --sync as for `carrack sync`: a directory is copied with
/// everything in it, its contents with a slash behind it. The transfer's ID goes to stdout; `carrack status`,
/// `wait`, `pause`, `resume` and `cancel` take it. An option that a queue or a fleet can't carry out is
/// refused at once, with advice. In a machine's queue a copy is made with your umask; limits of a copy limit
/// each pair of movers in a fleet. The options that are not its own are those of `carrack cp` and `carrack
/// sync`.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct SubmitArgs {
    /// The source, SITE:/path
    #[arg(value_name = "SRC")]
    source: SiteLocation,

    /// The destination, SITE:/path
    #[arg(value_name = "DST")]
    destination: SiteLocation,

    /// Priority, 0 to 9: more is sooner
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,

    /// A text by which to recognise it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,

    /// Return when it is over, with its exit code
    ///
    /// The code is that of the same `carrack cp`.
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    when: StartTimeArgs,

    #[command(flatten)]
    submitted: SubmittedArgs,

    #[command(flatten)]
    not_here: UnsupportedOptions,

    #[command(flatten)]
    target: ServerConnectionArgs,
}

impl SubmitArgs {
    fn submission(&self, not_before_ms: Option<u64>) -> Result<TransferSubmission, UserError> {
        let mut options = self.submitted.options(self.target.executor_kind())?;
        if let Some(deadline_ms) = self.when.rate_claim_deadline_ms() {
            options = options.with("deadline", format!("@{}", deadline_ms.div_ceil(1_000)));
        }
        Ok(TransferSubmission {
            source: self.source.clone(),
            destination: self.destination.clone(),
            priority: self.priority,
            label: self.label.clone(),
            not_before_ms,
            umask: Some(own_umask()),
            options,
        })
    }
}

/// Returns the umask of this process, which creates no files meanwhile.
fn own_umask() -> Umask {
    let own = umask(Mode::empty());
    umask(own);
    Umask::from_bits(own.as_raw_mode())
}

/// Submits the transfer, and waits for its end if asked to.
pub fn run(args: &SubmitArgs) -> ExitStatus {
    ExitStatus::of_command_result(submit(args))
}

fn submit(args: &SubmitArgs) -> Result<ExitStatus, UserError> {
    args.not_here.check()?;
    let start = args.when.start()?;
    let target = connect_to_register(&args.target)?;
    let record = target.wait(target.control.submit(&target.user, args.submission(start.not_before_ms)?))?;
    if !start.words.is_empty() {
        let _ = writeln!(io::stderr(), "carrack: {}", start.words);
    }
    // The transfer is submitted even if the ID can't be written.
    let _ = writeln!(io::stdout(), "{}", record.id);
    if args.wait { await_end(&target, &record.id) } else { Ok(ExitStatus::Complete) }
}

const EXAMPLES: &str = "\
Examples:
  carrack submit local:/scratch/run7 local:/archive/
  id=$(carrack submit --priority 7 local:/a/ alcf:/a); carrack wait $id
  carrack submit --server https://site.org --token-file token a:/x b:/y
  carrack submit --when=best --deadline 18h --expect 2h --storage lfs01 \\
      --config carrack.toml local:/lustre/a/ local:/archive/a

";
