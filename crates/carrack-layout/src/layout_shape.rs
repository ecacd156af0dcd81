//! The shape of a file's layout without its targets, for reports and for the layout of another file.

use carrack_model::TargetId;

/// The striping of a file, without object IDs and without the first target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeGeometry {
    /// Ranges of the file, each with a striping of its own, in the order of their starts.
    pub components: Vec<ComponentGeometry>,
    /// Copies of the file that the storage keeps; 0 if the number is unknown.
    pub mirrors: u32,
}

/// The striping of a range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentGeometry {
    /// The first byte of the range.
    pub start: u64,
    /// The byte after the range; `u64::MAX` if it has no end.
    pub end: u64,
    /// Bytes on one target before the next one; 0 if unknown or the whole file.
    pub stripe_bytes: u64,
    /// Targets (or objects) of a round; [`STRIPE_COUNT_ALL`] for all targets, 0 for the file system's
    /// default.
    pub stripe_count: u32,
    /// The pool of its targets.
    pub pool: Option<String>,
    /// The distribution over the targets.
    pub pattern: StripePattern,
}

/// The distribution of a range's bytes over its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripePattern {
    /// RAID 0: round-robin stripes.
    Striped,
    /// RAID 0 with several objects on a target (Lustre's overstriping).
    Overstriped,
    /// RAID 0 in a part that grows into the room behind it (Lustre's self-extending layout).
    Extending,
    /// On the metadata server, with the inode (Lustre's data on MDT).
    Metadata,
    /// Objects that are placed independently (CephFS, GPFS, sharded GlusterFS).
    Objects,
    /// The whole range on one target.
    Whole,
}

/// The stripe count that stands for all targets.
pub const STRIPE_COUNT_ALL: u32 = u32::MAX;

/// Bytes for each stripe of [`RequestedLayout::Auto`], as sites advise (one stripe for each GiB).
const AUTO_BYTES_PER_STRIPE: u64 = 1 << 30;

/// The requested layout of a new file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestedLayout {
    /// The default of its directory.
    #[default]
    Default,
    /// The layout of another file, as one replica, and without room into which components grow. If a file
    /// system has no components, or refuses these, the stripe count, stripe size and pool of the widest
    /// component.
    Like(StripeGeometry),
    /// The same for every file.
    Fixed {
        /// Number of targets; [`STRIPE_COUNT_ALL`] for all targets, 0 for the directory's default.
        count: u32,
        /// Bytes on one target before the next one; without it the directory's default.
        stripe_bytes: Option<u64>,
        /// The pool of the targets.
        pool: Option<String>,
    },
    /// One target for each GiB of the file, on file systems that would place it on a single target.
    Auto {
        /// Size of the file in bytes.
        file_bytes: u64,
        /// Targets that others should be chosen before, as they are congested.
        avoided: Vec<TargetId>,
    },
}

/// The outcome of a request for a [`RequestedLayout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeOutcome {
    /// The file has its directory's default, which was requested or is as good.
    Default,
    /// The file has the requested striping.
    Set,
    /// The file was created, but not (fully) as requested, with the reason.
    Refused(String),
}

/// A request other than the default, in the terms that all file systems share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StripeRequest<'a> {
    /// None for the default; [`STRIPE_COUNT_ALL`] for all targets.
    pub(super) count: Option<u32>,
    /// None for the default.
    pub(super) stripe_bytes: Option<u64>,
    pub(super) pool: Option<&'a str>,
    /// Several components if the ranges differ; the fields above are then those of the widest component.
    pub(super) components: &'a [ComponentGeometry],
    /// Set if any distribution over several targets satisfies the request.
    pub(super) auto: Option<AutoPlacement<'a>>,
}

/// What a file system needs to choose the targets of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AutoPlacement<'a> {
    pub(super) file_bytes: u64,
    pub(super) avoided: &'a [TargetId],
}

impl<'a> StripeRequest<'a> {
    /// The pools that it names.
    pub(super) fn pools(&self) -> impl Iterator<Item = &'a str> {
        self.pool.into_iter().chain(self.components.iter().filter_map(|component| component.pool.as_deref()))
    }
}

impl RequestedLayout {
    /// The request; none if only the default is requested.
    pub(super) fn request(&self) -> Option<StripeRequest<'_>> {
        let request = match self {
            RequestedLayout::Default => return None,
            RequestedLayout::Like(geometry) => geometry.request()?,
            RequestedLayout::Fixed { count, stripe_bytes, pool } => {
                StripeRequest::new(*count, stripe_bytes.unwrap_or(0), pool.as_deref())
            }
            RequestedLayout::Auto { file_bytes, avoided } => {
                let count = file_bytes.div_ceil(AUTO_BYTES_PER_STRIPE).clamp(1, u64::from(u32::MAX - 1));
                let auto = Some(AutoPlacement { file_bytes: *file_bytes, avoided });
                StripeRequest { auto, ..StripeRequest::new(count as u32, 0, None) }
            }
        };
        request.has_preferences().then_some(request)
    }
}

impl StripeGeometry {
    /// The component with most targets; the last one of these, which holds most of a large file.
    pub fn widest(&self) -> Option<&ComponentGeometry> {
        let on_storage =
            self.components.iter().filter(|component| component.pattern != StripePattern::Metadata);
        on_storage.max_by_key(|component| component.stripe_count)
    }

    /// Returns true if stripe count, stripe size and pool are all of it, apart from mirrors.
    pub fn is_plain(&self) -> bool {
        let is_special = |pattern| {
            matches!(pattern, StripePattern::Overstriped | StripePattern::Extending | StripePattern::Metadata)
        };
        self.components.len() < 2 && !self.components.iter().any(|component| is_special(component.pattern))
    }

    fn request(&self) -> Option<StripeRequest<'_>> {
        let request = match self.widest() {
            Some(widest) => {
                StripeRequest::new(widest.stripe_count, widest.stripe_bytes, widest.pool.as_deref())
            }
            None => StripeRequest::new(0, 0, None),
        };
        let components = if self.is_plain() { &[] } else { &self.components[..] };
        Some(StripeRequest { components, ..request })
    }
}

impl<'a> StripeRequest<'a> {
    fn new(count: u32, stripe_bytes: u64, pool: Option<&'a str>) -> StripeRequest<'a> {
        StripeRequest {
            count: (count > 0).then_some(count),
            stripe_bytes: (stripe_bytes > 0).then_some(stripe_bytes),
            pool: pool.filter(|pool| !pool.is_empty()),
            components: &[],
            auto: None,
        }
    }

    fn has_preferences(&self) -> bool {
        let is_named = self.count.is_some() || self.stripe_bytes.is_some() || self.pool.is_some();
        is_named || !self.components.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(stripe_count: u32, stripe_bytes: u64, pattern: StripePattern) -> ComponentGeometry {
        ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count, pool: None, pattern }
    }

    #[test]
    fn the_widest_component_is_the_one_to_be_like() {
        let components = vec![
            component(9, 1 << 16, StripePattern::Metadata),
            component(1, 1 << 20, StripePattern::Striped),
            component(8, 1 << 20, StripePattern::Striped),
            component(8, 1 << 22, StripePattern::Striped),
        ];
        let like = RequestedLayout::Like(StripeGeometry { components, mirrors: 1 });
        let request = like.request().unwrap();
        assert_eq!((request.count, request.stripe_bytes, request.auto), (Some(8), Some(1 << 22), None));
        assert_eq!(RequestedLayout::Like(StripeGeometry::default()).request(), None);
    }

    #[test]
    fn auto_is_a_stripe_for_each_gib() {
        for (file_bytes, count) in
            [(0, 1), (1, 1), (1 << 30, 1), ((1 << 30) + 1, 2), (u64::MAX, u32::MAX - 1)]
        {
            let stripe = RequestedLayout::Auto { file_bytes, avoided: Vec::new() };
            assert_eq!(stripe.request().and_then(|request| request.count), Some(count), "{file_bytes}");
        }
    }

    #[test]
    fn nothing_wished_is_the_default() {
        assert_eq!(RequestedLayout::Default.request(), None);
        assert_eq!(
            RequestedLayout::Fixed { count: 0, stripe_bytes: Some(0), pool: Some(String::new()) }.request(),
            None
        );
        assert!(
            RequestedLayout::Fixed { count: 0, stripe_bytes: None, pool: Some("flash".into()) }
                .request()
                .is_some()
        );
    }
}
