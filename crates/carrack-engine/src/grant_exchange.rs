//! The exchange between an end and the meta-server of shared targets, which the engine's caller implements.

use std::fmt;
use std::io;
use std::sync::Arc;

use carrack_plan::grants::{GrantClientReport, GrantReply};

/// Sends a client's batches to the meta-server of its file systems.
pub trait GrantExchange: Send + Sync {
    /// Returns the server's answer. Blocks for a second at most, in which the client sends nothing else.
    ///
    /// # Errors
    /// If there is no answer. After a second without answers the transfer continues without grants.
    fn exchange(&self, batch: &GrantClientReport) -> io::Result<GrantReply>;
}

/// The exchange through which an end asks for targets.
#[derive(Clone)]
pub struct GrantExchangeHandle(pub Arc<dyn GrantExchange>);

impl fmt::Debug for GrantExchangeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantExchangeHandle")
    }
}

impl PartialEq for GrantExchangeHandle {
    fn eq(&self, other: &GrantExchangeHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GrantExchangeHandle {}
