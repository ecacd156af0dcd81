//! The comparison of an entry's record with the entry at the destination.
//!
//! I/O threads compare entries that are offered, and files that another session may have named.

use std::os::fd::BorrowedFd;

use carrack_model::{Entry, EntryKind, Metadata, RelPath};
use carrack_storage::{ExistingEntry, digest_of, read_existing_entry, set_file_metadata};

use super::context::SinkContext;
use super::lane::SinkLane;

/// Returns true if the recorded entry is still at the destination. If digests are asked for, reads and
/// reports its digest.
pub(super) fn is_in_place(lane: &SinkLane<'_>, path: &RelPath, held: BorrowedFd<'_>, entry: &Entry) -> bool {
    let Ok(Some(present)) = read_existing_entry(held, &entry.name) else { return false };
    let is_same = match (&entry.kind, &present) {
        (EntryKind::Regular { size }, ExistingEntry::File { size: found, metadata, .. }) => {
            size == found && matches_record(lane.sink, held, entry, metadata)
        }
        (EntryKind::Symlink { target }, ExistingEntry::Symlink { target: found, .. }) => target == found,
        (EntryKind::Special(special), ExistingEntry::Special { special: found, metadata, .. }) => {
            special == found
                && lane.sink.attributes.has_mode(metadata, entry.metadata)
                && lane.sink.attributes.has_time(metadata, entry.metadata, held)
        }
        _ => false,
    };
    let reports = lane.sink.spec.report_digests && matches!(entry.kind, EntryKind::Regular { .. });
    if !is_same || !reports {
        return is_same;
    }
    match digest_of(held, &entry.name, false) {
        Ok(digest) => {
            lane.report_digest(path, &entry.name, entry.size(), digest);
            true
        }
        Err(_) => false,
    }
}

/// Returns true if a file is the recorded one. A mode that the file system refused then is tried once more.
fn matches_record(sink: &SinkContext<'_>, held: BorrowedFd<'_>, entry: &Entry, found: &Metadata) -> bool {
    let told = sink.attributes.allowed(entry.metadata);
    sink.attributes.has_time(found, entry.metadata, held)
        && (sink.attributes.has_mode(found, entry.metadata)
            || set_file_metadata(held, &entry.name, &sink.attributes.metadata_to_set(&told, None)).is_ok())
}
