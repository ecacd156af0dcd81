//! The processes of a fleet: `carrack mover`, `carrack manager`, `carrack api`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carrack_cluster::bus::NatsBus;
use carrack_cluster::client::FleetUserClient;
use carrack_cluster::error::BusError;
use carrack_cluster::manager::{self, ManagerOptions};
use carrack_cluster::mover::{self, MoverError, MoverOptions, UserMessageCallback};
use carrack_engine::{SpillDirectory, SpillSettings};
use carrack_model::{ProtectionLevel, text_without_errno};
use carrack_options::PortRange;
use carrack_plan::fleet::MoverPairLimits;
use carrack_register::transfer_records::is_name;
use carrack_service::ServeError;
use carrack_service::api::{ApiIssuer, ApiListener, ApiPlan, ApiServerConfigError, ApiServices, serve_api};
use carrack_service::sharing::site_sharing;
use carrack_sharing::SiteSharing;
use clap::{Args, ValueHint};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::movers::parse_leftovers_age;
use crate::exit::ExitStatus;
use crate::lifetime;
use crate::options::nats::NatsArgs;
use crate::size;
use crate::user_error::UserError;

/// Run a mover of a fleet: read and write for its transfers
///
/// Runs on a data transfer node, registers itself with the fleet's NATS, and obeys the managers: it takes
/// chunks of transfers whose source it reaches and sends them to movers of the other site, and writes what
/// these send. Movers join and leave at any time; after SIGTERM a mover finishes the work that it has begun,
/// after a second one it ends at once.
#[derive(Debug, Args)]
pub struct MoverArgs {
    /// The site that it belongs to: movers of one site reach the same file systems
    #[arg(long, value_name = "NAME")]
    site: String,

    /// A directory that it may read from and write to, with everything below; several may be named
    #[arg(long, value_name = "PREFIX", required = true, value_hint = ValueHint::DirPath)]
    path: Vec<PathBuf>,

    /// Address at which it listens for other movers
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:0")]
    listen: SocketAddr,

    /// Address at which other movers reach it: an address or a host's name, with or without a port; several
    /// may be named, the best first [default: where it listens, or this host's name]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,

    /// TCP ports for data connections [default: any]
    #[arg(long, value_name = "LO-HI")]
    ports: Option<PortRange>,

    /// Pairs that it takes part in at the same time, at most
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pairs: u32,

    /// Flash on which each of its pairs may put objects aside while the other mover, or its own storage, does
    /// not take them: a directory and the bytes that it may hold; several may be named
    #[arg(long, value_name = "DIR:SIZE", value_hint = ValueHint::DirPath)]
    spill: Vec<SpillDirectory>,

    /// Most bytes that each of its pairs writes to flash in all: it wears out
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "spill")]
    spill_budget: Option<u64>,

    /// Threads of a scan
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    scan_threads: u16,

    /// The lowest protection level of data that is sent to it: private, safe, clear
    #[arg(long, value_name = "LEVEL", default_value = "private")]
    protection: ProtectionLevel,

    /// For transfers that ask for it, set owners and groups, set-user-ID and set-group-ID bits and the
    /// attributes that only root may set, and make devices
    ///
    /// Without it all of that is reported as lost. With it every user with the right to submit can have any
    /// file of any user made under --path: for movers that run as root, among users who are trusted with
    /// that.
    #[arg(long)]
    keep_owners: bool,

    /// Let objects go to and from other movers over a fabric (RMA), where both were started with this option
    /// and share a network of that kind, or a transfer names a provider (submit --fabric)
    ///
    /// A fabric's endpoints do not authenticate their peers: for networks that only movers are on. Objects
    /// are sealed as over TCP.
    #[arg(long)]
    allow_fabric: bool,

    #[command(flatten)]
    nats: NatsArgs,
}

/// Run a manager of a fleet: own its transfers, and assign movers
///
/// Any number of managers may run. Each transfer is owned by one; if that ends, another takes over within
/// seconds. A manager touches no data, and keeps its state only on NATS.
#[derive(Debug, Args)]
pub struct ManagerArgs {
    /// Copies of everything on NATS [default: 3 where there are three servers, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: Option<u8>,

    /// Pairs of all transfers of one user, at most
    #[arg(long, value_name = "N")]
    pairs_per_user: Option<u32>,

    /// Pairs of all transfers from and to a site, at most; several may be named
    #[arg(long, value_name = "SITE=N", value_parser = parse_limit)]
    pairs_at: Vec<(String, u32)>,

    /// Time for which transfers that are over are remembered, such as 12h or 90d; the rest of their work goes
    /// with them
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = lifetime::parse)]
    keep_history: Duration,

    /// Time for which journals and temporary files of a transfer that failed or was cancelled stay at the
    /// destination, where it resumes from them if it is submitted again; then a mover of the site removes
    /// them: two minutes at least (`carrack movers clean` does it before)
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_leftovers_age)]
    keep_leftovers: Duration,

    /// A site that this manager is near to; several may be named. Transfers whose source is there it takes at
    /// once, and those of other sites a second later, if no manager near that site has taken them [default:
    /// near to all]
    #[arg(long, value_name = "SITE")]
    near: Vec<String>,

    /// Share out the storage targets of a site, such as its OSTs, between the transfers of its movers: where
    /// several use one target they take turns. Several sites may be named; of several managers one does it
    /// for each. FILE has a `[sharing]` as that of `carrack serve`: bursts, classes, and where the load of
    /// computation is measured
    #[arg(long, value_name = "SITE[=FILE]", value_parser = parse_share)]
    share: Vec<TargetSharingSite>,

    #[command(flatten)]
    nats: NatsArgs,
}

/// Run the HTTP API of a fleet
///
/// `carrack submit`, `status` and the other commands for transfers ask it.
///
/// docs/api.md has the routes; the description for programs is at /v1/openapi.json. People are known by
/// tokens (`carrack keys token --scope transfers.modify`), on a Unix socket by their accounts.
#[derive(Debug, Args)]
pub struct ApiServerArgs {
    /// Address at which it listens; without --certificate on this host only
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,

    /// A Unix socket at which it listens
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,

    /// Its certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key", value_hint = ValueHint::FilePath)]
    certificate: Option<PathBuf>,

    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", requires = "certificate", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,

    /// The issuer of tokens that it accepts: the issuer's name, the audience that tokens must name, and the
    /// file with its public keys
    #[arg(long, value_name = "NAME,AUDIENCE,FILE", value_parser = parse_issuer)]
    issuer: Vec<ApiIssuer>,

    /// File with the ids of tokens that were taken back, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    revoked_tokens: Option<PathBuf>,

    #[command(flatten)]
    nats: NatsArgs,
}

/// A site whose targets are shared out, and the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TargetSharingSite {
    site: String,
    file: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<TargetSharingSite, String> {
    let (site, file) = text.split_once('=').map_or((text, None), |(site, file)| (site, Some(file)));
    if !is_name(site) {
        return Err(format!("{site:?} can't name a site: letters, digits, '-' and '_' can"));
    }
    Ok(TargetSharingSite { site: site.to_owned(), file: file.map(PathBuf::from) })
}

impl ManagerArgs {
    fn shares(&self) -> Result<Vec<SiteSharing>, UserError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = self.share.iter().find(|share| !names.insert(&share.site)) {
            return Err(
                UserError::new(format!("--share names {} twice", twice.site)).hint("name each site once")
            );
        }
        let shares = self.share.iter().map(|TargetSharingSite { site, file }| match file {
            Some(file) => site_sharing(site, file).map_err(|error| config_user_error(&error)),
            None => Ok(SiteSharing::by_default(site)),
        });
        shares.collect()
    }
}

fn config_user_error(error: &ServeError) -> UserError {
    UserError::explained(error, Some(error.hint()))
}

fn parse_limit(text: &str) -> Result<(String, u32), String> {
    let (site, count) = text.split_once('=').ok_or("write SITE=N")?;
    Ok((site.to_owned(), count.parse().map_err(|error| format!("{count:?}: {error}"))?))
}

fn parse_issuer(text: &str) -> Result<ApiIssuer, String> {
    match text.splitn(3, ',').collect::<Vec<_>>()[..] {
        [name, audience, key] if !name.is_empty() && !audience.is_empty() => {
            Ok(ApiIssuer { name: name.into(), audience: audience.into(), key: key.into() })
        }
        _ => Err("write NAME,AUDIENCE,FILE".into()),
    }
}

/// Writes to stderr, as a daemon's log.
fn stderr_message_callback() -> UserMessageCallback {
    Arc::new(|text| eprintln!("carrack: {}", text_without_errno(&text)))
}

fn report_outcome(ended: Result<(), UserError>) -> ExitStatus {
    match ended {
        Ok(()) => ExitStatus::Complete,
        Err(trouble) => {
            trouble.print();
            ExitStatus::Nothing
        }
    }
}

pub fn bus_user_error(error: &BusError) -> UserError {
    UserError::explained(error, error.hint())
}

pub fn runtime() -> Result<Runtime, UserError> {
    Runtime::new().map_err(|error| UserError::new(format!("starting threads: {error}")))
}

fn signal_stream(kind: SignalKind) -> Result<Signal, UserError> {
    signal(kind).map_err(|error| UserError::new(format!("waiting for signals: {error}")))
}

/// Returns a channel that turns true at the first signal; the second signal ends the process.
fn stop_signal_receiver() -> Result<watch::Receiver<bool>, UserError> {
    let mut term = signal_stream(SignalKind::terminate())?;
    let mut int = signal_stream(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        for is_first in [true, false] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if !is_first {
                std::process::exit(i32::from(ExitStatus::Interrupted.code()));
            }
            let _ = stop.send(true);
        }
    });
    Ok(stopped)
}

/// Runs a mover until SIGTERM.
pub fn run_mover(args: &MoverArgs) -> ExitStatus {
    report_outcome(args.nats.options("mover").and_then(|bus| {
        let options = MoverOptions {
            bus,
            site: args.site.clone(),
            paths: args.path.clone(),
            listen: args.listen,
            addresses: args.address.clone(),
            ports: args.ports.clone().map(|ports| ports.0),
            pairs_max: args.pairs,
            scan_threads: args.scan_threads.into(),
            spill: SpillSettings::of_either_end(&args.spill, args.spill_budget),
            lanes: 1,
            protection_min: args.protection,
            keep_owners: args.keep_owners,
            allows_fabric: args.allow_fabric,
            say: stderr_message_callback(),
        };
        let runtime = runtime()?;
        let ended = runtime.block_on(async {
            mover::run(options, stop_signal_receiver()?).await.map_err(|error| match error {
                MoverError::Bus(error) => bus_user_error(&error),
                MoverError::Options { message, hint } => UserError::new(message).hint(hint),
                error @ MoverError::System { .. } => UserError::new(error.to_string()),
            })
        });
        // This does not wait for a thread whose storage hangs.
        runtime.shutdown_background();
        ended
    }))
}

/// Runs a manager until SIGTERM.
pub fn run_manager(args: &ManagerArgs) -> ExitStatus {
    report_outcome(args.nats.options("manager").and_then(|bus| {
        let options = ManagerOptions {
            bus,
            replicas: args.replicas.map(usize::from),
            limits: MoverPairLimits {
                per_user: args.pairs_per_user,
                users: BTreeMap::new(),
                sites: args.pairs_at.iter().cloned().collect(),
            },
            keep_history: args.keep_history,
            keep_leftovers: args.keep_leftovers,
            near: args.near.clone(),
            shares: args.shares()?,
            say: stderr_message_callback(),
        };
        runtime()?.block_on(async {
            manager::run(options, stop_signal_receiver()?).await.map_err(|error| bus_user_error(&error))
        })
    }))
}

fn api_config_user_error(error: &ApiServerConfigError) -> UserError {
    UserError::explained(error, Some(error.hint()))
}

/// Serves the API until SIGTERM.
pub fn run_api(args: &ApiServerArgs) -> ExitStatus {
    report_outcome(args.nats.options("api").and_then(|bus| {
        if args.listen.is_empty() && args.socket.is_none() {
            return Err(
                UserError::new("nothing to listen at").hint("name an address with --listen, or a --socket")
            );
        }
        let plan = ApiPlan {
            listen: args.listen.clone(),
            socket: args.socket.clone(),
            identity: args.certificate.clone().zip(args.key.clone()),
            issuers: args.issuer.clone(),
            revoked: args.revoked_tokens.clone(),
        };
        runtime()?.block_on(async {
            let mut stop = stop_signal_receiver()?;
            let auth = plan.auth().map_err(|error| api_config_user_error(&error))?;
            let listeners = plan.listen().await.map_err(|error| api_config_user_error(&error))?;
            for address in listeners.iter().filter_map(ApiListener::address) {
                eprintln!("carrack: listening at {address}");
            }
            let bus = NatsBus::connect(&bus).await.map_err(|error| bus_user_error(&error))?;
            let control = FleetUserClient::new(bus).await.map_err(|error| bus_user_error(&error))?;
            let end = async move { drop(stop.changed().await) };
            serve_api(
                listeners,
                ApiServices { control: Arc::new(control), sharing: None },
                Arc::new(auth),
                end,
            )
            .await
            .map_err(|error| UserError::new(format!("serving: {error}")))
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_site_with_a_file_or_without() {
        let site = "east".to_owned();
        assert_eq!(parse_share("east"), Ok(TargetSharingSite { site: site.clone(), file: None }));
        let file = Some(PathBuf::from("/a=b.toml"));
        assert_eq!(parse_share("east=/a=b.toml"), Ok(TargetSharingSite { site, file }));
        assert!(parse_share("").is_err() && parse_share("a b=/x").is_err());
    }
}
