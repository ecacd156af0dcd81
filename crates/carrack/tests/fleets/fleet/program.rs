//! A program that runs until it is dropped, and its output.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::common::process::{wait_at_most, wait_for};

/// Lines of a log that are shown when a test fails.
const SHOWN: usize = 25;

/// A program, which is killed on drop.
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It fails only for a program that has ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
        if std::thread::panicking() {
            let said = self.said();
            let from = said.lines().count().saturating_sub(SHOWN);
            eprintln!("-- {}", self.name);
            said.lines().skip(from).for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Program {
    /// Starts a program; its output goes to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> Program {
        let out = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        Program { name: name.to_owned(), child: command.spawn().unwrap(), log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output has these words.
    #[track_caller]
    pub fn wait_for_words(&mut self, words: &str) {
        wait_for(&format!("{} says {words:?}", self.name), || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} has ended: {}", self.name, self.said());
            self.said().contains(words).then_some(())
        });
    }

    /// Kills the program as `kill -9` does.
    pub fn kill(&mut self) {
        assert!(
            self.child.try_wait().unwrap().is_none(),
            "{} has ended by itself: {}",
            self.name,
            self.said()
        );
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; returns the status.
    #[track_caller]
    pub fn end(&mut self, patience: Duration) -> ExitStatus {
        wait_at_most(patience, &format!("the end of {}", self.name), || self.child.try_wait().unwrap())
    }
}
