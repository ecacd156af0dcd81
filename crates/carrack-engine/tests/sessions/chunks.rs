//! Sessions that take their work in chunks, several of them for one transfer (Y3): each file arrives once, in
//! any session.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_engine::{
    AbortHandle, ChunkFeedHandle, ChunkOfEntries, ChunkWorkKind, EndSettings, JournalSettings, SessionRole,
    SourceChunkFeed, TransferIdentity, TransferObserver, TransferRequest, copy_local, copy_with_peer,
};
use carrack_model::{
    AgreedTransferSpec, ByteRange, DeviceNumber, ExtraMetadata, FailureKind, FileFlags, HardLinkTarget,
    IMMUTABLE, LinkPolicy, Metadata, RelPath, SchedulingOptions, SpecialFile, Timestamp, TransferEvent,
    TransferExecutionId, TransferId, TransferSummary, UserNotice,
};
use carrack_plan::ScheduledRateLimits;
use carrack_storage::{PathBase, RootDirectory};
use carrack_wire::EntryTableEncoder;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::common;
use crate::common::{
    Recorder, Way, assert_same, channel, noise, peer, serve_any, transfer, wait_until, write,
};

const MIB: u64 = 1 << 20;

/// A feed that hands out chunks, and waits for more until it is ended.
#[derive(Default)]
struct TestFeed {
    state: Mutex<FeedState>,
    changed: Condvar,
}

#[derive(Default)]
struct FeedState {
    waiting: VecDeque<ChunkOfEntries>,
    settled: Vec<u64>,
    is_ended: bool,
}

impl TestFeed {
    fn of(chunks: impl IntoIterator<Item = ChunkOfEntries>) -> Arc<TestFeed> {
        let feed = TestFeed::open(chunks);
        feed.end();
        feed
    }

    fn open(chunks: impl IntoIterator<Item = ChunkOfEntries>) -> Arc<TestFeed> {
        let state = FeedState { waiting: chunks.into_iter().collect(), ..FeedState::default() };
        Arc::new(TestFeed { state: Mutex::new(state), ..TestFeed::default() })
    }

    fn end(&self) {
        self.state.lock().unwrap().is_ended = true;
        self.changed.notify_all();
    }

    fn settled(&self) -> Vec<u64> {
        let mut settled = self.state.lock().unwrap().settled.clone();
        settled.sort_unstable();
        settled
    }
}

impl SourceChunkFeed for TestFeed {
    fn next(&self, _idle_bytes: u64) -> Option<ChunkOfEntries> {
        let state = self.state.lock().unwrap();
        let is_waiting = |state: &mut FeedState| state.waiting.is_empty() && !state.is_ended;
        self.changed.wait_while(state, is_waiting).unwrap().waiting.pop_front()
    }

    fn threshold_bytes(&self) -> u64 {
        2 * MIB
    }

    fn mark_chunk_completed(&self, number: u64) {
        self.state.lock().unwrap().settled.push(number);
    }

    fn close(&self) {
        self.end();
    }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Makes 300 small files and three large ones, of 6, 9 and 12 MiB.
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        for i in 0..300 {
            write(&place.source().join(format!("small/{}/{i}", i % 7)), &noise(i * 13, i as u64));
        }
        for i in 2..5 {
            write(&place.source().join(format!("large/{i}")), &noise(3 * i * MIB as usize + i, i as u64));
        }
        std::os::unix::fs::symlink("large/2", place.source().join("link")).unwrap();
        fs::create_dir(place.source().join("empty")).unwrap();
        place
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn sink(&self) -> PathBuf {
        self.dir.path().join("sink")
    }

    fn transfer(&self, run: u8, feed: &Arc<TestFeed>) -> TransferRequest {
        let source = self.source().join("");
        let basis = transfer(&[&source], &self.sink().join(""));
        TransferRequest {
            identity: Some(TransferIdentity {
                id: TransferId([9; 16]),
                run: TransferExecutionId([run; 16]),
                sources: vec![b"source".to_vec()],
                destination: b"sink".to_vec(),
                is_shared: true,
            }),
            settings: EndSettings {
                pool_bytes: 4 << 20,
                journal: JournalSettings {
                    group_time: Duration::from_millis(20),
                    ..JournalSettings::default()
                },
                ..basis.settings.clone()
            },
            spec: AgreedTransferSpec {
                recursive: true,
                slot_bytes: 128 << 10,
                streams: 2,
                ..basis.spec.clone()
            },
            feed: Some(ChunkFeedHandle(Arc::clone(feed) as Arc<dyn SourceChunkFeed>)),
            ..basis
        }
    }

    /// Returns a table of the entries at these paths below the source.
    fn table(&self, paths: &[&str]) -> Vec<u8> {
        let mut table = Vec::new();
        for path in paths {
            let path = Path::new(path);
            let directory = RelPath::new(path.parent().unwrap().as_os_str().as_bytes()).unwrap();
            let found = fs::symlink_metadata(self.source().join(path)).unwrap();
            let name = path.file_name().unwrap().as_bytes();
            let mut writer = EntryTableEncoder::new(&mut table);
            writer.begin_section(&directory, None);
            match found.is_symlink() {
                true => {
                    let target = fs::read_link(self.source().join(path)).unwrap();
                    writer.add_symlink(name, target.as_os_str().as_bytes(), &metadata(&found), found.ino());
                }
                false => writer.add_regular(name, found.size(), &metadata(&found), found.ino(), None),
            }
        }
        table
    }

    fn files(&self, number: u64, paths: &[&str]) -> ChunkOfEntries {
        let table = self.table(paths);
        ChunkOfEntries { number, work: ChunkWorkKind::Files, is_repeated: false, table, source_name: None }
    }

    fn small(&self, number: u64, part: usize) -> ChunkOfEntries {
        let paths: Vec<_> =
            (0..300).filter(|i| i % 3 == part).map(|i| format!("small/{}/{i}", i % 7)).collect();
        self.files(number, &paths.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns a chunk of further names for these files, in the same directories, for the end of the
    /// transfer.
    fn names_again(&self, number: u64, paths: &[&str]) -> ChunkOfEntries {
        let mut table = Vec::new();
        for path in paths {
            let (directory, name) = path.rsplit_once('/').unwrap();
            let found = fs::metadata(self.source().join(path)).unwrap();
            let same_as =
                Some(HardLinkTarget { path: RelPath::new(path.as_bytes()).unwrap(), size: found.size() });
            let extras = ExtraMetadata { same_as, ..ExtraMetadata::default() };
            EntryTableEncoder::new(&mut table)
                .begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
            let mut writer = EntryTableEncoder::new(&mut table).with_extras(Some(&extras));
            writer.add_regular(format!("{name}-again").as_bytes(), 0, &metadata(&found), found.ino(), None);
        }
        ChunkOfEntries { table, ..self.files(number, &[]) }
    }

    /// Returns a chunk of one device, which needs no source file: it is made from its number.
    fn device(&self, number: u64) -> ChunkOfEntries {
        let mut table = Vec::new();
        let null = SpecialFile::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_special(b"null", &null, &Metadata::default(), 0);
        ChunkOfEntries { table, ..self.files(number, &[]) }
    }

    fn part(&self, number: u64, path: &str, offset: u64, len: u64) -> ChunkOfEntries {
        let work = ChunkWorkKind::Part(ByteRange::new(offset, len));
        ChunkOfEntries { work, ..self.files(number, &[path]) }
    }

    /// Returns the chunk that closes all directories.
    fn close(&self, number: u64) -> ChunkOfEntries {
        let mut table = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(path) = waiting.pop() {
            let full = self.source().join(&path);
            let relative = RelPath::new(path.as_os_str().as_bytes()).unwrap();
            EntryTableEncoder::new(&mut table)
                .begin_section(&relative, Some(&metadata(&fs::metadata(&full).unwrap())));
            let entries = fs::read_dir(&full).unwrap().map(Result::unwrap);
            let directories = entries.filter(|entry| entry.file_type().unwrap().is_dir());
            waiting.extend(directories.map(|entry| path.join(entry.file_name())));
        }
        ChunkOfEntries { number, work: ChunkWorkKind::Close, is_repeated: false, table, source_name: None }
    }

    fn run(&self, way: Way, run: u8, feed: &Arc<TestFeed>) -> (TransferSummary, Recorder) {
        let observer = Recorder::default();
        let abort = AbortHandle::new().unwrap();
        let outcome = copy(way, &self.transfer(run, feed), &observer, &abort);
        outcome.result.unwrap();
        (outcome.summary, observer)
    }

    /// Returns all names at the sink; sessions may make and remove some meanwhile.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut left = vec![self.sink()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(path.clone());
                }
                names.push(path.strip_prefix(self.sink()).unwrap().to_string_lossy().into_owned());
            }
        }
        names.sort();
        names
    }

    fn hidden(&self) -> usize {
        self.names().iter().filter(|name| name.contains(".carrack-")).count()
    }
}

fn metadata(found: &fs::Metadata) -> Metadata {
    let mtime = Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
    Metadata { mode: found.mode() & 0o7777, mtime }
}

fn copy(
    way: Way,
    transfer: &TransferRequest,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
) -> carrack_engine::TransferOutcome {
    match way {
        Way::Local => copy_local(transfer, observer, abort),
        Way::Push | Way::Pull => {
            let (here, there) = channel();
            let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
            let outcome = copy_with_peer(transfer, SessionRole::Source, peer(here), observer, abort);
            let _ = serving.join().unwrap();
            outcome
        }
    }
}

/// The session that ends the transfer makes further names, only for files that another session has written.
#[test]
fn a_name_is_given_to_what_another_session_wrote() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        for path in ["small/0/0", "large/2"] {
            fs::hard_link(place.source().join(path), place.source().join(format!("{path}-again"))).unwrap();
        }
        let run = |run: u8, chunk: ChunkOfEntries| {
            let feed = TestFeed::of([chunk]);
            let mut transfer = place.transfer(run, &feed);
            transfer.settings.fidelity.kept.hard_links = true;
            let observer = Recorder::default();
            let outcome = copy(way, &transfer, &observer, &AbortHandle::new().unwrap());
            outcome.result.unwrap();
            (outcome.summary, observer)
        };
        run(0, place.small(1, 0));
        // The second file's first name is missing.
        let (summary, observer) = run(1, place.names_again(1, &["small/0/0", "large/2"]));
        assert_eq!((summary.files_done, summary.entries_failed), (1, 1));
        let failed = observer.failed();
        assert!(matches!(&failed[..], [(_, name)] if name == "2-again"), "{failed:?}");
        let inode = |path: &str| fs::metadata(place.sink().join(path)).map(|found| found.ino()).ok();
        assert!(inode("small/0/0").is_some() && inode("small/0/0") == inode("small/0/0-again"));
        assert_eq!(inode("large/2-again"), None);
    }
}

#[test]
fn what_is_lost_is_told_before_its_chunk_is_settled() {
    let place = Place::new();
    let feed = TestFeed::open([place.device(1)]);
    let mut transfer = place.transfer(0, &feed);
    transfer.settings.special_modes = false;
    transfer.settings.fidelity.kept.devices = true;
    let observer = Recorder::default();
    thread::scope(|scope| {
        let session = scope.spawn(|| copy(Way::Local, &transfer, &observer, &AbortHandle::new().unwrap()));
        wait_until("the chunk is settled", || feed.settled() == [1]);
        let loss = |event| match event {
            TransferEvent::Notice(UserNotice::Loss(loss)) => Some(loss.to_string()),
            _ => None,
        };
        let told: Vec<String> = observer.events().into_iter().filter_map(loss).collect();
        assert_eq!(told, ["1 device not made: the sink makes none"]);
        feed.end();
        session.join().unwrap().result.unwrap();
    });
}

/// Two concurrent sessions share one file in parts, and the small files; then the file gets its name, and the
/// transfer ends.
#[test]
fn two_sessions_carry_one_transfer() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let half = 6 * MIB + 5;
        let size = fs::metadata(place.source().join("large/4")).unwrap().size();
        let feeds = [
            TestFeed::of([
                place.small(1, 0),
                place.part(2, "large/4", 0, half),
                place.files(3, &["link", "large/2"]),
            ]),
            TestFeed::of([
                place.part(1, "large/4", half, size - half),
                place.small(2, 1),
                place.files(3, &["large/3"]),
                place.small(4, 2),
            ]),
        ];
        thread::scope(|scope| {
            for (run, feed) in feeds.iter().enumerate() {
                scope.spawn({
                    let place = &place;
                    move || place.run(way, run as u8, feed)
                });
            }
        });
        assert_eq!((feeds[0].settled(), feeds[1].settled()), (vec![1, 2, 3], vec![1, 2, 3, 4]));
        assert!(!place.sink().join("large/4").exists(), "not before it is finished");
        let finish = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(1, &["large/4"]) };
        let last = TestFeed::of([finish]);
        place.run(way, 8, &last);
        assert_eq!(last.settled(), [1]);
        place.run(way, 9, &TestFeed::of([place.close(1)]));
        assert_same(&place.source(), &place.sink());
        assert_eq!(place.hidden(), 0, "{:?}", place.names());
    }
}

#[test]
fn a_session_that_comes_too_late_leaves_nothing() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let late = TestFeed::open([]);
        thread::scope(|scope| {
            place.run(way, 1, &TestFeed::of([place.small(1, 0)]));
            let _ends = EndsLater(&late);
            scope.spawn(|| place.run(way, 2, &late));
            // A journal with its final name counts; the session removes an unfinished one (`.new`).
            let is_there = |name: &String| name.contains(".carrack-") && !name.ends_with(".new");
            wait_until("it has begun", || place.names().iter().filter(|name| is_there(name)).count() >= 3);
            place.run(way, 3, &TestFeed::of([place.close(1)]));
            assert_eq!(place.hidden(), 0, "{:?}", place.names());
            late.end();
        });
        place.run(way, 4, &TestFeed::of([]));
        assert_eq!(place.hidden(), 0, "{:?}", place.names());
        let modified = |directory: PathBuf| fs::metadata(directory).unwrap().modified().unwrap();
        assert_eq!(modified(place.source()), modified(place.sink()));
    }
}

/// Ends a feed even if the test fails: otherwise the test would hang, as the session waits for the feed.
struct EndsLater<'a>(&'a TestFeed);

impl Drop for EndsLater<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A chunk is settled while the session continues and waits for the next.
#[test]
fn a_chunk_is_settled_before_the_session_ends() {
    let place = Place::new();
    let feed = TestFeed::open([place.small(1, 0), place.files(2, &["large/3", "link"])]);
    thread::scope(|scope| {
        let running = scope.spawn(|| place.run(Way::Push, 1, &feed));
        wait_until("both are settled", || feed.settled() == [1, 2]);
        feed.state.lock().unwrap().waiting.push_back(place.small(3, 1));
        feed.changed.notify_all();
        wait_until("the next one is", || feed.settled() == [1, 2, 3]);
        assert!(!running.is_finished());
        feed.end();
        running.join().unwrap();
    });
    assert_eq!(
        fs::read(place.sink().join("large/3")).unwrap(),
        fs::read(place.source().join("large/3")).unwrap()
    );
}

#[test]
fn what_another_session_has_brought_does_not_come_again() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let size = fs::metadata(place.source().join("large/4")).unwrap().size();
        let chunks = |is_repeated| {
            let chunks = [
                place.small(1, 0),
                place.part(2, "large/4", 0, 5 * MIB),
                place.part(3, "large/4", 5 * MIB, size - 5 * MIB),
                place.files(4, &["large/2", "large/3"]),
            ];
            chunks.map(|chunk| ChunkOfEntries { is_repeated, ..chunk })
        };
        place.run(way, 1, &TestFeed::of(chunks(false)));
        let again = TestFeed::of(chunks(true));
        let (summary, _) = place.run(way, 2, &again);
        assert_eq!((summary.bytes_done, again.settled()), (0, vec![1, 2, 3, 4]), "{way:?}: {summary:?}");
        let finish = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(1, &["large/4"]) };
        place.run(way, 3, &TestFeed::of([finish.clone()]));
        // The answer was lost: all chunks are repeated, parts included.
        let (summary, _) = place.run(way, 4, &TestFeed::of(chunks(true)));
        assert_eq!(summary.bytes_done, 0, "{way:?}");
        place.run(way, 5, &TestFeed::of([ChunkOfEntries { is_repeated: true, ..finish }]));
        let rest = [place.small(1, 1), place.small(2, 2), place.files(3, &["link"]), place.close(4)];
        place.run(way, 6, &TestFeed::of(rest));
        assert_same(&place.source(), &place.sink());
        assert_eq!(place.hidden(), 0, "{:?}", place.names());
    }
}

/// The rate changes while the session works, and while it waits for work.
#[test]
fn a_session_of_chunks_follows_a_timetable() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let size = fs::metadata(place.source().join("large/4")).unwrap().size();
        let (first, second) =
            (place.part(1, "large/4", 0, 6 * MIB), place.part(2, "large/4", 6 * MIB, size - 6 * MIB));
        let feed = TestFeed::open([first, second]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let after = |seconds| now + Duration::from_secs(seconds);
        // Three seconds at 2 MiB/s are half of the file; the other half takes no time.
        let steps = vec![(now, 2 * MIB), (after(3), 0), (after(6), 4 * MIB)];
        let whole = place.transfer(1, &feed);
        let settings =
            EndSettings { timetable: Some(ScheduledRateLimits::new(steps)), ..whole.settings.clone() };
        let timed = TransferRequest { settings, ..whole };
        let took = |began: Instant| began.elapsed().as_secs_f64();
        thread::scope(|scope| {
            let _ends = EndsLater(&feed);
            let began = Instant::now();
            let session =
                scope.spawn(|| copy(way, &timed, &Recorder::default(), &AbortHandle::new().unwrap()));
            wait_until("the parts are settled", || feed.settled() == [1, 2]);
            assert!((2.0..5.5).contains(&took(began)), "{way:?}: {}", took(began));
            // After six seconds the rate is limited again, for 9 MiB.
            thread::sleep(Duration::from_millis(6_100).saturating_sub(began.elapsed()));
            let began = Instant::now();
            feed.state.lock().unwrap().waiting.push_back(place.files(3, &["large/3"]));
            feed.changed.notify_all();
            wait_until("the last file is settled", || feed.settled() == [1, 2, 3]);
            assert!((1.5..10.0).contains(&took(began)), "{way:?}: {}", took(began));
            feed.end();
            session.join().unwrap().result.unwrap();
        });
    }
}

/// Ends the session after about `bytes` bytes.
struct Watch<'a> {
    abort: &'a AbortHandle,
    bytes: u64,
}

impl TransferObserver for Watch<'_> {
    fn handle_event(&self, event: &TransferEvent) {
        if let TransferEvent::Progress(progress) = event
            && progress.bytes_done >= self.bytes
        {
            self.abort.interrupt();
        }
    }
}

#[test]
fn of_a_part_that_was_begun_only_the_rest_comes() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let size = fs::metadata(place.source().join("large/4")).unwrap().size();
        let parts = |is_repeated| {
            let parts =
                [place.part(1, "large/4", 0, 4 * MIB), place.part(2, "large/4", 4 * MIB, size - 4 * MIB)];
            parts.map(|part| ChunkOfEntries { is_repeated, ..part })
        };
        let feed = TestFeed::of(parts(false));
        let whole = place.transfer(1, &feed);
        let scheduling = SchedulingOptions { rate: 8_000_000, ..SchedulingOptions::default() };
        let slow =
            TransferRequest { settings: EndSettings { scheduling, ..whole.settings.clone() }, ..whole };
        let abort = AbortHandle::new().unwrap();
        let outcome = copy(way, &slow, &Watch { abort: &abort, bytes: 7 * MIB }, &abort);
        assert!(outcome.result.is_err(), "it was too fast");
        let (summary, _) = place.run(way, 2, &TestFeed::of(parts(true)));
        let moved = summary.bytes_done;
        assert!((1..size - 4 * MIB).contains(&moved), "{way:?}: {moved} of {size} came again");
        let finish = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(1, &["large/4"]) };
        place.run(way, 3, &TestFeed::of([finish]));
        assert_eq!(
            fs::read(place.sink().join("large/4")).unwrap(),
            fs::read(place.source().join("large/4")).unwrap()
        );
    }
}

#[test]
fn holes_of_a_file_in_parts_stay_holes() {
    for way in [Way::Local, Way::Push] {
        let place = Place { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
        fs::create_dir(place.source()).unwrap();
        let path = place.source().join("image");
        let image = fs::File::create(&path).unwrap();
        // Of the parts of 4 MiB, one has data after a hole, two have no data, and the last ends in a hole.
        image.write_all_at(&noise(MIB as usize, 1), 3 * MIB).unwrap();
        image.write_all_at(&noise(MIB as usize, 2), 12 * MIB).unwrap();
        image.set_len(16 * MIB + 7).unwrap();
        if fs::metadata(&path).unwrap().blocks() * 512 > 3 * MIB {
            println!("skipped: no holes on the file system of {}", path.display());
            return;
        }
        let parts = [(0, 4), (4, 4), (8, 4), (12, 4)].map(|(from, len)| (from * MIB, len * MIB));
        let parts = parts.into_iter().chain([(16 * MIB, 7)]).enumerate();
        let chunks: Vec<ChunkOfEntries> =
            parts.map(|(number, (from, len))| place.part(number as u64 + 1, "image", from, len)).collect();
        // One session copies the end of the file before another copies the beginning.
        let (of_first, of_second) = chunks.split_at(2);
        place.run(way, 1, &TestFeed::of(of_second.to_vec()));
        place.run(way, 2, &TestFeed::of(of_first.to_vec()));
        // Repeated chunks are already at the sink.
        let again = of_first.iter().map(|chunk| ChunkOfEntries { is_repeated: true, ..chunk.clone() });
        let (summary, _) = place.run(way, 3, &TestFeed::of(again.collect::<Vec<_>>()));
        assert_eq!(summary.entries_failed, 0);
        let finish = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(1, &["image"]) };
        let (summary, _) = place.run(way, 4, &TestFeed::of([finish]));
        assert_eq!((summary.files_done, summary.entries_failed), (1, 0));
        let copy = place.sink().join("image");
        assert!(fs::read(&copy).unwrap() == fs::read(&path).unwrap(), "{way:?}");
        let held = fs::metadata(&copy).unwrap().blocks() * 512;
        assert!(held < 3 * MIB, "{way:?}: {held} bytes on the storage");
    }
}

#[test]
fn a_file_that_changed_is_not_put_together_of_two_versions() {
    let place = Place::new();
    let size = fs::metadata(place.source().join("large/4")).unwrap().size();
    let second = place.part(1, "large/4", 4 * MIB, size - 4 * MIB);
    place.run(Way::Push, 1, &TestFeed::of([place.part(1, "large/4", 0, 4 * MIB)]));
    let discard = ChunkOfEntries { work: ChunkWorkKind::Discard, ..place.files(1, &["large/4"]) };
    write(&place.source().join("large/4"), &noise(size as usize, 77));
    let feed = TestFeed::of([second]);
    let (summary, observer) = place.run(Way::Push, 2, &feed);
    assert_eq!((summary.entries_failed, feed.settled()), (1, vec![1]));
    assert_eq!(observer.failed()[0].0, FailureKind::Changed);
    let temporary = || place.names().iter().filter(|name| name.contains(".4.carrack-")).count();
    assert_eq!(temporary(), 1);
    // The discarded parts belong to the file that the scan found; the source's file has changed since.
    let (summary, _) = place.run(Way::Push, 3, &TestFeed::of([discard]));
    assert_eq!((summary.entries_failed, temporary()), (0, 0), "{:?}", place.names());
    assert!(!place.sink().join("large/4").exists());
}

/// Many parts of one file are in work at the same time: they share the open file, and its checks for changes.
#[test]
fn a_file_of_many_parts_arrives_whole() {
    let place = Place::new();
    let path = place.source().join("large/4");
    let size = fs::metadata(&path).unwrap().size();
    let step = 64 << 10;
    let offsets = (0..size).step_by(step as usize);
    let parts = offsets.zip(0..).map(|(at, number)| place.part(number, "large/4", at, step.min(size - at)));
    let feed = TestFeed::open(parts);
    let number = size.div_ceil(step);
    let (summary, observer) = thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("all parts", || feed.settled().len() as u64 == number);
            let rest = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(number, &["large/4"]) };
            feed.state.lock().unwrap().waiting.push_back(rest);
            feed.end();
        });
        place.run(Way::Push, 1, &feed)
    });
    assert_eq!((summary.files_done, summary.entries_failed), (1, 0), "{:?}", observer.failures());
    assert_eq!(feed.settled(), (0..=number).collect::<Vec<_>>());
    assert_same(&path, &place.sink().join("large/4"));
}

/// Somebody removes the temporary file of a file in parts: what was in it is not counted for another one, in
/// this run and in the next.
#[test]
fn a_file_in_parts_that_is_removed_meanwhile_comes_again_as_a_whole() {
    for way in [Way::Local, Way::Push] {
        let place = Place::new();
        let size = fs::metadata(place.source().join("large/4")).unwrap().size();
        let parts = [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, size - 8 * MIB)];
        let part = |number: usize| place.part(number as u64, "large/4", parts[number].0, parts[number].1);
        let finish = || ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(9, &["large/4"]) };
        let feed = TestFeed::open([part(0)]);
        let (summary, observer) = thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("a part", || feed.settled() == [0]);
                // Its record is made within 20 ms.
                thread::sleep(Duration::from_millis(300));
                let temporary = place.names().into_iter().find(|name| name.contains(".4.carrack-")).unwrap();
                fs::remove_file(place.sink().join(temporary)).unwrap();
                feed.state.lock().unwrap().waiting.extend([part(1), part(2)]);
                feed.changed.notify_all();
                wait_until("the others", || feed.settled() == [0, 1, 2]);
                feed.end();
            });
            place.run(way, 1, &feed)
        });
        assert_eq!(summary.entries_failed, 2, "{way:?}: {:?}", observer.failures());
        assert!(observer.failures()[0].contains("is gone"), "{:?}", observer.failures());
        // Another session knows the journal only.
        let (summary, _) = place.run(way, 2, &TestFeed::of([part(2)]));
        assert_eq!(summary.entries_failed, 0);
        let again = (0..3).map(|number| ChunkOfEntries { is_repeated: true, ..part(number) });
        let (summary, _) = place.run(way, 3, &TestFeed::of(again.collect::<Vec<_>>()));
        assert_eq!((summary.entries_failed, summary.bytes_done), (0, 8 * MIB), "the last part is there");
        let (summary, observer) = place.run(way, 4, &TestFeed::of([finish()]));
        assert_eq!((summary.files_done, summary.entries_failed), (1, 0), "{:?}", observer.failures());
        assert_same(&place.source().join("large/4"), &place.sink().join("large/4"));
    }
}

/// As before; the sessions that come after do not know the file that was removed.
#[test]
fn a_file_in_parts_does_not_end_without_those_that_were_removed() {
    let place = Place::new();
    let path = place.source().join("large/4");
    // The file ends in a hole, which no record holds.
    let size = fs::metadata(&path).unwrap().size() + 4 * MIB;
    fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    let parts = [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, size - 8 * MIB)];
    let part = |number: usize| place.part(number as u64, "large/4", parts[number].0, parts[number].1);
    let finish = || ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(9, &["large/4"]) };
    let (summary, _) = place.run(Way::Local, 1, &TestFeed::of([part(0)]));
    assert_eq!(summary.entries_failed, 0);
    let temporary = place.names().into_iter().find(|name| name.contains(".4.carrack-")).unwrap();
    fs::remove_file(place.sink().join(temporary)).unwrap();
    let (summary, _) = place.run(Way::Local, 2, &TestFeed::of([part(1), part(2)]));
    assert_eq!(summary.entries_failed, 0);
    let (summary, observer) = place.run(Way::Local, 3, &TestFeed::of([finish()]));
    assert_eq!((summary.files_done, summary.entries_failed), (0, 1));
    assert!(observer.failures()[0].contains("is gone"), "{:?}", observer.failures());
    assert!(!place.sink().join("large/4").exists());
    let again = (0..3).map(|number| ChunkOfEntries { is_repeated: true, ..part(number) });
    let (summary, _) = place.run(Way::Local, 4, &TestFeed::of(again.collect::<Vec<_>>()));
    assert_eq!(summary.entries_failed, 0);
    assert!(summary.bytes_done < 9 * MIB, "the other parts are there, and the hole counts: {summary:?}");
    let (summary, observer) = place.run(Way::Local, 5, &TestFeed::of([finish()]));
    assert_eq!((summary.files_done, summary.entries_failed), (1, 0), "{:?}", observer.failures());
    assert_same(&path, &place.sink().join("large/4"));
}

/// File flags are set by the session that ends the transfer: only then is all other work on a file done.
#[test]
fn flags_are_set_by_the_session_that_is_told_so() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
    let place = Place { dir };
    write(&place.source().join("f"), b"contents");
    write(&place.source().join("other"), b"contents");
    let has_flags = |name: &str| {
        let file = fs::File::open(place.sink().join(name)).unwrap();
        ioctl_getflags(file).unwrap().contains(IFlags::IMMUTABLE)
    };
    let probe = fs::File::create(place.dir.path().join("probe")).unwrap();
    if ioctl_setflags(&probe, IFlags::IMMUTABLE).is_err() {
        return println!("skipped: no file flags for this user in /dev/shm");
    }
    ioctl_setflags(&probe, IFlags::empty()).unwrap();
    let flags = Some(FileFlags::new(IMMUTABLE, IMMUTABLE));
    let chunk = |names: &[&str], at_end: bool| {
        let mut table = Vec::new();
        EntryTableEncoder::new(&mut table).begin_section(&RelPath::root(), None);
        for name in names {
            let found = fs::metadata(place.source().join(name)).unwrap();
            let same_as = HardLinkTarget { path: RelPath::new(name.as_bytes()).unwrap(), size: found.size() };
            let extras =
                ExtraMetadata { flags, same_as: at_end.then_some(same_as), ..ExtraMetadata::default() };
            let size = if at_end { 0 } else { found.size() };
            let mut writer = EntryTableEncoder::new(&mut table).with_extras(Some(&extras));
            writer.add_regular(name.as_bytes(), size, &metadata(&found), found.ino(), None);
        }
        ChunkOfEntries { table, ..place.files(1, &[]) }
    };
    let run = |run: u8, chunk: ChunkOfEntries| {
        let mut transfer = place.transfer(run, &TestFeed::of([chunk]));
        transfer.settings.fidelity.kept.file_flags = true;
        let outcome = copy(Way::Push, &transfer, &Recorder::default(), &AbortHandle::new().unwrap());
        outcome.result.unwrap();
        assert_eq!(outcome.summary.entries_failed, 0);
    };
    run(0, chunk(&["f", "other"], false));
    assert!(!has_flags("f") && !has_flags("other"));
    // Another file has taken the name.
    write(&place.sink().join("other"), b"changed");
    run(1, ChunkOfEntries { work: ChunkWorkKind::Close, ..chunk(&["f", "other"], true) });
    assert!(has_flags("f") && !has_flags("other"));
    ioctl_setflags(fs::File::open(place.sink().join("f")).unwrap(), IFlags::empty()).unwrap();
}

/// Returns the table that the scan makes of names whose links lead to files.
fn table_through(place: &Place, paths: &[&str]) -> Vec<u8> {
    let mut table = Vec::new();
    for path in paths {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let found = fs::metadata(place.source().join(path)).unwrap();
        EntryTableEncoder::new(&mut table).begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.add_regular(name.as_bytes(), found.size(), &metadata(&found), found.ino(), None);
    }
    table
}

/// A mover reads only within its base, and only the files that its scan has found, although the links change
/// meanwhile.
#[test]
fn links_that_are_exchanged_widen_nothing() {
    let exchange = |link: PathBuf, target: &Path| {
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    };
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let (base, outside) = (place.dir.path().to_path_buf(), tempfile::tempdir().unwrap());
    let time = 1_000_000_000;
    for (directory, byte) in
        [(base.join("inside"), b'i'), (base.join("other"), b'o'), (outside.path().join(""), b'x')]
    {
        fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in [("small", 1_000), ("large", 3 * MIB as usize), ("parts", 5 * MIB as usize)] {
            write(&directory.join(name), &vec![byte; bytes]);
            common::set_mtime(&directory.join(name), time, 0);
        }
    }
    fs::create_dir(place.source()).unwrap();
    for name in ["small", "large", "parts"] {
        for group in ["stays", "flips", "leaves"] {
            let link = place.source().join(format!("{group}-{name}"));
            std::os::unix::fs::symlink(format!("../inside/{name}"), link).unwrap();
        }
    }
    for group in ["flips", "leaves"] {
        std::os::unix::fs::symlink("../inside", place.source().join(format!("{group}-directory"))).unwrap();
    }
    let groups = |names: &[&str]| {
        let paths = ["stays", "flips", "leaves"]
            .iter()
            .flat_map(|group| names.iter().map(move |name| format!("{group}-{name}")));
        paths.collect::<Vec<String>>()
    };
    let whole = groups(&["small", "large"]);
    let within = ["flips", "leaves"].map(|group| format!("{group}-directory/small"));
    let paths: Vec<&str> = whole.iter().chain(&within).map(String::as_str).collect();
    let mut chunks = vec![ChunkOfEntries { table: table_through(&place, &paths), ..place.files(1, &[]) }];
    for (path, number) in groups(&["parts"]).iter().zip(2..) {
        let work = ChunkWorkKind::Part(ByteRange::new(0, 5 * MIB));
        chunks.push(ChunkOfEntries {
            table: table_through(&place, &[path]),
            work,
            ..place.files(number, &[])
        });
    }
    for name in ["small", "large", "parts"] {
        exchange(place.source().join(format!("flips-{name}")), &Path::new("../other").join(name));
        exchange(place.source().join(format!("leaves-{name}")), &outside.path().join(name));
    }
    exchange(place.source().join("flips-directory"), Path::new("../other"));
    exchange(place.source().join("leaves-directory"), outside.path());

    let mut transfer = place.transfer(1, &TestFeed::of(chunks));
    transfer.source_base = PathBase::within(vec![RootDirectory::open(&base).unwrap()]).unwrap();
    transfer.settings.selection.links = LinkPolicy::Followed;
    let observer = Recorder::default();
    let outcome = copy(Way::Push, &transfer, &observer, &AbortHandle::new().unwrap());
    outcome.result.unwrap();
    assert_eq!(
        (outcome.summary.files_done, outcome.summary.entries_failed),
        (2, 8),
        "{:?}",
        observer.failures()
    );
    let there: Vec<String> = place.names().into_iter().filter(|name| !name.contains(".carrack-")).collect();
    // A directory that was exchanged is made, and stays empty.
    assert_eq!(there, ["flips-directory", "stays-large", "stays-small"]);
    let told = observer.failures();
    let count = |words: &str| told.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count("taken its place"), 4, "{told:?}");
}

#[test]
fn nothing_is_finished_that_is_not_there() {
    let place = Place::new();
    let finish = ChunkOfEntries { work: ChunkWorkKind::Finish, ..place.files(1, &["large/4"]) };
    let (summary, _) = place.run(Way::Push, 1, &TestFeed::of([finish]));
    assert_eq!((summary.entries_failed, place.sink().join("large/4").exists()), (1, false));
}
