//! A reliable datagram endpoint (fi_endpoint(3)) with its completion queue: messages, RMA reads, RMA writes.
//!
//! One thread at a time drives and polls an endpoint; only [`FabricEndpoint::wait`] waits. The number of
//! operations is bounded, so that the completion queue can't overflow; "full" is flow control and gives the
//! slot back.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carrack_machine::{Slot, SlotPool};

use crate::calls::{post_operation, read_completions, refusal};
use crate::core::{
    FabricEndpointResources, FabricMemoryAccess, RdmaWritableMemory, RegisteredPool, RemoteMemory,
};
use crate::error::{FabricError, FabricErrorScope};
use crate::event::{EndpointEvent, EndpointOperationLimits, FabricPostRefusal, RmaTransfer};
use crate::ffi;
use crate::name;
use crate::offer::{FabricInfoEntry, FabricInterfaceProperties};
use crate::pending_operations::{FabricOperationKind, FabricOperationTable, PendingOperation};
use crate::retained_shm_endpoints::{ShmEndpointsLock, ShmNameHolder};

/// Another endpoint, as known to this endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPeer {
    index: usize,
    endpoint: u64,
}

/// The time limit for operations under way when an endpoint is dropped. A living peer needs milliseconds.
const DRAIN: Duration = Duration::from_millis(500);

/// `FI_REMOTE_CQ_DATA`: a notice. Together with `FI_READ`, `FI_WRITE`, `FI_RECV` or `FI_SEND` it is the
/// completion of an operation of this end, with our context (`sockets` also marks the writer's completion).
const REMOTE_DATA: u64 = 1 << 17;
const OURS: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11;

/// Completions taken in one call of the library.
const BATCH: usize = 16;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A fabric endpoint.
pub struct FabricEndpoint {
    core: Arc<FabricEndpointResources>,
    id: u64,
    description: FabricInterfaceProperties,
    limits: EndpointOperationLimits,
    operations: Option<FabricOperationTable>,
    peers: Vec<u64>,
    messages: SlotPool,
    message_region: RegisteredPool,
    /// Slots for receives that could not be posted yet.
    unposted: Vec<Slot>,
    /// Endpoints kept open while this endpoint knows them. After `core`, which may use them when it closes.
    neighbours: Vec<Arc<FabricEndpointResources>>,
}

impl FabricEndpoint {
    /// Opens an endpoint on a domain of its own.
    pub fn open(
        offer: &FabricInfoEntry,
        limits: EndpointOperationLimits,
    ) -> Result<FabricEndpoint, FabricError> {
        let description = offer.description.clone();
        if !description.has_rma || !description.is_reliable_datagram {
            let words = "the provider has no reliable datagram endpoints with RMA";
            return Err(FabricError::own_error(description.provider, words, FabricErrorScope::Library));
        }
        let limits = limits.limited_by(&description);
        let core = Arc::new(FabricEndpointResources::open(
            offer,
            limits.operations + limits.receives + limits.notices,
        )?);
        let messages = limits.message_pool()?;
        let message_region = RegisteredPool::of_messages(&core, &messages)?;
        let unposted = (0..limits.receives).filter_map(|_| messages.try_lease()).collect();
        let mut endpoint = FabricEndpoint {
            core,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            description,
            limits,
            operations: Some(FabricOperationTable::new(limits.operations + limits.receives)),
            peers: Vec::new(),
            messages,
            message_region,
            unposted,
            neighbours: Vec::new(),
        };
        if endpoint.core.has_local_dependents() {
            ShmEndpointsLock::lock().add(endpoint.name()?, &endpoint.core);
        }
        endpoint.post_receives()?;
        Ok(endpoint)
    }

    /// The offer that the endpoint was opened with.
    pub fn description(&self) -> &FabricInterfaceProperties {
        &self.description
    }

    /// The granted limits.
    pub fn limits(&self) -> EndpointOperationLimits {
        self.limits
    }

    /// The endpoint's name, for a peer's [`add_peer`](FabricEndpoint::add_peer) (fi_getname(3)).
    #[allow(unsafe_code)]
    pub fn name(&self) -> Result<Vec<u8>, FabricError> {
        let mut name = [0u8; name::LIMIT_BYTES];
        let mut len = name.len();
        // SAFETY: writes at most `len` bytes, and their number to `len`.
        match unsafe { ffi::cf_name(self.core.raw(), name.as_mut_ptr(), &mut len) } {
            0 if len <= name.len() => Ok(name[..len].to_vec()),
            rc => Err(FabricError::of_call("fi_getname", rc, FabricErrorScope::Endpoint)),
        }
    }

    /// Adds a peer by its name (fi_av(3)). Sends nothing; the peer may not exist.
    pub fn add_peer(&mut self, name: &[u8]) -> Result<FabricPeer, FabricError> {
        if !name::is_plausible(name, &self.name()?, self.description.address_format) {
            return Err(refused_name("it is not one of this provider's"));
        }
        if !self.core.has_local_dependents() {
            return self.insert_peer(name);
        }
        let neighbours = ShmEndpointsLock::lock();
        match neighbours.find_holder(name) {
            ShmNameHolder::Elsewhere => self.insert_peer(name),
            ShmNameHolder::Closing => Err(refused_name("it is being closed")),
            ShmNameHolder::Here(core) => {
                // Released only when this endpoint is dropped, after the lock is free again.
                self.neighbours.push(core);
                self.insert_peer(name)
            }
        }
    }

    #[allow(unsafe_code)]
    fn insert_peer(&mut self, name: &[u8]) -> Result<FabricPeer, FabricError> {
        let mut peer = 0;
        // SAFETY: the name is as long as our own name, or ends in a NUL: the library reads no further.
        match unsafe { ffi::cf_add_peer(self.core.raw(), name.as_ptr(), &mut peer) } {
            0 => self.peers.push(peer),
            rc => return Err(FabricError::of_call("fi_av_insert", rc, FabricErrorScope::Operation)),
        }
        Ok(FabricPeer { index: self.peers.len() - 1, endpoint: self.id })
    }

    /// Registers a pool's memory for operations of this endpoint. Do so once: registering takes time
    /// (fi_mr(3)).
    pub fn register(
        &self,
        pool: &SlotPool,
        sharing: FabricMemoryAccess,
    ) -> Result<RegisteredPool, FabricError> {
        RegisteredPool::new(&self.core, pool, sharing)
    }

    /// Opens memory that peers may write to, rounded up to whole pages.
    pub fn open_window(&self, bytes: usize) -> Result<RdmaWritableMemory, FabricError> {
        RdmaWritableMemory::new(&self.core, bytes)
    }

    /// Sends a copy of a message of at most `message_bytes`. Returns false while the limit of operations is
    /// reached.
    pub fn send(&mut self, peer: FabricPeer, message: &[u8], tag: u64) -> Result<bool, FabricError> {
        if message.len() > self.limits.message_bytes {
            return Err(FabricError::own_error(
                FabricOperationKind::Send.name(),
                "it is longer than messages may be",
                FabricErrorScope::Operation,
            ));
        }
        let Some(mut slot) = self.messages.try_lease() else { return Ok(false) };
        slot.bytes_mut()[..message.len()].copy_from_slice(message);
        let place = RemoteMemory { address: 0, key: 0 };
        let transfer = RmaTransfer { slot, at: 0, bytes: message.len(), place, tag };
        let region = self.message_region.clone();
        match self.post_transfer(FabricOperationKind::Send, Some(peer), &region, transfer, None) {
            Ok(()) => Ok(true),
            Err(FabricPostRefusal::Full(_)) => Ok(false),
            Err(FabricPostRefusal::Failed(_, error)) => Err(error),
        }
    }

    /// Reads from the peer's memory into a slot of `region` (fi_rma(3)).
    pub fn read(
        &mut self,
        peer: FabricPeer,
        region: &RegisteredPool,
        transfer: RmaTransfer,
    ) -> Result<(), FabricPostRefusal> {
        self.post_transfer(FabricOperationKind::Read, Some(peer), region, transfer, None)
    }

    /// Writes from a slot of `region` into the peer's window (fi_rma(3)), and leaves a notice if one is given
    /// and the provider supports it (`notice_bytes` of its description).
    pub fn write(
        &mut self,
        peer: FabricPeer,
        region: &RegisteredPool,
        transfer: RmaTransfer,
        notice: Option<u64>,
    ) -> Result<(), FabricPostRefusal> {
        self.post_transfer(FabricOperationKind::Write, Some(peer), region, transfer, notice)
    }

    /// The reason why the operation can't be posted, if there is one.
    fn rejection_reason(
        &self,
        kind: FabricOperationKind,
        peer: Option<FabricPeer>,
        region: &RegisteredPool,
        transfer: &RmaTransfer,
    ) -> Option<&'static str> {
        let is_rma = matches!(kind, FabricOperationKind::Read | FabricOperationKind::Write);
        let end = transfer.at.checked_add(transfer.bytes);
        if peer.is_some_and(|peer| peer.endpoint != self.id) {
            Some("the peer is another endpoint's")
        } else if !region.belongs_to(&self.core) || region.offset_of(&transfer.slot).is_none() {
            Some("the slot is not in this endpoint's registered memory")
        } else if end.is_none_or(|end| end > transfer.slot.bytes().len()) {
            Some("it goes beyond the slot's end")
        } else if is_rma
            && (transfer.bytes == 0 || transfer.bytes as u64 > self.description.max_message_bytes)
        {
            Some("the provider can't move that many bytes at once")
        } else {
            None
        }
    }

    fn post_transfer(
        &mut self,
        kind: FabricOperationKind,
        peer: Option<FabricPeer>,
        region: &RegisteredPool,
        transfer: RmaTransfer,
        notice: Option<u64>,
    ) -> Result<(), FabricPostRefusal> {
        if let Some(words) = self.rejection_reason(kind, peer, region, &transfer) {
            return Err(FabricPostRefusal::Failed(
                transfer.slot,
                FabricError::own_error(kind.name(), words, FabricErrorScope::Operation),
            ));
        }
        let RmaTransfer { mut slot, at, bytes, place, tag } = transfer;
        let buffer: *mut c_void = slot.bytes_mut()[at..at + bytes].as_mut_ptr().cast();
        let peer = peer.map_or(0, |peer| self.peers[peer.index]);
        let operation = PendingOperation { kind, tag, slot, region: region.clone(), began: Instant::now() };
        let operations = self.operations.as_mut().expect("there until the endpoint is dropped");
        let context =
            operations.add(operation).map_err(|operation| FabricPostRefusal::Full(operation.slot))?;
        let post = ffi::RawFabricPost {
            buffer,
            len: bytes as u64,
            region: region.raw(),
            peer,
            address: place.address,
            key: place.key,
            data: notice.unwrap_or(0),
            has_data: notice.is_some().into(),
            context,
        };
        match post_operation(&self.core, kind, &post) {
            0 => Ok(()),
            rc => {
                let operation = operations.take(context).expect("just added");
                Err(refusal(kind, rc, operation.slot))
            }
        }
    }

    /// Posts the buffers for peers' messages again.
    fn post_receives(&mut self) -> Result<(), FabricError> {
        while let Some(slot) = self.unposted.pop() {
            let place = RemoteMemory { address: 0, key: 0 };
            let transfer = RmaTransfer { slot, at: 0, bytes: self.limits.message_bytes, place, tag: 0 };
            let region = self.message_region.clone();
            match self.post_transfer(FabricOperationKind::Receive, None, &region, transfer, None) {
                Ok(()) => {}
                Err(FabricPostRefusal::Full(slot)) => {
                    self.unposted.push(slot);
                    return Ok(());
                }
                Err(FabricPostRefusal::Failed(_, error)) => {
                    return Err(FabricError { scope: FabricErrorScope::Endpoint, ..error });
                }
            }
        }
        Ok(())
    }

    /// Makes progress and appends events without waiting. Returns their number. After an error the endpoint
    /// is unusable.
    pub fn poll(&mut self, events: &mut Vec<EndpointEvent>) -> Result<usize, FabricError> {
        let before = events.len();
        let mut batch = [ffi::RawCompletion::EMPTY; BATCH];
        loop {
            let count = read_completions(&self.core, &mut batch)?;
            for completion in &batch[..count] {
                events.extend(self.complete_operation(completion)?);
            }
            if !self.unposted.is_empty() {
                self.post_receives()?;
            }
            if count < BATCH {
                return Ok(events.len() - before);
            }
        }
    }

    fn complete_operation(
        &mut self,
        completion: &ffi::RawCompletion,
    ) -> Result<Option<EndpointEvent>, FabricError> {
        let is_notice = completion.flags & REMOTE_DATA != 0 && completion.flags & OURS == 0;
        if is_notice && completion.status == 0 {
            return Ok(Some(EndpointEvent::PeerWrote(completion.data)));
        }
        let operations = self.operations.as_mut().expect("there until the endpoint is dropped");
        let Some(operation) = operations.take(completion.context) else {
            return self.handle_unknown_completion(completion);
        };
        let PendingOperation { kind, tag, slot, .. } = operation;
        let result = match completion.status {
            0 => Ok(()),
            _ => Err(FabricError::of_completion(kind.name(), completion)),
        };
        Ok(Some(match kind {
            FabricOperationKind::Send => EndpointEvent::Sent { tag, result },
            FabricOperationKind::Read => EndpointEvent::Read { tag, slot, result },
            FabricOperationKind::Write => EndpointEvent::Written { tag, slot, result },
            FabricOperationKind::Receive => {
                let len = (completion.len as usize).min(self.limits.message_bytes);
                let message = slot.bytes()[..len].to_vec();
                self.unposted.push(slot);
                result.map_or_else(EndpointEvent::ReceiveFailed, |()| EndpointEvent::Message(message))
            }
        }))
    }

    /// A completion without an operation: the failure of a peer's operation, which the peer handles, or an
    /// error of the library.
    fn handle_unknown_completion(
        &self,
        completion: &ffi::RawCompletion,
    ) -> Result<Option<EndpointEvent>, FabricError> {
        if completion.status != 0 {
            return Ok(None);
        }
        let words = format!("of no operation, flags {:#x}", completion.flags);
        Err(FabricError::own_error("a completion", words, FabricErrorScope::Endpoint))
    }

    fn drain(&mut self) {
        let (mut events, began) = (Vec::new(), Instant::now());
        while self.operations_under_way() > 0 && began.elapsed() < DRAIN {
            if self.poll(&mut events).is_err() || self.wait(Duration::from_millis(1)).is_err() {
                return;
            }
        }
    }

    /// Operations of this end that are not complete.
    pub fn operations_under_way(&self) -> usize {
        self.operations
            .as_ref()
            .map_or(0, |operations| operations.count(|kind| kind != FabricOperationKind::Receive))
    }

    /// The age of the oldest operation under way. Some providers don't report a lost peer, so the caller
    /// needs a time limit, after which it closes the endpoint and gets its slots back.
    pub fn oldest_operation_age(&self) -> Option<Duration> {
        Some(self.operations.as_ref()?.oldest_post_time()?.elapsed())
    }

    pub(crate) fn core(&self) -> &FabricEndpointResources {
        &self.core
    }
}

impl Drop for FabricEndpoint {
    /// Waits half a second for operations under way and cancels the rest. The slots of the rest return to
    /// their pools with the domain, when the last region and window of this endpoint is dropped; on `ofi_rxm`
    /// they never do.
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.drain();
        let left = self.operations_under_way();
        let Some(operations) = self.operations.take() else { return };
        if left > 0 && self.description.provider.contains("ofi_rxm") {
            // Closing it now would crash in its flush (seen with 1.17 and reads under way; libfabric's issue
            // 11828 is about 2.4). The leaked regions keep the domain open for ever too.
            std::mem::forget(operations);
            return;
        }
        if !self.core.has_local_dependents() {
            // SAFETY: our own endpoint. If it can't be closed yet, the core tries again.
            let _ = unsafe { ffi::cf_close_endpoint(self.core.raw()) };
        }
        let (contexts, slots, regions) = operations.into_parts();
        self.core.keep_until_closed((contexts, slots));
        drop(regions);
        // Unposted slots are of the same pool.
        self.core.keep_until_closed(std::mem::take(&mut self.unposted));
    }
}

fn refused_name(words: &str) -> FabricError {
    FabricError::own_error("a peer's name", words, FabricErrorScope::Operation)
}
