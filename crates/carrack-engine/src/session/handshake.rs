//! The messages of the handshake, with their deadlines.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::AgreedTransferSpec;
use carrack_model::limits::CONTROL_BODY_BYTES_MAX;
use carrack_transport::seal::SessionKeys;
use carrack_transport::{SessionControlLink, TlsHandshakeError, TransportError, random};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{ControlMessage, HelloMessage};
use carrack_wire::{PREAMBLE_BYTES, Preamble, agreed_terms};

use crate::error::{RetryChance, SessionError};
use crate::settings::{EndSettings, FarProgramSource};

/// Replies within the handshake take a round trip and a look at the storage.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that ssh may take to start the other end at a terminal: people type passwords and look for their
/// tokens meanwhile.
const ASKING_TIMEOUT: Duration = Duration::from_secs(300);

/// The time that an initiator over ssh may take for its first message.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The time in which an end with a broken connection looks for the other end's reason, which has arrived by
/// then.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The time that a refusing end waits for the other to read the refusal.
const PARTING: Duration = Duration::from_secs(1);

/// Bytes that a login shell may print before carrack does.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// Bytes of a program that must be taken within the time of a stall.
const PROGRAM_PART_BYTES: usize = 64 << 10;

/// The throughput that a path to a far host has at least, for the wait after a program was sent.
const SLOWEST_BYTES_PER_S: u64 = 8 << 10;

/// Bytes of an unexpected text that are shown.
const SHOWN_BYTES: usize = 200;

/// Sends a message now.
pub(super) fn send_message(
    link: &mut SessionControlLink,
    message: ControlMessage,
) -> Result<(), SessionError> {
    send_message_within(link, message, ANSWER_TIMEOUT)
}

/// Refuses a list of names, or patterns, that do not fit into their message.
pub(super) fn check_list_fits(settings: &EndSettings, hello: &HelloMessage) -> Result<(), SessionError> {
    if hello.byte_count() <= CONTROL_BODY_BYTES_MAX {
        return Ok(());
    }
    let kib = CONTROL_BODY_BYTES_MAX >> 10;
    let (what, hint) = if settings.selection.names.is_some() {
        ("the list of names is", "run the command at the source, name directories, or use --filter-from")
    } else {
        ("the patterns are", "give fewer of them, with wildcards")
    };
    let message = format!("{what} too long to travel to the other end: more than {kib} KiB");
    Err(SessionError::refused(message, hint))
}

/// Sends a message, which the other end must read within `patience`.
pub(super) fn send_message_within(
    link: &mut SessionControlLink,
    message: ControlMessage,
    patience: Duration,
) -> Result<(), SessionError> {
    link.queue_control(message.to_body());
    let sent = link.flush_by(Instant::now() + patience);
    sent.map_err(|error| channel_error(&error, SessionError::PeerGone, patience))
}

/// Returns the error for a failure of the control channel after a wait of `waited` at most.
fn channel_error(error: &io::Error, otherwise: SessionError, waited: Duration) -> SessionError {
    match (error.kind(), TlsHandshakeError::from_io_error(error)) {
        (_, Some(distrust)) => SessionError::Tls(distrust),
        (ErrorKind::Interrupted, _) => SessionError::Interrupted,
        (ErrorKind::TimedOut, _) => SessionError::PeerStalled(waited.as_secs()),
        _ => otherwise,
    }
}

/// Returns the next message. The other end's refusal is an error.
pub(super) fn receive_message(
    link: &mut SessionControlLink,
    pool: &SlotPool,
    deadline: Instant,
) -> Result<ControlMessage, SessionError> {
    let began = Instant::now();
    let body = match link.receive_control_by(pool, deadline) {
        Ok(Some(body)) => body,
        Ok(None) => return Err(SessionError::PeerGone),
        Err(TransportError::Io(error)) => {
            return Err(channel_error(&error, SessionError::PeerGone, began.elapsed()));
        }
        Err(TransportError::Truncated) => return Err(SessionError::PeerGone),
        Err(error) => return Err(error.into()),
    };
    match ControlMessage::from_body(&body)? {
        ControlMessage::Refuse(message) => Err(SessionError::from_refusal(message)),
        ControlMessage::Abort(message) => Err(SessionError::from_abort(message)),
        message => Ok(message),
    }
}

/// Returns the other end's reason in place of a broken connection, if it was sent: a break is mostly the
/// consequence of an earlier message.
pub(super) fn await_peer_reason(
    link: &mut SessionControlLink,
    pool: &SlotPool,
    error: SessionError,
) -> SessionError {
    if !matches!(error, SessionError::PeerGone) {
        return error;
    }
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        match receive_message(link, pool, deadline) {
            Ok(_) => {}
            Err(
                told @ (SessionError::Refused { .. }
                | SessionError::Later { .. }
                | SessionError::PeerAborted { .. }
                | SessionError::PeerLeft { .. }
                | SessionError::Interrupted),
            ) => return told,
            Err(_) => return error,
        }
    }
}

/// Sends this build's versions.
pub(super) fn send_preamble(link: &mut SessionControlLink) -> Result<(), SessionError> {
    link.write_raw_by(&Preamble::OURS.encode(), Instant::now() + ANSWER_TIMEOUT)
        .map_err(|error| channel_error(&error, SessionError::PeerSilent, ANSWER_TIMEOUT))
}

/// The end whose first message is expected.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstMessageSender {
    /// The responder, which may be silent for this time; a login shell may print text before.
    OfResponder(Duration),
    /// The initiator.
    OfInitiator,
}

impl FirstMessageSender {
    /// A daemon with TLS is running already; ssh may ask the user first.
    fn preamble_timeout(self, link: &SessionControlLink) -> Duration {
        match self {
            FirstMessageSender::OfResponder(stall) if !link.is_tls() && has_terminal() => {
                stall.max(ASKING_TIMEOUT)
            }
            FirstMessageSender::OfResponder(stall) => stall,
            FirstMessageSender::OfInitiator => START_TIMEOUT,
        }
    }
}

/// Returns true if ssh can ask the user: it does so at the process's terminal, even if its standard input is
/// redirected.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns the error of an end that was started and sends nothing.
fn silent_start_error(waited: Duration) -> SessionError {
    SessionError::Unreachable {
        message: format!("the other end was started and has said nothing for {} s", waited.as_secs()),
        hint: Some("try `ssh HOST carrack --version`; --stall-timeout waits longer".into()),
        again: RetryChance::OnceMet,
    }
}

/// Returns the error of an end that sends no versions within `patience`.
fn missing_preamble_error(error: &io::Error, is_started_here: bool, patience: Duration) -> SessionError {
    match error.kind() {
        ErrorKind::TimedOut if is_started_here => silent_start_error(patience),
        _ => channel_error(error, SessionError::PeerSilent, patience),
    }
}

/// Reads the other end's versions.
pub(super) fn receive_preamble(
    link: &mut SessionControlLink,
    first: FirstMessageSender,
) -> Result<(), SessionError> {
    receive_answer(link, first, false).map(drop)
}

/// Sends the versions and what `send_first` sends, and reads the responder's versions. A far shell that waits
/// for a program gets it from `programs`, and then the same again.
pub(super) fn greet_responder(
    link: &mut SessionControlLink,
    programs: Option<&dyn FarProgramSource>,
    stall: Duration,
    send_first: &mut dyn FnMut(&mut SessionControlLink) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    // A process that is not carrack may still have printed a reason.
    let said = send_preamble(link).and_then(|()| send_first(link));
    if start_responder(link, programs, stall)? {
        return send_preamble(link).and_then(|()| send_first(link));
    }
    said
}

/// Reads the responder's versions. Returns true if it is a program that was sent: all earlier messages are
/// lost.
pub(super) fn start_responder(
    link: &mut SessionControlLink,
    programs: Option<&dyn FarProgramSource>,
    stall: Duration,
) -> Result<bool, SessionError> {
    let first = FirstMessageSender::OfResponder(stall);
    let (Some(programs), Some(line)) = (programs, receive_answer(link, first, programs.is_some())?) else {
        return Ok(false);
    };
    let program = programs.program_for(&line)?;
    for part in program.chunks(PROGRAM_PART_BYTES) {
        link.write_raw_by(part, Instant::now() + stall)
            .map_err(|error| channel_error(&error, SessionError::PeerSilent, stall))?;
    }
    // The tools of the far shell may read further than the program's end. What was written may still be on
    // its way.
    let on_its_way = Duration::from_secs(program.len() as u64 / SLOWEST_BYTES_PER_S);
    receive_preamble(link, FirstMessageSender::OfResponder(stall + on_its_way))?;
    Ok(true)
}

/// Reads up to the other end's versions, or up to the line of a far shell that waits for a program, which is
/// returned. If one `may_wait`, it does so too where the installed carrack has other versions.
fn receive_answer(
    link: &mut SessionControlLink,
    first: FirstMessageSender,
    may_wait: bool,
) -> Result<Option<Vec<u8>>, SessionError> {
    let greeting_allowed = matches!(first, FirstMessageSender::OfResponder(_));
    let patience = first.preamble_timeout(link);
    let deadline = Instant::now() + patience;
    let is_started_here = greeting_allowed && !link.is_tls();
    let mut heard = vec![0; PREAMBLE_BYTES];
    let got = link.read_raw_by(&mut heard, deadline);
    let got = got.map_err(|error| missing_preamble_error(&error, is_started_here, patience))?;
    assert!(got <= heard.len(), "a read returns no more than its buffer holds");
    heard.truncate(got);
    if got == 0 {
        return Err(SessionError::PeerSilent);
    }
    let mut mismatch = None;
    loop {
        if let Some(bytes) = heard.last_chunk::<PREAMBLE_BYTES>()
            && let Ok(preamble) = Preamble::decode(bytes)
        {
            match preamble.negotiate_version() {
                Ok(_) => return Ok(None),
                Err(error) if may_wait => mismatch = Some(SessionError::Version(error)),
                Err(error) => return Err(SessionError::Version(error)),
            }
        }
        if let Some(line) = Preamble::waiting_shell_line(&heard).filter(|_| may_wait) {
            return Ok(Some(line.to_vec()));
        }
        let mut byte = [0];
        let more = greeting_allowed && heard.len() < GREETING_BYTES_MAX;
        let got = if more { link.read_raw_by(&mut byte, deadline) } else { Ok(0) };
        if matches!(got, Ok(1)) {
            heard.push(byte[0]);
            continue;
        }
        return Err(mismatch.unwrap_or_else(|| match got {
            Err(error) => missing_preamble_error(&error, is_started_here, patience),
            Ok(_) => {
                heard.truncate(SHOWN_BYTES);
                SessionError::NotCarrack(carrack_model::escape(heard.trim_ascii()))
            }
        }));
    }
}

/// Derives the keys of the data connections. The agreed specification is an input: an end with another
/// specification gets keys that match no others. `is_direct`: the ends share one control channel, whose
/// secret is an input too.
pub(super) fn session_keys(
    link: &SessionControlLink,
    key: &SessionKey,
    spec: &AgreedTransferSpec,
    lane_count: usize,
    is_direct: bool,
) -> Result<SessionKeys, SessionError> {
    let exporter = if is_direct { link.exporter() } else { Ok(None) };
    let exporter = exporter.map_err(|error| SessionError::Protocol(error.to_string()))?;
    let terms = agreed_terms(spec, lane_count as u32);
    Ok(SessionKeys::derive(key, exporter.as_ref(), &terms))
}

/// A pool for the time before the session, when only control messages may arrive.
pub(super) fn control_only_pool() -> Result<SlotPool, SessionError> {
    Ok(SlotPool::new(4096, 4096)?)
}

pub(super) fn new_key() -> Result<SessionKey, SessionError> {
    random().map(SessionKey::new).map_err(SessionError::local("getting random bytes"))
}

/// Tells the other end that there will be no session.
pub(super) fn refuse(link: &mut SessionControlLink, error: &SessionError) {
    // The other end may be gone.
    if send_message_within(link, ControlMessage::Refuse(error.to_message()), PARTING).is_ok() {
        link.close_by(Instant::now() + PARTING);
    }
}
