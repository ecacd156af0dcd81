//! Sharing of a site's targets in a fleet: the manager with the meta-server of a site (`carrack_sharing`),
//! the movers' exchange with it over NATS, and an operator's view of its targets.

mod nats_exchange;
pub(crate) mod site;
mod site_targets;

pub(crate) use nats_exchange::NatsGrantExchange;
pub use site_targets::{SiteTargetsRequestError, site_targets};
