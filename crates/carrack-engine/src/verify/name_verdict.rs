//! The verdict on a name from the states at both ends. Pure.

use carrack_model::{ByteRange, FailureSide, SpecialFile};
use carrack_storage::BrowsedKind;

use super::finding::EntryDifference;
use crate::examine::{ExaminedEntryFacts, ExaminedEntryKind};

/// The verdict on a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameComparisonVerdict {
    /// It has no difference.
    Equal,
    /// A file whose contents must be compared.
    Read,
    /// It differs, or can't be compared.
    Differs(EntryDifference),
}

/// Judges by the states at both ends.
pub(super) fn compare_entries(
    source: &ExaminedEntryFacts,
    sink: &ExaminedEntryFacts,
) -> NameComparisonVerdict {
    let kinds = match (&source.standing, &sink.standing) {
        (ExaminedEntryKind::Nothing, _) => return unreadable(FailureSide::Source, "it vanished meanwhile"),
        (ExaminedEntryKind::Unreadable(detail), _) => return unreadable(FailureSide::Source, detail),
        (ExaminedEntryKind::Is(kind), ExaminedEntryKind::Nothing) => {
            return NameComparisonVerdict::Differs(missing(*kind));
        }
        (_, ExaminedEntryKind::Unreadable(detail)) => return unreadable(FailureSide::Sink, detail),
        (ExaminedEntryKind::Is(source), ExaminedEntryKind::Is(sink)) => (*source, *sink),
    };
    match kinds {
        (BrowsedKind::File, BrowsedKind::File) if source.size != sink.size => {
            NameComparisonVerdict::Differs(EntryDifference::Size { source: source.size, sink: sink.size })
        }
        (BrowsedKind::File, BrowsedKind::File) if source.size == 0 => NameComparisonVerdict::Equal,
        (BrowsedKind::File, BrowsedKind::File) => NameComparisonVerdict::Read,
        (BrowsedKind::Symlink, BrowsedKind::Symlink) if source.digest != sink.digest => {
            NameComparisonVerdict::Differs(EntryDifference::Link)
        }
        (BrowsedKind::Device, BrowsedKind::Device) if are_different_devices(source.special, sink.special) => {
            NameComparisonVerdict::Differs(EntryDifference::Device)
        }
        (source, sink) if source == sink => NameComparisonVerdict::Equal,
        (source, sink) => NameComparisonVerdict::Differs(EntryDifference::Kind { source, sink }),
    }
}

/// Judges the part of a file that ends at `end`, which the source has.
pub(super) fn compare_part(
    source: &ExaminedEntryFacts,
    sink: &ExaminedEntryFacts,
    end: u64,
) -> NameComparisonVerdict {
    match compare_entries(source, sink) {
        NameComparisonVerdict::Differs(EntryDifference::Size { .. }) if sink.size >= end => {
            NameComparisonVerdict::Read
        }
        NameComparisonVerdict::Differs(EntryDifference::Size { .. }) => {
            NameComparisonVerdict::Differs(EntryDifference::Size { source: end, sink: sink.size })
        }
        verdict => verdict,
    }
}

/// Returns the difference for an entry that the sink does not have. A copy skips devices, pipes and sockets
/// by default.
fn missing(kind: BrowsedKind) -> EntryDifference {
    let what = match kind {
        BrowsedKind::Pipe => "a named pipe",
        BrowsedKind::Socket => "a socket",
        BrowsedKind::Device => "a device",
        _ => return EntryDifference::Missing,
    };
    EntryDifference::Skipped { what: what.into() }
}

/// An end that does not send the number of a device is assumed to have the same device.
fn are_different_devices(source: Option<SpecialFile>, sink: Option<SpecialFile>) -> bool {
    source.zip(sink).is_some_and(|(source, sink)| source != sink)
}

/// Judges by the state at the sink: a manifest names files only.
pub(super) fn compare_listed(sink: &ExaminedEntryFacts) -> NameComparisonVerdict {
    match &sink.standing {
        ExaminedEntryKind::Nothing => NameComparisonVerdict::Differs(EntryDifference::Missing),
        ExaminedEntryKind::Unreadable(detail) => unreadable(FailureSide::Sink, detail),
        ExaminedEntryKind::Is(BrowsedKind::File) => NameComparisonVerdict::Read,
        ExaminedEntryKind::Is(kind) => {
            NameComparisonVerdict::Differs(EntryDifference::Kind { source: BrowsedKind::File, sink: *kind })
        }
    }
}

/// Returns the digest of a file of `size` bytes that was small enough to be read as a whole.
pub(super) fn digest_of(
    sight: &ExaminedEntryFacts,
    size: u64,
    side: FailureSide,
) -> Result<[u8; 32], EntryDifference> {
    match (&sight.standing, sight.digest) {
        (ExaminedEntryKind::Unreadable(detail), _) => {
            Err(EntryDifference::Unreadable { side, detail: detail.clone() })
        }
        (ExaminedEntryKind::Is(BrowsedKind::File), Some(digest)) if sight.size == size => Ok(digest),
        _ => Err(EntryDifference::Unreadable { side, detail: "it changed meanwhile".into() }),
    }
}

fn unreadable(side: FailureSide, detail: &str) -> NameComparisonVerdict {
    NameComparisonVerdict::Differs(EntryDifference::Unreadable { side, detail: detail.to_owned() })
}

/// Returns the ranges with different values.
pub(super) fn differing(
    pieces: impl Iterator<Item = ByteRange>,
    source: &[[u8; 32]],
    sink: &[[u8; 32]],
) -> Vec<ByteRange> {
    let values = source.iter().zip(sink);
    pieces.zip(values).filter(|(_, (source, sink))| source != sink).map(|(range, _)| range).collect()
}

#[cfg(test)]
mod tests {
    use carrack_model::DeviceNumber;

    use super::*;
    use BrowsedKind::{Directory, File, Symlink};

    fn sight(kind: BrowsedKind, size: u64, digest: Option<u8>) -> ExaminedEntryFacts {
        let digest = digest.map(|byte| [byte; 32]);
        ExaminedEntryFacts { size, digest, ..ExaminedEntryFacts::without_facts(ExaminedEntryKind::Is(kind)) }
    }

    fn device(special: Option<SpecialFile>) -> ExaminedEntryFacts {
        ExaminedEntryFacts { special, ..sight(BrowsedKind::Device, 0, None) }
    }

    #[test]
    fn devices_are_the_same_by_kind_and_numbers() {
        let (three, five) = (DeviceNumber { major: 1, minor: 3 }, DeviceNumber { major: 1, minor: 5 });
        let null = Some(SpecialFile::CharacterDevice(three));
        for other in [Some(SpecialFile::CharacterDevice(five)), Some(SpecialFile::BlockDevice(three))] {
            assert_eq!(
                compare_entries(&device(null), &device(other)),
                NameComparisonVerdict::Differs(EntryDifference::Device)
            );
        }
        for same in [null, None] {
            assert_eq!(compare_entries(&device(null), &device(same)), NameComparisonVerdict::Equal);
            assert_eq!(compare_entries(&device(same), &device(null)), NameComparisonVerdict::Equal);
        }
    }

    #[test]
    fn special_files_may_be_left_out_and_not_be_others() {
        use BrowsedKind::{Device, Pipe, Socket};
        for (kind, what) in [(Pipe, "a named pipe"), (Socket, "a socket"), (Device, "a device")] {
            let there = sight(kind, 0, None);
            let skipped = EntryDifference::Skipped { what: what.into() };
            assert_eq!(compare_entries(&there, &nothing()), NameComparisonVerdict::Differs(skipped));
            assert_eq!(compare_entries(&there, &there), NameComparisonVerdict::Equal);
            let other = EntryDifference::Kind { source: kind, sink: File };
            assert_eq!(compare_entries(&there, &sight(File, 0, None)), NameComparisonVerdict::Differs(other));
        }
    }

    fn nothing() -> ExaminedEntryFacts {
        ExaminedEntryFacts::without_facts(ExaminedEntryKind::Nothing)
    }

    #[test]
    fn two_looks_say_what_to_do() {
        let unreadable = ExaminedEntryFacts::without_facts(ExaminedEntryKind::Unreadable("no".into()));
        let file = sight(File, 7, None);
        let kind = EntryDifference::Kind { source: File, sink: Directory };
        for (source, sink, verdict) in [
            (&file, &file, NameComparisonVerdict::Read),
            (&sight(File, 0, None), &sight(File, 0, None), NameComparisonVerdict::Equal),
            (
                &file,
                &sight(File, 8, None),
                NameComparisonVerdict::Differs(EntryDifference::Size { source: 7, sink: 8 }),
            ),
            (&file, &nothing(), NameComparisonVerdict::Differs(EntryDifference::Missing)),
            (&file, &sight(Directory, 0, None), NameComparisonVerdict::Differs(kind)),
            (&sight(Directory, 0, None), &sight(Directory, 0, None), NameComparisonVerdict::Equal),
            (&sight(Symlink, 0, Some(1)), &sight(Symlink, 0, Some(1)), NameComparisonVerdict::Equal),
            (
                &sight(Symlink, 0, Some(1)),
                &sight(Symlink, 0, Some(2)),
                NameComparisonVerdict::Differs(EntryDifference::Link),
            ),
        ] {
            assert_eq!(compare_entries(source, sink), verdict, "{source:?} {sink:?}");
        }
        for (source, sink, at) in [
            (&unreadable, &file, FailureSide::Source),
            (&file, &unreadable, FailureSide::Sink),
            (&nothing(), &file, FailureSide::Source),
        ] {
            let NameComparisonVerdict::Differs(EntryDifference::Unreadable { side, .. }) =
                compare_entries(source, sink)
            else {
                panic!()
            };
            assert_eq!(side, at);
        }
    }

    #[test]
    fn only_a_whole_reading_counts() {
        assert_eq!(digest_of(&sight(File, 7, Some(1)), 7, FailureSide::Sink), Ok([1; 32]));
        for changed in [sight(File, 8, Some(1)), sight(File, 7, None), sight(Symlink, 7, Some(1)), nothing()]
        {
            assert!(digest_of(&changed, 7, FailureSide::Sink).is_err(), "{changed:?}");
        }
    }
}
