//! `carrack doctor --json`: one object a line and finding on stdout. Field names are stable; new ones may come.
//!
//! | field | what |
//! | --- | --- |
//! | `check` | the check's name, as in `docs/doctor.md` |
//! | `group` | `network`, `nic`, `cpu`, `memory`, `storage`, `clock` or `system` |
//! | `subject` | the interface or path it is about; null where it is about the machine |
//! | `verdict` | `ok`, `unknown`, `note`, `improve` or `broken` |
//! | `about` | what is looked at |
//! | `present`, `wanted` | the values |
//! | `why`, `source` | why it matters, and who says so |
//! | `command` | what mends it; null where there is nothing to mend or no command does |

use std::io::{self, Write};

use carrack_machine::doctor::Finding;
use serde::Serialize;

use super::Report;

impl Report {
    /// Writes the lines.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        for finding in &self.findings {
            let mut line = serde_json::to_vec(&Line::of(finding))?;
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Line<'a> {
    check: &'static str,
    group: &'static str,
    subject: Option<&'a str>,
    verdict: &'static str,
    about: &'static str,
    present: &'a str,
    wanted: &'a str,
    why: &'static str,
    source: &'static str,
    command: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(finding: &'a Finding) -> Line<'a> {
        let check = finding.check;
        Line {
            check: check.name,
            group: check.group.name(),
            subject: finding.subject.as_deref(),
            verdict: finding.verdict.name(),
            about: check.about,
            present: &finding.present,
            wanted: &finding.wanted,
            why: check.why,
            source: check.source,
            command: finding.command.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor_report::samples;

    #[test]
    fn a_line_has_every_field() {
        let mut out = Vec::new();
        Report::new(samples::findings()).write_json(&mut out).unwrap();
        let lines: Vec<Value> = out
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.as_object().unwrap().len() == 10), "{lines:?}");
        let [group, verdict, subject, command] =
            ["group", "verdict", "subject", "command"].map(|field| &lines[2][field]);
        assert_eq!([group, verdict], [&json!("nic"), &json!("note")]);
        assert_eq!([subject, command], [&json!("eth0"), &json!("ip link")]);
        assert_eq!((&lines[0]["subject"], &lines[1]["command"]), (&Value::Null, &json!("sysctl -w x=3")));
    }
}
