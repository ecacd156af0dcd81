//! The machine: where its parts lie, where a transfer's threads and buffers belong, slot pools, and waiting.
//!
//! Knows neither files nor peers.

pub mod doctor;
mod id_set;
mod monitor;
mod netlink;
pub mod nic;
mod placement;
mod pool;
mod sys_files;
mod topology;

pub use id_set::{BadList, CpuSet, Cpus, IdSet, NodeSet, Nodes};
pub use monitor::{Attempt, Closed, Monitor};
pub use netlink::{Qdisc, qdiscs};
pub use placement::{LanePlacement, Placement, Scheme, Seat};
pub use pool::{PoolError, Slot, SlotPool};
pub use sys_files::SysFiles;
pub use topology::{Core, Device, DeviceKind, Node, Origin, Socket, Topology};
