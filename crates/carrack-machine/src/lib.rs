//! The machine: topology, placement of threads and buffers, slot pools, and waiting.
//!
//! Knows neither files nor peers.

mod binding;
mod cached_fact;
mod comm_placement;
mod cpu_use;
mod descriptors;
mod disk_locality;
pub mod doctor;
mod fifo_monitor;
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
pub use comm_placement::move_comm_threads_to_flows;
pub use cpu_use::CpuUse;
pub use descriptors::{DescriptorBudget, raise_descriptor_limit};
pub use disk_locality::{assign_to_lanes, node_of_directory};
pub use fifo_monitor::{ConditionWaitAttempt, FifoConditionLock, FifoMonitorClosed};
pub use id_set::{BadIdList, CpuIdTypeMarker, CpuSet, IdSet, NodeSet, NumaIdMarker};
pub use measure::{MemoryMatrix, MemoryMeasureError, measure_memory};
pub use memory_limit::{MemoryLimit, limit_malloc_arenas};
pub use placement::{
    CostOrigin, EndThreadPlacement, LanePlacement, NumaMemoryCosts, PlacementScheme, ThreadPlacementRequest,
    ThreadSeat, lanes_wanted, plan_thread_placement,
};
pub use pool::{PoolError, Slot, SlotPool};
pub use region::{MemoryBinding, MemoryPageKind, PoolBacking};
pub use resource_limits::{Resource, resource_limit};
pub use spill_log::{ReservedSpillSpace, SpillDataFile, SpillLogCreationError};
pub use sys_files::SysFiles;
pub use thread_binding::{
    BindingLevel, EndThreadBindings, LaneCrew, SeatedThread, ThreadBindingGuard, ThreadDuty, ThreadMoveError,
    ThreadMoveResult,
};
pub use topology::{
    CpuCore, CpuSocket, LOCAL_DISTANCE, MachineDeviceKind, NumaNode, Topology, TopologyDevice, TopologyError,
    TopologyOrigin,
};
pub use watch::{
    KernelCountersError, LaneMoveDecision, LanePlacementChange, MachineLoads, NumaNodeLoad, ThreadMove,
    watch_thread_bindings,
};
pub use zone::{
    CgroupTree, CoreIsolationMode, CoreZoneError, ProtectedCoresGuard, StaleZoneCgroup, remove_stale_zones,
    stale_zones,
};
