//! Layouts, and their encoding in `lustre.lov`.
//!
//! Pure. The byte tables and the refusals follow Lustre 2.15 (`lustre_user.h`, `lod_verify_striping`,
//! `ll_adjust_lum`). The MDT keeps the same bytes. Little-endian, as on the hosts that this double runs on.

use crate::stripes::Cut;

/// `LOV_PATTERN_F_RELEASED`, in the highest byte of the pattern.
const RELEASED_BIT: u8 = 0x80;

/// Returns the encoding of a plain layout of a released file: the flag is set, and there are no objects.
pub fn released(mut blob: Vec<u8>) -> Vec<u8> {
    let is_v1 = blob.get(..4).is_some_and(|magic| magic == MAGIC_V1.to_ne_bytes());
    blob.truncate(if is_v1 { V1_HEAD_BYTES } else { V3_HEAD_BYTES });
    if let Some(pattern) = blob.get_mut(4..8) {
        pattern[if cfg!(target_endian = "little") { 3 } else { 0 }] |= RELEASED_BIT;
    }
    blob
}

/// Returns the encoding of a foreign layout: `lfm_magic`, length, type, flags, and the other system's value.
pub fn foreign() -> Vec<u8> {
    let value = b"store:bucket/7";
    let head = [MAGIC_FOREIGN, value.len() as u32, 1, 0];
    [head.map(u32::to_ne_bytes).concat(), value.to_vec()].concat()
}

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;

const V1_HEAD_BYTES: usize = 32;
const V3_HEAD_BYTES: usize = 48;
const OBJECT_BYTES: usize = 24;
const COMPOSITE_HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
const POOL_BYTES: usize = 16;

const PATTERN_RAID0: u32 = 1;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED_RAID0: u32 = PATTERN_RAID0 | 0x200;

const COMPONENT_INITIALISED: u32 = 0x10;
/// The first sequence of OST objects.
const FIRST_OST_SEQUENCE: u64 = 0x1_0000_0000;
const MIN_STRIPE_BYTES: u32 = 1 << 16;
/// Bounds the memory that a single attribute can allocate; Lustre's own limit of components is far higher.
const MAX_COMPONENTS: usize = 64;

/// The first target that means any target.
pub const ANY_TARGET: u16 = 0xffff;
/// The count that means all targets.
pub const ALL_TARGETS: u16 = 0xffff;
/// The end of the last component.
pub const END_OF_FILE: u64 = u64::MAX;

/// The reason why bytes are no layout, as Lustre has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LovError {
    /// ERANGE: shorter than what its head announces.
    #[error("too short for what it says it is")]
    Short,
    /// EINVAL.
    #[error("not a layout that this file system can make")]
    Invalid,
}

/// The location of a component's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Stripes on different targets.
    Raid0,
    /// Stripes of which several may share a target.
    Overstriped,
    /// On the metadata target (DoM).
    Mdt,
}

/// The object of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The OST.
    pub target: u32,
    /// Its ID on the OST.
    pub id: u64,
}

/// A range of the file with a pattern of its own; a plain layout is one component for the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// First byte.
    pub start: u64,
    /// First byte after, or [`END_OF_FILE`].
    pub end: u64,
    /// The pattern of its data.
    pub pattern: Pattern,
    /// Bytes of a stripe; 0: the default.
    pub stripe_bytes: u32,
    /// Number of stripes; 0: the default; or [`ALL_TARGETS`].
    pub stripe_count: u16,
    /// The requested first target or [`ANY_TARGET`]; it has no meaning once there are objects.
    pub first_target: u16,
    /// The requested targets in order (`SPECIFIC`); empty for any.
    pub wished_targets: Vec<u32>,
    /// The pool of targets to choose from; empty: all.
    pub pool: String,
    /// True if its objects exist.
    pub initialised: bool,
    /// In the order of stripes; empty before they exist, and for [`Pattern::Mdt`].
    pub objects: Vec<Object>,
}

/// A file's layout, or a directory's default for new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// True for a composite layout (PFL), even with a single component.
    pub composite: bool,
    /// In order, without gaps, from 0.
    pub components: Vec<Component>,
}

impl Component {
    /// Returns the striping; `None` before it is initialised, when counts may still be requests.
    pub fn cut(&self) -> Option<Cut> {
        let cut = match self.pattern {
            Pattern::Mdt => Cut { stripe_bytes: u64::from(self.stripe_bytes).max(1), stripe_count: 1 },
            _ => Cut {
                stripe_bytes: self.stripe_bytes.into(),
                stripe_count: self.objects.len().try_into().ok()?,
            },
        };
        self.initialised.then_some(cut)
    }

    /// Returns the component as a request for another file: without objects.
    fn wish(mut self) -> Component {
        self.initialised = false;
        self.objects.clear();
        self
    }

    fn verify(&self) -> Result<(), LovError> {
        let aligned = |offset: u64| offset == END_OF_FILE || offset.is_multiple_of(MIN_STRIPE_BYTES.into());
        let stripes_fit = self.end == END_OF_FILE
            || self.stripe_bytes == 0
            || self.end.is_multiple_of(self.stripe_bytes.into());
        let dom_fits = self.pattern != Pattern::Mdt
            || (self.start == 0
                && self.end == u64::from(self.stripe_bytes)
                && self.stripe_count == 0
                && self.pool.is_empty());
        let fits = self.start < self.end
            && aligned(self.start)
            && aligned(self.end)
            && self.stripe_bytes.is_multiple_of(MIN_STRIPE_BYTES)
            && stripes_fit
            && dom_fits;
        if fits { Ok(()) } else { Err(LovError::Invalid) }
    }
}

impl Layout {
    /// Returns a layout of one component for the whole file.
    pub fn plain(component: Component) -> Layout {
        Layout { composite: false, components: vec![component] }
    }

    /// Returns the component that holds a byte.
    pub fn component_at(&self, offset: u64) -> Option<usize> {
        self.components.iter().position(|component| (component.start..component.end).contains(&offset))
    }

    /// Decodes a client's request: objects and states in it are ignored.
    pub fn wished(bytes: &[u8]) -> Result<Layout, LovError> {
        let mut layout = Layout::decode(bytes)?;
        layout.components = layout.components.into_iter().map(Component::wish).collect();
        if !layout.composite && layout.components[0].first_target == 0 {
            // As in llite: the value from getxattr has 0 there and must not put the first stripes of all
            // files on OST 0.
            layout.components[0].first_target = ANY_TARGET;
        }
        layout.verify()?;
        Ok(layout)
    }

    fn verify(&self) -> Result<(), LovError> {
        let mut end = 0;
        for component in &self.components {
            component.verify()?;
            if component.start != end {
                return Err(LovError::Invalid);
            }
            end = component.end;
        }
        Ok(())
    }

    /// Decodes the bytes from [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Layout, LovError> {
        if bytes.len() < V1_HEAD_BYTES {
            return Err(LovError::Short);
        }
        match u32_at(bytes, 0)? {
            MAGIC_COMPOSITE => decode_composite(bytes),
            _ => Ok(Layout::plain(decode_component(bytes, 0, END_OF_FILE)?)),
        }
    }

    /// Returns the bytes of `lustre.lov`; `file_id` is the file's ID at the MDT.
    pub fn encode(&self, file_id: u64) -> Vec<u8> {
        if !self.composite {
            return encode_component(&self.components[0], file_id);
        }
        let blobs: Vec<_> =
            self.components.iter().map(|component| encode_component(component, file_id)).collect();
        let entries_end = COMPOSITE_HEAD_BYTES + ENTRY_BYTES * blobs.len();
        let size = entries_end + blobs.iter().map(Vec::len).sum::<usize>();
        let mut bytes = Vec::with_capacity(size);
        put_composite_head(&mut bytes, size, blobs.len());
        let mut offset = entries_end;
        for (index, (component, blob)) in self.components.iter().zip(&blobs).enumerate() {
            put_entry(&mut bytes, index, component, offset, blob.len());
            offset += blob.len();
        }
        bytes.extend(blobs.concat());
        bytes
    }
}

// lov_user_md_v1 and _v3:
//
//  offset  bytes  field
//       0      4  magic
//       4      4  pattern
//       8     16  the file's id and sequence
//      24      4  stripe size
//      28      2  stripe count
//      30      2  first target (before there are objects), 0 (with objects)
//      32     16  pool's name (V3 and SPECIFIC only)
//    then 24 for each object: id, sequence, generation (u32), OST (u32)

fn encode_component(component: &Component, file_id: u64) -> Vec<u8> {
    let specific = !component.initialised && !component.wished_targets.is_empty();
    let magic = match () {
        () if specific => MAGIC_SPECIFIC,
        () if component.pool.is_empty() => MAGIC_V1,
        () => MAGIC_V3,
    };
    let pattern = match component.pattern {
        Pattern::Raid0 => PATTERN_RAID0,
        Pattern::Overstriped => PATTERN_OVERSTRIPED_RAID0,
        Pattern::Mdt => PATTERN_MDT,
    };
    let first_target = if component.initialised { 0 } else { component.first_target };
    let mut bytes = Vec::new();
    bytes.extend(magic.to_le_bytes());
    bytes.extend(pattern.to_le_bytes());
    bytes.extend(file_id.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(component.stripe_bytes.to_le_bytes());
    bytes.extend(component.stripe_count.to_le_bytes());
    bytes.extend(first_target.to_le_bytes());
    if magic != MAGIC_V1 {
        let mut pool = [0; POOL_BYTES];
        pool[..component.pool.len()].copy_from_slice(component.pool.as_bytes());
        bytes.extend(pool);
    }
    for object in &component.objects {
        put_object(&mut bytes, *object);
    }
    if specific {
        for &target in &component.wished_targets {
            put_object(&mut bytes, Object { target, id: 0 });
        }
    }
    bytes
}

fn put_object(bytes: &mut Vec<u8>, object: Object) {
    bytes.extend(object.id.to_le_bytes());
    bytes.extend((FIRST_OST_SEQUENCE + u64::from(object.target)).to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(object.target.to_le_bytes());
}

fn decode_component(bytes: &[u8], start: u64, end: u64) -> Result<Component, LovError> {
    let magic = u32_at(bytes, 0)?;
    let head_bytes = match magic {
        MAGIC_V1 => V1_HEAD_BYTES,
        MAGIC_V3 | MAGIC_SPECIFIC => V3_HEAD_BYTES,
        _ => return Err(LovError::Invalid),
    };
    let pattern = match u32_at(bytes, 4)? {
        0 | PATTERN_RAID0 => Pattern::Raid0,
        PATTERN_OVERSTRIPED_RAID0 => Pattern::Overstriped,
        PATTERN_MDT => Pattern::Mdt,
        _ => return Err(LovError::Invalid),
    };
    let stripe_count = u16_at(bytes, 28)?;
    let pool = if head_bytes == V3_HEAD_BYTES { pool_at(bytes)? } else { String::new() };
    let objects = match magic {
        MAGIC_SPECIFIC => decode_objects(bytes, head_bytes, stripe_count.into())?,
        _ if bytes.len() < head_bytes => return Err(LovError::Short),
        // A head without objects is a request.
        _ => decode_objects(bytes, head_bytes, stripe_count.into()).unwrap_or_default(),
    };
    let specific = magic == MAGIC_SPECIFIC;
    Ok(Component {
        start,
        end,
        pattern,
        stripe_bytes: u32_at(bytes, 24)?,
        stripe_count,
        first_target: u16_at(bytes, 30)?,
        wished_targets: if specific { objects.iter().map(|object| object.target).collect() } else { vec![] },
        pool,
        initialised: !specific && !objects.is_empty(),
        objects: if specific { vec![] } else { objects },
    })
}

fn decode_objects(bytes: &[u8], from: usize, count: usize) -> Result<Vec<Object>, LovError> {
    let bytes = bytes.get(from..from + count * OBJECT_BYTES).ok_or(LovError::Short)?;
    let object = |object: &[u8]| Ok(Object { id: u64_at(object, 0)?, target: u32_at(object, 20)? });
    bytes.chunks_exact(OBJECT_BYTES).map(object).collect()
}

fn pool_at(bytes: &[u8]) -> Result<String, LovError> {
    let name = bytes.get(V1_HEAD_BYTES..V3_HEAD_BYTES).ok_or(LovError::Short)?;
    let length = name.iter().position(|&byte| byte == 0).ok_or(LovError::Invalid)?;
    str::from_utf8(&name[..length]).map(str::to_owned).map_err(|_| LovError::Invalid)
}

// lov_comp_md_v1 and its entries (lov_comp_md_entry_v1):
//
//  offset  bytes  head                    offset  bytes  entry
//       0      4  magic                        0      4  id, from 1
//       4      4  size of everything           4      4  flags (0x10: initialised)
//       8      4  generation                   8      8  first byte
//      12      2  flags                       16      8  end
//      14      2  entries                     24      4  where its bytes are
//      16      2  mirrors - 1                 28      4  how many
//      18     14  0                           32     16  generation, time, 0

fn put_composite_head(bytes: &mut Vec<u8>, size: usize, entries: usize) {
    bytes.extend(MAGIC_COMPOSITE.to_le_bytes());
    bytes.extend((size as u32).to_le_bytes());
    bytes.extend((entries as u32).to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend((entries as u16).to_le_bytes());
    bytes.extend([0; 16]);
}

fn put_entry(bytes: &mut Vec<u8>, index: usize, component: &Component, offset: usize, size: usize) {
    let flags = if component.initialised { COMPONENT_INITIALISED } else { 0 };
    bytes.extend((index as u32 + 1).to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(component.start.to_le_bytes());
    bytes.extend(component.end.to_le_bytes());
    bytes.extend((offset as u32).to_le_bytes());
    bytes.extend((size as u32).to_le_bytes());
    bytes.extend([0; 16]);
}

fn decode_composite(bytes: &[u8]) -> Result<Layout, LovError> {
    let size = u32_at(bytes, 4)? as usize;
    let bytes = bytes.get(..size).ok_or(LovError::Short)?;
    let entries = usize::from(u16_at(bytes, 14)?);
    let mirrors = u16_at(bytes, 16)?;
    if entries == 0 || entries > MAX_COMPONENTS || mirrors != 0 {
        return Err(LovError::Invalid);
    }
    let components = (0..entries).map(|index| decode_entry(bytes, index)).collect::<Result<_, _>>()?;
    Ok(Layout { composite: true, components })
}

fn decode_entry(bytes: &[u8], index: usize) -> Result<Component, LovError> {
    let at = COMPOSITE_HEAD_BYTES + index * ENTRY_BYTES;
    let offset = u32_at(bytes, at + 24)? as usize;
    let size = u32_at(bytes, at + 28)? as usize;
    let blob = bytes.get(offset..offset.saturating_add(size)).ok_or(LovError::Short)?;
    let component = decode_component(blob, u64_at(bytes, at + 8)?, u64_at(bytes, at + 16)?)?;
    let initialised = u32_at(bytes, at + 4)? & COMPONENT_INITIALISED != 0;
    if initialised && component.pattern != Pattern::Mdt && component.objects.is_empty() {
        return Err(LovError::Invalid);
    }
    Ok(if initialised { Component { initialised, ..component } } else { component.wish() })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, LovError> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, LovError> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, LovError> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const COUNT: usize>(bytes: &[u8], at: usize) -> Result<[u8; COUNT], LovError> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(LovError::Short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn component() -> Component {
        Component {
            start: 0,
            end: END_OF_FILE,
            pattern: Pattern::Raid0,
            stripe_bytes: 1 << 20,
            stripe_count: 2,
            first_target: ANY_TARGET,
            wished_targets: vec![],
            pool: String::new(),
            initialised: true,
            objects: vec![Object { target: 3, id: 0x1111 }, Object { target: 0, id: 0x2222 }],
        }
    }

    #[test]
    fn a_file_on_two_osts_is_these_bytes() {
        let bytes = Layout::plain(component()).encode(0xabcd);
        let mut expected = Vec::new();
        expected
            .extend(b"\xd0\x0b\xd1\x0b\x01\0\0\0\xcd\xab\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\x02\0\0\0");
        expected.extend(b"\x11\x11\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0");
        expected.extend(b"\x22\x22\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_directorys_default_is_a_head() {
        let bytes = Layout::plain(Component { pool: "flash".into(), ..component().wish() }).encode(0);
        assert_eq!(bytes.len(), V3_HEAD_BYTES);
        assert_eq!(&bytes[28..38], b"\x02\0\xff\xffflash\0");
    }

    #[test]
    fn llites_sanitising() {
        let named = Component { first_target: 0, ..component().wish() };
        let plain = Layout::wished(&Layout::plain(named.clone()).encode(1)).unwrap();
        assert_eq!(plain.components[0].first_target, ANY_TARGET);
        let composite = Layout { composite: true, components: vec![named] };
        assert_eq!(Layout::wished(&composite.encode(1)).unwrap().components[0].first_target, 0);
    }

    #[test]
    fn a_files_own_bytes_are_a_wish_without_objects() {
        let wished = Layout::wished(&Layout::plain(component()).encode(1)).unwrap();
        assert_eq!(wished, Layout::plain(component().wish()));
    }

    #[test]
    fn nonsense_is_refused() {
        let plain = |change: fn(&mut Component)| {
            let mut component = component().wish();
            change(&mut component);
            Layout::wished(&Layout::plain(component).encode(0))
        };
        assert_eq!(plain(|component| component.stripe_bytes = 65_537), Err(LovError::Invalid));
        assert_eq!(Layout::wished(&[0; 31]), Err(LovError::Short));
        assert_eq!(Layout::wished(&[7; 32]), Err(LovError::Invalid));
        let specific = plain(|component| component.wished_targets = vec![1]);
        assert_eq!(specific, Err(LovError::Short), "a count of 2 and one object");
    }

    #[test]
    fn components_follow_each_other_from_the_start() {
        let wished = |extents: &[(u64, u64)]| {
            let part = |&(start, end): &(u64, u64)| Component { start, end, ..component().wish() };
            let layout = Layout { composite: true, components: extents.iter().map(part).collect() };
            Layout::wished(&layout.encode(0))
        };
        let mib = 1 << 20;
        assert!(wished(&[(0, mib), (mib, END_OF_FILE)]).is_ok());
        for wrong in [&[(mib, END_OF_FILE)][..], &[(0, mib), (2 * mib, END_OF_FILE)], &[(0, 0)], &[(0, 1)]] {
            assert_eq!(wished(wrong), Err(LovError::Invalid), "{wrong:?}");
        }
    }

    fn any_component() -> impl Strategy<Value = Component> {
        let objects = prop::collection::vec((0..9u32, any::<u64>()), 1..5);
        ("[a-z]{0,15}", any::<u32>(), objects, any::<bool>()).prop_map(
            |(pool, stripe_bytes, objects, is_set)| {
                let objects: Vec<_> = objects.into_iter().map(|(target, id)| Object { target, id }).collect();
                let found = Component { pool, stripe_bytes, first_target: 0, ..component() };
                let found = Component { stripe_count: objects.len() as u16, objects, ..found };
                if is_set { found } else { found.wish() }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(components in prop::collection::vec(any_component(), 1..4), composite: bool) {
            let components = if composite { components } else { components[..1].to_vec() };
            let layout = Layout { composite, components };
            prop_assert_eq!(Layout::decode(&layout.encode(5)), Ok(layout));
        }

        #[test]
        fn any_bytes_are_survived(mut bytes: Vec<u8>, magic in 0..4usize) {
            let magic = [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE][magic];
            if let Some(head) = bytes.first_chunk_mut() {
                *head = magic.to_le_bytes();
            }
            let _ = Layout::wished(&bytes);
        }
    }
}
