//! How a session comes to stand, in the three ways that exist so far: called over a control channel, answering one,
//! or both ends within this process. What follows is the matter of [`crate::source`] and [`crate::sink`].
//!
//! A caller that only wants to look around, or to make or remove something, says so instead ([`browse`]).
//!
//! Hello (what is to be done) → Welcome (what the other end is like) → Place (where the tree goes; with the source at
//! the other end it comes with the Welcome) → data connections → objects.

mod answer;
mod browse;
mod call;
mod confine;
mod connect;
mod destination;
mod fabric;
mod handshake;
mod house;
mod keeping;
mod lanes;
mod local;
mod place;
mod sources;
mod third;
pub(crate) mod verify;
mod wait;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::{Arrival, Event, Fidelity, Kept, LinkPolicy, Nesting, Side, Summary, TransferSpec};
use carrack_storage::{Base, FileSystems, Root, ScanRoot, clear_umask};
use carrack_transport::fabric::Hub;
use carrack_transport::{Channel, Link, ReceiveEndpoint, SendEndpoint, Stream, StreamCount, random};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Place, SinkState, Welcome};

use crate::abort::Abort;
use crate::chunks::Feed;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::{Camp, Ground, Load};
use crate::lanes::{LaneStart, deal};
use crate::report::{Observer, lacking, to_message};
use crate::settings::{FarEnds, Peer, Role, Settings, Transfer};
use crate::sharing::Share;
use crate::sink::{self, Records, SinkStart, SinkStorage};
use crate::source::{self, RootStorage, SourceStart};
pub use browse::{BrowseSummary, Browsing, Found, Operation, browse, browse_here};
pub(crate) use confine::Confinement;
use destination::{Destination, OpenDestination, SinkFacts};
pub use fabric::beats_tcp;
use fabric::{Agreed, Meeting, Met};
use handshake::say_within;
pub use house::{Admission, Deed, House, OwnHouse, Request, check_protection};
pub use keeping::shared_journals;
use lanes::with_links;
use place::PlaceRoot;
use sources::{Sources, resolve};
use wait::Wait;

/// How long an end that refuses waits for the other to hear that.
const PARTING: Duration = Duration::from_secs(1);

/// How far a session came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Advance {
    /// It never stood.
    None,
    /// Both ends had agreed on everything.
    Stood,
    /// Objects or entries were moved.
    Moved,
}

/// How a transfer ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was done, as far as this end knows.
    pub summary: Summary,
    /// Whether everything was tried; failures of single entries are in the summary.
    pub result: Result<(), SessionError>,
    /// How far it came.
    pub advance: Advance,
}

type Ended = (BothEnds, Result<(), SessionError>);

impl Outcome {
    fn of(ended: Result<Ended, SessionError>) -> Outcome {
        match ended {
            Ok((both, result)) => {
                let advance = if both.has_moved() { Advance::Moved } else { Advance::Stood };
                Outcome { summary: both.summary(), result, advance }
            }
            Err(error) => Outcome::failed(error),
        }
    }

    /// Of a session that never stood.
    pub fn failed(error: SessionError) -> Outcome {
        Outcome { summary: Summary::default(), result: Err(error), advance: Advance::None }
    }
}

/// Copies within this host: both ends in this process.
pub fn copy_local(transfer: &Transfer, observer: &dyn Observer, abort: &Abort) -> Outcome {
    clear_umask();
    Outcome::of(local::run(transfer, observer, abort))
}

/// Copies to or from the process that `peer` leads to, which runs [`serve`].
pub fn copy_with_peer(
    transfer: &Transfer,
    role: Role,
    peer: Peer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Outcome {
    clear_umask();
    Outcome::of(call::run(transfer, role, peer, observer, abort))
}

/// Has one far end copy to another; both run [`serve`].
pub fn copy_between(transfer: &Transfer, ends: FarEnds, observer: &dyn Observer, abort: &Abort) -> Outcome {
    Outcome::of(third::run(transfer, ends, observer, abort))
}

/// Answers one session on a channel, such as standard input and output under ssh, as far as `house` allows.
pub fn serve(channel: Channel, house: &dyn House, abort: &Abort) -> Outcome {
    Outcome::of(answer::run(channel, house, abort))
}

/// This process's part, ready to begin.
enum Part {
    Source(Box<SourcePart>),
    Sink(Box<SinkPart>),
}

struct SinkPart {
    /// Once [`Part::open`] was called, unless it is a dry run.
    root: Option<Root>,
    /// Then, in the dry run of a sync, where to look.
    seen: Option<Root>,
    /// Then too, if a journal is kept.
    records: Option<Records>,
    /// What the user has to know of it.
    warnings: Vec<String>,
    destination: Destination,
    place: PlaceRoot,
    confinement: Confinement,
    storage: Arc<SinkStorage>,
}

struct SourcePart {
    sources: Sources,
    sink: SinkFacts,
    file_systems: FileSystems,
    storage: RootStorage,
}

impl Part {
    fn source(
        base: &Base,
        paths: &[PathBuf],
        spec: &TransferSpec,
        file_systems: FileSystems,
        sink: Option<SinkState>,
        observer: Option<&dyn Observer>,
        settings: &Settings,
    ) -> Result<Part, SessionError> {
        let sink = sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let sink = SinkFacts::from_message(&sink)?;
        if spec.sync.is_some() && !sink.syncs {
            let message = "the carrack at the destination is too old for a sync";
            return Err(SessionError::refused(message, "install this version there, or use carrack cp"));
        }
        check_modes(&settings.fidelity, &sink)?;
        let follows = settings.selection.links == LinkPolicy::Followed;
        let mut sources = resolve(base, paths, spec, follows, &sink)?;
        sources.keep_record(spec, settings.begun)?;
        observer.into_iter().for_each(|observer| observer.event(&Event::Placed(sources.arrival.clone())));
        report_notices(&sources, observer);
        Ok(Part::Source(Box::new(SourcePart::new(sources, sink, file_systems)?)))
    }

    /// `asked` are the sources as typed, if this end named them: a source may send nothing else.
    fn sink(
        destination: Destination,
        spec: &TransferSpec,
        place: Option<Place>,
        asked: Option<&[PathBuf]>,
        observer: Option<&dyn Observer>,
    ) -> Result<Part, SessionError> {
        let message = place.ok_or_else(|| SessionError::Protocol("no place for the tree".into()))?;
        let place = match message.root {
            0 => PlaceRoot::Destination,
            1 => PlaceRoot::NewDestination,
            2 => PlaceRoot::Parent,
            _ => return Err(SessionError::Protocol("no place for the tree".into())),
        };
        if !destination.allows(place) {
            return Err(SessionError::Protocol("the source would write beside the destination".into()));
        }
        observer.into_iter().for_each(|observer| observer.event(&placed(message.clone())));
        let confinement = Confinement::of(destination.facts(), place, asked, spec.no_target_directory);
        let storage = destination.storage();
        Ok(Part::Sink(Box::new(SinkPart {
            root: None,
            seen: None,
            records: None,
            warnings: Vec::new(),
            destination,
            place,
            confinement,
            storage,
        })))
    }

    /// Opens what it writes to, and makes it if need be: not before the data has a way there.
    fn open(&mut self, spec: &TransferSpec, wait: &mut Wait<'_>) -> Result<(), SessionError> {
        let Part::Sink(part) = self else { return Ok(()) };
        if !spec.dry_run {
            let OpenDestination { root, records, warnings } = part.destination.open(part.place, wait)?;
            (part.root, part.records, part.warnings) = (Some(root), records, warnings);
        } else if spec.sync.is_some() {
            part.seen = part.destination.glance(part.place)?;
        }
        Ok(())
    }

    /// What its lanes are made for.
    fn load<'a>(&'a self, settings: &Settings, streams: &'a [Stream], lane_count: usize) -> Load<'a> {
        let (side, directories) = match self {
            Part::Source(part) => {
                let directory = |root: &'a ScanRoot| root.root.as_ref().as_fd();
                (Side::Source, part.sources.roots.iter().map(directory).collect())
            }
            Part::Sink(part) => (Side::Sink, part.root.iter().map(|root| root.as_fd()).collect()),
        };
        let io_threads = settings.io_thread_count(self.depth()).max(streams.len());
        Load { side, lane_count, io_threads, streams, directories }
    }

    /// The most I/O threads that its storage can use.
    fn depth(&self) -> u32 {
        match self {
            Part::Source(part) => part.storage.depth,
            Part::Sink(part) => part.storage.depth(),
        }
    }

    fn role(&self) -> Role {
        match self {
            Part::Source(_) => Role::Source,
            Part::Sink(_) => Role::Sink,
        }
    }

    fn place_message(&self) -> Place {
        let Part::Source(part) = self else { return Place::default() };
        Place {
            root: match part.sources.place {
                PlaceRoot::Destination => 0,
                PlaceRoot::NewDestination => 1,
                PlaceRoot::Parent => 2,
            },
            name: part.sources.arrival.name.as_deref().map(<[u8]>::to_vec),
            nesting: match part.sources.arrival.nesting {
                Nesting::Never => 0,
                Nesting::Inside => 1,
                Nesting::NextTime => 2,
            },
        }
    }
}

/// Where the source says that its tree goes.
fn placed(message: Place) -> Event {
    Event::Placed(Arrival {
        name: message.name.map(Vec::into_boxed_slice),
        nesting: match message.nesting {
            1 => Nesting::Inside,
            2 => Nesting::NextTime,
            _ => Nesting::Never,
        },
    })
}

/// A session that stands.
struct Standing {
    part: Part,
    streams: Vec<Stream>,
    /// As agreed, for data connections; the pipe has one lane.
    lane_count: usize,
    /// What the objects go over, if both ends can open it.
    fabric: Option<Agreed>,
    ground: Ground,
}

/// What a session goes on with, beside what it stands on.
struct Terms<'a> {
    spec: TransferSpec,
    settings: &'a Settings,
    observer: Option<&'a dyn Observer>,
    abort: &'a Abort,
    /// Where the source's work comes from, if it does not scan.
    feed: Option<Feed>,
    /// Its part in sharing targets, if it has one.
    share: Option<Arc<Share>>,
}

impl Standing {
    fn run(self, mut link: Link, terms: &Terms<'_>) -> Result<Ended, SessionError> {
        let Standing { part, streams, lane_count, fabric, ground } = self;
        let lane_count = if streams.is_empty() { 1 } else { lane_count };
        if !streams.len().is_multiple_of(lane_count) {
            let count = streams.len();
            return Err(SessionError::Protocol(format!("{count} data connections for {lane_count} lanes")));
        }
        link.set_patience(terms.settings.stall);
        streams.iter().for_each(|stream| stream.set_patience(terms.settings.stall));
        let settled = || -> Result<(Camp, Vec<SlotPool>), SessionError> {
            let camp = ground.settle(&part.load(terms.settings, &streams, lane_count))?;
            let pools = lane_pools(&camp, terms.settings, &terms.spec, lane_count)?;
            Ok((camp, pools))
        };
        // The other end works already: without a word it would take that for a broken connection.
        let (camp, pools) = settled().inspect_err(|error| refuse(&mut link, error))?;
        let meeting = Meeting { role: part.role(), streams: &streams, camp: &camp, pools: &pools, terms };
        let met = fabric.as_ref().map_or(Ok(None), |agreed| agreed.meet(&mut link, &meeting))?;
        terms.announce(streams.len(), lane_count, met.is_some());
        let over = fabric.filter(|_| met.is_some());
        let (both, result) = with_links(link, lane_count, terms.spec.slot_bytes, |links| {
            camp.watched(|| match part {
                Part::Source(part) => part.run_connected(links, pools, (streams, met), &camp, terms),
                Part::Sink(part) => part.run_connected(links, pools, (streams, met), &camp, terms),
            })
        })?;
        let scoped = |error| match over {
            Some(agreed) => agreed.scoped(error),
            None => error,
        };
        Ok((both, result.map_err(scoped)))
    }
}

impl Terms<'_> {
    /// The data connections stand. Without any it was told already.
    fn announce(&self, opened: usize, lane_count: usize, is_fabric: bool) {
        let (Some(observer), 1..) = (self.observer, opened) else { return };
        let TransferSpec { protection, cipher, streams, .. } = self.spec;
        let count = StreamCount::new(streams, lane_count as u16, self.settings.tunes);
        observer.event(&Event::Connected {
            streams: count.used(opened) as u32,
            lanes: lane_count as u32,
            transport: if is_fabric { "fabric" } else { "tcp" },
            protection: Some(protection),
            cipher: protection.seals().then_some(cipher),
        });
    }
}

/// How a lane's objects travel.
struct Way<E> {
    endpoints: Vec<E>,
    hub: Option<Box<dyn Hub>>,
}

impl<E> Way<E> {
    /// By these connections, which are dealt out.
    fn deal(connections: impl IntoIterator<Item = E>, lane_count: usize) -> Vec<Way<E>> {
        deal(connections, lane_count).into_iter().map(|endpoints| Way { endpoints, hub: None }).collect()
    }
}

/// Streams, and what was met on the fabric if they only stand by.
type Connected = (Vec<Stream>, Option<Vec<Met>>);

impl SourcePart {
    fn new(sources: Sources, sink: SinkFacts, file_systems: FileSystems) -> Result<SourcePart, SessionError> {
        let looking = SessionError::local("looking at the source's storage");
        let storage = RootStorage::of(&file_systems, &sources.roots).map_err(looking)?;
        Ok(SourcePart { sources, sink, file_systems, storage })
    }

    fn run_connected(
        self,
        mut links: Vec<Link>,
        pools: Vec<SlotPool>,
        (streams, met): Connected,
        camp: &Camp,
        terms: &Terms<'_>,
    ) -> Ended {
        if terms.observer.is_none() {
            tell_notices(&self.sources, &mut links[0]);
        }
        let (protection, cipher) = (terms.spec.protection, terms.spec.cipher);
        let sender =
            |stream: Stream| Box::new(stream.into_sender(protection, cipher)) as Box<dyn SendEndpoint>;
        let ways = match met {
            None => Ok(Way::deal(streams.into_iter().map(sender), links.len())),
            Some(met) => fabric::source_ways(met, streams, terms),
        };
        match ways {
            Ok(ways) => self.run(lane_starts(links, pools, camp, ways), camp, terms),
            Err(error) => (BothEnds::default(), Err(error)),
        }
    }

    fn run(self, lanes: Vec<LaneStart<Box<dyn SendEndpoint>>>, camp: &Camp, terms: &Terms<'_>) -> Ended {
        let credits = self.sink.credits / lanes.len() as u32;
        let start = SourceStart {
            camp,
            lanes,
            spec: terms.spec.clone(),
            settings: terms.settings,
            file_systems: self.file_systems,
            storage: self.storage,
            roots: self.sources.roots,
            record: self.sources.record,
            failures: self.sources.failures,
            destination: self.sources.destination,
            credits,
            sink_has_targets: self.sink.has_targets,
            sink_resumes: self.sink.resumes,
            takes_holes: self.sink.takes_holes,
            sink_open_files: self.sink.open_files,
            kept: terms.settings.fidelity.kept.and(self.sink.kept),
            feed: terms.feed.clone().map(|feed| feed.0),
            share: terms.share.clone(),
            observer: terms.observer,
        };
        source::run(start, terms.abort)
    }
}

impl SinkPart {
    fn run_connected(
        self,
        links: Vec<Link>,
        pools: Vec<SlotPool>,
        (streams, met): Connected,
        camp: &Camp,
        terms: &Terms<'_>,
    ) -> Ended {
        let TransferSpec { slot_bytes, protection, cipher, .. } = terms.spec;
        let receiver = |stream: Stream| {
            Box::new(stream.into_receiver(slot_bytes, protection, cipher)) as Box<dyn ReceiveEndpoint>
        };
        let ways = match met {
            None => Ok(Way::deal(streams.into_iter().map(receiver), links.len())),
            Some(met) => fabric::sink_ways(met, streams, terms),
        };
        match ways {
            Ok(ways) => self.run(lane_starts(links, pools, camp, ways), camp, terms),
            Err(error) => (BothEnds::default(), Err(error)),
        }
    }

    fn run(self, lanes: Vec<LaneStart<Box<dyn ReceiveEndpoint>>>, camp: &Camp, terms: &Terms<'_>) -> Ended {
        let start = SinkStart {
            camp,
            lanes,
            spec: terms.spec.clone(),
            settings: terms.settings,
            root: self.root.map(Arc::new),
            seen: self.seen.map(Arc::new),
            resumes: self.destination.resumes(),
            records: self.records,
            warnings: self.warnings,
            storage: self.storage,
            confinement: self.confinement,
            share: terms.share.clone(),
            observer: terms.observer,
        };
        sink::run(start, terms.abort)
    }
}

fn lane_starts<E>(
    links: Vec<Link>,
    pools: Vec<SlotPool>,
    camp: &Camp,
    ways: Vec<Way<E>>,
) -> Vec<LaneStart<E>> {
    let lanes = links.into_iter().zip(pools).zip(ways).enumerate();
    let start = |(index, ((link, pool), Way { endpoints, hub }))| LaneStart {
        link,
        endpoints,
        hub,
        pool,
        crew: camp.lane(index),
    };
    lanes.map(start).collect()
}

fn report_notices(sources: &Sources, observer: Option<&dyn Observer>) {
    if let Some(observer) = observer {
        sources.notices.iter().for_each(|notice| observer.event(&Event::Notice(notice.clone())));
    }
}

/// Tells whoever watches what a source that was called does not tell.
fn tell_lacking(settings: &Settings, kept: u32, observer: &dyn Observer) {
    let notice = lacking(settings.fidelity.kept, Kept::from_bits(kept), "source");
    notice.into_iter().for_each(|notice| observer.event(&Event::Notice(notice)));
}

/// Refuses a source that would copy what was not selected.
fn check_selects(spec: &TransferSpec, settings: &Settings, welcome: &Welcome) -> Result<(), SessionError> {
    check_owners(settings, welcome)?;
    if settings.selection.is_everything() && spec.sync.is_none() || welcome.selects {
        check_links(settings, welcome)?;
        return check_deletion(spec, welcome);
    }
    let message = "the carrack at the source is too old to leave anything out, and for a sync";
    Err(SessionError::refused(message, "install this version there, or copy everything"))
}

/// Refuses a source that would copy links as they are.
fn check_links(settings: &Settings, welcome: &Welcome) -> Result<(), SessionError> {
    let is_new = matches!(settings.selection.links, LinkPolicy::Followed | LinkPolicy::SafeOnly);
    if !is_new || welcome.knows_links {
        return Ok(());
    }
    let message = "the carrack at the source is too old to follow links, and to tell which are safe";
    Err(SessionError::refused(message, "install this version there"))
}

/// Refuses a source that would tell other owners.
fn check_owners(settings: &Settings, welcome: &Welcome) -> Result<(), SessionError> {
    let fidelity = &settings.fidelity;
    if fidelity.user_map.is_empty() && fidelity.group_map.is_empty() || welcome.maps_owners {
        return Ok(());
    }
    let message = "the carrack at the source is too old for --usermap and --groupmap";
    Err(SessionError::refused(message, "install this version there, or use --chown"))
}

/// Refuses a sink that would keep other modes and times.
fn check_modes(fidelity: &Fidelity, sink: &SinkFacts) -> Result<(), SessionError> {
    let is_new = !fidelity.mode_change.is_empty() || fidelity.omit_times || fidelity.omit_dir_times;
    if !is_new || sink.changes_modes {
        return Ok(());
    }
    let message = "the carrack at the destination is too old for --chmod, --no-times and --omit-dir-times";
    Err(SessionError::refused(message, "install this version there"))
}

/// Refuses a source that would delete at the end what is to go first.
fn check_deletion(spec: &TransferSpec, welcome: &Welcome) -> Result<(), SessionError> {
    let deletion = spec.sync.as_ref().and_then(|sync| sync.deletion.as_ref());
    let is_first = deletion.is_some_and(|deletion| deletion.first);
    if !is_first || welcome.prunes_first {
        return Ok(());
    }
    let message = "the carrack at the source is too old to delete before it copies";
    Err(SessionError::refused(message, "install this version there, or use --delete"))
}

/// The same, where the one who watches is at the other end.
fn tell_notices(sources: &Sources, link: &mut Link) {
    let messages = sources.notices.iter().filter_map(|notice| to_message(Event::Notice(notice.clone())));
    messages.for_each(|message| link.queue_control(message.to_body()));
}

fn lane_pools(
    camp: &Camp,
    settings: &Settings,
    spec: &TransferSpec,
    lane_count: usize,
) -> Result<Vec<SlotPool>, SessionError> {
    let slots = settings.lane_slot_count(spec.slot_bytes, lane_count);
    (0..lane_count).map(|index| camp.pool(index, spec, slots)).collect()
}

/// For the time before the session, when nothing but control messages may come.
fn no_slots() -> Result<SlotPool, SessionError> {
    Ok(SlotPool::new(4096, 4096)?)
}

fn new_key() -> Result<SessionKey, SessionError> {
    random().map(SessionKey::new).map_err(SessionError::local("getting random bytes"))
}

/// Tells the other end that there will be no session.
fn refuse(link: &mut Link, error: &SessionError) {
    // The other end may be gone; then nobody is left to be told.
    if say_within(link, Control::Refuse(error.to_message()), PARTING).is_ok() {
        link.part(Instant::now() + PARTING);
    }
}
