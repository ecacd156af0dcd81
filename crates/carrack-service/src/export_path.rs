//! Paths on a daemon: `/EXPORT/sub/path`. No I/O.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A path, split after its export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInExport<'a> {
    /// The export's name, as written.
    pub export: &'a str,
    /// The rest, with a slash at its start, which means the export, and at its end if the path has one.
    pub rest: PathBuf,
}

/// Splits a path; `None` if it names no export. Names of exports are UTF-8, so that other bytes can't be one.
pub fn split(path: &[u8]) -> Option<PathInExport<'_>> {
    let begin = path.iter().position(|&byte| byte != b'/').filter(|&begin| begin > 0)?;
    let named = &path[begin..];
    let end = named.iter().position(|&byte| byte == b'/').unwrap_or(named.len());
    let export = str::from_utf8(&named[..end]).ok().filter(|name| !matches!(*name, "." | ".."))?;
    let rest = if end == named.len() { &b"/"[..] } else { &named[end..] };
    Some(PathInExport { export, rest: PathBuf::from(OsStr::from_bytes(rest)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_is_the_export() {
        for (path, export, rest) in [
            ("/data/a/b", "data", "/a/b"),
            ("/data", "data", "/"),
            ("/data/", "data", "/"),
            ("//data//a/", "data", "//a/"),
            ("/data/../etc", "data", "/../etc"),
        ] {
            let expected = PathInExport { export, rest: rest.into() };
            assert_eq!(split(path.as_bytes()), Some(expected), "{path}");
        }
        for path in ["", "/", "//", "data/a", "./data", "/./data", "/../data", "~"] {
            assert_eq!(split(path.as_bytes()), None, "{path}");
        }
        assert_eq!(split(b"/\xff/a"), None);
    }
}
