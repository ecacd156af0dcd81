//! Counts the connections of a listener that unauthenticated peers can reach. The peer with the most
//! connections loses one when others need room.
//! Connections are counted by address and by prefix: for IPv4 the address and its /24, for IPv6 the /64, the
//! smallest prefix of a customer (RFC 6177), and its /48. So neither many connections of one host nor many
//! hosts of one network keep others out. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address and prefix under which a peer's connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddressPrefix {
    prefix: IpAddr,
    address: IpAddr,
}

/// The numbers of connections of a prefix and of an address. The prefix compares first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerConnectionCounts {
    /// Connections of all addresses of the prefix.
    pub of_prefix: usize,
    /// Connections of the address.
    pub of_address: usize,
}

/// The connections of each address and prefix, in the order in which they are closed to make room.
#[derive(Debug)]
pub struct ConnectionEvictionOrder<K> {
    prefixes: PeersByConnectionCount<IpAddr, PeersByConnectionCount<IpAddr, BTreeSet<K>>>,
}

impl PeerAddressPrefix {
    /// The address and prefix of a peer.
    pub fn of(peer: SocketAddr) -> PeerAddressPrefix {
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => PeerAddressPrefix {
                prefix: Ipv4Addr::from_bits(address.to_bits() >> 8 << 8).into(),
                address: address.into(),
            },
            IpAddr::V6(address) => PeerAddressPrefix {
                prefix: Ipv6Addr::from_bits(address.to_bits() >> 80 << 80).into(),
                address: Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            },
        }
    }

    /// Returns true if both have the same prefix.
    pub fn has_same_prefix(self, other: PeerAddressPrefix) -> bool {
        self.prefix == other.prefix
    }
}

impl<K: Copy + Ord> Default for ConnectionEvictionOrder<K> {
    fn default() -> Self {
        ConnectionEvictionOrder { prefixes: PeersByConnectionCount::default() }
    }
}

impl<K: Copy + Ord> ConnectionEvictionOrder<K> {
    /// Adds a connection. An address's connections are closed from the smallest key up.
    pub fn add(&mut self, place: PeerAddressPrefix, key: K) {
        self.change(place, |keys| keys.insert(key));
    }

    /// Removes a connection. Returns true if it was present.
    pub fn remove(&mut self, place: PeerAddressPrefix, key: K) -> bool {
        self.change(place, |keys| keys.remove(&key))
    }

    fn change(&mut self, place: PeerAddressPrefix, change: impl FnOnce(&mut BTreeSet<K>) -> bool) -> bool {
        self.prefixes.change(place.prefix, |addresses| addresses.change(place.address, change))
    }

    /// The numbers of connections of an address and its prefix.
    pub fn counts_of(&self, place: PeerAddressPrefix) -> PeerConnectionCounts {
        let Some(addresses) = self.prefixes.members.get(&place.prefix) else {
            return PeerConnectionCounts::default();
        };
        let of_address = addresses.members.get(&place.address).map_or(0, BTreeSet::len);
        PeerConnectionCounts { of_prefix: addresses.weight(), of_address }
    }

    /// The connection to close to make room: of the largest prefix the largest address, and there the
    /// smallest key.
    pub fn eviction_candidate(&self) -> Option<(PeerAddressPrefix, K)> {
        let (prefix, addresses) = self.prefixes.largest()?;
        let (address, keys) = addresses.largest()?;
        Some((PeerAddressPrefix { prefix, address }, *keys.first()?))
    }

    /// The connection with the smallest key of this address.
    pub fn smallest_key_of(&self, place: PeerAddressPrefix) -> Option<K> {
        self.prefixes.members.get(&place.prefix)?.members.get(&place.address)?.first().copied()
    }
}

/// A collection with a weight. No member of a ranking weighs 0.
trait WeightedConnectionSet: Default {
    fn weight(&self) -> usize;
}

impl<K> WeightedConnectionSet for BTreeSet<K> {
    fn weight(&self) -> usize {
        self.len()
    }
}

/// Members by name and by weight.
#[derive(Debug)]
struct PeersByConnectionCount<N, M> {
    members: HashMap<N, M>,
    by_weight: BTreeSet<(usize, N)>,
    weight: usize,
}

impl<N, M> Default for PeersByConnectionCount<N, M> {
    fn default() -> Self {
        PeersByConnectionCount { members: HashMap::new(), by_weight: BTreeSet::new(), weight: 0 }
    }
}

impl<N: Copy + Ord + Hash, M: WeightedConnectionSet> PeersByConnectionCount<N, M> {
    fn change<T>(&mut self, name: N, change: impl FnOnce(&mut M) -> T) -> T {
        let member = self.members.entry(name).or_default();
        let before = member.weight();
        let answer = change(member);
        let after = member.weight();
        self.weight = self.weight - before + after;
        self.by_weight.remove(&(before, name));
        match after {
            0 => drop(self.members.remove(&name)),
            _ => drop(self.by_weight.insert((after, name))),
        }
        answer
    }

    fn largest(&self) -> Option<(N, &M)> {
        let (_, name) = self.by_weight.last()?;
        Some((*name, self.members.get(name)?))
    }
}

impl<N: Copy + Ord + Hash, M: WeightedConnectionSet> WeightedConnectionSet for PeersByConnectionCount<N, M> {
    fn weight(&self) -> usize {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(text: &str) -> PeerAddressPrefix {
        PeerAddressPrefix::of(text.parse().unwrap())
    }

    #[test]
    fn neighbours_count_as_one() {
        assert_eq!(place("[2001:db8:1:2::1]:1"), place("[2001:db8:1:2:ffff::9]:2"));
        assert_eq!(place("[::ffff:192.0.2.1]:1"), place("192.0.2.1:9"));
        for (one, other, is_near) in [
            ("[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", true),
            ("[2001:db8:1::1]:1", "[2001:db8:2::1]:1", false),
            ("192.0.2.1:1", "192.0.2.2:1", true),
            ("192.0.2.1:1", "192.0.3.1:1", false),
        ] {
            assert_ne!(place(one), place(other));
            assert_eq!(place(one).has_same_prefix(place(other)), is_near, "{one} {other}");
        }
    }

    #[test]
    fn whoever_holds_most_makes_room_first() {
        let mut shares = ConnectionEvictionOrder::default();
        // A network of hosts with few connections, a host with many, and a host with a single connection.
        for host in 1..=10 {
            for key in 0..2 {
                shares.add(place(&format!("192.0.2.{host}:1")), host * 10 + key);
            }
        }
        (0..15).for_each(|key| shares.add(place("198.51.100.1:1"), 200 + key));
        shares.add(place("203.0.113.1:1"), 1);
        assert_eq!(
            shares.counts_of(place("192.0.2.3:1")),
            PeerConnectionCounts { of_prefix: 20, of_address: 2 }
        );
        let mut left = Vec::new();
        while let Some((at, key)) = shares.eviction_candidate() {
            assert!(shares.remove(at, key) && !shares.remove(at, key));
            left.push(key);
        }
        assert!(left[..5].iter().all(|key| (10..110).contains(key)), "the network first: {left:?}");
        assert_eq!(
            left[..6].iter().filter(|key| *key % 10 == 1 && **key < 200).count(),
            0,
            "nobody twice: {left:?}"
        );
        assert!(left[30..].contains(&1) && left.len() == 36, "{left:?}");
        assert_eq!(shares.counts_of(place("192.0.2.3:1")), PeerConnectionCounts::default());
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_what_is_held(
            steps in prop::collection::vec((0_u8..4, 0_u8..4, 0_u8..4, any::<bool>()), 0..200),
        ) {
            let mut shares = ConnectionEvictionOrder::default();
            let mut held: BTreeSet<(u8, u8, u8)> = BTreeSet::new();
            for (network, host, key, is_added) in steps {
                let at = place(&format!("10.0.{network}.{host}:1"));
                if is_added {
                    shares.add(at, key);
                    held.insert((network, host, key));
                } else {
                    prop_assert_eq!(shares.remove(at, key), held.remove(&(network, host, key)));
                }
                let of_prefix = held.iter().filter(|one| one.0 == network).count();
                let own: Vec<_> = held.iter().filter(|one| (one.0, one.1) == (network, host)).collect();
                prop_assert_eq!(shares.counts_of(at), PeerConnectionCounts { of_prefix, of_address: own.len() });
                prop_assert_eq!(shares.smallest_key_of(at), own.first().map(|one| one.2));
                let most = (0..4).map(|other| held.iter().filter(|one| one.0 == other).count()).max();
                let largest = shares.eviction_candidate().map_or(0, |(at, _)| shares.counts_of(at).of_prefix);
                prop_assert_eq!(Some(largest), most);
            }
        }
    }
}
