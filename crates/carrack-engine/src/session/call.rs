//! The end that the user started: it says hello, and decides what happens when no data connection can be made.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::limits::LANES_MAX;
use carrack_model::{DialFrom, Event, Notice, Protection};
use carrack_storage::{Base, FileSystems};
use carrack_transport::seal::SessionKeys;
use carrack_transport::{Channel, Door, Link, Listener, Stream, StreamCount};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{self, Control, Hello, Lanes, Listening, Spec, Welcome};

use super::connect::{self, Dialling, FirstDialer, Served, first_dialer, listen};
use super::destination::Destination;
use super::handshake::{
    FirstWord, check_list_fits, expect, explained, receive_preamble, say, say_within, send_preamble,
    session_keys,
};
use super::keeping::Keeping;
use super::wait::Wait;
use super::{
    Ended, Part, Standing, Terms, check_selects, fabric, lanes, new_key, no_slots, refuse, tell_lacking,
};
use crate::abort::Abort;
use crate::error::SessionError;
use crate::ground::Ground;
use crate::report::Observer;
use crate::settings::{Peer, Role, Transfer, TransferIdentity};
use crate::sharing::Share;
use crate::source::RootStorage;

pub(super) fn run(
    transfer: &Transfer,
    role: Role,
    peer: Peer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Result<Ended, SessionError> {
    let settings = transfer.settings.within_memory(1, transfer.spec.slot_bytes)?;
    settings.tell_smaller_pool(observer);
    let transfer = &Transfer { settings, ..transfer.clone() };
    let (spec, settings) = (&transfer.spec, &transfer.settings);
    let pipe = match &peer.channel {
        Channel::Pipes { .. } => "ssh pipe",
        Channel::Tls(_) => "tls",
    };
    let mut link = Link::new(peer.channel, spec.slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    let (key, slots) = (new_key()?, no_slots()?);
    let caller =
        Caller { transfer, role, host: &peer.host, token: &peer.token, pipe, key, slots, observer, abort };
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    let stand = caller.establish(&mut link).map_err(|error| explained(&mut link, &caller.slots, error));
    link.interrupt_on(None);
    let stand = stand.map_err(|error| if abort.is_set() { abort.error() } else { error });
    match stand {
        Ok(stand) => {
            let terms = Terms {
                spec: spec.clone(),
                settings,
                observer: Some(observer),
                abort,
                feed: transfer.feed.clone(),
                share: Share::begin(settings)?,
            };
            stand.run(link, &terms)
        }
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
    token: &'a str,
    /// What carries the data where no data connection can be made.
    pipe: &'static str,
    key: SessionKey,
    slots: SlotPool,
    observer: &'a dyn Observer,
    abort: &'a Abort,
}

/// What this end has looked at before it says hello.
enum Storage {
    Sink(Box<Destination>),
    Source(FileSystems),
}

impl Caller<'_> {
    fn establish(&self, link: &mut Link) -> Result<Standing, SessionError> {
        let (spec, settings) = (&self.transfer.spec, &self.transfer.settings);
        let other_dials = first_dialer(spec.dial_from, self.role) == FirstDialer::Other
            && !spec.dry_run
            && !settings.over_control;
        let (listener, listening) = other_dials.then(|| self.listen()).flatten().unzip();
        let storage = match self.role {
            Role::Sink => {
                let kept = Keeping::of(settings, self.transfer.identity.as_ref());
                let path = &self.transfer.destination;
                Storage::Sink(Box::new(Destination::look(&Base::Anywhere, path, settings, kept)?))
            }
            Role::Source => Storage::Source(settings.file_systems(&Base::Anywhere)?),
        };
        let (destination, depth) = match &storage {
            Storage::Sink(destination) => (Some(&**destination), destination.storage().depth()),
            Storage::Source(systems) => (
                None,
                RootStorage::of_paths(&self.transfer.source_base, systems, &self.transfer.sources).depth,
            ),
        };
        let ground = Ground::look(settings);
        let wish = lanes::wish(settings, ground.places(), depth, spec.slot_bytes);
        let wanted = fabric::wish(settings, spec.dry_run, self.observer)?;
        let hello = Hello { lanes: Some(wish), fabric: wanted.clone(), ..self.hello(listening, destination) };
        check_list_fits(settings, &hello)?;
        // Whoever does not listen may still have printed why.
        let said = send_preamble(link).and_then(|()| say_within(link, Control::Hello(hello), settings.stall));
        receive_preamble(link, FirstWord::OfCalled(settings.stall))?;
        said?;
        if self.abort.is_set() {
            return Err(self.abort.error());
        }
        let Control::Welcome(welcome) = expect(link, &self.slots, Instant::now() + settings.stall)? else {
            return Err(SessionError::Protocol("no welcome".into()));
        };
        let lane_count = self.lane_count(&wish, &welcome)?;
        let mut agreed = fabric::answered(wanted.as_ref(), welcome.fabric.as_ref(), self.observer)?;
        let mut part = match storage {
            Storage::Sink(destination) => {
                check_selects(spec, settings, &welcome)?;
                tell_lacking(settings, welcome.kept, self.observer);
                let asked = Some(&*self.transfer.sources);
                Part::sink(*destination, spec, welcome.place, asked, Some(self.observer))?
            }
            Storage::Source(file_systems) => {
                let part = Part::source(
                    &self.transfer.source_base,
                    &self.transfer.sources,
                    spec,
                    file_systems,
                    welcome.sink,
                    Some(self.observer),
                    settings,
                )?;
                say(link, Control::Place(part.place_message()))?;
                part
            }
        };
        let streams = if spec.dry_run {
            Vec::new()
        } else {
            let keys = session_keys(link, &self.key, spec, lane_count, true)?;
            self.connect(link, &keys, listener, welcome.listening, lane_count)?
        };
        fabric::check_streams(&mut agreed, &streams)?;
        part.open(spec, &mut Wait::new(Some(link), Some(self.observer), self.abort))?;
        Ok(Standing { part, streams, lane_count, fabric: agreed, ground })
    }

    /// Where the paths of sources at this end begin.
    /// The other end decided, within what this one has a use for.
    fn lane_count(&self, wish: &Lanes, welcome: &Welcome) -> Result<usize, SessionError> {
        let most = wish.most.clamp(1, LANES_MAX as u32);
        match welcome.lanes {
            count if (1..=most).contains(&count) => Ok(count as usize),
            count => Err(SessionError::Protocol(format!("{count} lanes, where {most} were the most"))),
        }
    }

    fn hello(&self, listening: Option<Listening>, destination: Option<&Destination>) -> Hello {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let transfer = self.transfer;
        let mut hello = Hello {
            software: env!("CARGO_PKG_VERSION").into(),
            session_key: self.key.as_bytes().to_vec(),
            spec: Some(Spec::from(&transfer.spec)),
            settings: Some(self.settings_for_the_other()),
            token: self.token.into(),
            transfer: transfer.identity.as_ref().map(TransferIdentity::to_message),
            listening,
            ..Hello::default()
        };
        match destination {
            Some(destination) => {
                hello.sources = transfer.sources.iter().map(bytes).collect();
                hello.sink =
                    Some(destination.to_message(transfer.settings.slot_count(transfer.spec.slot_bytes)));
            }
            None => hello.destination = Some(bytes(&transfer.destination)),
        }
        hello
    }

    /// A sink has no use for the list of a source's names.
    fn settings_for_the_other(&self) -> message::Settings {
        let mut message = self.transfer.settings.to_message();
        if let (Role::Source, Some(selection)) = (self.role, &mut message.selection) {
            selection.names.clear();
        }
        message
    }

    /// A port for the other end to dial; without one the data has other ways.
    fn listen(&self) -> Option<(Listener, Listening)> {
        let transfer = self.transfer;
        let settings = &transfer.settings;
        match listen(Door::Ports(settings.ports.clone()), &[], settings.segment_bytes) {
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
        keys: &SessionKeys,
        listener: Option<Listener>,
        listening: Option<Listening>,
        lane_count: usize,
    ) -> Result<Vec<Stream>, SessionError> {
        let outcome = match first_dialer(self.transfer.spec.dial_from, self.role) {
            FirstDialer::Initiator => self.dial(link, keys, listening.as_ref(), lane_count)?,
            FirstDialer::Other => self.served(connect::serve_or_wait(link, &self.slots, listener, keys)?)?,
        };
        let (streams, problem) = match outcome {
            Ok(streams) => (streams, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        if streams.is_empty() {
            // What carries the control channel protects the data too.
            let (transport, protection) = (self.pipe, Some(Protection::Private));
            self.observer.event(&Event::Connected {
                streams: 0,
                lanes: 1,
                transport,
                protection,
                cipher: None,
            });
        }
        if let Some(problem) = problem.filter(|_| !self.transfer.settings.over_control) {
            self.warn_slow(&problem);
        }
        Ok(streams)
    }

    fn stream_count(&self, lane_count: usize) -> StreamCount {
        let Transfer { spec, settings, .. } = self.transfer;
        StreamCount::new(spec.streams, lane_count as u16, settings.tunes)
    }

    fn dial(
        &self,
        link: &mut Link,
        keys: &SessionKeys,
        listening: Option<&Listening>,
        lane_count: usize,
    ) -> Result<Dialling, SessionError> {
        let Transfer { spec, settings, .. } = self.transfer;
        let streams = self.stream_count(lane_count);
        if settings.over_control {
            connect::tell_failure(link, "the caller wants none")?;
            return Ok(Ok(Vec::new()));
        }
        let problem = match connect::dial_only(link, Some(self.host), listening, keys, streams, settings)? {
            Ok(streams) => return Ok(Ok(streams)),
            Err(problem) => problem,
        };
        let may_be_dialled = spec.dial_from == DialFrom::Either;
        let Some((listener, listening)) = may_be_dialled.then(|| self.listen()).flatten() else {
            connect::tell_failure(link, &problem)?;
            return Ok(Err(problem));
        };
        say(link, Control::Dial(listening))?;
        let served = self.served(connect::serve(link, &self.slots, listener, keys)?)?;
        Ok(served.map_err(|theirs| format!("{problem}; the other way round: {theirs}")))
    }

    fn served(&self, served: Served) -> Result<Dialling, SessionError> {
        match served {
            Served::Streams(streams) => Ok(Ok(streams)),
            Served::Failed(problem) => Ok(Err(problem)),
            Served::DialMe(_) => Err(SessionError::Protocol("asked to dial, twice".into())),
        }
    }

    fn warn_slow(&self, problem: &str) {
        let text = format!(
            "no data connection could be made ({problem}); the data travels through the {} instead: \
             one stream, encrypted on one core, typically 0.3 to 0.8 GB/s. \
             Open a port range and name it with --ports, or choose who dials with --connect-from",
            self.pipe
        );
        self.observer.event(&Event::Notice(Notice::Warning(text)));
    }
}
