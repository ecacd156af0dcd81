//! The selection of entries: options that leave some out.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_model::{LinkPolicy, ScanSelection, SelectedPaths, Timestamp, escape};
use carrack_storage::ScanFilter;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};

use crate::lifetime;
use crate::size;
use crate::user_error::UserError;

const SELECTION: &str = "Selection";
const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";
/// The option that names a file of patterns.
const FILTER_FROM: &str = "filter-from";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    #[command(flatten)]
    patterns: PatternArgs,

    /// Leave out files of fewer bytes
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = SELECTION)]
    min_size: Option<u64>,

    /// Leave out files of more bytes
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = SELECTION)]
    max_size: Option<u64>,

    /// Take only files that were modified after TIME
    ///
    /// 2026-11-23T02:00:00Z, @1795399200 (seconds since 1970), or a duration before now, 2d.
    #[arg(long, value_name = "TIME", value_parser = parse_newer, help_heading = SELECTION)]
    newer: Option<i64>,

    /// Leave out directories on other file systems than their source's
    #[arg(short = 'x', long, help_heading = SELECTION)]
    one_file_system: bool,

    /// Leave out symbolic links
    #[arg(long, help_heading = SELECTION)]
    skip_links: bool,

    /// Leave out symbolic links that lead out of their source
    ///
    /// Their text is absolute, has more `..` than there are directories above the link, or a `..` behind a
    /// name.
    #[arg(long, conflicts_with = "skip_links", help_heading = SELECTION)]
    safe_links: bool,

    /// Copy the targets of symbolic links, files and directories, instead of the links
    ///
    /// A target of two links is copied twice. A link that leads nowhere, or back to a directory that contains
    /// it, counts as failed. Not if the source is a daemon.
    #[arg(short = 'L', long, conflicts_with_all = ["skip_links", "safe_links"], help_heading = SELECTION)]
    copy_links: bool,

    /// Take only PATH, a path beneath the source, with everything in it; may be given several times, and with
    /// --files-from
    ///
    /// For one source, a directory. A missing path counts as failed.
    #[arg(long, value_name = "PATH", help_heading = SELECTION)]
    only: Vec<OsString>,

    /// Take only the paths in FILE (`-` for standard input): a path beneath the source on each line,
    /// directories with everything in them
    ///
    /// For one source, a directory. A missing path counts as failed. The list is kept in memory at the
    /// source; to a far source it travels in one message of 256 KiB at most.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SELECTION)]
    files_from: Option<PathBuf>,

    /// The paths of --files-from end with NUL bytes instead of newlines
    #[arg(short = '0', long, requires = "files_from", help_heading = SELECTION)]
    from0: bool,
}

impl SelectArgs {
    /// Returns the selection from `sources`.
    ///
    /// # Errors
    /// If a file can't be read, or a pattern is invalid.
    pub fn selection(&self, sources: &[OsString]) -> Result<ScanSelection, UserError> {
        let selection = ScanSelection {
            patterns: self.patterns.lines()?,
            size_min: self.min_size.unwrap_or(0),
            size_max: self.max_size,
            newer: self.newer.map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
            one_file_system: self.one_file_system,
            links: self.links(),
            names: self.names(sources)?,
        };
        ScanFilter::new(&selection)
            .map_err(|error| UserError::new(error.to_string()).hint("see gitignore(5)"))?;
        Ok(selection)
    }

    /// Returns an option whose file can be read only once: standard input, or a pipe.
    pub(crate) fn single_read_option(&self) -> Option<&'static str> {
        let of_patterns = self.patterns.0.iter().any(|pattern| match pattern {
            PatternOption::From(file) => is_single_read(file),
            PatternOption::Exclude(_) | PatternOption::Include(_) => false,
        });
        let of_names = self.files_from.as_ref().is_some_and(|file| is_single_read(file));
        [("--filter-from", of_patterns), ("--files-from", of_names)]
            .into_iter()
            .find_map(|(option, is_passing)| is_passing.then_some(option))
    }

    fn links(&self) -> LinkPolicy {
        match (self.skip_links, self.safe_links, self.copy_links) {
            (true, ..) => LinkPolicy::Skipped,
            (_, true, _) => LinkPolicy::SafeOnly,
            (.., true) => LinkPolicy::Followed,
            _ => LinkPolicy::Copied,
        }
    }

    fn names(&self, sources: &[OsString]) -> Result<Option<SelectedPaths>, UserError> {
        let option = match (&self.files_from, &*self.only) {
            (Some(_), _) => "--files-from",
            (None, [_, ..]) => "--only",
            (None, []) => return Ok(None),
        };
        if sources.len() != 1 {
            return Err(UserError::new(format!("{option} is for one source, a directory")).hint("name one"));
        }
        let listed = self.files_from.iter().map(|file| read_path_list(file, self.from0));
        let listed = listed.collect::<Result<Vec<_>, UserError>>()?.concat();
        let only = self.only.iter().map(|path| normalize_relative_path("--only", path.as_bytes()));
        listed.into_iter().map(Ok).chain(only).collect::<Result<SelectedPaths, UserError>>().map(Some)
    }
}

/// Returns the paths in a file of `--files-from`, which end with a newline or with a NUL byte.
///
/// # Errors
/// If it can't be read, or one of them is not beneath a source.
pub(crate) fn read_path_list(file: &Path, ends_with_nul: bool) -> Result<Vec<Box<[u8]>>, UserError> {
    let text = read(file).map_err(|error| unreadable("--files-from", file, &error))?;
    let end = if ends_with_nul { 0 } else { b'\n' };
    let paths = text.split(|&byte| byte == end).filter(|path| !path.is_empty());
    paths.map(|path| normalize_relative_path("--files-from", path)).collect()
}

/// Normalizes a path of the list to the form of the scan.
fn normalize_relative_path(option: &str, path: &[u8]) -> Result<Box<[u8]>, UserError> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    if path.starts_with(b"/") || parts.contains(&&b".."[..]) {
        let message = format!("{option}: {} is no path beneath the source", escape(path));
        Err(UserError::new(message).hint("write it without a slash in front, and without .."))
    } else {
        Ok(parts.join(&b'/').into())
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}

fn unreadable(option: &str, file: &Path, error: &io::Error) -> UserError {
    UserError::new(format!("{option} {}: {error}", escape(file.as_os_str().as_bytes())))
}

/// Parses a moment, or a duration before now.
fn parse_newer(text: &str) -> Result<i64, String> {
    carrack_model::parse_past_moment(text, lifetime::now_s())
}

/// Patterns in their order on the command line, which counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternArgs(Vec<PatternOption>);

#[derive(Clone, Debug)]
enum PatternOption {
    Exclude(String),
    Include(String),
    From(PathBuf),
}

impl PatternArgs {
    pub(crate) fn lines(&self) -> Result<Vec<String>, UserError> {
        let mut lines = Vec::new();
        for pattern in &self.0 {
            match pattern {
                PatternOption::Exclude(pattern) => lines.push(line(pattern, false)?),
                PatternOption::Include(pattern) => lines.push(line(pattern, true)?),
                PatternOption::From(file) => lines.extend(pattern_lines(file)?),
            }
        }
        Ok(lines)
    }
}

/// Returns true if a file can be read only once.
fn is_single_read(file: &Path) -> bool {
    file == Path::new("-") || fs::metadata(file).is_ok_and(|found| !found.is_file())
}

/// Returns the lines of a file of patterns.
///
/// # Errors
/// If it can't be read, or is not UTF-8.
fn pattern_lines(file: &Path) -> Result<Vec<String>, UserError> {
    let text = read(file).map_err(|error| unreadable("--filter-from", file, &error))?;
    let text = String::from_utf8(text)
        .map_err(|_| unreadable("--filter-from", file, &io::Error::other("it is not UTF-8")))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns a line of gitignore(5). In a file `#` begins a comment and `!` an inclusion; in an option they
/// would have no effect, or the contrary.
fn line(pattern: &str, is_include: bool) -> Result<String, UserError> {
    let is_pattern = !pattern.trim_end().is_empty() && !pattern.starts_with(['#', '!']);
    if is_pattern {
        Ok(if is_include { format!("!{pattern}") } else { pattern.to_owned() })
    } else {
        Err(UserError::new(format!("'{}' is no pattern", escape(pattern.as_bytes())))
            .hint("a name that begins with # or ! is written \\# or \\!"))
    }
}

/// Returns an option that takes a pattern, and can be repeated.
fn pattern_arg(name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name("PATTERN").action(ArgAction::Append);
    arg.help(help).help_heading(SELECTION)
}

/// Returns the places of an option's values on the command line. Patterns of configuration files come first,
/// so that typed ones can override them.
fn indices_of(matches: &ArgMatches, name: &str) -> impl Iterator<Item = (bool, usize)> {
    let is_typed = matches.value_source(name) != Some(ValueSource::DefaultValue);
    matches.indices_of(name).into_iter().flatten().map(move |index| (is_typed, index))
}

impl Args for PatternArgs {
    fn augment_args(command: Command) -> Command {
        let exclude = pattern_arg(EXCLUDE, "Leave out entries that match PATTERN, a line of gitignore(5)");
        let exclude = exclude.long_help(
            "Leave out entries that match PATTERN, a line of gitignore(5)\n\n\
             `*.o` matches anywhere, `/top` and `a/b` from the source on, `build/` directories only. The contents of a \
             directory that is left out are not read. Of all patterns that match, here, in --include and in \
             --filter-from, the last one counts.",
        );
        let include =
            pattern_arg(INCLUDE, "Take entries that match PATTERN, even if an earlier pattern matches");
        let include = include.long_help(
            "Take entries that match PATTERN, even if an earlier pattern matches\n\n\
             As a line of gitignore(5) that begins with `!`.",
        );
        let from = Arg::new(FILTER_FROM)
            .long(FILTER_FROM)
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .alias("exclude-from")
            .help("Take the patterns of FILE, as in a .gitignore; `-` for standard input")
            .long_help(
                "Take the patterns of FILE, as in a .gitignore; `-` for standard input\n\n\
                 --exclude-from is another name of this option.",
            )
            .help_heading(SELECTION);
        command.args([exclude, include, from])
    }

    fn augment_args_for_update(command: Command) -> Command {
        PatternArgs::augment_args(command)
    }
}

impl FromArgMatches for PatternArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PatternArgs, clap::Error> {
        let mut patterns: Vec<((bool, usize), PatternOption)> = Vec::new();
        for (name, kind) in [
            (EXCLUDE, PatternOption::Exclude as fn(String) -> PatternOption),
            (INCLUDE, PatternOption::Include),
        ] {
            let values = matches.get_many::<String>(name).into_iter().flatten().cloned().map(kind);
            patterns.extend(indices_of(matches, name).zip(values));
        }
        let files =
            matches.get_many::<PathBuf>(FILTER_FROM).into_iter().flatten().cloned().map(PatternOption::From);
        patterns.extend(indices_of(matches, FILTER_FROM).zip(files));
        patterns.sort_by_key(|(index, _)| *index);
        Ok(PatternArgs(patterns.into_iter().map(|(_, pattern)| pattern).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = PatternArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestSelectionCommandLine {
        #[command(flatten)]
        args: SelectArgs,
    }

    fn selection(words: &[&str]) -> Result<ScanSelection, UserError> {
        let words = ["cp"].iter().chain(words);
        TestSelectionCommandLine::try_parse_from(words).unwrap().args.selection(&["src".into()])
    }

    #[test]
    fn patterns_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("patterns");
        fs::write(&file, "# comment\nc/\n\n!d\n").unwrap();
        let file = file.to_str().unwrap();
        let found = selection(&["--exclude", "a", "--include", "b", "--filter-from", file, "--exclude", "e"])
            .unwrap();
        assert_eq!(found.patterns, ["a", "!b", "# comment", "c/", "", "!d", "e"]);
        assert!(selection(&[]).unwrap().is_everything());
        for bad in ["#a", "!a", "", "{a"] {
            assert!(selection(&["--exclude", bad]).is_err(), "{bad}");
        }
    }

    fn names(words: &[&str]) -> Result<Vec<Box<[u8]>>, UserError> {
        selection(words).map(|selection| selection.names.unwrap().to_vec())
    }

    #[test]
    fn lists_are_of_lines_or_end_with_nul() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        let option = format!("--files-from={}", file.display());
        fs::write(&file, "a/b\n./c//d/\n").unwrap();
        assert_eq!(names(&[&option]).unwrap(), [b"a/b"[..].into(), b"c/d"[..].into()]);
        fs::write(&file, "a\nb\0c").unwrap();
        assert_eq!(names(&[&option, "-0"]).unwrap(), [b"a\nb"[..].into(), b"c"[..].into()]);
        fs::write(&file, "a\n").unwrap();
        let both = names(&[&option, "--only=b/c/", "--only=d"]).unwrap();
        assert_eq!(both, [b"a"[..].into(), b"b/c"[..].into(), b"d"[..].into()]);
        assert!(names(&["--only=../d"]).is_err());
        for bad in ["/a", "a/../b"] {
            fs::write(&file, bad).unwrap();
            assert!(names(&[&option]).is_err(), "{bad}");
        }
        let two = ["a".into(), "b".into()];
        let words = ["cp", &option];
        assert!(TestSelectionCommandLine::try_parse_from(words).unwrap().args.selection(&two).is_err());
    }

    #[test]
    fn the_rest_arrives() {
        let words = ["--min-size", "1k", "--max-size", "2KiB", "--newer", "@7", "-x", "--skip-links"];
        let found = selection(&words).unwrap();
        assert_eq!((found.size_min, found.size_max), (1_000, Some(2_048)));
        assert_eq!(found.newer, Some(Timestamp { seconds: 7, nanoseconds: 0 }));
        assert!(found.one_file_system && found.links == LinkPolicy::Skipped && found.names.is_none());
        assert_eq!(selection(&["-L"]).unwrap().links, LinkPolicy::Followed);
        assert_eq!(selection(&["--safe-links"]).unwrap().links, LinkPolicy::SafeOnly);
        assert!(TestSelectionCommandLine::try_parse_from(["cp", "-L", "--skip-links"]).is_err());
        let ago = selection(&["--newer", "2d"]).unwrap().newer.unwrap().seconds;
        assert!((lifetime::now_s() - ago - 2 * 86_400).abs() < 5);
    }
}
