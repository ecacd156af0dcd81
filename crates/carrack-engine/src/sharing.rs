//! One end's part in sharing a file system (L10): it asks for the targets that it has work for, works on those that it is granted,
//! and goes on unmanaged when nobody answers.
//!
//! Owns the client of a session's end, whatever number of lanes it has (and both ends, where they are in one process), and the thread
//! `carrack-share` that speaks for it. What is said and when is `carrack-plan`'s (`grants/`), who carries it the caller's
//! ([`GrantExchange`]).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_layout::StorageTarget;
use carrack_model::{Notice, Progress, TargetId};
use carrack_plan::grants::{Answer, Batch, ClientSettings, Gate, GrantClient, Granted};
use carrack_plan::{Policy, Service, TargetState};
use carrack_wire::auth::SessionKey;

use crate::error::{STARTING_A_THREAD, SessionError};
use crate::grant_exchange::GrantExchange;
use crate::settings::Settings;

/// How often the thread looks whether something is urgent: a wish is told so much later at most.
const LOOK: Duration = Duration::from_millis(10);

/// Queues of targets that the share looks at and wakes.
pub(crate) trait Member: Send + Sync {
    /// How its targets stand.
    fn states(&self) -> Vec<TargetState>;

    /// Something that was not granted may be now.
    fn wake(&self);
}

/// The share of one session; dropped, everything is given back.
pub(crate) struct Share {
    inner: Arc<Inner>,
    speaker: Option<JoinHandle<()>>,
}

struct Inner {
    exchange: Arc<dyn GrantExchange>,
    began: Instant,
    /// When the transfer has to be done, counted from then.
    deadline: Option<Duration>,
    asking: Mutex<Asking>,
    is_over: AtomicBool,
}

struct Asking {
    client: GrantClient,
    threads: usize,
    /// The client's number of each target, by its name.
    ids: HashMap<Arc<str>, TargetId>,
    members: Vec<(Weak<dyn Member>, Pass)>,
    /// Targets that something was begun on since the last look.
    touched: HashSet<TargetId>,
    news: Vec<Notice>,
}

/// What one lane's queues go by: the targets of one end, each with the client's number of it.
#[derive(Clone)]
pub(crate) struct Pass {
    inner: Arc<Inner>,
    ids: Arc<Mutex<HashMap<TargetId, TargetId>>>,
    /// When the queues' time began, counted from the client's.
    began: Duration,
    /// I/O threads of the lane that are at work.
    threads: Arc<AtomicUsize>,
    /// Whether something could not be begun as it was not granted, since that was asked last.
    was_short: Arc<AtomicBool>,
}

impl Share {
    /// Of an end with these settings; nothing if it asks nobody. Two ends that ask the same server share what it grants if they have the key
    /// of their session; in one process they have one share.
    pub(crate) fn begin(
        settings: &Settings,
        key: Option<&SessionKey>,
    ) -> Result<Option<Arc<Share>>, SessionError> {
        let Some(sharing) = &settings.sharing else { return Ok(None) };
        let session = key.map(SessionKey::session_name).unwrap_or_default();
        let client = GrantClient::new(&unique_name(), &settings.class, ClientSettings::default());
        let client = client.of_session(&session);
        let inner = Arc::new(Inner {
            exchange: Arc::clone(&sharing.0),
            began: Instant::now(),
            // Over already: there is no time left.
            deadline: settings.deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default()),
            asking: Mutex::new(Asking {
                client,
                threads: 0,
                ids: HashMap::new(),
                members: Vec::new(),
                touched: HashSet::new(),
                news: Vec::new(),
            }),
            is_over: AtomicBool::new(false),
        });
        let speaking = Arc::clone(&inner);
        let speaker = thread::Builder::new().name("carrack-share".into()).spawn(move || speaking.speak());
        let speaker = speaker.map_err(SessionError::local(STARTING_A_THREAD))?;
        Ok(Some(Arc::new(Share { inner, speaker: Some(speaker) })))
    }

    /// For a lane with so many I/O threads, whose queues count their time from then on.
    pub(crate) fn pass(&self, threads: usize, began: Instant) -> Pass {
        self.inner.asking().change_threads(0, threads);
        Pass {
            threads: Arc::new(AtomicUsize::new(threads)),
            was_short: Arc::default(),
            inner: Arc::clone(&self.inner),
            ids: Arc::default(),
            began: began.saturating_duration_since(self.inner.began),
        }
    }

    /// How far the transfer is, of which a deadline claims the rest.
    pub(crate) fn look_at(&self, progress: &Progress) {
        if let Some(at) = self.inner.deadline {
            let left = progress.bytes_found.saturating_sub(progress.bytes_done);
            self.inner.asking().client.set_deadline(at, progress.bytes_moved, left);
        }
    }

    /// What the user has to hear.
    pub(crate) fn news(&self) -> Vec<Notice> {
        std::mem::take(&mut self.inner.asking().news)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Release);
        if let Some(speaker) = self.speaker.take() {
            speaker.thread().unpark();
            // It can't panic but by a defect, which ends nothing else.
            let _ = speaker.join();
        }
    }
}

impl Inner {
    fn asking(&self) -> MutexGuard<'_, Asking> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speak(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            let (members, states) = self.look();
            let (batch, mut may_more) = self.asking().say(self.began.elapsed(), &states);
            if let Some(batch) = batch
                && let Ok(answer) = self.exchange.exchange(&batch)
            {
                self.asking().hear(self.began.elapsed(), &answer);
                may_more = true;
            }
            if may_more {
                members.iter().for_each(|member| member.wake());
            }
            thread::park_timeout(LOOK);
        }
        // A server that does not hear it takes everything back when the leases end.
        let farewell = self.asking().client.leave();
        let _ = self.exchange.exchange(&farewell);
    }

    /// Who is there, and how the targets stand over all of them. Queues are locked before the client, never after.
    fn look(&self) -> (Vec<Arc<dyn Member>>, Vec<TargetState>) {
        let touched;
        let members: Vec<(Arc<dyn Member>, Pass)> = {
            let mut asking = self.asking();
            touched = std::mem::take(&mut asking.touched);
            asking.members.retain(|(member, _)| member.strong_count() > 0);
            let there = |(member, pass): &(Weak<dyn Member>, Pass)| Some((member.upgrade()?, pass.clone()));
            asking.members.iter().filter_map(there).collect()
        };
        let mut all: HashMap<TargetId, TargetState> = HashMap::new();
        for (member, pass) in &members {
            for state in member.states() {
                let Some(target) = pass.own(state.target) else { continue };
                let sum = all.entry(target).or_insert(TargetState {
                    target,
                    waiting: 0,
                    waiting_bytes: 0,
                    in_service: 0,
                    ..state
                });
                sum.waiting += state.waiting;
                sum.waiting_bytes = sum.waiting_bytes.saturating_add(state.waiting_bytes);
                sum.in_service += state.in_service;
            }
        }
        // What comes one by one is begun at once, as long as nothing is known of its target: it would never be seen to wait.
        let passing = |state: &&mut TargetState| touched.contains(&state.target) && state.waiting == 0;
        all.values_mut().filter(passing).for_each(|state| state.waiting = 1);
        (members.into_iter().map(|(member, _)| member).collect(), all.into_values().collect())
    }
}

impl Asking {
    /// Of a lane.
    fn change_threads(&mut self, before: usize, now: usize) {
        self.threads = (self.threads + now).saturating_sub(before);
        self.client.set_threads(self.threads);
    }

    /// The next batch, and whether every target may be started on from now on.
    fn say(&mut self, now: Duration, states: &[TargetState]) -> (Option<Batch>, bool) {
        let batch = self.client.batch(now, states);
        let is_left_alone = self.client.take_notice().is_some();
        if is_left_alone {
            let text = "the meta-server does not answer: going on without its grants";
            self.news.push(Notice::Warning(text.to_owned()));
        }
        (batch, is_left_alone)
    }

    fn hear(&mut self, now: Duration, answer: &Answer) {
        self.client.answered(now, answer);
        if self.client.take_notice().is_some() {
            let text = "the meta-server answers again: keeping to its grants";
            self.news.push(Notice::Text(text.to_owned()));
        }
    }

    fn id(&mut self, name: &Arc<str>) -> TargetId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = TargetId(self.ids.len() as u64 + 1);
        self.ids.insert(Arc::clone(name), id);
        self.client.add_target(id, name);
        id
    }
}

impl Pass {
    /// The policy, kept to what is granted.
    pub(crate) fn guard(&self, policy: Box<dyn Policy>) -> Box<dyn Policy> {
        Box::new(Granted::new(policy, self.clone()))
    }

    /// So many I/O threads of the lane are at work from now on.
    pub(crate) fn set_threads(&self, count: usize) {
        let before = self.threads.swap(count, Ordering::Relaxed);
        if before != count {
            self.inner.asking().change_threads(before, count);
        }
    }

    /// Whether something could not be begun since the last time as it was not granted.
    pub(crate) fn take_shortage(&self) -> bool {
        self.was_short.swap(false, Ordering::Relaxed)
    }

    /// From now on the queues that go by it are asked for and woken.
    pub(crate) fn join<M: Member + 'static>(self, member: &Arc<M>) {
        let (inner, member): (_, Weak<M>) = (Arc::clone(&self.inner), Arc::downgrade(member));
        inner.asking().members.push((member, self));
    }

    /// A target is met: if others may work on it too, it is asked for.
    pub(crate) fn learn(&self, target: &StorageTarget) {
        if let Some(name) = &target.shared_name {
            let id = self.inner.asking().id(name);
            self.ids().insert(target.id, id);
        }
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<TargetId, TargetId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self, target: TargetId) -> Option<TargetId> {
        self.ids().get(&target).copied()
    }
}

impl Gate for Pass {
    fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool {
        let Some(target) = self.own(target) else { return true };
        let may_start = self.inner.asking().client.may_start(target, in_service, now + self.began);
        if !may_start {
            self.was_short.store(true, Ordering::Relaxed);
        }
        may_start
    }

    fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration> {
        let at = self.inner.asking().client.opens_at(self.own(target)?, now + self.began)?;
        Some(at.saturating_sub(self.began))
    }

    fn started(&mut self, target: TargetId, bytes: u64, now: Duration) {
        if let Some(target) = self.own(target) {
            let mut asking = self.inner.asking();
            asking.client.started(target, bytes, now + self.began);
            asking.touched.insert(target);
        }
    }

    fn finished(&mut self, target: TargetId, service: Service, now: Duration) {
        if let Some(target) = self.own(target) {
            self.inner.asking().client.finished(target, service, now + self.began);
        }
    }
}

/// Of all clients that ever were: host, process, when, and which of the process.
fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("{host}:{}:{since:x}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
