//! A lane's endpoint, from its opening to its hub.

use std::time::Duration;

use carrack_fabric::{Endpoint, FabricError, Filter, Limits, Offer, Region, Sharing, usable_offers};
use carrack_machine::SlotPool;

use super::sink::FabricSink;
use super::source::FabricSource;
use super::{Aside, SinkLane, SourceLane, Wanted};
use crate::endpoint::TransportError;

/// An endpoint that is open, with its lane's slots registered; no peer is known to it.
pub struct OpenLane {
    endpoint: Endpoint,
    name: Vec<u8>,
    slots: SlotPool,
    region: Region,
}

impl std::fmt::Debug for OpenLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenLane({})", self.endpoint.description().provider)
    }
}

impl OpenLane {
    /// At a source, whose other end shall read these slots.
    ///
    /// # Errors
    /// The provider is not there, or does not take the memory.
    pub fn of_source(wanted: &Wanted<'_>, shared: SlotPool) -> Result<OpenLane, String> {
        OpenLane::open(wanted, shared, Sharing::PeersRead).map_err(|error| error.to_string())
    }

    /// At a sink, which reads into these slots.
    ///
    /// # Errors
    /// The provider is not there, or does not take the memory.
    pub fn of_sink(wanted: &Wanted<'_>, slots: SlotPool) -> Result<OpenLane, String> {
        OpenLane::open(wanted, slots, Sharing::Local).map_err(|error| error.to_string())
    }

    fn open(wanted: &Wanted<'_>, slots: SlotPool, sharing: Sharing) -> Result<OpenLane, FabricError> {
        let endpoint = Endpoint::open(&nearest(wanted)?, Limits::default())?;
        let name = endpoint.name()?;
        let region = endpoint.register(&slots, sharing)?;
        Ok(OpenLane { endpoint, name, slots, region })
    }

    /// For the other end, which gets it over the control channel.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The source's hub, connected to the sink's of this name. An operation that is under way for longer than `stall` ends
    /// the session.
    ///
    /// # Errors
    /// It is no name of this provider's.
    pub fn into_source(
        self,
        peer: &[u8],
        streams: Vec<Aside>,
        stall: Duration,
    ) -> Result<SourceLane, TransportError> {
        let OpenLane { endpoint, slots, region, .. } = self;
        let (hub, ends) = FabricSource::new(endpoint, peer, streams, (&slots, region), stall)?;
        Ok((Box::new(hub), ends))
    }

    /// The sink's hub, connected to the source's of this name; as [`into_source`](OpenLane::into_source).
    ///
    /// # Errors
    /// It is no name of this provider's.
    pub fn into_sink(
        self,
        peer: &[u8],
        streams: Vec<Aside>,
        stall: Duration,
    ) -> Result<SinkLane, TransportError> {
        let OpenLane { endpoint, slots, region, .. } = self;
        let (hub, ends) = FabricSink::new(endpoint, peer, streams, (slots, region), stall)?;
        Ok((Box::new(hub), ends))
    }
}

/// Of what is offered, what is attached to the nodes, or else the library's favourite.
fn nearest(wanted: &Wanted<'_>) -> Result<Offer, FabricError> {
    let source = wanted.source.filter(|_| wanted.provider != "shm").map(|address| address.to_string());
    let mut offers = usable_offers(&Filter { provider: Some(wanted.provider.to_owned()), source })?;
    let is_on = |offer: &Offer| wanted.network.is_empty() || offer.description.fabric == wanted.network;
    let is_near = |offer: &Offer| {
        offer.description.numa_node.is_some_and(|node| wanted.nodes.contains(node)) && is_on(offer)
    };
    let place = offers.iter().position(is_near).or_else(|| offers.iter().position(is_on)).unwrap_or(0);
    Ok(offers.swap_remove(place))
}
