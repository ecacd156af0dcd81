//! `.control/` in the root: settings and counters of the running double. It is found by name only, so that
//! copies of the root leave it out.
//!
//! | file | read | written |
//! | --- | --- | --- |
//! | `delay` | `OST:MS` lines | the same, for any of the targets |
//! | `traffic` | `OST READ WRITTEN` lines, in bytes | any text: back to 0 |
//! | `requests` | `OST READS WRITES` lines | any text: back to 0 |
//!
//! The kernel cuts what a process reads or writes at once into requests of 1 MiB.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use fuser::INodeNo;
use rustix::io::Errno;

use crate::targets::{Target, Targets};

/// The directory's name.
pub const NAME: &str = ".control";
/// The directory's inode; no underlying file system has that many inodes.
pub const DIRECTORY: INodeNo = INodeNo(u64::MAX - 1);

/// A file of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Milliseconds slept before each read and write.
    Delay,
    /// Bytes read and written.
    Traffic,
    /// Numbers of reads and writes.
    Requests,
}

impl Control {
    /// All files.
    pub const ALL: [Control; 3] = [Control::Delay, Control::Traffic, Control::Requests];

    /// Returns the name in the directory.
    pub fn name(self) -> &'static str {
        match self {
            Control::Delay => "delay",
            Control::Traffic => "traffic",
            Control::Requests => "requests",
        }
    }

    /// Returns its inode number.
    pub fn number(self) -> INodeNo {
        INodeNo(u64::MAX - 2 - self as u64)
    }

    /// Returns the file with this inode number.
    pub fn by_number(number: INodeNo) -> Option<Control> {
        Control::ALL.into_iter().find(|control| control.number() == number)
    }

    /// Returns its present contents.
    pub fn read(self, targets: &Targets) -> String {
        let line = |(index, target): (usize, &Target)| match self {
            Control::Delay => format!("{index}:{}\n", target.delay_ms.load(Relaxed)),
            Control::Traffic => {
                format!(
                    "{index} {} {}\n",
                    target.bytes_read.load(Relaxed),
                    target.bytes_written.load(Relaxed)
                )
            }
            Control::Requests => {
                format!("{index} {} {}\n", target.reads.load(Relaxed), target.writes.load(Relaxed))
            }
        };
        targets.osts().iter().enumerate().map(line).collect()
    }

    /// Carries out the text written to it.
    pub fn write(self, targets: &Targets, data: &[u8]) -> Result<(), Errno> {
        match self {
            Control::Delay => {
                let text = str::from_utf8(data).map_err(|_| Errno::INVAL)?;
                text.split_whitespace().try_for_each(|words| set_delay(targets, words))
            }
            Control::Traffic => {
                reset(targets, |target| [&target.bytes_read, &target.bytes_written]);
                Ok(())
            }
            Control::Requests => {
                reset(targets, |target| [&target.reads, &target.writes]);
                Ok(())
            }
        }
    }
}

fn reset(targets: &Targets, counters: impl Fn(&Target) -> [&AtomicU64; 2]) {
    targets.osts().iter().flat_map(counters).for_each(|counter| counter.store(0, Relaxed));
}

/// Sets a delay from `OST:MS`, also for the command line.
pub fn set_delay(targets: &Targets, words: &str) -> Result<(), Errno> {
    let (target, delay_ms) = words.split_once(':').ok_or(Errno::INVAL)?;
    let target: usize = target.parse().map_err(|_| Errno::INVAL)?;
    let delay_ms = delay_ms.parse().map_err(|_| Errno::INVAL)?;
    targets.osts().get(target).ok_or(Errno::INVAL)?.delay_ms.store(delay_ms, Relaxed);
    Ok(())
}
