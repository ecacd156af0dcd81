//! Lustre: stripes over object storage targets (L1).
//!
//! Owns no state. Everything goes through the attribute `lustre.lov`, unprivileged and without an `ioctl`, as
//! `llapi_layout_get_by_fd` and `llapi_layout_file_open` do.

mod blob;
mod choose;
#[cfg(test)]
mod tests;
mod wish;

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, XattrFlags, fsetxattr};
use rustix::io::Errno;

pub use blob::{LovComponent, LovError, LovFile, LovStripes, parse_lov};

use super::StripeOutcome;
use super::file_ref::FileRef;
use super::geometry::Wish;
use super::provider::{Found, NewFile, NoLayout, Provider};
use super::registry::Pieces;

/// The attribute that is the layout.
const LOV: &str = "lustre.lov";

/// `O_LOV_DELAY_CREATE` (`O_NOCTTY | FASYNC`): the file gets no objects before its layout is set.
const DELAY_CREATE: OFlags = OFlags::from_bits_retain(0x2100);

/// Lustre, or what answers as Lustre does.
#[derive(Debug)]
pub(super) struct Lustre;

impl Lustre {
    /// Whether a file or directory has a layout of Lustre's.
    pub(super) fn answers(file: &FileRef<'_>) -> bool {
        file.attribute(LOV).is_ok_and(|value| parse_lov(&value).is_ok())
    }
}

impl Provider for Lustre {
    fn layout_of(&self, file: &FileRef<'_>, size: u64, pieces: &Pieces) -> Result<Found, NoLayout> {
        let value = match file.attribute(LOV) {
            Ok(value) => value,
            Err(Errno::NODATA) => return Err(NoLayout::Default),
            Err(errno) => return Err(NoLayout::problem("reading lustre.lov", errno)),
        };
        let file = parse_lov(&value).map_err(|error| NoLayout::problem("reading lustre.lov", error))?;
        Ok(choose::place(&file, size, pieces))
    }

    fn create(&self, file: &NewFile<'_>, wish: &Wish<'_>) -> Result<(OwnedFd, StripeOutcome), Errno> {
        file.create_and_set(DELAY_CREATE, |created| set(created, wish))
    }
}

/// As much of the wish as the file system takes; what it did not is the first that it said.
fn set(file: BorrowedFd<'_>, wish: &Wish<'_>) -> Result<StripeOutcome, String> {
    let mut why = None;
    for attempt in wish::attempts(wish) {
        match fsetxattr(file, LOV, &attempt.value, XattrFlags::empty()) {
            Ok(()) => return Ok(outcome(attempt.given_up, why)),
            Err(errno) => why = why.or(Some(errno)),
        }
    }
    Err(why.map_or("nothing of it can be set".to_owned(), |errno| format!("setting lustre.lov: {errno}")))
}

fn outcome(given_up: Option<String>, why: Option<Errno>) -> StripeOutcome {
    match (given_up, why) {
        (None, _) => StripeOutcome::Set,
        (Some(given_up), None) => StripeOutcome::Refused(given_up),
        (Some(given_up), Some(errno)) => StripeOutcome::Refused(format!("{given_up}: {errno}")),
    }
}
