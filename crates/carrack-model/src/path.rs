//! Paths as bytes: relative, normal, and safe to resolve beneath a directory.

use std::fmt;
use std::sync::Arc;

use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// Reasons why bytes are not a valid name or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProblem {
    /// A component is empty (`a//b`, a leading or a trailing slash).
    EmptyComponent,
    /// A component is `.` or `..`.
    DotComponent,
    /// A component holds a NUL byte.
    Nul,
    /// A name holds a slash.
    Slash,
    /// A component is longer than [`NAME_BYTES_MAX`].
    NameTooLong,
    /// The whole path is longer than [`PATH_BYTES_MAX`].
    PathTooLong,
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathProblem::EmptyComponent => "an empty name in the path",
            PathProblem::DotComponent => "'.' or '..' in the path",
            PathProblem::Nul => "a NUL byte in the name",
            PathProblem::Slash => "a slash in the name",
            PathProblem::NameTooLong => "a name longer than 255 bytes",
            PathProblem::PathTooLong => "a path longer than 65,535 bytes",
        })
    }
}

impl std::error::Error for PathProblem {}

/// Checks one path component: 1 to 255 bytes, no slash, no NUL, neither `.` nor `..`.
pub fn check_name(name: &[u8]) -> Result<(), PathProblem> {
    match name {
        b"" => Err(PathProblem::EmptyComponent),
        b"." | b".." => Err(PathProblem::DotComponent),
        _ if name.len() > NAME_BYTES_MAX => Err(PathProblem::NameTooLong),
        _ if name.contains(&0) => Err(PathProblem::Nul),
        _ if name.contains(&b'/') => Err(PathProblem::Slash),
        _ => Ok(()),
    }
}

/// A path relative to the root of a transfer: names joined by `/`, any bytes but NUL, never `.` or `..`.
///
/// The empty path is the root itself. Cheap to clone: files of one directory share its bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Arc<[u8]>);

impl RelPath {
    /// The root itself.
    pub fn root() -> RelPath {
        RelPath(Arc::from(&b""[..]))
    }

    /// Checks every component of `bytes`.
    pub fn new(bytes: &[u8]) -> Result<RelPath, PathProblem> {
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathProblem::PathTooLong);
        }
        if !bytes.is_empty() {
            bytes.split(|&b| b == b'/').try_for_each(check_name)?;
        }
        Ok(RelPath(Arc::from(bytes)))
    }

    /// This path with one more component.
    pub fn join(&self, name: &[u8]) -> Result<RelPath, PathProblem> {
        check_name(name)?;
        let joined = self.join_unchecked(name);
        if joined.len() > PATH_BYTES_MAX {
            return Err(PathProblem::PathTooLong);
        }
        Ok(RelPath(Arc::from(joined)))
    }

    fn join_unchecked(&self, name: &[u8]) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.0.len() + 1 + name.len());
        joined.extend_from_slice(&self.0);
        if !self.is_root() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        joined
    }

    /// The bytes, without leading or trailing slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components in order; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|c| !c.is_empty())
    }

    /// Splits the path into directory and last name; `None` for the root.
    pub fn split_last(&self) -> Option<(RelPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(slash) => Some((RelPath(Arc::from(&self.0[..slash])), &self.0[slash + 1..])),
            None => Some((RelPath::root(), &self.0)),
        }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str(".") } else { f.write_str(&escape(&self.0)) }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

/// Formats a path for people: printable UTF-8 unchanged, control characters and other bytes as `\n`, `\x1b`
/// and so on.
///
/// A peer's names can therefore not control this machine's terminal.
pub fn escape(path: &[u8]) -> String {
    let mut shown = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                c if c.is_control() => shown.extend(c.escape_default()),
                c => shown.push(c),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_any_bytes_that_a_linux_name_may_hold() {
        for path in [&b"a"[..], b"a/b", b"new\nline", b"\xff\xfe", b"...", b"a b/ c", &[b'x'; 255]] {
            assert!(RelPath::new(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn refuses_what_could_leave_the_root() {
        for (path, problem) in [
            (&b"/etc"[..], PathProblem::EmptyComponent),
            (b"a//b", PathProblem::EmptyComponent),
            (b"a/", PathProblem::EmptyComponent),
            (b"..", PathProblem::DotComponent),
            (b"a/../b", PathProblem::DotComponent),
            (b"./a", PathProblem::DotComponent),
            (b"a\0b", PathProblem::Nul),
            (&[b'x'; 256], PathProblem::NameTooLong),
            (&[b'/'; 70_000], PathProblem::PathTooLong),
        ] {
            assert_eq!(RelPath::new(path), Err(problem));
        }
        assert_eq!(RelPath::root().join(b"a/b"), Err(PathProblem::Slash));
    }

    #[test]
    fn joins_and_splits() {
        let path = RelPath::root().join(b"a").unwrap().join(b"b").unwrap();
        assert_eq!(path.as_bytes(), b"a/b");
        let (directory, name) = path.split_last().unwrap();
        assert_eq!((directory.as_bytes(), name), (&b"a"[..], &b"b"[..]));
        assert_eq!(path.components().count(), 2);
        assert!(RelPath::root().split_last().is_none());
    }

    #[test]
    fn escapes_what_a_terminal_would_obey() {
        assert_eq!(escape(b"a\x1b[2Jb\n\xff\\"), "a\\u{1b}[2Jb\\n\\xff\\\\");
        assert_eq!(escape("grün".as_bytes()), "grün");
    }
}
