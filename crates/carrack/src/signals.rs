//! Signals: the first asks the transfer to end cleanly, the second ends the process; SIGUSR1 asks for a line
//! about the status, SIGUSR2 for more or fewer messages.
//!
//! Owns one thread, which only waits for the former signals. A signal that was ignored when carrack started
//! (`nohup`, a background job of a script) stays ignored.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use carrack_engine::AbortHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::pipe;

use crate::exit::ExitStatus;
use crate::views::live;

/// A flag that the signal handler sets, before the thread that acts on the signal has its turn. Ctrl-C
/// reaches ssh too, and on a busy machine the connection's end is noticed before the reason for it.
#[derive(Clone, Debug, Default)]
pub struct SignalFlag(Arc<AtomicBool>);

impl SignalFlag {
    /// Returns true if a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Watches signals from now on. `cut` ends the connection to the far side before a second signal ends the
/// process.
pub fn watch_signals(abort: AbortHandle, cut: impl Fn() + Send + 'static) -> io::Result<SignalFlag> {
    let ignored = ignored_signals();
    let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !contains_signal(ignored, signal));
    let signalled = SignalFlag::default();
    for signal in watched.clone() {
        flag::register(signal, signalled.0.clone())?;
    }
    let mut signals = Signals::new(watched)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if abort.is_set() {
                cut();
                live::restore_terminal();
                std::process::exit(i32::from(ExitStatus::Interrupted.code()));
            }
            abort.interrupt();
        }
    })?;
    Ok(signalled)
}

/// A request by a signal for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRequest {
    /// SIGUSR1: show the status.
    Status,
    /// SIGUSR2: show more or fewer messages.
    ToggleVerbosity,
}

/// The signals that request output, as bytes in one pipe each.
pub struct OutputSignals {
    pipes: [(OutputRequest, UnixStream); 2],
    /// The other ends of pipes whose signals are ignored.
    _unused: Vec<UnixStream>,
}

impl OutputSignals {
    /// Watches the signals from now on.
    pub fn watch() -> io::Result<OutputSignals> {
        let (ignored, mut unused) = (ignored_signals(), Vec::new());
        let mut piped = |signal| {
            let (heard, said) = UnixStream::pair()?;
            heard.set_nonblocking(true)?;
            if contains_signal(ignored, signal) {
                unused.push(said);
            } else {
                pipe::register(signal, said)?;
            }
            Ok::<UnixStream, io::Error>(heard)
        };
        let pipes =
            [(OutputRequest::Status, piped(SIGUSR1)?), (OutputRequest::ToggleVerbosity, piped(SIGUSR2)?)];
        Ok(OutputSignals { pipes, _unused: unused })
    }

    /// Returns descriptors that are readable when a signal has come.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Returns the requests since the last call. The kernel may have merged several signals into one.
    pub fn take_requests(&mut self) -> Vec<OutputRequest> {
        let mut requests = Vec::new();
        for (request, pipe) in &mut self.pipes {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                requests.extend(std::iter::repeat_n(*request, count));
            }
        }
        requests
    }
}

/// Keeps SIGUSR1 and SIGUSR2, which schedulers of batch jobs send to whole jobs, from ending the process.
/// Child processes have the signals as they were.
pub fn survive_output_signals() {
    let ignored = ignored_signals();
    for signal in [SIGUSR1, SIGUSR2].into_iter().filter(|&signal| !contains_signal(ignored, signal)) {
        // Without a handler the signal ends the process, as it ends other programs.
        drop(flag::register(signal, Arc::default()));
    }
}

/// Makes a file beyond `ulimit -f` an error of that file (EFBIG), which does not end the process (SIGXFSZ).
/// Child processes have the signal as it was.
pub fn survive_file_size_limit() {
    // Without a handler the signal ends the process, as it ends other programs.
    drop(flag::register(SIGXFSZ, Arc::default()));
}

/// Returns the kernel's set of ignored signals; empty if it can't be read.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| parse_ignored(&status))
}

/// Parses the `SigIgn` line of proc_pid_status(5): a hexadecimal mask.
fn parse_ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn contains_signal(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_nohup_left() {
        let mask = parse_ignored("Name:\tx\nSigBlk:\t00\nSigIgn:\t0000000000001001\nSigCgt:\t04\n");
        assert!(
            contains_signal(mask, SIGHUP)
                && !contains_signal(mask, SIGINT)
                && !contains_signal(mask, SIGTERM)
        );
        assert_eq!(parse_ignored("nothing"), 0);
    }
}
