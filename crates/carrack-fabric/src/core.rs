//! The libfabric objects of one endpoint, and the memory that they may touch.
//!
//! Some providers serve a peer's read or write in pieces from this process, and don't hold the region until
//! the end (tcp;ofi_rxm of 1.17 checks the key once and then uses the address). So memory that was registered
//! or given to an operation is kept until all objects of the endpoint are closed, and for ever if that fails.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_machine::{Slot, SlotPool};

use crate::error::{FabricError, FabricErrorScope};
use crate::ffi::{self, RegistrationPurpose};
use crate::offer::FabricInfoEntry;
use crate::retained_shm_endpoints::ShmEndpointsLock;

/// Fabric, domain, address vector, completion queue and endpoint. Closed when the last user is dropped.
pub(crate) struct FabricEndpointResources {
    raw: NonNull<ffi::RawFabricEndpoint>,
    /// Memory that is freed only after the objects are closed.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    by_address: bool,
    key_mask: u64,
    /// True if endpoints of this process map each other's memory ([`ShmEndpointsLock`]).
    has_neighbours: bool,
}

// SAFETY: the domain is opened with FI_THREAD_SAFE (shim.c), so that any thread may call for any of its
// objects.
#[allow(unsafe_code)]
unsafe impl Send for FabricEndpointResources {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for FabricEndpointResources {}

impl FabricEndpointResources {
    /// Opens all objects. The queue has room for `completions`.
    #[allow(unsafe_code)]
    pub(crate) fn open(
        offer: &FabricInfoEntry,
        completions: usize,
    ) -> Result<FabricEndpointResources, FabricError> {
        let (mut raw, mut what) = (ptr::null_mut(), ptr::null());
        // SAFETY: an entry of the library's list. The call writes both outputs before it returns.
        let rc = unsafe { ffi::cf_open(offer.info(), completions as u64, &mut raw, &mut what) };
        let raw = NonNull::new(raw)
            .filter(|_| rc == 0)
            .ok_or_else(|| FabricError::of_call(static_text(what), rc, FabricErrorScope::Endpoint))?;
        let description = &offer.description;
        let key_mask =
            if description.key_bytes >= 8 { u64::MAX } else { (1 << (8 * description.key_bytes)) - 1 };
        let has_neighbours = description.provider.contains("shm");
        Ok(FabricEndpointResources {
            raw,
            kept: Mutex::default(),
            by_address: description.by_address,
            key_mask,
            has_neighbours,
        })
    }

    /// Returns true if the endpoint must stay open while another endpoint of this process uses it.
    pub(crate) fn has_local_dependents(&self) -> bool {
        self.has_neighbours
    }

    /// The endpoint for calls of the shim.
    pub(crate) fn raw(&self) -> *mut ffi::RawFabricEndpoint {
        self.raw.as_ptr()
    }

    /// Keeps a value until all objects are closed.
    pub(crate) fn keep_until_closed(&self, what: impl Any + Send) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }

    /// Registers `memory` (fi_mr(3)). A key of our choice is random, as any peer with the key may use the
    /// memory.
    fn register(
        &self,
        memory: *mut [u8],
        purpose: RegistrationPurpose,
    ) -> Result<(NonNull<ffi::RawRegion>, u64), FabricError> {
        self.register_as(memory, purpose, random_key()? & self.key_mask)
    }

    #[allow(unsafe_code)]
    fn register_as(
        &self,
        memory: *mut [u8],
        purpose: RegistrationPurpose,
        wish: u64,
    ) -> Result<(NonNull<ffi::RawRegion>, u64), FabricError> {
        let (mut region, mut key) = (ptr::null_mut(), 0);
        let (base, len) = (memory.cast(), memory.len());
        // SAFETY: the region's owner and then `kept` keep the memory until all objects are closed. Local
        // operations own the slot, and peers may write only to a window's memory, to which no reference is
        // ever made.
        let rc = unsafe { ffi::cf_register(self.raw(), base, len, purpose, wish, &mut region, &mut key) };
        Ok((
            NonNull::new(region).filter(|_| rc == 0).ok_or_else(|| FabricError::of_registering(len, rc))?,
            key,
        ))
    }
}

impl Drop for FabricEndpointResources {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let mut what = ptr::null();
        let mut neighbours = self.has_neighbours.then(ShmEndpointsLock::lock);
        // SAFETY: opened once and closed once, without other users. All regions are gone, as each holds the
        // core.
        let rc = unsafe { ffi::cf_close(self.raw(), &mut what) };
        if let Some(neighbours) = &mut neighbours {
            neighbours.remove(self);
        }
        drop(neighbours);
        if rc != 0 {
            // An object that stayed open may still touch the memory.
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(kept));
        }
    }
}

fn random_key() -> Result<u64, FabricError> {
    let mut key = [0; 8];
    let got = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(8) => Ok(u64::from_ne_bytes(key)),
        _ => Err(FabricError::own_error(
            "a key",
            "the kernel gives no random numbers",
            FabricErrorScope::Endpoint,
        )),
    }
}

#[allow(unsafe_code)]
fn static_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the shim's literals.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The allowed users of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricMemoryAccess {
    /// Only operations of this end.
    Local,
    /// Also peers with the key, which may read all of the memory at any time.
    PeersRead,
}

/// A location in one end's memory, for the operations of the other end. It travels over the control channel,
/// which must be encrypted on an untrusted network: the key gives access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// An address or an offset, as the provider requires.
    pub address: u64,
    /// The region's key.
    pub key: u64,
}

impl RemoteMemory {
    /// The location `bytes` further on.
    pub fn plus(self, bytes: u64) -> RemoteMemory {
        RemoteMemory { address: self.address.wrapping_add(bytes), key: self.key }
    }
}

/// Registered memory that is deregistered when dropped.
struct RegisteredMemory {
    raw: NonNull<ffi::RawRegion>,
    base: usize,
    len: usize,
    key: u64,
    core: Arc<FabricEndpointResources>,
    pool: SlotPool,
}

// SAFETY: as for `FabricEndpointResources`; its values never change.
#[allow(unsafe_code)]
unsafe impl Send for RegisteredMemory {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for RegisteredMemory {}

impl RegisteredMemory {
    fn new(
        core: &Arc<FabricEndpointResources>,
        pool: &SlotPool,
        purpose: RegistrationPurpose,
    ) -> Result<RegisteredMemory, FabricError> {
        let memory = pool.memory();
        let (raw, key) = core.register(memory, purpose)?;
        let (base, len) = (memory.cast::<u8>().addr(), memory.len());
        Ok(RegisteredMemory { raw, base, len, key, core: Arc::clone(core), pool: pool.clone() })
    }

    fn remote_memory_at(&self, offset: usize) -> RemoteMemory {
        let start = if self.core.by_address { self.base as u64 } else { 0 };
        RemoteMemory { address: start + offset as u64, key: self.key }
    }
}

impl Drop for RegisteredMemory {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.core.keep_until_closed(self.pool.clone());
        // SAFETY: registered once and closed once; operations on the region hold it. If this fails, the
        // domain can't be closed either, and `FabricEndpointResources` leaks both.
        let _ = unsafe { ffi::cf_deregister(self.raw.as_ptr()) };
    }
}

/// A registered pool: operations move its slots. Clones share the registration, which ends when the last
/// clone is dropped and no operation uses it.
#[derive(Clone)]
pub struct RegisteredPool {
    registered: Arc<RegisteredMemory>,
}

impl RegisteredPool {
    pub(crate) fn new(
        core: &Arc<FabricEndpointResources>,
        pool: &SlotPool,
        sharing: FabricMemoryAccess,
    ) -> Result<RegisteredPool, FabricError> {
        let purpose = if sharing == FabricMemoryAccess::PeersRead {
            RegistrationPurpose::PeersRead
        } else {
            RegistrationPurpose::OwnRma
        };
        Ok(RegisteredPool { registered: Arc::new(RegisteredMemory::new(core, pool, purpose)?) })
    }

    /// A region for messages only.
    pub(crate) fn of_messages(
        core: &Arc<FabricEndpointResources>,
        pool: &SlotPool,
    ) -> Result<RegisteredPool, FabricError> {
        Ok(RegisteredPool {
            registered: Arc::new(RegisteredMemory::new(core, pool, RegistrationPurpose::Messages)?),
        })
    }

    /// The location of a slot for peers; `None` for a slot of another pool.
    pub fn remote_memory_of(&self, slot: &Slot) -> Option<RemoteMemory> {
        Some(self.registered.remote_memory_at(self.offset_of(slot)?))
    }

    /// Returns true if an operation or a clone also holds the region. Dropping it then does not deregister it
    /// yet.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.registered) > 1
    }

    pub(crate) fn offset_of(&self, slot: &Slot) -> Option<usize> {
        let bytes = slot.bytes();
        let offset = bytes.as_ptr().addr().checked_sub(self.registered.base)?;
        (offset + bytes.len() <= self.registered.len).then_some(offset)
    }

    pub(crate) fn belongs_to(&self, core: &Arc<FabricEndpointResources>) -> bool {
        Arc::ptr_eq(&self.registered.core, core)
    }

    pub(crate) fn raw(&self) -> *mut ffi::RawRegion {
        self.registered.raw.as_ptr()
    }
}

/// Memory that peers may write to until the endpoint is closed. Callers get copies only, never a reference. A
/// provider may still write after the window is dropped, if a peer began the write before.
pub struct RdmaWritableMemory {
    registered: RegisteredMemory,
}

impl RdmaWritableMemory {
    pub(crate) fn new(
        core: &Arc<FabricEndpointResources>,
        bytes: usize,
    ) -> Result<RdmaWritableMemory, FabricError> {
        let bytes = bytes.next_multiple_of(4096);
        let pool = SlotPool::new(bytes as u64, bytes).map_err(|error| {
            FabricError::own_error("a window", error.to_string(), FabricErrorScope::Endpoint)
        })?;
        Ok(RdmaWritableMemory {
            registered: RegisteredMemory::new(core, &pool, RegistrationPurpose::PeersWrite)?,
        })
    }

    /// The location for peers' writes at this offset.
    pub fn remote_memory_at(&self, offset: usize) -> RemoteMemory {
        self.registered.remote_memory_at(offset)
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.registered.len
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the current content.
    ///
    /// # Panics
    /// If the range is not within the window.
    #[allow(unsafe_code)]
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        let end = offset.checked_add(to.len());
        assert!(end.is_some_and(|end| end <= self.len()), "a copy beyond the window's end");
        let start = self.registered.pool.memory().cast::<u8>().wrapping_add(offset);
        let mut words = to.chunks_exact_mut(8);
        for (i, word) in words.by_ref().enumerate() {
            let at = start.wrapping_add(8 * i).cast::<[u8; 8]>();
            // SAFETY: within the window, which has no references. Volatile, as a peer may write at the same
            // time; the bytes are then arbitrary.
            word.copy_from_slice(&unsafe { at.read_volatile() });
        }
        let done = to.len() / 8 * 8;
        for (i, byte) in to[done..].iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { start.wrapping_add(done + i).read_volatile() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::{ProviderOfferFilter, usable_offers};

    /// A key in use is the only refusal that needs no hardware. With hardware it is the limit of locked
    /// memory.
    #[test]
    #[allow(unsafe_code)]
    fn a_registration_that_fails_says_so() {
        let filter =
            ProviderOfferFilter { provider: Some("tcp;ofi_rxm".into()), source: Some("127.0.0.1".into()) };
        let offers = match usable_offers(&filter) {
            Ok(offers) => offers,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let core = FabricEndpointResources::open(&offers[0], 16).expect("a domain");
        let pool = SlotPool::new(8192, 4096).expect("a pool");
        let (first, key) =
            core.register_as(pool.memory(), RegistrationPurpose::OwnRma, 7).expect("registered");
        let error =
            core.register_as(pool.memory(), RegistrationPurpose::OwnRma, 7).expect_err("the key is taken");
        assert_eq!((key, error.scope), (7, FabricErrorScope::Endpoint));
        assert!(error.to_string().starts_with("registering 8 KiB: ") && error.code > 0, "{error}");
        // SAFETY: registered above, not used.
        assert_eq!(unsafe { ffi::cf_deregister(first.as_ptr()) }, 0);
    }
}
