//! The machine: where its parts lie, where a transfer's threads and buffers belong, slot pools, and waiting.
//!
//! Knows neither files nor peers.

mod id_set;
mod monitor;
mod placement;
mod pool;
mod topology;

pub use id_set::{BadList, CpuSet, Cpus, IdSet, NodeSet, Nodes};
pub use monitor::{Attempt, Closed, Monitor};
pub use placement::{
    CostOrigin, Costs, IO_THREADS_PER_LANE_MIN, LanePlacement, Placement, Request, Scheme, Seat,
    lanes_wanted, place,
};
pub use pool::{PoolError, Slot, SlotPool};
pub use topology::{Core, Device, DeviceKind, LOCAL_DISTANCE, Node, Origin, Socket, Topology, TopologyError};
