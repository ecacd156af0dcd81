//! The library's objects of one endpoint, and the memory that they may touch.
//!
//! Some providers serve a peer's read or write in pieces, from this process, and don't hold a region for that long
//! (tcp;ofi_rxm of 1.17 checks the key once and then goes on by address). So memory that was ever registered or given
//! to an operation is kept until everything of the endpoint is closed, and for ever if that fails.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_machine::{Slot, SlotPool};

use crate::error::{FabricError, Scope};
use crate::ffi::{self, Purpose};
use crate::neighbours::Neighbours;
use crate::offer::Offer;

/// Fabric, domain, address vector, completion queue and endpoint: closed when the last that needs them is gone.
pub(crate) struct Core {
    raw: NonNull<ffi::Endpoint>,
    /// What is let go only after them.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    by_address: bool,
    key_mask: u64,
    /// Whether endpoints of this process share memory that goes with one of them ([`Neighbours`]).
    has_neighbours: bool,
}

// SAFETY: the domain was asked for as FI_THREAD_SAFE (shim.c), so that any thread may call for any of its objects.
#[allow(unsafe_code)]
unsafe impl Send for Core {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for Core {}

impl Core {
    /// Opens all; `completions` may wait in the queue.
    #[allow(unsafe_code)]
    pub(crate) fn open(offer: &Offer, completions: usize) -> Result<Core, FabricError> {
        let (mut raw, mut what) = (ptr::null_mut(), ptr::null());
        // SAFETY: an entry of the library's list; the two places are written before the call returns.
        let rc = unsafe { ffi::cf_open(offer.info(), completions as u64, &mut raw, &mut what) };
        let failed = |rc| FabricError::of_call(static_text(what), rc, Scope::Endpoint);
        let raw = NonNull::new(raw).filter(|_| rc == 0).ok_or_else(|| failed(rc))?;
        let description = &offer.description;
        let key_mask =
            if description.key_bytes >= 8 { u64::MAX } else { (1 << (8 * description.key_bytes)) - 1 };
        let has_neighbours = description.provider.contains("shm");
        Ok(Core { raw, kept: Mutex::default(), by_address: description.by_address, key_mask, has_neighbours })
    }

    /// Whether it has to stay open as long as somebody in this process knows it.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.has_neighbours
    }

    /// For calls of the shim.
    pub(crate) fn raw(&self) -> *mut ffi::Endpoint {
        self.raw.as_ptr()
    }

    /// Keeps something until all is closed.
    pub(crate) fn keep(&self, what: impl Any + Send) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }

    /// Registers `memory` (fi_mr(3)). A key that is ours to choose is a random one: whoever knows it may use it.
    fn register(
        &self,
        memory: *mut [u8],
        purpose: Purpose,
    ) -> Result<(NonNull<ffi::Region>, u64), FabricError> {
        self.register_as(memory, purpose, random_key()? & self.key_mask)
    }

    #[allow(unsafe_code)]
    fn register_as(
        &self,
        memory: *mut [u8],
        purpose: Purpose,
        wish: u64,
    ) -> Result<(NonNull<ffi::Region>, u64), FabricError> {
        let (mut region, mut key) = (ptr::null_mut(), 0);
        let (base, len) = (memory.cast(), memory.len());
        // SAFETY: the memory is kept by the region's owner, and then by `kept`, until all is closed; local operations
        // on it have the slot, and peers may write only to a window's, to which no reference is ever made.
        let rc = unsafe { ffi::cf_register(self.raw(), base, len, purpose, wish, &mut region, &mut key) };
        Ok((
            NonNull::new(region).filter(|_| rc == 0).ok_or_else(|| FabricError::of_registering(len, rc))?,
            key,
        ))
    }
}

impl Drop for Core {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let mut what = ptr::null();
        let mut neighbours = self.has_neighbours.then(Neighbours::lock);
        // SAFETY: opened once, closed once, nobody else has it; regions are gone, as each holds this.
        let rc = unsafe { ffi::cf_close(self.raw(), &mut what) };
        if let Some(neighbours) = &mut neighbours {
            neighbours.forget(self);
        }
        drop(neighbours);
        if rc != 0 {
            // What is open may still touch it.
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
        _ => Err(FabricError::ours("a key", "the kernel gives no random numbers", Scope::Endpoint)),
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

/// Who may use a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only our own operations.
    Local,
    /// Peers, too, may read all of it, at any time, if they have the key.
    PeersRead,
}

/// A place in the memory of one end, for the other's operations. Travels over the control channel, which has to be
/// encrypted where the network isn't trusted: who has the key may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// An address or an offset: what the provider asks for.
    pub address: u64,
    /// The region's key.
    pub key: u64,
}

impl Place {
    /// So many bytes further on.
    pub fn plus(self, bytes: u64) -> Place {
        Place { address: self.address.wrapping_add(bytes), key: self.key }
    }
}

/// Registered memory that is deregistered when dropped.
struct Registered {
    raw: NonNull<ffi::Region>,
    base: usize,
    len: usize,
    key: u64,
    core: Arc<Core>,
    pool: SlotPool,
}

// SAFETY: as for `Core`; nothing in it changes.
#[allow(unsafe_code)]
unsafe impl Send for Registered {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for Registered {}

impl Registered {
    fn new(core: &Arc<Core>, pool: &SlotPool, purpose: Purpose) -> Result<Registered, FabricError> {
        let memory = pool.memory();
        let (raw, key) = core.register(memory, purpose)?;
        let (base, len) = (memory.cast::<u8>().addr(), memory.len());
        Ok(Registered { raw, base, len, key, core: Arc::clone(core), pool: pool.clone() })
    }

    fn place(&self, offset: usize) -> Place {
        let start = if self.core.by_address { self.base as u64 } else { 0 };
        Place { address: start + offset as u64, key: self.key }
    }
}

impl Drop for Registered {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.core.keep(self.pool.clone());
        // SAFETY: registered once and closed once; operations on it hold it. Where it fails the domain can't be closed
        // either, and `Core` leaks both.
        let _ = unsafe { ffi::cf_deregister(self.raw.as_ptr()) };
    }
}

/// A pool's memory, registered as a whole: its slots are what operations move. Clones share it; deregistered when the last
/// is dropped and no operation uses it.
#[derive(Clone)]
pub struct Region {
    registered: Arc<Registered>,
}

impl Region {
    pub(crate) fn new(core: &Arc<Core>, pool: &SlotPool, sharing: Sharing) -> Result<Region, FabricError> {
        let purpose = if sharing == Sharing::PeersRead { Purpose::PeersRead } else { Purpose::OwnRma };
        Ok(Region { registered: Arc::new(Registered::new(core, pool, purpose)?) })
    }

    /// For messages and nothing else.
    pub(crate) fn of_messages(core: &Arc<Core>, pool: &SlotPool) -> Result<Region, FabricError> {
        Ok(Region { registered: Arc::new(Registered::new(core, pool, Purpose::Messages)?) })
    }

    /// Where peers find a slot of this pool; nothing for other pools' slots.
    pub fn place_of(&self, slot: &Slot) -> Option<Place> {
        Some(self.registered.place(self.offset_of(slot)?))
    }

    /// Whether an operation or a clone still holds it; then dropping this does not yet deregister it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.registered) > 1
    }

    pub(crate) fn offset_of(&self, slot: &Slot) -> Option<usize> {
        let bytes = slot.bytes();
        let offset = bytes.as_ptr().addr().checked_sub(self.registered.base)?;
        (offset + bytes.len() <= self.registered.len).then_some(offset)
    }

    pub(crate) fn belongs_to(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.registered.core, core)
    }

    pub(crate) fn raw(&self) -> *mut ffi::Region {
        self.registered.raw.as_ptr()
    }
}

/// Memory that peers may write to, at any time until the endpoint is closed; so nobody gets a reference to it, only copies.
/// A provider may still be writing what a peer began before the window was dropped.
pub struct Window {
    registered: Registered,
}

impl Window {
    pub(crate) fn new(core: &Arc<Core>, bytes: usize) -> Result<Window, FabricError> {
        let bytes = bytes.next_multiple_of(4096);
        let no_memory =
            |e: carrack_machine::PoolError| FabricError::ours("a window", e.to_string(), Scope::Endpoint);
        let pool = SlotPool::new(bytes as u64, bytes).map_err(no_memory)?;
        Ok(Window { registered: Registered::new(core, &pool, Purpose::PeersWrite)? })
    }

    /// Where peers write, at this offset.
    pub fn place(&self, offset: usize) -> Place {
        self.registered.place(offset)
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.registered.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies what is there now.
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
            // SAFETY: within the window, of which there are no references; volatile, as a peer may be writing there:
            // then the bytes are whatever they are.
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
    use crate::offer::{Filter, usable_offers};

    /// A key that is taken is the one refusal that can be had without hardware (there it is the limit of locked memory).
    #[test]
    #[allow(unsafe_code)]
    fn a_registration_that_fails_says_so() {
        let filter = Filter { provider: Some("tcp;ofi_rxm".into()), source: Some("127.0.0.1".into()) };
        let offers = match usable_offers(&filter) {
            Ok(offers) => offers,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let core = Core::open(&offers[0], 16).expect("a domain");
        let pool = SlotPool::new(8192, 4096).expect("a pool");
        let (first, key) = core.register_as(pool.memory(), Purpose::OwnRma, 7).expect("registered");
        let error = core.register_as(pool.memory(), Purpose::OwnRma, 7).expect_err("the key is taken");
        assert_eq!((key, error.scope), (7, Scope::Endpoint));
        assert!(error.to_string().starts_with("registering 8 KiB: ") && error.code > 0, "{error}");
        // SAFETY: registered above, not used.
        assert_eq!(unsafe { ffi::cf_deregister(first.as_ptr()) }, 0);
    }
}
