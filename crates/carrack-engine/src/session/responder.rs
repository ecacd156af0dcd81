//! The responder: it accepts the initiator, or sends the reason of a refusal.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::{AgreedTransferSpec, KeptMetadata, escape};
use carrack_storage::{PathBase, clear_umask};
use carrack_transport::{
    ControlChannel, DataConnection, ListenPoint, SessionControlLink, StreamCount, StreamListener,
};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{ControlMessage, HelloMessage, WelcomeMessage};
use carrack_wire::spec_from_json;

use super::access_policy::{AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights};
use super::data_connections::{self, FirstDialer, ListenOutcome, first_dialer, listen};
use super::destination::InspectedDestination;
use super::established::EstablishedSession;
use super::handshake::{
    ANSWER_TIMEOUT, FirstMessageSender, await_peer_reason, control_only_pool, receive_message,
    receive_preamble, refuse, send_message, send_preamble, session_keys,
};
use super::journal_access::TransferJournalOpener;
use super::outcome::SessionResult;
use super::prepared::{PreparedEnd, PreparedSink, PreparedSource};
use super::session_setup::SessionAgreement;
use super::wait_heartbeats::WaitHeartbeatRecipients;
use super::{browse, fabric, lane_links, object_size, verify};
use crate::abort::AbortHandle;
use crate::context::SessionContext;
use crate::counters::TransferCounters;
use crate::error::SessionError;
use crate::placement::HostPlacementInput;
use crate::role::SessionRole;
use crate::settings::{EndSettings, TransferIdentity};
use crate::sharing::SessionGrantClient;
use crate::source::SourceStorageFacts;

/// The outcome of serving an initiator.
pub(super) enum ServedInitiatorOutcome<'a> {
    /// The requested session, which has not begun.
    Session(Box<EstablishedSession<'a>>),
    /// A session that copies nothing, and has ended.
    Over(Box<SessionResult>),
}

/// Serves one initiator.
pub(super) fn serve_initiator<'a>(
    channel: ControlChannel,
    access_policy: &dyn AccessPolicy,
    abort: &'a AbortHandle,
) -> Result<ServedInitiatorOutcome<'a>, SessionError> {
    let slot_bytes = AgreedTransferSpec::default().slot_bytes;
    let mut link = SessionControlLink::new(channel, slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    send_preamble(&mut link)?;
    receive_preamble(&mut link, FirstMessageSender::OfInitiator)?;
    let slots = control_only_pool()?;
    let answered = match receive_message(&mut link, &slots, Instant::now() + ANSWER_TIMEOUT) {
        Ok(ControlMessage::Hello(hello)) => answer_hello(&mut link, access_policy, slots, hello, abort),
        Ok(ControlMessage::Browse(wanted)) => {
            match browse::serve_path_operation(&mut link, access_policy, &wanted) {
                Ok(failed_count) => {
                    return Ok(ServedInitiatorOutcome::Over(path_operation_result(failed_count)));
                }
                Err(error) => Err(error),
            }
        }
        Ok(ControlMessage::Verify(wanted)) => {
            match verify::serve_verification(&mut link, access_policy, &slots, abort, &wanted) {
                Ok(()) => return Ok(ServedInitiatorOutcome::Over(path_operation_result(0))),
                Err(error) => Err(error),
            }
        }
        Ok(_) => Err(SessionError::Protocol("no hello".into())),
        Err(error) => Err(error),
    };
    link.interrupt_on(None);
    let answered = answered.map_err(|error| if abort.is_set() { abort.error() } else { error });
    let (agreement, RespondingSessionEnd { spec, settings, key, .. }) =
        answered.inspect_err(|error| refuse(&mut link, error))?;
    link.set_slot_bytes(spec.slot_bytes);
    let share = SessionGrantClient::begin(&settings, Some(&key))?;
    let context = SessionContext { spec, settings, observer: None, abort, share };
    Ok(ServedInitiatorOutcome::Session(Box::new(agreement.establish(link, context)?)))
}

/// Handles a hello. From here on a transfer may create files.
fn answer_hello(
    link: &mut SessionControlLink,
    access_policy: &dyn AccessPolicy,
    slots: SlotPool,
    hello: HelloMessage,
    abort: &AbortHandle,
) -> Result<(SessionAgreement, RespondingSessionEnd), SessionError> {
    clear_umask();
    let mut responder = RespondingSessionEnd::admit(access_policy, slots, hello)?;
    let agreed = responder.agree(link, abort);
    Ok((agreed.map_err(|error| await_peer_reason(link, &responder.slots, error))?, responder))
}

/// Returns the sources that match the patterns at this end.
fn expanded(base: &PathBase, typed: &[PathBuf]) -> Result<Vec<PathBuf>, SessionError> {
    let mut expanded = Vec::new();
    for path in typed {
        expanded.extend(base.expand(path).map_err(|error| {
            let shown = escape(path.as_os_str().as_bytes());
            SessionError::refused(format!("{shown}: {error}"), "name the sources, or their directory")
        })?);
    }
    Ok(expanded)
}

/// Returns the end of a session that copied nothing.
fn path_operation_result(failed_count: u64) -> Box<SessionResult> {
    let mut both = TransferCounters::default();
    both.source.entries_failed = failed_count;
    Box::new((both, Ok(())))
}

struct RespondingSessionEnd {
    role: SessionRole,
    spec: AgreedTransferSpec,
    settings: EndSettings,
    /// The admitted base directory.
    base: PathBase,
    paths: Vec<PathBuf>,
    /// The requested sources, for a session between two far ends.
    asked: Vec<PathBuf>,
    /// The way in which data connections arrive, and further addresses of this host. `None` once it is open.
    door: Option<(ListenPoint, Vec<IpAddr>)>,
    /// The initiator's address, if it is known and the initiator is an end of the session.
    initiator: Option<IpAddr>,
    key: SessionKey,
    slots: SlotPool,
    /// True if the policy allows a fabric for the initiator.
    allows_fabric: bool,
    hello: HelloMessage,
}

impl RespondingSessionEnd {
    fn admit(
        access_policy: &dyn AccessPolicy,
        slots: SlotPool,
        hello: HelloMessage,
    ) -> Result<RespondingSessionEnd, SessionError> {
        let spec = spec_from_json(&hello.spec)?;
        let settings = EndSettings::of_json(&hello.settings)?;
        let key: [u8; 32] = hello
            .session_key
            .as_slice()
            .try_into()
            .map_err(|_| SessionError::Protocol("a hello without what is to be done".into()))?;
        let (role, deed, paths) = match &hello.destination {
            Some(path) => (SessionRole::Sink, AccessKind::Write, vec![path.as_slice()]),
            None => {
                (SessionRole::Source, AccessKind::Read, hello.sources.iter().map(Vec::as_slice).collect())
            }
        };
        let protection = (!spec.dry_run).then_some(spec.protection);
        let request =
            AccessRequest { deed, paths, token: &hello.token, protection, spec: Some(&spec), settings };
        let admission = access_policy.admit(request)?;
        let AdmittedCallerRights { base, paths, settings, door, addresses, caller } = admission;
        let settings = settings.within_memory(1, spec.slot_bytes)?;
        let asked = hello.sources.iter().map(|path| OsStr::from_bytes(path).into()).collect();
        let initiator = caller.filter(|_| !hello.third_party);
        let (door, key, allows_fabric) =
            (Some((door, addresses)), SessionKey::new(key), access_policy.allows_fabric());
        Ok(RespondingSessionEnd {
            role,
            spec,
            settings,
            base,
            paths,
            asked,
            door,
            initiator,
            key,
            slots,
            allows_fabric,
            hello,
        })
    }

    /// Returns the end that dials first.
    fn first_dialer(&self) -> FirstDialer {
        first_dialer(self.spec.dial_from, self.role.other())
    }

    fn agree(
        &mut self,
        link: &mut SessionControlLink,
        abort: &AbortHandle,
    ) -> Result<SessionAgreement, SessionError> {
        let listens = self.first_dialer() == FirstDialer::Initiator && !self.spec.dry_run;
        let door = self.door.take().filter(|_| listens);
        let segment_bytes = self.settings.segment_bytes;
        // Without a port the initiator can't connect, reports that, and the control channel carries the data.
        let (listener, listening) =
            door.and_then(|(door, addresses)| listen(door, &addresses, segment_bytes).ok()).unzip();
        let choice = fabric::choose(self.hello.fabric.as_ref(), self.allows_fabric);
        let mut fabric = fabric::agreed_at_responder(self.hello.fabric.as_ref(), choice.as_ref());
        let welcome = WelcomeMessage {
            software: env!("CARGO_PKG_VERSION").into(),
            listening,
            fabric: choice,
            ..WelcomeMessage::default()
        };
        let placement = HostPlacementInput::detect(&self.settings);
        let (mut end, lane_count) = match self.role {
            SessionRole::Sink => self.welcome_source(link, welcome, &placement)?,
            SessionRole::Source => self.welcome_sink(link, welcome, &placement)?,
        };
        let streams = if self.spec.dry_run { Vec::new() } else { self.connect(link, listener, lane_count)? };
        fabric::check_streams(&mut fabric, &streams)?;
        end.open(&self.spec, &mut WaitHeartbeatRecipients::new(Some(link), None, abort))?;
        Ok(SessionAgreement { end, streams, lane_count, fabric, placement })
    }

    /// Serves a source: sends the destination's state, and receives the place of the tree.
    fn welcome_source(
        &mut self,
        link: &mut SessionControlLink,
        mut welcome: WelcomeMessage,
        placement: &HostPlacementInput,
    ) -> Result<(PreparedEnd, usize), SessionError> {
        let path = self.paths.first().ok_or(SessionError::Internal)?;
        let identity = self.hello.transfer.as_ref().map(TransferIdentity::from_message).transpose()?;
        let journal = TransferJournalOpener::of(&self.settings, identity.as_ref());
        let destination = InspectedDestination::inspect(&self.base, path, &self.settings, journal)?;
        let storage = destination.storage();
        welcome.slot_bytes = self.agree_on_slots(storage.object_bytes(&self.spec.stripe));
        let lane_count = self.lane_count(placement, storage.depth());
        welcome.lanes = lane_count as u32;
        let credits = self.settings.slot_count(self.spec.slot_bytes);
        welcome.sink = Some(destination.to_message(&self.spec, credits));
        send_message(link, ControlMessage::Welcome(welcome))?;
        let ControlMessage::Place(place) =
            receive_message(link, &self.slots, Instant::now() + self.settings.stall)?
        else {
            return Err(SessionError::Protocol("no place".into()));
        };
        // The initiator of a third-party transfer names the entries that the source may send.
        let asked = self.hello.third_party.then_some(&*self.asked);
        let sink = PreparedSink::new(destination, &self.spec, &place, asked)?;
        Ok((PreparedEnd::Sink(Box::new(sink)), lane_count))
    }

    /// Serves a sink: takes the destination's state from the hello, and sends the place of the tree.
    fn welcome_sink(
        &mut self,
        link: &mut SessionControlLink,
        mut welcome: WelcomeMessage,
        placement: &HostPlacementInput,
    ) -> Result<(PreparedEnd, usize), SessionError> {
        self.paths = expanded(&self.base, &self.paths)?;
        let file_systems = self.settings.file_systems(&self.base)?;
        let read = SourceStorageFacts::of_paths(&self.base, &file_systems, &self.paths);
        welcome.slot_bytes = self.agree_on_slots(read.request_bytes);
        let sink = self.hello.sink.as_ref();
        let source =
            PreparedSource::new(&self.base, &self.paths, &self.spec, &self.settings, file_systems, sink)?;
        let lane_count = self.lane_count(placement, source.setup.storage.depth);
        welcome.lanes = lane_count as u32;
        welcome.place = Some(source.place_message());
        welcome.kept = KeptMetadata::ALL.bits();
        send_message(link, ControlMessage::Welcome(welcome))?;
        Ok((PreparedEnd::Source(Box::new(source)), lane_count))
    }

    /// Agrees on the slots for objects that suit both ends; `own_wish` is that of the storage at this end.
    fn agree_on_slots(&mut self, own_wish: u32) -> u32 {
        object_size::agree_as_responder(&mut self.spec, &self.settings, own_wish, &mut self.hello);
        self.spec.slot_bytes
    }

    /// Returns the number of lanes by both ends' wishes; the storage at this end can use `depth` requests at
    /// a time.
    fn lane_count(&self, placement: &HostPlacementInput, depth: u32) -> usize {
        let here = lane_links::lane_count_proposal(
            &self.settings,
            placement.lane_places(),
            depth,
            self.spec.slot_bytes,
        );
        lane_links::negotiate_lane_count(here, self.hello.lanes.unwrap_or(here))
    }

    fn connect(
        &self,
        link: &mut SessionControlLink,
        listener: Option<StreamListener>,
        lane_count: usize,
    ) -> Result<Vec<DataConnection>, SessionError> {
        let is_direct = !self.hello.third_party;
        let keys = session_keys(link, &self.key, &self.spec, lane_count, is_direct)?;
        let to_dial = match self.first_dialer() {
            FirstDialer::Responder => self.hello.listening.clone(),
            FirstDialer::Initiator => {
                match data_connections::accept_or_await_report(link, &self.slots, listener, &keys)? {
                    ListenOutcome::Streams(streams) => return Ok(streams),
                    ListenOutcome::Failed(_) => return Ok(Vec::new()),
                    ListenOutcome::DialMe(listening) => Some(listening),
                }
            }
        };
        let streams = StreamCount::new(self.spec.streams, lane_count as u16, self.settings.tunes);
        let host = self.initiator.map(|address| address.to_string());
        let dialling = data_connections::dial_without_report(
            link,
            host.as_deref(),
            to_dial.as_ref(),
            &keys,
            streams,
            &self.settings,
        )?;
        if let Err(problem) = &dialling {
            data_connections::send_dial_failure(link, problem)?;
        }
        Ok(dialling.unwrap_or_default())
    }
}
