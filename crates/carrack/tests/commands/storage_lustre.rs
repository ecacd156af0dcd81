//! The whole path to and from a striped file system: the double of Lustre (`testbed/lustre`), with a few
//! targets.
//!
//! Each test has a double of its own and is skipped, with its reason, where mounts are not allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use carrack_layout::{
    ComponentGeometry, FileSystems, LayoutFileToCreate, MountedFileSystem, RequestedLayout, StripeGeometry,
    StripeOutcome, StripePattern,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::common;
use crate::common::file_system::{FileSystem, layout, plant_large};
use crate::common::process::{assert_exit, json, run};
use crate::common::sshd::Sshd;
use crate::common::tree::{assert_same_to_the_second, noise, plant, plant_rich};

fn lustre(options: &[&str]) -> Option<FileSystem> {
    FileSystem::start("lustre", options)
}

/// Returns the bytes that were written to each target.
fn written(lustre: &FileSystem) -> Vec<u64> {
    let traffic = fs::read_to_string(lustre.path(".control/traffic")).unwrap();
    traffic.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_rich_tree_there_and_back() {
    let Some(lustre) = lustre(&["--stripe", "3:65536"]) else { return };
    lustre.takes_and_gives_back_as(plant_rich, assert_same_to_the_second);
}

#[test]
fn a_tree_there_and_back_past_the_page_cache() {
    let Some(lustre) = lustre(&["--direct", "--stripe", "2:1048576"]) else { return };
    lustre.takes_and_gives_back_as(plant, assert_same_to_the_second);
}

#[test]
fn one_slow_target_delays_and_harms_nothing() {
    let Some(lustre) = lustre(&["--stripe", "-1:1048576", "--delay-ms", "2:20"]) else { return };
    lustre.takes_and_gives_back_as(plant, assert_same_to_the_second);
    assert!(written(&lustre).iter().all(|&bytes| bytes > 0));
}

/// Time of a request to a slow target.
const SLOW: Duration = Duration::from_secs(4);

/// Copies a tree of small files to `to` until so many of healthy targets are there, or for a minute. Returns
/// the numbers of files of healthy and of slow targets, and how many requests each thread at a slow target
/// may have ended by then: none but on a loaded machine.
fn copied_until(
    lustre: &FileSystem,
    copy: &mut Command,
    healthy_count: usize,
    is_slow: impl Fn(&String) -> bool,
) -> (usize, usize, usize) {
    let began = Instant::now();
    let mut copy = copy.spawn().unwrap();
    let copied = |of_slow: bool| {
        let names = fs::read_dir(lustre.local("to")).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.') && is_slow(name) == of_slow).count()
    };
    while copied(false) < healthy_count && began.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
    let (of_healthy, of_slow) = (copied(false), copied(true));
    let counts = (of_healthy, of_slow, (began.elapsed().as_secs() / SLOW.as_secs()) as usize);
    copy.kill().unwrap();
    copy.wait().unwrap();
    counts
}

/// Small files wait in the queues of their targets: those of healthy ones are read while the first request of
/// a slow one is under way.
#[test]
fn small_files_of_healthy_targets_do_not_wait_for_a_slow_one() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    let mut slow = BTreeSet::new();
    for number in 0..160 {
        let path = lustre.path("tree").join(number.to_string());
        fs::write(&path, noise(300_000 + number)).unwrap();
        if layout(&path).bytes_on.contains_key("OST0000") {
            slow.insert(number.to_string());
        }
    }
    assert_eq!(slow.len(), 40, "the double has four targets");
    fs::write(lustre.path(".control/delay"), "0:4000").unwrap();
    let mut carrack = Command::new(env!("CARGO_BIN_EXE_carrack"));
    carrack.args(["cp", "-r", "--io-threads", "4", "--tune", "off", "--source-io", "buffered"]);
    carrack.args([lustre.path("tree"), lustre.local("to")]);
    let (of_healthy, of_slow, ended) = copied_until(&lustre, &mut carrack, 108, |name| slow.contains(name));
    fs::write(lustre.path(".control/delay"), "0:0").unwrap();
    assert!(of_healthy >= 108, "{of_healthy} of 120");
    assert!(of_slow <= 4 * (1 + ended), "{of_slow} of the slow target's: {ended} bundles, and one under way");
}

/// A bundle that takes seconds is recorded in parts, so that a copy that is killed meanwhile keeps what is in
/// place.
#[test]
fn a_killed_copy_keeps_the_small_files_that_are_in_place() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.local("tree")).unwrap();
    for number in 0..400 {
        fs::write(lustre.local("tree").join(number.to_string()), noise(1_000 + number)).unwrap();
    }
    for target in 0..4 {
        fs::write(lustre.path(".control/delay"), format!("{target}:20")).unwrap();
    }
    let arguments = ["cp", "-r", "--json", "--tune", "off", "--io-threads", "1"];
    let copy = || {
        let mut carrack = Command::new(env!("CARGO_BIN_EXE_carrack"));
        carrack.args(arguments).args([lustre.local("tree"), lustre.path("to")]);
        carrack
    };
    let in_place = || {
        let names = fs::read_dir(lustre.path("to")).into_iter().flatten().flatten();
        names.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".")).count()
    };
    let mut killed = copy().spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while in_place() < 150 && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = in_place();
    assert!((150..400).contains(&before), "{before} files were in place");
    for target in 0..4 {
        fs::write(lustre.path(".control/delay"), format!("{target}:0")).unwrap();
    }
    let output = run(&mut copy());
    assert_exit(&output, 0);
    let summary = json(&output).pop().unwrap();
    let kept = summary["entries_kept"].as_u64().unwrap();
    assert!((50..=before as u64).contains(&kept), "{kept} of {before} were kept: {summary}");
    assert_same_to_the_second(&lustre.local("tree"), &lustre.path("to"));
}

// Servers.

/// Returns the command with a client's list of connections in its `/proc`: the server of each OST. `None`,
/// with a printed reason, where there can be no such view.
fn carrack_with_servers(servers: &[&str]) -> Option<Command> {
    let command = || {
        let mut script = "mount -t tmpfs connections /proc/fs\n".to_owned();
        for (ost, server) in servers.iter().enumerate() {
            let directory = format!("/proc/fs/lustre/osc/lustre-double-OST{ost:04x}-osc-ffff8881");
            script += &format!("mkdir -p {directory}\necho {server} >{directory}/ost_conn_uuid\n");
        }
        script += "exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", &script, "sh", common::CARRACK]);
        command
    };
    let tried = command().arg("--version").output();
    if !tried.is_ok_and(|ran| ran.status.success()) {
        common::skip("no mount namespace of its own");
        return None;
    }
    Some(command())
}

/// Eight targets of each of two servers, of which one takes 4 s for each request: it gets its share of the
/// threads, and the files of the other server don't wait for the rest of its targets.
#[test]
fn files_of_a_healthy_server_do_not_wait_for_a_slow_one() {
    let servers = [["10.0.0.2@tcp"; 8], ["10.0.0.3@tcp"; 8]].concat();
    let Some(mut looker) = carrack_with_servers(&servers) else { return };
    let targets = tempfile::tempdir().unwrap();
    let targets = (0..16).map(|ost| targets.path().join(ost.to_string()).to_str().unwrap().to_owned());
    let Some(lustre) = lustre(&["--targets", &targets.collect::<Vec<_>>().join(",")]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    let names: Vec<String> = (0..320).map(|number| number.to_string()).collect();
    let paths: Vec<_> = names.iter().map(|name| lustre.path("tree").join(name)).collect();
    paths.iter().for_each(|path| fs::write(path, noise(60_000)).unwrap());
    let said = run(looker.args(["layout", "--json"]).args(&paths));
    assert_exit(&said, 0);
    let said = json(&said);
    let is_slow = |line: &serde_json::Value| line["targets"][0]["server"] == "10.0.0.2@tcp";
    let slow: BTreeSet<&String> =
        names.iter().zip(&said).filter(|(_, line)| is_slow(line)).map(|(name, _)| name).collect();
    assert_eq!((said.len(), slow.len()), (320, 160), "files are on the targets in turn: {}", said[0]);

    for ost in 0..8 {
        fs::write(lustre.path(".control/delay"), format!("{ost}:4000")).unwrap();
    }
    let Some(mut carrack) = carrack_with_servers(&servers) else { return };
    carrack.args(["cp", "-r", "--io-threads", "4", "--tune", "off", "--source-io", "buffered"]);
    carrack.args([lustre.path("tree"), lustre.local("to")]);
    let (of_healthy, of_slow, ended) = copied_until(&lustre, &mut carrack, 144, |name| slow.contains(name));
    for ost in 0..8 {
        fs::write(lustre.path(".control/delay"), format!("{ost}:0")).unwrap();
    }
    assert!(of_healthy >= 144, "{of_healthy} of 160");
    assert!(
        of_slow <= 4 + 2 * ended,
        "{of_slow} of the slow server's: a request to two of its eight targets, and a probe; {ended} of each ended"
    );

    let Some(mut verbose) = carrack_with_servers(&servers) else { return };
    let output = run(verbose.args(["cp", "-rv"]).args([lustre.path("tree"), lustre.local("again")]));
    assert_exit(&output, 0);
    let said = String::from_utf8_lossy(&output.stderr);
    let of_server =
        said.lines().filter(|line| line.contains("source targets") && line.ends_with("10.0.0.3@tcp"));
    assert_eq!(of_server.count(), 8, "{said}");
}

#[test]
fn from_one_striped_file_system_to_another() {
    let (Some(from), Some(to)) = (lustre(&["--stripe", "4:65536"]), lustre(&[])) else { return };
    plant_large(&from.path("tree"), 0);
    from.copy(&[&from.path("tree"), &to.path("tree")]);
    assert_same_to_the_second(&from.path("tree"), &to.path("tree"));
}

/// Lustre stores whole seconds; the fractions are no loss.
#[test]
fn whole_seconds_are_the_times_that_were_told() {
    let Some(lustre) = lustre(&["--stripe", "2:65536"]) else { return };
    let tree = lustre.local("tree");
    plant_rich(&tree);
    fs::hard_link(tree.join("sub/small"), tree.join("again")).unwrap();
    lustre.copy(&["-a".as_ref(), tree.as_os_str(), lustre.path("tree").as_os_str()]);
    assert_same_to_the_second(&tree, &lustre.path("tree"));
    let sync = |options: &[&str], from: &str, to: &str| {
        let mut command = Command::new(common::CARRACK);
        command.args(["sync", "-a"]).args(options).arg(from).arg(to);
        let listed = run(command.arg("--dry-run")).stdout;
        let listed = String::from_utf8_lossy(&listed);
        // Shown where the test fails.
        println!(
            "files to copy: {:#?}",
            listed.lines().filter(|path| !path.ends_with('/')).collect::<Vec<_>>()
        );
        let mut command = Command::new(common::CARRACK);
        let output = run(command.args(["sync", "-a", "--json"]).args(options).arg(from).arg(to));
        assert_exit(&output, 0);
        json(&output).pop().unwrap()["files_done"].as_u64().unwrap()
    };
    let (there, back) = (lustre.path("tree"), lustre.local("back"));
    let [tree, there, back] = [&tree, &there, &back].map(|path| format!("{}/", path.display()));
    assert_eq!(sync(&[], &tree, &there), 0);
    assert!(sync(&["--modify-window=-1"], &tree, &there) > 10);
    fs::write(lustre.local("tree/sub/deep/none"), "some").unwrap();
    assert_eq!(sync(&[], &tree, &there), 1);
    assert!(sync(&[], &there, &back) > 10);
    assert_eq!(sync(&[], &there, &back), 0);
}

// Layouts.

/// Returns the bytes by the targets' names, as `lfs` writes them.
fn by_name(bytes: &[u64]) -> BTreeMap<String, u64> {
    let named = bytes.iter().enumerate().map(|(ost, &bytes)| (format!("OST{ost:04x}"), bytes));
    named.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn a_layout_says_what_each_target_holds() {
    let Some(lustre) = lustre(&["--stripe", "3:65536"]) else { return };
    fs::write(lustre.path("f"), noise(1_000_001)).unwrap();
    let said = layout(&lustre.path("f"));
    assert_eq!(said.bytes_on, by_name(&written(&lustre)));
    assert_eq!((&*said.file_system, said.stripe_bytes, said.stripe_count), ("lustre", Some(65_536), Some(3)));
}

/// Returns a layout with the first MiB on the metadata target and the rest on one OST, in the format of
/// `docs/formats/layouts.md`.
fn data_on_mdt() -> Vec<u8> {
    const MIB: u64 = 1 << 20;
    let component = |pattern: u32, count: u16| {
        let head = [0x0BD1_0BD0, pattern, 0, 0, 0, 0, MIB as u32].map(u32::to_le_bytes).concat();
        [head, count.to_le_bytes().to_vec(), vec![0xff; 2]].concat()
    };
    let entry = |id: u32, start: u64, end: u64| {
        let at = 128 + 32 * (id - 1);
        let [id, at, bytes] = [id, at, 32].map(u32::to_le_bytes);
        [&id[..], &[0; 4], &start.to_le_bytes(), &end.to_le_bytes(), &at, &bytes, &[0; 16]].concat()
    };
    let head = [&[0xd0, 0x0b, 0xd6, 0x0b, 192, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0][..], &[0; 16]].concat();
    let entries = [entry(1, 0, MIB), entry(2, MIB, u64::MAX)].concat();
    [head, entries, component(0x100, 0), component(1, 1)].concat()
}

#[test]
fn data_on_a_metadata_target_is_told_by_its_name() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("d")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(lustre.path("d"), "lustre.lov", &data_on_mdt(), flags).unwrap();
    fs::write(lustre.path("d/f"), noise(3 << 20)).unwrap();
    let said = layout(&lustre.path("d/f"));
    let bytes: Vec<u64> = said.bytes_on.values().copied().collect();
    assert_eq!((said.bytes_on.keys().next().unwrap().as_str(), bytes), ("MDT0000", vec![1 << 20, 2 << 20]));
}

#[test]
fn a_wished_striping_is_what_files_get() {
    let Some(lustre) = lustre(&[]) else { return };
    plant_large(&lustre.local("tree"), 0);
    lustre.copy(&[
        "--stripe=3:131072".as_ref(),
        lustre.local("tree").as_os_str(),
        lustre.path("tree").as_os_str(),
    ]);
    assert_same_to_the_second(&lustre.local("tree"), &lustre.path("tree"));
    for entry in fs::read_dir(lustre.path("tree/large")).unwrap() {
        let said = layout(&entry.unwrap().path());
        assert_eq!((said.stripe_bytes, said.stripe_count, said.bytes_on.len()), (Some(131_072), Some(3), 3));
    }
}

#[test]
fn a_sources_striping_is_preserved() {
    let (Some(from), Some(to)) = (lustre(&["--stripe", "2:262144"]), lustre(&[])) else { return };
    plant_large(&from.path("tree"), 0);
    from.copy(&["--stripe=preserve".as_ref(), from.path("tree").as_os_str(), to.path("tree").as_os_str()]);
    assert_same_to_the_second(&from.path("tree"), &to.path("tree"));
    for entry in fs::read_dir(to.path("tree/large")).unwrap() {
        let said = layout(&entry.unwrap().path());
        assert_eq!((said.stripe_bytes, said.stripe_count), (Some(262_144), Some(2)));
    }
}

const MIB: u64 = 1 << 20;

fn file_to_create<'a>(directory: BorrowedFd<'a>, name: &'a str) -> LayoutFileToCreate<'a> {
    LayoutFileToCreate {
        directory,
        name: name.as_bytes(),
        flags: OFlags::RDWR | OFlags::CLOEXEC,
        mode: Mode::RUSR | Mode::WUSR,
        is_shared: false,
    }
}

/// Creates a file, or opens the one that another thread creates.
fn open_together(
    found: &MountedFileSystem,
    directory: BorrowedFd<'_>,
    name: &str,
    request: &RequestedLayout,
) -> File {
    let shared = LayoutFileToCreate { is_shared: true, ..file_to_create(directory, name) };
    match found.create(&shared, request) {
        Ok((file, outcome)) => {
            assert_eq!(outcome, StripeOutcome::Set);
            file.into()
        }
        Err(Errno::EXIST) => found.open_shared(&shared, request).unwrap().into(),
        Err(errno) => panic!("{errno}"),
    }
}

/// Sessions that create one file together all write to it with the requested striping: neither the default
/// nor a second file comes between its creation and its striping.
#[test]
fn sessions_that_create_a_file_together_stripe_it_as_requested() {
    const FILES: usize = 60;
    let request = RequestedLayout::Fixed { count: 3, stripe_bytes: Some(131_072), pool: None };
    for options in [&["--refuse-late-layouts"][..], &[]] {
        let Some(lustre) = lustre(options) else { return };
        let directory = File::open(lustre.path("")).unwrap();
        let found = FileSystems::new(&[]).unwrap().file_system_of(directory.as_fd()).unwrap();
        for number in 0..FILES {
            let name = &format!("f{number}");
            let (found, directory, request) = (&*found, directory.as_fd(), &request);
            thread::scope(|scope| {
                for session in 0..3 {
                    scope.spawn(move || {
                        let file = open_together(found, directory, name, request);
                        file.write_all_at(b"x", session).unwrap();
                    });
                }
            });
            let layout = layout(&lustre.path(name));
            assert_eq!((layout.stripe_bytes, layout.stripe_count), (Some(131_072), Some(3)), "{name}");
            assert_eq!(fs::read(lustre.path(name)).unwrap(), b"xxx", "{name}");
        }
    }
}

fn part(start: u64, end: u64, stripe_count: u32, pattern: StripePattern) -> ComponentGeometry {
    let stripe_bytes = if pattern == StripePattern::Metadata { end } else { MIB };
    ComponentGeometry { start, end, stripe_bytes, stripe_count, pool: None, pattern }
}

fn in_pool(component: ComponentGeometry) -> ComponentGeometry {
    ComponentGeometry { pool: Some("flash".to_owned()), ..component }
}

/// Returns layouts with names: those of one component, and those of several.
fn geometries() -> Vec<(&'static str, StripeGeometry)> {
    let (striped, overstriped) = (StripePattern::Striped, StripePattern::Overstriped);
    // The pool has two OSTs.
    let progressive = |count| vec![part(0, MIB, 1, striped), part(MIB, u64::MAX, count, striped)];
    let on_mdt = part(0, MIB, 0, StripePattern::Metadata);
    let named = [
        ("plain", vec![part(0, u64::MAX, 2, striped)]),
        ("pool", vec![in_pool(part(0, u64::MAX, 2, striped))]),
        ("overstriped", vec![part(0, u64::MAX, 6, overstriped)]),
        ("pfl", progressive(3)),
        ("pfl-in-pool", progressive(2).into_iter().map(in_pool).collect()),
        ("dom", vec![on_mdt.clone(), part(MIB, u64::MAX, 2, striped)]),
        ("dom-overstriped", vec![on_mdt, part(MIB, u64::MAX, 5, overstriped)]),
    ];
    named.map(|(name, components)| (name, StripeGeometry { components, mirrors: 1 })).into()
}

/// Returns the layout that a file has, or a directory gives to new files.
fn geometry(path: &Path) -> Option<StripeGeometry> {
    let (file, systems) = (File::open(path).unwrap(), FileSystems::new(&[]).unwrap());
    let found = systems.file_system_of(file.as_fd()).unwrap();
    if path.is_dir() {
        return found.own_default_geometry_of(file.as_fd());
    }
    found.layout_of(file.as_fd(), file.metadata().unwrap().len()).geometry
}

/// Plants a file of each layout, and a directory that gives it to new files.
fn plant_layouts(tree: &Path) {
    fs::create_dir(tree).unwrap();
    let systems = FileSystems::new(&[]).unwrap();
    let held = File::open(tree).unwrap();
    let found: &MountedFileSystem = &systems.file_system_of(held.as_fd()).unwrap();
    for (name, geometry) in geometries() {
        let like = RequestedLayout::Like(geometry.clone());
        let (file, outcome) = found.create(&file_to_create(held.as_fd(), name), &like).unwrap();
        assert_eq!(outcome, StripeOutcome::Set, "{name}");
        std::io::Write::write_all(&mut File::from(file), &noise(3_500_000)).unwrap();
        let inner = tree.join(format!("{name}.d"));
        fs::create_dir(&inner).unwrap();
        let directory = File::open(&inner).unwrap();
        assert_eq!(found.set_default(directory.as_fd(), &geometry), StripeOutcome::Set, "{name}");
        fs::write(inner.join("small"), name).unwrap();
    }
    fs::create_dir(tree.join("without")).unwrap();
}

/// Copies the tree with its layouts, and returns what was said.
fn preserve(from: &Path, to: &Path) -> String {
    let mut command = Command::new(common::CARRACK);
    let output = run(command.args(["cp", "-r", "--stripe=preserve"]).args([from, to]));
    assert_exit(&output, 0);
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn layouts_of_files_and_directories_are_preserved() {
    let options = ["--pool", "flash=1,3"];
    let (Some(from), Some(to)) = (lustre(&options), lustre(&options)) else { return };
    plant_layouts(&from.path("tree"));
    let said = preserve(&from.path("tree"), &to.path("tree"));
    assert!(!said.contains("not kept"), "{said}");
    assert_same_to_the_second(&from.path("tree"), &to.path("tree"));
    for (name, wanted) in geometries() {
        assert_eq!(geometry(&to.path("tree").join(name)), Some(wanted.clone()), "{name}");
        let directory = to.path("tree").join(format!("{name}.d"));
        for path in [directory.join("small"), directory] {
            assert_eq!(geometry(&path), Some(wanted.clone()), "{}", path.display());
        }
    }
    assert_eq!(geometry(&to.path("tree/without")), None, "as in the whole file system");
}

#[test]
fn what_is_not_kept_of_a_layout_is_told() {
    let (Some(from), Some(to)) = (lustre(&["--pool", "flash=1,3"]), lustre(&[])) else { return };
    plant_layouts(&from.path("tree"));
    let said = preserve(&from.path("tree"), &to.path("tree"));
    let line = |what: &str| said.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned();
    assert!(line("not in the pool flash").contains("the layout of 2 entries not kept"), "{said}");
    assert!(line("in no pool").contains("the layout of 2 entries not kept"), "{said}");
    for (name, wanted) in geometries() {
        let components = wanted.components.into_iter().map(|part| ComponentGeometry { pool: None, ..part });
        let wanted = StripeGeometry { components: components.collect(), ..wanted };
        assert_eq!(geometry(&to.path("tree").join(name)), Some(wanted), "{name}");
    }
    let said = preserve(&from.path("tree"), &from.local("tree"));
    assert!(said.contains("the layout of 14 entries not kept: a plain file system has no stripes"), "{said}");
}

// Large requests.

/// Copies with these options and words; returns the number of objects that were sent.
#[track_caller]
fn objects_sent(lustre: &FileSystem, arguments: &[&str]) -> u64 {
    let mut command = Command::new(common::CARRACK);
    command.args(["cp", "--json"]).args(arguments).current_dir(lustre.local(""));
    let output = run(&mut command);
    assert_exit(&output, 0);
    objects_of(&output)
}

fn objects_of(output: &Output) -> u64 {
    let events = json(output);
    let last = events.iter().rfind(|event| event["event"] == "source").unwrap();
    last["lanes"].as_array().unwrap().iter().map(|lane| lane["objects_sent"].as_u64().unwrap()).sum()
}

#[test]
fn requests_are_as_large_as_both_ends_take_them() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::write(lustre.local("f"), noise(16 << 20)).unwrap();
    let (to, from) = ("testbed/mnt/f", "testbed/mnt/f");
    for (options, objects) in [
        (&[][..], 4),
        (&["--object-size=1MiB"], 16),
        (&["--object-size=8MiB"], 2),
        // No room for 64 larger ones.
        (&["--buffer=100MiB"], 16),
        (&["--buffer=128MiB"], 8),
        // An object lies on one target.
        (&["--stripe=2:1MiB"], 16),
        (&["--stripe=2:2MiB"], 8),
        (&["--stripe=1:1MiB"], 4),
    ] {
        assert_eq!(objects_sent(&lustre, &[options, &["f", to]].concat()), objects, "{options:?}");
        let copied = fs::read(lustre.path("f")).unwrap();
        assert!(copied == noise(16 << 20), "{options:?}");
    }
    for (options, objects) in [(&[][..], 4), (&["--object-size=2MiB"], 8)] {
        assert_eq!(objects_sent(&lustre, &[options, &[from, "back"]].concat()), objects, "{options:?}");
        assert!(fs::read(lustre.local("back")).unwrap() == noise(16 << 20), "{options:?}");
    }
    assert_eq!(objects_sent(&lustre, &["--object-size=4MiB", "f", "copy"]), 4, "on any storage");
}

#[test]
fn two_hosts_agree_on_the_size_of_requests() {
    let (Some(sshd), Some(lustre)) = (Sshd::start(), lustre(&[])) else { return };
    fs::write(lustre.local("f"), noise(16 << 20)).unwrap();
    let far = |path: &str| format!("carrack-test:{}", path);
    let path = |path: &str| lustre.local(path).display().to_string();
    let (local, mounted) = (path("f"), path("testbed/mnt/f"));
    for (from, to) in [
        (local.clone(), far(&mounted)),
        (far(&local), mounted.clone()),
        (far(&mounted), path("back")),
        (mounted.clone(), far(&path("back"))),
        (far(&local), far(&mounted)),
    ] {
        for (options, objects) in [(&[][..], 4), (&["--object-size=1MiB"], 16)] {
            let mut command = Command::new(common::CARRACK);
            command.args(["cp", "--json", "--remote-carrack", common::CARRACK]).args(options);
            if [&from, &to].iter().all(|end| end.starts_with("carrack-test:")) {
                command.arg("--relay");
            }
            let output = run(command.args([&from, &to]).env("CARRACK_SSH", sshd.ssh()));
            assert_exit(&output, 0);
            // A far source does not report its lanes.
            if !from.starts_with("carrack-test:") {
                assert_eq!(objects_of(&output), objects, "{from} {to} {options:?}");
            }
        }
    }
    assert!(fs::read(lustre.local("back")).unwrap() == noise(16 << 20));
}

/// Runs the command in a mount namespace in which a client lists the OSTs of the double with these free parts
/// of their space, in percent.
fn with_listed_osts(lustre: &FileSystem, free_percent: &[u32], arguments: &[&str]) -> Output {
    // Other tests' file systems must not stay mounted in this namespace.
    let script = "\
        own=$1; list=$2; shift 2
        while read -r _ point kind _; do
            case $kind in fuse.*) [ \"$point\" = \"$own\" ] || umount -l \"$point\" ;; esac
        done </proc/mounts
        mount -t tmpfs tmpfs /sys/fs && mkdir -p /sys/fs/lustre && cp -r \"$list\" /sys/fs/lustre/osc && exec \"$@\"";
    let list = lustre.local("osc");
    for (ost, percent) in free_percent.iter().enumerate() {
        let of_ost = list.join(format!("lustre-double-OST{ost:04x}-osc-ffff8881"));
        fs::create_dir_all(&of_ost).unwrap();
        for (name, value) in [("kbytestotal", 100_000_000), ("kbytesavail", percent * 1_000_000)] {
            fs::write(of_ost.join(name), format!("{value}\n")).unwrap();
        }
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", script, "sh"]);
    command.args([lustre.path(""), list]).arg(common::CARRACK).args(arguments);
    run(command.current_dir(lustre.local("")))
}

/// Copies files of one stripe each with `--stripe auto`; returns the number of files on each OST.
fn files_by_ost(lustre: &FileSystem, free_percent: &[u32]) -> Vec<usize> {
    const FILES: usize = 80;
    fs::create_dir(lustre.local("tree")).unwrap();
    for number in 0..FILES {
        fs::write(lustre.local("tree").join(number.to_string()), noise(1_200_000 + number)).unwrap();
    }
    // Few objects on their way, so that later files are created when the first ones are written.
    let words = "cp -r --stripe=auto --object-size=1MiB --buffer=16MiB --io-threads=4 --tune=off tree testbed/mnt/tree";
    let words: Vec<&str> = words.split(' ').collect();
    let output = if free_percent.is_empty() {
        run(Command::new(common::CARRACK).args(&words).current_dir(lustre.local("")))
    } else {
        with_listed_osts(lustre, free_percent, &words)
    };
    assert_exit(&output, 0);
    let mut files = vec![0; 4];
    for number in 0..FILES {
        let said = layout(&lustre.path("tree").join(number.to_string()));
        assert_eq!((said.stripe_count, said.bytes_on.len()), (Some(1), 1));
        let ost = (0..4).find(|ost| said.bytes_on.contains_key(&format!("OST{ost:04x}")));
        files[ost.unwrap()] += 1;
    }
    files
}

#[test]
fn new_files_avoid_a_full_and_a_slow_target() {
    let Some(lustre) = lustre(&["--delay-ms", "2:400"]) else { return };
    let files = files_by_ost(&lustre, &[50, 3, 60, 40]);
    assert_eq!(files[1], 0, "{files:?}: OST 1 is nearly full");
    assert!(files[2] <= 16, "{files:?}: OST 2 is slow");
}

#[test]
fn new_files_avoid_a_slow_target_where_no_target_is_listed() {
    let Some(lustre) = lustre(&["--delay-ms", "2:400"]) else { return };
    let files = files_by_ost(&lustre, &[]);
    assert!(files[2] <= 14, "{files:?}: OST 2 is slow");
}

#[test]
fn new_files_are_spread_evenly_where_all_targets_will_do() {
    let Some(lustre) = lustre(&[]) else { return };
    let files = files_by_ost(&lustre, &[50, 60, 60, 40]);
    assert!(files.iter().all(|count| *count >= 12), "{files:?}");
}

/// Returns the output of `carrack cp -r` of the tree, and its exit code.
fn copied(lustre: &FileSystem, more: &[&str], to: &str) -> (String, Option<i32>) {
    let mut carrack = Command::new(env!("CARGO_BIN_EXE_carrack"));
    carrack.args(["cp", "-r"]).args(more).args([lustre.path("tree"), lustre.local(to)]);
    let said = carrack.output().unwrap();
    (String::from_utf8_lossy(&said.stderr).into_owned(), said.status.code())
}

#[test]
fn a_foreign_file_is_told_of_and_not_copied_as_an_empty_one() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    for name in ["empty", "foreign"] {
        fs::write(lustre.path("tree").join(name), "").unwrap();
    }
    let path = lustre.path("tree/foreign");
    rustix::fs::setxattr(path, "user.foreign", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    for (more, to) in [(&[][..], "without"), (&["--recall"], "with")] {
        let (said, code) = copied(&lustre, more, to);
        assert_eq!((code, said.matches("foreign storage system").count()), (Some(1), 1), "{said}");
        let (empty, foreign) = (lustre.local(to).join("empty"), lustre.local(to).join("foreign"));
        assert!(empty.exists() && !foreign.exists(), "{said}");
    }
}

#[test]
fn released_files_stay_in_their_archive_unless_they_are_to_be_recalled() {
    let Some(lustre) = lustre(&[]) else { return };
    fs::create_dir(lustre.path("tree")).unwrap();
    let names = ["small", "large", "small in the archive", "large in the archive"];
    for (name, bytes) in names.iter().zip([1_000, 3 << 20, 1_000, 3 << 20]) {
        fs::write(lustre.path("tree").join(name), noise(bytes)).unwrap();
    }
    let released = |name: &str| {
        let found = rustix::fs::getxattr(lustre.path("tree").join(name), "user.released", &mut [0; 9][..]);
        found.is_ok()
    };
    for name in &names[2..] {
        let path = lustre.path("tree").join(name);
        rustix::fs::setxattr(path, "user.released", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    }

    let (said, code) = copied(&lustre, &[], "without");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("released to an archive").count(), 2, "{said}");
    for name in names {
        let is_in_archive = name.ends_with("archive");
        assert_eq!(
            (lustre.local("without").join(name).exists(), released(name)),
            (!is_in_archive, is_in_archive)
        );
    }

    let (said, code) = copied(&lustre, &["--recall"], "with");
    assert_eq!(code, Some(0), "{said}");
    for name in names {
        assert!(lustre.local("with").join(name).exists() && !released(name), "{name}");
    }
}
