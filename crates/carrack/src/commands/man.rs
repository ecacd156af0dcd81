//! `carrack man`: the manual page, made from the same definitions as the help.
//!
//! One page holds the whole: carrack's description, then the options of `carrack cp` and the other commands,
//! their examples and the exit codes.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use carrack_options::{FLEET, SYNC};

use crate::exit::{self, ExitStatus};
use crate::options::config;
use crate::options::{nats, start_time, transfer_server};

/// Commands with sections of their own, besides `carrack cp`.
const BESIDE_CP: [&str; 25] = [
    "sync",
    "resume",
    "journals",
    "ls",
    "stat",
    "mkdir",
    "rm",
    "verify",
    "layout",
    "doctor",
    "topo",
    "forecast",
    "tune",
    "config",
    "keys",
    "serve",
    "submit",
    "status",
    "transfers",
    "log",
    "wait",
    "pause",
    "cancel",
    "movers",
    "targets",
];

/// The synopses of the other commands, a line each.
const OTHER_SYNOPSES: [(&str, &str); 26] = [
    ("carrack sync", " [OPTIONS] SOURCE... DESTINATION"),
    ("carrack resume", " [OPTIONS] [ID]"),
    ("carrack journals", " list | inspect | drop [OPTIONS] ..."),
    ("carrack ls", " [OPTIONS] [LOCATION]"),
    ("carrack stat", " [OPTIONS] LOCATION..."),
    ("carrack mkdir", " [OPTIONS] LOCATION..."),
    ("carrack rm", " [OPTIONS] LOCATION..."),
    ("carrack verify", " [OPTIONS] [LOCATION]... LOCATION"),
    ("carrack layout", " [OPTIONS] PATH..."),
    ("carrack doctor", " [OPTIONS] [PATH]..."),
    ("carrack topo", " [OPTIONS]"),
    ("carrack forecast", " [OPTIONS] NAME"),
    ("carrack tune", " show | forget [OPTIONS] ..."),
    ("carrack config", " show | path [OPTIONS] ..."),
    ("carrack keys", " init | issue | show | revoke | token [OPTIONS] ..."),
    ("carrack serve", " [OPTIONS]"),
    ("carrack submit", " [OPTIONS] SRC DST"),
    ("carrack status", " [OPTIONS] [ID]"),
    ("carrack transfers", " [OPTIONS]"),
    ("carrack wait", " [OPTIONS] ID"),
    ("carrack pause", " [OPTIONS] ID"),
    ("carrack cancel", " [OPTIONS] ID"),
    ("carrack movers", " [OPTIONS]"),
    ("carrack targets", " [OPTIONS] [FS]"),
    ("carrack completions", " SHELL"),
    ("carrack", " --help | --version"),
];

/// Prints the page to stdout.
pub fn run() -> ExitStatus {
    match page().and_then(|page| io::stdout().write_all(page.as_bytes())) {
        Ok(()) => ExitStatus::Complete,
        Err(_) => ExitStatus::Nothing,
    }
}

fn page() -> io::Result<String> {
    let mut command = config::command();
    command.build();
    let mut page = Vec::new();
    let whole = Man::new(command.clone());
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    if let Some(cp) = command.find_subcommand("cp") {
        render_cp(cp, &mut page)?;
    }
    for name in BESIDE_CP {
        if let Some(command) = command.find_subcommand(name) {
            render_beside(name, command, &mut page)?;
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                render_beside(&format!("{name} {}", below.get_name()), below, &mut page)?;
            }
        }
    }
    literal("EXIT STATUS", codes(&exit::help("")), &mut page)?;
    literal("EXIT STATUS OF CARRACK DOCTOR", codes(&exit::help_of_doctor("")), &mut page)?;
    literal("EXIT STATUS OF CARRACK VERIFY", codes(&exit::help_of_verify("")), &mut page)?;
    see_also(&mut page)?;
    Ok(embolden(&String::from_utf8_lossy(&page)))
}

fn render_cp(cp: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(cp.clone().bin_name("carrack cp"));
    man.render_synopsis_section(page)?;
    let mut synopsis = Roff::new();
    for (command, takes) in OTHER_SYNOPSES {
        synopsis.control("br", []).text([bold(command), roman(takes)]);
    }
    synopsis.to_writer(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    literal("EXAMPLES", &examples(cp), page)
}

/// Renders a command's sections, under headings that differ from those of `carrack cp`.
fn render_beside(name: &str, command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let command = match name {
        "sync" => &own_options(command, &[SYNC]),
        // Copies and syncs have the other options too.
        "submit" => {
            &own_options(command, &[FLEET, start_time::HEADING, transfer_server::HEADING, nats::HEADING])
        }
        _ => &without_origins(command),
    };
    let man = Man::new(command.clone().bin_name(format!("carrack {name}")));
    let heading = format!("CARRACK {}", name.to_uppercase());
    let mut sections = Vec::new();
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    let sections = String::from_utf8_lossy(&sections)
        .replace(".SH DESCRIPTION", &format!(".SH \"{heading}\""))
        .replace(".SH OPTIONS", &format!(".SH \"OPTIONS OF {heading}\""));
    page.extend_from_slice(sections.as_bytes());
    match examples(command).trim_start_matches("Examples:\n") {
        "" => Ok(()),
        examples => literal(&format!("EXAMPLES OF {heading}"), examples, page),
    }
}

/// Returns a command without the options that it shares with `carrack cp`: with those under its own headings,
/// and those without one.
fn own_options(command: &Command, headings: &[&str]) -> Command {
    command.clone().mut_args(|arg| {
        let is_own = arg.get_help_heading().is_none_or(|heading| headings.contains(&heading));
        let is_hidden = arg.is_hide_set() || !is_own;
        arg.hide(is_hidden)
    })
}

/// Returns a command without the options that choose the sources of options: all commands have them, and the
/// section of `carrack cp` describes them.
fn without_origins(command: &Command) -> Command {
    command.clone().mut_args(|arg| {
        let is_hidden = arg.is_hide_set() || arg.get_help_heading() == Some(config::HEADING);
        arg.hide(is_hidden)
    })
}

/// Returns the lines of a paragraph of exit codes.
fn codes(paragraph: &str) -> &str {
    paragraph.trim_start_matches(exit::HELP_HEADING)
}

/// Returns the end of the long help, before the exit codes.
fn examples(command: &Command) -> String {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    help.split(exit::HELP_HEADING).next().unwrap_or_default().to_owned()
}

/// Renders a text whose lines stay as they are.
fn literal(heading: &str, text: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]).control("nf", []);
    for line in text.trim_end().lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_writer(page)
}

fn see_also(page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("ssh"), roman("(1), "), bold("ssh_config"), roman("(5), "), bold("b3sum"), roman("(1)")]);
    roff.to_writer(page)
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

    #[test]
    fn what_is_quoted_gets_bold() {
        assert_eq!(embolden("a `b` c `d`"), r"a \fBb\fR c \fBd\fR");
    }

    /// Readers of the repository and of packages get the page without a build.
    #[test]
    fn the_copy_in_docs_is_this_page() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/carrack.1");
        let copy = std::fs::read_to_string(path).unwrap_or_default();
        let renew = "docs/carrack.1 is stale: cargo run --release -- man >docs/carrack.1";
        // assert_eq would print two whole pages and hide the message.
        assert!(copy == page().unwrap(), "{renew}");
    }

    #[test]
    fn lines_that_stay_as_they_are_fit_a_terminal() {
        const INDENTED_MAX: usize = 80 - 7;
        let mut command = config::command();
        for name in ["cp"].into_iter().chain(BESIDE_CP) {
            let command = command.find_subcommand_mut(name).unwrap();
            for line in examples(command).lines() {
                assert!(line.len() <= INDENTED_MAX, "{line}");
            }
        }
    }

    #[test]
    fn the_page_holds_options_examples_and_codes() {
        let page = page().unwrap();
        for words in [
            ".TH carrack 1",
            "carrack cp",
            "\\-\\-remote\\-carrack",
            "carrack layout",
            "\\-\\-extents",
            "carrack doctor",
            "carrack topo",
            "CARRACK LS",
            "\\-\\-token\\-file",
            "CARRACK RM",
            "CARRACK KEYS TOKEN",
            "CARRACK SERVE",
            "\\-\\-apply",
            "EXAMPLES",
            "EXIT STATUS",
            "130",
        ] {
            assert!(page.contains(words), "{words}:\n{page}");
        }
        assert!(!page.contains('`'), "{page}");
    }
}
