//! A file of public keys. Input: its content.
#![no_main]

use carrack_trust::{KeyLineProblem, AuthorizedKeys, check_identity_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (keys, errors) = AuthorizedKeys::parse(data);
    let lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    assert!(keys.len() + errors.len() <= lines.len());
    for error in &errors {
        let line = lines[error.line - 1];
        // A line that is wrong by itself admits nobody by itself either.
        let (alone, problems) = AuthorizedKeys::parse(line);
        assert!(alone.is_empty() != (error.problem == KeyLineProblem::Twice), "{error}");
        assert_eq!(problems.is_empty(), error.problem == KeyLineProblem::Twice, "{error}");
        assert!(!error.to_string().is_empty());
    }
    // Every key comes from a line, with the name that stands there.
    let mut found = AuthorizedKeys::default();
    for line in &lines {
        let (one, _) = AuthorizedKeys::parse(line);
        assert!(one.len() <= 1);
        if one.len() == 1 {
            let name = String::from_utf8_lossy(line);
            let name = name.trim().splitn(3, char::is_whitespace).nth(2).unwrap_or_default().trim();
            assert_eq!(check_identity_name(name), Ok(()), "{name:?}");
            found = one;
        }
    }
    assert_eq!(keys.is_empty(), found.is_empty());
});
