//! Facts that no file holds: queried by system calls, `None` without an answer.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::netlink;
use crate::sys_files::SysFiles;
use crate::topology::has_hwloc;
use crate::zone::{CgroupTree, StaleZoneCgroup, stale_zones};

/// `SIOCETHTOOL` and `ETHTOOL_GRINGPARAM` (include/uapi/linux/sockios.h, ethtool.h).
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GRINGPARAM: u32 = 0x10;

/// The kernel's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelProbes {
    /// True if the clock is synchronised (`adjtimex(2)`).
    pub is_clock_synchronised: Option<bool>,
    /// True if `openat2(2)` exists and is allowed.
    pub has_openat2: Option<bool>,
    /// True if hwloc can be loaded.
    pub has_hwloc: Option<bool>,
    /// The queueing disciplines: (interface, is the root, kind).
    pub qdiscs: Option<Vec<(String, bool, String)>>,
    /// Core zones of processes that have ended.
    pub stale_zones: Option<Vec<StaleZoneCgroup>>,
    /// Descriptor rings by interface.
    pub rings: BTreeMap<String, RingSizes>,
}

/// Sizes of an interface's rings in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Receive ring.
    pub rx: u32,
    /// Maximum of the receive ring.
    pub rx_max: u32,
    /// Send ring.
    pub tx: u32,
    /// Maximum of the send ring.
    pub tx_max: u32,
}

impl KernelProbes {
    /// Queries this machine.
    pub fn of_this_machine() -> KernelProbes {
        KernelProbes {
            is_clock_synchronised: is_clock_synchronised(),
            has_openat2: has_openat2(),
            has_hwloc: Some(has_hwloc()),
            qdiscs: named_qdiscs(),
            stale_zones: CgroupTree::of_this_machine().and_then(|tree| stale_zones(&tree).ok()),
            rings: ring_sizes_of_nics(),
        }
    }
}

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RingParam {
    command: u32,
    rx_max: u32,
    rx_mini_max: u32,
    rx_jumbo_max: u32,
    tx_max: u32,
    rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    tx: u32,
}

#[allow(unsafe_code)]
fn is_clock_synchronised() -> Option<bool> {
    // SAFETY: `timex` consists of numbers, for which zeros are valid.
    let mut request: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `modes` is 0, so that the call sets nothing; `request` is writable and lives through the call.
    let state = unsafe { libc::adjtimex(&raw mut request) };
    // TIME_ERROR also means a lost PPS signal: only the flag means that the clock is not synchronised.
    (state >= 0).then_some(request.status & libc::STA_UNSYNC == 0)
}

fn has_openat2() -> Option<bool> {
    match openat2(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty()) {
        Ok(_) => Some(true),
        // EPERM: a seccomp filter older than the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => Some(false),
        Err(_) => None,
    }
}

fn named_qdiscs() -> Option<Vec<(String, bool, String)>> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let named = netlink::qdiscs().ok()?.into_iter().filter_map(|qdisc| {
        let name = netdevice::index_to_name(&any, qdisc.interface).ok()?;
        Some((name, qdisc.is_root, qdisc.kind))
    });
    Some(named.collect())
}

fn ring_sizes_of_nics() -> BTreeMap<String, RingSizes> {
    let Ok(any) = socket(AddressFamily::INET, SocketType::DGRAM, None) else { return BTreeMap::new() };
    let names = SysFiles::of_this_machine().list_directory("sys/class/net").unwrap_or_default();
    names
        .into_iter()
        .filter_map(|name| Some((name.clone(), query_ring_sizes(any.as_fd(), &name).ok()?)))
        .collect()
}

#[allow(unsafe_code)]
fn query_ring_sizes(any: BorrowedFd<'_>, name: &str) -> io::Result<RingSizes> {
    let mut answer = RingParam { command: ETHTOOL_GRINGPARAM, ..RingParam::default() };
    // SAFETY: `ifreq` consists of numbers and a union of numbers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut answer).cast();
    // SAFETY: the name ends with a zero, and `ifru_data` points to the structure that this command fills,
    // which lives through the call.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(RingSizes { rx: answer.rx, rx_max: answer.rx_max, tx: answer.tx, tx_max: answer.tx_max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_answers_or_says_nothing() {
        let probes = KernelProbes::of_this_machine();
        assert!(
            probes.rings.values().all(|ring| ring.rx <= ring.rx_max && ring.tx <= ring.tx_max),
            "{probes:?}"
        );
        if let Some(qdiscs) = &probes.qdiscs {
            assert!(qdiscs.iter().all(|(name, _, kind)| !name.is_empty() && !kind.is_empty()), "{probes:?}");
        }
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        assert!(query_ring_sizes(any.as_fd(), "a-name-that-is-too-long").is_err());
        assert!(query_ring_sizes(any.as_fd(), "none").is_err());
    }
}
