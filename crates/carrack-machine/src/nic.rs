//! Network interfaces: their addresses, the CPUs of their queues' interrupts, and the CPU and queue at which
//! a connection's packets arrive (M9).
//!
//! Read-only. An interface without queues (a bond, a VLAN) stands for its lower interfaces.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketType, netdevice, socket, sockopt};

use crate::id_set::CpuSet;
use crate::netlink;
use crate::sys_files::SysFiles;

/// A VLAN on a bond on ports; deeper stacks don't occur.
const LAYERS_MAX: usize = 4;

/// Parts of the names of interrupts other than queues: mailboxes, commands, link changes.
const NOT_QUEUES: [&str; 13] = [
    "async", "config", "control", "ctrl", "cmd", "misc", "event", "pages", "health", "mbx", "other", "aeq",
    "mgmnt",
];

/// The interrupt of one queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueIrq {
    /// Interrupt number.
    pub irq: u32,
    /// The driver's name: "mlx5_comp3@pci:0000:81:00.0".
    pub action: String,
    /// The CPUs that may handle it (`smp_affinity_list`).
    pub allowed: CpuSet,
    /// The CPUs that handle it (`effective_affinity_list`); empty if unknown.
    pub effective: CpuSet,
}

impl QueueIrq {
    /// The CPUs that handle the interrupt. A new affinity takes effect at the next interrupt only: a single
    /// allowed CPU counts at once.
    pub fn cpus(&self) -> &CpuSet {
        if self.effective.is_empty() || self.allowed.len() == 1 { &self.allowed } else { &self.effective }
    }
}

/// The interface with this local address.
pub fn nic_of_address(address: IpAddr) -> Option<String> {
    let addresses = netlink::addresses().ok()?;
    let (_, interface) = addresses.into_iter().find(|(local, _)| *local == address.to_canonical())?;
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::index_to_name(any, interface).ok()
}

/// The interrupts of an interface's queues and their CPUs; empty if not visible.
pub fn nic_queue_cpus(name: &str) -> Vec<(u32, CpuSet)> {
    let irqs = queue_irqs(&SysFiles::of_this_machine(), name);
    irqs.into_iter().map(|queue| (queue.irq, queue.cpus().clone())).collect()
}

/// The CPU on which the kernel last handled a packet of this connection (`SO_INCOMING_CPU`, socket(7)).
pub fn incoming_cpu(socket: impl AsFd) -> Option<u32> {
    // -1 before the first packet.
    sockopt::socket_incoming_cpu(socket).ok().filter(|&cpu| cpu != u32::MAX)
}

/// The NAPI instance, and so the receive queue, of this connection's last packet (`SO_INCOMING_NAPI_ID`,
/// socket(7)).
pub fn incoming_napi_id(socket: impl AsFd) -> Option<u32> {
    // 0 on loopback and before the first packet.
    napi_id(socket).ok().filter(|&id| id != 0)
}

#[allow(unsafe_code)]
fn napi_id(socket: impl AsFd) -> io::Result<u32> {
    let mut id: u32 = 0;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: `id` and `length` live through the call, and `length` is the size of `id`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(id) } else { Err(io::Error::last_os_error()) }
}

/// The hardware interfaces that `name` sends through: itself, or a bond's ports.
pub fn physical_nics(files: &SysFiles, name: &str) -> Vec<String> {
    let mut layer = vec![name.to_string()];
    for _ in 0..LAYERS_MAX {
        layer = layer.iter().flat_map(|name| lower_interfaces(files, name)).collect();
    }
    layer.retain(|name| files.exists(&format!("sys/class/net/{name}/device")));
    layer.sort();
    layer.dedup();
    layer
}

/// The lower interfaces of an interface, or itself if it has none.
fn lower_interfaces(files: &SysFiles, name: &str) -> Vec<String> {
    let names = files.list_directory(&format!("sys/class/net/{name}")).unwrap_or_default();
    let lower: Vec<String> =
        names.iter().filter_map(|name| name.strip_prefix("lower_")).map(str::to_owned).collect();
    if lower.is_empty() { vec![name.to_string()] } else { lower }
}

/// The interrupts of an interface's queues, by number.
pub fn queue_irqs(files: &SysFiles, name: &str) -> Vec<QueueIrq> {
    let Some(actions) = files.read_text("proc/interrupts").map(|text| parse_irq_actions(&text)) else {
        return Vec::new();
    };
    let mut irqs: Vec<QueueIrq> = physical_nics(files, name)
        .iter()
        .flat_map(|nic| irqs_of(files, nic, &actions))
        .map(|(irq, action)| QueueIrq {
            irq,
            action,
            allowed: affinity(files, irq, "smp_affinity_list"),
            effective: affinity(files, irq, "effective_affinity_list"),
        })
        .collect();
    irqs.sort_by_key(|queue| queue.irq);
    irqs.dedup_by_key(|queue| queue.irq);
    irqs
}

fn irqs_of(files: &SysFiles, nic: &str, actions: &[(u32, String)]) -> Vec<(u32, String)> {
    let of_device: Option<Vec<u32>> = msi_irqs(files, nic);
    keep_queue_irqs(
        actions
            .iter()
            .filter(|(irq, action)| match &of_device {
                Some(irqs) => irqs.contains(irq),
                None => action.split(['-', '@', '.', ':']).any(|word| word == nic),
            })
            .cloned()
            .collect(),
    )
}

/// The interrupts of queues; all if the names are not conclusive. A queue with an interrupt for each
/// direction counts once, by its receive interrupt.
fn keep_queue_irqs(irqs: Vec<(u32, String)>) -> Vec<(u32, String)> {
    let queues: Vec<_> = irqs.iter().filter(|(_, action)| is_queue(action)).cloned().collect();
    let arriving: Vec<_> = queues.iter().filter(|(_, action)| !action.contains("output")).cloned().collect();
    [arriving, queues].into_iter().find(|found| !found.is_empty()).unwrap_or(irqs)
}

fn is_queue(action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    !NOT_QUEUES.iter().any(|word| action.contains(word))
}

/// The MSI interrupts of the PCI function of an interface's device or of the device's parent (virtio).
fn msi_irqs(files: &SysFiles, nic: &str) -> Option<Vec<u32>> {
    let function = pci_function(files, &format!("sys/class/net/{nic}/device"))?;
    let names = files.list_directory(&format!("{function}/msi_irqs"))?;
    Some(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The directory of the PCI function of a device or its parent. Bridges don't count: they have their own
/// interrupts.
pub(crate) fn pci_function(files: &SysFiles, device: &str) -> Option<String> {
    let mut path = files.resolve_links(device)?;
    loop {
        let (above, name) = path.rsplit_once('/')?;
        if is_pci_address(name) {
            return Some(path);
        }
        path = above.to_string();
    }
}

/// `0000:81:00.0`
fn is_pci_address(name: &str) -> bool {
    let Some((domain_bus_device, function)) = name.split_once('.') else { return false };
    domain_bus_device.split(':').count() == 3 && domain_bus_device.split(':').all(is_hex) && is_hex(function)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Number and last word of the device lines of `/proc/interrupts` (proc(5)).
fn parse_irq_actions(text: &str) -> Vec<(u32, String)> {
    let mut lines = text.lines();
    let cpu_count = lines.next().map_or(0, |head| head.split_whitespace().count());
    lines.filter_map(|line| parse_irq_action(line, cpu_count)).collect()
}

/// ` 38:  0  24144  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0`; without a handler the last word is
/// missing.
fn parse_irq_action(line: &str, cpu_count: usize) -> Option<(u32, String)> {
    let (irq, rest) = line.split_once(':')?;
    let words: Vec<&str> = rest.split_whitespace().skip(cpu_count).collect();
    let action = words.last().filter(|_| words.len() >= 3)?;
    Some((irq.trim().parse().ok()?, action.to_string()))
}

fn affinity(files: &SysFiles, irq: u32, name: &str) -> CpuSet {
    files.read_value(&format!("proc/irq/{irq}/{name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn interrupts_are_read_line_by_line() {
        let text = "           CPU0       CPU1\n\
            \x20 1:      0      0  IO-APIC   5-edge\n\
            \x2038:      0  24144 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
            \x2040:      1      2   ITS-MSI 524288 Edge      eth1-rx-0\n\
            NMI:     29     25   Non-maskable interrupts\n";
        assert_eq!(parse_irq_actions(text), [(38, "virtio2-input.0".into()), (40, "eth1-rx-0".into())]);
        assert_eq!(parse_irq_actions(""), []);
    }

    #[test]
    fn queues_are_told_from_the_rest() {
        fn names(names: &[&str]) -> Vec<String> {
            let irqs = names.iter().enumerate().map(|(irq, name)| (irq as u32, name.to_string()));
            keep_queue_irqs(irqs.collect()).into_iter().map(|(_, name)| name).collect()
        }
        let mlx5 = ["mlx5_async0@pci:0000:81:00.0", "mlx5_comp0@pci:0000:81:00.0"];
        assert_eq!(names(&mlx5), mlx5[1..]);
        assert_eq!(names(&["virtio2-config", "virtio2-input.0", "virtio2-output.0"]), ["virtio2-input.0"]);
        assert_eq!(names(&["ice-0000:18:00.0:misc", "ice-ens1f0-TxRx-0"]), ["ice-ens1f0-TxRx-0"]);
        assert_eq!(names(&["eth0-misc"]), ["eth0-misc"]);
    }

    #[test]
    fn pci_addresses_are_known() {
        for (name, is) in [("0000:81:00.0", true), ("virtio2", false), ("pci0000:80", false), ("::.", false)]
        {
            assert_eq!(is_pci_address(name), is, "{name}");
        }
    }

    #[test]
    fn the_loopback_address_has_an_interface() {
        if netlink::addresses().is_err() {
            println!("skipped: no netlink");
            return;
        }
        assert_eq!(nic_of_address(Ipv4Addr::LOCALHOST.into()).as_deref(), Some("lo"));
        assert_eq!(nic_of_address(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()).as_deref(), Some("lo"));
        assert_eq!(nic_of_address(Ipv4Addr::new(192, 0, 2, 77).into()), None);
        assert_eq!((nic_queue_cpus("lo"), nic_queue_cpus("none")), (vec![], vec![]));
    }

    #[test]
    fn a_connection_knows_the_cpu_of_its_packets() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.write_all(b"x").unwrap();
        far.peek(&mut [0]).unwrap();
        let cpus: CpuSet =
            SysFiles::of_this_machine().read_value("sys/devices/system/cpu/possible").unwrap_or_default();
        assert!(incoming_cpu(&far).is_some_and(|cpu| cpus.is_empty() || cpus.contains(cpu)));
        // Loopback has no queues.
        assert_eq!(incoming_napi_id(&far), None);
        assert_eq!(incoming_napi_id(io::stdin()), None);
    }
}
