use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use clap::ArgMatches;

use super::command_line_defaults::{COMMANDS, apply_config_sources, command_with_valued_flags};
use super::*;

/// A user's file, a system's, and an environment.
struct ConfigFixture {
    home: tempfile::TempDir,
    sources: ConfigSources,
}

impl ConfigFixture {
    fn new(user: &str, system: &str, environment: &[(&str, &str)]) -> ConfigFixture {
        let home = tempfile::tempdir().unwrap();
        let files = [("user.toml", user), ("system.toml", system)].map(|(name, text)| {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            path
        });
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
        let environment: BTreeMap<String, OsString> = environment.collect();
        ConfigFixture { home, sources: ConfigSources { environment, files: files.into() } }
    }

    fn parse(&self, words: &str) -> Result<ArgMatches, String> {
        let words: Vec<OsString> = format!("carrack {words}").split(' ').map(OsString::from).collect();
        let carrack = command_with_valued_flags();
        let given = carrack.clone().try_get_matches_from(&words).map_err(|error| error.to_string())?;
        let settled = apply_config_sources(&carrack, given, &words, &self.sources)
            .map_err(|problem| self.told(problem))?;
        Ok(settled.subcommand().unwrap().1.clone())
    }

    /// Returns true if a flag is set with these words.
    fn is(&self, words: &str, flag: &str) -> bool {
        *self.parse(words).unwrap().get_one::<bool>(flag).unwrap()
    }

    fn rows(&self, command: &str, words: &str) -> Result<Vec<ConfiguredOptionRow>, String> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let rows = rows(
            &command_with_valued_flags(),
            command,
            &words,
            &ConfigSourceChoice::default(),
            &self.sources,
        );
        rows.map_err(|problem| self.told(problem))
    }

    /// Value and origin, with the directory of the files left out.
    fn found(&self, command: &str, words: &str, option: &str) -> (String, String) {
        let rows = self.rows(command, words).unwrap();
        let row = rows.iter().find(|row| row.option == option).unwrap();
        let values: Vec<_> = row.values.iter().map(|value| value.to_string_lossy()).collect();
        (values.join(" "), self.here(&row.origin.to_string()))
    }

    fn here(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.home.path().display()), "")
    }

    fn told(&self, problem: CommandLineError) -> String {
        match problem {
            CommandLineError::Typed(error) => error.to_string(),
            CommandLineError::Elsewhere(trouble) => self.here(&trouble.to_string()),
        }
    }
}

fn pair(value: &str, origin: &str) -> (String, String) {
    (value.to_owned(), origin.to_owned())
}

#[test]
fn what_is_nearer_to_the_user_counts() {
    let system = "buffer = \"1MiB\"\nstreams = 1\nretry = 1\nobject-size = \"1MiB\"\nssh = \"a\"\n";
    let user = "buffer = \"2MiB\"\nstreams = 2\nretry = 2\n\n[cp]\nbuffer = \"3MiB\"\n\n[profile.mine]\nretry = 3\nstreams = 3\n";
    let world = ConfigFixture::new(user, system, &[("CARRACK_STREAMS", "4"), ("CARRACK_UNKNOWN", "1")]);
    for (words, option, found) in [
        ("--buffer 9MiB", "buffer", pair("9MiB", "command line")),
        ("", "buffer", pair("3MiB", "user.toml:6")),
        ("--profile mine", "streams", pair("4", "CARRACK_STREAMS")),
        ("--profile mine", "retry", pair("3", "profile mine, user.toml:9")),
        ("", "retry", pair("2", "user.toml:3")),
        ("", "object-size", pair("1MiB", "system.toml:4")),
        ("", "ssh", pair("a", "system.toml:5")),
        ("", "source-io", pair("auto", "default")),
        ("--no-config", "retry", pair("8", "default")),
        ("--no-config --profile wan", "retry", pair("30", "profile wan, built in")),
    ] {
        assert_eq!(world.found("cp", words, option), found, "{words} {option}");
    }
    assert_eq!(world.found("sync", "", "buffer"), pair("2MiB", "user.toml:1"));
    assert_eq!(world.found("ls", "", "ssh"), pair("a", "system.toml:5"));
}

#[test]
fn what_is_set_arrives() {
    let text = "ssh = \"x -y\"\nexclude = [\"*.o\", \"/tmp\"]\nstreams = 7\ntargets = [\"/a\", \"/b\"]\nrecursive = true\n";
    let world = ConfigFixture::new(text, "", &[("CARRACK_NICE", "yes")]);
    let found = world.parse("cp a b").unwrap();
    assert_eq!(found.get_one::<u16>("streams"), Some(&7));
    for (name, values) in [
        ("exclude", &["*.o", "/tmp"][..]),
        ("targets", &["/a", "/b"]),
        ("recursive", &["true"]),
        ("nice", &["true"]),
    ] {
        assert_eq!(found.get_raw(name).unwrap().collect::<Vec<_>>(), values, "{name}");
    }
    assert!(world.is("layout a", "recursive"));
    assert!(!world.is("cp --recursive=false a b", "recursive"));
    assert!(!ConfigFixture::new("nice = true", "", &[("CARRACK_NICE", "0")]).is("cp a b", "nice"));
    let typed = world.parse("cp -rn --exclude c a b").unwrap();
    assert_eq!(typed.get_raw("exclude").unwrap().collect::<Vec<_>>(), ["c"]);
}

/// A typed option also overrides options of other names that it excludes.
#[test]
fn what_was_typed_takes_back_what_it_excludes() {
    let world = ConfigFixture::new(
        "quiet = true\nno-owner = true\nmax-delete = 3\n",
        "owner = true\nverbose = true\n",
        &[],
    );
    assert!(world.is("cp a b", "quiet") && !world.is("cp a b", "verbose"));
    assert!(world.is("cp -v a b", "verbose") && !world.is("cp -v a b", "quiet"));
    assert!(world.is("cp --quiet=false a b", "verbose"));
    assert!(!world.is("cp --owner a b", "no_owner") && world.is("cp -a a b", "no_owner"));
    assert!(!world.is("cp a b", "owner"));
    // Without --delete, --max-delete has no effect and requires nothing.
    assert!(world.parse("sync a b").is_ok());
    assert!(world.parse("cp -q -v a b").is_err());
}

#[test]
fn one_word_for_all_commands_deletes_nothing() {
    let world =
        ConfigFixture::new("recursive = true\n", "", &[("CARRACK_RECURSIVE", "1"), ("CARRACK_YES", "1")]);
    assert!(!world.is("rm a", "recursive") && !world.is("rm a", "yes"));
    assert!(ConfigFixture::new("[rm]\nyes = true\n", "", &[]).is("rm a", "yes"));
    let token = ConfigFixture::new("", "", &[("CARRACK_TOKEN", "secret")]);
    assert!(token.parse("cp a b").unwrap().get_raw("token").is_none());
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_a_hint() {
    for (text, words, hint) in [
        ("\nbufer = 1\n", "user.toml:2: there is no option bufer", "is it buffer?"),
        ("[cp]\nnice = true\ndelete = true\n", "user.toml:3: there is no option delete", ""),
        ("[sinc]\n", "user.toml:1: there is no command sinc", "is it sync?"),
        ("[keys]\n", "user.toml:1: there is no command keys", ""),
        ("[profile.a]\nbwlimt = 1\n", "user.toml:2: there is no option bwlimt", "is it bwlimit?"),
        ("token = \"x\"\n", "there is no option token", "token-file"),
        ("streams = 99\n", "user.toml:1: invalid value '99' for '--streams <N>': 99 is not in 0..=64", ""),
        ("\n\ncipher = \"rot13\"\n", "user.toml:3: invalid value 'rot13' for '--cipher <NAME>'", ""),
        ("recursive = 1\n", "user.toml:1: invalid value '1'", ""),
        ("buffer = [\"1MiB\", \"2MiB\"]\n", "user.toml:1: buffer takes one value", ""),
        ("buffer = 2026-11-23\n", "user.toml:1: buffer takes text", ""),
        ("buffer = \n", "user.toml:1: ", ""),
        ("\ndefault-profile = \"wann\"\n", "user.toml:2: there is no profile wann", "is it wan?"),
    ] {
        let told = ConfigFixture::new(text, "", &[]).parse("cp a b").unwrap_err();
        assert!(told.contains(words) && told.contains(hint), "{text}: {told}");
    }
    let told = ConfigFixture::new("", "", &[]).parse("cp --profile mine a b").unwrap_err();
    assert!(told.contains("there is no profile mine") && told.contains("hint: "), "{told}");
    // An error in a typed value does not name a file.
    let told = ConfigFixture::new("streams = 9\n", "", &[]).parse("cp --streams 99 a b").unwrap_err();
    assert!(told.starts_with("error: invalid value '99'"), "{told}");
}

#[test]
fn a_file_that_others_may_write_to_is_refused() {
    let world = ConfigFixture::new("streams = 9\n", "", &[]);
    fs::set_permissions(&world.sources.files[0], Permissions::from_mode(0o664)).unwrap();
    let told = world.parse("cp a b").unwrap_err();
    assert!(told.contains("others may write") && told.contains("hint: chmod go-w user.toml"), "{told}");
    assert!(world.parse("cp --no-config a b").is_ok());
    fs::remove_file(&world.sources.files[0]).unwrap();
    assert!(world.parse("cp a b").is_ok());
}

#[test]
fn the_profiles_are_sound_and_documented() {
    let world = ConfigFixture::new("", "", &[]);
    for profile in ["lan", "wan", "hpc"] {
        let rows = world.rows("cp", &format!("--profile {profile}")).unwrap();
        let set: Vec<_> = rows.iter().filter(|row| row.is_set()).collect();
        assert!(set.len() > 1, "{profile}");
        // Each value differs from the default.
        assert!(set.iter().all(|row| row.values != [OsString::from(&row.default)]), "{set:?}");
        // Options that submitted transfers lack are left out.
        assert!(world.parse(&format!("submit --profile {profile} a:/ b:/")).is_ok());
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    assert!(fs::read_to_string(docs).unwrap().contains(include_str!("profiles.toml").trim_end()));
}

#[test]
fn every_command_can_be_shown() {
    let world = ConfigFixture::new("", "", &[]);
    for command in COMMANDS {
        let rows = world.rows(command, "").unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.is_set()), "{command}: {rows:?}");
    }
    let rows = world.rows("cp", "").unwrap();
    let [buffer, timeout, bwlimit, nice] = ["buffer", "timeout", "bwlimit", "nice"]
        .map(|name| rows.iter().find(|row| row.option == name).unwrap());
    assert_eq!((buffer.unit, &*buffer.default), (Some("bytes"), "256MiB"));
    assert_eq!(timeout.default, "never");
    assert!(bwlimit.values.is_empty());
    assert_eq!(nice.values, ["false"]);
}
