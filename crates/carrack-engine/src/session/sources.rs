//! The conversion of the typed sources into roots for the scan. Sources that can't be copied become failures.

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use carrack_model::{
    AgreedTransferSpec, EntryFailure, FailureKind, PartialCopyRange, RelPath, ResolvedDestination,
    UserNotice, escape, text_without_errno,
};
use carrack_storage::typed_path::{ends_with_slash, last_name};
use carrack_storage::{
    EntryPlace, FileIdentity, PathBase, PathPurpose, PathStatResult, ScanListingProof, ScanRoot,
    ScanRootScope,
};
use rustix::fs::{AtFlags, statat};

use super::destination::SinkFacts;
use super::destination_place::{
    DestinationBaseDirectory, SourcePathFacts, SourcePlaceAtDestination, reported_destination,
    resolve_placement,
};
use crate::error::SessionError;

const PART_HINT: &str = "name one regular file, or leave --offset and --length out";

/// Sources that are named in the error if none of them can be copied.
const REASONS_MAX: usize = 20;

/// The sources and their places.
pub(crate) struct TransferSources {
    pub(crate) roots: Vec<ScanRoot>,
    pub(crate) place: DestinationBaseDirectory,
    pub(crate) arrival: ResolvedDestination,
    pub(crate) failures: Vec<EntryFailure>,
    pub(crate) notices: Vec<UserNotice>,
    /// A directory that the scan must not enter.
    pub(crate) destination: Option<FileIdentity>,
    /// The record of the scan, if entries may be deleted.
    pub(crate) record: Option<Arc<ScanListingProof>>,
}

impl TransferSources {
    /// Notes the present mounts, and lets the scan record the entries that it finds, if entries may be
    /// deleted. `begun`: the start of the run.
    pub(crate) fn prepare_deletion_proof(
        &mut self,
        spec: &AgreedTransferSpec,
        begun: Option<SystemTime>,
    ) -> Result<(), SessionError> {
        if spec.sync.as_ref().is_some_and(|sync| sync.deletion.is_some()) {
            self.check_outside()?;
            let record = ScanListingProof::new(&self.roots, begun.unwrap_or_else(SystemTime::now));
            self.record = Some(Arc::new(record));
        }
        Ok(())
    }
}

/// An existing source.
struct FoundSource {
    path: PathBuf,
    facts: SourcePathFacts,
    /// True if a link is followed.
    follow: bool,
    identity: FileIdentity,
}

/// Examines every source and decides on its place. With `follows` links are followed, also those within a
/// source; beneath a base only if they stay there, and if the base follows links.
pub(crate) fn resolve(
    base: &PathBase,
    typed: &[PathBuf],
    spec: &AgreedTransferSpec,
    follows: bool,
    sink: &SinkFacts,
) -> Result<TransferSources, SessionError> {
    if follows && !base.follows_links() {
        let message = "a daemon follows no links beneath its exports, where they might lead out";
        return Err(SessionError::refused(message, "leave out --copy-links, or copy over ssh"));
    }
    if spec.part.is_some() && typed.len() != 1 {
        let message = format!("a part is of one file, and these are {}", typed.len());
        return Err(SessionError::refused(message, PART_HINT));
    }
    let mut failures = Vec::new();
    let mut notices = Vec::new();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for path in typed {
        match inspect_source(base, path, spec, follows)? {
            Ok(source) if !seen.insert((source.identity, source.facts.clone_key())) => {
                let shown = escape(path.as_os_str().as_bytes());
                notices.push(UserNotice::Text(format!("{shown} was given twice; it is copied once")));
            }
            Ok(source) => found.push(source),
            Err(failure) => failures.push(failure),
        }
    }
    let facts: Vec<SourcePathFacts> = found.iter().map(|source| source.facts.clone()).collect();
    let typed_count = seen.len() + failures.len();
    let becomes_it = spec.no_target_directory;
    let (root, placements) = resolve_placement(&facts, typed_count, &sink.facts, becomes_it)
        .map_err(|error| SessionError::refused(text_without_errno(&error), error.hint()))?;
    let arrival = reported_destination(&facts, typed_count, &sink.facts, becomes_it, (root, &placements));
    let mut roots = Vec::new();
    for (source, placement) in found.iter().zip(placements) {
        match source.open_scan_root(base, placement, root, sink, follows) {
            Ok(scan_root) => roots.push(scan_root),
            Err(failure) => failures.push(failure),
        }
    }
    if roots.is_empty() {
        return Err(nothing_to_copy(&failures));
    }
    let destination =
        sink.ancestors_here.first().copied().filter(|_| root == DestinationBaseDirectory::Destination);
    Ok(TransferSources { roots, place: root, arrival, failures, notices, destination, record: None })
}

impl TransferSources {
    /// Refuses a deletion in the directory that contains a source, which would be deleted too.
    fn check_outside(&self) -> Result<(), SessionError> {
        let Some(destination) = self.destination else { return Ok(()) };
        for root in &self.roots {
            let above = root.root.ancestors().unwrap_or_default();
            let Some(levels) = above.iter().position(|identity| *identity == destination) else { continue };
            let up = [b"./".as_slice(), &b"../".repeat(levels)].concat();
            let holds_source = self.roots.iter().any(|other| {
                let ScanRootScope::Tree { sink } = &other.what else { return false };
                let path = [&*up, sink.as_bytes()].concat();
                let found = statat(&*root.root, path, AtFlags::SYMLINK_NOFOLLOW);
                found.is_ok_and(|stat| above.contains(&FileIdentity { dev: stat.st_dev, ino: stat.st_ino }))
            });
            if holds_source {
                let shown = escape(&root.root.full_path(&RelPath::root(), b""));
                let message =
                    format!("the source {shown} lies in a directory where something is to be deleted");
                return Err(SessionError::refused(
                    message,
                    "leave out --delete, or name another destination",
                ));
            }
        }
        Ok(())
    }
}

/// Returns an error with all reasons, as there is no session that could report them one by one.
fn nothing_to_copy(failures: &[EntryFailure]) -> SessionError {
    let mut lines: Vec<String> = failures.iter().take(REASONS_MAX).map(ToString::to_string).collect();
    if failures.len() > REASONS_MAX {
        lines.push(format!("… and {} more", failures.len() - REASONS_MAX));
    }
    let message = if lines.is_empty() { "nothing to copy".to_string() } else { lines.join("; ") };
    let hint = failures.iter().find_map(|failure| failure.kind.hint());
    SessionError::refused(message, hint.unwrap_or(""))
}

/// Examines a source. The outer error ends the transfer.
fn inspect_source(
    base: &PathBase,
    path: &Path,
    spec: &AgreedTransferSpec,
    follows: bool,
) -> Result<Result<FoundSource, EntryFailure>, SessionError> {
    let recursive = spec.recursive;
    let means_directory = ends_with_slash(path);
    let looked = base.look(path, PathPurpose::Read).and_then(|itself| {
        let follow = itself.is_symlink && (means_directory || !recursive || follows);
        Ok((if follow { base.look(path, PathPurpose::ReadThrough)? } else { itself }, follow))
    });
    let (looked, follow) = match looked {
        Ok(looked) => looked,
        Err(error) => return Ok(Err(failure(path, &error))),
    };
    if let Some(part) = spec.part {
        check_part(part, path, &looked)?;
    }
    if looked.is_directory && !recursive {
        return Ok(Err(refusal(path, FailureKind::IsDirectory, "it is a directory")));
    }
    let name = last_name(path);
    let facts = SourcePathFacts {
        is_directory: looked.is_directory,
        contents_only: means_directory || name.is_none(),
        name: name.unwrap_or_default().to_vec(),
    };
    Ok(Ok(FoundSource { path: path.to_path_buf(), facts, follow, identity: looked.identity }))
}

/// Refuses a partial transfer of an entry other than a regular file, or of a file that ends before the part,
/// before anything is changed.
fn check_part(part: PartialCopyRange, path: &Path, looked: &PathStatResult) -> Result<(), SessionError> {
    let shown = escape(path.as_os_str().as_bytes());
    let is_regular = !looked.is_directory && !looked.is_symlink && looked.special.is_none();
    if !is_regular {
        let what = match looked.special {
            Some(special) => format!("a {}", special.noun()),
            None => (if looked.is_directory { "a directory" } else { "a link" }).to_owned(),
        };
        let message = format!("{shown} is {what}, and a part is of one regular file");
        return Err(SessionError::refused(message, PART_HINT));
    }
    if part.range_in(looked.size).is_none() {
        let (size, offset) = (looked.size, part.offset);
        let message = format!("{shown} has {size} bytes, and the part would begin at byte {offset}");
        return Err(SessionError::refused(message, "choose an --offset within the file"));
    }
    Ok(())
}

impl SourcePathFacts {
    fn clone_key(&self) -> (bool, Vec<u8>) {
        (self.contents_only, self.name.clone())
    }
}

impl FoundSource {
    fn refused_copy(&self, detail: &str) -> EntryFailure {
        refusal(&self.path, FailureKind::IntoItself, detail)
    }

    fn open_scan_root(
        &self,
        base: &PathBase,
        placement: SourcePlaceAtDestination,
        place: DestinationBaseDirectory,
        sink: &SinkFacts,
        follows: bool,
    ) -> Result<ScanRoot, EntryFailure> {
        match placement {
            SourcePlaceAtDestination::Tree(path) => {
                let opened = if follows {
                    base.open_following(&self.path)
                } else {
                    base.open(&self.path, PathPurpose::ReadThrough)
                };
                let root = opened.map_err(|error| failure(&self.path, &error))?;
                if sink.ancestors_here.contains(&root.identity()) {
                    return Err(self.refused_copy("the destination is this directory, or lies within it"));
                }
                if place == DestinationBaseDirectory::Destination
                    && self.is_placed_on_itself(base, &path, sink)?
                {
                    return Err(self.refused_copy("source and destination are the same directory"));
                }
                Ok(ScanRoot { root: Arc::new(root), what: ScanRootScope::Tree { sink: path } })
            }
            SourcePlaceAtDestination::Name(sink_name) => {
                let EntryPlace { root, name, follow } =
                    base.hold(&self.path, self.follow).map_err(|error| failure(&self.path, &error))?;
                let is_same_place = sink.ancestors_here.first() == Some(&root.identity());
                if is_same_place && *sink_name == *name && place != DestinationBaseDirectory::NewDestination {
                    return Err(self.refused_copy("source and destination are the same file"));
                }
                if !self.follow
                    && place != DestinationBaseDirectory::NewDestination
                    && self.points_to(base, &sink_name, sink)
                {
                    return Err(self.refused_copy("the destination is the file that the link points to"));
                }
                let what = ScanRootScope::Name {
                    name,
                    sink_directory: RelPath::root(),
                    sink_name: sink_name.into(),
                    follow,
                };
                Ok(ScanRoot { root: Arc::new(root), what })
            }
        }
    }

    /// Returns true if this is a link to the file with `sink_name` at the destination: copied as a link it
    /// would replace that file, and point to itself.
    fn points_to(&self, base: &PathBase, sink_name: &[u8], sink: &SinkFacts) -> bool {
        let Ok((holder, name)) = base.leads_to(&self.path) else { return false };
        *name == *sink_name && sink.ancestors_here.first() == Some(&holder)
    }

    /// Returns true if the tree would be written over itself: `cp -r /data/a /data`.
    fn is_placed_on_itself(
        &self,
        base: &PathBase,
        path: &RelPath,
        sink: &SinkFacts,
    ) -> Result<bool, EntryFailure> {
        if path.is_root() || sink.ancestors_here.is_empty() {
            return Ok(false);
        }
        let holder = base.hold(&self.path, false).map_err(|error| failure(&self.path, &error))?.root;
        Ok(sink.ancestors_here.first() == Some(&holder.identity()) && path.as_bytes() == self.facts.name)
    }
}

fn failure(path: &Path, error: &io::Error) -> EntryFailure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FailureKind::Missing,
        io::ErrorKind::PermissionDenied => FailureKind::Unreadable,
        _ => FailureKind::ReadError,
    };
    refusal(path, kind, &text_without_errno(&error))
}

fn refusal(path: &Path, kind: FailureKind, detail: &str) -> EntryFailure {
    EntryFailure { path: path.as_os_str().as_bytes().into(), kind, detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::destination_place::{DestinationEntryKind, DestinationPathFacts};
    use carrack_storage::RootDirectory;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn spec(recursive: bool) -> AgreedTransferSpec {
        AgreedTransferSpec { recursive, ..AgreedTransferSpec::default() }
    }

    fn sink() -> SinkFacts {
        let facts = DestinationPathFacts {
            state: DestinationEntryKind::Directory,
            wants_directory: true,
            name: b"to".to_vec(),
        };
        SinkFacts {
            facts,
            ancestors_here: Vec::new(),
            credits: 1,
            has_targets: false,
            resumes: false,
            kept: carrack_model::KeptMetadata::ALL,
            object_bytes: 0,
            takes_confirmations: false,
            open_files: 1,
        }
    }

    fn fixture() -> (tempfile::TempDir, PathBase) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("export/d/sub")).unwrap();
        fs::write(dir.path().join("export/d/f"), "inside").unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        for (text, link) in
            [("d/f", "file"), ("d", "dir"), ("../secret", "out"), ("..", "up"), ("/etc", "etc")]
        {
            symlink(text, dir.path().join("export").join(link)).unwrap();
        }
        let base = PathBase::beneath(RootDirectory::open(&dir.path().join("export")).unwrap());
        (dir, base)
    }

    #[test]
    fn a_named_link_that_stays_beneath_its_base_is_followed_once_and_for_all() {
        let (dir, base) = fixture();
        let sources =
            resolve(&base, &["/file".into(), "dir/f".into()], &spec(false), false, &sink()).unwrap();
        let names: Vec<_> = sources.roots.iter().map(|root| (root.root.path(), &root.what)).collect();
        // Both are the file `d/f`, which has two names.
        let [
            (first_path, ScanRootScope::Name { name, sink_name, follow, .. }),
            (_, ScanRootScope::Name { .. }),
        ] = &names[..]
        else {
            panic!("{names:?}")
        };
        assert_eq!((&**name, &**sink_name, *follow), (&b"f"[..], &b"file"[..], false));
        assert_eq!(*first_path, Path::new("/d"));
        // A link that is swapped in afterwards is not followed.
        fs::remove_file(dir.path().join("export/d/f")).unwrap();
        symlink("../../secret", dir.path().join("export/d/f")).unwrap();
        let scan = carrack_storage::SourceScan {
            roots: sources.roots,
            threads: 1,
            destination: None,
            extras: None,
            filter: None,
            record: None,
        };
        scan.run(&|found| {
            let carrack_storage::ScannedItem::Section(section, _) = &found else { panic!("{found:?}") };
            for entry in &section.entries {
                assert!(matches!(entry.kind, carrack_model::EntryKind::Symlink { .. }), "{entry:?}");
            }
            std::ops::ControlFlow::Continue(())
        });
    }

    #[test]
    fn a_tree_may_be_named_through_a_link() {
        let (_dir, base) = fixture();
        for (typed, sink_path) in [("dir/", ""), ("dir/sub", "sub"), ("/", ""), ("", "")] {
            let sources = resolve(&base, &[typed.into()], &spec(true), false, &sink()).unwrap();
            let ScanRootScope::Tree { sink } = &sources.roots[0].what else { panic!("{typed}") };
            assert_eq!(sink.as_bytes(), sink_path.as_bytes());
        }
    }

    #[test]
    fn no_source_lies_outside_of_its_base() {
        let (dir, base) = fixture();
        let secret = dir.path().join("secret");
        for typed in [
            Path::new("out"),
            Path::new("up/secret"),
            Path::new("../secret"),
            &secret,
            Path::new("etc/passwd"),
        ] {
            assert!(resolve(&base, &[typed.into()], &spec(false), false, &sink()).is_err(), "{typed:?}");
        }
        for typed in ["up/", "etc/", "..", "d/../..", "up/export/d"] {
            assert!(resolve(&base, &[typed.into()], &spec(true), false, &sink()).is_err(), "{typed:?}");
        }
        // A link as a source is copied as a link.
        assert!(resolve(&base, &["out".into()], &spec(true), false, &sink()).is_ok());
        // Links within a source would be followed without a check of their targets.
        assert!(resolve(&base, &["d".into()], &spec(true), true, &sink()).is_err());
    }
}
