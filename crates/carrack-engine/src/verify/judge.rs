//! The verdict on a name from the states at both ends. Pure.

use carrack_model::{ByteRange, Side, Special};
use carrack_storage::BrowsedKind;

use super::finding::Difference;
use crate::examine::{Sight, Standing};

/// The verdict on a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has no difference.
    Equal,
    /// A file whose contents must be compared.
    Read,
    /// It differs, or can't be compared.
    Differs(Difference),
}

/// Judges by the states at both ends.
pub(super) fn judge(source: &Sight, sink: &Sight) -> Verdict {
    let kinds = match (&source.standing, &sink.standing) {
        (Standing::Nothing, _) => return unreadable(Side::Source, "it vanished meanwhile"),
        (Standing::Unreadable(detail), _) => return unreadable(Side::Source, detail),
        (Standing::Is(kind), Standing::Nothing) => return Verdict::Differs(missing(*kind)),
        (_, Standing::Unreadable(detail)) => return unreadable(Side::Sink, detail),
        (Standing::Is(source), Standing::Is(sink)) => (*source, *sink),
    };
    match kinds {
        (BrowsedKind::File, BrowsedKind::File) if source.size != sink.size => {
            Verdict::Differs(Difference::Size { source: source.size, sink: sink.size })
        }
        (BrowsedKind::File, BrowsedKind::File) if source.size == 0 => Verdict::Equal,
        (BrowsedKind::File, BrowsedKind::File) => Verdict::Read,
        (BrowsedKind::Symlink, BrowsedKind::Symlink) if source.digest != sink.digest => {
            Verdict::Differs(Difference::Link)
        }
        (BrowsedKind::Device, BrowsedKind::Device) if are_others(source.special, sink.special) => {
            Verdict::Differs(Difference::Device)
        }
        (source, sink) if source == sink => Verdict::Equal,
        (source, sink) => Verdict::Differs(Difference::Kind { source, sink }),
    }
}

/// Judges the part of a file that ends at `end`, which the source has.
pub(super) fn judge_part(source: &Sight, sink: &Sight, end: u64) -> Verdict {
    match judge(source, sink) {
        Verdict::Differs(Difference::Size { .. }) if sink.size >= end => Verdict::Read,
        Verdict::Differs(Difference::Size { .. }) => {
            Verdict::Differs(Difference::Size { source: end, sink: sink.size })
        }
        verdict => verdict,
    }
}

/// Returns the difference for an entry that the sink does not have. A copy skips devices, pipes and sockets
/// by default.
fn missing(kind: BrowsedKind) -> Difference {
    let what = match kind {
        BrowsedKind::Pipe => "a named pipe",
        BrowsedKind::Socket => "a socket",
        BrowsedKind::Device => "a device",
        _ => return Difference::Missing,
    };
    Difference::Skipped { what: what.into() }
}

/// An end that does not send the number of a device is assumed to have the same device.
fn are_others(source: Option<Special>, sink: Option<Special>) -> bool {
    source.zip(sink).is_some_and(|(source, sink)| source != sink)
}

/// Judges by the state at the sink: a manifest names files only.
pub(super) fn judge_listed(sink: &Sight) -> Verdict {
    match &sink.standing {
        Standing::Nothing => Verdict::Differs(Difference::Missing),
        Standing::Unreadable(detail) => unreadable(Side::Sink, detail),
        Standing::Is(BrowsedKind::File) => Verdict::Read,
        Standing::Is(kind) => Verdict::Differs(Difference::Kind { source: BrowsedKind::File, sink: *kind }),
    }
}

/// Returns the digest of a file of `size` bytes that was small enough to be read as a whole.
pub(super) fn digest_of(sight: &Sight, size: u64, side: Side) -> Result<[u8; 32], Difference> {
    match (&sight.standing, sight.digest) {
        (Standing::Unreadable(detail), _) => Err(Difference::Unreadable { side, detail: detail.clone() }),
        (Standing::Is(BrowsedKind::File), Some(digest)) if sight.size == size => Ok(digest),
        _ => Err(Difference::Unreadable { side, detail: "it changed meanwhile".into() }),
    }
}

fn unreadable(side: Side, detail: &str) -> Verdict {
    Verdict::Differs(Difference::Unreadable { side, detail: detail.to_owned() })
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

    fn sight(kind: BrowsedKind, size: u64, digest: Option<u8>) -> Sight {
        let digest = digest.map(|byte| [byte; 32]);
        Sight { size, digest, ..Sight::without_facts(Standing::Is(kind)) }
    }

    fn device(special: Option<Special>) -> Sight {
        Sight { special, ..sight(BrowsedKind::Device, 0, None) }
    }

    #[test]
    fn devices_are_the_same_by_kind_and_numbers() {
        let (three, five) = (DeviceNumber { major: 1, minor: 3 }, DeviceNumber { major: 1, minor: 5 });
        let null = Some(Special::CharacterDevice(three));
        for other in [Some(Special::CharacterDevice(five)), Some(Special::BlockDevice(three))] {
            assert_eq!(judge(&device(null), &device(other)), Verdict::Differs(Difference::Device));
        }
        for same in [null, None] {
            assert_eq!(judge(&device(null), &device(same)), Verdict::Equal);
            assert_eq!(judge(&device(same), &device(null)), Verdict::Equal);
        }
    }

    #[test]
    fn special_files_may_be_left_out_and_not_be_others() {
        use BrowsedKind::{Device, Pipe, Socket};
        for (kind, what) in [(Pipe, "a named pipe"), (Socket, "a socket"), (Device, "a device")] {
            let there = sight(kind, 0, None);
            let skipped = Difference::Skipped { what: what.into() };
            assert_eq!(judge(&there, &nothing()), Verdict::Differs(skipped));
            assert_eq!(judge(&there, &there), Verdict::Equal);
            let other = Difference::Kind { source: kind, sink: File };
            assert_eq!(judge(&there, &sight(File, 0, None)), Verdict::Differs(other));
        }
    }

    fn nothing() -> Sight {
        Sight::without_facts(Standing::Nothing)
    }

    #[test]
    fn two_looks_say_what_to_do() {
        let unreadable = Sight::without_facts(Standing::Unreadable("no".into()));
        let file = sight(File, 7, None);
        let kind = Difference::Kind { source: File, sink: Directory };
        for (source, sink, verdict) in [
            (&file, &file, Verdict::Read),
            (&sight(File, 0, None), &sight(File, 0, None), Verdict::Equal),
            (&file, &sight(File, 8, None), Verdict::Differs(Difference::Size { source: 7, sink: 8 })),
            (&file, &nothing(), Verdict::Differs(Difference::Missing)),
            (&file, &sight(Directory, 0, None), Verdict::Differs(kind)),
            (&sight(Directory, 0, None), &sight(Directory, 0, None), Verdict::Equal),
            (&sight(Symlink, 0, Some(1)), &sight(Symlink, 0, Some(1)), Verdict::Equal),
            (&sight(Symlink, 0, Some(1)), &sight(Symlink, 0, Some(2)), Verdict::Differs(Difference::Link)),
        ] {
            assert_eq!(judge(source, sink), verdict, "{source:?} {sink:?}");
        }
        for (source, sink, at) in [
            (&unreadable, &file, Side::Source),
            (&file, &unreadable, Side::Sink),
            (&nothing(), &file, Side::Source),
        ] {
            let Verdict::Differs(Difference::Unreadable { side, .. }) = judge(source, sink) else { panic!() };
            assert_eq!(side, at);
        }
    }

    #[test]
    fn only_a_whole_reading_counts() {
        assert_eq!(digest_of(&sight(File, 7, Some(1)), 7, Side::Sink), Ok([1; 32]));
        for changed in [sight(File, 8, Some(1)), sight(File, 7, None), sight(Symlink, 7, Some(1)), nothing()]
        {
            assert!(digest_of(&changed, 7, Side::Sink).is_err(), "{changed:?}");
        }
    }
}
