//! JSON for programs, the same for every `--json`: one object a line. Field names are stable; new ones may
//! come.
//!
//! A path is `path`, as text. If it is not UTF-8, U+FFFD replaces the invalid bytes and `path_hex` holds all
//! bytes in lower-case hexadecimal; otherwise `path_hex` is absent. Moments are seconds since 1970, or text
//! as in RFC 3339; durations are in the unit that ends a field's name.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

/// Writes an object and the end of its line with one call, so that a reader sees whole lines.
pub fn write_line(object: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut line = serde_json::to_vec(object)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Writes an object that may be too long for memory piece by piece.
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
pub struct JsonFilePathFields<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'a> JsonFilePathFields<'a> {
    /// Returns the fields of a path.
    pub fn of(bytes: &'a [u8]) -> JsonFilePathFields<'a> {
        let path_hex = str::from_utf8(bytes).is_err().then(|| hex(bytes));
        JsonFilePathFields { path: String::from_utf8_lossy(bytes), path_hex }
    }
}

/// Returns bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
