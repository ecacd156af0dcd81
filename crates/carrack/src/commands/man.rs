//! `carrack man`: the manual page, made from the same definitions as the help.
//!
//! One page holds the whole: carrack's own words, then what `carrack cp` takes, its examples and the exit codes.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Cli;
use crate::exit::{self, Exit};

/// Prints it to stdout.
pub fn run() -> Exit {
    match page().and_then(|page| io::stdout().write_all(&page)) {
        Ok(()) => Exit::Complete,
        Err(_) => Exit::Nothing,
    }
}

fn page() -> io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let whole = Man::new(command.clone());
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    if let Some(cp) = command.find_subcommand("cp") {
        render_cp(cp, &mut page)?;
    }
    literal("EXIT STATUS", exit::help().trim_start_matches(exit::HELP_HEADING), &mut page)?;
    whole.render_version_section(&mut page)?;
    Ok(page)
}

fn render_cp(cp: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let help = cp.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(cp.clone().bin_name("carrack cp"));
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    literal("EXAMPLES", help.split(exit::HELP_HEADING).next().unwrap_or_default(), page)
}

/// Text whose lines stay as they are.
fn literal(heading: &str, text: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]).control("nf", []);
    for line in text.trim_end().lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_writer(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_options_examples_and_codes() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        for words in
            [".TH carrack 1", "carrack cp", "\\-\\-remote\\-carrack", "EXAMPLES", "EXIT STATUS", "130"]
        {
            assert!(page.contains(words), "{words}:\n{page}");
        }
    }
}
