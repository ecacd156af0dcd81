//! Findings: the present and the wanted value, the reason, and the command that repairs the machine.

/// One check. Its name is stable: scripts select by it.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Name: "tcp_rmem".
    pub name: &'static str,
    /// The check's group.
    pub group: Group,
    /// Subject in one line.
    pub about: &'static str,
    /// Effect on a transfer.
    pub why: &'static str,
    /// References.
    pub source: &'static str,
}

/// Parts of a machine, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
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

impl Group {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Group::Network => "network",
            Group::Nic => "nic",
            Group::Cpu => "cpu",
            Group::Memory => "memory",
            Group::Storage => "storage",
            Group::Clock => "clock",
            Group::System => "system",
        }
    }
}

/// Assessment of the present value, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
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

impl Verdict {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Well => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Note => "note",
            Verdict::Improve => "improve",
            Verdict::Broken => "broken",
        }
    }
}

/// Text for a value that is not visible.
const UNSEEN: &str = "cannot be seen here";

/// The result of one check, for one subject if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check that ran.
    pub check: &'static Check,
    /// Interface, disk or path concerned; `None` for the whole machine.
    pub subject: Option<String>,
    /// The assessment.
    pub verdict: Verdict,
    /// The present value.
    pub present: String,
    /// The wanted value.
    pub wanted: String,
    /// Shell command for the repair, if there is one.
    pub command: Option<String>,
}

impl Check {
    /// A finding of this check.
    pub(super) fn found(
        &'static self,
        verdict: Verdict,
        present: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Finding {
        let (present, wanted) = (present.into(), wanted.into());
        Finding { check: self, subject: None, verdict, present, wanted, command: None }
    }

    /// A finding that the present value is not visible.
    pub(super) fn unseen(&'static self, wanted: impl Into<String>) -> Finding {
        self.found(Verdict::Unknown, UNSEEN, wanted)
    }
}

impl Finding {
    pub(super) fn of(self, subject: impl Into<String>) -> Finding {
        Finding { subject: Some(subject.into()), ..self }
    }

    /// Adds the command, if a repair is needed.
    pub(super) fn mended_by(self, command: impl Into<String>) -> Finding {
        match self.verdict {
            Verdict::Well | Verdict::Unknown => self,
            _ => Finding { command: Some(command.into()), ..self },
        }
    }
}

/// Returns [`Verdict::Well`] if `is_well`, or else `otherwise`.
pub(super) fn well_if(is_well: bool, otherwise: Verdict) -> Verdict {
    if is_well { Verdict::Well } else { otherwise }
}
