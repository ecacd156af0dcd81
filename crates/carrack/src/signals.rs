//! Signals: the first asks the transfer to end cleanly, the second ends the process.
//!
//! Owns one thread, which does nothing but wait for signals, and after the first one more, which waits for the
//! connection's last moment. A signal that was ignored when carrack started (`nohup`,
//! a background job of a script) stays ignored.

use std::io;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;
use carrack_engine::Abort;

/// How long after the first signal the two ends may still talk.
const PATIENCE: Duration = Duration::from_secs(3);

/// Watches from now on. `cut` ends the connection to the far side: some time after the first signal, in case an end
/// waits for the other in vain, and before a second signal ends the process.
pub fn watch(abort: Abort, cut: impl Fn() + Clone + Send + 'static) -> io::Result<()> {
    let ignored = ignored_signals();
    let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_in(ignored, signal));
    let mut signals = Signals::new(watched)?;
    let wait = move || {
        for _ in signals.forever() {
            if abort.is_set() {
                cut();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            abort.interrupt();
            let cut = cut.clone();
            // Without that thread a second signal still does it.
            let _ = spawn("patience", move || {
                thread::sleep(PATIENCE);
                cut();
            });
        }
    };
    spawn("signals", wait)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// The kernel's set of ignored signals, none if it can't be read.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| parse_ignored(&status))
}

/// The `SigIgn` line of proc_pid_status(5): a hexadecimal mask.
fn parse_ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_nohup_left() {
        let mask = parse_ignored("Name:\tx\nSigBlk:\t00\nSigIgn:\t0000000000001001\nSigCgt:\t04\n");
        assert!(is_in(mask, SIGHUP) && !is_in(mask, SIGINT) && !is_in(mask, SIGTERM));
        assert_eq!(parse_ignored("nothing"), 0);
    }
}
