//! The vocabulary of failure: which side, how far it reaches, whether another try can help.

use std::fmt;

/// Where something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that reads.
    Source,
    /// The end that writes.
    Sink,
    /// Between them.
    Network,
}

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object; the file may still be completed.
    Object,
    /// One file, directory or link.
    Entry,
    /// Everything on one storage target.
    Target,
    /// The whole transfer.
    Transfer,
}

/// Whether the same thing may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It will fail again.
    Never,
    /// Now.
    Now,
    /// When something outside changed.
    Later,
}

/// What happened to an entry, as reports and the wire name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// The source has no such file (any more).
    Missing = 1,
    /// The source may not read it.
    Unreadable = 2,
    /// Reading it failed.
    ReadError = 3,
    /// It changed while it was read, twice.
    Changed = 4,
    /// The sink could not create or write it.
    WriteError = 5,
    /// The destination's storage is full or over quota.
    NoSpace = 6,
    /// Something else stands at the destination: a directory for a file, a link for a directory.
    InTheWay = 7,
    /// The object's check failed three times.
    Corrupt = 8,
    /// Its mode or times could not be set.
    Metadata = 9,
    /// The name is not one that the sink accepts.
    BadName = 10,
    /// It would be copied into itself.
    IntoItself = 11,
    /// It is a directory, and directories were not asked for.
    IsDirectory = 12,
    /// It was released to an archive, and reading would bring it back.
    Released = 13,
    /// It was named by itself, and is a device, pipe or socket of a kind that is not copied.
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

    /// The kind of a number from the wire.
    pub fn from_code(code: u32) -> Option<FailureKind> {
        Self::NAMES.iter().map(|(kind, _)| *kind).find(|kind| *kind as u32 == code)
    }

    /// The end at which it happened.
    pub fn side(self) -> Side {
        match self {
            FailureKind::Missing
            | FailureKind::Unreadable
            | FailureKind::ReadError
            | FailureKind::Changed
            | FailureKind::IntoItself
            | FailureKind::IsDirectory
            | FailureKind::Released
            | FailureKind::NotAFile => Side::Source,
            FailureKind::Corrupt => Side::Network,
            FailureKind::WriteError
            | FailureKind::NoSpace
            | FailureKind::InTheWay
            | FailureKind::Metadata
            | FailureKind::BadName => Side::Sink,
        }
    }

    /// How far it reaches: a full disk ends the transfer, the rest concern one entry.
    pub fn scope(self) -> Scope {
        match self {
            FailureKind::NoSpace => Scope::Transfer,
            _ => Scope::Entry,
        }
    }

    /// Whether a later run may succeed without anybody's doing.
    pub fn retry(self) -> Retry {
        match self {
            FailureKind::Changed | FailureKind::Corrupt | FailureKind::ReadError => Retry::Now,
            FailureKind::BadName
            | FailureKind::IntoItself
            | FailureKind::IsDirectory
            | FailureKind::Released
            | FailureKind::NotAFile => Retry::Never,
            _ => Retry::Later,
        }
    }

    /// What the user can do, where there is something.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            FailureKind::Unreadable => "run as a user who may read it, or leave it out",
            FailureKind::Changed => "something writes to it: stop that, or copy a snapshot",
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

/// One entry that was not copied, or not faithfully, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFailure {
    /// The path as the side that failed knows it; bytes, not for a terminal as they are (see [`crate::escape`]).
    pub path: Box<[u8]>,
    /// What happened.
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
