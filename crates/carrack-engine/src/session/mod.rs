//! How a session comes to stand, in the three ways that exist so far: called over a control channel, answering one,
//! or both ends within this process. What follows is the matter of [`crate::source`] and [`crate::sink`].
//!
//! Hello (what is to be done) → Welcome (what the other end is like) → Place (where the tree goes; with the source at
//! the other end it comes with the Welcome) → data connections → objects.

mod answer;
mod call;
mod confine;
mod connect;
mod destination;
mod handshake;
mod lanes;
mod local;
mod place;
mod sources;
mod typed;

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use carrack_machine::SlotPool;
use carrack_model::{Event, Notice, Summary, TransferSpec};
use carrack_storage::{Root, clear_umask};
use carrack_transport::{Link, ReceiveEndpoint, SendEndpoint, TcpReceiver, TcpSender};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Place, Refuse, SinkState};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::lanes::LaneStart;
use crate::report::{Observer, to_message};
use crate::settings::{Peer, Role, Settings, Transfer};
use crate::sink::{self, SinkStart, SinkStorage};
use crate::source::{self, SourceStart};
pub(crate) use confine::Confinement;
use destination::{Destination, SinkFacts};
use handshake::say;
use lanes::with_links;
use place::PlaceRoot;
use sources::{Sources, resolve};

/// How a transfer ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was done, as far as this end knows.
    pub summary: Summary,
    /// Whether everything was tried; failures of single entries are in the summary.
    pub result: Result<(), SessionError>,
}

type Ended = (BothEnds, Result<(), SessionError>);

impl Outcome {
    fn of(ended: Result<Ended, SessionError>) -> Outcome {
        match ended {
            Ok((both, result)) => Outcome { summary: both.summary(), result },
            Err(error) => Outcome { summary: Summary::default(), result: Err(error) },
        }
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

/// Answers one session on a pair of descriptors, such as standard input and output under ssh.
pub fn serve(input: OwnedFd, output: OwnedFd, abort: &Abort) -> Outcome {
    clear_umask();
    Outcome::of(answer::run(input, output, abort))
}

/// This process's part, ready to begin.
enum Part {
    Source { sources: Sources, sink: SinkFacts },
    Sink { root: Option<Root>, confinement: Confinement, storage: Arc<SinkStorage> },
}

impl Part {
    fn source(
        paths: &[PathBuf],
        spec: &TransferSpec,
        sink: Option<SinkState>,
        observer: Option<&dyn Observer>,
    ) -> Result<Part, SessionError> {
        let sink = sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let sink = SinkFacts::from_message(&sink)?;
        let sources = resolve(paths, spec.recursive, &sink)?;
        report_notices(&sources, observer);
        Ok(Part::Source { sources, sink })
    }

    /// `asked` are the sources as typed, if this end named them: a source may send nothing else.
    fn sink(
        destination: &Destination,
        place: Option<Place>,
        spec: &TransferSpec,
        asked: Option<&[PathBuf]>,
    ) -> Result<Part, SessionError> {
        let root = match place.map(|place| place.root) {
            Some(0) => PlaceRoot::Destination,
            Some(1) => PlaceRoot::NewDestination,
            Some(2) => PlaceRoot::Parent,
            _ => return Err(SessionError::Protocol("no place for the tree".into())),
        };
        if !destination.allows(root) {
            return Err(SessionError::Protocol("the source would write beside the destination".into()));
        }
        let confinement = Confinement::of(destination.facts(), root, asked);
        let storage = destination.storage();
        Ok(Part::Sink { root: open_root(destination, root, spec)?, confinement, storage })
    }

    fn place_message(&self) -> Place {
        let Part::Source { sources, .. } = self else { return Place::default() };
        Place {
            root: match sources.place {
                PlaceRoot::Destination => 0,
                PlaceRoot::NewDestination => 1,
                PlaceRoot::Parent => 2,
            },
        }
    }
}

/// A session that stands.
struct Standing {
    part: Part,
    streams: Vec<TcpStream>,
    /// As agreed, for data connections; the pipe has one lane.
    lane_count: usize,
}

impl Standing {
    fn run(
        self,
        link: Link,
        spec: TransferSpec,
        settings: &Settings,
        observer: Option<&dyn Observer>,
        abort: &Abort,
    ) -> Result<Ended, SessionError> {
        let lane_count = if self.streams.is_empty() { 1 } else { self.lane_count };
        if !self.streams.len().is_multiple_of(lane_count) {
            let count = self.streams.len();
            return Err(SessionError::Protocol(format!("{count} data connections for {lane_count} lanes")));
        }
        let pools = lane_pools(&spec, settings, lane_count)?;
        warn_unlocked(&pools, observer);
        let slot_bytes = spec.slot_bytes;
        let work = |links| self.run_lanes(links, pools, spec, settings, observer, abort);
        with_links(link, lane_count, slot_bytes, work)
    }

    fn run_lanes(
        self,
        mut links: Vec<Link>,
        pools: Vec<SlotPool>,
        spec: TransferSpec,
        settings: &Settings,
        observer: Option<&dyn Observer>,
        abort: &Abort,
    ) -> Ended {
        match self.part {
            Part::Source { sources, sink } => {
                if observer.is_none() {
                    tell_notices(&sources, &mut links[0]);
                }
                let sender = |stream| Box::new(TcpSender::new(stream)) as Box<dyn SendEndpoint>;
                let credits = sink.credits / links.len() as u32;
                let start = SourceStart {
                    lanes: lane_starts(links, pools, self.streams.into_iter().map(sender)),
                    spec,
                    settings,
                    roots: sources.roots,
                    failures: sources.failures,
                    destination: sources.destination,
                    credits,
                    sink_has_targets: sink.has_targets,
                    observer,
                };
                source::run(start, abort)
            }
            Part::Sink { root, confinement, storage } => {
                let slot_bytes = spec.slot_bytes;
                let receiver =
                    |stream| Box::new(TcpReceiver::new(stream, slot_bytes)) as Box<dyn ReceiveEndpoint>;
                let lanes = lane_starts(links, pools, self.streams.into_iter().map(receiver));
                let root = root.map(Arc::new);
                sink::run(SinkStart { lanes, spec, settings, root, storage, confinement, observer }, abort)
            }
        }
    }
}

/// Deals the data connections out: the one at place `i` is of lane `i` modulo the number of lanes, at both ends.
fn lane_starts<E>(
    links: Vec<Link>,
    pools: Vec<SlotPool>,
    endpoints: impl Iterator<Item = E>,
) -> Vec<LaneStart<E>> {
    let start = |(link, pool)| LaneStart { link, endpoints: Vec::new(), pool };
    let mut lanes: Vec<LaneStart<E>> = links.into_iter().zip(pools).map(start).collect();
    let count = lanes.len();
    for (place, endpoint) in endpoints.enumerate() {
        lanes[place % count].endpoints.push(endpoint);
    }
    lanes
}

fn open_root(
    destination: &Destination,
    place: PlaceRoot,
    spec: &TransferSpec,
) -> Result<Option<Root>, SessionError> {
    if spec.dry_run {
        return Ok(None);
    }
    destination.open(place).map(Some)
}

fn report_notices(sources: &Sources, observer: Option<&dyn Observer>) {
    if let Some(observer) = observer {
        sources.notices.iter().for_each(|notice| observer.event(&Event::Notice(notice.clone())));
    }
}

/// The same, where the one who watches is at the other end.
fn tell_notices(sources: &Sources, link: &mut Link) {
    let messages = sources.notices.iter().filter_map(|notice| to_message(Event::Notice(notice.clone())));
    messages.for_each(|message| link.queue_control(message.to_body()));
}

fn lane_pools(
    spec: &TransferSpec,
    settings: &Settings,
    lane_count: usize,
) -> Result<Vec<SlotPool>, SessionError> {
    let slots = settings.lane_slot_count(spec.slot_bytes, lane_count) as u64;
    let pool = |_| SlotPool::new(slots * u64::from(spec.slot_bytes), spec.slot_bytes as usize);
    Ok((0..lane_count).map(pool).collect::<Result<_, _>>()?)
}

/// For the time before the session, when nothing but control messages may come.
fn no_slots() -> Result<SlotPool, SessionError> {
    Ok(SlotPool::new(4096, 4096)?)
}

fn warn_unlocked(pools: &[SlotPool], observer: Option<&dyn Observer>) {
    if let Some(observer) = observer
        && pools.iter().any(|pool| !pool.is_locked())
    {
        let text =
            "the buffers are not locked in memory: raise RLIMIT_MEMLOCK (ulimit -l) to keep them from swap";
        observer.event(&Event::Notice(Notice::Text(text.into())));
    }
}

fn new_key() -> Result<SessionKey, SessionError> {
    let mut bytes = [0; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    match filled {
        // The kernel gives up to 256 bytes in one call once it has any.
        Ok(32) => Ok(SessionKey::new(bytes)),
        Ok(_) => Err(SessionError::Internal),
        Err(error) => Err(SessionError::local("getting random bytes")(error.into())),
    }
}

/// Tells the other end that there will be no session.
fn refuse(link: &mut Link, error: &SessionError) {
    let message = Refuse { reason: u32::from(error.is_interrupted()), ..error.to_message() };
    // The other end may be gone; then nobody is left to be told.
    let _ = say(link, Control::Refuse(message));
}
