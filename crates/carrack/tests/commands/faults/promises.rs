//! What the command promises by now: the checks and options that can be switched on.

/// There is a journal: nothing is left over after a success, and little moves twice.
pub const RESUMES: bool = true;

/// A command tries again by itself, and notices silence: what happens to the network and to other processes needs no second
/// command, and nobody who has to end one.
pub const RETRIES: bool = true;
