//! Objects in flight: the work of each by its ID, until the sink has acked it.
//!
//! I/O threads add objects, the comm thread takes them, and a spill's threads read them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_model::ObjectId;
use carrack_model::limits::SPILLED_OBJECTS_MAX;

use super::work::{ObjectFlowControlKey, SentObject};

/// An object without a final ack.
struct UnacknowledgedObject {
    sent: SentObject,
    /// The sink has put the object on flash. It occupies no slot there, and its credit has been returned.
    is_set_aside: bool,
}

/// An object that was acked, or will not be sent.
pub(super) struct SettledObject {
    pub(super) sent: SentObject,
    /// The place that the object has left, if places are counted.
    pub(super) left: Option<ObjectFlowControlKey>,
    /// Credits that its ack returns.
    pub(super) credits: u64,
}

/// The objects of one lane.
pub(super) struct InFlightObjects {
    posted: Mutex<HashMap<ObjectId, UnacknowledgedObject>>,
    /// The number of objects on the sink's flash.
    set_aside: AtomicUsize,
    next_id: AtomicU64,
    /// Objects that have an ID and will not be sent.
    withdrawn: AtomicU64,
    answered: AtomicU64,
}

impl Default for InFlightObjects {
    fn default() -> InFlightObjects {
        InFlightObjects {
            posted: Mutex::default(),
            set_aside: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            withdrawn: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }
}

impl InFlightObjects {
    fn posted(&self) -> MutexGuard<'_, HashMap<ObjectId, UnacknowledgedObject>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ID of the next object.
    pub(super) fn next_id(&self) -> ObjectId {
        ObjectId(self.next_id.fetch_add(1, Relaxed))
    }

    /// Adds an object that is about to be sent.
    pub(super) fn post(&self, object: ObjectId, sent: SentObject) {
        assert!(object.0 < self.next_id.load(Relaxed), "an object has an id that was given out");
        let before = self.posted().insert(object, UnacknowledgedObject { sent, is_set_aside: false });
        assert!(before.is_none(), "each object has an id of its own");
    }

    /// Takes an object that was acked, or will not be sent. Returns `None` if there is no such object.
    pub(super) fn take(&self, object: ObjectId) -> Option<SettledObject> {
        let UnacknowledgedObject { sent, is_set_aside } = self.posted().remove(&object)?;
        if is_set_aside {
            let before = self.set_aside.fetch_sub(1, Relaxed);
            assert!(before > 0, "each object on flash is counted once");
        }
        let left = if is_set_aside { None } else { sent.flow_control_key() };
        Some(SettledObject { sent, left, credits: u64::from(!is_set_aside) })
    }

    /// Counts an object that will not be sent.
    pub(super) fn withdraw(&self) {
        let before = self.withdrawn.fetch_add(1, Relaxed);
        assert!(before + 1 < self.next_id.load(Relaxed), "each object is withdrawn once");
    }

    /// Notes that the sink has put an object on flash, and returns its place. Returns `None` if the sink may
    /// not: the object was never sent, is on flash already, or flash holds its maximum.
    pub(super) fn set_aside(&self, object: ObjectId) -> Option<Option<ObjectFlowControlKey>> {
        let mut posted = self.posted();
        let posted = posted.get_mut(&object).filter(|posted| !posted.is_set_aside)?;
        posted.is_set_aside = true;
        (self.set_aside.fetch_add(1, Relaxed) < SPILLED_OBJECTS_MAX).then(|| posted.sent.flow_control_key())
    }

    /// Counts acked objects.
    pub(super) fn note_answered(&self, count: usize) {
        self.answered.fetch_add(count as u64, Relaxed);
    }

    /// Returns the place of an object without an ack, if places are counted.
    pub(super) fn flow_control_key(&self, object: ObjectId) -> Option<ObjectFlowControlKey> {
        self.posted().get(&object).and_then(|posted| posted.sent.flow_control_key())
    }

    /// Returns the bytes of work of an object, or 0 after its ack.
    pub(super) fn work_bytes(&self, object: ObjectId) -> u64 {
        self.posted().get(&object).map_or(0, |posted| posted.sent.work_bytes())
    }

    /// Objects without an ack.
    pub(super) fn count(&self) -> usize {
        self.posted().len()
    }

    /// Objects posted so far, except those that were withdrawn.
    pub(super) fn sent_count(&self) -> u64 {
        self.next_id.load(Relaxed) - 1 - self.withdrawn.load(Relaxed)
    }

    /// Objects that the sink has acked.
    pub(super) fn answered_count(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::TargetId;

    use super::*;
    use crate::source::work::BundleReadWork;

    fn bundle() -> SentObject {
        let bundle =
            carrack_plan::Bundle { sections: Vec::new(), content_bytes: 7, table_bytes: 0, entry_count: 0 };
        SentObject::Bundle(TargetId(3), BundleReadWork { bundle, attempts: 0, is_rest: false, chunk: None })
    }

    #[test]
    fn an_object_is_answered_once() {
        let in_flight = InFlightObjects::default();
        let object = in_flight.next_id();
        in_flight.post(object, bundle());
        assert_eq!((in_flight.count(), in_flight.work_bytes(object)), (1, 7));
        let taken = in_flight.take(object).unwrap();
        assert_eq!((taken.credits, taken.left), (1, Some(ObjectFlowControlKey::Bundles(TargetId(3)))));
        assert!(in_flight.take(object).is_none());
        assert_eq!((in_flight.count(), in_flight.sent_count()), (0, 1));
    }

    #[test]
    fn what_is_on_flash_is_on_no_way_and_has_given_its_credit_back() {
        let in_flight = InFlightObjects::default();
        let object = in_flight.next_id();
        assert!(in_flight.set_aside(object).is_none(), "it was not sent");
        in_flight.post(object, bundle());
        assert_eq!(in_flight.set_aside(object), Some(Some(ObjectFlowControlKey::Bundles(TargetId(3)))));
        assert!(in_flight.set_aside(object).is_none(), "it is there already");
        let taken = in_flight.take(object).unwrap();
        assert_eq!((taken.credits, taken.left), (0, None));
    }

    #[test]
    fn as_many_are_on_flash_as_may_be() {
        let in_flight = InFlightObjects::default();
        let objects: Vec<_> = (0..=SPILLED_OBJECTS_MAX).map(|_| in_flight.next_id()).collect();
        objects.iter().for_each(|&object| in_flight.post(object, bundle()));
        let (last, others) = objects.split_last().unwrap();
        assert!(others.iter().all(|&object| in_flight.set_aside(object).is_some()));
        assert!(in_flight.set_aside(*last).is_none());
    }

    #[test]
    fn what_was_withdrawn_was_not_sent() {
        let in_flight = InFlightObjects::default();
        let object = in_flight.next_id();
        in_flight.post(object, bundle());
        in_flight.withdraw();
        assert!(in_flight.take(object).is_some());
        assert_eq!(in_flight.sent_count(), 0);
    }
}
