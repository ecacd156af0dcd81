//! Connections that nobody answers for yet: each costs a descriptor and a few bytes here, and their number is bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// An address for counting. Of IPv6 it is the /64, which is what one customer has at least (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbourhood(IpAddr);

impl Neighbourhood {
    /// Where a peer is.
    pub fn of(peer: SocketAddr) -> Neighbourhood {
        Neighbourhood(match peer.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// How many each address has of something.
#[derive(Debug, Default)]
pub struct Counts(HashMap<Neighbourhood, usize>);

impl Counts {
    /// One more.
    pub fn add(&mut self, place: Neighbourhood) {
        *self.0.entry(place).or_default() += 1;
    }

    /// One less.
    pub fn remove(&mut self, place: Neighbourhood) {
        if let Some(count) = self.0.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&place);
            }
        }
    }

    /// How many.
    pub fn of(&self, place: Neighbourhood) -> usize {
        self.0.get(&place).copied().unwrap_or(0)
    }
}

/// A connection that has not said what it is, or a control connection that waits for its process.
#[derive(Debug)]
pub struct HalfOpen {
    /// The connection.
    pub stream: TcpStream,
    /// From where.
    pub peer: SocketAddr,
    /// Since when.
    pub since: Instant,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub struct Strangers {
    by_age: BTreeMap<u64, HalfOpen>,
    /// Those that are control connections.
    waiting: BTreeSet<u64>,
    next: u64,
}

impl Strangers {
    /// One more; its number.
    pub fn add(&mut self, stream: TcpStream, peer: SocketAddr, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, HalfOpen { stream, peer, since: now });
        number
    }

    /// The one of this number, if it is still there.
    pub fn get(&self, number: u64) -> Option<&HalfOpen> {
        self.by_age.get(&number)
    }

    /// It is a control connection, and waits for its process.
    pub fn let_wait(&mut self, number: u64) {
        if self.by_age.contains_key(&number) {
            self.waiting.insert(number);
        }
    }

    /// Takes it out.
    pub fn take(&mut self, number: u64) -> Option<HalfOpen> {
        self.waiting.remove(&number);
        self.by_age.remove(&number)
    }

    /// Takes the oldest out.
    pub fn take_oldest(&mut self) -> Option<HalfOpen> {
        let (&number, _) = self.by_age.first_key_value()?;
        self.take(number)
    }

    /// Takes the oldest out if it is older than `patience`.
    pub fn take_overdue(&mut self, patience: Duration, now: Instant) -> Option<HalfOpen> {
        let (&number, oldest) = self.by_age.first_key_value()?;
        let is_overdue = now.saturating_duration_since(oldest.since) >= patience;
        if is_overdue { self.take(number) } else { None }
    }

    /// The control connections, the one that has waited longest first.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, &HalfOpen)> {
        self.waiting.iter().filter_map(|&number| Some((number, self.by_age.get(&number)?)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn neighbours_count_as_one() {
        let place = |text: &str| Neighbourhood::of(text.parse().unwrap());
        assert_eq!(place("[2001:db8:1:2::1]:1"), place("[2001:db8:1:2:ffff::9]:2"));
        assert_ne!(place("[2001:db8:1:2::1]:1"), place("[2001:db8:1:3::1]:1"));
        assert_eq!(place("[::ffff:192.0.2.1]:1"), place("192.0.2.1:9"));
        assert_ne!(place("192.0.2.1:1"), place("192.0.2.2:1"));
        let mut counts = Counts::default();
        let here = place("192.0.2.1:1");
        counts.add(here);
        counts.add(here);
        counts.remove(here);
        assert_eq!(counts.of(here), 1);
        counts.remove(here);
        counts.remove(here);
        assert_eq!((counts.of(here), counts.0.len()), (0, 0));
    }

    #[test]
    fn the_oldest_goes_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let start = Instant::now();
        let mut strangers = Strangers::default();
        let numbers: Vec<u64> = (0..3)
            .map(|second| {
                let stream = TcpStream::connect(address).unwrap();
                strangers.add(stream, address, start + Duration::from_secs(second))
            })
            .collect();
        let patience = Duration::from_secs(10);
        assert!(strangers.take_overdue(patience, start + Duration::from_secs(9)).is_none());
        let overdue = strangers.take_overdue(patience, start + Duration::from_secs(10)).unwrap();
        assert_eq!(overdue.since, start);
        assert_eq!(strangers.waiting().count(), 0);
        strangers.let_wait(numbers[2]);
        assert!(strangers.waiting().map(|(number, _)| number).eq([numbers[2]]));
        assert_eq!(strangers.take_oldest().unwrap().since, start + Duration::from_secs(1));
        assert!(strangers.take(numbers[2]).is_some() && strangers.take(numbers[2]).is_none());
        strangers.let_wait(numbers[2]);
        assert_eq!(strangers.waiting().count(), 0, "who is gone waits for nothing");
        assert_eq!(strangers.len(), 0);
    }
}
