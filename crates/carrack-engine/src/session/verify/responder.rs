//! The responder: it asks the access policy, and answers questions in their order. Both ends limit the number
//! of open questions.

use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_transport::SessionControlLink;
use carrack_wire::message::{ControlMessage, KeepaliveMessage, VerifyOpenMessage};

use super::message::{answer_to_message, to_question};
use super::polling::{HEARTBEAT, flush, try_receive_message, wait_for_readiness};
use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::examine::{ExamineRoot, ExamineThreadSettings, ExaminerThreads, QUESTIONS_MAX};
use crate::session::access_policy::{AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights};
use crate::settings::EndSettings;

/// The time that an initiator may ask nothing, if the access policy sets no other.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Serves one initiator to the end. Errors have not been sent to the initiator yet.
pub(in crate::session) fn serve_verification(
    link: &mut SessionControlLink,
    access_policy: &dyn AccessPolicy,
    slots: &SlotPool,
    abort: &AbortHandle,
    wanted: &VerifyOpenMessage,
) -> Result<(), SessionError> {
    let admission = access_policy.admit(AccessRequest {
        deed: AccessKind::Verify,
        paths: vec![&wanted.path],
        token: &wanted.token,
        protection: None,
        spec: None,
        settings: EndSettings { io_threads: wanted.threads as usize, ..EndSettings::default() },
    })?;
    let bench = start_examiner_threads(&admission, wanted)?;
    let patience = admission.settings.idle.unwrap_or(PATIENCE);
    VerifyResponder { link, slots, bench, abort, patience, is_over: false }.run()
}

/// Creates a bench with as many threads as its memory has slots.
fn start_examiner_threads(
    admission: &AdmittedCallerRights,
    wanted: &VerifyOpenMessage,
) -> Result<ExaminerThreads, SessionError> {
    let path = admission.paths.first().ok_or(SessionError::Internal)?;
    let top = ExamineRoot::open(&admission.base, path, wanted.is_destination);
    let settings = &admission.settings;
    let slots = (settings.pool_bytes / crate::examine::WHOLE_BYTES_MAX).max(1);
    let threads = settings.io_threads.min(usize::try_from(slots).unwrap_or(usize::MAX));
    let manners =
        ExamineThreadSettings { threads, past_cache: wanted.past_cache, rate: settings.scheduling.rate };
    ExaminerThreads::new(top, manners)
}

struct VerifyResponder<'a> {
    link: &'a mut SessionControlLink,
    slots: &'a SlotPool,
    bench: ExaminerThreads,
    abort: &'a AbortHandle,
    patience: Duration,
    /// The initiator has ended the session.
    is_over: bool,
}

impl VerifyResponder<'_> {
    fn run(mut self) -> Result<(), SessionError> {
        let mut last_said = Instant::now();
        let mut last_heard = Instant::now();
        loop {
            self.bench.reset_wakeups();
            if self.abort.is_set() {
                return Err(SessionError::Interrupted);
            }
            while let Some(answer) = self.bench.take_answer()? {
                self.link.queue_control(answer_to_message(answer).to_body());
                last_said = Instant::now();
            }
            if last_said.elapsed() >= HEARTBEAT && self.link.queued_count() == 0 {
                self.link.queue_control(ControlMessage::Heartbeat(KeepaliveMessage {}).to_body());
                last_said = Instant::now();
            }
            let is_flushed = flush(self.link)?;
            if self.handle_messages()? || self.bench.open_count() > 0 {
                last_heard = Instant::now();
            }
            if self.is_over && self.bench.open_count() == 0 && is_flushed {
                return Ok(());
            }
            if last_heard.elapsed() > self.patience {
                return Err(SessionError::PeerStalled(self.patience.as_secs()));
            }
            let others = [self.bench.readiness(), self.abort.readiness()];
            wait_for_readiness(self.link, is_flushed, &others, Instant::now() + HEARTBEAT)?;
        }
    }

    /// Handles all messages that have arrived. Returns true if there were any.
    fn handle_messages(&mut self) -> Result<bool, SessionError> {
        let mut has_heard = false;
        while let Some(message) = try_receive_message(self.link, self.slots)? {
            has_heard = true;
            match message {
                ControlMessage::VerifyEnd(_) => self.is_over = true,
                _ if self.is_over => return Err(SessionError::Protocol("a question after the end".into())),
                message => self.queue_question(message)?,
            }
        }
        Ok(has_heard)
    }

    fn queue_question(&mut self, message: ControlMessage) -> Result<(), SessionError> {
        if self.bench.open_count() + self.link.queued_count() >= 2 * QUESTIONS_MAX {
            return Err(SessionError::Protocol("more questions at a time than are allowed".into()));
        }
        self.bench.queue_question(to_question(message)?);
        Ok(())
    }
}
