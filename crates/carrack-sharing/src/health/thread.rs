//! The feed on a thread of its own: measures again and again, and tells whoever grants.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_plan::grants::Load;

use super::feed::HealthFeed;
use super::own::OwnRates;
use super::settings::HealthSettings;

/// The thread `carrack-health`. It tells nothing more once this is dropped, and ends after the step that it is in: 10 s for each query
/// at most, which nobody waits for.
#[derive(Debug)]
pub struct HealthThread {
    /// Nothing is ever sent: its end is what the thread hears of.
    _alive: Sender<()>,
}

impl HealthThread {
    /// Begins to measure. `moved` says of each target how many bytes transfers have moved there since some time, which is always the
    /// same; `tell` hears the load of each target, and `say` what people should know: also that the settings can't be used, and
    /// nothing is measured.
    ///
    /// # Errors
    /// The system's, if there can't be a thread.
    pub fn start(
        settings: HealthSettings,
        moved: impl Fn() -> Vec<(String, u64)> + Send + 'static,
        tell: impl Fn(&str, Load) + Send + 'static,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<HealthThread> {
        let (alive, end) = channel();
        // The feed is made there, too: what it waits by must not be dropped in a task.
        let run = move || match HealthFeed::new(settings, now_s()) {
            Ok(feed) => measure(feed, &end, moved, tell, say),
            Err(error) => {
                let hint = error.hint().map_or(String::new(), |hint| format!(" (hint: {hint})"));
                say(format!("computation's load is not measured: {error}{hint}"));
            }
        };
        Builder::new().name("carrack-health".into()).spawn(run)?;
        Ok(HealthThread { _alive: alive })
    }
}

fn measure(
    mut feed: HealthFeed,
    end: &Receiver<()>,
    moved: impl Fn() -> Vec<(String, u64)>,
    tell: impl Fn(&str, Load),
    say: impl Fn(String),
) {
    let every = Duration::from_secs(feed.every_s());
    let mut own = OwnRates::new(feed.window_s());
    let began = Instant::now();
    loop {
        let step = feed.step(now_s(), &own.at(began.elapsed().as_secs_f64(), moved()));
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
