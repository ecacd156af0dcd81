//! Layouts on the wire: the sink's, by which the source knows the target of each object, and the source's, by
//! which the sink stripes a file alike.

use carrack_layout::StripeGeometry;
use carrack_model::TargetId;
use carrack_plan::{BlockMapLayout, Layout};
use carrack_wire::message::{SinkFileLayoutMessage, StripingMessage};

/// Blocks that are sent: a layout that has not repeated itself by then is assumed to begin again.
const BLOCKS_MAX: usize = 2_000;

/// Smallest block: no parallel file system has smaller stripes.
const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// Returns the sink's message about a file of `size` bytes.
pub(crate) fn to_message(id: u64, layout: &dyn Layout, size: u64) -> SinkFileLayoutMessage {
    let mut block_bytes = size.max(1);
    let mut offset = 0;
    for _ in 0..BLOCKS_MAX {
        let end = layout.extent_at(offset).end;
        if end >= size {
            break;
        }
        block_bytes = block_bytes.min(end - offset);
        offset = end;
    }
    let block_bytes = block_bytes.max(BLOCK_BYTES_MIN);
    let blocks = (0..size.max(1)).step_by(usize::try_from(block_bytes).unwrap_or(usize::MAX));
    let targets: Vec<u64> = blocks.take(BLOCKS_MAX).map(|offset| layout.extent_at(offset).target.0).collect();
    let period = (1..targets.len()).find(|&period| targets[period..] == targets[..targets.len() - period]);
    SinkFileLayoutMessage { id, block_bytes, targets: targets[..period.unwrap_or(targets.len())].to_vec() }
}

/// Returns the layout of a message, or `None` if it is invalid.
pub(crate) fn to_layout(message: &SinkFileLayoutMessage) -> Option<Box<dyn Layout>> {
    if message.targets.len() > BLOCKS_MAX {
        return None;
    }
    let targets: Vec<TargetId> = message.targets.iter().copied().map(TargetId).collect();
    BlockMapLayout::new(&targets, message.block_bytes).map(|layout| Box::new(layout) as Box<dyn Layout>)
}

/// Returns the message about a file's striping at the source, from which the sink preserves it.
pub(crate) fn stripes_to_message(geometry: &StripeGeometry) -> Option<StripingMessage> {
    let widest = geometry.widest()?;
    Some(StripingMessage {
        count: widest.stripe_count,
        stripe_bytes: widest.stripe_bytes,
        pool: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_plan::{CompositeLayout, SingleTarget, StripedLayout};

    fn striped(targets: &[u64], stripe_bytes: u64) -> StripedLayout {
        StripedLayout::new(targets.iter().copied().map(TargetId).collect(), stripe_bytes).unwrap()
    }

    #[test]
    fn what_is_told_is_understood() {
        let mib = 1 << 20;
        let composite =
            CompositeLayout::new(vec![(mib, striped(&[9], mib)), (0, striped(&[1, 2], 4 * mib))]).unwrap();
        let layouts: [(&dyn Layout, usize); 3] =
            [(&SingleTarget { target: TargetId(7) }, 1), (&striped(&[3, 1, 2], mib), 3), (&composite, 50)];
        for (layout, told) in layouts {
            let size = 50 * mib;
            let message = to_message(1, layout, size);
            assert_eq!(message.targets.len(), told, "{layout:?}");
            let understood = to_layout(&message).unwrap();
            for offset in (0..size).step_by(300_000) {
                assert_eq!(understood.extent_at(offset).target, layout.extent_at(offset).target, "{offset}");
            }
        }
    }

    #[test]
    fn nonsense_is_no_layout() {
        for (block_bytes, count, is_layout) in
            [(0, 1, false), (1, 0, false), (1, BLOCKS_MAX + 1, false), (1, BLOCKS_MAX, true)]
        {
            let message = SinkFileLayoutMessage { id: 1, block_bytes, targets: vec![1; count] };
            assert_eq!(to_layout(&message).is_some(), is_layout, "{block_bytes} {count}");
        }
    }
}
