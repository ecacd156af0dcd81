//! RMA between two processes, over whatever network libfabric has a provider for (L5).
//!
//! The library is found at run time: one program runs where it is installed and where it isn't, and says why there is no
//! fabric. C calls are in `shim/`; `unsafe` is here and nowhere above. What safe code can't do:
//!
//! * take memory away from an operation: it owns its slot until its completion, and its region is held;
//! * look at memory that a peer may be writing to: a [`Window`] gives copies only;
//! * free what a provider might still touch: that is kept until everything of the endpoint is closed.
//!
//! Sources: fi_getinfo(3), fi_endpoint(3), fi_cq(3), fi_mr(3), fi_rma(3), fi_msg(3). How a lane uses it: docs/fabric.md.

mod calls;
mod core;
mod endpoint;
mod error;
mod event;
mod ffi;
mod name;
mod neighbours;
mod offer;
mod operations;
mod waiting;

pub use core::{Place, Region, Sharing, Window};
pub use endpoint::{Endpoint, Peer};
pub use error::{FabricError, Scope};
pub use event::{Event, Limits, Refused, Transfer};
pub use offer::{Description, Filter, Offer, all_offers, library, usable_offers};
