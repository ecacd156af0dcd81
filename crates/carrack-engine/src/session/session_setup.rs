//! The step from an agreement of two processes to an established session: placement, buffers, links and
//! endpoints of the lanes.

use carrack_machine::SlotPool;
use carrack_model::{AgreedTransferSpec, TransferEvent};
use carrack_transport::{
    DataConnection, ReceiveEndpoint, SessionControlLink, StreamCount, TransportSendEndpoint,
};

use super::established::{EstablishedSession, LocalSessionEnd};
use super::fabric::{self, AgreedFabric, EndpointOpeningResources, UnconnectedLaneAndPeer};
use super::handshake::refuse;
use super::lane_links::lane_links;
use super::prepared::PreparedEnd;
use crate::context::SessionContext;
use crate::error::SessionError;
use crate::event_delivery::to_message;
use crate::lanes::LaneDataTransport;
use crate::placement::{HostPlacementInput, PlacedLanes};

/// The agreement of an end with the other end, which is another process.
pub(super) struct SessionAgreement {
    pub(super) end: PreparedEnd,
    /// Data connections. Without any the control channel carries the objects.
    pub(super) streams: Vec<DataConnection>,
    /// The agreed number for data connections; the control channel has one lane.
    pub(super) lane_count: usize,
    /// The fabric that carries the objects, if both ends can open it.
    pub(super) fabric: Option<AgreedFabric>,
    pub(super) placement: HostPlacementInput,
}

impl SessionAgreement {
    /// Gives the lanes their resources. `link` leads to the other end.
    pub(super) fn establish(
        self,
        mut link: SessionControlLink,
        context: SessionContext<'_>,
    ) -> Result<EstablishedSession<'_>, SessionError> {
        let SessionAgreement { end, streams, lane_count, fabric, placement } = self;
        let lane_count = if streams.is_empty() { 1 } else { lane_count };
        assert!(lane_count > 0, "a session has a lane");
        if !streams.len().is_multiple_of(lane_count) {
            let count = streams.len();
            return Err(SessionError::Protocol(format!("{count} data connections for {lane_count} lanes")));
        }
        link.set_peer_timeout(context.settings.stall);
        streams.iter().for_each(|stream| stream.set_patience(context.settings.stall));
        let placed = placement.place(&end.demand(&context.settings, &streams, lane_count));
        let placed = placed.and_then(|lanes| {
            let pools = lanes.allocate_pools(&context.settings, &context.spec, lane_count)?;
            Ok((lanes, pools))
        });
        // The other end is working already: without a message it would report a broken connection.
        let (placement, pools) = placed.inspect_err(|error| refuse(&mut link, error))?;
        assert!(pools.len() == lane_count, "each lane has its own slots");
        let resources = EndpointOpeningResources {
            role: end.role(),
            streams: &streams,
            placement: &placement,
            pools: &pools,
            context: &context,
        };
        let peered =
            fabric.as_ref().map_or(Ok(None), |agreed| agreed.exchange_endpoints(&mut link, &resources))?;
        announce(&context, streams.len(), lane_count, peered.is_some());
        let fabric = fabric.filter(|_| peered.is_some());
        let (links, relay) = lane_links(link, lane_count, context.spec.slot_bytes)?;
        let end = assign_lanes(end, (links, pools), (streams, peered), &placement, &context);
        Ok(EstablishedSession { end, local_sink: None, relay, fabric, placement, context })
    }
}

/// Gives an end its lanes. If a fabric carries the objects, the TCP connections only stand by.
fn assign_lanes(
    end: PreparedEnd,
    (mut links, pools): (Vec<SessionControlLink>, Vec<SlotPool>),
    (streams, peered): (Vec<DataConnection>, Option<Vec<UnconnectedLaneAndPeer>>),
    placement: &PlacedLanes,
    context: &SessionContext<'_>,
) -> LocalSessionEnd {
    let AgreedTransferSpec { slot_bytes, protection, cipher, .. } = context.spec;
    match end {
        PreparedEnd::Source(source) => {
            if context.observer.is_none() {
                // The observer is at the other end.
                let notices =
                    source.notices.into_iter().filter_map(|notice| to_message(TransferEvent::Notice(notice)));
                notices.for_each(|message| links[0].queue_control(message.to_body()));
            }
            let transports = match peered {
                None => {
                    let senders = streams.into_iter().map(|stream| -> Box<dyn TransportSendEndpoint> {
                        Box::new(stream.into_sender(protection, cipher))
                    });
                    Ok(LaneDataTransport::deal(senders, links.len()))
                }
                Some(peered) => fabric::source_transports(peered, streams, context),
            };
            let lanes =
                transports.map(|transports| placement.combine_lane_resources(links, pools, transports));
            LocalSessionEnd::Source(Box::new(source.setup), lanes)
        }
        PreparedEnd::Sink(sink) => {
            let transports = match peered {
                None => {
                    let receivers = streams.into_iter().map(|stream| -> Box<dyn ReceiveEndpoint> {
                        Box::new(stream.into_receiver(slot_bytes, protection, cipher))
                    });
                    Ok(LaneDataTransport::deal(receivers, links.len()))
                }
                Some(peered) => fabric::sink_transports(peered, streams, context),
            };
            let lanes =
                transports.map(|transports| placement.combine_lane_resources(links, pools, transports));
            LocalSessionEnd::Sink(Box::new(sink.setup), lanes)
        }
    }
}

/// Reports the data connections to the observer. The absence of any was reported before.
fn announce(context: &SessionContext<'_>, opened: usize, lane_count: usize, is_fabric: bool) {
    let (Some(observer), 1..) = (context.observer, opened) else { return };
    let AgreedTransferSpec { protection, cipher, streams, .. } = context.spec;
    let count = StreamCount::new(streams, lane_count as u16, context.settings.tunes);
    observer.handle_event(&TransferEvent::Connected {
        streams: count.used(opened) as u32,
        lanes: lane_count as u32,
        transport: if is_fabric { "fabric" } else { "tcp" },
        protection: Some(protection),
        cipher: protection.seals().then_some(cipher),
    });
}
