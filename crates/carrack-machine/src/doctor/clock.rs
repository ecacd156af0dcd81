//! Clocks: synchronisation, and the cost of reading the time.

use super::Machine;
use super::finding::{Check, Finding, Group, Verdict, well_if};
use super::probes::Probes;
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&Check] = &[&SYNCHRONISED, &CLOCK_SOURCE];

static SYNCHRONISED: Check = Check {
    name: "clock_synchronised",
    group: Group::Clock,
    about: "whether the clock is kept by NTP, PTP or the like",
    why: "logs, modification times and certificates of two ends are compared with each other",
    source: "adjtimex(2)",
};

static CLOCK_SOURCE: Check = Check {
    name: "clock_source",
    group: Group::Clock,
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

pub(super) fn read(files: &SysFiles, probes: &Probes) -> ClockFacts {
    let available = files.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    ClockFacts {
        is_synchronised: probes.is_clock_synchronised,
        source: files.text(&format!("{SOURCES}/current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
    }
}

pub(super) fn judge(facts: &ClockFacts, machine: &Machine) -> Vec<Finding> {
    vec![synchronised(facts, machine), clock_source(facts)]
}

/// Hypervisors keep their guests' time by other means than adjtimex; a machine of unknown kind may be a
/// guest.
fn synchronised(facts: &ClockFacts, machine: &Machine) -> Finding {
    let wanted = "synchronised";
    let Some(is_synchronised) = facts.is_synchronised else { return SYNCHRONISED.unseen(wanted) };
    let present = if is_synchronised { "synchronised" } else { "nothing keeps it" };
    let other = if machine.is_guest == Some(false) { Verdict::Improve } else { Verdict::Note };
    SYNCHRONISED.found(well_if(is_synchronised, other), present, wanted).mended_by("timedatectl set-ntp true")
}

fn clock_source(facts: &ClockFacts) -> Finding {
    let wanted = "tsc, or what the hypervisor gives in its place";
    let Some(present) = &facts.source else { return CLOCK_SOURCE.unseen(wanted) };
    let finding = CLOCK_SOURCE.found(well_if(!SLOW.contains(&&**present), Verdict::Improve), present, wanted);
    match facts.available.iter().find(|name| !SLOW.contains(&&***name)) {
        Some(better) => finding.mended_by(format!("echo {better} >/{SOURCES}/current_clocksource")),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_should_keep_the_time() {
        let guest = Machine { is_guest: Some(true), ..Machine::default() };
        let host = Machine { is_guest: Some(false), ..Machine::default() };
        for (is, machine, verdict) in [
            (Some(true), &guest, Verdict::Well),
            (Some(false), &guest, Verdict::Note),
            (Some(false), &Machine::default(), Verdict::Note),
            (Some(false), &host, Verdict::Improve),
            (None, &guest, Verdict::Unknown),
        ] {
            let facts = ClockFacts { is_synchronised: is, ..ClockFacts::default() };
            assert_eq!(synchronised(&facts, machine).verdict, verdict, "{is:?}");
        }
    }

    #[test]
    fn slow_sources_are_named_and_replaced_if_possible() {
        fn with(source: &str, available: &[&str]) -> Finding {
            let available = available.iter().map(|name| name.to_string()).collect();
            clock_source(&ClockFacts { source: Some(source.into()), available, ..ClockFacts::default() })
        }
        assert_eq!(with("tsc", &["tsc", "hpet"]).verdict, Verdict::Well);
        assert_eq!(with("kvm-clock", &[]).verdict, Verdict::Well);
        let slow = with("hpet", &["hpet", "tsc"]);
        assert!(slow.verdict == Verdict::Improve && slow.command.unwrap().starts_with("echo tsc >/sys/"));
        assert_eq!(with("hpet", &["hpet", "acpi_pm"]).command, None);
    }
}
