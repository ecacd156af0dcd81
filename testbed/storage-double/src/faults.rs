//! Errors, delays, hangs and damage by rule. Called on all threads; an operation that is delayed or hangs
//! holds no lock.
//!
//! A rule is `ACTION:OPERATION`, and `:KEY=VALUE` as often as needed:
//!
//! | part | values |
//! | --- | --- |
//! | ACTION | an error, `delay=MS`, `hang` (until released), `flip` (writes only: a bit of the stored data) |
//! | OPERATION | see below, or `any` |
//! | `nth=N` | the first match that counts (1) |
//! | `count=N` | the number of matches from there on, or `all` (1) |
//! | `every=N` | only each N-th match (1) |
//! | `after=BYTES` | only after this number of bytes was written to matching paths |
//! | `path=TEXT` | only paths that contain it |
//! | `chance=N` | only one in N, by `seed=S` (0) |
//!
//! Errors are `ENOSPC`, `EDQUOT`, `EIO`, `EROFS`, `EACCES`, `ENOMEM` and `ESHUTDOWN`. Operations are `read`,
//! `write`, `sync` (of a file), `syncdir`, `create`, `mkdir`, `symlink`, `link`, `rename`, `unlink`, `rmdir`,
//! `open`, `setattr`, `resize`, `flush` (each close), and `lookup` and `list` (of a directory), which `any`
//! leaves out.

use std::fmt;
use std::str::FromStr;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::power_cut::mix;

/// A request to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Data is read.
    Read,
    /// Data is written.
    Write,
    /// `fsync` or `fdatasync` of a file.
    Sync,
    /// `fsync` or `fdatasync` of a directory.
    SyncDirectory,
    /// A file is made.
    Create,
    /// A directory is made.
    MakeDirectory,
    /// A symbolic link is made.
    MakeLink,
    /// Another name is given.
    Link,
    /// A name is changed.
    Rename,
    /// A name is removed.
    Unlink,
    /// A directory is removed.
    RemoveDirectory,
    /// A file is opened.
    Open,
    /// Mode, owner or times are set.
    SetAttributes,
    /// The size is set.
    Resize,
    /// A descriptor is closed.
    Flush,
    /// A name is looked up.
    Lookup,
    /// The names of a directory are read.
    List,
}

const OPERATIONS: [(&str, Operation); 17] = [
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("sync", Operation::Sync),
    ("syncdir", Operation::SyncDirectory),
    ("create", Operation::Create),
    ("mkdir", Operation::MakeDirectory),
    ("symlink", Operation::MakeLink),
    ("link", Operation::Link),
    ("rename", Operation::Rename),
    ("unlink", Operation::Unlink),
    ("rmdir", Operation::RemoveDirectory),
    ("open", Operation::Open),
    ("setattr", Operation::SetAttributes),
    ("resize", Operation::Resize),
    ("flush", Operation::Flush),
    ("lookup", Operation::Lookup),
    ("list", Operation::List),
];

const ERRORS: [(&str, Errno); 7] = [
    ("ENOSPC", Errno::NOSPC),
    ("EDQUOT", Errno::DQUOT),
    ("EIO", Errno::IO),
    ("EROFS", Errno::ROFS),
    ("EACCES", Errno::ACCESS),
    ("ENOMEM", Errno::NOMEM),
    ("ESHUTDOWN", Errno::SHUTDOWN),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Error(Errno),
    Delay(Duration),
    Hang,
    Flip,
}

/// A fault, and the operations that it hits.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule as it was given.
    words: String,
    action: Action,
    /// `None` for all.
    operation: Option<Operation>,
    nth: u64,
    /// `None` for all.
    count: Option<u64>,
    every: u64,
    after_bytes: u64,
    path: String,
    chance: u64,
    seed: u64,
}

/// A text that is no rule.
#[derive(Debug, thiserror::Error)]
#[error("no rule: {0}")]
pub struct RuleError(String);

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(words: &str) -> Result<Rule, RuleError> {
        let wrong = |why: &str| RuleError(format!("{words}: {why}"));
        let mut parts = words.split(':');
        let action = parts.next().and_then(action).ok_or_else(|| wrong("unknown action"))?;
        let operation = match parts.next() {
            Some("any") => None,
            Some(name) => Some(named(&OPERATIONS, name).ok_or_else(|| wrong("unknown operation"))?),
            None => return Err(wrong("it is ACTION:OPERATION[:KEY=VALUE]...")),
        };
        if action == Action::Flip && operation != Some(Operation::Write) {
            return Err(wrong("bits are flipped in writes"));
        }
        let mut rule = Rule { words: words.into(), action, operation, ..Rule::plain() };
        for part in parts {
            rule.set(part).ok_or_else(|| wrong(part))?;
        }
        Ok(rule)
    }
}

fn action(words: &str) -> Option<Action> {
    match words.split_once('=') {
        Some(("delay", ms)) => ms.parse().ok().map(|ms| Action::Delay(Duration::from_millis(ms))),
        Some(_) => None,
        None if words == "hang" => Some(Action::Hang),
        None if words == "flip" => Some(Action::Flip),
        None => named(&ERRORS, words).map(Action::Error),
    }
}

impl Rule {
    fn plain() -> Rule {
        Rule {
            words: String::new(),
            action: Action::Hang,
            operation: None,
            nth: 1,
            count: Some(1),
            every: 1,
            after_bytes: 0,
            path: String::new(),
            chance: 1,
            seed: 0,
        }
    }

    fn set(&mut self, part: &str) -> Option<()> {
        let (key, value) = part.split_once('=')?;
        let number = || value.parse::<u64>().ok();
        match key {
            "nth" => self.nth = number().filter(|&nth| nth > 0)?,
            "count" if value == "all" => self.count = None,
            "count" => self.count = Some(number()?),
            "every" => self.every = number().filter(|&every| every > 0)?,
            "after" => self.after_bytes = number()?,
            "path" => self.path = value.into(),
            "chance" => self.chance = number().filter(|&chance| chance > 0)?,
            "seed" => self.seed = number()?,
            _ => return None,
        }
        Some(())
    }

    /// Returns true if the rule hits the match of this number, the first being 1.
    fn means(&self, number: u64) -> bool {
        let Some(since) = number.checked_sub(self.nth) else { return false };
        since.is_multiple_of(self.every)
            && self.count.is_none_or(|count| since / self.every < count)
            && mix(mix(self.seed) ^ number).is_multiple_of(self.chance)
    }
}

/// A rule, and its counters.
#[derive(Debug)]
struct Active {
    rule: Rule,
    matches: u64,
    hits: u64,
    written_bytes: u64,
}

impl fmt::Display for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} matches={} hits={}", self.rule.words, self.matches, self.hits)
    }
}

impl Active {
    /// Counts an operation; returns the action if the rule hits it.
    fn meet(&mut self, operation: Operation, path: &str, bytes: u64) -> Option<Action> {
        if !path.contains(&self.rule.path) {
            return None;
        }
        let before = self.written_bytes;
        if operation == Operation::Write {
            self.written_bytes += bytes;
        }
        let is_meant = match self.rule.operation {
            Some(meant) => meant == operation,
            None => !matches!(operation, Operation::Lookup | Operation::List),
        };
        if !is_meant || before + bytes <= self.rule.after_bytes && self.rule.after_bytes > 0 {
            return None;
        }
        self.matches += 1;
        let hits = self.rule.means(self.matches);
        self.hits += u64::from(hits);
        hits.then_some(self.rule.action)
    }
}

/// The instructions for an operation that may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// A number that picks the bit to flip; `None` for none.
    pub flip: Option<u64>,
}

/// All active rules.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Active>,
    /// Number of releases: an operation that began to hang before one continues.
    releases: u64,
    hanging: u64,
    /// Positions of flipped bits.
    flips: Vec<String>,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.state().rules.push(Active { rule, matches: 0, hits: 0, written_bytes: 0 });
    }

    /// Removes all rules; hanging operations continue.
    pub fn clear(&self) {
        self.state().rules.clear();
        self.release();
    }

    /// Lets hanging operations continue.
    pub fn release(&self) {
        self.state().releases += 1;
        self.released.notify_all();
    }

    /// Applies the rules to an operation, which may wait here, and fail.
    pub fn meet(&self, operation: Operation, path: &str, bytes: u64) -> Result<Fate, Errno> {
        let mut state = self.state();
        let actions: Vec<Action> =
            state.rules.iter_mut().filter_map(|rule| rule.meet(operation, path, bytes)).collect();
        let hits: u64 = state.rules.iter().map(|rule| rule.hits).sum();
        drop(state);
        let mut fate = Fate::default();
        for action in actions {
            match action {
                Action::Error(errno) => return Err(errno),
                Action::Delay(time) => thread::sleep(time),
                Action::Hang => self.hang(),
                Action::Flip => fate.flip = Some(mix(hits)),
            }
        }
        Ok(fate)
    }

    /// Records a flipped bit.
    pub fn flipped(&self, path: &str, offset: u64, bit: u8) {
        self.state().flips.push(format!("flipped {offset} {bit} {path}"));
    }

    /// Returns lines: the rules with their matches and hits, the number of hanging operations, the flipped
    /// bits.
    pub fn report(&self) -> String {
        let state = self.state();
        let rules = state.rules.iter().map(|rule| format!("{rule}\n"));
        let hanging = std::iter::once(format!("hanging {}\n", state.hanging));
        let flips = state.flips.iter().map(|flip| format!("{flip}\n"));
        rules.chain(hanging).chain(flips).collect()
    }

    fn hang(&self) {
        let mut state = self.state();
        let releases = state.releases;
        state.hanging += 1;
        let hanging = self.released.wait_while(state, |state| state.releases == releases);
        hanging.expect("never poisoned: nothing panics").hanging -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("never poisoned: nothing panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of those of twenty writes of 10 bytes that a rule makes fail.
    fn failing(rule: &str) -> Vec<u64> {
        let faults = Faults::default();
        faults.add(rule.parse().unwrap());
        (1..=20).filter(|_| faults.meet(Operation::Write, "a/b", 10).is_err()).collect()
    }

    #[test]
    fn rules_mean_what_they_say() {
        assert_eq!(failing("EIO:write"), [1]);
        assert_eq!(failing("EIO:write:nth=3:count=2"), [3, 4]);
        assert_eq!(failing("EIO:any:nth=18:count=all"), [18, 19, 20]);
        assert_eq!(failing("EIO:write:nth=2:every=8:count=2"), [2, 10]);
        assert_eq!(failing("ENOSPC:write:after=175:count=all"), [18, 19, 20]);
        assert_eq!(failing("EIO:write:path=/b:nth=20"), [20]);
        assert_eq!(failing("EIO:write:path=c"), [0; 0]);
        assert_eq!(failing("EIO:read"), [0; 0]);
        assert_eq!(failing("EIO:lookup"), [0; 0]);
        let by_chance = failing("EIO:write:count=all:chance=4:seed=7");
        assert!((1..10).contains(&by_chance.len()), "{by_chance:?}");
        assert_eq!(by_chance, failing("EIO:write:count=all:chance=4:seed=7"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for words in ["", "EIO", "EFOO:write", "EIO:wrote", "EIO:write:nth=0", "flip:read", "EIO:write:nth"] {
            assert!(words.parse::<Rule>().is_err(), "{words}");
        }
    }

    #[test]
    fn who_hangs_goes_on_when_released() {
        let faults = Faults::default();
        faults.add("hang:sync".parse().unwrap());
        thread::scope(|scope| {
            let hanging = scope.spawn(|| faults.meet(Operation::Sync, "f", 0));
            while !faults.report().contains("hanging 1") {
                thread::yield_now();
            }
            faults.release();
            assert_eq!(hanging.join().unwrap(), Ok(Fate::default()));
        });
        assert!(faults.report().contains("hanging 0"));
    }
}
