//! A submission as arguments of `carrack cp`, or its refusal. No I/O.

use std::collections::BTreeMap;
use std::fmt::Display;

use carrack_options::SubmissionExecutorKind;
use carrack_register::transfer_operations::TransferOperationError;
use carrack_register::transfer_records::{SiteLocation, TransferSubmission};

use super::turns::QueueOrderRules;

/// The site that is this machine.
pub const LOCAL_SITE: &str = "local";

/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 256;

pub(super) fn refused(message: impl Display, hint: impl Display) -> TransferOperationError {
    TransferOperationError::Refused { message: message.to_string(), hint: hint.to_string() }
}

/// Returns the arguments of `carrack` for a submission; `sites` has the prefixes of the paths on other sites.
///
/// # Errors
/// The first error of the submission, for its user.
pub fn arguments(
    submission: &TransferSubmission,
    sites: &BTreeMap<String, String>,
) -> Result<Vec<String>, TransferOperationError> {
    if submission.priority > QueueOrderRules::PRIORITY_MAX {
        let hint = format!("it may be 0 to {}", QueueOrderRules::PRIORITY_MAX);
        return Err(refused(format!("there is no priority {}", submission.priority), hint));
    }
    if submission.label.len() > LABEL_BYTES_MAX || submission.label.chars().any(char::is_control) {
        return Err(refused("this can't be a label", format!("a line of up to {LABEL_BYTES_MAX} bytes can")));
    }
    let options = &submission.options;
    options.check(SubmissionExecutorKind::Queue)?;
    let values = options.values()?;
    let is_sync = values.sync_rules()?.is_some();
    // The submitted options count, and not those in the configuration files of this machine or of the user.
    let verb = if is_sync { "sync" } else { "cp" };
    let mut words: Vec<String> = [verb, "--no-config"].map(str::to_owned).into();
    // A partial transfer is of one file.
    words.extend(values.transfer().partial_range().is_none().then(|| "-r".to_owned()));
    words.push("--json".to_owned());
    words.extend(options.to_arguments()?.into_iter().filter(|word| word != "--sync"));
    words.push("--".to_owned());
    words.push(location_argument(&submission.source, sites)?);
    words.push(location_argument(&submission.destination, sites)?);
    Ok(words)
}

fn location_argument(
    location: &SiteLocation,
    sites: &BTreeMap<String, String>,
) -> Result<String, TransferOperationError> {
    if let Some(prefix) = sites.get(&location.site) {
        return Ok(format!("{prefix}{}", location.path));
    }
    if location.site == LOCAL_SITE {
        return Ok(location.path.clone());
    }
    let known: Vec<&str> = std::iter::once(LOCAL_SITE).chain(sites.keys().map(String::as_str)).collect();
    Err(refused(
        format!("there is no site {} here", location.site),
        format!("this queue is one machine's; it knows {}", known.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use carrack_options::TransferOptions;

    use super::super::store::tests::sample;
    use super::*;

    fn with(words: &[&str]) -> Result<Vec<String>, TransferOperationError> {
        let options = TransferOptions::from_words(words)?;
        arguments(&TransferSubmission { options, ..sample("1", 5).submission }, &BTreeMap::new())
    }

    #[test]
    fn a_submission_becomes_a_copy() {
        assert_eq!(with(&[]).unwrap(), ["cp", "--no-config", "-r", "--json", "--", "/a", "/b"]);
        let wanted = [
            "--archive",
            "--bwlimit=sat-sun off, 1GB",
            "--no-owner",
            "--exclude=*.tmp",
            "--include=a=b",
            "--streams=4",
        ];
        assert_eq!(with(&wanted).unwrap()[4..10], wanted);
        assert_eq!(with(&["--deadline=@1795399200"]).unwrap()[4], "--deadline=@1795399200");
        let of_part = ["--length=3KiB", "--offset=7"];
        assert_eq!(with(&of_part).unwrap()[..5], [&["cp", "--no-config", "--json"], &of_part[..]].concat());
        assert!(with(&["--offset=7", "--sync"]).is_err() && with(&["--length=7", "--archive"]).is_err());
        let words = with(&["--sync", "--contents"]).unwrap();
        assert_eq!((&*words[0], &words[4..6]), ("sync", &["--contents".to_owned(), "--".to_owned()][..]));
        assert_eq!(
            with(&["--delete", "--max-delete=7"]).unwrap()[0],
            "sync",
            "its options mean that it is one"
        );
    }

    /// A new option needs a decision here about its treatment by the queue.
    #[test]
    fn every_option_is_handed_on_or_refused_with_a_reason() {
        for (name, words) in carrack_options::samples() {
            if name == "from0" || name.ends_with("-from") && name != "connect-from" {
                // The submission turns it into patterns and paths.
                continue;
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let own = words.last().copied().unwrap();
            match (with(&words), SubmissionExecutorKind::Queue.refusal(name)) {
                (Err(TransferOperationError::Refused { hint, .. }), Some(_)) => {
                    assert!(!hint.is_empty(), "{own}")
                }
                (Ok(said), None) if name == "sync" => {
                    assert!(said.len() > 6, "{own}")
                }
                (Ok(said), None) => assert!(said.iter().any(|word| word == own), "{own}: {said:?}"),
                (other, why) => panic!("{own}: {other:?}, {why:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_at_once() {
        for word in
            ["--pairs=2", "--journal-dir=/etc", "--files-from=/etc/shadow", "--spill=/x:1GiB", "--zone"]
        {
            let TransferOperationError::Refused { hint, .. } = with(&[word]).unwrap_err() else { panic!() };
            assert!(!hint.is_empty(), "{word}");
        }
        let submission = sample("1", 5).submission;
        assert!(
            arguments(&TransferSubmission { priority: 10, ..submission.clone() }, &BTreeMap::new()).is_err()
        );
        let label = "two\nlines".to_owned();
        assert!(arguments(&TransferSubmission { label, ..submission }, &BTreeMap::new()).is_err());
    }

    #[test]
    fn other_sites_are_those_of_the_configuration() {
        let mut submission = sample("1", 5).submission;
        submission.destination = "alcf:/x".parse().unwrap();
        let TransferOperationError::Refused { message, hint } =
            arguments(&submission, &BTreeMap::new()).unwrap_err()
        else {
            panic!()
        };
        assert!(message.contains("no site alcf") && hint.ends_with("knows local"), "{message} / {hint}");
        let sites = BTreeMap::from([("alcf".to_owned(), "carrack://dtn/data".to_owned())]);
        assert_eq!(arguments(&submission, &sites).unwrap().last().unwrap(), "carrack://dtn/data/x");
    }
}
