//! Sessions whose ends share their grants at one file system: to the server they are one client (L10).
//!
//! Otherwise reader and writer of the same targets would take turns, each of them half of the time without
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::messages::{
    GrantClientReport, GrantReply, GrantRequest, GrantUseReport, MovedBytes, TransferDeadlineDemand,
};
use super::settings::GrantSettings;

/// The ends of a session that were heard of within a lease.
#[derive(Debug, Default)]
pub(super) struct SessionGrantParties {
    /// Name of the common client: that of the first end.
    name: String,
    number: u64,
    ends: BTreeMap<String, SessionEndGrantReport>,
    /// Bytes moved by ends that are gone: in all, and by target.
    moved_before: (u64, BTreeMap<String, u64>),
}

#[derive(Debug, Default)]
struct SessionEndGrantReport {
    /// The end's last batch.
    batch: GrantClientReport,
    heard_at: Duration,
    moved: BTreeMap<String, u64>,
}

impl SessionGrantParties {
    /// Returns the names of the ends.
    pub(super) fn ends(&self) -> impl Iterator<Item = &str> {
        self.ends.keys().map(String::as_str)
    }

    /// Returns true if no end is left.
    pub(super) fn is_gone(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes ends whose leases are over.
    pub(super) fn sweep(&mut self, now: Duration, settings: &GrantSettings) {
        let ended = self.ends.iter().filter(|(_, end)| end.heard_at + settings.lease <= now);
        let gone: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|name| self.remove_end(name));
    }

    fn remove_end(&mut self, name: &str) {
        let Some(end) = self.ends.remove(name) else { return };
        let (all, by_target) = &mut self.moved_before;
        *all = all.saturating_add(end.batch.bytes_moved);
        for (target, bytes) in end.moved {
            let moved = by_target.entry(target).or_default();
            *moved = moved.saturating_add(bytes);
        }
    }

    /// Returns the common batch of all ends, updated by this batch of one; `None` if a later batch was heard
    /// before.
    pub(super) fn merge_batch(
        &mut self,
        now: Duration,
        batch: &GrantClientReport,
        settings: &GrantSettings,
    ) -> Option<GrantClientReport> {
        if self.name.is_empty() {
            self.name.clone_from(&batch.client);
        }
        let end = self.ends.entry(batch.client.clone()).or_default();
        if batch.number <= end.batch.number {
            return None;
        }
        end.moved.extend(batch.moved.iter().map(|moved| (moved.target.clone(), moved.bytes)));
        end.heard_at = now;
        end.batch = batch.clone();
        self.number += 1;
        let moved = batch.moved.iter().map(|moved| &*moved.target).collect();
        let mut said = GrantClientReport {
            client: self.name.clone(),
            number: self.number,
            bytes_moved: self.bytes_moved(),
            moved: self.moved_bytes(moved),
            ..batch.clone()
        };
        if batch.leaves {
            self.remove_end(&batch.client);
            said.leaves = self.is_gone();
        }
        // A silent end asks for nothing; its grants expire.
        let heard = self.ends.values().filter(|end| end.heard_at + settings.silence_limit() >= now);
        said.asks = merged_asks(heard);
        let same_epoch = self.ends.values().filter(|end| end.batch.epoch == batch.epoch);
        said.held = merged_held(same_epoch, batch);
        said.returns.retain(|back| !self.is_used_by_others(back, &batch.client));
        said.threads = self.ends.values().map(|end| end.batch.threads).fold(0, u32::saturating_add);
        said.deadline = self.ends.values().filter_map(|end| end.batch.deadline).reduce(|one, other| {
            TransferDeadlineDemand {
                bytes_left: one.bytes_left.saturating_add(other.bytes_left),
                in_ms: one.in_ms.min(other.in_ms),
            }
        });
        Some(said)
    }

    fn bytes_moved(&self) -> u64 {
        let ends = self.ends.values().map(|end| end.batch.bytes_moved);
        ends.fold(self.moved_before.0, u64::saturating_add)
    }

    fn moved_bytes(&self, targets: BTreeSet<&str>) -> Vec<MovedBytes> {
        let mut all = Vec::new();
        for target in targets {
            let before = self.moved_before.1.get(target).copied().unwrap_or(0);
            let of_ends = self.ends.values().filter_map(|end| end.moved.get(target).copied());
            all.push(MovedBytes {
                target: target.to_owned(),
                bytes: of_ends.fold(before, u64::saturating_add),
            });
        }
        all
    }

    /// Returns true if another end holds this grant, or asks for its target.
    fn is_used_by_others(&self, grant: &GrantUseReport, client: &str) -> bool {
        let others = self.ends.iter().filter(|(name, _)| *name != client).map(|(_, end)| &end.batch);
        others.into_iter().any(|batch| {
            batch.held.iter().any(|held| held.id == grant.id && !held.is_idle)
                || batch.asks.iter().any(|ask| ask.target == grant.target)
        })
    }

    /// Returns one end's part of the common answer: the targets of its batch, and its part of the permitted
    /// requests.
    pub(super) fn reply_for_end(&self, answer: GrantReply, batch: &GrantClientReport) -> GrantReply {
        let mut grants = answer.grants;
        grants.retain(|grant| {
            batch.asks.iter().any(|ask| ask.target == grant.target)
                || batch.held.iter().any(|held| held.id == grant.id && held.target == grant.target)
        });
        for grant in &mut grants {
            let (mut bytes, mut users) = (0u64, 1);
            for (_, end) in self.ends.iter().filter(|(name, _)| **name != batch.client) {
                if let Some(held) = end.batch.held.iter().find(|held| held.id == grant.id) {
                    bytes = bytes.saturating_add(held.bytes);
                    users += u32::from(!held.is_idle);
                }
            }
            grant.bytes_max = grant.bytes_max.map(|most| most.saturating_sub(bytes));
            grant.requests_max = grant.requests_max.map(|most| (most / users).max(1));
        }
        GrantReply { number: batch.number, grants, ..answer }
    }
}

fn merged_asks<'a>(ends: impl Iterator<Item = &'a SessionEndGrantReport>) -> Vec<GrantRequest> {
    let mut asks: BTreeMap<&str, GrantRequest> = BTreeMap::new();
    for ask in ends.flat_map(|end| &end.batch.asks) {
        let sum = asks
            .entry(&ask.target)
            .or_insert_with(|| GrantRequest { target: ask.target.clone(), ..GrantRequest::default() });
        sum.objects = sum.objects.saturating_add(ask.objects);
        sum.bytes = sum.bytes.saturating_add(ask.bytes);
        sum.waits_us = sum.waits_us.max(ask.waits_us);
    }
    asks.into_values().collect()
}

/// Returns the grants of any end. A grant is idle if no end uses it and no other end has asked for its
/// target.
fn merged_held<'a>(
    ends: impl Iterator<Item = &'a SessionEndGrantReport>,
    batch: &GrantClientReport,
) -> Vec<GrantUseReport> {
    let mut grants: BTreeMap<u64, GrantUseReport> = BTreeMap::new();
    let mut asked = BTreeSet::new();
    for end in ends {
        if end.batch.client != batch.client {
            asked.extend(end.batch.asks.iter().map(|ask| &*ask.target));
        }
        for held in &end.batch.held {
            let sum = grants.entry(held.id).or_insert_with(|| GrantUseReport {
                objects: 0,
                bytes: 0,
                busy_us: 0,
                is_idle: true,
                ..held.clone()
            });
            sum.objects = sum.objects.saturating_add(held.objects);
            sum.bytes = sum.bytes.saturating_add(held.bytes);
            sum.busy_us = sum.busy_us.saturating_add(held.busy_us);
            sum.is_idle &= held.is_idle;
        }
    }
    grants
        .into_values()
        .map(|held| GrantUseReport { is_idle: held.is_idle && !asked.contains(&*held.target), ..held })
        .collect()
}
