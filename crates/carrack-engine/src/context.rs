//! The context of a session, which its ends in this process share.

use std::sync::Arc;

use carrack_model::TransferSpec;

use crate::abort::Abort;
use crate::report::Observer;
use crate::settings::Settings;
use crate::sharing::Share;

/// The terms that the ends agreed on, and whom an end listens to and tells.
#[derive(Clone)]
pub(crate) struct SessionContext<'a> {
    pub(crate) spec: TransferSpec,
    /// Of this process.
    pub(crate) settings: Settings,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
    pub(crate) abort: &'a Abort,
    /// The end's part in sharing targets, if it has one.
    pub(crate) share: Option<Arc<Share>>,
}
