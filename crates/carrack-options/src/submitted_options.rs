//! The options of a submitted transfer as they are stored and sent: JSON, an object with the given options.
//!
//! A member is an option of the command line with `_` for `-`: `true` for an option without a value, else a
//! number or a text, and a list if the option may be given more than once. The paths in `--files-from` become
//! `only`. `patterns` are lines of gitignore(5), made from `--exclude`, `--include` and `--filter-from` in
//! their order. `filter` and `rclone_filter` have the rules of rsync and of rclone, those in files too.

use std::collections::BTreeMap;
use std::path::Path;

use carrack_model::{escape, parse_moment, parse_past_moment, parse_size};
use carrack_storage::RsyncRule;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::filters::{
    FilterArgs, filter_file_option_names, filter_option_names, filter_words, gitignore_word,
};
use crate::local_time;
use crate::option_support::{SubmissionExecutorKind, is_refused_everywhere};
use crate::parsed_options::{SubmittedValues, definition, definitions, is_switch};
use crate::selection::read_path_list;
use crate::sync::{OF_DELETION, SYNC};
use crate::user_error::UserError;

/// Upper bound of the bytes of all options together.
const BYTES_MAX: usize = 64 << 10;

/// Member with lines of gitignore(5).
const PATTERNS: &str = "patterns";

/// Returns true for an option whose values are files of the user.
pub(crate) fn is_of_files(name: &str) -> bool {
    [FILES_FROM, FROM0].contains(&name) || filter_file_option_names().any(|of_file| of_file == name)
}

/// Returns true for a rule of rsync that reads a file at once.
fn reads_file(rule: &str) -> bool {
    matches!(RsyncRule::parse(rule), Ok(RsyncRule::Merge(_)))
}

/// The option with a file of wanted paths, and the option of its format.
const FILES_FROM: &str = "files-from";
const FROM0: &str = "from0";

/// An option's name in the records of version 1, and today.
const EARLIER_NAMES: [(&str, &str); 7] = [
    ("buffer_bytes", "buffer"),
    ("object_bytes", "object-size"),
    ("limit_bytes_per_s", "bwlimit"),
    ("timetable", "bwlimit"),
    ("limit_bytes_per_s_per_target", "bwlimit-per-target"),
    ("chunk_bytes", "chunk-size"),
    ("pairs_max", "pairs"),
];

/// Milliseconds since 1970, in such records.
const DEADLINE_MS: &str = "deadline_ms";

/// Words of a command line, in such records.
const COPY_OPTIONS: &str = "copy_options";

/// Members of earlier records without effect today.
const RETIRED: [&str; 1] = ["static_striping"];

/// The given options. Others have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferOptions(Map<String, Value>);

impl TransferOptions {
    /// Creates options from those of a command line: `--name` and `--name=value`.
    ///
    /// # Errors
    /// The first wrong option, in words.
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<TransferOptions, UserError> {
        let words: Vec<String> = words.iter().map(|word| word.as_ref().to_owned()).collect();
        let named = TransferOptions(Map::from_iter([(COPY_OPTIONS.to_owned(), words.into())]));
        named.normalized(crate::lifetime::now_s())
    }

    /// Adds an option, which replaces an earlier value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> TransferOptions {
        self.0.insert(name.replace('-', "_"), value.into());
        self
    }

    /// Removes the time at which the transfer was to stop, which has passed when it continues.
    #[must_use]
    pub fn without_stop(mut self) -> TransferOptions {
        self.0.remove("stop_at");
        self
    }

    /// Returns the words of a command line, each `--name` or `--name=value`.
    ///
    /// # Errors
    /// If one of them is unknown.
    pub fn to_arguments(&self) -> Result<Vec<String>, UserError> {
        let mut words = Vec::new();
        for (key, value) in &self.0 {
            match &**key {
                PATTERNS => words.extend(texts(key, value)?.iter().filter_map(|line| gitignore_word(line))),
                COPY_OPTIONS => words.extend(texts(key, value)?),
                DEADLINE_MS => {
                    let Some(ms) = value.as_u64() else {
                        return Err(UserError::new(format!("{DEADLINE_MS} is in milliseconds since 1970")));
                    };
                    words.push(format!("--deadline=@{}", ms.div_ceil(1_000)));
                }
                key if RETIRED.contains(&key) => {}
                _ => add_words(&mut words, &name_of(key), value)?,
            }
        }
        for word in &words {
            let name = name_of_word(word).unwrap_or_default();
            if definition(name).is_none() {
                let trouble = UserError::new(format!("there is no option {word}"));
                return Err(trouble.hint("`carrack cp --help` and `carrack submit --help` list them"));
            }
            if word.contains('\0') {
                return Err(UserError::new(format!("--{name}: a NUL byte")).hint("leave it out"));
            }
            // Another process may read the options with other rights than their user's.
            if is_of_files(name)
                || name == "filter" && word.split_once('=').is_some_and(|(_, rule)| reads_file(rule))
            {
                let trouble = UserError::new(format!(
                    "--{name} names a file, and who carries a transfer out reads none"
                ));
                return Err(trouble.hint(
                    "`patterns` are lines of gitignore(5), `filter` rules of rsync, `rclone_filter` those of rclone, \
                     `only` is a list of paths",
                ));
            }
        }
        Ok(words)
    }

    /// Returns the parsed values.
    ///
    /// # Errors
    /// The first wrong option, in words.
    pub fn values(&self) -> Result<SubmittedValues, UserError> {
        SubmittedValues::read(&self.to_arguments()?)
    }

    /// Checks that all options can be carried out in this way.
    ///
    /// # Errors
    /// The first option that can't, with an alternative.
    pub fn check(&self, way: SubmissionExecutorKind) -> Result<(), UserError> {
        self.to_arguments()?.iter().filter_map(|word| name_of_word(word)).try_for_each(|name| way.check(name))
    }

    /// Returns the form for storage: with today's names, and with moments for relative times, so that they
    /// mean the same whenever the transfer's turn comes. `now_s` is in seconds since 1970.
    ///
    /// # Errors
    /// The first wrong option, in words.
    pub fn normalized(&self, now_s: i64) -> Result<TransferOptions, UserError> {
        let (mut kept, mut lists) = (Map::new(), BTreeMap::<String, Vec<Value>>::new());
        if let Some(retired) = RETIRED.iter().find(|key| self.0.contains_key(**key)) {
            let trouble = UserError::new(format!("there is no option --{} any more", name_of(retired)));
            return Err(trouble.hint("leave it out: a fleet deals chunks on demand"));
        }
        let words = self.to_arguments()?;
        if words.iter().map(String::len).sum::<usize>() > BYTES_MAX {
            let trouble = UserError::new(format!("more than {BYTES_MAX} bytes of options"));
            return Err(trouble.hint("give fewer of them"));
        }
        for word in &words {
            let name = name_of_word(word).unwrap_or_default();
            let value = word.split_once('=').map(|(_, value)| value);
            match (name, value) {
                ("exclude", Some(value)) => lists.entry(PATTERNS.into()).or_default().push(value.into()),
                ("include", Some(value)) => {
                    lists.entry(PATTERNS.into()).or_default().push(format!("!{value}").into());
                }
                (_, None) => drop(kept.insert(key_of(name), true.into())),
                (_, Some(value)) if takes_several(name) => {
                    lists.entry(key_of(name)).or_default().push(value.into());
                }
                (_, Some(value)) => drop(kept.insert(key_of(name), normalized_value(name, value, now_s)?)),
            }
        }
        kept.extend(lists.into_iter().map(|(key, values)| (key, values.into())));
        let settled = TransferOptions(kept);
        // Contradictions are reported before anything is stored.
        let values = settled.values()?;
        values.spec().and_then(|_| values.settings())?;
        Ok(settled)
    }

    /// Returns `--pairs`.
    pub fn pairs(&self) -> Option<u32> {
        self.number("pairs").and_then(|pairs| u32::try_from(pairs).ok())
    }

    /// Returns `--chunk-size`, in bytes.
    pub fn chunk_bytes(&self) -> Option<u64> {
        self.number("chunk-size")
    }

    /// Returns `--strict`.
    pub fn is_strict(&self) -> bool {
        self.is_set("strict")
    }

    /// Returns `--delete`.
    pub fn deletes(&self) -> bool {
        self.is_set("delete")
    }

    /// Returns `--deadline`, in milliseconds since 1970.
    pub fn deadline_ms(&self) -> Option<u64> {
        let kept = self.0.get("deadline").and_then(Value::as_str);
        let seconds = kept.and_then(|text| text.strip_prefix('@')?.parse::<u64>().ok());
        seconds.map(|seconds| seconds.saturating_mul(1_000)).or_else(|| self.0.get(DEADLINE_MS)?.as_u64())
    }

    fn number(&self, name: &str) -> Option<u64> {
        let earlier = EARLIER_NAMES.iter().filter(|(_, today)| *today == name).map(|(earlier, _)| *earlier);
        let value =
            self.0.get(&key_of(name)).or_else(|| earlier.into_iter().find_map(|key| self.0.get(key)))?;
        value.as_u64().or_else(|| parse_size(value.as_str()?).ok())
    }

    fn is_set(&self, name: &str) -> bool {
        if self.0.get(&key_of(name)) == Some(&Value::Bool(true)) {
            return true;
        }
        let words = self.0.get(COPY_OPTIONS).and_then(Value::as_array);
        let mut words = words.into_iter().flatten().filter_map(Value::as_str);
        words.any(|word| word.strip_prefix("--") == Some(name))
    }
}

fn key_of(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the option's name of a member.
fn name_of(key: &str) -> String {
    let today =
        EARLIER_NAMES.iter().find(|(earlier, _)| *earlier == key).map(|(_, today)| (*today).to_owned());
    today.unwrap_or_else(|| key.replace('_', "-"))
}

fn name_of_word(word: &str) -> Option<&str> {
    let name = word.strip_prefix("--")?;
    Some(name.split_once('=').map_or(name, |(name, _)| name))
}

fn takes_several(name: &str) -> bool {
    definition(name).is_some_and(|arg| matches!(arg.get_action(), ArgAction::Append))
}

/// Returns one value of an option as JSON.
fn normalized_value(name: &str, value: &str, now_s: i64) -> Result<Value, UserError> {
    let moment = match name {
        "newer" => parse_past_moment(value, now_s),
        "deadline" => parse_moment(value, now_s),
        "stop-at" => local_time::parse_moment(value),
        _ => {
            // Numbers become JSON numbers, unless that would change their text.
            let number = value.parse::<u64>().ok().filter(|number| number.to_string() == value);
            return Ok(number.map_or_else(|| value.into(), Value::from));
        }
    };
    let moment = moment.map_err(|error| {
        UserError::new(format!("--{name}={value}: {error}")).hint("as in 2d, or 2026-11-23T02:00:00Z")
    })?;
    if name == "stop-at" && moment <= now_s {
        return Err(UserError::new(format!("--stop-at {value} is over")).hint("name a time to come"));
    }
    Ok(format!("@{moment}").into())
}

fn texts(key: &str, value: &Value) -> Result<Vec<String>, UserError> {
    let texts = value.as_array().and_then(|list| {
        list.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
    });
    texts.ok_or_else(|| {
        UserError::new(format!("{key} is a list of texts")).hint(r#"as in ["*.o", "!keep.o"]"#)
    })
}

fn add_words(words: &mut Vec<String>, name: &str, value: &Value) -> Result<(), UserError> {
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Bool(true) => words.push(format!("--{name}")),
        Value::Number(number) => words.push(format!("--{name}={number}")),
        Value::String(text) => words.push(format!("--{name}={text}")),
        Value::Array(several) => {
            several.iter().try_for_each(|value| match value {
                _ if !takes_several(name) => Err(UserError::new(format!("{name}: one value, and no list"))),
                Value::Array(_) => Err(UserError::new(format!("{name}: a list in a list"))),
                value => add_words(words, name, value),
            })?;
        }
        Value::Object(_) => return Err(UserError::new(format!("{name}: it is a value, and no object"))),
    }
    Ok(())
}

/// The options of `carrack submit` for the copy: those of copies and syncs, without those that no submitted
/// transfer can have. Relative times are computed, and files of patterns read, at the submission.
#[derive(Clone, Debug)]
pub struct SubmittedArgs {
    asked: Vec<AskedOption>,
    filters: FilterArgs,
}

/// `submit` has its own, for which the start may be chosen.
const OF_SUBMIT: &str = "deadline";

impl SubmittedArgs {
    /// Returns the typed options, and those of configuration files as far as they can be carried out in this
    /// way.
    ///
    /// # Errors
    /// If no submitted transfer can have one of the typed ones, or a file of patterns can't be read.
    pub fn options(&self, way: SubmissionExecutorKind) -> Result<TransferOptions, UserError> {
        let is_sync = self.asked.iter().any(|asked| asked.is_typed && asked.is_sync_option());
        let deletes =
            is_sync && self.asked.iter().any(|asked| ["delete", "delete-before"].contains(&asked.name));
        let mut words = Vec::new();
        for AskedOption { name, arg, values, is_typed, .. } in self.asked.iter().filter(|asked| {
            // A configuration file does not turn a copy into a sync, and is for all ways of copying.
            let has_sense = !asked.is_sync_option() || is_sync && (deletes || !asked.is_deletion_option());
            asked.is_typed || has_sense && way.refusal(asked.name).is_none()
        }) {
            if *is_typed && is_refused_everywhere(name) {
                let message =
                    format!("--{name} is an option of `carrack cp`, and none of submitted transfers");
                return Err(UserError::new(message).hint(way.refusal(name).unwrap_or_default()));
            }
            match (is_switch(arg), *name) {
                (_, FILES_FROM) => words.extend(self.files_from_arguments(values)?),
                (_, FROM0) => {}
                (true, _) => words.push(format!("--{name}")),
                (false, _) => words.extend(values.iter().map(|value| format!("--{name}={value}"))),
            }
        }
        words.extend(filter_words(&self.filters.lines()?));
        TransferOptions::from_words(&words)
    }

    /// Returns the paths in a file as options: the process that carries the transfer out has no such file.
    fn files_from_arguments(&self, files: &[String]) -> Result<Vec<String>, UserError> {
        let ends_with_nul = self.asked.iter().any(|asked| asked.name == FROM0);
        let mut words = Vec::new();
        for file in files {
            let paths = read_path_list(Path::new(file), ends_with_nul)?;
            if paths.is_empty() {
                let trouble = UserError::new(format!("--{FILES_FROM} {file}: there is no path in it"));
                return Err(trouble.hint("list what is wanted, or leave the option out"));
            }
            for path in paths {
                let text = String::from_utf8(path.into()).map_err(|error| {
                    let path = escape(error.as_bytes());
                    UserError::new(format!("--{FILES_FROM} {file}: {path} is not UTF-8"))
                        .hint("`carrack cp` takes it, or name the directory above it")
                })?;
                words.push(format!("--only={text}"));
            }
        }
        Ok(words)
    }
}

/// A given option.
#[derive(Clone, Debug)]
struct AskedOption {
    arg: &'static Arg,
    name: &'static str,
    values: Vec<String>,
    /// False for a value from a configuration file.
    is_typed: bool,
}

impl AskedOption {
    /// Returns an option that differs from its default.
    fn of(matches: &ArgMatches, name: &'static str, arg: &'static Arg) -> Option<AskedOption> {
        let id = arg.get_id().as_str();
        let values = matches.try_get_raw(id).ok().flatten()?;
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let defaults = arg.get_default_values().iter();
        let defaults: Vec<String> = defaults.map(|value| value.to_string_lossy().into_owned()).collect();
        let is_default = values == defaults || is_switch(arg) && values == ["false"];
        let is_typed = match matches.value_source(id)? {
            ValueSource::CommandLine if !is_switch(arg) || values == ["true"] => true,
            ValueSource::DefaultValue if !is_default => false,
            // The environment's values are for this process only.
            _ => return None,
        };
        Some(AskedOption { arg, name, values, is_typed })
    }

    fn is_deletion_option(&self) -> bool {
        OF_DELETION.iter().any(|option| option.strip_prefix("--") == Some(self.name))
    }

    fn is_sync_option(&self) -> bool {
        self.arg.get_help_heading() == Some(SYNC)
    }
}

impl FromArgMatches for SubmittedArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SubmittedArgs, clap::Error> {
        let asked = definitions()
            .filter(|(name, _)| *name != OF_SUBMIT && filter_option_names().all(|filter| filter != *name))
            .filter_map(|(name, arg)| AskedOption::of(matches, name, arg))
            .collect();
        Ok(SubmittedArgs { asked, filters: FilterArgs::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SubmittedArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SubmittedArgs {
    fn augment_args(command: Command) -> Command {
        let all = SubmittedValues::augment_args(Command::new("submitted"));
        let args = all.get_arguments().filter(|arg| arg.get_long() != Some(OF_SUBMIT)).map(|arg| {
            let is_hidden = arg.is_hide_set() || arg.get_long().is_some_and(is_refused_everywhere);
            arg.clone().hide(is_hidden).env(None::<&'static str>)
        });
        let groups = all.get_groups().filter(|group| group.get_args().all(|id| id != OF_SUBMIT));
        command.args(args.collect::<Vec<Arg>>()).groups(groups.cloned().collect::<Vec<_>>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        SubmittedArgs::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestSubmitCommandLine {
        #[command(flatten)]
        submitted: SubmittedArgs,
    }

    fn typed(words: &[&str]) -> Result<Value, String> {
        let line = TestSubmitCommandLine::try_parse_from(["submit"].iter().chain(words))
            .map_err(|error| error.to_string())?;
        line.submitted
            .options(SubmissionExecutorKind::Queue)
            .map(|options| options.0.into())
            .map_err(|trouble| trouble.message)
    }

    fn json(text: &str) -> TransferOptions {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_typed_is_kept_as_an_object() {
        let words = [
            "--exclude",
            "*.o",
            "-a",
            "--no-owner",
            "--include=keep.o",
            "--exclude",
            "/top",
            "-x",
            "--streams",
            "4",
            "--buffer=64MiB",
            "--tune",
            "on",
            "--chmod",
            "0644",
            "--newer=@7",
            "--owner",
        ];
        let expected = serde_json::json!({
            "archive": true, "owner": true, "one_file_system": true, "streams": 4, "buffer": "64MiB", "tune": "on",
            "chmod": "0644", "newer": "@7", "patterns": ["*.o", "!keep.o", "/top"],
        });
        assert_eq!(typed(&words).unwrap(), expected);
        assert_eq!(typed(&[]).unwrap(), serde_json::json!({}));
    }

    /// Parses a command line over these defaults.
    fn asked_over_defaults(
        defaults: &[(&str, &'static str)],
        words: &[&str],
        way: SubmissionExecutorKind,
    ) -> TransferOptions {
        use clap::CommandFactory;
        let command = defaults.iter().fold(TestSubmitCommandLine::command(), |command, &(name, value)| {
            command.mut_arg(name, |arg| {
                let arg = if is_switch(&arg) { arg.action(ArgAction::Set) } else { arg };
                arg.default_value(value)
            })
        });
        let matches = command.try_get_matches_from(["submit"].iter().chain(words)).unwrap();
        TestSubmitCommandLine::from_arg_matches(&matches).unwrap().submitted.options(way).unwrap()
    }

    /// As the lines of a configuration file are laid beneath a command line.
    #[test]
    fn another_default_is_asked_for_where_it_can_be_carried_out_and_means_something() {
        let defaults =
            [("lanes", "2"), ("streams", "4"), ("max_delete", "7"), ("update", "true"), ("trash", "true")];
        assert_eq!(
            asked_over_defaults(&defaults, &[], SubmissionExecutorKind::Queue),
            json(r#"{"lanes":2,"streams":4}"#)
        );
        assert_eq!(
            asked_over_defaults(&defaults, &[], SubmissionExecutorKind::Fleet),
            json(r#"{"streams":4}"#)
        );
        let sync = json(r#"{"lanes":2,"streams":4,"sync":true,"update":true}"#);
        assert_eq!(asked_over_defaults(&defaults, &["--sync"], SubmissionExecutorKind::Queue), sync);
        let with_deletion =
            json(r#"{"delete":true,"lanes":2,"max_delete":7,"streams":4,"trash":true,"update":true}"#);
        assert_eq!(
            asked_over_defaults(&defaults, &["--delete"], SubmissionExecutorKind::Queue),
            with_deletion
        );
    }

    #[test]
    fn patterns_of_a_file_stand_where_the_file_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("patterns");
        std::fs::write(&file, "# comment\n\nbuild/\n!build/keep\n\\#odd\n").unwrap();
        let found = typed(&["--exclude", "a", "--filter-from", file.to_str().unwrap(), "--include", "b"]);
        assert_eq!(
            found.unwrap()["patterns"],
            serde_json::json!(["a", "build/", "!build/keep", "\\#odd", "!b"])
        );
        assert!(typed(&["--filter-from", "/not/there"]).unwrap_err().contains("--filter-from"));
    }

    #[test]
    fn rules_of_other_languages_are_stored_and_their_files_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "*.o\n+ keep\n").unwrap();
        let path = file.path().to_str().unwrap();
        let found = typed(&["--filter", "P kept", "--exclude-from", path, "--filter", ":e .rules"]).unwrap();
        assert_eq!(found, serde_json::json!({"filter": ["-r kept", "- *.o", "+ keep", ":e .rules"]}));
        let rules = found["filter"].as_array().unwrap();
        let words: Vec<String> =
            rules.iter().map(|rule| format!("--filter={}", rule.as_str().unwrap())).collect();
        assert_eq!(json(&found.to_string()).to_arguments().unwrap(), words);
        std::fs::write(file.path(), "+ keep\n- *\n").unwrap();
        let found = typed(&["--rclone-filter-from", path, "--rclone-filter", "- x"]).unwrap();
        assert_eq!(found, serde_json::json!({"rclone_filter": ["+ keep", "- *", "- x"]}));
    }

    #[test]
    fn patterns_from_a_pipe_are_read_once_whoever_is_asked() {
        for way in [SubmissionExecutorKind::Queue, SubmissionExecutorKind::Fleet] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"build/\n").unwrap();
            drop(writer);
            let file = format!("/proc/self/fd/{}", reader.as_raw_fd());
            let line = TestSubmitCommandLine::try_parse_from(["submit", "--filter-from", &file]).unwrap();
            assert_eq!(line.submitted.options(way).unwrap(), json(r#"{"patterns":["build/"]}"#));
        }
    }

    #[test]
    fn a_list_of_paths_is_read_when_it_is_submitted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"a/b\n./c=d/\0").unwrap();
        let option = format!("--files-from={}", file.path().display());
        assert_eq!(typed(&[&option]).unwrap_err(), "--only: a NUL byte");
        let listed = typed(&[&option, "--from0", "--only", "e"]).unwrap();
        assert_eq!(listed, serde_json::json!({"only": ["e", "a/b\n./c=d"]}));
        file.as_file().set_len(0).unwrap();
        file.write_all(b"\xff").unwrap();
        assert!(typed(&[&option, "--from0"]).is_err(), "no text");
    }

    #[test]
    fn what_makes_no_sense_for_a_copy_makes_none_here() {
        for words in [
            &["--max-size", "many"][..],
            &["--usermap", "alice"],
            &["-L", "--skip-links"],
            &["--nice", "--policy", "round-robin"],
            &["--exclude", "{a"],
            &["--exclude", "#a"],
            &["--buffer", "1MiB"],
            &["--trash"],
            &["--files-from", "/no/such/file"],
            &["--files-from", "/dev/null"],
            &["--only", "../x"],
            &["--delete", "--only", "x"],
            &["--spill", "/x:1GiB"],
        ] {
            typed(words).unwrap_err();
        }
        use clap::CommandFactory;
        let help = TestSubmitCommandLine::command().render_long_help().to_string();
        assert!(
            help.contains("--files-from") && help.contains("--delete-before") && help.contains("--pairs"),
            "{help}"
        );
    }

    #[test]
    fn what_is_kept_comes_back_as_words_and_times_are_moments() {
        let words = [
            "--archive",
            "--chown=7:8",
            "--max-size=1GiB",
            "--newer=@7",
            "--exclude=*.o",
            "--include=a=b",
            "--streams=4",
        ];
        let options = TransferOptions::from_words(&words).unwrap();
        assert_eq!(options.to_arguments().unwrap(), words);
        assert_eq!(json(&serde_json::to_string(&options).unwrap()), options);
        let settled = json(r#"{"newer":"2d","deadline":"1h"}"#).normalized(1_000_000).unwrap();
        assert_eq!(settled.to_arguments().unwrap(), ["--deadline=@1003600", "--newer=@827200"]);
        assert_eq!(settled.deadline_ms(), Some(1_003_600_000));
    }

    /// In a record it has no effect any more; a new request is refused.
    #[test]
    fn what_is_retired_is_read_and_not_taken() {
        let options = json(r#"{"static_striping":true,"pairs":2}"#);
        assert_eq!(options.to_arguments().unwrap(), ["--pairs=2"]);
        assert!(options.normalized(0).unwrap_err().line().contains("--static-striping any more"));
    }

    #[test]
    fn records_of_version_1_mean_what_they_meant() {
        let options = json(
            r#"{"protection":"safe","streams":3,"buffer_bytes":67108864,"object_bytes":2097152,"limit_bytes_per_s":9,
                "limit_bytes_per_s_per_target":7,"deadline_ms":1795399199001,"copy_options":["--archive","--strict","--exclude=*.o"],
                "chunk_bytes":5,"pairs_max":2,"io_threads":5,"nice":true}"#,
        );
        let words = options.normalized(0).unwrap().to_arguments().unwrap();
        let expected = [
            "--archive",
            "--buffer=67108864",
            "--bwlimit=9",
            "--bwlimit-per-target=7",
            "--chunk-size=5",
            "--deadline=@1795399200",
            "--io-threads=5",
            "--nice",
            "--object-size=2097152",
            "--pairs=2",
            "--exclude=*.o",
            "--protection=safe",
            "--streams=3",
            "--strict",
        ];
        assert_eq!(words, expected);
        for options in [options.clone(), options.normalized(0).unwrap()] {
            assert_eq!((options.pairs(), options.chunk_bytes()), (Some(2), Some(5)));
            assert!(options.is_strict());
        }
        assert_eq!(options.deadline_ms(), Some(1_795_399_199_001));
        assert_eq!(
            json(r#"{"timetable":"sat-sun off, 1GB"}"#).to_arguments().unwrap(),
            ["--bwlimit=sat-sun off, 1GB"]
        );
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for text in [
            r#"{"mood":"good"}"#,
            r#"{"archive":"x"}"#,
            r#"{"streams":true}"#,
            r#"{"streams":65}"#,
            r#"{"object_size":"3MiB"}"#,
            r#"{"bwlimit":0}"#,
            r#"{"patterns":"*.o"}"#,
            r#"{"copy_options":["-a"]}"#,
            r#"{"copy_options":["--"]}"#,
            r#"{"copy_options":["archive"]}"#,
            r#"{"ssh":"sh"}"#,
            r#"{"deadline_ms":"soon"}"#,
            r#"{"streams":[4,8]}"#,
            r#"{"stop_at":"@5"}"#,
            r#"{"patterns":["a\u0000b"]}"#,
            r#"{"filter_from":"/dev/zero"}"#,
            r#"{"filter":["merge /etc/shadow"]}"#,
            r#"{"filter":[".,e_/etc/shadow"]}"#,
            r#"{"filter":["foo"]}"#,
            r#"{"filter":["- a"],"patterns":["b"]}"#,
            r#"{"rclone_filter":["a"]}"#,
            r#"{"patterns":["- *.log"]}"#,
            r#"{"exclude_from":["/etc/shadow"]}"#,
            r#"{"rclone_filter_from":["/etc/shadow"]}"#,
            r#"{"filter-from":"-"}"#,
            r#"{"files_from":"/etc/shadow"}"#,
            r#"{"copy_options":["--filter-from=/dev/zero"]}"#,
            r#"{"json":true}"#,
            r#"{"streams":[[1]]}"#,
            r#"{"streams":{}}"#,
        ] {
            let trouble = json(text).normalized(10).unwrap_err();
            assert!(!trouble.message.is_empty(), "{text}");
        }
        let long = TransferOptions::default().with("exclude", "x".repeat(BYTES_MAX));
        assert!(long.normalized(0).is_err());
        assert!(
            json(r#"{"archive":false,"streams":null}"#).normalized(0).unwrap() == TransferOptions::default()
        );
    }

    #[test]
    fn every_option_is_defined_once_and_every_refusal_is_of_one() {
        let mut names: Vec<&str> = definitions().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for refused in crate::REFUSED {
            assert!(names.contains(&refused.name), "{}", refused.name);
            assert!(refused.queue.or(refused.fleet).is_some_and(|why| !why.is_empty()), "{}", refused.name);
        }
    }
}
