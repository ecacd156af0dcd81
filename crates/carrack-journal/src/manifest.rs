//! Lines of a manifest, in the format that `b3sum` prints and `b3sum --check` reads.
//!
//! Owns the escaping of paths. Must not sort, collect or write the lines. Any thread.

use std::borrow::Cow;

/// One line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestLine {
    /// The line with its newline; UTF-8.
    pub bytes: Vec<u8>,
    /// Whether `b3sum --check` can find the file by this line: not if its name is no UTF-8 or holds U+FFFD (which
    /// stands for such bytes), nor for `-` (which is the standard input) and no name at all.
    pub is_checkable: bool,
}

/// The line for a file: 64 hexadecimal digits, two spaces and the path, byte for byte as b3sum 1.8 prints it.
///
/// If the path holds a backslash, newline or carriage return, they are written `\\`, `\n` and `\r`, and the line
/// begins with a backslash. (b3sum 1.2, of Debian 12, does not know `\r` yet.) What is not UTF-8 becomes U+FFFD.
pub fn manifest_line(digest: &[u8; 32], path: &[u8]) -> ManifestLine {
    let shown = String::from_utf8_lossy(path);
    let is_checkable = !shown.contains(['\u{fffd}', '\0']) && !matches!(&*shown, "" | "-");
    let escaped = escape(&shown);
    let mark = if matches!(escaped, Cow::Owned(_)) { "\\" } else { "" };
    let hex = blake3::Hash::from_bytes(*digest).to_hex();
    let bytes = format!("{mark}{hex}  {escaped}\n").into_bytes();
    ManifestLine { bytes, is_checkable }
}

/// Owned exactly if something had to be escaped.
fn escape(path: &str) -> Cow<'_, str> {
    if !path.contains(['\\', '\n', '\r']) {
        return Cow::Borrowed(path);
    }
    Cow::Owned(path.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_digest(path: &[u8]) -> (String, bool) {
        let line = manifest_line(&[0xab; 32], path);
        let text = String::from_utf8(line.bytes).unwrap();
        (text.replacen(&"ab".repeat(32), "HEX", 1), line.is_checkable)
    }

    #[test]
    fn lines_are_b3sums() {
        for (path, line, is_checkable) in [
            (&b"a/b"[..], "HEX  a/b\n", true),
            (b" two  spaces ", "HEX   two  spaces \n", true),
            ("grün".as_bytes(), "HEX  grün\n", true),
            (b"a\x1bb\tc", "HEX  a\x1bb\tc\n", true),
            (b"back\\slash", "\\HEX  back\\\\slash\n", true),
            (b"new\nline\r", "\\HEX  new\\nline\\r\n", true),
            (b"\xff", "HEX  \u{fffd}\n", false),
            (b"\xff\n", "\\HEX  \u{fffd}\\n\n", false),
            ("\u{fffd}".as_bytes(), "HEX  \u{fffd}\n", false),
            (b"-", "HEX  -\n", false),
            (b"", "HEX  \n", false),
        ] {
            assert_eq!(after_digest(path), (line.to_owned(), is_checkable), "{path:?}");
        }
    }
}
