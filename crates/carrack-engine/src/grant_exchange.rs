//! The exchange between an end and the meta-server of shared targets, which the engine's caller implements.

use std::fmt;
use std::io;
use std::sync::Arc;

use carrack_plan::grants::{Answer, Batch};

/// Sends a client's batches to the meta-server of its file systems.
pub trait GrantExchange: Send + Sync {
    /// Returns the server's answer. Blocks for a second at most, in which the client sends nothing else.
    ///
    /// # Errors
    /// If there is no answer. After a second without answers the transfer continues without grants.
    fn exchange(&self, batch: &Batch) -> io::Result<Answer>;
}

/// The exchange through which an end asks for targets.
#[derive(Clone)]
pub struct Sharing(pub Arc<dyn GrantExchange>);

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sharing")
    }
}

impl PartialEq for Sharing {
    fn eq(&self, other: &Sharing) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sharing {}
