//! The source: scan → queues → read → check → send.
//!
//! | room | what happens there | threads |
//! | --- | --- | --- |
//! | [`feeder`] | what the scan finds becomes bundles and large files in the target queues of a lane | scan |
//! | [`offers`] | what the scan found waits here for the sink's word, where that has a journal (L12) | scan, `carrack-offer`, comm |
//! | [`chunks`] | what comes in chunks in place of a scan, and when a chunk is at its end (Y3) | `carrack-feed`, I/O, comm |
//! | [`lane`] | what the threads of one lane share (N2) | all |
//! | [`targets`] | the file systems and targets that the scan has come across | scan, I/O |
//! | [`queue`] | the target queues and what waits in them | all |
//! | [`flow`] | how many objects are on their way to each of the sink's targets | all |
//! | [`reader`] | takes work, leases a slot, reads, makes the check, posts the object | I/O |
//! | [`bundle_filling`] | reads many small files into one slot (M7) | I/O |
//! | [`large_file`] | one file that travels as objects of its own, from its opening to its end | I/O, comm |
//! | [`endings`] | what comes next for a file whose objects were answered | I/O, comm |
//! | [`stands`] | what a sink asks that removes what is not here | I/O |
//! | [`spill`] | what may go to flash when it can't leave, and comes back (L9): `crate::spill` | `carrack-spill`, `carrack-refill` |
//! | [`outbox`] | objects that are ready, endpoints that are free, credits | I/O, comm |
//! | [`comm`] | the sink's answers; endpoints that nobody drives | comm |
//! | [`clearing`] | what waits until the sink has removed what is not here, if that goes first | scan, comm |
//! | [`detail`] | what who watches is told beyond the counters | comm |
//! | [`tuning`] | how many threads and connections are used (Y4, Y5) | comm |

mod bundle_filling;
mod chunks;
mod clearing;
mod comm;
mod detail;
mod endings;
mod feeder;
mod flow;
mod lane;
mod large_file;
mod offers;
mod outbox;
mod overlap;
mod queue;
mod reader;
#[cfg(feature = "rivals")]
mod rivals;
mod spill;
mod stands;
mod targets;
mod tuning;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

use carrack_machine::NodeSet;
use carrack_model::{Entry, EntryFailure, Kept, PartialRange, TransferSpec};
use carrack_storage::{FileSystems, Identity, ScanRecord, ScanRoot};
use carrack_transport::{SendEndpoint, StreamCount};

use crate::abort::Abort;
use crate::chunks::ChunkFeed;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::Camp;
use crate::lanes::{LaneComm, LaneStart, decline, open_files, run_comms};
use crate::report::Observer;
use crate::settings::{Limits, Settings};
use crate::sharing::Share;
use crate::spill::{Spill, spills};
use chunks::Chunks;
use clearing::Clearing;
use comm::SourceComm;
use detail::Sizes;
use flow::Place;
use lane::Lane;
use offers::Offers;
use stands::Evidence;
pub(crate) use targets::RootStorage;

/// What a source needs to begin: the session stands, the roots are open.
pub(crate) struct SourceStart<'a> {
    /// At least one.
    pub(crate) lanes: Vec<LaneStart<Box<dyn SendEndpoint>>>,
    /// Where the lanes are.
    pub(crate) camp: &'a Camp,
    pub(crate) spec: TransferSpec,
    pub(crate) settings: &'a Settings,
    pub(crate) file_systems: FileSystems,
    /// What the roots lie on.
    pub(crate) storage: RootStorage,
    pub(crate) roots: Vec<ScanRoot>,
    /// What the scan will have seen, where something is to be deleted.
    pub(crate) record: Option<Arc<ScanRecord>>,
    /// Where its work comes from, if it does not scan.
    pub(crate) feed: Option<Arc<dyn ChunkFeed>>,
    /// What went wrong with single sources before the start.
    pub(crate) failures: Vec<EntryFailure>,
    /// A directory that the scan must not enter, as the sink is writing there.
    pub(crate) destination: Option<Identity>,
    /// For each lane.
    pub(crate) credits: u32,
    /// Large files that the sink may have open, of all lanes.
    pub(crate) sink_open_files: usize,
    /// The sink writes to several targets and says where files lie.
    pub(crate) sink_has_targets: bool,
    /// The sink has a journal: it is asked what it wants.
    pub(crate) sink_resumes: bool,
    /// What is kept beyond mode and time, as far as both ends can.
    pub(crate) kept: Kept,
    /// The sink takes files with holes.
    pub(crate) takes_holes: bool,
    /// Its part in sharing targets, if it has one.
    pub(crate) share: Option<Arc<Share>>,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// What all lanes of a source look at.
struct Source<'a> {
    spec: TransferSpec,
    settings: &'a Settings,
    limits: Limits,
    roots: Vec<ScanRoot>,
    file_systems: FileSystems,
    camp: &'a Camp,
    lane_count: usize,
    /// I/O threads of all lanes.
    io_threads: usize,
    /// Whether all roots are in memory.
    is_memory: bool,
    /// Free slots that the sink has promised each lane.
    credits: u32,
    /// Large files that may be open here and at the sink, of all lanes.
    open_files: usize,
    /// Whether it matters where at the sink an object goes.
    counts_flow: bool,
    /// What waits for the sink's word, if it is asked.
    offers: Option<Offers>,
    /// What waits until the sink has removed what is not here, if that goes first.
    clearing: Option<Clearing>,
    /// What answers the questions of a sink that removes what is not here.
    evidence: Option<Evidence>,
    /// Questions that were answered.
    stands_answered: AtomicU64,
    /// What the work comes in, if it does not scan.
    chunks: Option<Chunks>,
    /// Lanes that have come to their end.
    lanes_over: AtomicUsize,
    sizes: Sizes,
    kept: Kept,
    /// Whether holes of files need not be read and sent.
    leaves_holes: bool,
    share: Option<Arc<Share>>,
    observer: Option<&'a dyn Observer>,
}

/// Moves everything beneath the roots to the sink; returns both ends' counters.
pub(crate) fn run(start: SourceStart<'_>, abort: &Abort) -> (BothEnds, Result<(), SessionError>) {
    let SourceStart { lanes: starts, file_systems, storage, failures, destination, .. } = start;
    let deletion = start.spec.sync.as_ref().and_then(|sync| sync.deletion.as_ref());
    let believes_empty_sources = deletion.is_some_and(|deletion| deletion.by_empty_sources);
    let evidence = start.record.map(|record| Evidence::new(record, believes_empty_sources));
    let source = Source {
        camp: start.camp,
        file_systems,
        lane_count: starts.len(),
        io_threads: start.settings.io_thread_count(storage.depth),
        is_memory: storage.is_memory,
        credits: start.credits,
        open_files: open_files().min(start.sink_open_files),
        counts_flow: start.sink_has_targets,
        offers: (start.spec.sync.is_some() || start.sink_resumes && !start.spec.dry_run)
            .then(|| Offers::new(start.spec.sync.is_some())),
        clearing: deletes_first(&start.spec).then(Clearing::new),
        evidence,
        stands_answered: AtomicU64::new(0),
        chunks: start.feed.map(Chunks::new),
        lanes_over: AtomicUsize::new(0),
        sizes: Sizes::default(),
        kept: start.kept,
        // The digest of a file is made of what comes of it.
        leaves_holes: start.takes_holes && !start.spec.report_digests,
        spec: start.spec,
        settings: start.settings,
        limits: start.settings.limits(),
        roots: start.roots,
        share: start.share,
        observer: start.observer,
    };
    source.run(starts, failures, destination, abort)
}

fn deletes_first(spec: &TransferSpec) -> bool {
    let deletion = spec.sync.as_ref().and_then(|sync| sync.deletion.as_ref());
    deletion.is_some_and(|deletion| deletion.first)
}

impl Source<'_> {
    /// Bytes of an entry that are to be copied.
    fn wanted_bytes(&self, entry: &Entry) -> u64 {
        let of_part = |part: PartialRange| part.range_in(entry.size()).map_or(0, |range| range.len);
        self.spec.part.map_or(entry.size(), of_part)
    }

    /// Where what is copied of a file of `size` bytes ends.
    fn end_in(&self, size: u64) -> u64 {
        self.spec.part.map_or(size, |part| part.end_in(size))
    }

    /// Streams of all lanes that are used at first, of so many that stand.
    fn streams_at_start(&self, opened: usize) -> usize {
        self.stream_count().used(opened)
    }

    fn stream_count(&self) -> StreamCount {
        StreamCount::new(self.spec.streams, self.lane_count as u16, self.settings.tunes)
    }

    /// Each lane's logs on flash.
    fn spills(&self, lanes: &[NodeSet]) -> Result<Vec<Vec<Spill<Option<Place>>>>, SessionError> {
        let settings = &self.settings.spill;
        let mut directories = &settings.source[..];
        if self.spec.dry_run || self.is_memory {
            directories = &[];
        }
        if self.is_memory && !settings.source.is_empty() {
            self.camp.tell(
                "spill: the sources are in memory, and read faster than it writes: not used".to_owned(),
            );
        }
        spills(directories, settings, self.spec.slot_bytes as usize, lanes, |text| self.camp.tell(text))
    }

    fn run(
        &self,
        starts: Vec<LaneStart<Box<dyn SendEndpoint>>>,
        failures: Vec<EntryFailure>,
        destination: Option<Identity>,
        abort: &Abort,
    ) -> (BothEnds, Result<(), SessionError>) {
        let nodes: Vec<NodeSet> = starts.iter().map(|start| start.crew.place().memory).collect();
        let spills = match self.spills(&nodes) {
            Ok(spills) => spills,
            Err(error) => return (BothEnds::default(), Err(decline(starts, error))),
        };
        let prepare = |(start, spills): (LaneStart<_>, Vec<Spill<_>>)| {
            Ok((Lane::new(self, start.endpoints, start.pool, start.crew, spills)?, (start.link, start.hub)))
        };
        let prepared: Result<Vec<_>, SessionError> = starts.into_iter().zip(spills).map(prepare).collect();
        let (lanes, links): (Vec<Lane<'_>>, Vec<_>) = match prepared {
            Ok(prepared) => prepared.into_iter().unzip(),
            Err(error) => return (BothEnds::default(), Err(error)),
        };
        let lanes = &lanes[..];
        let first = &lanes[0];
        failures.into_iter().for_each(|failure| first.fail(failure));
        if let Some(chunks) = &self.chunks {
            chunks.tell(first);
        }
        thread::scope(|scope| {
            first.fault.spawn(scope, first, "carrack-feed", move || feeder::run(self, lanes, destination));
            lanes.iter().for_each(|lane| lane.start(scope));
            let comm = |(index, (link, hub))| {
                let lane: &Lane<'_> = &lanes[index];
                let side = SourceComm::new(lanes, index);
                LaneComm {
                    link,
                    hub,
                    side,
                    pool: &lane.pool,
                    crew: &lane.crew,
                    fault: &lane.fault,
                    stop: lane,
                }
            };
            let (side, result) =
                run_comms(links.into_iter().enumerate().map(comm).collect(), self.settings.stall, abort);
            (side.map(|side| side.both()).unwrap_or_default(), result)
        })
    }
}
