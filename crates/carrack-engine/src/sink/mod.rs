//! The sink: receive → check → write → done.
//!
//! | room | what happens there | threads |
//! | --- | --- | --- |
//! | [`comm`] | the source's messages; endpoints that are quiet; answers, several in one message | comm |
//! | [`storage`] | whether there are several targets to choose from, and how files are written | all |
//! | [`lane`] | what the threads of one lane share (N2) | all |
//! | [`inbox`] | what waits for an I/O thread: streams with data, objects, ends of files | all |
//! | [`writer`] | drives a stream, checks and writes what comes | I/O |
//! | [`unpack`] | a bundle becomes small files and links | I/O |
//! | [`sink_file`] | one large file, from its announcement to its name | I/O, comm |

mod comm;
mod inbox;
mod lane;
mod sink_file;
mod storage;
mod unpack;
mod writer;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use carrack_model::{Metadata, Scheduling, TransferSpec};
use carrack_storage::{DirectorySpool, Medium, Root, ScratchNames};
use carrack_transport::{Link, ReceiveEndpoint};

use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::Camp;
use crate::lanes::{LaneComm, LaneStart, run_comms};
use crate::report::Observer;
use crate::session::Confinement;
use crate::settings::Settings;
use comm::SinkComm;
use lane::Lane;
pub(crate) use storage::{SinkStorage, stripes_to_message};

/// Set-user-id and set-group-id (inode(7)): a program that has them runs with its owner's rights, whoever starts it.
const SPECIAL_MODES: u32 = 0o6000;

/// What a sink needs to begin: the session stands, the destination is open.
pub(crate) struct SinkStart<'a> {
    /// At least one.
    pub(crate) lanes: Vec<LaneStart<Box<dyn ReceiveEndpoint>>>,
    /// Where the lanes are.
    pub(crate) camp: &'a Camp,
    pub(crate) spec: TransferSpec,
    pub(crate) settings: &'a Settings,
    /// Everything is written beneath it. Nothing in a dry run.
    pub(crate) root: Option<Arc<Root>>,
    /// What it lies on.
    pub(crate) storage: Arc<SinkStorage>,
    /// Names that the source may use there.
    pub(crate) confinement: Confinement,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// What all lanes of a sink look at.
struct Sink<'a> {
    spec: TransferSpec,
    root: Option<Arc<Root>>,
    confinement: Confinement,
    storage: Arc<SinkStorage>,
    camp: &'a Camp,
    /// A lane's share of the limits that the user set.
    scheduling: Scheduling,
    lane_count: usize,
    /// I/O threads that the storage can use, of all lanes.
    io_threads: usize,
    /// Whether one thread at a time writes to a file. A local file system locks it for a buffered write, and a second
    /// writer would spin on that lock: 15 % of all CPU time with one large file and two streams on two cores.
    writes_in_turn: bool,
    /// Whether objects wait in the queues of their targets. Else they are written by whoever receives them.
    is_sorting: bool,
    scratch: ScratchNames,
    directories: Mutex<Option<DirectorySpool>>,
    /// Whether entries may get set-user-id and set-group-id bits.
    special_modes: bool,
    /// How long nothing may move.
    idle: Option<Duration>,
    /// Lanes that have come to their end.
    lanes_over: AtomicUsize,
    observer: Option<&'a dyn Observer>,
}

/// Writes everything that the source sends; returns both ends' counters.
pub(crate) fn run(start: SinkStart<'_>, abort: &Abort) -> (BothEnds, Result<(), SessionError>) {
    let SinkStart { lanes: starts, storage, settings, .. } = start;
    let scratch = match ScratchNames::new() {
        Ok(scratch) => scratch,
        Err(error) => {
            return (BothEnds::default(), Err(SessionError::local("making a temporary name")(error)));
        }
    };
    let sink = Sink {
        camp: start.camp,
        scratch,
        directories: Mutex::new(start.root.clone().map(DirectorySpool::new)),
        scheduling: settings.scheduling.share(starts.len()),
        lane_count: starts.len(),
        io_threads: settings.io_thread_count(storage.depth()),
        writes_in_turn: storage.own().own_target().medium != Medium::Network,
        is_sorting: storage.has_targets(),
        idle: settings.idle,
        special_modes: settings.special_modes,
        lanes_over: AtomicUsize::new(0),
        spec: start.spec,
        root: start.root,
        confinement: start.confinement,
        observer: start.observer,
        storage,
    };
    sink.run(starts, abort)
}

impl Sink<'_> {
    fn run(
        &self,
        starts: Vec<LaneStart<Box<dyn ReceiveEndpoint>>>,
        abort: &Abort,
    ) -> (BothEnds, Result<(), SessionError>) {
        let mut lanes = Vec::new();
        let mut rests: Vec<(Link, Vec<Box<dyn ReceiveEndpoint>>)> = Vec::new();
        for (index, LaneStart { link, endpoints, pool, crew }) in starts.into_iter().enumerate() {
            match Lane::new(self, index == 0, endpoints.len(), pool, crew) {
                Ok(lane) => lanes.push(lane),
                Err(error) => return (BothEnds::default(), Err(error)),
            }
            rests.push((link, endpoints));
        }
        let lanes = &lanes[..];
        thread::scope(|scope| {
            lanes.iter().for_each(|lane| lane.start(scope));
            let comm = |(index, (link, endpoints))| {
                let lane: &Lane<'_> = &lanes[index];
                let side = SinkComm::new(lanes, index, endpoints);
                LaneComm { link, side, pool: &lane.pool, crew: &lane.crew, fault: &lane.fault, stop: lane }
            };
            let (side, result) = run_comms(rests.into_iter().enumerate().map(comm).collect(), abort);
            (side.map(|side| side.both()).unwrap_or_default(), result)
        })
    }

    /// What an entry gets of the metadata that it has at the source.
    fn allowed(&self, metadata: Metadata) -> Metadata {
        let mode = if self.special_modes { metadata.mode } else { metadata.mode & !SPECIAL_MODES };
        Metadata { mode, ..metadata }
    }

    fn directories(&self) -> MutexGuard<'_, Option<DirectorySpool>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
