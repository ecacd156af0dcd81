//! Network interfaces: speed, MTU, rings, queueing, and interrupts.
//!
//! Only interfaces with hardware that are up count.

use std::collections::{BTreeMap, BTreeSet};

use super::MachineFacts;
use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::probes::{KernelProbes, RingSizes};
use crate::id_set::CpuSet;
use crate::nic::{self, QueueIrq};
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] =
    &[&LINK_SPEED, &PCI_LINK, &MTU, &QDISC, &RING, &IRQ_SPREAD, &IRQ_NODE];

static LINK_SPEED: MachineCheck = MachineCheck {
    name: "link_speed",
    group: CheckGroup::Nic,
    about: "the speed that the link came up with",
    why: "no transfer is faster; a half-duplex link collides with its own acknowledgements",
    source: "kernel documentation, ABI/testing/sysfs-class-net",
};

static PCI_LINK: MachineCheck = MachineCheck {
    name: "pci_link",
    group: CheckGroup::Nic,
    about: "speed and width of the interface's PCI Express link",
    why: "in a slot with fewer or slower lanes than it is made for, an interface can't bring what its link does",
    source: "kernel documentation, ABI/testing/sysfs-bus-pci; fasterdata.es.net, 100G tuning",
};

static MTU: MachineCheck = MachineCheck {
    name: "mtu",
    group: CheckGroup::Nic,
    about: "the largest packet of the interface",
    why: "each packet costs the same work: large ones cost less for each byte, if every hop on the path takes them",
    source: "fasterdata.es.net, MTU issues",
};

static QDISC: MachineCheck = MachineCheck {
    name: "qdisc",
    group: CheckGroup::Nic,
    about: "the queueing discipline that the interface has",
    why: "fq spreads a connection's packets over time (pacing), so that small buffers on the way don't overflow",
    source: "fasterdata.es.net, packet pacing; tc-fq(8)",
};

static RING: MachineCheck = MachineCheck {
    name: "ring",
    group: CheckGroup::Nic,
    about: "how many arriving packets the interface keeps for the kernel",
    why: "packets that come while the CPU is busy elsewhere are lost once the ring is full",
    source: "fasterdata.es.net, NIC tuning; ethtool(8)",
};

static IRQ_SPREAD: MachineCheck = MachineCheck {
    name: "irq_spread",
    group: CheckGroup::Nic,
    about: "over how many CPUs the interrupts of the interface's queues are spread",
    why: "a CPU that takes the packets of many queues is full long before the link is",
    source: "fasterdata.es.net, interrupt binding; kernel documentation, networking/scaling and core-api/irq/irq-affinity",
};

static IRQ_NODE: MachineCheck = MachineCheck {
    name: "irq_node",
    group: CheckGroup::Nic,
    about: "whether the interrupts are taken next to the interface",
    why: "packets that are handled on another node than the interface's cross the link between sockets",
    source: "fasterdata.es.net, interrupt binding; kernel documentation, networking/scaling",
};

const JUMBO_MTU: u32 = 9000;

/// Packets in the ring; a longer ring only adds delay.
const RING_MAX: u32 = 8192;

/// Disciplines that spread packets over time.
const PACING: [&str; 3] = ["fq", "cake", "etf"];

/// Disciplines that contain one discipline for each queue.
const CONTAINERS: [&str; 2] = ["mq", "mqprio"];

/// Ethernet and InfiniBand (include/uapi/linux/if_arp.h).
const LINK_TYPES: [u32; 2] = [1, 32];

/// `IFF_UP` (netdevice(7)).
const UP: u32 = 1;

/// A hardware interface that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HardwareNic {
    /// Its name.
    pub name: String,
    /// NUMA node of the device.
    pub node: Option<u32>,
    /// Mbit/s.
    pub speed_mbits: Option<u32>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// True for a half-duplex link.
    pub is_half_duplex: bool,
    /// Current and maximum PCI Express link: "16.0 GT/s PCIe x16".
    pub pci_link: Option<(String, String)>,
    /// The queueing disciplines of packets.
    pub qdisc: Option<BTreeSet<String>>,
    /// True if each queue has its own discipline.
    pub is_multi_queue: bool,
    /// Ring sizes.
    pub ring: Option<RingSizes>,
    /// Interrupts of the queues; empty if not visible.
    pub queues: Vec<QueueIrq>,
}

pub(super) fn read(files: &SysFiles, probes: &KernelProbes) -> Vec<HardwareNic> {
    let names = files.list_directory("sys/class/net").unwrap_or_default();
    names
        .iter()
        .filter(|name| is_physical_and_up(files, name))
        .map(|name| read_nic(files, probes, name))
        .collect()
}

fn is_physical_and_up(files: &SysFiles, name: &str) -> bool {
    let is_of_type =
        files.read_value(&sysfs_path(name, "type")).is_none_or(|kind: u32| LINK_TYPES.contains(&kind));
    files.exists(&sysfs_path(name, "device")) && is_of_type && is_up(files, name)
}

/// Some drivers don't report the carrier.
fn is_up(files: &SysFiles, name: &str) -> bool {
    match files.read_text(&sysfs_path(name, "operstate")).as_deref() {
        Some("up") => true,
        Some("unknown") | None => flags(files, name).is_some_and(|flags| flags & UP != 0),
        Some(_) => false,
    }
}

fn flags(files: &SysFiles, name: &str) -> Option<u32> {
    u32::from_str_radix(files.read_text(&sysfs_path(name, "flags"))?.strip_prefix("0x")?, 16).ok()
}

fn sysfs_path(name: &str, file: &str) -> String {
    format!("sys/class/net/{name}/{file}")
}

fn read_nic(files: &SysFiles, probes: &KernelProbes, name: &str) -> HardwareNic {
    let function = nic::pci_function(files, &sysfs_path(name, "device"));
    let (qdisc, is_multi_queue) = qdisc_of(probes, name);
    HardwareNic {
        name: name.to_string(),
        node: function.as_ref().and_then(|function| files.read_value(&format!("{function}/numa_node"))),
        // -1 or an error if the driver does not know the speed.
        speed_mbits: files.read_value(&sysfs_path(name, "speed")).filter(|&speed| speed > 0),
        mtu: files.read_value(&sysfs_path(name, "mtu")),
        is_half_duplex: files.read_text(&sysfs_path(name, "duplex")).is_some_and(|duplex| duplex == "half"),
        pci_link: function.and_then(|function| pci_link(files, &function)),
        qdisc,
        is_multi_queue,
        ring: probes.rings.get(name).copied(),
        queues: nic::queue_irqs(files, name),
    }
}

fn pci_link(files: &SysFiles, function: &str) -> Option<(String, String)> {
    let [current, max] = ["current", "max"].map(|which| {
        let speed = files.read_text(&format!("{function}/{which}_link_speed"))?;
        let width: u32 = files.read_value(&format!("{function}/{which}_link_width"))?;
        // Emulated links have no lanes.
        let is_known = speed.starts_with(|first: char| first.is_ascii_digit()) && (1..=32).contains(&width);
        is_known.then(|| format!("{speed} x{width}"))
    });
    Some((current?, max?))
}

/// The disciplines that packets wait in: the root, or those of the queues.
fn qdisc_of(probes: &KernelProbes, name: &str) -> (Option<BTreeSet<String>>, bool) {
    let Some(qdiscs) = &probes.qdiscs else { return (None, false) };
    let (mut own, mut within) = (BTreeSet::new(), BTreeSet::new());
    for (_, is_root, kind) in qdiscs.iter().filter(|(interface, ..)| interface == name) {
        let kinds = if *is_root { &mut own } else { &mut within };
        kinds.insert(kind.clone());
    }
    let is_multi_queue = own.iter().any(|kind| CONTAINERS.contains(&&**kind));
    let found = if is_multi_queue { within } else { own };
    ((!found.is_empty()).then_some(found), is_multi_queue)
}

pub(super) fn evaluate(nics: &[HardwareNic], machine: &MachineFacts) -> Vec<CheckFinding> {
    if nics.is_empty() {
        let wanted = "a network interface with a device that is up";
        return CHECKS.iter().map(|check| check.unknown_finding(wanted)).collect();
    }
    nics.iter().flat_map(|nic| evaluate_nic(nic, machine)).collect()
}

fn evaluate_nic(nic: &HardwareNic, machine: &MachineFacts) -> Vec<CheckFinding> {
    let findings = [
        link_speed(nic),
        pci_link_finding(nic),
        mtu(nic),
        qdisc(nic),
        ring(nic),
        irq_spread(nic, machine),
        irq_node(nic, machine),
    ];
    findings.map(|finding| finding.with_subject(&nic.name)).into()
}

fn link_speed(nic: &HardwareNic) -> CheckFinding {
    let wanted = "what the link can do, full duplex";
    let Some(speed) = nic.speed_mbits else { return LINK_SPEED.unknown_finding(wanted) };
    let duplex = if nic.is_half_duplex { "half" } else { "full" };
    LINK_SPEED
        .finding(
            well_if(!nic.is_half_duplex, CheckVerdict::Improve),
            format!("{speed} Mbit/s, {duplex} duplex"),
            wanted,
        )
        .with_repair_command(format!("ethtool -s {} autoneg on", nic.name))
}

/// No command: the remedy is another slot, or the firmware's settings.
fn pci_link_finding(nic: &HardwareNic) -> CheckFinding {
    match &nic.pci_link {
        Some((present, most)) => {
            PCI_LINK.finding(well_if(present == most, CheckVerdict::Note), present, most)
        }
        None => PCI_LINK.unknown_finding("what the interface is made for"),
    }
}

fn mtu(nic: &HardwareNic) -> CheckFinding {
    let wanted = format!("{JUMBO_MTU} or more, where the whole path takes it");
    let Some(present) = nic.mtu else { return MTU.unknown_finding(wanted) };
    MTU.finding(well_if(present >= JUMBO_MTU, CheckVerdict::Note), present.to_string(), wanted)
        .with_repair_command(format!("ip link set dev {} mtu {JUMBO_MTU}", nic.name))
}

fn qdisc(nic: &HardwareNic) -> CheckFinding {
    let Some(kinds) = &nic.qdisc else { return QDISC.unknown_finding("fq") };
    let is_pacing = kinds.iter().all(|kind| PACING.contains(&&**kind));
    let present = kinds.iter().cloned().collect::<Vec<_>>().join(", ");
    let present = if nic.is_multi_queue { format!("{present} for each queue") } else { present };
    let command = if nic.is_multi_queue {
        format!("sysctl -w net.core.default_qdisc=fq && tc qdisc replace dev {} root mq", nic.name)
    } else {
        format!("tc qdisc replace dev {} root fq", nic.name)
    };
    QDISC.finding(well_if(is_pacing, CheckVerdict::Improve), present, "fq").with_repair_command(command)
}

fn ring(nic: &HardwareNic) -> CheckFinding {
    let Some(ring) = nic.ring.filter(|ring| ring.rx_max > 0) else {
        return RING.unknown_finding("the most it takes");
    };
    let wanted = ring.rx_max.min(RING_MAX);
    RING.finding(well_if(ring.rx >= wanted, CheckVerdict::Note), ring.rx.to_string(), wanted.to_string())
        .with_repair_command(format!("ethtool -G {} rx {wanted}", nic.name))
}

/// Number of CPUs that the interrupts should use: those of the interface's node, at most one for each queue.
fn irq_cpu_count(nic: &HardwareNic, machine: &MachineFacts) -> usize {
    nic.queues.len().min(cpus_for(nic, machine).len())
}

/// The CPUs of an interface's node; all if the node is unknown or has none.
pub(super) fn cpus_for<'a>(nic: &HardwareNic, machine: &'a MachineFacts) -> &'a CpuSet {
    let near = nic.node.and_then(|node| machine.cpus_of(node)).filter(|cpus| !cpus.is_empty());
    near.unwrap_or(&machine.online)
}

/// Interrupts of each CPU; `None` if an affinity has several CPUs, as the kernel then may use any.
fn irq_count_by_cpu(nic: &HardwareNic) -> Option<BTreeMap<u32, usize>> {
    let mut load = BTreeMap::new();
    for queue in &nic.queues {
        let only = queue.cpus().first().filter(|_| queue.cpus().len() == 1)?;
        *load.entry(only).or_default() += 1;
    }
    (!load.is_empty()).then_some(load)
}

/// Half of the possible CPUs suffices: drivers leave some queues idle.
pub(super) fn irq_spread(nic: &HardwareNic, machine: &MachineFacts) -> CheckFinding {
    let seats = irq_cpu_count(nic, machine);
    let wanted = "a CPU of its own for each queue, as far as there are";
    let Some(load) = irq_count_by_cpu(nic).filter(|_| seats > 0) else {
        return IRQ_SPREAD.unknown_finding(wanted);
    };
    let is_spread = seats < 2 || (load.len() > 1 && load.len() * 2 >= seats);
    let cpus: CpuSet = load.keys().copied().collect();
    let words = if load.len() == 1 { "CPU" } else { "CPUs" };
    let present = format!("{} on {words} {cpus}", queue_count(nic.queues.len()));
    let wanted = format!("{} on {seats} or nearly as many CPUs", queue_count(nic.queues.len()));
    IRQ_SPREAD
        .finding(well_if(is_spread, CheckVerdict::Improve), present, wanted)
        .with_repair_command(super::repair::COMMAND)
}

fn queue_count(count: usize) -> String {
    if count == 1 { "1 queue".into() } else { format!("{count} queues") }
}

pub(super) fn irq_node(nic: &HardwareNic, machine: &MachineFacts) -> CheckFinding {
    if !machine.is_numa() && !machine.nodes.is_empty() {
        return IRQ_NODE.finding(CheckVerdict::Well, "one node", "CPUs of the interface's node");
    }
    let near =
        nic.node.and_then(|node| Some((node, machine.cpus_of(node)?))).filter(|(_, cpus)| !cpus.is_empty());
    let (Some((node, near)), Some(load)) = (near, irq_count_by_cpu(nic)) else {
        return IRQ_NODE.unknown_finding("CPUs of the interface's node");
    };
    let far: CpuSet = load.keys().copied().filter(|&cpu| !near.contains(cpu)).collect();
    let far_count: usize = far.iter().filter_map(|cpu| load.get(&cpu)).sum();
    let wanted = format!("CPUs of node {node}: {near}");
    if far.is_empty() {
        return IRQ_NODE.finding(CheckVerdict::Well, format!("all on node {node}"), wanted);
    }
    let present = format!("{} of {} on CPUs {far} of other nodes", far_count, queue_count(nic.queues.len()));
    IRQ_NODE.finding(CheckVerdict::Improve, present, wanted).with_repair_command(super::repair::COMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineFacts {
        let (near, far): (CpuSet, CpuSet) = ((0..4).collect(), (4..8).collect());
        MachineFacts { online: near.union(&far), nodes: vec![(0, near), (1, far)], is_guest: Some(false) }
    }

    fn nic(effective: &[&str]) -> HardwareNic {
        let queues = effective
            .iter()
            .enumerate()
            .map(|(irq, cpus)| QueueIrq {
                irq: irq as u32,
                action: format!("eth0-{irq}"),
                allowed: "0-7".parse().unwrap(),
                effective: cpus.parse().unwrap(),
            })
            .collect();
        HardwareNic { name: "eth0".into(), node: Some(0), queues, ..HardwareNic::default() }
    }

    #[test]
    fn interrupts_should_be_spread_and_near() {
        use CheckVerdict::{Improve, Unknown, Well};
        for (cpus, spread, node) in [
            (&["0", "1", "2", "3"][..], Well, Well),
            (&["0", "0", "0", "0"], Improve, Well),
            (&["0", "1", "1", "0"], Well, Well),
            (&["4", "5", "2", "3"], Well, Improve),
            (&["4"], Well, Improve),
            (&["0"], Well, Well),
            (&["0", ""], Unknown, Unknown),
            (&[], Unknown, Unknown),
        ] {
            let nic = nic(cpus);
            assert_eq!(irq_spread(&nic, &machine()).verdict, spread, "{cpus:?}");
            assert_eq!(irq_node(&nic, &machine()).verdict, node, "{cpus:?}");
        }
        let nowhere = HardwareNic { node: None, ..nic(&["0", "1"]) };
        assert_eq!(irq_node(&nowhere, &machine()).verdict, Unknown);
        assert_eq!(irq_spread(&nowhere, &MachineFacts::default()).verdict, Unknown);
    }

    #[test]
    fn a_single_node_is_near_to_everything() {
        let machine = MachineFacts { nodes: vec![(0, "0-7".parse().unwrap())], ..machine() };
        assert_eq!(irq_node(&nic(&["7"]), &machine).verdict, CheckVerdict::Well);
    }

    #[test]
    fn queueing_is_that_of_the_queues() {
        fn qdiscs(list: &[(&str, bool, &str)]) -> KernelProbes {
            let list =
                list.iter().map(|(name, is_root, kind)| (name.to_string(), *is_root, kind.to_string()));
            KernelProbes { qdiscs: Some(list.collect()), ..KernelProbes::default() }
        }
        fn verdict(probes: &KernelProbes) -> (CheckVerdict, String) {
            let (kinds, is_multi_queue) = qdisc_of(probes, "eth0");
            let finding = qdisc(&HardwareNic {
                name: "eth0".into(),
                qdisc: kinds,
                is_multi_queue,
                ..HardwareNic::default()
            });
            (finding.verdict, finding.command.unwrap_or_default())
        }
        assert_eq!(verdict(&qdiscs(&[("eth0", true, "fq")])).0, CheckVerdict::Well);
        assert_eq!(verdict(&qdiscs(&[("eth0", true, "mq"), ("eth0", false, "fq")])).0, CheckVerdict::Well);
        let (several, command) =
            verdict(&qdiscs(&[("eth0", true, "mq"), ("eth0", false, "fq"), ("eth0", false, "pfifo_fast")]));
        assert_eq!((several, command.ends_with("dev eth0 root mq")), (CheckVerdict::Improve, true));
        let (one, command) = verdict(&qdiscs(&[("eth0", true, "fq_codel"), ("eth1", true, "fq")]));
        assert_eq!((one, &*command), (CheckVerdict::Improve, "tc qdisc replace dev eth0 root fq"));
        assert_eq!(verdict(&qdiscs(&[])).0, CheckVerdict::Unknown);
        assert_eq!(verdict(&KernelProbes::default()).0, CheckVerdict::Unknown);
    }

    #[test]
    fn rings_links_and_frames() {
        for (rx, rx_max, verdict) in [
            (512, 8192, CheckVerdict::Note),
            (8192, 16384, CheckVerdict::Well),
            (256, 256, CheckVerdict::Well),
            (0, 0, CheckVerdict::Unknown),
        ] {
            let with_ring =
                HardwareNic { ring: Some(RingSizes { rx, rx_max, ..RingSizes::default() }), ..nic(&[]) };
            assert_eq!(ring(&with_ring).verdict, verdict, "{rx} {rx_max}");
        }
        let half = HardwareNic { speed_mbits: Some(100), is_half_duplex: true, mtu: Some(1500), ..nic(&[]) };
        assert_eq!(
            (link_speed(&half).verdict, mtu(&half).verdict),
            (CheckVerdict::Improve, CheckVerdict::Note)
        );
        let slow =
            HardwareNic { pci_link: Some(("8.0 GT/s PCIe x8".into(), "16.0 GT/s PCIe x16".into())), ..half };
        assert_eq!(pci_link_finding(&slow).verdict, CheckVerdict::Note);
    }
}
