//! Changes of permission bits in the syntax of chmod(1) and rsync's `--chmod`. Pure.

use serde::{Deserialize, Serialize};

/// Limit of the clauses' text, which travels in one message.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// All bits of a mode (inode(7)).
const ALL_BITS: u32 = 0o7777;

/// A list of clauses, applied in order. The empty list changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModeChange {
    text: String,
    clauses: Vec<ModeClause>,
}

/// Reasons why a text is not a list of clauses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModeChange {
    /// One clause is malformed.
    #[error("'{0}' is no mode, as in 'go-w', 'u=rwX,go=rX', 'D2775,F664'")]
    Clause(String),
    /// The text does not fit into a message.
    #[error("more than {} KiB of modes", TEXT_BYTES_MAX >> 10)]
    TooLong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModeClause {
    entries: ModeClauseEntryKinds,
    change: ModeClauseChange,
}

/// The entries that a clause applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeClauseEntryKinds {
    All,
    Directories,
    Others,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ModeClauseChange {
    /// Octal: exactly these bits.
    Exactly(u32),
    Symbolic {
        /// Classes that the bits belong to: 0o100 owner, 0o010 group, 0o001 others; 0 for all of them, less
        /// the umask.
        classes: u32,
        operator: ModeOperator,
        /// Bits of one class: read, write, execute.
        bits: u32,
        /// `X`: execute for directories, and for files with an execute bit.
        executes_too: bool,
        /// Set-ID bits and sticky.
        special: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeOperator {
    Add,
    Remove,
    Assign,
}

impl TryFrom<String> for ModeChange {
    type Error = BadModeChange;

    /// The empty text is the empty list.
    fn try_from(text: String) -> Result<ModeChange, BadModeChange> {
        if text.is_empty() { Ok(ModeChange::default()) } else { ModeChange::parse(&text) }
    }
}

impl From<ModeChange> for String {
    fn from(list: ModeChange) -> String {
        list.text
    }
}

impl ModeChange {
    /// Parses clauses separated by commas. A clause is octal or symbolic (`[ugoa]*[-+=][rwxXst]*`), with `D`
    /// in front for directories only, with `F` for everything else.
    ///
    /// # Errors
    /// The malformed clause.
    pub fn parse(text: &str) -> Result<ModeChange, BadModeChange> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadModeChange::TooLong);
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            clauses.push(clause_of(part).ok_or_else(|| BadModeChange::Clause(part.to_owned()))?);
        }
        Ok(ModeChange { text: text.to_owned(), clauses })
    }

    /// The text of the clauses; empty if there are none.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if no mode is changed.
    pub fn is_empty(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Returns the new mode of an entry with `mode`. Clauses without a class don't set the bits of `umask`.
    pub fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        // As in rsync, X refers to the entry's original mode.
        let executes = is_directory || mode & 0o111 != 0;
        let mut changed = mode;
        for clause in &self.clauses {
            if clause.entries.include(is_directory) {
                changed = clause.change.apply(changed, executes, umask);
            }
        }
        changed
    }
}

impl ModeClauseEntryKinds {
    fn include(self, is_directory: bool) -> bool {
        match self {
            ModeClauseEntryKinds::All => true,
            ModeClauseEntryKinds::Directories => is_directory,
            ModeClauseEntryKinds::Others => !is_directory,
        }
    }
}
impl ModeClauseChange {
    /// Applies the change; `executes` is true if X means x.
    fn apply(&self, mode: u32, executes: bool, umask: u32) -> u32 {
        let (classes, operator, bits, executes_too, special) = match *self {
            ModeClauseChange::Exactly(bits) => return mode & !ALL_BITS | bits,
            ModeClauseChange::Symbolic { classes, operator, bits, executes_too, special } => {
                (classes, operator, bits, executes_too, special)
            }
        };
        let bits = bits | u32::from(executes_too && executes);
        let (reach, bits) = match classes {
            0 => (0o777, (bits * 0o111) & !umask),
            classes => (classes * 7, bits * classes),
        };
        match operator {
            ModeOperator::Add => mode | bits | special,
            ModeOperator::Remove => mode & !(bits | special),
            ModeOperator::Assign => mode & !reach & !special_of(classes) | bits | special,
        }
    }
}

/// Set-ID and sticky bits of the classes.
fn special_of(classes: u32) -> u32 {
    let set_user = if classes & 0o100 != 0 { 0o4000 } else { 0 };
    let set_group = if classes & 0o010 != 0 { 0o2000 } else { 0 };
    match classes {
        0 => 0o7000,
        classes => set_user | set_group | if classes & 1 != 0 { 0o1000 } else { 0 },
    }
}

fn clause_of(text: &str) -> Option<ModeClause> {
    let (entries, text) = match text.as_bytes().first()? {
        b'D' => (ModeClauseEntryKinds::Directories, &text[1..]),
        b'F' => (ModeClauseEntryKinds::Others, &text[1..]),
        _ => (ModeClauseEntryKinds::All, text),
    };
    let change = if text.starts_with(|first: char| first.is_ascii_digit()) {
        let is_octal = text.len() <= 5 && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let bits = u32::from_str_radix(text, 8).ok().filter(|&bits| is_octal && bits <= ALL_BITS)?;
        ModeClauseChange::Exactly(bits)
    } else {
        symbolic_of(text)?
    };
    Some(ModeClause { entries, change })
}

fn symbolic_of(text: &str) -> Option<ModeClauseChange> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let mut classes = 0;
    for letter in who.chars() {
        classes |= match letter {
            'u' => 0o100,
            'g' => 0o010,
            'o' => 0o001,
            'a' => 0o111,
            _ => return None,
        };
    }
    let operator = match rest.as_bytes()[0] {
        b'+' => ModeOperator::Add,
        b'-' => ModeOperator::Remove,
        _ => ModeOperator::Assign,
    };
    let (mut bits, mut executes_too, mut special) = (0, false, 0);
    for letter in rest[1..].chars() {
        match letter {
            'r' => bits |= 4,
            'w' => bits |= 2,
            'x' => bits |= 1,
            'X' => executes_too = true,
            // Without a class, the bits of the owner and the group.
            's' => special |= special_of(if classes == 0 { 0o110 } else { classes & 0o110 }),
            't' => special |= 0o1000,
            _ => return None,
        }
    }
    Some(ModeClauseChange::Symbolic { classes, operator, bits, executes_too, special })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, mode: u32, is_directory: bool) -> u32 {
        ModeChange::parse(text).unwrap().apply(mode, is_directory, 0o022)
    }

    #[test]
    fn clauses_change_modes_as_chmod_does() {
        for (text, mode, file, directory) in [
            ("go-w", 0o666, 0o644, 0o644),
            ("u=rwX,go=rX", 0o640, 0o644, 0o755),
            ("u=rwX,go=rX", 0o710, 0o755, 0o755),
            ("D2775,F664", 0o700, 0o664, 0o2775),
            ("644", 0o4755, 0o644, 0o644),
            ("0644", 0o4755, 0o644, 0o644),
            // The umask applies if no class is named.
            ("+w", 0o444, 0o644, 0o644),
            ("a+w", 0o444, 0o666, 0o666),
            ("=rw", 0o7777, 0o644, 0o644),
            ("o=", 0o757, 0o750, 0o750),
            ("u+s,g+s,+t", 0o755, 0o7755, 0o7755),
            ("ug-s", 0o6755, 0o755, 0o755),
            ("Dg+s", 0o755, 0o755, 0o2755),
            ("u=rw", 0o4755, 0o655, 0o655),
            ("Fa-x,o-r", 0o755, 0o640, 0o751),
            ("u=rw,g+x,u=rX", 0o644, 0o454, 0o554),
        ] {
            assert_eq!((change(text, mode, false), change(text, mode, true)), (file, directory), "{text}");
        }
        assert_eq!(ModeChange::default().apply(0o4751, false, 0o077), 0o4751);
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "u", "w+u", "u+q", "888", "77777", "123456", "u+r,", "DF644", "D", "0o644", "u+r x"]
        {
            assert!(matches!(ModeChange::parse(text), Err(BadModeChange::Clause(_))), "{text}");
        }
        assert_eq!(ModeChange::parse(&"u+r,".repeat(2_000)), Err(BadModeChange::TooLong));
    }
}
