//! One filter rule of rsync(1), as text and as a value.
//!
//! A rule is a name (`-`, `exclude`), modifiers (`-p`, `exclude,p`), one space or underscore, and a pattern
//! or the name of a file. A rule without an effect in carrack is refused, and not ignored.

use std::fmt;

use carrack_model::escape;

/// The end at which a rule counts: the source excludes entries from the copy, the sink from the deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuleSides {
    /// Both, or with `--delete-excluded` the source alone.
    #[default]
    Default,
    /// The source.
    Source,
    /// The sink.
    Sink,
    /// Both, even with `--delete-excluded`.
    Both,
}

/// A filter rule of rsync(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RsyncRule {
    /// Excludes or includes the matches of a pattern.
    Pattern(RsyncPatternRule),
    /// Reads rules from a file once.
    Merge(RsyncMergeRule),
    /// Reads rules from a file of this name in each directory.
    DirMerge(RsyncMergeRule),
    /// Forgets the rules before it.
    Clear,
}

/// A rule with a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsyncPatternRule {
    pub(crate) excludes: bool,
    pub(crate) sides: RuleSides,
    /// True if it counts for the paths that do not match.
    pub(crate) is_negated: bool,
    /// True if it does not count in directories that are deleted.
    pub(crate) is_perishable: bool,
    pub(crate) pattern: String,
}

/// A rule that reads rules from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsyncMergeRule {
    file: String,
    /// Of the rules in the file, as far as they have none of their own.
    sides: RuleSides,
    is_perishable: bool,
    /// Set if the file has patterns only: true if they exclude.
    patterns_exclude: Option<bool>,
    splits_words: bool,
    /// True if the file's name is excluded.
    pub(crate) excludes_itself: bool,
    /// False if the rules count only in the directory of the file.
    pub(crate) is_inherited: bool,
}

/// A text that is no rule, or a rule that carrack does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is no filter rule of rsync: {detail}", escape(self.rule.as_bytes()))]
pub struct RsyncRuleError {
    /// The text.
    pub rule: String,
    /// The cause.
    pub detail: String,
}

impl RsyncRuleError {
    pub(crate) fn new(rule: &str, detail: impl Into<String>) -> RsyncRuleError {
        RsyncRuleError { rule: rule.to_owned(), detail: detail.into() }
    }
}

/// The name of a rule, with the kind that it stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleName {
    Pattern { excludes: bool, sides: RuleSides },
    Merge,
    DirMerge,
    Clear,
}

/// The rules' names, short and long.
const NAMES: &[(&str, &str, RuleName)] = &[
    ("-", "exclude", RuleName::Pattern { excludes: true, sides: RuleSides::Default }),
    ("+", "include", RuleName::Pattern { excludes: false, sides: RuleSides::Default }),
    ("H", "hide", RuleName::Pattern { excludes: true, sides: RuleSides::Source }),
    ("S", "show", RuleName::Pattern { excludes: false, sides: RuleSides::Source }),
    ("P", "protect", RuleName::Pattern { excludes: true, sides: RuleSides::Sink }),
    ("R", "risk", RuleName::Pattern { excludes: false, sides: RuleSides::Sink }),
    (".", "merge", RuleName::Merge),
    (":", "dir-merge", RuleName::DirMerge),
    ("!", "clear", RuleName::Clear),
];

impl RsyncRule {
    /// Parses the value of `--filter`, or a line of a file of rules.
    ///
    /// # Errors
    /// If it is no rule, or one that carrack does not have.
    pub fn parse(text: &str) -> Result<RsyncRule, RsyncRuleError> {
        let error = |detail: &str| RsyncRuleError::new(text, detail);
        let Some((name, is_long, rest)) = split_name(text) else {
            return Err(error("it begins with no rule, as `- `, `+ ` or `merge `"));
        };
        let (modifiers, argument) = split_modifiers(rest, is_long);
        if name == RuleName::Clear {
            let is_alone = modifiers.is_empty() && argument.is_none_or(str::is_empty);
            return if is_alone { Ok(RsyncRule::Clear) } else { Err(error("the rule `!` takes no pattern")) };
        }
        let modifiers = RuleModifiers::parse(name, modifiers).map_err(|detail| error(&detail))?;
        let Some(argument) = argument.filter(|argument| !argument.is_empty()) else {
            return Err(error("a pattern or the name of a file is missing behind it"));
        };
        if argument.contains('\0') {
            return Err(error("it has a NUL byte"));
        }
        modifiers.rule(name, argument).map_err(|detail| error(&detail))
    }

    /// Parses a line of `--exclude-from` or `--include-from`: a pattern, which may have `- ` or `+ ` in
    /// front, or `!`.
    ///
    /// # Errors
    /// If a pattern is missing.
    pub fn parse_pattern_line(line: &str, excludes: bool) -> Result<RsyncRule, RsyncRuleError> {
        match line {
            "!" => Ok(RsyncRule::Clear),
            _ if line.starts_with("- ") || line.starts_with("+ ") => RsyncRule::parse(line),
            pattern => Ok(RsyncRule::Pattern(RsyncPatternRule::new(excludes, pattern))),
        }
    }
}

impl RsyncPatternRule {
    pub(crate) fn new(excludes: bool, pattern: &str) -> RsyncPatternRule {
        RsyncPatternRule {
            excludes,
            sides: RuleSides::Default,
            is_negated: false,
            is_perishable: false,
            pattern: pattern.to_owned(),
        }
    }
}

impl RsyncMergeRule {
    /// The file's path, or for a rule of each directory its name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the rule that excludes the file itself, if the modifier `e` was given.
    pub fn own_exclusion(&self) -> Option<RsyncRule> {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        self.excludes_itself.then(|| RsyncRule::Pattern(RsyncPatternRule::new(true, name)))
    }

    /// Returns the rules in the file's text.
    ///
    /// # Errors
    /// For the first line that is no rule, with its number.
    pub fn rules(&self, text: &str) -> Result<Vec<RsyncRule>, (usize, RsyncRuleError)> {
        let mut rules = Vec::new();
        if self.splits_words {
            for (index, line) in text.lines().enumerate() {
                rules.extend(self.words(line).map_err(|error| (index + 1, error))?);
            }
        } else {
            for (number, line) in rule_lines(text) {
                rules.push(self.line(line).map_err(|error| (number, error))?);
            }
        }
        Ok(rules)
    }

    /// Parses the rules of one line that are separated by white space.
    fn words(&self, line: &str) -> Result<Vec<RsyncRule>, RsyncRuleError> {
        let mut rules = Vec::new();
        let mut words = line.split_ascii_whitespace();
        while let Some(word) = words.next() {
            let needs_pattern = self.patterns_exclude.is_none() && is_name_alone(word);
            match words.clone().next().filter(|_| needs_pattern) {
                Some(pattern) => {
                    words.next();
                    rules.push(self.line(&format!("{word} {pattern}"))?);
                }
                None => rules.push(self.line(word)?),
            }
        }
        Ok(rules)
    }

    fn line(&self, line: &str) -> Result<RsyncRule, RsyncRuleError> {
        let rule = match self.patterns_exclude {
            Some(excludes) => RsyncRule::Pattern(RsyncPatternRule::new(excludes, line)),
            None => RsyncRule::parse(line)?,
        };
        let has_sides = |sides| sides != RuleSides::Default && self.sides != RuleSides::Default;
        let sides_of = |sides| if sides == RuleSides::Default { self.sides } else { sides };
        match rule {
            RsyncRule::Pattern(RsyncPatternRule { sides, .. })
            | RsyncRule::Merge(RsyncMergeRule { sides, .. })
            | RsyncRule::DirMerge(RsyncMergeRule { sides, .. })
                if has_sides(sides) =>
            {
                Err(RsyncRuleError::new(line, "the rule that reads the file names the side already"))
            }
            RsyncRule::Pattern(rule) => Ok(RsyncRule::Pattern(RsyncPatternRule {
                sides: sides_of(rule.sides),
                is_perishable: rule.is_perishable || self.is_perishable,
                ..rule
            })),
            RsyncRule::Merge(rule) => Ok(RsyncRule::Merge(RsyncMergeRule {
                sides: sides_of(rule.sides),
                is_perishable: rule.is_perishable || self.is_perishable,
                ..rule
            })),
            RsyncRule::DirMerge(rule) => Ok(RsyncRule::DirMerge(RsyncMergeRule {
                sides: sides_of(rule.sides),
                is_perishable: rule.is_perishable || self.is_perishable,
                ..rule
            })),
            RsyncRule::Clear => Ok(RsyncRule::Clear),
        }
    }
}

/// Returns the lines of a file of rules or patterns, with their numbers, without empty lines and comments.
pub fn rule_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split('\n').enumerate();
    let lines = lines.flat_map(|(index, line)| line.split('\r').map(move |line| (index + 1, line)));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', ';']))
}

/// Returns true for a rule that needs a pattern and has none.
fn is_name_alone(word: &str) -> bool {
    split_name(word).is_some_and(|(name, is_long, rest)| {
        name != RuleName::Clear && split_modifiers(rest, is_long).1.is_none()
    })
}

/// Splits a rule behind its name; true for a long name.
fn split_name(text: &str) -> Option<(RuleName, bool, &str)> {
    let long = NAMES.iter().find_map(|(_, long, name)| {
        let rest = text.strip_prefix(long)?;
        (rest.is_empty() || rest.starts_with([' ', '_', ','])).then_some((*name, true, rest))
    });
    let short = || NAMES.iter().find_map(|(short, _, name)| Some((*name, false, text.strip_prefix(short)?)));
    long.or_else(short)
}

/// Splits what follows a rule's name into the modifiers and the argument behind one space or underscore.
fn split_modifiers(rest: &str, is_long: bool) -> (&str, Option<&str>) {
    let rest = match rest.strip_prefix(',') {
        Some(rest) => rest,
        None if is_long => return ("", rest.get(1..)),
        None => rest,
    };
    match rest.find([' ', '_']) {
        Some(end) => (&rest[..end], Some(&rest[end + 1..])),
        None => (rest, None),
    }
}

#[derive(Default)]
struct RuleModifiers {
    sides: RuleSides,
    is_negated: bool,
    is_perishable: bool,
    patterns_exclude: Option<bool>,
    splits_words: bool,
    excludes_itself: bool,
    is_local: bool,
}

impl RuleModifiers {
    fn parse(name: RuleName, letters: &str) -> Result<RuleModifiers, String> {
        let mut found = RuleModifiers::default();
        let is_merge = matches!(name, RuleName::Merge | RuleName::DirMerge);
        let has_sides = matches!(name, RuleName::Pattern { sides, .. } if sides != RuleSides::Default);
        for letter in letters.chars() {
            match letter {
                's' if !has_sides => found.add_side(RuleSides::Source),
                'r' if !has_sides => found.add_side(RuleSides::Sink),
                'p' => found.is_perishable = true,
                '!' if !is_merge => found.is_negated = true,
                '-' if is_merge && found.patterns_exclude.is_none() => found.patterns_exclude = Some(true),
                '+' if is_merge && found.patterns_exclude.is_none() => found.patterns_exclude = Some(false),
                'w' if is_merge => found.splits_words = true,
                'e' if is_merge => found.excludes_itself = true,
                'n' if is_merge => found.is_local = true,
                '/' => return Err("carrack does not have the modifier / (absolute paths)".into()),
                'C' => return Err("carrack does not have the modifier C (the patterns of CVS)".into()),
                'x' => return Err("carrack does not have the modifier x (extended attributes)".into()),
                other => return Err(format!("it has no modifier {other}")),
            }
        }
        Ok(found)
    }

    fn add_side(&mut self, side: RuleSides) {
        self.sides =
            if self.sides == RuleSides::Default || self.sides == side { side } else { RuleSides::Both };
    }

    fn rule(self, name: RuleName, argument: &str) -> Result<RsyncRule, String> {
        let RuleModifiers { sides, is_negated, is_perishable, .. } = self;
        let merge = || RsyncMergeRule {
            file: argument.to_owned(),
            sides,
            is_perishable,
            patterns_exclude: self.patterns_exclude,
            splits_words: self.splits_words,
            excludes_itself: self.excludes_itself,
            is_inherited: !self.is_local,
        };
        match name {
            RuleName::Pattern { excludes, sides: own } => Ok(RsyncRule::Pattern(RsyncPatternRule {
                excludes,
                sides: if own == RuleSides::Default { sides } else { own },
                is_negated,
                is_perishable,
                pattern: argument.to_owned(),
            })),
            RuleName::Merge => Ok(RsyncRule::Merge(merge())),
            RuleName::DirMerge if argument.contains('/') || matches!(argument, "." | "..") => Err(
                "carrack reads rules in the copied directories, and not above them: the file is a name without /"
                    .into(),
            ),
            RuleName::DirMerge => Ok(RsyncRule::DirMerge(merge())),
            RuleName::Clear => Ok(RsyncRule::Clear),
        }
    }
}

fn side_letters(sides: RuleSides) -> &'static str {
    match sides {
        RuleSides::Default => "",
        RuleSides::Source => "s",
        RuleSides::Sink => "r",
        RuleSides::Both => "sr",
    }
}

fn letter(is_set: bool, letter: &'static str) -> &'static str {
    if is_set { letter } else { "" }
}

impl fmt::Display for RsyncRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RsyncRule::Pattern(rule) => {
                let name = if rule.excludes { "-" } else { "+" };
                let (negated, perishable) = (letter(rule.is_negated, "!"), letter(rule.is_perishable, "p"));
                write!(f, "{name}{negated}{perishable}{} {}", side_letters(rule.sides), rule.pattern)
            }
            RsyncRule::Merge(rule) => write!(f, ".{rule}"),
            RsyncRule::DirMerge(rule) => write!(f, ":{rule}"),
            RsyncRule::Clear => f.write_str("!"),
        }
    }
}

impl fmt::Display for RsyncMergeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.patterns_exclude.map_or("", |excludes| if excludes { "-" } else { "+" });
        for letters in [
            patterns,
            letter(self.is_perishable, "p"),
            letter(self.splits_words, "w"),
            letter(self.excludes_itself, "e"),
            letter(!self.is_inherited, "n"),
            side_letters(self.sides),
        ] {
            f.write_str(letters)?;
        }
        write!(f, " {}", self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_one_form() {
        for (text, same) in [
            ("- *.o", "- *.o"),
            ("+_a b", "+ a b"),
            ("-,p  x", "-p  x"),
            ("-!ps */", "-!ps */"),
            ("exclude,! _a", "-! _a"),
            ("include a", "+ a"),
            ("H a", "-s a"),
            ("show_a", "+s a"),
            ("protect,p a", "-pr a"),
            ("R /a", "+r /a"),
            ("-rs a", "-sr a"),
            (". f", ". f"),
            ("merge,-w a/f", ".-w a/f"),
            (":en- .f", ":-en .f"),
            ("dir-merge .f", ": .f"),
            ("!", "!"),
            ("clear", "!"),
        ] {
            let rule = RsyncRule::parse(text).unwrap();
            assert_eq!(rule.to_string(), same, "{text}");
            assert_eq!(RsyncRule::parse(same).unwrap(), rule, "{text}");
        }
    }

    #[test]
    fn unknown_rules_are_refused() {
        for text in [
            "foo",
            "",
            "-",
            "- ",
            "--b x",
            "H,r x",
            ".! f",
            "! x",
            "-/ x",
            "-C",
            ":C",
            "-x user.a",
            ": /.f",
            ": ..",
            "exclude",
            "excluded x",
            "-w x",
            "-a\0 x",
        ] {
            assert!(RsyncRule::parse(text).is_err(), "{text}");
        }
        assert!(RsyncRule::parse("-/ x").unwrap_err().to_string().contains("modifier /"));
    }

    fn in_file(rule: &str, text: &str) -> Result<Vec<String>, usize> {
        let (RsyncRule::Merge(rule) | RsyncRule::DirMerge(rule)) = RsyncRule::parse(rule).unwrap() else {
            panic!("{rule} reads no file");
        };
        let rules = rule.rules(text).map_err(|(line, _)| line)?;
        Ok(rules.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn files_have_lines_or_words() {
        assert_eq!(in_file(". f", "# c\n;c\n\n- a\r\n+ b \n!\n").unwrap(), ["- a", "+ b ", "!"]);
        assert_eq!(in_file(".- f", "- a\n!\n").unwrap(), ["- - a", "- !"]);
        assert_eq!(in_file(".w f", "- a + b\nH_c").unwrap(), ["- a", "+ b", "-s c"]);
        assert_eq!(in_file(".w+ f", "a b").unwrap(), ["+ a", "+ b"]);
        assert_eq!(in_file(":ps f", "- a\n").unwrap(), ["-ps a"]);
        assert_eq!(in_file(":s f", "- a\nP b"), Err(2));
        assert_eq!(in_file(". f", "- a\nb"), Err(2));
    }

    #[test]
    fn pattern_lines_may_name_their_rule() {
        for (line, rule) in [("a", "- a"), ("+ a", "+ a"), ("- a", "- a"), ("!", "!"), ("H a", "- H a")] {
            assert_eq!(RsyncRule::parse_pattern_line(line, true).unwrap().to_string(), rule);
        }
    }
}
