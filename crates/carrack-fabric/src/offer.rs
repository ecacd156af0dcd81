//! What the library offers here: providers, their fabrics, domains and NICs (fi_getinfo(3)).

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::ptr::{self, NonNull};

use crate::error::{FabricError, Scope, text};
use crate::ffi;

const FI_MSG: u64 = 1 << 1;
const FI_RMA: u64 = 1 << 2;
const FI_MR_VIRT_ADDR: u64 = 1 << 4;
const FI_MR_PROV_KEY: u64 = 1 << 6;
/// `-FI_ENODATA`: nothing matches.
const NO_DATA: i32 = -61;

/// Finds libfabric.so.1 (fi_version(3)); its version, or why it is not there.
#[allow(unsafe_code)]
pub fn library() -> Result<(u16, u16), FabricError> {
    // SAFETY: may be called by any thread at any time; the answer is a static string or NULL.
    let why = unsafe { ffi::cf_load() };
    if !why.is_null() {
        // SAFETY: a string that nobody changes any more.
        let words = unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned();
        let words = format!("{words}; install libfabric1 (Debian) or libfabric (others)");
        return Err(FabricError::ours("no libfabric", words, Scope::Library));
    }
    // SAFETY: the library is loaded.
    let version = unsafe { ffi::cf_version() };
    Ok(((version >> 16) as u16, (version & 0xffff) as u16))
}

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// A provider, as libfabric names it: `tcp;ofi_rxm`, `shm`, `verbs;ofi_rxm`; none: all.
    pub provider: Option<String>,
    /// An address of this host that endpoints shall use, such as `127.0.0.1`; none: any. Not for `shm`.
    pub source: Option<String>,
}

/// What is known of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `tcp;ofi_rxm`.
    pub provider: String,
    /// The network.
    pub fabric: String,
    /// The device: of network interfaces, its name.
    pub domain: String,
    /// The NIC's name, where the provider tells.
    pub nic: Option<String>,
    /// Its PCI address, as sysfs writes it (`0000:81:00.0`).
    pub pci: Option<String>,
    /// The NUMA node that it is attached to, where sysfs tells.
    pub numa_node: Option<u32>,
    /// Whether it is for messages between endpoints without connections (`FI_EP_RDM`).
    pub is_reliable_datagram: bool,
    /// Whether it does messages and RMA.
    pub has_rma: bool,
    /// Whether places in memory are named by their address (`FI_MR_VIRT_ADDR`), or by their offset in a region.
    pub by_address: bool,
    /// Whether the provider chooses keys (`FI_MR_PROV_KEY`), or we do.
    pub chooses_keys: bool,
    /// All bits of the memory mode (fi_mr(3)).
    pub mr_mode: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// The largest message that is copied at once.
    pub inject_bytes: u64,
    /// The largest operation.
    pub max_message_bytes: u64,
    /// Bytes that a write can leave in the peer's completion queue; 0: it can't.
    pub notice_bytes: u64,
    /// Operations that may be under way.
    pub send_operations: u64,
    /// Receives that may be posted.
    pub receive_operations: u64,
    /// Whether it moves on without being polled.
    pub progresses_by_itself: bool,
    /// How names of endpoints look (`FI_SOCKADDR_IN`, ...).
    pub address_format: u32,
}

/// An entry of the list: what an [endpoint](crate::Endpoint) is opened with.
pub struct Offer {
    info: NonNull<c_void>,
    /// What is known of it.
    pub description: Description,
}

// SAFETY: the entry is a private copy that is only read after its creation.
#[allow(unsafe_code)]
unsafe impl Send for Offer {}
// SAFETY: see `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for Offer {}

impl Offer {
    pub(crate) fn info(&self) -> *mut c_void {
        self.info.as_ptr()
    }
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.description.fmt(f)
    }
}

impl Drop for Offer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: a copy that is ours, freed once.
        unsafe { ffi::cf_free(self.info()) }
    }
}

/// All that there is, for people: also what [endpoints](crate::Endpoint) can't use.
pub fn all_offers(filter: &Filter) -> Result<Vec<Offer>, FabricError> {
    list(filter, false)
}

/// Those that endpoints can use, the library's favourite first; an error that says why there is none.
pub fn usable_offers(filter: &Filter) -> Result<Vec<Offer>, FabricError> {
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
    Err(FabricError::ours(name, words, Scope::Library))
}

fn c_string(text: Option<&str>) -> Result<Option<CString>, FabricError> {
    let bad = |_| FabricError::ours("fi_getinfo", "a name with a NUL in it", Scope::Library);
    text.map(CString::new).transpose().map_err(bad)
}

#[allow(unsafe_code)]
fn list(filter: &Filter, is_usable: bool) -> Result<Vec<Offer>, FabricError> {
    library()?;
    let provider = c_string(filter.provider.as_deref())?;
    let source = c_string(filter.source.as_deref())?;
    let start = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let mut head = ptr::null_mut();
    // SAFETY: strings that live until the call returns, or NULL; the library is loaded.
    let rc = unsafe { ffi::cf_list(start(&provider), start(&source), is_usable.into(), &mut head) };
    match rc {
        0 => {}
        NO_DATA => return Ok(Vec::new()),
        rc => return Err(FabricError::of_call("fi_getinfo", rc, Scope::Library)),
    }
    let mut offers = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: an entry of the list that the library just gave us.
        offers.extend(unsafe { copy(at) });
        // SAFETY: the same.
        at = unsafe { ffi::cf_next(at) };
    }
    // SAFETY: the whole list, freed once; what we keep are copies.
    unsafe { ffi::cf_free(head) };
    Ok(offers)
}

/// # Safety
/// `info` is an entry of fi_getinfo's.
#[allow(unsafe_code)]
unsafe fn copy(info: *mut c_void) -> Option<Offer> {
    let mut raw = std::mem::MaybeUninit::<ffi::Offer>::uninit();
    // SAFETY: the call fills all of it.
    let raw = unsafe {
        ffi::cf_describe(info, raw.as_mut_ptr());
        raw.assume_init()
    };
    // SAFETY: as the caller says.
    let info = NonNull::new(unsafe { ffi::cf_duplicate(info) })?;
    Some(Offer { info, description: describe(&raw) })
}

fn describe(raw: &ffi::Offer) -> Description {
    let domain = text(&raw.domain);
    let [segment, bus, device, function] = raw.pci;
    let pci = (raw.has_pci != 0).then(|| format!("{segment:04x}:{bus:02x}:{device:02x}.{function:x}"));
    Description {
        provider: text(&raw.provider),
        fabric: text(&raw.fabric),
        nic: Some(text(&raw.nic)).filter(|name| !name.is_empty()),
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

/// From sysfs (Documentation/ABI/testing/sysfs-bus-pci): by the PCI address, else by the name of a network interface
/// (`eth0`) or of an RDMA device (`mlx5_0`, and libfabric's `mlx5_0-rdm`). -1 there means that no node is nearer.
fn numa_node(pci: Option<&str>, domain: &str) -> Option<u32> {
    let device = domain.split('-').next().unwrap_or(domain);
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
    let mut places = Vec::new();
    places.extend(pci.map(|pci| format!("/sys/bus/pci/devices/{pci}/numa_node")));
    if is_name(device) {
        places.push(format!("/sys/class/net/{device}/device/numa_node"));
        places.push(format!("/sys/class/infiniband/{device}/device/numa_node"));
    }
    places.iter().find_map(|place| fs::read_to_string(place).ok()?.trim().parse().ok())
}
