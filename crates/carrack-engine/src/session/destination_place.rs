//! The place of each source: the meaning of the last path component, as in scp and rsync. Pure.
//!
//! | destination | one file | one directory | several |
//! | --- | --- | --- | --- |
//! | does not exist | becomes it | becomes it | it is created, they go in |
//! | a directory, or written with a trailing slash | goes in | goes in | go in |
//! | something else | replaces it | refused | refused |
//!
//! A directory written with a trailing slash means its contents: they are placed where the directory would
//! have been. With `--no-target-directory` the only source becomes the destination, whichever entry exists
//! there: the contents of a directory are placed in an existing directory, and a file is not.

use std::collections::HashSet;

use carrack_model::{RelPath, RepeatEffect, ResolvedDestination, escape};

/// The entry at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationEntryKind {
    Nothing,
    Directory,
    Other,
}

/// The facts about a destination that the source needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DestinationPathFacts {
    pub(crate) state: DestinationEntryKind,
    /// It was written with a trailing slash.
    pub(crate) wants_directory: bool,
    /// Its last name; empty if it has none, as `/` or `..`.
    pub(crate) name: Vec<u8>,
}

/// The facts about one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourcePathFacts {
    pub(crate) is_directory: bool,
    /// It was written with a trailing slash, or has no name: its contents are meant.
    pub(crate) contents_only: bool,
    /// Its last name.
    pub(crate) name: Vec<u8>,
}

/// The directory where paths begin at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationBaseDirectory {
    /// The destination, a directory that exists.
    Destination,
    /// The destination, which will be created.
    NewDestination,
    /// The parent directory of the destination.
    Parent,
}

/// The place of one source, beneath the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourcePlaceAtDestination {
    /// A directory's contents are placed in this directory.
    Tree(RelPath),
    /// A file or link gets this name in the root.
    Name(Vec<u8>),
}

/// The reason why the sources can't be placed at the destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DestinationPlacementError {
    #[error("the destination is not a directory")]
    NotDirectory,
    #[error("the destination is a directory, and --no-target-directory leaves no place in it for a file")]
    IsDirectory,
    #[error("--no-target-directory takes one source")]
    Several,
    #[error("two sources would both become '{0}'")]
    SameName(String),
    #[error("a source has a name that can't be used: {0}")]
    BadName(#[from] carrack_model::PathProblem),
}

impl DestinationPlacementError {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            DestinationPlacementError::NotDirectory => "name a directory, or a path that does not exist yet",
            DestinationPlacementError::IsDirectory => {
                "leave the option out, or name the file within the directory"
            }
            DestinationPlacementError::Several => "leave the option out, or copy them one after the other",
            DestinationPlacementError::SameName(_) => {
                "copy them one after the other, to different directories"
            }
            DestinationPlacementError::BadName(_) => "name the source by another path",
        }
    }
}

/// Decides for all sources; `typed_count` counts the typed ones, readable or not. With `becomes_it` the only
/// source becomes the destination.
pub(crate) fn resolve_placement(
    sources: &[SourcePathFacts],
    typed_count: usize,
    destination: &DestinationPathFacts,
    becomes_it: bool,
) -> Result<(DestinationBaseDirectory, Vec<SourcePlaceAtDestination>), DestinationPlacementError> {
    if becomes_it {
        return match (destination.state, sources.first()) {
            _ if typed_count > 1 => Err(DestinationPlacementError::Several),
            (DestinationEntryKind::Directory, Some(source)) if source.is_directory => Ok((
                DestinationBaseDirectory::Destination,
                vec![SourcePlaceAtDestination::Tree(RelPath::root())],
            )),
            (DestinationEntryKind::Directory, Some(_)) => Err(DestinationPlacementError::IsDirectory),
            (_, Some(source)) if !source.is_directory && destination.wants_directory => {
                Err(DestinationPlacementError::IsDirectory)
            }
            (state, source) => place_as_destination(source, state, destination),
        };
    }
    let goes_in = typed_count > 1
        || destination.wants_directory
        || destination.state == DestinationEntryKind::Directory;
    match destination.state {
        DestinationEntryKind::Other if goes_in => Err(DestinationPlacementError::NotDirectory),
        DestinationEntryKind::Nothing if goes_in => {
            Ok((DestinationBaseDirectory::NewDestination, place_all_inside(sources)?))
        }
        _ if goes_in => Ok((DestinationBaseDirectory::Destination, place_all_inside(sources)?)),
        state => place_as_destination(sources.first(), state, destination),
    }
}

/// Returns the place as it is reported to the user.
pub(crate) fn reported_destination(
    sources: &[SourcePathFacts],
    typed_count: usize,
    destination: &DestinationPathFacts,
    becomes_it: bool,
    (root, placements): (DestinationBaseDirectory, &[SourcePlaceAtDestination]),
) -> ResolvedDestination {
    let ([source], [placement], 1) = (sources, placements, typed_count) else {
        return ResolvedDestination::default();
    };
    let name = match placement {
        SourcePlaceAtDestination::Tree(path) => path.as_bytes(),
        SourcePlaceAtDestination::Name(name) => name,
    };
    let is_within = root != DestinationBaseDirectory::Parent && !name.is_empty();
    let nests = !becomes_it && source.is_directory && !source.contents_only && !destination.wants_directory;
    ResolvedDestination {
        name: is_within.then(|| name.into()),
        nesting: match root {
            DestinationBaseDirectory::Destination if nests && is_within => RepeatEffect::Inside,
            DestinationBaseDirectory::NewDestination if nests && !is_within => RepeatEffect::NextTime,
            _ => RepeatEffect::Never,
        },
    }
}

/// Every source keeps its name within the destination.
fn place_all_inside(
    sources: &[SourcePathFacts],
) -> Result<Vec<SourcePlaceAtDestination>, DestinationPlacementError> {
    let mut names = HashSet::new();
    sources
        .iter()
        .map(|source| {
            if source.contents_only && source.is_directory {
                return Ok(SourcePlaceAtDestination::Tree(RelPath::root()));
            }
            if !names.insert(&source.name) {
                return Err(DestinationPlacementError::SameName(escape(&source.name)));
            }
            let path = RelPath::root().join(&source.name)?;
            Ok(if source.is_directory {
                SourcePlaceAtDestination::Tree(path)
            } else {
                SourcePlaceAtDestination::Name(source.name.clone())
            })
        })
        .collect()
}

/// The only source becomes the destination.
fn place_as_destination(
    source: Option<&SourcePathFacts>,
    state: DestinationEntryKind,
    destination: &DestinationPathFacts,
) -> Result<(DestinationBaseDirectory, Vec<SourcePlaceAtDestination>), DestinationPlacementError> {
    match source {
        None => Ok((DestinationBaseDirectory::Parent, Vec::new())),
        Some(source) if source.is_directory && state == DestinationEntryKind::Other => {
            Err(DestinationPlacementError::NotDirectory)
        }
        Some(source) if source.is_directory => Ok((
            DestinationBaseDirectory::NewDestination,
            vec![SourcePlaceAtDestination::Tree(RelPath::root())],
        )),
        Some(_) => {
            carrack_model::check_name(&destination.name)?;
            Ok((
                DestinationBaseDirectory::Parent,
                vec![SourcePlaceAtDestination::Name(destination.name.clone())],
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> SourcePathFacts {
        SourcePathFacts { is_directory: false, contents_only: false, name: name.into() }
    }

    fn directory(name: &str, contents_only: bool) -> SourcePathFacts {
        SourcePathFacts { is_directory: true, contents_only, name: name.into() }
    }

    fn at(state: DestinationEntryKind, wants_directory: bool) -> DestinationPathFacts {
        DestinationPathFacts { state, wants_directory, name: b"dst".to_vec() }
    }

    fn tree(path: &str) -> SourcePlaceAtDestination {
        SourcePlaceAtDestination::Tree(RelPath::new(path.as_bytes()).unwrap())
    }

    fn name(name: &str) -> SourcePlaceAtDestination {
        SourcePlaceAtDestination::Name(name.into())
    }

    #[test]
    fn one_source() {
        use DestinationBaseDirectory::*;
        use DestinationEntryKind::*;
        for (source, destination, expected) in [
            (file("f"), at(Nothing, false), (Parent, name("dst"))),
            (file("f"), at(Other, false), (Parent, name("dst"))),
            (file("f"), at(Directory, false), (Destination, name("f"))),
            (file("f"), at(Nothing, true), (NewDestination, name("f"))),
            (directory("d", false), at(Nothing, false), (NewDestination, tree(""))),
            (directory("d", false), at(Directory, false), (Destination, tree("d"))),
            (directory("d", true), at(Directory, false), (Destination, tree(""))),
            (directory("d", true), at(Nothing, false), (NewDestination, tree(""))),
            (directory("d", false), at(Nothing, true), (NewDestination, tree("d"))),
        ] {
            let placed = resolve_placement(std::slice::from_ref(&source), 1, &destination, false).unwrap();
            assert_eq!(placed, (expected.0, vec![expected.1]), "{source:?} to {destination:?}");
        }
    }

    #[test]
    fn a_source_that_becomes_the_destination_goes_into_nothing() {
        use DestinationBaseDirectory::*;
        use DestinationEntryKind::*;
        for (source, destination, expected) in [
            (directory("d", false), at(Directory, false), Ok((Destination, tree("")))),
            (directory("d", false), at(Directory, true), Ok((Destination, tree("")))),
            (directory("d", false), at(Nothing, true), Ok((NewDestination, tree("")))),
            (directory("d", false), at(Other, false), Err(DestinationPlacementError::NotDirectory)),
            (file("f"), at(Nothing, false), Ok((Parent, name("dst")))),
            (file("f"), at(Other, false), Ok((Parent, name("dst")))),
            (file("f"), at(Directory, false), Err(DestinationPlacementError::IsDirectory)),
            (file("f"), at(Nothing, true), Err(DestinationPlacementError::IsDirectory)),
        ] {
            let placed = resolve_placement(std::slice::from_ref(&source), 1, &destination, true);
            let expected = expected.map(|(root, placement)| (root, vec![placement]));
            assert_eq!(placed, expected, "{source:?} to {destination:?}");
        }
        let both = [file("f"), file("g")];
        assert_eq!(
            resolve_placement(&both, 2, &at(Directory, false), true),
            Err(DestinationPlacementError::Several)
        );
    }

    #[test]
    fn what_the_same_command_means_next_is_known() {
        use DestinationEntryKind::*;
        for (source, destination, becomes_it, name, nesting) in [
            (directory("d", false), at(Nothing, false), false, None, RepeatEffect::NextTime),
            (directory("d", false), at(Directory, false), false, Some("d"), RepeatEffect::Inside),
            (directory("d", false), at(Directory, true), false, Some("d"), RepeatEffect::Never),
            (directory("d", true), at(Nothing, false), false, None, RepeatEffect::Never),
            (directory("d", false), at(Directory, false), true, None, RepeatEffect::Never),
            (file("f"), at(Nothing, false), false, None, RepeatEffect::Never),
            (file("f"), at(Directory, false), false, Some("f"), RepeatEffect::Never),
        ] {
            let sources = std::slice::from_ref(&source);
            let (root, placements) = resolve_placement(sources, 1, &destination, becomes_it).unwrap();
            let expected = ResolvedDestination { name: name.map(|name| name.as_bytes().into()), nesting };
            let arrival = reported_destination(sources, 1, &destination, becomes_it, (root, &placements));
            assert_eq!(arrival, expected, "{source:?} to {destination:?}");
        }
    }

    #[test]
    fn several_sources_need_a_directory() {
        let sources = [file("f"), directory("d", false), directory("e", true)];
        let placed =
            resolve_placement(&sources, 3, &at(DestinationEntryKind::Nothing, false), false).unwrap();
        assert_eq!(placed, (DestinationBaseDirectory::NewDestination, vec![name("f"), tree("d"), tree("")]));
        assert_eq!(
            resolve_placement(&sources, 3, &at(DestinationEntryKind::Other, false), false),
            Err(DestinationPlacementError::NotDirectory)
        );
        let left_over =
            resolve_placement(&[file("f")], 2, &at(DestinationEntryKind::Nothing, false), false).unwrap();
        assert_eq!(left_over.1, [name("f")], "the one that could be read does not change its place");
    }

    #[test]
    fn refusals() {
        assert_eq!(
            resolve_placement(&[directory("d", false)], 1, &at(DestinationEntryKind::Other, false), false),
            Err(DestinationPlacementError::NotDirectory)
        );
        assert_eq!(
            resolve_placement(&[file("f")], 1, &at(DestinationEntryKind::Other, true), false),
            Err(DestinationPlacementError::NotDirectory)
        );
        assert_eq!(
            resolve_placement(&[file("f"), file("f")], 2, &at(DestinationEntryKind::Directory, false), false),
            Err(DestinationPlacementError::SameName("f".into()))
        );
    }
}
