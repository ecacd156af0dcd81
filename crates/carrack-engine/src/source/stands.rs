//! What a sink asks that removes what is not at the source (`carrack sync --delete`): which of these names are there?
//!
//! Looked at anew when the sink asks, after everything is sent: nobody keeps a list of what was scanned.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::RelPath;
use carrack_storage::{RootKind, ScanRoot};
use carrack_wire::message::{Control, Prune, Stand, Stands};
use rustix::fs::{AtFlags, FileType, fstat, statat};
use rustix::io::Errno;

use super::Source;
use super::lane::Lane;

/// What the source has of a name; see [`Stands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Nothing = 0,
    Entry = 1,
    Directory = 2,
    Unknown = 3,
}

impl Source<'_> {
    /// Beneath what everything was scanned, as the sink knows it.
    pub(super) fn trees(&self) -> Prune {
        let sink = |root: &ScanRoot| match &root.what {
            RootKind::Tree { sink } => Some(sink.as_bytes().to_vec()),
            RootKind::Name { .. } => None,
        };
        let trees: BTreeSet<Vec<u8>> = self.roots.iter().filter_map(sink).collect();
        Prune { trees: trees.into_iter().collect() }
    }

    /// What is at the source of each name in the directory that the sink knows as `path`.
    fn standings(&self, path: &RelPath, names: &[Vec<u8>]) -> Vec<Standing> {
        let mut found = vec![Standing::Nothing; names.len()];
        for root in &self.roots {
            let Some(beneath) = beneath(root, path) else { continue };
            match root.root.open_directory(&beneath).and_then(|held| Ok((fstat(&held)?, held))) {
                Ok((stat, _)) if self.is_elsewhere(root, stat.st_dev) => found.fill(Standing::Unknown),
                Ok((_, held)) => found.iter_mut().zip(names).for_each(|(found, name)| {
                    *found = (*found).max(look(held.as_fd(), name, root.root.follows_links()));
                }),
                Err(error) if is_absence(&error) => {}
                Err(_) => found.fill(Standing::Unknown),
            }
        }
        found
    }

    fn is_elsewhere(&self, root: &ScanRoot, device: u64) -> bool {
        self.settings.selection.one_file_system && device != root.root.identity().dev
    }
}

impl Lane<'_> {
    pub(super) fn tell_what_stands(&self, question: &Stand) {
        let kinds = match RelPath::new(&question.path) {
            Ok(path) => self.source.standings(&path, &question.names),
            Err(_) => vec![Standing::Unknown; question.names.len()],
        };
        let kinds = kinds.into_iter().map(|kind| kind as u8).collect();
        // Before it is said: whoever hears it may ask again.
        self.source.stands_answered.fetch_add(1, Relaxed);
        self.say(Control::Stands(Stands { id: question.id, kinds }));
    }
}

/// Where a directory of the destination is beneath a root, if it is of it.
fn beneath(root: &ScanRoot, path: &RelPath) -> Option<RelPath> {
    let RootKind::Tree { sink } = &root.what else { return None };
    if sink.is_root() {
        return Some(path.clone());
    }
    match path.as_bytes().strip_prefix(sink.as_bytes())? {
        [] => Some(RelPath::root()),
        [b'/', rest @ ..] => RelPath::new(rest).ok(),
        _ => None,
    }
}

fn look(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> Standing {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match statat(directory, name, flags) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Standing::Directory,
        Ok(_) => Standing::Entry,
        // It may be a link that leads nowhere.
        Err(Errno::NOENT) if follow => match look(directory, name, false) {
            Standing::Nothing => Standing::Nothing,
            _ => Standing::Unknown,
        },
        Err(Errno::NOENT) => Standing::Nothing,
        Err(_) => Standing::Unknown,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
