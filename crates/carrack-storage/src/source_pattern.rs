//! Sources with wildcards, which scp and rsync expand with the remote shell: `*`, `?` and `[a-z]` within one
//! name. A leading dot is matched only by a pattern with a leading dot.
//!
//! Only the end that has the files expands them, and only if no entry has the literal name. On this host the
//! shell has expanded them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{Dir, Mode, OFlags, openat};

use crate::base::{PathBase, PathPurpose};

/// Bound of the sources of one pattern, whose paths are kept for the duration of the transfer.
const MATCHES_MAX: usize = 1 << 20;

/// One name with wildcards.
#[derive(Clone, Debug)]
pub struct SourceNameWildcard(GlobMatcher);

impl PartialEq for SourceNameWildcard {
    fn eq(&self, other: &SourceNameWildcard) -> bool {
        self.0.glob() == other.0.glob()
    }
}

impl Eq for SourceNameWildcard {}

impl SourceNameWildcard {
    /// Compiles a pattern; none for a name without wildcards, or with brackets that form no set.
    pub fn new(name: &[u8]) -> Option<SourceNameWildcard> {
        let text = std::str::from_utf8(name).ok().filter(|text| text.contains(['*', '?', '[']))?;
        // Only the user's own shell expands braces.
        let text = text.replace('{', "[{]").replace('}', "[}]");
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build().ok()?;
        Some(SourceNameWildcard(glob.compile_matcher()))
    }

    /// Returns true if the pattern matches `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        let is_shown = !name.starts_with(b".") || self.0.glob().glob().starts_with('.');
        is_shown && self.0.is_match(OsStr::from_bytes(name))
    }
}

impl PathBase {
    /// The sources that `typed` matches, sorted by name: the entry of that literal name, else the matches of
    /// the pattern, else the missing name itself.
    ///
    /// # Errors
    /// If a directory can't be listed, or too many names match.
    pub fn expand(&self, typed: &Path) -> io::Result<Vec<PathBuf>> {
        let has_pattern = typed.iter().any(|name| pattern_of(name).is_some());
        if !has_pattern || self.look(typed, PathPurpose::Read).is_ok() {
            return Ok(vec![typed.to_path_buf()]);
        }
        let mut found = vec![PathBuf::new()];
        for component in typed.components() {
            let pattern = match component {
                Component::Normal(name) => pattern_of(name),
                _ => None,
            };
            let next = match pattern {
                None => found.into_iter().map(|path| path.join(component)).collect(),
                Some(pattern) => self.matching(&found, &pattern)?,
            };
            found = next;
        }
        // A name behind a pattern may be missing in some of the directories.
        found.retain(|path| self.look(path, PathPurpose::Read).is_ok());
        if found.is_empty() {
            return Ok(vec![typed.to_path_buf()]);
        }
        if typed.as_os_str().as_bytes().ends_with(b"/") {
            found.iter_mut().for_each(|path| path.push(""));
        }
        Ok(found)
    }

    /// The matching names in these directories.
    fn matching(&self, directories: &[PathBuf], pattern: &SourceNameWildcard) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for directory in directories {
            let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            let root = match self.open(shown, PathPurpose::ReadThrough) {
                Ok(root) => root,
                // A match of another pattern may be a file, or lack the next name.
                Err(error) if directories.len() > 1 && is_no_directory(&error) => continue,
                Err(error) => return Err(error),
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            for entry in Dir::new(openat(root.as_fd(), c".", flags, Mode::empty())?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") && pattern.matches(name) {
                    found.push(directory.join(OsStr::from_bytes(name)));
                }
            }
            if found.len() > MATCHES_MAX {
                return Err(io::Error::other(format!("more than {MATCHES_MAX} names match")));
            }
        }
        found.sort();
        Ok(found)
    }
}

fn pattern_of(name: &OsStr) -> Option<SourceNameWildcard> {
    SourceNameWildcard::new(name.as_bytes())
}

fn is_no_directory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::RootDirectory;

    #[test]
    fn names_match_as_in_a_shell() {
        fn matches(pattern: &str, name: &str) -> bool {
            SourceNameWildcard::new(pattern.as_bytes()).unwrap().matches(name.as_bytes())
        }
        assert!(matches("*.dat", "a.dat") && matches("?[0-9]*", "x7yz") && matches("[!a]", "b"));
        assert!(!matches("*", ".bashrc") && matches(".*", ".bashrc") && !matches("[!a]b", "ab"));
        assert!(matches("*{x}", "a{x}") && !matches("*{x}", "ax") && matches("a\\*?", "a*b"));
        for plain in ["name", "a[b", ""] {
            assert_eq!(SourceNameWildcard::new(plain.as_bytes()), None, "{plain}");
        }
    }

    #[test]
    fn patterns_become_the_names_that_are_there() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["d1/a.dat", "d1/b.dat", "d1/.c.dat", "d2/a.dat", "d2/x/f", "[z]/f", "file"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        fn expand(base: &PathBase, typed: &str) -> Vec<String> {
            let found = base.expand(Path::new(typed)).unwrap();
            found.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
        }
        let base = PathBase::beneath(RootDirectory::open(dir.path()).unwrap());
        assert_eq!(expand(&base, "/d?/*.dat"), ["/d1/a.dat", "/d1/b.dat", "/d2/a.dat"]);
        assert_eq!(expand(&base, "d*/x"), ["d2/x"]);
        assert_eq!(expand(&base, "*/x/*"), ["d2/x/f"]);
        assert_eq!(expand(&base, "d*/"), ["d1/", "d2/"]);
        assert_eq!(expand(&base, "[z]"), ["[z]"], "what has the name as it stands");
        assert_eq!(expand(&base, "none*"), ["none*"]);
        assert_eq!(expand(&base, "d1"), ["d1"]);
        assert!(base.expand(Path::new("../*")).is_err());
        let typed = dir.path().join("d1/*.dat");
        assert_eq!(PathBase::Anywhere.expand(&typed).unwrap().len(), 2);
    }
}
