//! Which names a source may write at the top of the destination: those that follow from what was asked of it.
//!
//! `cp host:f new` must not write another file beside `new`, and `cp -r host:a host:b dir` nothing but `a` and `b` into
//! `dir` (the lesson of CVE-2019-6111 in scp).

use std::collections::HashSet;
use std::path::PathBuf;

use carrack_model::{Metadata, RelPath};
use carrack_storage::NamePattern;
use carrack_storage::typed::{ends_with_slash, last_name};

use super::place::{DestinationFacts, PlaceRoot, Standing};

/// What may appear at the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Anything: a directory's contents go there.
    Anything,
    /// One file or link of this name, and nothing else.
    OneFile(Vec<u8>),
    /// Trees, files and links of these names.
    Names(AskedNames),
}

/// Names that the sources may have, as typed: those with wildcards stand for others too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedNames {
    names: HashSet<Vec<u8>>,
    patterns: Vec<NamePattern>,
}

impl AskedNames {
    fn contain(&self, name: &[u8]) -> bool {
        self.names.contains(name) || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

impl Confinement {
    /// What follows from the place and, if this end named them, from the sources as typed. With `becomes_it` the only one becomes the destination.
    pub(crate) fn of(
        destination: &DestinationFacts,
        root: PlaceRoot,
        asked: Option<&[PathBuf]>,
        becomes_it: bool,
    ) -> Confinement {
        if root == PlaceRoot::Parent {
            return Confinement::OneFile(destination.name.clone());
        }
        let Some(asked) = asked else { return Confinement::Anything };
        let goes_in = !becomes_it
            && (asked.len() > 1
                || destination.wants_directory
                || destination.standing == Standing::Directory);
        let named = |path: &PathBuf| last_name(path).filter(|_| !ends_with_slash(path)).map(<[u8]>::to_vec);
        match asked.iter().map(named).collect::<Option<HashSet<_>>>() {
            Some(names) if goes_in => {
                let patterns = names.iter().filter_map(|name| NamePattern::new(name)).collect();
                Confinement::Names(AskedNames { names, patterns })
            }
            _ => Confinement::Anything,
        }
    }

    /// Whether a section may be about `directory`, with metadata for it or without.
    pub(crate) fn allows_section(&self, directory: &RelPath, metadata: Option<&Metadata>) -> bool {
        match (self, directory.components().next()) {
            (Confinement::Anything, _) => true,
            (_, None) => metadata.is_none(),
            (Confinement::OneFile(_), Some(_)) => false,
            (Confinement::Names(names), Some(top)) => names.contain(top),
        }
    }

    /// Whether an entry may have `name` in `directory`, which was allowed before.
    pub(crate) fn allows_entry(&self, directory: &RelPath, name: &[u8]) -> bool {
        match self {
            Confinement::OneFile(only) => name == only,
            Confinement::Names(names) if directory.is_root() => names.contain(name),
            Confinement::Names(_) | Confinement::Anything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(standing: Standing) -> DestinationFacts {
        DestinationFacts { standing, wants_directory: false, name: b"new".to_vec() }
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn one_file_gets_one_name() {
        let confinement = Confinement::of(&facts(Standing::Nothing), PlaceRoot::Parent, None, false);
        assert!(confinement.allows_section(&path(""), None));
        assert!(confinement.allows_entry(&path(""), b"new"));
        assert!(!confinement.allows_entry(&path(""), b"evil"));
        assert!(!confinement.allows_section(&path("sibling"), None));
        assert!(!confinement.allows_section(&path(""), Some(&Metadata::default())));
    }

    #[test]
    fn sources_keep_to_the_names_that_were_asked_for() {
        let asked = [PathBuf::from("x/a"), PathBuf::from("b")];
        let confinement =
            Confinement::of(&facts(Standing::Directory), PlaceRoot::Destination, Some(&asked), false);
        assert!(confinement.allows_section(&path("a/deep"), Some(&Metadata::default())));
        assert!(confinement.allows_entry(&path(""), b"b"));
        assert!(confinement.allows_entry(&path("a"), b"anything"));
        assert!(!confinement.allows_entry(&path(""), b".bashrc"));
        assert!(!confinement.allows_section(&path(".ssh"), None));
        assert!(!confinement.allows_section(&path(""), Some(&Metadata::default())));
    }

    #[test]
    fn patterns_allow_the_names_that_match() {
        let asked = [PathBuf::from("x/*.dat"), PathBuf::from("[b]")];
        let confinement =
            Confinement::of(&facts(Standing::Directory), PlaceRoot::Destination, Some(&asked), false);
        let allows = |name: &[u8]| confinement.allows_entry(&path(""), name);
        assert!(allows(b"a.dat") && allows(b"b") && allows(b"[b]"));
        assert!(!allows(b"a.sh") && !allows(b".dat") && !allows(b".bashrc"));
        assert!(confinement.allows_section(&path("d.dat/deep"), Some(&Metadata::default())));
    }

    #[test]
    fn contents_may_have_any_name() {
        for (asked, standing, root, becomes_it) in [
            ("a/", Standing::Directory, PlaceRoot::Destination, false),
            (".", Standing::Directory, PlaceRoot::Destination, false),
            ("a", Standing::Nothing, PlaceRoot::NewDestination, false),
            ("a", Standing::Directory, PlaceRoot::Destination, true),
        ] {
            let confinement =
                Confinement::of(&facts(standing), root, Some(&[PathBuf::from(asked)]), becomes_it);
            assert_eq!(confinement, Confinement::Anything, "{asked}");
        }
    }
}
