//! The decisions of a fleet, as pure code: how a scan becomes chunks, which step a transfer needs next, which
//! movers carry it, in which order waiting transfers begin, and when movers ask for more or give up (decision
//! 18).
//!
//! Nothing here knows NATS, a clock or another thread. `docs/design/fleet-planning.md` has the rules and
//! their reasons.

mod assign;
mod chunk_case;
mod coordinator;
mod curve;
mod cutter;
mod deliveries;
mod health;
mod intake;
mod lease_term;
mod pair_set;
mod rank;
mod shares;
mod site_marks;
mod stragglers;
mod threshold;
mod tracker;
mod waiting;

pub use assign::{Changes, FleetPair, assign};
pub use chunk_case::{
    Able, ChunkAnswer, ChunkCase, ChunkStep, Doubt, Tried, acknowledged_after, left_for, may_be_left,
};
pub use coordinator::{Answer, Coordinator, Ending, Outlook, RecordState, RecordView, Step};
pub use curve::PairTuner;
pub use cutter::{
    CHUNK_BYTES_DEFAULT, CHUNK_ENTRIES_MAX, CHUNK_TABLE_BYTES_DEFAULT, Chunk, ChunkCutter, ChunkKind,
    ChunkLimits, Found, PART_GRAIN_BYTES, SIZE_CLASSES,
};
pub use deliveries::Deliveries;
pub use health::{Fault, FaultKind, Health, Illness, Verdict};
pub use intake::{Candidate, Intake, OwnedTransfer, Phantoms, intake, room};
pub use lease_term::{LEASE_LASTS, LEASE_RENEW_EVERY, LeaseTerm};
pub use pair_set::{PairAct, PairId, PairSet};
pub use rank::{RankRules, Ranks, Waiting};
pub use shares::{Claim, FleetMover, PairLimits, shares};
pub use site_marks::{Believed, Sight, same_storage};
pub use stragglers::{Straggler, Stragglers, WaitsAt};
pub use threshold::{ChunkThreshold, THRESHOLD_BYTES_FIRST, THRESHOLD_BYTES_MAX, THRESHOLD_BYTES_MIN};
pub use tracker::{FileKey, NEXT_FILES_MAX, Next, Outcome, PartOf, Totals, Tracker, TrackerEvent};
pub use waiting::{Lack, lack};
