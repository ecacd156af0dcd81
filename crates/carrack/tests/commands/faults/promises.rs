//! The promises of the command: checks and options that can be switched on.

/// There is a journal: nothing is left over after a success, and little moves twice.
pub const RESUMES: bool = true;

/// A command retries, and notices silence: after faults of the network and of other processes the user need
/// not run or end a command.
pub const RETRIES: bool = true;
