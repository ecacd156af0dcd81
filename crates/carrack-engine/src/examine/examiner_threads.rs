//! The threads of one end of a comparison, and their open questions.
//!
//! A thread takes units of the oldest question with units left, so that no thread idles while another
//! question waits for one file. Dropping the bench does not wait for its threads: they change nothing, and
//! may wait for storage that does not answer.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use carrack_machine::DescriptorBudget;
use carrack_model::limits::IO_THREADS_MAX;
use rustix::event::{EventfdFlags, eventfd};

use super::examine_root::ExamineRoot;
use super::question::{ComparisonAnswer, ExamineQuestion};
use super::task::ExaminerQuestionTask;
use super::tools::{ExamineThreadSettings, ExamineTools};
use crate::error::{STARTING_A_THREAD, SessionError};

/// Threads unless a number is given: as many as cores, and at least these, of which some wait for storage.
const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 16;

/// One end's threads. After a drop each ends its present work.
pub(crate) struct ExaminerThreads {
    shared: Arc<ExaminerShared>,
}

struct ExaminerShared {
    tools: ExamineTools,
    queue: Mutex<ExaminerQueue>,
    work: Condvar,
    /// Readable when there may be an answer.
    event: OwnedFd,
}

#[derive(Default)]
struct ExaminerQueue {
    tasks: VecDeque<UnansweredExamineTask>,
    /// True while a thread waits for the scan: one is enough, and the others read.
    is_walking: bool,
    is_closed: bool,
    /// True after a thread panicked.
    is_broken: bool,
}

/// A question without an answer.
struct UnansweredExamineTask {
    task: Arc<ExaminerQuestionTask>,
    next_unit: usize,
    units_left: usize,
}

impl ExaminerThreads {
    /// Starts the threads.
    pub(crate) fn new(
        top: ExamineRoot,
        manners: ExamineThreadSettings,
    ) -> Result<ExaminerThreads, SessionError> {
        let local = SessionError::local("preparing to read");
        let chosen = thread::available_parallelism().map_or(THREADS_MIN, usize::from);
        let chosen = match manners.threads {
            0 => chosen.clamp(THREADS_MIN, THREADS_MAX),
            count => count,
        };
        let threads = chosen.min(DescriptorBudget::of_this_process().io_threads_max(IO_THREADS_MAX));
        let tools = ExamineTools::new(top, ExamineThreadSettings { threads, ..manners })?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(io::Error::from).map_err(local)?;
        let bench = ExaminerThreads {
            shared: Arc::new(ExaminerShared { tools, queue: Mutex::default(), work: Condvar::new(), event }),
        };
        for started in 0..threads {
            let shared = Arc::clone(&bench.shared);
            let spawned = thread::Builder::new().name("carrack-read".into()).spawn(move || shared.run());
            match spawned {
                Err(error) if started == 0 => return Err(SessionError::local(STARTING_A_THREAD)(error)),
                // If no more threads can be started, the first ones do the work.
                Err(_) => break,
                Ok(_) => {}
            }
        }
        Ok(bench)
    }

    /// Adds a question.
    pub(crate) fn queue_question(&self, question: ExamineQuestion) {
        let task = Arc::new(ExaminerQuestionTask::new(question));
        let units_left = task.unit_count();
        self.shared.lock().tasks.push_back(UnansweredExamineTask { task, next_unit: 0, units_left });
        self.shared.work.notify_all();
        if units_left == 0 {
            self.shared.wake();
        }
    }

    /// Questions whose answers were not taken.
    pub(crate) fn open_count(&self) -> usize {
        self.shared.lock().tasks.len()
    }

    /// Returns the answer to the oldest question, once it is complete.
    pub(crate) fn take_answer(&self) -> Result<Option<ComparisonAnswer>, SessionError> {
        let mut queue = self.shared.lock();
        if queue.is_broken {
            return Err(SessionError::Internal);
        }
        if queue.tasks.front().is_none_or(|open| open.units_left > 0) {
            return Ok(None);
        }
        let Some(open) = queue.tasks.pop_front() else { return Ok(None) };
        drop(queue);
        open.task.answer().map(Some).ok_or(SessionError::Internal)
    }

    /// Readable when [`ExaminerThreads::take_answer`] may return an answer.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Resets earlier wake-ups. Call it before [`ExaminerThreads::take_answer`].
    pub(crate) fn reset_wakeups(&self) {
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8][..]);
    }
}

impl Drop for ExaminerThreads {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        queue.tasks.clear();
        drop(queue);
        self.shared.work.notify_all();
        self.shared.tools.close();
    }
}

impl ExaminerShared {
    fn lock(&self) -> MutexGuard<'_, ExaminerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // The counter can't overflow: it is read before every look.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        let _guard = WorkerPanicGuard(self);
        while let Some((task, unit)) = self.next_unit() {
            task.run_unit(unit, &self.tools);
            self.finish_unit(&task);
        }
    }

    /// Waits for work. Returns `None` when the bench was dropped.
    fn next_unit(&self) -> Option<(Arc<ExaminerQuestionTask>, usize)> {
        let mut queue = self.lock();
        while !queue.is_closed {
            if let Some(taken) = queue.take_unit() {
                return Some(taken);
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn finish_unit(&self, task: &Arc<ExaminerQuestionTask>) {
        let mut queue = self.lock();
        queue.is_walking &= !task.is_walk();
        let Some(open) = queue.tasks.iter_mut().find(|open| Arc::ptr_eq(&open.task, task)) else { return };
        assert!(open.units_left > 0, "each unit is done once");
        open.units_left -= 1;
        let is_answered = open.units_left == 0;
        drop(queue);
        if is_answered {
            task.close();
            self.wake();
        }
    }
}

impl ExaminerQueue {
    fn take_unit(&mut self) -> Option<(Arc<ExaminerQuestionTask>, usize)> {
        let is_walking = self.is_walking;
        let open = self
            .tasks
            .iter_mut()
            .find(|open| open.next_unit < open.task.unit_count() && !(is_walking && open.task.is_walk()))?;
        open.next_unit += 1;
        let taken = (Arc::clone(&open.task), open.next_unit - 1);
        self.is_walking |= taken.0.is_walk();
        Some(taken)
    }
}

/// Wakes the caller that waits for a thread that panicked.
struct WorkerPanicGuard<'a>(&'a ExaminerShared);

impl Drop for WorkerPanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().is_broken = true;
            self.0.wake();
        }
    }
}
