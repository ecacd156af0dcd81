//! A mover (Y1): a process on a data transfer node that reads or writes for transfers of others.
//!
//! It registers itself, follows the pairs' bucket (`pair`, `scan`), and lets other movers write (`doorman`).
//! It makes no decisions.

mod access_policy;
mod ack_extender;
mod clock_skew;
mod completion_proof;
pub mod cutting;
mod dial;
mod directory_confinement;
mod engine_settings;
mod feed;
mod held_chunk;
mod listener;
mod look;
mod mover_tasks;
mod pair;
mod path_memory;
mod scan;
mod session_name;
mod site_mark;
mod tls_configs;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{GrantExchangeHandle, SpillSettings};
use carrack_model::{ProtectionLevel, text_without_errno};
use carrack_plan::fleet::MoverFaultKind;
use carrack_trust::EphemeralAuthority;
use carrack_wire::PROTOCOL_VERSION;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bus::{BusOptions, NatsBus};
use crate::error::BusError;
use crate::log::{FleetTransferLog, TransferLogEntry};
use crate::pairs::MoverPairKey;
use crate::queue::TransferWorkStream;
use crate::registry::{MoverRegistration, MoverTable};
use crate::sharing::NatsGrantExchange;
use crate::startup_retry::retry_at_startup;
use crate::transfer_records::{MoverAvailability, MoverRecord, RECORD_VERSION, is_name};
use crate::transfers::TransferStore;
use crate::unique_ids;
use directory_confinement::ReachableRoots;
use pair::PairFault;
use path_memory::PathMemory;
use tls_configs::TlsConfigs;

pub use engine_settings::spec_and_settings;
pub(crate) use pair::journal_id;

/// Receives messages for people.
pub type UserMessageCallback = Arc<dyn Fn(String) + Send + Sync>;

/// The options of a mover.
#[derive(Clone)]
pub struct MoverOptions {
    /// The connection to NATS.
    pub bus: BusOptions,
    /// The site's name.
    pub site: String,
    /// Directories that it reaches.
    pub paths: Vec<PathBuf>,
    /// The address to listen on for other movers. Port 0 is any port.
    pub listen: SocketAddr,
    /// The addresses for other movers, if they differ from the listening one.
    pub addresses: Vec<String>,
    /// Ports for data connections; `None` for any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Upper bound of pairs.
    pub pairs_max: u32,
    /// Threads of a scan.
    pub scan_threads: usize,
    /// Spill directories of its sessions, at either end.
    pub spill: SpillSettings,
    /// Number of lanes, for other movers.
    pub lanes: u32,
    /// The minimum protection level of incoming data.
    pub protection_min: ProtectionLevel,
    /// Allows the mover to give files to other users, to make devices, and to set set-ID bits and attributes
    /// that give rights, if a transfer asks for that.
    pub keep_owners: bool,
    /// Allows RMA over a fabric: other movers' memory is read and written. Its endpoints authenticate no
    /// peer.
    pub allows_fabric: bool,
    /// Receives messages for the operator.
    pub say: UserMessageCallback,
}

/// The reason why a mover could not begin.
#[derive(Debug, thiserror::Error)]
pub enum MoverError {
    /// An error of NATS.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// An error in an option.
    #[error("{message}")]
    Options {
        /// The problem.
        message: String,
        /// The remedy.
        hint: String,
    },
    /// An error of the system.
    #[error("{what}: {error}")]
    System {
        /// The action.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
}

/// The state that a mover's tasks share.
struct MoverContext {
    id: String,
    bus: NatsBus,
    movers: MoverTable,
    transfers: TransferStore,
    reach: ReachableRoots,
    authority: EphemeralAuthority,
    tls: TlsConfigs,
    options: MoverOptions,
    registration: MoverRegistration,
    /// Results of earlier sessions with other hosts.
    known_paths: PathMemory,
    /// Numbers of sessions in which it reads, and in which it writes.
    reading: AtomicU32,
    writing: AtomicU32,
    /// Recent rates of the pairs in which it reads, in bytes per second.
    rates: Mutex<HashMap<MoverPairKey, u64>>,
    /// Number of sessions and scans that hang in storage.
    hanging: AtomicU32,
    /// The problem of its clock, or empty.
    clock: Mutex<String>,
    /// The exchange with the site's meta-server, or its absence, and the time of the last search.
    meta_server: tokio::sync::Mutex<Option<(Instant, Option<GrantExchangeHandle>)>>,
}

/// Counts a session as long as it lives.
struct SessionCountGuard<'a>(&'a MoverContext, &'a AtomicU32);

impl Drop for SessionCountGuard<'_> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
        self.0.publish_status();
    }
}

/// Runs a mover until `drain` turns true and its work is done.
///
/// # Errors
///
/// [`MoverError`] if it could not begin.
pub async fn run(options: MoverOptions, drain: watch::Receiver<bool>) -> Result<(), MoverError> {
    let registered = retry_at_startup(
        &options.say,
        |error| matches!(error, MoverError::Bus(error) if error.is_transient()),
        || MoverContext::register(options.clone()),
    );
    mover_tasks::run(registered.await?, drain).await
}

/// Returns the record of an idle mover.
fn idle_record(id: &str, ca_pem: String, options: &MoverOptions) -> MoverRecord {
    MoverRecord {
        version: RECORD_VERSION,
        id: id.to_owned(),
        site: options.site.clone(),
        host: host_name(),
        addresses: Vec::new(),
        ca_pem,
        paths: Vec::new(),
        pairs_max: options.pairs_max,
        pairs: 0,
        lanes: options.lanes,
        software: env!("CARGO_PKG_VERSION").into(),
        protocol: PROTOCOL_VERSION.into(),
        state: MoverAvailability::Idle,
        bytes_per_s: 0,
        site_marks: Default::default(),
        ill: String::new(),
        left_out: String::new(),
    }
}

impl MoverContext {
    async fn register(options: MoverOptions) -> Result<Arc<MoverContext>, MoverError> {
        if !is_name(&options.site) {
            return Err(MoverError::Options {
                message: format!("{:?} can't be a site's name", options.site),
                hint: "letters, digits, '-' and '_' can, up to 64".into(),
            });
        }
        let reach = ReachableRoots::new(&options.paths).map_err(|error| MoverError::Options {
            message: format!("a directory of --path can't be used: {error}"),
            hint: "name directories that are there".into(),
        })?;
        let held = Arc::clone(reach.open_directories());
        let marking = tokio::task::spawn_blocking(move || site_mark::marks(&held));
        let site_marks = marking.await.map_err(|error| MoverError::System {
            what: "looking at its directories",
            error: std::io::Error::other(text_without_errno(&error)),
        })?;
        let id = new_id();
        let authority =
            EphemeralAuthority::make(&id, SystemTime::now()).map_err(|error| MoverError::System {
                what: "making a certificate",
                error: std::io::Error::other(text_without_errno(&error)),
            })?;
        let listener = TcpListener::bind(options.listen).map_err(system("listening"))?;
        let port = listener.local_addr().map_err(system("listening"))?.port();
        let bus = NatsBus::connect(&options.bus).await?;
        let (movers, transfers) = (MoverTable::follow(&bus).await?, TransferStore::open(&bus).await?);
        let ca_pem = String::from_utf8_lossy(&authority.ca).into_owned();
        let (paths, addresses) = (reach.given_paths(), addresses(&options, port));
        let record = MoverRecord { paths, addresses, site_marks, ..idle_record(&id, ca_pem, &options) };
        let registration = MoverRegistration::start(&bus, record).await?;
        let mover = Arc::new(MoverContext {
            id,
            bus,
            movers,
            transfers,
            reach,
            authority,
            tls: TlsConfigs::default(),
            options,
            registration,
            known_paths: PathMemory::default(),
            reading: AtomicU32::new(0),
            writing: AtomicU32::new(0),
            rates: Mutex::default(),
            hanging: AtomicU32::new(0),
            clock: Mutex::default(),
            meta_server: tokio::sync::Mutex::default(),
        });
        clock_skew::check_clock(&mover).await;
        listener::start(&mover, listener).map_err(system("listening"))?;
        let record = mover.registration.record();
        mover.notify_user(format!(
            "mover {} of {}, at {}",
            mover.id,
            record.site,
            record.addresses.join(" and ")
        ));
        Ok(mover)
    }

    fn notify_user(&self, text: String) {
        (self.options.say)(text);
    }

    /// Returns the exchange with the manager that shares the site's targets, if there is one.
    async fn grant_exchange(&self) -> Option<GrantExchangeHandle> {
        let mut found = self.meta_server.lock().await;
        match &*found {
            Some((at, sharing)) if at.elapsed() < META_SERVER_KNOWN_FOR => sharing.clone(),
            _ => {
                let sharing = NatsGrantExchange::find(&self.bus, &self.options.site).await;
                let sharing = sharing.map(|way| GrantExchangeHandle(Arc::new(way)));
                *found = Some((Instant::now(), sharing.clone()));
                sharing
            }
        }
    }

    /// Counts a session in which it writes.
    fn count_writing_session(&self) -> SessionCountGuard<'_> {
        self.writing.fetch_add(1, Relaxed);
        self.publish_status();
        SessionCountGuard(self, &self.writing)
    }

    /// Counts a session in which it reads.
    fn count_reading_session(&self) -> SessionCountGuard<'_> {
        self.reading.fetch_add(1, Relaxed);
        self.publish_status();
        SessionCountGuard(self, &self.reading)
    }

    /// Updates its record for the other processes.
    fn publish_status(&self) {
        let pairs = self.reading.load(Relaxed) + self.writing.load(Relaxed);
        let bytes_per_s = self.rates().values().sum();
        self.registration.update(|record| {
            (record.pairs, record.bytes_per_s) = (pairs, bytes_per_s);
            record.state = match record.state {
                MoverAvailability::Draining => MoverAvailability::Draining,
                MoverAvailability::Idle | MoverAvailability::Busy if pairs > 0 => MoverAvailability::Busy,
                MoverAvailability::Idle | MoverAvailability::Busy => MoverAvailability::Idle,
            };
        });
    }

    /// Sets the problem of its clock; empty for none. Problems of storage come first.
    fn set_clock_problem(&self, wrong: String) {
        let before = std::mem::replace(&mut *self.clock_problem(), wrong);
        let ill = self.registration.record().ill;
        if ill.is_empty() || ill == before {
            self.set_storage_problem(String::new());
        }
    }

    fn clock_problem(&self) -> MutexGuard<'_, String> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the reason why its storage prevents new work; empty for none.
    fn set_storage_problem(&self, why: String) {
        let why = if why.is_empty() { self.clock_problem().clone() } else { why };
        if !why.is_empty() && self.registration.record().ill != why {
            self.notify_user(format!("accepts no work: {why}"));
        }
        self.registration.update(|record| record.ill = why);
    }

    /// Records that a manager leaves it out for a while; an empty reason ends that.
    fn set_quarantine(self: &Arc<Self>, reason: String, time: Duration) {
        if !reason.is_empty() {
            self.notify_user(format!("in quarantine: {reason}"));
        }
        self.registration.update(|record| record.left_out.clone_from(&reason));
        let mover = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            // A later reason stays.
            mover.registration.update(|record| {
                if record.left_out == reason {
                    record.left_out.clear();
                }
            });
        });
    }

    /// Leaves a session with hanging storage to end on its own. If that is this mover's storage, the mover is
    /// ill meanwhile.
    fn abandon<T: Send + 'static>(self: &Arc<Self>, session: JoinHandle<T>, is_own: bool) {
        let mover = Arc::clone(self);
        tokio::spawn(async move {
            if is_own {
                mover.hanging.fetch_add(1, Relaxed);
                mover.set_storage_problem(HANGS.to_owned());
            }
            let _ = session.await;
            if is_own && mover.hanging.fetch_sub(1, Relaxed) == 1 {
                mover.set_storage_problem(String::new());
            }
        });
    }

    /// Reports a fault to the manager of a transfer, and to other movers. They then don't wait for a mover
    /// that can't read or write there at all.
    async fn report_fault(&self, transfer: &str, sink: &str, fault: &PairFault) {
        let PairFault { is_source, kind, reason } = fault.clone();
        if kind == MoverFaultKind::Refused
            && let Ok(queue) = TransferWorkStream::open(&self.bus, transfer).await
        {
            // Without this note others wait for some minutes.
            let _ = queue.add_refusing_mover(is_source, if is_source { &self.id } else { sink }).await;
        }
        let entry = TransferLogEntry::PairBroken {
            by: self.id.clone(),
            sink: sink.to_owned(),
            is_source,
            kind,
            reason,
        };
        if let Ok(log) = FleetTransferLog::open(&self.bus, transfer) {
            // A later failure is reported again.
            let _ = log.append(&entry).await;
        }
    }

    /// Records a pair's rate.
    fn set_pair_rate(&self, pair: MoverPairKey, bytes_per_s: u64) {
        self.rates().insert(pair, bytes_per_s);
        self.publish_status();
    }

    /// Drops a pair's rate after its session.
    fn remove_pair_rate(&self, pair: &MoverPairKey) {
        self.rates().remove(pair);
        self.publish_status();
    }

    fn rates(&self) -> MutexGuard<'_, HashMap<MoverPairKey, u64>> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a new ID from the host's name and random digits, which is valid as a host name in certificates.
fn new_id() -> String {
    let host: String = host_name()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect();
    format!("{}-{}", host.trim_matches('-'), &unique_ids::new_id()[..8]).trim_start_matches('-').to_owned()
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// For `map_err`: adds the operation.
fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> MoverError {
    move |error| MoverError::System { what, error }
}

/// Returns the named addresses, else the listening address if it is a single one, else the host's name.
fn addresses(options: &MoverOptions, port: u16) -> Vec<String> {
    match options.listen.ip() {
        _ if !options.addresses.is_empty() => {
            let addresses = options.addresses.iter().map(|address| match address.parse::<IpAddr>() {
                Ok(address) => SocketAddr::new(address, port).to_string(),
                Err(_) if address.contains(':') => address.clone(),
                Err(_) => format!("{address}:{port}"),
            });
            addresses.collect()
        }
        address if !address.is_unspecified() => vec![SocketAddr::new(address, port).to_string()],
        _ => vec![format!("{}:{port}", host_name())],
    }
}

/// The reason why a mover with hanging storage takes no work.
const HANGS: &str = "its storage does not answer";

/// Minimum interval between two searches for a manager that shares the site's targets.
const META_SERVER_KNOWN_FOR: Duration = Duration::from_secs(1);

/// Delay before a broken pair is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
