//! The context of a session, which its ends in this process share.

use std::sync::Arc;

use carrack_model::AgreedTransferSpec;

use crate::abort::AbortHandle;
use crate::event_delivery::TransferObserver;
use crate::settings::EndSettings;
use crate::sharing::SessionGrantClient;

/// The agreed specification, and the recipients of an end's events.
#[derive(Clone)]
pub(crate) struct SessionContext<'a> {
    pub(crate) spec: AgreedTransferSpec,
    /// Those of this process.
    pub(crate) settings: EndSettings,
    /// The observer, if the user started this end.
    pub(crate) observer: Option<&'a dyn TransferObserver>,
    pub(crate) abort: &'a AbortHandle,
    /// The end's client of the meta-scheduler, if targets are shared.
    pub(crate) share: Option<Arc<SessionGrantClient>>,
}
