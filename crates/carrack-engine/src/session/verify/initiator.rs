//! The initiator, which the user started: it sends questions to a far end, and checks the answers.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_transport::SessionControlLink;
use carrack_wire::message::{ControlMessage, VerifyDoneMessage, VerifyOpenMessage};

use super::message::{question_to_message, to_answer};
use super::polling::{flush, try_receive_message, wait_for_readiness};
use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::examine::{ComparisonAnswer, ExamineQuestion, ExamineThreadSettings};
use crate::session::handshake::{
    ANSWER_TIMEOUT, await_peer_reason, control_only_pool, greet_responder, send_message,
};
use crate::settings::PeerChannel;

/// The slot size of a session with control messages only.
const SLOT_BYTES: u32 = carrack_model::limits::SLOT_BYTES_MIN as u32;

/// The silence after which the other end counts as dead: a working end sends heartbeats at least three times
/// as often.
const PATIENCE: Duration = Duration::from_millis(carrack_model::limits::STALL_MS_DEFAULT as u64);

/// The time that the other end may take to close its side.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A far end that answers questions.
pub(crate) struct FarExaminer {
    link: SessionControlLink,
    slots: SlotPool,
    abort: AbortHandle,
    /// Questions without an answer.
    asked: VecDeque<ExamineQuestion>,
}

impl FarExaminer {
    /// Begins the session.
    pub(crate) fn connect(
        peer: PeerChannel,
        path: &Path,
        is_destination: bool,
        manners: ExamineThreadSettings,
        abort: &AbortHandle,
    ) -> Result<FarExaminer, SessionError> {
        let mut link = SessionControlLink::new(peer.channel, SLOT_BYTES)
            .map_err(SessionError::local("setting up the control channel"))?;
        let readiness = abort.readiness_owned().map_err(SessionError::local("watching for signals"))?;
        link.interrupt_on(Some(readiness));
        let slots = control_only_pool()?;
        let wanted = VerifyOpenMessage {
            software: env!("CARGO_PKG_VERSION").into(),
            path: path.as_os_str().as_bytes().to_vec(),
            token: peer.token,
            past_cache: manners.past_cache,
            is_destination,
            threads: u32::try_from(manners.threads).unwrap_or(0),
        };
        let greeted = greet_responder(&mut link, peer.programs.as_deref(), ANSWER_TIMEOUT, &mut |link| {
            send_message(link, ControlMessage::Verify(wanted.clone()))
        });
        match greeted {
            Ok(()) => Ok(FarExaminer { link, slots, abort: abort.clone(), asked: VecDeque::new() }),
            Err(_) if abort.is_set() => Err(SessionError::Interrupted),
            Err(error) => Err(await_peer_reason(&mut link, &slots, error)),
        }
    }

    /// Sends a question, at the latest when [`FarExaminer::receive_answer`] waits.
    pub(crate) fn send_question(&mut self, question: ExamineQuestion) -> Result<(), SessionError> {
        self.link.queue_control(question_to_message(&question).to_body());
        self.asked.push_back(question);
        flush(&mut self.link).map(drop).map_err(|error| self.await_peer_reason(error))
    }

    /// Returns the answer to the oldest question.
    pub(crate) fn receive_answer(&mut self) -> Result<ComparisonAnswer, SessionError> {
        let question = self.asked.pop_front().ok_or(SessionError::Internal)?;
        let message = self.next().map_err(|error| self.await_peer_reason(error))?;
        to_answer(message, &question)
    }

    /// Ends the session after the last answer.
    pub(crate) fn end(mut self) -> Result<(), SessionError> {
        send_message(&mut self.link, ControlMessage::VerifyEnd(VerifyDoneMessage {}))?;
        // Closing before the other end has read the message could lose it. An end that does not close in time
        // changes nothing.
        let deadline = Instant::now() + LAST_WORDS;
        while let Ok(Some(_)) = self.link.receive_control_by(&self.slots, deadline) {}
        Ok(())
    }

    fn next(&mut self) -> Result<ControlMessage, SessionError> {
        let mut last_heard = Instant::now();
        loop {
            if self.abort.is_set() {
                return Err(SessionError::Interrupted);
            }
            let is_flushed = flush(&mut self.link)?;
            match try_receive_message(&mut self.link, &self.slots)? {
                Some(ControlMessage::Heartbeat(_)) => last_heard = Instant::now(),
                Some(message) => return Ok(message),
                None if last_heard.elapsed() > PATIENCE => {
                    return Err(SessionError::PeerStalled(PATIENCE.as_secs()));
                }
                None => wait_for_readiness(
                    &self.link,
                    is_flushed,
                    &[self.abort.readiness()],
                    last_heard + PATIENCE,
                )?,
            }
        }
    }

    fn await_peer_reason(&mut self, error: SessionError) -> SessionError {
        if self.abort.is_set() {
            return SessionError::Interrupted;
        }
        await_peer_reason(&mut self.link, &self.slots, error)
    }
}
