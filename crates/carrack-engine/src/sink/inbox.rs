//! What waits for an I/O thread of the sink.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_machine::{Attempt, Monitor};
use carrack_model::{Scheduling, TargetId};
use carrack_plan::{Feed, Service, TargetQueues, TargetState, policy};
use carrack_storage::StorageTarget;
use carrack_transport::{Incoming, ReceiveEndpoint};
use carrack_wire::message::{Offer, Prune};

use super::sink_file::SinkFile;
use crate::settings::{Limits, depth_of_queue};
use crate::sharing::{Member, Pass};

/// Something an I/O thread can do.
pub(super) enum Task {
    /// A file was announced: create it, and say where it lies.
    Create(Arc<SinkFile>),
    /// The file is whole: give it its name.
    Commit(Arc<SinkFile>),
    /// This session's part of the file is written; others bring the rest.
    Shelve(Arc<SinkFile>),
    /// Everything of this chunk was answered: make it durable, record it, and say so.
    Settle(u64),
    /// The source gave the file up: take the temporary name away.
    Discard(Arc<SinkFile>),
    /// The source asks which of these entries are wanted.
    Offer(Offer),
    /// Everything is sent: remove what the source does not have.
    Prune(Prune),
    /// Everything is written: set the directories' metadata.
    Finish {
        /// Whether nothing failed: no later session has anything to go on with.
        is_complete: bool,
    },
    /// Check and write an object that waited in the queue of its target.
    Store(TargetId, Incoming),
    /// Drive a stream that has data.
    Stream(Box<dyn ReceiveEndpoint>),
}

/// Beginnings and ends of files first, as they hold descriptors. Where objects wait for their targets, streams come next:
/// whoever drives one only sorts what comes. Else objects do, as they hold slots.
pub(super) struct Inbox {
    ends: VecDeque<Task>,
    objects: TargetQueues<Incoming>,
    streams: VecDeque<Box<dyn ReceiveEndpoint>>,
    known: HashSet<TargetId>,
    streams_first: bool,
    /// Threads that are busy with storage, and how many may be: whoever is left drives streams, so that storage which stalls
    /// holds up none. Only where objects wait for their targets.
    storing: usize,
    storing_max: usize,
    in_flight_max: u32,
    /// What it keeps to where targets are shared out.
    pass: Option<Pass>,
    began: Instant,
}

impl Member for Monitor<Inbox> {
    fn states(&self) -> Vec<TargetState> {
        self.with(|inbox| inbox.objects.states().to_vec())
    }

    fn wake(&self) {
        self.release_many(usize::MAX, |_| ());
    }
}

impl Inbox {
    /// `is_sorting`: objects wait for their targets.
    pub(super) fn new(
        scheduling: Scheduling,
        limits: Limits,
        io_threads: usize,
        is_sorting: bool,
        pass: Option<Pass>,
    ) -> Inbox {
        let chosen = || policy(&scheduling.policy, io_threads, Feed::Arriving);
        let mut objects = match (is_sorting, &pass) {
            (true, Some(pass)) => TargetQueues::new(pass.guard(chosen())),
            (true, None) => TargetQueues::new(chosen()),
            (false, _) => TargetQueues::default(),
        };
        // A source keeps to the rate of all together by itself, unless it is a client that a daemon has to hold to it.
        objects.keep_to(limits.rates);
        Inbox {
            ends: VecDeque::new(),
            objects,
            streams: VecDeque::new(),
            known: HashSet::new(),
            streams_first: is_sorting,
            storing: 0,
            storing_max: if is_sorting { io_threads.max(1) } else { usize::MAX },
            in_flight_max: scheduling.in_flight_max,
            pass,
            began: limits.began,
        }
    }

    pub(super) fn knows(&self, target: TargetId) -> bool {
        self.known.contains(&target)
    }

    pub(super) fn add_target(&mut self, target: &StorageTarget) {
        self.known.insert(target.id);
        if let Some(pass) = &self.pass {
            pass.learn(target);
        }
        self.objects.set_depth(target.id, depth_of_queue(target, self.in_flight_max));
    }

    pub(super) fn push_end(&mut self, task: Task) {
        self.ends.push_back(task);
    }

    pub(super) fn push_object(&mut self, target: TargetId, incoming: Incoming) {
        self.objects.push(target, incoming.header.body_len.into(), incoming);
    }

    /// Before all others of its target.
    pub(super) fn push_object_first(&mut self, target: TargetId, incoming: Incoming) {
        self.objects.push_front(target, incoming.header.body_len.into(), incoming);
    }

    /// The youngest object of the target for which most wait, if more than `kept` do, and it is `fit`.
    pub(super) fn take_last_object(
        &mut self,
        kept: usize,
        fit: impl FnOnce(&Incoming) -> bool,
    ) -> Option<(TargetId, Incoming)> {
        self.objects.take_last(kept, fit)
    }

    /// Objects that wait or are being written.
    pub(super) fn object_count(&self) -> usize {
        self.objects.len() + self.objects.in_service()
    }

    /// Objects that wait for a target.
    pub(super) fn waiting_for(&self, target: TargetId) -> usize {
        let state = self.objects.states().iter().find(|state| state.target == target);
        state.map_or(0, |state| state.waiting)
    }

    pub(super) fn push_stream(&mut self, endpoint: Box<dyn ReceiveEndpoint>) {
        self.streams.push_back(endpoint);
    }

    /// The next thing to do.
    pub(super) fn take(&mut self) -> Attempt<Task> {
        let now = self.began.elapsed();
        let may_store = self.storing < self.storing_max;
        let end = if may_store { self.ends.pop_front() } else { None };
        let first = end.or_else(|| if self.streams_first { self.take_stream() } else { None });
        let object = |inbox: &mut Inbox| if may_store { inbox.take_object(now) } else { None };
        match first.or_else(|| object(self)).or_else(|| self.take_stream()) {
            Some(task) => {
                self.storing += usize::from(!matches!(task, Task::Stream(_)));
                Attempt::Done(task)
            }
            None if !may_store => Attempt::NotYet,
            None => self.objects.wake_at(now).map_or(Attempt::NotYet, |at| Attempt::Until(self.began + at)),
        }
    }

    /// The next thing to do for a thread that drives a stream.
    pub(super) fn take_beside_streams(&mut self) -> Option<Task> {
        let end = self.ends.pop_front();
        end.or_else(|| self.take_object(self.began.elapsed()))
    }

    fn take_stream(&mut self) -> Option<Task> {
        self.streams.pop_front().map(Task::Stream)
    }

    fn take_object(&mut self, now: Duration) -> Option<Task> {
        let (target, incoming) = self.objects.take(now)?;
        self.objects.charge(target, incoming.header.body_len.into(), now);
        Some(Task::Store(target, incoming))
    }

    /// What was taken, and was no stream, has been done.
    pub(super) fn done(&mut self) {
        self.storing -= 1;
    }

    /// From now on so many threads may be busy with storage.
    pub(super) fn set_writers(&mut self, count: usize) {
        if self.streams_first {
            self.storing_max = count.max(1);
        }
    }

    /// An object that was taken from this target's queue has to be queued once more.
    pub(super) fn takes_back(&mut self, target: TargetId, incoming: &Incoming) {
        self.objects.uncharge(target, incoming.header.body_len.into());
    }

    /// An object that was taken is stored, after so long if that is known.
    pub(super) fn finished(&mut self, target: TargetId, service: Option<Service>) {
        self.objects.finished(target, service, self.began.elapsed());
    }

    /// The queues, for reports.
    pub(super) fn targets(&self) -> (&TargetQueues<Incoming>, Duration) {
        (&self.objects, self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use carrack_transport::loopback_pair;

    use super::*;

    #[test]
    fn storage_that_stalls_holds_up_no_stream() {
        let mut inbox =
            Inbox::new(Scheduling::default(), crate::settings::Settings::default().limits(), 2, true, None);
        (0..3).for_each(|number| inbox.push_end(Task::Settle(number)));
        assert!(matches!(inbox.take(), Attempt::Done(Task::Settle(0))));
        assert!(matches!(inbox.take(), Attempt::Done(Task::Settle(1))));
        assert!(matches!(inbox.take(), Attempt::NotYet), "as many as may be are busy");
        let (_sender, receiver) = loopback_pair().unwrap();
        inbox.push_stream(Box::new(receiver));
        assert!(matches!(inbox.take(), Attempt::Done(Task::Stream(_))));
        inbox.done();
        assert!(matches!(inbox.take(), Attempt::Done(Task::Settle(2))));
        inbox.push_end(Task::Settle(3));
        inbox.set_writers(3);
        assert!(matches!(inbox.take(), Attempt::Done(Task::Settle(3))));
    }
}
