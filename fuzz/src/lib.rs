//! What the fuzz targets share: taking an input apart, and a session whose other end is an input.

pub mod far_end;
pub mod layouts;
pub mod site;

/// Takes pieces of fixed size off the front of an input, so that a mutation changes one thing.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next `N` bytes; nothing if fewer are left.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*piece)
    }

    /// The next byte, 0 at the end.
    pub fn byte(&mut self) -> u8 {
        self.take().map_or(0, |[byte]| byte)
    }
}

/// Whether `part` lies within `whole`, as a borrowed piece of it must.
pub fn is_within(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}
