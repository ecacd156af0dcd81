//! The reason why a transfer has no pair, among all inputs of `shares`.
//!
//! Owns nothing, and decides nothing.

use super::shares::{most_pairs, room_of_sites};
use super::{FleetMover, MoverPairLimits, TransferPairDemand};

/// The condition that a transfer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverPairWaitReason {
    /// A mover that reaches its path at this site.
    Reach {
        /// The site.
        site: String,
        /// True for its source, false for its destination.
        is_source: bool,
    },
    /// A mover that does not drain, among those that reach its path at this site.
    Staying {
        /// The site.
        site: String,
    },
    /// Movers that speak the same protocol, or a second mover where a single one would be at both ends.
    Match,
    /// The end of a pair of another transfer of its user.
    User {
        /// Pairs that its user may have.
        most: u32,
    },
    /// The end of a pair of another transfer from or to this site.
    Site {
        /// The site.
        site: String,
        /// Pairs that the site may have.
        most: u32,
    },
    /// Room at a mover of this site.
    Room {
        /// The site.
        site: String,
        /// The movers there, all of which are full.
        movers: usize,
    },
    /// Older transfers come first.
    Turn,
}

/// Returns the reason why `claim` has no pair though it wants one; `None` if it has one or wants none.
pub fn find_wait_reason(
    movers: &[FleetMover],
    claims: &[TransferPairDemand],
    shares: &[u32],
    limits: &MoverPairLimits,
    claim: usize,
) -> Option<MoverPairWaitReason> {
    let this = claims.get(claim)?;
    if this.wanted == 0 || shares.get(claim).copied()? > 0 {
        return None;
    }
    let ends = [(&this.source_site, &this.sources, true), (&this.sink_site, &this.sinks, false)];
    for (site, able, is_source) in ends {
        if able.is_empty() {
            return Some(MoverPairWaitReason::Reach { site: site.clone(), is_source });
        }
    }
    for (site, able, _) in ends {
        if able.iter().all(|&index| movers.get(index).is_none_or(|mover| mover.is_draining)) {
            return Some(MoverPairWaitReason::Staying { site: site.clone() });
        }
    }
    if most_pairs(movers, this) == 0 {
        return Some(MoverPairWaitReason::Match);
    }
    if let Some(most) = limits.users.get(&this.user).copied().or(limits.per_user)
        && pairs_of(claims, shares, |claim| u32::from(claim.user == this.user)) >= most.into()
    {
        return Some(MoverPairWaitReason::User { most });
    }
    for (site, ..) in ends {
        if let Some(&most) = limits.sites.get(site)
            && pairs_of(claims, shares, |claim| u32::from(ends_at(claim, site) > 0)) >= most.into()
        {
            return Some(MoverPairWaitReason::Site { site: site.clone(), most });
        }
    }
    let room = room_of_sites(movers);
    for (site, ..) in ends {
        let room = room.get(&**site).copied().unwrap_or(0);
        if pairs_of(claims, shares, |claim| ends_at(claim, site)) + u64::from(ends_at(this, site)) > room {
            let movers = movers.iter().filter(|mover| mover.site == *site).count();
            return Some(MoverPairWaitReason::Room { site: site.clone(), movers });
        }
    }
    Some(MoverPairWaitReason::Turn)
}

/// Sums `count` over all pairs that the claims have.
fn pairs_of(
    claims: &[TransferPairDemand],
    shares: &[u32],
    count: impl Fn(&TransferPairDemand) -> u32,
) -> u64 {
    claims.iter().zip(shares).map(|(claim, &share)| u64::from(share) * u64::from(count(claim))).sum()
}

/// Returns the number of ends at a site, 0 to 2.
fn ends_at(claim: &TransferPairDemand, site: &str) -> u32 {
    u32::from(claim.source_site == site) + u32::from(claim.sink_site == site)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::shares;

    fn mover(site: &str, pairs_max: u32) -> FleetMover {
        FleetMover {
            id: format!("{site}{pairs_max}"),
            site: site.into(),
            host: "h".into(),
            protocol: 1,
            pairs_max,
            is_draining: false,
        }
    }

    fn claim(user: &str, age: u64) -> TransferPairDemand {
        TransferPairDemand {
            transfer: format!("{user}{age}"),
            submitted_ms: age,
            priority: 5,
            user: user.into(),
            source_site: "a".into(),
            sink_site: "b".into(),
            sources: vec![0],
            sinks: vec![1],
            wanted: 2,
            pairs_max: None,
            is_mine: true,
        }
    }

    fn lacks(
        movers: &[FleetMover],
        claims: &[TransferPairDemand],
        limits: &MoverPairLimits,
    ) -> Vec<Option<MoverPairWaitReason>> {
        let shares = shares(movers, claims, limits);
        (0..claims.len()).map(|index| find_wait_reason(movers, claims, &shares, limits, index)).collect()
    }

    #[test]
    fn who_has_a_share_or_wants_none_lacks_nothing() {
        let movers = [mover("a", 4), mover("b", 4)];
        let claims = [claim("u", 1), TransferPairDemand { wanted: 0, ..claim("u", 2) }];
        assert_eq!(lacks(&movers, &claims, &MoverPairLimits::default()), [None, None]);
    }

    #[test]
    fn movers_that_are_not_there_do_not_reach_or_leave_are_named() {
        let none = MoverPairLimits::default();
        let movers = [mover("a", 4), mover("b", 4)];
        let nowhere = [TransferPairDemand { sinks: vec![], ..claim("u", 1) }];
        let lacked = MoverPairWaitReason::Reach { site: "b".into(), is_source: false };
        assert_eq!(lacks(&movers, &nowhere, &none), [Some(lacked)]);
        let leaving = [FleetMover { is_draining: true, ..mover("a", 4) }, mover("b", 4)];
        assert_eq!(
            lacks(&leaving, &[claim("u", 1)], &none),
            [Some(MoverPairWaitReason::Staying { site: "a".into() })]
        );
        let unlike = [FleetMover { protocol: 2, ..mover("a", 4) }, mover("b", 4)];
        assert_eq!(lacks(&unlike, &[claim("u", 1)], &none), [Some(MoverPairWaitReason::Match)]);
    }

    #[test]
    fn limits_come_before_room() {
        let claims = [claim("u", 1), claim("u", 2), claim("v", 3)];
        let wide = [mover("a", 9), mover("b", 9)];
        let per_user = MoverPairLimits { per_user: Some(1), ..MoverPairLimits::default() };
        assert_eq!(
            lacks(&wide, &claims, &per_user),
            [None, Some(MoverPairWaitReason::User { most: 1 }), None]
        );
        let at_site = MoverPairLimits { sites: [("b".to_owned(), 2)].into(), ..MoverPairLimits::default() };
        let lacked = MoverPairWaitReason::Site { site: "b".into(), most: 2 };
        assert_eq!(lacks(&wide, &claims, &at_site), [None, None, Some(lacked)]);
        let narrow = [mover("a", 9), mover("b", 1)];
        let lacked = Some(MoverPairWaitReason::Room { site: "b".into(), movers: 1 });
        let none = MoverPairLimits::default();
        assert_eq!(lacks(&narrow, &claims, &none), [None, lacked.clone(), lacked]);
    }
}
