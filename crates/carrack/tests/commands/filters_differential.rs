//! Filter rules of rsync against rsync, and of rclone against rclone: random rules over small random trees.
//!
//! Each case follows from its number. `CARRACK_CASES` is the number of cases, `CARRACK_CASE` names one. In
//! most cases the entries of a scan are compared with the list of a dry run of rsync; `CARRACK_COPIES` cases
//! are whole syncs with deletion, and `CARRACK_RCLONE_CASES` cases compare the files of a scan with rclone's
//! list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use carrack_model::RelPath;
use carrack_options::TransferArgs;
use carrack_storage::{RootDirectory, ScanFilter, ScanRoot, ScanRootScope, ScannedItem, SourceScan};
use clap::Parser;

use crate::common::process::run;
use crate::common::{CARRACK, skip};
use crate::faults::chance::Chance;

const CASES: u64 = 1_500;
const COPIES: u64 = 80;
const RCLONE_CASES: u64 = 300;

const FILES: [&str; 10] = ["a", "b", "ab", "a.o", "b.c", "x y", "a*b", "[x]", "-", "\u{e4}.o"];
const DIRECTORIES: [&str; 6] = ["d", "e", "src", "d.o", "ab", "f?"];

/// The rules of one case, and the files that they lie in.
struct CaseRules {
    /// Words of a command line.
    words: Vec<String>,
    /// Files beside the tree, by name.
    files: BTreeMap<String, String>,
    /// Names of the files of rules in directories.
    of_directories: Vec<&'static str>,
}

fn component(random: &mut Chance) -> String {
    match random.below(12) {
        0..5 => random.one_of(&FILES).to_owned(),
        5..7 => random.one_of(&DIRECTORIES).to_owned(),
        7 => random.one_of(&["*", "?", "**", "*?"]).to_owned(),
        8 => random.one_of(&["*.o", "a*", "*b", "?b", "**b", "a**", "*.?", "d*"]).to_owned(),
        9 => random
            .one_of(&[
                "[ab]",
                "[!a]",
                "[^d]",
                "[a-c].o",
                "[]x]",
                "[[:alpha:]]",
                "[[:alpha:]-]",
                "[a",
                "[d-]*",
            ])
            .to_owned(),
        10 => {
            random.one_of(&["a\\*b", "\\a", "a\\*b*", "\\[x\\]", "[\\]x]*", "f\\?", "*\\?", "a\\"]).to_owned()
        }
        _ => random.one_of(&["***", "d/**", "d/***", "x", "src/***", "**/a"]).to_owned(),
    }
}

fn pattern(random: &mut Chance) -> String {
    let count = [1, 1, 1, 2, 2, 3][random.below(6)];
    let parts: Vec<String> = (0..count).map(|_| component(random)).collect();
    let (start, end) = (random.one_in(4), random.one_in(5));
    let pattern = format!("{}{}", if start { "/" } else { "" }, parts.join("/"));
    match random.below(12) {
        0 => format!("{pattern}/***"),
        1 => format!("{pattern}/**"),
        _ if end => format!("{pattern}/"),
        _ => pattern,
    }
}

/// Returns one rule with a pattern; `is_two_sided` for one that counts alike at both ends.
fn rule(random: &mut Chance, is_two_sided: bool) -> String {
    let pattern = pattern(random);
    let kinds: &[&str] = match is_two_sided {
        true => &["-", "-", "+", "exclude", "-!", "-p", "+,"],
        false => &[
            "-",
            "-",
            "-",
            "+",
            "+",
            "-!",
            "+!",
            "-s",
            "-r",
            "-sr",
            "H",
            "S",
            "P",
            "R",
            "exclude",
            "include,p",
            "hide",
            "-p",
        ],
    };
    format!("{}{}{pattern}", random.one_of(kinds), if random.one_in(8) { "_" } else { " " })
}

fn rules_text(random: &mut Chance, most: usize, is_two_sided: bool) -> String {
    let mut text = String::new();
    for _ in 0..=random.below(most) {
        match random.below(12) {
            0 => text.push_str("# comment\n"),
            1 => text.push('\n'),
            2 if random.one_in(3) => text.push_str("!\n"),
            _ => text.push_str(&format!("{}\n", rule(random, is_two_sided))),
        }
    }
    text
}

fn case_rules(random: &mut Chance, place: &Path, is_two_sided: bool) -> CaseRules {
    let mut found = CaseRules { words: Vec::new(), files: BTreeMap::new(), of_directories: Vec::new() };
    for number in 0..=random.below(6) {
        let file = place.join(format!("rules{number}")).to_str().unwrap().to_owned();
        let mut add = |words: &[&str]| found.words.extend(words.iter().map(|word| (*word).to_owned()));
        match random.below(14) {
            0 => {
                let patterns: Vec<String> = (0..=random.below(3)).map(|_| pattern(random)).collect();
                found.files.insert(file.clone(), format!("; comment\n{}\n+ a.o\n", patterns.join("\n")));
                add(&[random.one_of(&["--exclude-from", "--include-from"]), &file]);
            }
            1 => {
                let text = rules_text(random, 3, is_two_sided);
                found.files.insert(file.clone(), text);
                add(&["--filter", &format!("{} {file}", random.one_of(&[".", "merge", ".,"]))]);
            }
            2 => {
                let text =
                    format!("{} {}\n", pattern(random).replace(' ', "?"), pattern(random).replace(' ', "?"));
                found.files.insert(file.clone(), text);
                add(&["--filter", &format!("{} {file}", random.one_of(&[".-w", "merge,w+"]))]);
            }
            3 | 4 if found.of_directories.len() < 2 => {
                let name = [".rules", ".more"][found.of_directories.len()];
                found.of_directories.push(name);
                let kinds: &[&str] = if is_two_sided {
                    &[":", "dir-merge", ":n"]
                } else {
                    &[":", "dir-merge", ":n", ":e", ":s"]
                };
                let kind = random.one_of(kinds);
                add(&["--filter", &format!("{kind} {name}")]);
            }
            5 if random.one_in(4) => add(&["--filter", random.one_of(&["!", "clear"])]),
            _ => add(&["--filter", &rule(random, is_two_sided)]),
        }
    }
    found
}

/// Plants a tree; `of_directories` are the names of files of rules that directories may have.
fn plant(random: &mut Chance, directory: &Path, depth: usize, rules: &[&str]) {
    fs::create_dir_all(directory).unwrap();
    for name in FILES {
        if random.one_in(3) {
            fs::write(directory.join(name), name).unwrap();
        }
    }
    for name in rules {
        if random.one_in(2) {
            // A rule that names a side is refused in the file of a rule that does.
            fs::write(directory.join(name), rules_text(random, 3, true)).unwrap();
        }
    }
    for name in DIRECTORIES {
        let path = directory.join(name);
        if depth > 0 && !path.exists() && random.one_in(3) {
            plant(random, &path, depth - 1, rules);
        }
    }
    let link = directory.join("e");
    if !link.exists() {
        std::os::unix::fs::symlink("d", link).unwrap();
    }
}

#[derive(Parser)]
struct TransferCommandLine {
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Returns the entries that a scan selects, directories with a slash behind.
///
/// # Errors
/// If a rule is refused.
fn selected(tree: &Path, sink: &str, words: &[String]) -> Result<BTreeSet<String>, String> {
    let words = ["cp".to_owned()].into_iter().chain(words.iter().cloned());
    let line = TransferCommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
    let selection = line.transfer.settings(&["src".into()]).map_err(|error| format!("{error:?}"))?.selection;
    let root = Arc::new(RootDirectory::open(tree).unwrap());
    let what = ScanRootScope::Tree { sink: RelPath::new(sink.as_bytes()).unwrap() };
    let scan = SourceScan {
        roots: vec![ScanRoot { root, what }],
        threads: 1,
        destination: None,
        extras: None,
        filter: ScanFilter::new(&selection).map_err(|error| format!("{error:?}"))?.map(Arc::new),
        record: None,
    };
    let found = Mutex::new(BTreeSet::new());
    scan.run(&|item| {
        match item {
            ScannedItem::Section(section, _) => {
                let directory = String::from_utf8(section.directory.sink.as_bytes().to_vec()).unwrap();
                let directory = if directory.is_empty() { directory } else { format!("{directory}/") };
                let mut found = found.lock().unwrap();
                found.insert(if directory.is_empty() { "./".to_owned() } else { directory.clone() });
                for entry in &section.entries {
                    found.insert(format!("{directory}{}", std::str::from_utf8(&entry.name).unwrap()));
                }
            }
            ScannedItem::Failed(failure) => panic!("{failure:?}"),
            ScannedItem::Skipped { .. } => {}
        }
        ControlFlow::Continue(())
    });
    Ok(found.into_inner().unwrap())
}

/// Returns the entries that rsync would send.
fn sent_by_rsync(source: &str, place: &Path, words: &[String]) -> BTreeSet<String> {
    let mut command = Command::new("rsync");
    command.args(["-a", "-8", "--dry-run", "--out-format=%n"]).args(words).arg(source).arg("there/");
    let output = run(command.current_dir(place).env("LC_ALL", "C"));
    assert!(output.status.success(), "{words:?} {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.starts_with("created directory")).map(str::to_owned).collect()
}

fn ground() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn describe_files(rules: &CaseRules, place: &Path) -> String {
    let mut text = format!("{:?}\n{:?}\n", rules.words, rules.files);
    let mut waiting = vec![place.join("src")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_rules = path.file_name().is_some_and(|name| name == ".rules" || name == ".more");
            if path.is_dir() && !path.is_symlink() {
                waiting.push(path);
            } else if is_rules {
                text.push_str(&format!("{}: {:?}\n", path.display(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    text
}

/// Compares a scan with rsync's list; returns the difference.
fn scan_case(number: u64) -> Option<String> {
    let (mut random, ground) = (Chance::new(number), ground());
    let rules = case_rules(&mut random, ground.path(), false);
    rules.files.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
    plant(&mut random, &ground.path().join("src"), 2, &rules.of_directories);
    let is_whole = random.one_in(2);
    let (source, sink) = if is_whole { ("src", "src") } else { ("src/", "") };
    let ours = selected(&ground.path().join("src"), sink, &rules.words).unwrap();
    let theirs = sent_by_rsync(source, ground.path(), &rules.words);
    (ours != theirs).then(|| {
        format!(
            "scan case {number}, {source}\n{}  only ours {:?}\n  only theirs {:?}",
            describe_files(&rules, ground.path()),
            ours.difference(&theirs).collect::<Vec<_>>(),
            theirs.difference(&ours).collect::<Vec<_>>(),
        )
    })
}

fn paths_in(root: &Path) -> BTreeSet<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![root.to_path_buf()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let beneath = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(String::from_utf8(beneath).unwrap());
            if path.is_dir() && !path.is_symlink() {
                waiting.push(path);
            }
        }
    }
    found
}

/// Removes entries in the place of which the source has another kind of entry.
fn remove_other_kinds(source: &Path, there: &Path) {
    for path in paths_in(source) {
        let kind = |root: &Path| fs::symlink_metadata(root.join(&path)).ok().map(|found| found.file_type());
        match (kind(source), kind(there)) {
            (Some(ours), Some(theirs)) if ours != theirs && theirs.is_dir() => {
                fs::remove_dir_all(there.join(&path)).unwrap();
            }
            (Some(ours), Some(theirs)) if ours != theirs => fs::remove_file(there.join(&path)).unwrap(),
            _ => {}
        }
    }
}

/// Compares a sync that deletes with rsync's; returns the difference.
fn copy_case(number: u64) -> Option<String> {
    let (mut random, ground) = (Chance::new(number ^ 0xabcd_0000), ground());
    let place = |name: &str| ground.path().join(name);
    let mut rules = case_rules(&mut random, ground.path(), true);
    if rules.of_directories.is_empty() {
        // Hiding and protecting apart, of which files of directories have none: docs/sync.md says why.
        for _ in 0..random.below(3) {
            rules.words.extend(["--filter".to_owned(), rule(&mut random, false)]);
        }
    }
    rules.files.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
    plant(&mut random, &place("src"), 2, &rules.of_directories);
    let is_whole = random.one_in(2);
    let source = if is_whole { "src" } else { "src/" };
    for there in ["ours", "theirs"] {
        // The same old tree at both destinations: some names of the source, and some others.
        let mut again = Chance::new(number);
        plant(&mut again, &place(there).join(if is_whole { "src" } else { "" }), 2, &[]);
        remove_other_kinds(&place("src"), &place(there).join(if is_whole { "src" } else { "" }));
    }
    let excluded: &[&str] = if random.one_in(3) { &["--delete-excluded"] } else { &[] };
    let mut ours = Command::new(CARRACK);
    ours.args([
        "sync",
        "-a",
        "--delete",
        "--delete-all",
        "--no-journal",
        "--buffer",
        "8MiB",
        "--sharing",
        "off",
    ]);
    let output =
        run(ours.args(excluded).args(&rules.words).args([source, "ours"]).current_dir(ground.path()));
    assert!(output.status.success(), "copy case {number} {:?} {output:?}", rules.words);
    let mut theirs = Command::new("rsync");
    theirs.args(["-a", "--delete-after"]).args(excluded).args(&rules.words).args([source, "theirs/"]);
    let output = run(theirs.current_dir(ground.path()));
    assert!(output.status.success(), "copy case {number} {:?} {output:?}", rules.words);
    let (mut ours, theirs) = (paths_in(&place("ours")), paths_in(&place("theirs")));
    if !rules.of_directories.is_empty() {
        // The source has the name: what its directories' files exclude, or hide, stays here.
        let root = ground.path().join(if is_whole { "" } else { "src" });
        let sent = sent_by_rsync(source, ground.path(), &rules.words);
        let is_kept = |path: &Path| {
            let text = path.to_str().unwrap();
            let is_sent = text.is_empty() || sent.contains(text) || sent.contains(&format!("{text}/"));
            !is_sent && fs::symlink_metadata(root.join(path)).is_ok()
        };
        ours.retain(|path| theirs.contains(path) || !Path::new(path).ancestors().any(is_kept));
    }
    (ours != theirs).then(|| {
        format!(
            "copy case {number}, {source} {excluded:?}\n{}  only ours {:?}\n  only theirs {:?}",
            describe_files(&rules, ground.path()),
            ours.difference(&theirs).collect::<Vec<_>>(),
            theirs.difference(&ours).collect::<Vec<_>>(),
        )
    })
}

fn rclone_component(random: &mut Chance) -> String {
    match random.below(10) {
        0..3 => random
            .one_of(&["a", "b", "ab", "a.o", "b.c", "x y", "a\\*b", "\\[x\\]", "-", "\u{e4}.o"])
            .to_owned(),
        3..5 => random.one_of(&["d", "e", "src", "d.o", "f\\?", "f?"]).to_owned(),
        5 => random.one_of(&["*", "?", "**", "*?"]).to_owned(),
        6 => random.one_of(&["*.o", "a*", "*b", "?b", "**b", "a**", "*.?", "d*"]).to_owned(),
        7 => random.one_of(&["[ab]", "[^d]", "[a-c].o", "[[:alpha:]]", "[!a]", "[a", "a]", "***"]).to_owned(),
        8 => random.one_of(&["{a,b}", "*.{o,c}", "{d,e/d}", "{a*,d/**}", "{a", "a}", "a,b"]).to_owned(),
        _ => random.one_of(&["{{[a-d]}}", "{{.*}}.o", "{{a|d/b}}", "{{[^/]+}}", "{{(}}", "{{x"]).to_owned(),
    }
}

fn rclone_pattern(random: &mut Chance) -> String {
    let parts: Vec<String> =
        (0..=[0, 0, 0, 1, 1, 2][random.below(6)]).map(|_| rclone_component(random)).collect();
    let (start, end) = (random.one_in(4), random.one_in(5));
    format!("{}{}{}", if start { "/" } else { "" }, parts.join("/"), if end { "/" } else { "" })
}

/// Compares the files of a scan with rclone's list; returns the difference. What one of both refuses, the
/// other one does.
fn rclone_case(number: u64) -> Option<String> {
    let (mut random, ground) = (Chance::new(number ^ 0x7c10_0000), ground());
    let mut text = String::new();
    for _ in 0..=random.below(5) {
        match random.below(16) {
            0 => text.push_str("# comment\n"),
            1 => text.push_str("!\n"),
            _ => {
                let kind = random.one_of(&["-", "-", "+"]);
                text.push_str(&format!("{kind} {}\n", rclone_pattern(&mut random)));
            }
        }
    }
    if random.one_in(3) {
        text.push_str("- *\n");
    }
    let (tree, rules) = (ground.path().join("src"), ground.path().join("rules"));
    fs::write(&rules, &text).unwrap();
    plant(&mut random, &tree, 2, &[]);
    let words = ["--rclone-filter-from".to_owned(), rules.to_str().unwrap().to_owned()];
    let ours = selected(&tree, "", &words).ok().map(|found| {
        let is_file = |path: &String| fs::symlink_metadata(tree.join(path)).unwrap().is_file();
        found.into_iter().filter(is_file).collect::<BTreeSet<String>>()
    });
    let mut rclone = Command::new("rclone");
    rclone
        .args(["lsf", "-R", "--files-only", "--config", "/dev/null", "--filter-from"])
        .arg(&rules)
        .arg(&tree);
    let output = run(&mut rclone);
    let theirs: Option<BTreeSet<String>> = output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect());
    (ours != theirs).then(|| format!("rclone case {number}: {text:?}\n  ours {ours:?}\n  theirs {theirs:?}"))
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs cases on all cores; returns the differences.
fn differing(count: u64, case: fn(u64) -> Option<String>) -> Vec<String> {
    let next = AtomicU64::new(0);
    let work = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        numbers.take_while(|number| *number < count).filter_map(case).collect::<Vec<String>>()
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

fn compare(program: &str, count: u64, case: fn(u64) -> Option<String>) {
    if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip(&format!("no {program} to compare with"));
    }
    if let Some(number) = number_in("CARRACK_CASE") {
        return assert_eq!(case(number), None);
    }
    let differing = differing(count, case);
    let shown: Vec<&str> = differing.iter().take(5).map(String::as_str).collect();
    assert!(differing.is_empty(), "{} of {count} differ:\n{}", differing.len(), shown.join("\n\n"));
}

#[test]
fn a_scan_selects_what_rsync_selects() {
    compare("rsync", number_in("CARRACK_CASES").unwrap_or(CASES), scan_case);
}

#[test]
fn a_sync_deletes_what_rsync_deletes() {
    compare("rsync", number_in("CARRACK_COPIES").unwrap_or(COPIES), copy_case);
}

#[test]
fn a_scan_selects_the_files_that_rclone_selects() {
    compare("rclone", number_in("CARRACK_RCLONE_CASES").unwrap_or(RCLONE_CASES), rclone_case);
}
