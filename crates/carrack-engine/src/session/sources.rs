//! The sources as the user typed them become roots for the scan; what can't be copied is set aside as failures.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_model::{EntryFailure, FailureKind, Notice, RelPath, escape};
use carrack_storage::{Identity, Root, RootKind, ScanRoot};

use super::destination::SinkFacts;
use super::place::{PlaceRoot, Placement, SourceFacts, place};
use super::typed::{ends_with_slash, last_name, parent};
use crate::error::SessionError;

/// Sources that are named when none of them can be copied.
const REASONS_MAX: usize = 20;

/// What is copied, and where to.
pub(crate) struct Sources {
    pub(crate) roots: Vec<ScanRoot>,
    pub(crate) place: PlaceRoot,
    pub(crate) failures: Vec<EntryFailure>,
    pub(crate) notices: Vec<Notice>,
    /// A directory that the scan must not enter.
    pub(crate) destination: Option<Identity>,
}

/// One source that exists.
struct Found {
    path: PathBuf,
    facts: SourceFacts,
    /// A link is followed.
    follow: bool,
    identity: Identity,
}

/// Looks at every source and decides where it goes.
pub(crate) fn resolve(typed: &[PathBuf], recursive: bool, sink: &SinkFacts) -> Result<Sources, SessionError> {
    let mut failures = Vec::new();
    let mut notices = Vec::new();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for path in typed {
        match look(path, recursive) {
            Ok(source) if !seen.insert((source.identity, source.facts.clone_key())) => {
                let shown = escape(path.as_os_str().as_bytes());
                notices.push(Notice::Text(format!("{shown} was given twice; it is copied once")));
            }
            Ok(source) => found.push(source),
            Err(failure) => failures.push(failure),
        }
    }
    let facts: Vec<SourceFacts> = found.iter().map(|source| source.facts.clone()).collect();
    let typed_count = seen.len() + failures.len();
    let (root, placements) = place(&facts, typed_count, &sink.facts)
        .map_err(|error| SessionError::refused(error.to_string(), error.hint()))?;
    let mut roots = Vec::new();
    for (source, placement) in found.iter().zip(placements) {
        match source.scan_root(placement, root, sink) {
            Ok(scan_root) => roots.push(scan_root),
            Err(failure) => failures.push(failure),
        }
    }
    if roots.is_empty() {
        return Err(nothing_to_copy(&failures));
    }
    let destination = sink.ancestors_here.first().copied().filter(|_| root == PlaceRoot::Destination);
    Ok(Sources { roots, place: root, failures, notices, destination })
}

/// All reasons, as there will be no session that could report them one by one.
fn nothing_to_copy(failures: &[EntryFailure]) -> SessionError {
    let mut lines: Vec<String> = failures.iter().take(REASONS_MAX).map(ToString::to_string).collect();
    if failures.len() > REASONS_MAX {
        lines.push(format!("… and {} more", failures.len() - REASONS_MAX));
    }
    let message = if lines.is_empty() { "nothing to copy".to_string() } else { lines.join("; ") };
    let hint = failures.iter().find_map(|failure| failure.kind.hint());
    SessionError::refused(message, hint.unwrap_or(""))
}

fn look(path: &Path, recursive: bool) -> Result<Found, EntryFailure> {
    let means_directory = ends_with_slash(path);
    let lstat = fs::symlink_metadata(path).map_err(|error| failure(path, &error))?;
    let follow = lstat.is_symlink() && (means_directory || !recursive);
    let stat = if follow { fs::metadata(path).map_err(|error| failure(path, &error))? } else { lstat };
    if stat.is_dir() && !recursive {
        return Err(refusal(path, FailureKind::IsDirectory, "it is a directory"));
    }
    let name = last_name(path);
    let facts = SourceFacts {
        is_directory: stat.is_dir(),
        contents_only: means_directory || name.is_none(),
        name: name.unwrap_or_default().to_vec(),
    };
    let identity = Identity { dev: stat.dev(), ino: stat.ino() };
    Ok(Found { path: path.to_path_buf(), facts, follow, identity })
}

impl SourceFacts {
    fn clone_key(&self) -> (bool, Vec<u8>) {
        (self.contents_only, self.name.clone())
    }
}

impl Found {
    fn scan_root(
        &self,
        placement: Placement,
        place: PlaceRoot,
        sink: &SinkFacts,
    ) -> Result<ScanRoot, EntryFailure> {
        let into_itself = |detail| Err(refusal(&self.path, FailureKind::IntoItself, detail));
        match placement {
            Placement::Tree(path) => {
                let root = Root::open(&self.path).map_err(|error| failure(&self.path, &error))?;
                if sink.ancestors_here.contains(&root.identity()) {
                    return into_itself("the destination is this directory, or lies within it");
                }
                if place == PlaceRoot::Destination && self.is_placed_on_itself(&path, sink)? {
                    return into_itself("source and destination are the same directory");
                }
                Ok(ScanRoot { root: Arc::new(root), what: RootKind::Tree { sink: path } })
            }
            Placement::Name(sink_name) => {
                let root = Root::open(parent(&self.path)).map_err(|error| failure(&self.path, &error))?;
                let is_same_place = sink.ancestors_here.first() == Some(&root.identity());
                if is_same_place && sink_name == self.facts.name && place != PlaceRoot::NewDestination {
                    return into_itself("source and destination are the same file");
                }
                if !self.follow && place != PlaceRoot::NewDestination && self.points_to(&sink_name, sink) {
                    return into_itself("the destination is the file that the link points to");
                }
                let what = RootKind::Name {
                    name: self.facts.name.clone().into(),
                    sink_directory: RelPath::root(),
                    sink_name: sink_name.into(),
                    follow: self.follow,
                };
                Ok(ScanRoot { root: Arc::new(root), what })
            }
        }
    }

    /// Whether this is a link to what has `sink_name` at the destination: copied as a link it would take its place,
    /// and point to itself.
    fn points_to(&self, sink_name: &[u8], sink: &SinkFacts) -> bool {
        let Ok(target) = fs::canonicalize(&self.path) else { return false };
        let Ok(holder) = Root::open(parent(&target)) else { return false };
        last_name(&target) == Some(sink_name) && sink.ancestors_here.first() == Some(&holder.identity())
    }

    /// Whether the tree would be written over itself: `cp -r /data/a /data`.
    fn is_placed_on_itself(&self, path: &RelPath, sink: &SinkFacts) -> Result<bool, EntryFailure> {
        if path.is_root() || sink.ancestors_here.is_empty() {
            return Ok(false);
        }
        let holder = Root::open(parent(&self.path)).map_err(|error| failure(&self.path, &error))?;
        Ok(sink.ancestors_here.first() == Some(&holder.identity()) && path.as_bytes() == self.facts.name)
    }
}

fn failure(path: &Path, error: &io::Error) -> EntryFailure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FailureKind::Missing,
        io::ErrorKind::PermissionDenied => FailureKind::Unreadable,
        _ => FailureKind::ReadError,
    };
    refusal(path, kind, &error.to_string())
}

fn refusal(path: &Path, kind: FailureKind, detail: &str) -> EntryFailure {
    EntryFailure { path: path.as_os_str().as_bytes().into(), kind, detail: detail.to_string() }
}
