//! The faults that can hit a copy.

use super::chance::Chance;
use super::plan::Way;

/// A process of the copy.
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

/// The connections that a fault of the network hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Control,
    /// One data connection.
    Data,
    All,
}

/// A change of a source file while it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Other bytes in the middle.
    Patch,
    Append,
    Truncate,
    Delete,
    /// Another inode with other content, of the same size and modification time.
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill(Part),
    /// SIGSTOP, and SIGCONT after this number of milliseconds.
    Stop(Part, u64),
    /// Both peers get a reset.
    Reset(Reach),
    /// Both peers see the end of the stream.
    Close(Reach),
    /// Data in one direction (towards the listener, or back) is lost without a notice to either peer.
    HalfOpen(Reach, Towards),
    /// Data in both directions is lost.
    Silence(Reach),
    /// No data passes for this number of milliseconds, on old and new connections; then it flows again.
    Outage(u64),
    /// Some kilobytes per second pass for this number of milliseconds.
    Crawl(u64),
    /// Every 250 ms a random connection breaks.
    Flaky,
    Source(Edit),
    /// The sink's file system is too small, until it is enlarged.
    Full,
    /// One end is on storage with errors.
    Storage(Ill),
    /// The caller's CLOCK_REALTIME (and, over ssh, the far end's) jumps by this number of seconds.
    Clock(i64),
}

/// An error of a storage double: at the source for reads, else at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// EIO for this number of reads.
    Read(u64),
    /// This error for this number of writes.
    Write(&'static str, u64),
    /// EIO for one fsync.
    Sync,
    /// EIO for this number of renames, and as many links.
    Name(u64),
    /// A write takes this number of milliseconds.
    Hang(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Listener,
    Dialer,
}

/// Interval at which [`Fault::Flaky`] breaks a connection.
pub const FLAKY_EVERY_MS: u64 = 250;

/// The kinds of faults. The first kind of a run comes from its seed in this order, so that as many
/// consecutive runs as there are kinds cover all kinds.
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

    /// Returns true if this kind is possible in that way of copying.
    pub fn can_meet(self, way: Way) -> bool {
        match self {
            Kind::KillDaemon => way.is_daemon(),
            Kind::KillSsh => way.is_ssh(),
            Kind::KillFar | Kind::StopFar | Kind::Reset | Kind::Close | Kind::HalfOpen => way.is_far(),
            Kind::Silence | Kind::Outage | Kind::Crawl | Kind::Flaky => way.is_far(),
            _ => true,
        }
    }

    /// Returns true if an end must be on storage of its own.
    pub fn is_of_the_storage(self) -> bool {
        use Kind::{Full, HangingWrite, NameError, ReadError, SyncError, WriteError};
        matches!(self, Full | ReadError | WriteError | SyncError | NameError | HangingWrite)
    }

    /// Returns a fault of this kind; pauses are longer than `stall_s`.
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
    /// Returns true if a command with retries survives this, once its session is established.
    pub fn is_survived(self) -> bool {
        match self {
            Fault::Reset(_) | Fault::Close(_) | Fault::HalfOpen(..) | Fault::Silence(_) => true,
            Fault::Outage(_) | Fault::Crawl(_) | Fault::Stop(..) => true,
            Fault::Kill(part) => part != Part::Caller,
            _ => false,
        }
    }

    /// Returns true if an end without a time limit may wait for ever.
    pub fn may_stall(self) -> bool {
        matches!(self, Fault::HalfOpen(..) | Fault::Silence(_))
    }
}
