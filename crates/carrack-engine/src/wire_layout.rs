//! Layouts on the wire: the sink's, by which the source knows the target of each object, and the source's, by
//! which the sink stripes a file alike.

use carrack_layout::{ComponentGeometry, StripeGeometry, StripePattern};
use carrack_model::TargetId;
use carrack_plan::{BlockMapLayout, Layout};
use carrack_wire::message::{ComponentStripingMessage, SinkFileLayoutMessage, StripingMessage};

/// Blocks that are sent: a layout that has not repeated itself by then is assumed to begin again.
const BLOCKS_MAX: usize = 2_000;

/// Components that are taken from a message; Lustre's own limit is about half of that.
const COMPONENTS_MAX: usize = 512;

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

/// Returns the message about a striping at the source, from which the sink preserves it.
pub(crate) fn stripes_to_message(geometry: &StripeGeometry) -> StripingMessage {
    let components = if geometry.is_plain() { &[] } else { &geometry.components[..] };
    let widest = geometry.widest();
    StripingMessage {
        count: widest.map_or(0, |widest| widest.stripe_count),
        stripe_bytes: widest.map_or(0, |widest| widest.stripe_bytes),
        pool: widest.and_then(|widest| widest.pool.clone()).unwrap_or_default(),
        components: components.iter().map(component_to_message).collect(),
        mirrors: geometry.mirrors,
    }
}

fn component_to_message(component: &ComponentGeometry) -> ComponentStripingMessage {
    ComponentStripingMessage {
        start: component.start,
        end: component.end,
        count: component.stripe_count,
        stripe_bytes: component.stripe_bytes,
        pool: component.pool.clone().unwrap_or_default(),
        pattern: match component.pattern {
            StripePattern::Striped | StripePattern::Objects | StripePattern::Whole => 0,
            StripePattern::Overstriped => 1,
            StripePattern::Metadata => 2,
            StripePattern::Extending => 3,
        },
    }
}

/// Returns the striping of a message. Values that make no sense are refused by the sink's file system.
pub(crate) fn stripes_of_message(message: &StripingMessage) -> StripeGeometry {
    let pool_of = |pool: &str| (!pool.is_empty()).then(|| pool.to_owned());
    let whole = ComponentGeometry {
        start: 0,
        end: u64::MAX,
        stripe_bytes: message.stripe_bytes,
        stripe_count: message.count,
        pool: pool_of(&message.pool),
        pattern: StripePattern::Striped,
    };
    let components = message.components.iter().take(COMPONENTS_MAX).map(|component| ComponentGeometry {
        start: component.start,
        end: component.end,
        stripe_bytes: component.stripe_bytes,
        stripe_count: component.count,
        pool: pool_of(&component.pool),
        pattern: match component.pattern {
            1 => StripePattern::Overstriped,
            2 => StripePattern::Metadata,
            3 => StripePattern::Extending,
            _ => StripePattern::Striped,
        },
    });
    let components = if message.components.is_empty() { vec![whole] } else { components.collect() };
    StripeGeometry { components, mirrors: message.mirrors }
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
    fn a_striping_survives_its_message() {
        let part = |start, end, stripe_count, pattern, pool: Option<&str>| ComponentGeometry {
            start,
            end,
            stripe_bytes: 1 << 20,
            stripe_count,
            pool: pool.map(str::to_owned),
            pattern,
        };
        let parts = vec![
            part(0, 1 << 20, 0, StripePattern::Metadata, None),
            part(1 << 20, 1 << 26, 1, StripePattern::Extending, Some("flash")),
            part(1 << 26, u64::MAX, 8, StripePattern::Overstriped, None),
        ];
        for components in [
            parts.clone(),
            vec![part(0, u64::MAX, 4, StripePattern::Striped, Some("flash"))],
            vec![part(0, u64::MAX, 9, StripePattern::Overstriped, None)],
            vec![part(0, 1 << 20, 0, StripePattern::Metadata, None)],
        ] {
            let geometry = StripeGeometry { components, mirrors: 2 };
            let message = stripes_to_message(&geometry);
            assert_eq!(stripes_of_message(&message), geometry);
            assert_eq!(StripingMessage::from_bytes(&message.to_bytes()), Ok(message));
        }
        let message = stripes_to_message(&StripeGeometry { components: parts, mirrors: 1 });
        assert_eq!(
            (message.count, message.stripe_bytes, &*message.pool),
            (8, 1 << 20, ""),
            "for older sinks"
        );
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
