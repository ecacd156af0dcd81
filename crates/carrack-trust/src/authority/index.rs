//! What an authority has issued and revoked: `issued.jsonl`, the truth from which its list of revoked certificates is
//! made. Its format is in `docs/formats/authority.md`.

use serde::{Deserialize, Serialize};

/// The version of the format.
const VERSION: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Heading {
    carrack_authority: u32,
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its number, in hexadecimal digits.
    pub serial: String,
    /// The name of its files.
    pub name: String,
    /// `server` or `client`.
    pub r#use: String,
    /// Valid until, seconds since 1970.
    pub until_s: i64,
    /// When it was revoked, seconds since 1970.
    pub revoked_s: Option<i64>,
}

/// All of them, in the order in which they were issued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub entries: Vec<Entry>,
}

impl Index {
    /// Reads it; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Index, String> {
        let mut lines = text.lines();
        let heading: Heading = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| format!("line 1: {error}"))?;
        if heading.carrack_authority != VERSION {
            return Err(format!("version {} is not known here", heading.carrack_authority));
        }
        let entry = |(index, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 2))
        };
        Ok(Index { entries: lines.enumerate().map(entry).collect::<Result<_, _>>()? })
    }

    /// As it is written.
    pub fn to_text(&self) -> String {
        let mut text = line(&Heading { carrack_authority: VERSION });
        text.extend(self.entries.iter().map(line));
        text
    }
}

fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("strings and numbers can be written as JSON");
    json + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/formats/authority.md`.
    const EXAMPLE: &str = r#"{"carrack_authority":1}
{"serial":"4f0c","name":"dtn1","use":"server","until_s":1834300800,"revoked_s":null}
{"serial":"51aa","name":"alice","use":"client","until_s":1807776000,"revoked_s":1800000000}
"#;

    #[test]
    fn reads_and_writes_the_example() {
        let index = Index::parse(EXAMPLE).unwrap();
        assert_eq!(index.entries.len(), 2);
        assert_eq!((index.entries[0].revoked_s, index.entries[1].revoked_s), (None, Some(1_800_000_000)));
        assert_eq!(index.to_text(), EXAMPLE);
        let format = include_str!("../../../../docs/formats/authority.md");
        assert!(format.contains(EXAMPLE));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in ["", "{}\n", "{\"carrack_authority\":2}\n", &EXAMPLE[..EXAMPLE.len() - 5]] {
            assert!(Index::parse(text).is_err(), "{text:?}");
        }
    }
}
