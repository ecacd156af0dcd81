//! The mapping from a Lustre layout to the targets of a reader.
//!
//! Pure: chooses one whole mirror, turns its components into ranges over named targets, and reports the data
//! without a known target.

use carrack_model::TargetId;
use carrack_plan::{CompositeLayout, StripedLayout};

use super::blob::{LovComponent, LovFile, LovStripes};
use crate::provider::FoundLayout;
use crate::target_registry::FileSystemTargets;
use crate::{ComponentGeometry, StripeGeometry, StripePattern};

/// The target of data on a metadata server.
const MDT: &str = "MDT";

/// The layout of a file of `size` bytes.
pub(super) fn resolve_layout(file: &LovFile, size: u64, pieces: &FileSystemTargets) -> FoundLayout {
    match file {
        LovFile::Plain(stripes) => plain(stripes, size, pieces),
        LovFile::Composite(components) => composite(components, size, pieces),
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

fn plain(stripes: &LovStripes, size: u64, pieces: &FileSystemTargets) -> FoundLayout {
    let striped = striped(stripes, pieces);
    let geometry = StripeGeometry { components: vec![geometry(stripes, 0, u64::MAX)], mirrors: 1 };
    let is_released = stripes.is_released();
    let problem = striped.is_none() && size > 0 && !is_released;
    let problem = problem.then(|| "its layout names no objects".to_owned());
    FoundLayout { is_released, problem, ..FoundLayout::new(striped, geometry) }
}

fn composite(components: &[LovComponent], size: u64, pieces: &FileSystemTargets) -> FoundLayout {
    let mirrors = mirrors_of(components);
    let Some(chosen) = mirrors.iter().max_by_key(|mirror| mirror.merit(size)) else {
        let problem = (size > 0).then(|| "its layout has no components".to_owned());
        return FoundLayout {
            problem,
            ..FoundLayout::new(None::<CompositeLayout>, StripeGeometry::default())
        };
    };
    let geometry = StripeGeometry { components: chosen.geometry(), mirrors: mirrors.len() as u32 };
    let is_released = chosen.is_released();
    let is_foreign = chosen.is_foreign();
    let missing = size - chosen.readable_bytes(size);
    let problem = (missing > 0 && !is_released)
        .then(|| format!("{missing} bytes of it lie in components that can't be read now or are not known"));
    FoundLayout { is_released, is_foreign, problem, ..FoundLayout::new(chosen.layout(pieces), geometry) }
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

    fn geometry(&self) -> Vec<ComponentGeometry> {
        let known = self.components.iter().filter_map(|part| Some((part, part.stripes.as_ref()?)));
        known.map(|(part, stripes)| geometry(stripes, part.start, part.end)).collect()
    }

    /// The layout of the readable components, with the own target between them; none if there are none.
    fn layout(&self, pieces: &FileSystemTargets) -> Option<CompositeLayout> {
        let (mut ranges, mut end) = (Vec::new(), 0);
        for component in &self.components {
            let Some(striped) = component.readable_stripes().and_then(|stripes| striped(stripes, pieces))
            else {
                continue;
            };
            if component.end <= end {
                continue;
            }
            if component.start > end {
                ranges.push((component.start, StripedLayout::new(vec![pieces.own_target()], 1)?));
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

fn striped(stripes: &LovStripes, pieces: &FileSystemTargets) -> Option<StripedLayout> {
    if stripes.is_on_mdt() {
        return StripedLayout::new(vec![pieces.target_named(MDT)], 1);
    }
    let round: Vec<TargetId> =
        stripes.osts.iter().map(|index| pieces.target_named(&ost_name(*index))).collect();
    StripedLayout::new(round, u64::from(stripes.stripe_bytes))
}

/// The name of an OST in Lustre's own tools.
fn ost_name(index: u32) -> String {
    format!("OST{index:04x}")
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
