//! Where options come from that are not on the command line: the environment, profiles, the user's file and the system's.
//!
//! There is one mechanism for all commands: what is found becomes the defaults with which the command line is parsed
//! (`command_line.rs`), so it counts where nothing was typed, and is checked like what is typed. What stands in a file is
//! `file.rs`, what counts of all of them `layers.rs`. Nothing here knows what an option means.

mod command_line;
mod file;
mod layers;
mod rows;
#[cfg(test)]
mod tests;

pub use command_line::{Asked, COMMANDS, HEADING, Problem, command, command_with_open_flags, parse};
pub use layers::{Origin, Sources, system_file, user_file};
pub use rows::{Row, rows};
