//! Lines that are held back until the terminal is free.

use std::io::{self, Write};

/// Most bytes that are held: an unreadable directory may have millions of failures, and the summary counts
/// them.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A writer that holds its text back until it is released.
pub struct HeldOutput<W: Write> {
    out: W,
    /// The held text; `None` after the release.
    kept: Option<Vec<u8>>,
    lost: u64,
}

impl<W: Write> HeldOutput<W> {
    /// Creates a holder in front of `out`.
    pub fn new(out: W) -> HeldOutput<W> {
        HeldOutput { out, kept: Some(Vec::new()), lost: 0 }
    }

    /// Writes the held text, and later text at once. A write error on stderr can't be reported.
    pub fn release(&mut self) {
        if let Some(kept) = self.kept.take() {
            let _ = self.out.write_all(&kept);
        }
        if self.lost > 0 {
            let _ = writeln!(self.out, "carrack: … and {} more lines", self.lost);
        }
    }
}

impl<W: Write> Write for HeldOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.kept {
            None => return self.out.write(bytes),
            Some(kept) if self.lost == 0 && kept.len() + bytes.len() <= KEPT_BYTES_MAX => kept.extend(bytes),
            Some(_) => self.lost += bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_late_and_in_order() {
        let mut out = Vec::new();
        let mut held = HeldOutput::new(&mut out);
        writeln!(held, "first").unwrap();
        assert!(held.out.is_empty());
        held.release();
        writeln!(held, "second").unwrap();
        assert_eq!(out, b"first\nsecond\n");
    }

    #[test]
    fn a_flood_is_counted() {
        let mut out = Vec::new();
        let mut held = HeldOutput::new(&mut out);
        let line = "x".repeat(1_023);
        (0..1_030).for_each(|_| writeln!(held, "{line}").unwrap());
        held.release();
        assert!(out.len() <= KEPT_BYTES_MAX + 100);
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().filter(|kept| **kept == line).count();
        assert!(text.ends_with(&format!("carrack: … and {} more lines\n", 1_030 - lines)), "{}", text.len());
    }
}
