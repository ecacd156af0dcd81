//! The thread of the feed: it measures periodically and reports loads to the grant server.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_plan::grants::TargetComputeLoad;

use super::load_monitor::LoadMonitor;
use super::settings::LoadMonitorSettings;
use super::transfer_rates::OwnRates;

/// The thread `carrack-health`. Once this is dropped, it reports no more and ends after its current step: 10
/// s for each query at most. The drop does not wait for it.
#[derive(Debug)]
pub struct LoadMonitorThread {
    /// Nothing is ever sent: the thread ends when the channel is closed.
    _alive: Sender<()>,
}

impl LoadMonitorThread {
    /// Starts to measure. `moved` returns the bytes that transfers have moved at each target since a fixed
    /// time. `tell` gets the load of each target, and `say` notices for people, such as invalid settings that
    /// prevent a measurement.
    ///
    /// # Errors
    /// The system's error if the thread can't be started.
    pub fn start(
        settings: LoadMonitorSettings,
        moved: impl Fn() -> Vec<(String, u64)> + Send + 'static,
        tell: impl Fn(&str, TargetComputeLoad) + Send + 'static,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<LoadMonitorThread> {
        let (alive, end) = channel();
        Builder::new().name("carrack-health".into()).spawn(move || {
            // The feed is made in the thread: its runtime must not be dropped in an async task.
            match LoadMonitor::new(settings, now_s()) {
                Ok(feed) => measure(feed, &end, moved, tell, say),
                Err(error) => {
                    let hint = error.hint().map_or(String::new(), |hint| format!(" (hint: {hint})"));
                    say(format!("computation's load is not measured: {error}{hint}"));
                }
            }
        })?;
        Ok(LoadMonitorThread { _alive: alive })
    }
}

fn measure(
    mut feed: LoadMonitor,
    end: &Receiver<()>,
    moved: impl Fn() -> Vec<(String, u64)>,
    tell: impl Fn(&str, TargetComputeLoad),
    say: impl Fn(String),
) {
    let every = Duration::from_secs(feed.every_s());
    let mut own = OwnRates::new(feed.window_s());
    let began = Instant::now();
    loop {
        let step = feed.step(now_s(), &own.rates_at(began.elapsed().as_secs_f64(), moved()));
        if end.try_recv() == Err(TryRecvError::Disconnected) {
            return;
        }
        step.notices.into_iter().for_each(&say);
        step.loads.iter().for_each(|(target, load)| tell(target, *load));
        if end.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
