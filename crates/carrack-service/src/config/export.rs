//! Exports: directories that a daemon serves, with their access policies.

use std::path::PathBuf;

use carrack_engine::AccessKind;
use carrack_model::ProtectionLevel;
use serde::{Deserialize, Deserializer};

use super::value::{
    absolute_path, error_with_hint, nonempty_text, optional_number_in_range, optional_rate, protection,
};

/// The longest name of an export, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A directory under a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// First component of its paths: `/NAME/sub/path`.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The directory.
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
    /// The lowest protection level for data.
    #[serde(default = "default_protection", deserialize_with = "protection")]
    pub protection: ProtectionLevel,
    /// True if clients may read files that an archive recalls first.
    #[serde(default)]
    pub recall: bool,
    /// The access policy. The first rule that matches an identity counts, and no other.
    #[serde(deserialize_with = "rules")]
    pub allow: Vec<AccessRule>,
}

/// The rights of an identity, or of all identities that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "AccessRuleText")]
pub struct AccessRule {
    /// A name, in which `*` stands for any number of characters and `?` for one.
    pub identity: String,
    /// The right to read files.
    pub read: bool,
    /// The right to create, replace and remove.
    pub write: bool,
    /// The right to read names, sizes and times; implied by the right to read files.
    pub list: bool,
    /// The account of the session if the daemon runs as root; without it the daemon's own.
    pub user: Option<String>,
    /// Upper bound of simultaneous sessions of each identity.
    pub sessions: Option<u64>,
    /// Bytes per second of all sessions of an identity together: each gets an even share.
    pub rate: Option<u64>,
}

/// A rule as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessRuleText {
    #[serde(deserialize_with = "nonempty_text")]
    identity: String,
    #[serde(default)]
    read: bool,
    #[serde(default)]
    write: bool,
    #[serde(default)]
    list: bool,
    user: Option<String>,
    #[serde(default, deserialize_with = "optional_number_in_range::<1, 4_096, _>")]
    sessions: Option<u64>,
    #[serde(default, deserialize_with = "optional_rate")]
    rate: Option<u64>,
}

fn problem(identity: &str, what: &str, hint: &str) -> String {
    format!("the rule for {identity:?} {what}{}{hint}", super::error::HINT)
}

impl TryFrom<AccessRuleText> for AccessRule {
    type Error = String;

    fn try_from(written: AccessRuleText) -> Result<AccessRule, String> {
        let AccessRuleText { identity, read, write, list, user, sessions, rate } = written;
        if !(read || write || list) {
            return Err(problem(&identity, "allows nothing", "give it read, write or list, or take it out"));
        }
        if rate.is_some() && sessions.is_none() {
            return Err(problem(
                &identity,
                "has a rate and no number of sessions",
                "add sessions: each one gets rate / sessions",
            ));
        }
        Ok(AccessRule { identity, read, write, list, user, sessions, rate })
    }
}

impl ExportConfig {
    /// Returns the first rule that matches `identity`.
    pub fn rule(&self, identity: &str) -> Option<&AccessRule> {
        self.allow.iter().find(|rule| matches(rule.identity.as_bytes(), identity.as_bytes()))
    }
}

impl AccessRule {
    /// Returns true if the rule permits this action.
    pub fn allows(&self, deed: AccessKind) -> bool {
        match deed {
            AccessKind::Read | AccessKind::Verify => self.read,
            AccessKind::List => self.list || self.read,
            AccessKind::Write | AccessKind::MakeDirectory | AccessKind::Remove => self.write,
        }
    }

    /// Returns the bytes per second of one session; 0 for no limit.
    pub fn session_rate(&self) -> u64 {
        match (self.rate, self.sessions) {
            (Some(rate), Some(sessions)) => (rate / sessions.max(1)).max(1),
            _ => 0,
        }
    }
}

/// Returns true if the pattern matches the text. Without recursion: the cost is bounded by the product of the
/// lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut retry) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                (p, t) = (p + 1, t + 1);
            }
            _ => {
                // The last star takes one more byte.
                let Some((after_star, taken)) = retry else { return false };
                retry = Some((after_star, taken + 1));
                (p, t) = (after_star, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

fn default_protection() -> ProtectionLevel {
    ProtectionLevel::Private
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let is_fine = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && is_fine && !name.starts_with('.') {
        return Ok(name);
    }
    let hint =
        format!("take letters, digits, '-', '_' and '.', {MAX_NAME_BYTES} at most, no '.' at the start");
    Err(error_with_hint(format!("{name:?} can't be an export's name"), hint))
}

fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AccessRule>, D::Error> {
    let rules = Vec::<AccessRule>::deserialize(deserializer)?;
    if rules.is_empty() {
        return Err(error_with_hint(
            "the export is open to nobody",
            "add a rule such as { identity = \"alice\", read = true }",
        ));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, text, expected) in [
            ("alice", "alice", true),
            ("alice", "alice2", false),
            ("alice", "Alice", false),
            ("*", "", true),
            ("*", "anybody", true),
            ("*@example.org", "ada@example.org", true),
            ("*@example.org", "ada@example.org.evil", false),
            ("mover-?", "mover-1", true),
            ("mover-?", "mover-10", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXcXb", false),
            ("**", "x", true),
            ("", "x", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        // A pattern that would take a recursion years costs no time.
        assert!(!matches("*a".repeat(100).as_bytes(), "a".repeat(99).as_bytes()));
    }
}
