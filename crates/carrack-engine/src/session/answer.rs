//! The end that was called: it welcomes the caller, or says why not.

use std::ffi::OsStr;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::TransferSpec;
use carrack_storage::Base;
use carrack_transport::{Link, Listener, StreamCount};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Hello, Welcome};

use super::connect::{self, FirstDialer, Served, first_dialer, listen};
use super::destination::Destination;
use super::handshake::{ANSWER_TIMEOUT, expect, explained, receive_preamble, say, send_preamble};
use super::{Ended, Part, Standing, Terms, lanes, no_slots, refuse};
use crate::abort::Abort;
use crate::error::SessionError;
use crate::ground::Ground;
use crate::settings::{Role, Settings};

pub(super) fn run(input: OwnedFd, output: OwnedFd, abort: &Abort) -> Result<Ended, SessionError> {
    let slot_bytes = TransferSpec::default().slot_bytes;
    let mut link = Link::new(input, output, slot_bytes)
        .map_err(SessionError::local("setting up the control channel"))?;
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    send_preamble(&mut link)?;
    receive_preamble(&mut link, false)?;
    let answered = Answerer::greet(&mut link).and_then(|answerer| {
        let stand = answerer.establish(&mut link);
        Ok((stand.map_err(|error| explained(&mut link, &answerer.slots, error))?, answerer))
    });
    link.interrupt_on(None);
    match answered {
        Ok((stand, answerer)) => {
            link.set_slot_bytes(answerer.spec.slot_bytes);
            let terms =
                Terms { spec: answerer.spec.clone(), settings: &answerer.settings, observer: None, abort };
            stand.run(link, &terms)
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
    slots: SlotPool,
    hello: Hello,
}

impl Answerer {
    fn greet(link: &mut Link) -> Result<Answerer, SessionError> {
        let slots = no_slots()?;
        let Control::Hello(hello) = expect(link, &slots, Instant::now() + ANSWER_TIMEOUT)? else {
            return Err(SessionError::Protocol("no hello".into()));
        };
        let missing = || SessionError::Protocol("a hello without what is to be done".into());
        let spec = TransferSpec::try_from(hello.spec.as_ref().ok_or_else(missing)?)?;
        let settings = Settings::from_message(hello.settings.as_ref().ok_or_else(missing)?)?;
        settings.check_pool()?;
        let key: [u8; 32] = hello.session_key.as_slice().try_into().map_err(|_| missing())?;
        Ok(Answerer { slots, key: SessionKey::new(key), spec, settings, hello })
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
        let listen = || listen(&self.settings, &self.key, &ours.server).ok();
        let (listener, listening) = listens.then(listen).flatten().unzip();
        let mut welcome =
            Welcome { software: env!("CARGO_PKG_VERSION").into(), listening, ..Welcome::default() };
        let ground = Ground::look(&self.settings);
        let lane_count;
        let part = match &self.hello.destination {
            Some(path) => {
                let destination = Destination::look(&Base::Anywhere, &remote_path(path), &self.settings)?;
                lane_count = self.lane_count(&ground, destination.storage().depth());
                welcome.lanes = lane_count as u32;
                welcome.sink = Some(destination.to_message(self.settings.slot_count(self.spec.slot_bytes)));
                say(link, Control::Welcome(welcome))?;
                let Control::Place(place) = expect(link, &self.slots, Instant::now() + ANSWER_TIMEOUT)?
                else {
                    return Err(SessionError::Protocol("no place".into()));
                };
                Part::sink(&destination, Some(place), &self.spec, None)?
            }
            None => {
                let sources: Vec<PathBuf> = self.hello.sources.iter().map(|path| remote_path(path)).collect();
                let file_systems = self.settings.file_systems(&Base::Anywhere)?;
                let part = Part::source(
                    &Base::Anywhere,
                    &sources,
                    &self.spec,
                    file_systems,
                    self.hello.sink.clone(),
                    None,
                )?;
                lane_count = self.lane_count(&ground, part.depth());
                welcome.lanes = lane_count as u32;
                welcome.place = Some(part.place_message());
                say(link, Control::Welcome(welcome))?;
                part
            }
        };
        let streams =
            if self.spec.dry_run { Vec::new() } else { self.connect(link, listener, &ours, lane_count)? };
        Ok(Standing { part, streams, lane_count, ground })
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
        ours: &SshAddresses,
        lane_count: usize,
    ) -> Result<Vec<TcpStream>, SessionError> {
        let caller_role = if self.role() == Role::Sink { Role::Source } else { Role::Sink };
        let to_dial = match first_dialer(self.spec.dial_from, caller_role) {
            FirstDialer::Other => self.hello.listening.clone(),
            FirstDialer::Initiator => match connect::serve_or_wait(link, &self.slots, listener)? {
                Served::Streams(streams) => return Ok(streams),
                Served::Failed(_) => return Ok(Vec::new()),
                Served::DialMe(listening) => Some(listening),
            },
        };
        let host = ours.client.as_deref();
        let streams = StreamCount::new(self.spec.streams, lane_count as u16);
        let dialling = connect::dial_only(link, host, to_dial.as_ref(), &self.key, streams)?;
        if let Err(problem) = &dialling {
            connect::tell_failure(link, problem)?;
        }
        Ok(dialling.unwrap_or_default())
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
