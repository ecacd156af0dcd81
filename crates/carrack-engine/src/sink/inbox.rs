//! What waits for an I/O thread of the sink.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_machine::{Attempt, Monitor};
use carrack_model::{Scheduling, TargetId};
use carrack_plan::{Feed, Rates, Service, TargetQueues, TargetState, policy};
use carrack_storage::StorageTarget;
use carrack_transport::{Incoming, ReceiveEndpoint};
use carrack_wire::message::{Offer, Prune};

use super::sink_file::SinkFile;
use crate::settings::depth_of_queue;
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
        objects.set_rates(Rates { all: scheduling.rate, each: scheduling.target_rate });
        Inbox {
            ends: VecDeque::new(),
            objects,
            streams: VecDeque::new(),
            known: HashSet::new(),
            streams_first: is_sorting,
            in_flight_max: scheduling.in_flight_max,
            pass,
            began: Instant::now(),
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

    pub(super) fn push_stream(&mut self, endpoint: Box<dyn ReceiveEndpoint>) {
        self.streams.push_back(endpoint);
    }

    /// The next thing to do.
    pub(super) fn take(&mut self) -> Attempt<Task> {
        let now = self.began.elapsed();
        let first = self.ends.pop_front();
        let first = first.or_else(|| if self.streams_first { self.take_stream() } else { None });
        match first.or_else(|| self.take_object(now)).or_else(|| self.take_stream()) {
            Some(task) => Attempt::Done(task),
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
