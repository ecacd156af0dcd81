//! The handling of a chunk by the pair that got its delivery: a state machine from the delivery to the
//! acknowledgement.
//!
//! - A chunk that a mover of the pair has failed is left to other pairs while a mover of that end has not
//!   tried it. That ends after some deliveries, as the others may not be able to take it.
//! - Files that the sink has settled are confirmed by a witness, another mover of its site, before they
//!   count.
//! - A chunk is logged before it is acknowledged. An acknowledged chunk without a log entry would never be
//!   counted; a logged chunk without acknowledgement is delivered again and counts once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Deliveries of an item after which a pair keeps its result although other movers have not tried it: some
/// three minutes. A manager that is away, or movers that are full for a while, must not make files fail.
const LEFT_TO_OTHERS_MAX: u64 = 30;

/// Delay before a left item is delivered again, at first and at most.
const LEFT_FOR_FIRST: Duration = Duration::from_millis(300);
const LEFT_FOR_MAX: Duration = Duration::from_secs(10);

/// Time in which a published item appears in the queue's counts, with a large margin.
const COUNTED_WITHIN: Duration = Duration::from_millis(200);

/// Deliveries with the first delay, until other pairs exist, which takes little time.
const LEFT_SOON: u64 = 10;

/// A pair that leaves the same chunk again and again may have no other work. From this delivery on, its
/// manager gets a report each time, and makes pairs of other movers. While these reports arrive, the manager
/// leaves the mover out of the transfer, so that the chunk waits for a better one instead of reaching its
/// last delivery.
const TOLD_FROM: u64 = 8;

/// Movers that have failed an item of work because of their own site or storage, and not by the item's fault
/// alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMovers {
    /// Movers of the source.
    pub sources: Vec<String>,
    /// Movers of the sink.
    pub sinks: Vec<String>,
}

impl FailedMovers {
    /// Adds a mover of one end.
    pub fn add(&mut self, is_source: bool, mover: &str) {
        let movers = if is_source { &mut self.sources } else { &mut self.sinks };
        if !movers.iter().any(|known| known == mover) {
            movers.push(mover.to_owned());
        }
    }

    /// Adds the movers of another set.
    pub fn merge(&mut self, other: &FailedMovers) {
        other.sources.iter().for_each(|mover| self.add(true, mover));
        other.sinks.iter().for_each(|mover| self.add(false, mover));
    }

    /// Returns true if one of these movers has not failed the item yet.
    pub fn has_untried(&self, is_source: bool, movers: &[String]) -> bool {
        let tried = if is_source { &self.sources } else { &self.sinks };
        movers.iter().any(|mover| !tried.contains(mover))
    }

    /// Returns true if other pairs should try the item first: one of this pair's movers has failed it, and
    /// another mover has not.
    pub fn should_leave_to_others(&self, source: &str, sink: &str, able: &AvailableMovers) -> bool {
        self.sources.iter().any(|tried| tried == source) && self.has_untried(true, &able.sources)
            || self.sinks.iter().any(|tried| tried == sink) && self.has_untried(false, &able.sinks)
    }
}

/// Returns true if an item with this number of deliveries may still be left to other pairs.
pub fn may_leave_to_others(delivered: u64) -> bool {
    delivered <= LEFT_TO_OTHERS_MAX
}

/// Returns the delay before a left item with this number of deliveries is delivered again.
pub fn redelivery_delay(delivered: u64) -> Duration {
    let doublings = delivered.saturating_sub(LEFT_SOON).min(16) as u32;
    (LEFT_FOR_FIRST * 2_u32.pow(doublings)).min(LEFT_FOR_MAX)
}

/// Returns how long a scan with this number of deliveries stays unacknowledged after it has logged its end.
///
/// Its manager may know all chunks of an earlier attempt, and looks whether the queue is empty before it
/// closes the transfer. A published chunk appears in the queue's counts a moment later, and the scan that
/// published it covers that moment.
pub fn scan_ack_delay(delivered: u64) -> Duration {
    if delivered > 1 { COUNTED_WITHIN } else { Duration::ZERO }
}

/// Movers that can serve a transfer now, or could a moment ago: a mover that is cut off for a while is waited
/// for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableMovers {
    /// Movers that can read.
    pub sources: Vec<String>,
    /// Movers that can write.
    pub sinks: Vec<String>,
}

impl AvailableMovers {
    fn movers_of_end(&self, is_source: bool) -> &[String] {
        if is_source { &self.sources } else { &self.sinks }
    }
}

/// A failure of a chunk that its mover may have caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverBlamedChunkFailure {
    /// True for the source's mover, false for the sink's.
    pub is_source: bool,
    /// The reason, for people.
    pub reason: String,
}

/// The next action on a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuedChunkStep {
    /// Read the movers that have failed the chunk or can't serve the transfer. Answer:
    /// [`ChunkStepResult::Tried`].
    ReadTried,
    /// Give the chunk back with this delay. The case is over.
    Leave(Duration),
    /// Give the chunk to the session. Once the sink has settled it, [`ChunkDeliveryState::record_settled`] is
    /// called.
    Carry,
    /// Let a witness look for the chunk's entries. Answer: [`ChunkStepResult::Doubts`], with all doubts of
    /// the chunk.
    Prove,
    /// Store the movers that have failed the chunk.
    NoteTried(FailedMovers),
    /// Report these doubts to the manager.
    TellDoubts(Vec<MoverBlamedChunkFailure>),
    /// Log the chunk's outcome.
    Log,
    /// Acknowledge the chunk.
    Acknowledge,
    /// The case is over.
    Over,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkStepResult {
    /// The step succeeded.
    Done,
    /// The step failed after all its retries.
    Failed,
    /// To [`QueuedChunkStep::ReadTried`].
    Tried(FailedMovers),
    /// To [`QueuedChunkStep::Prove`].
    Doubts(Vec<MoverBlamedChunkFailure>),
}

/// One chunk of a pair.
#[derive(Clone, Debug)]
pub struct ChunkDeliveryState {
    source: String,
    sink: String,
    delivered: u64,
    next: QueuedChunkStep,
    doubts: Vec<MoverBlamedChunkFailure>,
}

impl ChunkDeliveryState {
    /// Creates the case of a chunk that was delivered to the pair of these movers for the `delivered`-th
    /// time, from 1.
    pub fn new(source: &str, sink: &str, delivered: u64) -> ChunkDeliveryState {
        let was_tried = delivered > 1 && may_leave_to_others(delivered);
        let next = if was_tried { QueuedChunkStep::ReadTried } else { QueuedChunkStep::Carry };
        ChunkDeliveryState {
            source: source.to_owned(),
            sink: sink.to_owned(),
            delivered,
            next,
            doubts: Vec::new(),
        }
    }

    /// Returns the step to take.
    pub fn next(&self) -> QueuedChunkStep {
        self.next.clone()
    }

    /// Carries a chunk that can't be given back.
    pub fn skip_to_carry(mut self) -> ChunkDeliveryState {
        self.next = QueuedChunkStep::Carry;
        self
    }

    /// Records that the sink has settled the chunk.
    pub fn record_settled(&mut self) {
        debug_assert_eq!(self.next, QueuedChunkStep::Carry, "only what is carried is settled");
        self.next = QueuedChunkStep::Prove;
    }

    /// Records that the session with the chunk that closes a transfer has ended well: its failures are logged
    /// without a witness.
    pub fn record_session_closed(&mut self) {
        debug_assert_eq!(self.next, QueuedChunkStep::Carry, "only what is carried is settled");
        self.next = QueuedChunkStep::Log;
    }

    /// Takes the result of the step that [`next`](Self::next) returned; `able` are the movers that could
    /// serve the transfer now.
    pub fn apply_step_result(&mut self, answer: ChunkStepResult, able: &AvailableMovers) {
        self.next = match (std::mem::replace(&mut self.next, QueuedChunkStep::Over), answer) {
            (QueuedChunkStep::ReadTried, answer) if self.doubts.is_empty() => match answer {
                ChunkStepResult::Tried(tried)
                    if tried.should_leave_to_others(&self.source, &self.sink, able) =>
                {
                    self.leave_step(&tried, able)
                }
                _ => QueuedChunkStep::Carry,
            },
            (QueuedChunkStep::ReadTried, ChunkStepResult::Tried(tried)) => {
                self.step_after_failures(tried, able)
            }
            // Without the list of movers that have tried it, the outcome is logged unchanged.
            (QueuedChunkStep::ReadTried, _) => QueuedChunkStep::Log,
            (QueuedChunkStep::Prove, ChunkStepResult::Doubts(doubts)) => {
                self.doubts = doubts;
                let has_doubts = !self.doubts.is_empty() && may_leave_to_others(self.delivered);
                if has_doubts { QueuedChunkStep::ReadTried } else { QueuedChunkStep::Log }
            }
            (QueuedChunkStep::Prove, _) => QueuedChunkStep::Log,
            (QueuedChunkStep::NoteTried(tried), ChunkStepResult::Done) => {
                self.doubts
                    .retain(|doubt| tried.has_untried(doubt.is_source, able.movers_of_end(doubt.is_source)));
                QueuedChunkStep::TellDoubts(std::mem::take(&mut self.doubts))
            }
            (QueuedChunkStep::NoteTried(_), _) => QueuedChunkStep::Log,
            (QueuedChunkStep::TellDoubts(_), _) => QueuedChunkStep::Leave(redelivery_delay(self.delivered)),
            (QueuedChunkStep::Log, ChunkStepResult::Done) => QueuedChunkStep::Acknowledge,
            // A chunk without acknowledgement is delivered again after its ack deadline.
            (_, _) => QueuedChunkStep::Over,
        };
    }

    fn leave_step(&self, tried: &FailedMovers, able: &AvailableMovers) -> QueuedChunkStep {
        let leave = QueuedChunkStep::Leave(redelivery_delay(self.delivered));
        if self.delivered < TOLD_FROM {
            return leave;
        }
        let mut doubts = Vec::new();
        for (is_source, tried_at, mover) in
            [(true, &tried.sources, &self.source), (false, &tried.sinks, &self.sink)]
        {
            if tried_at.contains(mover) && tried.has_untried(is_source, able.movers_of_end(is_source)) {
                let reason = "it has failed what others may be able to copy".to_owned();
                doubts.push(MoverBlamedChunkFailure { is_source, reason });
            }
        }
        QueuedChunkStep::TellDoubts(doubts)
    }

    /// Adds this pair's movers to those that have failed the chunk, and leaves it if a mover is left that has
    /// not.
    fn step_after_failures(&self, mut tried: FailedMovers, able: &AvailableMovers) -> QueuedChunkStep {
        for MoverBlamedChunkFailure { is_source, .. } in &self.doubts {
            tried.add(*is_source, if *is_source { &self.source } else { &self.sink });
        }
        let is_left = self
            .doubts
            .iter()
            .any(|doubt| tried.has_untried(doubt.is_source, able.movers_of_end(doubt.is_source)));
        if is_left { QueuedChunkStep::NoteTried(tried) } else { QueuedChunkStep::Log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn able(sources: &[&str], sinks: &[&str]) -> AvailableMovers {
        AvailableMovers { sources: owned(sources), sinks: owned(sinks) }
    }

    fn tried(sources: &[&str], sinks: &[&str]) -> FailedMovers {
        FailedMovers { sources: owned(sources), sinks: owned(sinks) }
    }

    #[test]
    fn what_went_well_is_logged_and_then_acknowledged() {
        let all = able(&["a"], &["x"]);
        let mut case = ChunkDeliveryState::new("a", "x", 1);
        assert_eq!(case.next(), QueuedChunkStep::Carry);
        case.record_settled();
        assert_eq!(case.next(), QueuedChunkStep::Prove);
        case.apply_step_result(ChunkStepResult::Doubts(Vec::new()), &all);
        assert_eq!(case.next(), QueuedChunkStep::Log);
        let mut unlogged = case.clone();
        unlogged.apply_step_result(ChunkStepResult::Failed, &all);
        assert_eq!(unlogged.next(), QueuedChunkStep::Over);
        case.apply_step_result(ChunkStepResult::Done, &all);
        assert_eq!(case.next(), QueuedChunkStep::Acknowledge);
        case.apply_step_result(ChunkStepResult::Done, &all);
        assert_eq!(case.next(), QueuedChunkStep::Over);
    }

    #[test]
    fn what_is_left_is_there_again_soon_at_first_and_for_minutes_in_all() {
        assert_eq!(redelivery_delay(1), LEFT_FOR_FIRST);
        assert_eq!(redelivery_delay(LEFT_SOON + 1), 2 * LEFT_FOR_FIRST);
        assert_eq!(redelivery_delay(u64::MAX), LEFT_FOR_MAX);
        let all: Duration = (1..=LEFT_TO_OTHERS_MAX).map(redelivery_delay).sum();
        assert!(all > Duration::from_secs(120) && all < Duration::from_secs(240), "{all:?}");
    }

    #[test]
    fn what_a_mover_has_failed_is_left_to_those_who_have_not() {
        let all = able(&["a"], &["x", "y"]);
        let doubt = MoverBlamedChunkFailure { is_source: false, reason: "read-only".into() };
        let mut case = ChunkDeliveryState::new("a", "x", 1);
        case.record_settled();
        case.apply_step_result(ChunkStepResult::Doubts(vec![doubt.clone()]), &all);
        assert_eq!(case.next(), QueuedChunkStep::ReadTried);
        let mut last = case.clone();
        case.apply_step_result(ChunkStepResult::Tried(FailedMovers::default()), &all);
        assert_eq!(case.next(), QueuedChunkStep::NoteTried(tried(&[], &["x"])));
        case.apply_step_result(ChunkStepResult::Done, &all);
        assert_eq!(case.next(), QueuedChunkStep::TellDoubts(vec![doubt]));
        case.apply_step_result(ChunkStepResult::Done, &all);
        assert_eq!(case.next(), QueuedChunkStep::Leave(LEFT_FOR_FIRST));
        // The last mover that has not failed it keeps the result.
        last.apply_step_result(ChunkStepResult::Tried(tried(&[], &["y"])), &all);
        assert_eq!(last.next(), QueuedChunkStep::Log);

        let mut again = ChunkDeliveryState::new("a", "x", 2);
        assert_eq!(again.next(), QueuedChunkStep::ReadTried);
        again.apply_step_result(ChunkStepResult::Tried(tried(&[], &["x"])), &all);
        assert_eq!(again.next(), QueuedChunkStep::Leave(LEFT_FOR_FIRST));
        let mut often = ChunkDeliveryState::new("a", "x", TOLD_FROM);
        often.apply_step_result(ChunkStepResult::Tried(tried(&[], &["x"])), &all);
        assert!(
            matches!(often.next(), QueuedChunkStep::TellDoubts(doubts) if doubts.len() == 1 && !doubts[0].is_source)
        );
        often.apply_step_result(ChunkStepResult::Done, &all);
        assert!(matches!(often.next(), QueuedChunkStep::Leave(_)));
        let mut other = ChunkDeliveryState::new("a", "y", 2);
        other.apply_step_result(ChunkStepResult::Tried(tried(&[], &["x"])), &all);
        assert_eq!(other.next(), QueuedChunkStep::Carry);
        assert_eq!(ChunkDeliveryState::new("a", "x", LEFT_TO_OTHERS_MAX + 1).next(), QueuedChunkStep::Carry);
    }
}
