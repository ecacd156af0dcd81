//! Texts of errors without the system's numbers.

use std::fmt::Display;

/// The start of the number that Rust's library appends to a message of the system: `(os error 13)`.
const NUMBER: &str = " (os error ";

/// Returns the text of an error without the numbers of the system. The error is an `io::Error`, an `Errno`,
/// or contains such errors.
pub fn text_without_errno(error: &dyn Display) -> String {
    let mut text = error.to_string();
    let mut from = 0;
    while let Some(start) = text[from..].find(NUMBER).map(|start| from + start) {
        let digits = start + NUMBER.len();
        let length = text[digits..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
        if length > 0 && text[digits + length..].starts_with(')') {
            text.replace_range(start..=digits + length, "");
            from = start;
        } else {
            from = digits;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_numbers_go_and_the_rest_stays() {
        assert_eq!(text_without_errno(&io::Error::from_raw_os_error(13)), "Permission denied");
        let nested = format!("a: {}; b", io::Error::from_raw_os_error(2));
        assert_eq!(text_without_errno(&nested), "a: No such file or directory; b");
        for kept in ["", "x (os error )", "x (os error 5", "(os error 5)", "é (os error"] {
            assert_eq!(text_without_errno(&kept), kept);
        }
        assert_eq!(text_without_errno(&"x (os error  (os error 7)"), "x (os error ");
    }
}
