//! Parser of `glusterfs.pathinfo`.
//!
//! Pure: bytes in, value out. The text contains names of files, which any user may choose: only the text
//! before the first name is trusted.

use thiserror::Error;

/// Bound of the items before the first brick: the layers of a volume, at most three.
const ITEMS_MAX: usize = 16;

/// Longest name of a volume, set, host or brick that serves as a label.
const NAME_BYTES_MAX: usize = 1_024;

/// The place of a file in GlusterFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickPlace {
    /// The name of the set of bricks that hold copies (`REPLICATE`) or parts (`EC`) of the file.
    pub set: Option<String>,
    /// The host of the brick; of a set, the first one to answer.
    pub host: String,
    /// The brick's directory on the host.
    pub brick: String,
    /// True if the set holds copies.
    pub is_replicated: bool,
}

/// The reason why a text names no brick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GlusterPathInfoError {
    /// No `<POSIX(…):host:path>` among its first items.
    #[error("no brick is named")]
    NoBrick,
    /// An unterminated item, or a brick without a host.
    #[error("the text is broken")]
    Broken,
    /// A name longer than GlusterFS allows.
    #[error("a name is too long")]
    TooLong,
}

impl BrickPlace {
    /// The common label of all files in this place, for reports: "host:/brick", or the set's name, as the
    /// order of a set's bricks differs from reply to reply.
    pub fn label(&self) -> String {
        self.set.clone().unwrap_or_else(|| format!("{}:{}", self.host, self.brick))
    }

    /// The server of all files in this place; none for a set of bricks, which lie on several.
    pub fn server(&self) -> Option<String> {
        self.set.is_none().then(|| self.host.clone())
    }
}

/// Parses a value of `trusted.glusterfs.pathinfo` or `glusterfs.pathinfo`.
///
/// # Errors
/// [`GlusterPathInfoError`]; the text behind the first brick is ignored.
pub fn parse_pathinfo(value: &[u8]) -> Result<BrickPlace, GlusterPathInfoError> {
    let mut rest = value;
    let (mut set, mut is_replicated) = (None, false);
    for _ in 0..ITEMS_MAX {
        rest = after_byte(rest, b'<').ok_or(GlusterPathInfoError::NoBrick)?;
        if let Some(brick) = rest.strip_prefix(b"POSIX(") {
            let (host, brick) = parse_brick(brick)?;
            return Ok(BrickPlace { set, host, brick, is_replicated });
        }
        let end = rest.iter().position(|&byte| byte == b'>').ok_or(GlusterPathInfoError::Broken)?;
        let (item, after) = rest.split_at(end);
        for (kind, copies) in [(&b"EC:"[..], false), (b"REPLICATE:", true)] {
            if let Some(own) = item.strip_prefix(kind) {
                (set, is_replicated) = (Some(name(own)?), copies);
            }
        }
        rest = after;
    }
    Err(GlusterPathInfoError::NoBrick)
}

/// Host and directory of all bricks in the `pathinfo` of the volume's root, which has no names of files.
pub(super) fn bricks_of(root: &[u8]) -> Vec<(String, String)> {
    let (mut bricks, mut rest) = (Vec::new(), root);
    while let Some(item) = after_byte(rest, b'<') {
        bricks.extend(item.strip_prefix(b"POSIX(").and_then(|brick| parse_brick(brick).ok()));
        rest = item;
    }
    bricks
}

/// `/brick):host:/brick/path>`
fn parse_brick(item: &[u8]) -> Result<(String, String), GlusterPathInfoError> {
    let end = item.windows(2).position(|pair| pair == b"):").ok_or(GlusterPathInfoError::Broken)?;
    let (brick, rest) = (&item[..end], &item[end + 2..]);
    // A host may be an IPv6 address: it ends where the brick's path is repeated.
    let end = (0..rest.len().min(NAME_BYTES_MAX))
        .find(|&at| rest[at] == b':' && rest[at + 1..].starts_with(brick))
        .ok_or(GlusterPathInfoError::Broken)?;
    Ok((name(&rest[..end])?, name(brick)?))
}

fn name(bytes: &[u8]) -> Result<String, GlusterPathInfoError> {
    match bytes.len() {
        0 => Err(GlusterPathInfoError::Broken),
        1..=NAME_BYTES_MAX => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(GlusterPathInfoError::TooLong),
    }
}

fn after_byte(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    bytes.iter().position(|&byte| byte == wanted).map(|at| &bytes[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(text: &str) -> Result<String, GlusterPathInfoError> {
        parse_pathinfo(text.as_bytes()).map(|place| place.label())
    }

    #[test]
    fn the_first_brick_is_the_place() {
        for (text, expected) in [
            ("(<DISTRIBUTE:v1-dht> <POSIX(/b4):vm:/b4/f>)", "vm:/b4"),
            ("<POSIX(/b1):h1.example:/b1/d/f>", "h1.example:/b1"),
            (
                "(<DISTRIBUTE:v1-dht> (<REPLICATE:v1-replicate-1> <POSIX(/b1):h1:/b1/f> <POSIX(/b2):h2:/b2/f>))",
                "v1-replicate-1",
            ),
            (
                "(<DISTRIBUTE:v-dht> (<EC:v-disperse-0> <POSIX(/b1):h:/b1/f> <POSIX(/b2):h:/b2/f>))",
                "v-disperse-0",
            ),
            ("(<DISTRIBUTE:v1-dht> <POSIX(/b4):fd00::7:/b4/f>)", "fd00::7:/b4"),
            ("(<DISTRIBUTE:v1-dht> <POSIX(/b (1)):h:/b (1)/f>)", "h:/b (1)"),
            // A directory: all bricks, and the range of hashes of each.
            (
                "((<DISTRIBUTE:v1-dht> <POSIX(/b1):h:/b1/> <POSIX(/b2):h:/b2/>) \
                 (v1-dht-layout (v1-client-0 0 2147483646) (v1-client-1 2147483647 4294967295)))",
                "h:/b1",
            ),
            // A file name that imitates a brick.
            ("(<DISTRIBUTE:v1-dht> <POSIX(/b4):h:/b4/x> <POSIX(/evil):e:/evil/>)", "h:/b4"),
        ] {
            assert_eq!(label(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(parse_pathinfo(b"(<REPLICATE:r> <POSIX(/b):h:/b/f>)").unwrap().is_replicated);
    }

    #[test]
    fn a_text_without_a_brick_is_refused() {
        for text in ["", "()", "(<DISTRIBUTE:v1-dht>)", "(<DISTRIBUTE:v1-dht> )"] {
            assert_eq!(label(text), Err(GlusterPathInfoError::NoBrick), "{text}");
        }
        for text in ["<DISTRIBUTE", "<POSIX(/b", "<POSIX(/b):h", "<POSIX(/b):h:/c/f>", "<POSIX(/b)::/b/f>"] {
            assert_eq!(label(text), Err(GlusterPathInfoError::Broken), "{text}");
        }
        assert_eq!(label(&"<A:b>".repeat(20)), Err(GlusterPathInfoError::NoBrick));
        let long = format!("<EC:{}> <POSIX(/b):h:/b/f>", "x".repeat(2_000));
        assert_eq!(label(&long), Err(GlusterPathInfoError::TooLong));
    }

    proptest! {
        #[test]
        fn anything_is_a_place_or_refused(pieces in proptest::collection::vec(
            proptest::sample::select(vec!["(", "<", ">", ")", ":", "POSIX(", "EC:", "/b", "h", " ", "REPLICATE:", "é"]),
            0..40,
        )) {
            if let Ok(place) = parse_pathinfo(pieces.concat().as_bytes()) {
                prop_assert!(!place.label().is_empty());
            }
        }

        #[test]
        fn a_brick_is_read_whatever_the_file_is_called(name in ".{0,60}") {
            let text = format!("(<DISTRIBUTE:v-dht> <POSIX(/data/b1):host:/data/b1/{name}>)");
            prop_assert_eq!(label(&text), Ok("host:/data/b1".to_owned()));
        }
    }
}
