//! The meta-server: a [`GrantServer`] with a clock, behind a lock, and with limits on what it can be told.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_model::limits::CLASS_BYTES_MAX;
use carrack_plan::grants::{Answer, Ask, Batch, GrantServer, Held, Load, Moved, TargetView};

use super::health::{HealthSettings, HealthThread};
use super::settings::{DEFAULT_CLASS, SharingSettings};

/// Targets that a batch may ask for, hold, or give back: more than the largest parallel file systems have.
const TARGETS_OF_BATCH_MAX: usize = 2_048;

/// Bytes of a target's name: `FS/PIECE`.
const TARGET_BYTES_MAX: usize = 255;

/// Bytes of a client's name.
const CLIENT_BYTES_MAX: usize = 128;

/// Clients at the same time, and those that are one caller's: what they ask for is kept in memory.
const CLIENTS_MAX: usize = 1_024;
const CLIENTS_OF_CALLER_MAX: usize = 256;

/// Between a caller and what it calls its client.
const SEPARATOR: char = '/';

/// Why a batch is not answered. Whoever sent it goes on as if nobody shared the file system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It says too much.
    #[error("a batch can speak of {TARGETS_OF_BATCH_MAX} targets, not of {0}")]
    TooMany(usize),
    /// A name is empty, or longer than names are.
    #[error("{what} has 1 to {bytes_max} bytes without control characters")]
    Name {
        /// Whose name.
        what: &'static str,
        /// The longest.
        bytes_max: usize,
    },
    /// There are as many clients as there can be, or as one caller can have.
    #[error("{0} clients ask already")]
    Full(usize),
}

impl Refusal {
    /// What the one who asks can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Refusal::TooMany(_) => "ask for those that have the most work, and for the rest later",
            Refusal::Name { .. } => "take a target's name from `carrack targets`, or a shorter name",
            Refusal::Full(_) => "begin fewer transfers at a time",
        }
    }

    /// Whether the same may work later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Refusal::Full(_))
    }
}

/// Grants the targets of all file systems of its scope.
///
/// It may be called from plain threads and from tasks: nothing in it waits but for the lock, which is held for as long as an answer takes:
/// 66 µs for a batch of 64 targets where 16 clients ask for the same ones (`how_long_an_answer_takes`, two cores with other work).
#[derive(Debug)]
pub struct MetaServer {
    started_at: Instant,
    server: Mutex<GrantServer>,
}

impl MetaServer {
    /// One that begins now, and listens at first to what clients hold of an earlier one.
    pub fn start(settings: SharingSettings) -> MetaServer {
        let SharingSettings { grants, classes } = with_default_unnamed(settings);
        // Two starts in one nanosecond are one.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX).max(1);
        let server = GrantServer::new(grants, classes, epoch, Duration::ZERO);
        MetaServer { started_at: Instant::now(), server: Mutex::new(server) }
    }

    /// Goes over to other settings, while clients go on with what they have.
    pub fn change(&self, settings: SharingSettings) {
        let SharingSettings { grants, classes } = with_default_unnamed(settings);
        self.server().change(grants, classes, self.now());
    }

    /// Takes in a batch that came from `caller`, and says what its client has now. Clients of different callers are different ones,
    /// whatever they are called; whether the caller may use the class is looked at before.
    ///
    /// # Errors
    /// What is out of bounds; then nothing was taken in.
    pub fn answer(&self, caller: &str, batch: Batch) -> Result<Answer, Refusal> {
        check(&batch)?;
        let client = format!("{caller}{SEPARATOR}{}", batch.client);
        let class = if batch.class == DEFAULT_CLASS { String::new() } else { batch.class };
        let batch = Batch { client, class, ..batch };
        let mut server = self.server();
        if !server.knows(&batch.client) {
            make_room(&server, caller)?;
        }
        Ok(server.answer(self.now(), &batch))
    }

    /// Every target that anybody speaks of and that is the one of this name, or a piece of the file system of this name (all, if it is
    /// empty), by name. Clients are `CALLER/NAME`.
    pub fn targets(&self, name: &str) -> Vec<TargetView> {
        let mut targets = self.server().targets(self.now());
        targets.retain(|target| is_of(&target.target, name));
        targets
    }

    /// Has targets be granted by what computation leaves of them, for as long as what this returns is kept. `say` hears what people
    /// should know.
    ///
    /// # Errors
    /// The system's, if there can't be a thread.
    pub fn measure(
        self: &Arc<MetaServer>,
        settings: HealthSettings,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<HealthThread> {
        let (asked, told) = (Arc::clone(self), Arc::clone(self));
        let tell = move |target: &str, load| told.set_load(target, load);
        HealthThread::start(settings, move || asked.moved_bytes(), tell, say)
    }

    /// What computation uses of a target, and is expected to.
    pub fn set_load(&self, target: &str, load: Load) {
        self.server().set_load(target, load, self.now());
    }

    /// Bytes that transfers told they moved from or to each target since the start: what a load is not to contain.
    pub fn moved_bytes(&self) -> Vec<(String, u64)> {
        self.server().moved_bytes().map(|(target, bytes)| (target.to_owned(), bytes)).collect()
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// What a thread that panicked left behind is leases, which end by themselves.
    fn server(&self) -> MutexGuard<'_, GrantServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In messages the class of those who name none has no name.
fn with_default_unnamed(mut settings: SharingSettings) -> SharingSettings {
    if let Some(class) = settings.classes.remove(DEFAULT_CLASS) {
        settings.classes.insert(String::new(), class);
    }
    settings
}

fn is_of(target: &str, name: &str) -> bool {
    let rest = target.strip_prefix(name.trim_end_matches('/'));
    name.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check(batch: &Batch) -> Result<(), Refusal> {
    let lists = [batch.asks.len(), batch.held.len(), batch.returns.len(), batch.moved.len()];
    let count = lists.into_iter().max().unwrap_or(0);
    if count > TARGETS_OF_BATCH_MAX {
        return Err(Refusal::TooMany(count));
    }
    name(&batch.client, "a client's name", CLIENT_BYTES_MAX)?;
    if !batch.class.is_empty() {
        name(&batch.class, "a class's name", CLASS_BYTES_MAX)?;
    }
    let asked = batch.asks.iter().map(|Ask { target, .. }| target);
    let held = batch.held.iter().chain(&batch.returns).map(|Held { target, .. }| target);
    let moved = batch.moved.iter().map(|Moved { target, .. }| target);
    asked.chain(held).chain(moved).try_for_each(|target| name(target, "a target's name", TARGET_BYTES_MAX))
}

fn name(name: &str, what: &'static str, bytes_max: usize) -> Result<(), Refusal> {
    let is_fine = (1..=bytes_max).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_fine { Ok(()) } else { Err(Refusal::Name { what, bytes_max }) }
}

fn make_room(server: &GrantServer, caller: &str) -> Result<(), Refusal> {
    let is_own = |client: &&str| client.split_once(SEPARATOR).is_some_and(|(other, _)| other == caller);
    let (all, own) = (server.clients().count(), server.clients().filter(is_own).count());
    match (all, own) {
        (CLIENTS_MAX.., _) => Err(Refusal::Full(all)),
        (_, CLIENTS_OF_CALLER_MAX..) => Err(Refusal::Full(own)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::thread::sleep;

    use carrack_plan::grants::{Class, Grant};

    use super::*;

    fn asking(client: &str, number: u64, targets: &[&str]) -> Batch {
        let ask = |target: &&str| Ask { target: (*target).to_owned(), objects: 1, bytes: 1, waits_us: 0 };
        let asks = targets.iter().map(ask).collect();
        Batch { client: client.to_owned(), number, threads: 8, asks, ..Batch::default() }
    }

    fn holding(answer: &Answer, batch: Batch) -> Batch {
        let held = |grant: &Grant| Held {
            id: grant.id,
            target: grant.target.clone(),
            ends_in_us: grant.ends_in_us,
            ..Held::default()
        };
        Batch { epoch: answer.epoch, held: answer.grants.iter().map(held).collect(), ..batch }
    }

    /// One that has listened for long enough.
    fn settled(settings: SharingSettings) -> MetaServer {
        let silence = settings.grants.silence();
        let server = MetaServer::start(settings);
        sleep(silence);
        server
    }

    #[test]
    fn the_second_one_waits_and_both_are_shown() {
        let server = settled(SharingSettings::default());
        let first = server.answer("1", asking("a", 1, &["fs/x"])).unwrap();
        assert_eq!(first.grants.len(), 1);
        assert_ne!(first.epoch, 0);
        // The same name of another caller's is another client.
        let second = server.answer("2", asking("a", 1, &["fs/x"])).unwrap();
        assert_eq!(second.grants, []);
        server.set_load("fs/x", Load { present: 0.25, expected: 0.5 });
        let shown = server.targets("");
        let [target] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!((target.holders[0].client.as_str(), target.waiting[0].client.as_str()), ("1/a", "2/a"));
        assert_eq!((target.load, target.load_expected), (Some(0.25), Some(0.5)));
        let told = holding(&first, asking("a", 2, &["fs/x"]));
        let told = Batch { moved: vec![Moved { target: "fs/x".into(), bytes: 9 }], ..told };
        server.answer("1", told).unwrap();
        assert_eq!(server.moved_bytes(), [("fs/x".to_owned(), 9)]);
        // Who ends makes room at once.
        server.answer("1", Batch { leaves: true, ..asking("a", 3, &[]) }).unwrap();
        assert_eq!(server.answer("2", asking("a", 2, &["fs/x"])).unwrap().grants.len(), 1);
    }

    #[test]
    fn classes_are_those_of_the_settings() {
        let classes = ["urgent", DEFAULT_CLASS].map(|name| (name.to_owned(), Class::default()));
        let server = MetaServer::start(SharingSettings { classes: classes.into(), ..Default::default() });
        for (asked, counts_as) in [("urgent", "urgent"), ("", ""), (DEFAULT_CLASS, ""), ("other", "")] {
            let batch = Batch { class: asked.to_owned(), ..asking(&format!("c{asked}"), 1, &["x"]) };
            assert_eq!(server.answer("1", batch).unwrap().class, counts_as, "{asked}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_as_a_whole() {
        let server = MetaServer::start(SharingSettings::default());
        let many: Vec<String> = (0..=TARGETS_OF_BATCH_MAX).map(|n| format!("fs/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(TARGET_BYTES_MAX + 1);
        let with = |target: &str| {
            let held = vec![Held { target: target.to_owned(), ..Held::default() }];
            (
                Batch { held: held.clone(), ..asking("a", 1, &[]) },
                Batch { returns: held, ..asking("a", 1, &[]) },
            )
        };
        let ((held, returned), (control, _)) = (with(&long), with("a\nb"));
        for batch in [
            asking("a", 1, &many),
            asking("a", 1, &[&long]),
            asking("a", 1, &[""]),
            held,
            returned,
            control,
            asking("", 1, &["x"]),
            asking(&long, 1, &["x"]),
            Batch { class: long.clone(), ..asking("a", 1, &["x"]) },
        ] {
            let refusal = server.answer("1", batch).unwrap_err();
            assert!(!refusal.hint().is_empty() && !refusal.may_pass(), "{refusal}");
        }
        assert_eq!(server.targets(""), []);
        server.answer("1", asking("a", 1, &many[1..])).unwrap();
    }

    #[test]
    fn nobody_can_have_all_the_places() {
        let server = MetaServer::start(SharingSettings::default());
        let begin = |caller: usize, client: usize| {
            server.answer(&caller.to_string(), asking(&client.to_string(), 1, &["x"]))
        };
        (0..CLIENTS_OF_CALLER_MAX).for_each(|client| drop(begin(0, client).unwrap()));
        let refusal = begin(0, CLIENTS_OF_CALLER_MAX).unwrap_err();
        assert!(refusal == Refusal::Full(CLIENTS_OF_CALLER_MAX) && refusal.may_pass());
        begin(0, 0).unwrap();
        let others = CLIENTS_MAX - CLIENTS_OF_CALLER_MAX;
        (0..others).for_each(|client| drop(begin(1 + client % 64, client).unwrap()));
        assert_eq!(begin(70, 0).unwrap_err(), Refusal::Full(CLIENTS_MAX));
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
            assert_eq!(is_of("lfs01/OST0007", name), is_meant, "{name}");
        }
    }

    #[test]
    fn each_start_is_another_epoch() {
        let epoch = || {
            let server = MetaServer::start(SharingSettings::default());
            server.answer("1", asking("a", 1, &[])).unwrap().epoch
        };
        assert_ne!(epoch(), epoch());
    }

    /// Not a bound, but what the documentation says; `cargo test --release -- --nocapture` prints it.
    #[test]
    fn how_long_an_answer_takes() {
        let server = settled(SharingSettings { classes: BTreeMap::new(), ..Default::default() });
        let targets: Vec<String> = (0..64).map(|n| format!("lfs01/OST{n:04x}")).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let mut last = vec![Answer::default(); 16];
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
