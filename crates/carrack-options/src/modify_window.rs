//! The value of `--modify-window`: the difference up to which modification times count as equal.

use std::time::Duration;

use carrack_model::ModifyWindow;

/// The value on the command line.
#[derive(Clone, Copy, Debug)]
pub struct ModifyWindowOption(pub ModifyWindow);

/// Parses seconds, with a fraction down to nanoseconds.
pub fn parse_window(text: &str) -> Result<ModifyWindowOption, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, or -1".to_owned())?;
    match seconds {
        -1.0 => Ok(ModifyWindowOption(ModifyWindow::Exact)),
        0.0 => Ok(ModifyWindowOption(ModifyWindow::Stored)),
        _ => Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|window| u64::try_from(window.as_nanos()).ok())
            .map(|nanoseconds| ModifyWindowOption(ModifyWindow::Within { nanoseconds }))
            .ok_or_else(|| "0 or more seconds, or -1".to_owned()),
    }
}
