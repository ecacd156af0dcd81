//! The initiator, which the user started: it begins the handshake, and decides on the fallbacks when no data
//! connection is possible.

use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use carrack_layout::FileSystems;
use carrack_machine::SlotPool;
use carrack_model::limits::LANES_MAX;
use carrack_model::{AgreedTransferSpec, DialingEnd, ProtectionLevel, TransferEvent, UserNotice};
use carrack_storage::PathBase;
use carrack_transport::seal::SessionKeys;
use carrack_transport::{
    ControlChannel, DataConnection, ListenPoint, SessionControlLink, StreamCount, StreamListener,
};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{
    ControlMessage, HelloMessage, LaneCountProposal, ListenAddresses, WelcomeMessage,
};
use carrack_wire::to_json;

use super::data_connections::{self, DialResult, FirstDialer, ListenOutcome, first_dialer, listen};
use super::destination::InspectedDestination;
use super::established::EstablishedSession;
use super::handshake::{
    await_peer_reason, check_list_fits, control_only_pool, greet_responder, new_key, receive_message, refuse,
    send_message, send_message_within, session_keys,
};
use super::journal_access::TransferJournalOpener;
use super::object_size::{largest_slots, with_slots_of_answer};
use super::prepared::{PreparedEnd, PreparedSink, PreparedSource, placed_event, report_unsupported_metadata};
use super::session_setup::SessionAgreement;
use super::wait_heartbeats::WaitHeartbeatRecipients;
use super::{fabric, lane_links};
use crate::abort::AbortHandle;
use crate::context::SessionContext;
use crate::error::SessionError;
use crate::event_delivery::TransferObserver;
use crate::placement::HostPlacementInput;
use crate::role::SessionRole;
use crate::settings::{FarProgramSource, PeerChannel, TransferIdentity, TransferRequest};
use crate::sharing::SessionGrantClient;
use crate::source::SourceStorageFacts;

/// Agrees on a session with the process that `peer` leads to.
pub(super) fn establish<'a>(
    transfer: &TransferRequest,
    role: SessionRole,
    peer: PeerChannel,
    observer: &'a dyn TransferObserver,
    abort: &'a AbortHandle,
) -> Result<EstablishedSession<'a>, SessionError> {
    let settings = transfer.settings.within_memory(1, transfer.spec.slot_bytes)?;
    settings.report_smaller_pool(observer);
    let transfer = &TransferRequest { settings, ..transfer.clone() };
    let pipe = match &peer.channel {
        ControlChannel::Pipes { .. } => "ssh pipe",
        ControlChannel::Tls(_) => "tls",
    };
    let mut link = SessionControlLink::new(peer.channel, transfer.spec.slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    let (key, slots) = (new_key()?, control_only_pool()?);
    let initiator = InitiatorHandshake {
        transfer,
        role,
        host: &peer.host,
        token: &peer.token,
        programs: peer.programs.as_deref(),
        pipe,
        key,
        slots,
        observer,
        abort,
    };
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    let agreed =
        initiator.agree(&mut link).map_err(|error| await_peer_reason(&mut link, &initiator.slots, error));
    link.interrupt_on(None);
    let agreed = agreed.map_err(|error| if abort.is_set() { abort.error() } else { error });
    let (agreement, spec) = agreed.inspect_err(|error| refuse(&mut link, error))?;
    let share = SessionGrantClient::begin(&transfer.settings, Some(&initiator.key))?;
    let settings = transfer.settings.clone();
    agreement.establish(link, SessionContext { spec, settings, observer: Some(observer), abort, share })
}

struct InitiatorHandshake<'a> {
    transfer: &'a TransferRequest,
    role: SessionRole,
    host: &'a str,
    token: &'a str,
    programs: Option<&'a dyn FarProgramSource>,
    /// The channel that carries the data if no data connection is possible.
    pipe: &'static str,
    key: SessionKey,
    slots: SlotPool,
    observer: &'a dyn TransferObserver,
    abort: &'a AbortHandle,
}

/// The storage that this end has examined before the handshake.
enum InitiatorStorage {
    Sink(Box<InspectedDestination>),
    Source(FileSystems),
}

impl InitiatorStorage {
    fn destination(&self) -> Option<&InspectedDestination> {
        match self {
            InitiatorStorage::Sink(destination) => Some(destination),
            InitiatorStorage::Source(_) => None,
        }
    }
}

impl InitiatorHandshake<'_> {
    /// Returns the agreement, and the specification with the agreed slots.
    fn agree(
        &self,
        link: &mut SessionControlLink,
    ) -> Result<(SessionAgreement, AgreedTransferSpec), SessionError> {
        let TransferRequest { spec, settings, .. } = self.transfer;
        let other_dials = first_dialer(spec.dial_from, self.role) == FirstDialer::Responder
            && !spec.dry_run
            && !settings.over_control;
        let (listener, listening) = other_dials.then(|| self.listen()).flatten().unzip();
        let storage = self.inspect_storage()?;
        let placement = HostPlacementInput::detect(settings);
        let (depth, object_bytes) = self.storage_wishes(&storage);
        let wish = lane_links::lane_count_proposal(settings, placement.lane_places(), depth, spec.slot_bytes);
        let wanted = fabric::requested_fabrics(settings, spec.dry_run, self.observer)?;
        let hello = self.hello(listening, storage.destination());
        let slot_bytes_max = largest_slots(spec, settings);
        let hello = HelloMessage {
            lanes: Some(wish),
            fabric: wanted.clone(),
            slot_bytes_max,
            object_bytes,
            has_chosen_object_size: spec.has_chosen_object_size,
            ..hello
        };
        let mut welcome = self.exchange_hello(link, hello)?;
        let spec = &with_slots_of_answer(spec, slot_bytes_max, &welcome)?;
        link.set_slot_bytes(spec.slot_bytes);
        let lane_count = agreed_lane_count(&wish, &welcome)?;
        let mut fabric =
            fabric::agreed_at_initiator(wanted.as_ref(), welcome.fabric.as_ref(), self.observer)?;
        let listening = welcome.listening.take();
        let mut end = self.prepare(link, storage, welcome, spec)?;
        let mut streams = Vec::new();
        if !spec.dry_run {
            let keys = session_keys(link, &self.key, spec, lane_count, true)?;
            streams = self.connect(link, &keys, listener, listening, lane_count)?;
        }
        fabric::check_streams(&mut fabric, &streams)?;
        end.open(spec, &mut WaitHeartbeatRecipients::new(Some(link), Some(self.observer), self.abort))?;
        Ok((SessionAgreement { end, streams, lane_count, fabric, placement }, spec.clone()))
    }

    /// Examines the storage at this end, before any message.
    fn inspect_storage(&self) -> Result<InitiatorStorage, SessionError> {
        let TransferRequest { settings, identity, destination, .. } = self.transfer;
        Ok(match self.role {
            SessionRole::Sink => {
                let journal = TransferJournalOpener::of(settings, identity.as_ref());
                InitiatorStorage::Sink(Box::new(InspectedDestination::inspect(
                    &PathBase::Anywhere,
                    destination,
                    settings,
                    journal,
                )?))
            }
            SessionRole::Source => InitiatorStorage::Source(settings.file_systems(&PathBase::Anywhere)?),
        })
    }

    /// The most I/O threads that the storage can use, and the size of objects that suits a source's.
    fn storage_wishes(&self, storage: &InitiatorStorage) -> (u32, u32) {
        let TransferRequest { source_base, sources, .. } = self.transfer;
        match storage {
            InitiatorStorage::Sink(destination) => (destination.storage().depth(), 0),
            InitiatorStorage::Source(systems) => {
                let facts = SourceStorageFacts::of_paths(source_base, systems, sources);
                (facts.depth, facts.request_bytes)
            }
        }
    }

    /// Sends the hello, and returns the reply of an end that takes part.
    fn exchange_hello(
        &self,
        link: &mut SessionControlLink,
        hello: HelloMessage,
    ) -> Result<WelcomeMessage, SessionError> {
        let settings = &self.transfer.settings;
        check_list_fits(settings, &hello)?;
        greet_responder(link, self.programs, settings.stall, &mut |link| {
            send_message_within(link, ControlMessage::Hello(hello.clone()), settings.stall)
        })?;
        if self.abort.is_set() {
            return Err(self.abort.error());
        }
        match receive_message(link, &self.slots, Instant::now() + settings.stall)? {
            ControlMessage::Welcome(welcome) => Ok(welcome),
            _ => Err(SessionError::Protocol("no welcome".into())),
        }
    }

    /// Agrees with the other end on the place of the tree.
    fn prepare(
        &self,
        link: &mut SessionControlLink,
        storage: InitiatorStorage,
        welcome: WelcomeMessage,
        spec: &AgreedTransferSpec,
    ) -> Result<PreparedEnd, SessionError> {
        let TransferRequest { settings, source_base, sources, .. } = self.transfer;
        match storage {
            InitiatorStorage::Sink(destination) => {
                report_unsupported_metadata(settings, welcome.kept, self.observer);
                let place =
                    welcome.place.ok_or_else(|| SessionError::Protocol("no place for the tree".into()))?;
                let sink = PreparedSink::new(*destination, spec, &place, Some(sources))?;
                self.observer.handle_event(&placed_event(place));
                Ok(PreparedEnd::Sink(Box::new(sink)))
            }
            InitiatorStorage::Source(file_systems) => {
                let sink = welcome.sink.as_ref();
                let mut source =
                    PreparedSource::new(source_base, sources, spec, settings, file_systems, sink)?;
                source.setup.feed = self.transfer.feed.clone().map(|feed| feed.0);
                self.observer.handle_event(&TransferEvent::Placed(source.arrival.clone()));
                source.report_notices(self.observer);
                send_message(link, ControlMessage::Place(source.place_message()))?;
                Ok(PreparedEnd::Source(Box::new(source)))
            }
        }
    }

    fn hello(
        &self,
        listening: Option<ListenAddresses>,
        destination: Option<&InspectedDestination>,
    ) -> HelloMessage {
        let transfer = self.transfer;
        let mut hello = HelloMessage {
            software: env!("CARGO_PKG_VERSION").into(),
            session_key: self.key.as_bytes().to_vec(),
            spec: to_json(&transfer.spec),
            settings: match self.role {
                SessionRole::Source => transfer.settings.for_sink().to_json(),
                SessionRole::Sink => transfer.settings.to_json(),
            },
            token: self.token.into(),
            transfer: transfer.identity.as_ref().map(TransferIdentity::to_message),
            listening,
            ..HelloMessage::default()
        };
        match destination {
            Some(destination) => {
                hello.sources =
                    transfer.sources.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
                hello.sink = Some(
                    destination
                        .to_message(&transfer.spec, transfer.settings.slot_count(transfer.spec.slot_bytes)),
                );
            }
            None => hello.destination = Some(transfer.destination.as_os_str().as_bytes().to_vec()),
        }
        hello
    }

    /// Opens a port for the other end to dial; without one there are other ways for the data.
    fn listen(&self) -> Option<(StreamListener, ListenAddresses)> {
        let transfer = self.transfer;
        let settings = &transfer.settings;
        match listen(ListenPoint::Ports(settings.ports.clone()), &[], settings.segment_bytes) {
            Ok(listening) => Some(listening),
            Err(error) => {
                let text = format!("no port to listen on: {error}");
                self.observer.handle_event(&TransferEvent::Notice(UserNotice::Warning(text)));
                None
            }
        }
    }

    fn connect(
        &self,
        link: &mut SessionControlLink,
        keys: &SessionKeys,
        listener: Option<StreamListener>,
        listening: Option<ListenAddresses>,
        lane_count: usize,
    ) -> Result<Vec<DataConnection>, SessionError> {
        let outcome = match first_dialer(self.transfer.spec.dial_from, self.role) {
            FirstDialer::Initiator => self.dial(link, keys, listening.as_ref(), lane_count)?,
            FirstDialer::Responder => self.to_dial_result(data_connections::accept_or_await_report(
                link,
                &self.slots,
                listener,
                keys,
            )?)?,
        };
        let (streams, problem) = match outcome {
            Ok(streams) => (streams, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        if streams.is_empty() {
            // The protection of the control channel covers the data too.
            let (transport, protection) = (self.pipe, Some(ProtectionLevel::Private));
            self.observer.handle_event(&TransferEvent::Connected {
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
        let TransferRequest { spec, settings, .. } = self.transfer;
        StreamCount::new(spec.streams, lane_count as u16, settings.tunes)
    }

    fn dial(
        &self,
        link: &mut SessionControlLink,
        keys: &SessionKeys,
        listening: Option<&ListenAddresses>,
        lane_count: usize,
    ) -> Result<DialResult, SessionError> {
        let TransferRequest { spec, settings, .. } = self.transfer;
        let streams = self.stream_count(lane_count);
        if settings.over_control {
            data_connections::send_dial_failure(link, "the caller wants none")?;
            return Ok(Ok(Vec::new()));
        }
        let problem = match data_connections::dial_without_report(
            link,
            Some(self.host),
            listening,
            keys,
            streams,
            settings,
        )? {
            Ok(streams) => return Ok(Ok(streams)),
            Err(problem) => problem,
        };
        let may_be_dialled = spec.dial_from == DialingEnd::Either;
        let Some((listener, listening)) = may_be_dialled.then(|| self.listen()).flatten() else {
            data_connections::send_dial_failure(link, &problem)?;
            return Ok(Err(problem));
        };
        send_message(link, ControlMessage::Dial(listening))?;
        let served =
            self.to_dial_result(data_connections::accept_connections(link, &self.slots, listener, keys)?)?;
        Ok(served.map_err(|theirs| format!("{problem}; the other way round: {theirs}")))
    }

    fn to_dial_result(&self, served: ListenOutcome) -> Result<DialResult, SessionError> {
        match served {
            ListenOutcome::Streams(streams) => Ok(Ok(streams)),
            ListenOutcome::Failed(problem) => Ok(Err(problem)),
            ListenOutcome::DialMe(_) => Err(SessionError::Protocol("asked to dial, twice".into())),
        }
    }

    fn warn_slow(&self, problem: &str) {
        let text = format!(
            "no data connection could be made ({problem}); the data travels through the {} instead: \
             one stream, encrypted on one core, typically 0.3 to 0.8 GB/s. \
             Open a port range and name it with --ports, or choose who dials with --connect-from",
            self.pipe
        );
        self.observer.handle_event(&TransferEvent::Notice(UserNotice::Warning(text)));
    }
}

/// Returns the other end's decision, within the limit of this end.
fn agreed_lane_count(wish: &LaneCountProposal, welcome: &WelcomeMessage) -> Result<usize, SessionError> {
    let most = wish.most.clamp(1, LANES_MAX as u32);
    match welcome.lanes {
        count if (1..=most).contains(&count) => Ok(count as usize),
        count => Err(SessionError::Protocol(format!("{count} lanes, where {most} were the most"))),
    }
}
