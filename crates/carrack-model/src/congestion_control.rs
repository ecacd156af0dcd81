//! The congestion control of data connections (RFC 5681, `tcp_congestion_control` in tcp(7)).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a congestion control; Linux has 16 bytes with the terminating zero (TCP_CA_NAME_MAX).
const NAME_BYTES_MAX: usize = 15;

/// The choice of the congestion control that the source's data connections use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CongestionControlChoice {
    /// The system's, or BBR where packets are lost without congestion and it brings more.
    #[default]
    Auto,
    /// The system's default on paths of 1 ms and more.
    System,
    /// The one of this name.
    Named(String),
}

/// The text names no congestion control.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a congestion control: auto, system, or a name of up to 15 letters, digits, - and _, as bbr")]
pub struct BadCongestionControlName;

impl FromStr for CongestionControlChoice {
    type Err = BadCongestionControlName;

    fn from_str(text: &str) -> Result<CongestionControlChoice, BadCongestionControlName> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        match text {
            "auto" => Ok(CongestionControlChoice::Auto),
            "system" => Ok(CongestionControlChoice::System),
            name if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_name) => {
                Ok(CongestionControlChoice::Named(name.to_owned()))
            }
            _ => Err(BadCongestionControlName),
        }
    }
}

impl fmt::Display for CongestionControlChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CongestionControlChoice::Auto => "auto",
            CongestionControlChoice::System => "system",
            CongestionControlChoice::Named(name) => name,
        })
    }
}

impl From<CongestionControlChoice> for String {
    fn from(choice: CongestionControlChoice) -> String {
        choice.to_string()
    }
}

impl TryFrom<String> for CongestionControlChoice {
    type Error = BadCongestionControlName;

    fn try_from(text: String) -> Result<CongestionControlChoice, BadCongestionControlName> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for text in ["auto", "system", "bbr", "dctcp", "bbr-v3_x"] {
            assert_eq!(text.parse::<CongestionControlChoice>().unwrap().to_string(), text);
        }
        for text in ["", "a b", "longer-than-linux-has", "b\u{e4}r", "x/y"] {
            assert_eq!(text.parse::<CongestionControlChoice>(), Err(BadCongestionControlName), "{text}");
        }
    }
}
