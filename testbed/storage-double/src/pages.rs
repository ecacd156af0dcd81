//! The bytes of a file, page by page: cheap to clone, holes take no memory. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit of a torn write: a page reaches the disk or not.
pub const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// A file's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    bytes: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// A part of a range that lies in one page.
pub struct Piece {
    /// The page's number.
    pub page: u64,
    /// Offset of the part in the page.
    pub start: usize,
    /// Offset of the part in the range.
    pub at: usize,
    /// Its length, in bytes.
    pub bytes: usize,
}

/// Cuts a range of a file at page boundaries.
pub fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let start = (position % PAGE_BYTES as u64) as usize;
        let length = (PAGE_BYTES - start).min(bytes - at);
        let piece = Piece { page: position / PAGE_BYTES as u64, start, at, bytes: length };
        at += length;
        (length > 0).then_some(piece)
    })
}

impl Pages {
    /// Returns the file's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of pages that aren't holes.
    pub fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Returns the pages that aren't holes: the offset of each, and its bytes, up to the file's end.
    pub fn filled(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().filter_map(|(number, page)| {
            let offset = number * PAGE_BYTES as u64;
            let bytes = self.bytes.checked_sub(offset)?.min(PAGE_BYTES as u64) as usize;
            Some((offset, &page[..bytes]))
        })
    }

    /// Reads data up to the file's end.
    pub fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let there = self.bytes.saturating_sub(offset).min(bytes as u64) as usize;
        let mut data = vec![0; there];
        for piece in pieces(offset, there) {
            if let Some(page) = self.pages.get(&piece.page) {
                let part = &page[piece.start..piece.start + piece.bytes];
                data[piece.at..piece.at + piece.bytes].copy_from_slice(part);
            }
        }
        data
    }

    /// Writes data, beyond the end too.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for piece in pieces(offset, data.len()) {
            let part = &data[piece.at..piece.at + piece.bytes];
            self.page(piece.page)[piece.start..piece.start + piece.bytes].copy_from_slice(part);
        }
        self.bytes = self.bytes.max(offset + data.len() as u64);
    }

    /// Sets the file's size; a new part is zeros.
    pub fn resize(&mut self, bytes: u64) {
        if bytes < self.bytes {
            self.zero(bytes, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Makes the whole pages of a range holes, and fills the rest with zeros. The size stays.
    pub fn zero(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        let touched = self.pages.range(offset / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64));
        let touched: Vec<u64> = touched.map(|(&page, _)| page).collect();
        for number in touched {
            let first = number * PAGE_BYTES as u64;
            let start = offset.saturating_sub(first) as usize;
            let stop = (end - first).min(PAGE_BYTES as u64) as usize;
            if (start, stop) == (0, PAGE_BYTES) {
                self.pages.remove(&number);
            } else {
                self.page(number)[start..stop].fill(0);
            }
        }
    }

    /// Flips a bit of a byte within the file.
    pub fn flip(&mut self, offset: u64, bit: u8) {
        let page = self.page(offset / PAGE_BYTES as u64);
        page[(offset % PAGE_BYTES as u64) as usize] ^= 1 << (bit % 8);
    }

    fn page(&mut self, number: u64) -> &mut Page {
        Arc::make_mut(self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After any steps the file equals a vector of bytes.
        #[test]
        fn a_file_of_pages_is_a_file(steps in proptest::collection::vec((0..4u8, 0..20_000usize, 1..9_000usize), 1..20)) {
            let (mut pages, mut model) = (Pages::default(), Vec::<u8>::new());
            for (index, (step, offset, length)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        let data = vec![index as u8 + 1; length];
                        model.resize(model.len().max(offset + length), 0);
                        model[offset..offset + length].copy_from_slice(&data);
                        pages.write(offset as u64, &data);
                    }
                    1 => {
                        model.resize(offset, 0);
                        pages.resize(offset as u64);
                    }
                    2 => {
                        let end = model.len().min(offset + length);
                        model[offset.min(end)..end].fill(0);
                        pages.zero(offset as u64, length as u64);
                    }
                    _ if offset < model.len() => {
                        model[offset] ^= 2;
                        pages.flip(offset as u64, 1);
                    }
                    _ => {}
                }
                prop_assert_eq!(&pages.read(0, usize::MAX / 2), &model);
                prop_assert_eq!(pages.bytes(), model.len() as u64);
            }
        }
    }
}
