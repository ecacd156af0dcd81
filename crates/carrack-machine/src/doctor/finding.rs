//! Findings: the present and the wanted value, the reason, and the command that repairs the machine.

/// One check. Its name is stable: scripts select by it.
#[derive(Debug, PartialEq, Eq)]
pub struct MachineCheck {
    /// Name: "tcp_rmem".
    pub name: &'static str,
    /// The check's group.
    pub group: CheckGroup,
    /// Subject in one line.
    pub about: &'static str,
    /// Effect on a transfer.
    pub why: &'static str,
    /// References.
    pub source: &'static str,
}

/// Parts of a machine, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckGroup {
    /// The kernel's TCP.
    Network,
    /// One network interface.
    Nic,
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Disks and mounts.
    Storage,
    /// Clocks.
    Clock,
    /// Limits of this process and what the kernel can do.
    System,
}

impl CheckGroup {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CheckGroup::Network => "network",
            CheckGroup::Nic => "nic",
            CheckGroup::Cpu => "cpu",
            CheckGroup::Memory => "memory",
            CheckGroup::Storage => "storage",
            CheckGroup::Clock => "clock",
            CheckGroup::System => "system",
        }
    }
}

/// Assessment of the present value, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckVerdict {
    /// The value is good.
    Well,
    /// The value is not visible: in a container, without `/proc`, or unknown to the hardware.
    Unknown,
    /// Information, or advice that depends on facts not visible here.
    Note,
    /// The value makes transfers slower than necessary.
    Improve,
    /// Transfers can't work with this value.
    Broken,
}

impl CheckVerdict {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CheckVerdict::Well => "ok",
            CheckVerdict::Unknown => "unknown",
            CheckVerdict::Note => "note",
            CheckVerdict::Improve => "improve",
            CheckVerdict::Broken => "broken",
        }
    }
}

/// Text for a value that is not visible.
const UNSEEN: &str = "cannot be seen here";

/// The result of one check, for one subject if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// The check that ran.
    pub check: &'static MachineCheck,
    /// Interface, disk or path concerned; `None` for the whole machine.
    pub subject: Option<String>,
    /// The assessment.
    pub verdict: CheckVerdict,
    /// The present value.
    pub present: String,
    /// The wanted value.
    pub wanted: String,
    /// Shell command for the repair, if there is one.
    pub command: Option<String>,
}

impl MachineCheck {
    /// A finding of this check.
    pub(super) fn finding(
        &'static self,
        verdict: CheckVerdict,
        present: impl Into<String>,
        wanted: impl Into<String>,
    ) -> CheckFinding {
        let (present, wanted) = (present.into(), wanted.into());
        CheckFinding { check: self, subject: None, verdict, present, wanted, command: None }
    }

    /// A finding that the present value is not visible.
    pub(super) fn unknown_finding(&'static self, wanted: impl Into<String>) -> CheckFinding {
        self.finding(CheckVerdict::Unknown, UNSEEN, wanted)
    }
}

impl CheckFinding {
    pub(super) fn with_subject(self, subject: impl Into<String>) -> CheckFinding {
        CheckFinding { subject: Some(subject.into()), ..self }
    }

    /// Adds the command, if a repair is needed.
    pub(super) fn with_repair_command(self, command: impl Into<String>) -> CheckFinding {
        match self.verdict {
            CheckVerdict::Well | CheckVerdict::Unknown => self,
            _ => CheckFinding { command: Some(command.into()), ..self },
        }
    }
}

/// Returns [`CheckVerdict::Well`] if `is_well`, or else `otherwise`.
pub(super) fn well_if(is_well: bool, otherwise: CheckVerdict) -> CheckVerdict {
    if is_well { CheckVerdict::Well } else { otherwise }
}
