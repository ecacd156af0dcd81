//! Parser of the value of `lustre.lov`.
//!
//! Pure: bytes in, value out. Trusts no length, count or offset. The format is that of `lustre_user.h`
//! (Lustre 2.17), in the byte order of the machine that wrote it; `docs/formats/layouts.md` has the tables.

use thiserror::Error;

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;
const MAGIC_SEL: u32 = 0x0BD8_0BD0;

const HEAD_BYTES: usize = 32;
const POOL_BYTES: usize = 16;
const OBJECT_BYTES: usize = 24;
/// Offset of `l_ost_idx` in an object.
const OST_INDEX_OFFSET: usize = 20;
const COMPONENT_BYTES: usize = 48;

/// Bound of the stripes of one component (`LOV_MAX_STRIPE_COUNT`).
const STRIPES_MAX: usize = 2_000;

/// Bound of the components of a file; about half of them fit into an attribute, which is Lustre's own limit.
const COMPONENTS_MAX: usize = 512;

/// The layout of one file in Lustre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LovFile {
    /// One striping from start to end (v1, v3, or with chosen OSTs).
    Plain(LovStripes),
    /// Ranges and mirrors (PFL, FLR, DoM, SEL, EC).
    Composite(Vec<LovComponent>),
    /// A file in another storage system (`LOV_MAGIC_FOREIGN`).
    Foreign,
}

/// One component of a composite file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LovComponent {
    /// `lcme_id`, with the mirror's ID in the upper half.
    pub id: u32,
    /// `LCME_FL_…` bits.
    pub flags: u32,
    /// The first byte of its range.
    pub start: u64,
    /// The byte after its range; `u64::MAX` for the end of the file.
    pub end: u64,
    /// The striping of its bytes; none for a foreign component.
    pub stripes: Option<LovStripes>,
}

/// The striping of a file or a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LovStripes {
    /// `LOV_PATTERN_…` bits.
    pub pattern: u32,
    /// Bytes of a stripe.
    pub stripe_bytes: u32,
    /// Stripes of a round according to the layout; 0xffff for all OSTs, if there are no objects yet.
    pub stripe_count: u16,
    /// The pool of OSTs.
    pub pool: Option<String>,
    /// The OST of each stripe of a round; empty if there are no objects.
    pub osts: Vec<u32>,
}

/// The reason why the bytes are no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LovError {
    /// The value is shorter than announced.
    #[error("the layout is cut off")]
    CutOff,
    /// The value starts with no known magic number.
    #[error("unknown kind of layout {0:#010x}")]
    UnknownMagic(u32),
    /// More stripes than Lustre allows.
    #[error("{0} stripes")]
    TooManyStripes(usize),
    /// More components than the bound.
    #[error("{0} components")]
    TooManyComponents(usize),
    /// A stripe size of zero.
    #[error("stripes of no bytes")]
    NoStripeSize,
    /// A component's range ends before it begins.
    #[error("a component that ends before it begins")]
    BadRange,
    /// A component in a component.
    #[error("components share their bytes or hold components")]
    Nested,
}

impl LovComponent {
    /// `LCME_FL_STALE`: the mirror was not written with the others.
    pub const STALE: u32 = 0x1;
    /// `LCME_FL_PREF_RD`: the mirror to read.
    pub const PREFERRED: u32 = 0x2;
    /// `LCME_FL_OFFLINE`.
    pub const OFFLINE: u32 = 0x8;
    /// `LCME_FL_INIT`: it has objects.
    pub const INIT: u32 = 0x10;
    /// `LCME_FL_EXTENSION`: room for the component before it (SEL).
    pub const EXTENSION: u32 = 0x40;
    /// `LCME_FL_PARITY`: holds parity, not data.
    pub const PARITY: u32 = 0x80;

    /// The mirror that it belongs to; 0 in a file without mirrors.
    pub fn mirror(&self) -> u32 {
        (self.id & 0x7FFF_0000) >> 16
    }

    /// Returns true if it is part of a mirror's data, with or without objects.
    pub fn is_data(&self) -> bool {
        self.flags & (LovComponent::PARITY | LovComponent::EXTENSION) == 0
    }

    /// Returns true if its range can be read.
    pub fn is_readable(&self) -> bool {
        let bad = LovComponent::STALE | LovComponent::OFFLINE;
        self.is_data() && self.flags & LovComponent::INIT != 0 && self.flags & bad == 0
    }
}

impl LovStripes {
    /// `LOV_PATTERN_MDT`: data on the metadata target (DoM).
    pub const MDT: u32 = 0x100;
    /// `LOV_PATTERN_OVERSTRIPING`.
    pub const OVERSTRIPING: u32 = 0x200;
    /// `LOV_PATTERN_FOREIGN`.
    pub const FOREIGN: u32 = 0x400;
    /// `LOV_PATTERN_F_RELEASED`: the data is in an archive (HSM), and a read would restore it.
    pub const RELEASED: u32 = 0x8000_0000;
    /// `LOV_PATTERN_DEFAULT`: the pattern is not specified.
    const DEFAULT: u32 = u32::MAX;

    /// Returns true if the data has been released to an archive.
    pub fn is_released(&self) -> bool {
        self.pattern != LovStripes::DEFAULT && self.pattern & LovStripes::RELEASED != 0
    }

    /// Returns true if the data lies on the metadata target.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern != LovStripes::DEFAULT && self.pattern & LovStripes::MDT != 0
    }

    /// Returns true if a target may occur twice in a round.
    pub fn is_overstriped(&self) -> bool {
        self.pattern != LovStripes::DEFAULT && self.pattern & LovStripes::OVERSTRIPING != 0
    }

    fn is_foreign(&self) -> bool {
        self.pattern != LovStripes::DEFAULT && self.pattern & LovStripes::FOREIGN != 0
    }

    fn has_objects(&self) -> bool {
        !self.is_released() && !self.is_on_mdt() && !self.is_foreign()
    }
}

/// Parses a value of `lustre.lov`.
///
/// # Errors
/// [`LovError`] for values that Lustre would not write; bytes behind the layout are ignored.
pub fn parse_lov(value: &[u8]) -> Result<LovFile, LovError> {
    let reader = LovReader::new(value)?;
    match reader.u32(0)? {
        MAGIC_COMPOSITE | MAGIC_SEL => parse_composite(&reader),
        MAGIC_FOREIGN => Ok(LovFile::Foreign),
        _ => Ok(parse_stripes(&reader)?.map_or(LovFile::Foreign, LovFile::Plain)),
    }
}

fn parse_composite(reader: &LovReader<'_>) -> Result<LovFile, LovError> {
    let count = usize::from(reader.u16(14)?);
    if count > COMPONENTS_MAX {
        return Err(LovError::TooManyComponents(count));
    }
    let mut components = Vec::with_capacity(count);
    // No object belongs to two components, so the size of the value bounds all of them together.
    let mut objects_left = reader.bytes.len() / OBJECT_BYTES;
    for index in 0..count {
        let component = parse_component(reader, HEAD_BYTES + index * COMPONENT_BYTES)?;
        let used = component.stripes.as_ref().map_or(0, |stripes| stripes.osts.len());
        objects_left = objects_left.checked_sub(used).ok_or(LovError::Nested)?;
        components.push(component);
    }
    Ok(LovFile::Composite(components))
}

/// Parses a component. It may have no bytes, as the one behind the room for growth of a self-extending layout
/// (SEL) until the file has grown.
fn parse_component(reader: &LovReader<'_>, at: usize) -> Result<LovComponent, LovError> {
    let (start, end) = (reader.u64(at + 8)?, reader.u64(at + 16)?);
    if start > end {
        return Err(LovError::BadRange);
    }
    let part = reader.part(reader.u32(at + 24)?, reader.u32(at + 28)?)?;
    let flags = reader.u32(at + 4)?;
    let stripes = if flags & LovComponent::INIT != 0 { parse_stripes(&part)? } else { parse_head(&part)? };
    Ok(LovComponent { id: reader.u32(at)?, flags, start, end, stripes })
}

/// Parses a component with its objects; none if it is foreign.
fn parse_stripes(reader: &LovReader<'_>) -> Result<Option<LovStripes>, LovError> {
    let Some(mut stripes) = parse_head(reader)? else { return Ok(None) };
    let count = usize::from(stripes.stripe_count);
    let first = if reader.u32(0)? == MAGIC_V1 { HEAD_BYTES } else { HEAD_BYTES + POOL_BYTES };
    // A file that was not written yet, or a directory's default.
    if !stripes.has_objects() || reader.bytes.len() <= first {
        return Ok(Some(stripes));
    }
    if count > STRIPES_MAX {
        return Err(LovError::TooManyStripes(count));
    }
    if stripes.stripe_bytes == 0 {
        return Err(LovError::NoStripeSize);
    }
    for index in 0..count {
        stripes.osts.push(reader.u32(first + index * OBJECT_BYTES + OST_INDEX_OFFSET)?);
    }
    Ok(Some(stripes))
}

/// Parses the head before the objects; none if the component is foreign.
fn parse_head(reader: &LovReader<'_>) -> Result<Option<LovStripes>, LovError> {
    let pool = match reader.u32(0)? {
        MAGIC_V1 => reader.slice(0, HEAD_BYTES).map(|_| None)?,
        MAGIC_V3 | MAGIC_SPECIFIC => pool(reader.slice(HEAD_BYTES, POOL_BYTES)?),
        MAGIC_FOREIGN => return Ok(None),
        MAGIC_COMPOSITE | MAGIC_SEL => return Err(LovError::Nested),
        magic => return Err(LovError::UnknownMagic(magic)),
    };
    Ok(Some(LovStripes {
        pattern: reader.u32(4)?,
        stripe_bytes: reader.u32(24)?,
        stripe_count: reader.u16(28)?,
        pool,
        osts: Vec::new(),
    }))
}

fn pool(name: &[u8]) -> Option<String> {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

/// Reads integers at offsets, in the byte order of the value.
struct LovReader<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl<'a> LovReader<'a> {
    /// Detects the byte order, in which the first four bytes are a known magic number.
    fn new(bytes: &'a [u8]) -> Result<LovReader<'a>, LovError> {
        let little = LovReader { bytes, is_big: false };
        let magic = little.u32(0)?;
        let known = [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE, MAGIC_FOREIGN, MAGIC_SEL];
        if known.contains(&magic) {
            Ok(little)
        } else if known.contains(&magic.swap_bytes()) {
            Ok(LovReader { bytes, is_big: true })
        } else {
            Err(LovError::UnknownMagic(magic))
        }
    }

    fn part(&self, offset: u32, len: u32) -> Result<LovReader<'a>, LovError> {
        Ok(LovReader { bytes: self.slice(offset as usize, len as usize)?, is_big: self.is_big })
    }

    fn slice(&self, offset: usize, len: usize) -> Result<&'a [u8], LovError> {
        let end = offset.checked_add(len).ok_or(LovError::CutOff)?;
        self.bytes.get(offset..end).ok_or(LovError::CutOff)
    }

    fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], LovError> {
        self.slice(offset, N)?.try_into().map_err(|_| LovError::CutOff)
    }

    fn u16(&self, offset: usize) -> Result<u16, LovError> {
        let bytes = self.array(offset)?;
        Ok(if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&self, offset: usize) -> Result<u32, LovError> {
        let bytes = self.array(offset)?;
        Ok(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&self, offset: usize) -> Result<u64, LovError> {
        let bytes = self.array(offset)?;
        Ok(if self.is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }
}
