//! The sessions that wrote to a journal, one after the other.

use std::fs;
use std::io;
use std::sync::OnceLock;

use carrack_model::TransferExecutionId;
use rustix::process::getpid;
use rustix::system::uname;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest host name that is stored (`HOST_NAME_MAX` of Linux is 64).
const HOST_BYTES_MAX: usize = 255;

const FLAG_SOFT: u8 = 1;

/// A process that writes or wrote to a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalWriterIdentity {
    /// The command's run: a process with the same token may take over.
    pub run: TransferExecutionId,
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// The host, which the process ID belongs to.
    pub host: String,
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks since the boot (field 22 of `/proc/PID/stat`), as process IDs are reused.
    pub pid_start: u64,
    /// True if the records count in the same boot only: data were not synced before their records.
    pub soft: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJournalSessionRecord {
    run: [u8; 16],
    boot: [u8; 16],
    pid_start: U64,
    pid: U32,
    flags: u8,
    reserved: [u8; 3],
}

impl JournalWriterIdentity {
    /// Describes this process. Without `/proc` neither its life nor a reboot can be detected: then the run's
    /// token stands for the boot, so that soft records count in this run only, and the start time is 0.
    ///
    /// # Errors
    /// A read error of `/proc`.
    pub fn of_this_process(run: TransferExecutionId, soft: bool) -> io::Result<JournalWriterIdentity> {
        let pid = getpid().as_raw_nonzero().get().unsigned_abs();
        let host = uname().nodename().to_string_lossy().into_owned();
        let boot = boot_id().or_else(|error| without_proc(error, run.0))?;
        let pid_start = process_start_time(pid).or_else(|error| without_proc(error, 0))?;
        Ok(JournalWriterIdentity { run, boot, host, pid, pid_start, soft })
    }

    /// Returns true if the process lives; `None` for a process of another host.
    pub fn is_alive(&self) -> Option<bool> {
        if self.host != uname().nodename().to_string_lossy() {
            return None;
        }
        let is_this_boot = boot_id().is_ok_and(|boot| boot == self.boot);
        Some(is_this_boot && process_start_time(self.pid).is_ok_and(|start| start == self.pid_start))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let raw = RawJournalSessionRecord {
            run: self.run.0,
            boot: self.boot,
            pid_start: U64::new(self.pid_start),
            pid: U32::new(self.pid),
            flags: if self.soft { FLAG_SOFT } else { 0 },
            reserved: [0; 3],
        };
        out.extend_from_slice(raw.as_bytes());
        let host = self.host.as_bytes();
        out.extend_from_slice(&host[..host.len().min(HOST_BYTES_MAX)]);
    }

    pub(super) fn decode(body: &[u8]) -> Option<JournalWriterIdentity> {
        let (raw, host) = RawJournalSessionRecord::ref_from_prefix(body).ok()?;
        if host.len() > HOST_BYTES_MAX {
            return None;
        }
        Some(JournalWriterIdentity {
            run: TransferExecutionId(raw.run),
            boot: raw.boot,
            host: String::from_utf8_lossy(host).into_owned(),
            pid: raw.pid.get(),
            pid_start: raw.pid_start.get(),
            soft: raw.flags & FLAG_SOFT != 0,
        })
    }
}

/// The kernel's boot ID, a random value of each boot. Read once.
///
/// # Errors
/// A read error of `/proc/sys/kernel/random/boot_id`.
pub fn boot_id() -> io::Result<[u8; 16]> {
    static KNOWN: OnceLock<[u8; 16]> = OnceLock::new();
    match KNOWN.get() {
        Some(id) => Ok(*id),
        None => read_boot_id().map(|id| *KNOWN.get_or_init(|| id)),
    }
}

fn read_boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits = text.trim().replace('-', "");
    let number = u128::from_str_radix(&digits, 16).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(number.to_be_bytes())
}

/// Returns `instead` if the file does not exist.
fn without_proc<T>(error: io::Error, instead: T) -> io::Result<T> {
    if error.kind() == io::ErrorKind::NotFound { Ok(instead) } else { Err(error) }
}

/// Reads field 22 of `/proc/PID/stat`, counted from behind the name, which may hold any character.
fn process_start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let behind_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start = behind_name.split_whitespace().nth(19).and_then(|field| field.parse().ok());
    start.ok_or_else(|| io::Error::other("/proc/PID/stat is not as it should be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_another_start_is_another_process() {
        let here = JournalWriterIdentity::of_this_process(TransferExecutionId([1; 16]), true).unwrap();
        assert_eq!(here.pid, std::process::id());
        assert_eq!(here.is_alive(), Some(true));
        assert_eq!(
            JournalWriterIdentity { pid_start: here.pid_start + 1, ..here.clone() }.is_alive(),
            Some(false)
        );
        assert_eq!(JournalWriterIdentity { boot: [0; 16], ..here.clone() }.is_alive(), Some(false));
        assert_eq!(
            JournalWriterIdentity { host: "another.host.example".into(), ..here.clone() }.is_alive(),
            None
        );
        let mut bytes = Vec::new();
        here.encode(&mut bytes);
        assert_eq!(JournalWriterIdentity::decode(&bytes), Some(here));
        assert_eq!(JournalWriterIdentity::decode(&bytes[..40]), None);
    }
}
