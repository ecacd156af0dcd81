//! `carrack man`: the manual pages, made from the same definitions as the help: one about carrack as a whole,
//! and one for each command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, ValueHint};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::exit::{self, ExitStatus};
use crate::options::config::{self, COMMANDS};
use crate::options::help;
use crate::user_error::UserError;
use crate::views::output;

const SOURCE: &str = concat!("carrack ", env!("CARGO_PKG_VERSION"));

/// Print a manual page: of carrack, or of a command
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The command; without it the page is about carrack as a whole
    #[arg(value_name = "COMMAND")]
    command: Option<String>,

    /// Write all pages into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
    all: Option<PathBuf>,
}

/// A file that commands read or write: path, meaning, and the commands that use it.
type ManualFileRow = (&'static str, &'static str, fn(&Command) -> bool);

const FILES: [ManualFileRow; 16] = [
    (
        "~/.config/carrack/config.toml",
        "The user's options, by their names; see carrack-config(1).",
        reads_config,
    ),
    ("/etc/carrack/config.toml", "The same of the system, for all users.", reads_config),
    (
        "~/.ssh/config, ~/.ssh/known_hosts",
        "ssh's own files, which are in effect: see ssh_config(5).",
        |command| has_option(command, "ssh"),
    ),
    (
        "~/.config/carrack/identity.pem",
        "The user's certificate and key for daemons, without --identity.",
        |command| has_option(command, "identity"),
    ),
    (
        "~/.config/carrack/ca.pem, /etc/carrack/ca.pem",
        "The trusted authorities, without --ca; revoked.pem beside it lists revoked certificates.",
        |command| has_option(command, "ca"),
    ),
    (
        ".carrack-ID.journal, .carrack-ID-*",
        "The journal of an unfinished transfer, in the destination or next to it (or in --journal-dir), and the \
         temporary files of unfinished files. Both are gone when everything is done.",
        |command| has_option(command, "journal-dir") || is_one_of(command, &["journals", "resume"]),
    ),
    ("~/.local/state/carrack/transfers/", "The register of the user's copies, with their logs.", |command| {
        is_one_of(command, &["cp", "sync", "resume", "status", "transfers", "log", "wait", "cancel"])
    }),
    ("~/.local/state/carrack/tuner/", "The tuner's records of earlier transfers.", |command| {
        is_one_of(command, &["cp", "sync", "tune"])
    }),
    (
        "$XDG_RUNTIME_DIR/carrack/queue.sock, /run/carrack/queue.sock",
        "The socket of this machine's queue, without --server.",
        uses_register,
    ),
    (
        "$XDG_RUNTIME_DIR/carrack/sharing.sock, /run/carrack/sharing.sock",
        "The socket of this machine's meta-scheduler, which shares storage targets out.",
        |command| has_option(command, "sharing") || is_one_of(command, &["targets"]),
    ),
    ("/etc/carrack/carrack.toml", "The configuration of the daemon, without --config.", |command| {
        is_one_of(command, &["serve"])
    }),
    ("~/.config/carrack/authority/", "The certificate authority, without --dir.", |command| {
        is_one_of(command, &["keys"])
    }),
    ("/proc, /sys", "The machine's settings and counters, which are read.", |command| {
        is_one_of(command, &["doctor", "topo", "fabric"])
    }),
    ("/etc/sysctl.d/", "A place for settings that are to survive the next start.", |command| {
        is_one_of(command, &["doctor"])
    }),
    (
        "The files that options name",
        "Credentials for NATS, certificates and keys, and spill directories.",
        |command| is_one_of(command, &["mover", "manager", "api", "movers"]),
    ),
    ("/usr/share/bash-completion/completions/carrack", "A place for the script for bash.", |command| {
        is_one_of(command, &["completions"])
    }),
];

/// A variable that commands read, likewise. Those that clap reads are known from the options.
const VARIABLES: [ManualFileRow; 8] = [
    (
        "CARRACK_*",
        "The value of the option with this name, such as CARRACK_BWLIMIT for --bwlimit; see carrack-config(1).",
        reads_config,
    ),
    ("CARRACK_TOKEN", "A bearer token, without --token-file.", |command| has_option(command, "token-file")),
    ("CARRACK_CA", "The file with the trusted authorities, without --ca.", |command| {
        has_option(command, "ca")
    }),
    ("HOME, XDG_CONFIG_HOME", "The place of the user's configuration: ~/.config by default.", |command| {
        reads_config(command) || is_one_of(command, &["config", "keys"])
    }),
    ("XDG_STATE_HOME", "The place of the user's records: ~/.local/state by default.", |command| {
        is_one_of(command, &["cp", "sync", "resume", "status", "transfers", "log", "wait", "cancel", "tune"])
    }),
    ("XDG_RUNTIME_DIR", "The place of the sockets of the user's own daemon.", |command| {
        uses_register(command) || has_option(command, "sharing") || is_one_of(command, &["targets", "serve"])
    }),
    ("SSH_AUTH_SOCK", "The agent with the user's keys, which ssh asks.", |command| {
        has_option(command, "ssh")
    }),
    (
        "NO_COLOR, CLICOLOR_FORCE, TERM",
        "No colour; colour even without a terminal; the kind of the terminal, `dumb` without colour.",
        |_| true,
    ),
];

/// Prints the page to stdout, or writes all pages.
pub fn run(args: &ManArgs) -> ExitStatus {
    let carrack = built_command();
    let printed = match (&args.command, &args.all) {
        (_, Some(directory)) => write_pages(&carrack, directory),
        (None, None) => print(&page_of_all(&carrack)),
        (Some(name), None) => match command(&carrack, name) {
            Some(command) => print(&page_of(&carrack, command)),
            None => {
                UserError::new(format!("carrack has no command {name}"))
                    .hint("`carrack --help` lists the commands")
                    .print();
                return ExitStatus::Usage;
            }
        },
    };
    ExitStatus::of_command_result(printed)
}

fn print(page: &str) -> Result<ExitStatus, UserError> {
    output::write_outcome(output::print(|out| out.write_all(page.as_bytes())))
}

fn write_pages(carrack: &Command, directory: &Path) -> Result<ExitStatus, UserError> {
    let written = fs::create_dir_all(directory).and_then(|()| {
        pages(carrack).iter().try_for_each(|(name, page)| fs::write(directory.join(name), page))
    });
    let written = written.map_err(|error| UserError::new(format!("{}: {error}", directory.display())));
    written.map(|()| ExitStatus::Complete)
}

fn built_command() -> Command {
    let mut carrack = config::carrack_command();
    carrack.build();
    carrack
}

/// Returns a visible command.
fn command<'c>(carrack: &'c Command, name: &str) -> Option<&'c Command> {
    carrack.find_subcommand(name).filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Returns the file names and the texts of all pages.
fn pages(carrack: &Command) -> Vec<(String, String)> {
    let mut pages = vec![("carrack.1".to_owned(), page_of_all(carrack))];
    for name in help::GROUPS.iter().flat_map(|(_, names)| *names) {
        if let Some(command) = command(carrack, name) {
            pages.push((format!("carrack-{name}.1"), page_of(carrack, command)));
        }
    }
    pages
}

/// Returns the page about carrack as a whole.
fn page_of_all(carrack: &Command) -> String {
    let mut page = ManualPage::titled("CARRACK", carrack);
    page.section("SYNOPSIS");
    page.text([bold("carrack"), roman(" COMMAND [OPTIONS] ...")]);
    page.add_rendered(|man, out| man.render_description_section(out), carrack);
    page.section("COMMANDS");
    for (heading, names) in help::GROUPS {
        page.control("SS", heading);
        for command in names.iter().filter_map(|name| command(carrack, name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            page.item([bold(format!("carrack-{}", command.get_name())), roman("(1)")], &about);
        }
    }
    page.section("OPTIONS");
    page.item(
        [bold("-h"), roman(", "), bold("--help")],
        "Print help: of a command, `carrack COMMAND --help`.",
    );
    page.item([bold("-V"), roman(", "), bold("--version")], "Print the version.");
    page.literal("EXAMPLES", help::FIRST_STEPS);
    let all: Vec<&Command> = carrack.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    page.common_sections(&all, &exit::help(""));
    page.see_also(&["ssh(1)", "ssh_config(5)"]);
    page.finish()
}

/// Returns the page about a command, and those below it.
fn page_of(carrack: &Command, command: &Command) -> String {
    let name = command.get_name();
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set())
        .collect();
    let mut page = ManualPage::titled(&format!("CARRACK-{}", name.to_uppercase()), command);
    page.section("SYNOPSIS");
    let usages = [command].into_iter().filter(|_| below.is_empty() || name == "movers").chain(below.clone());
    for (index, command) in usages.enumerate() {
        if index > 0 {
            page.control("br", "");
        }
        page.usage(command);
    }
    page.add_rendered(|man, out| man.render_description_section(out), command);
    page.options(command);
    if !below.is_empty() {
        page.section("COMMANDS");
        below.iter().for_each(|below| page.subcommand(below));
    }
    let (examples, codes) = examples_and_exit_codes(command);
    if !examples.is_empty() {
        page.literal("EXAMPLES", &examples);
    }
    let codes = if codes.is_empty() { exit::help("") } else { codes };
    page.common_sections(&[&[command][..], &below].concat(), &codes);
    page.see_also(&related_pages(carrack, command).iter().map(String::as_str).collect::<Vec<_>>());
    page.finish()
}

/// Returns the other pages of a command's group, and those of other programs.
fn related_pages(carrack: &Command, command: &Command) -> Vec<String> {
    let name = command.get_name();
    let group =
        help::GROUPS.iter().find(|(_, names)| names.contains(&name)).map_or(&[][..], |(_, names)| names);
    let others = group.iter().filter(|other| **other != name && carrack.find_subcommand(other).is_some());
    let mut pages = vec!["carrack(1)".to_owned()];
    pages.extend(others.map(|other| format!("carrack-{other}(1)")));
    let of_others = [("ssh(1)", "ssh"), ("gitignore(5)", "exclude"), ("b3sum(1)", "manifest")];
    pages.extend(
        of_others
            .iter()
            .filter(|(_, option)| has_option(command, option))
            .map(|(page, _)| (*page).to_owned()),
    );
    pages
}

/// Returns the examples at the end of the long help, and the exit codes behind them.
fn examples_and_exit_codes(command: &Command) -> (String, String) {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let (examples, codes) = help.split_once(exit::HELP_HEADING).unwrap_or((&help, ""));
    (examples.trim_start_matches("Examples:\n").to_owned(), codes.to_owned())
}

/// Returns true if the command, or one below it, has this option.
fn has_option(command: &Command, option: &str) -> bool {
    let is_it = |arg: &clap::Arg| arg.get_long() == Some(option) && !arg.is_hide_set();
    command.get_arguments().any(is_it) || command.get_subcommands().any(|below| has_option(below, option))
}

fn is_one_of(command: &Command, names: &[&str]) -> bool {
    names.contains(&command.get_name())
}

/// Returns true if the command asks a register of submitted transfers.
fn uses_register(command: &Command) -> bool {
    has_option(command, "server") && has_option(command, "nats")
}

fn reads_config(command: &Command) -> bool {
    is_one_of(command, &COMMANDS) || is_one_of(command, &["config"])
}

/// A page that is being written.
struct ManualPage {
    text: String,
}

impl ManualPage {
    /// Begins the page of a command with its title and its name.
    fn titled(title: &str, command: &Command) -> ManualPage {
        let mut page = ManualPage { text: String::new() };
        page.add_rendered(
            |man, out| {
                let man = man.title(title).source(SOURCE).manual("carrack's manual");
                man.render_title(out)?;
                man.render_name_section(out)
            },
            command,
        );
        page
    }

    /// Adds sections by clap_mangen.
    fn add_rendered(&mut self, render: impl FnOnce(Man, &mut Vec<u8>) -> io::Result<()>, command: &Command) {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let command = command.clone().mut_args(|arg| arg.hide_short_help(false));
        let _ = render(Man::new(command), &mut out);
        self.text.push_str(&String::from_utf8_lossy(&out));
    }

    fn control(&mut self, name: &str, argument: &str) {
        let arguments = [argument].into_iter().filter(|argument| !argument.is_empty());
        self.text.push_str(&Roff::new().control(name, arguments).render());
    }

    fn section(&mut self, heading: &str) {
        self.control("SH", heading);
    }

    fn text(&mut self, words: impl Into<Vec<Inline>>) {
        self.text.push_str(&Roff::new().text(words).render());
    }

    /// Adds a term with its meaning.
    fn item(&mut self, term: impl Into<Vec<Inline>>, meaning: &str) {
        self.control("TP", "");
        self.text(term);
        self.text([roman(meaning)]);
    }

    /// Adds a text whose lines stay as they are.
    fn literal(&mut self, heading: &str, text: &str) {
        self.section(heading);
        self.control("nf", "");
        text.trim_end().lines().for_each(|line| self.text([roman(line)]));
        self.control("fi", "");
    }

    /// Adds a command's line in the synopsis.
    fn usage(&mut self, command: &Command) {
        let usage = command.clone().render_usage().to_string();
        let name = command.get_bin_name().unwrap_or_default();
        for (index, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
            if index > 0 {
                self.control("br", "");
            }
            let rest = line.trim().strip_prefix(name).unwrap_or(line.trim()).to_owned();
            self.text([bold(name), roman(rest)]);
        }
    }

    /// Adds the options, those of each heading in a subsection.
    fn options(&mut self, command: &Command) {
        let from = self.text.len();
        self.add_rendered(|man, out| man.render_options_section(out), command);
        for heading in command.get_arguments().filter_map(clap::Arg::get_help_heading) {
            let [section, subsection] = [("SH", heading.to_uppercase()), ("SS", heading.to_owned())]
                .map(|(name, words)| last_line(&Roff::new().control(name, [words.as_str()]).render()));
            let options = self.text[from..].replace(&section, &subsection);
            self.text.replace_range(from.., &options);
        }
    }

    /// Adds a command below another: its description and its options.
    fn subcommand(&mut self, command: &Command) {
        self.control("SS", command.get_bin_name().unwrap_or_default());
        let from = self.text.len();
        self.add_rendered(
            |man, out| {
                man.render_description_section(out)?;
                man.render_options_section(out)
            },
            command,
        );
        let sections: String =
            self.text[from..].replace(".SH DESCRIPTION\n", "").replace(".SH OPTIONS\n", "");
        self.text.replace_range(from.., &sections.replace("\n.SH ", "\n.SS "));
    }

    /// Adds the sections that every page has.
    fn common_sections(&mut self, commands: &[&Command], codes: &str) {
        self.section("FILES");
        self.file_items(&FILES, commands);
        self.section("ENVIRONMENT");
        for (variable, option) in variables(commands) {
            self.item([bold(variable)], &format!("The value of --{option}, if that is not given."));
        }
        self.file_items(&VARIABLES, commands);
        self.literal("EXIT STATUS", codes.trim_start_matches(exit::HELP_HEADING));
    }

    fn file_items(&mut self, rows: &[ManualFileRow], commands: &[&Command]) {
        for (name, meaning, is_used) in rows {
            if commands.iter().any(|command| is_used(command)) {
                self.item([bold(*name)], meaning);
            }
        }
    }

    fn see_also(&mut self, pages: &[&str]) {
        self.section("SEE ALSO");
        let mut words = Vec::new();
        for (index, page) in pages.iter().enumerate() {
            let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
            words.extend([roman(if index > 0 { ", " } else { "" }), bold(name), roman(section)]);
        }
        self.text(words);
    }

    /// Returns the page, with one definition of the apostrophe, and with text between backquotes in bold.
    fn finish(self) -> String {
        let mut is_defined = false;
        let mut text = String::new();
        for line in self.text.lines() {
            let is_definition = line.contains(" .ds Aq ");
            if !(is_definition && is_defined) {
                text.push_str(line.trim_end());
                text.push('\n');
            }
            is_defined |= line.starts_with(".el .ds Aq ");
        }
        embolden(&text)
    }
}

/// Returns the variables that clap reads for options, with the options.
fn variables(commands: &[&Command]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let args = commands.iter().flat_map(|command| command.get_arguments()).filter(|arg| !arg.is_hide_set());
    for arg in args {
        if let (Some(variable), Some(option)) = (arg.get_env(), arg.get_long()) {
            let row = (variable.to_string_lossy().into_owned(), option.to_owned());
            if !found.contains(&row) {
                found.push(row);
            }
        }
    }
    found
}

/// Returns the last line of a rendered text, behind the definition of the apostrophe.
fn last_line(text: &str) -> String {
    format!("{}\n", text.trim_end().lines().next_back().unwrap_or_default())
}

/// Sets the text between backquotes in bold; roff would turn backquotes into opening quotation marks.
fn embolden(page: &str) -> String {
    let mut parts = page.split('`');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        text.push_str(if index % 2 == 0 { r"\fB" } else { r"\fR" });
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man");

    #[test]
    fn what_is_quoted_gets_bold() {
        assert_eq!(embolden("a `b` c `d`"), r"a \fBb\fR c \fBd\fR");
    }

    /// Readers of the repository and of packages get the pages without a build.
    #[test]
    fn the_copies_in_docs_are_these_pages() {
        let pages = pages(&built_command());
        for (name, page) in &pages {
            let copy = fs::read_to_string(Path::new(DOCS).join(name)).unwrap_or_default();
            // assert_eq would print two whole pages and hide the message.
            assert!(copy == *page, "docs/man/{name} is stale: cargo run --release -- man --all docs/man");
        }
        let mut there: Vec<String> = fs::read_dir(DOCS)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut known: Vec<String> = pages.into_iter().map(|(name, _)| name).collect();
        there.sort();
        known.sort();
        assert_eq!(there, known);
    }

    #[test]
    fn lines_that_stay_as_they_are_fit_a_terminal() {
        const INDENTED_MAX: usize = 80 - 7;
        let carrack = built_command();
        for command in carrack.get_subcommands() {
            for line in examples_and_exit_codes(command).0.lines() {
                assert!(line.len() <= INDENTED_MAX, "{line}");
            }
        }
    }

    #[test]
    fn every_page_has_its_sections_and_the_options_of_its_command() {
        let carrack = built_command();
        let pages = pages(&carrack);
        for (name, page) in &pages {
            for heading in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "FILES",
                "ENVIRONMENT",
                "\"EXIT STATUS\"",
                "\"SEE ALSO\"",
            ] {
                let count = page.matches(&format!("\n.SH {heading}\n")).count();
                assert_eq!(count, 1, "{name}: {heading}\n{page}");
            }
            // An option without a text leaves an empty line.
            assert!(!page.contains("\n\n.TP\n"), "{name}:\n{page}");
            assert!(!page.contains('`') && !page.contains("\n.SH \"OPTIONS OF"), "{page}");
        }
        for command in carrack.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let Some((_, page)) = pages.iter().find(|(file, _)| *file == format!("carrack-{name}.1")) else {
                assert_eq!(name, "help");
                continue;
            };
            for option in
                command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long)
            {
                let option = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(page.contains(&option), "{name}: {option}");
            }
        }
        let whole = &pages[0].1;
        for words in ["carrack\\-cp", "carrack\\-mover", "CARRACK_SSH", "130", "NO_COLOR", "identity.pem"] {
            assert!(whole.contains(words), "{words}:\n{whole}");
        }
    }
}
