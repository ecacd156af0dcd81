//! Selects the entries of a scan that are left out, with the reason.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carrack_model::{Entry, EntryKind, FilterLanguage, LinkPolicy, RelPath, ScanSelection};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::filter_rules::{
    DirectoryRules, OwnDirectoryRules, RcloneRules, RsyncRules, RuleQuery, RuleSide, path_subject,
};

/// The reasons for a name that the user's patterns, or the list of names, leave out.
pub(super) const EXCLUDED: &str = "excluded";
const NOT_NAMED: &str = "not in the list";

/// A compiled [`ScanSelection`], shared by all threads of a scan.
#[derive(Debug)]
pub struct ScanFilter {
    selection: ScanSelection,
    patterns: SelectionPatterns,
    names: Option<ListedPathSelection>,
}

/// Compiled patterns of one language.
#[derive(Debug)]
enum SelectionPatterns {
    Gitignore(Gitignore),
    Rsync(RsyncRules),
    Rclone(RcloneRules),
}

/// A directory whose names are compared with the patterns.
#[derive(Clone, Copy, Debug)]
pub struct FilteredDirectory<'a> {
    /// Its path beneath the source.
    pub at_source: &'a RelPath,
    /// Its path beneath the destination.
    pub at_sink: &'a RelPath,
    /// The rules of its own files of rules, and the inherited ones.
    pub rules: Option<&'a DirectoryRules>,
}

/// The circumstances of a deletion that decide whether an excluded entry stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeletionCircumstances {
    /// True with `--delete-excluded`.
    pub deletes_excluded: bool,
    /// True for an entry of a directory that is deleted.
    pub is_directory_deleted: bool,
}

/// An invalid pattern.
#[derive(Clone, Debug, thiserror::Error)]
#[error("'{pattern}' is no pattern: {detail}")]
pub struct BadPattern {
    /// The pattern as it was written.
    pub pattern: String,
    /// The cause.
    pub detail: String,
}

impl BadPattern {
    fn new(pattern: &str, detail: impl ToString) -> BadPattern {
        BadPattern { pattern: pattern.to_owned(), detail: detail.to_string() }
    }
}

impl SelectionPatterns {
    fn new(selection: &ScanSelection) -> Result<SelectionPatterns, BadPattern> {
        match selection.language {
            FilterLanguage::Gitignore => {
                let mut builder = GitignoreBuilder::new("");
                for pattern in &selection.patterns {
                    builder.add_line(None, pattern).map_err(|error| BadPattern::new(pattern, error))?;
                }
                let built = builder.build().map_err(|error| BadPattern::new("", error))?;
                Ok(SelectionPatterns::Gitignore(built))
            }
            FilterLanguage::Rsync => {
                let rules = RsyncRules::new(&selection.patterns);
                rules
                    .map(SelectionPatterns::Rsync)
                    .map_err(|error| BadPattern::new(&error.rule, error.detail))
            }
            FilterLanguage::Rclone => {
                let rules = RcloneRules::new(&selection.patterns);
                rules.map(SelectionPatterns::Rclone).map_err(|(line, detail)| BadPattern::new(&line, detail))
            }
        }
    }

    /// Returns true if the patterns exclude a name; rules of rsync do so for the side of the query.
    fn excludes(
        &self,
        directory: FilteredDirectory<'_>,
        name: &[u8],
        is_directory: bool,
        query: RuleQuery,
    ) -> bool {
        match self {
            SelectionPatterns::Gitignore(patterns) if patterns.is_empty() => false,
            SelectionPatterns::Gitignore(patterns) => {
                let path = path_of(directory.at_source, name);
                patterns.matched(Path::new(OsStr::from_bytes(&path)), is_directory).is_ignore()
            }
            SelectionPatterns::Rsync(rules) => {
                let subject = path_subject(directory.at_sink, name, is_directory);
                rules.excludes(&subject, query, directory.rules)
            }
            SelectionPatterns::Rclone(rules) => {
                rules.excludes(&path_of(directory.at_source, name), is_directory)
            }
        }
    }
}

/// The query of a source.
const OF_SOURCE: RuleQuery =
    RuleQuery { side: RuleSide::Source, deletes_excluded: false, is_directory_deleted: false };

impl ScanFilter {
    /// Compiles a selection; none if it selects everything.
    ///
    /// # Errors
    /// For the first invalid pattern.
    pub fn new(selection: &ScanSelection) -> Result<Option<ScanFilter>, BadPattern> {
        if selection.is_everything() {
            return Ok(None);
        }
        Ok(Some(ScanFilter {
            patterns: SelectionPatterns::new(selection)?,
            names: selection.names.as_deref().map(ListedPathSelection::new),
            selection: selection.clone(),
        }))
    }

    /// Returns true if the patterns exclude a name from the copy.
    pub fn excludes(&self, directory: FilteredDirectory<'_>, name: &[u8], is_directory: bool) -> bool {
        self.patterns.excludes(directory, name, is_directory, OF_SOURCE)
    }

    /// Returns true if the patterns exclude a name from the deletion at the sink.
    pub fn protects(
        &self,
        directory: FilteredDirectory<'_>,
        name: &[u8],
        is_directory: bool,
        deletion: DeletionCircumstances,
    ) -> bool {
        let DeletionCircumstances { deletes_excluded, is_directory_deleted } = deletion;
        let is_rsync = matches!(self.patterns, SelectionPatterns::Rsync(_));
        let query = RuleQuery { side: RuleSide::Sink, deletes_excluded, is_directory_deleted };
        (is_rsync || !deletes_excluded) && self.patterns.excludes(directory, name, is_directory, query)
    }

    /// Returns true if it is certain at the sink that the patterns exclude a name from the copy. A rule that
    /// comes after files of rules in directories is not certain: the source's files may differ.
    pub fn surely_excludes(&self, directory: FilteredDirectory<'_>, name: &[u8], is_directory: bool) -> bool {
        match &self.patterns {
            SelectionPatterns::Rsync(rules) => {
                rules.excludes_everywhere(&path_subject(directory.at_sink, name, is_directory), OF_SOURCE)
            }
            SelectionPatterns::Gitignore(_) | SelectionPatterns::Rclone(_) => {
                self.excludes(directory, name, is_directory)
            }
        }
    }

    /// Returns true if rules exclude a source that becomes the directory `sink` of the destination. Patterns
    /// of other languages than rsync's are relative to the source, and don't match the source itself.
    pub fn excludes_source(&self, sink: &RelPath) -> bool {
        let SelectionPatterns::Rsync(_) = self.patterns else { return false };
        sink.split_last().is_some_and(|(above, name)| {
            let directory = FilteredDirectory { at_source: &above, at_sink: &above, rules: None };
            self.excludes(directory, name, true)
        })
    }

    /// Returns true if directories may have files of rules.
    pub fn reads_directory_rules(&self) -> bool {
        matches!(&self.patterns, SelectionPatterns::Rsync(rules) if !rules.merges().is_empty())
    }

    /// Reads the files of rules in a directory; `None` if it has none.
    ///
    /// # Errors
    /// The reason why a file's rules are unknown, as a message.
    pub fn own_rules(
        &self,
        held: BorrowedFd<'_>,
        at_sink: &RelPath,
    ) -> Result<Option<OwnDirectoryRules>, String> {
        match &self.patterns {
            SelectionPatterns::Rsync(rules) if !rules.merges().is_empty() => {
                OwnDirectoryRules::read(rules.merges(), held, at_sink)
            }
            _ => Ok(None),
        }
    }

    /// Returns the rules for the entries of a directory with these rules of its own, in a directory for whose
    /// entries `above` counts.
    ///
    /// # Errors
    /// If too many directories above each other have such files.
    pub fn rules_beneath(
        &self,
        above: Option<&Arc<DirectoryRules>>,
        own: Option<&OwnDirectoryRules>,
    ) -> Result<Option<Arc<DirectoryRules>>, String> {
        match &self.patterns {
            SelectionPatterns::Rsync(rules) => DirectoryRules::beneath(rules.merges(), above, own),
            SelectionPatterns::Gitignore(_) | SelectionPatterns::Rclone(_) => Ok(None),
        }
    }

    /// The reason why a name is left out, independent of its size, time and target.
    pub(super) fn name_rejection(
        &self,
        directory: FilteredDirectory<'_>,
        name: &[u8],
        is_directory: bool,
    ) -> Option<&'static str> {
        match &self.names {
            Some(names) if !names.has(directory.at_source, name, is_directory) => Some(NOT_NAMED),
            _ => self.excludes(directory, name, is_directory).then_some(EXCLUDED),
        }
    }

    /// The reason why a file, link or special file is left out.
    pub(super) fn entry_rejection(
        &self,
        directory: FilteredDirectory<'_>,
        entry: &Entry,
    ) -> Option<&'static str> {
        let ScanSelection { size_min, size_max, newer, .. } = &self.selection;
        match self.name_rejection(directory, entry.name_at_source(), false) {
            Some(reason) => Some(reason),
            None => match &entry.kind {
                EntryKind::Symlink { target } => self.link_rejection(directory.at_source, target),
                EntryKind::Special(_) => None,
                EntryKind::Regular { size } if size < size_min => Some("smaller than --min-size"),
                EntryKind::Regular { size } if size_max.is_some_and(|most| *size > most) => {
                    Some("larger than --max-size")
                }
                EntryKind::Regular { .. } => {
                    newer.is_some_and(|newer| entry.metadata.mtime <= newer).then_some("not newer")
                }
            },
        }
    }

    fn link_rejection(&self, directory: &RelPath, target: &[u8]) -> Option<&'static str> {
        match self.selection.links {
            LinkPolicy::Copied | LinkPolicy::Followed => None,
            LinkPolicy::Skipped => Some("a symbolic link"),
            LinkPolicy::SafeOnly => leads_out(directory, target).then_some("a link that leads out"),
        }
    }

    /// Returns true if links are followed and their targets copied.
    pub fn follows_links(&self) -> bool {
        self.selection.links == LinkPolicy::Followed
    }

    /// Returns true if directories on other devices than their root's are left out.
    pub(super) fn is_on_one_file_system(&self) -> bool {
        self.selection.one_file_system
    }

    /// The names of the list in `directory`, a path beneath the source, and of the directories that lead to
    /// listed names; none if the directory is wanted as a whole.
    pub(super) fn names_in(&self, directory: &RelPath) -> Vec<&[u8]> {
        let Some(names) = &self.names else { return Vec::new() };
        let paths = names.known.keys();
        paths.filter_map(|path| start_of_name(directory, path).map(|start| &path[start..])).collect()
    }

    /// The names of the list that the scan did not meet.
    pub(super) fn missing(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.names.iter().flat_map(|names| &names.known);
        names.filter(|(_, name)| name.is_whole && !name.is_met.load(Relaxed)).map(|(path, _)| &**path)
    }
}

fn path_of(directory: &RelPath, name: &[u8]) -> Vec<u8> {
    if directory.is_root() { name.to_vec() } else { [directory.as_bytes(), name].join(&b'/') }
}

/// The offset of the last name in `path` if the path is an entry of `directory`.
fn start_of_name(directory: &RelPath, path: &[u8]) -> Option<usize> {
    let above = directory.as_bytes();
    let start = if above.is_empty() { 0 } else { above.len() + 1 };
    let is_inner = path.starts_with(above) && (above.is_empty() || path.get(above.len()) == Some(&b'/'));
    (is_inner && path.len() > start && !path[start..].contains(&b'/')).then_some(start)
}

/// Returns true if the text of a link in `directory`, a path beneath the source, leads out of the source, or
/// may do so. The rules are rsync's: an absolute link leads out, and so does a `..` behind a name, which may
/// be a link itself.
fn leads_out(directory: &RelPath, target: &[u8]) -> bool {
    let mut depth = if directory.is_root() { 0 } else { directory.components().count() };
    let mut is_below = false;
    for part in target.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        match (part == b"..", is_below) {
            (true, true) => return true,
            (true, false) if depth == 0 => return true,
            (true, false) => depth -= 1,
            (false, _) => is_below = true,
        }
    }
    target.first() == Some(&b'/')
}

/// A list of paths, and the directories that lead to them.
#[derive(Debug)]
struct ListedPathSelection {
    known: HashMap<Box<[u8]>, ListedPathState>,
}

#[derive(Debug, Default)]
struct ListedPathState {
    /// True if the list contains the path, false if it only leads to listed paths.
    is_whole: bool,
    is_met: AtomicBool,
}

impl ListedPathSelection {
    fn new(list: &[Box<[u8]>]) -> ListedPathSelection {
        let mut known: HashMap<Box<[u8]>, ListedPathState> = HashMap::with_capacity(list.len());
        for path in list {
            known.entry(path.clone()).or_default().is_whole = true;
            let mut above = &path[..];
            while let Some(slash) = above.iter().rposition(|&byte| byte == b'/') {
                above = &above[..slash];
                known.entry(above.into()).or_default();
            }
        }
        ListedPathSelection { known }
    }

    /// Returns true if the path is in the list, beneath a listed path, or a directory that leads to one.
    fn has(&self, directory: &RelPath, name: &[u8], is_directory: bool) -> bool {
        if self.known.get(&b""[..]).is_some_and(|root| root.is_whole) {
            self.known[&b""[..]].is_met.store(true, Relaxed);
            return true;
        }
        let path = path_of(directory, name);
        if let Some(known) = self.known.get(&*path) {
            known.is_met.store(true, Relaxed);
            if known.is_whole || is_directory {
                return true;
            }
        }
        let mut above = &path[..];
        while let Some(slash) = above.iter().rposition(|&byte| byte == b'/') {
            above = &above[..slash];
            if self.known.get(above).is_some_and(|known| known.is_whole) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_model::{Metadata, Timestamp};

    fn filter(patterns: &[&str]) -> ScanFilter {
        let patterns = patterns.iter().map(|&line| line.to_owned()).collect();
        ScanFilter::new(&ScanSelection { patterns, ..ScanSelection::default() }).unwrap().unwrap()
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    fn excludes(filter: &ScanFilter, directory: &str, name: &[u8], is_directory: bool) -> bool {
        let path = path(directory);
        filter.excludes(
            FilteredDirectory { at_source: &path, at_sink: &path, rules: None },
            name,
            is_directory,
        )
    }

    fn file(size: u64, seconds: i64) -> Entry {
        Entry {
            name: b"f"[..].into(),
            source_name: None,
            kind: EntryKind::Regular { size },
            metadata: Metadata { mode: 0o644, mtime: Timestamp { seconds, nanoseconds: 0 } },
            identity: 1,
            extras: None,
        }
    }

    #[test]
    fn lines_mean_what_gitignore_has() {
        let filter = filter(&["*.o", "/top", "build/", "a/*.c", "!keep.o", "**/x/y"]);
        for (directory, name, is_directory, is_out) in [
            ("", "f.o", false, true),
            ("d/e", "f.o", false, true),
            ("d", "keep.o", false, false),
            ("", "top", false, true),
            ("d", "top", false, false),
            ("d", "build", true, true),
            ("d", "build", false, false),
            ("a", "f.c", false, true),
            ("b/a", "f.c", false, false),
            ("p/q/x", "y", false, true),
        ] {
            let found = excludes(&filter, directory, name.as_bytes(), is_directory);
            assert_eq!(found, is_out, "{directory}/{name}");
        }
        assert!(excludes(&self::filter(&["\\#x"]), "", b"#x", false));
        assert!(!excludes(&self::filter(&["*.o"]), "", b"\xff", false));
        assert!(excludes(&self::filter(&["*.o"]), "", b"\xff.o", false));
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        let patterns = vec!["a".to_owned(), "{a".to_owned()];
        let error = ScanFilter::new(&ScanSelection { patterns, ..ScanSelection::default() }).unwrap_err();
        assert_eq!(error.pattern, "{a");
    }

    #[test]
    fn files_have_sizes_and_times() {
        let newer = Some(Timestamp { seconds: 100, nanoseconds: 0 });
        let selection = ScanSelection { size_min: 10, size_max: Some(20), newer, ..ScanSelection::default() };
        let filter = ScanFilter::new(&selection).unwrap().unwrap();
        for (size, seconds, is_out) in
            [(9, 101, true), (10, 101, false), (20, 101, false), (21, 101, true), (10, 100, true)]
        {
            let root = RelPath::root();
            let directory = FilteredDirectory { at_source: &root, at_sink: &root, rules: None };
            assert_eq!(filter.entry_rejection(directory, &file(size, seconds)).is_some(), is_out, "{size}");
        }
        assert!(ScanFilter::new(&ScanSelection::default()).unwrap().is_none());
    }

    #[test]
    fn links_that_lead_out_are_told() {
        for (directory, target, is_out) in [
            ("", "f", false),
            ("", "./d/f", false),
            ("", "..", true),
            ("", "../tree/f", true),
            ("d", "../f", false),
            ("d", "..", false),
            ("d/e", "../../f", false),
            ("d/e", ".././../../f", true),
            ("d", "e/../f", true),
            ("d", "/f", true),
        ] {
            assert_eq!(leads_out(&path(directory), target.as_bytes()), is_out, "{directory} {target}");
        }
    }

    #[test]
    fn a_list_takes_directories_whole_and_tells_what_is_missing() {
        let names: Vec<Box<[u8]>> =
            ["d/e", "d/f", "gone"].iter().map(|name| name.as_bytes().into()).collect();
        let selection = ScanSelection { names: Some(names.into()), ..ScanSelection::default() };
        let filter = ScanFilter::new(&selection).unwrap().unwrap();
        for (directory, name, is_directory, is_in) in [
            ("", "d", true, true),
            ("", "d", false, false),
            ("d", "e", true, true),
            ("d/e/deep", "x", false, true),
            ("d", "f", false, true),
            ("d", "g", false, false),
            ("", "other", true, false),
        ] {
            let path = path(directory);
            let directory = FilteredDirectory { at_source: &path, at_sink: &path, rules: None };
            let out = filter.name_rejection(directory, name.as_bytes(), is_directory);
            assert_eq!(out.is_none(), is_in, "{path}/{name}");
        }
        assert_eq!(filter.missing().collect::<Vec<_>>(), [b"gone"]);
    }
}
