//! Clocks: synchronisation, and the cost of reading the time.

use super::MachineFacts;
use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::probes::KernelProbes;
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] = &[&SYNCHRONISED, &CLOCK_SOURCE];

static SYNCHRONISED: MachineCheck = MachineCheck {
    name: "clock_synchronised",
    group: CheckGroup::Clock,
    about: "whether the clock is kept by NTP, PTP or the like",
    why: "logs, modification times and certificates of two ends are compared with each other",
    source: "adjtimex(2)",
};

static CLOCK_SOURCE: MachineCheck = MachineCheck {
    name: "clock_source",
    group: CheckGroup::Clock,
    about: "what the kernel reads the time from",
    why: "asking for the time, which each packet that is paced does, costs a device access with the slow ones",
    source: "kernel documentation, timers/timekeeping; vdso(7)",
};

const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";

/// Sources that take microseconds or a system call to read.
const SLOW: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClockFacts {
    is_synchronised: Option<bool>,
    source: Option<String>,
    available: Vec<String>,
}

pub(super) fn read(files: &SysFiles, probes: &KernelProbes) -> ClockFacts {
    let available = files.read_text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    ClockFacts {
        is_synchronised: probes.is_clock_synchronised,
        source: files.read_text(&format!("{SOURCES}/current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
    }
}

pub(super) fn evaluate(facts: &ClockFacts, machine: &MachineFacts) -> Vec<CheckFinding> {
    vec![clock_synchronisation(facts, machine), clock_source(facts)]
}

/// Hypervisors keep their guests' time by other means than adjtimex; a machine of unknown kind may be a
/// guest.
fn clock_synchronisation(facts: &ClockFacts, machine: &MachineFacts) -> CheckFinding {
    let wanted = "synchronised";
    let Some(is_synchronised) = facts.is_synchronised else { return SYNCHRONISED.unknown_finding(wanted) };
    let present = if is_synchronised { "synchronised" } else { "nothing keeps it" };
    let other = if machine.is_guest == Some(false) { CheckVerdict::Improve } else { CheckVerdict::Note };
    SYNCHRONISED
        .finding(well_if(is_synchronised, other), present, wanted)
        .with_repair_command("timedatectl set-ntp true")
}

fn clock_source(facts: &ClockFacts) -> CheckFinding {
    let wanted = "tsc, or what the hypervisor gives in its place";
    let Some(present) = &facts.source else { return CLOCK_SOURCE.unknown_finding(wanted) };
    let finding =
        CLOCK_SOURCE.finding(well_if(!SLOW.contains(&&**present), CheckVerdict::Improve), present, wanted);
    match facts.available.iter().find(|name| !SLOW.contains(&&***name)) {
        Some(better) => finding.with_repair_command(format!("echo {better} >/{SOURCES}/current_clocksource")),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_should_keep_the_time() {
        let guest = MachineFacts { is_guest: Some(true), ..MachineFacts::default() };
        let host = MachineFacts { is_guest: Some(false), ..MachineFacts::default() };
        for (is, machine, verdict) in [
            (Some(true), &guest, CheckVerdict::Well),
            (Some(false), &guest, CheckVerdict::Note),
            (Some(false), &MachineFacts::default(), CheckVerdict::Note),
            (Some(false), &host, CheckVerdict::Improve),
            (None, &guest, CheckVerdict::Unknown),
        ] {
            let facts = ClockFacts { is_synchronised: is, ..ClockFacts::default() };
            assert_eq!(clock_synchronisation(&facts, machine).verdict, verdict, "{is:?}");
        }
    }

    #[test]
    fn slow_sources_are_named_and_replaced_if_possible() {
        fn with(source: &str, available: &[&str]) -> CheckFinding {
            let available = available.iter().map(|name| name.to_string()).collect();
            clock_source(&ClockFacts { source: Some(source.into()), available, ..ClockFacts::default() })
        }
        assert_eq!(with("tsc", &["tsc", "hpet"]).verdict, CheckVerdict::Well);
        assert_eq!(with("kvm-clock", &[]).verdict, CheckVerdict::Well);
        let slow = with("hpet", &["hpet", "tsc"]);
        assert!(
            slow.verdict == CheckVerdict::Improve && slow.command.unwrap().starts_with("echo tsc >/sys/")
        );
        assert_eq!(with("hpet", &["hpet", "acpi_pm"]).command, None);
    }
}
