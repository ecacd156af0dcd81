//! Tests that every carrack command in README.md and docs/ exists, with its options. The integration tests
//! (`tests/book`) run those in blocks that need only one machine.

use std::fs;
use std::path::Path;

use carrack_options::REFUSED;
use clap::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns each command that begins with `carrack`, in blocks and between backticks, up to its end in a
/// shell.
fn extract_commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_block, mut is_run) = (false, false);
    let joined = page.replace("\\\n", " ");
    for line in joined.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            in_block = !in_block;
            is_run = in_block && kind == "console run";
            continue;
        }
        if is_run {
            continue;
        }
        let parts: Vec<&str> = if in_block {
            // Words of a sentence are not commands.
            vec![line]
        } else {
            line.split('`').skip(1).step_by(2).filter(|text| text.starts_with("carrack ")).collect()
        };
        found.extend(parts.into_iter().flat_map(extract_shell_commands));
    }
    found
}

fn extract_shell_commands(text: &str) -> Vec<String> {
    const BEFORE: [&str; 9] = ["$", ">", "&", "|", ";", "(", "until", "while", "exec"];
    let mut commands = Vec::new();
    for (at, _) in text.match_indices("carrack ") {
        let (before, command) = (text[..at].trim_end(), &text[at..]);
        if before.is_empty() || BEFORE.iter().any(|end| before.ends_with(end)) {
            let end = command.find(['#', '&', '|', ';', ')', '<', '>', '…']).unwrap_or(command.len());
            commands.push(command[..end].trim().to_owned());
        }
    }
    commands
}

/// Returns the unknown command or option of a command line.
fn find_unknown_word(carrack: &Command, line: &str) -> Option<String> {
    let mut command = carrack;
    let mut words = line.split_whitespace().skip(1).take_while(|word| *word != "--").peekable();
    if words.peek().is_some_and(|word| word.starts_with(|letter: char| letter.is_ascii_digit())) {
        // A context of key derivation (`carrack 2026 ...`), not a command.
        return None;
    }
    while let Some(inner) = words.peek().and_then(|word| command.find_subcommand(word)) {
        command = inner;
        words.next();
    }
    if command.has_subcommands()
        && let Some(word) = words.peek().filter(|word| !word.starts_with('-'))
        // A placeholder has capital letters alone.
        && !word.chars().all(|letter| letter.is_ascii_uppercase() || "[]".contains(letter))
    {
        return Some(format!("no command '{word}'"));
    }
    let options = words.filter_map(|word| word.strip_prefix("--").or_else(|| word.strip_prefix("[--")));
    let names = options.map(|option| option.split(['=', ']', '`', ',', '|']).next().unwrap_or_default());
    let mut names = names.filter(|name| !name.is_empty() && !["help", "version"].contains(name));
    let bad = names.find(|name| {
        !command.get_arguments().chain(carrack.get_arguments()).any(|arg| {
            arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|names| names.contains(name))
        })
    });
    bad.map(|name| format!("no option --{name}"))
}

#[test]
fn pages_name_commands_and_options_that_are_there() {
    let mut carrack = crate::options::config::carrack_command();
    carrack.build();
    let pages = fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages.chain(["README.md", "ARCHITECTURE.md"].map(|name| Path::new(ROOT).join(name))) {
        for line in extract_commands(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            if let Some(what) = find_unknown_word(&carrack, &line) {
                wrong.push(format!("{}: {line}: {what}", path.file_name().unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "only {count} commands were found");
}

#[test]
fn what_is_not_there_is_noticed() {
    let mut carrack = crate::options::config::carrack_command();
    carrack.build();
    let page = "`carrack cp --no-such a b`, `carrack copy x`, `carrack keys make`\n```sh\n$ true && carrack cp -r --nice a \\\n  --neither b & carrack ls x # --comment\nsay carrack is\n```\n";
    let wrong: Vec<Option<String>> =
        extract_commands(page).iter().map(|line| find_unknown_word(&carrack, line)).collect();
    let wrong: Vec<Option<&str>> = wrong.iter().map(Option::as_deref).collect();
    let expected = [
        Some("no option --no-such"),
        Some("no command 'copy'"),
        Some("no command 'make'"),
        Some("no option --neither"),
        None,
    ];
    assert_eq!(wrong, expected);
}

/// Renders the table in `docs/queue.md` of the options that submitted transfers do not have everywhere.
fn render_refused_options() -> String {
    let mut rows = String::new();
    for alike in REFUSED.chunk_by(|a, b| (a.queue, a.fleet) == (b.queue, b.fleet)) {
        let names: Vec<String> = alike.iter().map(|refused| format!("`--{}`", refused.name)).collect();
        let [queue, fleet] = [alike[0].queue, alike[0].fleet].map(|why| why.unwrap_or("yes"));
        rows += &format!(
            "| {} | {queue} | {} |\n",
            names.join(", "),
            if queue == fleet { "likewise" } else { fleet }
        );
    }
    rows
}

#[test]
fn the_page_says_which_options_submitted_transfers_do_not_have() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/queue.md")).unwrap();
    let rows = render_refused_options();
    assert!(page.contains(&rows), "docs/queue.md should have these rows:\n{rows}");
}
