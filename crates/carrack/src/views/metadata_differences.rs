//! Metadata that differ, as `carrack verify` reports them: some words, or a JSON object of strings.

use carrack_engine::MetadataDifference;
use carrack_model::{APPEND_ONLY, FailureSide, FileFlags, IMMUTABLE, NO_DUMP, UserOrGroup, escape};
use serde::Serialize;

use crate::lifetime::format_timestamp;
use crate::views::verify::side_name;

/// One difference. A value that an end lacks is null.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MetadataLine {
    of: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    source: Option<String>,
    destination: Option<String>,
}

impl MetadataLine {
    /// Returns both values as text.
    pub fn of(difference: &MetadataDifference) -> MetadataLine {
        use MetadataDifference as Found;
        match difference {
            Found::Mode { source, sink } => two_value_line("mode", mode(*source), mode(*sink)),
            Found::Time { source, sink } => {
                two_value_line("time", format_timestamp(*source), format_timestamp(*sink))
            }
            Found::Owner { source, sink } => two_value_line("owner", account(source), account(sink)),
            Found::Group { source, sink } => two_value_line("group", account(source), account(sink)),
            Found::Flags { source, sink } => two_value_line("flags", flags(*source), flags(*sink)),
            Found::Holes { source, sink } => {
                two_value_line("holes", format!("{source} bytes"), format!("{sink} bytes"))
            }
            Found::Attribute { name, in_source, in_sink } => {
                let at_sink = if *in_source { "another value" } else { "a value" };
                MetadataLine {
                    of: "attribute",
                    name: Some(escape(name)),
                    source: in_source.then(|| "a value".to_owned()),
                    destination: in_sink.then(|| at_sink.to_owned()),
                }
            }
            Found::AttributesUnread { side, detail } => {
                let [source, destination] = [FailureSide::Source, FailureSide::Sink]
                    .map(|end| (*side == end).then(|| format!("can't be read: {detail}")));
                MetadataLine { of: "attribute", name: None, source, destination }
            }
            Found::HardLink { with, linked_at } => {
                let [source, destination] = [FailureSide::Source, FailureSide::Sink]
                    .map(|end| if *linked_at == end { "one file" } else { "another file" }.to_owned());
                MetadataLine { name: Some(escape(with)), ..two_value_line("hard-link", source, destination) }
            }
        }
    }
}

/// Returns a text for people: the destination's value, and the source's.
pub fn in_words(difference: &MetadataDifference) -> String {
    use MetadataDifference as Found;
    match difference {
        Found::Attribute { name, in_source, in_sink } => {
            let name = attribute_name(name);
            match (in_source, in_sink) {
                (true, true) => format!("{name} has another value"),
                (true, false) => format!("{name} is missing"),
                _ => format!("{name} is not at the source"),
            }
        }
        Found::AttributesUnread { side, detail } => {
            format!("attributes can't be read at the {}: {detail}", side_name(*side))
        }
        Found::HardLink { with, linked_at: FailureSide::Source } => {
            format!("not the same file as {}, as at the source", escape(with))
        }
        Found::HardLink { with, .. } => {
            format!("the same file as {}, unlike at the source", escape(with))
        }
        _ => {
            let MetadataLine { of, source, destination, .. } = MetadataLine::of(difference);
            let (source, destination) = (source.unwrap_or_default(), destination.unwrap_or_default());
            format!("{of} {destination} where {source} should be")
        }
    }
}

/// Returns the name of an attribute. ACLs are attributes on Linux, but not to people.
fn attribute_name(name: &[u8]) -> String {
    match name {
        b"system.posix_acl_access" => "the access ACL".to_owned(),
        b"system.posix_acl_default" => "the default ACL".to_owned(),
        name => format!("attribute {}", escape(name)),
    }
}

fn two_value_line(of: &'static str, source: String, destination: String) -> MetadataLine {
    MetadataLine { of, name: None, source: Some(source), destination: Some(destination) }
}

fn mode(mode: u32) -> String {
    format!("{mode:04o}")
}

fn account(account: &UserOrGroup) -> String {
    match (account.number, &*account.name) {
        (0, _) => "root".to_owned(),
        (number, b"") => number.to_string(),
        (number, name) => format!("{} ({number})", escape(name)),
    }
}

/// Returns the flags by their names in `chattr(1)`.
fn flags(flags: FileFlags) -> String {
    let named = [(IMMUTABLE, "immutable"), (APPEND_ONLY, "append-only"), (NO_DUMP, "no-dump")];
    let set: Vec<&str> =
        named.into_iter().filter(|(flag, _)| flags.active() & flag != 0).map(|(_, name)| name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(",") }
}

#[cfg(test)]
mod tests {
    use carrack_model::Timestamp;

    use super::*;

    fn owner(number: u32, name: &str) -> UserOrGroup {
        UserOrGroup { number, name: name.as_bytes().into() }
    }

    fn time(nanoseconds: u32) -> Timestamp {
        Timestamp { seconds: 1_000_000_000, nanoseconds }
    }

    fn attribute(in_source: bool, in_sink: bool) -> MetadataDifference {
        MetadataDifference::Attribute { name: b"user.a\n"[..].into(), in_source, in_sink }
    }

    #[test]
    fn each_difference_says_what_is_there_and_what_should_be() {
        use MetadataDifference as Found;
        let with = b"a/b".as_slice();
        for (difference, words) in [
            (Found::Mode { source: 0o644, sink: 0o4600 }, "mode 4600 where 0644 should be"),
            (
                Found::Time { source: time(7), sink: time(0) },
                "time 2001-09-09T01:46:40.000000000Z where 2001-09-09T01:46:40.000000007Z should be",
            ),
            (
                Found::Owner { source: owner(7, "alice"), sink: owner(0, "") },
                "owner root where alice (7) should be",
            ),
            (Found::Group { source: owner(8, ""), sink: owner(9, "") }, "group 9 where 8 should be"),
            (
                Found::Flags { source: FileFlags::new(0x70, 0x50), sink: FileFlags::new(0x70, 0) },
                "flags none where immutable,no-dump should be",
            ),
            (Found::Holes { source: 70_000, sink: 0 }, "holes 0 bytes where 70000 bytes should be"),
            (attribute(true, true), "attribute user.a\\n has another value"),
            (attribute(true, false), "attribute user.a\\n is missing"),
            (attribute(false, true), "attribute user.a\\n is not at the source"),
            (
                Found::Attribute {
                    name: b"system.posix_acl_access"[..].into(),
                    in_source: true,
                    in_sink: true,
                },
                "the access ACL has another value",
            ),
            (
                Found::AttributesUnread { side: FailureSide::Sink, detail: "no".into() },
                "attributes can't be read at the destination: no",
            ),
            (
                Found::HardLink { with: with.into(), linked_at: FailureSide::Source },
                "not the same file as a/b, as at the source",
            ),
            (
                Found::HardLink { with: with.into(), linked_at: FailureSide::Sink },
                "the same file as a/b, unlike at the source",
            ),
        ] {
            assert_eq!(in_words(&difference), words);
        }
    }

    #[test]
    fn json_has_null_for_what_is_not_there() {
        let missing =
            MetadataDifference::Attribute { name: b"user.a"[..].into(), in_source: true, in_sink: false };
        let line = serde_json::to_string(&MetadataLine::of(&missing)).unwrap();
        assert_eq!(line, r#"{"of":"attribute","name":"user.a","source":"a value","destination":null}"#);
        let mode = MetadataLine::of(&MetadataDifference::Mode { source: 0o755, sink: 0o700 });
        let line = serde_json::to_string(&mode).unwrap();
        assert_eq!(line, r#"{"of":"mode","source":"0755","destination":"0700"}"#);
    }
}
