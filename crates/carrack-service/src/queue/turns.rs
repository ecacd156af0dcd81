//! The order of transfers, and the priorities that users may give: the ranking of `carrack-plan`
//! (`fleet/transfer_ranking.rs`) for the users of this machine. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use carrack_plan::fleet::{RankRules, TransferRanking, WaitingTransfer};
use carrack_register::transfer_operations::TransferOperationError;

use super::copy_arguments::refused;
use super::store::QueuedTransfer;

/// The administrator's rules of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueOrderRules {
    /// The highest priority that users may give; root and the daemon's own user may give any.
    pub priority_max: u8,
    /// The same for the users and accounts that are named here.
    pub priorities: BTreeMap<String, u8>,
    /// Shares of accounts, in proportion; 1 for an account without an entry.
    pub weights: BTreeMap<String, f64>,
    /// The account of a user's transfers; without an entry, the user's own.
    pub accounts: BTreeMap<String, String>,
    /// Time after which a waiting transfer rises by one class, repeatedly.
    pub ages_every: Duration,
    /// Time after which past use of an account counts half.
    pub halves_every: Duration,
}

impl Default for QueueOrderRules {
    fn default() -> QueueOrderRules {
        let RankRules { ages_every, halves_every, .. } = RankRules::default();
        QueueOrderRules {
            priority_max: QueueOrderRules::PRIORITY_MAX_DEFAULT,
            priorities: BTreeMap::new(),
            weights: BTreeMap::new(),
            accounts: BTreeMap::new(),
            ages_every,
            halves_every,
        }
    }
}

impl QueueOrderRules {
    /// The highest priority of users by default, and the priority of a submission without one.
    pub const PRIORITY_MAX_DEFAULT: u8 = 5;

    /// The highest priority of all.
    pub const PRIORITY_MAX: u8 = 9;

    /// Returns a ranking without any use.
    pub(super) fn new_ranking(&self) -> TransferRanking {
        TransferRanking::new(RankRules {
            ages_every: self.ages_every,
            halves_every: self.halves_every,
            weights: self.weights.iter().map(|(name, weight)| (name.clone(), *weight)).collect(),
        })
    }

    /// Returns the account of this user's transfers.
    pub(super) fn account_of<'a>(&'a self, user: &'a str) -> &'a str {
        self.accounts.get(user).map_or(user, String::as_str)
    }

    /// Checks that a user (neither root nor the daemon's own) may give this priority.
    pub(super) fn check_priority(&self, user: &str, priority: u8) -> Result<(), TransferOperationError> {
        let named = self.priorities.get(user).or_else(|| self.priorities.get(self.account_of(user)));
        let most = *named.unwrap_or(&self.priority_max);
        if priority <= most {
            return Ok(());
        }
        Err(refused(
            format!("priority {priority} is more than {user} may say: {most} is the most"),
            format!("say {most} or less; [queue] of the daemon's configuration grants more, by `priorities`"),
        ))
    }

    /// Returns the waiting transfer that begins next, and counts it as begun. `running` has the users of
    /// running transfers.
    pub(super) fn next<'a>(
        &self,
        ranks: &mut TransferRanking,
        now_ms: u64,
        running: &[&str],
        waits: &'a [QueuedTransfer],
    ) -> Option<&'a str> {
        let running: Vec<&str> = running.iter().map(|user| self.account_of(user)).collect();
        let waiting: Vec<WaitingTransfer<'_>> = waits.iter().map(|waits| self.waiting(waits)).collect();
        let next = *ranks.order(now_ms, &running, &waiting, 1).first()?;
        let next = waits.iter().find(|waits| waits.id == next)?;
        ranks.record_start(&self.waiting(next), now_ms);
        Some(&next.id)
    }

    fn waiting<'a>(&'a self, waits: &'a QueuedTransfer) -> WaitingTransfer<'a> {
        WaitingTransfer {
            id: &waits.id,
            account: self.account_of(&waits.user),
            priority: waits.priority,
            submitted_ms: waits.submitted_ms,
            deadline_ms: waits.deadline_ms,
            not_before_ms: waits.not_before_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> QueueOrderRules {
        QueueOrderRules {
            priorities: [("ops".to_owned(), 9), ("carol".to_owned(), 7)].into(),
            accounts: [("alice", "projx"), ("bob", "projx"), ("dave", "ops")]
                .map(|(user, account)| (user.to_owned(), account.to_owned()))
                .into(),
            ..QueueOrderRules::default()
        }
    }

    fn waits(id: &str, user: &str, priority: u8, submitted_ms: u64) -> QueuedTransfer {
        let (id, user) = (id.to_owned(), user.to_owned());
        QueuedTransfer { id, user, priority, submitted_ms, deadline_ms: None, not_before_ms: None }
    }

    #[test]
    fn users_say_what_they_or_their_account_may() {
        let rules = rules();
        for (user, most) in [("alice", 5), ("carol", 7), ("dave", 9), ("eve", 5)] {
            assert!(rules.check_priority(user, most).is_ok(), "{user}");
            let Err(TransferOperationError::Refused { message, hint }) = rules.check_priority(user, most + 1)
            else {
                panic!("{user}")
            };
            assert!(
                message.contains(&format!("{most} is the most")) && hint.contains("[queue]"),
                "{message}"
            );
        }
    }

    #[test]
    fn users_of_one_account_take_one_turn() {
        let rules = rules();
        let mut left = vec![
            waits("a", "alice", 5, 1),
            waits("b", "bob", 5, 2),
            waits("c", "bob", 5, 3),
            waits("e", "eve", 5, 4),
        ];
        let mut ranks = rules.new_ranking();
        let mut running = Vec::new();
        let mut order = Vec::new();
        while let Some(next) = rules.next(&mut ranks, 10, &running, &left).map(str::to_owned) {
            let index = left.iter().position(|waits| waits.id == next).unwrap();
            running.push(if left.remove(index).user == "eve" { "eve" } else { "alice" });
            order.push(next);
        }
        assert_eq!(order, ["a", "e", "b", "c"]);
    }
}
