//! Lanes (N2) from outside: the resources of each lane at an end, and the end of all lanes when one fails.
//!
//! The lanes of a session are independent of each other, with separate slots, connections, threads and files.
//! The first lane leads: it sends messages for all of them (counters, targets), and ends last.

use std::thread;
use std::time::{Duration, Instant};

use carrack_machine::{DescriptorBudget, LaneCrew, SlotPool, ThreadDuty};
use carrack_model::limits::OPEN_FILES_MAX;
use carrack_transport::SessionControlLink;
use carrack_transport::fabric::FabricProgressEngine;
use carrack_wire::message::ControlMessage;

use crate::abort::AbortHandle;
use crate::comm::{CommHandler, CommLoop, LAST_WORDS};
use crate::error::{STARTING_A_THREAD, SessionError};
use crate::first_error::{FirstSessionError, SessionErrorListener};

/// The resources of a lane in an established session.
pub(crate) struct EstablishedLaneResources<E> {
    /// Its link for control messages to the same lane at the other end.
    pub(crate) link: SessionControlLink,
    /// Data endpoints; without any the link carries the objects.
    pub(crate) endpoints: Vec<E>,
    /// The progress engine of the endpoints, if the kernel does not move the objects.
    pub(crate) hub: Option<Box<dyn FabricProgressEngine>>,
    /// Its slots. At the sink they back the credits of the source.
    pub(crate) pool: SlotPool,
    /// The placement of its threads.
    pub(crate) crew: LaneCrew,
}

/// Sends the other end the reason why this end can't begin after all.
pub(crate) fn send_start_failure<E>(
    mut starts: Vec<EstablishedLaneResources<E>>,
    error: SessionError,
) -> SessionError {
    if let Some(first) = starts.first_mut() {
        first.link.queue_control(ControlMessage::Abort(error.to_message()).to_body());
        first.link.close_by(Instant::now() + LAST_WORDS);
    }
    error
}

/// Distributes data connections: connection `i` belongs to lane `i` modulo the number of lanes, at both ends.
pub(crate) fn deal<T>(connections: impl IntoIterator<Item = T>, lane_count: usize) -> Vec<Vec<T>> {
    assert!(lane_count > 0, "each connection belongs to a lane");
    let mut lanes: Vec<Vec<T>> = (0..lane_count).map(|_| Vec::new()).collect();
    for (place, connection) in connections.into_iter().enumerate() {
        lanes[place % lane_count].push(connection);
    }
    lanes
}

/// The transport of a lane's objects.
pub(crate) struct LaneDataTransport<E> {
    /// Empty if the lane's link carries the objects.
    pub(crate) endpoints: Vec<E>,
    /// The progress engine of the endpoints, if the kernel does not move the objects.
    pub(crate) hub: Option<Box<dyn FabricProgressEngine>>,
}

impl<E> LaneDataTransport<E> {
    /// Distributes these connections.
    pub(crate) fn deal(
        connections: impl IntoIterator<Item = E>,
        lane_count: usize,
    ) -> Vec<LaneDataTransport<E>> {
        let dealt = deal(connections, lane_count).into_iter();
        dealt.map(|endpoints| LaneDataTransport { endpoints, hub: None }).collect()
    }
}

/// A lane as its comm thread sees it.
pub(crate) struct LaneComm<'a, S> {
    pub(crate) link: SessionControlLink,
    pub(crate) hub: Option<Box<dyn FabricProgressEngine>>,
    pub(crate) side: S,
    pub(crate) pool: &'a SlotPool,
    pub(crate) crew: &'a LaneCrew,
    pub(crate) fault: &'a FirstSessionError,
    pub(crate) stop: &'a dyn SessionErrorListener,
}

/// Runs the comm threads of all lanes, the first lane's on this thread, until all have ended. Returns the
/// side of the first lane, which has received all messages, and the first error. The other end may be silent
/// for `stall`.
pub(crate) fn run_comms<S: CommHandler + Send>(
    mut lanes: Vec<LaneComm<'_, S>>,
    stall: Duration,
    abort: &AbortHandle,
) -> (Option<S>, Result<(), SessionError>) {
    let stops: Vec<(&FirstSessionError, &dyn SessionErrorListener)> =
        lanes.iter().map(|lane| (lane.fault, lane.stop)).collect();
    let stops = &stops[..];
    if lanes.is_empty() {
        return (None, Err(SessionError::Internal));
    }
    let first = lanes.remove(0);
    thread::scope(|scope| {
        let started = lanes.into_iter().map(|lane| {
            let builder = thread::Builder::new().name("carrack-comm".into());
            builder.spawn_scoped(scope, move || run_comm(lane, stops, stall, abort).1)
        });
        let others: Vec<_> = started.collect();
        if others.iter().any(Result::is_err) {
            stops.iter().for_each(|(fault, stop)| fault.raise(SessionError::Internal, *stop));
        }
        let (side, result) = run_comm(first, stops, stall, abort);
        let results = others.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or(Err(SessionError::Internal)),
            Err(error) => Err(SessionError::local(STARTING_A_THREAD)(error)),
        });
        (Some(side), results.fold(result, root_cause))
    })
}

/// Runs the comm thread of a lane. A lane that fails ends the others by `stops`.
fn run_comm<S: CommHandler>(
    lane: LaneComm<'_, S>,
    stops: &[(&FirstSessionError, &dyn SessionErrorListener)],
    stall: Duration,
    abort: &AbortHandle,
) -> (S, Result<(), SessionError>) {
    let LaneComm { link, hub, mut side, pool, crew, fault, stop } = lane;
    let _seat = crew.bind_current_thread(ThreadDuty::Comm);
    let _watch = fault.watch(stop);
    let result = CommLoop { link, hub, pool, abort, fault, stall }.run(&mut side);
    if result.as_ref().is_err_and(SessionError::is_connection_lost) {
        stop.handle_peer_gone();
    }
    stop.stop();
    if result.is_err() {
        stops.iter().for_each(|(fault, stop)| fault.raise(SessionError::OtherLane, *stop));
    }
    (side, result)
}

/// Returns the result that is closer to the cause.
pub(crate) fn root_cause(
    one: Result<(), SessionError>,
    other: Result<(), SessionError>,
) -> Result<(), SessionError> {
    match (one, other) {
        (Err(one), Err(other)) if other.distance_from_cause() < one.distance_from_cause() => Err(other),
        (Err(error), _) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Descriptors of a large file: two at each end, if both are in one process, and at the sink two for a file
/// whose group is not durable yet.
const DESCRIPTORS_PER_FILE: u64 = 6;

/// Large files that may be open at once at an end of this process.
pub(crate) fn open_files_max() -> usize {
    DescriptorBudget::of_this_process().open_files_max(DESCRIPTORS_PER_FILE, OPEN_FILES_MAX)
}
