//! Announcement of large files: by a message, or by the file's own first object.
//!
//! Messages arrive at the comm thread, first objects at the I/O thread that received them. Objects that
//! arrive before their file is announced wait in the [`super::file_table`]. The thread that announces the
//! file also handles these objects.

use std::sync::Arc;

use carrack_model::{FileId, escape};
use carrack_transport::IncomingObject;
use carrack_wire::message::OpenFileMessage;

use super::lane::SinkLane;
use super::sink_file::SinkFile;
use super::top_level_confinement::check_asked_for;
use crate::error::SessionError;

/// Adds a file to the ledger, and returns its objects that arrived before the announcement.
pub(super) fn register_file(
    lane: &SinkLane<'_>,
    message: &OpenFileMessage,
) -> Result<(Arc<SinkFile>, Vec<IncomingObject>), SessionError> {
    let file = Arc::new(new_sink_file(lane, message)?);
    let confinement = &lane.sink.destination.confinement;
    let is_allowed = confinement.allows_section(file.directory(), None)
        && confinement.allows_entry(file.directory(), &file.entry.name);
    check_asked_for(is_allowed, || escape(&file.entry.name))?;
    let id = FileId(message.id);
    let early = lane.files.announce(id, &file)?;
    Ok((file, early))
}

fn new_sink_file(lane: &SinkLane<'_>, message: &OpenFileMessage) -> Result<SinkFile, SessionError> {
    let sink = lane.sink;
    let mut file = SinkFile::from_announcement(message, sink.committer()?.next_number(), sink.spec.part)?;
    if file.is_inline_announced()
        && (sink.history.is_shared() || sink.sizing.is_sorting || sink.committer()?.reads_back())
    {
        return Err(SessionError::Protocol("a file by itself where none may be".into()));
    }
    if sink.history.is_shared() {
        file.entry.metadata = sink.attributes.allowed(file.entry.metadata);
        return file.with_session_ranges(message.coming.as_ref());
    }
    if message.coming.is_some() {
        return Err(SessionError::Protocol("a part of a file that nobody else writes to".into()));
    }
    let past = message.goes_on.then(|| {
        let past = sink.history.past.as_ref();
        past.and_then(|past| past.take(file.directory(), &file.entry))
    });
    file.entry.metadata = sink.attributes.allowed(file.entry.metadata);
    match past {
        Some(Some(past)) => {
            file.resumed_from(past).map_err(|error| SessionError::Protocol(error.to_string()))
        }
        Some(None) => Err(SessionError::Protocol("a file goes on of which nothing is there".into())),
        None => Ok(file),
    }
}
