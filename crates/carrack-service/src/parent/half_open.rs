//! Half-open connections, which no session has taken yet: each costs a descriptor and a few bytes here, and
//! their number is bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use carrack_transport::{ConnectionEvictionOrder, PeerAddressPrefix};

/// A control connection whose first record has arrived waits for its process this many times as long as
/// others may take for their first bytes.
const WAITING_PATIENCE: u32 = 3;

/// Counts of connections by address and prefix.
#[derive(Debug, Default)]
pub struct AddressCounts(HashMap<PeerAddressPrefix, usize>);

impl AddressCounts {
    /// Counts one more.
    pub fn add(&mut self, place: PeerAddressPrefix) {
        *self.0.entry(place).or_default() += 1;
    }

    /// Counts one less.
    pub fn remove(&mut self, place: PeerAddressPrefix) {
        if let Some(count) = self.0.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&place);
            }
        }
    }

    /// Returns the count.
    pub fn count(&self, place: PeerAddressPrefix) -> usize {
        self.0.get(&place).copied().unwrap_or(0)
    }
}

/// A connection whose kind is not known yet, or a control connection that waits for its process.
#[derive(Debug)]
pub struct HalfOpenConnection {
    /// The connection.
    pub stream: TcpStream,
    /// The client's address.
    pub peer: SocketAddr,
    /// Time of its acceptance.
    pub since: Instant,
}

/// All half-open connections, the oldest first.
#[derive(Debug, Default)]
pub struct HalfOpenConnections {
    by_age: BTreeMap<u64, HalfOpenConnection>,
    /// Connections of unknown kind.
    silent: BTreeSet<u64>,
    /// Control connections.
    waiting: BTreeSet<u64>,
    /// True for a waiting control connection, with its number. Silent connections make room first, the oldest
    /// first.
    shares: ConnectionEvictionOrder<(bool, u64)>,
    next: u64,
}

impl HalfOpenConnections {
    /// Adds a connection and returns its number.
    pub fn add(&mut self, stream: TcpStream, peer: SocketAddr, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, HalfOpenConnection { stream, peer, since: now });
        self.silent.insert(number);
        self.shares.add(PeerAddressPrefix::of(peer), (false, number));
        number
    }

    /// Returns the connection of this number, if there is any.
    pub fn get(&self, number: u64) -> Option<&HalfOpenConnection> {
        self.by_age.get(&number)
    }

    /// Marks a connection as a control connection that waits for its process.
    pub fn mark_waiting(&mut self, number: u64) {
        let Some(stranger) = self.by_age.get(&number) else { return };
        let place = PeerAddressPrefix::of(stranger.peer);
        self.silent.remove(&number);
        self.waiting.insert(number);
        self.shares.remove(place, (false, number));
        self.shares.add(place, (true, number));
    }

    /// Removes and returns a connection.
    pub fn take(&mut self, number: u64) -> Option<HalfOpenConnection> {
        let taken = self.by_age.remove(&number)?;
        self.silent.remove(&number);
        let is_waiting = self.waiting.remove(&number);
        self.shares.remove(PeerAddressPrefix::of(taken.peer), (is_waiting, number));
        Some(taken)
    }

    /// Removes and returns a connection of the prefix with the most.
    pub fn take_of_largest(&mut self) -> Option<HalfOpenConnection> {
        let (_, (_, number)) = self.shares.eviction_candidate()?;
        self.take(number)
    }

    /// Removes and returns the oldest silent connection of an address.
    pub fn take_silent_of(&mut self, place: PeerAddressPrefix) -> Option<HalfOpenConnection> {
        match self.shares.smallest_key_of(place)? {
            (false, number) => self.take(number),
            (true, _) => None,
        }
    }

    /// Removes and returns a connection that is older than `patience` if it is silent, or than three times
    /// that if it waits for a process.
    pub fn take_overdue(&mut self, patience: Duration, now: Instant) -> Option<HalfOpenConnection> {
        let oldest = [(self.silent.first(), patience), (self.waiting.first(), patience * WAITING_PATIENCE)];
        let (number, _) = oldest.into_iter().find(|(number, patience)| {
            let oldest = number.and_then(|number| self.by_age.get(number));
            oldest.is_some_and(|oldest| now.saturating_duration_since(oldest.since) >= *patience)
        })?;
        let number = *number?;
        self.take(number)
    }

    /// Returns the control connections, those that have waited longest first.
    pub fn waiting_connections(&self) -> impl Iterator<Item = (u64, &HalfOpenConnection)> {
        self.waiting.iter().filter_map(|&number| Some((number, self.by_age.get(&number)?)))
    }

    /// Returns the number of half-open connections.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Creates as many connections of each of these addresses, one second after each other.
    fn strangers(addresses: &[&str], start: Instant) -> (HalfOpenConnections, Vec<u64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let mut strangers = HalfOpenConnections::default();
        let numbers = addresses.iter().zip(0..).map(|(address, second)| {
            let peer = format!("{address}:1").parse().unwrap();
            strangers.add(TcpStream::connect(here).unwrap(), peer, start + Duration::from_secs(second))
        });
        let numbers = numbers.collect();
        (strangers, numbers)
    }

    #[test]
    fn what_is_counted_is_forgotten_at_the_end() {
        let mut counts = AddressCounts::default();
        let here = PeerAddressPrefix::of("192.0.2.1:1".parse().unwrap());
        counts.add(here);
        counts.add(here);
        counts.remove(here);
        assert_eq!(counts.count(here), 1);
        counts.remove(here);
        counts.remove(here);
        assert_eq!((counts.count(here), counts.0.len()), (0, 0));
    }

    #[test]
    fn the_oldest_is_overdue_first_and_one_that_waits_has_longer() {
        let start = Instant::now();
        let (mut strangers, numbers) = strangers(&["192.0.2.1"; 3], start);
        let patience = Duration::from_secs(10);
        const SECOND: Duration = Duration::from_secs(1);
        assert!(strangers.take_overdue(patience, start + SECOND * 9).is_none());
        assert_eq!(strangers.take_overdue(patience, start + SECOND * 10).unwrap().since, start);
        assert_eq!(strangers.waiting_connections().count(), 0);
        strangers.mark_waiting(numbers[1]);
        assert!(strangers.waiting_connections().map(|(number, _)| number).eq([numbers[1]]));
        assert_eq!(strangers.take_overdue(patience, start + SECOND * 12).unwrap().since, start + SECOND * 2);
        assert!(strangers.take_overdue(patience, start + SECOND * 30).is_none());
        assert!(strangers.take_overdue(patience, start + SECOND * 31).is_some() && strangers.len() == 0);
        strangers.mark_waiting(numbers[2]);
        assert_eq!(strangers.waiting_connections().count(), 0, "who is gone waits for nothing");
    }

    #[test]
    fn whoever_has_most_makes_room_and_what_is_silent_first() {
        let addresses = ["192.0.2.1", "198.51.100.1", "198.51.100.1", "198.51.100.1"];
        let (mut strangers, numbers) = strangers(&addresses, Instant::now());
        strangers.mark_waiting(numbers[1]);
        assert!(strangers.take_of_largest().is_some() && strangers.get(numbers[2]).is_none());
        let place = PeerAddressPrefix::of("198.51.100.1:9".parse().unwrap());
        assert!(strangers.take_silent_of(place).is_some() && strangers.get(numbers[3]).is_none());
        assert!(strangers.take_silent_of(place).is_none(), "one that waits stays");
        assert!(strangers.take(numbers[1]).is_some() && strangers.take(numbers[1]).is_none());
        assert!(strangers.take_of_largest().is_some() && strangers.take_of_largest().is_none());
    }
}
