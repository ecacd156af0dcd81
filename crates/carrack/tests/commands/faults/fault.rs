//! What can happen to those who copy.

use super::chance::Chance;
use super::plan::Way;

/// A process that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Caller,
    /// `carrack session`, or the daemon's process for this session.
    Far,
    /// The daemon's parent.
    Daemon,
    /// The caller's ssh.
    Ssh,
}

/// Which connections a fault of the network meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Control,
    /// One data connection.
    Data,
    All,
}

/// What somebody does to a source file while it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Other bytes in the middle.
    Patch,
    Append,
    Truncate,
    Delete,
    /// Another inode with another content, of the same size and modification time.
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill(Part),
    /// SIGSTOP, and SIGCONT after so many milliseconds.
    Stop(Part, u64),
    /// Both peers get a reset.
    Reset(Reach),
    /// Both peers see the end of the stream.
    Close(Reach),
    /// What goes in one direction (towards the end that listens, or back) is never seen again, and nobody is told.
    HalfOpen(Reach, Towards),
    /// The same in both directions.
    Silence(Reach),
    /// Nothing passes for so many milliseconds, on no connection, new ones neither; then everything goes on.
    Outage(u64),
    /// Some kilobytes a second for so many milliseconds.
    Crawl(u64),
    /// Every 250 ms a random connection breaks.
    Flaky,
    Source(Edit),
    /// The sink's file system is too small, until somebody enlarges it.
    Full,
    /// One end is on storage that fails.
    Storage(Ill),
    /// The caller's CLOCK_REALTIME (and, over ssh, the far end's) jumps by so many seconds.
    Clock(i64),
}

/// What ails a storage that can be told so: the source's, if it is about reading, else the sink's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// EIO for so many reads.
    Read(u64),
    /// This error for so many writes.
    Write(&'static str, u64),
    /// EIO for one fsync.
    Sync,
    /// EIO for so many renames, and as many links.
    Name(u64),
    /// A write takes so many milliseconds.
    Hang(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Listener,
    Dialer,
}

/// How often [`Fault::Flaky`] breaks a connection.
pub const FLAKY_EVERY_MS: u64 = 250;

/// The kinds of faults. The first of a run's comes from its seed in this order, so that as many runs in a row as there are
/// kinds have them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KillCaller,
    KillFar,
    KillDaemon,
    KillSsh,
    StopCaller,
    StopFar,
    Reset,
    Close,
    HalfOpen,
    Silence,
    Outage,
    Crawl,
    Flaky,
    Patch,
    Append,
    Truncate,
    Delete,
    Replace,
    Full,
    ReadError,
    WriteError,
    SyncError,
    NameError,
    HangingWrite,
    Clock,
}

impl Kind {
    pub const ALL: [Kind; 25] = [
        Kind::KillCaller,
        Kind::KillFar,
        Kind::KillDaemon,
        Kind::KillSsh,
        Kind::StopCaller,
        Kind::StopFar,
        Kind::Reset,
        Kind::Close,
        Kind::HalfOpen,
        Kind::Silence,
        Kind::Outage,
        Kind::Crawl,
        Kind::Flaky,
        Kind::Patch,
        Kind::Append,
        Kind::Truncate,
        Kind::Delete,
        Kind::Replace,
        Kind::Full,
        Kind::ReadError,
        Kind::WriteError,
        Kind::SyncError,
        Kind::NameError,
        Kind::HangingWrite,
        Kind::Clock,
    ];

    /// Whether this can happen on that way.
    pub fn can_meet(self, way: Way) -> bool {
        match self {
            Kind::KillDaemon => way.is_daemon(),
            Kind::KillSsh => way.is_ssh(),
            Kind::KillFar | Kind::StopFar | Kind::Reset | Kind::Close | Kind::HalfOpen => way.is_far(),
            Kind::Silence | Kind::Outage | Kind::Crawl | Kind::Flaky => way.is_far(),
            _ => true,
        }
    }

    /// Whether one end has to be on storage of its own.
    pub fn is_of_the_storage(self) -> bool {
        use Kind::{Full, HangingWrite, NameError, ReadError, SyncError, WriteError};
        matches!(self, Full | ReadError | WriteError | SyncError | NameError | HangingWrite)
    }

    /// One of them; `stall_s`: what pauses are longer than.
    pub fn fault(self, stall_s: u64, chance: &mut Chance) -> Fault {
        let reach = chance.one_of(&[Reach::Control, Reach::Data, Reach::All]);
        let pause_ms = chance.within(stall_s * 1_000 + 500..=stall_s * 1_000 + 1_500);
        match self {
            Kind::KillCaller => Fault::Kill(Part::Caller),
            Kind::KillFar => Fault::Kill(Part::Far),
            Kind::KillDaemon => Fault::Kill(Part::Daemon),
            Kind::KillSsh => Fault::Kill(Part::Ssh),
            Kind::StopCaller => Fault::Stop(Part::Caller, pause_ms),
            Kind::StopFar => Fault::Stop(Part::Far, pause_ms),
            Kind::Reset => Fault::Reset(reach),
            Kind::Close => Fault::Close(reach),
            Kind::HalfOpen => Fault::HalfOpen(reach, chance.one_of(&[Towards::Listener, Towards::Dialer])),
            Kind::Silence => Fault::Silence(reach),
            Kind::Outage => Fault::Outage(pause_ms),
            Kind::Crawl => Fault::Crawl(chance.within(500..=2_000)),
            Kind::Flaky => Fault::Flaky,
            Kind::Patch => Fault::Source(Edit::Patch),
            Kind::Append => Fault::Source(Edit::Append),
            Kind::Truncate => Fault::Source(Edit::Truncate),
            Kind::Delete => Fault::Source(Edit::Delete),
            Kind::Replace => Fault::Source(Edit::Replace),
            Kind::Full => Fault::Full,
            Kind::ReadError => Fault::Storage(Ill::Read(chance.one_of(&[1, 3, 20]))),
            Kind::WriteError => {
                let error = chance.one_of(&["EIO", "EDQUOT", "ENOSPC"]);
                Fault::Storage(Ill::Write(error, chance.one_of(&[1, 3, 1_000])))
            }
            Kind::SyncError => Fault::Storage(Ill::Sync),
            Kind::NameError => Fault::Storage(Ill::Name(chance.one_of(&[1, 3, 20]))),
            Kind::HangingWrite => Fault::Storage(Ill::Hang(pause_ms)),
            Kind::Clock => Fault::Clock(chance.one_of(&[-86_400, -3_600, -1, 3_600, 172_800])),
        }
    }
}

impl Fault {
    /// Whether a command that may try again survives this, once its session stands.
    pub fn is_survived(self) -> bool {
        match self {
            Fault::Reset(_) | Fault::Close(_) | Fault::HalfOpen(..) | Fault::Silence(_) => true,
            Fault::Outage(_) | Fault::Crawl(_) | Fault::Stop(..) => true,
            Fault::Kill(part) => part != Part::Caller,
            _ => false,
        }
    }

    /// Whether somebody may wait for ever for what never comes, where nothing limits how long.
    pub fn may_stall(self) -> bool {
        matches!(self, Fault::HalfOpen(..) | Fault::Silence(_))
    }
}
