//! The meta-scheduler's server: a [`GrantServer`] with a clock, behind a lock, with limits on its requests.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_model::limits::CLASS_BYTES_MAX;
use carrack_plan::grants::{
    GrantClientReport, GrantReply, GrantRequest, GrantServer, GrantUseReport, MovedBytes, SharedTargetStatus,
    TargetComputeLoad,
};

use super::health::{LoadMonitorSettings, LoadMonitorThread};
use super::settings::{DEFAULT_CLASS, SharingSettings};

/// The most targets in a list of a batch: more than the largest parallel file systems have.
const TARGETS_OF_BATCH_MAX: usize = 2_048;

/// The longest name of a target in bytes: `FS/PIECE`.
const TARGET_BYTES_MAX: usize = 255;

/// The longest name of a client in bytes.
const CLIENT_BYTES_MAX: usize = 128;

/// The most clients at the same time, in total and for one caller: their requests are kept in memory.
const CLIENTS_MAX: usize = 1_024;
const CLIENTS_OF_CALLER_MAX: usize = 256;

/// Between a caller and its client's name.
const SEPARATOR: char = '/';

/// The reason why a batch is refused. Its client continues as if no other transfer shared the file system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchRefusal {
    /// The batch names too many targets.
    #[error("a batch can speak of {TARGETS_OF_BATCH_MAX} targets, not of {0}")]
    TooMany(usize),
    /// A name is empty or too long.
    #[error("{what} has 1 to {bytes_max} bytes without control characters")]
    Name {
        /// The kind of name.
        what: &'static str,
        /// The longest name in bytes.
        bytes_max: usize,
    },
    /// The limit of clients is reached, in total or for the caller.
    #[error("{0} clients ask already")]
    Full(usize),
}

impl BatchRefusal {
    /// Advice for the client.
    pub fn hint(&self) -> &'static str {
        match self {
            BatchRefusal::TooMany(_) => "ask for those that have the most work, and for the rest later",
            BatchRefusal::Name { .. } => "take a target's name from `carrack targets`, or a shorter name",
            BatchRefusal::Full(_) => "begin fewer transfers at a time",
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, BatchRefusal::Full(_))
    }
}

/// Grants the targets of all file systems of its scope.
///
/// Threads and async tasks may call it: it waits only for its lock, which is held while an answer is
/// computed. That takes 66 µs for a batch of 64 targets that 16 clients ask for (`how_long_an_answer_takes`,
/// two cores with other work).
#[derive(Debug)]
pub struct MetaSchedulerServer {
    started_at: Instant,
    server: Mutex<GrantServer>,
}

impl MetaSchedulerServer {
    /// Starts a server, which first waits for clients to report the grants of an earlier server.
    pub fn start(settings: SharingSettings) -> MetaSchedulerServer {
        let SharingSettings { grants, classes } = with_default_unnamed(settings);
        // Two starts within one nanosecond have the same epoch.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX).max(1);
        let server = GrantServer::new(grants, classes, epoch, Duration::ZERO);
        MetaSchedulerServer { started_at: Instant::now(), server: Mutex::new(server) }
    }

    /// Changes the settings. Clients keep their grants.
    pub fn change(&self, settings: SharingSettings) {
        let SharingSettings { grants, classes } = with_default_unnamed(settings);
        self.server().change(grants, classes, self.now());
    }

    /// Accepts a batch from `caller` and returns the grants of its client. Clients of different callers are
    /// different clients, even with the same name. The caller's right to the class has been checked before.
    ///
    /// # Errors
    /// A limit that the batch exceeds. The batch then has no effect.
    pub fn answer(&self, caller: &str, batch: GrantClientReport) -> Result<GrantReply, BatchRefusal> {
        check(&batch)?;
        let client = format!("{caller}{SEPARATOR}{}", batch.client);
        let class = if batch.class == DEFAULT_CLASS { String::new() } else { batch.class };
        let batch = GrantClientReport { client, class, ..batch };
        let mut server = self.server();
        if !server.has_client(&batch.client) {
            check_client_limits(&server, caller)?;
        }
        Ok(server.answer(self.now(), &batch))
    }

    /// Known targets by name: the target `name`, or the targets of the file system `name`, or all if it is
    /// empty. Clients are `CALLER/NAME`.
    pub fn targets(&self, name: &str) -> Vec<SharedTargetStatus> {
        let mut targets = self.server().targets(self.now());
        targets.retain(|target| matches_name(&target.target, name));
        targets
    }

    /// Measures the load of computation on targets and grants the rest, until the returned thread is dropped.
    /// `say` gets notices for people.
    ///
    /// # Errors
    /// The system's error if the thread can't be started.
    pub fn start_load_monitor(
        self: &Arc<MetaSchedulerServer>,
        settings: LoadMonitorSettings,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<LoadMonitorThread> {
        let (asked, told) = (Arc::clone(self), Arc::clone(self));
        LoadMonitorThread::start(
            settings,
            move || asked.moved_bytes(),
            move |target, load| told.set_load(target, load),
            say,
        )
    }

    /// Sets a target's present and expected load by computation.
    pub fn set_load(&self, target: &str, load: TargetComputeLoad) {
        self.server().set_load(target, load, self.now());
    }

    /// Bytes that transfers have reported for each target since the start. They are subtracted from the
    /// measured load.
    pub fn moved_bytes(&self) -> Vec<(String, u64)> {
        self.server().moved_bytes().map(|(target, bytes)| (target.to_owned(), bytes)).collect()
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// A panicked thread leaves only leases, which expire.
    fn server(&self) -> MutexGuard<'_, GrantServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In messages, the default class has an empty name.
fn with_default_unnamed(mut settings: SharingSettings) -> SharingSettings {
    if let Some(class) = settings.classes.remove(DEFAULT_CLASS) {
        settings.classes.insert(String::new(), class);
    }
    settings
}

fn matches_name(target: &str, name: &str) -> bool {
    let rest = target.strip_prefix(name.trim_end_matches('/'));
    name.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check(batch: &GrantClientReport) -> Result<(), BatchRefusal> {
    let lists = [batch.asks.len(), batch.held.len(), batch.returns.len(), batch.moved.len()];
    let count = lists.into_iter().max().unwrap_or(0);
    if count > TARGETS_OF_BATCH_MAX {
        return Err(BatchRefusal::TooMany(count));
    }
    check_name(&batch.client, "a client's name", CLIENT_BYTES_MAX)?;
    if !batch.session.is_empty() {
        check_name(&batch.session, "a session's name", CLIENT_BYTES_MAX)?;
    }
    if !batch.class.is_empty() {
        check_name(&batch.class, "a class's name", CLASS_BYTES_MAX)?;
    }
    let asked = batch.asks.iter().map(|GrantRequest { target, .. }| target);
    let held = batch.held.iter().chain(&batch.returns).map(|GrantUseReport { target, .. }| target);
    let moved = batch.moved.iter().map(|MovedBytes { target, .. }| target);
    asked
        .chain(held)
        .chain(moved)
        .try_for_each(|target| check_name(target, "a target's name", TARGET_BYTES_MAX))
}

fn check_name(name: &str, what: &'static str, bytes_max: usize) -> Result<(), BatchRefusal> {
    let is_fine = (1..=bytes_max).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_fine { Ok(()) } else { Err(BatchRefusal::Name { what, bytes_max }) }
}

fn check_client_limits(server: &GrantServer, caller: &str) -> Result<(), BatchRefusal> {
    let callers = server.clients().filter_map(|client| client.split_once(SEPARATOR));
    let (all, own) = (server.clients().count(), callers.filter(|(other, _)| *other == caller).count());
    match (all, own) {
        (CLIENTS_MAX.., _) => Err(BatchRefusal::Full(all)),
        (_, CLIENTS_OF_CALLER_MAX..) => Err(BatchRefusal::Full(own)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::thread::sleep;

    use carrack_plan::grants::GrantClientClass;

    use super::*;

    fn asking(client: &str, number: u64, targets: &[&str]) -> GrantClientReport {
        let mut asks = Vec::new();
        for target in targets {
            asks.push(GrantRequest { target: (*target).to_owned(), objects: 1, bytes: 1, waits_us: 0 });
        }
        GrantClientReport {
            client: client.to_owned(),
            number,
            threads: 8,
            asks,
            ..GrantClientReport::default()
        }
    }

    fn holding(answer: &GrantReply, batch: GrantClientReport) -> GrantClientReport {
        let mut held = Vec::new();
        for grant in &answer.grants {
            let (id, ends_in_us) = (grant.id, grant.ends_in_us);
            held.push(GrantUseReport {
                id,
                target: grant.target.clone(),
                ends_in_us,
                ..GrantUseReport::default()
            });
        }
        GrantClientReport { epoch: answer.epoch, held, ..batch }
    }

    /// A server after its initial wait.
    fn settled(settings: SharingSettings) -> MetaSchedulerServer {
        let silence = settings.grants.silence_limit();
        let server = MetaSchedulerServer::start(settings);
        sleep(silence);
        server
    }

    #[test]
    fn the_second_one_waits_and_both_are_shown() {
        let server = settled(SharingSettings::default());
        let first = server.answer("1", asking("a", 1, &["fs/x"])).unwrap();
        assert_eq!(first.grants.len(), 1);
        assert_ne!(first.epoch, 0);
        // The same name of another caller is another client.
        let second = server.answer("2", asking("a", 1, &["fs/x"])).unwrap();
        assert_eq!(second.grants, []);
        server.set_load("fs/x", TargetComputeLoad { present: 0.25, expected: 0.5 });
        let shown = server.targets("");
        let [target] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!((target.holders[0].client.as_str(), target.waiting[0].client.as_str()), ("1/a", "2/a"));
        assert_eq!((target.load, target.load_expected), (Some(0.25), Some(0.5)));
        let told = holding(&first, asking("a", 2, &["fs/x"]));
        let told = GrantClientReport { moved: vec![MovedBytes { target: "fs/x".into(), bytes: 9 }], ..told };
        server.answer("1", told).unwrap();
        assert_eq!(server.moved_bytes(), [("fs/x".to_owned(), 9)]);
        // A client that leaves makes room at once.
        server.answer("1", GrantClientReport { leaves: true, ..asking("a", 3, &[]) }).unwrap();
        assert_eq!(server.answer("2", asking("a", 2, &["fs/x"])).unwrap().grants.len(), 1);
    }

    #[test]
    fn classes_are_those_of_the_settings() {
        let classes = ["urgent", DEFAULT_CLASS].map(|name| (name.to_owned(), GrantClientClass::default()));
        let server =
            MetaSchedulerServer::start(SharingSettings { classes: classes.into(), ..Default::default() });
        for (asked, counts_as) in [("urgent", "urgent"), ("", ""), (DEFAULT_CLASS, ""), ("other", "")] {
            let batch =
                GrantClientReport { class: asked.to_owned(), ..asking(&format!("c{asked}"), 1, &["x"]) };
            assert_eq!(server.answer("1", batch).unwrap().class, counts_as, "{asked}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_as_a_whole() {
        let server = MetaSchedulerServer::start(SharingSettings::default());
        let many: Vec<String> = (0..=TARGETS_OF_BATCH_MAX).map(|n| format!("fs/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(TARGET_BYTES_MAX + 1);
        fn held_and_returned(target: &str) -> (GrantClientReport, GrantClientReport) {
            let held = vec![GrantUseReport { target: target.to_owned(), ..GrantUseReport::default() }];
            (
                GrantClientReport { held: held.clone(), ..asking("a", 1, &[]) },
                GrantClientReport { returns: held, ..asking("a", 1, &[]) },
            )
        }
        let ((held, returned), (control, _)) = (held_and_returned(&long), held_and_returned("a\nb"));
        for batch in [
            asking("a", 1, &many),
            asking("a", 1, &[&long]),
            asking("a", 1, &[""]),
            held,
            returned,
            control,
            asking("", 1, &["x"]),
            asking(&long, 1, &["x"]),
            GrantClientReport { class: long.clone(), ..asking("a", 1, &["x"]) },
        ] {
            let refusal = server.answer("1", batch).unwrap_err();
            assert!(!refusal.hint().is_empty() && !refusal.is_transient(), "{refusal}");
        }
        assert_eq!(server.targets(""), []);
        server.answer("1", asking("a", 1, &many[1..])).unwrap();
    }

    #[test]
    fn nobody_can_have_all_the_places() {
        let server = MetaSchedulerServer::start(SharingSettings::default());
        fn begin(
            server: &MetaSchedulerServer,
            caller: usize,
            client: usize,
        ) -> Result<GrantReply, BatchRefusal> {
            server.answer(&caller.to_string(), asking(&client.to_string(), 1, &["x"]))
        }
        (0..CLIENTS_OF_CALLER_MAX).for_each(|client| drop(begin(&server, 0, client).unwrap()));
        let refusal = begin(&server, 0, CLIENTS_OF_CALLER_MAX).unwrap_err();
        assert!(refusal == BatchRefusal::Full(CLIENTS_OF_CALLER_MAX) && refusal.is_transient());
        begin(&server, 0, 0).unwrap();
        let others = CLIENTS_MAX - CLIENTS_OF_CALLER_MAX;
        (0..others).for_each(|client| drop(begin(&server, 1 + client % 64, client).unwrap()));
        assert_eq!(begin(&server, 70, 0).unwrap_err(), BatchRefusal::Full(CLIENTS_MAX));
    }

    #[test]
    fn a_file_systems_name_is_that_of_all_its_targets() {
        for (name, is_meant) in [
            ("", true),
            ("lfs01", true),
            ("lfs01/", true),
            ("lfs01/OST0007", true),
            ("lfs0", false),
            ("x", false),
        ] {
            assert_eq!(matches_name("lfs01/OST0007", name), is_meant, "{name}");
        }
    }

    #[test]
    fn each_start_is_another_epoch() {
        let [first, second] = [(); 2].map(|()| {
            let server = MetaSchedulerServer::start(SharingSettings::default());
            server.answer("1", asking("a", 1, &[])).unwrap().epoch
        });
        assert_ne!(first, second);
    }

    /// Measures the figure in the documentation; `cargo test --release -- --nocapture` prints it. The bound
    /// is generous.
    #[test]
    fn how_long_an_answer_takes() {
        let server = settled(SharingSettings { classes: BTreeMap::new(), ..Default::default() });
        let targets: Vec<String> = (0..64).map(|n| format!("lfs01/OST{n:04x}")).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let mut last = vec![GrantReply::default(); 16];
        let (mut spent, mut answers) = (Duration::ZERO, 0);
        for round in 1..=100 {
            for (client, last) in last.iter_mut().enumerate() {
                let batch = holding(last, asking(&client.to_string(), round, &targets));
                let begun = Instant::now();
                *last = server.answer("1", batch).unwrap();
                spent += begun.elapsed();
                answers += 1;
            }
        }
        let one = spent / answers;
        println!("{one:?} for a batch of 64 targets, 16 clients");
        assert!(one < Duration::from_millis(20), "{one:?}");
    }
}
