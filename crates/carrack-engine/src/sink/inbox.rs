//! What waits for an I/O thread of the sink.

use std::collections::VecDeque;
use std::sync::Arc;

use carrack_model::TargetId;
use carrack_plan::TargetQueues;
use carrack_storage::StorageTarget;
use carrack_transport::{Incoming, ReceiveEndpoint};

use super::sink_file::SinkFile;

/// Something an I/O thread can do.
pub(super) enum Task {
    /// The file is whole: give it its name.
    Commit(Arc<SinkFile>),
    /// The source gave the file up: take the temporary name away.
    Discard(Arc<SinkFile>),
    /// Everything is written: set the directories' metadata.
    Finish,
    /// Check and write an object that came when nobody drove its stream.
    Store(TargetId, Incoming),
    /// Drive a stream that has data.
    Stream(Box<dyn ReceiveEndpoint>),
}

/// Ends of files first, as they hold descriptors; then objects, as they hold slots; then streams.
pub(super) struct Inbox {
    ends: VecDeque<Task>,
    objects: TargetQueues<Incoming>,
    streams: VecDeque<Box<dyn ReceiveEndpoint>>,
    target: TargetId,
}

impl Inbox {
    pub(super) fn new(target: Option<&StorageTarget>) -> Inbox {
        // Bounded by the slots, each of which holds at most one object.
        let mut objects = TargetQueues::new(usize::MAX);
        if let Some(target) = target {
            objects.set_depth(target.id, target.depth);
        }
        let target = target.map_or(TargetId(0), |target| target.id);
        Inbox { ends: VecDeque::new(), objects, streams: VecDeque::new(), target }
    }

    pub(super) fn push_end(&mut self, task: Task) {
        self.ends.push_back(task);
    }

    pub(super) fn push_object(&mut self, incoming: Incoming) {
        let target = self.target;
        self.objects.put_back(target, incoming);
    }

    pub(super) fn push_stream(&mut self, endpoint: Box<dyn ReceiveEndpoint>) {
        self.streams.push_back(endpoint);
    }

    /// The next thing to do.
    pub(super) fn take(&mut self) -> Option<Task> {
        self.take_beside_streams().or_else(|| self.streams.pop_front().map(Task::Stream))
    }

    /// The next thing to do for a thread that drives a stream.
    pub(super) fn take_beside_streams(&mut self) -> Option<Task> {
        let end = self.ends.pop_front();
        end.or_else(|| self.objects.take().map(|(target, incoming)| Task::Store(target, incoming)))
    }

    /// An object that was taken is stored.
    pub(super) fn finished(&mut self, target: TargetId) {
        self.objects.finished(target);
    }
}
