//! Recognizes filter rules of rsync and rclone where patterns of gitignore(5) belong.
//!
//! As a pattern of gitignore(5), `- *.log` matches nothing, and `sync --delete` would delete what both other
//! programs keep.

/// A rule of another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignRule {
    /// Of rsync or rclone.
    Either,
    Rsync,
    Rclone,
}

impl ForeignRule {
    pub(crate) fn language(self) -> &'static str {
        match self {
            ForeignRule::Either => "rsync or rclone",
            ForeignRule::Rsync => "rsync",
            ForeignRule::Rclone => "rclone",
        }
    }

    /// The way to have the rules of a file, and to write a pattern of gitignore(5) that looks so.
    pub(crate) fn hint_for_file(self, file: &str) -> String {
        let rsync = format!("--filter 'merge {file}' reads rsync's rules");
        let rclone = format!("--rclone-filter-from {file} reads rclone's");
        let pattern = "a name that begins so is written with a backslash in front, as in `\\- name`";
        match self {
            ForeignRule::Either => format!("{rsync}, {rclone}; {pattern}"),
            ForeignRule::Rsync => format!("{rsync}; {pattern}"),
            ForeignRule::Rclone => format!("{rclone}; {pattern}"),
        }
    }

    /// The same for an option's value.
    pub(crate) fn hint_for_value(self, rule: &str) -> String {
        let pattern = "a name that begins so is written with a backslash in front, as in `\\- name`";
        match self {
            ForeignRule::Either => {
                format!("--filter '{rule}' is rsync's rule, --rclone-filter '{rule}' rclone's; {pattern}")
            }
            ForeignRule::Rsync => format!("give --filter '{rule}'; {pattern}"),
            ForeignRule::Rclone => format!("give --rclone-filter '{rule}'; {pattern}"),
        }
    }
}

/// The short names of rsync's rules, with the modifiers that they are recognized by, and true if an
/// underscore behind them is as good as a space. Names of files that begin with `._` or `S_` are common.
const SHORT: [(char, &str, bool); 7] = [
    ('-', ",/!Csrpx", true),
    ('+', ",/!Csrpx", true),
    (':', ",/Csrpxenw+-", true),
    ('.', ",-+", false),
    ('H', ",!/p", false),
    ('S', ",!/p", false),
    ('P', ",!/p", false),
];

/// Long names, which need a space or a comma behind them.
const LONG: [&str; 8] = ["merge", "dir-merge", "exclude", "include", "hide", "show", "protect", "risk"];

/// Returns the language of a line that is a rule of rsync or rclone, and most likely no pattern of
/// gitignore(5).
pub(crate) fn foreign_rule(line: &str) -> Option<ForeignRule> {
    if line.starts_with("- ") || line.starts_with("+ ") || line.trim_end() == "!" {
        let is_rclone = line.contains("{{") && line.contains("}}");
        return Some(if is_rclone { ForeignRule::Rclone } else { ForeignRule::Either });
    }
    if matches!(line, ":C" | "-C") {
        return Some(ForeignRule::Rsync);
    }
    let short = line.chars().next().and_then(|first| match first {
        'R' => SHORT.iter().find(|(name, ..)| *name == 'P'),
        first => SHORT.iter().find(|(name, ..)| *name == first),
    });
    let is_short = short.is_some_and(|(_, modifiers, takes_underscore)| {
        let behind = line[1..].trim_start_matches(|letter| modifiers.contains(letter));
        behind.len() > 1 && (behind.starts_with(' ') || *takes_underscore && behind.starts_with('_'))
    });
    let is_long = LONG.iter().any(|name| {
        line.strip_prefix(name).is_some_and(|rest| rest.len() > 1 && rest.starts_with([' ', ',']))
    });
    (is_short || is_long).then_some(ForeignRule::Rsync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_other_programs_are_recognized() {
        for line in ["- *.log", "+ */", "- {a,b}", "!"] {
            assert_eq!(foreign_rule(line), Some(ForeignRule::Either), "{line}");
        }
        assert_eq!(foreign_rule("- {{a+}}"), Some(ForeignRule::Rclone));
        for line in [
            "-p *.log",
            "-_*.o",
            "-! */",
            "+,s a",
            "P x",
            "H x",
            "S x",
            "R x",
            "P,p x",
            ". file",
            ".- file",
            ": .rsync-filter",
            ":n- .f",
            ":_.f",
            "merge x",
            "dir-merge .f",
            "exclude x",
            "exclude,s x",
            "include x",
            "hide x",
            "show x",
            "protect x",
            "risk x",
            ":C",
        ] {
            assert_eq!(foreign_rule(line), Some(ForeignRule::Rsync), "{line}");
        }
    }

    #[test]
    fn patterns_of_gitignore_are_none() {
        for line in [
            "",
            "# - x",
            "*.log",
            "!keep",
            "\\- x",
            "._*",
            ".env",
            ".env file",
            "P_x",
            "Sources",
            "S",
            "-",
            "-x",
            "-a b",
            "includes/",
            "include",
            "merge",
            "exclude_x",
            "/- x",
            "R&D x",
            ".",
            "..",
            "High x",
            ".rsync-filter",
            "include/x y",
        ] {
            assert_eq!(foreign_rule(line), None, "{line}");
        }
    }
}
