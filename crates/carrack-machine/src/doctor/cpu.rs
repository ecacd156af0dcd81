//! Processors: governor, irqbalance, and core zones.

use std::collections::BTreeSet;

use super::MachineFacts;
use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::nics::HardwareNic;
use super::probes::KernelProbes;
use crate::sys_files::SysFiles;
use crate::zone::StaleZoneCgroup;

pub(super) const CHECKS: &[&MachineCheck] = &[&GOVERNOR, &IRQBALANCE, &CORE_ZONES, &STALE_ZONES];

static GOVERNOR: MachineCheck = MachineCheck {
    name: "governor",
    group: CheckGroup::Cpu,
    about: "how the CPUs choose their frequency",
    why: "others than performance let a CPU that waits for packets fall asleep, and it wakes up late",
    source: "fasterdata.es.net, 100G tuning; kernel documentation, admin-guide/pm/cpufreq",
};

static IRQBALANCE: MachineCheck = MachineCheck {
    name: "irqbalance",
    group: CheckGroup::Cpu,
    about: "whether irqbalance moves interrupts about",
    why: "it undoes what binds an interface's queues to the CPUs of its node",
    source: "fasterdata.es.net, interrupt binding; irqbalance(1)",
};

static CORE_ZONES: MachineCheck = MachineCheck {
    name: "core_zones",
    group: CheckGroup::Cpu,
    about: "whether the kernel can keep cores for one transfer",
    why: "a zone that others are moved out of is a cpuset partition of cgroup v2",
    source: "kernel documentation, admin-guide/cgroup-v2",
};

static STALE_ZONES: MachineCheck = MachineCheck {
    name: "stale_zones",
    group: CheckGroup::Cpu,
    about: "core zones that a killed transfer has left behind",
    why: "nobody may use the cores of such a zone",
    source: "kernel documentation, admin-guide/cgroup-v2, cpuset.cpus.partition",
};

/// Link speed in Mbit/s that exceeds the packet rate of one CPU.
const FAST_MBITS: u32 = 40_000;

/// The kernel's first thread, visible only where all processes are.
const KTHREADD: &str = "proc/2/comm";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuFacts {
    /// Governors in use; empty without frequency scaling.
    governors: BTreeSet<String>,
    /// True if irqbalance runs; `None` if not all processes are visible.
    has_irqbalance: Option<bool>,
    /// The controllers of cgroup v2; `None` if it is not mounted.
    controllers: Option<Vec<String>>,
    /// Zones of processes that have ended.
    stale_zones: Option<Vec<StaleZoneCgroup>>,
}

pub(super) fn read(files: &SysFiles, probes: &KernelProbes) -> CpuFacts {
    CpuFacts {
        governors: governors(files),
        has_irqbalance: has_irqbalance(files),
        controllers: cgroup_controllers(files),
        stale_zones: probes.stale_zones.clone(),
    }
}

fn governors(files: &SysFiles) -> BTreeSet<String> {
    let policies = files.list_directory("sys/devices/system/cpu/cpufreq").unwrap_or_default();
    let paths =
        policies.iter().map(|policy| format!("sys/devices/system/cpu/cpufreq/{policy}/scaling_governor"));
    paths.filter_map(|path| files.read_text(&path)).collect()
}

pub(super) fn has_irqbalance(files: &SysFiles) -> Option<bool> {
    let names = files.list_directory("proc")?;
    let processes = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let mut names = processes.filter_map(|process| files.read_text(&format!("proc/{process}/comm")));
    if names.any(|name| name == "irqbalance") {
        return Some(true);
    }
    let sees_all = files.read_text(KTHREADD).is_some_and(|name| name == "kthreadd");
    sees_all.then_some(false)
}

fn cgroup_controllers(files: &SysFiles) -> Option<Vec<String>> {
    let paths = ["sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/unified/cgroup.controllers"];
    let text = paths.into_iter().find_map(|path| files.read_text(path))?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

pub(super) fn evaluate(facts: &CpuFacts, nics: &[HardwareNic], machine: &MachineFacts) -> Vec<CheckFinding> {
    vec![governor(facts, machine), irqbalance(facts, nics), core_zones(facts, machine), stale_zones(facts)]
}

fn governor(facts: &CpuFacts, machine: &MachineFacts) -> CheckFinding {
    let wanted = "performance";
    if facts.governors.is_empty() {
        return match machine.is_guest {
            Some(true) => GOVERNOR.finding(CheckVerdict::Unknown, "the matter of this guest's host", wanted),
            _ => GOVERNOR.unknown_finding(wanted),
        };
    }
    let is_well = facts.governors.iter().all(|governor| governor == wanted);
    let present = facts.governors.iter().cloned().collect::<Vec<_>>().join(", ");
    GOVERNOR
        .finding(well_if(is_well, CheckVerdict::Improve), present, wanted)
        .with_repair_command("cpupower frequency-set -g performance")
}

/// Harmless with a slow interface.
fn irqbalance(facts: &CpuFacts, nics: &[HardwareNic]) -> CheckFinding {
    let wanted = "not running, with an interface of 40 Gbit/s or more";
    let is_fast = nics.iter().any(|nic| nic.speed_mbits.is_some_and(|speed| speed >= FAST_MBITS));
    let (verdict, present) = match facts.has_irqbalance {
        None => return IRQBALANCE.unknown_finding(wanted),
        Some(false) => (CheckVerdict::Well, "not running"),
        Some(true) if is_fast => (CheckVerdict::Improve, "running"),
        Some(true) => (CheckVerdict::Well, "running"),
    };
    IRQBALANCE.finding(verdict, present, wanted).with_repair_command("systemctl disable --now irqbalance")
}

/// Useful with several cores to divide; without cpuset, zones are soft.
fn core_zones(facts: &CpuFacts, machine: &MachineFacts) -> CheckFinding {
    let wanted = "cgroup v2 with the cpuset controller";
    let Some(controllers) = &facts.controllers else {
        return CORE_ZONES.finding(CheckVerdict::Unknown, "no cgroup v2 can be seen here", wanted);
    };
    let has_cpuset = controllers.iter().any(|name| name == "cpuset");
    let present = if has_cpuset { "cgroup v2 with cpuset" } else { "cgroup v2 without cpuset" };
    let other = if machine.is_numa() { CheckVerdict::Note } else { CheckVerdict::Well };
    CORE_ZONES.finding(well_if(has_cpuset, other), present, wanted)
}

fn stale_zones(facts: &CpuFacts) -> CheckFinding {
    let Some(zones) = &facts.stale_zones else { return STALE_ZONES.unknown_finding("none") };
    let present: Vec<String> = zones.iter().map(ToString::to_string).collect();
    let present = if zones.is_empty() { "none".into() } else { present.join("; ") };
    STALE_ZONES
        .finding(well_if(zones.is_empty(), CheckVerdict::Improve), present, "none")
        .with_repair_command(super::repair::COMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_should_perform() {
        fn with(governors: &[&str]) -> CpuFacts {
            let governors = governors.iter().map(|name| name.to_string()).collect();
            CpuFacts { governors, ..CpuFacts::default() }
        }
        let machine = MachineFacts { is_guest: Some(true), ..MachineFacts::default() };
        assert_eq!(governor(&with(&["performance"]), &machine).verdict, CheckVerdict::Well);
        let mixed = governor(&with(&["performance", "powersave"]), &machine);
        assert_eq!((mixed.verdict, &*mixed.present), (CheckVerdict::Improve, "performance, powersave"));
        let guest = governor(&with(&[]), &machine);
        assert_eq!(
            (guest.verdict, &*guest.present),
            (CheckVerdict::Unknown, "the matter of this guest's host")
        );
        assert_eq!(governor(&with(&[]), &MachineFacts::default()).verdict, CheckVerdict::Unknown);
    }

    #[test]
    fn irqbalance_matters_with_a_fast_interface() {
        for (has, speed, verdict) in [
            (None, 100_000, CheckVerdict::Unknown),
            (Some(false), 100_000, CheckVerdict::Well),
            (Some(true), 100_000, CheckVerdict::Improve),
            (Some(true), 10_000, CheckVerdict::Well),
        ] {
            let facts = CpuFacts { has_irqbalance: has, ..CpuFacts::default() };
            let nic = HardwareNic { speed_mbits: Some(speed), ..HardwareNic::default() };
            assert_eq!(irqbalance(&facts, &[nic]).verdict, verdict, "{has:?} {speed}");
        }
    }

    #[test]
    fn zones_need_a_controller() {
        fn with(text: Option<&str>) -> CpuFacts {
            let controllers = text.map(|text| text.split(' ').map(str::to_owned).collect());
            CpuFacts { controllers, ..CpuFacts::default() }
        }
        let machine = MachineFacts {
            nodes: vec![(0, "0".parse().unwrap()), (1, "1".parse().unwrap())],
            ..MachineFacts::default()
        };
        assert_eq!(core_zones(&with(Some("cpuset cpu io")), &machine).verdict, CheckVerdict::Well);
        assert_eq!(core_zones(&with(Some("cpu io")), &machine).verdict, CheckVerdict::Note);
        assert_eq!(core_zones(&with(Some("cpu io")), &MachineFacts::default()).verdict, CheckVerdict::Well);
        assert_eq!(core_zones(&with(None), &machine).verdict, CheckVerdict::Unknown);
    }
}
