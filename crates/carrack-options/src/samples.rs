//! One value of each option, for tests of the ways to carry it out.

use clap::Arg;

use crate::parsed_options::{definitions, is_switch};

/// Values of options that take neither names of a list nor numbers.
const VALUES: &[(&str, &str)] = &[
    ("chmod", "go-w"),
    ("chown", "7:8"),
    ("usermap", "a:b"),
    ("groupmap", "a:b"),
    ("exclude", "*.o"),
    ("include", "keep.o"),
    ("newer", "@7"),
    ("deadline", "@4102444800"),
    ("stop-at", "@4102444800"),
    ("class", "urgent"),
    ("congestion", "bbr"),
    ("policy", "round-robin"),
    ("stripe", "4:1MiB"),
    ("bwlimit", "9MB"),
    ("object-size", "2MiB"),
    ("buffer", "64MiB"),
    ("fabric", "shm"),
    ("ports", "50000-50100"),
    ("backup-dir", "old"),
    ("modify-window", "2"),
    ("sharing", "off"),
    ("targets", "/a,nas1=/b"),
    ("spill", "/a:1GiB"),
    ("sink-spill", "/a:1GiB"),
    ("journal-dir", "/a"),
    ("files-from", "/dev/null"),
    ("only", "sub"),
    ("filter-from", "/dev/null"),
    ("filter", "- *.o"),
    ("exclude-from", "/dev/null"),
    ("include-from", "/dev/null"),
    ("rclone-filter", "- *.o"),
    ("rclone-filter-from", "/dev/null"),
];

/// Options that another option requires.
const BESIDE: &[(&str, &str)] = &[
    ("from0", "--files-from=/dev/null"),
    ("spill-budget", "--spill=/a:1GiB"),
    ("delete-all", "--delete"),
    ("delete-excluded", "--delete"),
    ("delete-mounts", "--delete"),
    ("max-delete", "--delete"),
    ("backup-dir", "--delete"),
    ("trash", "--delete"),
];

/// Returns each option's name, and a command line with a value that differs from its default, as the last
/// word.
pub fn samples() -> Vec<(&'static str, Vec<String>)> {
    definitions().map(|(name, arg)| (name, words(name, arg))).collect()
}

fn words(name: &str, arg: &Arg) -> Vec<String> {
    let beside = BESIDE.iter().filter(|(of, _)| *of == name).map(|(_, word)| (*word).to_owned());
    // An option that leaves metadata out needs an option that keeps it.
    let archive = name.starts_with("no-") && name != "no-journal";
    let own = if is_switch(arg) { format!("--{name}") } else { format!("--{name}={}", value(name, arg)) };
    beside.chain(archive.then(|| "--archive".to_owned())).chain([own]).collect()
}

fn value(name: &str, arg: &Arg) -> String {
    if let Some((_, value)) = VALUES.iter().find(|(of, _)| *of == name) {
        return (*value).to_owned();
    }
    let default = arg.get_default_values().first();
    let names = arg.get_possible_values();
    let other =
        names.iter().map(|value| value.get_name()).find(|name| default.is_none_or(|value| value != *name));
    other.unwrap_or("3").to_owned()
}
