//! Limits of this process, and features of the kernel and of libraries.

use super::MachineFacts;
use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::memory::soft_limit;
use super::probes::KernelProbes;
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] = &[&OPEN_FILES, &OPENAT2, &KERNEL, &HWLOC, &VIRTUAL_MACHINE];

static OPEN_FILES: MachineCheck = MachineCheck {
    name: "open_files",
    group: CheckGroup::System,
    about: "how many files a process may have open (RLIMIT_NOFILE)",
    why: "a transfer keeps up to 128 large files open, with two descriptors each, beside connections, directories and \
          small files",
    source: "getrlimit(2), systemd.exec(5)",
};

static OPENAT2: MachineCheck = MachineCheck {
    name: "openat2",
    group: CheckGroup::System,
    about: "whether the kernel resolves paths beneath a directory (openat2)",
    why: "without it carrack walks each path by its components, with one system call for each",
    source: "openat2(2)",
};

static KERNEL: MachineCheck = MachineCheck {
    name: "kernel",
    group: CheckGroup::System,
    about: "the kernel's version",
    why: "from 6.1 on the kernel says how direct I/O has to be aligned; before, carrack tries",
    source: "statx(2), STATX_DIOALIGN",
};

static HWLOC: MachineCheck = MachineCheck {
    name: "hwloc",
    group: CheckGroup::System,
    about: "whether hwloc's library is installed (libhwloc.so.15)",
    why: "where there are several NUMA nodes, it knows best which devices and caches belong to which",
    source: "hwloc(7)",
};

static VIRTUAL_MACHINE: MachineCheck = MachineCheck {
    name: "virtual_machine",
    group: CheckGroup::System,
    about: "whether a hypervisor runs this machine",
    why: "what the host does (its network, its governor, where it places the guest) is not seen from inside",
    source: "kernel documentation, virt/kvm/x86/cpuid",
};

/// Two for each of 128 large files, one for each of 64 streams, some for each thread: the usual limit
/// suffices.
const OPEN_FILES_WANTED: u64 = 1024;

/// With fewer, files of a copy fail to open: 50 of 2 MiB and 500 small ones between two directories of a
/// machine with 2 cores lost some with 64, none with 128.
const OPEN_FILES_MIN: u64 = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SystemFacts {
    open_files: Option<u64>,
    has_openat2: Option<bool>,
    kernel: Option<String>,
    has_hwloc: Option<bool>,
}

pub(super) fn read(files: &SysFiles, probes: &KernelProbes) -> SystemFacts {
    SystemFacts {
        open_files: files.read_text("proc/self/limits").and_then(|text| soft_limit(&text, "Max open files")),
        has_openat2: probes.has_openat2,
        kernel: files.read_text("proc/sys/kernel/osrelease"),
        has_hwloc: probes.has_hwloc,
    }
}

pub(super) fn evaluate(facts: &SystemFacts, machine: &MachineFacts) -> Vec<CheckFinding> {
    vec![open_files(facts), openat2(facts), kernel(facts), hwloc(facts, machine), virtual_machine(machine)]
}

fn open_files(facts: &SystemFacts) -> CheckFinding {
    let wanted = format!("{OPEN_FILES_WANTED} or more");
    let Some(count) = facts.open_files else { return OPEN_FILES.unknown_finding(wanted) };
    let verdict = match count {
        OPEN_FILES_WANTED.. => CheckVerdict::Well,
        OPEN_FILES_MIN.. => CheckVerdict::Improve,
        _ => CheckVerdict::Broken,
    };
    let present = if count == u64::MAX { "unlimited".into() } else { count.to_string() };
    OPEN_FILES.finding(verdict, present, wanted).with_repair_command(format!("ulimit -n {OPEN_FILES_WANTED}"))
}

fn openat2(facts: &SystemFacts) -> CheckFinding {
    let Some(has) = facts.has_openat2 else { return OPENAT2.unknown_finding("there") };
    OPENAT2.finding(well_if(has, CheckVerdict::Note), if has { "there" } else { "not there" }, "there")
}

/// Distributions backport features, so that this is at most a note.
fn kernel(facts: &SystemFacts) -> CheckFinding {
    let wanted = "6.1 or newer";
    let version = facts.kernel.as_deref().and_then(parse_kernel_version);
    let (Some(present), Some(version)) = (&facts.kernel, version) else {
        return KERNEL.unknown_finding(wanted);
    };
    KERNEL.finding(well_if(version >= (6, 1), CheckVerdict::Note), present, wanted)
}

/// "6.18.44-generic"
fn parse_kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn hwloc(facts: &SystemFacts, machine: &MachineFacts) -> CheckFinding {
    let wanted = "installed, where there are several nodes";
    let Some(has) = facts.has_hwloc else { return HWLOC.unknown_finding(wanted) };
    let present = if has { "installed" } else { "not installed" };
    HWLOC
        .finding(well_if(has || !machine.is_numa(), CheckVerdict::Note), present, wanted)
        .with_repair_command("apt install libhwloc15 || dnf install hwloc-libs")
}

fn virtual_machine(machine: &MachineFacts) -> CheckFinding {
    let wanted = "either; in a guest, look at the host too";
    match machine.is_guest {
        Some(is_guest) => {
            VIRTUAL_MACHINE.finding(CheckVerdict::Well, if is_guest { "yes" } else { "no" }, wanted)
        }
        None => VIRTUAL_MACHINE.unknown_finding(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_to_be_opened() {
        for (count, verdict) in [
            (Some(u64::MAX), CheckVerdict::Well),
            (Some(1024), CheckVerdict::Well),
            (Some(256), CheckVerdict::Improve),
            (Some(OPEN_FILES_MIN - 1), CheckVerdict::Broken),
            (None, CheckVerdict::Unknown),
        ] {
            assert_eq!(
                open_files(&SystemFacts { open_files: count, ..SystemFacts::default() }).verdict,
                verdict,
                "{count:?}"
            );
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, verdict) in [
            ("6.18.44-fc", CheckVerdict::Well),
            ("6.1", CheckVerdict::Well),
            ("5.14.0-427.el9", CheckVerdict::Note),
            ("what", CheckVerdict::Unknown),
        ] {
            let facts = SystemFacts { kernel: Some(release.into()), ..SystemFacts::default() };
            assert_eq!(kernel(&facts).verdict, verdict, "{release}");
        }
    }

    #[test]
    fn hwloc_is_for_several_nodes() {
        let facts = SystemFacts { has_hwloc: Some(false), ..SystemFacts::default() };
        let several = MachineFacts {
            nodes: vec![(0, "0".parse().unwrap()), (1, "1".parse().unwrap())],
            ..MachineFacts::default()
        };
        assert_eq!(hwloc(&facts, &several).verdict, CheckVerdict::Note);
        assert_eq!(hwloc(&facts, &MachineFacts::default()).verdict, CheckVerdict::Well);
    }

    #[test]
    fn an_old_kernel_still_works() {
        let facts = SystemFacts { has_openat2: Some(false), ..SystemFacts::default() };
        assert_eq!(openat2(&facts).verdict, CheckVerdict::Note);
    }
}
