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
mod pair_set;
mod shares;
mod site_marks;
mod stragglers;
mod tracker;
mod transfer_intake;
mod transfer_ranking;
mod wait_condition;

pub use assign::{FleetPair, PairTableChanges, assign};
pub use chunk_delivery::{
    AvailableMovers, ChunkDeliveryState, ChunkDeliveryStep, ChunkStepResult, FailedMovers, MoverDoubt,
    acknowledged_after, left_for, may_be_left,
};
pub use chunk_request::{
    ChunkRequestThreshold, THRESHOLD_BYTES_FIRST, THRESHOLD_BYTES_MAX, THRESHOLD_BYTES_MIN,
};
pub use coordinator::{
    CoordinatorContext, CoordinatorStep, CoordinatorStepResult, RecordState, RecordView, TransferCoordinator,
    TransferResult,
};
pub use curve::PairTuner;
pub use cutter::{
    CHUNK_BYTES_DEFAULT, CHUNK_ENTRIES_MAX, CHUNK_TABLE_BYTES_DEFAULT, ChunkContent, ChunkCutter,
    ChunkLimits, CutChunk, CutTotals, PART_GRAIN_BYTES, SIZE_CLASSES,
};
pub use delivery_fencing::DeliveryFence;
pub use health::{FaultKind, MoverFault, MoverHealth, MoverQuarantine, TransferVerdict};
pub use lease_term::{LEASE_LASTS, LEASE_RENEW_EVERY, LeaseTerm};
pub use pair_set::{MoverPairs, PairAct, PairId};
pub use shares::{FleetMover, PairClaim, PairLimits, shares};
pub use site_marks::{BelievedMovers, MarkSighting, same_storage};
pub use stragglers::{StorageWaitSide, StragglerDetector, StragglingMover};
pub use tracker::{
    ChunkOutcome, FileKey, ManagerAction, NEXT_FILES_MAX, PartedFileRef, TrackerEvent, TransferTotals,
    TransferTracker,
};
pub use transfer_intake::{IntakeDecision, OwnedTransfer, PhantomPairs, TransferCandidate, intake, room};
pub use transfer_ranking::{RankRules, TransferRanking, WaitingTransfer};
pub use wait_condition::{WaitCondition, lack};
