//! RMA between two processes, over any network that libfabric has a provider for (L5).
//!
//! libfabric is loaded at run time: the same program runs with and without it, and reports the reason if it
//! is missing. The C calls are in `shim/`; only this crate has their `unsafe`. Safe code can't:
//!
//! * take memory away from an operation: it owns its slot until its completion, and holds its region;
//! * look at memory that a peer may be writing to: a [`RdmaWritableMemory`] gives copies only;
//! * free memory that a provider might still touch: it is kept until all objects of the endpoint are closed.
//!
//! Sources: fi_getinfo(3), fi_endpoint(3), fi_cq(3), fi_mr(3), fi_rma(3), fi_msg(3). The use by a lane:
//! docs/design/fabric.md.

mod calls;
mod core;
mod endpoint;
mod error;
mod event;
mod ffi;
mod name;
mod offer;
mod pending_operations;
mod retained_shm_endpoints;
mod waiting;

pub use core::{FabricMemoryAccess, RdmaWritableMemory, RegisteredPool, RemoteMemory};
pub use endpoint::{FabricEndpoint, FabricPeer};
pub use error::{FabricError, FabricErrorScope};
pub use event::{EndpointEvent, EndpointOperationLimits, FabricPostRefusal, RmaTransfer};
pub use offer::{
    FabricInfoEntry, FabricInterfaceProperties, ProviderOfferFilter, all_offers, load_library, usable_offers,
};
