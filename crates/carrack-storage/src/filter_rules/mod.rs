//! Filter rules in the languages of rsync(1) and rclone: parsing, and matching of paths.
//!
//! In both languages the first rule that matches counts. Each list of rules is compiled into one set of
//! regular expressions, so that a path is compared with all of them at once.

mod rclone_rules;
mod rsync_directory_rules;
mod rsync_pattern;
mod rsync_rule;
mod rsync_rules;

pub(crate) use rclone_rules::RcloneRules;
pub use rsync_directory_rules::{DirectoryRules, OwnDirectoryRules};
pub use rsync_rule::{RsyncMergeRule, RsyncRule, RsyncRuleError, rule_lines};
pub(crate) use rsync_rules::{RsyncRules, RuleQuery, RuleSide, path_subject};

/// Upper bound of the memory of one compiled list of rules.
const COMPILED_BYTES_MAX: usize = 64 << 20;

/// Escapes a byte for a regular expression.
fn push_literal(regex: &mut String, byte: u8) {
    use std::fmt::Write;
    let written = if byte.is_ascii_alphanumeric() {
        regex.push(char::from(byte));
        Ok(())
    } else {
        write!(regex, "\\x{byte:02x}")
    };
    written.expect("a string takes any text");
}
