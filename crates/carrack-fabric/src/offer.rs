//! libfabric's offers on this host: providers with their fabrics, domains and NICs (fi_getinfo(3)).

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::ptr::{self, NonNull};

use crate::error::{FabricError, FabricErrorScope, text_before_nul};
use crate::ffi;

const FI_MSG: u64 = 1 << 1;
const FI_RMA: u64 = 1 << 2;
const FI_MR_VIRT_ADDR: u64 = 1 << 4;
const FI_MR_PROV_KEY: u64 = 1 << 6;
/// `-FI_ENODATA`: nothing matches.
const NO_DATA: i32 = -61;

/// Loads libfabric.so.1 (fi_version(3)) and returns its version.
#[allow(unsafe_code)]
pub fn load_library() -> Result<(u16, u16), FabricError> {
    // SAFETY: any thread may call it at any time; the result is a static string or NULL.
    let why = unsafe { ffi::cf_load() };
    if !why.is_null() {
        // SAFETY: a string that does not change any more.
        let words = unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned();
        let words = format!("{words}; install libfabric1 (Debian) or libfabric (others)");
        return Err(FabricError::own_error("no libfabric", words, FabricErrorScope::Library));
    }
    // SAFETY: the library is loaded.
    let version = unsafe { ffi::cf_version() };
    Ok(((version >> 16) as u16, (version & 0xffff) as u16))
}

/// The offers to look for.
#[derive(Clone, Debug, Default)]
pub struct ProviderOfferFilter {
    /// A provider, as libfabric names it: `tcp;ofi_rxm`, `shm`, `verbs;ofi_rxm`; `None` for all.
    pub provider: Option<String>,
    /// An address of this host that endpoints shall use, such as `127.0.0.1`; `None` for any. Not for `shm`.
    pub source: Option<String>,
}

/// The properties of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricInterfaceProperties {
    /// The provider, such as `tcp;ofi_rxm`.
    pub provider: String,
    /// The network.
    pub fabric: String,
    /// The device; for a network interface its name.
    pub domain: String,
    /// The NIC's name, if the provider gives it.
    pub nic: Option<String>,
    /// The device's PCI address, as sysfs writes it (`0000:81:00.0`).
    pub pci: Option<String>,
    /// The NUMA node of the device, if sysfs gives it.
    pub numa_node: Option<u32>,
    /// True for messages between endpoints without connections (`FI_EP_RDM`).
    pub is_reliable_datagram: bool,
    /// True if the provider has messages and RMA.
    pub has_rma: bool,
    /// True if a location is an address (`FI_MR_VIRT_ADDR`), false if it is an offset in a region.
    pub by_address: bool,
    /// True if the provider chooses keys (`FI_MR_PROV_KEY`).
    pub chooses_keys: bool,
    /// All bits of the memory mode (fi_mr(3)).
    pub mr_mode: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// The largest message that is copied at once.
    pub inject_bytes: u64,
    /// The largest operation.
    pub max_message_bytes: u64,
    /// Bytes that a write can leave in the peer's completion queue; 0 without support.
    pub notice_bytes: u64,
    /// Operations that may be under way.
    pub send_operations: u64,
    /// Receives that may be posted.
    pub receive_operations: u64,
    /// True if operations progress without polling.
    pub progresses_by_itself: bool,
    /// The format of endpoint names (`FI_SOCKADDR_IN`, ...).
    pub address_format: u32,
}

/// An entry of the list, to open an [endpoint](crate::FabricEndpoint) with.
pub struct FabricInfoEntry {
    info: NonNull<c_void>,
    /// The offer's properties.
    pub description: FabricInterfaceProperties,
}

// SAFETY: the entry is a private copy that is only read after its creation.
#[allow(unsafe_code)]
unsafe impl Send for FabricInfoEntry {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for FabricInfoEntry {}

impl FabricInfoEntry {
    pub(crate) fn info(&self) -> *mut c_void {
        self.info.as_ptr()
    }
}

impl std::fmt::Debug for FabricInfoEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.description.fmt(f)
    }
}

impl Drop for FabricInfoEntry {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: our own copy, freed once.
        unsafe { ffi::cf_free(self.info()) }
    }
}

/// All offers, also those that [endpoints](crate::FabricEndpoint) can't use. For display.
pub fn all_offers(filter: &ProviderOfferFilter) -> Result<Vec<FabricInfoEntry>, FabricError> {
    list(filter, false)
}

/// The offers that endpoints can use, libfabric's first choice first. Fails with the reason if there are
/// none.
pub fn usable_offers(filter: &ProviderOfferFilter) -> Result<Vec<FabricInfoEntry>, FabricError> {
    let found = list(filter, true)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let name = filter.provider.as_deref().unwrap_or("libfabric");
    let others = list(filter, false)?;
    let words = match others.first() {
        None => "there is no such provider on this host".to_string(),
        Some(offer) if !offer.description.has_rma => "the provider has no RMA".to_string(),
        Some(_) => "the provider has no reliable datagram endpoints with RMA that we can use".to_string(),
    };
    Err(FabricError::own_error(name, words, FabricErrorScope::Library))
}

fn c_string(text: Option<&str>) -> Result<Option<CString>, FabricError> {
    text.map(CString::new).transpose().map_err(|_| {
        FabricError::own_error("fi_getinfo", "a name with a NUL in it", FabricErrorScope::Library)
    })
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

#[allow(unsafe_code)]
fn list(filter: &ProviderOfferFilter, is_usable: bool) -> Result<Vec<FabricInfoEntry>, FabricError> {
    load_library()?;
    let provider = c_string(filter.provider.as_deref())?;
    let source = c_string(filter.source.as_deref())?;
    let mut head = ptr::null_mut();
    // SAFETY: strings that live until the call returns, or NULL; the library is loaded.
    let rc = unsafe { ffi::cf_list(pointer(&provider), pointer(&source), is_usable.into(), &mut head) };
    match rc {
        0 => {}
        NO_DATA => return Ok(Vec::new()),
        rc => return Err(FabricError::of_call("fi_getinfo", rc, FabricErrorScope::Library)),
    }
    let mut offers = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: an entry of the list that the library returned.
        offers.extend(unsafe { copy(at) });
        // SAFETY: the same.
        at = unsafe { ffi::cf_next(at) };
    }
    // SAFETY: the whole list, freed once; the offers are copies.
    unsafe { ffi::cf_free(head) };
    Ok(offers)
}

/// # Safety
/// `info` is an entry of fi_getinfo's.
#[allow(unsafe_code)]
unsafe fn copy(info: *mut c_void) -> Option<FabricInfoEntry> {
    let mut raw = std::mem::MaybeUninit::<ffi::RawFabricInterface>::uninit();
    // SAFETY: the call fills the whole structure.
    let raw = unsafe {
        ffi::cf_describe(info, raw.as_mut_ptr());
        raw.assume_init()
    };
    // SAFETY: the caller's promise.
    let info = NonNull::new(unsafe { ffi::cf_duplicate(info) })?;
    Some(FabricInfoEntry { info, description: describe(&raw) })
}

fn describe(raw: &ffi::RawFabricInterface) -> FabricInterfaceProperties {
    let domain = text_before_nul(&raw.domain);
    let [segment, bus, device, function] = raw.pci;
    let pci = (raw.has_pci != 0).then(|| format!("{segment:04x}:{bus:02x}:{device:02x}.{function:x}"));
    FabricInterfaceProperties {
        provider: text_before_nul(&raw.provider),
        fabric: text_before_nul(&raw.fabric),
        nic: Some(text_before_nul(&raw.nic)).filter(|name| !name.is_empty()),
        numa_node: numa_node(pci.as_deref(), &domain),
        pci,
        domain,
        is_reliable_datagram: raw.is_reliable_datagram != 0,
        has_rma: raw.caps & (FI_MSG | FI_RMA) == FI_MSG | FI_RMA,
        by_address: raw.mr_mode & FI_MR_VIRT_ADDR != 0,
        chooses_keys: raw.mr_mode & FI_MR_PROV_KEY != 0,
        mr_mode: raw.mr_mode,
        key_bytes: raw.key_bytes as usize,
        inject_bytes: raw.inject_bytes,
        max_message_bytes: raw.max_message_bytes,
        notice_bytes: raw.cq_data_bytes,
        send_operations: raw.send_operations,
        receive_operations: raw.receive_operations,
        progresses_by_itself: raw.progresses_by_itself != 0,
        address_format: raw.address_format,
    }
}

/// The NUMA node by sysfs (Documentation/ABI/testing/sysfs-bus-pci): by the PCI address, else by the name of
/// a network interface (`eth0`) or an RDMA device (`mlx5_0`, and libfabric's `mlx5_0-rdm`). A value of -1
/// means that no node is nearer.
fn numa_node(pci: Option<&str>, domain: &str) -> Option<u32> {
    let device = domain.split('-').next().unwrap_or(domain);
    let is_name = !device.is_empty() && !device.contains(['/', '\0']) && !device.starts_with('.');
    let mut places = Vec::new();
    places.extend(pci.map(|pci| format!("/sys/bus/pci/devices/{pci}/numa_node")));
    if is_name {
        places.push(format!("/sys/class/net/{device}/device/numa_node"));
        places.push(format!("/sys/class/infiniband/{device}/device/numa_node"));
    }
    places.iter().find_map(|place| fs::read_to_string(place).ok()?.trim().parse().ok())
}
