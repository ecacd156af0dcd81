//! JSON for programs, as every `--json` has it: one object a line. Field names are stable; new ones may come.
//!
//! A path is `path`, as text; where it is not UTF-8, the bytes that are not stand as U+FFFD in it and `path_hex` holds all its bytes in
//! lower-case hexadecimal (it is absent otherwise). Moments are seconds since 1970, or text as RFC 3339 has it; durations are in the unit
//! that ends a field's name.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

/// Writes an object and the end of its line, at once: what reads sees whole lines.
pub fn write_line(object: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut line = serde_json::to_vec(object)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// The same for an object that may be longer than memory should hold: piece by piece.
pub fn write_long_line(object: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}

/// Writes a line for each object.
pub fn write_lines<T: Serialize>(
    objects: impl IntoIterator<Item = T>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    objects.into_iter().try_for_each(|object| write_line(&object, out))
}

/// The fields of a path.
#[derive(Serialize)]
pub struct Path<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'a> Path<'a> {
    /// Of a path's bytes.
    pub fn of(bytes: &'a [u8]) -> Path<'a> {
        let path_hex = str::from_utf8(bytes).is_err().then(|| hex(bytes));
        Path { path: String::from_utf8_lossy(bytes), path_hex }
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
