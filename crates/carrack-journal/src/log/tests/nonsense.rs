//! Properly sealed records with arbitrary contents: the recovered state stays the same after any operation.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::log::fuzzing::{compact, encode_journal};

/// A body of some kind of record.
fn sensible() -> impl Strategy<Value = Vec<u8>> {
    let begin = (0u64..4).prop_map(|number| {
        let table = table("d", |w| w.add_regular(b"g", 4_096, &metadata(), number, None));
        [&number.to_le_bytes()[..], &4u32.to_le_bytes(), b"temp", &table].concat()
    });
    let held =
        (0u64..4, 0u64..4_500, 0u64..2_000, any::<bool>()).prop_map(|(number, offset, len, is_hashed)| {
            let range = [offset.to_le_bytes(), len.to_le_bytes()].concat();
            let subtree = if is_hashed { [&range[..], &[7; 32]].concat() } else { Vec::new() };
            let counts = [1, u32::from(is_hashed)].map(u32::to_le_bytes).concat();
            [&number.to_le_bytes()[..], &counts, &range, &subtree].concat()
        });
    let hashed = (0u64..4, 0u64..4, 1u64..3).prop_map(|(number, chunk, count)| {
        let counts = [0, 1].map(u32::to_le_bytes).concat();
        let range = [chunk * 1_024, count * 1_024].map(u64::to_le_bytes).concat();
        [&number.to_le_bytes()[..], &counts, &range, &[7; 32]].concat()
    });
    let session = (any::<bool>(), 0u8..2).prop_map(|(soft, boot)| {
        let mut body = Vec::new();
        session(boot, soft).encode(&mut body);
        body
    });
    let small = (0u8..3, 0u64..3)
        .prop_map(|(name, size)| table("", |w| w.add_regular(&[b'a' + name], size, &metadata(), 1, None)));
    prop_oneof![
        2 => begin,
        3 => held,
        2 => hashed,
        1 => session,
        1 => small,
        2 => (0u64..4).prop_map(|number| number.to_le_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..90),
    ]
}

fn record() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let fitting = || sensible().prop_map(|body| (kind_of(&body), body));
    let flipped = (fitting(), any::<Index>(), any::<u8>()).prop_map(|((kind, mut body), at, to)| {
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] = to;
        }
        (kind, body)
    });
    prop_oneof![12 => fitting(), 2 => flipped, 1 => (0u8..9, sensible())]
}

/// The record kind that fits the generated body.
fn kind_of(body: &[u8]) -> u8 {
    match body.len() {
        8 => 5 + body[0] % 2,
        32 | 64 | 80 => 4,
        52 => 1,
        _ if body.get(12..16) == Some(b"temp") => 3,
        _ => 2,
    }
}

fn assert_same(one: &RecoveredJournal, other: &RecoveredJournal) {
    assert_eq!(one.partials(), other.partials());
    assert_eq!(one.name_count(), other.name_count());
    assert_eq!(one.statistics().done, other.statistics().done);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_recovered_once_is_recovered_again(records in prop::collection::vec(record(), 0..30)) {
        let borrowed: Vec<(u8, &[u8])> = records.iter().map(|(kind, body)| (*kind, &body[..])).collect();
        let ground = TestJournalDirectory::with(&encode_journal(&about(), &borrowed).unwrap());
        let here = session(0, false);
        let (_, first) = ground.open(&here).unwrap();
        for partial in first.partials() {
            let subtrees = partial.subtrees.iter().map(|subtree| subtree.range);
            let mut ranges = partial.held.iter().chain(subtrees);
            prop_assert!(ranges.all(|range| range.end().is_some_and(|end| end <= partial.size)));
        }
        let (_, again) = ground.open(&here).unwrap();
        prop_assert_eq!(again.statistics().cut_bytes, 0);
        assert_same(&first, &again);
        if let Some((journal, shortened)) = compact(ground.directory.as_fd(), &about(), &here).unwrap() {
            drop(journal);
            assert_same(&first, &shortened);
            let (_, last) = ground.open(&here).unwrap();
            prop_assert_eq!((last.statistics().cut_bytes, last.statistics().void_records), (0, 0));
            assert_same(&first, &last);
        }
    }
}
