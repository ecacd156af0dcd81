//! The selection of entries: options that leave some out.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_model::{FilterLanguage, LinkPolicy, ScanSelection, SelectedPaths, Timestamp, escape};
use carrack_storage::ScanFilter;
use clap::{Args, ValueHint};

use crate::filters::{FilterArgs, is_single_read, read, unreadable};
use crate::lifetime;
use crate::size;
use crate::user_error::UserError;

pub(crate) const SELECTION: &str = "Selection";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    #[command(flatten)]
    filters: FilterArgs,

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
        let (language, patterns) = self.filters.lines()?;
        let selection = ScanSelection {
            patterns,
            language,
            size_min: self.min_size.unwrap_or(0),
            size_max: self.max_size,
            newer: self.newer.map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
            one_file_system: self.one_file_system,
            links: self.links(),
            names: self.names(sources)?,
        };
        let hint = match language {
            FilterLanguage::Gitignore => "see gitignore(5)",
            FilterLanguage::Rsync => "see FILTER RULES in rsync(1)",
            FilterLanguage::Rclone => "see rclone's page on filtering",
        };
        ScanFilter::new(&selection).map_err(|error| UserError::new(error.to_string()).hint(hint))?;
        Ok(selection)
    }

    /// Returns an option whose file can be read only once: standard input, or a pipe.
    pub(crate) fn single_read_option(&self) -> Option<&'static str> {
        let of_names = self.files_from.as_ref().is_some_and(|file| is_single_read(file));
        self.filters.single_read_option().or(of_names.then_some("--files-from"))
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

/// Parses a moment, or a duration before now.
fn parse_newer(text: &str) -> Result<i64, String> {
    carrack_model::parse_past_moment(text, lifetime::now_s())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        for bad in ["#a", "!a", "", "{a", "P a"] {
            assert!(selection(&["--exclude", bad]).is_err(), "{bad}");
        }
    }

    /// A file with these lines, and its path.
    fn file_of(text: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        (file, path)
    }

    #[test]
    fn rules_of_rsync_keep_their_order_and_files_are_read() {
        let (_inner, inner) = file_of("H secret\n:n .rules\n");
        let (_outer, outer) = file_of(&format!("# c\n+ b\nmerge,e {inner}\n"));
        let (_list, list) = file_of("*.o\n; c\n+ keep.o\n\n");
        let merge = format!("merge {outer}");
        let words = ["--filter", "- a", "--exclude-from", &list, "--filter", &merge, "--include-from", &list];
        let found = selection(&words).unwrap();
        assert_eq!(found.language, FilterLanguage::Rsync);
        let own = format!("- {}", inner.rsplit('/').next().unwrap());
        let expected =
            ["- a", "- *.o", "+ keep.o", "+ b", &own, "-s secret", ":n .rules", "+ *.o", "+ keep.o"];
        assert_eq!(found.patterns, expected);
        let cleared = selection(&["--filter", "- a", "--filter", "!", "--filter=- b"]).unwrap();
        assert_eq!(cleared.patterns, ["- b"]);
        assert!(selection(&["--filter", "- a", "--filter", "clear"]).unwrap().is_everything());
    }

    #[test]
    fn rules_of_rclone_are_read() {
        let (_file, file) = file_of("# c\n\n - *.o \n+ a\n");
        let found = selection(&["--rclone-filter", "- b", "--rclone-filter-from", &file]).unwrap();
        assert_eq!(
            (found.language, found.patterns),
            (FilterLanguage::Rclone, vec!["- b".into(), "- *.o".into(), "+ a".into()])
        );
    }

    #[test]
    fn other_languages_and_unknown_rules_are_refused() {
        let (_file, file) = file_of("*.o\n- *.log\n");
        let refused = selection(&["--filter-from", &file]).unwrap_err();
        assert!(refused.message.contains(&format!("{file}:2: '- *.log'")), "{refused:?}");
        let hint = refused.hint.unwrap();
        assert!(hint.contains("--filter 'merge ") && hint.contains("--rclone-filter-from"), "{hint}");
        for words in [
            &["--exclude", "a", "--filter", "- b"][..],
            &["--filter", "- b", "--rclone-filter", "- b"],
            &["--include-from", &file, "--filter-from", "/dev/null"],
        ] {
            assert!(selection(words).unwrap_err().message.contains("one language"), "{words:?}");
        }
        let (_bad, bad) = file_of("- a\nfoo\n");
        let merge = format!("merge {bad}");
        let refused = selection(&["--filter", &merge]).unwrap_err();
        assert!(refused.message.contains(&format!("{bad}:2: 'foo' is no filter rule")), "{refused:?}");
        let (itself, path) = file_of("");
        fs::write(itself.path(), format!("merge {path}\n")).unwrap();
        let merge = format!("merge {path}");
        for words in
            [["--filter", &*merge], ["--filter", "-C"], ["--filter", ": /.f"], ["--rclone-filter", "a"]]
        {
            assert!(selection(&words).is_err(), "{words:?}");
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
