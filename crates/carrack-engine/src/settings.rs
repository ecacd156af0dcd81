//! The settings of one end, and the parts of a transfer.

use std::fmt;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_layout::{
    FileSystems, MountedFileSystem, StorageTarget, TargetAttachmentKind, split_declared_mount,
};
use carrack_machine::{CoreIsolationMode, DescriptorBudget, MemoryLimit, PlacementScheme};
use carrack_model::limits::{
    CLASS_BYTES_MAX, GROUP_BYTES, GROUP_MS, IO_THREADS_MAX, LANES_MAX, POOL_BYTES_DEFAULT, SLOT_COUNT_MIN,
    SPILL_DIRECTORIES_MAX, STALL_MS_DEFAULT, STALL_MS_MIN,
};
use carrack_model::{
    AgreedTransferSpec, CongestionControlChoice, Durability, MetadataFidelity, ScanSelection,
    SchedulingOptions, SchedulingPolicyChoice, SinkIoMethod, SourceReadMethod, TransferEvent,
    TransferExecutionId, TransferId, UserNotice, WriteVerification, json_bytes,
};
use carrack_plan::{RateCaps, RateLimits, ScheduledRateLimits};
use carrack_storage::{PathBase, PathPurpose, ScanFilter};
use carrack_transport::{ControlChannel, TlsChannel};
use carrack_wire::message::{self, MessageError};
use carrack_wire::{from_json, to_json};
use serde::{Deserialize, Serialize};

use crate::chunks::ChunkFeedHandle;
use crate::error::SessionError;
use crate::event_delivery::TransferObserver;
use crate::grant_exchange::GrantExchangeHandle;
use crate::spill_settings::SpillSettings;
use crate::tuner_memory::TunerHistory;

/// The buffers of all ends in a process get one of this number of parts of the memory that a limit leaves.
const POOL_PARTS_DEFAULT: u64 = 4;

/// The same if the user chose a size.
const POOL_PARTS_CHOSEN: u64 = 2;

/// Segments of a data connection: the values that Linux accepts as TCP_MAXSEG.
const SEGMENT_BYTES: RangeInclusive<u32> = 88..=65_535;

/// The longest name of a user or group; `useradd(8)` takes 32 bytes.
const ACCOUNT_NAME_BYTES_MAX: usize = 255;

/// Settings on which the two ends need not agree. The far end of an ssh session gets them from the near end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndSettings {
    /// Bytes of payload memory (slots).
    pub pool_bytes: u64,
    /// The part of that which the limits of this process leave, if they leave less. Not sent to the other
    /// end, which has its own.
    #[serde(skip)]
    pub pool_share: Option<PoolReduction>,
    /// I/O threads; 0 to choose by the storage.
    pub io_threads: usize,
    /// Threads of the scan; 0 to choose by the number of cores.
    #[serde(skip)]
    pub scan_threads: usize,
    /// Ports to listen on for data connections; `None` for any.
    pub ports: Option<RangeInclusive<u16>>,
    /// The I/O method of reading large files (L6).
    pub source_io: SourceReadMethod,
    /// The I/O method of writing large files (L8).
    pub sink_io: SinkIoMethod,
    /// The choice of the next storage target, and its limits (L7, L15).
    pub scheduling: SchedulingOptions,
    /// Mounts that are a target each, in the form of [`split_declared_mount`]. An end uses those that it has.
    #[serde(with = "json_bytes::list")]
    pub target_sets: Vec<PathBuf>,
    /// True to read files that were released to an archive, which recalls them.
    pub recall: bool,
    /// Lanes; 0 to choose by the machines and the load.
    pub lanes: usize,
    /// The placement of threads and buffers (N1 to N3).
    pub placement: PlacementScheme,
    /// The way in which the cores of the transfer are kept (M3).
    pub zone: CoreIsolationMode,
    /// The records of a sink, and their times.
    pub journal: JournalSettings,
    /// The check by which the sink verifies that an object was stored.
    pub verify: WriteVerification,
    /// The silence after which the other end counts as dead, and the longest time without progress on the
    /// data path; a second at least.
    pub stall: Duration,
    /// True if files and directories may get the source's set-user-ID and set-group-ID bits. Not sent to the
    /// other end.
    #[serde(skip)]
    pub special_modes: bool,
    /// The longest time without progress before this end gives up; `None` is forever. Not sent to the other
    /// end.
    #[serde(skip)]
    pub idle: Option<Duration>,
    /// Flash for objects that wait (L9).
    pub spill: SpillSettings,
    /// The class of the transfer if targets are shared (L13); empty for none.
    pub class: String,
    /// The time by which the transfer should be complete: the rate for that is claimed if targets are shared,
    /// within the limits of its class (L13).
    #[serde(with = "unix_ms")]
    pub deadline: Option<SystemTime>,
    /// The source's metadata beyond mode and time.
    pub fidelity: MetadataFidelity,
    /// The entries that the source selects.
    pub selection: ScanSelection,
    /// True if the tuner changes settings while the session runs (Y4, Y5, Y7).
    pub tunes: bool,
    /// The results of earlier sessions between these ends, if this end is the source. Not sent to the other
    /// end, which has its own.
    #[serde(skip)]
    pub history: Option<TunerHistory>,
    /// The exchange through which this end asks for shared targets (L10). Not sent to the other end, which
    /// has its own.
    #[serde(skip)]
    pub sharing: Option<GrantExchangeHandle>,
    /// The rate of all targets by the time of day, at this end. Not sent to the other end, which obeys
    /// `scheduling`.
    #[serde(skip)]
    pub timetable: Option<ScheduledRateLimits>,
    /// The start of the run, for an end that the user started; a directory of the source that changed since
    /// proves nothing. Not sent to the other end.
    #[serde(skip)]
    pub begun: Option<SystemTime>,
    /// The fabric that this end wants for objects, if it is the initiator. Not sent to the other end as a
    /// setting, but agreed on.
    #[serde(skip)]
    pub fabric: FabricWanted,
    /// True to open no data connections: objects go through the control channel, and in a third-party
    /// transfer through this process. Not sent to the other end, to which no one dials.
    #[serde(skip)]
    pub over_control: bool,
    /// The largest segments of data connections, in either direction; `None` for the system's choice.
    pub segment_bytes: Option<u32>,
    /// The congestion control of the source's data connections. Not sent where it is the default, which older
    /// ends take for granted.
    #[serde(skip_serializing_if = "is_default")]
    pub congestion_control: CongestionControlChoice,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Payload memory if a cgroup or a resource limit leaves less than requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReduction {
    /// Bytes of one end.
    pub bytes: u64,
    /// The reason for the limit, for people.
    pub reason: String,
}

/// The fabric for objects (L5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FabricWanted {
    /// TCP.
    #[default]
    Off,
    /// RMA if both ends have a fabric that beats TCP.
    Auto,
    /// RMA by this provider of libfabric if both ends have it.
    Preferred(String),
    /// RMA by this provider of libfabric, or no session.
    Provider(String),
}

impl Default for EndSettings {
    fn default() -> Self {
        EndSettings {
            pool_bytes: POOL_BYTES_DEFAULT,
            pool_share: None,
            io_threads: 0,
            scan_threads: 0,
            ports: None,
            source_io: SourceReadMethod::Auto,
            sink_io: SinkIoMethod::Auto,
            scheduling: SchedulingOptions::default(),
            target_sets: Vec::new(),
            recall: false,
            lanes: 0,
            placement: PlacementScheme::Auto,
            zone: CoreIsolationMode::Off,
            journal: JournalSettings::default(),
            verify: WriteVerification::Object,
            stall: Duration::from_millis(STALL_MS_DEFAULT.into()),
            special_modes: true,
            idle: None,
            spill: SpillSettings::default(),
            class: String::new(),
            deadline: None,
            fidelity: MetadataFidelity::default(),
            selection: ScanSelection::default(),
            tunes: true,
            history: None,
            sharing: None,
            timetable: None,
            begun: None,
            fabric: FabricWanted::Off,
            over_control: false,
            segment_bytes: None,
            congestion_control: CongestionControlChoice::default(),
        }
    }
}

/// The records of a sink, from which a transfer can be resumed (L12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalSettings {
    /// True if a journal is kept.
    pub is_on: bool,
    /// Its directory; by default that of the destination or its parent.
    #[serde(with = "json_bytes::option")]
    pub directory: Option<PathBuf>,
    /// The time at which data is made durable.
    pub durability: Durability,
    /// Bytes that are made durable together.
    pub group_bytes: u64,
    /// The longest time that written data waits.
    pub group_time: Duration,
}

impl Default for JournalSettings {
    fn default() -> Self {
        JournalSettings {
            is_on: true,
            directory: None,
            durability: Durability::Group,
            group_bytes: GROUP_BYTES,
            group_time: Duration::from_millis(GROUP_MS),
        }
    }
}

/// A transfer that the user requested. Paths are as typed, on the end that they belong to.
#[derive(Clone, Debug)]
pub struct TransferRequest {
    /// The specification on which both ends must agree.
    pub spec: AgreedTransferSpec,
    /// The settings on which they need not agree.
    pub settings: EndSettings,
    /// The sources. A trailing slash means the contents of a directory.
    pub sources: Vec<PathBuf>,
    /// The start of their paths, for an initiator that is the source.
    pub source_base: PathBase,
    /// The destination. A trailing slash means a directory.
    pub destination: PathBuf,
    /// The identity of the transfer over all of its sessions. Without it no journal is kept.
    pub identity: Option<TransferIdentity>,
    /// The feed of chunks, if the source does not scan. Only for an initiator that is the source.
    pub feed: Option<ChunkFeedHandle>,
}

/// The identity by which a transfer is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferIdentity {
    /// The same for the same sources and destination.
    pub id: TransferId,
    /// The token of this run of the command.
    pub run: TransferExecutionId,
    /// The sources as typed, for people.
    pub sources: Vec<Vec<u8>>,
    /// The destination as typed, for people.
    pub destination: Vec<u8>,
    /// True if several sessions carry it at the same time: each has a separate journal, in a directory in the
    /// destination.
    pub is_shared: bool,
}

impl TransferIdentity {
    pub(crate) fn to_message(&self) -> message::TransferIdentityMessage {
        message::TransferIdentityMessage {
            id: self.id.0.to_vec(),
            run: self.run.0.to_vec(),
            sources: self.sources.clone(),
            destination: self.destination.clone(),
            shared: self.is_shared,
        }
    }

    pub(crate) fn from_message(
        message: &message::TransferIdentityMessage,
    ) -> Result<TransferIdentity, MessageError> {
        let (Ok(id), Ok(run)) = (message.id.as_slice().try_into(), message.run.as_slice().try_into()) else {
            return Err(MessageError::OutOfRange("a transfer's id"));
        };
        Ok(TransferIdentity {
            id: TransferId(id),
            run: TransferExecutionId(run),
            sources: message.sources.clone(),
            destination: message.destination.clone(),
            is_shared: message.shared,
        })
    }
}

/// Programs for far hosts that have none, and whose shell waits for one.
pub trait FarProgramSource: fmt::Debug + Send + Sync {
    /// Returns the bytes for the far shell that sent this line; it starts the program that is in them.
    ///
    /// # Errors
    /// If there is no program for that host.
    fn program_for(&self, line: &[u8]) -> Result<Vec<u8>, SessionError>;
}

/// The connection to the other end.
#[derive(Debug)]
pub struct PeerChannel {
    /// The control channel, such as the pipes of an ssh process.
    pub channel: ControlChannel,
    /// The other host's name, for dialling it.
    pub host: String,
    /// A bearer token for an end that requires one; empty for none.
    pub token: String,
    /// What a far shell gets that has no carrack to start.
    pub programs: Option<Arc<dyn FarProgramSource>>,
}

/// The connections to both ends of a third-party transfer.
#[derive(Debug)]
pub struct ThirdPartyEndChannels {
    /// To the end that reads.
    pub source: PeerChannel,
    /// To the end that writes.
    pub sink: PeerChannel,
    /// True if the data passes through this process, for ends that can't reach each other.
    pub relays: bool,
}

impl PeerChannel {
    /// Creates a peer behind two pipes, which another program protects.
    pub fn over_pipes(input: OwnedFd, output: OwnedFd, host: String) -> PeerChannel {
        let channel = ControlChannel::Pipes { input, output };
        PeerChannel { channel, host, token: String::new(), programs: None }
    }

    /// Creates a peer that was reached by TLS; `token` is empty if it requires none.
    pub fn over_tls(channel: TlsChannel, host: String, token: String) -> PeerChannel {
        PeerChannel { channel: ControlChannel::Tls(Box::new(channel)), host, token, programs: None }
    }
}

/// The rate limits of one end, for all of its lanes together.
#[derive(Clone)]
pub(crate) struct EndRateLimits {
    pub(crate) rates: Arc<RateLimits>,
    /// The start of the queues' time.
    pub(crate) began: Instant,
}

impl EndSettings {
    /// Returns true if others go first (L15).
    pub(crate) fn is_nice(&self) -> bool {
        self.scheduling.policy == SchedulingPolicyChoice::Adaptive { nice: true }
    }

    /// Returns true if objects are taken one by one, even from a single target: there is a rate limit, or
    /// others may get the target next.
    pub(crate) fn holds_back(&self) -> bool {
        self.scheduling.has_limits() || self.timetable.is_some() || self.sharing.is_some()
    }

    /// Returns the rate limits of one end from now on.
    pub(crate) fn limits(&self) -> EndRateLimits {
        let SchedulingOptions { rate, target_rate, .. } = self.scheduling;
        let rates = RateLimits::new(RateCaps { all: rate, each: target_rate });
        let rates = match &self.timetable {
            Some(steps) => rates.with_schedule(steps.clone(), since_1970()),
            None => rates,
        };
        EndRateLimits { rates: Arc::new(rates), began: Instant::now() }
    }

    /// Returns the number of threads of the scan. The scan shares the cores with the I/O threads, and two
    /// threads already find more than a million entries a second on a warm cache.
    pub(crate) fn scan_thread_count(&self) -> usize {
        match self.scan_threads {
            0 => std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 8),
            count => count,
        }
    }

    /// Returns the number of I/O threads for storage that can use `preferred`; fewer if the process may have
    /// few descriptors.
    pub(crate) fn io_thread_count(&self, preferred: u32) -> usize {
        let descriptors = DescriptorBudget::of_this_process();
        match self.io_threads {
            0 => (preferred as usize).clamp(2, descriptors.io_threads_max(64)),
            count => count.min(descriptors.io_threads_max(IO_THREADS_MAX)),
        }
    }

    /// Returns the most I/O threads that the tuner may use after `start`: four times as many, but no more
    /// than 64. A number that the user chose stays.
    pub(crate) fn io_threads_most(&self, start: usize) -> usize {
        let most = DescriptorBudget::of_this_process().io_threads_max(64);
        if self.tunes && self.io_threads == 0 { (4 * start).min(most).max(start) } else { start }
    }

    /// Returns the slots of all lanes.
    pub(crate) fn slot_count(&self, slot_bytes: u32) -> u32 {
        let bytes = self.pool_share.as_ref().map_or(self.pool_bytes, |share| share.bytes);
        let slots = bytes / u64::from(slot_bytes);
        slots.clamp(SLOT_COUNT_MIN as u64, u32::MAX.into()) as u32
    }

    /// Returns the settings with buffers that this process can have, if `ends` ends share it. Memory is also
    /// needed for tables, stacks, sockets and the page cache, without which the kernel kills the process.
    ///
    /// # Errors
    /// Refuses buffers that the machine does not have, and objects for which the limits leave too little.
    pub(crate) fn within_memory(&self, ends: u64, slot_bytes: u32) -> Result<EndSettings, SessionError> {
        let info = rustix::system::sysinfo();
        let memory_bytes = info.totalram.saturating_mul(info.mem_unit.into());
        if self.pool_bytes > memory_bytes {
            let asked = self.pool_bytes;
            let message =
                format!("buffers of {asked} bytes, where the machine has {memory_bytes} bytes of memory");
            return Err(SessionError::refused(message, "ask for less with --buffer"));
        }
        let limit = MemoryLimit::of_this_process();
        let share = limit.map_or(Ok(None), |limit| self.pool_reduction(&limit, ends, slot_bytes))?;
        Ok(EndSettings { pool_share: share, ..self.clone() })
    }

    /// Returns the buffers of one of `ends` ends within a limit; `None` if they may have the requested size.
    fn pool_reduction(
        &self,
        limit: &MemoryLimit,
        ends: u64,
        slot_bytes: u32,
    ) -> Result<Option<PoolReduction>, SessionError> {
        let MemoryLimit { origin, limit_bytes, free_bytes } = limit;
        let parts = if self.has_chosen_pool_size() { POOL_PARTS_CHOSEN } else { POOL_PARTS_DEFAULT };
        let (share, most) = (free_bytes / parts / ends, free_bytes / POOL_PARTS_CHOSEN / ends);
        let least = SLOT_COUNT_MIN as u64 * u64::from(slot_bytes);
        let (limit_mib, free_mib) = (limit_bytes >> 20, free_bytes >> 20);
        let why = format!("{origin} is {limit_mib} MiB, of which {free_mib} MiB are free");
        if least > most {
            let message = format!("{SLOT_COUNT_MIN} buffers of {slot_bytes} bytes do not fit: {why}");
            return Err(SessionError::refused(message, "choose a smaller --object-size, or raise the limit"));
        }
        let bytes = share.max(least);
        let reason = format!("buffers of {} MiB: {why}", bytes >> 20);
        Ok((bytes < self.pool_bytes).then_some(PoolReduction { bytes, reason }))
    }

    /// Reports buffers that are smaller than the user chose.
    pub(crate) fn report_smaller_pool(&self, observer: &dyn TransferObserver) {
        if let (Some(share), true) = (&self.pool_share, self.has_chosen_pool_size()) {
            observer.handle_event(&TransferEvent::Notice(UserNotice::Warning(format!(
                "--buffer: {}",
                share.reason
            ))));
        }
    }

    /// Returns true if the user chose the size of the buffers.
    pub(crate) fn has_chosen_pool_size(&self) -> bool {
        self.pool_bytes != POOL_BYTES_DEFAULT
    }

    /// Returns the slots of one of `lanes` lanes.
    pub(crate) fn lane_slot_count(&self, slot_bytes: u32, lanes: usize) -> usize {
        (self.slot_count(slot_bytes) as usize / lanes.max(1)).max(SLOT_COUNT_MIN)
    }

    /// Returns the known facts about this end's file systems. Mounts of a set that do not exist here are the
    /// other end's.
    pub(crate) fn file_systems(&self, base: &PathBase) -> Result<FileSystems, SessionError> {
        let here = self.target_sets.iter().filter(|declared| {
            let (_, path) = split_declared_mount(declared);
            base.look(path, PathPurpose::Write).is_ok_and(|looked| looked.is_directory)
        });
        let here: Vec<PathBuf> = here.cloned().collect();
        base.file_systems(&here).map_err(|error| {
            let hint = "name each mount once, by its mount point";
            SessionError::refused(format!("--targets: {error}"), hint)
        })
    }

    /// Returns the settings for a sink, which does not need the list of selected names, but knows that there
    /// is one.
    pub(crate) fn for_sink(&self) -> EndSettings {
        let names = self.selection.names.as_ref().map(|_| Arc::default());
        EndSettings { selection: ScanSelection { names, ..self.selection.clone() }, ..self.clone() }
    }

    /// Encodes the settings for the other end, which checks their ranges.
    pub(crate) fn to_json(&self) -> String {
        to_json(self)
    }

    /// Decodes a peer's settings.
    pub(crate) fn of_json(text: &str) -> Result<EndSettings, MessageError> {
        let settings: EndSettings = from_json(text)?;
        settings.check().map_err(MessageError::OutOfRange)?;
        Ok(settings)
    }

    /// Returns the name of an invalid setting.
    fn check(&self) -> Result<(), &'static str> {
        let longest = Duration::from_millis(u32::MAX.into());
        let (window, threshold) = match self.scheduling.policy {
            SchedulingPolicyChoice::Threshold { window, threshold, .. } => (window, threshold),
            SchedulingPolicyChoice::RoundRobin | SchedulingPolicyChoice::Adaptive { .. } => {
                Default::default()
            }
        };
        let mut accounts = [&self.fidelity.user, &self.fidelity.group].into_iter().flatten();
        let has_long_name = accounts.any(|account| account.name.len() > ACCOUNT_NAME_BYTES_MAX);
        let least_stall = Duration::from_millis(STALL_MS_MIN.into());
        let least_group_time = Duration::from_millis(1);
        let spill_count = self.spill.source.len().max(self.spill.sink.len());
        let good = [
            ("a port", self.ports.as_ref().is_none_or(|ports| *ports.start() > 0 && !ports.is_empty())),
            ("the number of lanes", self.lanes <= LANES_MAX),
            ("the stall timeout", (least_stall..=longest).contains(&self.stall)),
            (
                "what is made durable together",
                (least_group_time..=longest).contains(&self.journal.group_time),
            ),
            ("what is made durable together", self.journal.group_bytes > 0),
            ("the policy", window <= longest && threshold <= longest),
            ("the size of segments", self.segment_bytes.is_none_or(|bytes| SEGMENT_BYTES.contains(&bytes))),
            ("the number of spill directories", spill_count <= SPILL_DIRECTORIES_MAX),
            ("the class", self.class.len() <= CLASS_BYTES_MAX),
            ("a name of a user or group", !has_long_name),
            ("a time", self.selection.newer.is_none_or(|newer| newer.nanoseconds < 1_000_000_000)),
            ("a pattern", ScanFilter::new(&self.selection).is_ok()),
        ];
        good.iter().find(|(_, is_good)| !is_good).map_or(Ok(()), |(what, _)| Err(*what))
    }
}

/// A time as milliseconds since 1970, on which all hosts agree as far as their clocks do; 1 for an earlier
/// time.
mod unix_ms {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        moment: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let ms = moment.as_ref().map(|moment| {
            let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
        });
        ms.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let Some(ms) = Option::<u64>::deserialize(deserializer)? else { return Ok(None) };
        let moment = UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        let moment = moment.ok_or_else(|| D::Error::custom("a time that the system's clock does not reach"));
        moment.map(Some)
    }
}

/// Returns the time of the system's clock since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// I/O threads for storage that places files on its targets: more of them bring more up to the number of
/// targets, as the paper found, and that is unknown until the first files are found.
const DEPTH_OF_LAYOUTS: u32 = 32;

/// Returns the I/O threads that a directory's storage can use, with `mounts` disks or servers mounted beneath
/// it: a thread for each, and at least the number that a single disk can use.
pub(crate) fn depth_of(file_system: &MountedFileSystem, mounts: usize) -> u32 {
    let own = file_system.own_target().depth;
    let own = if file_system.has_layouts() { own.max(DEPTH_OF_LAYOUTS) } else { own };
    match u32::try_from(mounts).unwrap_or(u32::MAX) {
        0 => own,
        mounts => own.max(mounts.max(8)),
    }
}

/// Returns the requests in flight at one target, if the user allows `in_flight_max` (0: the storage's
/// preference). Memory can't be congested: the number of threads is its only limit.
pub(crate) fn depth_of_queue(target: &StorageTarget, in_flight_max: u32) -> u32 {
    let own = if target.medium == TargetAttachmentKind::Memory { u32::MAX } else { target.depth };
    if in_flight_max == 0 { own } else { in_flight_max }
}

#[cfg(test)]
mod tests {
    use carrack_model::{
        FileOwnerMap, FilterLanguage, KeptMetadata, LinkPolicy, ModeChange, NO_NUMBER, Timestamp, UserOrGroup,
    };

    use std::time::UNIX_EPOCH;

    use super::*;

    /// Returns the buffers of each of `ends` ends in MiB, with this much free memory.
    fn share(pool_mib: u64, free_mib: u64, ends: u64) -> Result<Option<u64>, Option<String>> {
        let limit = MemoryLimit {
            origin: "memory.max".into(),
            limit_bytes: (free_mib + 8) << 20,
            free_bytes: free_mib << 20,
        };
        let settings = EndSettings { pool_bytes: pool_mib << 20, ..EndSettings::default() };
        let share = settings.pool_reduction(&limit, ends, 1 << 20);
        share.map(|share| share.map(|share| share.bytes >> 20)).map_err(|error| error.hint())
    }

    #[test]
    fn buffers_keep_within_a_limit() {
        assert_eq!(share(256, 92, 2), Ok(Some(11)));
        assert_eq!(share(256, 120, 1), Ok(Some(30)));
        assert_eq!(share(256, 2048, 2), Ok(None));
        assert_eq!(share(16, 120, 1), Ok(None), "what was asked for fits");
        assert_eq!(share(100, 120, 1), Ok(Some(60)), "not all of what was asked for does");
        assert_eq!(share(256, 20, 2), Ok(Some(4)), "the fewest slots");
        assert!(share(256, 12, 2).unwrap_err().is_some_and(|hint| hint.contains("--object-size")));
        let settings = EndSettings {
            pool_share: Some(PoolReduction { bytes: 11 << 20, reason: String::new() }),
            ..EndSettings::default()
        };
        let told = EndSettings::of_json(&settings.to_json()).unwrap();
        assert_eq!((settings.slot_count(1 << 20), told), (11, EndSettings::default()));
    }

    #[test]
    fn settings_survive_the_wire() {
        let settings = EndSettings {
            pool_bytes: 1 << 30,
            io_threads: 3,
            ports: Some(50_000..=50_010),
            source_io: SourceReadMethod::Direct,
            sink_io: SinkIoMethod::Writeback,
            scheduling: SchedulingOptions {
                rate: 7,
                target_rate: 8,
                in_flight_max: 9,
                ..SchedulingOptions::default()
            },
            target_sets: vec!["/mnt/a".into(), "nas1=/mnt/b".into()],
            recall: true,
            lanes: 2,
            placement: PlacementScheme::Mmb,
            zone: CoreIsolationMode::Soft,
            journal: JournalSettings {
                is_on: false,
                directory: Some("/journals".into()),
                durability: Durability::Each,
                group_bytes: 7,
                group_time: Duration::from_millis(8),
            },
            verify: WriteVerification::Readback,
            stall: Duration::from_secs(7),
            spill: SpillSettings {
                source: vec![crate::SpillDirectory { directory: "/nvme".into(), bytes: 1 << 40 }],
                sink: vec![crate::SpillDirectory { directory: "/ssd".into(), bytes: 1 << 30 }],
                may_lack: false,
                budget: Some(1 << 50),
            },
            class: "night".into(),
            deadline: Some(UNIX_EPOCH + Duration::from_millis(1_795_399_200_001)),
            fidelity: MetadataFidelity {
                kept: KeptMetadata { groups: false, ..KeptMetadata::ALL },
                numeric_ids: true,
                user: Some(UserOrGroup { number: 7, name: b""[..].into() }),
                group: Some(UserOrGroup { number: NO_NUMBER, name: b"data"[..].into() }),
                user_map: FileOwnerMap::parse("a*:7").unwrap(),
                group_map: FileOwnerMap::parse("0-9:x,:y").unwrap(),
                perms: true,
                mode_change: ModeChange::parse("D2775,go-w").unwrap(),
                omit_times: true,
                omit_dir_times: true,
            },
            selection: ScanSelection {
                patterns: vec!["+ keep.o".into(), "- *.o".into()],
                language: FilterLanguage::Rsync,
                size_min: 7,
                size_max: Some(0),
                newer: Some(Timestamp { seconds: -1, nanoseconds: 5 }),
                one_file_system: true,
                links: LinkPolicy::SafeOnly,
                names: Some([b"a"[..].into()].into()),
            },
            tunes: false,
            segment_bytes: Some(536),
            congestion_control: CongestionControlChoice::Named("bbr".into()),
            ..EndSettings::default()
        };
        assert_eq!(EndSettings::of_json(&settings.to_json()), Ok(settings.clone()));
        for policy in ["round-robin", "threshold:1,2,3", "adaptive"] {
            let scheduling = SchedulingOptions { policy: policy.parse().unwrap(), ..settings.scheduling };
            let settings = EndSettings { scheduling, ..settings.clone() };
            assert_eq!(EndSettings::of_json(&settings.to_json()), Ok(settings));
        }
        // A peer that knows one language only is not told of others.
        assert!(
            settings.to_json().contains("language") && !EndSettings::default().to_json().contains("language")
        );
        // A missing value has its default.
        assert_eq!(EndSettings::of_json("{}"), Ok(EndSettings::default()));
    }

    #[test]
    fn what_no_end_can_work_with_is_refused() {
        let default = EndSettings::default;
        let long = UserOrGroup { number: 7, name: vec![b'a'; 256].into() };
        let directory = crate::SpillDirectory { directory: "/nvme".into(), bytes: 1 };
        let patterns = vec!["{a".to_owned()];
        let endless =
            SchedulingPolicyChoice::Threshold { window: Duration::MAX, threshold: Duration::ZERO, skips: 0 };
        for bad in [
            EndSettings { ports: Some(0..=7), ..default() },
            EndSettings { lanes: LANES_MAX + 1, ..default() },
            EndSettings { stall: Duration::from_millis(u64::from(STALL_MS_MIN) - 1), ..default() },
            EndSettings { stall: Duration::MAX, ..default() },
            EndSettings {
                journal: JournalSettings { group_bytes: 0, ..JournalSettings::default() },
                ..default()
            },
            EndSettings {
                journal: JournalSettings { group_time: Duration::MAX, ..JournalSettings::default() },
                ..default()
            },
            EndSettings {
                scheduling: SchedulingOptions { policy: endless, ..SchedulingOptions::default() },
                ..default()
            },
            EndSettings { segment_bytes: Some(87), ..default() },
            EndSettings { class: "a".repeat(CLASS_BYTES_MAX + 1), ..default() },
            EndSettings {
                fidelity: MetadataFidelity { user: Some(long), ..MetadataFidelity::default() },
                ..default()
            },
            EndSettings { selection: ScanSelection { patterns, ..ScanSelection::default() }, ..default() },
            EndSettings {
                spill: SpillSettings {
                    sink: vec![directory; SPILL_DIRECTORIES_MAX + 1],
                    ..SpillSettings::default()
                },
                ..default()
            },
        ] {
            let told = EndSettings::of_json(&bad.to_json());
            assert!(matches!(told, Err(MessageError::OutOfRange(_))), "{told:?}");
        }
        for bad in [
            "",
            "{\"of_the_future\":1}",
            "{\"source_io\":9}",
            "{\"io_threads\":-1}",
            "{\"over_control\":true}",
        ] {
            let told = EndSettings::of_json(bad);
            assert!(matches!(told, Err(MessageError::Malformed(_))), "{bad}: {told:?}");
        }
    }
}
