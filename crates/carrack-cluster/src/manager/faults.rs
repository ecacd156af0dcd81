//! Faults of movers, as reported by their pairs and scans: the quarantine of a mover, and its notification.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_plan::fleet::{MoverFault, MoverQuarantine};

use super::FleetManager;
use crate::mover_requests::{MoverRequest, send_mover_request};

/// Timeout of a notification, to which the mover only acknowledges.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// Time after which a mover that sees another storage is notified.
const ODD_AFTER: Duration = Duration::from_secs(3);

/// Time for which a fault is shown, though the mover is tried again sooner: until it has succeeded.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// Time after which a notification about another storage expires at the mover.
const ODD_FOR: Duration = Duration::from_secs(600);

impl FleetManager {
    /// Handles a mover's fault: the mover is left out for a while, and notified.
    pub(super) fn handle_fault(self: &Arc<Self>, fault: &MoverFault) {
        let now = self.now();
        let (mover, illness) = {
            let mut health = self.health();
            let mover = health.record_fault(now, fault);
            let illness = health.quarantine_of(now, &fault.transfer, &mover).cloned();
            (mover, illness)
        };
        let Some(MoverQuarantine { reason, until, .. }) = illness else { return };
        let left_out_for = until.saturating_sub(now);
        self.notify_user(format!(
            "transfer {}: {mover} is in quarantine for {} s: {reason}",
            fault.transfer,
            left_out_for.as_secs()
        ));
        self.notify_quarantine(mover, reason, left_out_for.max(SHOWN_FOR));
        self.changed.notify_one();
    }

    /// Records that a mover has settled a chunk.
    pub(super) fn record_success(self: &Arc<Self>, transfer: &str, mover: &str) {
        let now = self.now();
        if self.health().record_success(now, transfer, mover) {
            self.notify_quarantine(mover.to_owned(), String::new(), Duration::ZERO);
        }
    }

    /// Notifies movers that see another storage than the others of their site, and again when that is over.
    /// Not at once: a mover that has just started may differ for a moment.
    pub(super) fn notify_storage_mismatches(self: &Arc<Self>, odd: HashMap<String, String>) {
        let mut told = Vec::new();
        {
            let known = &mut self.lock_state().odd;
            known.retain(|mover, (_, was_told)| {
                let stays = odd.contains_key(mover);
                if !stays && *was_told {
                    told.push((mover.clone(), String::new()));
                }
                stays
            });
            for (mover, reason) in odd {
                let (since, was_told) = known.entry(mover.clone()).or_insert_with(|| (Instant::now(), false));
                if !*was_told && since.elapsed() > ODD_AFTER {
                    *was_told = true;
                    told.push((mover, reason));
                }
            }
        }
        for (mover, reason) in told {
            if !reason.is_empty() {
                self.notify_user(format!("{mover} is in quarantine: {reason}"));
            }
            self.notify_quarantine(mover, reason, ODD_FOR);
        }
    }

    fn notify_quarantine(self: &Arc<Self>, mover: String, reason: String, time: Duration) {
        let manager = Arc::clone(self);
        tokio::spawn(async move {
            let for_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            // It is for people only.
            let _ = send_mover_request(
                &manager.bus,
                &mover,
                &MoverRequest::LeftOut { reason, for_ms },
                HEARD_WITHIN,
            )
            .await;
        });
    }
}
