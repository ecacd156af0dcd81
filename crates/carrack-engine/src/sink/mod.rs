//! The sink: receive → check → write → done.
//!
//! The modules are in an order: each one imports only those above it. Each mutex is locked in its own module
//! only.
//!
//! | module | contents | threads |
//! | --- | --- | --- |
//! | [`write_method`] | the number of targets, and the method of writing files | all |
//! | [`sizing`] | the numbers of threads and connections, and their limits | all |
//! | [`top_level_confinement`] | names that the source may write | I/O, comm |
//! | [`name_claims`] | names that the destination does not distinguish | I/O |
//! | [`attributes`] | the source's metadata that entries get, and the comparison with it | all |
//! | [`destination`] | the destination: root, storage, confinement and names | all |
//! | [`write_combining`] | write combining | I/O |
//! | [`file_portion`], [`file_integrity`] | ranges and digest of a file | I/O, comm, `carrack-commit` |
//! | [`file_byte_counts`] | its counts | I/O, comm, `carrack-commit` |
//! | [`sink_file`] | one large file, from its announcement to its name | I/O, comm |
//! | [`file_table`] | large files from their announcement to their end | I/O, comm |
//! | [`ack_batch`] | acks of objects, until the comm thread sends them | I/O, comm |
//! | [`write_queue`] | the I/O threads' work: connections with data, objects, ends of files | all |
//! | [`commit_group`], [`syncer`], [`recorder`], [`committer`] | group commit (L12) | `carrack-commit` |
//! | [`unconfirmed_writes`] | written objects that the source has not confirmed | I/O, comm |
//! | [`takeover_guard`] | the end of a session that was stopped while others took over | all |
//! | [`past_sessions`], [`sibling_sessions`] | the records of earlier sessions, and of parallel ones | I/O |
//! | [`shared_file_names`] | the temporary names of files that several sessions write | I/O |
//! | [`backup`], [`destination_rules`] | the backup directory, and the filter rules of directories | I/O |
//! | [`removal_rules`] | the rules of deletion | I/O |
//! | [`pending_queries`] | existence queries to the source | I/O, comm |
//! | [`final_spools`] | links and metadata of directories, for the end | I/O |
//! | [`context`] | all of the above for the lanes, counts, timeouts, reporting | all |
//! | [`lane`] | the state that the threads of one lane share (N2) | all |
//! | [`directory_access`] | access to the user's read-only directories during the session | I/O |
//! | [`deleting`], [`entry_replacement`] | deletion, and replacement of entries of another kind | I/O |
//! | [`recorded_state`] | the comparison of records with the destination | I/O |
//! | [`large_file_creation`], [`large_files`] | the beginnings and ends of large files | I/O |
//! | [`file_announcement`] | the announcement of large files | I/O, comm |
//! | [`object_writer`] | checks and writes objects of large files | I/O |
//! | [`bundle_unpacker`] | unpacks bundles into small files and links | I/O |
//! | [`sync`], [`offers`] | the choice among offered entries: changed ones, and unrecorded ones | I/O |
//! | [`extraneous_entries`] | deletes entries that the source does not have | I/O |
//! | [`finish`] | links, directories, modes and the last commit | I/O |
//! | [`writer`] | the I/O thread: drives connections and takes work from the queue | I/O |
//! | [`spill`] | objects on flash (L9): `crate::spill` | `carrack-spill`, `carrack-refill` |
//! | [`comm`] | the source's messages, idle endpoints, and acks | comm |

mod ack_batch;
mod attributes;
mod backup;
mod bundle_unpacker;
mod comm;
mod commit_group;
mod committer;
mod context;
mod deleting;
mod destination;
mod destination_rules;
mod directory_access;
mod entry_replacement;
mod extraneous_entries;
mod file_announcement;
mod file_byte_counts;
mod file_integrity;
mod file_portion;
mod file_table;
mod final_spools;
mod finish;
mod lane;
mod large_file_creation;
mod large_files;
mod name_claims;
mod object_writer;
mod offers;
mod past_sessions;
mod pending_queries;
mod recorded_state;
mod recorder;
mod removal_rules;
mod shared_file_names;
mod sibling_sessions;
mod sink_file;
mod sizing;
mod spill;
mod sync;
mod syncer;
mod takeover_guard;
mod top_level_confinement;
mod unconfirmed_writes;
mod write_combining;
mod write_method;
mod write_queue;
mod writer;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{mem, thread};

use carrack_journal::{Journal, RecoveredJournal};
use carrack_layout::TargetAttachmentKind;
use carrack_machine::{NodeSet, ThreadDuty};
use carrack_model::{TargetId, TransferEvent, UserNotice};
use carrack_storage::{RestoredDirectorySelection, ScratchNames};
use carrack_transport::ReceiveEndpoint;

use crate::abort::AbortHandle;
use crate::context::SessionContext;
use crate::counters::TransferCounters;
use crate::error::SessionError;
use crate::lanes::{EstablishedLaneResources, LaneComm, root_cause, run_comms, send_start_failure};
use crate::placement::PlacedLanes;
use crate::role::SessionRole;
use crate::spill::{LaneSpill, spills};
use crate::spill_settings::SpillSettings;
use crate::storage_requests::EndStorageRequests;
use attributes::AttributePolicy;
use comm::SinkComm;
use committer::GroupCommitter;
use context::{SinkContext, SinkEventRecipients, SinkSessionCounts, SinkSessionJournals, SinkTimeouts};
pub(crate) use destination::DestinationDirectory;
use destination::SinkDestination;
use final_spools::DeferredEntrySpools;
use lane::SinkLane;
use past_sessions::PastSessions;
use pending_queries::OpenSourceQueries;
use removal_rules::SyncDeletionState;
use shared_file_names::SharedFileNames;
use sibling_sessions::SiblingJournals;
use sizing::SinkSizing;
use syncer::FileSystemSyncer;
pub(crate) use top_level_confinement::{AllowedTopLevelNames, RequestedSourceNames};
pub(crate) use write_method::SinkStorageFacts;

/// The start of a sink: the session is established, the destination is open.
pub(crate) struct SinkStart<'a> {
    /// At least one.
    pub(crate) lanes: Vec<EstablishedLaneResources<Box<dyn ReceiveEndpoint>>>,
    /// The placement of the lanes.
    pub(crate) camp: &'a PlacedLanes,
    pub(crate) context: &'a SessionContext<'a>,
    pub(crate) setup: SinkSetup,
}

/// The destination of a transfer, with the state of earlier sessions.
pub(crate) struct SinkSetup {
    /// The destination directory.
    pub(crate) place: DestinationDirectory,
    /// True if the source was told that entries of the transfer may exist.
    pub(crate) resumes: bool,
    /// The journal, if one is kept.
    pub(crate) records: Option<SinkTransferJournal>,
    /// Messages to the user before anything is written.
    pub(crate) warnings: Vec<String>,
}

/// The journal of a transfer.
pub(crate) struct SinkTransferJournal {
    pub(crate) journal: Journal,
    /// Its records of earlier sessions.
    pub(crate) recovered: Option<RecoveredJournal>,
    /// Its path, for messages.
    pub(crate) path: String,
    /// The tag of temporary names.
    pub(crate) tag: u16,
    /// The directory of the other sessions' journals, if several carry the transfer.
    pub(crate) siblings: Option<OwnedFd>,
}

/// Writes everything that the source sends; returns both ends' counters.
pub(crate) fn run(
    mut start: SinkStart<'_>,
    abort: &AbortHandle,
) -> (TransferCounters, Result<(), SessionError>) {
    let (lanes, warnings) = (mem::take(&mut start.lanes), mem::take(&mut start.setup.warnings));
    assert!(!lanes.is_empty(), "a session has a lane");
    let spill = &start.context.settings.spill;
    let sink = match context(start, &lanes) {
        Ok(sink) => sink,
        Err(error) => return (TransferCounters::default(), Err(send_start_failure(lanes, error))),
    };
    let (both, is_complete, result) = run_lanes(&sink, lanes, spill, warnings, abort);
    (both, remove_finished_journals(sink, &both, is_complete, result))
}

/// Creates the context of the lanes.
fn context<'a>(
    start: SinkStart<'a>,
    lanes: &[EstablishedLaneResources<Box<dyn ReceiveEndpoint>>],
) -> Result<SinkContext<'a>, SessionError> {
    let SinkStart { camp, context, setup, .. } = start;
    let lane_count = lanes.len();
    let SinkSetup { place, records, resumes, .. } = setup;
    let (spec, settings) = (context.spec.clone(), &context.settings);
    let (share, observer) = (context.share.clone(), context.observer);
    let scratch = ScratchNames::new(records.as_ref().map(|records| records.tag))
        .map_err(SessionError::local("making a temporary name"))?;
    let scratch =
        Arc::new(scratch.with_replaceable(AttributePolicy::replaceable_special_files(&spec, settings)));
    let SessionJournals { journal, past, siblings } = records.map(SessionJournals::of).unwrap_or_default();
    let own = place.storage.destination_file_system().own_target();
    let is_remote = own.medium == TargetAttachmentKind::Network;
    let requests = EndStorageRequests::new(
        context.abort.storage_requests(),
        SessionRole::Sink,
        (own.id, place.storage.file_systems().target_description(own.id)),
    );
    let committer = match &place.root {
        Some(root) => {
            let (root, requests) = (Arc::clone(root), requests.clone());
            let syncer =
                FileSystemSyncer::new(root, place.storage.is_one_file_system(), is_remote, requests)?;
            Some(GroupCommitter::new(syncer, journal, settings))
        }
        None => None,
    };
    let probes = place.root.is_some().then(|| Arc::clone(&scratch));
    let attributes = AttributePolicy::new(&spec, settings, probes);
    let destination = SinkDestination::new(place, Arc::clone(&scratch), requests);
    let removal = match &spec.sync {
        Some(sync) => Some(SyncDeletionState::new(sync, &settings.selection, destination.seen.clone())?),
        None => None,
    };
    if let (Some(access), Some(past)) = (&destination.access, &past) {
        past.changed_modes().for_each(|(path, mode)| access.adopt(path, mode));
    }
    Ok(SinkContext {
        removal,
        queries: OpenSourceQueries::new(),
        status: SinkSessionCounts::default(),
        timeouts: SinkTimeouts::new(settings.idle, settings.stall),
        reporting: SinkEventRecipients { camp, share, observer },
        history: SinkSessionJournals {
            past,
            siblings,
            shared_names: SharedFileNames::default(),
            takes_offers: resumes || spec.sync.is_some(),
        },
        sizing: SinkSizing::new(&spec, settings, &destination.storage, lane_count),
        spools: DeferredEntrySpools::new(destination.root.as_ref(), &attributes),
        attributes,
        committer,
        destination,
        spec,
    })
}

/// Removes the records that are not needed any more: the journal, if the transfer is complete and the source
/// knows, and if several sessions carry the transfer, those that this session has for the others.
fn remove_finished_journals(
    sink: SinkContext<'_>,
    both: &TransferCounters,
    is_complete: bool,
    result: Result<(), SessionError>,
) -> Result<(), SessionError> {
    let closes = sink.status.is_last_session();
    if let (Some(siblings), Some(root)) = (&sink.history.siblings, &sink.destination.root) {
        let ended = match sink.committer {
            _ if result.is_ok() && closes => siblings.remove_all_journals(root),
            // This session may have begun after another session had closed the transfer. Once bytes have
            // arrived, it may have left files, and its journal tells a later session that the destination
            // belongs to this transfer.
            Some(committer) if !committer.has_recorded() && both.sink.bytes_arrived == 0 => {
                siblings.remove_own_journal(root, || committer.remove_journal())
            }
            _ => Ok(()),
        };
        return root_cause(result, ended);
    }
    match (result, sink.committer) {
        (Ok(()), Some(committer)) if is_complete => committer.remove_journal(),
        (result, _) => result,
    }
}

/// The uses of a journal in a session.
#[derive(Default)]
struct SessionJournals {
    /// With its path, for messages.
    journal: Option<(Journal, String)>,
    past: Option<PastSessions>,
    siblings: Option<SiblingJournals>,
}

impl SessionJournals {
    fn of(records: SinkTransferJournal) -> SessionJournals {
        let SinkTransferJournal { journal, recovered, path, siblings, .. } = records;
        SessionJournals {
            past: recovered.map(|recovered| PastSessions::new(recovered, path.clone())),
            siblings: siblings.map(|directory| SiblingJournals::new(directory, journal.id(), path.clone())),
            journal: Some((journal, path)),
        }
    }
}

/// Returns the counters of both ends, and true if the transfer is complete and the source has left.
fn run_lanes(
    sink: &SinkContext<'_>,
    starts: Vec<EstablishedLaneResources<Box<dyn ReceiveEndpoint>>>,
    settings: &SpillSettings,
    warnings: Vec<String>,
    abort: &AbortHandle,
) -> (TransferCounters, bool, Result<(), SessionError>) {
    let mut lanes = Vec::new();
    let mut rests = Vec::new();
    let nodes: Vec<NodeSet> = starts.iter().map(|start| start.crew.placement().memory).collect();
    let spills = match lane_spills(sink, settings, &nodes) {
        Ok(spills) => spills,
        Err(error) => return (TransferCounters::default(), false, Err(send_start_failure(starts, error))),
    };
    assert!(spills.len() == starts.len(), "each lane has its logs, if only none");
    for (index, (start, spills)) in starts.into_iter().zip(spills).enumerate() {
        let EstablishedLaneResources { link, endpoints, hub, pool, crew } = start;
        match SinkLane::new(sink, index == 0, endpoints.len(), pool, crew, spills) {
            Ok(lane) => lanes.push(lane),
            Err(error) => return (TransferCounters::default(), false, Err(error)),
        }
        rests.push((link, hub, endpoints));
    }
    let lanes = &lanes[..];
    warnings.into_iter().for_each(|text| lanes[0].report(TransferEvent::Notice(UserNotice::Warning(text))));
    let (both, is_left, result) = thread::scope(|scope| {
        lanes.iter().for_each(|lane| start_threads(lane, scope));
        start_committer(&lanes[0], scope);
        let comms = rests.into_iter().enumerate().map(|(index, (link, hub, endpoints))| {
            let lane: &SinkLane<'_> = &lanes[index];
            let side = SinkComm::new(lanes, index, endpoints);
            LaneComm { link, hub, side, pool: &lane.pool, crew: &lane.crew, fault: &lane.fault, stop: lane }
        });
        let (side, result) = run_comms(comms.collect(), sink.timeouts.stall, abort);
        let is_left = side.as_ref().is_some_and(SinkComm::has_source_left);
        (side.map(|side| side.combined_counters()).unwrap_or_default(), is_left, result)
    });
    // The modes of a session that did not complete; the next session restores those that fail here.
    drop(directory_access::restore_modes(sink, RestoredDirectorySelection::All));
    // Before the files are dropped: files with records are kept.
    let result = root_cause(result, sink.committer.as_ref().map_or(Ok(()), GroupCommitter::commit_remaining));
    (both, is_left && both.summary().entries_failed == 0, result)
}

/// Opens each lane's logs on flash.
fn lane_spills(
    sink: &SinkContext<'_>,
    settings: &SpillSettings,
    lanes: &[NodeSet],
) -> Result<Vec<Vec<LaneSpill<TargetId>>>, SessionError> {
    let (is_sorting, reporting) = (sink.sizing.is_sorting, &sink.reporting);
    let is_used = is_sorting && sink.destination.root.is_some();
    let directories = if is_used { &settings.sink[..] } else { &[] };
    if !is_sorting && !settings.sink.is_empty() {
        reporting.add_notice(
            "spill: the destination is in memory, and takes more than flash: not used".to_owned(),
        );
    }
    spills(directories, settings, sink.spec.slot_bytes as usize, lanes, |text| reporting.add_notice(text))
}

/// Starts a lane's I/O threads, and those of its spills.
fn start_threads<'scope>(lane: &'scope SinkLane<'_>, scope: &'scope thread::Scope<'scope, '_>) {
    for number in 0..lane.queue.thread_count() {
        lane.fault.spawn(scope, lane, "carrack-write", move || {
            let _seat = lane.crew.bind_current_thread(ThreadDuty::Io(number));
            writer::run(lane, number);
        });
    }
    for spill in &lane.spills {
        lane.fault.spawn(scope, lane, "carrack-spill", move || {
            let _seat = lane.bind_auxiliary_thread();
            spill.run_writer(lane);
        });
        lane.fault.spawn(scope, lane, "carrack-refill", move || {
            let _seat = lane.bind_auxiliary_thread();
            spill.run_reader(lane);
        });
    }
}

/// Starts the threads of the group commit, on the cores of the first lane.
fn start_committer<'scope>(lane: &'scope SinkLane<'_>, scope: &'scope thread::Scope<'scope, '_>) {
    assert!(lane.leads, "one lane seats the committer's thread, and ends it");
    let Some(committer) = &lane.sink.committer else { return };
    for number in 0..committer.thread_count() {
        lane.fault.spawn(scope, lane, "carrack-commit", move || {
            let _seat = lane.bind_auxiliary_thread();
            if let Err(error) = committer.run(number) {
                lane.fault.raise(error, lane);
            }
        });
    }
}
