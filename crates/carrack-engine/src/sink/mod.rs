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
//! | [`committer`], [`group`] | what was written is made durable and recorded (L12) | `carrack-commit` |
//! | [`offers`], [`past`] | what an earlier session left, and what is therefore not wanted | I/O |
//! | [`sync`] | what differs from what is there, where that is to be made like the source | I/O |
//! | [`prune`] | what the source does not have goes | I/O |
//! | [`removal`], [`make_way`] | what of that stays; what stands where another kind of entry is to be | I/O |
//! | [`backup`] | where it is moved to in place of being removed | I/O |
//! | [`access`] | directories of one's own that are read-only, for the while | I/O |
//! | [`siblings`] | the same, of other sessions that carry the transfer at the same time | I/O |
//! | [`spill`] | what may go to flash while the storage does not take it, and comes back (L9): `crate::spill` | `carrack-spill`, `carrack-refill` |
//! | [`sink_file`] | one large file, from its announcement to its name | I/O, comm |
//! | [`line`] | whose turn it is to write to that file, and who leaves an object to whom | I/O |

mod access;
mod announcing;
mod backup;
mod comm;
mod committer;
mod group;
mod inbox;
mod lane;
mod line;
mod make_way;
mod offers;
mod past;
pub(crate) mod prune;
mod removal;
mod siblings;
mod sink_file;
mod spill;
mod storage;
mod sync;
mod unpack;
mod writer;

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use carrack_journal::{Journal, Recovered};
use carrack_machine::{Monitor, NodeSet};
use carrack_model::{
    Event, Extras, Fidelity, Kept, Metadata, ModeChange, ModifyWindow, Notice, RelPath, Scheduling, TargetId,
    TransferSpec,
};
use carrack_storage::{
    DirectoryAccess, DirectorySpool, Dress, FoldedNames, FoldingDirectory, Keeper, LinkSpool, Medium,
    Restoring, Root, ScratchNames, SinkError, StoredTimes, users_umask,
};
use carrack_transport::{ReceiveEndpoint, StreamCount};

use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::Camp;
use crate::lanes::{LaneComm, LaneStart, cause, decline, run_comms};
use crate::report::Observer;
use crate::session::Confinement;
use crate::settings::{Limits, Settings};
use crate::sharing::Share;
use crate::spill::{Spill, spills};
use crate::spill_settings::SpillSettings;
use comm::SinkComm;
use committer::Committer;
use lane::Lane;
use past::Past;
use removal::Removal;
use siblings::Siblings;
pub(crate) use storage::{SinkStorage, stripes_to_message};

/// Set-user-ID and set-group-ID (inode(7)): a program that has them runs with its owner's rights, whoever starts it.
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
    /// Where to look in the dry run of a sync, if it is there.
    pub(crate) seen: Option<Arc<Root>>,
    /// Whether the source was told that there may be something of the transfer.
    pub(crate) resumes: bool,
    /// The journal, if one is kept.
    pub(crate) records: Option<Records>,
    /// What the user has to know before anything is written.
    pub(crate) warnings: Vec<String>,
    /// What it lies on.
    pub(crate) storage: Arc<SinkStorage>,
    /// Names that the source may use there.
    pub(crate) confinement: Confinement,
    /// Its part in sharing targets, if it has one.
    pub(crate) share: Option<Arc<Share>>,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// The journal of a transfer.
pub(crate) struct Records {
    pub(crate) journal: Journal,
    /// What is in it already.
    pub(crate) recovered: Option<Recovered>,
    /// Where it lies, for people.
    pub(crate) path: String,
    /// What temporary names are known by.
    pub(crate) tag: u16,
    /// Where the other sessions of the transfer have theirs, if several carry it.
    pub(crate) siblings: Option<OwnedFd>,
}

/// What all lanes of a sink look at.
struct Sink<'a> {
    spec: TransferSpec,
    root: Option<Arc<Root>>,
    /// The same, and in the dry run of a sync what is only looked at.
    seen: Option<Arc<Root>>,
    /// What may go, in a sync.
    removal: Option<Removal>,
    /// Entries that failed here so far, in all lanes.
    failure_count: AtomicU64,
    /// What the source said of names that may go.
    stands: Monitor<prune::Answers>,
    confinement: Confinement,
    storage: Arc<SinkStorage>,
    /// Nothing in a dry run.
    committer: Option<Committer>,
    /// Whether the source may offer its entries before it sends them.
    takes_offers: bool,
    /// What earlier sessions left, if there were any.
    past: Option<Past>,
    /// What other sessions have recorded, if several carry the transfer.
    siblings: Option<Siblings>,
    /// This session is the transfer's last one.
    closes: AtomicBool,
    camp: &'a Camp,
    /// What one lane keeps to.
    scheduling: Scheduling,
    /// What all of them keep to together.
    limits: Limits,
    lane_count: usize,
    /// I/O threads that the storage can use, of all lanes.
    io_threads: usize,
    /// Those that it may come to use.
    io_threads_most: usize,
    /// Streams that are used at first, of those that stand.
    stream_count: StreamCount,
    /// Whether one thread at a time writes to a file. A local file system locks it for a buffered write, and a second
    /// writer would spin on that lock: 15 % of all CPU time with one large file and two streams on two cores.
    writes_in_turn: bool,
    /// Whether objects wait in the queues of their targets. Else they are written by whoever receives them.
    is_sorting: bool,
    scratch: Arc<ScratchNames>,
    /// Directories that are accessible for the while. Nothing in a dry run.
    access: Option<DirectoryAccess>,
    /// How the destination's file systems store times.
    times: StoredTimes,
    /// Names that the destination does not tell apart. Nothing in a dry run.
    names: Option<FoldedNames>,
    directories: Mutex<Option<DirectorySpool>>,
    /// Further names of files, made at the end.
    links: Mutex<Option<LinkSpool>>,
    /// Sets owners and attributes.
    keeper: Arc<Keeper>,
    /// What was asked for beyond mode and time. A source that makes devices unasked breaks the protocol.
    kept: Kept,
    /// Which special files a file, link or directory may replace: in a sync those that are copied.
    replaced: Kept,
    /// Whether entries may get set-user-ID and set-group-ID bits.
    special_modes: bool,
    /// What the user changes in the modes of the source.
    mode_change: ModeChange,
    /// How long nothing may move.
    idle: Option<Duration>,
    /// How long the other end may be silent, and an object may stop on its way.
    stall: Duration,
    /// Whether the source sends straight from files now, as it said last.
    source_is_busy: AtomicBool,
    /// Lanes that have come to their end.
    lanes_over: AtomicUsize,
    share: Option<Arc<Share>>,
    observer: Option<&'a dyn Observer>,
}

/// Writes everything that the source sends; returns both ends' counters.
pub(crate) fn run(start: SinkStart<'_>, abort: &Abort) -> (BothEnds, Result<(), SessionError>) {
    let SinkStart { lanes: starts, storage, settings, .. } = start;
    let tag = start.records.as_ref().map(|records| records.tag);
    let shown = start.records.as_ref().map(|records| records.path.clone());
    let (mut recovered, mut siblings) = (None, None);
    let journal = start.records.map(|records| {
        (recovered, siblings) = (records.recovered, records.siblings);
        (records.journal, records.path)
    });
    let one_file_system = storage.is_one_file_system();
    let committer = |root: &Arc<Root>| Committer::new(Arc::clone(root), journal, one_file_system, settings);
    let replaced = if start.spec.sync.is_some() { settings.fidelity.kept } else { Kept::default() };
    let prepared = ScratchNames::new(tag)
        .map(|scratch| scratch.replacing(replaced))
        .map_err(SessionError::local("making a temporary name"))
        .and_then(|scratch| {
            let removal = start.spec.sync.as_ref().map(|sync| Removal::new(sync, &settings.selection));
            Ok((Arc::new(scratch), removal.transpose()?, start.root.as_ref().map(committer).transpose()?))
        });
    let (scratch, removal, committer) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return (BothEnds::default(), Err(decline(starts, error))),
    };
    let io_threads = settings.io_thread_count(storage.depth());
    // A part takes nothing of the source's metadata along.
    let fidelity = match start.spec.part {
        Some(_) => Cow::Owned(Fidelity { omit_times: true, ..Fidelity::default() }),
        None => Cow::Borrowed(&settings.fidelity),
    };
    let keeper = Arc::new(Keeper::new(settings.special_modes).keeping(&fidelity));
    let window = start.spec.sync.as_ref().map_or(ModifyWindow::Stored, |sync| sync.modify_window);
    let probes = start.root.is_some().then(|| Arc::clone(&scratch));
    let new_links = |root| match fidelity.omit_times {
        true => LinkSpool::new(root).without_times(),
        false => LinkSpool::new(root),
    };
    let sink = Sink {
        camp: start.camp,
        times: StoredTimes::new(window, probes),
        names: start
            .root
            .as_ref()
            .map(|root| FoldedNames::new(root.as_fd(), one_file_system, Arc::clone(&scratch))),
        scratch,
        access: start.root.clone().map(DirectoryAccess::new),
        committer,
        siblings: siblings.map(|directory| Siblings::new(directory, shown.clone().unwrap_or_default())),
        closes: AtomicBool::new(false),
        takes_offers: start.resumes || start.spec.sync.is_some(),
        past: recovered.map(|recovered| Past::new(recovered, shown.unwrap_or_default())),
        directories: Mutex::new(
            start.root.clone().map(|root| DirectorySpool::new(root, Arc::clone(&keeper))),
        ),
        links: Mutex::new(start.root.clone().map(new_links)),
        keeper,
        kept: fidelity.kept,
        replaced,
        scheduling: settings.scheduling.of_lane(starts.len()),
        limits: settings.limits(),
        lane_count: starts.len(),
        io_threads,
        io_threads_most: match storage.has_targets() {
            true => settings.io_threads_most(io_threads),
            false => io_threads,
        },
        stream_count: StreamCount::new(start.spec.streams, starts.len() as u16, settings.tunes),
        writes_in_turn: storage.own().own_target().medium != Medium::Network,
        is_sorting: storage.has_targets(),
        idle: settings.idle,
        stall: settings.stall,
        source_is_busy: AtomicBool::new(false),
        special_modes: settings.special_modes,
        mode_change: fidelity.mode_change.clone(),
        lanes_over: AtomicUsize::new(0),
        spec: start.spec,
        seen: start.root.clone().or(start.seen),
        removal,
        failure_count: AtomicU64::new(0),
        stands: Monitor::new(prune::Answers::new()),
        root: start.root,
        confinement: start.confinement,
        share: start.share,
        observer: start.observer,
        storage,
    };
    if let (Some(access), Some(past)) = (&sink.access, &sink.past) {
        past.changed_modes().for_each(|(path, mode)| access.adopt(path, mode));
    }
    let (both, is_complete, result) = sink.run(starts, &settings.spill, start.warnings, abort);
    if let (Some(siblings), Some(root)) = (&sink.siblings, &sink.root) {
        let ended = match sink.committer {
            _ if result.is_ok() && sink.closes.into_inner() => siblings.retire(root),
            // It may have begun when another one had closed the transfer. What has arrived may have left something: its journal tells
            // whoever comes again that the destination is this transfer's.
            Some(committer) if !committer.has_recorded() && both.sink.bytes_arrived == 0 => {
                siblings.leave(root, committer)
            }
            _ => Ok(()),
        };
        return (both, cause(result, ended));
    }
    match (result, sink.committer) {
        // Everything is there and the source knows.
        (Ok(()), Some(committer)) if is_complete => (both, committer.retire()),
        (result, _) => (both, result),
    }
}

impl Sink<'_> {
    /// Returns the counters of both ends, and whether everything is there and the source has left.
    fn run(
        &self,
        starts: Vec<LaneStart<Box<dyn ReceiveEndpoint>>>,
        settings: &SpillSettings,
        warnings: Vec<String>,
        abort: &Abort,
    ) -> (BothEnds, bool, Result<(), SessionError>) {
        let mut lanes = Vec::new();
        let mut rests = Vec::new();
        let nodes: Vec<NodeSet> = starts.iter().map(|start| start.crew.place().memory).collect();
        let spills = match self.spills(settings, &nodes) {
            Ok(spills) => spills,
            Err(error) => return (BothEnds::default(), false, Err(decline(starts, error))),
        };
        for (index, (start, spills)) in starts.into_iter().zip(spills).enumerate() {
            let LaneStart { link, endpoints, hub, pool, crew } = start;
            match Lane::new(self, index == 0, endpoints.len(), pool, crew, spills) {
                Ok(lane) => lanes.push(lane),
                Err(error) => return (BothEnds::default(), false, Err(error)),
            }
            rests.push((link, hub, endpoints));
        }
        let lanes = &lanes[..];
        warnings.into_iter().for_each(|text| lanes[0].report(Event::Notice(Notice::Warning(text))));
        let (both, is_left, result) = thread::scope(|scope| {
            lanes.iter().for_each(|lane| lane.start(scope));
            self.start_committer(scope, &lanes[0]);
            let comm = |(index, (link, hub, endpoints))| {
                let lane: &Lane<'_> = &lanes[index];
                let side = SinkComm::new(lanes, index, endpoints);
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
                run_comms(rests.into_iter().enumerate().map(comm).collect(), self.stall, abort);
            let is_left = side.as_ref().is_some_and(SinkComm::is_left);
            (side.map(|side| side.both()).unwrap_or_default(), is_left, result)
        });
        // Of a session that did not come to its end; what fails is for the next one.
        drop(self.restore_modes(Restoring::All));
        // Before the files are dropped: what is recorded of them stays.
        let result = cause(result, self.committer.as_ref().map_or(Ok(()), Committer::settle_rest));
        (both, is_left && both.summary().entries_failed == 0, result)
    }

    /// Each lane's logs on flash.
    fn spills(
        &self,
        settings: &SpillSettings,
        lanes: &[NodeSet],
    ) -> Result<Vec<Vec<Spill<TargetId>>>, SessionError> {
        let directories = if self.is_sorting && self.root.is_some() { &settings.sink[..] } else { &[] };
        if !self.is_sorting && !settings.sink.is_empty() {
            self.camp
                .tell("spill: the destination is in memory, and takes more than flash: not used".to_owned());
        }
        spills(directories, settings, self.spec.slot_bytes as usize, lanes, |text| self.camp.tell(text))
    }

    /// Threads of a lane for so many streams and writers. One thread more than streams: whoever drives a stream may be waiting for it
    /// when a file is to be ended. Where objects wait for their targets, whoever drives a stream does nothing else.
    fn threads_for(&self, streams: usize, writers: usize) -> usize {
        if self.is_sorting { writers + streams } else { writers.max(streams + 1) }
    }

    fn start_committer<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        lane: &'scope Lane<'_>,
    ) {
        let Some(committer) = &self.committer else { return };
        lane.fault.spawn(scope, lane, "carrack-commit", move || {
            let _seat = lane.sit_beside();
            if let Err(error) = committer.run() {
                lane.fault.raise(error, lane);
            }
        });
    }

    /// Nothing is written in a dry run.
    fn committer(&self) -> Result<&Committer, SessionError> {
        self.committer.as_ref().ok_or_else(|| SessionError::Protocol("data in a dry run".into()))
    }

    /// What a directory does with names, if it does not tell all of them apart; it is claimed for its path.
    fn folding(&self, held: BorrowedFd<'_>, path: &RelPath) -> Result<Option<FoldingDirectory>, SinkError> {
        let Some(names) = &self.names else { return Ok(None) };
        let folding = names.of(held, path);
        folding.iter().try_for_each(|folding| names.claim_directory(folding, path))?;
        Ok(folding)
    }

    /// Whether an entry of this run has that place, in a directory that does not tell all names apart.
    fn is_taken(&self, held: BorrowedFd<'_>, path: &RelPath, name: &[u8]) -> bool {
        let folding = self.names.as_ref().and_then(|names| Some((names, names.of(held, path)?)));
        folding.is_some_and(|(names, folding)| names.is_taken(&folding, path, name))
    }

    /// Claims a name in a directory that does not tell all names apart.
    fn claim(
        &self,
        folding: Option<&FoldingDirectory>,
        held: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), SinkError> {
        match (&self.names, folding) {
            (Some(names), Some(folding)) => names.claim(folding, held, path, name),
            _ => Ok(()),
        }
    }

    /// What an entry that is no directory may get of the metadata that it has at the source.
    fn allowed(&self, metadata: Metadata) -> Metadata {
        let mode = self.mode_change.apply(metadata.mode, false, users_umask());
        let mode = if self.special_modes { mode } else { mode & !SPECIAL_MODES };
        Metadata { mode, ..metadata }
    }

    /// The same of a directory, where the bits give no program rights.
    fn allowed_directory(&self, metadata: Metadata) -> Metadata {
        Metadata { mode: self.mode_change.apply(metadata.mode, true, users_umask()), ..metadata }
    }

    /// What an entry gets, with what is to be set beyond its metadata.
    fn dress<'a>(&'a self, metadata: &'a Metadata, extras: Option<&'a Extras>) -> Dress<'a> {
        let extras = extras.map(|extras| (extras, &*self.keeper));
        let losses = Some(self.keeper.losses());
        Dress { metadata, extras, losses, policy: self.keeper.policy(), lasting: 0 }
    }

    /// Whether what an earlier session placed has the mode that it got, set-ID bits apart, which it may have lost.
    fn has_mode(&self, found: &Metadata, entry: Metadata) -> bool {
        let wanted = self.allowed(entry);
        !self.keeper.policy().perms
            || (found.mode ^ wanted.mode) & !SPECIAL_MODES == 0
                && found.mode & SPECIAL_MODES & !wanted.mode == 0
    }

    /// Whether what was found in the directory `held` has the time that was told, as the file system there stores it.
    fn has_time(&self, found: &Metadata, entry: Metadata, held: BorrowedFd<'_>) -> bool {
        !self.keeper.policy().times || self.times.is_stored(entry.mtime, found.mtime, held)
    }

    fn links(&self) -> MutexGuard<'_, Option<LinkSpool>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directories(&self) -> MutexGuard<'_, Option<DirectorySpool>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
