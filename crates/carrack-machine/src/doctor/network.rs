//! TCP in the kernel: buffers, congestion control, path MTU, queueing.

use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::nics::HardwareNic;
use super::{DoctorTransferParameters, SPEED_MBITS_DEFAULT};
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] = &[
    &TCP_RMEM,
    &TCP_WMEM,
    &RMEM_MAX,
    &WMEM_MAX,
    &OPTMEM_MAX,
    &CONGESTION_CONTROL,
    &LOSS_TOLERANCE,
    &MTU_PROBING,
    &DEFAULT_QDISC,
];

static TCP_RMEM: MachineCheck = MachineCheck {
    name: "tcp_rmem",
    group: CheckGroup::Network,
    about: "greatest receive buffer of a TCP connection (net.ipv4.tcp_rmem)",
    why: "a connection carries no more in a round trip than its buffer holds; this one lets a single connection fill \
          the path",
    source: "fasterdata.es.net, Linux host tuning; tcp(7)",
};

static TCP_WMEM: MachineCheck = MachineCheck {
    name: "tcp_wmem",
    group: CheckGroup::Network,
    about: "greatest send buffer of a TCP connection (net.ipv4.tcp_wmem)",
    why: "what is on its way stays in the send buffer until it is acknowledged; this one lets a single connection fill \
          the path",
    source: "fasterdata.es.net, Linux host tuning; tcp(7)",
};

static RMEM_MAX: MachineCheck = MachineCheck {
    name: "rmem_max",
    group: CheckGroup::Network,
    about: "greatest receive buffer that a program may ask for (net.core.rmem_max)",
    why: "carrack leaves far connections to the kernel (tcp_rmem); programs that set their buffers are held to this",
    source: "fasterdata.es.net, Linux host tuning; socket(7)",
};

static WMEM_MAX: MachineCheck = MachineCheck {
    name: "wmem_max",
    group: CheckGroup::Network,
    about: "greatest send buffer that a program may ask for (net.core.wmem_max)",
    why: "carrack leaves far connections to the kernel (tcp_wmem); programs that set their buffers are held to this",
    source: "fasterdata.es.net, Linux host tuning; socket(7)",
};

static OPTMEM_MAX: MachineCheck = MachineCheck {
    name: "optmem_max",
    group: CheckGroup::Network,
    about: "memory for a socket's notifications (net.core.optmem_max)",
    why: "programs that send without copying (MSG_ZEROCOPY) keep a notification for each send here; carrack does not",
    source: "fasterdata.es.net, 100G tuning; kernel documentation, msg_zerocopy",
};

static CONGESTION_CONTROL: MachineCheck = MachineCheck {
    name: "congestion_control",
    group: CheckGroup::Network,
    about: "how TCP shares the path (net.ipv4.tcp_congestion_control)",
    why: "cubic and bbr recover on long fast paths; older ones need minutes after a single loss",
    source: "fasterdata.es.net, Linux host tuning; RFC 9438",
};

static LOSS_TOLERANCE: MachineCheck = MachineCheck {
    name: "loss_tolerance",
    group: CheckGroup::Network,
    about: "bbr for paths that lose packets without congestion (net.ipv4.tcp_allowed_congestion_control)",
    why: "carrack tries it where a far path loses packets and shows no queue: more than twice the throughput of cubic at \
          1 Gbit/s, 20 ms and 0.1 % loss",
    source: "Cardwell et al., BBR, ACM Queue 2016; tcp(7)",
};

static MTU_PROBING: MachineCheck = MachineCheck {
    name: "mtu_probing",
    group: CheckGroup::Network,
    about: "finding the path's MTU without ICMP (net.ipv4.tcp_mtu_probing)",
    why: "with large frames, a router that drops them without a word makes connections hang",
    source: "fasterdata.es.net, Linux host tuning; RFC 4821",
};

static DEFAULT_QDISC: MachineCheck = MachineCheck {
    name: "default_qdisc",
    group: CheckGroup::Network,
    about: "the queueing discipline that interfaces get (net.core.default_qdisc)",
    why: "fq spreads a connection's packets over time (pacing), so that small buffers on the way don't overflow",
    source: "fasterdata.es.net, packet pacing; tc-fq(8)",
};

/// The kernel keeps these limits in an `int`.
const BUFFER_BYTES_MAX: u64 = i32::MAX as u64;

/// Minimum for short paths; less is never advised.
const BUFFER_BYTES_MIN: u64 = 4 << 20;

const OPTMEM_BYTES: u64 = 1 << 20;

/// Smallest MTU that counts as jumbo.
const JUMBO_MTU: u32 = 9000;

/// The kernel's settings; `None` if not visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelNetworkSettings {
    tcp_rmem: Option<String>,
    tcp_wmem: Option<String>,
    rmem_max: Option<u64>,
    wmem_max: Option<u64>,
    optmem_max: Option<u64>,
    congestion_control: Option<String>,
    available: Option<String>,
    allowed: Option<String>,
    mtu_probing: Option<u32>,
    default_qdisc: Option<String>,
}

pub(super) fn read(files: &SysFiles) -> KernelNetworkSettings {
    KernelNetworkSettings {
        tcp_rmem: files.read_text("proc/sys/net/ipv4/tcp_rmem"),
        tcp_wmem: files.read_text("proc/sys/net/ipv4/tcp_wmem"),
        rmem_max: files.read_value("proc/sys/net/core/rmem_max"),
        wmem_max: files.read_value("proc/sys/net/core/wmem_max"),
        optmem_max: files.read_value("proc/sys/net/core/optmem_max"),
        congestion_control: files.read_text("proc/sys/net/ipv4/tcp_congestion_control"),
        available: files.read_text("proc/sys/net/ipv4/tcp_available_congestion_control"),
        allowed: files.read_text("proc/sys/net/ipv4/tcp_allowed_congestion_control"),
        mtu_probing: files.read_value("proc/sys/net/ipv4/tcp_mtu_probing"),
        default_qdisc: files.read_text("proc/sys/net/core/default_qdisc"),
    }
}

pub(super) fn evaluate(
    facts: &KernelNetworkSettings,
    nics: &[HardwareNic],
    purpose: &DoctorTransferParameters,
) -> Vec<CheckFinding> {
    let buffers = required_tcp_buffers(nics, purpose);
    let wanted = format!("{} or more, for {}", buffers.bytes, buffers.path);
    vec![
        tcp_buffer(&TCP_RMEM, facts.tcp_rmem.as_deref(), &buffers),
        tcp_buffer(&TCP_WMEM, facts.tcp_wmem.as_deref(), &buffers),
        core_sysctl_limit(&RMEM_MAX, facts.rmem_max, buffers.bytes, &wanted),
        core_sysctl_limit(&WMEM_MAX, facts.wmem_max, buffers.bytes, &wanted),
        core_sysctl_limit(&OPTMEM_MAX, facts.optmem_max, OPTMEM_BYTES, &format!("{OPTMEM_BYTES} or more")),
        congestion_control(facts),
        loss_tolerance(facts),
        mtu_probing(facts.mtu_probing, nics),
        default_qdisc(facts.default_qdisc.as_deref()),
    ]
}

/// Required size of buffers, and the path it is computed for.
struct RequiredTcpBuffers {
    bytes: u64,
    path: String,
}

/// Bandwidth × delay of the machine's path, within the kernel's limits.
fn required_tcp_buffers(nics: &[HardwareNic], purpose: &DoctorTransferParameters) -> RequiredTcpBuffers {
    let fastest = nics.iter().filter_map(|nic| nic.speed_mbits).max();
    let (speed_mbits, assumed) = match purpose.speed_mbits.or(fastest) {
        Some(speed_mbits) => (speed_mbits, ""),
        None => (SPEED_MBITS_DEFAULT, "assumed "),
    };
    let bytes = u64::from(speed_mbits) * 1_000_000 / 8 * u64::from(purpose.rtt_ms) / 1_000;
    let path = format!("{assumed}{speed_mbits} Mbit/s and {} ms", purpose.rtt_ms);
    RequiredTcpBuffers { bytes: bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX), path }
}

/// "4096 131072 33554432": minimum, default and maximum.
fn tcp_buffer(
    check: &'static MachineCheck,
    present: Option<&str>,
    buffers: &RequiredTcpBuffers,
) -> CheckFinding {
    let RequiredTcpBuffers { bytes, path } = buffers;
    let wanted = format!("{bytes} or more as the last of three, for {path}");
    let words: Vec<&str> = present.unwrap_or_default().split_whitespace().collect();
    let (&[least, default, greatest], Some(present)) = (&words[..], present) else {
        return check.unknown_finding(wanted);
    };
    let Ok(greatest) = greatest.parse::<u64>() else { return check.unknown_finding(wanted) };
    let verdict = well_if(greatest >= *bytes, CheckVerdict::Improve);
    let command = format!("sysctl -w net.ipv4.{}='{least} {default} {bytes}'", check.name);
    check
        .finding(verdict, present.split_whitespace().collect::<Vec<_>>().join(" "), wanted)
        .with_repair_command(command)
}

fn core_sysctl_limit(
    check: &'static MachineCheck,
    present: Option<u64>,
    bytes: u64,
    wanted: &str,
) -> CheckFinding {
    let Some(present) = present else { return check.unknown_finding(wanted) };
    let verdict = well_if(present >= bytes, CheckVerdict::Note);
    let command = format!("sysctl -w net.core.{}={bytes}", check.name);
    check.finding(verdict, present.to_string(), wanted).with_repair_command(command)
}

fn recovers_fast(congestion_control: &str) -> bool {
    congestion_control == "cubic" || congestion_control.starts_with("bbr")
}

fn congestion_control(facts: &KernelNetworkSettings) -> CheckFinding {
    let wanted = "cubic or bbr";
    let Some(present) = &facts.congestion_control else { return CONGESTION_CONTROL.unknown_finding(wanted) };
    let verdict = well_if(recovers_fast(present), CheckVerdict::Improve);
    let available = facts.available.as_deref().unwrap_or_default();
    let shown =
        if available.is_empty() { present.clone() } else { format!("{present} (available: {available})") };
    let command = match available.split_whitespace().find(|name| recovers_fast(name)) {
        Some(name) => format!("sysctl -w net.ipv4.tcp_congestion_control={name}"),
        None => "modprobe tcp_cubic && sysctl -w net.ipv4.tcp_congestion_control=cubic".into(),
    };
    CONGESTION_CONTROL.finding(verdict, shown, wanted).with_repair_command(command)
}

/// Returns whether every user's connections can have BBR: by default, or as one of those that are allowed.
fn loss_tolerance(facts: &KernelNetworkSettings) -> CheckFinding {
    let wanted = "bbr allowed";
    let Some(allowed) = &facts.allowed else { return LOSS_TOLERANCE.unknown_finding(wanted) };
    let has_bbr = |names: &str| names.split_whitespace().any(|name| name.starts_with("bbr"));
    let is_well = has_bbr(allowed) || facts.congestion_control.as_deref().is_some_and(has_bbr);
    let load = if facts.available.as_deref().is_some_and(has_bbr) { "" } else { "modprobe tcp_bbr && " };
    let command = format!("{load}sysctl -w net.ipv4.tcp_allowed_congestion_control='{} bbr'", allowed.trim());
    let verdict = well_if(is_well, CheckVerdict::Note);
    LOSS_TOLERANCE
        .finding(verdict, format!("allowed: {}", allowed.trim()), wanted)
        .with_repair_command(command)
}

/// Frames of usual size pass everywhere.
fn mtu_probing(present: Option<u32>, nics: &[HardwareNic]) -> CheckFinding {
    let has_jumbo = nics.iter().any(|nic| nic.mtu.is_some_and(|mtu| mtu >= JUMBO_MTU));
    let wanted = if has_jumbo { "1" } else { "1 where an MTU above 1500 is used" };
    let Some(present) = present else { return MTU_PROBING.unknown_finding(wanted) };
    let verdict = well_if(present > 0 || !has_jumbo, CheckVerdict::Improve);
    MTU_PROBING
        .finding(verdict, present.to_string(), wanted)
        .with_repair_command("sysctl -w net.ipv4.tcp_mtu_probing=1")
}

fn default_qdisc(present: Option<&str>) -> CheckFinding {
    let Some(present) = present else { return DEFAULT_QDISC.unknown_finding("fq") };
    // Another check judges the current discipline of each interface.
    let verdict = well_if(present == "fq", CheckVerdict::Note);
    DEFAULT_QDISC.finding(verdict, present, "fq").with_repair_command("sysctl -w net.core.default_qdisc=fq")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purpose(rtt_ms: u32, speed_mbits: Option<u32>) -> DoctorTransferParameters {
        DoctorTransferParameters { rtt_ms, speed_mbits, pool_bytes: 1 << 28, paths: vec![] }
    }

    fn nic(speed_mbits: Option<u32>, mtu: u32) -> HardwareNic {
        HardwareNic { name: "eth0".into(), speed_mbits, mtu: Some(mtu), ..HardwareNic::default() }
    }

    #[test]
    fn buffers_hold_what_the_path_holds() {
        let slow = nic(Some(10_000), 1500);
        for (nics, rtt_ms, speed, bytes) in [
            (vec![], 100, None, 1_250_000_000),
            (vec![nic(None, 1500)], 100, None, 1_250_000_000),
            (vec![slow.clone()], 100, None, 125_000_000),
            (vec![slow.clone(), nic(Some(25_000), 1500)], 100, None, 312_500_000),
            (vec![slow.clone()], 100, Some(40_000), 500_000_000),
            (vec![slow.clone()], 1, None, BUFFER_BYTES_MIN),
            (vec![nic(Some(400_000), 1500)], 100, None, BUFFER_BYTES_MAX),
        ] {
            let buffers = required_tcp_buffers(&nics, &purpose(rtt_ms, speed));
            assert_eq!(buffers.bytes, bytes, "{nics:?}");
            let is_known = speed.is_some() || nics.iter().any(|nic| nic.speed_mbits.is_some());
            assert_eq!(buffers.path.starts_with("assumed "), !is_known, "{nics:?}");
        }
    }

    fn of_bytes(bytes: u64) -> RequiredTcpBuffers {
        RequiredTcpBuffers { bytes, path: "a path".into() }
    }

    #[test]
    fn the_greatest_of_three_counts_and_the_others_stay() {
        let finding = tcp_buffer(&TCP_RMEM, Some("4096\t131072\t6291456"), &of_bytes(125_000_000));
        assert_eq!((finding.verdict, &*finding.present), (CheckVerdict::Improve, "4096 131072 6291456"));
        assert_eq!(finding.command.as_deref(), Some("sysctl -w net.ipv4.tcp_rmem='4096 131072 125000000'"));
        let finding = tcp_buffer(&TCP_WMEM, Some("4096 16384 125000000"), &of_bytes(125_000_000));
        assert_eq!((finding.verdict, finding.command), (CheckVerdict::Well, None));
        for odd in [None, Some(""), Some("1 2"), Some("1 2 x")] {
            assert_eq!(tcp_buffer(&TCP_RMEM, odd, &of_bytes(1)).verdict, CheckVerdict::Unknown, "{odd:?}");
        }
    }

    #[test]
    fn congestion_controls_are_known() {
        for (present, available, verdict, command) in [
            ("cubic", "reno cubic", CheckVerdict::Well, None),
            ("bbr3", "", CheckVerdict::Well, None),
            (
                "reno",
                "reno cubic",
                CheckVerdict::Improve,
                Some("sysctl -w net.ipv4.tcp_congestion_control=cubic"),
            ),
            (
                "reno",
                "reno",
                CheckVerdict::Improve,
                Some("modprobe tcp_cubic && sysctl -w net.ipv4.tcp_congestion_control=cubic"),
            ),
        ] {
            let facts = KernelNetworkSettings {
                congestion_control: Some(present.into()),
                available: Some(available.into()),
                ..KernelNetworkSettings::default()
            };
            let finding = congestion_control(&facts);
            assert_eq!((finding.verdict, finding.command.as_deref()), (verdict, command), "{present}");
        }
    }

    #[test]
    fn bbr_is_to_be_allowed() {
        let allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'";
        for (default, available, allowed, command) in [
            ("cubic", "reno cubic bbr", "reno cubic bbr", None),
            ("bbr", "reno bbr", "reno", None),
            ("cubic", "reno cubic bbr", "reno cubic\n", Some(allow.to_owned())),
            ("cubic", "reno cubic", "reno cubic", Some(format!("modprobe tcp_bbr && {allow}"))),
        ] {
            let facts = KernelNetworkSettings {
                congestion_control: Some(default.into()),
                available: Some(available.into()),
                allowed: Some(allowed.into()),
                ..KernelNetworkSettings::default()
            };
            let finding = loss_tolerance(&facts);
            let verdict = if command.is_none() { CheckVerdict::Well } else { CheckVerdict::Note };
            assert_eq!((finding.verdict, finding.command), (verdict, command), "{default} {allowed}");
        }
    }

    #[test]
    fn probing_matters_with_large_frames() {
        for (present, mtu, verdict) in
            [(0, 1500, CheckVerdict::Well), (0, 9000, CheckVerdict::Improve), (1, 9000, CheckVerdict::Well)]
        {
            assert_eq!(mtu_probing(Some(present), &[nic(None, mtu)]).verdict, verdict, "{present} {mtu}");
        }
    }

    #[test]
    fn nothing_seen_is_nothing_said() {
        let findings = evaluate(&KernelNetworkSettings::default(), &[], &purpose(100, None));
        assert_eq!(findings.len(), CHECKS.len());
        assert!(
            findings
                .iter()
                .all(|finding| finding.verdict == CheckVerdict::Unknown && finding.command.is_none())
        );
    }
}
