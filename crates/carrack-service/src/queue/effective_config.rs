//! The configuration in effect in the process of the queue and the meta-server, and the change to a new
//! configuration. Classes, bursts and the source of measured load may change while transfers run; the queue
//! and the meta-server's socket may not.

use std::sync::Arc;

use carrack_sharing::health::{LoadMonitorSettings, LoadMonitorThread};

use super::service::{QueueServiceError, system_error};
use crate::config::LocalServicesConfig;
use crate::log::DaemonLog;
use crate::parent::ServeError;
use crate::sharing::MachineMetaScheduler;

/// The configuration, and the parts that were started by it.
pub(super) struct QueueServiceParts {
    config: LocalServicesConfig,
    sharing: Option<Arc<MachineMetaScheduler>>,
    measuring: Option<LoadMonitorThread>,
    log: DaemonLog,
}

impl QueueServiceParts {
    /// Starts to measure load, if that is configured.
    pub fn begin(
        config: &LocalServicesConfig,
        sharing: Option<Arc<MachineMetaScheduler>>,
        log: DaemonLog,
    ) -> Result<QueueServiceParts, QueueServiceError> {
        let mut going_by = QueueServiceParts { config: config.clone(), sharing, measuring: None, log };
        going_by.measure()?;
        Ok(going_by)
    }

    /// Changes to the present configuration; if it can't be used, everything stays as it was.
    pub fn reload(&mut self, read: Result<Option<LocalServicesConfig>, ServeError>) {
        match read {
            Ok(Some(config)) => self.change(config),
            Ok(None) => self
                .log
                .warn("not read again: the configuration has neither a [queue] nor a [sharing] any more"),
            Err(error) => self.log.warn(format!("not read again: {error} (hint: {})", error.hint())),
        }
    }

    fn change(&mut self, config: LocalServicesConfig) {
        if config.queue != self.config.queue || config.sharing_socket() != self.config.sharing_socket() {
            self.log.warn("[queue], and the socket of [sharing], are read at the start only");
        }
        // Without a meta-server nothing could change, and without a section there is nothing to change to.
        let (Some(shared), Some(sharing)) = (&self.sharing, config.sharing) else { return };
        shared.reconfigure(sharing.settings(), sharing.rules());
        let was_measured = self.monitor_settings();
        self.config.sharing = Some(sharing);
        if self.monitor_settings() != was_measured {
            self.measuring = None;
            if let Err(error) = self.measure() {
                self.log.warn(format!("computation's load is not measured: {error}"));
            }
        }
        self.log.info("[sharing] is read again");
    }

    fn monitor_settings(&self) -> Option<LoadMonitorSettings> {
        self.config.sharing.as_ref()?.health.clone()
    }

    /// Starts measuring: targets are then granted as far as computation leaves them.
    fn measure(&mut self) -> Result<(), QueueServiceError> {
        let (Some(settings), Some(shared)) = (self.monitor_settings(), &self.sharing) else { return Ok(()) };
        let log = self.log;
        log.info(format!("computation's load is measured by {}", settings.prometheus));
        let measuring = shared.server.start_load_monitor(settings, move |words| log.warn(words));
        self.measuring = Some(measuring.map_err(system_error("starting a thread"))?);
        Ok(())
    }
}
