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

/// Without its pool, if that is not known here.
fn set(file: BorrowedFd<'_>, wish: &Wish<'_>) -> Result<StripeOutcome, String> {
    let why = match try_set(file, wish) {
        Ok(()) => return Ok(StripeOutcome::Set),
        Err(why) => why,
    };
    match wish.pool {
        Some(pool) if try_set(file, &Wish { pool: None, ..wish.clone() }).is_ok() => {
            Ok(StripeOutcome::Refused(format!("striped, but not in the pool {pool}: {why}")))
        }
        _ => Err(why),
    }
}

fn try_set(file: BorrowedFd<'_>, wish: &Wish<'_>) -> Result<(), String> {
    let head = wish::head(wish)?;
    fsetxattr(file, LOV, &head, XattrFlags::empty()).map_err(|errno| format!("setting lustre.lov: {errno}"))
}
