//! A submission as the words of `carrack cp`, or why it can't be one. Pure.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use carrack_cluster::control::ControlError;
use carrack_cluster::records::{Location, Options, Submission, is_name};
use carrack_model::limits::{
    IO_THREADS_MAX, SLOT_BYTES_DEFAULT, SLOT_BYTES_MAX, SLOT_BYTES_MIN, SLOT_COUNT_MIN, STREAMS_MAX,
};
use carrack_model::{Checksum, Cipher, PolicyChoice, Protection};
use carrack_plan::Timetable;

use super::turns::TurnRules;

/// The site that is this machine.
pub const LOCAL_SITE: &str = "local";

/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 256;

/// Those of [`Options::copy_options`], and whether they have a value. What is read from a file is none: it would be one of this
/// machine's.
pub const COPY_OPTIONS: [(&str, bool); 35] = [
    ("archive", false),
    ("perms", false),
    ("no-perms", false),
    ("chmod", true),
    ("no-times", false),
    ("omit-dir-times", false),
    ("owner", false),
    ("no-owner", false),
    ("group", false),
    ("no-group", false),
    ("numeric-ids", false),
    ("chown", true),
    ("usermap", true),
    ("groupmap", true),
    ("xattrs", false),
    ("no-xattrs", false),
    ("acls", false),
    ("no-acls", false),
    ("hard-links", false),
    ("no-hard-links", false),
    ("devices", false),
    ("no-devices", false),
    ("specials", false),
    ("no-specials", false),
    ("file-flags", false),
    ("strict", false),
    ("exclude", true),
    ("include", true),
    ("min-size", true),
    ("max-size", true),
    ("newer", true),
    ("one-file-system", false),
    ("skip-links", false),
    ("safe-links", false),
    ("copy-links", false),
];

/// Bytes of all of them together.
const COPY_BYTES_MAX: usize = 64 << 10;

pub(super) fn refused(message: impl Display, hint: impl Display) -> ControlError {
    ControlError::Refused { message: message.to_string(), hint: hint.to_string() }
}

/// The arguments of `carrack` that carry it out; `sites` says where the paths of other sites begin.
///
/// # Errors
/// What is wrong with it, for its user.
pub fn arguments(
    submission: &Submission,
    sites: &BTreeMap<String, String>,
) -> Result<Vec<String>, ControlError> {
    if submission.priority > TurnRules::PRIORITY_MAX {
        let hint = format!("it may be 0 to {}", TurnRules::PRIORITY_MAX);
        return Err(refused(format!("there is no priority {}", submission.priority), hint));
    }
    if submission.label.len() > LABEL_BYTES_MAX || submission.label.chars().any(char::is_control) {
        return Err(refused("this can't be a label", format!("a line of up to {LABEL_BYTES_MAX} bytes can")));
    }
    // What was submitted holds, whatever stands in the files of this machine or of the user.
    let mut words: Vec<String> = ["cp", "--no-config", "-r", "--json"].map(str::to_owned).into();
    if submission.options.nice {
        words.push("--nice".to_owned());
    }
    words.extend(options(&submission.options)?.into_iter().map(|(name, value)| format!("--{name}={value}")));
    words.extend(copy_options(&submission.options.copy_options)?);
    words.push("--".to_owned());
    words.push(place(&submission.source, sites)?);
    words.push(place(&submission.destination, sites)?);
    Ok(words)
}

fn place(location: &Location, sites: &BTreeMap<String, String>) -> Result<String, ControlError> {
    if let Some(prefix) = sites.get(&location.site) {
        return Ok(format!("{prefix}{}", location.path));
    }
    if location.site == LOCAL_SITE {
        return Ok(location.path.clone());
    }
    let known: Vec<&str> = std::iter::once(LOCAL_SITE).chain(sites.keys().map(String::as_str)).collect();
    Err(refused(
        format!("there is no site {} here", location.site),
        format!("this queue is one machine's; it knows {}", known.join(", ")),
    ))
}

/// Only what says which entries are copied and what is kept: nothing that names a program, a key or a file.
fn copy_options(options: &[String]) -> Result<Vec<String>, ControlError> {
    if options.iter().map(String::len).sum::<usize>() > COPY_BYTES_MAX {
        return Err(refused(format!("more than {COPY_BYTES_MAX} bytes of options"), "give fewer of them"));
    }
    let is_one = |option: &String| {
        let name = option.strip_prefix("--").unwrap_or_default();
        let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
        COPY_OPTIONS.contains(&(name, has_value))
    };
    match options.iter().find(|option| !is_one(option)) {
        None => Ok(options.to_vec()),
        Some(option) => {
            let names = COPY_OPTIONS
                .map(|(name, has_value)| if has_value { format!("--{name}=…") } else { format!("--{name}") });
            Err(refused(
                format!("{option:?} is none of copy_options"),
                format!("these are: {}", names.join(", ")),
            ))
        }
    }
}

/// A rate by the time of the week, if it can be read.
fn timetable(options: &Options) -> Result<Option<(&'static str, String)>, ControlError> {
    let Some(text) = &options.timetable else { return Ok(None) };
    if options.limit_bytes_per_s.is_some() {
        return Err(refused("a rate and a timetable of rates", "give one of them"));
    }
    // Which rates there are knows who carries it out.
    match Timetable::parse(text, |_| Ok(1)) {
        Ok(_) => Ok(Some(("bwlimit", text.clone()))),
        Err(problem) => Err(refused(problem, "as in 'mon-fri 08:00-18:00 100MB, 1GB'")),
    }
}

fn options(options: &Options) -> Result<Vec<(&'static str, String)>, ControlError> {
    let of_fleets = [
        ("chunk_bytes", options.chunk_bytes.is_some()),
        ("pairs_max", options.pairs_max.is_some()),
        ("static_striping", options.static_striping),
    ];
    if let Some((name, _)) = of_fleets.into_iter().find(|(_, is_set)| *is_set) {
        return Err(refused(
            format!("{name} is an option of fleets, and this queue is one machine's"),
            "leave it out",
        ));
    }
    if let Some(threads) = options.io_threads.filter(|&threads| usize::from(threads) > IO_THREADS_MAX) {
        return Err(refused(
            format!("{threads} threads are too many"),
            format!("{IO_THREADS_MAX} are the most"),
        ));
    }
    if options.nice && options.policy.as_deref().is_some_and(|policy| policy != "adaptive") {
        return Err(refused("nice needs the policy adaptive", "leave the policy out"));
    }
    if let Some(streams) = options.streams.filter(|&streams| usize::from(streams) > STREAMS_MAX) {
        return Err(refused(
            format!("{streams} streams are too many"),
            format!("{STREAMS_MAX} are the most"),
        ));
    }
    sizes(options)?;
    let named = [
        ("protection", &options.protection, checked::<Protection> as fn(&str) -> bool),
        ("cipher", &options.cipher, checked::<Cipher>),
        ("checksum", &options.checksum, checked::<Checksum>),
        ("durability", &options.durability, |name| ["each", "group", "end"].contains(&name)),
        ("verify", &options.verify, |name| ["object", "readback"].contains(&name)),
        ("policy", &options.policy, checked::<PolicyChoice>),
        ("class", &options.class, is_name),
        ("source-io", &options.source_io, |name| ["auto", "buffered", "direct"].contains(&name)),
        ("sink-io", &options.sink_io, |name| ["auto", "buffered", "direct", "writeback"].contains(&name)),
    ];
    let mut words = Vec::new();
    for (option, name, is_known) in named {
        let Some(name) = name else { continue };
        if !is_known(name) {
            return Err(refused(format!("{name:?} is no {option}"), "`carrack cp --help` lists them"));
        }
        words.push((option, name.clone()));
    }
    let numbers = [
        ("streams", options.streams.map(u64::from)),
        ("buffer", options.buffer_bytes),
        ("object-size", options.object_bytes.map(u64::from)),
        ("bwlimit", options.limit_bytes_per_s),
        ("bwlimit-per-target", options.limit_bytes_per_s_per_target),
        ("max-inflight-per-target", options.max_inflight_per_target.map(u64::from)),
        ("io-threads", options.io_threads.map(u64::from)),
    ];
    words.extend(numbers.into_iter().filter_map(|(option, value)| Some((option, value?.to_string()))));
    words.extend(timetable(options)?);
    words.extend(options.deadline_ms.map(|ms| ("deadline", format!("@{}", ms.div_ceil(1_000)))));
    Ok(words)
}

fn sizes(options: &Options) -> Result<(), ControlError> {
    let slot = options.object_bytes.map_or(SLOT_BYTES_DEFAULT, |bytes| bytes as usize);
    if !slot.is_power_of_two() || !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&slot) {
        let range = format!("a power of two from {SLOT_BYTES_MIN} to {SLOT_BYTES_MAX} can");
        return Err(refused(format!("{slot} bytes can't be an object's size"), range));
    }
    let least = slot as u64 * SLOT_COUNT_MIN as u64;
    match options.buffer_bytes {
        Some(bytes) if bytes < least => Err(refused(
            format!("a buffer of {bytes} bytes is too small"),
            format!("{SLOT_COUNT_MIN} objects need {least}"),
        )),
        _ if [options.limit_bytes_per_s, options.limit_bytes_per_s_per_target].contains(&Some(0)) => {
            Err(refused("at 0 bytes per second nothing moves", "leave it out, or pause the transfer"))
        }
        _ => Ok(()),
    }
}

fn checked<T: FromStr>(name: &str) -> bool {
    name.parse::<T>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::store::tests::sample;
    use super::*;

    fn with(options: Options) -> Result<Vec<String>, ControlError> {
        arguments(&Submission { options, ..sample("1", 5).submission }, &BTreeMap::new())
    }

    #[test]
    fn a_submission_becomes_a_copy() {
        assert_eq!(
            with(Options::default()).unwrap(),
            ["cp", "--no-config", "-r", "--json", "--", "/a", "/b"]
        );
        let options = Options {
            checksum: Some("blake3".into()),
            streams: Some(4),
            limit_bytes_per_s: Some(7),
            ..Options::default()
        };
        let storage = Options {
            policy: Some("adaptive".into()),
            nice: true,
            class: Some("urgent".into()),
            deadline_ms: Some(1_795_399_199_001),
            sink_io: Some("direct".into()),
            limit_bytes_per_s_per_target: Some(8),
            ..Options::default()
        };
        let expected =
            ["--nice", "--policy=adaptive", "--class=urgent", "--sink-io=direct", "--bwlimit-per-target=8"];
        assert_eq!(with(storage.clone()).unwrap()[4..9], expected);
        assert_eq!(with(storage).unwrap()[9], "--deadline=@1795399200");
        let words = with(options).unwrap();
        assert_eq!(words[4..7], ["--checksum=blake3", "--streams=4", "--bwlimit=7"]);
    }

    #[test]
    fn what_is_copied_and_kept_is_handed_on_and_nothing_else() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let copied = |words: &[&str]| with(Options { copy_options: list(words), ..Options::default() });
        let wanted = ["--archive", "--no-owner", "--exclude=*.tmp", "--include=a=b", "--max-size=1GiB"];
        assert_eq!(copied(&wanted).unwrap()[4..9], wanted);
        for bad in [
            "archive",
            "-a",
            "--ssh=sh",
            "--exclude",
            "--archive=x",
            "--files-from=/etc/shadow",
            "--identity=x",
            "--",
            "",
        ] {
            assert!(copied(&[bad]).is_err(), "{bad}");
        }
        assert!(copied(&[&format!("--exclude={}", "x".repeat(COPY_BYTES_MAX))]).is_err());
        let by_time = Options { timetable: Some("sat-sun off, 1GB".into()), ..Options::default() };
        assert_eq!(with(by_time.clone()).unwrap()[4], "--bwlimit=sat-sun off, 1GB");
        assert!(with(Options { limit_bytes_per_s: Some(7), ..by_time }).is_err());
        assert!(with(Options { timetable: Some("sometimes 1GB".into()), ..Options::default() }).is_err());
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_at_once() {
        let name = |name: &str| Some(name.to_owned());
        for options in [
            Options { pairs_max: Some(2), ..Options::default() },
            Options { static_striping: true, ..Options::default() },
            Options { cipher: name("rot13"), ..Options::default() },
            Options { class: name("two words"), ..Options::default() },
            Options { protection: name("--relay"), ..Options::default() },
            Options { durability: name("none"), ..Options::default() },
            Options { streams: Some(65), ..Options::default() },
            Options { object_bytes: Some(3 << 20), ..Options::default() },
            Options { buffer_bytes: Some(1), ..Options::default() },
            Options { limit_bytes_per_s: Some(0), ..Options::default() },
            Options { policy: name("fifo"), ..Options::default() },
            Options { policy: name("round-robin"), nice: true, ..Options::default() },
            Options { sink_io: name("mmap"), ..Options::default() },
            Options { io_threads: Some(1000), ..Options::default() },
        ] {
            let ControlError::Refused { hint, .. } = with(options.clone()).unwrap_err() else { panic!() };
            assert!(!hint.is_empty(), "{options:?}");
        }
        let submission = sample("1", 5).submission;
        assert!(arguments(&Submission { priority: 10, ..submission.clone() }, &BTreeMap::new()).is_err());
        let label = "two\nlines".to_owned();
        assert!(arguments(&Submission { label, ..submission }, &BTreeMap::new()).is_err());
    }

    #[test]
    fn other_sites_are_those_of_the_configuration() {
        let mut submission = sample("1", 5).submission;
        submission.destination = "alcf:/x".parse().unwrap();
        let ControlError::Refused { message, hint } = arguments(&submission, &BTreeMap::new()).unwrap_err()
        else {
            panic!()
        };
        assert!(message.contains("no site alcf") && hint.ends_with("knows local"), "{message} / {hint}");
        let sites = BTreeMap::from([("alcf".to_owned(), "carrack://dtn/data".to_owned())]);
        assert_eq!(arguments(&submission, &sites).unwrap().last().unwrap(), "carrack://dtn/data/x");
    }
}
