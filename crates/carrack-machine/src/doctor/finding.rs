//! What a check found: the present value beside the wanted one, why it matters, and the command that mends it.

/// One thing that is looked at. Its name is stable: scripts select by it.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name: "tcp_rmem".
    pub name: &'static str,
    /// What it belongs to.
    pub group: Group,
    /// What it is about, in one line.
    pub about: &'static str,
    /// Why it matters to a transfer.
    pub why: &'static str,
    /// Who says so.
    pub source: &'static str,
}

/// Parts of a machine, in the order in which they are shown.
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
    /// Its name.
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

/// What is thought of the present value, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// As it should be.
    Well,
    /// It can't be seen from here: in a container, without `/proc`, or the hardware does not say.
    Unknown,
    /// Good to know, or advice that depends on what is not seen here.
    Note,
    /// It makes transfers slower than they need to be.
    Improve,
    /// A transfer can't work like that.
    Broken,
}

impl Verdict {
    /// Its name.
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

/// What is said of a value that can't be seen.
const UNSEEN: &str = "cannot be seen here";

/// One check's outcome, for one subject where there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static Check,
    /// The interface, disk or path it is about; nothing where it is about the machine.
    pub subject: Option<String>,
    /// What is thought of it.
    pub verdict: Verdict,
    /// The present value.
    pub present: String,
    /// The wanted value.
    pub wanted: String,
    /// The shell command that mends it; nothing where there is nothing to mend or no command does.
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

    /// That the present value can't be seen.
    pub(super) fn unseen(&'static self, wanted: impl Into<String>) -> Finding {
        self.found(Verdict::Unknown, UNSEEN, wanted)
    }
}

impl Finding {
    pub(super) fn of(self, subject: impl Into<String>) -> Finding {
        Finding { subject: Some(subject.into()), ..self }
    }

    /// Names the command, if there is something to mend.
    pub(super) fn mended_by(self, command: impl Into<String>) -> Finding {
        match self.verdict {
            Verdict::Well | Verdict::Unknown => self,
            _ => Finding { command: Some(command.into()), ..self },
        }
    }
}

/// `Well` if so, else the other.
pub(super) fn well_if(is_well: bool, otherwise: Verdict) -> Verdict {
    if is_well { Verdict::Well } else { otherwise }
}
