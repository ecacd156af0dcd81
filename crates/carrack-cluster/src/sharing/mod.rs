//! Sharing a site's targets in a fleet: which manager has the meta-server of a site (`carrack_sharing`), how movers ask it over NATS, and an
//! operator's way to look at its targets.

mod over_nats;
pub(crate) mod site;
mod site_targets;

pub(crate) use over_nats::OverNats;
pub use site_targets::{SiteTargetsError, site_targets};
