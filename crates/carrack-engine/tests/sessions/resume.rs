//! A transfer that ended early runs again: only the missing data is sent (L12).

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use carrack_engine::{
    AbortHandle, EndSettings, JournalSettings, SessionRole, TransferIdentity, TransferObserver,
    TransferRequest, copy_local, copy_with_peer,
};
use carrack_journal::{Journal, JournalWriterIdentity, RecordBatch};
use carrack_model::limits::STALL_MS_MIN;
use carrack_model::{
    AgreedTransferSpec, Durability, ObjectChecksumAlgorithm, RelPath, SchedulingOptions, TransferEvent,
    TransferExecutionId, TransferId, TransferSummary, UserNotice,
};
use carrack_wire::message::{
    ChunkNumberMessage, ControlMessage, DestinationRootMessage, OfferedEntriesMessage, OpenFileMessage,
    ReadRanges, SinkHandshakeFacts, WelcomeMessage,
};

use crate::common::scripted::{Scripted, Session, Victim, object, table};
use crate::common::{
    Recorder, WAYS, Way, channel, copy, noise, peer, serve_any, set_mtime, snapshot, transfer, write,
};

const FILES: usize = 4;
const FILE_BYTES: usize = 6 << 20;
const SMALL: usize = 400;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        for i in 0..FILES {
            write(&place.source().join(format!("large/{i}")), &noise(FILE_BYTES + i * 1000, i as u64));
        }
        for i in 0..SMALL {
            write(&place.source().join(format!("small/{}/{i}", i % 9)), &noise(i * 11, i as u64));
        }
        std::os::unix::fs::symlink("large/0", place.source().join("link")).unwrap();
        place
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn destination(&self) -> PathBuf {
        self.dir.path().join("there/new")
    }

    fn transfer(&self, run: u8) -> TransferRequest {
        fs::create_dir_all(self.dir.path().join("there")).unwrap();
        let transfer = transfer(&[&self.source()], &self.destination());
        TransferRequest {
            identity: Some(TransferIdentity {
                id: TransferId([7; 16]),
                run: TransferExecutionId([run; 16]),
                sources: vec![b"source".to_vec()],
                destination: b"there/new".to_vec(),
                is_shared: false,
            }),
            settings: EndSettings {
                pool_bytes: 4 << 20,
                journal: JournalSettings {
                    group_bytes: 1 << 20,
                    group_time: Duration::from_millis(20),
                    ..JournalSettings::default()
                },
                ..transfer.settings.clone()
            },
            spec: AgreedTransferSpec { slot_bytes: 128 << 10, streams: 2, ..transfer.spec.clone() },
            ..transfer
        }
    }

    /// Runs until about `bytes` bytes are copied.
    fn run_until(&self, way: Way, transfer: &TransferRequest, bytes: u64) -> TransferSummary {
        let slow = TransferRequest {
            settings: EndSettings {
                scheduling: SchedulingOptions { rate: 10_000_000, ..SchedulingOptions::default() },
                ..transfer.settings.clone()
            },
            ..transfer.clone()
        };
        let abort = AbortHandle::new().unwrap();
        let watch = Watch { abort: &abort, bytes };
        let outcome = match way {
            Way::Local => copy_local(&slow, &watch, &abort),
            Way::Push | Way::Pull => {
                let role = if way == Way::Push { SessionRole::Source } else { SessionRole::Sink };
                let (here, there) = channel();
                let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
                let outcome = copy_with_peer(&slow, role, peer(here), &watch, &abort);
                let _ = serving.join().unwrap();
                outcome
            }
        };
        assert!(outcome.result.is_err_and(|error| error.is_interrupted()), "{way:?}: it was too fast");
        outcome.summary
    }

    fn assert_complete(&self) {
        let (wanted, found) = (snapshot(&self.source()), snapshot(&self.destination()));
        let differ = |(path, kept): &(&PathBuf, &String)| found.get(*path) != Some(*kept);
        let differing: Vec<_> =
            wanted.iter().filter(differ).map(|(path, kept)| (path, kept, found.get(path))).collect();
        assert!(
            differing.is_empty(),
            "{} differ: {:?}",
            differing.len(),
            &differing[..differing.len().min(3)]
        );
        assert_eq!(wanted.len(), found.len());
        assert_eq!(self.journals(), Vec::<PathBuf>::new());
    }

    /// Asserts that all files are there; other entries may exist.
    fn assert_files(&self) {
        let (wanted, found) = (snapshot(&self.source()), snapshot(&self.destination()));
        for (path, kept) in wanted.iter().filter(|(_, kept)| kept.contains("Hash(")) {
            assert_eq!(found.get(path), Some(kept), "{path:?}");
        }
    }

    fn journals(&self) -> Vec<PathBuf> {
        let there = fs::read_dir(self.dir.path().join("there")).unwrap();
        there.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some()).collect()
    }
}

/// Ends the transfer after `bytes` bytes.
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

fn total_bytes(place: &Place) -> u64 {
    let large: usize = (0..FILES).map(|i| FILE_BYTES + i * 1000).sum();
    let small: usize = (0..SMALL).map(|i| i * 11).sum();
    assert!(place.source().is_dir());
    (large + small) as u64
}

#[test]
fn only_what_is_missing_travels() {
    for way in WAYS {
        for checksum in [ObjectChecksumAlgorithm::Xxh3, ObjectChecksumAlgorithm::Blake3] {
            let place = Place::new();
            let mut transfer = place.transfer(1);
            transfer.spec.checksum = checksum;
            let total = total_bytes(&place);
            let first = place.run_until(way, &transfer, total / 2);
            assert_eq!(place.journals().len(), 1, "{way:?}");
            transfer.identity.as_mut().unwrap().run = TransferExecutionId([2; 16]);
            let (outcome, recorder) = copy(way, &transfer);
            assert!(
                outcome.result.is_ok(),
                "{way:?} {checksum}: {:?} {:?}",
                outcome.result,
                recorder.failures()
            );
            let again = outcome.summary;
            assert_eq!(again.bytes_kept + again.bytes_done, total, "{way:?} {checksum}: {first:?} {again:?}");
            assert!(again.bytes_kept >= total / 2 - (4 << 20) - (1 << 20), "{way:?}: {first:?} {again:?}");
            place.assert_complete();
        }
    }
}

#[test]
fn a_file_that_changed_meanwhile_starts_again() {
    let place = Place::new();
    let transfer = place.transfer(1);
    place.run_until(Way::Local, &transfer, total_bytes(&place) / 2);
    // The files differ in the inode alone, in the time, or in the size.
    for i in 0..FILES {
        let path = place.source().join(format!("large/{i}"));
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let fresh = place.dir.path().join("fresh");
        fs::write(&fresh, noise(FILE_BYTES + i * 1000, 99 + i as u64)).unwrap();
        fs::File::open(&fresh).unwrap().set_modified(time).unwrap();
        fs::rename(&fresh, &path).unwrap();
    }
    for i in 0..SMALL {
        let path = place.source().join(format!("small/{}/{i}", i % 9));
        fs::write(&path, noise(i * 11, 1_000 + i as u64)).unwrap();
        set_mtime(&path, 1_000_000, i as u32);
    }
    let (outcome, recorder) = copy(Way::Local, &place.transfer(2));
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
    assert_eq!(outcome.summary.bytes_kept, 0);
    place.assert_complete();
}

#[test]
fn what_is_gone_at_the_destination_travels_again() {
    let place = Place::new();
    let transfer = place.transfer(1);
    place.run_until(Way::Local, &transfer, total_bytes(&place) / 2);
    let mut removed = 0;
    for entry in walk(&place.destination()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        removed += 1;
        match removed % 3 {
            0 => fs::remove_file(&entry).unwrap(),
            1 if name.contains(".carrack-") => {
                fs::File::options().write(true).open(&entry).unwrap().set_len(5).unwrap()
            }
            1 => fs::write(&entry, b"other").unwrap(),
            _ => {}
        }
    }
    assert!(removed > 1);
    let (outcome, recorder) = copy(Way::Local, &place.transfer(2));
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
    place.assert_complete();
}

#[test]
fn it_can_be_interrupted_again_and_again() {
    let place = Place::new();
    let total = total_bytes(&place);
    for (run, part) in [(1, 4), (2, 2)] {
        place.run_until(Way::Push, &place.transfer(run), total / part);
    }
    let (outcome, recorder) = copy(Way::Pull, &place.transfer(3));
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
    assert!(outcome.summary.bytes_kept > total / 4, "{:?}", outcome.summary);
    place.assert_complete();
}

#[test]
fn another_run_waits_while_one_is_at_it_and_goes_on_or_is_refused() {
    let place = Place::new();
    let transfer = place.transfer(1);
    let (abort, recorder) = (AbortHandle::new().unwrap(), Recorder::default());
    thread::scope(|scope| {
        let slow = TransferRequest {
            settings: EndSettings {
                scheduling: SchedulingOptions { rate: 4_000_000, ..SchedulingOptions::default() },
                ..transfer.settings.clone()
            },
            ..transfer.clone()
        };
        let (abort, recorder) = (&abort, &recorder);
        let first = scope.spawn(move || copy_local(&slow, recorder, abort));
        // A journal with its final name is locked.
        let is_there =
            || place.journals().iter().any(|path| path.extension().is_some_and(|end| end == "journal"));
        while !is_there() {
            thread::sleep(Duration::from_millis(5));
        }
        for way in [Way::Local, Way::Push] {
            let mut hasty = place.transfer(2);
            hasty.settings.stall = Duration::from_millis(STALL_MS_MIN.into());
            let (outcome, _) = copy(way, &hasty);
            let error = outcome.result.unwrap_err().to_string();
            assert!(error.contains("another process has the journal"), "{way:?}: {error}");
        }
        // The first run ends as soon as the second reports that it waits.
        let second = place.transfer(2);
        let (waits, own) =
            (EndsAnother { told: Recorder::default(), other: abort }, AbortHandle::new().unwrap());
        let (here, there) = channel();
        let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
        let outcome = copy_with_peer(&second, SessionRole::Source, peer(here), &waits, &own);
        let _ = serving.join().unwrap();
        assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, waits.told.failures());
        assert!(first.join().unwrap().result.unwrap_err().is_interrupted());
    });
    place.assert_complete();
}

/// Interrupts another transfer when its own reports that it waits.
struct EndsAnother<'a> {
    told: Recorder,
    other: &'a AbortHandle,
}

impl TransferObserver for EndsAnother<'_> {
    fn handle_event(&self, event: &TransferEvent) {
        self.told.handle_event(event);
        if let TransferEvent::Notice(UserNotice::Text(text)) = event
            && text.starts_with("waiting for the earlier session")
        {
            self.other.interrupt();
        }
    }
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    let warning = |event: &TransferEvent| match event {
        TransferEvent::Notice(UserNotice::Warning(text)) => Some(text.clone()),
        _ => None,
    };
    recorder.events().iter().filter_map(warning).collect()
}

#[test]
fn a_journal_that_is_no_good_is_a_warning() {
    let damage = |journal: &Path| fs::write(journal, b"").unwrap();
    let replace = |journal: &Path| {
        fs::remove_file(journal).unwrap();
        std::os::unix::fs::symlink("elsewhere", journal).unwrap();
    };
    for (way, spoil) in [(Way::Push, &damage as &dyn Fn(&Path)), (Way::Pull, &damage), (Way::Local, &replace)]
    {
        let place = Place::new();
        let mut transfer = place.transfer(1);
        transfer.sources = vec![format!("{}/", place.source().display()).into()];
        place.run_until(way, &transfer, total_bytes(&place) / 2);
        spoil(&place.journals()[0]);
        let (outcome, recorder) = copy(way, &transfer);
        assert!(outcome.result.is_ok(), "{way:?}: {:?} {:?}", outcome.result, recorder.failures());
        let told = warnings(&recorder);
        assert!(told.iter().any(|text| text.contains("the journal is damaged")), "{way:?}: {told:?}");
        place.assert_files();
        assert_eq!(place.journals(), Vec::<PathBuf>::new());
    }
}

#[test]
fn one_of_somebody_else_is_done_without() {
    let place = Place::new();
    let transfer = place.transfer(1);
    place.run_until(Way::Push, &transfer, total_bytes(&place) / 2);
    let journal = place.journals().remove(0);
    if std::os::unix::fs::chown(&journal, Some(4_242), None).is_err() {
        return println!("skipped: only root gives files away");
    }
    let mut elsewhere = place.transfer(1);
    elsewhere.settings.journal.directory = Some(journal.parent().unwrap().to_path_buf());
    let (outcome, _) = copy(Way::Push, &elsewhere);
    let error = outcome.result.unwrap_err().to_string();
    assert!(error.contains("belongs to another user"), "a directory that the user named: {error}");
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
    let told = warnings(&recorder);
    assert!(told.iter().any(|text| text.contains("the transfer has no journal")), "{told:?}");
    assert!(journal.exists());
}

#[test]
fn a_temporary_file_with_another_owner_or_name_is_not_gone_on_with() {
    for gives_away in [false, true] {
        // On a busy machine the interrupt may come between two files.
        let interrupted = |_| {
            let place = Place::new();
            place.run_until(Way::Push, &place.transfer(1), total_bytes(&place) / 2);
            let is_temporary = |path: &PathBuf| path.to_string_lossy().contains(".carrack-");
            let begun: Vec<_> = walk(&place.destination()).into_iter().filter(is_temporary).collect();
            (!begun.is_empty()).then_some((place, begun))
        };
        let (place, begun) = (0..10).find_map(interrupted).expect("a file that is begun");
        // Another user keeps each temporary file, as an open file or by another name.
        let mut kept = Vec::new();
        for (index, path) in begun.iter().enumerate() {
            let name = place.dir.path().join(format!("kept-{index}"));
            match gives_away {
                true if std::os::unix::fs::chown(path, Some(4_242), None).is_err() => {
                    return println!("skipped: only root gives files away");
                }
                true => {}
                false => fs::hard_link(path, &name).unwrap(),
            }
            kept.push((fs::File::open(path).unwrap(), fs::read(path).unwrap()));
        }
        let (outcome, recorder) = copy(Way::Push, &place.transfer(2));
        assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
        for (file, before) in kept {
            let mut after = Vec::new();
            (&file).read_to_end(&mut after).unwrap();
            assert!(after == before, "nobody wrote to it");
        }
        place.assert_complete();
    }
}

#[test]
fn directories_that_a_killed_session_left_open_get_their_modes_back() {
    let place = Place::new();
    let transfer = place.transfer(1);
    place.run_until(Way::Push, &transfer, total_bytes(&place) / 2);
    // The source has no such directory; only the journal has its mode.
    let other = place.destination().join("other");
    fs::create_dir(&other).unwrap();
    set_mode(&other, 0o755);
    let journals = fs::File::open(place.destination().parent().unwrap()).unwrap();
    let session = JournalWriterIdentity::of_this_process(TransferExecutionId([1; 16]), false).unwrap();
    let (journal, _) = Journal::open(journals.as_fd(), TransferId([7; 16]), &session).unwrap();
    let mut batch = RecordBatch::new();
    batch.add_mode(&RelPath::new(b"other").unwrap(), 0o555);
    journal.append(&batch, true).unwrap();
    drop(journal);
    let (outcome, recorder) = copy(Way::Push, &place.transfer(2));
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, recorder.failures());
    assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o7777, 0o555);
    place.assert_files();
    assert_eq!(place.journals(), Vec::<PathBuf>::new());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn every_durability_resumes() {
    for durability in [Durability::Each, Durability::Group, Durability::End] {
        let place = Place::new();
        let mut transfer = place.transfer(1);
        transfer.settings.journal.durability = durability;
        let total = total_bytes(&place);
        place.run_until(Way::Push, &transfer, total / 2);
        let (outcome, recorder) = copy(Way::Push, &transfer);
        assert!(outcome.result.is_ok(), "{durability}: {:?} {:?}", outcome.result, recorder.failures());
        assert!(outcome.summary.bytes_kept > total / 4, "{durability}: {:?}", outcome.summary);
        place.assert_complete();
    }
}

#[test]
fn without_a_journal_everything_travels_again() {
    let place = Place::new();
    let mut transfer = place.transfer(1);
    transfer.settings.journal.is_on = false;
    fs::create_dir_all(place.destination()).unwrap();
    transfer.sources = vec![format!("{}/", place.source().display()).into()];
    place.run_until(Way::Local, &transfer, total_bytes(&place) / 2);
    assert!(place.journals().is_empty());
    assert!(walk(&place.destination()).iter().all(|path| !path.to_string_lossy().contains(".carrack-")));
    let (outcome, _) = copy(Way::Local, &transfer);
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.summary.bytes_done, total_bytes(&place));
}

#[test]
fn journals_lie_where_they_are_wanted() {
    let place = Place::new();
    let elsewhere = place.dir.path().join("journals");
    fs::create_dir(&elsewhere).unwrap();
    let mut transfer = place.transfer(1);
    transfer.settings.journal.directory = Some(elsewhere.clone());
    place.run_until(Way::Local, &transfer, total_bytes(&place) / 2);
    assert!(place.journals().is_empty());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    let (outcome, _) = copy(Way::Local, &transfer);
    assert!(outcome.result.is_ok() && outcome.summary.bytes_kept > 0);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    place.assert_complete();
}

fn walk(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path).unwrap().is_dir() {
            true => found.extend(walk(&path)),
            false => found.push(path),
        }
    }
    found
}

/// The test plays a source that reads its file with sendfile(2): it confirms two of four objects, as the
/// others may be zeros. The next session finds two ranges.
#[test]
fn only_ranges_that_the_source_confirms_are_recorded() {
    const SLOT: u64 = 128 << 10;
    fn begin(place: &Place, run: u8) -> (Session, SinkHandshakeFacts) {
        // The contents of a directory may have any name.
        let mut transfer = TransferRequest { sources: vec!["/nothing/".into()], ..place.transfer(run) };
        transfer.spec.checksum = ObjectChecksumAlgorithm::None;
        let spec = transfer.spec.clone();
        let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Sink);
        session.peer.preambles();
        let ControlMessage::Hello(hello) = session.peer.message() else { panic!("no hello") };
        session.peer.say(ControlMessage::Welcome(WelcomeMessage {
            place: Some(DestinationRootMessage::default()),
            lanes: 1,
            ..WelcomeMessage::default()
        }));
        session.peer.dial_failed_back(&spec);
        (session, hello.sink.unwrap())
    }

    let place = Place::new();
    fs::create_dir_all(place.destination()).unwrap();
    let table = table("", &[(b"f", 4 * SLOT)]);

    let (mut session, facts) = begin(&place, 1);
    assert!(facts.takes_confirmations && !facts.resumes);
    let peer = &mut session.peer;
    let message =
        OpenFileMessage { id: 1, table: table.clone(), confirms: true, ..OpenFileMessage::default() };
    peer.say(ControlMessage::OpenFile(message));
    (0..4).for_each(|number| peer.frame(&object(number + 1, 1, number * SLOT, &[7; SLOT as usize])));
    let mut written = 0;
    while written < 4 {
        if let ControlMessage::ObjectsDone(done) = peer.message() {
            written += done.written.len();
        }
    }
    settle(peer, 1);
    peer.say(ControlMessage::RangesRead(ReadRanges { id: 1, ranges: vec![0, SLOT, 2 * SLOT, SLOT] }));
    settle(peer, 2);
    assert!(session.hang_up().result.is_err());

    let (mut session, facts) = begin(&place, 2);
    assert!(facts.resumes);
    session.peer.say(ControlMessage::Offer(OfferedEntriesMessage { id: 1, table }));
    let wanted = loop {
        if let ControlMessage::Wanted(wanted) = session.peer.message() {
            break wanted;
        }
    };
    assert_eq!(wanted.held.len(), 1);
    assert_eq!(wanted.held[0].ranges, [0, SLOT, 2 * SLOT, SLOT]);
    assert!(session.hang_up().result.is_err());
}

/// Has everything recorded that the sink may record.
fn settle(peer: &mut Scripted, number: u64) {
    peer.say(ControlMessage::Settle(ChunkNumberMessage { number }));
    while !matches!(peer.message(), ControlMessage::Settled(mark) if mark.number == number) {}
}
