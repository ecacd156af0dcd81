//! Extends the deliveries that a pair holds, and ends the pair's session when that fails (fencing, decision
//! 18).
//!
//! Runs as a task of its own, so that no wait for NATS delays it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_engine::{AbortHandle, since_boot};
use carrack_plan::fleet::HeldQueueDeliveries;
use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, timeout};

use crate::queue::{ACK_WAIT, DeliveryAcker};

/// The interval between two looks.
const TICK: Duration = Duration::from_millis(500);

/// The time limit of a confirmation by NATS, after which it is asked again.
const CONFIRM_WITHIN: Duration = Duration::from_secs(3);

/// The deliveries of a pair.
pub(super) struct AckExtender {
    kept: Mutex<ExtendedDeliveries>,
}

struct ExtendedDeliveries {
    deliveries: HeldQueueDeliveries,
    ackers: HashMap<u64, DeliveryAcker>,
}

impl AckExtender {
    pub fn new() -> AckExtender {
        let kept =
            ExtendedDeliveries { deliveries: HeldQueueDeliveries::new(ACK_WAIT), ackers: HashMap::new() };
        AckExtender { kept: Mutex::new(kept) }
    }

    fn lock_deliveries(&self) -> MutexGuard<'_, ExtendedDeliveries> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes charge of a delivery from `at`, by the clock of [`since_boot`].
    pub fn add_delivery(&self, number: u64, acker: DeliveryAcker, at: Duration) {
        let mut kept = self.lock_deliveries();
        kept.deliveries.add(number, at);
        kept.ackers.insert(number, acker);
    }

    /// Ends the charge: the delivery is acknowledged, or returned.
    pub fn remove_delivery(&self, number: u64) {
        let mut kept = self.lock_deliveries();
        kept.deliveries.remove(number);
        kept.ackers.remove(&number);
    }

    /// Returns true if another pair may have the delivery by now: see
    /// [`HeldQueueDeliveries::may_be_redelivered`].
    pub fn may_be_redelivered(&self, number: u64) -> bool {
        self.lock_deliveries().deliveries.may_be_redelivered(number, since_boot())
    }

    /// Extends the deliveries until it is aborted. Interrupts the session when other pairs may soon have
    /// them.
    pub async fn extend_until_aborted(self: Arc<Self>, abort: AbortHandle) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.lock_deliveries().deliveries.is_lost(since_boot()) {
                return abort.interrupt();
            }
            let sent_at = since_boot();
            let due: Vec<(u64, DeliveryAcker)> = {
                let mut kept = self.lock_deliveries();
                let numbers = kept.deliveries.extend(sent_at);
                numbers
                    .into_iter()
                    .filter_map(|number| Some((number, kept.ackers.get(&number)?.clone())))
                    .collect()
            };
            let extended = due.into_iter().map(|(number, acker)| async move {
                timeout(CONFIRM_WITHIN, acker.in_progress())
                    .await
                    .is_ok_and(|told| told.is_ok())
                    .then_some(number)
            });
            for number in join_all(extended).await.into_iter().flatten() {
                self.lock_deliveries().deliveries.confirm(number, sent_at);
            }
        }
    }
}
