//! Paths as the user typed them: trailing slashes and last names carry meaning.
//!
//! Pure. A path beneath a base ([`crate::PathBase`]) starts at the base, with or without a leading slash.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_model::{PathProblem, RelPath};

/// Returns true if the path ends with a slash, which selects a directory or its contents.
pub fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// The last name; none for `/`, `.`, `..`, `a/.` and `a/..`.
pub fn last_name(path: &Path) -> Option<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"" | b"." | b".." => None,
        name => Some(name),
    }
}

/// The directory that contains `path`; `/` contains itself.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Resolves `path` beneath a base. Repeated slashes and `.` are dropped; the empty path, `.` and `/` are the
/// base itself.
///
/// # Errors
/// `InvalidInput`, with a [`PathProblem`]: `..` could lead out of the base and is refused everywhere.
pub(crate) fn to_relative_path(path: &Path) -> io::Result<RelPath> {
    let components = path.as_os_str().as_bytes().split(|&b| b == b'/');
    let names: Vec<&[u8]> = components.filter(|name| !matches!(*name, b"" | b".")).collect();
    RelPath::new(&names.join(&b'/')).map_err(bad_path)
}

fn bad_path(problem: PathProblem) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beneath_a_base_every_path_begins_there() {
        for (typed, meant) in [
            ("a/b", "a/b"),
            ("/a/b", "a/b"),
            ("///a//./b/", "a/b"),
            ("", ""),
            ("/", ""),
            (".", ""),
            ("./", ""),
            ("...", "..."),
        ] {
            assert_eq!(to_relative_path(Path::new(typed)).unwrap().as_bytes(), meant.as_bytes(), "{typed}");
        }
        for refused in ["..", "../a", "a/..", "/..", "a/../b", "a\0b", &"x".repeat(256), &"a/".repeat(40_000)]
        {
            let error = to_relative_path(Path::new(refused)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }

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
