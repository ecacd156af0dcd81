//! An I/O thread of the sink: drives a data connection, or takes work from the write queue.

use carrack_model::TargetId;
use carrack_plan::StorageRequestTiming;
use carrack_transport::{EndpointWaitLimit, IncomingObject, ReceiveEndpoint, ReceiveResult};
use carrack_wire::FrameKind;

use super::bundle_unpacker::BundleUnpacker;
use super::extraneous_entries::delete_extraneous_entries;
use super::finish::{finish, finish_chunk};
use super::lane::{SinkCommThreadRequest, SinkLane};
use super::large_files::SinkLargeFileHandler;
use super::object_writer::ObjectWriter;
use super::offers::answer_offer;
use super::write_queue::SinkIoTask;
use crate::counters::ThreadActivity;
use crate::error::SessionError;

/// Works until the session ends. The thread `number`, counted from 0, pauses while at most `number` threads
/// are to work.
pub(super) fn run(lane: &SinkLane<'_>, number: usize) {
    let mut writer = SinkWriter {
        lane,
        files: SinkLargeFileHandler::new(lane),
        objects: ObjectWriter::new(lane),
        unpacker: BundleUnpacker::default(),
    };
    loop {
        lane.queue.await_turn(number);
        let taken = lane.counters.time(ThreadActivity::Idle, || lane.queue.take());
        let Ok(task) = taken else { return };
        let is_storing = !matches!(task, SinkIoTask::Stream(_));
        let done = writer.run_task(task);
        if is_storing {
            lane.queue.finish_task();
        }
        if let Err(error) = done {
            lane.fault.raise(error, lane);
            return;
        }
    }
}

struct SinkWriter<'a> {
    lane: &'a SinkLane<'a>,
    files: SinkLargeFileHandler<'a>,
    objects: ObjectWriter<'a>,
    unpacker: BundleUnpacker,
}

impl SinkWriter<'_> {
    fn run_task(&mut self, task: SinkIoTask) -> Result<(), SessionError> {
        let (lane, files) = (self.lane, self.files);
        match task {
            SinkIoTask::Stream(endpoint) if lane.sink.sizing.is_sorting => self.receive_and_queue(endpoint),
            SinkIoTask::Stream(endpoint) => self.drive(endpoint),
            SinkIoTask::Store(target, incoming) => self.store_queued(target, incoming),
            SinkIoTask::Create(file) => lane.counters.run_as_storage_busy(|| files.create(&file)),
            SinkIoTask::Commit(file) => lane.counters.run_as_storage_busy(|| files.commit(&file)),
            SinkIoTask::Shelve(file) => lane.counters.run_as_storage_busy(|| files.finish_part(&file)),
            SinkIoTask::Settle(number) => lane.counters.run_as_storage_busy(|| finish_chunk(lane, number)),
            SinkIoTask::Discard(file) => lane.counters.run_as_storage_busy(|| files.discard(&file)),
            SinkIoTask::Offer(offer) => lane.counters.run_as_storage_busy(|| answer_offer(lane, &offer)),
            SinkIoTask::Prune(prune) => {
                lane.counters.run_as_storage_busy(|| delete_extraneous_entries(lane, &prune))
            }
            SinkIoTask::Finish { is_complete } => finish(lane, is_complete),
        }
    }

    /// Stores an object that waited for a target, or moves it to the queue of its file's present target.
    fn store_queued(&mut self, target: TargetId, incoming: IncomingObject) -> Result<(), SessionError> {
        let lane = self.lane;
        if let Some(own) = lane.changed_target(target, &incoming) {
            lane.queue.move_object(target, own, incoming);
            return Ok(());
        }
        let bytes = incoming.header.body_len.into();
        let stored = self.store(incoming);
        let service = stored.as_ref().ok().copied().flatten();
        lane.queue.finish_object(target, service.filter(|_| lane.sink.sizing.is_sorting), bytes);
        lane.spills.iter().for_each(|spill| spill.allow_read_back(1));
        stored.map(|_| ())
    }

    /// Receives and stores until the connection is idle, then passes it to the comm thread.
    fn drive(&mut self, mut endpoint: Box<dyn ReceiveEndpoint>) -> Result<(), SessionError> {
        let lane = self.lane;
        loop {
            let received = lane
                .counters
                .time(ThreadActivity::Network, || endpoint.advance(EndpointWaitLimit::Brief, &lane.pool))?;
            match received {
                ReceiveResult::Object(incoming) => {
                    self.store(incoming)?;
                }
                ReceiveResult::Pending => {
                    let _ = lane.mail.post(SinkCommThreadRequest::Park(endpoint));
                    return Ok(());
                }
                ReceiveResult::Closed => {
                    let _ = lane.mail.post(SinkCommThreadRequest::Closed);
                    return Ok(());
                }
            }
            while let Some(task) = lane.queue.take_beside_streams() {
                self.run_task(task)?;
            }
        }
    }

    /// Receives until the connection is idle, and adds objects to the queues of their targets (L8).
    fn receive_and_queue(&mut self, mut endpoint: Box<dyn ReceiveEndpoint>) -> Result<(), SessionError> {
        let lane = self.lane;
        loop {
            let received = lane
                .counters
                .time(ThreadActivity::Network, || endpoint.advance(EndpointWaitLimit::Brief, &lane.pool))?;
            match received {
                ReceiveResult::Object(incoming) => {
                    let target = lane.target_of(&incoming);
                    lane.enqueue(target, incoming);
                }
                ReceiveResult::Pending => {
                    let _ = lane.mail.post(SinkCommThreadRequest::Park(endpoint));
                    return Ok(());
                }
                ReceiveResult::Closed => {
                    let _ = lane.mail.post(SinkCommThreadRequest::Closed);
                    return Ok(());
                }
            }
        }
    }

    /// Checks and writes an object. Returns the service time, if there was a request to the storage.
    fn store(&mut self, incoming: IncomingObject) -> Result<Option<StorageRequestTiming>, SessionError> {
        let lane = self.lane;
        let Some(root) = &lane.sink.destination.root else {
            return Err(SessionError::Protocol("an object in a dry run".into()));
        };
        let (objects, unpacker) = (self.objects, &mut self.unpacker);
        lane.counters.run_as_storage_busy(|| {
            lane.counters.time(ThreadActivity::Storage, || match incoming.header.kind {
                FrameKind::Bundle if lane.sink.spec.part.is_some() => {
                    Err(SessionError::Protocol("whole files where a part of one is copied".into()))
                }
                FrameKind::Bundle => unpacker.store(lane, root, incoming).map(|()| None),
                FrameKind::Object | FrameKind::Control => objects.store(root, incoming),
            })
        })
    }
}
