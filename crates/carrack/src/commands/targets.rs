//! `carrack targets`: storage targets that transfers share, with the holders of grants and those that wait.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::sharing::{SiteTargetsRequestError, site_targets};
use carrack_layout::FileSystems;
use carrack_model::escape;
use carrack_plan::grants::SharedTargetStatus;
use carrack_register::transfer_operations::TransferOperationError;
use carrack_service::DEFAULT_SHARING_SOCKET;
use carrack_service::api::{ApiClient, ServerAddress};
use clap::{Args, ValueHint};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::exit::{self, ExitStatus};
use crate::options::nats::NatsArgs;
use crate::sharing::sockets_of_this_machine;
use crate::user_error::UserError;
use crate::views::json::write_lines;
use crate::views::output::write_outcome;
use crate::views::targets::write_targets;

/// Show the users of shared storage targets, and those that wait
///
/// Only targets that a running transfer asks for are known, and those whose load is measured. docs/sharing.md
/// describes the order of grants.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct TargetsArgs {
    /// A file system's name, such as lfs01, a target's, or a path on the file system; without it all are
    /// listed
    #[arg(value_name = "FS", value_hint = ValueHint::AnyPath)]
    file_system: Option<OsString>,

    /// Write a JSON object a line for each
    #[arg(long)]
    json: bool,

    /// The Unix socket of the daemon that shares them out [default: the daemon of this machine, at
    /// /run/carrack/sharing.sock, else $XDG_RUNTIME_DIR/carrack/sharing.sock]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,

    /// Show those of a fleet's site, which the site's manager shares out (`carrack manager --share SITE`):
    /// asked over --nats
    #[arg(long, value_name = "SITE", conflicts_with = "socket")]
    site: Option<String>,

    #[command(flatten)]
    nats: NatsArgs,
}

/// Prints the targets.
pub fn run(args: &TargetsArgs) -> ExitStatus {
    ExitStatus::of_command_result(show(args).map_err(UserError::escaped))
}

fn show(args: &TargetsArgs) -> Result<ExitStatus, UserError> {
    let file_system = args.file_system.as_deref().map(file_system_name).transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| UserError::new(format!("preparing the connection: {error}")))?;
    let targets = match &args.site {
        Some(site) => {
            runtime.block_on(fetch_site_targets(&args.nats.options("targets")?, site, &file_system))?
        }
        None => runtime.block_on(fetch_machine_targets(args, &file_system))?,
    };
    let mut out = io::stdout().lock();
    write_outcome(if args.json { write_lines(&targets, &mut out) } else { write_targets(&targets, &mut out) })
}

async fn fetch_machine_targets(
    args: &TargetsArgs,
    file_system: &str,
) -> Result<Vec<SharedTargetStatus>, UserError> {
    let socket = args.socket.clone().or_else(|| sockets_of_this_machine().next());
    let server = ServerAddress::Unix(socket.unwrap_or_else(|| DEFAULT_SHARING_SOCKET.into()));
    let client = ApiClient::new(server, String::new(), None);
    client.targets(file_system).await.map_err(|error| operation_user_error(&error))
}

async fn fetch_site_targets(
    nats: &BusOptions,
    site: &str,
    file_system: &str,
) -> Result<Vec<SharedTargetStatus>, UserError> {
    let asked = async { site_targets(&NatsBus::connect(nats).await?, site, file_system).await };
    asked.await.map_err(|error: SiteTargetsRequestError| UserError::explained(&error, error.hint()))
}

fn path_error(shown: &str, error: &io::Error) -> UserError {
    UserError::new(format!("{shown}: {error}"))
        .hint("name a path that is there, or a file system such as lfs01")
}

/// Returns the name of the file system. An argument that begins as a path does is one: a file system may be
/// mounted under any name.
fn file_system_name(words: &OsStr) -> Result<String, UserError> {
    let bytes = words.as_bytes();
    if !bytes.starts_with(b"/") && !bytes.starts_with(b".") {
        return Ok(words.to_string_lossy().into_owned());
    }
    let path = Path::new(words);
    let shown = escape(bytes);
    let held = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let held = held.map_err(|errno| path_error(&shown, &errno.into()))?;
    let file_systems = FileSystems::new(&[]).map_err(|error| UserError::new(error.to_string()))?;
    let file_system =
        file_systems.file_system_of(held.as_fd()).map_err(|error| path_error(&shown, &error))?;
    let name = file_system.shared_name().map(str::to_owned);
    name.ok_or_else(|| {
        let trouble = UserError::new(format!("{shown} lies on nothing that transfers could share"));
        trouble.hint("`carrack layout` shows what it lies on")
    })
}

fn operation_user_error(error: &TransferOperationError) -> UserError {
    let trouble = UserError::new(error.to_string());
    match error {
        TransferOperationError::Refused { hint, .. } if !hint.is_empty() => trouble.hint(hint.clone()),
        TransferOperationError::Away(_) => {
            trouble.hint("`carrack serve` with a [sharing] has to run; --socket names another place")
        }
        _ => trouble,
    }
}

const EXAMPLES: &str = "\
Examples:
  carrack targets lfs01
  carrack targets --site east --nats nats://nats1.example.org
  carrack targets --json /lustre/project | jq '.waiting[].client'

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_and_a_path_is_looked_at() {
        assert_eq!(file_system_name(OsStr::new("lfs01/OST0007")).unwrap(), "lfs01/OST0007");
        let trouble = file_system_name(OsStr::new("/no/such/path")).unwrap_err();
        assert!(trouble.message.contains("No such file") && trouble.hint.is_some(), "{trouble}");
    }
}
