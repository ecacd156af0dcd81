//! The machine: topology, placement of threads and buffers, slot pools, and waiting.
//!
//! Knows neither files nor peers.

mod binding;
mod cpu_use;
mod crew;
mod descriptors;
pub mod doctor;
mod flows;
mod id_set;
mod measure;
mod memory_limit;
mod monitor;
mod near;
mod netlink;
pub mod nic;
mod node_state;
mod placement;
mod pool;
mod recent;
mod region;
mod resource_limits;
mod spill_log;
mod sys_files;
mod topology;
mod watch;
mod zone;

pub use binding::node_of_pages;
pub use cpu_use::CpuUse;
pub use crew::{Crew, Duty, LaneCrew, MoveError, Moved, Seated, Step, ThreadPlace};
pub use descriptors::{Descriptors, raise_descriptors};
pub use flows::follow_flows;
pub use id_set::{BadList, CpuSet, Cpus, IdSet, NodeSet, Nodes};
pub use measure::{MeasureError, MemoryMatrix, measure_memory};
pub use memory_limit::{MemoryLimit, keep_heaps_few};
pub use monitor::{Attempt, Closed, Monitor};
pub use near::{deal, node_of_directory};
pub use placement::{
    CostOrigin, Costs, LanePlacement, Placement, Request, Scheme, Seat, lanes_wanted, place,
};
pub use pool::{PoolError, Slot, SlotPool};
pub use region::{Backing, Bound, Pages};
pub use resource_limits::{Resource, resource_limit};
pub use spill_log::{SpillError, SpillLog, SpillRecord};
pub use sys_files::SysFiles;
pub use topology::{Core, Device, DeviceKind, LOCAL_DISTANCE, Node, Origin, Socket, Topology, TopologyError};
pub use watch::{Change, Decision, Loads, NodeLoad, SampleError, ThreadMove, watch_crew};
pub use zone::{CgroupTree, StaleZone, Zone, ZoneError, ZoneKind, repair_zones, stale_zones};
