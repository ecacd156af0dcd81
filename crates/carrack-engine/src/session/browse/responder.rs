//! The responder: it asks the house, does what is allowed, and tells what it finds as fast as the caller listens.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use carrack_transport::Link;
use carrack_wire::message::{self, Browse, BrowseDone, Control, Heartbeat};

use super::message::{ENTRIES_MAX, of_entries, of_exports, to_browsing};
use super::operation::{BrowseSummary, Operation, PATIENCE};
use super::perform::{Told, beneath, perform, unfeasible};
use crate::error::SessionError;
use crate::session::handshake::say_within;
use crate::session::house::{Admission, Deed, House, Request};
use crate::settings::Settings;

/// `Failure.kind` of what can't be looked at.
const UNREADABLE: u32 = carrack_model::FailureKind::Unreadable as u32;

/// `Failure.kind` of what can't be removed.
const WRITE_ERROR: u32 = carrack_model::FailureKind::WriteError as u32;

/// Answers one caller to its end; how many entries failed. The errors are for the caller, who does not know them yet.
pub(in crate::session) fn answer(
    link: &mut Link,
    house: &dyn House,
    wanted: &Browse,
) -> Result<u64, SessionError> {
    let browsing = to_browsing(wanted)?;
    let request = || Request {
        deed: deed(browsing.operation),
        paths: vec![&wanted.path],
        token: &wanted.token,
        protection: None,
        spec: None,
        settings: Settings::default(),
    };
    let mut telling =
        Telling { link, asked: &wanted.path, own: Vec::new(), patience: PATIENCE, broken: None };
    let exports = match browsing.operation {
        Operation::List if is_top(&wanted.path) => house.exports(&request())?,
        _ => None,
    };
    let summary = match exports {
        Some(names) => telling.tell_exports(&names),
        None => telling.tell_all(house.admit(request())?, browsing.operation)?,
    };
    if let Some(error) = telling.broken {
        return Err(error);
    }
    let BrowseSummary { done_count: done, failed_count: failed } = summary;
    let patience = telling.patience;
    say_within(link, Control::BrowseDone(BrowseDone { done, failed }), patience)?;
    Ok(failed)
}

fn deed(operation: Operation) -> Deed {
    match operation {
        Operation::List | Operation::Stat => Deed::List,
        Operation::MakeDirectory { .. } => Deed::MakeDirectory,
        Operation::Remove { .. } => Deed::Remove,
    }
}

/// Whether the path is `/`, however it is written.
fn is_top(path: &[u8]) -> bool {
    !path.is_empty() && path.iter().all(|&byte| byte == b'/')
}

struct Telling<'a> {
    link: &'a mut Link,
    /// The path as the caller wrote it.
    asked: &'a [u8],
    /// The same, as it is known here.
    own: Vec<u8>,
    /// How long the caller may take for one message.
    patience: Duration,
    /// Why no more can be told.
    broken: Option<SessionError>,
}

impl Telling<'_> {
    fn tell_exports(&mut self, names: &[String]) -> BrowseSummary {
        // What went wrong is kept.
        let _ = names.chunks(ENTRIES_MAX).try_for_each(|chunk| self.say(Control::Entries(of_exports(chunk))));
        BrowseSummary { done_count: names.len() as u64, failed_count: 0 }
    }

    fn tell_all(
        &mut self,
        admission: Admission,
        operation: Operation,
    ) -> Result<BrowseSummary, SessionError> {
        let path = admission.paths.first().ok_or(SessionError::Internal)?;
        self.own = path.as_os_str().as_bytes().to_vec();
        self.patience = admission.settings.idle.unwrap_or(PATIENCE);
        perform(&admission.base, operation, path, &mut |told| self.tell(told))
            .map_err(|error| unfeasible(self.asked, &error))
    }

    fn tell(&mut self, told: Told) -> ControlFlow<()> {
        match told {
            Told::Entries(entries) => self.say(Control::Entries(of_entries(entries))),
            Told::Unseen { name, error } => {
                self.fail(beneath(self.asked, &name), UNREADABLE, error.to_string())
            }
            Told::Left { path, error } => self.fail(self.as_asked(&path), WRITE_ERROR, error.to_string()),
            Told::GoesOn => self.say(Control::Heartbeat(Heartbeat {})),
        }
    }

    fn fail(&mut self, path: Box<[u8]>, kind: u32, detail: String) -> ControlFlow<()> {
        self.say(Control::Failure(message::Failure { path: path.into(), kind, detail }))
    }

    /// One message at a time is in the queue: the work is as fast as the caller listens.
    fn say(&mut self, message: Control) -> ControlFlow<()> {
        let said = match self.link.is_interrupted() {
            true => Err(SessionError::Interrupted),
            false => say_within(self.link, message, self.patience),
        };
        match said {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.broken = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// A path that begins as it does here, as the caller knows it.
    fn as_asked(&self, path: &[u8]) -> Box<[u8]> {
        let trimmed = |path: &[u8]| path.len() - path.iter().rev().take_while(|&&b| b == b'/').count();
        let own = &self.own[..trimmed(&self.own)];
        match path.strip_prefix(own) {
            Some(rest) => [&self.asked[..trimmed(self.asked)], rest].concat().into(),
            None => path.into(),
        }
    }
}

/// Entries are told in batches as the storage gives them.
const _: () = assert!(carrack_model::limits::SCAN_BATCH_ENTRIES_MAX <= ENTRIES_MAX);
