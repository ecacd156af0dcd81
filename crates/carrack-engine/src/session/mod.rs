//! How a session comes to stand, in the three ways that exist so far: called over a control channel, answering one,
//! or both ends within this process. What follows is the matter of [`crate::source`] and [`crate::sink`].
//!
//! Hello (what is to be done) → Welcome (what the other end is like) → Place (where the tree goes; with the source at
//! the other end it comes with the Welcome) → data connections → objects.

mod connect;
mod destination;
mod handshake;
mod place;
mod sources;
mod typed;

use std::ffi::OsStr;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::{DialFrom, Event, Notice, Summary, TransferSpec};
use carrack_storage::{Root, clear_umask};
use carrack_transport::{
    Link, Listener, ReceiveEndpoint, SendEndpoint, TcpReceiver, TcpSender, loopback_pair,
};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Hello, Listening, Place, Refuse, Spec, Welcome};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::report::Observer;
use crate::settings::{Peer, Role, Settings, Transfer};
use crate::sink::{self, SinkStart};
use crate::source::{self, SourceStart};
use connect::{FirstDialer, Served, dial_and_tell, first_dialer, listen, serve as serve_dialers};
use destination::{Destination, SinkFacts};
use handshake::{ANSWER_TIMEOUT, expect, receive_preamble, say, send_preamble};
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
    Outcome::of(run_local(transfer, observer, abort))
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
    Outcome::of(call(transfer, role, peer, observer, abort))
}

/// Answers one session on a pair of descriptors, such as standard input and output under ssh.
pub fn serve(input: OwnedFd, output: OwnedFd, abort: &Abort) -> Outcome {
    clear_umask();
    Outcome::of(answer(input, output, abort))
}

// Both ends in this process.

fn run_local(transfer: &Transfer, observer: &dyn Observer, abort: &Abort) -> Result<Ended, SessionError> {
    let (spec, settings) = (&transfer.spec, &transfer.settings);
    let pool = new_pool(spec, settings)?;
    let destination = Destination::look(&transfer.destination)?;
    let sink_facts = SinkFacts::from_message(&destination.to_message(pool.slot_count() as u32))?;
    let sources = resolve(&transfer.sources, spec.recursive, &sink_facts)?;
    let root = open_root(&destination, sources.place, spec)?;
    let (source_link, sink_link) = local_links(spec.slot_bytes)?;
    let (senders, receivers) = local_endpoints(spec)?;
    observer.event(&Event::Connected { streams: 0, transport: "local" });
    report_notices(&sources, Some(observer));
    let sink_start = SinkStart {
        link: sink_link,
        endpoints: receivers,
        spec: spec.clone(),
        settings,
        root: root.map(Arc::new),
        pool,
        observer: None,
    };
    let source_start = SourceStart {
        link: source_link,
        endpoints: senders,
        spec: spec.clone(),
        settings,
        pool: new_pool(spec, settings)?,
        roots: sources.roots,
        failures: sources.failures,
        destination: sources.destination,
        credits: sink_facts.credits,
        observer: Some(observer),
    };
    Ok(thread::scope(|scope| {
        let sinking = scope.spawn(|| sink::run(sink_start, abort));
        let (both, source_result) = source::run(source_start, abort);
        let (_, sink_result) = sinking.join().unwrap_or((BothEnds::default(), Err(SessionError::Internal)));
        (both, first_cause(source_result, sink_result))
    }))
}

/// Of two ends that failed, one did so because the other had.
fn first_cause(source: Result<(), SessionError>, sink: Result<(), SessionError>) -> Result<(), SessionError> {
    match (source, sink) {
        (Err(SessionError::PeerAborted { .. } | SessionError::PeerGone), Err(cause)) => Err(cause),
        (Err(cause), _) | (Ok(()), Err(cause)) => Err(cause),
        (Ok(()), Ok(())) => Ok(()),
    }
}

fn local_links(slot_bytes: u32) -> Result<(Link, Link), SessionError> {
    let make = || -> std::io::Result<(Link, Link)> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let link = |fd: OwnedFd| Link::new(fd.try_clone()?, fd, slot_bytes);
        Ok((link(here)?, link(there)?))
    };
    make().map_err(SessionError::local("connecting both ends"))
}

type Endpoints = (Vec<Box<dyn SendEndpoint>>, Vec<Box<dyn ReceiveEndpoint>>);

fn local_endpoints(spec: &TransferSpec) -> Result<Endpoints, SessionError> {
    let mut endpoints: Endpoints = Default::default();
    for _ in 0..spec.streams {
        let (sender, receiver) = loopback_pair().map_err(SessionError::local("connecting both ends"))?;
        endpoints.0.push(Box::new(sender));
        endpoints.1.push(Box::new(receiver));
    }
    Ok(endpoints)
}

// The end that the user started.

fn call(
    transfer: &Transfer,
    role: Role,
    peer: Peer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Result<Ended, SessionError> {
    let (spec, settings) = (&transfer.spec, &transfer.settings);
    let pool = new_pool(spec, settings)?;
    let mut link = Link::new(peer.input, peer.output, spec.slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    let caller = Caller { transfer, role, host: &peer.host, key: new_key()?, pool, observer, abort };
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    let stand = caller.establish(&mut link);
    link.interrupt_on(None);
    let stand = stand.map_err(|error| if abort.is_set() { SessionError::Interrupted } else { error });
    match stand {
        Ok(stand) => Ok(stand.run(link, spec.clone(), settings, caller.pool, Some(observer), abort)),
        Err(error) => {
            refuse(&mut link, &error);
            Err(error)
        }
    }
}

struct Caller<'a> {
    transfer: &'a Transfer,
    role: Role,
    host: &'a str,
    key: SessionKey,
    pool: SlotPool,
    observer: &'a dyn Observer,
    abort: &'a Abort,
}

impl Caller<'_> {
    fn establish(&self, link: &mut Link) -> Result<Standing, SessionError> {
        let (spec, settings) = (&self.transfer.spec, &self.transfer.settings);
        let other_dials = first_dialer(spec.dial_from, self.role) == FirstDialer::Other && !spec.dry_run;
        let listener = if other_dials { self.listen() } else { None };
        let destination = match self.role {
            Role::Sink => Some(Destination::look(&self.transfer.destination)?),
            Role::Source => None,
        };
        send_preamble(link)?;
        let hello =
            self.hello(listener.as_ref().map(|(_, listening)| listening.clone()), destination.as_ref());
        say(link, Control::Hello(hello))?;
        receive_preamble(link, true)?;
        if self.abort.is_set() {
            return Err(SessionError::Interrupted);
        }
        let Control::Welcome(welcome) = expect(link, &self.pool, Instant::now() + ANSWER_TIMEOUT)? else {
            return Err(SessionError::Protocol("no welcome".into()));
        };
        let part = match destination {
            Some(destination) => Part::sink(&destination, welcome.place, spec)?,
            None => {
                let part = Part::source(&self.transfer.sources, spec, welcome.sink, Some(self.observer))?;
                say(link, Control::Place(part.place_message()))?;
                part
            }
        };
        let streams =
            if spec.dry_run { Vec::new() } else { self.connect(link, listener, welcome.listening)? };
        warn_unlocked(&self.pool, self.observer, settings);
        Ok(Standing { part, streams })
    }

    fn hello(&self, listening: Option<Listening>, destination: Option<&Destination>) -> Hello {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let transfer = self.transfer;
        let mut hello = Hello {
            software: env!("CARGO_PKG_VERSION").into(),
            session_key: self.key.as_bytes().to_vec(),
            spec: Some(Spec::from(&transfer.spec)),
            settings: Some(transfer.settings.to_message()),
            listening,
            ..Hello::default()
        };
        match destination {
            Some(destination) => {
                hello.sources = transfer.sources.iter().map(bytes).collect();
                hello.sink = Some(destination.to_message(self.pool.slot_count() as u32));
            }
            None => hello.destination = Some(bytes(&transfer.destination)),
        }
        hello
    }

    /// A port for the other end to dial; without one the data has other ways.
    fn listen(&self) -> Option<(Listener, Listening)> {
        let transfer = self.transfer;
        match listen(&transfer.settings, &self.key, transfer.spec.streams, &[]) {
            Ok(listening) => Some(listening),
            Err(error) => {
                let text = format!("no port to listen on: {error}");
                self.observer.event(&Event::Notice(Notice::Warning(text)));
                None
            }
        }
    }

    fn connect(
        &self,
        link: &mut Link,
        listener: Option<(Listener, Listening)>,
        listening: Option<Listening>,
    ) -> Result<Vec<TcpStream>, SessionError> {
        let outcome = match first_dialer(self.transfer.spec.dial_from, self.role) {
            FirstDialer::Initiator => self.dial(link, &listening.unwrap_or_default())?,
            FirstDialer::Other => self.served(connect::serve_or_wait(link, &self.pool, listener)?)?,
        };
        let (streams, problem) = match outcome {
            Ok(streams) => (streams, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let transport = if streams.is_empty() { "ssh pipe" } else { "tcp" };
        self.observer.event(&Event::Connected { streams: streams.len() as u32, transport });
        if let Some(problem) = problem {
            self.warn_slow(&problem);
        }
        Ok(streams)
    }

    fn dial(
        &self,
        link: &mut Link,
        listening: &Listening,
    ) -> Result<Result<Vec<TcpStream>, String>, SessionError> {
        let spec = &self.transfer.spec;
        let may_be_dialled = spec.dial_from == DialFrom::Either;
        let dialled = connect::dial_only(Some(self.host), listening, &self.key, spec.streams);
        match dialled {
            Err(problem) if may_be_dialled => {
                let Some((listener, listening)) = self.listen() else {
                    connect::tell(link, &Err(problem.clone()))?;
                    return Ok(Err(problem));
                };
                say(link, Control::Dial(listening))?;
                let served = self.served(serve_dialers(link, &self.pool, listener)?)?;
                Ok(served.map_err(|theirs| format!("{problem}; the other way round: {theirs}")))
            }
            dialled => {
                connect::tell(link, &dialled)?;
                Ok(dialled)
            }
        }
    }

    fn served(&self, served: Served) -> Result<Result<Vec<TcpStream>, String>, SessionError> {
        match served {
            Served::Streams(streams) => Ok(Ok(streams)),
            Served::Failed(problem) => Ok(Err(problem)),
            Served::DialMe(_) => Err(SessionError::Protocol("asked to dial, twice".into())),
        }
    }

    fn warn_slow(&self, problem: &str) {
        let text = format!(
            "no data connection could be made ({problem}); the data travels through the ssh pipe instead: \
             one stream, encrypted by ssh on one core, typically 0.3 to 0.8 GB/s. \
             Open a port range and name it with --ports, or choose who dials with --connect-from"
        );
        self.observer.event(&Event::Notice(Notice::Warning(text)));
    }
}

fn warn_unlocked(pool: &SlotPool, observer: &dyn Observer, settings: &Settings) {
    if !pool.is_locked() {
        let text = format!(
            "the buffer of {} bytes is not locked in memory: raise RLIMIT_MEMLOCK (ulimit -l) to keep it from swap",
            settings.pool_bytes
        );
        observer.event(&Event::Notice(Notice::Text(text)));
    }
}

// The end that was called.

fn answer(input: OwnedFd, output: OwnedFd, abort: &Abort) -> Result<Ended, SessionError> {
    let slot_bytes = TransferSpec::default().slot_bytes;
    let mut link = Link::new(input, output, slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    send_preamble(&mut link)?;
    receive_preamble(&mut link, false)?;
    let answered = Answerer::greet(&mut link).and_then(|answerer| {
        let stand = answerer.establish(&mut link)?;
        Ok((answerer, stand))
    });
    link.interrupt_on(None);
    match answered {
        Ok((answerer, stand)) => {
            link.set_slot_bytes(answerer.spec.slot_bytes);
            Ok(stand.run(link, answerer.spec, &answerer.settings, answerer.pool, None, abort))
        }
        Err(error) => {
            refuse(&mut link, &error);
            Err(error)
        }
    }
}

struct Answerer {
    spec: TransferSpec,
    settings: Settings,
    key: SessionKey,
    pool: SlotPool,
    hello: Hello,
}

impl Answerer {
    fn greet(link: &mut Link) -> Result<Answerer, SessionError> {
        // Nothing but control messages is expected before the pool of the right size is there.
        let handshake_pool = SlotPool::new(4096, 4096)?;
        let Control::Hello(hello) = expect(link, &handshake_pool, Instant::now() + ANSWER_TIMEOUT)? else {
            return Err(SessionError::Protocol("no hello".into()));
        };
        let missing = || SessionError::Protocol("a hello without what is to be done".into());
        let spec = TransferSpec::try_from(hello.spec.as_ref().ok_or_else(missing)?)?;
        let settings = Settings::from_message(hello.settings.as_ref().ok_or_else(missing)?)?;
        let key: [u8; 32] = hello.session_key.as_slice().try_into().map_err(|_| missing())?;
        let pool = new_pool(&spec, &settings)?;
        Ok(Answerer { pool, key: SessionKey::new(key), spec, settings, hello })
    }

    fn role(&self) -> Role {
        if self.hello.destination.is_some() { Role::Sink } else { Role::Source }
    }

    fn establish(&self, link: &mut Link) -> Result<Standing, SessionError> {
        let caller_role = if self.role() == Role::Sink { Role::Source } else { Role::Sink };
        let first = first_dialer(self.spec.dial_from, caller_role);
        let listens = first == FirstDialer::Initiator && !self.spec.dry_run;
        let ours = SshAddresses::from_environment();
        // Without a port the caller finds nobody listening, says so, and the data takes the pipe.
        let listener = if listens {
            listen(&self.settings, &self.key, self.spec.streams, &ours.server).ok()
        } else {
            None
        };
        let mut welcome = Welcome {
            software: env!("CARGO_PKG_VERSION").into(),
            listening: listener.as_ref().map(|(_, listening)| listening.clone()),
            ..Welcome::default()
        };
        let part = match &self.hello.destination {
            Some(path) => {
                let destination = Destination::look(&remote_path(path))?;
                welcome.sink = Some(destination.to_message(self.pool.slot_count() as u32));
                say(link, Control::Welcome(welcome))?;
                let Control::Place(place) = expect(link, &self.pool, Instant::now() + ANSWER_TIMEOUT)? else {
                    return Err(SessionError::Protocol("no place".into()));
                };
                Part::sink(&destination, Some(place), &self.spec)?
            }
            None => {
                let sources: Vec<PathBuf> = self.hello.sources.iter().map(|path| remote_path(path)).collect();
                let part = Part::source(&sources, &self.spec, self.hello.sink.clone(), None)?;
                welcome.place = Some(part.place_message());
                say(link, Control::Welcome(welcome))?;
                part
            }
        };
        let streams = if self.spec.dry_run { Vec::new() } else { self.connect(link, listener, &ours)? };
        Ok(Standing { part, streams })
    }

    fn connect(
        &self,
        link: &mut Link,
        listener: Option<(Listener, Listening)>,
        ours: &SshAddresses,
    ) -> Result<Vec<TcpStream>, SessionError> {
        let caller_role = if self.role() == Role::Sink { Role::Source } else { Role::Sink };
        let to_dial = match first_dialer(self.spec.dial_from, caller_role) {
            FirstDialer::Other => self.hello.listening.clone().unwrap_or_default(),
            FirstDialer::Initiator => match connect::serve_or_wait(link, &self.pool, listener)? {
                Served::Streams(streams) => return Ok(streams),
                Served::Failed(_) => return Ok(Vec::new()),
                Served::DialMe(listening) => listening,
            },
        };
        let dialled = dial_and_tell(link, ours.client.as_deref(), &to_dial, &self.key, self.spec.streams)?;
        Ok(dialled.unwrap_or_default())
    }
}

/// Under ssh a path is relative to the home directory, where the session starts; empty means that directory.
fn remote_path(bytes: &[u8]) -> PathBuf {
    if bytes.is_empty() { PathBuf::from(".") } else { Path::new(OsStr::from_bytes(bytes)).to_path_buf() }
}

/// The addresses of the ssh connection that this process was started over (`SSH_CONNECTION`): the ones that are
/// known to work between the two hosts.
#[derive(Default)]
struct SshAddresses {
    client: Option<String>,
    server: Vec<IpAddr>,
}

impl SshAddresses {
    fn from_environment() -> SshAddresses {
        let value = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let mut words = value.split(' ');
        let client = words.next().filter(|word| !word.is_empty()).map(str::to_string);
        let server = words.nth(1).and_then(|word| word.parse().ok()).into_iter().collect();
        SshAddresses { client, server }
    }
}

// Common to both.

/// This process's part, ready to begin.
enum Part {
    Source { sources: Sources, sink: SinkFacts },
    Sink { root: Option<Root> },
}

impl Part {
    fn source(
        paths: &[PathBuf],
        spec: &TransferSpec,
        sink: Option<carrack_wire::message::SinkState>,
        observer: Option<&dyn Observer>,
    ) -> Result<Part, SessionError> {
        let sink = sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let sink = SinkFacts::from_message(&sink)?;
        let sources = resolve(paths, spec.recursive, &sink)?;
        report_notices(&sources, observer);
        Ok(Part::Source { sources, sink })
    }

    fn sink(
        destination: &Destination,
        place: Option<Place>,
        spec: &TransferSpec,
    ) -> Result<Part, SessionError> {
        let root = match place.map(|place| place.root) {
            Some(0) => PlaceRoot::Destination,
            Some(1) => PlaceRoot::NewDestination,
            Some(2) => PlaceRoot::Parent,
            _ => return Err(SessionError::Protocol("no place for the tree".into())),
        };
        Ok(Part::Sink { root: open_root(destination, root, spec)? })
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
}

impl Standing {
    fn run(
        self,
        link: Link,
        spec: TransferSpec,
        settings: &Settings,
        pool: SlotPool,
        observer: Option<&dyn Observer>,
        abort: &Abort,
    ) -> Ended {
        match self.part {
            Part::Source { sources, sink } => {
                let sender = |stream| Box::new(TcpSender::new(stream)) as Box<dyn SendEndpoint>;
                let endpoints = self.streams.into_iter().map(sender).collect();
                let start = SourceStart {
                    link,
                    endpoints,
                    spec,
                    settings,
                    pool,
                    roots: sources.roots,
                    failures: sources.failures,
                    destination: sources.destination,
                    credits: sink.credits,
                    observer,
                };
                source::run(start, abort)
            }
            Part::Sink { root } => {
                let slot_bytes = spec.slot_bytes;
                let receiver =
                    |stream| Box::new(TcpReceiver::new(stream, slot_bytes)) as Box<dyn ReceiveEndpoint>;
                let endpoints = self.streams.into_iter().map(receiver).collect();
                let root = root.map(Arc::new);
                sink::run(SinkStart { link, endpoints, spec, settings, root, pool, observer }, abort)
            }
        }
    }
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

fn new_pool(spec: &TransferSpec, settings: &Settings) -> Result<SlotPool, SessionError> {
    Ok(SlotPool::new(settings.pool_bytes_for(spec.slot_bytes), spec.slot_bytes as usize)?)
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
