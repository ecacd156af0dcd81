//! A lane's fabric endpoint, from its opening to its hub.

use std::time::Duration;

use carrack_fabric::{
    EndpointOperationLimits, FabricEndpoint, FabricError, FabricInfoEntry, FabricMemoryAccess,
    ProviderOfferFilter, RegisteredPool, usable_offers,
};
use carrack_machine::SlotPool;

use super::sink::FabricSink;
use super::source::FabricSource;
use super::{FabricRequirements, FabricSinkEndpoints, FabricSourceEndpoints, FabricStreamTcpConnection};
use crate::endpoint_interface::TransportError;

/// An open endpoint with the lane's registered slots, and no peer yet.
pub struct UnconnectedFabricLane {
    endpoint: FabricEndpoint,
    name: Vec<u8>,
    slots: SlotPool,
    region: RegisteredPool,
}

impl std::fmt::Debug for UnconnectedFabricLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenLane({})", self.endpoint.description().provider)
    }
}

impl UnconnectedFabricLane {
    /// Opens a source's endpoint. The sink reads from these slots.
    ///
    /// # Errors
    /// The provider is missing, or does not take the memory.
    pub fn open_source(
        wanted: &FabricRequirements<'_>,
        shared: SlotPool,
    ) -> Result<UnconnectedFabricLane, String> {
        UnconnectedFabricLane::open(wanted, shared, FabricMemoryAccess::PeersRead)
            .map_err(|error| error.to_string())
    }

    /// Opens a sink's endpoint, which reads into these slots.
    ///
    /// # Errors
    /// The provider is missing, or does not take the memory.
    pub fn open_sink(
        wanted: &FabricRequirements<'_>,
        slots: SlotPool,
    ) -> Result<UnconnectedFabricLane, String> {
        UnconnectedFabricLane::open(wanted, slots, FabricMemoryAccess::Local)
            .map_err(|error| error.to_string())
    }

    fn open(
        wanted: &FabricRequirements<'_>,
        slots: SlotPool,
        sharing: FabricMemoryAccess,
    ) -> Result<UnconnectedFabricLane, FabricError> {
        let endpoint = FabricEndpoint::open(&nearest_offer(wanted)?, EndpointOperationLimits::default())?;
        let name = endpoint.name()?;
        let region = endpoint.register(&slots, sharing)?;
        Ok(UnconnectedFabricLane { endpoint, name, slots, region })
    }

    /// The endpoint's name for the other end, which gets it over the control channel.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The source's hub, connected to the sink's endpoint `peer`. An operation that is under way for longer
    /// than `stall` ends the session.
    ///
    /// # Errors
    /// `peer` is not a name of this provider.
    pub fn into_source(
        self,
        peer: &[u8],
        streams: Vec<FabricStreamTcpConnection>,
        stall: Duration,
    ) -> Result<FabricSourceEndpoints, TransportError> {
        let UnconnectedFabricLane { endpoint, slots, region, .. } = self;
        let (hub, ends) = FabricSource::new(endpoint, peer, streams, (&slots, region), stall)?;
        Ok((Box::new(hub), ends))
    }

    /// The sink's hub, connected to the source's endpoint `peer`; as
    /// [`into_source`](UnconnectedFabricLane::into_source).
    ///
    /// # Errors
    /// `peer` is not a name of this provider.
    pub fn into_sink(
        self,
        peer: &[u8],
        streams: Vec<FabricStreamTcpConnection>,
        stall: Duration,
    ) -> Result<FabricSinkEndpoints, TransportError> {
        let UnconnectedFabricLane { endpoint, slots, region, .. } = self;
        let (hub, ends) = FabricSink::new(endpoint, peer, streams, (slots, region), stall)?;
        Ok((Box::new(hub), ends))
    }
}

/// The first offer near the wanted nodes, or else the first one on the network, or else libfabric's first.
fn nearest_offer(wanted: &FabricRequirements<'_>) -> Result<FabricInfoEntry, FabricError> {
    let source = wanted.source.filter(|_| wanted.provider != "shm").map(|address| address.to_string());
    let mut offers =
        usable_offers(&ProviderOfferFilter { provider: Some(wanted.provider.to_owned()), source })?;
    let index = offers
        .iter()
        .position(|offer| is_on_network(offer, wanted) && is_near(offer, wanted))
        .or_else(|| offers.iter().position(|offer| is_on_network(offer, wanted)))
        .unwrap_or(0);
    Ok(offers.swap_remove(index))
}

fn is_on_network(offer: &FabricInfoEntry, wanted: &FabricRequirements<'_>) -> bool {
    wanted.network.is_empty() || offer.description.fabric == wanted.network
}

fn is_near(offer: &FabricInfoEntry, wanted: &FabricRequirements<'_>) -> bool {
    offer.description.numa_node.is_some_and(|node| wanted.nodes.contains(node))
}
