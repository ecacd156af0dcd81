//! Manifest lines and assembled digests against the real `b3sum`; skipped where it is not installed.

#![allow(clippy::unwrap_used, reason = "a failed test is its message")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use carrack_journal::{FileDigestBuilder, ManifestLine, hash_subtrees, manifest_line};

/// Names that need care: escapes, spaces, terminal control, other scripts, no UTF-8, the standard input's.
const NAMES: [&[u8]; 10] = [
    b"plain",
    b" two  spaces ",
    b"back\\slash\\n",
    b"new\nline",
    b"return\r",
    b"a\x1b[2Jb",
    "grün\u{2028}".as_bytes(),
    b"not\xffutf8",
    "\u{fffd}".as_bytes(),
    b"-",
];

/// The names that the installed b3sum escapes as 1.8 does, or nothing and the reason on stderr if there is no
/// b3sum.
///
/// Debian 12's b3sum 1.2 neither writes nor reads `\r`.
fn names() -> Option<impl Iterator<Item = (usize, &'static [u8])>> {
    let version = String::from_utf8(b3sum(Path::new("."), &[OsStr::new("--version")])?.stdout).unwrap();
    let mut numbers =
        version.trim_start_matches("b3sum ").split('.').map_while(|n| n.trim().parse::<u32>().ok());
    let is_old = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (1, 8);
    if is_old {
        eprintln!("names with carriage returns skipped: {} is older than 1.8", version.trim());
    }
    Some(NAMES.into_iter().enumerate().filter(move |(_, name)| !(is_old && name.contains(&b'\r'))))
}

/// Runs b3sum, or says why not.
fn b3sum(directory: &Path, args: &[&OsStr]) -> Option<Output> {
    match Command::new("b3sum").args(args).current_dir(directory).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: b3sum can't be run ({error}); `cargo install b3sum` provides it");
            None
        }
    }
}

fn contents(index: usize) -> Vec<u8> {
    vec![index as u8; index * 40_000]
}

fn line(index: usize, name: &[u8]) -> ManifestLine {
    let data = contents(index);
    let mut digest = FileDigestBuilder::new(data.len() as u64);
    for (offset, piece) in (0u64..).step_by(16_384).zip(data.chunks(16_384)) {
        let pieces = hash_subtrees(offset, piece, data.len() as u64).unwrap();
        pieces.for_each(|subtree| digest.add(subtree).unwrap());
    }
    manifest_line(&digest.finish().unwrap(), name)
}

#[test]
fn prints_what_b3sum_prints() {
    let Some(names) = names() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (index, name) in names.filter(|(_, name)| *name != b"-") {
        let name_os = OsStr::from_bytes(name);
        fs::write(directory.path().join(name_os), contents(index)).unwrap();
        let Some(output) = b3sum(directory.path(), &[OsStr::new("--"), name_os]) else { return };
        assert!(output.status.success());
        assert_eq!(line(index, name).bytes, output.stdout, "{name:?}");
    }
}

#[test]
fn b3sum_checks_exactly_the_lines_that_are_called_checkable() {
    let Some(names) = names() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (index, name) in names {
        fs::write(directory.path().join(OsStr::from_bytes(name)), contents(index)).unwrap();
        let line = line(index, name);
        fs::write(directory.path().join("manifest"), &line.bytes).unwrap();
        let Some(output) = b3sum(directory.path(), &[OsStr::new("--check"), OsStr::new("manifest")]) else {
            return;
        };
        assert_eq!(output.status.success(), line.is_checkable, "{name:?}");
    }
}
