//! The number of pairs for each transfer: weighted max-min fairness over the sites' movers, in whole pairs.
//!
//! Owns nothing: a function of claims and movers. Every manager computes it over all transfers, so that all
//! get the same shares without a message. `assign` chooses the movers of a share.

use std::collections::BTreeMap;

/// One pair, in the fixed-point numbers in which the ideal shares are computed.
const ONE: u128 = 1 << 32;

/// The highest priority.
const PRIORITY_MAX: u8 = 9;

/// A mover, with the properties that planning needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetMover {
    /// Its id.
    pub id: String,
    /// Its site.
    pub site: String,
    /// Its host, over which pairs are spread.
    pub host: String,
    /// Version of the wire protocol: movers pair up with those that have the same.
    pub protocol: u32,
    /// Upper bound of the pairs that it takes part in.
    pub pairs_max: u32,
    /// True if it ends its pairs, and takes no other.
    pub is_draining: bool,
}

/// A transfer that asks for pairs. Paused and ended transfers don't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferPairDemand {
    /// The transfer's id.
    pub transfer: String,
    /// Time of submission: within a priority older transfers come first where not all can be served.
    pub submitted_ms: u64,
    /// 0 to 9; each step has a weight half as large again.
    pub priority: u8,
    /// User of the transfer.
    pub user: String,
    /// Site of the source.
    pub source_site: String,
    /// Site of the sink.
    pub sink_site: String,
    /// Movers that reach the source, by their index in the list of movers, each once.
    pub sources: Vec<usize>,
    /// Movers that reach the destination, by the same index, each once.
    pub sinks: Vec<usize>,
    /// Pairs that its tuner wants.
    pub wanted: u32,
    /// Pairs that its user allows.
    pub pairs_max: Option<u32>,
    /// True if the present manager owns it; `assign` never changes the pairs of other managers.
    pub is_mine: bool,
}

/// Limits set by an administrator, in pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoverPairLimits {
    /// Limit for all transfers of one user.
    pub per_user: Option<u32>,
    /// The same for the users named here, in place of the other.
    pub users: BTreeMap<String, u32>,
    /// Limit for all transfers that are read or written at a site.
    pub sites: BTreeMap<String, u32>,
}

/// Pairs for each claim, in the order of the claims.
///
/// - Each claim gets one pair, in the order of priority and age, as long as there are any.
/// - The rest is shared by weight until each claim has its wish or meets a full site or limit: no share can
///   grow except at the cost of a claim with less for its weight. Ideal shares are rounded down. The pairs
///   lost to rounding go to the largest fractions, one each, and the rest to the claims with the least for
///   their weight.
///
/// A share is never below the ideal one, rounded down. It does not depend on the present pairs.
pub fn shares(movers: &[FleetMover], claims: &[TransferPairDemand], limits: &MoverPairLimits) -> Vec<u32> {
    let mut plan = MoverPairCountAllocator::new(movers, claims, limits);
    let mut in_order: Vec<usize> = (0..claims.len()).collect();
    in_order.sort_by_key(|&index| {
        let claim = &claims[index];
        (std::cmp::Reverse(claim.priority), claim.submitted_ms, &claim.transfer)
    });
    in_order.iter().for_each(|&index| {
        plan.try_add(index);
    });
    let ideal = plan.ideal();
    for (index, ideal) in ideal.iter().enumerate() {
        plan.raise_to(index, (ideal / ONE) as u32);
    }
    plan.distribute_remainder(&ideal, &in_order);
    plan.given
}

/// 1.5 to the power of the priority, times 512.
fn weight(priority: u8) -> u128 {
    let priority = u32::from(priority.min(PRIORITY_MAX));
    3u128.pow(priority) << (u32::from(PRIORITY_MAX) - priority)
}

/// A capacity that several transfers share.
struct SharedPairCapacity {
    capacity: u64,
    used: u64,
    /// Claims that use it, and how much of its capacity each of their pairs takes.
    users: Vec<(usize, u64)>,
}

struct MoverPairCountAllocator {
    pools: Vec<SharedPairCapacity>,
    /// The pools of each claim, with the capacity that a pair takes.
    pools_of: Vec<Vec<(usize, u64)>>,
    weights: Vec<u128>,
    /// Upper bound of each claim's pairs without other claims.
    most: Vec<u32>,
    given: Vec<u32>,
}

impl MoverPairCountAllocator {
    fn new(
        movers: &[FleetMover],
        claims: &[TransferPairDemand],
        limits: &MoverPairLimits,
    ) -> MoverPairCountAllocator {
        let mut pools: BTreeMap<(u8, &str), SharedPairCapacity> = BTreeMap::new();
        let room = room_of_sites(movers);
        for (index, claim) in claims.iter().enumerate() {
            for site in [&claim.source_site, &claim.sink_site] {
                let room = Some(room.get(&**site).copied().unwrap_or(0));
                join_pool(&mut pools, (SITE_ROOM, site), room, index);
                let limit = limits.sites.get(site).map(|&most| most.into());
                join_pool(&mut pools, (SITE_LIMIT, site), limit, index);
            }
            let of_user = limits.users.get(&claim.user).copied().or(limits.per_user);
            join_pool(&mut pools, (USER_LIMIT, &claim.user), of_user.map(u64::from), index);
        }
        let pools: Vec<SharedPairCapacity> = pools.into_values().collect();
        let mut pools_of = vec![Vec::new(); claims.len()];
        for (number, pool) in pools.iter().enumerate() {
            pool.users.iter().for_each(|&(claim, takes)| pools_of[claim].push((number, takes)));
        }
        MoverPairCountAllocator {
            pools,
            pools_of,
            weights: claims.iter().map(|claim| weight(claim.priority)).collect(),
            most: claims.iter().map(|claim| most_pairs(movers, claim)).collect(),
            given: vec![0; claims.len()],
        }
    }

    fn try_add(&mut self, claim: usize) -> bool {
        let has_room = self.given[claim] < self.most[claim]
            && self.pools_of[claim]
                .iter()
                .all(|&(pool, takes)| self.pools[pool].used + takes <= self.pools[pool].capacity);
        if has_room {
            self.raise_to(claim, self.given[claim] + 1);
        }
        has_room
    }

    fn raise_to(&mut self, claim: usize, pairs: u32) {
        let more = u64::from(pairs.saturating_sub(self.given[claim]));
        for &(pool, takes) in &self.pools_of[claim] {
            self.pools[pool].used += more * takes;
        }
        self.given[claim] = self.given[claim].max(pairs);
    }

    /// Returns the max-min fair shares in fixed point, above the pair that each claim has by now; 0 for
    /// claims without a pair.
    ///
    /// All shares grow with one level, by weight, until a pool is full. The claims that use it stop there,
    /// the others grow further.
    fn ideal(&self) -> Vec<u128> {
        let mut ideal: Vec<u128> = self.given.iter().map(|&pairs| u128::from(pairs) * ONE).collect();
        let mut growing: Vec<bool> = self.given.iter().map(|&pairs| pairs > 0).collect();
        while growing.contains(&true) {
            let level = self.highest_level(&ideal, &growing);
            let next: Vec<u128> = (0..ideal.len())
                .map(|claim| self.share_at_level(level + 1, claim, &ideal, &growing))
                .collect();
            let full: Vec<bool> = self.pools.iter().map(|pool| !fits(pool, &next)).collect();
            for claim in 0..ideal.len() {
                ideal[claim] = self.share_at_level(level, claim, &ideal, &growing);
                let is_full = self.pools_of[claim].iter().any(|&(pool, _)| full[pool]);
                growing[claim] &= !is_full && ideal[claim] < u128::from(self.most[claim]) * ONE;
            }
        }
        ideal
    }

    /// Returns the highest level at which all pools suffice.
    fn highest_level(&self, ideal: &[u128], growing: &[bool]) -> u128 {
        // At this level every claim has its wish.
        let (mut low, mut high) = (0, u128::from(u32::MAX) * ONE);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let at: Vec<u128> =
                (0..ideal.len()).map(|claim| self.share_at_level(middle, claim, ideal, growing)).collect();
            if self.pools.iter().all(|pool| fits(pool, &at)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    fn share_at_level(&self, level: u128, claim: usize, ideal: &[u128], growing: &[bool]) -> u128 {
        if growing[claim] {
            (level * self.weights[claim]).clamp(ONE, u128::from(self.most[claim]) * ONE)
        } else {
            ideal[claim]
        }
    }

    /// Hands out the pairs lost to rounding.
    fn distribute_remainder(&mut self, ideal: &[u128], in_order: &[usize]) {
        let mut by_fraction = in_order.to_vec();
        by_fraction.sort_by_key(|&claim| std::cmp::Reverse(ideal[claim] % ONE));
        for claim in by_fraction {
            if self.given[claim] > 0 && !ideal[claim].is_multiple_of(ONE) {
                self.try_add(claim);
            }
        }
        // Pools that are shared in different ways may leave more: no claim is refused a pair that no other
        // claim can have.
        let mut hungry = in_order.to_vec();
        while !hungry.is_empty() {
            let least = (0..hungry.len()).min_by_key(|&position| {
                let claim = hungry[position];
                u128::from(self.given[claim]) * ONE / self.weights[claim]
            });
            let Some(position) = least else { return };
            if !self.try_add(hungry[position]) {
                hungry.remove(position);
            }
        }
    }
}

/// Kinds of pools: the room of a site's movers, the limit of a site, the limit of a user.
const SITE_ROOM: u8 = 0;
const SITE_LIMIT: u8 = 1;
const USER_LIMIT: u8 = 2;

/// Adds a claim to a pool, unless the capacity is unlimited.
fn join_pool<'a>(
    pools: &mut BTreeMap<(u8, &'a str), SharedPairCapacity>,
    (kind, name): (u8, &'a str),
    capacity: Option<u64>,
    claim: usize,
) {
    let Some(capacity) = capacity else { return };
    let pool = pools.entry((kind, name)).or_insert_with(|| SharedPairCapacity {
        capacity,
        used: 0,
        users: Vec::new(),
    });
    match pool.users.last_mut().filter(|(last, _)| *last == claim) {
        // Movers of one site are at both ends of a pair, but the limits count it once.
        Some((_, takes)) if kind == SITE_ROOM => *takes += 1,
        Some(_) => {}
        None => pool.users.push((claim, 1)),
    }
}

/// Returns true if a pool suffices for these shares.
fn fits(pool: &SharedPairCapacity, shares: &[u128]) -> bool {
    let used: u128 = pool.users.iter().map(|&(claim, takes)| shares[claim] * u128::from(takes)).sum();
    used <= u128::from(pool.capacity) * ONE
}

/// Returns the ends of pairs that each site's movers take.
pub(super) fn room_of_sites(movers: &[FleetMover]) -> BTreeMap<&str, u64> {
    let mut room = BTreeMap::new();
    for mover in movers.iter().filter(|mover| !mover.is_draining) {
        *room.entry(&*mover.site).or_insert(0) += u64::from(mover.pairs_max);
    }
    room
}

/// Returns the pairs that a transfer wants, may have, and could have with all its movers for itself.
pub(super) fn most_pairs(movers: &[FleetMover], claim: &TransferPairDemand) -> u32 {
    // For each protocol: room at the source, at the sink, and of both together.
    let mut room: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
    let sources: std::collections::BTreeSet<&usize> = claim.sources.iter().collect();
    let of_source = claim.sources.iter().map(|index| (index, &[0_usize, 2][..]));
    let of_sink = claim.sinks.iter().map(|index| {
        let ends: &[usize] = if sources.contains(index) { &[1] } else { &[1, 2] };
        (index, ends)
    });
    for (&index, ends) in of_source.chain(of_sink) {
        let Some(mover) = movers.get(index).filter(|mover| !mover.is_draining) else { continue };
        let room = room.entry(mover.protocol).or_default();
        ends.iter().for_each(|&end| room[end] += u64::from(mover.pairs_max));
    }
    let possible: u64 = room.values().map(|[source, sink, both]| (*source).min(*sink).min(both / 2)).sum();
    let allowed = claim.wanted.min(claim.pairs_max.unwrap_or(u32::MAX));
    u32::try_from(possible).unwrap_or(u32::MAX).min(allowed)
}

#[cfg(test)]
#[path = "shares_tests.rs"]
pub(super) mod tests;
