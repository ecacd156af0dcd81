//! An established session: the ends of this process with their lanes, and the start of an end.

use std::thread;

use carrack_transport::{ReceiveEndpoint, TransportSendEndpoint};

use super::fabric::AgreedFabric;
use super::lane_links::LaneControlMultiplexerThread;
use super::outcome::SessionResult;
use crate::context::SessionContext;
use crate::counters::TransferCounters;
use crate::error::{STARTING_A_THREAD, SessionError};
use crate::lanes::{EstablishedLaneResources, root_cause};
use crate::placement::PlacedLanes;
use crate::sink::{self, SinkSetup, SinkStart};
use crate::source::{self, SourceSetup, SourceStart};

/// A session on which both ends agree, with the resources of this process's ends.
pub(super) struct EstablishedSession<'a> {
    /// The end that runs on the caller's thread: the source if both are in this process.
    pub(super) end: LocalSessionEnd,
    /// The sink, if it is in this process too.
    pub(super) local_sink: Option<LocalSessionEnd>,
    /// Carries the lanes' control messages, if several lanes share one link. Ends after all lanes.
    pub(super) relay: Option<LaneControlMultiplexerThread>,
    /// The fabric that carries the objects.
    pub(super) fabric: Option<AgreedFabric>,
    pub(super) placement: PlacedLanes,
    pub(super) context: SessionContext<'a>,
}

/// An end in this process, with its lanes.
pub(super) enum LocalSessionEnd {
    Source(Box<SourceSetup>, Lanes<Box<dyn TransportSendEndpoint>>),
    Sink(Box<SinkSetup>, Lanes<Box<dyn ReceiveEndpoint>>),
}

/// At least one lane. A fabric may fail to connect its endpoints after both ends have agreed on everything.
pub(super) type Lanes<E> = Result<Vec<EstablishedLaneResources<E>>, SessionError>;

impl EstablishedSession<'_> {
    /// Runs the ends of this process until the session ends.
    pub(super) fn run(self) -> Result<SessionResult, SessionError> {
        let EstablishedSession { end, local_sink, relay, fabric, placement, context } = self;
        assert!(
            local_sink.is_none() || matches!(end, LocalSessionEnd::Source(..)),
            "a local sink has a local source"
        );
        // The source reports all events to the user.
        let sink_context = local_sink.is_some().then(|| SessionContext { observer: None, ..context.clone() });
        let placement = &placement;
        let (both, result) = thread::scope(|scope| -> Result<SessionResult, SessionError> {
            let _watch = placement.watch(scope);
            let sinking = local_sink.zip(sink_context.as_ref()).map(|(sink, context)| {
                let named = thread::Builder::new().name("carrack-comm".into());
                named.spawn_scoped(scope, move || run_session_end(sink, placement, context))
            });
            let sinking = sinking.transpose().map_err(SessionError::local(STARTING_A_THREAD))?;
            let (told, result) = run_session_end(end, placement, &context);
            let Some(sinking) = sinking else { return Ok((told, result)) };
            let (counted, sink_result) = sinking.join().unwrap_or((told, Err(SessionError::Internal)));
            // The sink's own counters are complete, also after a failure of the session.
            Ok((TransferCounters { sink: counted.sink, ..told }, root_cause(result, sink_result)))
        })?;
        // Both ends have dropped their lanes' links.
        drop(relay);
        let result = match &fabric {
            Some(agreed) => result.map_err(|error| agreed.mark_fabric_error(error)),
            None => result,
        };
        Ok((both, result))
    }
}

/// Runs an end on its lanes until the session ends.
fn run_session_end(
    end: LocalSessionEnd,
    placement: &PlacedLanes,
    context: &SessionContext<'_>,
) -> SessionResult {
    let ended = match end {
        LocalSessionEnd::Source(setup, lanes) => lanes.map(|lanes| {
            assert!(!lanes.is_empty(), "a source has a lane");
            source::run(SourceStart { lanes, camp: placement, context, setup: *setup }, context.abort)
        }),
        LocalSessionEnd::Sink(setup, lanes) => lanes.map(|lanes| {
            assert!(!lanes.is_empty(), "a sink has a lane");
            sink::run(SinkStart { lanes, camp: placement, context, setup: *setup }, context.abort)
        }),
    };
    ended.unwrap_or_else(|error| (TransferCounters::default(), Err(error)))
}
