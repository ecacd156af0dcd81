//! What the process may have of a resource (getrlimit(2)).

use nix::sys::resource::{RLIM_INFINITY, getrlimit};

pub use nix::sys::resource::Resource;

/// The soft limit; nothing where there is none, or where a sandbox refuses the question.
pub fn resource_limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}
