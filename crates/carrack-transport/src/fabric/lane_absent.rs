//! In place of a lane's endpoint, in a build without libfabric's headers: there is none.

use std::convert::Infallible;
use std::time::Duration;

use carrack_machine::SlotPool;

use super::{Aside, SinkLane, SourceLane, Wanted};
use crate::endpoint::TransportError;

/// An endpoint that is open. There is none.
#[derive(Debug)]
pub struct OpenLane(Infallible);

impl OpenLane {
    /// # Errors
    /// Always: why there is none.
    pub fn of_source(_wanted: &Wanted<'_>, _shared: SlotPool) -> Result<OpenLane, String> {
        Err(super::survey::ABSENT.to_owned())
    }

    /// # Errors
    /// Always: why there is none.
    pub fn of_sink(_wanted: &Wanted<'_>, _slots: SlotPool) -> Result<OpenLane, String> {
        Err(super::survey::ABSENT.to_owned())
    }

    /// Its name.
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
        _streams: Vec<Aside>,
        _stall: Duration,
    ) -> Result<SourceLane, TransportError> {
        match self.0 {}
    }

    /// The sink's hub.
    ///
    /// # Errors
    /// Never.
    pub fn into_sink(
        self,
        _peer: &[u8],
        _streams: Vec<Aside>,
        _stall: Duration,
    ) -> Result<SinkLane, TransportError> {
        match self.0 {}
    }
}
