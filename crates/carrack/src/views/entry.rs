//! An entry of a file system as `carrack ls` and `carrack stat` show it: a name, a line, a table, or a JSON
//! object.
//!
//! JSON, one object a line; field names are stable, new ones may come:
//!
//! | field | content |
//! | --- | --- |
//! | `path`, `path_hex` | `ls`: the name in the directory; `stat`: the path. As in `carrack cp --json` |
//! | `type` | `file`, `directory`, `symlink`, `pipe`, `socket`, `device`, `other`; `export`: no more fields |
//! | `size_bytes` | for a link the bytes of its text |
//! | `mode` | permission bits, octal, four digits |
//! | `uid`, `gid` | numbers at that end |
//! | `mtime_seconds`, `mtime_nanoseconds` | since 1970; seconds may be negative |

use std::io::{self, Write};

use carrack_engine::{BrowseItem, BrowsedKind, ListedEntry};
use carrack_model::escape;
use serde::Serialize;

use crate::lifetime::{format_moment, format_timestamp};
use crate::views::json::{self, write_line as write_json_line};
use crate::views::table::write_facts;

/// The format of `ls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingStyle {
    /// The name's bytes, for a pipe.
    Bytes,
    /// The name, escaped for a terminal.
    Names,
    /// A line with all metadata.
    Long,
    /// A JSON object.
    Json,
}

/// Writes one line for an entry or an export; nothing for a failure.
pub fn write_line(found: &BrowseItem, style: ListingStyle, out: &mut dyn Write) -> io::Result<()> {
    let name = match found {
        BrowseItem::Entry(entry) => &*entry.name,
        BrowseItem::Export(name) => name,
        BrowseItem::Failed { .. } => return Ok(()),
    };
    match (style, found) {
        (ListingStyle::Bytes, _) => {
            out.write_all(name)?;
            out.write_all(b"\n")
        }
        (ListingStyle::Names, _) => writeln!(out, "{}", escape(name)),
        (ListingStyle::Long, BrowseItem::Entry(entry)) => write_long(entry, out),
        (ListingStyle::Long, _) => {
            writeln!(out, "{:<10} {:>6} {:>6} {:>15} {:<20} {}", "export", "-", "-", "-", "-", escape(name))
        }
        (ListingStyle::Json, _) => write_json(name, found, out),
    }
}

/// Writes the metadata of `path`, as a JSON object on one line or for people.
pub fn write_stat(path: &[u8], entry: &ListedEntry, is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    if is_json {
        return write_json(path, &BrowseItem::Entry(entry.clone()), out);
    }
    writeln!(out, "{}", escape(path))?;
    let facts = [
        ("type", kind_name(entry.kind).to_owned()),
        ("size", format!("{} bytes", entry.size)),
        ("mode", format!("{:04o} ({})", entry.mode, mode_in_letters(entry))),
        ("owner", format!("user {}, group {}", entry.uid, entry.gid)),
        ("modified", format_timestamp(entry.mtime)),
    ];
    write_facts(&facts, out)
}

/// Writes a line in columns of fixed widths for most numbers: aligned lines would wait for the directory's
/// end.
fn write_long(entry: &ListedEntry, out: &mut dyn Write) -> io::Result<()> {
    let ListedEntry { uid, gid, size, mtime, .. } = entry;
    let (mode, moment) = (mode_in_letters(entry), format_moment(mtime.seconds));
    writeln!(out, "{mode} {uid:>6} {gid:>6} {size:>15} {moment} {}", escape(&entry.name))
}

/// Returns the kind of an entry, as `--json` has it.
pub fn kind_name(kind: BrowsedKind) -> &'static str {
    match kind {
        BrowsedKind::File => "file",
        BrowsedKind::Directory => "directory",
        BrowsedKind::Symlink => "symlink",
        BrowsedKind::Pipe => "pipe",
        BrowsedKind::Socket => "socket",
        BrowsedKind::Device => "device",
        BrowsedKind::Other => "other",
    }
}

/// Returns the mode as in ls(1) (POSIX): a letter for the kind, and nine for the bits.
fn mode_in_letters(entry: &ListedEntry) -> String {
    let kind = match entry.kind {
        BrowsedKind::File => '-',
        BrowsedKind::Directory => 'd',
        BrowsedKind::Symlink => 'l',
        BrowsedKind::Pipe => 'p',
        BrowsedKind::Socket => 's',
        BrowsedKind::Device => 'b',
        BrowsedKind::Other => '?',
    };
    let mut letters = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = entry.mode >> shift;
        letters.push(if bits & 0o4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 0o2 != 0 { 'w' } else { '-' });
        letters.push(match (entry.mode & special != 0, bits & 0o1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

fn write_json(path: &[u8], found: &BrowseItem, out: &mut dyn Write) -> io::Result<()> {
    let (r#type, facts) = match found {
        BrowseItem::Entry(entry) => (kind_name(entry.kind), Some(EntryFacts::of(entry))),
        _ => ("export", None),
    };
    write_json_line(&EntryLine { path: json::JsonFilePathFields::of(path), r#type, facts }, out)
}

#[derive(Serialize)]
struct EntryLine<'a> {
    #[serde(flatten)]
    path: json::JsonFilePathFields<'a>,
    r#type: &'static str,
    #[serde(flatten)]
    facts: Option<EntryFacts>,
}

#[derive(Serialize)]
struct EntryFacts {
    size_bytes: u64,
    mode: String,
    uid: u32,
    gid: u32,
    mtime_seconds: i64,
    mtime_nanoseconds: u32,
}

impl EntryFacts {
    fn of(entry: &ListedEntry) -> EntryFacts {
        EntryFacts {
            size_bytes: entry.size,
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            mtime_seconds: entry.mtime.seconds,
            mtime_nanoseconds: entry.mtime.nanoseconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::Timestamp;

    use super::*;
    use crate::views::output::tests::text_of;

    fn entry(kind: BrowsedKind, mode: u32) -> ListedEntry {
        let mtime = Timestamp { seconds: 1_800_000_000, nanoseconds: 5 };
        ListedEntry { name: b"a\x1b\xff"[..].into(), kind, size: 7, mtime, mode, uid: 1000, gid: 100 }
    }

    fn line(found: &BrowseItem, style: ListingStyle) -> Vec<u8> {
        let mut out = Vec::new();
        write_line(found, style, &mut out).unwrap();
        out
    }

    fn text(found: &BrowseItem, style: ListingStyle) -> String {
        String::from_utf8(line(found, style)).unwrap()
    }

    #[test]
    fn lines() {
        let file = BrowseItem::Entry(entry(BrowsedKind::File, 0o644));
        assert_eq!(line(&file, ListingStyle::Bytes), b"a\x1b\xff\n");
        assert_eq!(text(&file, ListingStyle::Names), "a\\u{1b}\\xff\n");
        let long = "-rw-r--r--   1000    100               7 2027-01-15T08:00:00Z a\\u{1b}\\xff\n";
        assert_eq!(text(&file, ListingStyle::Long), long);
        let export = BrowseItem::Export(b"data"[..].into());
        assert_eq!(text(&export, ListingStyle::Names), "data\n");
        assert_eq!(text(&export, ListingStyle::Long).find("data"), long.find("a\\u"));
        assert_eq!(text(&export, ListingStyle::Json), "{\"path\":\"data\",\"type\":\"export\"}\n");
        let failed = BrowseItem::Failed { path: b"x"[..].into(), detail: "no".into() };
        assert!(line(&failed, ListingStyle::Json).is_empty());
    }

    #[test]
    fn json_holds_every_byte() {
        let file = BrowseItem::Entry(entry(BrowsedKind::Symlink, 0o777));
        let json: serde_json::Value = serde_json::from_slice(&line(&file, ListingStyle::Json)).unwrap();
        assert_eq!(json["path_hex"], "611bff");
        assert_eq!((&json["type"], &json["mode"]), (&"symlink".into(), &"0777".into()));
        assert_eq!((&json["mtime_seconds"], &json["size_bytes"]), (&1_800_000_000.into(), &7.into()));
    }

    #[test]
    fn modes_are_letters() {
        for (kind, mode, letters) in [
            (BrowsedKind::Directory, 0o1777, "drwxrwxrwt"),
            (BrowsedKind::File, 0o4751, "-rwsr-x--x"),
            (BrowsedKind::File, 0o6644, "-rwSr-Sr--"),
            (BrowsedKind::Directory, 0o1770, "drwxrwx--T"),
            (BrowsedKind::Pipe, 0, "p---------"),
        ] {
            assert_eq!(mode_in_letters(&entry(kind, mode)), letters);
        }
    }

    #[test]
    fn a_table_for_people() {
        let table = text_of(|out| write_stat(b"/d/\n", &entry(BrowsedKind::File, 0o640), false, out));
        assert!(table.starts_with("/d/\\n\n"), "{table}");
        for words in ["file", "7 bytes", "0640 (-rw-r-----)", "user 1000, group 100", "08:00:00.000000005Z"] {
            assert!(table.contains(words), "{words}:\n{table}");
        }
    }
}
