//! BeeGFS: chunks are distributed round-robin over storage targets.
//!
//! Has no state. Each query is an unprivileged `ioctl` on a file of a BeeGFS, identified by its `f_type`. No
//! BeeGFS was available when this was written: the replies are tested byte by byte, the calls are not.

mod reply;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carrack_model::TargetId;
use carrack_plan::StripedLayout;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::Opcode;

pub use reply::{
    BeeGfsError, BeeGfsStripeTarget, BeeGfsStripes, STRIPE_INFO_BYTES, STRIPE_TARGET_BYTES,
    STRIPE_TARGET_V2_BYTES, parse_stripe_info, parse_stripe_target, parse_stripe_target_v2,
};

use super::file_ref::{LayoutQueryFile, reopen};
use super::ioctl::{beegfs_make_file, call_ioctl, read_opcode};
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{ComponentGeometry, StripeGeometry, StripeOutcome, StripePattern};

/// `BEEGFS_IOC_GET_STRIPEINFO`.
const GET_STRIPE_INFO: Opcode = read_opcode::<STRIPE_INFO_BYTES>(b'f', 25);

/// `BEEGFS_IOC_GET_STRIPETARGET`, with the stripe in its argument.
const GET_STRIPE_TARGET: Opcode = read_opcode::<STRIPE_TARGET_BYTES>(b'f', 26);

/// `BEEGFS_IOC_GET_STRIPETARGET_V2`.
const GET_STRIPE_TARGET_V2: Opcode = read_opcode::<STRIPE_TARGET_V2_BYTES>(b'f', 26);

/// Smallest chunk; chunks are powers of two.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// Largest power of two that the call accepts.
const CHUNK_BYTES_MAX: u64 = 1 << 31;

/// A mounted BeeGFS.
#[derive(Debug)]
pub(super) struct BeeGfsProvider;

impl LayoutProvider for BeeGfsProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        _size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let held = file.descriptor().map_err(|errno| MissingLayoutReason::problem("opening", errno))?;
        let mut answer = [0; STRIPE_INFO_BYTES];
        call_ioctl::<GET_STRIPE_INFO, STRIPE_INFO_BYTES>(held.as_fd(), &mut answer)
            .map_err(|errno| MissingLayoutReason::problem("asking BeeGFS for the stripes", errno))?;
        let stripes = parse_stripe_info(&answer)
            .map_err(|error| MissingLayoutReason::problem("asking BeeGFS for the stripes", error))?;
        let mut round: Vec<TargetId> = Vec::new();
        for index in 0..stripes.target_count {
            let BeeGfsStripeTarget { target, node } = stripe_target(held.as_fd(), index)?;
            let server = || node.map(|node| format!("node {node}"));
            round.push(pieces.target_on_server(&format!("target {target}"), server));
        }
        let striped = StripedLayout::new(round, u64::from(stripes.chunk_bytes));
        Ok(FoundLayout::new(striped, geometry(&stripes)))
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        _pieces: &FileSystemTargets,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        match make_file(file, request) {
            Ok(()) => {
                let outcome = match request.pool {
                    None => StripeOutcome::Set,
                    Some(_) => StripeOutcome::Refused(
                        "striped, but in no pool: BeeGFS can't be asked for one".into(),
                    ),
                };
                Ok((file.open(OFlags::NOFOLLOW)?, outcome))
            }
            Err(Errno::EXIST) => Err(Errno::EXIST),
            Err(errno) => file.create_with_default(format!("asking BeeGFS for stripes: {errno}")),
        }
    }
}

/// Queries by the newer call, which reports the primary of a buddy group, else by the older one.
fn stripe_target(file: BorrowedFd<'_>, index: u16) -> Result<BeeGfsStripeTarget, MissingLayoutReason> {
    let mut answer = [0; STRIPE_TARGET_V2_BYTES];
    answer[..4].copy_from_slice(&u32::from(index).to_ne_bytes());
    let asked = call_ioctl::<GET_STRIPE_TARGET_V2, STRIPE_TARGET_V2_BYTES>(file, &mut answer);
    let target = match asked {
        Ok(()) => parse_stripe_target_v2(&answer),
        Err(_) => {
            let mut answer = [0; STRIPE_TARGET_BYTES];
            answer[..2].copy_from_slice(&index.to_ne_bytes());
            call_ioctl::<GET_STRIPE_TARGET, STRIPE_TARGET_BYTES>(file, &mut answer).map_err(|errno| {
                MissingLayoutReason::problem("asking BeeGFS for a stripe's target", errno)
            })?;
            parse_stripe_target(&answer)
        }
    };
    target.map_err(|error| MissingLayoutReason::problem("asking BeeGFS for a stripe's target", error))
}

fn make_file(file: &LayoutFileToCreate<'_>, request: &StripeRequest<'_>) -> Result<(), Errno> {
    let name = CString::new(file.name).map_err(|_| Errno::INVAL)?;
    // The directory may be held without permission to call ioctl on it.
    let directory = reopen(file.directory)?;
    let chunk_bytes = chunk_bytes(request.stripe_bytes);
    beegfs_make_file(
        directory.as_fd(),
        &name,
        file.mode.as_raw_mode(),
        request.count.unwrap_or(0),
        chunk_bytes,
    )
}

/// The chunk size for a request; 0 for the default.
fn chunk_bytes(requested: Option<u64>) -> u32 {
    let bytes =
        requested.map_or(0, |bytes| bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_power_of_two());
    u32::try_from(bytes).unwrap_or(0)
}

fn geometry(stripes: &BeeGfsStripes) -> StripeGeometry {
    let component = ComponentGeometry {
        start: 0,
        end: u64::MAX,
        stripe_bytes: u64::from(stripes.chunk_bytes),
        stripe_count: u32::from(stripes.target_count),
        pool: None,
        pattern: StripePattern::Striped,
    };
    StripeGeometry { components: vec![component], mirrors: if stripes.pattern == 1 { 1 } else { 2 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_powers_of_two() {
        for (requested, bytes) in [
            (None, 0),
            (Some(1), 65_536),
            (Some(65_536), 65_536),
            (Some(65_537), 131_072),
            (Some(u64::MAX), 1 << 31),
        ] {
            assert_eq!(chunk_bytes(requested), bytes);
        }
    }
}
