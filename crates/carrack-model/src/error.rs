//! Classes of failures: side, scope, and use of a retry.

use std::fmt;

/// Side of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureSide {
    /// The end that reads.
    Source,
    /// The end that writes.
    Sink,
    /// The connection between both ends.
    Network,
}

/// Scope of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// One object; the file may still be completed.
    Object,
    /// One file, directory or link.
    Entry,
    /// Everything on one storage target.
    Target,
    /// The whole transfer.
    Transfer,
}

/// Use of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// A retry fails again.
    Never,
    /// A retry may succeed now.
    Now,
    /// A retry may succeed after an external change.
    Later,
}

/// Kind of an entry's failure, as in reports and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// The source does not have the file, or no longer.
    Missing = 1,
    /// The source has no permission to read the file.
    Unreadable = 2,
    /// A read failed.
    ReadError = 3,
    /// The file changed during both reads.
    Changed = 4,
    /// The sink could not create or write the file.
    WriteError = 5,
    /// The destination's storage is full or over quota.
    NoSpace = 6,
    /// The destination has an entry of another kind: a directory for a file, a link for a directory.
    InTheWay = 7,
    /// The object's check failed three times.
    Corrupt = 8,
    /// Mode or times could not be set.
    Metadata = 9,
    /// The sink refuses the name.
    BadName = 10,
    /// The destination lies within the source.
    IntoItself = 11,
    /// The entry is a directory, without a request for directories.
    IsDirectory = 12,
    /// The file was released to an archive, and a read would recall it.
    Released = 13,
    /// The entry was named as a source, and is a device, pipe or socket of a kind that is not copied.
    NotAFile = 14,
}

impl FailureKind {
    /// The kinds with their names in `--json` reports.
    const NAMES: [(FailureKind, &'static str); 14] = [
        (FailureKind::Missing, "missing"),
        (FailureKind::Unreadable, "unreadable"),
        (FailureKind::ReadError, "read-error"),
        (FailureKind::Changed, "changed"),
        (FailureKind::WriteError, "write-error"),
        (FailureKind::NoSpace, "no-space"),
        (FailureKind::InTheWay, "in-the-way"),
        (FailureKind::Corrupt, "corrupt"),
        (FailureKind::Metadata, "metadata"),
        (FailureKind::BadName, "bad-name"),
        (FailureKind::IntoItself, "into-itself"),
        (FailureKind::IsDirectory, "is-directory"),
        (FailureKind::Released, "released"),
        (FailureKind::NotAFile, "not-a-file"),
    ];

    /// The name in `--json` reports.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("unknown", |(_, name)| name)
    }

    /// The kind with a code from the wire.
    pub fn from_code(code: u32) -> Option<FailureKind> {
        Self::NAMES.iter().map(|(kind, _)| *kind).find(|kind| *kind as u32 == code)
    }

    /// The side of the failure.
    pub fn side(self) -> FailureSide {
        match self {
            FailureKind::Missing
            | FailureKind::Unreadable
            | FailureKind::ReadError
            | FailureKind::Changed
            | FailureKind::IntoItself
            | FailureKind::IsDirectory
            | FailureKind::Released
            | FailureKind::NotAFile => FailureSide::Source,
            FailureKind::Corrupt => FailureSide::Network,
            FailureKind::WriteError
            | FailureKind::NoSpace
            | FailureKind::InTheWay
            | FailureKind::Metadata
            | FailureKind::BadName => FailureSide::Sink,
        }
    }

    /// The scope: a full disk ends the transfer, all others concern one entry.
    pub fn scope(self) -> FailureScope {
        match self {
            FailureKind::NoSpace => FailureScope::Transfer,
            _ => FailureScope::Entry,
        }
    }

    /// The use of another run without any other change.
    pub fn retry_advice(self) -> RetryAdvice {
        match self {
            FailureKind::Changed | FailureKind::Corrupt | FailureKind::ReadError => RetryAdvice::Now,
            FailureKind::BadName
            | FailureKind::IntoItself
            | FailureKind::IsDirectory
            | FailureKind::Released
            | FailureKind::NotAFile => RetryAdvice::Never,
            _ => RetryAdvice::Later,
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            FailureKind::Unreadable => "run as a user who may read it, or leave it out",
            FailureKind::Changed => {
                "something writes to it: stop that, or copy a snapshot; files of /proc and /sys tell no size, `cat` copies them"
            }
            FailureKind::NoSpace => "make room at the destination and run the same command again",
            FailureKind::InTheWay => {
                "move it away, or choose another destination; `carrack sync --delete` replaces files and directories that nothing protects"
            }
            FailureKind::Corrupt => "memory or a network device damages data: check both hosts",
            FailureKind::IsDirectory => "copy directories with -r",
            FailureKind::NotAFile => {
                "write its content to a file first, or make it anew at the destination with --devices or --specials"
            }
            FailureKind::Released => "recall it with --recall, or by the archive's own tools",
            FailureKind::IntoItself => "choose a destination outside of the source",
            _ => return None,
        })
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An entry that was not copied, or not faithfully, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFailure {
    /// Path at the failing end: raw bytes, to be escaped for a terminal (see [`crate::escape`]).
    pub path: Box<[u8]>,
    /// Kind of the failure.
    pub kind: FailureKind,
    /// The cause in words, such as the operating system's message.
    pub detail: String,
}

impl fmt::Display for EntryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", crate::escape(&self.path), self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_survives_the_wire() {
        for (kind, name) in FailureKind::NAMES {
            assert_eq!(FailureKind::from_code(kind as u32), Some(kind));
            assert_eq!(kind.name(), name);
            assert_eq!(FailureKind::NAMES.iter().filter(|(_, n)| *n == name).count(), 1);
        }
        assert_eq!(FailureKind::from_code(0), None);
        assert_eq!(FailureKind::from_code(99), None);
    }
}
