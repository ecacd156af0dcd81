//! The end that was called: it welcomes the caller, or says why not.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::{Kept, TransferSpec, escape};
use carrack_storage::{Base, clear_umask};
use carrack_transport::{Channel, Door, Link, Listener, Stream, StreamCount};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Hello, Welcome};

use super::connect::{self, FirstDialer, Served, first_dialer, listen};
use super::destination::Destination;
use super::handshake::{
    ANSWER_TIMEOUT, FirstWord, expect, explained, receive_preamble, say, send_preamble, session_keys,
};
use super::house::{Admission, Deed, House, Request};
use super::keeping::Keeping;
use super::wait::Wait;
use super::{Ended, Part, Standing, Terms, browse, fabric, lanes, no_slots, refuse, verify};
use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::Ground;
use crate::settings::{Role, Settings, TransferIdentity};
use crate::sharing::Share;

pub(super) fn run(channel: Channel, house: &dyn House, abort: &Abort) -> Result<Ended, SessionError> {
    let slot_bytes = TransferSpec::default().slot_bytes;
    let mut link =
        Link::new(channel, slot_bytes).map_err(SessionError::local("setting up the control channel"))?;
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    send_preamble(&mut link)?;
    receive_preamble(&mut link, FirstWord::OfCaller)?;
    let slots = no_slots()?;
    let answered = match expect(&mut link, &slots, Instant::now() + ANSWER_TIMEOUT) {
        Ok(Control::Hello(hello)) => answer_hello(&mut link, house, slots, hello, abort),
        Ok(Control::Browse(wanted)) => match browse::answer(&mut link, house, &wanted) {
            Ok(failed_count) => return Ok(browsed(failed_count)),
            Err(error) => Err(error),
        },
        Ok(Control::Verify(wanted)) => match verify::answer(&mut link, house, &slots, abort, &wanted) {
            Ok(()) => return Ok(browsed(0)),
            Err(error) => Err(error),
        },
        Ok(_) => Err(SessionError::Protocol("no hello".into())),
        Err(error) => Err(error),
    };
    link.interrupt_on(None);
    match answered {
        Ok((stand, answerer)) => {
            link.set_slot_bytes(answerer.spec.slot_bytes);
            let terms = Terms {
                spec: answerer.spec.clone(),
                settings: &answerer.settings,
                observer: None,
                abort,
                feed: None,
                share: Share::begin(&answerer.settings)?,
            };
            stand.run(link, &terms)
        }
        Err(error) => {
            let error = if abort.is_set() { abort.error() } else { error };
            refuse(&mut link, &error);
            Err(error)
        }
    }
}

/// From here on a transfer may create files.
fn answer_hello(
    link: &mut Link,
    house: &dyn House,
    slots: SlotPool,
    hello: Hello,
    abort: &Abort,
) -> Result<(Standing, Answerer), SessionError> {
    clear_umask();
    let mut answerer = Answerer::admit(house, slots, hello)?;
    let stand = answerer.establish(link, abort);
    Ok((stand.map_err(|error| explained(link, &answerer.slots, error))?, answerer))
}

/// The sources that patterns stand for here.
fn expanded(base: &Base, typed: &[PathBuf]) -> Result<Vec<PathBuf>, SessionError> {
    let expand = |path: &PathBuf| {
        let shown = escape(path.as_os_str().as_bytes());
        let refused = |error| {
            SessionError::refused(format!("{shown}: {error}"), "name the sources, or their directory")
        };
        base.expand(path).map_err(refused)
    };
    typed.iter().map(expand).collect::<Result<Vec<_>, _>>().map(|paths| paths.concat())
}

/// What a session comes to in which nothing was copied.
fn browsed(failed_count: u64) -> Ended {
    let mut both = BothEnds::default();
    both.source.entries_failed = failed_count;
    (both, Ok(()))
}

struct Answerer {
    role: Role,
    spec: TransferSpec,
    settings: Settings,
    /// What it was admitted to.
    base: Base,
    paths: Vec<PathBuf>,
    /// The sources, where they are a third one's.
    asked: Vec<PathBuf>,
    /// Nothing once it is open.
    door: Option<Door>,
    addresses: Vec<IpAddr>,
    /// Where the caller is, if that is known and it is the caller who has data connections.
    caller: Option<IpAddr>,
    key: SessionKey,
    slots: SlotPool,
    /// Whether the caller may have a fabric here.
    allows_fabric: bool,
    hello: Hello,
}

impl Answerer {
    fn admit(house: &dyn House, slots: SlotPool, hello: Hello) -> Result<Answerer, SessionError> {
        let missing = || SessionError::Protocol("a hello without what is to be done".into());
        let spec = TransferSpec::try_from(hello.spec.as_ref().ok_or_else(missing)?)?;
        let settings = Settings::from_message(hello.settings.as_ref().ok_or_else(missing)?)?;
        let key: [u8; 32] = hello.session_key.as_slice().try_into().map_err(|_| missing())?;
        let (role, deed, paths) = match &hello.destination {
            Some(path) => (Role::Sink, Deed::Write, vec![path.as_slice()]),
            None => (Role::Source, Deed::Read, hello.sources.iter().map(Vec::as_slice).collect()),
        };
        let protection = (!spec.dry_run).then_some(spec.protection);
        let request = Request { deed, paths, token: &hello.token, protection, spec: Some(&spec), settings };
        let admission = house.admit(request)?;
        let Admission { base, paths, settings, door, addresses, caller } = admission;
        let settings = settings.within_memory(1, spec.slot_bytes)?;
        let asked = hello.sources.iter().map(|path| OsStr::from_bytes(path).into()).collect();
        let caller = caller.filter(|_| !hello.third_party);
        let (door, key, allows_fabric) = (Some(door), SessionKey::new(key), house.allows_fabric());
        Ok(Answerer {
            role,
            spec,
            settings,
            base,
            paths,
            asked,
            door,
            addresses,
            caller,
            key,
            slots,
            allows_fabric,
            hello,
        })
    }

    /// Which end dials first.
    fn first_dialer(&self) -> FirstDialer {
        let caller_role = if self.role == Role::Sink { Role::Source } else { Role::Sink };
        first_dialer(self.spec.dial_from, caller_role)
    }

    fn establish(&mut self, link: &mut Link, abort: &Abort) -> Result<Standing, SessionError> {
        let listens = self.first_dialer() == FirstDialer::Initiator && !self.spec.dry_run;
        let door = self.door.take().filter(|_| listens);
        // Without a port the caller finds nobody listening, says so, and the data takes the pipe.
        let (listener, listening) =
            door.and_then(|door| listen(door, &self.addresses, self.settings.segment_bytes).ok()).unzip();
        let fabric = fabric::choose(self.hello.fabric.as_ref(), self.allows_fabric);
        let mut agreed = fabric::chosen(self.hello.fabric.as_ref(), fabric.as_ref());
        let mut welcome =
            Welcome { software: env!("CARGO_PKG_VERSION").into(), listening, fabric, ..Welcome::default() };
        let ground = Ground::look(&self.settings);
        let lane_count;
        let mut part = match self.role {
            Role::Sink => {
                let path = self.paths.first().ok_or(SessionError::Internal)?;
                let identity =
                    self.hello.transfer.as_ref().map(TransferIdentity::from_message).transpose()?;
                let kept = Keeping::of(&self.settings, identity.as_ref());
                let destination = Destination::look(&self.base, path, &self.settings, kept)?;
                lane_count = self.lane_count(&ground, destination.storage().depth());
                welcome.lanes = lane_count as u32;
                welcome.sink = Some(destination.to_message(self.settings.slot_count(self.spec.slot_bytes)));
                say(link, Control::Welcome(welcome))?;
                let Control::Place(place) = expect(link, &self.slots, Instant::now() + self.settings.stall)?
                else {
                    return Err(SessionError::Protocol("no place".into()));
                };
                // Of a third party the caller says what it may send.
                let asked = self.hello.third_party.then_some(&*self.asked);
                Part::sink(destination, &self.spec, Some(place), asked, None)?
            }
            Role::Source => {
                self.paths = expanded(&self.base, &self.paths)?;
                let file_systems = self.settings.file_systems(&self.base)?;
                let part = Part::source(
                    &self.base,
                    &self.paths,
                    &self.spec,
                    file_systems,
                    self.hello.sink.clone(),
                    None,
                    &self.settings,
                )?;
                lane_count = self.lane_count(&ground, part.depth());
                welcome.lanes = lane_count as u32;
                welcome.place = Some(part.place_message());
                welcome.kept = Kept::ALL.bits();
                welcome.selects = true;
                welcome.knows_links = true;
                welcome.prunes_first = true;
                welcome.maps_owners = true;
                say(link, Control::Welcome(welcome))?;
                part
            }
        };
        let streams = if self.spec.dry_run { Vec::new() } else { self.connect(link, listener, lane_count)? };
        fabric::check_streams(&mut agreed, &streams)?;
        part.open(&self.spec, &mut Wait::new(Some(link), None, abort))?;
        Ok(Standing { part, streams, lane_count, fabric: agreed, ground })
    }

    /// As many lanes as both ends would like, where the storage here would like `depth` requests at a time.
    fn lane_count(&self, ground: &Ground, depth: u32) -> usize {
        let here = lanes::wish(&self.settings, ground.places(), depth, self.spec.slot_bytes);
        lanes::agree(here, self.hello.lanes.unwrap_or(here))
    }

    fn connect(
        &self,
        link: &mut Link,
        listener: Option<Listener>,
        lane_count: usize,
    ) -> Result<Vec<Stream>, SessionError> {
        let is_direct = !self.hello.third_party;
        let keys = session_keys(link, &self.key, &self.spec, lane_count, is_direct)?;
        let to_dial = match self.first_dialer() {
            FirstDialer::Other => self.hello.listening.clone(),
            FirstDialer::Initiator => match connect::serve_or_wait(link, &self.slots, listener, &keys)? {
                Served::Streams(streams) => return Ok(streams),
                Served::Failed(_) => return Ok(Vec::new()),
                Served::DialMe(listening) => Some(listening),
            },
        };
        let streams = StreamCount::new(self.spec.streams, lane_count as u16, self.settings.tunes);
        let host = self.caller.map(|address| address.to_string());
        let dialling =
            connect::dial_only(link, host.as_deref(), to_dial.as_ref(), &keys, streams, &self.settings)?;
        if let Err(problem) = &dialling {
            connect::tell_failure(link, problem)?;
        }
        Ok(dialling.unwrap_or_default())
    }
}
