//! The client of the meta-scheduler at one end (L10): it asks for the targets that it has work for, works on
//! granted targets, and continues without grants when there is no answer.
//!
//! Owns the client of a session's end, with any number of lanes (and of both ends, if they are in one
//! process), and the thread `carrack-share` that sends its batches. The protocol is in `carrack-plan`
//! (`grants/`), the transport is the caller's ([`GrantExchange`]).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_layout::StorageTarget;
use carrack_model::{TargetId, TransferProgress, UserNotice};
use carrack_plan::grants::{
    GrantClient, GrantClientReport, GrantClientSettings, GrantGate, GrantGatedPolicy, GrantReply,
};
use carrack_plan::{SchedulingPolicy, StorageRequestTiming, TargetState};
use carrack_wire::auth::SessionKey;

use crate::error::{STARTING_A_THREAD, SessionError};
use crate::grant_exchange::GrantExchange;
use crate::settings::EndSettings;

/// The interval at which the thread looks for urgent requests, which are at most this late.
const LOOK: Duration = Duration::from_millis(10);

/// Queues of targets whose state the client reads, and which it wakes.
pub(crate) trait GrantClientTargetQueues: Send + Sync {
    /// Returns the states of its targets.
    fn states(&self) -> Vec<TargetState>;

    /// Wakes it after new grants.
    fn wake(&self);
}

/// The client of one session. Dropping it returns all grants.
pub(crate) struct SessionGrantClient {
    inner: Arc<GrantClientSharedState>,
    speaker: Option<JoinHandle<()>>,
}

struct GrantClientSharedState {
    exchange: Arc<dyn GrantExchange>,
    began: Instant,
    /// The time by which the transfer should be complete, counted from `began`.
    deadline: Option<Duration>,
    asking: Mutex<SessionGrantClientState>,
    is_over: AtomicBool,
}

struct SessionGrantClientState {
    client: GrantClient,
    threads: usize,
    /// The client's number of each target, by the target's name.
    ids: HashMap<Arc<str>, TargetId>,
    members: Vec<(Weak<dyn GrantClientTargetQueues>, LaneTargetGrants)>,
    /// Targets on which work was begun since the last look.
    touched: HashSet<TargetId>,
    news: Vec<UserNotice>,
}

/// The grants for one lane's queues: the targets of one end, each with the client's number.
#[derive(Clone)]
pub(crate) struct LaneTargetGrants {
    inner: Arc<GrantClientSharedState>,
    ids: Arc<Mutex<HashMap<TargetId, TargetId>>>,
    /// The start of the queues' time, counted from the client's.
    began: Duration,
    /// I/O threads of the lane that are at work.
    threads: Arc<AtomicUsize>,
    /// True if work had to wait for a grant since the last call of `take_shortage`.
    was_short: Arc<AtomicBool>,
}

impl SessionGrantClient {
    /// Starts the client of an end with these settings, or returns `None` if it shares no targets. Two ends
    /// that ask the same server share their grants if they have the key of their session; in one process they
    /// have one client.
    pub(crate) fn begin(
        settings: &EndSettings,
        key: Option<&SessionKey>,
    ) -> Result<Option<Arc<SessionGrantClient>>, SessionError> {
        let Some(sharing) = &settings.sharing else { return Ok(None) };
        let session = key.map(SessionKey::session_name).unwrap_or_default();
        let client = GrantClient::new(&unique_name(), &settings.class, GrantClientSettings::default());
        let client = client.with_session(&session);
        let inner = Arc::new(GrantClientSharedState {
            exchange: Arc::clone(&sharing.0),
            began: Instant::now(),
            // A deadline in the past: there is no time left.
            deadline: settings.deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default()),
            asking: Mutex::new(SessionGrantClientState {
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
        let speaker =
            thread::Builder::new().name("carrack-share".into()).spawn(move || speaking.run_exchange_loop());
        let speaker = speaker.map_err(SessionError::local(STARTING_A_THREAD))?;
        Ok(Some(Arc::new(SessionGrantClient { inner, speaker: Some(speaker) })))
    }

    /// Creates the grants of a lane with this number of I/O threads, whose queues count their time from
    /// `began`.
    pub(crate) fn lane_grants(&self, threads: usize, began: Instant) -> LaneTargetGrants {
        self.inner.lock_state().change_threads(0, threads);
        LaneTargetGrants {
            threads: Arc::new(AtomicUsize::new(threads)),
            was_short: Arc::default(),
            inner: Arc::clone(&self.inner),
            ids: Arc::default(),
            began: began.saturating_duration_since(self.inner.began),
        }
    }

    /// Notes the transfer's progress: the deadline claims a rate for the rest.
    pub(crate) fn update_progress(&self, progress: &TransferProgress) {
        if let Some(at) = self.inner.deadline {
            let left = progress.bytes_found.saturating_sub(progress.bytes_done);
            self.inner.lock_state().client.set_deadline(at, progress.bytes_moved, left);
        }
    }

    /// Takes the messages for the user.
    pub(crate) fn take_notices(&self) -> Vec<UserNotice> {
        std::mem::take(&mut self.inner.lock_state().news)
    }
}

impl Drop for SessionGrantClient {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Release);
        if let Some(speaker) = self.speaker.take() {
            speaker.thread().unpark();
            // It panics only by a defect, which ends nothing else.
            let _ = speaker.join();
        }
    }
}

impl GrantClientSharedState {
    fn lock_state(&self) -> MutexGuard<'_, SessionGrantClientState> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_exchange_loop(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            let (members, states) = self.collect_target_states();
            let (batch, mut may_more) = self.lock_state().next_report(self.began.elapsed(), &states);
            if let Some(batch) = batch
                && let Ok(answer) = self.exchange.exchange(&batch)
            {
                self.lock_state().handle_reply(self.began.elapsed(), &answer);
                may_more = true;
            }
            if may_more {
                members.iter().for_each(|member| member.wake());
            }
            thread::park_timeout(LOOK);
        }
        // A server that does not receive it takes all grants back when the leases end.
        let farewell = self.lock_state().client.leave();
        let _ = self.exchange.exchange(&farewell);
    }

    /// Returns the members, and the states of the targets over all of them. Queues are locked before the
    /// client, never after.
    fn collect_target_states(&self) -> (Vec<Arc<dyn GrantClientTargetQueues>>, Vec<TargetState>) {
        let touched;
        let members: Vec<(Arc<dyn GrantClientTargetQueues>, LaneTargetGrants)> = {
            let mut asking = self.lock_state();
            touched = std::mem::take(&mut asking.touched);
            asking.members.retain(|(member, _)| member.strong_count() > 0);
            let members = asking.members.iter();
            members.filter_map(|(member, pass)| Some((member.upgrade()?, pass.clone()))).collect()
        };
        let mut all: HashMap<TargetId, TargetState> = HashMap::new();
        for (member, pass) in &members {
            for state in member.states() {
                let Some(target) = pass.client_target_id(state.target) else { continue };
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
        // Single objects are begun at once while the state of their target is unknown: without this they
        // would never be counted as waiting.
        for state in all.values_mut() {
            if state.waiting == 0 && touched.contains(&state.target) {
                state.waiting = 1;
            }
        }
        (members.into_iter().map(|(member, _)| member).collect(), all.into_values().collect())
    }
}

impl SessionGrantClientState {
    /// Sets the number of threads of a lane.
    fn change_threads(&mut self, before: usize, now: usize) {
        self.threads = (self.threads + now).saturating_sub(before);
        self.client.set_threads(self.threads);
    }

    /// Returns the next batch, and true if every target may be used from now on.
    fn next_report(&mut self, now: Duration, states: &[TargetState]) -> (Option<GrantClientReport>, bool) {
        let batch = self.client.take_due_batch(now, states);
        let is_left_alone = self.client.take_notice().is_some();
        if is_left_alone {
            let text = "the meta-server does not answer: going on without its grants";
            self.news.push(UserNotice::Warning(text.to_owned()));
        }
        (batch, is_left_alone)
    }

    fn handle_reply(&mut self, now: Duration, answer: &GrantReply) {
        self.client.apply_reply(now, answer);
        if self.client.take_notice().is_some() {
            let text = "the meta-server answers again: keeping to its grants";
            self.news.push(UserNotice::Text(text.to_owned()));
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

impl LaneTargetGrants {
    /// Restricts the policy to granted targets.
    pub(crate) fn gate_policy(&self, policy: Box<dyn SchedulingPolicy>) -> Box<dyn SchedulingPolicy> {
        Box::new(GrantGatedPolicy::new(policy, self.clone()))
    }

    /// Sets the number of the lane's I/O threads that are at work.
    pub(crate) fn set_threads(&self, count: usize) {
        let before = self.threads.swap(count, Ordering::Relaxed);
        if before != count {
            self.inner.lock_state().change_threads(before, count);
        }
    }

    /// Returns true if work had to wait for a grant since the last call.
    pub(crate) fn take_shortage(&self) -> bool {
        self.was_short.swap(false, Ordering::Relaxed)
    }

    /// Registers queues, for which the client asks for targets and which it wakes.
    pub(crate) fn join<M: GrantClientTargetQueues + 'static>(self, member: &Arc<M>) {
        let (inner, member): (_, Weak<M>) = (Arc::clone(&self.inner), Arc::downgrade(member));
        inner.lock_state().members.push((member, self));
    }

    /// Adds a target: if others may use it too, the client asks for it.
    pub(crate) fn add_target(&self, target: &StorageTarget) {
        if let Some(name) = &target.shared_name {
            let id = self.inner.lock_state().id(name);
            self.ids().insert(target.id, id);
        }
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<TargetId, TargetId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client_target_id(&self, target: TargetId) -> Option<TargetId> {
        self.ids().get(&target).copied()
    }
}

impl GrantGate for LaneTargetGrants {
    fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool {
        let Some(target) = self.client_target_id(target) else { return true };
        let may_start = self.inner.lock_state().client.may_start(target, in_service, now + self.began);
        if !may_start {
            self.was_short.store(true, Ordering::Relaxed);
        }
        may_start
    }

    fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration> {
        let at = self.inner.lock_state().client.opens_at(self.client_target_id(target)?, now + self.began)?;
        Some(at.saturating_sub(self.began))
    }

    fn record_start(&mut self, target: TargetId, bytes: u64, now: Duration) {
        if let Some(target) = self.client_target_id(target) {
            let mut asking = self.inner.lock_state();
            asking.client.record_start(target, bytes, now + self.began);
            asking.touched.insert(target);
        }
    }

    fn record_finish(&mut self, target: TargetId, service: StorageRequestTiming, now: Duration) {
        if let Some(target) = self.client_target_id(target) {
            self.inner.lock_state().client.record_finish(target, service, now + self.began);
        }
    }
}

/// Returns a name that no other client has: host, process, time, and a number within the process.
fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("{host}:{}:{since:x}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
