//! The names that a source may write, derived from the request and the destination.

use std::collections::HashSet;
use std::path::PathBuf;

use carrack_storage::typed_path::{ends_with_slash, last_name};

use super::destination_place::{DestinationBaseDirectory, DestinationEntryKind, DestinationPathFacts};
use crate::sink::{AllowedTopLevelNames, RequestedSourceNames};

/// Returns the confinement for a destination and, if this end named them, the sources as typed. With
/// `becomes_it` the only source becomes the destination.
pub(super) fn confinement_of(
    destination: &DestinationPathFacts,
    root: DestinationBaseDirectory,
    asked: Option<&[PathBuf]>,
    becomes_it: bool,
) -> AllowedTopLevelNames {
    if root == DestinationBaseDirectory::Parent {
        return AllowedTopLevelNames::OneFile(destination.name.clone());
    }
    let Some(asked) = asked else { return AllowedTopLevelNames::Anything };
    let goes_in = !becomes_it
        && (asked.len() > 1
            || destination.wants_directory
            || destination.state == DestinationEntryKind::Directory);
    let names =
        asked.iter().map(|path| last_name(path).filter(|_| !ends_with_slash(path)).map(<[u8]>::to_vec));
    match names.collect::<Option<HashSet<_>>>() {
        Some(names) if goes_in => AllowedTopLevelNames::Names(RequestedSourceNames::new(names)),
        _ => AllowedTopLevelNames::Anything,
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{Metadata, RelPath};

    use super::*;

    fn facts(state: DestinationEntryKind) -> DestinationPathFacts {
        DestinationPathFacts { state, wants_directory: false, name: b"new".to_vec() }
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    /// The names that these sources may have in a directory that exists.
    fn confinement_in_a_directory(asked: &[PathBuf]) -> AllowedTopLevelNames {
        let destination = facts(DestinationEntryKind::Directory);
        confinement_of(&destination, DestinationBaseDirectory::Destination, Some(asked), false)
    }

    #[test]
    fn one_file_gets_one_name() {
        let confinement = confinement_of(
            &facts(DestinationEntryKind::Nothing),
            DestinationBaseDirectory::Parent,
            None,
            false,
        );
        assert!(confinement.allows_section(&path(""), None));
        assert!(confinement.allows_entry(&path(""), b"new"));
        assert!(!confinement.allows_entry(&path(""), b"evil"));
        assert!(!confinement.allows_section(&path("sibling"), None));
        assert!(!confinement.allows_section(&path(""), Some(&Metadata::default())));
    }

    #[test]
    fn sources_keep_to_the_names_that_were_asked_for() {
        let asked = [PathBuf::from("x/a"), PathBuf::from("b")];
        let confinement = confinement_in_a_directory(&asked);
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
        let confinement = confinement_in_a_directory(&asked);
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
            ("a/", DestinationEntryKind::Directory, DestinationBaseDirectory::Destination, false),
            (".", DestinationEntryKind::Directory, DestinationBaseDirectory::Destination, false),
            ("a", DestinationEntryKind::Nothing, DestinationBaseDirectory::NewDestination, false),
            ("a", DestinationEntryKind::Directory, DestinationBaseDirectory::Destination, true),
        ] {
            let confinement = confinement_of(&facts(state), root, Some(&[PathBuf::from(asked)]), becomes_it);
            assert_eq!(confinement, AllowedTopLevelNames::Anything, "{asked}");
        }
    }
}
