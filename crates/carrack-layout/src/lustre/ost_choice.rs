//! The choice of OSTs for a new file, where some have little room or are congested.
//!
//! Pure. Where all OSTs will do, the choice is Lustre's, which spreads files evenly over all clients.

/// The part of an OST that must be free for new files: below it Lustre itself begins to avoid an OST, and
/// files of others that grow there fail.
const FREE_PARTS: u64 = 20;

/// An OST that a new file may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownOst {
    pub(super) index: u32,
    /// All bytes, and those that are free for users; `None` if unknown.
    pub(super) space: Option<(u64, u64)>,
    /// Set if it is congested.
    pub(super) is_avoided: bool,
}

impl KnownOst {
    /// Returns true if a part of `bytes` fits, and room is left for others.
    fn has_room(&self, bytes: u64) -> bool {
        self.space.is_none_or(|(total, free)| free > bytes && free - bytes >= total / FREE_PARTS)
    }
}

/// Returns at most `count` OSTs for a file of `file_bytes`, other ones for each `turn`, where only a part of
/// the known ones should be used. `None` leaves the choice to Lustre.
pub(super) fn choose_osts(known: &[KnownOst], count: u32, file_bytes: u64, turn: usize) -> Option<Vec<u32>> {
    let stripes = (count as usize).clamp(1, known.len().max(1));
    let bytes_on_each = file_bytes / stripes as u64;
    let mut usable: Vec<u32> = indices(known, |ost| !ost.is_avoided && ost.has_room(bytes_on_each));
    if usable.is_empty() {
        // A slow OST takes the file, a full one does not.
        usable = indices(known, |ost| ost.has_room(bytes_on_each));
    }
    if usable.is_empty() || usable.len() == known.len() {
        return None;
    }
    let (first, stripes) = (turn % usable.len(), stripes.min(usable.len()));
    Some((first..first + stripes).map(|at| usable[at % usable.len()]).collect())
}

/// Returns the indices of the OSTs that will do, in order.
fn indices(known: &[KnownOst], will_do: impl Fn(&KnownOst) -> bool) -> Vec<u32> {
    let mut indices: Vec<u32> = known.iter().filter(|ost| will_do(ost)).map(|ost| ost.index).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn ost(index: u32, free_gib: u64, is_avoided: bool) -> KnownOst {
        KnownOst { index, space: Some((100 * GIB, free_gib * GIB)), is_avoided }
    }

    #[test]
    fn a_full_and_a_congested_ost_are_avoided() {
        let known = [ost(0, 50, false), ost(1, 5, false), ost(2, 50, true), ost(3, 50, false)];
        let chosen = |turn| choose_osts(&known, 1, GIB, turn).unwrap();
        assert_eq!([0, 1, 2].map(chosen), [vec![0], vec![3], vec![0]]);
        assert_eq!(
            choose_osts(&known, 4, 4 * GIB, 1),
            Some(vec![3, 0]),
            "fewer stripes, all of them healthy"
        );
    }

    #[test]
    fn a_slow_ost_is_better_than_a_full_one() {
        let known = [ost(0, 1, false), ost(1, 50, true)];
        assert_eq!(choose_osts(&known, 1, GIB, 0), Some(vec![1]));
        assert_eq!(choose_osts(&[ost(0, 1, false), ost(1, 2, true)], 1, GIB, 0), None);
    }

    #[test]
    fn where_all_will_do_lustre_chooses() {
        assert_eq!(choose_osts(&[ost(0, 50, false), ost(1, 60, false)], 1, GIB, 0), None);
        assert_eq!(choose_osts(&[], 1, GIB, 0), None);
        assert_eq!(choose_osts(&[ost(0, 50, true)], 1, GIB, 0), None);
    }

    fn osts() -> impl Strategy<Value = Vec<KnownOst>> {
        let one = (0..40u32, proptest::option::of((1..100 * GIB, 0..100 * GIB)), any::<bool>());
        let one = one.prop_map(|(index, space, is_avoided)| {
            let space = space.map(|(total, free)| (total.max(free), free));
            (index, KnownOst { index, space, is_avoided })
        });
        proptest::collection::vec(one, 0..30)
            .prop_map(|osts| osts.into_iter().collect::<BTreeMap<_, _>>().into_values().collect())
    }

    proptest! {
        #[test]
        fn the_chosen_are_known_different_and_have_room(
            known in osts(),
            count in 0..50u32,
            file_bytes in 0..200 * GIB,
            turn: usize,
        ) {
            let turn = turn / 2;
            let Some(chosen) = choose_osts(&known, count, file_bytes, turn) else { return Ok(()) };
            let different: BTreeSet<u32> = chosen.iter().copied().collect();
            prop_assert!(!chosen.is_empty() && different.len() == chosen.len());
            prop_assert!(chosen.len() <= count.max(1) as usize && chosen.len() < known.len());
            let of = |index: &u32| known.iter().find(|ost| ost.index == *index).unwrap();
            let each = file_bytes / (count as usize).clamp(1, known.len()) as u64;
            prop_assert!(chosen.iter().all(|index| of(index).has_room(each)));
            let has_healthy = known.iter().any(|ost| !ost.is_avoided && ost.has_room(each));
            prop_assert!(!has_healthy || chosen.iter().all(|index| !of(index).is_avoided));
        }

        #[test]
        fn turns_spread_files_evenly(known in osts(), rounds in 1..5usize, from in 0..1_000usize) {
            let Some(first) = choose_osts(&known, 1, GIB, from) else { return Ok(()) };
            prop_assert_eq!(first.len(), 1);
            let mut files: BTreeMap<u32, usize> = BTreeMap::new();
            let healthy = known.iter().filter(|ost| !ost.is_avoided && ost.has_room(GIB)).count();
            let usable = if healthy > 0 { healthy } else { known.iter().filter(|ost| ost.has_room(GIB)).count() };
            for turn in from..from + rounds * usable {
                *files.entry(choose_osts(&known, 1, GIB, turn).unwrap()[0]).or_default() += 1;
            }
            prop_assert!(files.len() == usable && files.values().all(|count| *count == rounds));
        }
    }
}
