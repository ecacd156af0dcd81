//! Patterns of rsync(1) as regular expressions.
//!
//! A pattern is compared with a subject: the path beneath the destination with a slash in front, and with a
//! NUL byte behind it if it is a directory. Names have neither, so no wildcard matches the NUL byte.

use super::push_literal;

/// Matches nothing.
const NEVER: &str = "[a&&b]";

/// Any part of a path, slashes included.
const ANY: &str = "[^\\x00]*";

/// Returns the regular expression of a pattern. `base` is the subject of the directory whose file has the
/// pattern: where a pattern begins with a slash, it begins there. It is empty for the root.
pub(super) fn regex_of(pattern: &str, base: &[u8]) -> String {
    let without_slash = pattern.strip_suffix('/').filter(|inner| !inner.is_empty());
    let is_directory_only = without_slash.is_some();
    let pattern = without_slash.unwrap_or(pattern);
    let is_wild = pattern.contains(['*', '?', '[']);
    // rsync compares as many names of the path as the pattern has slashes, and one more. A slash in a set
    // counts and is not matched, so that such a pattern matches nothing.
    let counts_slashes = !pattern.starts_with('/') && !pattern.contains("**");
    let mut regex = "^".to_owned();
    match pattern.strip_prefix('/') {
        Some(_) => base.iter().for_each(|&byte| push_literal(&mut regex, byte)),
        // The subject's slash in front is a part of the match.
        None if pattern.starts_with("**") => {}
        None => {
            regex.push_str(ANY);
            regex.push('/');
        }
    }
    if !is_wild {
        pattern.bytes().for_each(|byte| push_literal(&mut regex, byte));
        regex.push_str(if is_directory_only { "\\x00$" } else { "\\x00?$" });
        return regex;
    }
    // `d/***` matches the directory `d`, and everything in it.
    match pattern.strip_suffix("/***") {
        Some(above) => {
            push_glob(&mut regex, above.as_bytes(), counts_slashes);
            let inner =
                if is_directory_only { "(?:/[^\\x00]*)?\\x00$" } else { "(?:/[^\\x00]*\\x00?|\\x00)$" };
            regex.push_str(inner);
        }
        None => {
            push_glob(&mut regex, pattern.as_bytes(), counts_slashes);
            regex.push_str(if is_directory_only { "\\x00$" } else { "\\x00?$" });
        }
    }
    regex
}

fn push_glob(regex: &mut String, mut glob: &[u8], counts_slashes: bool) {
    while let Some((&first, rest)) = glob.split_first() {
        glob = rest;
        match first {
            b'*' => {
                let more = rest.iter().take_while(|&&byte| byte == b'*').count();
                glob = &rest[more..];
                regex.push_str(if more == 0 { "[^/\\x00]*" } else { ANY });
            }
            b'?' => regex.push_str("[^/\\x00]"),
            b'[' => match ByteSet::parse(rest) {
                Some((_, behind)) if counts_slashes && rest[..rest.len() - behind.len()].contains(&b'/') => {
                    return regex.push_str(NEVER);
                }
                Some((set, behind)) => {
                    set.push_to(regex);
                    glob = behind;
                }
                None => return regex.push_str(NEVER),
            },
            b'\\' => match rest.split_first() {
                Some((&escaped, behind)) => {
                    push_literal(regex, escaped);
                    glob = behind;
                }
                None => return regex.push_str(NEVER),
            },
            byte => push_literal(regex, byte),
        }
    }
}

/// The bytes of a set in brackets.
struct ByteSet([bool; 256]);

impl ByteSet {
    /// Parses a set behind its bracket; also returns what follows it. Returns `None` if it has no end.
    fn parse(mut text: &[u8]) -> Option<(ByteSet, &[u8])> {
        let mut set = ByteSet([false; 256]);
        let is_negated = matches!(text.first(), Some(b'!' | b'^'));
        if is_negated {
            text = &text[1..];
        }
        let (mut is_first, mut previous) = (true, None);
        loop {
            let (&byte, rest) = text.split_first()?;
            text = rest;
            match byte {
                b']' if !is_first => break,
                b'-' if previous.is_some() && !matches!(text.first(), None | Some(b']')) => {
                    let (last, rest) = escaped_byte(text)?;
                    (previous.unwrap_or(0)..=last).for_each(|byte| set.0[usize::from(byte)] = true);
                    (text, previous) = (rest, None);
                }
                b'[' if text.first() == Some(&b':') && class_name(text).is_some() => {
                    let (name, rest) = class_name(text)?;
                    set.add_class(name)?;
                    (text, previous) = (rest, None);
                }
                _ => {
                    let (single, rest) =
                        if byte == b'\\' { escaped_byte_behind(text)? } else { (byte, text) };
                    set.0[usize::from(single)] = true;
                    (text, previous) = (rest, Some(single));
                }
            }
            is_first = false;
        }
        set.0.iter_mut().for_each(|is_in| *is_in ^= is_negated);
        // No set matches a slash.
        (set.0[usize::from(b'/')], set.0[0]) = (false, false);
        Some((set, text))
    }

    /// Adds a class such as `alpha`. Returns `None` if there is no such class.
    fn add_class(&mut self, name: &[u8]) -> Option<()> {
        let has: fn(&u8) -> bool = match name {
            b"alnum" => u8::is_ascii_alphanumeric,
            b"alpha" => u8::is_ascii_alphabetic,
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"cntrl" => u8::is_ascii_control,
            b"digit" => u8::is_ascii_digit,
            b"graph" => u8::is_ascii_graphic,
            b"lower" => u8::is_ascii_lowercase,
            b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
            b"punct" => u8::is_ascii_punctuation,
            b"space" => |byte| byte.is_ascii_whitespace() || *byte == 0x0b,
            b"upper" => u8::is_ascii_uppercase,
            b"xdigit" => u8::is_ascii_hexdigit,
            _ => return None,
        };
        (0..=255).filter(has).for_each(|byte| self.0[usize::from(byte)] = true);
        Some(())
    }

    fn push_to(&self, regex: &mut String) {
        if !self.0.contains(&true) {
            return regex.push_str(NEVER);
        }
        regex.push('[');
        for byte in (0..=255).filter(|byte| self.0[usize::from(*byte)]) {
            push_literal(regex, byte);
        }
        regex.push(']');
    }
}

/// Returns the byte at the start, which may have a backslash in front, and what follows it.
fn escaped_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    match text.split_first()? {
        (b'\\', rest) => escaped_byte_behind(rest),
        (&byte, rest) => Some((byte, rest)),
    }
}

fn escaped_byte_behind(text: &[u8]) -> Option<(u8, &[u8])> {
    text.split_first().map(|(&byte, rest)| (byte, rest))
}

/// Returns the name of a class that begins with a colon, and what follows it.
fn class_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b":")?;
    let end = inner.iter().position(|&byte| byte == b']')?;
    let name = inner[..end].strip_suffix(b":")?;
    Some((name, &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use regex::bytes::RegexBuilder;

    use super::*;

    fn matches(pattern: &str, base: &str, path: &str) -> bool {
        let regex = RegexBuilder::new(&regex_of(pattern, base.as_bytes()))
            .unicode(false)
            .dot_matches_new_line(true)
            .build()
            .unwrap();
        let subject = path.strip_suffix('/').map_or_else(|| format!("/{path}"), |path| format!("/{path}\0"));
        regex.is_match(subject.as_bytes())
    }

    /// The examples of rsync(1), and what it says about each wildcard.
    #[test]
    fn patterns_match_as_the_manual_page_says() {
        for (pattern, yes, no) in [
            ("*.o", &["f.o", "a/b/f.o", "d.o/"][..], &["f.c", "a.o/f"][..]),
            ("/foo", &["foo", "foo/"], &["a/foo", "foo/a"]),
            ("foo/", &["foo/", "a/foo/"], &["foo", "foo/a"]),
            ("foo/bar", &["foo/bar", "a/foo/bar"], &["bar", "afoo/bar"]),
            ("foo/*/bar", &["foo/x/bar", "a/foo/x/bar/"], &["foo/bar", "foo/x/y/bar"]),
            ("/foo/**/bar", &["foo/x/bar", "foo/x/y/bar"], &["foo/bar", "a/foo/x/bar"]),
            ("dir/***", &["dir/", "dir/x", "a/dir/x/y/"], &["dir", "adir/"]),
            ("dir/**", &["dir/x", "dir/x/y/"], &["dir", "dir/"]),
            ("dir/***/", &["dir/", "dir/x/"], &["dir", "dir/x"]),
            ("**/foo", &["foo", "a/foo", "a/b/foo/"], &["afoo"]),
            ("**foo", &["foo", "a/bfoo"], &["foo/a"]),
            ("a**b", &["ab", "axb", "a/b", "x/a/y/b"], &["xab", "a/bc"]),
            ("a?c", &["abc", "x/a-c"], &["a/c", "ac"]),
            ("[a-c]x", &["ax", "cx"], &["dx"]),
            ("[!a]x", &["bx", "]x"], &["ax", "a/x"]),
            ("[]a]x", &["]x", "ax"], &["bx"]),
            ("[[:digit:]-]x", &["1x", "-x"], &["ax"]),
            ("[a", &[], &["[a", "a"]),
            ("[a/b]x", &[], &["ax", "d/ax", "a/bx"]),
            ("/[a/b]x", &["ax"], &["d/ax", "/x"]),
            ("foo\\bar", &["foo\\bar"], &["foobar"]),
            ("foo\\*[b]", &["foo*b"], &["foo\\b", "fooxb"]),
            ("/", &[], &["a", "a/"]),
        ] {
            yes.iter().for_each(|path| assert!(matches(pattern, "", path), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!matches(pattern, "", path), "{pattern} {path}"));
        }
    }

    #[test]
    fn patterns_of_a_directory_begin_there() {
        assert!(matches("/foo", "/a.b/c", "a.b/c/foo") && !matches("/foo", "/a.b/c", "a-b/c/foo"));
        assert!(matches("foo", "/a", "a/b/foo") && matches("*/foo", "/a", "a/b/foo"));
    }
}
