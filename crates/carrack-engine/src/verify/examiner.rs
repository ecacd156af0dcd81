//! One end of a comparison, on this host or far.

use std::path::Path;
use std::time::{Duration, Instant};

use carrack_storage::Base;
use rustix::event::{PollFd, PollFlags};

use crate::abort::Abort;
use crate::error::SessionError;
use crate::examine::{Answer, Bench, Manners, Question, Sight, Top, Walked};
use crate::role::Role;
use crate::session::verify::{FarExaminer, wait};
use crate::settings::Peer;

/// The longest sleep of a waiting caller.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The options of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// True for the destination: a link that leads to a directory is followed.
    pub is_destination: bool,
    /// True to read files past the page cache, if the file system supports it: findings are about the storage
    /// then.
    pub past_cache: bool,
    /// Threads that read; 0 to choose.
    pub threads: usize,
}

/// One end of a comparison.
pub struct Examiner {
    end: End,
    role: Role,
}

enum End {
    Here(Bench, Abort),
    Far(Box<FarExaminer>),
}

impl Examiner {
    /// Opens a path of this host.
    ///
    /// # Errors
    /// Fails if threads or memory are not available. A path without an entry is an answer.
    pub fn here(path: &Path, how: Examination, abort: &Abort) -> Result<Examiner, SessionError> {
        let top = Top::open(&Base::Anywhere, path, how.is_destination);
        Ok(Examiner { end: End::Here(Bench::new(top, how.manners())?, abort.clone()), role: how.role() })
    }

    /// Opens a path at the host of `peer`, which runs [`crate::serve`].
    ///
    /// # Errors
    /// Fails if the other end does not answer. A refusal comes with the first answer.
    pub fn at(peer: Peer, path: &Path, how: Examination, abort: &Abort) -> Result<Examiner, SessionError> {
        let far = FarExaminer::call(peer, path, how.is_destination, how.manners(), abort)
            .map_err(|error| at(how.role(), error))?;
        Ok(Examiner { end: End::Far(Box::new(far)), role: how.role() })
    }

    /// Ends the session after the last answer.
    ///
    /// # Errors
    /// Fails if the other end is gone; its earlier answers are valid.
    pub fn end(self) -> Result<(), SessionError> {
        match self.end {
            End::Here(..) => Ok(()),
            End::Far(far) => far.end().map_err(|error| at(self.role, error)),
        }
    }

    pub(super) fn ask(&mut self, question: Question) -> Result<(), SessionError> {
        match &mut self.end {
            End::Here(bench, _) => {
                bench.ask(question);
                Ok(())
            }
            End::Far(far) => far.ask(question).map_err(|error| at(self.role, error)),
        }
    }

    pub(super) fn walked(&mut self) -> Result<Walked, SessionError> {
        match self.hear()? {
            Answer::Walked(walked) => Ok(walked),
            _ => Err(SessionError::Internal),
        }
    }

    pub(super) fn seen(&mut self) -> Result<Vec<Sight>, SessionError> {
        match self.hear()? {
            Answer::Seen(sights) => Ok(sights),
            _ => Err(SessionError::Internal),
        }
    }

    pub(super) fn pieces(&mut self) -> Result<Result<Vec<[u8; 32]>, String>, SessionError> {
        match self.hear()? {
            Answer::Pieces(values) => Ok(values),
            _ => Err(SessionError::Internal),
        }
    }

    /// Returns the answer to the oldest question.
    fn hear(&mut self) -> Result<Answer, SessionError> {
        let (bench, abort) = match &mut self.end {
            End::Far(far) => return far.hear().map_err(|error| at(self.role, error)),
            End::Here(bench, abort) => (bench, abort),
        };
        loop {
            bench.listen();
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
fn at(role: Role, error: SessionError) -> SessionError {
    match error {
        SessionError::Interrupted => error,
        error => SessionError::At { role, error: Box::new(error) },
    }
}

impl Examination {
    fn role(&self) -> Role {
        if self.is_destination { Role::Sink } else { Role::Source }
    }

    fn manners(&self) -> Manners {
        Manners { threads: self.threads, past_cache: self.past_cache, rate: 0 }
    }
}
