//! Resource limits of the process (getrlimit(2)).

use nix::sys::resource::{RLIM_INFINITY, getrlimit};

pub use nix::sys::resource::Resource;

/// The soft limit; `None` if there is none, or if a sandbox refuses the call.
pub fn resource_limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}
