//! Paths as the user typed them: trailing slashes and last names mean something.
//!
//! Pure. What is typed for a place beneath a base ([`crate::Base`]) begins there, whether it has a leading slash or not.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_model::{PathProblem, RelPath};

/// Whether a directory, or its contents, is meant.
pub fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// The last name; nothing for `/`, `.`, `..`, `a/.` and `a/..`.
pub fn last_name(path: &Path) -> Option<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"" | b"." | b".." => None,
        name => Some(name),
    }
}

/// The directory that holds what `path` names; `/` holds itself.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// What `path` names beneath a base. Slashes too many and `.` mean nothing; nothing, `.` and `/` are the base itself.
///
/// # Errors
/// `InvalidInput`, with a [`PathProblem`]: `..` could lead out, and is refused wherever it stands.
pub(crate) fn beneath(path: &Path) -> io::Result<RelPath> {
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
            assert_eq!(beneath(Path::new(typed)).unwrap().as_bytes(), meant.as_bytes(), "{typed}");
        }
        for refused in ["..", "../a", "a/..", "/..", "a/../b", "a\0b", &"x".repeat(256), &"a/".repeat(40_000)]
        {
            let error = beneath(Path::new(refused)).unwrap_err();
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
