use proptest::prelude::*;

use super::*;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// A moment late enough that no past is cut off.
const NOW_MS: u64 = 1_000 * HOUR_MS;

fn one<'a>(id: &'a str, account: &'a str, priority: u8, submitted_ms: u64) -> WaitingTransfer<'a> {
    WaitingTransfer { id, account, priority, submitted_ms, deadline_ms: None, not_before_ms: None }
}

fn ranks(weights: &[(&str, f64)]) -> TransferRanking {
    let weights = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    TransferRanking::new(RankRules { weights, ..RankRules::default() })
}

/// A waiting transfer, with names of its own.
#[derive(Clone, Debug)]
struct TestWaitingTransfer {
    id: String,
    account: String,
    priority: u8,
    submitted_ms: u64,
}

impl TestWaitingTransfer {
    fn new(id: usize, account: impl ToString, priority: u8, submitted_ms: u64) -> TestWaitingTransfer {
        TestWaitingTransfer { id: format!("{id:08}"), account: account.to_string(), priority, submitted_ms }
    }

    fn waiting(&self) -> WaitingTransfer<'_> {
        one(&self.id, &self.account, self.priority, self.submitted_ms)
    }
}

/// A machine with one place, which each transfer has for `took_ms`; `waiting` has the waiting ones.
struct TestOneTransferMachine {
    ranks: TransferRanking,
    waiting: Vec<TestWaitingTransfer>,
    now_ms: u64,
    took_ms: u64,
}

impl TestOneTransferMachine {
    fn new(ranks: TransferRanking, took_ms: u64) -> TestOneTransferMachine {
        TestOneTransferMachine { ranks, waiting: Vec::new(), now_ms: NOW_MS, took_ms }
    }

    /// The next transfer gets the place, and leaves it.
    fn step(&mut self) -> Option<TestWaitingTransfer> {
        let waiting: Vec<WaitingTransfer<'_>> =
            self.waiting.iter().map(TestWaitingTransfer::waiting).collect();
        let next = *self.ranks.order(self.now_ms, &[], &waiting, 1).first()?;
        let index = self.waiting.iter().position(|kept| kept.id == next)?;
        let next = self.waiting.remove(index);
        self.ranks.record_start(&next.waiting(), self.now_ms);
        self.now_ms += self.took_ms;
        self.ranks.record_use(&next.account, self.took_ms as f64 / 1e3, self.now_ms);
        Some(next)
    }
}

fn jain(amounts: &[f64]) -> f64 {
    let (sum, squares) = amounts.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (amounts.len() as f64 * squares)
}

#[test]
fn the_higher_priority_comes_first_then_the_older_of_an_account() {
    let waiting = [
        one("a", "u", 5, NOW_MS - 2),
        one("b", "u", 5, NOW_MS - 3),
        one("c", "u", 6, NOW_MS),
        one("d", "u", 5, NOW_MS - 2),
    ];
    assert_eq!(ranks(&[]).order(NOW_MS, &[], &waiting, 9), ["c", "b", "a", "d"]);
    assert_eq!(ranks(&[]).order(NOW_MS, &[], &waiting, 2), ["c", "b"]);
    assert!(ranks(&[]).order(NOW_MS, &[], &[], 2).is_empty());
}

#[test]
fn accounts_take_turns_and_who_has_less_comes_first() {
    let waiting = [
        one("a1", "alice", 5, NOW_MS - 9),
        one("a2", "alice", 5, NOW_MS - 8),
        one("a3", "alice", 5, NOW_MS - 7),
        one("b1", "bob", 5, NOW_MS - 1),
    ];
    let mut ranks = ranks(&[]);
    assert_eq!(ranks.order(NOW_MS, &[], &waiting, 4), ["a1", "b1", "a2", "a3"]);
    assert_eq!(ranks.order(NOW_MS, &["alice"], &waiting, 4), ["b1", "a1", "a2", "a3"]);
    assert_eq!(ranks.order(NOW_MS, &["alice", "bob", "bob", "bob"], &waiting, 4), ["a1", "a2", "a3", "b1"]);
    // A use of two places counts as two running transfers.
    ranks.record_use("carol", 100.0, NOW_MS);
    ranks.record_use("bob", 100.0, NOW_MS);
    ranks.record_use("bob", 100.0, NOW_MS);
    assert_eq!(ranks.order(NOW_MS, &["alice"], &waiting, 2), ["a1", "a2"]);
    // After some half-lives a running transfer counts more than they.
    assert_eq!(ranks.order(NOW_MS + 8 * HOUR_MS, &["alice"], &waiting, 1), ["b1"]);
}

#[test]
fn what_may_not_begin_yet_neither_comes_nor_ages() {
    let later = WaitingTransfer { not_before_ms: Some(NOW_MS + 1), ..one("a", "u", 9, 0) };
    let waiting = [later, one("b", "v", 5, NOW_MS)];
    assert_eq!(ranks(&[]).order(NOW_MS, &[], &waiting, 9), ["b"]);
    let at_last = WaitingTransfer { priority: 4, ..later };
    assert_eq!(ranks(&[]).order(NOW_MS + 1, &[], &[at_last, waiting[1]], 9), ["b", "a"]);
}

#[test]
fn what_a_clock_has_submitted_that_is_ahead_does_not_wait_for_it() {
    let ahead = NOW_MS + HOUR_MS;
    let waiting = [one("a", "u", 5, ahead), one("b", "v", 5, NOW_MS)];
    assert_eq!(ranks(&[]).order(NOW_MS, &[], &waiting, 9), ["b", "a"]);
}

#[test]
fn a_level_ages_until_one_of_it_begins() {
    let old = NOW_MS - 21 * MINUTE_MS;
    let waiting = [
        one("a", "u", 3, old),
        one("b", "u", 3, old + 1),
        one("c", "v", 4, NOW_MS),
        one("d", "w", 9, NOW_MS),
    ];
    let mut ranks = ranks(&[]);
    assert_eq!(ranks.order(NOW_MS, &[], &waiting, 9), ["d", "a", "c", "b"]);
    ranks.record_start(&waiting[0], NOW_MS);
    assert_eq!(ranks.order(NOW_MS, &[], &waiting[1..], 9), ["d", "c", "b"]);
}

#[test]
fn a_deadline_raises_by_the_halves_of_its_time_that_are_over() {
    let (from, until) = (NOW_MS, NOW_MS + 80 * MINUTE_MS);
    let due = WaitingTransfer { deadline_ms: Some(until), ..one("a", "u", 2, from) };
    let at = |minutes: u64| due.level(from + minutes * MINUTE_MS);
    assert_eq!([0, 39, 40, 59, 60, 69, 70, 80, 800].map(at), [2, 2, 3, 3, 4, 4, 5, 5, 5]);
    assert_eq!(WaitingTransfer { priority: 8, ..due }.level(until), 9);
    assert_eq!(WaitingTransfer { deadline_ms: Some(from), ..due }.level(from), 2, "it can't be met");
}

#[test]
fn what_is_urgent_goes_before_a_backlog_of_any_age() {
    let mut machine = TestOneTransferMachine::new(ranks(&[]), MINUTE_MS);
    machine.waiting =
        (0..500).map(|id| TestWaitingTransfer::new(id, "alice", 5, NOW_MS - 100 * HOUR_MS)).collect();
    (0..100).for_each(|_| drop(machine.step()));
    let now_ms = machine.now_ms;
    machine.waiting.push(TestWaitingTransfer::new(900, "alice", 7, now_ms));
    machine.waiting.push(TestWaitingTransfer::new(901, "bob", 5, now_ms));
    let next: Vec<String> = (0..2).filter_map(|_| machine.step()).map(|kept| kept.id).collect();
    assert_eq!(next, ["00000900", "00000901"]);
}

#[test]
fn the_lowest_begins_whoever_goes_on_with_the_highest() {
    let mut machine = TestOneTransferMachine::new(ranks(&[]), MINUTE_MS);
    machine.waiting = (0..3).map(|id| TestWaitingTransfer::new(id, "alice", 0, NOW_MS)).collect();
    let mut steps = Vec::new();
    for step in 0..400 {
        let now_ms = machine.now_ms;
        machine.waiting.push(TestWaitingTransfer::new(1_000 + step, step % 7, 9, now_ms));
        let next = machine.step().unwrap();
        steps.extend((next.account == "alice").then_some(step));
    }
    // Nine times ten minutes for each of them, and a turn.
    assert!(steps.len() == 3 && steps[0] <= 92 && steps[1] <= 184 && steps[2] <= 276, "{steps:?}");
}

/// Users with 1, 10 and 1,000 transfers, each of whom submits another transfer when one has begun.
#[test]
fn who_has_many_has_no_more_than_who_has_one() {
    let mut machine = TestOneTransferMachine::new(ranks(&[]), MINUTE_MS);
    let users: Vec<(usize, usize)> = [1, 10, 1_000, 1, 10, 1_000].into_iter().enumerate().collect();
    for &(user, count) in &users {
        machine
            .waiting
            .extend((0..count).map(|id| TestWaitingTransfer::new(10_000 * user + id, user, 5, NOW_MS)));
    }
    let mut had = vec![0.0; users.len()];
    for step in 0..120 {
        let next = machine.step().unwrap();
        had[next.account.parse::<usize>().unwrap()] += 1.0;
        machine.waiting.push(TestWaitingTransfer::new(1_000_000 + step, next.account, 5, machine.now_ms));
    }
    assert!(jain(&had) >= 0.95, "{had:?}");
}

#[test]
fn a_weight_of_two_has_twice_as_much_of_long_copies_too() {
    for took_ms in [1_000, MINUTE_MS, 5 * HOUR_MS] {
        let mut machine = TestOneTransferMachine::new(ranks(&[("b", 2.0)]), took_ms);
        machine.ranks.rules.halves_every = Duration::from_millis(20 * took_ms);
        machine.waiting =
            (0..600).map(|id| TestWaitingTransfer::new(id, ["a", "b"][id % 2], 5, NOW_MS)).collect();
        let of_b = (0..300).filter(|_| machine.step().unwrap().account == "b").count();
        assert!((195..=205).contains(&of_b), "{of_b} of 300 at {took_ms} ms");
    }
}

#[test]
fn weights_hold_within_one_order() {
    let kept: Vec<TestWaitingTransfer> =
        (0..600).map(|id| TestWaitingTransfer::new(id, ["a", "b"][id % 2], 5, NOW_MS)).collect();
    let waiting: Vec<WaitingTransfer<'_>> = kept.iter().map(TestWaitingTransfer::waiting).collect();
    let order = ranks(&[("b", 2.0)]).order(NOW_MS, &[], &waiting, 300);
    let of_b = order.iter().filter(|id| id.parse::<usize>().unwrap() % 2 == 1).count();
    assert_eq!((order.len(), of_b), (300, 200));
}

#[test]
fn weights_and_amounts_that_are_none_do_no_harm() {
    let mut ranks = ranks(&[("a", 0.0), ("b", -1.0), ("c", f64::NAN)]);
    ["a", "b", "c"]
        .iter()
        .zip([f64::NAN, -5.0, f64::INFINITY])
        .for_each(|(a, x)| ranks.record_use(a, x, NOW_MS));
    let waiting = [one("3", "c", 5, 0), one("2", "b", 5, 0), one("1", "a", 5, 0)];
    assert_eq!(ranks.order(NOW_MS, &[], &waiting, 9), ["1", "2", "3"]);
    let never =
        RankRules { ages_every: Duration::ZERO, halves_every: Duration::ZERO, ..RankRules::default() };
    let mut ranks = TransferRanking::new(never);
    ranks.record_use("c", 1.0, NOW_MS);
    assert_eq!(ranks.order(NOW_MS, &[], &[one("1", "c", 5, 0), one("2", "a", 6, NOW_MS)], 9), ["2", "1"]);
}

#[test]
fn accounts_that_used_nothing_of_late_are_forgotten() {
    let mut ranks = ranks(&[]);
    for number in 0..20_000u64 {
        ranks.record_use(&number.to_string(), 1.0, NOW_MS + number * MINUTE_MS);
    }
    assert!(ranks.uses.len() <= 2 * ACCOUNTS_BEFORE_LOOK, "{}", ranks.uses.len());
    assert!(ranks.uses.contains_key("19999"));
}

/// The rule in its simplest form: all transfers are compared at each step.
fn simply(
    ranks: &TransferRanking,
    now_ms: u64,
    running: &[&str],
    waiting: &[WaitingTransfer<'_>],
    most: usize,
) -> Vec<String> {
    let (mut ranks, mut running) = (ranks.clone(), running.to_vec());
    let mut left: Vec<WaitingTransfer<'_>> =
        waiting.iter().copied().filter(|one| one.since_ms() <= now_ms).collect();
    let mut order = Vec::new();
    while order.len() < most && !left.is_empty() {
        let class = |one: &WaitingTransfer<'_>| {
            let level = one.level(now_ms);
            let of_level = left.iter().filter(|other| other.level(now_ms) == level);
            ranks.aged_class(level, of_level.map(WaitingTransfer::since_ms).min().unwrap(), now_ms)
        };
        let share = |one: &WaitingTransfer<'_>| {
            let half_life = ranks.rules.halves_every;
            let used = ranks.uses.get(one.account).map_or(0.0, |used| used.value_at(now_ms, half_life));
            let places = running.iter().filter(|account| **account == one.account).count() as f64;
            let weight = ranks.rules.weights.get(one.account).copied().unwrap_or(1.0);
            ((used + places * ranks.expected_use(now_ms)) / weight).to_bits()
        };
        let key =
            |one: &WaitingTransfer<'_>| (Reverse(class(one)), share(one), one.since_ms(), one.id.to_owned());
        let first = (0..left.len()).min_by_key(|&index| key(&left[index])).unwrap();
        let next = left.remove(first);
        ranks.record_start(&next, now_ms);
        running.push(next.account);
        order.push(next.id.to_owned());
    }
    order
}

proptest! {
    #[test]
    fn the_order_is_that_of_the_rule(
        some in prop::collection::vec((0u8..=9, 0usize..5, 0u64..200, 0u64..400), 0..60),
        used in prop::collection::vec(0usize..5, 0..8),
        running in prop::collection::vec(0usize..6, 0..6),
        began in prop::collection::vec((0u8..=9, 0u64..100), 0..4),
        most in 0usize..70,
    ) {
        const ACCOUNTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        // Amounts and weights with exact sums.
        let mut ranks = ranks(&[("b", 2.0), ("c", 0.5)]);
        used.iter().for_each(|account| ranks.record_use(ACCOUNTS[*account], 4.0, NOW_MS));
        began.iter().for_each(|(priority, ago)| ranks.record_start(&one("", "", *priority, 0), NOW_MS - ago * MINUTE_MS));
        let ids: Vec<String> = (0..some.len()).map(|id| format!("{id:03}")).collect();
        let waiting: Vec<WaitingTransfer<'_>> = ids.iter().zip(&some).map(|(id, (priority, account, ago, due))| WaitingTransfer {
            // Some of those without a deadline may not begin yet.
            deadline_ms: due.checked_sub(100).map(|due| NOW_MS + due * MINUTE_MS),
            not_before_ms: (*due < 10).then_some(NOW_MS + MINUTE_MS),
            ..one(id, ACCOUNTS[*account], *priority, NOW_MS - ago * MINUTE_MS)
        }).collect();
        let running: Vec<&str> = running.iter().map(|account| ACCOUNTS[*account]).collect();
        let order = ranks.order(NOW_MS, &running, &waiting, most);
        prop_assert_eq!(order, simply(&ranks, NOW_MS, &running, &waiting, most));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every waiting transfer begins, whatever others submit: after nine times ten minutes its level is the
    /// highest, where its account has turns.
    #[test]
    fn nothing_starves(others in prop::collection::vec((0u8..=9, 0usize..4), 300)) {
        let mut machine = TestOneTransferMachine::new(ranks(&[]), MINUTE_MS);
        machine.waiting.push(TestWaitingTransfer::new(0, "alice", 0, NOW_MS));
        let mut begun = false;
        for (number, (priority, account)) in (1..).zip(others) {
            let now_ms = machine.now_ms;
            machine.waiting.push(TestWaitingTransfer::new(number, account, priority, now_ms));
            machine.waiting.push(TestWaitingTransfer::new(1_000 + number, account, 9, now_ms));
            begun |= machine.step().unwrap().account == "alice";
        }
        prop_assert!(begun);
    }
}
