//! The machine: topology, placement of threads and buffers, slot pools, and waiting.
//!
//! Knows neither files nor peers.

mod binding;
mod cached_fact;
mod cpu_use;
mod descriptors;
mod disk_locality;
pub mod doctor;
mod fifo_monitor;
mod flows;
mod id_set;
mod measure;
mod memory_limit;
mod netlink;
pub mod nic;
mod node_memory;
mod placement;
mod pool;
mod region;
mod resource_limits;
mod spill_log;
mod sys_files;
mod thread_binding;
mod topology;
mod watch;
mod zone;

pub use binding::node_of_pages;
pub use cpu_use::CpuUse;
pub use descriptors::{DescriptorBudget, raise_descriptors};
pub use disk_locality::{deal, node_of_directory};
pub use fifo_monitor::{FifoMonitor, MonitorClosed, WaitAttempt};
pub use flows::follow_flows;
pub use id_set::{BadIdList, CpuMarker, CpuSet, IdSet, NodeMarker, NodeSet};
pub use measure::{MeasureError, MemoryMatrix, measure_memory};
pub use memory_limit::{MemoryLimit, keep_heaps_few};
pub use placement::{
    CostOrigin, LanePlacement, MemoryCosts, Placement, PlacementRequest, PlacementScheme, ThreadSeat,
    lanes_wanted, place,
};
pub use pool::{PoolError, Slot, SlotPool};
pub use region::{MemoryBinding, PageKind, PoolBacking};
pub use resource_limits::{Resource, resource_limit};
pub use spill_log::{SpillError, SpillLog, SpillRecord};
pub use sys_files::SysFiles;
pub use thread_binding::{
    BindingLevel, LaneCrew, MoveError, MoveResult, SeatGuard, SeatedThread, ThreadCrew, ThreadDuty,
};
pub use topology::{
    CpuCore, CpuSocket, DeviceKind, LOCAL_DISTANCE, NumaNode, Topology, TopologyDevice, TopologyError,
    TopologyOrigin,
};
pub use watch::{
    LaneChange, LaneChangeDecision, MachineLoads, NodeLoad, SampleError, ThreadMove, watch_crew,
};
pub use zone::{CgroupTree, CoreZone, StaleZone, ZoneError, ZoneProtection, repair_zones, stale_zones};
