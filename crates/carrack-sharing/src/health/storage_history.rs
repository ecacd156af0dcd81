//! Histories of one target, or of all targets of a file system together.

use carrack_plan::forecast::{LoadHistory, TargetLoadSample};

/// The history of a target, or the mean of the histories of a file system's targets.
#[derive(Clone, Debug)]
pub struct StorageHistory {
    /// The number of targets.
    pub targets: usize,
    /// The load: for each slot, the mean of the targets that were measured in it.
    pub history: LoadHistory,
    /// The mean capacity of the targets, in the load's unit; `None` if unknown.
    pub capacity: Option<f64>,
}

/// Some existing names, for an error message about an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStorageError(pub Vec<String>);

/// Names in such a message.
const NAMES_TOLD: usize = 8;

impl StorageHistory {
    /// The target of this name, or else all targets whose names begin with it and a slash.
    ///
    /// # Errors
    /// Some existing names, if there is no such target.
    pub fn gather<'a>(
        name: &str,
        all: impl Iterator<Item = (&'a str, &'a LoadHistory, Option<f64>)> + Clone,
        now_s: i64,
    ) -> Result<StorageHistory, UnknownStorageError> {
        if let Some((_, history, capacity)) = all.clone().find(|(target, ..)| *target == name) {
            return Ok(StorageHistory { targets: 1, history: history.clone(), capacity });
        }
        let name = name.trim_end_matches('/');
        let parts: Vec<_> = all
            .clone()
            .filter(|(target, ..)| target.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))
            .collect();
        if parts.is_empty() {
            return Err(UnknownStorageError(
                all.take(NAMES_TOLD).map(|(target, ..)| target.to_owned()).collect(),
            ));
        }
        let mut history = LoadHistory::default();
        // Samples of one slot are averaged.
        for TargetLoadSample { at_s, load } in
            parts.iter().flat_map(|(_, history, _)| history.measured_samples())
        {
            history.add(TargetLoadSample { at_s, load }, now_s);
        }
        let known: Option<Vec<f64>> = parts.iter().map(|(.., capacity)| *capacity).collect();
        let capacity = known.map(|known| known.iter().sum::<f64>() / known.len() as f64);
        Ok(StorageHistory { targets: parts.len(), history, capacity })
    }
}

/// The load that 99 of 100 slots stay at or below; `None` for an empty history.
pub fn percentile_99(history: &LoadHistory) -> Option<f64> {
    let mut loads: Vec<f64> = history.measured_samples().map(|sample| sample.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.get((loads.len() * 99).div_ceil(100).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(loads: &[f64]) -> LoadHistory {
        let mut history = LoadHistory::default();
        for (slot, &load) in loads.iter().enumerate() {
            assert!(history.add(TargetLoadSample { at_s: slot as i64 * 300, load }, 1 << 30));
        }
        history
    }

    #[test]
    fn one_target_or_the_mean_of_a_file_systems() {
        let (one, two) = (history(&[1.0, 2.0]), history(&[3.0]));
        let all = [("fs/a", &one, Some(10.0)), ("fs/b", &two, Some(30.0)), ("fs2/a", &two, None)];
        fn loads(found: &StorageHistory) -> Vec<f64> {
            found.history.measured_samples().map(|sample| sample.load).collect()
        }
        let found = StorageHistory::gather("fs/a", all.into_iter(), 1 << 30).unwrap();
        assert_eq!((found.targets, loads(&found), found.capacity), (1, vec![1.0, 2.0], Some(10.0)));
        for name in ["fs", "fs/"] {
            let found = StorageHistory::gather(name, all.into_iter(), 1 << 30).unwrap();
            assert_eq!((found.targets, loads(&found), found.capacity), (2, vec![2.0, 2.0], Some(20.0)));
        }
        let error = StorageHistory::gather("f", all.into_iter(), 1 << 30).unwrap_err();
        assert_eq!(error.0, ["fs/a", "fs/b", "fs2/a"]);
    }

    #[test]
    fn the_percentile_leaves_out_one_of_a_hundred() {
        let mut loads = vec![1.0; 98];
        loads.extend([5.0, 1000.0]);
        assert_eq!(percentile_99(&history(&loads)), Some(5.0));
        assert_eq!(percentile_99(&history(&[7.0])), Some(7.0));
        assert_eq!(percentile_99(&LoadHistory::default()), None);
    }
}
