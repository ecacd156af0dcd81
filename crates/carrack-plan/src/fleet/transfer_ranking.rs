//! The order in which waiting transfers begin: classes of urgency, and turns of accounts within a class.
//!
//! The rule, for the queue of one machine and for a fleet:
//!
//! - Each waiting transfer has a *level*: its priority, raised by its deadline. The deadline adds 1 after
//!   half of the time from the submission to the deadline, another 1 after three quarters, and a third after
//!   seven eighths. 9 is the highest level.
//! - A level has a *class*: itself, and one more for each `ages_every` in which a transfer of the level
//!   waited and none began, up to 9. The class falls back to the level when one of its transfers begins. So
//!   an urgent transfer precedes a backlog of any age, and no level starves: in the end each level takes
//!   turns in class 9.
//! - The highest class always comes first. Within a class accounts take turns: next is the account with the
//!   least use for its weight. Use is the account's past use, which counts half after each `halves_every`,
//!   its present use and the places just given to it. The oldest transfer of an account is first.
//!
//! Levels age, and not single transfers. Otherwise a backlog older than a few times `ages_every` would
//! precede all later transfers of any priority and account.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// The highest level and class.
const CLASS_MAX: u8 = 9;

const LEVELS: usize = CLASS_MAX as usize + 1;

/// Levels that a deadline raises by, at most.
const RAISED_MAX: u8 = 3;

/// Accounts that are remembered before the first search for those whose use has decayed.
const ACCOUNTS_BEFORE_LOOK: usize = 1_024;

/// Use below which an account is forgotten, in places.
const FORGOTTEN_BELOW: f64 = 1e-3;

/// Rules of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRules {
    /// Time for which a level waits to rise by one class; zero disables aging.
    pub ages_every: Duration,
    /// Half-life of past use; zero disables its memory.
    pub halves_every: Duration,
    /// Weights of the accounts' shares; 1 for accounts without a weight.
    pub weights: HashMap<String, f64>,
}

impl Default for RankRules {
    fn default() -> RankRules {
        RankRules {
            ages_every: Duration::from_secs(600),
            halves_every: Duration::from_secs(3_600),
            weights: HashMap::new(),
        }
    }
}

/// A waiting transfer. Moments are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingTransfer<'a> {
    /// Its id.
    pub id: &'a str,
    /// Account whose turn it takes: a user, or a group of users.
    pub account: &'a str,
    /// 0 to 9, the highest first.
    pub priority: u8,
    /// Time of the submission.
    pub submitted_ms: u64,
    /// Time at which it should be complete.
    pub deadline_ms: Option<u64>,
    /// Earliest time of its begin.
    pub not_before_ms: Option<u64>,
}

impl WaitingTransfer<'_> {
    /// Returns true if it may begin. Its submission may be in the future, by a clock ahead of the present
    /// one.
    fn is_due(&self, now_ms: u64) -> bool {
        self.not_before_ms.is_none_or(|at_ms| at_ms <= now_ms)
    }

    /// Returns the time since which it waits only for its turn.
    fn since_ms(&self) -> u64 {
        self.submitted_ms.max(self.not_before_ms.unwrap_or(0))
    }

    /// Returns its priority raised by its deadline, 0 to 9.
    pub fn level(&self, now_ms: u64) -> u8 {
        let raised = self.deadline_ms.map_or(0, |deadline_ms| {
            let (all, left) =
                (deadline_ms.saturating_sub(self.since_ms()), deadline_ms.saturating_sub(now_ms));
            // A deadline that could never be met raises nothing.
            (1..=RAISED_MAX).rev().find(|&halvings| all > 0 && left <= all >> halvings).unwrap_or(0)
        });
        self.priority.saturating_add(raised).min(CLASS_MAX)
    }
}

/// An amount that counts half after each half-life.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingAmount {
    amount: f64,
    at_ms: u64,
}

impl DecayingAmount {
    fn value_at(&self, now_ms: u64, half_life: Duration) -> f64 {
        self.amount * decay_factor(now_ms.saturating_sub(self.at_ms), half_life)
    }

    /// Amounts may come in any order of time.
    fn add(&mut self, amount: f64, now_ms: u64, half_life: Duration) {
        let at_ms = self.at_ms.max(now_ms);
        self.amount = self.value_at(at_ms, half_life) + amount * decay_factor(at_ms - now_ms, half_life);
        self.at_ms = at_ms;
    }
}

fn decay_factor(elapsed_ms: u64, half_life: Duration) -> f64 {
    if half_life.is_zero() { 0.0 } else { 0.5f64.powf(elapsed_ms as f64 / 1e3 / half_life.as_secs_f64()) }
}

/// Computes the order from the rules and the past. The past can be lost without harm.
#[derive(Clone, Debug)]
pub struct TransferRanking {
    rules: RankRules,
    uses: HashMap<String, DecayingAmount>,
    /// Number of places that ended, and their use together: the mean is the expected use of a place.
    places: DecayingAmount,
    all_use: DecayingAmount,
    /// Time of the last begin in each level.
    began_ms: [u64; LEVELS],
    look_at: usize,
}

impl TransferRanking {
    /// Creates an order without past use.
    pub fn new(rules: RankRules) -> TransferRanking {
        TransferRanking {
            rules,
            uses: HashMap::new(),
            places: DecayingAmount::default(),
            all_use: DecayingAmount::default(),
            began_ms: [0; LEVELS],
            look_at: ACCOUNTS_BEFORE_LOOK,
        }
    }

    /// Records that a transfer has got a place: its level begins to wait anew.
    pub fn record_start(&mut self, one: &WaitingTransfer<'_>, now_ms: u64) {
        let began_ms = &mut self.began_ms[usize::from(one.level(now_ms))];
        *began_ms = now_ms.max(*began_ms);
    }

    /// Adds the use of a place that an account has given up, for example in seconds. Negative and non-finite
    /// amounts count as 0.
    pub fn record_use(&mut self, account: &str, amount: f64, now_ms: u64) {
        let amount = if amount.is_finite() { amount.max(0.0) } else { 0.0 };
        let half_life = self.rules.halves_every;
        self.places.add(1.0, now_ms, half_life);
        self.all_use.add(amount, now_ms, half_life);
        match self.uses.get_mut(account) {
            Some(used) => used.add(amount, now_ms, half_life),
            None => {
                self.forget(now_ms);
                self.uses.insert(account.to_owned(), DecayingAmount { amount, at_ms: now_ms });
            }
        }
    }

    /// Returns the IDs of up to `most` transfers that may begin now, in their order. `running` names the
    /// account of each transfer that has a place.
    ///
    /// Takes time in proportion to the waiting transfers, and to `most` with the logarithm of the waiting
    /// transfers.
    pub fn order<'a>(
        &self,
        now_ms: u64,
        running: &[&str],
        waiting: &[WaitingTransfer<'a>],
        most: usize,
    ) -> Vec<&'a str> {
        let mut accounts = AccountShares::new(self, now_ms);
        let mut levels: [PriorityLevelQueue<'a>; LEVELS] = Default::default();
        for one in waiting.iter().filter(|one| one.is_due(now_ms)) {
            let account = accounts.account_index(one.account);
            levels[usize::from(one.level(now_ms))].add(account, one);
        }
        running.iter().for_each(|account| accounts.charge_place_if_known(account));
        for (number, level) in (0..).zip(&mut levels) {
            level.begin(number, self.aged_class(number, level.oldest_ms, now_ms), &accounts);
        }
        std::iter::from_fn(|| next(&mut levels, &mut accounts)).take(most).collect()
    }

    /// Returns the class of a level whose oldest transfer has waited since then.
    fn aged_class(&self, level: u8, oldest_ms: u64, now_ms: u64) -> u8 {
        let waited_ms = now_ms.saturating_sub(oldest_ms.max(self.began_ms[usize::from(level)]));
        let classes = u128::from(waited_ms).checked_div(self.rules.ages_every.as_millis()).unwrap_or(0);
        level.saturating_add(u8::try_from(classes).unwrap_or(CLASS_MAX)).min(CLASS_MAX)
    }

    /// Returns the expected use of one place.
    fn expected_use(&self, now_ms: u64) -> f64 {
        let half_life = self.rules.halves_every;
        let mean = self.all_use.value_at(now_ms, half_life) / self.places.value_at(now_ms, half_life);
        if mean.is_finite() && mean > 0.0 { mean } else { 1.0 }
    }

    /// Forgets accounts whose use has decayed, once there are twice as many as after the last search.
    fn forget(&mut self, now_ms: u64) {
        if self.uses.len() < self.look_at {
            return;
        }
        let (half_life, least) = (self.rules.halves_every, FORGOTTEN_BELOW * self.expected_use(now_ms));
        self.uses.retain(|_, used| used.value_at(now_ms, half_life) >= least);
        self.look_at = ACCOUNTS_BEFORE_LOOK.max(2 * self.uses.len());
    }
}

/// The accounts of the waiting transfers, by number.
struct AccountShares<'r, 'a> {
    ranks: &'r TransferRanking,
    now_ms: u64,
    numbers: HashMap<&'a str, usize>,
    /// Use for its weight, and the amount that a place adds to it.
    shares: Vec<(f64, f64)>,
    expected: f64,
}

impl<'r, 'a> AccountShares<'r, 'a> {
    fn new(ranks: &'r TransferRanking, now_ms: u64) -> AccountShares<'r, 'a> {
        let expected = ranks.expected_use(now_ms);
        AccountShares { ranks, now_ms, numbers: HashMap::new(), shares: Vec::new(), expected }
    }

    fn account_index(&mut self, name: &'a str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let rules = &self.ranks.rules;
        let weight = rules.weights.get(name).copied().filter(|weight| weight.is_normal() && *weight > 0.0);
        let weight = weight.unwrap_or(1.0);
        let used =
            self.ranks.uses.get(name).map_or(0.0, |used| used.value_at(self.now_ms, rules.halves_every));
        self.shares.push((used / weight, self.expected / weight));
        self.numbers.insert(name, self.shares.len() - 1);
        self.shares.len() - 1
    }

    fn charge_place(&mut self, account: usize) {
        let (share, place) = &mut self.shares[account];
        *share += *place;
    }

    fn charge_place_if_known(&mut self, name: &str) {
        if let Some(&account) = self.numbers.get(name) {
            self.charge_place(account);
        }
    }

    /// Numbers that compare as shares do: floats that are not negative compare as their bits.
    fn share(&self, account: usize) -> u64 {
        self.shares[account].0.to_bits()
    }
}

/// Start of the wait, and ID.
type Oldest<'a> = Reverse<(u64, &'a str)>;

/// An account's turn: the least share comes first, then the oldest transfer, then the lowest ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AccountTurn<'a> {
    share: u64,
    oldest: (u64, &'a str),
    account: usize,
}

/// The waiting transfers of one level.
#[derive(Default)]
struct PriorityLevelQueue<'a> {
    number: u8,
    class: u8,
    oldest_ms: u64,
    lines: HashMap<usize, BinaryHeap<Oldest<'a>>>,
    /// One for each account with a transfer here. Shares only grow, so a share in this heap may be too low.
    turns: BinaryHeap<Reverse<AccountTurn<'a>>>,
}

impl<'a> PriorityLevelQueue<'a> {
    fn add(&mut self, account: usize, one: &WaitingTransfer<'a>) {
        let since_ms = one.since_ms();
        self.oldest_ms = if self.lines.is_empty() { since_ms } else { since_ms.min(self.oldest_ms) };
        self.lines.entry(account).or_default().push(Reverse((since_ms, one.id)));
    }

    fn begin(&mut self, number: u8, class: u8, accounts: &AccountShares<'_, 'a>) {
        (self.number, self.class) = (number, class);
        let turns = self.lines.keys().filter_map(|&account| self.turn(account, accounts));
        self.turns = turns.map(Reverse).collect();
    }

    fn turn(&self, account: usize, accounts: &AccountShares<'_, 'a>) -> Option<AccountTurn<'a>> {
        let Reverse(oldest) = *self.lines.get(&account)?.peek()?;
        Some(AccountTurn { share: accounts.share(account), oldest, account })
    }

    /// Returns the next turn of this level.
    fn first(&mut self, accounts: &AccountShares<'_, 'a>) -> Option<AccountTurn<'a>> {
        loop {
            let mut top = self.turns.peek_mut()?;
            let share = accounts.share(top.0.account);
            if top.0.share == share {
                return Some(top.0);
            }
            top.0.share = share;
        }
    }

    /// Takes the turn of [`PriorityLevelQueue::first`].
    fn take(&mut self, accounts: &mut AccountShares<'_, 'a>) -> Option<&'a str> {
        let Reverse(AccountTurn { oldest: (_, id), account, .. }) = self.turns.pop()?;
        self.class = self.number;
        accounts.charge_place(account);
        self.lines.get_mut(&account)?.pop();
        self.turns.extend(self.turn(account, accounts).map(Reverse));
        Some(id)
    }
}

/// Takes the transfer that comes next.
fn next<'a>(
    levels: &mut [PriorityLevelQueue<'a>; LEVELS],
    accounts: &mut AccountShares<'_, 'a>,
) -> Option<&'a str> {
    let class = levels.iter().filter(|level| !level.turns.is_empty()).map(|level| level.class).max()?;
    let (_, level) = levels
        .iter_mut()
        .filter(|level| level.class == class)
        .filter_map(|level| Some((level.first(accounts)?, level)))
        .min_by_key(|(turn, _)| *turn)?;
    level.take(accounts)
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
