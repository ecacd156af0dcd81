//! Where a pair gets its chunks: from the stripe that all share (Y3), or, for the comparison, from one of its own.

use std::time::Duration;

use futures_util::future::join_all;

use crate::bus::Bus;
use crate::error::BusError;
use crate::pairs::Pair;
use crate::pairs::{Pairs, Whose};
use crate::queue::{COMMON, ChunkHead, Delivery, Puller, Queue};

/// With static striping, stripes that lost their pair are looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One pair's.
pub(super) struct Supply {
    own: Puller<ChunkHead>,
    striped: Option<Striped>,
}

/// Static striping: each stripe is one pair's. What nobody's pair has is carried by those that are done.
struct Striped {
    bus: Bus,
    queue: Queue,
    transfer: String,
    stripes: u32,
}

impl Supply {
    /// `stripes`: into how many the transfer's chunks were dealt, if they were.
    pub(super) fn new(bus: &Bus, queue: &Queue, pair: &Pair, stripes: Option<u32>) -> Supply {
        let striped = stripes.map(|stripes| Striped {
            bus: bus.clone(),
            queue: queue.clone(),
            transfer: pair.transfer.clone(),
            stripes,
        });
        let own = if striped.is_some() { stripe_of(pair) } else { COMMON };
        Supply { own: queue.chunks(own), striped }
    }

    /// Whether it has a stripe of its own.
    pub(super) fn is_striped(&self) -> bool {
        self.striped.is_some()
    }

    /// What is there at once, up to so many.
    pub(super) async fn at_once(&self, count: u64) -> Result<Vec<Delivery<ChunkHead>>, BusError> {
        let mut deliveries = Vec::new();
        let mut failed = None;
        for pulled in join_all((0..count).map(|_| self.own.next(Duration::ZERO))).await {
            match pulled {
                Ok(delivery) => deliveries.extend(delivery),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if deliveries.is_empty() => Err(error),
            _ => Ok(deliveries),
        }
    }

    /// The next one, waited for.
    pub(super) async fn wait(&self, wait: Duration) -> Result<Option<Delivery<ChunkHead>>, BusError> {
        let Some(striped) = &self.striped else { return self.own.next(wait).await };
        match striped.orphan().await? {
            Some(delivery) => Ok(Some(delivery)),
            None => self.own.next(LOOK_EVERY).await,
        }
    }
}

impl Striped {
    /// A chunk of a stripe that has no pair.
    async fn orphan(&self) -> Result<Option<Delivery<ChunkHead>>, BusError> {
        let pairs = Pairs::open(&self.bus).await?.list(Whose::Transfer(&self.transfer)).await?;
        for stripe in (1..=self.stripes).filter(|stripe| !pairs.iter().any(|pair| stripe_of(pair) == *stripe))
        {
            if let Some(delivery) = self.queue.chunks(stripe).next(Duration::ZERO).await? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }
}

fn stripe_of(pair: &Pair) -> u32 {
    pair.number + 1
}
