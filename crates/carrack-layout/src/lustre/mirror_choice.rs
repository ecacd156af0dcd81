//! The mapping from a Lustre layout to the targets of a reader.
//!
//! Chooses one whole mirror, turns its components into ranges over named targets, and reports the data
//! without a known target.

use carrack_model::TargetId;
use carrack_plan::{CompositeLayout, StripedLayout};

use super::LustreFileTargets;
use super::blob::{LovComponent, LovFile, LovStripes};
use crate::provider::FoundLayout;
use crate::{ComponentGeometry, StripeGeometry, StripePattern};

/// The layout of a file of `size` bytes.
pub(super) fn resolve_layout(file: &LovFile, size: u64, targets: &LustreFileTargets<'_>) -> FoundLayout {
    match file {
        LovFile::Plain(stripes) => plain(stripes, size, targets),
        LovFile::Composite(components) => composite(components, size, targets),
        LovFile::Foreign => {
            let problem = "its data lies in a foreign storage system".to_owned();
            FoundLayout {
                layout: None,
                geometry: None,
                is_released: false,
                is_foreign: true,
                problem: Some(problem),
            }
        }
    }
}

fn plain(stripes: &LovStripes, size: u64, targets: &LustreFileTargets<'_>) -> FoundLayout {
    let striped = striped(stripes, targets);
    let geometry = StripeGeometry { components: vec![geometry(stripes, 0, u64::MAX)], mirrors: 1 };
    let is_released = stripes.is_released();
    let problem = striped.is_none() && size > 0 && !is_released;
    let problem = problem.then(|| "its layout names no objects".to_owned());
    FoundLayout { is_released, problem, ..FoundLayout::new(striped, geometry) }
}

fn composite(components: &[LovComponent], size: u64, targets: &LustreFileTargets<'_>) -> FoundLayout {
    let mirrors = mirrors_of(components);
    let Some(chosen) = mirrors.iter().max_by_key(|mirror| mirror.merit(size)) else {
        let problem = (size > 0).then(|| "its layout has no components".to_owned());
        return FoundLayout {
            problem,
            ..FoundLayout::new(None::<CompositeLayout>, StripeGeometry::default())
        };
    };
    let geometry = StripeGeometry { components: chosen.geometry(components), mirrors: mirrors.len() as u32 };
    let is_released = chosen.is_released();
    let is_foreign = chosen.is_foreign();
    let missing = size - chosen.readable_bytes(size);
    let problem = (missing > 0 && !is_released)
        .then(|| format!("{missing} bytes of it lie in components that can't be read now or are not known"));
    FoundLayout { is_released, is_foreign, problem, ..FoundLayout::new(chosen.layout(targets), geometry) }
}

/// A whole copy of the file.
struct LustreFileMirror<'a> {
    id: u32,
    /// The number of mirrors before it.
    rank: usize,
    /// The data components, sorted by their starts.
    components: Vec<&'a LovComponent>,
}

fn mirrors_of(components: &[LovComponent]) -> Vec<LustreFileMirror<'_>> {
    let mut mirrors: Vec<LustreFileMirror<'_>> = Vec::new();
    for component in components.iter().filter(|component| component.is_data()) {
        let (id, rank) = (component.mirror(), mirrors.len());
        match mirrors.iter_mut().find(|mirror| mirror.id == id) {
            Some(mirror) => mirror.components.push(component),
            None => mirrors.push(LustreFileMirror { id, rank, components: vec![component] }),
        }
    }
    mirrors.iter_mut().for_each(|mirror| mirror.components.sort_by_key(|component| component.start));
    mirrors
}

impl LustreFileMirror<'_> {
    /// Prefers the mirror with most of the data, then one marked for reading, then the first.
    fn merit(&self, size: u64) -> (u64, bool, std::cmp::Reverse<usize>) {
        let is_preferred =
            self.components.iter().any(|component| component.flags & LovComponent::PREFERRED != 0);
        (self.readable_bytes(size), is_preferred, std::cmp::Reverse(self.rank))
    }

    /// Bytes of the first `size` that lie in readable components.
    fn readable_bytes(&self, size: u64) -> u64 {
        let (mut end, mut sum) = (0, 0);
        for component in self.components.iter().filter(|component| component.has_readable_stripes()) {
            let (from, to) = (component.start.max(end), component.end.min(size));
            sum += to.saturating_sub(from);
            end = end.max(component.end);
        }
        sum
    }

    fn is_released(&self) -> bool {
        self.components.iter().any(|part| part.stripes.as_ref().is_some_and(LovStripes::is_released))
    }

    /// Foreign components can't be read, whatever lies in the others.
    fn is_foreign(&self) -> bool {
        self.components.iter().any(|part| part.stripes.is_none())
    }

    /// The shape of its components; `all` are those of all mirrors, with the room for growth between them. A
    /// component that has no bytes yet is as long as its room.
    fn geometry(&self, all: &[LovComponent]) -> Vec<ComponentGeometry> {
        let known = self.components.iter().filter_map(|part| Some((part, part.stripes.as_ref()?)));
        let shapes = known.map(|(part, stripes)| {
            let shape = geometry(stripes, part.start, part.end);
            let is_room = |other: &&LovComponent| {
                other.flags & LovComponent::EXTENSION != 0
                    && (other.mirror(), other.start) == (self.id, part.end)
            };
            match all.iter().find(is_room) {
                None => shape,
                Some(room) if part.start == part.end => {
                    ComponentGeometry { end: room.end, pattern: StripePattern::Extending, ..shape }
                }
                Some(_) => ComponentGeometry { pattern: StripePattern::Extending, ..shape },
            }
        });
        shapes.filter(|shape| shape.start < shape.end).collect()
    }

    /// The layout of the readable components, with the own target between them; none if there are none.
    fn layout(&self, targets: &LustreFileTargets<'_>) -> Option<CompositeLayout> {
        let (mut ranges, mut end) = (Vec::new(), 0);
        for component in &self.components {
            let Some(striped) = component.readable_stripes().and_then(|stripes| striped(stripes, targets))
            else {
                continue;
            };
            if component.end <= end {
                continue;
            }
            if component.start > end {
                ranges.push((component.start, StripedLayout::new(vec![targets.own()], 1)?));
            }
            end = component.end;
            ranges.push((end, striped));
        }
        CompositeLayout::new(ranges)
    }
}

impl LovComponent {
    /// The striping of its data, if it is readable.
    fn readable_stripes(&self) -> Option<&LovStripes> {
        let stripes = self.stripes.as_ref().filter(|_| self.is_readable())?;
        (stripes.is_on_mdt() || !stripes.osts.is_empty()).then_some(stripes)
    }

    fn has_readable_stripes(&self) -> bool {
        self.readable_stripes().is_some()
    }
}

fn striped(stripes: &LovStripes, targets: &LustreFileTargets<'_>) -> Option<StripedLayout> {
    if stripes.is_on_mdt() {
        return StripedLayout::new(vec![targets.mdt()], 1);
    }
    let round: Vec<TargetId> = stripes.osts.iter().map(|index| targets.ost(*index)).collect();
    StripedLayout::new(round, u64::from(stripes.stripe_bytes))
}

/// The index of the OST of that name, if it is one.
pub(super) fn ost_index(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_prefix("OST")?, 16).ok()
}

fn geometry(stripes: &LovStripes, start: u64, end: u64) -> ComponentGeometry {
    let pattern = if stripes.is_on_mdt() {
        StripePattern::Metadata
    } else if stripes.is_overstriped() {
        StripePattern::Overstriped
    } else {
        StripePattern::Striped
    };
    let stripe_count = match stripes.stripe_count {
        u16::MAX => crate::STRIPE_COUNT_ALL,
        count => u32::from(count),
    };
    let stripe_bytes = u64::from(stripes.stripe_bytes);
    ComponentGeometry { start, end, stripe_bytes, stripe_count, pool: stripes.pool.clone(), pattern }
}
