//! The feed on a thread of its own: measures again and again, and tells whoever grants.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carrack_plan::grants::Load;

use super::feed::HealthFeed;

/// The thread `carrack-health`. It ends when this is dropped, after the step that it is in: 10 s for each query at most.
#[derive(Debug)]
pub struct HealthThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthThread {
    /// Begins to measure. `own` says how many bytes per second transfers move at each target, as
    /// [`HealthFeed::step`] wants it; `tell` hears the load of each target, and `say` what people should know.
    ///
    /// # Errors
    /// The system's, if there can't be a thread.
    pub fn start(
        mut feed: HealthFeed,
        own: impl Fn() -> BTreeMap<String, f64> + Send + 'static,
        tell: impl Fn(&str, Load) + Send + 'static,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<HealthThread> {
        let (stop, stopped) = channel();
        let thread = Builder::new().name("carrack-health".into()).spawn(move || {
            let every = Duration::from_secs(feed.every_s());
            loop {
                let step = feed.step(now_s(), &own());
                step.notices.into_iter().for_each(&say);
                step.loads.iter().for_each(|(target, load)| tell(target, *load));
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(HealthThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HealthThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has said what there is to say.
            let _ = thread.join();
        }
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
