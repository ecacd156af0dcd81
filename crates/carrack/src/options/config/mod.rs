//! Sources of options other than the command line: the environment, profiles, the user's file and the
//! system's file.
//!
//! All commands share one mechanism: the options from these sources become the defaults with which the
//! command line is parsed (`command_line_defaults.rs`). They hold where an option is not typed, and are
//! checked like typed options. `file.rs` reads a file, and `layers.rs` has the precedence. This module must
//! not know the meaning of an option.

mod command_line_defaults;
mod file;
mod layers;
mod rows;
#[cfg(test)]
mod tests;

pub use command_line_defaults::{
    COMMANDS, CommandLineError, ConfigSourceChoice, carrack_command, command_with_valued_flags, parse,
};
pub use layers::{ConfigSources, ValueOrigin, system_file, user_file};
pub use rows::{ConfiguredOptionRow, rows};
