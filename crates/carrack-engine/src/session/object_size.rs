//! The size of a session's slots, by the object sizes that suit the storage of both ends.
//!
//! The initiator offers a range, from the size in the specification to the largest that its buffers have room
//! for; the responder, which then knows both ends' storage, chooses. A size that the user chose stays.

use carrack_model::AgreedTransferSpec;
use carrack_model::limits::SLOT_BYTES_MAX;
use carrack_wire::message::{HelloMessage, SinkHandshakeFacts, WelcomeMessage};

use crate::error::SessionError;
use crate::settings::EndSettings;

/// Fewest slots of a size above that of the specification, so that as many targets stay busy: 4 MiB in the
/// default buffers. More than all lanes need at least, so that buffers don't grow.
const LARGE_SLOT_COUNT_MIN: u32 = 64;

/// Returns the largest slots that this end has room for; 0 if they must be those of the specification.
pub(super) fn largest_slots(spec: &AgreedTransferSpec, settings: &EndSettings) -> u32 {
    if spec.has_chosen_object_size {
        return 0;
    }
    let mut slot_bytes = spec.slot_bytes;
    while slot_bytes < SLOT_BYTES_MAX as u32 && settings.slot_count(2 * slot_bytes) >= LARGE_SLOT_COUNT_MIN {
        slot_bytes *= 2;
    }
    slot_bytes
}

/// Returns the specification with slots for the objects that suit both ends; the sink's wish comes first, as
/// its targets are those that wait. A wish of 0 is none.
pub(super) fn with_agreed_slots(
    spec: &AgreedTransferSpec,
    slot_bytes_max: u32,
    source_wish: u32,
    sink_wish: u32,
) -> AgreedTransferSpec {
    let wish = if sink_wish > 0 { sink_wish } else { source_wish };
    let raised = wish.min(slot_bytes_max).checked_ilog2().map_or(0, |bits| 1 << bits);
    AgreedTransferSpec { slot_bytes: raised.max(spec.slot_bytes), ..spec.clone() }
}

/// Returns the specification with the size of slots in the responder's answer to a hello.
///
/// # Errors
/// A size that was not offered.
pub(super) fn with_slots_of_answer(
    spec: &AgreedTransferSpec,
    offered_max: u32,
    welcome: &WelcomeMessage,
) -> Result<AgreedTransferSpec, SessionError> {
    let slot_bytes = match welcome.slot_bytes {
        0 => spec.slot_bytes,
        bytes if bytes == spec.slot_bytes => bytes,
        bytes if bytes.is_power_of_two() && (spec.slot_bytes..=offered_max).contains(&bytes) => bytes,
        bytes => {
            return Err(SessionError::Protocol(format!("slots of {bytes} bytes, which were not offered")));
        }
    };
    Ok(AgreedTransferSpec { slot_bytes, ..spec.clone() })
}

/// Agrees on the slots as the responder to a hello. `own_wish` is that of the storage at this end, and
/// `sink` the facts about the sink if that is the initiator. Its credits are counted in the new slots.
pub(super) fn agree_as_responder(
    spec: &mut AgreedTransferSpec,
    settings: &EndSettings,
    own_wish: u32,
    hello: &mut HelloMessage,
) {
    spec.has_chosen_object_size = hello.has_chosen_object_size;
    let most = largest_slots(spec, settings).min(hello.slot_bytes_max);
    let agreed = match &hello.sink {
        Some(sink) => with_agreed_slots(spec, most, own_wish, sink.object_bytes),
        None => with_agreed_slots(spec, most, hello.object_bytes, own_wish),
    };
    if let Some(sink) = &mut hello.sink {
        count_in_slots(sink, spec.slot_bytes, agreed.slot_bytes);
    }
    *spec = agreed;
}

/// Converts a sink's credits to larger slots.
fn count_in_slots(sink: &mut SinkHandshakeFacts, from_bytes: u32, to_bytes: u32) {
    assert!(to_bytes >= from_bytes && from_bytes > 0, "slots only grow at the handshake");
    sink.credits /= to_bytes / from_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    fn spec() -> AgreedTransferSpec {
        AgreedTransferSpec::default()
    }

    #[test]
    fn slots_grow_as_far_as_the_buffers_have_room_for_many() {
        let largest = |pool_bytes, spec: &AgreedTransferSpec| {
            largest_slots(spec, &EndSettings { pool_bytes, ..EndSettings::default() })
        };
        for (pool_mib, slot_mib) in [(4, 1), (127, 1), (128, 2), (256, 4), (1 << 20, 64)] {
            assert_eq!(largest(pool_mib << 20, &spec()), slot_mib * MIB, "{pool_mib}");
        }
        let chosen = AgreedTransferSpec { has_chosen_object_size: true, ..spec() };
        assert_eq!(largest(1 << 30, &chosen), 0);
    }

    #[test]
    fn the_sinks_wish_comes_first() {
        let agreed = |most, source, sink| with_agreed_slots(&spec(), most, source, sink).slot_bytes / MIB;
        assert_eq!(agreed(4 * MIB, 0, 0), 1);
        assert_eq!(agreed(4 * MIB, 4 * MIB, 0), 4);
        assert_eq!(agreed(4 * MIB, 4 * MIB, MIB), 1);
        assert_eq!(agreed(4 * MIB, 0, 16 * MIB), 4);
        assert_eq!(agreed(4 * MIB, 0, 3 * MIB), 2, "a power of two");
        assert_eq!(agreed(0, 4 * MIB, 4 * MIB), 1);
    }

    #[test]
    fn an_initiator_gets_what_it_offered() {
        let answer = |slot_bytes| {
            let welcome = WelcomeMessage { slot_bytes, ..WelcomeMessage::default() };
            with_slots_of_answer(&spec(), 4 * MIB, &welcome).map(|spec| spec.slot_bytes / MIB).ok()
        };
        assert_eq!([0, MIB, 4 * MIB].map(answer), [Some(1), Some(1), Some(4)]);
        assert_eq!([8 * MIB, 3 * MIB, 1, u32::MAX].map(answer), [None; 4]);
        let as_before = WelcomeMessage { slot_bytes: MIB, ..WelcomeMessage::default() };
        assert!(with_slots_of_answer(&spec(), 0, &as_before).is_ok(), "nothing was offered");
    }

    #[test]
    fn a_responder_counts_the_sinks_credits_in_the_agreed_slots() {
        let sink = SinkHandshakeFacts { credits: 256, object_bytes: 4 * MIB, ..Default::default() };
        let offer = HelloMessage { sink: Some(sink), slot_bytes_max: 4 * MIB, ..Default::default() };
        let agree = |mut hello: HelloMessage| {
            let mut spec = spec();
            agree_as_responder(&mut spec, &EndSettings::default(), 0, &mut hello);
            (spec.slot_bytes / MIB, hello.sink.map_or(0, |sink| sink.credits))
        };
        assert_eq!(agree(offer.clone()), (4, 64));
        assert_eq!(
            agree(HelloMessage { slot_bytes_max: 0, ..offer.clone() }),
            (1, 256),
            "an older initiator"
        );
        let to_sink = HelloMessage { sink: None, object_bytes: 2 * MIB, ..offer };
        assert_eq!(agree(to_sink), (2, 0));
    }
}
