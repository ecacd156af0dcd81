//! The movers of a site that see the same storage, by the marks that they find at their directories.
//!
//! Owns nothing, and decides nothing else.

use std::collections::BTreeMap;

/// The mark that a mover sees at its directory for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoverStorageMark<'a> {
    /// The directory, by the mover's configuration.
    pub directory: &'a str,
    /// The mark there; empty without one, as on a read-only file system.
    pub mark: &'a str,
    /// True if the mover has a known fault there: its mark does not count where marks disagree.
    pub is_doubtful: bool,
}

/// The movers to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SameStorageMovers {
    /// For each of the movers in question, true if it can be used.
    pub is_believed: Vec<bool>,
    /// Directories whose movers are all left out, as their marks differ and no mark has a majority.
    pub at_odds: Vec<String>,
}

/// Finds the movers of a site that see the same storage.
///
/// Marks are compared among movers that reach the same directory. The mark with a majority is the site's.
/// Without a majority the movers without a fault decide. If they disagree as well, all movers of that
/// directory are left out, because it is unknown which of them has not mounted the file system. Where no mark
/// can be made, all are trusted.
pub fn same_storage(sights: &[MoverStorageMark<'_>]) -> SameStorageMovers {
    let mut tallies: BTreeMap<&str, [BTreeMap<&str, usize>; 2]> = BTreeMap::new();
    for sight in sights.iter().filter(|sight| !sight.mark.is_empty()) {
        let [all, beyond_doubt] = tallies.entry(sight.directory).or_default();
        *all.entry(sight.mark).or_default() += 1;
        if !sight.is_doubtful {
            *beyond_doubt.entry(sight.mark).or_default() += 1;
        }
    }
    let mut agreed: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (directory, [all, beyond_doubt]) in tallies {
        agreed.insert(directory, most_seen(&all).or_else(|| most_seen(&beyond_doubt)));
    }
    let is_believed = sights.iter().map(|sight| match agreed.get(sight.directory) {
        None => true,
        Some(None) => false,
        Some(Some(mark)) => sight.mark.is_empty() || sight.mark == *mark,
    });
    let at_odds =
        agreed.iter().filter(|(_, mark)| mark.is_none()).map(|(directory, _)| (*directory).to_owned());
    SameStorageMovers { is_believed: is_believed.collect(), at_odds: at_odds.collect() }
}

/// Returns the mark that more movers see than any other.
fn most_seen<'a>(marks: &BTreeMap<&'a str, usize>) -> Option<&'a str> {
    let most = marks.values().max()?;
    let mut seen = marks.iter().filter(|(_, count)| *count == most);
    let first = seen.next()?;
    seen.next().is_none().then_some(*first.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believed(sights: &[(&str, &str, bool)]) -> (String, usize) {
        let sights: Vec<MoverStorageMark<'_>> = sights
            .iter()
            .map(|&(directory, mark, is_doubtful)| MoverStorageMark { directory, mark, is_doubtful })
            .collect();
        let SameStorageMovers { is_believed, at_odds } = same_storage(&sights);
        (is_believed.iter().map(|&is| if is { '+' } else { '-' }).collect(), at_odds.len())
    }

    #[test]
    fn most_marks_are_the_sites() {
        let all = [("/a", "x", false), ("/a", "y", false), ("/a", "x", false), ("/a", "", false)];
        assert_eq!(believed(&all), ("+-++".into(), 0));
    }

    #[test]
    fn of_two_that_differ_none_is_believed() {
        assert_eq!(
            believed(&[("/a", "x", false), ("/a", "y", false), ("/b", "z", false)]),
            ("--+".into(), 1)
        );
    }

    #[test]
    fn one_that_is_known_to_be_wrong_casts_no_doubt_on_others() {
        assert_eq!(believed(&[("/a", "x", false), ("/a", "y", true)]), ("+-".into(), 0));
        assert_eq!(believed(&[("/a", "x", true), ("/a", "", false)]), ("++".into(), 0));
    }

    #[test]
    fn where_no_mark_can_be_made_all_are_believed() {
        assert_eq!(believed(&[("/a", "", false), ("/a", "", false)]), ("++".into(), 0));
        assert_eq!(believed(&[]), (String::new(), 0));
    }
}
