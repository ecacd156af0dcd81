//! Lines of a manifest, in the format that `b3sum` prints and `b3sum --check` reads.
//!
//! Owns the escaping of paths. Must not sort, collect, read or write the lines. Any thread.

use std::borrow::Cow;

/// One line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestLine {
    /// The line with its newline; UTF-8.
    pub bytes: Vec<u8>,
    /// True if `b3sum --check` finds the file by this line. It does not if the name is not UTF-8 or holds
    /// U+FFFD (the replacement of such bytes), nor for `-` (standard input) and an empty name.
    pub is_checkable: bool,
}

/// Formats a file's line: 64 hexadecimal digits, two spaces and the path, byte for byte as b3sum 1.8 prints
/// it.
///
/// A backslash, newline or carriage return in the path is written `\\`, `\n` or `\r`, and the line begins
/// with a backslash. (b3sum 1.2, of Debian 12, does not know `\r` yet.) Bytes that are not UTF-8 become
/// U+FFFD.
pub fn manifest_line(digest: &[u8; 32], path: &[u8]) -> ManifestLine {
    let shown = String::from_utf8_lossy(path);
    let is_checkable = !shown.contains(['\u{fffd}', '\0']) && !matches!(&*shown, "" | "-");
    let escaped = escape(&shown);
    let mark = if matches!(escaped, Cow::Owned(_)) { "\\" } else { "" };
    let hex = blake3::Hash::from_bytes(*digest).to_hex();
    let bytes = format!("{mark}{hex}  {escaped}\n").into_bytes();
    ManifestLine { bytes, is_checkable }
}

/// Reasons why bytes are not a line of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadManifestLine {
    /// No 64 hexadecimal digits and two spaces at the start.
    #[error("no BLAKE3 digest of 64 hexadecimal digits and two spaces")]
    NoDigest,
    /// The path is not UTF-8, has an unknown escape or a NUL, or is empty.
    #[error("no path that b3sum would have written")]
    BadPath,
}

/// Parses a line without its newline: the digest, and the path passed to [`manifest_line`] if that was UTF-8.
///
/// # Errors
/// [`BadManifestLine`].
pub fn read_manifest_line(line: &[u8]) -> Result<([u8; 32], Vec<u8>), BadManifestLine> {
    const DIGITS: usize = 64;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (is_escaped, rest) = line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest));
    let (hex, rest) = rest.split_at_checked(DIGITS).ok_or(BadManifestLine::NoDigest)?;
    let digest = blake3::Hash::from_hex(hex).map_err(|_| BadManifestLine::NoDigest)?;
    let path = rest.strip_prefix(b"  ").ok_or(BadManifestLine::NoDigest)?;
    let is_path = !path.is_empty() && !path.contains(&0) && std::str::from_utf8(path).is_ok();
    let path = if is_escaped { unescape(path) } else { Some(path.to_vec()) };
    Ok((*digest.as_bytes(), path.filter(|_| is_path).ok_or(BadManifestLine::BadPath)?))
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = path.iter();
    let mut meant = Vec::with_capacity(path.len());
    while let Some(&byte) = bytes.next() {
        if byte != b'\\' {
            meant.push(byte);
            continue;
        }
        meant.push(match bytes.next()? {
            b'\\' => b'\\',
            b'n' => b'\n',
            b'r' => b'\r',
            _ => return None,
        });
    }
    Some(meant)
}

/// Returns an owned string if and only if the path needs escapes.
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
    #[test]
    fn what_was_written_is_read() {
        for path in
            [&b"a/b"[..], b" two  spaces ", b"back\\slash\\n", b"new\nline\r", "grün".as_bytes(), b"-"]
        {
            let line = manifest_line(&[0xab; 32], path).bytes;
            let line = line.strip_suffix(b"\n").unwrap();
            assert_eq!(read_manifest_line(line), Ok(([0xab; 32], path.to_vec())), "{path:?}");
        }
        let hex = "AB".repeat(32);
        assert_eq!(read_manifest_line(format!("{hex}  a\r").as_bytes()), Ok(([0xab; 32], b"a".to_vec())));
        for (line, problem) in [
            (String::new(), BadManifestLine::NoDigest),
            ("not a digest  a".into(), BadManifestLine::NoDigest),
            (format!("{}  a", "a".repeat(63)), BadManifestLine::NoDigest),
            (format!("{}  a", "g".repeat(64)), BadManifestLine::NoDigest),
            (format!("{hex} a"), BadManifestLine::NoDigest),
            (format!("{hex}  "), BadManifestLine::BadPath),
            (format!("{hex}  a\0"), BadManifestLine::BadPath),
            (format!("\\{hex}  a\\t"), BadManifestLine::BadPath),
            (format!("\\{hex}  a\\"), BadManifestLine::BadPath),
        ] {
            assert_eq!(read_manifest_line(line.as_bytes()), Err(problem), "{line:?}");
        }
        let not_text = [hex.as_bytes(), b"  a\xff"].concat();
        assert_eq!(read_manifest_line(&not_text), Err(BadManifestLine::BadPath));
    }
}
