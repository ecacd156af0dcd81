//! In what order those that wait get a place: classes of urgency, and turns of accounts within a class.
//!
//! The rule, for the queue of one machine and for a fleet:
//!
//! - Each that waits has a *level*: its priority, and if it has a deadline one more when half of the time from its submission to the deadline is
//!   over, another one at three quarters, and a third at seven eighths and from then on. 9 is the highest.
//! - A level has a *class*: itself, and one more for each `ages_every` in which something of it waited and nothing of it began, up to 9. Once
//!   one of it begins it is back at itself. So what is urgent goes before a backlog of any age, and yet nothing starves: in the end each level is
//!   one of those that take turns in class 9.
//! - The highest class comes first, always. Within a class accounts take turns: next is the one with the least use for its weight, where use is
//!   what it had, which counts half after each `halves_every`, what it has now and what it was just given. Of one account the oldest is first.
//!
//! It is the level that ages and not each that waits: otherwise a backlog would be before all that is submitted later, whatever its priority
//! and whoever's it is, as soon as it is older than a few times `ages_every`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// The highest level and class.
const CLASS_MAX: u8 = 9;

const LEVELS: usize = CLASS_MAX as usize + 1;

/// Levels that a deadline raises by, at most.
const RAISED_MAX: u8 = 3;

/// Accounts that are remembered before the first look at which of them count no more.
const ACCOUNTS_BEFORE_LOOK: usize = 1_024;

/// Use that counts no more, in places.
const FORGOTTEN_BELOW: f64 = 1e-3;

/// Rules of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRules {
    /// One class up for each time of this length in which a level waits; none if it is zero.
    pub ages_every: Duration,
    /// The time after which what an account has used counts half; it does not count at all if it is zero.
    pub halves_every: Duration,
    /// What accounts may use, in proportion; 1 for those that are not named.
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

/// One that waits. Moments are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Its id.
    pub id: &'a str,
    /// Whose turn it takes: a user, or what several users share.
    pub account: &'a str,
    /// 0 to 9, the highest first.
    pub priority: u8,
    /// When it was submitted.
    pub submitted_ms: u64,
    /// When it should be over.
    pub deadline_ms: Option<u64>,
    /// When it may begin.
    pub not_before_ms: Option<u64>,
}

impl Waiting<'_> {
    /// Whether it may begin. It may have been submitted by a clock that is ahead of this one.
    fn is_due(&self, now_ms: u64) -> bool {
        self.not_before_ms.is_none_or(|at_ms| at_ms <= now_ms)
    }

    /// Since when it waits for nothing but its turn.
    fn since_ms(&self) -> u64 {
        self.submitted_ms.max(self.not_before_ms.unwrap_or(0))
    }

    /// Its priority, and what its deadline raises it by: 0 to 9.
    pub fn level(&self, now_ms: u64) -> u8 {
        let raised = self.deadline_ms.map_or(0, |deadline_ms| {
            let (all, left) =
                (deadline_ms.saturating_sub(self.since_ms()), deadline_ms.saturating_sub(now_ms));
            // A deadline that could never be met urges nobody.
            (1..=RAISED_MAX).rev().find(|&halvings| all > 0 && left <= all >> halvings).unwrap_or(0)
        });
        self.priority.saturating_add(raised).min(CLASS_MAX)
    }
}

/// An amount that counts half after each half-life.
#[derive(Clone, Copy, Debug, Default)]
struct Decaying {
    amount: f64,
    at_ms: u64,
}

impl Decaying {
    fn at(&self, now_ms: u64, half_life: Duration) -> f64 {
        self.amount * left_of_one(now_ms.saturating_sub(self.at_ms), half_life)
    }

    /// Amounts may come in any order of time.
    fn add(&mut self, amount: f64, now_ms: u64, half_life: Duration) {
        let at_ms = self.at_ms.max(now_ms);
        self.amount = self.at(at_ms, half_life) + amount * left_of_one(at_ms - now_ms, half_life);
        self.at_ms = at_ms;
    }
}

fn left_of_one(elapsed_ms: u64, half_life: Duration) -> f64 {
    if half_life.is_zero() { 0.0 } else { 0.5f64.powf(elapsed_ms as f64 / 1e3 / half_life.as_secs_f64()) }
}

/// Who comes next: the rules, and what they need to know of the past. It is forgotten without harm.
#[derive(Clone, Debug)]
pub struct Ranks {
    rules: RankRules,
    uses: HashMap<String, Decaying>,
    /// Places that were had, and what was used of all of them together: what one is expected to use.
    places: Decaying,
    all_use: Decaying,
    /// When one of each level last began.
    began_ms: [u64; LEVELS],
    look_at: usize,
}

impl Ranks {
    /// Nobody has used anything.
    pub fn new(rules: RankRules) -> Ranks {
        Ranks {
            rules,
            uses: HashMap::new(),
            places: Decaying::default(),
            all_use: Decaying::default(),
            began_ms: [0; LEVELS],
            look_at: ACCOUNTS_BEFORE_LOOK,
        }
    }

    /// This one has got a place: its level has waited no longer than since now.
    pub fn began(&mut self, one: &Waiting<'_>, now_ms: u64) {
        let began_ms = &mut self.began_ms[usize::from(one.level(now_ms))];
        *began_ms = now_ms.max(*began_ms);
    }

    /// An account has used so much of a place (seconds of it, say), which it has no more. Negative amounts and such are none.
    pub fn used(&mut self, account: &str, amount: f64, now_ms: u64) {
        let amount = if amount.is_finite() { amount.max(0.0) } else { 0.0 };
        let half_life = self.rules.halves_every;
        self.places.add(1.0, now_ms, half_life);
        self.all_use.add(amount, now_ms, half_life);
        match self.uses.get_mut(account) {
            Some(used) => used.add(amount, now_ms, half_life),
            None => {
                self.forget(now_ms);
                self.uses.insert(account.to_owned(), Decaying { amount, at_ms: now_ms });
            }
        }
    }

    /// Ids of those that may begin now, in the order in which they are to, `most` of them. `running` has the accounts of those that
    /// have a place, one item each.
    ///
    /// It takes time in proportion to those that wait, and to `most` with the logarithm of those that wait.
    pub fn order<'a>(
        &self,
        now_ms: u64,
        running: &[&str],
        waiting: &[Waiting<'a>],
        most: usize,
    ) -> Vec<&'a str> {
        let mut accounts = Accounts::new(self, now_ms);
        let mut levels: [Level<'a>; LEVELS] = Default::default();
        for one in waiting.iter().filter(|one| one.is_due(now_ms)) {
            let account = accounts.number(one.account);
            levels[usize::from(one.level(now_ms))].add(account, one);
        }
        running.iter().for_each(|account| accounts.give_if_known(account));
        for (number, level) in (0..).zip(&mut levels) {
            level.begin(number, self.aged(number, level.oldest_ms, now_ms), &accounts);
        }
        std::iter::from_fn(|| next(&mut levels, &mut accounts)).take(most).collect()
    }

    /// The class of a level whose oldest has waited since then.
    fn aged(&self, level: u8, oldest_ms: u64, now_ms: u64) -> u8 {
        let waited_ms = now_ms.saturating_sub(oldest_ms.max(self.began_ms[usize::from(level)]));
        let classes = u128::from(waited_ms).checked_div(self.rules.ages_every.as_millis()).unwrap_or(0);
        level.saturating_add(u8::try_from(classes).unwrap_or(CLASS_MAX)).min(CLASS_MAX)
    }

    /// What a place is expected to use.
    fn expected(&self, now_ms: u64) -> f64 {
        let half_life = self.rules.halves_every;
        let mean = self.all_use.at(now_ms, half_life) / self.places.at(now_ms, half_life);
        if mean.is_finite() && mean > 0.0 { mean } else { 1.0 }
    }

    /// Forgets accounts whose use counts no more, once there are twice as many as at the last look.
    fn forget(&mut self, now_ms: u64) {
        if self.uses.len() < self.look_at {
            return;
        }
        let (half_life, least) = (self.rules.halves_every, FORGOTTEN_BELOW * self.expected(now_ms));
        self.uses.retain(|_, used| used.at(now_ms, half_life) >= least);
        self.look_at = ACCOUNTS_BEFORE_LOOK.max(2 * self.uses.len());
    }
}

/// The accounts of those that wait, by number.
struct Accounts<'r, 'a> {
    ranks: &'r Ranks,
    now_ms: u64,
    numbers: HashMap<&'a str, usize>,
    /// Use for its weight, and what a place adds to it.
    shares: Vec<(f64, f64)>,
    expected: f64,
}

impl<'r, 'a> Accounts<'r, 'a> {
    fn new(ranks: &'r Ranks, now_ms: u64) -> Accounts<'r, 'a> {
        let expected = ranks.expected(now_ms);
        Accounts { ranks, now_ms, numbers: HashMap::new(), shares: Vec::new(), expected }
    }

    fn number(&mut self, name: &'a str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let rules = &self.ranks.rules;
        let weight = rules.weights.get(name).copied().filter(|weight| weight.is_normal() && *weight > 0.0);
        let weight = weight.unwrap_or(1.0);
        let used = self.ranks.uses.get(name).map_or(0.0, |used| used.at(self.now_ms, rules.halves_every));
        self.shares.push((used / weight, self.expected / weight));
        self.numbers.insert(name, self.shares.len() - 1);
        self.shares.len() - 1
    }

    fn give(&mut self, account: usize) {
        let (share, place) = &mut self.shares[account];
        *share += *place;
    }

    fn give_if_known(&mut self, name: &str) {
        if let Some(&account) = self.numbers.get(name) {
            self.give(account);
        }
    }

    /// Numbers that compare as shares do: floats that are not negative compare as their bits.
    fn share(&self, account: usize) -> u64 {
        self.shares[account].0.to_bits()
    }
}

/// Since when one waits, and its id.
type Oldest<'a> = Reverse<(u64, &'a str)>;

/// An account's turn: the least share comes first, then the oldest of those that wait, then ids decide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn<'a> {
    share: u64,
    oldest: (u64, &'a str),
    account: usize,
}

/// Those that wait in one level.
#[derive(Default)]
struct Level<'a> {
    number: u8,
    class: u8,
    oldest_ms: u64,
    lines: HashMap<usize, BinaryHeap<Oldest<'a>>>,
    /// One for each account that has any here. Shares only grow, so what stands here may be too low.
    turns: BinaryHeap<Reverse<Turn<'a>>>,
}

impl<'a> Level<'a> {
    fn add(&mut self, account: usize, one: &Waiting<'a>) {
        let since_ms = one.since_ms();
        self.oldest_ms = if self.lines.is_empty() { since_ms } else { since_ms.min(self.oldest_ms) };
        self.lines.entry(account).or_default().push(Reverse((since_ms, one.id)));
    }

    fn begin(&mut self, number: u8, class: u8, accounts: &Accounts<'_, 'a>) {
        (self.number, self.class) = (number, class);
        let turn = |account| Some(Reverse(self.turn(account, accounts)?));
        self.turns = self.lines.keys().filter_map(|&account| turn(account)).collect();
    }

    fn turn(&self, account: usize, accounts: &Accounts<'_, 'a>) -> Option<Turn<'a>> {
        let Reverse(oldest) = *self.lines.get(&account)?.peek()?;
        Some(Turn { share: accounts.share(account), oldest, account })
    }

    /// Whose turn it is here.
    fn first(&mut self, accounts: &Accounts<'_, 'a>) -> Option<Turn<'a>> {
        loop {
            let mut top = self.turns.peek_mut()?;
            let share = accounts.share(top.0.account);
            if top.0.share == share {
                return Some(top.0);
            }
            top.0.share = share;
        }
    }

    /// Takes the turn that is [`Level::first`].
    fn take(&mut self, accounts: &mut Accounts<'_, 'a>) -> Option<&'a str> {
        let Reverse(Turn { oldest: (_, id), account, .. }) = self.turns.pop()?;
        self.class = self.number;
        accounts.give(account);
        self.lines.get_mut(&account)?.pop();
        self.turns.extend(self.turn(account, accounts).map(Reverse));
        Some(id)
    }
}

/// Takes the one that comes next.
fn next<'a>(levels: &mut [Level<'a>; LEVELS], accounts: &mut Accounts<'_, 'a>) -> Option<&'a str> {
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
