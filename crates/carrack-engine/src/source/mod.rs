//! The source: scan → queues → read → check → send.
//!
//! From the bottom up; a module imports only from rows above its own.
//!
//! | module | contents | threads |
//! | --- | --- | --- |
//! | [`chunks`] | chunks in place of a scan, and the end of each (Y3) | `carrack-feed`, I/O, comm |
//! | [`part_files`] | files that are open for parts of them | I/O |
//! | [`large_file`] | a file that travels as separate objects, from its opening to its end | I/O, comm |
//! | [`work`] | work items of I/O threads, and sent objects by their origin | – |
//! | [`source_roots`] | roots and file systems, and the opening of entries | scan, I/O |
//! | [`sizing`] | numbers of lanes, threads and connections | – |
//! | [`read_queue`] | target queues (L2), flow control (L8), room for the scan | all |
//! | [`send_queue`] | ready objects, free endpoints, credits | I/O, comm |
//! | [`in_flight`] | objects in flight, by their IDs | I/O, comm |
//! | [`file_table`] | large files from their announcement to their end | I/O, comm |
//! | [`backlog`] | counts of a lane's unfinished work | all |
//! | [`offers`] | sections that wait for the sink's choice (L12) | scan, `carrack-offer`, comm |
//! | [`pre_deletion`] | a removal before the transfer | scan, I/O, comm |
//! | [`absence_proof`] | the proof that the source does not have a name | scan, I/O, comm |
//! | [`shared_counts`], [`context`] | the state that all lanes share | all |
//! | [`lane`] | one lane (N2): the parts above, together | all |
//! | [`commit_or_retry`] | the next step for a file with acked objects | I/O, comm |
//! | [`sink_existence_queries`] | answers to the existence queries of a sink that removes | I/O |
//! | [`sender`] | sends objects that were read, if a data connection is free | I/O, `carrack-send` |
//! | [`file_opening`], [`bundle_filling`] | opens large files; fills slots with small ones (M7) | I/O |
//! | [`reader`] | takes work, leases a slot, reads, computes the checksum | I/O |
//! | [`spill`] | objects without credits on flash (L9): `crate::spill` | `carrack-spill`, `carrack-refill` |
//! | [`merged_sources`] | entries that several sources have | scan, `carrack-feed`, `carrack-offer` |
//! | [`small_file_targets`], [`target_bundlers`] | bundles of one target each (L1) | as `scan_to_queues` |
//! | [`scan_to_queues`] | from the scan to a read queue | scan, `carrack-feed`, `carrack-offer` |
//! | [`detail_reports`], [`session_tuning`] | reports; the tuner (Y4, Y5) | comm |
//! | [`comm`] | the sink's messages | comm |

mod absence_proof;
mod backlog;
mod bundle_filling;
mod chunks;
mod comm;
mod commit_or_retry;
mod congestion_control;
mod context;
mod detail_reports;
mod file_opening;
mod file_table;
mod in_flight;
mod lane;
mod large_file;
mod merged_sources;
mod offers;
mod part_files;
mod pre_deletion;
mod read_queue;
mod reader;
mod scan_to_queues;
mod send_queue;
mod sender;
mod session_tuning;
mod shared_counts;
mod sink_existence_queries;
mod sizing;
mod small_file_targets;
mod source_roots;
mod spill;
mod target_bundlers;
#[cfg(test)]
mod test_files;
mod work;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, Scope};

use carrack_layout::FileSystems;
use carrack_machine::{NodeSet, ThreadDuty};
use carrack_model::{EntryFailure, KeptMetadata, TargetId};
use carrack_storage::{FileIdentity, ScanListingProof, ScanRoot};
use carrack_transport::fabric::FabricProgressEngine;
use carrack_transport::{SessionControlLink, TransportSendEndpoint};

use crate::abort::AbortHandle;
use crate::chunks::SourceChunkFeed;
use crate::context::SessionContext;
use crate::counters::TransferCounters;
use crate::error::SessionError;
use crate::lanes::{EstablishedLaneResources, LaneComm, run_comms, send_start_failure};
use crate::placement::PlacedLanes;
use crate::role::SessionRole;
use crate::spill::{LaneSpill, spills};
use crate::storage_requests::EndStorageRequests;
use absence_proof::DeletionProof;
use chunks::SessionChunks;
use comm::SourceComm;
use context::SourceContext;
use lane::SourceLane;
use offers::SourceOfferTable;
use part_files::OpenPartFiles;
use shared_counts::SharedCounts;
pub(crate) use sizing::SinkObjectCapacity;
use sizing::SourceSizing;
pub(crate) use source_roots::SourceStorageFacts;
use source_roots::SourceTree;
use work::ObjectFlowControlKey;

/// The state from which a source begins: an established session with open roots.
pub(crate) struct SourceStart<'a> {
    /// At least one.
    pub(crate) lanes: Vec<EstablishedLaneResources<Box<dyn TransportSendEndpoint>>>,
    /// The placement of the lanes.
    pub(crate) camp: &'a PlacedLanes,
    pub(crate) context: &'a SessionContext<'a>,
    pub(crate) setup: SourceSetup,
}

/// The sources of a transfer, and the facts about its sink.
pub(crate) struct SourceSetup {
    pub(crate) file_systems: FileSystems,
    /// The storage beneath the roots.
    pub(crate) storage: SourceStorageFacts,
    pub(crate) roots: Vec<ScanRoot>,
    /// The scan's record, in a transfer that deletes.
    pub(crate) record: Option<Arc<ScanListingProof>>,
    /// The chunk feed, if the work does not come from a scan.
    pub(crate) feed: Option<Arc<dyn SourceChunkFeed>>,
    /// Failures of single sources before the start.
    pub(crate) failures: Vec<EntryFailure>,
    /// A directory that the scan must not enter, as the sink is writing there.
    pub(crate) destination: Option<FileIdentity>,
    /// The capacity of the sink.
    pub(crate) sink: SinkObjectCapacity,
    /// True if the sink has a journal and chooses the entries to send.
    pub(crate) sink_resumes: bool,
    /// Metadata beyond mode and time that both ends can keep.
    pub(crate) kept: KeptMetadata,
}

/// Moves all entries beneath the roots to the sink. Returns both ends' counters.
pub(crate) fn run(
    start: SourceStart<'_>,
    abort: &AbortHandle,
) -> (TransferCounters, Result<(), SessionError>) {
    let SourceStart { lanes: starts, camp, context, setup } = start;
    let (spec, settings) = (context.spec.clone(), &context.settings);
    let is_sync = spec.sync.is_some();
    let asks_sink = is_sync || setup.sink_resumes && !spec.dry_run;
    let own = own_target(&setup.file_systems, &setup.roots);
    let label = setup.file_systems.target_description(own);
    let requests = EndStorageRequests::new(abort.storage_requests(), SessionRole::Source, (own, label));
    let source = SourceContext {
        deletion: DeletionProof::new(&spec, setup.record),
        tree: SourceTree { roots: setup.roots, file_systems: setup.file_systems, requests },
        camp,
        sizing: SourceSizing::new(&spec, settings, &setup.storage, &setup.sink, starts.len()),
        offers: asks_sink.then(|| SourceOfferTable::new(is_sync)),
        chunks: setup.feed.map(SessionChunks::new),
        part_files: OpenPartFiles::default(),
        counts: SharedCounts::default(),
        kept: setup.kept,
        spec,
        settings,
        share: context.share.clone(),
        observer: context.observer,
    };
    let nodes: Vec<NodeSet> = starts.iter().map(|start| start.crew.placement().memory).collect();
    let spills = match spills_of_lanes(&source, &nodes) {
        Ok(spills) => spills,
        Err(error) => return (TransferCounters::default(), Err(send_start_failure(starts, error))),
    };
    let (mut lanes, mut rests) = (Vec::new(), Vec::new());
    for (start, spills) in starts.into_iter().zip(spills) {
        let EstablishedLaneResources { link, endpoints, hub, pool, crew } = start;
        let sizing = source.sizing.lane(endpoints.len());
        match SourceLane::new(&source, endpoints, &sizing, pool, crew, spills) {
            Ok(lane) => lanes.push(lane),
            Err(error) => return (TransferCounters::default(), Err(error)),
        }
        // A dry run of a sync sends no objects, but answers existence queries.
        let reads = !source.spec.dry_run || source.spec.sync.is_some();
        rests.push((link, hub, if reads { sizing.thread_count } else { 0 }));
    }
    setup.failures.into_iter().for_each(|failure| lanes[0].fail(failure));
    if let Some(chunks) = &source.chunks {
        chunks.set_waker(lanes[0].mail.waker());
    }
    run_lanes(&lanes, rests, setup.destination, abort)
}

/// Returns the target of the first root. Number 0 stands for none.
fn own_target(file_systems: &FileSystems, roots: &[ScanRoot]) -> TargetId {
    let first = roots.first().and_then(|root| file_systems.file_system_of(root.root.as_ref().as_fd()).ok());
    first.map_or(TargetId(0), |file_system| file_system.own_target().id)
}

/// Opens each lane's logs on flash.
fn spills_of_lanes(
    source: &SourceContext<'_>,
    nodes: &[NodeSet],
) -> Result<Vec<Vec<LaneSpill<Option<ObjectFlowControlKey>>>>, SessionError> {
    let settings = &source.settings.spill;
    let mut directories = &settings.source[..];
    if source.spec.dry_run || source.sizing.is_memory {
        directories = &[];
    }
    if source.sizing.is_memory && !settings.source.is_empty() {
        let text = "spill: the sources are in memory, and read faster than it writes: not used";
        source.camp.add_notice(text.to_owned());
    }
    let slot_bytes = source.spec.slot_bytes as usize;
    spills(directories, settings, slot_bytes, nodes, |text| source.camp.add_notice(text))
}

/// A lane's link, its progress engine if it has one, and the number of its I/O threads.
type SourceLaneParts = (SessionControlLink, Option<Box<dyn FabricProgressEngine>>, usize);

/// Runs the threads of all lanes until the session ends. Each lane comes with its link and the number of its
/// I/O threads.
fn run_lanes(
    lanes: &[SourceLane<'_>],
    rests: Vec<SourceLaneParts>,
    destination: Option<FileIdentity>,
    abort: &AbortHandle,
) -> (TransferCounters, Result<(), SessionError>) {
    let (first, stall) = (&lanes[0], lanes[0].source.settings.stall);
    thread::scope(|scope| {
        first.fault.spawn(scope, first, "carrack-feed", move || scan_to_queues::run(lanes, destination));
        let mut comms = Vec::new();
        for (index, (link, hub, thread_count)) in rests.into_iter().enumerate() {
            let lane = &lanes[index];
            for number in 0..thread_count {
                lane.fault.spawn(scope, lane, "carrack-read", move || reader::run(lane, number));
            }
            start_further_threads(lane, scope);
            let side = SourceComm::new(lanes, index);
            let (pool, crew, fault) = (&lane.pool, &lane.crew, &lane.fault);
            comms.push(LaneComm { link, hub, side, pool, crew, fault, stop: lane });
        }
        let (side, result) = run_comms(comms, stall, abort);
        (side.map(|side| side.combined_counters()).unwrap_or_default(), result)
    })
}

/// Starts a lane's threads that move objects to flash and back, and the one that sends what waited for
/// credits.
fn start_further_threads<'scope>(lane: &'scope SourceLane<'_>, scope: &'scope Scope<'scope, '_>) {
    for spill in &lane.spills {
        lane.fault.spawn(scope, lane, "carrack-spill", move || {
            let _seat = lane.crew.bind_current_thread(ThreadDuty::Io(0));
            spill.run_writer(lane);
        });
        lane.fault.spawn(scope, lane, "carrack-refill", move || {
            let _seat = lane.crew.bind_current_thread(ThreadDuty::Io(0));
            spill.run_reader(lane);
        });
    }
    if lane.send_queue.seals {
        lane.fault.spawn(scope, lane, "carrack-send", move || {
            let _seat = lane.crew.bind_current_thread(ThreadDuty::Io(0));
            sender::send_waiting_objects(lane);
        });
    }
}
