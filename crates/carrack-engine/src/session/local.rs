//! Both ends in this process: the same engine at each, with a link and endpoints for every lane.

use carrack_model::limits::STREAMS_NEAR;
use carrack_model::{AgreedTransferSpec, FailureSide, TransferEvent};
use carrack_storage::PathBase;
use carrack_transport::{ReceiveEndpoint, SessionControlLink, TransportSendEndpoint, loopback_pair};

use super::destination::InspectedDestination;
use super::established::{EstablishedSession, LocalSessionEnd};
use super::fabric;
use super::journal_access::TransferJournalOpener;
use super::lane_links::{lane_count_proposal, link_pair, negotiate_lane_count};
use super::object_size::{largest_slots, with_agreed_slots};
use super::prepared::{PreparedSink, PreparedSource};
use super::wait_heartbeats::WaitHeartbeatRecipients;
use crate::abort::AbortHandle;
use crate::context::SessionContext;
use crate::error::SessionError;
use crate::event_delivery::TransferObserver;
use crate::lanes::LaneDataTransport;
use crate::placement::{HostPlacementInput, LanePlacementDemand, PlacedLanes};
use crate::settings::{EndSettings, TransferRequest};
use crate::sharing::SessionGrantClient;
use crate::source::SourceStorageFacts;

/// Lets both ends agree, as two processes would.
pub(super) fn establish<'a>(
    transfer: &TransferRequest,
    observer: &'a dyn TransferObserver,
    abort: &'a AbortHandle,
) -> Result<EstablishedSession<'a>, SessionError> {
    let settings = transfer.settings.within_memory(2, transfer.spec.slot_bytes)?;
    settings.report_smaller_pool(observer);
    fabric::refuse_if_required(
        &settings,
        "both ends are in this process, where objects are not copied at all",
    )?;
    let journal = TransferJournalOpener::of(&settings, transfer.identity.as_ref());
    let destination =
        InspectedDestination::inspect(&PathBase::Anywhere, &transfer.destination, &settings, journal)?;
    let file_systems = settings.file_systems(&PathBase::Anywhere)?;
    let (base, paths) = (&PathBase::Anywhere, &transfer.sources);
    let read = SourceStorageFacts::of_paths(base, &file_systems, paths);
    let written = destination.storage().object_bytes(&transfer.spec.stripe);
    let most = largest_slots(&transfer.spec, &settings);
    let spec = &with_agreed_slots(&transfer.spec, most, read.request_bytes, written);
    let sink_state = destination.to_message(spec, settings.slot_count(spec.slot_bytes));
    let mut source = PreparedSource::new(base, paths, spec, &settings, file_systems, Some(&sink_state))?;
    source.setup.feed = transfer.feed.clone().map(|feed| feed.0);
    observer.handle_event(&TransferEvent::Placed(source.arrival.clone()));
    let mut sink = PreparedSink::new(destination, spec, &source.place_message(), Some(paths))?;
    sink.open(spec, &mut WaitHeartbeatRecipients::new(None, Some(observer), abort))?;
    let (placement, lane_count) = place(&settings, &source, &sink, spec)?;
    observer.handle_event(&TransferEvent::Connected {
        streams: 0,
        lanes: lane_count as u32,
        transport: "local",
        protection: None,
        cipher: None,
    });
    source.report_notices(observer);
    // Both ends are one client of the meta-scheduler.
    let share = SessionGrantClient::begin(&settings, None)?;
    let context = SessionContext { spec: spec.clone(), settings, observer: Some(observer), abort, share };
    join(source, sink, placement, lane_count, context)
}

/// Returns the placement of the lanes. Both ends are on one machine, so one placement serves the two, lane by
/// lane.
fn place(
    settings: &EndSettings,
    source: &PreparedSource,
    sink: &PreparedSink,
    spec: &AgreedTransferSpec,
) -> Result<(PlacedLanes, usize), SessionError> {
    let host = HostPlacementInput::detect(settings);
    let (reads, writes) = (source.setup.storage.depth, sink.setup.place.storage.depth());
    let [source_wish, sink_wish] = [reads, writes]
        .map(|depth| lane_count_proposal(settings, host.lane_places(), depth, spec.slot_bytes));
    let lane_count = negotiate_lane_count(source_wish, sink_wish);
    let io_threads = settings.io_thread_count(reads.max(writes));
    let demand = LanePlacementDemand {
        side: FailureSide::Source,
        lane_count,
        io_threads,
        streams: &[],
        directories: Vec::new(),
    };
    Ok((host.place(&demand)?, lane_count))
}

/// Connects the lanes of both ends.
fn join(
    source: PreparedSource,
    sink: PreparedSink,
    placement: PlacedLanes,
    lane_count: usize,
    context: SessionContext<'_>,
) -> Result<EstablishedSession<'_>, SessionError> {
    let SessionContext { spec, settings, .. } = &context;
    let (source_links, sink_links) = local_links(spec.slot_bytes, lane_count)?;
    let (senders, receivers) = local_endpoints(spec, lane_count)?;
    let sink_pools = placement.allocate_pools(settings, spec, lane_count)?;
    let sink_lanes = placement.combine_lane_resources(
        sink_links,
        sink_pools,
        LaneDataTransport::deal(receivers, lane_count),
    );
    let source_pools = placement.allocate_pools(settings, spec, lane_count)?;
    let source_lanes = placement.combine_lane_resources(
        source_links,
        source_pools,
        LaneDataTransport::deal(senders, lane_count),
    );
    let end = LocalSessionEnd::Source(Box::new(source.setup), Ok(source_lanes));
    let local_sink = Some(LocalSessionEnd::Sink(Box::new(sink.setup), Ok(sink_lanes)));
    Ok(EstablishedSession { end, local_sink, relay: None, fabric: None, placement, context })
}

fn local_links(
    slot_bytes: u32,
    lane_count: usize,
) -> Result<(Vec<SessionControlLink>, Vec<SessionControlLink>), SessionError> {
    let pairs = (0..lane_count).map(|_| link_pair(slot_bytes));
    Ok(pairs.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}

type SendReceiveEndpoints = (Vec<Box<dyn TransportSendEndpoint>>, Vec<Box<dyn ReceiveEndpoint>>);

fn local_endpoints(
    spec: &AgreedTransferSpec,
    lane_count: usize,
) -> Result<SendReceiveEndpoints, SessionError> {
    let mut endpoints: SendReceiveEndpoints = Default::default();
    let for_lane =
        if spec.streams == 0 { STREAMS_NEAR.into() } else { usize::from(spec.streams).div_ceil(lane_count) };
    for _ in 0..for_lane * lane_count {
        let (sender, receiver) = loopback_pair().map_err(SessionError::local("connecting both ends"))?;
        endpoints.0.push(Box::new(sender));
        endpoints.1.push(Box::new(receiver));
    }
    Ok(endpoints)
}
