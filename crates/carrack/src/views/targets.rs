//! Shared storage targets for people: a line each, and a further line for each holder or waiting client after
//! the first.

use std::io::{self, Write};

use carrack_plan::grants::{SharedTargetStatus, ViewOfHolder, WaitingClientView};

use crate::views::table::TextTable;

/// Writes a table of targets.
pub fn write_targets(targets: &[SharedTargetStatus], out: &mut impl Write) -> io::Result<()> {
    if targets.is_empty() {
        return writeln!(out, "no targets");
    }
    let mut table =
        TextTable::headed(&["<TARGET", ">USERS", ">BURST", ">LOAD", ">EXPECTED", "<HAS IT", "<WAITS"]);
    for target in targets {
        for line in 0..target.holders.len().max(target.waiting.len()).max(1) {
            let has = target.holders.get(line).map_or(String::new(), holder_text);
            let waits = target.waiting.get(line).map_or(String::new(), waiting_text);
            if line > 0 {
                table.row(&[&"", &"", &"", &"", &"", &has, &waits]);
                continue;
            }
            table.row(&[
                &target.target,
                &target.users_max,
                &format_args!("{}ms", target.burst_ms),
                &percent(target.load),
                &percent(target.load_expected),
                &has,
                &waits,
            ]);
        }
    }
    table.write("", out)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

/// Returns the client, its class, and the time left of its grant, or the time until it begins.
fn holder_text(holder: &ViewOfHolder) -> String {
    let who = client_text(&holder.client, &holder.class);
    match holder.starts_in_us {
        0 => format!("{who} {}ms", holder.ends_in_us / 1_000),
        us => format!("{who} in {}ms", us / 1_000),
    }
}

fn waiting_text(waiting: &WaitingClientView) -> String {
    format!("{} {}ms", client_text(&waiting.client, &waiting.class), waiting.waits_ms)
}

fn client_text(client: &str, class: &str) -> String {
    if class.is_empty() { client.to_owned() } else { format!("{client} ({class})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::output::tests::text_of;

    fn table(targets: &[SharedTargetStatus]) -> String {
        text_of(|out| write_targets(targets, out))
    }

    #[test]
    fn everybody_has_a_line() {
        let alice = ViewOfHolder {
            client: "alice/a".to_owned(),
            class: String::new(),
            starts_in_us: 0,
            ends_in_us: 420_000,
            bytes: 0,
        };
        let bob = ViewOfHolder {
            client: "bob/b".to_owned(),
            class: "urgent".to_owned(),
            starts_in_us: 130_000,
            ..alice.clone()
        };
        let waiting =
            WaitingClientView { client: "bob/c\x1b".to_owned(), class: String::new(), waits_ms: 70 };
        let target = SharedTargetStatus {
            target: "lfs01/OST0007".to_owned(),
            load: Some(0.25),
            load_expected: None,
            users_max: 1,
            burst_ms: 500,
            holders: vec![alice, bob],
            waiting: vec![waiting],
        };
        let idle = SharedTargetStatus {
            target: "x".to_owned(),
            holders: Vec::new(),
            waiting: Vec::new(),
            ..target.clone()
        };
        let expected = "\
TARGET         USERS  BURST  LOAD  EXPECTED  HAS IT                   WAITS
lfs01/OST0007      1  500ms   25%         -  alice/a 420ms            bob/c\\u{1b} 70ms
                                             bob/b (urgent) in 130ms
x                  1  500ms   25%         -
";
        assert_eq!(table(&[target, idle]), expected);
        assert_eq!(table(&[]), "no targets\n");
    }
}
