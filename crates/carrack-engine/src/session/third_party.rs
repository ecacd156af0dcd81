//! A transfer between two far ends (third-party transfer). This process connects to both, sends them one
//! session key, lets one of them dial the other, and then relays their control messages. The data flows
//! between the two; with `relays` it passes through this process, over the control channels.
//!
//! To each end this process is the initiator, as in any session: it tells the sink its destination, the
//! source the sink's state, and the sink the place of the tree. The session key, which both channels carry
//! encrypted, is all that the two need to trust each other's data connections: it is valid for this transfer
//! only.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::limits::{LANES_MAX, SLOT_COUNT_MIN};
use carrack_model::{AgreedTransferSpec, DialingEnd, ProtectionLevel, TransferEvent};
use carrack_transport::{ControlLinkInput, SessionControlLink, resolve};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{
    ControlMessage, DialFailureMessage, HelloMessage, LaneCountProposal, ListenAddresses, SinkHandshakeFacts,
    WelcomeMessage,
};
use carrack_wire::to_json;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::data_connections::DIAL_TIMEOUT;
use super::fabric;
use super::handshake::{
    await_peer_reason, check_list_fits, control_only_pool, new_key, receive_message, refuse, send_message,
    send_preamble, start_responder,
};
use super::object_size::{largest_slots, with_slots_of_answer};
use super::outcome::SessionResult;
use super::prepared::{placed_event, report_unsupported_metadata};
use crate::abort::AbortHandle;
use crate::counters::TransferCounters;
use crate::error::SessionError;
use crate::event_delivery::{TransferObserver, to_event};
use crate::role::SessionRole;
use crate::settings::{
    EndSettings, FarProgramSource, ThirdPartyEndChannels, TransferIdentity, TransferRequest,
};
use crate::suspension_detector::SuspensionDetector;

/// Messages that may wait for an end before the other end is not read any more.
const QUEUE_MAX: usize = 256;

/// The time for the last messages.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) fn run(
    transfer: &TransferRequest,
    ends: ThirdPartyEndChannels,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
) -> Result<SessionResult, SessionError> {
    fabric::refuse_if_required(&transfer.settings, "objects between two far hosts go over TCP")?;
    let slot_bytes = transfer.spec.slot_bytes;
    let source = SessionControlLink::new(ends.source.channel, slot_bytes);
    let sink = SessionControlLink::new(ends.sink.channel, slot_bytes);
    let links = source.and_then(|source| Ok(ThirdPartyControlLinks { source, sink: sink? }));
    let mut links = links.map_err(SessionError::local("setting up the control channel"))?;
    for link in links.source_and_sink() {
        link.interrupt_on(Some(
            abort.readiness_owned().map_err(SessionError::local("watching for signals"))?,
        ));
    }
    let spec = AgreedTransferSpec { dial_from: DialingEnd::Either, ..transfer.spec.clone() };
    let mut third_party = ThirdPartyTransfer {
        transfer,
        spec,
        key: new_key()?,
        slots: control_only_pool()?,
        source_token: &ends.source.token,
        sink_token: &ends.sink.token,
        hosts: (&ends.source.host, &ends.sink.host),
        programs: [ends.source.programs.as_deref(), ends.sink.programs.as_deref()],
        relays: ends.relays || transfer.settings.over_control,
        observer,
    };
    let agreed = third_party.agree(&mut links);
    links.source_and_sink().into_iter().for_each(|link| link.interrupt_on(None));
    if let Err(error) = agreed {
        let error = if abort.is_set() { abort.error() } else { error };
        links.source_and_sink().into_iter().for_each(|link| refuse(link, &error));
        return Err(error);
    }
    ThirdPartyController::new(links, &third_party, observer, abort)?.run()
}

/// The links to the two ends.
struct ThirdPartyControlLinks {
    source: SessionControlLink,
    sink: SessionControlLink,
}

impl ThirdPartyControlLinks {
    fn source_and_sink(&mut self) -> [&mut SessionControlLink; 2] {
        [&mut self.source, &mut self.sink]
    }

    fn link_to(&mut self, side: SessionRole) -> &mut SessionControlLink {
        match side {
            SessionRole::Source => &mut self.source,
            SessionRole::Sink => &mut self.sink,
        }
    }
}

/// The transfer between the ends.
struct ThirdPartyTransfer<'a> {
    transfer: &'a TransferRequest,
    /// The same for both: their keys are bound to it. The dialling end is decided later.
    spec: AgreedTransferSpec,
    key: SessionKey,
    slots: SlotPool,
    source_token: &'a str,
    sink_token: &'a str,
    /// The hosts of the source and of the sink.
    hosts: (&'a str, &'a str),
    /// For a source and a sink that have no carrack.
    programs: [Option<&'a dyn FarProgramSource>; 2],
    relays: bool,
    observer: &'a dyn TransferObserver,
}

impl ThirdPartyTransfer<'_> {
    fn agree(&mut self, links: &mut ThirdPartyControlLinks) -> Result<(), SessionError> {
        // Both ends start meanwhile.
        let said = links.source_and_sink().map(send_preamble);
        let stall = self.transfer.settings.stall;
        let ends = [SessionRole::Source, SessionRole::Sink];
        let links_and_programs = links.source_and_sink().into_iter().zip(self.programs);
        for ((role, said), (link, programs)) in ends.into_iter().zip(said).zip(links_and_programs) {
            // A process that is not carrack may still have printed a reason.
            let started = start_responder(link, programs, stall)
                .and_then(|is_new| if is_new { send_preamble(link) } else { said });
            started.map_err(|error| SessionError::At { role, error: Box::new(error) })?;
        }

        send_message(&mut links.sink, ControlMessage::Hello(self.hello_to_sink()))?;
        let from_sink = self.receive_welcome(links, SessionRole::Sink)?;
        // The sink has chosen the slots, as it can't know the source's storage.
        self.spec = with_slots_of_answer(&self.spec, self.largest_slots(), &from_sink)?;
        for link in links.source_and_sink() {
            link.set_slot_bytes(self.spec.slot_bytes);
        }
        let lane_count = from_sink.lanes;
        let sink =
            from_sink.sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let hello = self.hello_to_source(sink, lane_count);
        check_list_fits(&self.transfer.settings, &hello)?;
        send_message(&mut links.source, ControlMessage::Hello(hello))?;
        let from_source = self.receive_welcome(links, SessionRole::Source)?;
        report_unsupported_metadata(&self.transfer.settings, from_source.kept, self.observer);
        if from_source.lanes != lane_count {
            return Err(SessionError::Protocol("the two ends disagree on their lanes".into()));
        }
        let place =
            from_source.place.ok_or_else(|| SessionError::Protocol("no place for the tree".into()))?;
        self.observer.handle_event(&placed_event(place.clone()));
        send_message(&mut links.sink, ControlMessage::Place(place))?;
        if self.spec.dry_run {
            return Ok(());
        }
        self.connect(links, from_source.listening, from_sink.listening)
    }

    fn receive_welcome(
        &self,
        links: &mut ThirdPartyControlLinks,
        role: SessionRole,
    ) -> Result<WelcomeMessage, SessionError> {
        let link = links.link_to(role);
        let heard = receive_message(link, &self.slots, Instant::now() + self.transfer.settings.stall);
        let welcome =
            heard.map_err(|error| await_peer_reason(link, &self.slots, error)).and_then(
                |heard| match heard {
                    ControlMessage::Welcome(welcome) => Ok(welcome),
                    _ => Err(SessionError::Protocol("no welcome".into())),
                },
            );
        welcome.map_err(|error| SessionError::At { role, error: Box::new(error) })
    }

    fn hello_to_sink(&self) -> HelloMessage {
        let wanted = self.transfer.settings.lanes as u32;
        let most = if self.relays { 1 } else { LANES_MAX as u32 };
        HelloMessage {
            destination: Some(self.transfer.destination.as_os_str().as_bytes().to_vec()),
            // The requested sources: the source may write nothing else.
            sources: self.source_paths(),
            lanes: Some(LaneCountProposal {
                wanted: wanted.clamp(1, most),
                most: if wanted > 0 { wanted.min(most) } else { most },
            }),
            token: self.sink_token.into(),
            slot_bytes_max: self.largest_slots(),
            ..self.hello(&self.transfer.settings.for_sink())
        }
    }

    /// The sink has decided on the lanes. If the data passes through this process, its slots are a limit too.
    fn hello_to_source(&self, mut sink: SinkHandshakeFacts, lanes: u32) -> HelloMessage {
        if self.relays {
            sink.credits = sink.credits.min(self.relay_slots() as u32);
        }
        HelloMessage {
            sources: self.source_paths(),
            sink: Some(sink),
            lanes: Some(LaneCountProposal { wanted: lanes, most: lanes }),
            token: self.source_token.into(),
            ..self.hello(&EndSettings { lanes: lanes as usize, ..self.transfer.settings.clone() })
        }
    }

    fn hello(&self, settings: &EndSettings) -> HelloMessage {
        HelloMessage {
            software: env!("CARGO_PKG_VERSION").into(),
            session_key: self.key.as_bytes().to_vec(),
            spec: to_json(&self.spec),
            has_chosen_object_size: self.spec.has_chosen_object_size,
            settings: settings.to_json(),
            third_party: true,
            transfer: self.transfer.identity.as_ref().map(TransferIdentity::to_message),
            ..HelloMessage::default()
        }
    }

    fn largest_slots(&self) -> u32 {
        largest_slots(&self.spec, &self.transfer.settings)
    }

    fn source_paths(&self) -> Vec<Vec<u8>> {
        self.transfer.sources.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
    }

    fn relay_slots(&self) -> usize {
        (self.transfer.settings.slot_count(self.spec.slot_bytes) as usize).max(SLOT_COUNT_MIN)
    }

    /// Lets one end dial the other. Both wait for a connection, or for a message.
    fn connect(
        &self,
        links: &mut ThirdPartyControlLinks,
        source: Option<ListenAddresses>,
        sink: Option<ListenAddresses>,
    ) -> Result<(), SessionError> {
        if self.relays {
            return links.source_and_sink().into_iter().try_for_each(|link| {
                let problem = "the caller passes the data on".into();
                send_message(link, ControlMessage::DialFailed(DialFailureMessage { problem }))
            });
        }
        let (dialler, listening, host) = match self.transfer.spec.dial_from {
            DialingEnd::Either | DialingEnd::Source => (SessionRole::Source, sink, self.hosts.1),
            DialingEnd::Sink => (SessionRole::Sink, source, self.hosts.0),
        };
        let listening =
            listening.ok_or_else(|| self.unreachable(dialler, "the other one has no port to listen on"))?;
        send_message(links.link_to(dialler), ControlMessage::Dial(with_addresses_of(listening, host)))
    }

    fn unreachable(&self, dialler: SessionRole, problem: &str) -> SessionError {
        let (source, sink) = self.hosts;
        let (from, to, other) = match dialler {
            SessionRole::Source => (source, sink, "sink"),
            SessionRole::Sink => (sink, source, "source"),
        };
        SessionError::refused(
            format!("{from} can't reach {to}: {problem}"),
            format!(
                "have the other end dial with --connect-from {other}, open a port range and name it with --ports, or let \
                 the data pass through this host with --relay"
            ),
        )
    }
}

/// Returns the addresses that the end named, followed by those that it has as seen from this host.
fn with_addresses_of(mut listening: ListenAddresses, host: &str) -> ListenAddresses {
    let resolved = resolve(host, 0, DIAL_TIMEOUT).into_iter().flatten();
    for address in resolved.map(|address| IpAddr::to_string(&address.ip())) {
        if !listening.addresses.contains(&address) {
            listening.addresses.push(address);
        }
    }
    listening
}

/// Relays the messages of the two ends, and decodes them for its reports.
struct ThirdPartyController<'a> {
    links: ThirdPartyControlLinks,
    third_party: &'a ThirdPartyTransfer<'a>,
    observer: &'a dyn TransferObserver,
    abort: &'a AbortHandle,
    /// Slots for objects that pass through.
    slots: SlotPool,
    both: TransferCounters,
    before: TransferCounters,
    last_heard: [Instant; 2],
    presence: SuspensionDetector,
    is_announced: bool,
    /// The message of the first end that gave up.
    given_up: Option<SessionError>,
    is_over: bool,
}

impl<'a> ThirdPartyController<'a> {
    fn new(
        links: ThirdPartyControlLinks,
        third_party: &'a ThirdPartyTransfer<'a>,
        observer: &'a dyn TransferObserver,
        abort: &'a AbortHandle,
    ) -> Result<ThirdPartyController<'a>, SessionError> {
        let slot_bytes = third_party.spec.slot_bytes as usize;
        let slots = if third_party.relays {
            SlotPool::new((third_party.relay_slots() * slot_bytes) as u64, slot_bytes)?
        } else {
            control_only_pool()?
        };
        Ok(ThirdPartyController {
            links,
            third_party,
            observer,
            abort,
            slots,
            both: TransferCounters::default(),
            before: TransferCounters::default(),
            last_heard: [Instant::now(); 2],
            presence: SuspensionDetector::new(Instant::now()),
            is_announced: false,
            given_up: None,
            is_over: false,
        })
    }

    fn run(mut self) -> Result<SessionResult, SessionError> {
        let result = self.relay_messages();
        if let Err(error) = &result {
            let message = error.to_message();
            for link in self.links.source_and_sink() {
                link.queue_control(ControlMessage::Abort(message.clone()).to_body());
            }
        }
        for link in self.links.source_and_sink() {
            // An end may be gone.
            let _ = link.flush_by(Instant::now() + LAST_WORDS);
        }
        Ok((self.both, result))
    }

    fn relay_messages(&mut self) -> Result<(), SessionError> {
        loop {
            if self.abort.is_set() {
                return Err(self.abort.error());
            }
            self.check_silence()?;
            for side in [SessionRole::Source, SessionRole::Sink] {
                if !self.relay_from(side)? {
                    return self.session_result();
                }
            }
            // An end that is gone is noticed when it is read.
            self.links.source_and_sink().into_iter().for_each(|link| drop(link.flush()));
            self.wait_for_readiness()?;
        }
    }

    /// Returns the outcome after one end has left. Its last messages were relayed.
    fn session_result(&mut self) -> Result<(), SessionError> {
        match self.given_up.take() {
            Some(error) => Err(error),
            None if self.is_over => Ok(()),
            None => Err(SessionError::PeerGone),
        }
    }

    /// Relays messages of `side`, while the other end reads them. Returns false if `side` has left.
    fn relay_from(&mut self, side: SessionRole) -> Result<bool, SessionError> {
        let other = side.other();
        while self.links.link_to(other).queued_count() < QUEUE_MAX {
            match self.links.link_to(side).receive(&self.slots) {
                Ok(ControlLinkInput::Control { lane, body }) => {
                    self.inspect_message(side, lane, &body)?;
                    self.links.link_to(other).queue_control_for(lane, body);
                }
                Ok(ControlLinkInput::Object(incoming))
                    if self.third_party.relays && side == SessionRole::Source =>
                {
                    self.links.sink.queue_object(&incoming.header, incoming.slot);
                }
                Ok(ControlLinkInput::Object(_)) => {
                    return Err(SessionError::Protocol("data that was to go directly".into()));
                }
                Ok(ControlLinkInput::Pending) => return Ok(true),
                Ok(ControlLinkInput::Closed) => return Ok(false),
                Err(error) if self.is_over => drop(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn inspect_message(&mut self, side: SessionRole, lane: u32, body: &[u8]) -> Result<(), SessionError> {
        let message = ControlMessage::from_body(body)?;
        if let ControlMessage::DialFailed(told) = &message {
            let dialler = if self.third_party.transfer.spec.dial_from == DialingEnd::Sink {
                SessionRole::Sink
            } else {
                SessionRole::Source
            };
            let problem = carrack_model::escape(told.problem.as_bytes());
            return Err(self.third_party.unreachable(dialler, &problem));
        }
        self.announce();
        if let Some(event) = to_event(&message, side.side()) {
            self.observer.handle_event(&event);
        }
        match (side, message) {
            (SessionRole::Source, ControlMessage::Counters(counters)) => self.both.source = counters,
            (SessionRole::Source, ControlMessage::Finish(finish)) if lane == 0 => {
                self.both.source = finish.counters.unwrap_or(self.both.source);
            }
            (SessionRole::Sink, ControlMessage::ObjectsDone(done)) => {
                self.both.answered += (done.written.len() + done.corrupt.len()) as u64;
            }
            (SessionRole::Sink, ControlMessage::Counters(counters)) => {
                self.both.sink = counters;
                self.observer.handle_event(&TransferEvent::Progress(self.both.progress(&self.before)));
                self.before = self.both;
            }
            // The first lane ends last.
            (SessionRole::Sink, ControlMessage::Finished(counters)) if lane == 0 => {
                self.both.sink = counters;
                self.is_over = true;
            }
            (_, ControlMessage::Abort(told)) => {
                self.given_up.get_or_insert(SessionError::from_abort(told));
            }
            (_, ControlMessage::Refuse(told)) => {
                self.given_up.get_or_insert(SessionError::from_refusal(told));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reports the data connections, at the first message of the session.
    fn announce(&mut self) {
        if std::mem::replace(&mut self.is_announced, true) {
            return;
        }
        let AgreedTransferSpec { protection, cipher, streams, .. } = self.third_party.spec;
        let (transport, protection) = if self.third_party.relays {
            ("relay", ProtectionLevel::Private)
        } else {
            ("direct", protection)
        };
        self.observer.handle_event(&TransferEvent::Connected {
            streams: u32::from(streams),
            lanes: 1,
            transport,
            protection: Some(protection),
            cipher: (protection.seals() && !self.third_party.relays).then_some(cipher),
        });
    }

    /// Fails if an end is silent for too long. While the data connections are opened the ends send nothing.
    fn check_silence(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let missed = self.presence.take_suspended_time(now);
        let stall = self.third_party.transfer.settings.stall;
        let longest = if self.is_announced { stall } else { stall.max(DIAL_TIMEOUT) };
        self.last_heard.iter_mut().for_each(|heard| *heard += missed);
        let is_silent = self.last_heard.iter().any(|&heard| now.saturating_duration_since(heard) > longest);
        if is_silent { Err(SessionError::PeerStalled(longest.as_secs())) } else { Ok(()) }
    }

    fn wait_for_readiness(&mut self) -> Result<(), SessionError> {
        let ThirdPartyControlLinks { source, sink } = &self.links;
        let mut fds = vec![PollFd::from_borrowed_fd(self.abort.readiness(), PollFlags::IN)];
        for (link, other) in [(source, sink), (sink, source)] {
            let reads = if other.queued_count() < QUEUE_MAX { PollFlags::IN } else { PollFlags::empty() };
            let writes = if link.queued_count() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            // A link that must not be read is left out: poll would report again and again that its other end
            // has left.
            let wanted = [(link.input(), reads), (link.output(), writes)].into_iter();
            let wanted = wanted.filter(|(_, flags)| !flags.is_empty());
            fds.extend(wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        }
        let longest = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut fds, Some(&longest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SessionError::local("waiting")(error.into())),
        }
        let (now, [from_source, from_sink]) = (Instant::now(), [source.input(), sink.input()]);
        let heard = [from_source, from_sink].map(|input| {
            let mut of_input = fds.iter().filter(|fd| fd.as_fd().as_raw_fd() == input.as_raw_fd());
            of_input.any(|fd| fd.revents().contains(PollFlags::IN))
        });
        self.last_heard.iter_mut().zip(heard).filter(|(_, heard)| *heard).for_each(|(last, _)| *last = now);
        Ok(())
    }
}
