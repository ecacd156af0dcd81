//! The report of `carrack doctor`, for people: a line for each finding, by group, and below each problem the
//! advice.
//!
//! Values are escaped: names of paths and interfaces can't drive the terminal. With `--json` one object a
//! line and finding; field names are stable, new ones may come:
//!
//! | field | content |
//! | --- | --- |
//! | `check` | the check's name, as in `docs/doctor.md` |
//! | `group` | `network`, `nic`, `cpu`, `memory`, `storage`, `clock` or `system` |
//! | `subject` | the interface or path that is checked; null for the machine |
//! | `verdict` | `ok`, `unknown`, `note`, `improve` or `broken` |
//! | `about` | the object of the check |
//! | `present`, `wanted` | the values |
//! | `why`, `source` | the reason for the wanted value, and its source |
//! | `command` | the command that repairs it; null if none is needed or none exists |

use std::io::{self, Write};

use carrack_machine::doctor::{CheckFinding, CheckVerdict};
use carrack_model::escape;
use carrack_options::colour::TextColour;
use serde::Serialize;

use crate::views::json::write_lines;
use crate::views::table::TextTable;

/// The verdicts from the worst to the best, with the words of the last line.
const COUNTED: [(CheckVerdict, &str); 5] = [
    (CheckVerdict::Broken, "broken"),
    (CheckVerdict::Improve, "to improve"),
    (CheckVerdict::Note, "noted"),
    (CheckVerdict::Unknown, "unknown"),
    (CheckVerdict::Well, "ok"),
];

/// All findings of one run, in the order of the report.
#[derive(Debug)]
pub struct DoctorReport {
    findings: Vec<CheckFinding>,
}

impl DoctorReport {
    /// Sorts findings by group; within a group they keep their order, by check and subject.
    pub fn new(mut findings: Vec<CheckFinding>) -> DoctorReport {
        findings.sort_by_key(|finding| finding.check.group);
        DoctorReport { findings }
    }

    /// Returns the worst verdict.
    pub fn worst(&self) -> Option<CheckVerdict> {
        self.findings.iter().map(|finding| finding.verdict).max()
    }

    fn count(&self, verdict: CheckVerdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Writes the findings for programs.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_lines(self.findings.iter().map(DoctorLine::of), out)
    }

    /// Writes the groups, and last the number of findings of each verdict.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = TextTable::new("<<<<");
        table.paint(1, colour_of_verdict);
        for group in self.findings.chunk_by(|one, other| one.check.group == other.check.group) {
            table.row(&[&group[0].check.group.name()]);
            group.iter().for_each(|finding| add_finding(finding, &mut table));
        }
        table.row(&[&COUNTED.map(|(verdict, words)| format!("{} {words}", self.count(verdict))).join(", ")]);
        table.write("", out)
    }
}

/// Returns the colour of a verdict.
fn colour_of_verdict(name: &str) -> Option<TextColour> {
    let (verdict, _) = COUNTED.into_iter().find(|(verdict, _)| verdict.name() == name)?;
    match verdict {
        CheckVerdict::Broken => Some(TextColour::Red),
        CheckVerdict::Improve => Some(TextColour::Yellow),
        CheckVerdict::Well => Some(TextColour::Green),
        CheckVerdict::Note | CheckVerdict::Unknown => None,
    }
}

fn add_finding(finding: &CheckFinding, table: &mut TextTable) {
    let CheckFinding { check, subject, verdict, present, wanted, command } = finding;
    let subject =
        subject.as_ref().map_or(String::new(), |subject| format!(" {}", escape(subject.as_bytes())));
    table.row(&[&"", &verdict.name(), &format_args!("{}{subject}", check.name), &escape(present.as_bytes())]);
    if matches!(verdict, CheckVerdict::Well | CheckVerdict::Unknown) {
        return;
    }
    let why = format!("{} ({})", check.why, check.source);
    for (word, text) in [("wanted", Some(wanted)), ("why", Some(&why)), ("command", command.as_ref())] {
        if let Some(text) = text {
            table.row(&[&"", &"", &format_args!("{word:<9}{}", escape(text.as_bytes()))]);
        }
    }
}

#[derive(Serialize)]
struct DoctorLine<'a> {
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

impl<'a> DoctorLine<'a> {
    fn of(finding: &'a CheckFinding) -> DoctorLine<'a> {
        let check = finding.check;
        DoctorLine {
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
    use carrack_machine::doctor::{MachineCheck, checks};
    use serde_json::{Value, json};

    use super::*;
    use crate::views::output::tests::text_of;

    fn finding(name: &str, verdict: CheckVerdict, present: &str, wanted: &str) -> CheckFinding {
        let check: &'static MachineCheck = checks().find(|check| check.name == name).unwrap();
        let (present, wanted) = (present.into(), wanted.into());
        CheckFinding { check, subject: None, verdict, present, wanted, command: None }
    }

    /// Returns one finding of each verdict.
    fn findings() -> Vec<CheckFinding> {
        let link = finding("mtu", CheckVerdict::Note, "1500", "9000 or more");
        let link = CheckFinding { subject: Some("eth0".into()), command: Some("ip link".into()), ..link };
        let path = finding("mount", CheckVerdict::Broken, "no such file or directory", "a file");
        let buffer = finding("tcp_rmem", CheckVerdict::Improve, "4096 1 2", "3");
        vec![
            link,
            finding("governor", CheckVerdict::Unknown, "cannot be seen here", "performance"),
            CheckFinding { subject: Some("/x\x1b".into()), ..path },
            finding("mtu_probing", CheckVerdict::Well, "1", "1"),
            CheckFinding { command: Some("sysctl -w x=3".into()), ..buffer },
        ]
    }

    /// Readers of the repository get the list of checks without a build.
    #[test]
    fn docs_have_every_check_and_its_source() {
        let docs = include_str!("../../../../docs/doctor.md");
        for check in checks() {
            let row = docs.lines().find(|line| line.starts_with(&format!("| `{}` |", check.name)));
            let is_sourced = row.is_some_and(|row| row.ends_with(&format!("| {} |", check.source)));
            assert!(is_sourced, "docs/doctor.md lacks {} or its source {}", check.name, check.source);
        }
    }

    #[test]
    fn the_worst_is_known() {
        assert_eq!(DoctorReport::new(findings()).worst(), Some(CheckVerdict::Broken));
        assert_eq!(DoctorReport::new(Vec::new()).worst(), None);
    }

    #[test]
    fn a_line_has_every_field() {
        let text = text_of(|out| DoctorReport::new(findings()).write_json(out));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.as_object().unwrap().len() == 10), "{lines:?}");
        let [group, verdict, subject, command] =
            ["group", "verdict", "subject", "command"].map(|field| &lines[2][field]);
        assert_eq!([group, verdict], [&json!("nic"), &json!("note")]);
        assert_eq!([subject, command], [&json!("eth0"), &json!("ip link")]);
        assert_eq!((&lines[0]["subject"], &lines[1]["command"]), (&Value::Null, &json!("sysctl -w x=3")));
    }

    #[test]
    fn findings_as_people_see_them() {
        let text = text_of(|out| DoctorReport::new(findings()).write_table(out));
        let expected = "\
network
  ok       mtu_probing     1
  improve  tcp_rmem        4096 1 2
           wanted   3
           why      a connection carries no more in a round trip than its buffer holds; this one lets a single \
connection fill the path (fasterdata.es.net, Linux host tuning; tcp(7))
           command  sysctl -w x=3
nic
  note     mtu eth0        1500
           wanted   9000 or more
           why      each packet costs the same work: large ones cost less for each byte, if every hop on the path takes \
them (fasterdata.es.net, MTU issues)
           command  ip link
cpu
  unknown  governor        cannot be seen here
storage
  broken   mount /x\\u{1b}  no such file or directory
           wanted   a file
           why      a path that can't be looked at is neither source nor destination; a read-only one is a source only \
(proc_pid_mountinfo(5))
1 broken, 1 to improve, 1 noted, 1 unknown, 1 ok
";
        assert_eq!(text, expected);
    }
}
