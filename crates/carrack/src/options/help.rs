//! The presentation of the command line: the overview of all commands, the short help of commands with many
//! options, and the command line that completions offer.

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Arg, ArgGroup, Command};

use crate::exit;

/// The colours of help and of usage errors, on a terminal.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The commands in the order of the overview, by purpose.
pub const GROUPS: [(&str, &[&str]); 7] = [
    ("Copy", &["cp", "sync", "verify", "submit", "resume", "journals"]),
    ("Look around, and tidy up", &["ls", "stat", "layout", "mkdir", "rm"]),
    ("Watch", &["status", "transfers", "log", "wait", "pause", "cancel", "targets"]),
    ("Serve", &["serve", "keys"]),
    ("Fleet", &["mover", "manager", "api", "movers"]),
    ("Machine", &["doctor", "topo", "fabric", "forecast", "tune"]),
    ("Configure", &["config", "completions"]),
];

/// The lines about a beginning in the overview.
pub const FIRST_STEPS: &str = "  \
  carrack cp -r data host:/archive        copy a directory to another host
  carrack sync data/ host:/archive/data   send only what differs
  carrack cp --help                       all options of a copy, and examples
";

/// The output of `carrack` without arguments.
pub const BEGINNING: &str = "\
carrack moves big data sets between storage systems, over ssh.

First copies:
  carrack cp -r data host:/archive        data becomes /archive/data at host
  carrack sync data/ host:/archive/data   again: send only what differs
The other host needs sshd and no open port. A static carrack sends itself there.

Help:
  carrack --help                          all commands
  carrack cp -h                           common options; --help has all
";

/// The options in the short help (`-h`) of commands with many options. `--help` has all.
const SHORT_HELP: [(&str, &[&str]); 4] = [
    (
        "cp",
        &[
            "recursive",
            "archive",
            "preserve",
            "dry-run",
            "no-target-directory",
            "exclude",
            "manifest",
            "bwlimit",
            "streams",
            "ssh-port",
            "ssh-identity",
            "timeout",
            "background",
            "json",
            "quiet",
            "verbose",
        ],
    ),
    (
        "sync",
        &[
            "archive",
            "dry-run",
            "contents",
            "update",
            "delete",
            "max-delete",
            "trash",
            "exclude",
            "bwlimit",
            "streams",
            "ssh-port",
            "ssh-identity",
            "background",
            "json",
            "quiet",
            "verbose",
        ],
    ),
    (
        "submit",
        &[
            "priority",
            "label",
            "wait",
            "when",
            "deadline",
            "archive",
            "sync",
            "delete",
            "exclude",
            "bwlimit",
            "chunk-size",
            "pairs",
            "server",
            "token-file",
            "nats",
        ],
    ),
    (
        "verify",
        &[
            "archive",
            "no-times",
            "manifest",
            "extra",
            "offset",
            "length",
            "state",
            "threads",
            "json",
            "ssh-port",
            "ssh-identity",
        ],
    ),
];

/// Returns the command line with its overview and its short helps.
pub fn arrange_help(carrack: Command) -> Command {
    let overview = overview(&carrack);
    let carrack = carrack.override_help(overview);
    SHORT_HELP.iter().fold(carrack, |carrack, (name, shown)| {
        carrack.mut_subcommand(name, |command| shorten_help(command, shown))
    })
}

/// Leaves all options but the `shown` ones out of the command's short help.
fn shorten_help(command: Command, shown: &[&str]) -> Command {
    let more = format!("`carrack {} --help` lists all options.", command.get_name());
    command.after_help(more).mut_args(|arg| {
        let is_left_out = arg.get_long().is_some_and(|name| !shown.contains(&name));
        arg.hide_short_help(is_left_out)
    })
}

/// Returns the help of carrack as a whole: every command, by purpose.
fn overview(carrack: &Command) -> String {
    let header = STYLES.get_header();
    let literal = STYLES.get_literal();
    let about = carrack.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{about}\n\n{header}Usage:{header:#} carrack COMMAND [OPTIONS] ...\n");
    for (heading, names) in GROUPS {
        text.push_str(&format!("\n{header}{heading}:{header:#}\n"));
        for command in names.iter().filter_map(|name| carrack.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {literal}{:<11}{literal:#}  {about}", command.get_name()));
            let aliases: Vec<&str> = command.get_visible_aliases().collect();
            text.push_str(&if aliases.is_empty() {
                "\n".to_owned()
            } else {
                format!(" [alias: {}]\n", aliases.join(", "))
            });
        }
    }
    text.push_str(&format!("\n{header}Where to begin:{header:#}\n{FIRST_STEPS}"));
    text.push_str(&format!(
        "\n{header}Options:{header:#}\n  -h, --help     Print help: of a command, `carrack COMMAND --help`\n  \
         -V, --version  Print the version\n\n{}",
        exit::help("")
    ));
    text
}

/// Returns the command line without hidden commands and options.
pub fn without_hidden(command: &Command) -> Command {
    let args: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect();
    let groups = command.get_groups().filter(|group| is_within(group, &args)).cloned().collect::<Vec<_>>();
    let commands = command.get_subcommands().filter(|below| !below.is_hide_set()).map(without_hidden);
    let visible = Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .visible_aliases(command.get_visible_aliases().map(str::to_owned).collect::<Vec<_>>())
        .args(args)
        .groups(groups)
        .subcommands(commands.collect::<Vec<_>>());
    match command.get_version() {
        Some(version) => visible.version(version.to_owned()),
        None => visible,
    }
}

/// Returns true if all members of a group are among the arguments.
fn is_within(group: &ArgGroup, args: &[Arg]) -> bool {
    group.get_args().all(|id| args.iter().any(|arg| arg.get_id() == id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::config;

    const WIDTH: usize = 80;

    /// All commands, those below others too, with their names as typed.
    fn all(carrack: &Command) -> Vec<(String, Command)> {
        let below = carrack.get_subcommands().filter(|command| command.get_name() != "help");
        let mut found = Vec::new();
        for command in below {
            found.push((command.get_name().to_owned(), command.clone()));
            let inner = all(command).into_iter();
            found.extend(inner.map(|(name, inner)| (format!("{} {name}", command.get_name()), inner)));
        }
        found
    }

    fn built() -> Command {
        let mut carrack = config::carrack_command();
        carrack.build();
        carrack
    }

    #[test]
    fn the_overview_has_every_command_once_in_lines_of_80_columns() {
        let mut carrack = built();
        let help = carrack.render_long_help().to_string();
        assert_eq!(help, carrack.render_help().to_string());
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for (name, command) in all(&carrack).iter().filter(|(name, _)| !name.contains(' ')) {
            let groups = GROUPS.iter().flat_map(|(_, names)| *names).filter(|grouped| *grouped == name);
            assert_eq!(groups.count(), usize::from(!command.is_hide_set()), "{name}");
            assert_eq!(help.contains(&format!("\n  {name:<11}  ")), !command.is_hide_set(), "{name}");
        }
        assert!(help.contains("[alias: retry]") && help.contains("carrack cp --help"), "{help}");
        assert!(BEGINNING.lines().count() <= 10, "{BEGINNING}");
    }

    #[test]
    fn short_helps_are_short() {
        let carrack = built();
        for (name, shown) in SHORT_HELP {
            let mut command = carrack.find_subcommand(name).unwrap().clone();
            let help = command.render_help().to_string();
            assert!(help.lines().count() <= 60, "{}:\n{help}", help.lines().count());
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
            assert!(help.contains(&format!("carrack {name} --help")), "{help}");
            let long = command.render_long_help().to_string();
            for option in shown {
                let arg = command.get_arguments().find(|arg| arg.get_long() == Some(option));
                assert!(arg.is_some_and(|arg| !arg.is_hide_set()), "{name} --{option}");
                let lines = help.lines().filter(|line| line.trim_start().contains(&format!("--{option}")));
                assert!(lines.count() >= 1 && long.contains(&format!("--{option}")), "{name} --{option}");
            }
            // A line for each option, and one for -h.
            let is_option = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
            assert_eq!(help.lines().filter(is_option).count(), shown.len() + 1, "{help}");
            let is_continued = |line: &str| line.starts_with("       ") && !line.starts_with("      --");
            assert!(!help.lines().any(is_continued), "{help}");
        }
    }

    /// Sentences of help are imperatives or noun phrases.
    #[test]
    fn no_line_of_help_opens_with_a_question_word() {
        const OPENERS: [&str; 9] =
            ["What ", "How ", "Who ", "Whom ", "Whose ", "Whether ", "Whoever ", "Which ", "When "];
        for (name, mut command) in all(&built()) {
            if command.is_hide_set() {
                continue;
            }
            let is_wrong = |text: &str| OPENERS.iter().any(|opener| text.trim_start().starts_with(opener));
            for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                let wrong: Vec<&str> = help.lines().filter(|line| is_wrong(line)).collect();
                assert!(wrong.is_empty(), "{name}: {wrong:?}");
            }
            let texts = command.get_arguments().filter(|arg| !arg.is_hide_set()).flat_map(|arg| {
                let long = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
                let short = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let heading = arg.get_help_heading().unwrap_or_default().to_owned();
                [heading, short].into_iter().chain(long.split("\n\n").map(str::to_owned).collect::<Vec<_>>())
            });
            let wrong: Vec<String> = texts.filter(|text| is_wrong(text)).collect();
            assert!(wrong.is_empty(), "{name}: {wrong:?}");
        }
    }

    #[test]
    fn completions_offer_no_hidden_command_or_option() {
        let carrack = config::carrack_command();
        for shell in [
            clap_complete::Shell::Bash,
            clap_complete::Shell::Zsh,
            clap_complete::Shell::Fish,
            clap_complete::Shell::Elvish,
            clap_complete::Shell::PowerShell,
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut without_hidden(&carrack), "carrack", &mut script);
            let script = String::from_utf8(script).unwrap();
            for hidden in ["queue-copy", "serve-session", "serve-queue", "in-background"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            assert!(script.contains("no-target-directory") && script.contains("transfers"), "{shell}");
            let has_word =
                |word: &str| script.split(|c: char| !c.is_alphanumeric()).any(|found| found == word);
            assert!(!has_word("man"), "{shell}");
        }
    }
}
