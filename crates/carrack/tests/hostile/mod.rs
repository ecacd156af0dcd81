//! Attackers of `carrack serve`, each with a name and how it ends.

pub mod arena;
pub mod client;
pub mod credentials;
pub mod data;
pub mod handshake;
pub mod sink;
pub mod source;
pub mod strangers;

use arena::Arena;
use client::End;

/// A name, how the attack ends (the beginning of an [`End`] in words), and the attack itself. Whoever goes on talking to
/// an end that has left may lose its last words with the reset: there `closed` stands beside them, behind a bar.
pub type Attack = (&'static str, &'static str, fn(&Arena) -> End);
