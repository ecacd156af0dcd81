//! The exchange between an end and the meta-server of shared targets, which the caller of the engine carries.

use std::fmt;
use std::io;
use std::sync::Arc;

use carrack_plan::grants::{Answer, Batch};

/// Carries a client's batches to the meta-server of its file systems.
pub trait GrantExchange: Send + Sync {
    /// What the server answers. Blocks for a second at most: meanwhile the client has nothing new to say to anybody.
    ///
    /// # Errors
    /// If there is no answer. The transfer goes on unmanaged once they have been missing for a second.
    fn exchange(&self, batch: &Batch) -> io::Result<Answer>;
}

/// Where an end asks for targets.
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
