//! The route of the data: the sources and the destination of one transfer, and the far ends if there are any.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use carrack_model::FailureSide;

use crate::remote::location::{EndLocation, FarEndAddress, LocationError, path_text};
use crate::user_error::UserError;

/// The ends on other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RemoteEnds {
    /// None: both ends are in this process.
    #[default]
    Neither,
    /// The source.
    Source(FarEndAddress),
    /// The sink.
    Sink(FarEndAddress),
    /// Both: the data goes from the first to the second.
    Both(FarEndAddress, FarEndAddress),
}

impl RemoteEnds {
    /// Returns the far end at the source and the far end at the sink.
    pub fn ends(&self) -> (Option<&FarEndAddress>, Option<&FarEndAddress>) {
        match self {
            RemoteEnds::Neither => (None, None),
            RemoteEnds::Source(source) => (Some(source), None),
            RemoteEnds::Sink(sink) => (None, Some(sink)),
            RemoteEnds::Both(source, sink) => (Some(source), Some(sink)),
        }
    }

    /// Returns the path of one end for a message: with its host, as on a command line, if that end is far.
    pub fn path_text(&self, side: FailureSide, path: &[u8]) -> String {
        let (source, sink) = self.ends();
        let far = if side == FailureSide::Source { source } else { sink };
        path_text(far, path)
    }
}

/// The ends and the paths of one transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferEndsAndPaths {
    /// The ends on other hosts.
    pub far: RemoteEnds,
    /// At the source, as typed.
    pub sources: Vec<PathBuf>,
    /// At the sink, as typed.
    pub destination: PathBuf,
}

/// The reason why there is no route from the sources to the destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferLocationsError {
    /// A source or the destination is not a location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Some sources are local, some remote, or on different hosts.
    #[error("the sources are not all on the same host ({0} and {1})")]
    ScatteredSources(String, String),
}

impl TransferLocationsError {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            TransferLocationsError::Location(error) => error.hint(),
            TransferLocationsError::ScatteredSources(..) => "run carrack once for each host that has sources",
        }
    }
}

impl From<TransferLocationsError> for UserError {
    fn from(error: TransferLocationsError) -> UserError {
        UserError::new(error.to_string()).hint(error.hint())
    }
}

impl TransferEndsAndPaths {
    /// Parses the arguments of a copy.
    pub fn parse(
        sources: &[OsString],
        destination: &OsStr,
    ) -> Result<TransferEndsAndPaths, TransferLocationsError> {
        let destination = EndLocation::parse_path(destination)?;
        let sources =
            sources.iter().map(|text| EndLocation::parse_path(text)).collect::<Result<Vec<_>, _>>()?;
        let far = match (common_end(&sources)?, destination.far) {
            (None, None) => RemoteEnds::Neither,
            (Some(source), None) => RemoteEnds::Source(source),
            (None, Some(sink)) => RemoteEnds::Sink(sink),
            (Some(source), Some(sink)) => RemoteEnds::Both(source, sink),
        };
        let sources = sources.into_iter().map(path_of_source).collect();
        Ok(TransferEndsAndPaths { far, sources, destination: destination.path })
    }
}

/// Returns the path of a source. An export is not an entry of a directory: its contents are copied, as with a
/// module of an rsync daemon.
fn path_of_source(location: EndLocation) -> PathBuf {
    let is_export =
        matches!(location.far, Some(FarEndAddress::Daemon(_))) && location.path.iter().count() == 2;
    if is_export { location.path.join("") } else { location.path }
}

/// Returns the far end that all sources are on; `None` if all are local.
fn common_end(sources: &[EndLocation]) -> Result<Option<FarEndAddress>, TransferLocationsError> {
    let first = sources.first().and_then(|location| location.far.as_ref());
    match sources.iter().find(|location| location.far.as_ref() != first) {
        None => Ok(first.cloned()),
        Some(other) => {
            Err(TransferLocationsError::ScatteredSources(end_name(first), end_name(other.far.as_ref())))
        }
    }
}

fn end_name(far: Option<&FarEndAddress>) -> String {
    far.map_or_else(|| "this host".to_owned(), FarEndAddress::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::location::{DaemonAddress, SshHost};

    fn parse(sources: &[&str], destination: &str) -> Result<TransferEndsAndPaths, TransferLocationsError> {
        let sources: Vec<OsString> = sources.iter().map(OsString::from).collect();
        TransferEndsAndPaths::parse(&sources, OsStr::new(destination))
    }

    fn host(name: &str) -> FarEndAddress {
        FarEndAddress::Ssh(SshHost { user: None, name: name.to_owned(), port: None })
    }

    #[test]
    fn finds_the_far_end() {
        assert_eq!(parse(&["a", "b"], "c").unwrap().far, RemoteEnds::Neither);
        assert_eq!(parse(&["h:a", "h:b/"], "c").unwrap().far, RemoteEnds::Source(host("h")));
        let route = parse(&["a/", "./h:b"], "h:").unwrap();
        assert_eq!(route.far, RemoteEnds::Sink(host("h")));
        let paths: Vec<&OsStr> = route.sources.iter().map(|path| path.as_os_str()).collect();
        assert_eq!(paths, ["a/", "./h:b"]);
        assert_eq!(route.destination.as_os_str(), ".");
    }

    #[test]
    fn both_ends_may_be_far() {
        let route = parse(&["g:a", "g:b/"], "carrack://h/data/").unwrap();
        let daemon = FarEndAddress::Daemon(DaemonAddress { name: "h".into(), port: 7512 });
        assert_eq!(route.far, RemoteEnds::Both(host("g"), daemon));
        assert_eq!((route.sources.len(), route.destination), (2, PathBuf::from("/data/")));
        assert_eq!(parse(&["h:a"], "h:b").unwrap().far, RemoteEnds::Both(host("h"), host("h")));
    }

    #[test]
    fn a_daemon_is_a_far_end_too() {
        let daemon = FarEndAddress::Daemon(DaemonAddress { name: "h".into(), port: 7512 });
        let route = parse(&["carrack://h/data/a", "carrack://h:7512/data/b"], "c").unwrap();
        assert_eq!(route.far, RemoteEnds::Source(daemon.clone()));
        assert_eq!(route.sources, [PathBuf::from("/data/a"), PathBuf::from("/data/b")]);
        for export in ["carrack://h/data", "carrack://h/data/"] {
            let route = parse(&[export], "c").unwrap();
            assert_eq!(route.sources[0].as_os_str(), "/data/", "{export}");
        }
        assert_eq!(parse(&["a"], "carrack://h/data/").unwrap().far, RemoteEnds::Sink(daemon));
        assert!(matches!(
            parse(&["carrack://h/x", "h:x"], "c"),
            Err(TransferLocationsError::ScatteredSources(..))
        ));
        let no_export = parse(&["a"], "carrack://h/").unwrap_err();
        assert!(no_export.hint().contains("carrack ls"), "{no_export}");
        assert!(parse(&["carrack://h"], "c").is_err());
    }

    #[test]
    fn refuses_what_one_session_cannot_do() {
        for sources in [["h:a", "b"], ["b", "h:a"], ["h:a", "me@h:a"], ["g:a", "h:a"]] {
            assert!(matches!(parse(&sources, "c"), Err(TransferLocationsError::ScatteredSources(..))));
        }
        let trouble = UserError::from(parse(&["g:a", "b"], "c").unwrap_err());
        assert!(trouble.message.contains("(g and this host)"), "{trouble}");
        assert!(trouble.hint.is_some());
    }
}
