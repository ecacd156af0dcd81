//! Lustre: stripes over object storage targets (L1).
//!
//! Has no state. All access goes through the attribute `lustre.lov`, unprivileged and without an `ioctl`, as
//! in `llapi_layout_get_by_fd` and `llapi_layout_file_open`.

mod blob;
mod mirror_choice;
mod pools;
mod requested_striping;
#[cfg(test)]
mod tests;

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, XattrFlags, fsetxattr};
use rustix::io::Errno;

pub use blob::{LovComponent, LovError, LovFile, LovStripes, parse_lov};

use self::pools::LustrePoolLists;
use super::StripeOutcome;
use super::file_ref::LayoutQueryFile;
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;

/// The attribute that contains the layout.
const LOV: &str = "lustre.lov";

/// `O_LOV_DELAY_CREATE` (`O_NOCTTY | FASYNC`): the file gets no objects before its layout is set.
const DELAY_CREATE: OFlags = OFlags::from_bits_retain(0x2100);

/// Lustre, or a file system that answers like Lustre.
#[derive(Debug)]
pub(super) struct LustreProvider {
    pools: LustrePoolLists,
}

impl LustreProvider {
    /// Creates the provider of the file system `name`; without a name for one that answers like Lustre.
    pub(super) fn new(name: Option<&str>) -> LustreProvider {
        LustreProvider { pools: LustrePoolLists::of_client(name) }
    }

    /// Returns true if a file or directory has a Lustre layout.
    pub(super) fn answers(file: &LayoutQueryFile<'_>) -> bool {
        file.read_attribute(LOV).is_ok_and(|value| parse_lov(&value).is_ok())
    }
}

impl LayoutProvider for LustreProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let value = match file.read_attribute(LOV) {
            Ok(value) => value,
            Err(Errno::NODATA) => return Err(MissingLayoutReason::Default),
            Err(errno) => return Err(MissingLayoutReason::problem("reading lustre.lov", errno)),
        };
        let file =
            parse_lov(&value).map_err(|error| MissingLayoutReason::problem("reading lustre.lov", error))?;
        Ok(mirror_choice::resolve_layout(&file, size, pieces))
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        file.create_and_set(DELAY_CREATE, |created| self.set(created, request))
    }
}

impl LustreProvider {
    /// Sets as much of the request as the file system accepts; reports its first refusal. Lustre would take a
    /// pool that it does not have.
    fn set(&self, file: BorrowedFd<'_>, request: &StripeRequest<'_>) -> Result<StripeOutcome, String> {
        let missing = request.pools().find(|pool| self.pools.lack(pool));
        let mut why = missing.map(|pool| format!("there is no pool {pool}"));
        let candidates = requested_striping::candidate_values(request).into_iter();
        for attempt in candidates.skip_while(|attempt| missing.is_some() && attempt.given_up.is_none()) {
            match fsetxattr(file, LOV, &attempt.value, XattrFlags::empty()) {
                Ok(()) => return Ok(outcome(attempt.given_up, why)),
                Err(errno) => why = why.or(Some(format!("setting lustre.lov: {errno}"))),
            }
        }
        Err(why.unwrap_or_else(|| "nothing of it can be set".to_owned()))
    }
}

fn outcome(given_up: Option<String>, why: Option<String>) -> StripeOutcome {
    match (given_up, why) {
        (None, _) => StripeOutcome::Set,
        (Some(given_up), None) => StripeOutcome::Refused(given_up),
        (Some(given_up), Some(why)) => StripeOutcome::Refused(format!("{given_up}: {why}")),
    }
}
