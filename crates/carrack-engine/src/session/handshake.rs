//! The first words of a session, one after the other, with deadlines.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::TransferSpec;
use carrack_model::limits::CONTROL_BODY_BYTES_MAX;
use carrack_transport::seal::SessionKeys;
use carrack_transport::{Link, TlsError, TransportError, random};
use carrack_wire::auth::SessionKey;
use carrack_wire::message::{Control, Hello};
use carrack_wire::{PREAMBLE_BYTES, Preamble, agreed_terms};

use crate::error::{Again, SessionError};
use crate::settings::Settings;

/// Answers within the handshake take a round trip and a look at the storage.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long ssh may take to start the other end where it can ask somebody: people type passwords and look for their tokens meanwhile.
const ASKING_TIMEOUT: Duration = Duration::from_secs(300);

/// How long a caller over ssh may take for its first word.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// How long an end that found the connection broken looks for the other end's reason, which is there already.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long an end that refuses waits for the other to hear that.
const PARTING: Duration = Duration::from_secs(1);

/// What a login shell may print before carrack does.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// How much of an unexpected text is shown.
const SHOWN_BYTES: usize = 200;

/// Sends a message now.
pub(super) fn say(link: &mut Link, message: Control) -> Result<(), SessionError> {
    say_within(link, message, ANSWER_TIMEOUT)
}

/// Refuses a list of names that does not fit into the message which it would travel in.
pub(super) fn check_list_fits(settings: &Settings, hello: &Hello) -> Result<(), SessionError> {
    if settings.selection.names.is_none() || hello.byte_count() <= CONTROL_BODY_BYTES_MAX {
        return Ok(());
    }
    let kib = CONTROL_BODY_BYTES_MAX >> 10;
    Err(SessionError::refused(
        format!("the list of names is too long to travel to the source: more than {kib} KiB"),
        "run the command at the source, name directories, or use --filter-from",
    ))
}

/// Sends a message, which the other end has to take within `patience`.
pub(super) fn say_within(link: &mut Link, message: Control, patience: Duration) -> Result<(), SessionError> {
    link.queue_control(message.to_body());
    let sent = link.flush_by(Instant::now() + patience);
    sent.map_err(|error| broken(&error, SessionError::PeerGone, patience))
}

/// What a failure of the control channel means after `waited` at most.
fn broken(error: &io::Error, otherwise: SessionError, waited: Duration) -> SessionError {
    match (error.kind(), TlsError::in_io(error)) {
        (_, Some(distrust)) => SessionError::Tls(distrust),
        (ErrorKind::Interrupted, _) => SessionError::Interrupted,
        (ErrorKind::TimedOut, _) => SessionError::PeerStalled(waited.as_secs()),
        _ => otherwise,
    }
}

/// The next message; the other end's refusal is an error.
pub(super) fn expect(link: &mut Link, pool: &SlotPool, deadline: Instant) -> Result<Control, SessionError> {
    let began = Instant::now();
    let body = match link.receive_control_by(pool, deadline) {
        Ok(Some(body)) => body,
        Ok(None) => return Err(SessionError::PeerGone),
        Err(TransportError::Io(error)) => {
            return Err(broken(&error, SessionError::PeerGone, began.elapsed()));
        }
        Err(TransportError::Truncated) => return Err(SessionError::PeerGone),
        Err(error) => return Err(error.into()),
    };
    match Control::from_body(&body)? {
        Control::Refuse(message) => Err(SessionError::from_refusal(message)),
        Control::Abort(message) => Err(SessionError::from_abort(message)),
        message => Ok(message),
    }
}

/// A connection that breaks is mostly the consequence of something that the other end has said before.
pub(super) fn explained(link: &mut Link, pool: &SlotPool, error: SessionError) -> SessionError {
    if !matches!(error, SessionError::PeerGone) {
        return error;
    }
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        match expect(link, pool, deadline) {
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
pub(super) fn send_preamble(link: &mut Link) -> Result<(), SessionError> {
    link.write_raw_by(&Preamble::OURS.encode(), Instant::now() + ANSWER_TIMEOUT)
        .map_err(|error| broken(&error, SessionError::PeerSilent, ANSWER_TIMEOUT))
}

/// Whose first word is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstWord {
    /// Of the end that was called, which may be silent for so long; a login shell may print something before.
    OfResponder(Duration),
    /// Of the end that calls.
    OfInitiator,
}

impl FirstWord {
    /// A daemon that speaks TLS is there; ssh may have to ask somebody first.
    fn patience(self, link: &Link) -> Duration {
        match self {
            FirstWord::OfResponder(stall) if !link.is_tls() && has_terminal() => stall.max(ASKING_TIMEOUT),
            FirstWord::OfResponder(stall) => stall,
            FirstWord::OfInitiator => START_TIMEOUT,
        }
    }
}

/// Whether ssh can ask somebody: it does so at the terminal of the process, wherever its standard input leads to.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// What an end that was started and says nothing comes to.
fn mute(waited: Duration) -> SessionError {
    SessionError::Unreachable {
        message: format!("the other end was started and has said nothing for {} s", waited.as_secs()),
        hint: Some("try `ssh HOST carrack --version`; --stall-timeout waits longer".into()),
        again: Again::OnceMet,
    }
}

/// Reads the other end's versions.
pub(super) fn receive_preamble(link: &mut Link, first: FirstWord) -> Result<(), SessionError> {
    let greeting_allowed = matches!(first, FirstWord::OfResponder(_));
    let patience = first.patience(link);
    let deadline = Instant::now() + patience;
    let is_started_here = greeting_allowed && !link.is_tls();
    let silent = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut if is_started_here => mute(patience),
        _ => broken(&error, SessionError::PeerSilent, patience),
    };
    let mut heard = vec![0; PREAMBLE_BYTES];
    let got = link.read_raw_by(&mut heard, deadline).map_err(silent)?;
    heard.truncate(got);
    if got == 0 {
        return Err(SessionError::PeerSilent);
    }
    loop {
        if let Some(bytes) = heard.last_chunk::<PREAMBLE_BYTES>()
            && let Ok(preamble) = Preamble::decode(bytes)
        {
            return preamble.agree().map(|_| ()).map_err(SessionError::Version);
        }
        let mut byte = [0];
        let more = greeting_allowed && heard.len() < GREETING_BYTES_MAX;
        if !more || link.read_raw_by(&mut byte, deadline).map_err(silent)? == 0 {
            heard.truncate(SHOWN_BYTES);
            return Err(SessionError::NotCarrack(carrack_model::escape(heard.trim_ascii())));
        }
        heard.push(byte[0]);
    }
}

/// What the data connections are protected by. What the ends agreed on goes in: an end that was told something else gets
/// keys that fit nowhere. `is_direct`: the ends share one control channel, whose secret goes in too.
pub(super) fn session_keys(
    link: &Link,
    key: &SessionKey,
    spec: &TransferSpec,
    lane_count: usize,
    is_direct: bool,
) -> Result<SessionKeys, SessionError> {
    let exporter = if is_direct { link.exporter() } else { Ok(None) };
    let exporter = exporter.map_err(|error| SessionError::Protocol(error.to_string()))?;
    let terms = agreed_terms(spec, lane_count as u32);
    Ok(SessionKeys::derive(key, exporter.as_ref(), &terms))
}

/// For the time before the session, when nothing but control messages may come.
pub(super) fn no_slots() -> Result<SlotPool, SessionError> {
    Ok(SlotPool::new(4096, 4096)?)
}

pub(super) fn new_key() -> Result<SessionKey, SessionError> {
    random().map(SessionKey::new).map_err(SessionError::local("getting random bytes"))
}

/// Tells the other end that there will be no session.
pub(super) fn refuse(link: &mut Link, error: &SessionError) {
    // The other end may be gone; then nobody is left to be told.
    if say_within(link, Control::Refuse(error.to_message()), PARTING).is_ok() {
        link.part(Instant::now() + PARTING);
    }
}
