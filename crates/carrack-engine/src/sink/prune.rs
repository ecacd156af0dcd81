//! `carrack sync --delete`: what is at the destination and not at the source goes, when everything else is there.
//!
//! On one I/O thread of the first lane. It lists the directories that the source names, asks the source about the names, many questions
//! at a time, and removes what is not there; directories that are there it looks into. What the user's patterns leave out stays, and
//! so does what the source can't tell of. No link is followed: directories are opened beneath the destination, and what goes is
//! unlinked in the directory that was listed. Memory: the questions that are open, and the paths of directories that wait.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrack_model::{EntryFailure, Event, FailureKind, Metadata, RelPath};
use carrack_storage::{Root, SinkError};
use carrack_wire::message::{Control, Prune, Pruned, Stand, Stands};
use rustix::fs::{Dir, FileType};

use super::lane::Lane;
use super::removal::{self, Removal};
use crate::error::SessionError;

/// Names of one question; with the longest path and the longest names it stays below the largest control message.
const NAMES_MAX: usize = 512;

/// Questions that are open at a time: enough that a far source does not hold up the walk.
pub(crate) const QUESTIONS_MAX: usize = 32;

/// The questions that are open, with the source's answers as far as they are there.
pub(super) type Answers = HashMap<u64, Option<Vec<u8>>>;

/// A directory at the destination, and where it is beneath the source that it is a copy of.
#[derive(Clone)]
struct Place {
    path: RelPath,
    at_source: RelPath,
}

/// Names of one directory about which the source was asked.
struct Question {
    id: u64,
    place: Place,
    held: Arc<OwnedFd>,
    names: Vec<(Vec<u8>, bool)>,
}

struct Pruner<'a, 'l> {
    lane: &'a Lane<'l>,
    root: &'a Root,
    removal: &'a Removal,
    waiting: Vec<Place>,
    open: VecDeque<Question>,
    newest: u64,
}

impl Lane<'_> {
    /// Removes what the source does not have, and says so.
    pub(super) fn prune(&self, prune: &Prune) -> Result<(), SessionError> {
        let removal = self.sink.removal.as_ref().filter(|removal| removal.deletes());
        let Some(removal) = removal else {
            return Err(SessionError::Protocol("something to be deleted that nobody asked for".into()));
        };
        let trees = self.trees(prune)?;
        if let Some(root) = &self.sink.seen {
            let mut pruner = Pruner {
                lane: self,
                root,
                removal,
                waiting: trees.into_iter().map(|path| Place { path, at_source: RelPath::root() }).collect(),
                open: VecDeque::new(),
                newest: 0,
            };
            pruner.run()?;
            pruner.tell_stayed()?;
        }
        self.say(Control::Pruned(Pruned {}));
        Ok(())
    }

    fn trees(&self, prune: &Prune) -> Result<Vec<RelPath>, SessionError> {
        let tree = |bytes: &Vec<u8>| {
            let path = RelPath::new(bytes).map_err(|problem| SessionError::Protocol(problem.to_string()))?;
            self.check_allowed(
                self.sink.confinement.allows_section(&path, Some(&Metadata::default())),
                &path,
            )?;
            Ok(path)
        };
        prune.trees.iter().map(tree).collect()
    }

    /// The source's answer. On the comm thread.
    pub(super) fn stands(&self, stands: Stands) -> Result<(), SessionError> {
        let is_open = |answers: &mut Answers| match answers.get_mut(&stands.id) {
            Some(answer @ None) => {
                *answer = Some(stands.kinds);
                true
            }
            _ => false,
        };
        match self.sink.stands.release(is_open) {
            true => Ok(()),
            false => Err(SessionError::Protocol("an answer that nobody asked for".into())),
        }
    }
}

impl Pruner<'_, '_> {
    fn run(&mut self) -> Result<(), SessionError> {
        loop {
            if let Some(place) = self.waiting.pop() {
                self.look_into(&place)?;
            } else if !self.open.is_empty() {
                self.settle()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Lists a directory, and asks about what is in it.
    fn look_into(&mut self, place: &Place) -> Result<(), SessionError> {
        let opened = self.lane.with_access(&place.path, || {
            self.root.open_directory(&place.path).map_err(SinkError::of_directory)
        });
        let held = match opened {
            Ok(held) => Arc::new(held),
            // It is no directory (any more): nothing in it is to go.
            Err(_) => return Ok(()),
        };
        let listing = match Dir::read_from(&*held) {
            Ok(listing) => listing,
            Err(errno) => return self.failed(&place.path, b"", &errno.into()),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.failed(&place.path, b"", &errno.into())?;
                    break;
                }
            };
            let (name, is_directory) =
                (entry.file_name().to_bytes(), entry.file_type() == FileType::Directory);
            if matches!(name, b"." | b"..")
                || self.removal.is_spared(self.lane.sink, &place.at_source, name, is_directory)
            {
                continue;
            }
            names.push((name.to_vec(), is_directory));
            if names.len() == NAMES_MAX {
                self.ask(place, &held, std::mem::take(&mut names))?;
            }
        }
        if names.is_empty() { Ok(()) } else { self.ask(place, &held, names) }
    }

    fn ask(
        &mut self,
        place: &Place,
        held: &Arc<OwnedFd>,
        names: Vec<(Vec<u8>, bool)>,
    ) -> Result<(), SessionError> {
        self.newest += 1;
        let asked = names.iter().map(|(name, _)| name.clone()).collect();
        let path = place.path.as_bytes().to_vec();
        self.lane.sink.stands.with(|answers| answers.insert(self.newest, None));
        self.lane.say(Control::Stand(Stand { id: self.newest, path, names: asked }));
        let (place, held) = (place.clone(), Arc::clone(held));
        self.open.push_back(Question { id: self.newest, place, held, names });
        if self.open.len() < QUESTIONS_MAX { Ok(()) } else { self.settle() }
    }

    /// Waits for the answer to the oldest question, and does what it says.
    fn settle(&mut self) -> Result<(), SessionError> {
        let Some(question) = self.open.pop_front() else { return Ok(()) };
        let kinds = self.lane.sink.stands.take(|answers| {
            let kinds = answers.get_mut(&question.id).and_then(Option::take)?;
            answers.remove(&question.id);
            Some(kinds)
        });
        // The session ends.
        let Ok(kinds) = kinds else { return Err(SessionError::Internal) };
        if kinds.len() != question.names.len() {
            return Err(SessionError::Protocol("an answer of another size than its question".into()));
        }
        for ((name, is_directory), kind) in question.names.iter().zip(kinds) {
            match kind {
                0 => self.remove(&question, name)?,
                2 if *is_directory => self.enter(&question.place, name),
                _ => {}
            }
        }
        Ok(())
    }

    fn enter(&mut self, place: &Place, name: &[u8]) {
        if let (Ok(path), Ok(at_source)) = (place.path.join(name), place.at_source.join(name)) {
            self.waiting.push(Place { path, at_source });
        }
    }

    fn remove(&self, question: &Question, name: &[u8]) -> Result<(), SessionError> {
        let place = &question.place;
        let Ok(path) = place.path.join(name) else { return Ok(()) };
        if self.lane.sink.spec.dry_run {
            self.lane.report(Event::WouldDelete { path: path.as_bytes().into() });
            return Ok(());
        }
        let at_source = std::slice::from_ref(&place.at_source);
        let shown = self.root.full_path(&place.path, name);
        self.removal.remove(self.lane, (question.held.as_fd(), name), &shown, at_source)
    }

    fn tell_stayed(&self) -> Result<(), SessionError> {
        if !self.removal.has_stayed() {
            return Ok(());
        }
        let path = self.root.full_path(&RelPath::root(), b"");
        let detail = "more entries are to be deleted than --max-delete allows: the rest stays".to_owned();
        self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })
    }

    fn failed(&self, directory: &RelPath, name: &[u8], error: &std::io::Error) -> Result<(), SessionError> {
        self.lane.fail(removal::failed(self.root.full_path(directory, name), error))
    }
}
