//! Compiled filter rules of rsync(1): whether the copy, or the deletion, leaves a path out.

use carrack_model::RelPath;
use regex::bytes::{RegexSet, RegexSetBuilder};

use super::rsync_pattern::regex_of;
use super::rsync_rule::{RsyncMergeRule, RsyncPatternRule, RsyncRule, RsyncRuleError, RuleSides};
use super::{COMPILED_BYTES_MAX, DirectoryRules};

/// The end that asks: the source about the copy, the sink about the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleSide {
    Source,
    Sink,
}

/// What is known about a path besides its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleQuery {
    pub(crate) side: RuleSide,
    /// True with `--delete-excluded`.
    pub(crate) deletes_excluded: bool,
    /// True if the directory of the path is being deleted.
    pub(crate) is_directory_deleted: bool,
}

/// All rules of a transfer, in their order.
#[derive(Debug)]
pub(crate) struct RsyncRules {
    groups: Vec<RuleGroup>,
    /// The files of rules that directories may have.
    merges: Vec<RsyncMergeRule>,
}

#[derive(Debug)]
enum RuleGroup {
    Listed(RuleList),
    /// The rules of the directories' files of this index.
    OfDirectories(usize),
}

/// Rules that follow each other.
#[derive(Debug)]
pub(crate) struct RuleList {
    patterns: RegexSet,
    rules: Vec<RsyncPatternRule>,
}

impl RsyncRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// For the first rule that can't be used.
    pub(crate) fn new(lines: &[String]) -> Result<RsyncRules, RsyncRuleError> {
        let (mut found, mut listed) = (RsyncRules { groups: Vec::new(), merges: Vec::new() }, Vec::new());
        for line in lines {
            match RsyncRule::parse(line)? {
                RsyncRule::Pattern(rule) => listed.push(rule),
                RsyncRule::Clear => {
                    listed.clear();
                    found = RsyncRules { groups: Vec::new(), merges: Vec::new() };
                }
                RsyncRule::DirMerge(merge) => {
                    if let Some(RsyncRule::Pattern(own)) = merge.own_exclusion() {
                        listed.push(own);
                    }
                    found.push_listed(&mut listed)?;
                    found.groups.push(RuleGroup::OfDirectories(found.merges.len()));
                    found.merges.push(merge);
                }
                RsyncRule::Merge(_) => {
                    return Err(RsyncRuleError::new(line, "its file is read before a transfer begins"));
                }
            }
        }
        found.push_listed(&mut listed)?;
        Ok(found)
    }

    fn push_listed(&mut self, listed: &mut Vec<RsyncPatternRule>) -> Result<(), RsyncRuleError> {
        if !listed.is_empty() {
            let list = RuleList::new(std::mem::take(listed), b"")?;
            self.groups.push(RuleGroup::Listed(list));
        }
        Ok(())
    }

    /// The files of rules that each directory may have.
    pub(crate) fn merges(&self) -> &[RsyncMergeRule] {
        &self.merges
    }

    /// Returns true if the first rule that matches excludes the subject.
    pub(crate) fn excludes(
        &self,
        subject: &[u8],
        query: RuleQuery,
        directory: Option<&DirectoryRules>,
    ) -> bool {
        let verdicts = self.groups.iter().map(|group| match group {
            RuleGroup::Listed(list) => list.verdict(subject, query),
            RuleGroup::OfDirectories(index) => directory?.verdict(*index, subject, query),
        });
        verdicts.flatten().next().unwrap_or(false)
    }

    /// Returns true if a rule that comes before all files of directories excludes the subject.
    pub(crate) fn excludes_everywhere(&self, subject: &[u8], query: RuleQuery) -> bool {
        match self.groups.first() {
            Some(RuleGroup::Listed(list)) => list.verdict(subject, query) == Some(true),
            Some(RuleGroup::OfDirectories(_)) | None => false,
        }
    }
}

impl RuleList {
    /// Compiles rules. `base` is the subject of the directory whose file has them, empty for the root.
    pub(crate) fn new(rules: Vec<RsyncPatternRule>, base: &[u8]) -> Result<RuleList, RsyncRuleError> {
        let patterns = RegexSetBuilder::new(rules.iter().map(|rule| regex_of(&rule.pattern, base)))
            .unicode(false)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        let patterns = patterns.map_err(|error| {
            let first = rules.first().map(|rule| RsyncRule::Pattern(rule.clone()).to_string());
            RsyncRuleError::new(
                &first.unwrap_or_default(),
                format!("compiling it and the rules behind it: {error}"),
            )
        })?;
        Ok(RuleList { patterns, rules })
    }

    /// Returns whether the first rule that matches excludes; `None` if no rule matches.
    pub(crate) fn verdict(&self, subject: &[u8], query: RuleQuery) -> Option<bool> {
        let matches = self.patterns.matches(subject);
        let mut rules = self.rules.iter().enumerate();
        let first =
            rules.find(|(index, rule)| rule.applies(query) && matches.matched(*index) != rule.is_negated);
        first.map(|(_, rule)| rule.excludes)
    }
}

impl RsyncPatternRule {
    fn applies(&self, query: RuleQuery) -> bool {
        let is_for_side = match (self.sides, query.side) {
            (RuleSides::Both, _) | (RuleSides::Source | RuleSides::Default, RuleSide::Source) => true,
            (RuleSides::Default, RuleSide::Sink) => !query.deletes_excluded,
            (RuleSides::Sink, side) => side == RuleSide::Sink,
            (RuleSides::Source, RuleSide::Sink) => false,
        };
        is_for_side && !(self.is_perishable && query.is_directory_deleted)
    }
}

/// Returns the subject that patterns are compared with.
pub(crate) fn path_subject(directory: &RelPath, name: &[u8], is_directory: bool) -> Vec<u8> {
    let mut subject = Vec::with_capacity(directory.as_bytes().len() + name.len() + 3);
    if !directory.is_root() {
        subject.push(b'/');
        subject.extend_from_slice(directory.as_bytes());
    }
    subject.push(b'/');
    subject.extend_from_slice(name);
    if is_directory {
        subject.push(0);
    }
    subject
}
