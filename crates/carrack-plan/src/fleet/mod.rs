//! The decisions of a fleet, as pure code: how a scan becomes chunks, which step a transfer needs next, which
//! movers carry it, in which order waiting transfers begin, and when movers ask for more or give up (decision
//! 18).
//!
//! Nothing here knows NATS, a clock or another thread. `docs/design/fleet-planning.md` has the rules and
//! their reasons.

mod assign;
mod chunk_delivery;
mod chunk_request;
mod coordinator;
mod curve;
mod cutter;
mod delivery_fencing;
mod health;
mod lease_term;
mod mover_pairs;
mod shares;
mod site_marks;
mod stragglers;
mod tracker;
mod transfer_intake;
mod transfer_ranking;
mod wait_condition;

pub use assign::{AssignedMoverPair, MoverPairChanges, assign};
pub use chunk_delivery::{
    AvailableMovers, ChunkDeliveryState, ChunkStepResult, FailedMovers, MoverBlamedChunkFailure,
    QueuedChunkStep, may_leave_to_others, redelivery_delay, scan_ack_delay,
};
pub use chunk_request::{
    ChunkRequestThreshold, THRESHOLD_BYTES_FIRST, THRESHOLD_BYTES_MAX, THRESHOLD_BYTES_MIN,
};
pub use coordinator::{
    CoordinatedTransferFields, CoordinatorInputs, CoordinatorStep, CoordinatorStepResult, FleetTransferState,
    TransferCoordinator, TransferResult,
};
pub use curve::PairCountTuner;
pub use cutter::{
    CHUNK_BYTES_DEFAULT, CHUNK_ENTRIES_MAX, CHUNK_TABLE_BYTES_DEFAULT, ChunkEntries, ChunkLimits, CutTotals,
    FleetChunkBuilder, PART_GRAIN_BYTES, SIZE_CLASSES, TransferWorkChunk,
};
pub use delivery_fencing::HeldQueueDeliveries;
pub use health::{MoverFault, MoverFaultKind, MoverHealth, MoverQuarantine, TransferHealthVerdict};
pub use lease_term::{LEASE_LASTS, LEASE_RENEW_EVERY, LeaseRenewalTime};
pub use mover_pairs::{MoverPairId, MoverPairReconciler, MoverReconcilerAction};
pub use shares::{FleetMover, MoverPairLimits, TransferPairDemand, shares};
pub use site_marks::{MoverStorageMark, SameStorageMovers, same_storage};
pub use stragglers::{PairStragglerDetector, StorageWaitSide, StragglingMover};
pub use tracker::{
    ChunkOutcome, LargeFileNumber, ManagerAction, NEXT_FILES_MAX, PartedFileRef, TransferTotals,
    TransferTracker, TransferTrackerEvent,
};
pub use transfer_intake::{
    ManagerOwnedTransfer, OrphanedMoverPairs, SelectedIntakeTransfers, TransferCandidate, room,
    select_transfers,
};
pub use transfer_ranking::{RankRules, TransferRanking, WaitingTransfer};
pub use wait_condition::{MoverPairWaitReason, find_wait_reason};
