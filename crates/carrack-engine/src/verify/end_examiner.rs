//! One end of a comparison, on this host or far.

use std::path::Path;
use std::time::{Duration, Instant};

use carrack_storage::PathBase;
use rustix::event::{PollFd, PollFlags};

use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::examine::{
    ComparisonAnswer, ExamineQuestion, ExamineRoot, ExamineThreadSettings, ExaminedEntryFacts,
    ExaminerThreads, WalkStep,
};
use crate::role::SessionRole;
use crate::session::verify::{FarExaminer, wait};
use crate::settings::PeerChannel;

/// The longest sleep of a waiting caller.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The options of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyEndSettings {
    /// True for the destination: a link that leads to a directory is followed.
    pub is_destination: bool,
    /// True to read files past the page cache, if the file system supports it: findings are about the storage
    /// then.
    pub past_cache: bool,
    /// Threads that read; 0 to choose.
    pub threads: usize,
}

/// One end of a comparison.
pub struct VerifyEndExaminer {
    end: ExaminerLocation,
    role: SessionRole,
}

enum ExaminerLocation {
    Here(ExaminerThreads, AbortHandle),
    Far(Box<FarExaminer>),
}

impl VerifyEndExaminer {
    /// Opens a path of this host.
    ///
    /// # Errors
    /// Fails if threads or memory are not available. A path without an entry is an answer.
    pub fn open_local(
        path: &Path,
        how: VerifyEndSettings,
        abort: &AbortHandle,
    ) -> Result<VerifyEndExaminer, SessionError> {
        let top = ExamineRoot::open(&PathBase::Anywhere, path, how.is_destination);
        Ok(VerifyEndExaminer {
            end: ExaminerLocation::Here(ExaminerThreads::new(top, how.thread_settings())?, abort.clone()),
            role: how.role(),
        })
    }

    /// Opens a path at the host of `peer`, which runs [`crate::serve`].
    ///
    /// # Errors
    /// Fails if the other end does not answer. A refusal comes with the first answer.
    pub fn open_remote(
        peer: PeerChannel,
        path: &Path,
        how: VerifyEndSettings,
        abort: &AbortHandle,
    ) -> Result<VerifyEndExaminer, SessionError> {
        let far = FarExaminer::connect(peer, path, how.is_destination, how.thread_settings(), abort)
            .map_err(|error| add_role(how.role(), error))?;
        Ok(VerifyEndExaminer { end: ExaminerLocation::Far(Box::new(far)), role: how.role() })
    }

    /// Ends the session after the last answer.
    ///
    /// # Errors
    /// Fails if the other end is gone; its earlier answers are valid.
    pub fn end(self) -> Result<(), SessionError> {
        match self.end {
            ExaminerLocation::Here(..) => Ok(()),
            ExaminerLocation::Far(far) => far.end().map_err(|error| add_role(self.role, error)),
        }
    }

    pub(super) fn send_question(&mut self, question: ExamineQuestion) -> Result<(), SessionError> {
        match &mut self.end {
            ExaminerLocation::Here(bench, _) => {
                bench.queue_question(question);
                Ok(())
            }
            ExaminerLocation::Far(far) => {
                far.send_question(question).map_err(|error| add_role(self.role, error))
            }
        }
    }

    pub(super) fn receive_walk_step(&mut self) -> Result<WalkStep, SessionError> {
        match self.receive_answer()? {
            ComparisonAnswer::Walked(walked) => Ok(walked),
            _ => Err(SessionError::Internal),
        }
    }

    pub(super) fn receive_entry_facts(&mut self) -> Result<Vec<ExaminedEntryFacts>, SessionError> {
        match self.receive_answer()? {
            ComparisonAnswer::Seen(sights) => Ok(sights),
            _ => Err(SessionError::Internal),
        }
    }

    pub(super) fn receive_piece_digests(&mut self) -> Result<Result<Vec<[u8; 32]>, String>, SessionError> {
        match self.receive_answer()? {
            ComparisonAnswer::Pieces(values) => Ok(values),
            _ => Err(SessionError::Internal),
        }
    }

    /// Returns the answer to the oldest question.
    fn receive_answer(&mut self) -> Result<ComparisonAnswer, SessionError> {
        let (bench, abort) = match &mut self.end {
            ExaminerLocation::Far(far) => {
                return far.receive_answer().map_err(|error| add_role(self.role, error));
            }
            ExaminerLocation::Here(bench, abort) => (bench, abort),
        };
        loop {
            bench.reset_wakeups();
            if abort.is_set() {
                return Err(SessionError::Interrupted);
            }
            if let Some(answer) = bench.take_answer()? {
                return Ok(answer);
            }
            let mut fds =
                [bench.readiness(), abort.readiness()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            wait(&mut fds, Instant::now() + LOOK_AGAIN)?;
        }
    }
}

/// Adds the role of a far end to its error, as there may be two of them.
fn add_role(role: SessionRole, error: SessionError) -> SessionError {
    match error {
        SessionError::Interrupted => error,
        error => SessionError::At { role, error: Box::new(error) },
    }
}

impl VerifyEndSettings {
    fn role(&self) -> SessionRole {
        if self.is_destination { SessionRole::Sink } else { SessionRole::Source }
    }

    fn thread_settings(&self) -> ExamineThreadSettings {
        ExamineThreadSettings { threads: self.threads, past_cache: self.past_cache, rate: 0 }
    }
}
