//! The shape of a file's layout, without its place: what people read and what another file can be given.

/// How a file is striped: never object ids, never which target comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Ranges of the file, each with a striping of its own, in the order of their starts.
    pub components: Vec<ComponentGeometry>,
    /// Copies of the file that the storage keeps; 0 if that is not known.
    pub mirrors: u32,
}

/// How a range of a file is striped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentGeometry {
    /// The first byte of the range.
    pub start: u64,
    /// The byte after the range; `u64::MAX` if it goes on for ever.
    pub end: u64,
    /// Bytes on one target before the next one's turn; 0 if unknown or whole.
    pub stripe_bytes: u64,
    /// Targets (or objects) of a round; [`STRIPE_COUNT_ALL`] for all there are, 0 for the file system's default.
    pub stripe_count: u32,
    /// The pool of targets that it is taken from.
    pub pool: Option<String>,
    /// How the bytes go round.
    pub pattern: Pattern,
}

/// How the bytes of a range go round its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// RAID 0: one stripe after the other.
    Striped,
    /// RAID 0 with more than one object on a target (Lustre's overstriping).
    Overstriped,
    /// On the metadata server, beside the inode (Lustre's data on MDT).
    Metadata,
    /// Cut into objects, each of which is placed for itself (CephFS, GPFS, sharded GlusterFS).
    Objects,
    /// As a whole on one target.
    Whole,
}

/// As a stripe count: as many targets as there are.
pub const STRIPE_COUNT_ALL: u32 = u32::MAX;

/// Bytes for each stripe of [`Stripe::Auto`]: what sites advise (one stripe for each GiB).
const AUTO_BYTES_PER_STRIPE: u64 = 1 << 30;

/// What a new file's layout shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stripe {
    /// What its directory says.
    #[default]
    Default,
    /// Like that of another file. Where a file system has no components, or does not take these, the stripe count,
    /// stripe size and pool of the widest one.
    Like(Geometry),
    /// The same for every file.
    Fixed {
        /// Targets; [`STRIPE_COUNT_ALL`] for all there are, 0 for the directory's default.
        count: u32,
        /// Bytes on one target before the next one's turn; the directory's default without it.
        stripe_bytes: Option<u64>,
        /// The pool of targets to take them from.
        pool: Option<String>,
    },
    /// As many targets as the file has GiB, where a file would else lie on one of them.
    Auto {
        /// Bytes of the file.
        file_bytes: u64,
    },
}

/// What became of the wish for a [`Stripe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeOutcome {
    /// The file has its directory's default, and that was wished or is as good.
    Default,
    /// The file has what was wished.
    Set,
    /// The file was created, but not (in all) as wished: why.
    Refused(String),
}

/// A wish that says something, in the terms that every file system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    /// Nothing for the default; [`STRIPE_COUNT_ALL`] for all.
    pub(super) count: Option<u32>,
    /// Nothing for the default.
    pub(super) stripe_bytes: Option<u64>,
    pub(super) pool: Option<&'a str>,
    /// Several, if different ranges shall be striped differently; what is above is then that of the widest.
    pub(super) components: &'a [ComponentGeometry],
    /// Whether only spreading is wished, in whatever way.
    pub(super) is_auto: bool,
}

impl Stripe {
    /// Nothing if the default is all that is wished.
    pub(super) fn wish(&self) -> Option<Wish<'_>> {
        let wish = match self {
            Stripe::Default => return None,
            Stripe::Like(geometry) => geometry.wish()?,
            Stripe::Fixed { count, stripe_bytes, pool } => {
                Wish::new(*count, stripe_bytes.unwrap_or(0), pool.as_deref())
            }
            Stripe::Auto { file_bytes } => {
                let count = file_bytes.div_ceil(AUTO_BYTES_PER_STRIPE).clamp(1, u64::from(u32::MAX - 1));
                Wish { is_auto: true, ..Wish::new(count as u32, 0, None) }
            }
        };
        wish.says_something().then_some(wish)
    }
}

impl Geometry {
    /// The component over most targets; the last one of them, which holds most of a large file.
    pub fn widest(&self) -> Option<&ComponentGeometry> {
        let on_storage = self.components.iter().filter(|component| component.pattern != Pattern::Metadata);
        on_storage.max_by_key(|component| component.stripe_count)
    }

    fn wish(&self) -> Option<Wish<'_>> {
        let widest = self.widest()?;
        let wish = Wish::new(widest.stripe_count, widest.stripe_bytes, widest.pool.as_deref());
        let components = if self.components.len() > 1 { &self.components[..] } else { &[] };
        Some(Wish { components, ..wish })
    }
}

impl<'a> Wish<'a> {
    fn new(count: u32, stripe_bytes: u64, pool: Option<&'a str>) -> Wish<'a> {
        Wish {
            count: (count > 0).then_some(count),
            stripe_bytes: (stripe_bytes > 0).then_some(stripe_bytes),
            pool: pool.filter(|pool| !pool.is_empty()),
            components: &[],
            is_auto: false,
        }
    }

    fn says_something(&self) -> bool {
        self.count.is_some() || self.stripe_bytes.is_some() || self.pool.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(stripe_count: u32, stripe_bytes: u64, pattern: Pattern) -> ComponentGeometry {
        ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count, pool: None, pattern }
    }

    #[test]
    fn the_widest_component_is_the_one_to_be_like() {
        let components = vec![
            component(9, 1 << 16, Pattern::Metadata),
            component(1, 1 << 20, Pattern::Striped),
            component(8, 1 << 20, Pattern::Striped),
            component(8, 1 << 22, Pattern::Striped),
        ];
        let like = Stripe::Like(Geometry { components, mirrors: 1 });
        let wish = like.wish().unwrap();
        assert_eq!((wish.count, wish.stripe_bytes, wish.is_auto), (Some(8), Some(1 << 22), false));
        assert_eq!(Stripe::Like(Geometry::default()).wish(), None);
    }

    #[test]
    fn auto_is_a_stripe_for_each_gib() {
        for (file_bytes, count) in
            [(0, 1), (1, 1), (1 << 30, 1), ((1 << 30) + 1, 2), (u64::MAX, u32::MAX - 1)]
        {
            let stripe = Stripe::Auto { file_bytes };
            assert_eq!(stripe.wish().and_then(|wish| wish.count), Some(count), "{file_bytes}");
        }
    }

    #[test]
    fn nothing_wished_is_the_default() {
        assert_eq!(Stripe::Default.wish(), None);
        assert_eq!(Stripe::Fixed { count: 0, stripe_bytes: Some(0), pool: Some(String::new()) }.wish(), None);
        assert!(Stripe::Fixed { count: 0, stripe_bytes: None, pool: Some("flash".into()) }.wish().is_some());
    }
}
