//! Creation of large files under temporary names, once the directory exists and the name is free.
//!
//! The first I/O thread that needs a file creates it; other threads wait for that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_journal::PartialFile;
use carrack_layout::{MountedFileSystem, RequestedLayout, StripeOutcome};
use carrack_model::{ByteRange, StripeChoice};
use carrack_storage::{NewLargeFileSpec, RootDirectory, SinkError, UncommittedFile};

use super::directory_access::with_access;
use super::entry_replacement::EntryReplacement;
use super::lane::SinkLane;
use super::shared_file_names::SharedFileName;
use super::sink_file::SinkFile;
use super::write_method::unkept_striping;

/// Returns the file under its temporary name, which the first caller creates.
pub(super) fn get_or_create_file<'f>(
    lane: &SinkLane<'_>,
    root: &RootDirectory,
    file: &'f SinkFile,
) -> Result<&'f UncommittedFile, &'f SinkError> {
    file.get_or_create(|| {
        let created = with_access(lane.sink, file.directory(), || create(lane, root, file));
        let (growing, outcome) = created?;
        // A layout that is not preserved was counted.
        let refusal = match &outcome {
            StripeOutcome::Refused(why) if lane.sink.spec.stripe != StripeChoice::Preserve => Some(&**why),
            _ => None,
        };
        lane.report_file_creation(growing.io(), refusal);
        Ok(growing)
    })
}

fn create(
    lane: &SinkLane<'_>,
    root: &RootDirectory,
    file: &SinkFile,
) -> Result<(UncommittedFile, StripeOutcome), SinkError> {
    let (directory, name) = (file.directory(), &*file.entry.name);
    let is_shared = lane.sink.history.is_shared();
    assert!(file.uncommitted_file().is_none(), "a file is created once");
    assert!(
        !is_shared || file.portion.earlier_record().is_none(),
        "one session goes on with a file, or several share it"
    );
    let replacement = EntryReplacement::new(lane);
    let held = replacement.make_directory(root, directory)?;
    let names = &lane.sink.destination.names;
    let folding = names.claim_directory_folding(held.as_fd(), directory)?;
    names.claim(folding.as_ref(), held.as_fd(), directory, name)?;
    replacement.check_replaceable(held.as_fd(), name)?;
    let storage = &lane.sink.destination.storage;
    let found = file_system_of(lane, held.as_fd());
    let file_system = found.as_deref().unwrap_or(storage.destination_file_system());
    let size = file.entry.size();
    let stripe = file.requested_layout(&lane.sink.spec.stripe, || lane.queue.slow_targets());
    let part_offset = file.portion.part_offset();
    let spec = NewLargeFileSpec { part_offset, ..storage.new_file_spec(file_system, size, &stripe) };
    let created = match file.portion.earlier_record() {
        None if is_shared => open_shared_file(lane, file, held, spec)?,
        Some(past) => (resume(file, held, past, spec)?, StripeOutcome::Default),
        None => lane.request(None, || {
            let held = held.try_clone().map_err(SinkError::of_directory)?;
            UncommittedFile::create(held, name, spec, &lane.sink.destination.scratch)
        })?,
    };
    let found = storage.has_targets().then(|| file_system.layout_of(created.0.descriptor(), size));
    if let (RequestedLayout::Like(wanted), false) = (&stripe, file.portion.earlier_record().is_some()) {
        let geometry = found.as_ref().and_then(|found| found.geometry.as_ref());
        lane.count_unkept_striping(unkept_striping(wanted, &created.1, geometry));
    }
    if let Some(found) = found {
        file.set_layout(found.layout);
    }
    Ok(created)
}

/// Returns the file system of a directory, if it may differ from the destination's.
fn file_system_of(lane: &SinkLane<'_>, held: BorrowedFd<'_>) -> Option<Arc<MountedFileSystem>> {
    let storage = &lane.sink.destination.storage;
    if storage.is_one_file_system() {
        return None;
    }
    storage.file_systems().file_system_of(held).ok()
}

/// Returns an error if a part of a file is missing at its end: it was counted in a file that is gone.
fn check_all_parts_held(lane: &SinkLane<'_>, file: &SinkFile, temporary: &[u8]) -> Result<(), SinkError> {
    let records = lane.sink.history.sibling_records().ok_or(SinkError::Vanished)?;
    let mut held = records.held_ranges(file.directory(), &file.entry, temporary);
    for hole in file.portion.file_holes() {
        held.cover(hole);
    }
    if held.is_whole(file.entry.size()) { Ok(()) } else { Err(SinkError::Vanished) }
}

/// Opens a file that several sessions share. A file without ranges in this session must already exist.
fn open_shared_file(
    lane: &SinkLane<'_>,
    file: &SinkFile,
    directory: OwnedFd,
    spec: NewLargeFileSpec<'_>,
) -> Result<(UncommittedFile, StripeOutcome), SinkError> {
    assert!(lane.sink.history.is_shared(), "several sessions write to a file that is shared");
    lane.check_takeover()?;
    let (name, history) = (&file.entry.name, &lane.sink.history);
    let place = (file.directory(), &file.entry);
    let scratch = &lane.sink.destination.scratch;
    let shared = SharedFileName::find(scratch, directory.as_fd(), place, || history.sibling_records())?;
    history.shared_names.note(file.directory(), &file.entry, &shared)?;
    if !shared.is_first() && file.portion.ends_parts() {
        check_all_parts_held(lane, file, &shared.temporary)?;
    }
    let temporary = shared.temporary;
    if !file.portion.must_exist() {
        return UncommittedFile::open_shared(directory, name, &temporary, spec);
    }
    let found = UncommittedFile::resume(directory, name, &temporary, 0, spec)?;
    let growing = found.ok_or(SinkError::Vanished)?;
    growing.keep();
    Ok((growing, StripeOutcome::Default))
}

fn resume(
    file: &SinkFile,
    directory: OwnedFd,
    past: &PartialFile,
    spec: NewLargeFileSpec<'_>,
) -> Result<UncommittedFile, SinkError> {
    let end = past.held.iter().last().and_then(ByteRange::end).unwrap_or(0);
    assert!(end <= file.entry.size(), "what is held lies in the file");
    let found = UncommittedFile::resume(directory, &file.entry.name, &past.temporary, end, spec)?;
    let growing = found.ok_or(SinkError::Vanished)?;
    growing.keep();
    Ok(growing)
}
