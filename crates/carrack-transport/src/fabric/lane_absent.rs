//! Replaces a lane's endpoint in a build without libfabric's headers: every call to open it fails.

use std::convert::Infallible;
use std::time::Duration;

use carrack_machine::SlotPool;

use super::{FabricRequirements, FabricSinkEndpoints, FabricSourceEndpoints, FabricStreamTcpConnection};
use crate::endpoint_interface::TransportError;

/// An open endpoint, of which this build has none.
#[derive(Debug)]
pub struct AbsentFabricLane(Infallible);

/// The name under which a build with libfabric has its endpoint.
pub type UnconnectedFabricLane = AbsentFabricLane;

impl AbsentFabricLane {
    /// # Errors
    /// Always, with the reason.
    pub fn open_source(
        _wanted: &FabricRequirements<'_>,
        _shared: SlotPool,
    ) -> Result<UnconnectedFabricLane, String> {
        Err(super::survey::ABSENT.to_owned())
    }

    /// # Errors
    /// Always, with the reason.
    pub fn open_sink(
        _wanted: &FabricRequirements<'_>,
        _slots: SlotPool,
    ) -> Result<UnconnectedFabricLane, String> {
        Err(super::survey::ABSENT.to_owned())
    }

    /// The endpoint's name.
    pub fn name(&self) -> &[u8] {
        match self.0 {}
    }

    /// The source's hub.
    ///
    /// # Errors
    /// Never.
    pub fn into_source(
        self,
        _peer: &[u8],
        _streams: Vec<FabricStreamTcpConnection>,
        _stall: Duration,
    ) -> Result<FabricSourceEndpoints, TransportError> {
        match self.0 {}
    }

    /// The sink's hub.
    ///
    /// # Errors
    /// Never.
    pub fn into_sink(
        self,
        _peer: &[u8],
        _streams: Vec<FabricStreamTcpConnection>,
        _stall: Duration,
    ) -> Result<FabricSinkEndpoints, TransportError> {
        match self.0 {}
    }
}
