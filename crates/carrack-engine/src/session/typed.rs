//! Paths as the user typed them: trailing slashes and last names mean something.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a directory, or its contents, is meant.
pub(crate) fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// The last name; nothing for `/`, `.`, `..`, `a/.` and `a/..`.
pub(crate) fn last_name(path: &Path) -> Option<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"" | b"." | b".." => None,
        name => Some(name),
    }
}

/// The directory that holds what `path` names; `/` holds itself.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names() {
        for (path, name) in [
            ("a", Some("a")),
            ("a/b", Some("b")),
            ("a/b/", Some("b")),
            ("a//b//", Some("b")),
            ("/", None),
            (".", None),
            ("..", None),
            ("a/.", None),
            ("a/..", None),
            ("", None),
        ] {
            assert_eq!(last_name(Path::new(path)), name.map(str::as_bytes), "{path}");
        }
        assert!(ends_with_slash(Path::new("a/")) && !ends_with_slash(Path::new("a")));
    }
}
