//! What `carrack doctor` tells: its findings, as a table for people and as JSON for machines.

mod json;
mod table;

use carrack_machine::doctor::{Finding, Verdict};

/// All findings of one look, in the order in which they are told.
#[derive(Debug)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// By group; within one, by check and subject as they were found.
    pub fn new(mut findings: Vec<Finding>) -> Report {
        findings.sort_by_key(|finding| finding.check.group);
        Report { findings }
    }

    /// The worst verdict.
    pub fn worst(&self) -> Option<Verdict> {
        self.findings.iter().map(|finding| finding.verdict).max()
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

#[cfg(test)]
mod samples {
    use carrack_machine::doctor::{Check, Finding, Verdict, checks};

    fn finding(name: &str, verdict: Verdict, present: &str, wanted: &str) -> Finding {
        let check: &'static Check = checks().find(|check| check.name == name).unwrap();
        let (present, wanted) = (present.into(), wanted.into());
        Finding { check, subject: None, verdict, present, wanted, command: None }
    }

    /// One of each verdict.
    pub(super) fn findings() -> Vec<Finding> {
        let link = finding("mtu", Verdict::Note, "1500", "9000 or more");
        let link = Finding { subject: Some("eth0".into()), command: Some("ip link".into()), ..link };
        let path = finding("mount", Verdict::Broken, "no such file or directory", "a file");
        let buffer = finding("tcp_rmem", Verdict::Improve, "4096 1 2", "3");
        vec![
            link,
            finding("governor", Verdict::Unknown, "cannot be seen here", "performance"),
            Finding { subject: Some("/x\x1b".into()), ..path },
            finding("mtu_probing", Verdict::Well, "1", "1"),
            Finding { command: Some("sysctl -w x=3".into()), ..buffer },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers of the repository have the checks without building anything.
    #[test]
    fn docs_have_every_check_and_its_source() {
        let docs = include_str!("../../../../docs/doctor.md");
        for check in carrack_machine::doctor::checks() {
            let row = docs.lines().find(|line| line.starts_with(&format!("| `{}` |", check.name)));
            let is_sourced = row.is_some_and(|row| row.ends_with(&format!("| {} |", check.source)));
            assert!(is_sourced, "docs/doctor.md lacks {} or its source {}", check.name, check.source);
        }
    }

    #[test]
    fn the_worst_is_known() {
        assert_eq!(Report::new(samples::findings()).worst(), Some(Verdict::Broken));
        assert_eq!(Report::new(Vec::new()).worst(), None);
    }
}
