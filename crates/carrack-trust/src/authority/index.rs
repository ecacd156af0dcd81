//! The index of an authority, `issued.jsonl`: all certificates that it issued and revoked. The list of
//! revoked certificates is made from it. Its format is in `docs/formats/authority.md`.

use serde::{Deserialize, Serialize};

/// The version of the format.
const VERSION: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct IndexHeading {
    carrack_authority: u32,
}

/// A certificate of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IssuedCertificateRecord {
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The name of the certificate's files.
    pub name: String,
    /// `server` or `client`.
    pub r#use: String,
    /// Valid until, seconds since 1970.
    pub until_s: i64,
    /// The time of revocation, seconds since 1970.
    pub revoked_s: Option<i64>,
}

/// All certificates, in the order in which they were issued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IssuedCertificateIndex {
    pub entries: Vec<IssuedCertificateRecord>,
}

impl IssuedCertificateIndex {
    /// Reads an index. The error is a text with the line's number.
    pub fn parse(text: &str) -> Result<IssuedCertificateIndex, String> {
        let mut lines = text.lines();
        let heading: IndexHeading = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| format!("line 1: {error}"))?;
        if heading.carrack_authority != VERSION {
            return Err(format!("version {} is not known here", heading.carrack_authority));
        }
        let mut entries = Vec::new();
        for (index, line) in lines.enumerate() {
            let entry = serde_json::from_str(line);
            entries.push(entry.map_err(|error| format!("line {}: {error}", index + 2))?);
        }
        Ok(IssuedCertificateIndex { entries })
    }

    /// The index as it is written.
    pub fn to_text(&self) -> String {
        let mut text = line(&IndexHeading { carrack_authority: VERSION });
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
        let index = IssuedCertificateIndex::parse(EXAMPLE).unwrap();
        assert_eq!(index.entries.len(), 2);
        assert_eq!((index.entries[0].revoked_s, index.entries[1].revoked_s), (None, Some(1_800_000_000)));
        assert_eq!(index.to_text(), EXAMPLE);
        let format = include_str!("../../../../docs/formats/authority.md");
        assert!(format.contains(EXAMPLE));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in ["", "{}\n", "{\"carrack_authority\":2}\n", &EXAMPLE[..EXAMPLE.len() - 5]] {
            assert!(IssuedCertificateIndex::parse(text).is_err(), "{text:?}");
        }
    }
}
