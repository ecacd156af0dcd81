//! The filter rules of rsync that directories of the destination have in files of their own (`dir-merge`).
//!
//! They decide what a deletion spares. The rules of a directory are kept once they were read, as the deletion
//! may remove their file. Where they can't be read, the caller spares everything in the directory.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::RelPath;
use carrack_storage::{DirectoryRules, OwnDirectoryRules, RootDirectory, ScanFilter};

/// The rules of directories at the destination.
pub(super) struct DestinationRules {
    root: Option<Arc<RootDirectory>>,
    state: Mutex<DestinationRulesState>,
}

#[derive(Default)]
struct DestinationRulesState {
    /// Directories that have files of rules, with the rules, or `None` if they are unknown.
    own: HashMap<RelPath, Option<Arc<OwnDirectoryRules>>>,
    latest: Option<LatestDirectory>,
    /// Directories whose rules are unknown, with the reasons, until they are reported.
    unknown: Vec<(RelPath, String)>,
}

/// The directory of the latest query, as names of one directory follow each other.
struct LatestDirectory {
    path: RelPath,
    tree_depth: usize,
    rules: Option<Arc<DirectoryRules>>,
}

/// The rules of a directory can't be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownRules;

impl DestinationRules {
    pub(super) fn new(root: Option<Arc<RootDirectory>>) -> DestinationRules {
        DestinationRules { root, state: Mutex::default() }
    }

    /// Forgets the rules that were read before the copy was complete.
    pub(super) fn forget(&self) {
        *self.lock() = DestinationRulesState::default();
    }

    /// Takes the directories whose rules are unknown, with the reasons.
    pub(super) fn take_unknown(&self) -> Vec<(RelPath, String)> {
        std::mem::take(&mut self.lock().unknown)
    }

    /// Returns the rules for the entries of a directory. Files of rules count from the copied directory on,
    /// which lies `tree_depth` directories beneath the destination.
    pub(super) fn rules_in(
        &self,
        filter: &ScanFilter,
        directory: &RelPath,
        tree_depth: usize,
    ) -> Result<Option<Arc<DirectoryRules>>, UnknownRules> {
        if !filter.reads_directory_rules() {
            return Ok(None);
        }
        let mut state = self.lock();
        if let Some(latest) = &state.latest
            && latest.path == *directory
            && latest.tree_depth == tree_depth
        {
            return Ok(latest.rules.clone());
        }
        let mut rules = None;
        for place in places_from(directory, tree_depth) {
            let own = self.own_rules(&mut state, filter, &place)?;
            let beneath = filter.rules_beneath(rules.as_ref(), own.as_deref());
            rules = beneath.map_err(|detail| {
                state.own.insert(place.clone(), None);
                state.unknown.push((place, detail));
                UnknownRules
            })?;
        }
        state.latest = Some(LatestDirectory { path: directory.clone(), tree_depth, rules: rules.clone() });
        Ok(rules)
    }

    fn own_rules(
        &self,
        state: &mut DestinationRulesState,
        filter: &ScanFilter,
        place: &RelPath,
    ) -> Result<Option<Arc<OwnDirectoryRules>>, UnknownRules> {
        if let Some(known) = state.own.get(place) {
            return known.clone().map(Some).ok_or(UnknownRules);
        }
        let Some(root) = &self.root else { return Ok(None) };
        let own = match root.open_directory(place) {
            Ok(held) => filter.own_rules(held.as_fd(), place),
            // It is no directory, or not there: it has no file.
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => Err(format!("opening the directory for its filter rules: {error}")),
        };
        match own {
            Ok(None) => Ok(None),
            Ok(Some(own)) => {
                let own = Arc::new(own);
                state.own.insert(place.clone(), Some(Arc::clone(&own)));
                Ok(Some(own))
            }
            Err(detail) => {
                state.own.insert(place.clone(), None);
                state.unknown.push((place.clone(), detail));
                Err(UnknownRules)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DestinationRulesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Returns the directories from the one of this depth down to `directory`.
fn places_from(directory: &RelPath, depth: usize) -> Vec<RelPath> {
    let mut places = vec![directory.clone()];
    while let Some((above, _)) = places[places.len() - 1].split_last() {
        places.push(above);
    }
    places.reverse();
    places.split_off(depth.min(places.len() - 1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use carrack_model::{FilterLanguage, ScanSelection};

    use super::*;

    #[test]
    fn rules_outlive_their_file_and_unknown_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("t/a/b")).unwrap();
        for (file, text) in [(".rules", "- x"), ("t/.rules", "P keep\n"), ("t/a/b/.rules", "nonsense\n")] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let selection = ScanSelection {
            patterns: vec![": .rules".to_owned()],
            language: FilterLanguage::Rsync,
            ..ScanSelection::default()
        };
        let filter = ScanFilter::new(&selection).unwrap().unwrap();
        let rules = DestinationRules::new(Some(Arc::new(RootDirectory::open(dir.path()).unwrap())));
        let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
        // The file beside the copied directory does not count.
        assert!(rules.rules_in(&filter, &path("t/a"), 1).unwrap().is_some());
        fs::remove_file(dir.path().join("t/.rules")).unwrap();
        assert!(rules.rules_in(&filter, &path("t/gone"), 1).unwrap().is_some());
        assert!(rules.rules_in(&filter, &path("t/a/b"), 1).is_err());
        assert!(rules.rules_in(&filter, &path("t/a/b/c"), 1).is_err());
        let unknown = rules.take_unknown();
        assert_eq!(unknown.len(), 1);
        assert_eq!(unknown[0].0, path("t/a/b"));
        assert!(unknown[0].1.contains(".rules are unknown: line 1"), "{unknown:?}");
        rules.forget();
        assert!(rules.rules_in(&filter, &path("t/a"), 1).unwrap().is_none());
    }

    #[test]
    fn places_begin_at_a_depth() {
        let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
        assert_eq!(places_from(&path("a/b"), 0), [RelPath::root(), path("a"), path("a/b")]);
        assert_eq!(places_from(&path("a/b"), 1), [path("a"), path("a/b")]);
        assert_eq!(places_from(&RelPath::root(), 0), [RelPath::root()]);
    }
}
