//! The endpoints of a stream: the loopback's endpoints with the stream's seal.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use carrack_machine::SlotPool;

use crate::endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ObjectPayload, OutgoingObject, ReceiveEndpoint, ReceiveResult,
    SenderReadiness, TransportError, TransportSendEndpoint,
};
use crate::loopback::{LoopbackReceiver, LoopbackSender, NO_TAG};
use crate::seal::{ConnectionCipherState, SealTag};

/// The sender's wait for a free shared slot.
const SLOT_WAIT: Duration = Duration::from_micros(200);

/// The source's end.
pub(super) struct FabricSender {
    hub: LoopbackSender,
    seal: Option<ConnectionCipherState>,
    /// Set at protection level `private`: the slots that the other end may read, for sealed objects only. The
    /// slots with plain file data are then not readable for it.
    shared: Option<SlotPool>,
    /// An unsealed object that waits for a shared slot.
    waiting: Option<OutgoingObject>,
}

impl FabricSender {
    pub(super) fn new(
        hub: LoopbackSender,
        seal: Option<ConnectionCipherState>,
        shared: &SlotPool,
    ) -> FabricSender {
        let hides = seal.as_ref().is_some_and(ConnectionCipherState::encrypts);
        FabricSender { hub, seal, shared: hides.then(|| shared.clone()), waiting: None }
    }

    /// Seals the waiting object and gives it to the hub, if a slot is free.
    fn submit_waiting(&mut self) {
        let Some(OutgoingObject { header, payload }) = self.waiting.take() else { return };
        let ObjectPayload::Slot(mut slot) = payload else { return };
        let len = header.body_len as usize;
        if let Some(shared) = &self.shared {
            let Some(mut sealed) = shared.try_lease() else {
                self.waiting = Some(OutgoingObject { header, payload: ObjectPayload::Slot(slot) });
                return;
            };
            sealed.bytes_mut()[..len].copy_from_slice(&slot.bytes()[..len]);
            slot = sealed;
        }
        let tag = match &mut self.seal {
            Some(seal) => seal.seal(&header.encode(), &mut slot.bytes_mut()[..len]),
            None => NO_TAG,
        };
        let refused =
            self.hub.post_tagged(OutgoingObject { header, payload: ObjectPayload::Slot(slot) }, tag).is_err();
        debug_assert!(!refused, "it had room when the object was taken, and nobody else brings any");
    }
}

impl TransportSendEndpoint for FabricSender {
    fn seals(&self) -> bool {
        self.seal.is_some()
    }

    fn post(&mut self, outgoing: OutgoingObject) -> Result<(), OutgoingObject> {
        let is_full =
            self.hub.advance(EndpointWaitLimit::None).is_ok_and(|state| state == SenderReadiness::Busy);
        if is_full || self.waiting.is_some() || matches!(outgoing.payload, ObjectPayload::Extent(_)) {
            return Err(outgoing);
        }
        self.waiting = Some(outgoing);
        self.submit_waiting();
        Ok(())
    }

    fn advance(&mut self, patience: EndpointWaitLimit) -> Result<SenderReadiness, TransportError> {
        self.submit_waiting();
        if self.waiting.is_some() {
            self.hub.advance(EndpointWaitLimit::None)?;
            if patience == EndpointWaitLimit::Brief {
                std::thread::sleep(SLOT_WAIT);
            }
            return Ok(SenderReadiness::Busy);
        }
        self.hub.advance(patience)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.hub.readiness()
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.hub.finish()
    }
}

/// The sink's end.
pub(super) struct FabricReceiver {
    hub: LoopbackReceiver,
    seal: Option<ConnectionCipherState>,
    arrived: Arc<AtomicU64>,
}

impl FabricReceiver {
    pub(super) fn new(hub: LoopbackReceiver, seal: Option<ConnectionCipherState>) -> FabricReceiver {
        FabricReceiver { hub, seal, arrived: Arc::default() }
    }

    fn open(
        &mut self,
        mut incoming: IncomingObject,
        tag: &SealTag,
    ) -> Result<IncomingObject, TransportError> {
        let len = incoming.header.body_len as usize;
        if let Some(seal) = &mut self.seal {
            seal.open(&incoming.header.encode(), &mut incoming.slot.bytes_mut()[..len], tag)?;
        }
        self.arrived.fetch_add(len as u64, Relaxed);
        Ok(incoming)
    }
}

impl ReceiveEndpoint for FabricReceiver {
    fn advance(
        &mut self,
        patience: EndpointWaitLimit,
        _slots: &SlotPool,
    ) -> Result<ReceiveResult, TransportError> {
        match self.hub.take_tagged(patience) {
            (ReceiveResult::Object(incoming), tag) => Ok(ReceiveResult::Object(self.open(incoming, &tag)?)),
            (other, _) => Ok(other),
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.hub.readiness()
    }

    fn count_received_bytes(&mut self, arrived: Arc<AtomicU64>) {
        self.arrived = arrived;
    }
}
