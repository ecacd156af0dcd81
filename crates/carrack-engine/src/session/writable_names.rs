//! The names that a source may write, derived from the request and the destination.

use std::collections::HashSet;
use std::path::PathBuf;

use carrack_storage::typed_path::{ends_with_slash, last_name};

use super::destination_place::{DestinationPathFacts, DestinationRootKind, DestinationState};
use crate::sink::{AllowedTopLevelNames, AskedNames};

/// Returns the confinement for a destination and, if this end named them, the sources as typed. With
/// `becomes_it` the only source becomes the destination.
pub(super) fn confinement_of(
    destination: &DestinationPathFacts,
    root: DestinationRootKind,
    asked: Option<&[PathBuf]>,
    becomes_it: bool,
) -> AllowedTopLevelNames {
    if root == DestinationRootKind::Parent {
        return AllowedTopLevelNames::OneFile(destination.name.clone());
    }
    let Some(asked) = asked else { return AllowedTopLevelNames::Anything };
    let goes_in = !becomes_it
        && (asked.len() > 1
            || destination.wants_directory
            || destination.state == DestinationState::Directory);
    let names =
        asked.iter().map(|path| last_name(path).filter(|_| !ends_with_slash(path)).map(<[u8]>::to_vec));
    match names.collect::<Option<HashSet<_>>>() {
        Some(names) if goes_in => AllowedTopLevelNames::Names(AskedNames::new(names)),
        _ => AllowedTopLevelNames::Anything,
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{Metadata, RelPath};

    use super::*;

    fn facts(state: DestinationState) -> DestinationPathFacts {
        DestinationPathFacts { state, wants_directory: false, name: b"new".to_vec() }
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn one_file_gets_one_name() {
        let confinement =
            confinement_of(&facts(DestinationState::Nothing), DestinationRootKind::Parent, None, false);
        assert!(confinement.allows_section(&path(""), None));
        assert!(confinement.allows_entry(&path(""), b"new"));
        assert!(!confinement.allows_entry(&path(""), b"evil"));
        assert!(!confinement.allows_section(&path("sibling"), None));
        assert!(!confinement.allows_section(&path(""), Some(&Metadata::default())));
    }

    #[test]
    fn sources_keep_to_the_names_that_were_asked_for() {
        let asked = [PathBuf::from("x/a"), PathBuf::from("b")];
        let confinement = confinement_of(
            &facts(DestinationState::Directory),
            DestinationRootKind::Destination,
            Some(&asked),
            false,
        );
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
        let confinement = confinement_of(
            &facts(DestinationState::Directory),
            DestinationRootKind::Destination,
            Some(&asked),
            false,
        );
        for (name, is_allowed) in [
            ("a.dat", true),
            ("b", true),
            ("[b]", true),
            ("a.sh", false),
            (".dat", false),
            (".bashrc", false),
        ] {
            assert_eq!(confinement.allows_entry(&path(""), name.as_bytes()), is_allowed, "{name}");
        }
        assert!(confinement.allows_section(&path("d.dat/deep"), Some(&Metadata::default())));
    }

    #[test]
    fn contents_may_have_any_name() {
        for (asked, state, root, becomes_it) in [
            ("a/", DestinationState::Directory, DestinationRootKind::Destination, false),
            (".", DestinationState::Directory, DestinationRootKind::Destination, false),
            ("a", DestinationState::Nothing, DestinationRootKind::NewDestination, false),
            ("a", DestinationState::Directory, DestinationRootKind::Destination, true),
        ] {
            let confinement = confinement_of(&facts(state), root, Some(&[PathBuf::from(asked)]), becomes_it);
            assert_eq!(confinement, AllowedTopLevelNames::Anything, "{asked}");
        }
    }
}
