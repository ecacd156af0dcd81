//! `carrack doctor` for people: a line for each finding, by group, and below those that are not well what to do about them.
//!
//! Values are escaped: names of paths and interfaces can't drive the terminal.

use std::io::{self, Write};

use carrack_machine::doctor::{Finding, Verdict};
use carrack_model::escape;

use super::Report;

/// Between columns.
const GAP: &str = "  ";

/// Width of the words before the values of an explanation.
const WORD_WIDTH: usize = 9;

/// From the worst to the best, with the words of the last line.
const COUNTED: [(Verdict, &str); 5] = [
    (Verdict::Broken, "broken"),
    (Verdict::Improve, "to improve"),
    (Verdict::Note, "noted"),
    (Verdict::Unknown, "unknown"),
    (Verdict::Well, "ok"),
];

impl Report {
    /// Writes the groups, and last how many findings there are of each verdict.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = Widths::of(&self.findings);
        for group in self.findings.chunk_by(|one, other| one.check.group == other.check.group) {
            writeln!(out, "{}", group[0].check.group.name())?;
            for finding in group {
                write_finding(finding, &widths, out)?;
            }
        }
        let counts = COUNTED.map(|(verdict, words)| format!("{} {words}", self.count(verdict)));
        writeln!(out, "{}", counts.join(", "))
    }
}

struct Widths {
    verdict: usize,
    label: usize,
}

impl Widths {
    fn of(findings: &[Finding]) -> Widths {
        let widest = |width: fn(&Finding) -> usize| findings.iter().map(width).max().unwrap_or(0);
        Widths {
            verdict: widest(|finding| finding.verdict.name().len()),
            label: widest(|finding| label(finding).chars().count()),
        }
    }
}

fn label(finding: &Finding) -> String {
    match &finding.subject {
        Some(subject) => format!("{} {}", finding.check.name, escape(subject.as_bytes())),
        None => finding.check.name.to_string(),
    }
}

fn write_finding(finding: &Finding, widths: &Widths, out: &mut dyn Write) -> io::Result<()> {
    let (verdict, label, present) =
        (finding.verdict.name(), label(finding), escape(finding.present.as_bytes()));
    let (verdict_width, label_width) = (widths.verdict, widths.label);
    writeln!(out, "{GAP}{verdict:<verdict_width$}{GAP}{label:<label_width$}{GAP}{present}")?;
    if matches!(finding.verdict, Verdict::Well | Verdict::Unknown) {
        return Ok(());
    }
    let indent = GAP.len() + verdict_width + GAP.len();
    let why = format!("{} ({})", finding.check.why, finding.check.source);
    for (word, text) in
        [("wanted", Some(&finding.wanted)), ("why", Some(&why)), ("command", finding.command.as_ref())]
    {
        if let Some(text) = text {
            writeln!(out, "{:indent$}{word:<WORD_WIDTH$}{}", "", escape(text.as_bytes()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor_report::samples;

    #[test]
    fn findings_as_people_see_them() {
        let mut out = Vec::new();
        Report::new(samples::findings()).write_table(&mut out).unwrap();
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
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
