//! The faults that a seed chose, and the calls at which they happen.

use crate::chance::SeedChance;
use crate::scheduler::EndProcess;

/// A kind of call, as faults choose among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallKind {
    Read,
    Write,
    Sync,
    Create,
    Open,
    MakeDirectory,
    Rename,
    Link,
    Unlink,
    Attributes,
    Resize,
    List,
    Look,
    Send,
    Receive,
    Poll,
    Connect,
    Futex,
    Yield,
    Sleep,
    Spawn,
    Join,
    Close,
    Other,
}

impl CallKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::Sync => "sync",
            CallKind::Create => "create",
            CallKind::Open => "open",
            CallKind::MakeDirectory => "mkdir",
            CallKind::Rename => "rename",
            CallKind::Link => "link",
            CallKind::Unlink => "unlink",
            CallKind::Attributes => "attributes",
            CallKind::Resize => "resize",
            CallKind::List => "list",
            CallKind::Look => "look",
            CallKind::Send => "send",
            CallKind::Receive => "receive",
            CallKind::Poll => "poll",
            CallKind::Connect => "connect",
            CallKind::Futex => "futex",
            CallKind::Yield => "yield",
            CallKind::Sleep => "sleep",
            CallKind::Spawn => "spawn",
            CallKind::Join => "join",
            CallKind::Close => "close",
            CallKind::Other => "other",
        }
    }

    /// A crash may happen at it.
    pub fn may_crash(self) -> bool {
        !matches!(self, CallKind::Yield | CallKind::Sleep | CallKind::Other | CallKind::Futex)
    }
}

/// An error that a call on a volume gives.
#[derive(Clone, Debug)]
pub struct CallError {
    /// The volume.
    pub volume: usize,
    /// The call.
    pub call: CallKind,
    /// The calls that succeed before.
    pub after: u64,
    /// The calls that fail then.
    pub count: u64,
    /// The error.
    pub errno: i32,
}

/// The death of a process.
#[derive(Clone, Debug)]
pub struct ProcessCrash {
    /// The process.
    pub process: EndProcess,
    /// Its calls before.
    pub after: u64,
    /// The power of its machine fails too.
    pub cuts_power: bool,
}

/// The loss of a connection.
#[derive(Clone, Debug)]
pub struct LostConnection {
    /// Sends and receives before.
    pub after: u64,
    /// Nothing tells the ends of it.
    pub is_silent: bool,
    /// All connections, with the control channel.
    pub is_all: bool,
}

/// All faults of a session.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// Errors.
    pub errors: Vec<CallError>,
    /// Short reads and writes of files, one in so many; 0 for none.
    pub short_one_in: u64,
    /// Short sends and receives, one in so many; 0 for none.
    pub short_stream_one_in: u64,
    /// Changed bytes of objects under way, one of so many sends; 0 for none.
    pub flip_one_in: u64,
    /// Slow calls on a volume: the volume, one in so many, and the longest time.
    pub slow: Option<(usize, u64, u64)>,
    /// The crash.
    pub crash: Option<ProcessCrash>,
    /// The loss.
    pub lost: Option<LostConnection>,
    /// The processes that were killed.
    pub killed: Vec<EndProcess>,
    /// The end of the time that a session may take.
    pub time_limit: u64,
}

impl Default for FaultPlan {
    fn default() -> Self {
        FaultPlan {
            errors: Vec::new(),
            short_one_in: 0,
            short_stream_one_in: 0,
            flip_one_in: 0,
            slow: None,
            crash: None,
            lost: None,
            killed: Vec::new(),
            time_limit: u64::MAX,
        }
    }
}

impl FaultPlan {
    /// The error of this call, if it fails.
    pub fn error_of(&mut self, volume: usize, call: CallKind) -> Option<i32> {
        let mut found = None;
        for error in self.errors.iter_mut().filter(|error| error.volume == volume && error.call == call) {
            if error.after > 0 {
                error.after -= 1;
            } else if error.count > 0 {
                error.count -= 1;
                found = Some(error.errno);
            }
        }
        found
    }

    /// The bytes that a call on a file moves at most.
    pub fn shortened(&self, chance: &mut SeedChance, count: usize) -> usize {
        shortened(chance, self.short_one_in, count)
    }

    /// The bytes that a call on a stream moves at most.
    pub fn shortened_stream(&self, chance: &mut SeedChance, count: usize) -> usize {
        shortened(chance, self.short_stream_one_in, count)
    }
}

fn shortened(chance: &mut SeedChance, one_in: u64, count: usize) -> usize {
    if count > 1 && chance.one_in(one_in) { 1 + chance.below(count as u64 - 1) as usize } else { count }
}
