//! The options with patterns: of gitignore(5), of rsync(1) and of rclone. A transfer has one language.
//!
//! The values keep their order on the command line, which counts. Files are read here, at the initiator.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_model::{FilterLanguage, escape};
use carrack_storage::{RsyncMergeRule, RsyncRule, RsyncRuleError, rule_lines};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};

use crate::filter_languages::foreign_rule;
use crate::selection::SELECTION;
use crate::user_error::UserError;

/// Files of rules within each other.
const MERGE_DEPTH_MAX: usize = 16;

/// Makes the option of a value.
type OptionOfValue = fn(String) -> FilterOption;

/// Makes the option of a file.
type OptionOfFile = fn(PathBuf) -> FilterOption;

/// Options whose values are patterns or rules.
const OF_VALUES: [(&str, OptionOfValue); 4] = [
    ("exclude", FilterOption::Exclude),
    ("include", FilterOption::Include),
    ("filter", FilterOption::Rsync),
    ("rclone-filter", FilterOption::Rclone),
];

/// Options whose values are files of them.
const OF_FILES: [(&str, OptionOfFile); 4] = [
    ("filter-from", FilterOption::GitignoreFrom),
    ("exclude-from", FilterOption::ExcludeFrom),
    ("include-from", FilterOption::IncludeFrom),
    ("rclone-filter-from", FilterOption::RcloneFrom),
];

/// Returns the names of all options with patterns.
pub(crate) fn filter_option_names() -> impl Iterator<Item = &'static str> {
    OF_VALUES.iter().map(|(name, _)| *name).chain(filter_file_option_names())
}

/// Returns the names of those whose values are files.
pub(crate) fn filter_file_option_names() -> impl Iterator<Item = &'static str> {
    OF_FILES.iter().map(|(name, _)| *name)
}

/// Options with patterns in their order on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterArgs(Vec<FilterOption>);

#[derive(Clone, Debug)]
enum FilterOption {
    Exclude(String),
    Include(String),
    GitignoreFrom(PathBuf),
    Rsync(String),
    ExcludeFrom(PathBuf),
    IncludeFrom(PathBuf),
    Rclone(String),
    RcloneFrom(PathBuf),
}

impl FilterOption {
    fn name(&self) -> &'static str {
        match self {
            FilterOption::Exclude(_) => "--exclude",
            FilterOption::Include(_) => "--include",
            FilterOption::GitignoreFrom(_) => "--filter-from",
            FilterOption::Rsync(_) => "--filter",
            FilterOption::ExcludeFrom(_) => "--exclude-from",
            FilterOption::IncludeFrom(_) => "--include-from",
            FilterOption::Rclone(_) => "--rclone-filter",
            FilterOption::RcloneFrom(_) => "--rclone-filter-from",
        }
    }

    fn language(&self) -> FilterLanguage {
        match self {
            FilterOption::Exclude(_) | FilterOption::Include(_) | FilterOption::GitignoreFrom(_) => {
                FilterLanguage::Gitignore
            }
            FilterOption::Rsync(_) | FilterOption::ExcludeFrom(_) | FilterOption::IncludeFrom(_) => {
                FilterLanguage::Rsync
            }
            FilterOption::Rclone(_) | FilterOption::RcloneFrom(_) => FilterLanguage::Rclone,
        }
    }

    /// The file that it reads.
    fn file(&self) -> Option<PathBuf> {
        match self {
            FilterOption::GitignoreFrom(file)
            | FilterOption::ExcludeFrom(file)
            | FilterOption::IncludeFrom(file)
            | FilterOption::RcloneFrom(file) => Some(file.clone()),
            FilterOption::Rsync(rule) => match RsyncRule::parse(rule) {
                Ok(RsyncRule::Merge(merge)) => Some(merge.file().into()),
                _ => None,
            },
            FilterOption::Exclude(_) | FilterOption::Include(_) | FilterOption::Rclone(_) => None,
        }
    }

    /// Adds its patterns, each as a line of its language.
    fn add_lines(&self, lines: &mut Vec<String>) -> Result<(), UserError> {
        match self {
            FilterOption::Exclude(pattern) => lines.push(gitignore_line(pattern, false)?),
            FilterOption::Include(pattern) => lines.push(gitignore_line(pattern, true)?),
            FilterOption::GitignoreFrom(file) => lines.extend(gitignore_lines(file)?),
            FilterOption::Rsync(rule) => {
                let rule = RsyncRule::parse(rule).map_err(|error| bad_rule("--filter", &error))?;
                add_rsync_rule(lines, rule, 0)?;
            }
            FilterOption::ExcludeFrom(file) => add_rsync_patterns(lines, self.name(), file, true)?,
            FilterOption::IncludeFrom(file) => add_rsync_patterns(lines, self.name(), file, false)?,
            FilterOption::Rclone(rule) => lines.push(rule.clone()),
            FilterOption::RcloneFrom(file) => {
                let text = read_text(self.name(), file)?;
                let kept = text.lines().map(str::trim);
                lines.extend(kept.filter(|line| is_rclone_rule(line)).map(str::to_owned));
            }
        }
        Ok(())
    }
}

impl FilterArgs {
    /// Returns the patterns and their language.
    ///
    /// # Errors
    /// If the options have several languages, or a file can't be read, or has lines of another language.
    pub(crate) fn lines(&self) -> Result<(FilterLanguage, Vec<String>), UserError> {
        let Some(first) = self.0.first() else { return Ok(Default::default()) };
        if let Some(other) = self.0.iter().find(|option| option.language() != first.language()) {
            return Err(mixed_languages(first, other));
        }
        let mut lines = Vec::new();
        self.0.iter().try_for_each(|option| option.add_lines(&mut lines))?;
        let language = if lines.is_empty() { FilterLanguage::default() } else { first.language() };
        Ok((language, lines))
    }

    /// Returns an option whose file can be read only once.
    pub(crate) fn single_read_option(&self) -> Option<&'static str> {
        let found = self.0.iter().find(|option| option.file().is_some_and(|file| is_single_read(&file)));
        found.map(FilterOption::name)
    }
}

/// Returns the options with the effect of these patterns.
pub(crate) fn filter_words((language, lines): &(FilterLanguage, Vec<String>)) -> Vec<String> {
    let words = lines.iter().filter_map(|line| match language {
        FilterLanguage::Gitignore => gitignore_word(line),
        FilterLanguage::Rsync => Some(format!("--filter={line}")),
        FilterLanguage::Rclone => Some(format!("--rclone-filter={line}")),
    });
    words.collect()
}

/// Returns the option with the effect of a line of gitignore(5); `None` for comments.
pub(crate) fn gitignore_word(line: &str) -> Option<String> {
    let is_pattern = !line.trim_end().is_empty() && !line.starts_with('#');
    is_pattern.then(|| match line.strip_prefix('!') {
        Some(pattern) => format!("--include={pattern}"),
        None => format!("--exclude={line}"),
    })
}

fn mixed_languages(first: &FilterOption, other: &FilterOption) -> UserError {
    let named = |option: &FilterOption| {
        let language = match option.language() {
            FilterLanguage::Gitignore => "gitignore(5)",
            FilterLanguage::Rsync => "rsync",
            FilterLanguage::Rclone => "rclone",
        };
        format!("{} has patterns of {language}", option.name())
    };
    let message = format!("{}, and {}: a transfer has one language of filters", named(first), named(other));
    UserError::new(message).hint(
        "with rsync's rules write --filter '- PATTERN' for --exclude PATTERN, and --filter '+ PATTERN' for --include; with \
         rclone's --rclone-filter; `carrack config show` shows the patterns of configuration files",
    )
}

fn bad_rule(place: &str, error: &RsyncRuleError) -> UserError {
    let hint = "see FILTER RULES in rsync(1), and \"Filters\" in docs/sync.md for what carrack does not have";
    UserError::new(format!("{place}: {error}")).hint(hint)
}

/// Adds a rule; instead of a merge rule, the rules in its file.
fn add_rsync_rule(lines: &mut Vec<String>, rule: RsyncRule, depth: usize) -> Result<(), UserError> {
    match rule {
        RsyncRule::Clear => lines.clear(),
        RsyncRule::Merge(merge) => merge_rsync_file(lines, &merge, depth)?,
        RsyncRule::Pattern(_) | RsyncRule::DirMerge(_) => lines.push(rule.to_string()),
    }
    Ok(())
}

fn merge_rsync_file(lines: &mut Vec<String>, merge: &RsyncMergeRule, depth: usize) -> Result<(), UserError> {
    let file = Path::new(merge.file());
    if depth == MERGE_DEPTH_MAX {
        let message =
            format!("--filter: {}: more than {MERGE_DEPTH_MAX} files within each other", shown(file));
        return Err(UserError::new(message).hint("a file may merge itself"));
    }
    lines.extend(merge.own_exclusion().map(|rule| rule.to_string()));
    let text = read_text("--filter", file)?;
    let rules = merge.rules(&text);
    let rules = rules.map_err(|(line, error)| bad_rule(&format!("{}:{line}", shown(file)), &error))?;
    rules.into_iter().try_for_each(|rule| add_rsync_rule(lines, rule, depth + 1))
}

/// Adds the patterns of a file of `--exclude-from` or `--include-from` as rules.
fn add_rsync_patterns(
    lines: &mut Vec<String>,
    option: &str,
    file: &Path,
    excludes: bool,
) -> Result<(), UserError> {
    for (number, line) in rule_lines(&read_text(option, file)?) {
        let rule = RsyncRule::parse_pattern_line(line, excludes);
        let rule = rule.map_err(|error| bad_rule(&format!("{}:{number}", shown(file)), &error))?;
        add_rsync_rule(lines, rule, 0)?;
    }
    Ok(())
}

fn is_rclone_rule(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(['#', ';'])
}

/// Returns true if a file can be read only once.
pub(crate) fn is_single_read(file: &Path) -> bool {
    file == Path::new("-") || fs::metadata(file).is_ok_and(|found| !found.is_file())
}

/// Returns the lines of a file of gitignore(5).
///
/// # Errors
/// If it can't be read, is not UTF-8, or has a line of another language: there it would keep what is to be
/// excluded.
fn gitignore_lines(file: &Path) -> Result<Vec<String>, UserError> {
    let text = read_text("--filter-from", file)?;
    for (index, line) in text.lines().enumerate() {
        if let Some(foreign) = foreign_rule(line) {
            let message = format!(
                "--filter-from {}:{}: '{}' is a rule of {}, and the option reads lines of gitignore(5)",
                shown(file),
                index + 1,
                escape(line.as_bytes()),
                foreign.language()
            );
            return Err(UserError::new(message).hint(foreign.hint_for_file(&shown(file))));
        }
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns a line of gitignore(5). In a file `#` begins a comment and `!` an inclusion; in an option they
/// would have no effect, or the contrary.
fn gitignore_line(pattern: &str, is_include: bool) -> Result<String, UserError> {
    let shown = escape(pattern.as_bytes());
    if let Some(foreign) = foreign_rule(pattern) {
        let message =
            format!("'{shown}' is a rule of {}, and no pattern of gitignore(5)", foreign.language());
        return Err(UserError::new(message).hint(foreign.hint_for_value(&shown)));
    }
    let is_pattern = !pattern.trim_end().is_empty() && !pattern.starts_with(['#', '!']);
    if is_pattern {
        Ok(if is_include { format!("!{pattern}") } else { pattern.to_owned() })
    } else {
        Err(UserError::new(format!("'{shown}' is no pattern"))
            .hint("a name that begins with # or ! is written \\# or \\!"))
    }
}

pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}

fn read_text(option: &str, file: &Path) -> Result<String, UserError> {
    let text = read(file).map_err(|error| unreadable(option, file, &error))?;
    String::from_utf8(text).map_err(|_| unreadable(option, file, &io::Error::other("it is not UTF-8")))
}

pub(crate) fn unreadable(option: &str, file: &Path, error: &io::Error) -> UserError {
    UserError::new(format!("{option} {}: {error}", shown(file)))
}

fn shown(file: &Path) -> String {
    escape(file.as_os_str().as_bytes())
}

/// The help of an option with patterns: the name of its value, a line, and the rest.
fn help_of(name: &str) -> (&'static str, &'static str, &'static str) {
    match name {
        "exclude" => (
            "PATTERN",
            "Leave out entries that match PATTERN, a line of gitignore(5)",
            "`*.o` matches anywhere, `/top` and `a/b` from the source on, `build/` directories only. The contents of a \
             directory that is left out are not read. Of all patterns that match, here, in --include and in --filter-from, \
             the last one counts.",
        ),
        "include" => (
            "PATTERN",
            "Take entries that match PATTERN, even if an earlier pattern matches",
            "As a line of gitignore(5) that begins with `!`.",
        ),
        "filter-from" => (
            "FILE",
            "Take the patterns of FILE, as in a .gitignore; `-` for standard input",
            "Files in the languages of rsync and rclone are refused: --filter, --exclude-from, --include-from and \
             --rclone-filter-from read them.",
        ),
        "filter" => (
            "RULE",
            "Leave out or take entries by RULE, a filter rule of rsync(1)",
            "`- PATTERN` leaves out, `+ PATTERN` takes, `merge FILE` reads rules from FILE, `: .rsync-filter` from the file \
             of this name in each directory. The first rule that matches counts, here, in --exclude-from and in \
             --include-from. Patterns with a slash in front begin at the destination, as in rsync.",
        ),
        "exclude-from" => (
            "FILE",
            "Leave out entries that match a pattern of FILE, in rsync's language; `-` for standard input",
            "A pattern a line, `#` or `;` in front of comments. `+ PATTERN` takes entries.",
        ),
        "include-from" => (
            "FILE",
            "Take entries that match a pattern of FILE, in rsync's language; `-` for standard input",
            "A pattern a line, `#` or `;` in front of comments. `- PATTERN` leaves entries out. Of all rules of rsync the \
             first one that matches counts.",
        ),
        "rclone-filter" => (
            "RULE",
            "Leave out or take files by RULE, a rule of rclone's --filter",
            "`- PATTERN` leaves out, `+ PATTERN` takes. The first rule that matches counts. Patterns with a slash in front \
             begin at the source.",
        ),
        _ => (
            "FILE",
            "Take the rules of FILE, as rclone's --filter-from; `-` for standard input",
            "A rule a line, `#` or `;` in front of comments. `!` forgets the rules before it.",
        ),
    }
}

/// Returns an option that can be repeated.
fn filter_arg(name: &'static str) -> Arg {
    let (value, help, more) = help_of(name);
    let arg = Arg::new(name).long(name).value_name(value).action(ArgAction::Append);
    // Rules begin with `-`.
    let arg = arg.allow_hyphen_values(value == "RULE");
    arg.help(help).long_help(format!("{help}\n\n{more}")).help_heading(SELECTION)
}

/// Returns the places of an option's values on the command line. Patterns of configuration files come first,
/// so that typed ones can override them.
fn indices_of(matches: &ArgMatches, name: &str) -> impl Iterator<Item = (bool, usize)> {
    let is_typed = matches.value_source(name) != Some(ValueSource::DefaultValue);
    matches.indices_of(name).into_iter().flatten().map(move |index| (is_typed, index))
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let values = OF_VALUES.iter().map(|(name, _)| filter_arg(name));
        let files = OF_FILES.iter().map(|(name, _)| {
            filter_arg(name).value_parser(value_parser!(PathBuf)).value_hint(ValueHint::FilePath)
        });
        command.args(values.chain(files).collect::<Vec<Arg>>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        FilterArgs::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterArgs, clap::Error> {
        let mut options: Vec<((bool, usize), FilterOption)> = Vec::new();
        for (name, option) in OF_VALUES {
            let values = matches.get_many::<String>(name).into_iter().flatten().cloned().map(option);
            options.extend(indices_of(matches, name).zip(values));
        }
        for (name, option) in OF_FILES {
            let files = matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().map(option);
            options.extend(indices_of(matches, name).zip(files));
        }
        options.sort_by_key(|(index, _)| *index);
        Ok(FilterArgs(options.into_iter().map(|(_, option)| option).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
