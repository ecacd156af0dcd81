//! The measurements: every combination, its name, and the amount that it moves.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::options::Sizes;

/// One measurement, without its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// On one thread, without a network.
    Local(Local),
    /// From one process to another over loopback TCP.
    Transfer(Transfer),
    /// Many small files.
    Small(Small),
}

/// The work of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Local {
    /// Copies one block onto another.
    CopyHot,
    /// Copies block after block through a span that no cache holds.
    CopyCold,
    /// Hashes one block, with the engine's XXH3-128.
    HashHot,
    /// Hashes blocks in turn that the L2 cache can't hold together.
    HashCycling,
    /// Reads the large files into one block.
    ReadFiles,
    /// Writes one block to new large files.
    WriteFiles,
}

/// A path from a sender to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The sender's work for each block.
    pub send: SendWay,
    /// The receiver's work for each block.
    pub receive: ReceiveWay,
    /// TCP connections, and threads at each end.
    pub streams: u64,
    /// Congestion control of all connections.
    pub congestion: Congestion,
}

/// A sender's work for each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendWay {
    /// Sends the same memory again and again.
    Buffer,
    /// Reads and sends.
    Read,
    /// Reads, hashes and sends.
    ReadHash,
    /// Lets the kernel send from the page cache.
    Sendfile,
    /// Reads and hashes, then lets the kernel send from the page cache.
    HashSendfile,
}

/// A receiver's work for each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveWay {
    /// Receives into the same memory.
    Buffer,
    /// Receives and writes.
    Write,
    /// Receives, hashes and writes.
    HashWrite,
    /// Lets the kernel move from the socket to the file, through a pipe.
    Splice,
}

/// A congestion control of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// The setting of carrack on a near path.
    Cubic,
    /// The default of many systems.
    Bbr,
}

/// An operation on many small files, and its number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Small {
    /// The operation on each file.
    pub operation: Operation,
    /// Threads of one process, which take directory after directory.
    pub threads: u64,
}

/// An operation on each small file. The directory is opened once for all files in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Creates it under its name.
    Create,
    /// Creates it nameless, and names it through `/proc/self/fd`.
    LinkProc,
    /// Creates it nameless, and names it by its descriptor.
    LinkDescriptor,
    /// Opens and reads it.
    Read,
    /// Reads its attributes.
    Stat,
}

/// A table of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// [`Kind::Local`].
    OneCore,
    /// A transfer that touches no file.
    Network,
    /// A transfer of files.
    FileToFile,
    /// [`Kind::Small`].
    SmallFiles,
}

impl Group {
    /// All groups, in the order of the report.
    pub const ALL: [Group; 4] = [Group::OneCore, Group::Network, Group::FileToFile, Group::SmallFiles];

    /// Returns the table's heading.
    pub fn heading(self) -> &'static str {
        match self {
            Group::OneCore => "One core",
            Group::Network => "Loopback TCP, memory to memory",
            Group::FileToFile => "Loopback TCP, file to new file",
            Group::SmallFiles => "Small files",
        }
    }
}

impl Kind {
    /// Returns all measurements, in the order of the report.
    pub fn all() -> Vec<Kind> {
        let local = [
            Local::CopyHot,
            Local::CopyCold,
            Local::HashHot,
            Local::HashCycling,
            Local::ReadFiles,
            Local::WriteFiles,
        ];
        let mut kinds: Vec<Kind> = local.map(Kind::Local).to_vec();
        kinds.extend(memory_transfers().map(Kind::Transfer));
        kinds.extend(file_transfers().map(Kind::Transfer));
        let operations = [
            Operation::Create,
            Operation::LinkProc,
            Operation::LinkDescriptor,
            Operation::Read,
            Operation::Stat,
        ];
        let small =
            operations.into_iter().flat_map(|operation| [1, 2].map(|n| Small { operation, threads: n }));
        kinds.extend(small.map(Kind::Small));
        kinds
    }

    /// Returns its table.
    pub fn group(self) -> Group {
        match self {
            Kind::Local(_) => Group::OneCore,
            Kind::Transfer(transfer) if transfer.receive == ReceiveWay::Buffer => Group::Network,
            Kind::Transfer(_) => Group::FileToFile,
            Kind::Small(_) => Group::SmallFiles,
        }
    }

    /// Returns the bytes that it moves; operations that only read attributes move none.
    pub fn bytes(self, sizes: &Sizes) -> u64 {
        match self {
            Kind::Local(_) | Kind::Transfer(_) => sizes.volume_bytes(),
            Kind::Small(Small { operation: Operation::Stat, .. }) => 0,
            Kind::Small(_) => sizes.small_count * sizes.small_bytes,
        }
    }

    /// Returns the number of files that it touches.
    pub fn files(self, sizes: &Sizes) -> u64 {
        match self {
            Kind::Local(Local::ReadFiles | Local::WriteFiles) => sizes.file_count,
            Kind::Local(_) => 0,
            Kind::Transfer(_) if self.group() == Group::Network => 0,
            Kind::Transfer(_) => sizes.file_count,
            Kind::Small(_) => sizes.small_count,
        }
    }

    /// Returns true if it makes files, which take memory on tmpfs.
    pub fn makes_files(self) -> bool {
        match self {
            Kind::Local(local) => local == Local::WriteFiles,
            Kind::Transfer(_) => self.group() == Group::FileToFile,
            Kind::Small(small) => !matches!(small.operation, Operation::Read | Operation::Stat),
        }
    }
}

fn memory_transfers() -> impl Iterator<Item = Transfer> {
    let (send, receive) = (SendWay::Buffer, ReceiveWay::Buffer);
    let of = move |congestion| [1, 2].map(|streams| Transfer { send, receive, streams, congestion });
    [Congestion::Bbr, Congestion::Cubic].into_iter().flat_map(of)
}

fn file_transfers() -> impl Iterator<Item = Transfer> {
    let ways = [
        (SendWay::Read, ReceiveWay::Write),
        (SendWay::ReadHash, ReceiveWay::HashWrite),
        (SendWay::Sendfile, ReceiveWay::Write),
        (SendWay::HashSendfile, ReceiveWay::HashWrite),
        (SendWay::Sendfile, ReceiveWay::Splice),
    ];
    let congestion = Congestion::Cubic;
    ways.into_iter().flat_map(move |(send, receive)| {
        [1, 2].map(|streams| Transfer { send, receive, streams, congestion })
    })
}

impl Congestion {
    /// Returns the kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Local(local) => f.write_str(local.words()),
            Kind::Transfer(Transfer { send, receive, streams, congestion }) => {
                let plural = if *streams == 1 { "" } else { "s" };
                let (send, receive, congestion) = (send.words(), receive.words(), congestion.name());
                write!(f, "{send} → {receive}, {streams} stream{plural}, {congestion}")
            }
            Kind::Small(Small { operation, threads }) => {
                let plural = if *threads == 1 { "" } else { "s" };
                write!(f, "{}, {threads} thread{plural}", operation.words())
            }
        }
    }
}

impl Local {
    fn words(self) -> &'static str {
        match self {
            Local::CopyHot => "memcpy, in cache",
            Local::CopyCold => "memcpy, out of cache",
            Local::HashHot => "XXH3-128, one buffer",
            Local::HashCycling => "XXH3-128, cycling over 32 buffers",
            Local::ReadFiles => "read tmpfs file -> buffer",
            Local::WriteFiles => "write buffer -> new tmpfs file",
        }
    }
}

impl SendWay {
    fn words(self) -> &'static str {
        match self {
            SendWay::Buffer => "send(buffer)",
            SendWay::Read => "read+send",
            SendWay::ReadHash => "read+hash+send",
            SendWay::Sendfile => "sendfile",
            SendWay::HashSendfile => "read+hash, sendfile",
        }
    }
}

impl ReceiveWay {
    fn words(self) -> &'static str {
        match self {
            ReceiveWay::Buffer => "recv(buffer)",
            ReceiveWay::Write => "recv+write",
            ReceiveWay::HashWrite => "recv+hash+write",
            ReceiveWay::Splice => "splice to file",
        }
    }
}

impl Operation {
    fn words(self) -> &'static str {
        match self {
            Operation::Create => "create+write+close",
            Operation::LinkProc => "O_TMPFILE+write+linkat(/proc/self/fd)+close",
            Operation::LinkDescriptor => "O_TMPFILE+write+linkat(AT_EMPTY_PATH)+close",
            Operation::Read => "open+read+close",
            Operation::Stat => "statx",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_survives_json() {
        let kinds = Kind::all();
        assert_eq!(kinds.len(), 6 + 4 + 10 + 10);
        assert_eq!(kinds.iter().map(Kind::to_string).collect::<HashSet<_>>().len(), kinds.len());
        for kind in kinds {
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<Kind>(&text).unwrap(), kind);
        }
    }

    #[test]
    fn the_groups_are_in_order() {
        let groups: Vec<Group> = Kind::all().into_iter().map(Kind::group).collect();
        let mut distinct = groups.clone();
        distinct.dedup();
        assert_eq!(distinct, Group::ALL);
    }
}
