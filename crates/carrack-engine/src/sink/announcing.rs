//! Large files that the source announces: by a message, or by the file's own first object.
//!
//! Messages come to the comm thread, first objects to the I/O thread that received them. Objects that came before their file was
//! announced wait in [`Files::early`](super::lane::Files), and whoever announces it sees to them.

use std::sync::Arc;

use carrack_model::{ByteRange, Checksum, FileId, escape};
use carrack_storage::Root;
use carrack_transport::Incoming;
use carrack_wire::FrameHeader;
use carrack_wire::message::OpenFile;

use super::lane::Lane;
use super::sink_file::SinkFile;
use super::writer::Checked;
use crate::check::bundle_check;
use crate::error::SessionError;

impl Lane<'_> {
    /// Takes a file into the ledger; returns its objects that came before it was announced, too.
    pub(super) fn announce(
        &self,
        message: &OpenFile,
    ) -> Result<(Arc<SinkFile>, Vec<Incoming>), SessionError> {
        let file = Arc::new(self.announced(message)?);
        let confinement = &self.sink.confinement;
        if !confinement.allows_section(file.directory(), None)
            || !confinement.allows_entry(file.directory(), &file.entry.name)
        {
            let name = escape(&file.entry.name);
            return Err(SessionError::Protocol(format!("'{name}' was not asked for")));
        }
        let id = FileId(message.id);
        let mut files = self.files();
        files.ledger.announce(id, file.entry.size(), Some(Arc::clone(&file)), file.held())?;
        let early = files.early.remove(&id).unwrap_or_default();
        Ok((file, early))
    }

    fn announced(&self, message: &OpenFile) -> Result<SinkFile, SessionError> {
        let sink = self.sink;
        let mut file = SinkFile::announced(message, sink.committer()?.next_number(), sink.spec.part)?;
        if file.is_by_itself()
            && (sink.siblings.is_some() || sink.is_sorting || sink.committer()?.reads_back())
        {
            return Err(SessionError::Protocol("a file by itself where none may be".into()));
        }
        if sink.siblings.is_some() {
            file.entry.metadata = sink.allowed(file.entry.metadata);
            return file.sharing(message.coming.as_ref());
        }
        if message.coming.is_some() {
            return Err(SessionError::Protocol("a part of a file that nobody else writes to".into()));
        }
        let take = || sink.past.as_ref().and_then(|past| past.take(file.directory(), &file.entry));
        let past = message.goes_on.then(take);
        file.entry.metadata = sink.allowed(file.entry.metadata);
        match past {
            Some(Some(past)) => {
                file.going_on(past).map_err(|error| SessionError::Protocol(error.to_string()))
            }
            Some(None) => Err(SessionError::Protocol("a file goes on of which nothing is there".into())),
            None => Ok(file),
        }
    }

    /// Stores an object that announces its file: contents, and behind them the table that would be in a message.
    pub(super) fn store_first(&self, root: &Root, incoming: Incoming) -> Result<(), SessionError> {
        let FrameHeader { object, file: id, offset, table_len, check, .. } = incoming.header;
        let checksum = self.sink.spec.checksum;
        if checksum == Checksum::Blake3 {
            return Err(SessionError::Protocol("a file by itself where digests are made".into()));
        }
        let body = incoming.body();
        if bundle_check(checksum, body, table_len as usize) != check {
            drop(incoming);
            // The source announces it by a message now.
            self.corrupt(object.0);
            return Ok(());
        }
        let (content, table) = body.split_at(body.len() - table_len as usize);
        let range = ByteRange::new(offset, content.len() as u64);
        let message = OpenFile { id: id.0, table: table.to_vec(), ..OpenFile::default() };
        let (file, early) = self.announce(&message)?;
        self.files().ledger.arrive(id, range)?;
        self.write(root, &file, Checked { incoming, range, subtrees: Vec::new() })?;
        early.into_iter().try_for_each(|incoming| self.store_object(root, incoming).map(|_| ()))
    }
}
