//! A bundle becomes small files and links (M7). Every file is published whole, under its own name, at once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::{Checksum, EntryFailure, Metadata, RelPath, escape};
use carrack_storage::{Root, SinkError, place_small, place_symlink};
use carrack_transport::Incoming;
use carrack_wire::{TableEntry, TableReader, TableRecord};

use super::lane::Lane;
use crate::check::bundle_check;
use crate::error::SessionError;

/// Keeps the directory that the last entry went to: the next one mostly goes there too.
#[derive(Default)]
pub(super) struct Unpacker {
    held: Option<Held>,
}

struct Held {
    path: RelPath,
    /// The directory, or why nothing can be placed in it.
    directory: Result<OwnedFd, SinkError>,
}

impl Unpacker {
    /// Checks a bundle and writes what it holds.
    pub(super) fn store(
        &mut self,
        lane: &Lane<'_>,
        root: &Root,
        incoming: Incoming,
    ) -> Result<(), SessionError> {
        let object = incoming.header.object.0;
        let is_good = self.unpack(lane, root, &incoming)?;
        drop(incoming);
        if is_good {
            lane.written(object)
        } else {
            lane.corrupt(object)
        }
        Ok(())
    }

    /// False if the bundle failed its check; then nothing of it was written.
    fn unpack(&mut self, lane: &Lane<'_>, root: &Root, incoming: &Incoming) -> Result<bool, SessionError> {
        let body = incoming.body();
        let table_len = incoming.header.table_len as usize;
        if bundle_check(lane.sink.spec.checksum, body, table_len) != incoming.header.check {
            return Ok(false);
        }
        let (content, table) = body.split_at(body.len() - table_len);
        if !check_contents(lane.sink.spec.checksum, content, table)? {
            return Ok(false);
        }
        let mut rest = content;
        for record in TableReader::new(table) {
            match record? {
                TableRecord::Section { path, metadata } => self.enter(lane, root, path, metadata)?,
                TableRecord::Entry(entry) => {
                    let (own, after) = rest.split_at(entry.size as usize);
                    rest = after;
                    self.entry(lane, &entry, own)?;
                }
            }
        }
        Ok(true)
    }

    /// Goes on in another directory, which is made if it is missing; its metadata is set at the end.
    fn enter(
        &mut self,
        lane: &Lane<'_>,
        root: &Root,
        path: RelPath,
        metadata: Option<Metadata>,
    ) -> Result<(), SessionError> {
        if !lane.sink.confinement.allows_section(&path, metadata.as_ref()) {
            return Err(SessionError::Protocol(format!("'{path}' was not asked for")));
        }
        let is_held = |held: &Held| held.path == path && held.directory.is_ok();
        if !self.held.as_ref().is_some_and(is_held) {
            self.held = None;
            let directory = root.make_directory(&path).map_err(SinkError::of_directory);
            self.held = Some(Held { path, directory });
        }
        let (Some(held), Some(metadata)) = (&self.held, metadata) else { return Ok(()) };
        let metadata = lane.sink.allowed(metadata);
        let noted = match (&held.directory, lane.sink.directories().as_mut()) {
            (Err(error), _) => Err(failure(lane, &held.path, b"", error)),
            (Ok(_), Some(spool)) => {
                spool.note(&held.path, &metadata).map_err(|error| failure(lane, &held.path, b"", &error))
            }
            (Ok(_), None) => Ok(()),
        };
        noted.or_else(|failure| lane.fail(failure))
    }

    fn entry(&self, lane: &Lane<'_>, entry: &TableEntry<'_>, content: &[u8]) -> Result<(), SessionError> {
        // The table reader gives no entry before a section.
        let Some(held) = &self.held else { return Ok(()) };
        if !lane.sink.confinement.allows_entry(&held.path, entry.name) {
            return Err(SessionError::Protocol(format!("'{}' was not asked for", escape(entry.name))));
        }
        let fail = |error: &SinkError| lane.fail(failure(lane, &held.path, entry.name, error));
        match &held.directory {
            Ok(directory) => match place(lane, directory, entry, content) {
                Ok(()) => {
                    lane.placed(&held.path, entry);
                    Ok(())
                }
                Err(error) => fail(&error),
            },
            Err(error) => fail(error),
        }
    }
}

fn place(lane: &Lane<'_>, held: &OwnedFd, entry: &TableEntry<'_>, content: &[u8]) -> Result<(), SinkError> {
    match entry.symlink_target {
        Some(target) => place_symlink(held.as_fd(), entry.name, target, &entry.metadata, &lane.sink.scratch),
        None => {
            let metadata = lane.sink.allowed(entry.metadata);
            place_small(held.as_fd(), entry.name, content, &metadata, &lane.sink.scratch)
        }
    }
}

fn failure(lane: &Lane<'_>, directory: &RelPath, name: &[u8], error: &SinkError) -> EntryFailure {
    EntryFailure { path: lane.path(directory, name), kind: error.kind(), detail: error.to_string() }
}

/// Whether the table fits the contents, which a hostile source may not keep to; with BLAKE3, whether each file has
/// the digest that the table gives it.
fn check_contents(checksum: Checksum, content: &[u8], table: &[u8]) -> Result<bool, SessionError> {
    let mut rest = content;
    let mut is_good = true;
    for record in TableReader::new(table) {
        let TableRecord::Entry(entry) = record? else { continue };
        let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
        let Some((own, after)) = rest.split_at_checked(size) else {
            return Err(SessionError::Protocol("a bundle's table promises more than its contents".into()));
        };
        rest = after;
        if checksum == Checksum::Blake3 && entry.symlink_target.is_none() {
            is_good &= entry.digest.is_some_and(|digest| blake3::hash(own) == *digest);
        }
    }
    if !rest.is_empty() {
        return Err(SessionError::Protocol("a bundle's contents are longer than its table says".into()));
    }
    Ok(is_good)
}

impl Lane<'_> {
    fn placed(&self, directory: &RelPath, entry: &TableEntry<'_>) {
        if entry.symlink_target.is_some() {
            self.counters.symlinks_done.fetch_add(1, Relaxed);
            return;
        }
        self.counters.files_done.fetch_add(1, Relaxed);
        self.counters.bytes_done.fetch_add(entry.size, Relaxed);
        if let (true, Some(digest)) = (self.sink.spec.report_digests, entry.digest) {
            self.report_digest(directory, entry.name, entry.size, *digest);
        }
    }
}
