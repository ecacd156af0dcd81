//! One large file at the sink: announced by the comm thread, created by the I/O thread that brings its first object,
//! written by many, renamed when whole.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use carrack_journal::{DigestError, FileDigest, Subtree};
use carrack_model::{Entry, RelPath, TargetId};
use carrack_plan::Layout;
use carrack_storage::{GrowingFile, Root, SinkError, StripeOutcome};
use carrack_wire::decode_section;
use carrack_wire::message::{OpenFile, Stripes};

use super::lane::Lane;
use super::storage::stripe_for;
use crate::error::SessionError;

/// A file between its announcement and its end. Dropping it takes the temporary name away.
pub(super) struct SinkFile {
    pub(super) id: u64,
    pub(super) directory: RelPath,
    pub(super) entry: Entry,
    growing: OnceLock<Result<GrowingFile, SinkError>>,
    digest: Mutex<FileDigest>,
    /// How it is striped at the source.
    stripes: Option<Stripes>,
    layout: OnceLock<Arc<dyn Layout>>,
    /// Whoever holds it writes.
    pen: Mutex<()>,
}

impl SinkFile {
    /// From the table of an open-file message. Touches no storage.
    pub(super) fn announced(message: &OpenFile) -> Result<SinkFile, SessionError> {
        let mut section = decode_section(&message.table)?;
        let (Some(entry), true) = (section.entries.pop(), section.entries.is_empty()) else {
            return Err(SessionError::Protocol("an open-file message is about one file".into()));
        };
        if entry.size() == 0 {
            return Err(SessionError::Protocol("an empty file or a link announced as a large file".into()));
        }
        let directory = section.directory.sink.clone();
        let digest = Mutex::new(FileDigest::new(entry.size()));
        Ok(SinkFile {
            id: message.id,
            directory,
            entry,
            growing: OnceLock::new(),
            digest,
            stripes: message.stripes.clone(),
            layout: OnceLock::new(),
            pen: Mutex::default(),
        })
    }

    /// The file under its temporary name; created by the first caller, who learns too why it is not striped as wished.
    pub(super) fn growing(
        &self,
        root: &Root,
        lane: &Lane<'_>,
        created: impl FnOnce(&GrowingFile, Option<&str>),
    ) -> Result<&GrowingFile, &SinkError> {
        let create = || {
            let (growing, outcome) = self.create(root, lane)?;
            match outcome {
                StripeOutcome::Refused(why) => created(&growing, Some(&why)),
                StripeOutcome::Default | StripeOutcome::Set => created(&growing, None),
            }
            Ok(growing)
        };
        self.growing.get_or_init(create).as_ref()
    }

    fn create(&self, root: &Root, lane: &Lane<'_>) -> Result<(GrowingFile, StripeOutcome), SinkError> {
        let held = root.make_directory(&self.directory).map_err(SinkError::of_directory)?;
        let storage = &lane.sink.storage;
        let found = match storage.is_one_file_system() {
            true => None,
            false => storage.file_systems().of(held.as_fd()).ok(),
        };
        let file_system = found.as_deref().unwrap_or(storage.own());
        let size = self.entry.size();
        let stripe = stripe_for(&lane.sink.spec.stripe, self.stripes.as_ref(), size);
        let spec = storage.growing(file_system, size, &stripe);
        let created = GrowingFile::create(held, &self.entry.name, spec, &lane.sink.scratch)?;
        if storage.has_targets() {
            // Nobody else creates the file: the layout is set once.
            let _ = self.layout.set(file_system.layout_of(created.0.descriptor(), size).layout);
        }
        Ok(created)
    }

    /// Where it lies, once it is created, if that matters.
    pub(super) fn layout(&self) -> Option<&Arc<dyn Layout>> {
        self.layout.get()
    }

    /// The target of the byte at `offset`, if that is known.
    pub(super) fn target_at(&self, offset: u64) -> Option<TargetId> {
        self.layout.get().map(|layout| layout.extent_at(offset).target)
    }

    /// Writes an object; if `in_turn`, while no other thread does.
    pub(super) fn write(
        &self,
        growing: &GrowingFile,
        body: &[u8],
        offset: u64,
        in_turn: bool,
    ) -> Result<(), SinkError> {
        let _pen = in_turn.then(|| self.pen.lock().unwrap_or_else(PoisonError::into_inner));
        growing.write_at(body, offset)
    }

    /// An object's part of the digest.
    pub(super) fn add_subtrees(&self, subtrees: &[Subtree]) -> Result<(), DigestError> {
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        subtrees.iter().try_for_each(|subtree| digest.add(*subtree))
    }

    /// Gives the file its metadata and its name.
    pub(super) fn commit(&self) -> Result<(), SinkError> {
        match self.growing.get() {
            Some(Ok(growing)) => growing.commit(&self.entry.metadata),
            // Only a file with objects becomes whole, and the first of them created it.
            _ => Ok(()),
        }
    }

    pub(super) fn digest(&self) -> Result<[u8; 32], DigestError> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner).clone().finish()
    }
}
