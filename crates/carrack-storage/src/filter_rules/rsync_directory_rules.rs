//! Filter rules of rsync(1) that directories have in files of their own (`dir-merge`).
//!
//! The rules of a directory's file count for everything in it, before those of the directories above. A file
//! that can't be read leaves the rules unknown: the caller then neither copies nor deletes in the directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use carrack_model::{RelPath, escape};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::rsync_rule::{RsyncMergeRule, RsyncRule};
use super::rsync_rules::{RuleList, RuleQuery};

/// Bytes of the largest file of rules.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Directories above each other whose files count.
const INHERITED_MAX: usize = 64;

/// The rules of a directory's own files, one element for each `dir-merge` rule.
#[derive(Debug)]
pub struct OwnDirectoryRules(Vec<Option<OwnRuleList>>);

#[derive(Debug)]
struct OwnRuleList {
    list: Arc<RuleList>,
    /// True if the file has the rule `!`.
    forgets_inherited: bool,
}

/// The rules that count for the entries of a directory: its own and the inherited ones, one list for each
/// `dir-merge` rule.
#[derive(Debug)]
pub struct DirectoryRules(Vec<Vec<Arc<RuleList>>>);

impl OwnDirectoryRules {
    /// Reads the files of rules in a directory; `None` if it has none.
    ///
    /// # Errors
    /// The reason why a file's rules are unknown, as a message.
    pub(crate) fn read(
        merges: &[RsyncMergeRule],
        held: BorrowedFd<'_>,
        at_sink: &RelPath,
    ) -> Result<Option<OwnDirectoryRules>, String> {
        let mut lists = Vec::with_capacity(merges.len());
        for merge in merges {
            let text = read_text(held, merge.file());
            let text = text.map_err(|error| describe(merge, &error.to_string()))?;
            lists.push(text.map(|text| OwnRuleList::parse(merge, &text, at_sink)).transpose()?);
        }
        Ok(lists.iter().any(Option::is_some).then_some(OwnDirectoryRules(lists)))
    }
}

impl OwnRuleList {
    fn parse(merge: &RsyncMergeRule, text: &str, at_sink: &RelPath) -> Result<OwnRuleList, String> {
        let rules = merge.rules(text);
        let rules = rules.map_err(|(line, error)| describe(merge, &format!("line {line}: {error}")))?;
        let (mut listed, mut forgets_inherited) = (Vec::new(), false);
        for rule in rules {
            match rule {
                RsyncRule::Pattern(rule) => listed.push(rule),
                RsyncRule::Clear => {
                    listed.clear();
                    forgets_inherited = true;
                }
                RsyncRule::Merge(_) | RsyncRule::DirMerge(_) => {
                    let detail = format!("'{rule}': carrack reads no further files from a directory's file");
                    return Err(describe(merge, &detail));
                }
            }
        }
        let base = if at_sink.is_root() { Vec::new() } else { [b"/", at_sink.as_bytes()].concat() };
        let list = RuleList::new(listed, &base).map_err(|error| describe(merge, &error.to_string()))?;
        Ok(OwnRuleList { list: Arc::new(list), forgets_inherited })
    }
}

impl DirectoryRules {
    /// Returns the rules for the entries of a directory in which `above` counts and which has files of its
    /// own.
    ///
    /// # Errors
    /// If too many directories above each other have such files.
    pub(crate) fn beneath(
        merges: &[RsyncMergeRule],
        above: Option<&Arc<DirectoryRules>>,
        own: Option<&OwnDirectoryRules>,
    ) -> Result<Option<Arc<DirectoryRules>>, String> {
        if own.is_none() && merges.iter().all(|merge| merge.is_inherited) {
            return Ok(above.cloned());
        }
        let mut lists = Vec::with_capacity(merges.len());
        for (index, merge) in merges.iter().enumerate() {
            let own = own.and_then(|own| own.0[index].as_ref());
            let inherits = merge.is_inherited && own.is_none_or(|own| !own.forgets_inherited);
            let inherited = above.filter(|_| inherits).map_or(&[][..], |above| &above.0[index]);
            if inherited.len() >= INHERITED_MAX && own.is_some() {
                return Err(describe(
                    merge,
                    &format!("{INHERITED_MAX} directories above it have such a file"),
                ));
            }
            let own = own.map(|own| Arc::clone(&own.list));
            lists.push(own.into_iter().chain(inherited.iter().cloned()).collect());
        }
        Ok(Some(Arc::new(DirectoryRules(lists))))
    }

    /// Returns whether the first rule of the files of this index that matches excludes.
    pub(crate) fn verdict(&self, index: usize, subject: &[u8], query: RuleQuery) -> Option<bool> {
        self.0[index].iter().find_map(|list| list.verdict(subject, query))
    }
}

fn describe(merge: &RsyncMergeRule, detail: &str) -> String {
    format!("the filter rules in {} are unknown: {detail}", escape(merge.file().as_bytes()))
}

/// Reads a file of rules; `None` if there is none. A link might lead to a file that the peer may not read.
fn read_text(held: BorrowedFd<'_>, name: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(held, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(io::Error::other("a link is not followed")),
        Err(errno) => return Err(errno.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    String::from_utf8(text).map(Some).map_err(|_| io::Error::other("it is not UTF-8"))
}
