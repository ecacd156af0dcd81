//! Layouts as the file systems would write them, for the targets that read a layout and compare, and for the seeds.

use carrack_layout::formats::{GpfsBlocks, LovComponent, LovFile, LovStripes, block_request};

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;

/// Writes values of `lustre.lov`, in the byte order of a machine.
#[derive(Clone, Copy, Debug)]
pub struct LovWriter {
    /// Whether the machine's is big-endian.
    pub is_big: bool,
}

impl LovWriter {
    /// A whole value.
    pub fn file(self, file: &LovFile) -> Vec<u8> {
        match file {
            LovFile::Plain(stripes) => self.stripes(Some(stripes)),
            LovFile::Composite(components) => self.composite(components),
            LovFile::Foreign => self.stripes(None),
        }
    }

    fn composite(self, components: &[LovComponent]) -> Vec<u8> {
        let parts: Vec<_> =
            components.iter().map(|component| self.stripes(component.stripes.as_ref())).collect();
        let mut offset = 32 + 48 * parts.len();
        let size = offset + parts.iter().map(Vec::len).sum::<usize>();
        let mut value = Vec::new();
        self.numbers(&mut value, &[MAGIC_COMPOSITE, size as u32, 1]);
        self.shorts(&mut value, &[0, components.len() as u16]);
        value.resize(32, 0);
        for (component, part) in components.iter().zip(&parts) {
            self.numbers(&mut value, &[component.id, component.flags]);
            self.longs(&mut value, &[component.start, component.end]);
            self.numbers(&mut value, &[offset as u32, part.len() as u32, 0, 0, 0, 0]);
            offset += part.len();
        }
        value.extend(parts.concat());
        value
    }

    /// Nothing for what is foreign.
    fn stripes(self, stripes: Option<&LovStripes>) -> Vec<u8> {
        let mut value = Vec::new();
        let Some(stripes) = stripes else {
            self.numbers(&mut value, &[MAGIC_FOREIGN, 0, 0, 0]);
            return value;
        };
        let magic = if stripes.pool.is_some() { MAGIC_V3 } else { MAGIC_V1 };
        self.numbers(&mut value, &[magic, stripes.pattern, 0, 0, 0, 0, stripes.stripe_bytes]);
        self.shorts(&mut value, &[stripes.stripe_count, 0]);
        if let Some(pool) = &stripes.pool {
            value.extend(pool.as_bytes());
            value.resize(48, 0);
        }
        for ost in &stripes.osts {
            self.numbers(&mut value, &[0, 0, 0, 0, 0, *ost]);
        }
        value
    }

    fn shorts(self, value: &mut Vec<u8>, numbers: &[u16]) {
        let bytes = |number: &u16| if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        value.extend(numbers.iter().flat_map(bytes));
    }

    fn numbers(self, value: &mut Vec<u8>, numbers: &[u32]) {
        let bytes = |number: &u32| if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        value.extend(numbers.iter().flat_map(bytes));
    }

    fn longs(self, value: &mut Vec<u8>, numbers: &[u64]) {
        let bytes = |number: &u64| if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        value.extend(numbers.iter().flat_map(bytes));
    }
}

/// What GPFS would answer, with one copy of each block.
pub fn gpfs_answer(blocks: &GpfsBlocks) -> Vec<u8> {
    let mut answer = block_request(0, 1);
    answer.truncate(56);
    for number in
        [1, blocks.blocks.len() as u32, blocks.block_bytes as u32, (blocks.block_bytes >> 32) as u32]
    {
        answer.extend(number.to_ne_bytes());
    }
    for (offset, disk) in &blocks.blocks {
        answer.extend(offset.to_ne_bytes());
        answer.extend(disk.unwrap_or(u32::MAX).to_ne_bytes());
    }
    answer
}
