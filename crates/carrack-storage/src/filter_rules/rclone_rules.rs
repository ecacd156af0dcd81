//! Filter rules of rclone.
//!
//! A rule includes or excludes files by their path beneath the source. From the files' rules follow rules for
//! directories: rclone does not look into a directory in which no file can be included, and so neither does
//! carrack.

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::{COMPILED_BYTES_MAX, push_literal};

/// Compiled rules.
#[derive(Debug)]
pub(crate) struct RcloneRules {
    files: FirstMatchList,
    directories: FirstMatchList,
}

#[derive(Debug)]
struct FirstMatchList {
    patterns: RegexSet,
    /// True for those that exclude.
    excludes: Vec<bool>,
}

/// Rules as regular expressions; true for those that exclude.
#[derive(Default)]
struct RuleExpressions {
    files: Vec<(String, bool)>,
    directories: Vec<(String, bool)>,
}

impl RcloneRules {
    /// Compiles the lines of a filter file, without comments.
    ///
    /// # Errors
    /// For the first line that is no rule: the line, and the cause.
    pub(crate) fn new(lines: &[String]) -> Result<RcloneRules, (String, String)> {
        let mut rules = RuleExpressions::default();
        for line in lines {
            rules.add_line(line).map_err(|detail| (line.clone(), detail))?;
        }
        let whole = |error: regex::Error| (lines.first().cloned().unwrap_or_default(), error.to_string());
        Ok(RcloneRules {
            files: FirstMatchList::new(rules.files).map_err(whole)?,
            directories: FirstMatchList::new(rules.directories).map_err(whole)?,
        })
    }

    /// Returns true if a path beneath the source is excluded.
    pub(crate) fn excludes(&self, path: &[u8], is_directory: bool) -> bool {
        if is_directory {
            self.directories.excludes(&[path, b"/"].concat())
        } else {
            self.files.excludes(path)
        }
    }
}

impl FirstMatchList {
    fn new(rules: Vec<(String, bool)>) -> Result<FirstMatchList, regex::Error> {
        let (patterns, excludes): (Vec<String>, Vec<bool>) = rules.into_iter().unzip();
        let patterns = RegexSetBuilder::new(patterns).size_limit(COMPILED_BYTES_MAX).build()?;
        Ok(FirstMatchList { patterns, excludes })
    }

    fn excludes(&self, path: &[u8]) -> bool {
        self.patterns.matches(path).iter().next().is_some_and(|first| self.excludes[first])
    }
}

impl RuleExpressions {
    fn add_line(&mut self, line: &str) -> Result<(), String> {
        if line == "!" {
            *self = RuleExpressions::default();
            return Ok(());
        }
        let (excludes, pattern) = match (line.strip_prefix("- "), line.strip_prefix("+ ")) {
            (Some(pattern), _) => (true, pattern),
            (_, Some(pattern)) => (false, pattern),
            (None, None) => return Err("a rule of rclone begins with `- ` or `+ `, or is `!`".into()),
        };
        // To exclude a directory is to exclude everything in it.
        let everything = (excludes && pattern.ends_with('/')).then(|| format!("{pattern}**"));
        let pattern = everything.as_deref().unwrap_or(pattern);
        let is_for_both = pattern.contains("**");
        let is_directory = pattern.ends_with('/');
        let regex = regex_of(pattern)?;
        regex::bytes::Regex::new(&regex).map_err(|error| error.to_string())?;
        if is_for_both || !is_directory {
            self.files.push((regex.clone(), excludes));
            // An excluded file excludes no directory, unless every file is excluded.
            if !excludes || pattern == "*" {
                for directory in directories_of(pattern) {
                    self.directories.push((regex_of(&directory)?, excludes));
                }
            }
        }
        if is_for_both || is_directory {
            self.directories.push((regex, excludes));
        }
        Ok(())
    }
}

/// Returns patterns of the directories in which a pattern of files may match, the deepest first.
fn directories_of(pattern: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if is_opaque(pattern) {
        return vec!["/**".to_owned()];
    }
    let mut rest = pattern.to_owned();
    while rest.contains("//") {
        rest = rest.replace("//", "/");
    }
    loop {
        let (slash, stars) = (rest.rfind('/'), rest.rfind("**"));
        let (end, stars) = match (slash, stars) {
            (None, None) => break,
            (Some(slash), Some(stars)) if stars < slash => (slash, ""),
            (_, Some(stars)) => (stars, "**"),
            (Some(slash), None) => (slash, ""),
        };
        rest.truncate(end);
        let directory = format!("{rest}{stars}/");
        if found.last() != Some(&directory) {
            found.push(directory);
        }
    }
    if found.is_empty() {
        return vec!["/**".to_owned()];
    }
    // The source itself is always looked into.
    found.retain(|directory| directory != "/");
    found
}

/// Returns true for a pattern with a regular expression, or with directories or braces within braces.
fn is_opaque(pattern: &str) -> bool {
    let mut groups = pattern.split('{').skip(1);
    pattern.contains("{{")
        || pattern.contains("}}")
        || groups.any(|group| match group.split_once('}') {
            Some((inner, _)) => inner.contains('/') || inner.contains("**"),
            None => true,
        })
}

/// Returns the regular expression of a pattern, which is compared with a path without a slash in front.
fn regex_of(pattern: &str) -> Result<String, String> {
    let (start, mut rest) = match pattern.strip_prefix('/') {
        Some(rest) => ("^", rest),
        None => ("(?:^|/)", pattern),
    };
    let mut regex = start.to_owned();
    let mut brace_depth = 0_usize;
    while let Some(first) = rest.chars().next() {
        let behind = &rest[first.len_utf8()..];
        rest = behind;
        match first {
            '*' => {
                let more = behind.len() - behind.trim_start_matches('*').len();
                regex.push_str(match more {
                    0 => "(?-u:[^/])*",
                    1 => "(?s-u:.)*",
                    _ => return Err("it has three stars in a row".into()),
                });
                rest = &behind[more..];
            }
            '?' => regex.push_str("[^/]"),
            '[' => rest = push_class(&mut regex, behind)?,
            ']' => return Err("a ] without [".into()),
            '{' if behind.starts_with('{') => {
                let (inner, end) = split_expression(&behind[1..]).ok_or("a {{ without }}")?;
                regex.push_str(&format!("(?:{inner})"));
                rest = end;
            }
            '{' => {
                brace_depth += 1;
                regex.push_str("(?:");
            }
            '}' => {
                brace_depth = brace_depth.checked_sub(1).ok_or("a } without {")?;
                regex.push(')');
            }
            ',' if brace_depth > 0 => regex.push('|'),
            '\\' => {
                let escaped = behind.chars().next().ok_or("a backslash at its end")?;
                push_character(&mut regex, escaped);
                rest = &behind[escaped.len_utf8()..];
            }
            other => push_character(&mut regex, other),
        }
    }
    if brace_depth > 0 {
        return Err("a { without }".into());
    }
    regex.push('$');
    Ok(regex)
}

fn push_character(regex: &mut String, character: char) {
    match u8::try_from(character).ok().filter(u8::is_ascii) {
        Some(byte) => push_literal(regex, byte),
        None => regex.push(character),
    }
}

/// Splits a pattern behind `{{` at the last `}` of the first run of two or more.
fn split_expression(text: &str) -> Option<(&str, &str)> {
    let end = text.find("}}")?;
    let more = text[end..].bytes().take_while(|&byte| byte == b'}').count() - 2;
    Some((&text[..end + more], &text[end + more + 2..]))
}

/// Adds the set of characters behind `[`, and returns what follows it. Rust's regular expressions have
/// operators in sets that Go's do not have.
fn push_class<'a>(regex: &mut String, text: &'a str) -> Result<&'a str, String> {
    regex.push('[');
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            ']' => {
                regex.push(']');
                return Ok(&text[at + 1..]);
            }
            '[' if text[at..].starts_with("[:") => {
                let end = text[at..].find(":]").ok_or("a [: without :]")?;
                regex.push_str(&text[at..at + end + 2]);
                characters = text.char_indices();
                characters.by_ref().take_while(|(index, _)| *index < at + end + 1).for_each(drop);
            }
            '[' | '&' | '~' => {
                regex.push('\\');
                regex.push(character);
            }
            '\\' => {
                regex.push('\\');
                regex.extend(characters.next().map(|(_, escaped)| escaped));
            }
            other => regex.push(other),
        }
    }
    Err("a [ without ]".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &[&str]) -> RcloneRules {
        RcloneRules::new(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<String>>()).unwrap()
    }

    /// Patterns of rclone's page on filters, with what they match there.
    #[test]
    fn patterns_match_as_rclones_page_says() {
        for (pattern, yes, no) in [
            ("file.jpg", &["file.jpg", "directory/file.jpg"][..], &["afile.jpg", "directory/afile.jpg"][..]),
            ("/file.jpg", &["file.jpg"], &["afile.jpg", "directory/file.jpg"]),
            ("*.jpg", &["file.jpg", "directory/file.jpg"], &["file.jpg/anotherfile.png"]),
            ("/dir/*.jpg", &["dir/file.jpg"], &["dir/sub/file.jpg", "sub/dir/file.jpg"]),
            (
                "dir/**",
                &["dir/file.jpg", "dir/dir1/dir2/file.jpg", "directory/dir/f"],
                &["directory/file.jpg", "adir/file.jpg"],
            ),
            ("*.{jpg,png}", &["a.jpg", "d/a.png"], &["a.gif", "a.jpgx"]),
            ("l?ss", &["less", "lass"], &["floss", "l/ss"]),
            ("h[ae]llo", &["hello", "hallo"], &["hullo"]),
            ("one\\*one", &["one*one"], &["oneone"]),
            ("{one,two}_potato", &["one_potato", "two_potato"], &["three_potato", "_potato"]),
            ("{{\\d{4}}}.txt", &["2026.txt"], &["202.txt"]),
            ("*.{{jpe?g}}", &["a.jpg", "a.jpeg"], &["a.png"]),
            ("{{[ -~]+}}.x", &["a b.x"], &["\u{e4}.x"]),
            ("a.b+(c)|d^e$", &["a.b+(c)|d^e$"], &["aXb+(c)|d^e$"]),
            ("[[:alpha:]]1", &["a1"], &["11"]),
        ] {
            let rules = rules(&[&format!("- {pattern}")]);
            yes.iter().for_each(|path| assert!(rules.excludes(path.as_bytes(), false), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!rules.excludes(path.as_bytes(), false), "{pattern} {path}"));
        }
    }

    /// The example of `--filter-from` on the same page.
    #[test]
    fn the_first_rule_that_matches_counts() {
        let lines =
            ["- secret*.jpg", "+ *.jpg", "+ *.png", "+ file2.avi", "- /dir/tmp/**", "+ /dir/**", "- *"];
        let rules = rules(&lines);
        for (path, is_out) in [
            ("secret17.jpg", true),
            ("a.jpg", false),
            ("d/e/a.png", false),
            ("file2.avi", false),
            ("file1.avi", true),
            ("dir/tmp/x", true),
            ("dir/x", false),
            ("dir/tmp/a.jpg", false),
        ] {
            assert_eq!(rules.excludes(path.as_bytes(), false), is_out, "{path}");
        }
    }

    #[test]
    fn directories_without_included_files_are_excluded() {
        let some = rules(&["+ /a/b/*.c", "- *"]);
        for (path, is_out) in [("a", false), ("a/b", false), ("a/c", true), ("b", true)] {
            assert_eq!(some.excludes(path.as_bytes(), true), is_out, "{path}");
        }
        let named = rules(&["- build/", "- /top/**"]);
        for (path, is_out) in [("build", true), ("a/build", true), ("top", true), ("builds", false)] {
            assert_eq!(named.excludes(path.as_bytes(), true), is_out, "{path}");
        }
        assert!(named.excludes(b"build/x", false) && !named.excludes(b"build", false));
        assert!(!rules(&["+ *.jpg", "- *"]).excludes(b"any", true));
        assert!(!rules(&["- *.jpg"]).excludes(b"a.jpg", true));
        assert!(rules(&["- *", "!", "- b"]).excludes(b"b", false));
    }

    #[test]
    fn unknown_rules_are_refused() {
        for line in
            ["*.jpg", "-*.jpg", "! x", "- a***", "- {a", "- a}", "- [a", "- a]", "- {{(}}", "H a", "- a\\"]
        {
            assert!(RcloneRules::new(&[line.to_owned()]).is_err(), "{line}");
        }
    }
}
