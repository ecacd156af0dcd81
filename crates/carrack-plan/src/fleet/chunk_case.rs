//! What a pair does with a chunk that was delivered to it: a state machine from the delivery to the acknowledgement.
//!
//! - A chunk that one of the pair's movers has failed, and another mover of that end has not, is left to others: not for ever, as they may
//!   not be able to take it.
//! - What the sink has settled is looked for by another mover of its site before it counts.
//! - It is logged before it is acknowledged: what is acknowledged and in no log would never be counted, and what is logged and not
//!   acknowledged is delivered again and counts once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often an item may have been delivered before the pair that gets it keeps what comes of it, though others have not tried it: that is
/// after some three minutes. It is not for a manager that is away, or movers that are full for a while, to make files fail.
const LEFT_TO_OTHERS_MAX: u64 = 30;

/// An item that is left is there for others after so long, and later each time up to so long.
const LEFT_FOR_FIRST: Duration = Duration::from_millis(300);
const LEFT_FOR_MAX: Duration = Duration::from_secs(10);

/// What was published is among what a queue says it has after so long, with much to spare.
const COUNTED_WITHIN: Duration = Duration::from_millis(200);

/// So often it is there again after the first time: until there are other pairs, which is soon.
const LEFT_SOON: u64 = 10;

/// A pair that leaves the same chunk to others again and again has nothing else to do, perhaps: its manager is told the first time that it was
/// delivered so often, then each time, and makes pairs of other movers. As long as it hears it, it leaves the mover out of the transfer, so
/// that the chunk waits for a better one instead of coming to its last delivery.
const TOLD_FROM: u64 = 8;

/// Movers that have failed an item of work: each by what is, or is not, where it reads or writes, and not by the item's own fault alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Movers that read.
    pub sources: Vec<String>,
    /// Movers that wrote.
    pub sinks: Vec<String>,
}

impl Tried {
    /// One more at an end.
    pub fn add(&mut self, is_source: bool, mover: &str) {
        let movers = if is_source { &mut self.sources } else { &mut self.sinks };
        if !movers.iter().any(|known| known == mover) {
            movers.push(mover.to_owned());
        }
    }

    /// These too.
    pub fn merge(&mut self, other: &Tried) {
        other.sources.iter().for_each(|mover| self.add(true, mover));
        other.sinks.iter().for_each(|mover| self.add(false, mover));
    }

    /// Whether one of these movers has not failed it yet.
    pub fn leaves(&self, is_source: bool, movers: &[String]) -> bool {
        let tried = if is_source { &self.sources } else { &self.sinks };
        movers.iter().any(|mover| !tried.contains(mover))
    }

    /// Whether it is better left to others than tried by this pair: one of its movers has failed it, and not all have.
    pub fn is_for_others(&self, source: &str, sink: &str, able: &Able) -> bool {
        let has = |tried: &[String], mover: &str| tried.iter().any(|known| known == mover);
        has(&self.sources, source) && self.leaves(true, &able.sources)
            || has(&self.sinks, sink) && self.leaves(false, &able.sinks)
    }
}

/// Whether an item that was delivered so often may still be given to others.
pub fn may_be_left(delivered: u64) -> bool {
    delivered <= LEFT_TO_OTHERS_MAX
}

/// After how long an item that was delivered so often, and is left to others, is there again.
pub fn left_for(delivered: u64) -> Duration {
    let doublings = delivered.saturating_sub(LEFT_SOON).min(16) as u32;
    (LEFT_FOR_FIRST * 2_u32.pow(doublings)).min(LEFT_FOR_MAX)
}

/// How long a scan that was delivered so often and has logged its end stays unacknowledged.
///
/// Its manager may know an earlier attempt, have all of that, and look whether the queue is empty before it closes the transfer: what is
/// published counts there a moment later, and the scan that published it has to count for so long.
pub fn acknowledged_after(delivered: u64) -> Duration {
    if delivered > 1 { COUNTED_WITHIN } else { Duration::ZERO }
}

/// Movers that can serve a transfer at its ends now, or could a moment ago: one that is cut off for a while is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Able {
    /// Those that can read.
    pub sources: Vec<String>,
    /// Those that can write.
    pub sinks: Vec<String>,
}

impl Able {
    fn at(&self, is_source: bool) -> &[String] {
        if is_source { &self.sources } else { &self.sinks }
    }
}

/// What of a chunk's failures may be its mover's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Whose: that of the source's mover, or the sink's.
    pub is_source: bool,
    /// For people.
    pub reason: String,
}

/// What is to be done with a chunk now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkStep {
    /// Read who has failed it, or can't serve the transfer at all. Answer: [`ChunkAnswer::Tried`].
    ReadTried,
    /// Give it back, to be there for others after this time. That is all.
    Leave(Duration),
    /// The session gets it. When the sink has settled it, it is [settled](ChunkCase::settled).
    Carry,
    /// Have another mover of the sink's site look for its entries. Answer: [`ChunkAnswer::Doubts`], all that there are of the chunk.
    Prove,
    /// Note who has failed it.
    NoteTried(Tried),
    /// Have the manager know what is wrong with whom.
    TellDoubts(Vec<Doubt>),
    /// Log what became of it.
    Log,
    /// Acknowledge it.
    Acknowledge,
    /// Nothing more.
    Over,
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkAnswer {
    /// It is done.
    Done,
    /// It is not, though it was tried for long.
    Failed,
    /// To [`ChunkStep::ReadTried`].
    Tried(Tried),
    /// To [`ChunkStep::Prove`].
    Doubts(Vec<Doubt>),
}

/// One chunk of a pair.
#[derive(Clone, Debug)]
pub struct ChunkCase {
    source: String,
    sink: String,
    delivered: u64,
    next: ChunkStep,
    doubts: Vec<Doubt>,
}

impl ChunkCase {
    /// It was delivered to the pair of these movers, for the time that `delivered` says, from 1.
    pub fn new(source: &str, sink: &str, delivered: u64) -> ChunkCase {
        let was_tried = delivered > 1 && may_be_left(delivered);
        let next = if was_tried { ChunkStep::ReadTried } else { ChunkStep::Carry };
        ChunkCase { source: source.to_owned(), sink: sink.to_owned(), delivered, next, doubts: Vec::new() }
    }

    /// What is to be done.
    pub fn next(&self) -> ChunkStep {
        self.next.clone()
    }

    /// It can't be given back: it is carried after all.
    pub fn carried(mut self) -> ChunkCase {
        self.next = ChunkStep::Carry;
        self
    }

    /// The sink has settled what the session got.
    pub fn settled(&mut self) {
        debug_assert_eq!(self.next, ChunkStep::Carry, "only what is carried is settled");
        self.next = ChunkStep::Prove;
    }

    /// The session that carried the chunk which closes a transfer has ended well: what has failed at the end is told as it is.
    pub fn closed(&mut self) {
        debug_assert_eq!(self.next, ChunkStep::Carry, "only what is carried is settled");
        self.next = ChunkStep::Log;
    }

    /// How the step went that [`next`](Self::next) has said; `able` are the movers that could serve the transfer now.
    pub fn answer(&mut self, answer: ChunkAnswer, able: &Able) {
        self.next = match (std::mem::replace(&mut self.next, ChunkStep::Over), answer) {
            (ChunkStep::ReadTried, answer) if self.doubts.is_empty() => match answer {
                ChunkAnswer::Tried(tried) if tried.is_for_others(&self.source, &self.sink, able) => {
                    self.leave_again(&tried, able)
                }
                _ => ChunkStep::Carry,
            },
            (ChunkStep::ReadTried, ChunkAnswer::Tried(tried)) => self.left(tried, able),
            // Where nobody knows who has tried it, it is told as it is.
            (ChunkStep::ReadTried, _) => ChunkStep::Log,
            (ChunkStep::Prove, ChunkAnswer::Doubts(doubts)) => {
                self.doubts = doubts;
                let has_doubts = !self.doubts.is_empty() && may_be_left(self.delivered);
                if has_doubts { ChunkStep::ReadTried } else { ChunkStep::Log }
            }
            (ChunkStep::Prove, _) => ChunkStep::Log,
            (ChunkStep::NoteTried(tried), ChunkAnswer::Done) => {
                let untried = |doubt: &Doubt| tried.leaves(doubt.is_source, able.at(doubt.is_source));
                self.doubts.retain(untried);
                ChunkStep::TellDoubts(std::mem::take(&mut self.doubts))
            }
            (ChunkStep::NoteTried(_), _) => ChunkStep::Log,
            (ChunkStep::TellDoubts(_), _) => ChunkStep::Leave(left_for(self.delivered)),
            (ChunkStep::Log, ChunkAnswer::Done) => ChunkStep::Acknowledge,
            // What is not acknowledged is delivered again when its time is over.
            (_, _) => ChunkStep::Over,
        };
    }

    fn leave_again(&self, tried: &Tried, able: &Able) -> ChunkStep {
        let leave = ChunkStep::Leave(left_for(self.delivered));
        if self.delivered < TOLD_FROM {
            return leave;
        }
        let has_failed = |is_source: bool| {
            let (tried_at, mover) =
                if is_source { (&tried.sources, &self.source) } else { (&tried.sinks, &self.sink) };
            tried_at.contains(mover) && tried.leaves(is_source, able.at(is_source))
        };
        let doubt = |is_source| Doubt {
            is_source,
            reason: "it has failed what others may be able to copy".to_owned(),
        };
        ChunkStep::TellDoubts([true, false].into_iter().filter(|end| has_failed(*end)).map(doubt).collect())
    }

    /// The movers that have failed it, with those of this pair; others may do better if there are any that have not.
    fn left(&self, mut tried: Tried, able: &Able) -> ChunkStep {
        for Doubt { is_source, .. } in &self.doubts {
            tried.add(*is_source, if *is_source { &self.source } else { &self.sink });
        }
        let is_left = |doubt: &Doubt| tried.leaves(doubt.is_source, able.at(doubt.is_source));
        if self.doubts.iter().any(is_left) { ChunkStep::NoteTried(tried) } else { ChunkStep::Log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(sources: &[&str], sinks: &[&str]) -> Able {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        Able { sources: owned(sources), sinks: owned(sinks) }
    }

    fn tried(sources: &[&str], sinks: &[&str]) -> Tried {
        let Able { sources, sinks } = able(sources, sinks);
        Tried { sources, sinks }
    }

    #[test]
    fn what_went_well_is_logged_and_then_acknowledged() {
        let all = able(&["a"], &["x"]);
        let mut case = ChunkCase::new("a", "x", 1);
        assert_eq!(case.next(), ChunkStep::Carry);
        case.settled();
        assert_eq!(case.next(), ChunkStep::Prove);
        case.answer(ChunkAnswer::Doubts(Vec::new()), &all);
        assert_eq!(case.next(), ChunkStep::Log);
        let mut unlogged = case.clone();
        unlogged.answer(ChunkAnswer::Failed, &all);
        assert_eq!(unlogged.next(), ChunkStep::Over);
        case.answer(ChunkAnswer::Done, &all);
        assert_eq!(case.next(), ChunkStep::Acknowledge);
        case.answer(ChunkAnswer::Done, &all);
        assert_eq!(case.next(), ChunkStep::Over);
    }

    #[test]
    fn what_is_left_is_there_again_soon_at_first_and_for_minutes_in_all() {
        assert_eq!(left_for(1), LEFT_FOR_FIRST);
        assert_eq!(left_for(LEFT_SOON + 1), 2 * LEFT_FOR_FIRST);
        assert_eq!(left_for(u64::MAX), LEFT_FOR_MAX);
        let all: Duration = (1..=LEFT_TO_OTHERS_MAX).map(left_for).sum();
        assert!(all > Duration::from_secs(120) && all < Duration::from_secs(240), "{all:?}");
    }

    #[test]
    fn what_a_mover_has_failed_is_left_to_those_who_have_not() {
        let all = able(&["a"], &["x", "y"]);
        let doubt = Doubt { is_source: false, reason: "read-only".into() };
        let mut case = ChunkCase::new("a", "x", 1);
        case.settled();
        case.answer(ChunkAnswer::Doubts(vec![doubt.clone()]), &all);
        assert_eq!(case.next(), ChunkStep::ReadTried);
        let mut last = case.clone();
        case.answer(ChunkAnswer::Tried(Tried::default()), &all);
        assert_eq!(case.next(), ChunkStep::NoteTried(tried(&[], &["x"])));
        case.answer(ChunkAnswer::Done, &all);
        assert_eq!(case.next(), ChunkStep::TellDoubts(vec![doubt]));
        case.answer(ChunkAnswer::Done, &all);
        assert_eq!(case.next(), ChunkStep::Leave(LEFT_FOR_FIRST));
        // Whoever is last keeps what comes of it.
        last.answer(ChunkAnswer::Tried(tried(&[], &["y"])), &all);
        assert_eq!(last.next(), ChunkStep::Log);

        let mut again = ChunkCase::new("a", "x", 2);
        assert_eq!(again.next(), ChunkStep::ReadTried);
        again.answer(ChunkAnswer::Tried(tried(&[], &["x"])), &all);
        assert_eq!(again.next(), ChunkStep::Leave(LEFT_FOR_FIRST));
        let mut often = ChunkCase::new("a", "x", TOLD_FROM);
        often.answer(ChunkAnswer::Tried(tried(&[], &["x"])), &all);
        assert!(
            matches!(often.next(), ChunkStep::TellDoubts(doubts) if doubts.len() == 1 && !doubts[0].is_source)
        );
        often.answer(ChunkAnswer::Done, &all);
        assert!(matches!(often.next(), ChunkStep::Leave(_)));
        let mut other = ChunkCase::new("a", "y", 2);
        other.answer(ChunkAnswer::Tried(tried(&[], &["x"])), &all);
        assert_eq!(other.next(), ChunkStep::Carry);
        assert_eq!(ChunkCase::new("a", "x", LEFT_TO_OTHERS_MAX + 1).next(), ChunkStep::Carry);
    }
}
