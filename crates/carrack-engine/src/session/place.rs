//! Where each source goes: the meaning of the last path component, as scp and rsync have it. Pure.
//!
//! | destination | one file | one directory | several |
//! | --- | --- | --- | --- |
//! | does not exist | becomes it | becomes it | it is created, they go in |
//! | a directory, or written with a trailing slash | goes in | goes in | go in |
//! | something else | replaces it | refused | refused |
//!
//! A directory written with a trailing slash stands for its contents: they go where it would have gone.

use std::collections::HashSet;

use carrack_model::{RelPath, escape};

/// What stands at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Nothing,
    Directory,
    Other,
}

/// What the source has to know of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DestinationFacts {
    pub(crate) standing: Standing,
    /// It was written with a trailing slash.
    pub(crate) wants_directory: bool,
    /// Its last name; empty if it has none, as `/` or `..`.
    pub(crate) name: Vec<u8>,
}

/// What is known of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    pub(crate) is_directory: bool,
    /// It was written with a trailing slash, or has no name: its contents are meant.
    pub(crate) contents_only: bool,
    /// Its last name.
    pub(crate) name: Vec<u8>,
}

/// Where paths begin at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceRoot {
    /// The destination, a directory that exists.
    Destination,
    /// The destination, to be created.
    NewDestination,
    /// The directory that holds the destination.
    Parent,
}

/// Where one source goes, beneath the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// A directory's contents go into this directory.
    Tree(RelPath),
    /// A file or link gets this name in the root.
    Name(Vec<u8>),
}

/// Why the sources can't go there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("the destination is not a directory")]
    NotDirectory,
    #[error("two sources would both become '{0}'")]
    SameName(String),
    #[error("a source has a name that can't be used: {0}")]
    BadName(#[from] carrack_model::PathProblem),
}

impl PlaceError {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            PlaceError::NotDirectory => "name a directory, or a path that does not exist yet",
            PlaceError::SameName(_) => "copy them one after the other, to different directories",
            PlaceError::BadName(_) => "name the source by another path",
        }
    }
}

/// Decides for all sources; `typed_count` is how many the user typed, readable or not.
pub(crate) fn place(
    sources: &[SourceFacts],
    typed_count: usize,
    destination: &DestinationFacts,
) -> Result<(PlaceRoot, Vec<Placement>), PlaceError> {
    let goes_in =
        typed_count > 1 || destination.wants_directory || destination.standing == Standing::Directory;
    match destination.standing {
        Standing::Other if goes_in => Err(PlaceError::NotDirectory),
        Standing::Nothing if goes_in => Ok((PlaceRoot::NewDestination, all_into(sources)?)),
        _ if goes_in => Ok((PlaceRoot::Destination, all_into(sources)?)),
        standing => becomes(sources.first(), standing, destination),
    }
}

/// Every source keeps its name within the destination.
fn all_into(sources: &[SourceFacts]) -> Result<Vec<Placement>, PlaceError> {
    let mut names = HashSet::new();
    sources
        .iter()
        .map(|source| {
            if source.contents_only && source.is_directory {
                return Ok(Placement::Tree(RelPath::root()));
            }
            if !names.insert(&source.name) {
                return Err(PlaceError::SameName(escape(&source.name)));
            }
            let path = RelPath::root().join(&source.name)?;
            Ok(if source.is_directory { Placement::Tree(path) } else { Placement::Name(source.name.clone()) })
        })
        .collect()
}

/// The only source becomes the destination.
fn becomes(
    source: Option<&SourceFacts>,
    standing: Standing,
    destination: &DestinationFacts,
) -> Result<(PlaceRoot, Vec<Placement>), PlaceError> {
    match source {
        None => Ok((PlaceRoot::Parent, Vec::new())),
        Some(source) if source.is_directory && standing == Standing::Other => Err(PlaceError::NotDirectory),
        Some(source) if source.is_directory => {
            Ok((PlaceRoot::NewDestination, vec![Placement::Tree(RelPath::root())]))
        }
        Some(_) => {
            carrack_model::check_name(&destination.name)?;
            Ok((PlaceRoot::Parent, vec![Placement::Name(destination.name.clone())]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> SourceFacts {
        SourceFacts { is_directory: false, contents_only: false, name: name.into() }
    }

    fn directory(name: &str, contents_only: bool) -> SourceFacts {
        SourceFacts { is_directory: true, contents_only, name: name.into() }
    }

    fn at(standing: Standing, wants_directory: bool) -> DestinationFacts {
        DestinationFacts { standing, wants_directory, name: b"dst".to_vec() }
    }

    fn tree(path: &str) -> Placement {
        Placement::Tree(RelPath::new(path.as_bytes()).unwrap())
    }

    fn name(name: &str) -> Placement {
        Placement::Name(name.into())
    }

    #[test]
    fn one_source() {
        use PlaceRoot::*;
        use Standing::*;
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
            let placed = place(std::slice::from_ref(&source), 1, &destination).unwrap();
            assert_eq!(placed, (expected.0, vec![expected.1]), "{source:?} to {destination:?}");
        }
    }

    #[test]
    fn several_sources_need_a_directory() {
        let sources = [file("f"), directory("d", false), directory("e", true)];
        let placed = place(&sources, 3, &at(Standing::Nothing, false)).unwrap();
        assert_eq!(placed, (PlaceRoot::NewDestination, vec![name("f"), tree("d"), tree("")]));
        assert_eq!(place(&sources, 3, &at(Standing::Other, false)), Err(PlaceError::NotDirectory));
        let left_over = place(&[file("f")], 2, &at(Standing::Nothing, false)).unwrap();
        assert_eq!(left_over.1, [name("f")], "the one that could be read does not change its place");
    }

    #[test]
    fn refusals() {
        assert_eq!(
            place(&[directory("d", false)], 1, &at(Standing::Other, false)),
            Err(PlaceError::NotDirectory)
        );
        assert_eq!(place(&[file("f")], 1, &at(Standing::Other, true)), Err(PlaceError::NotDirectory));
        assert_eq!(
            place(&[file("f"), file("f")], 2, &at(Standing::Directory, false)),
            Err(PlaceError::SameName("f".into()))
        );
    }
}
