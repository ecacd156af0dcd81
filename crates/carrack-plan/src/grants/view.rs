//! The state of targets for `carrack targets`: holders and waiting clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::computation_load::{TargetAllowance, TargetComputeLoad};
use super::messages::{micros, millis};
use super::server::GrantServer;
use super::turns::GrantClientNumber;

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = TargetView))]
pub struct SharedTargetStatus {
    /// Its name.
    pub target: String,
    /// Present load by computation, if known, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Expected load by computation, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_expected: Option<f64>,
    /// Clients that may use it at a time.
    pub users_max: usize,
    /// Length of a burst now, in milliseconds.
    pub burst_ms: u64,
    /// Clients that hold it, now or next.
    pub holders: Vec<ViewOfHolder>,
    /// Clients that wait, the longest first.
    pub waiting: Vec<WaitingClientView>,
}

/// A client that holds a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewOfHolder {
    /// The client.
    pub client: String,
    /// Its class.
    pub class: String,
    /// Time to its begin; 0 for a present grant.
    pub starts_in_us: u64,
    /// Time to its end, unless it is extended.
    pub ends_in_us: u64,
    /// Bytes moved under the grant, by the client's reports.
    pub bytes: u64,
}

/// A client that waits for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ViewOfWaiting))]
pub struct WaitingClientView {
    /// The client.
    pub client: String,
    /// Its class.
    pub class: String,
    /// Time that it has waited.
    pub waits_ms: u64,
}

impl GrantServer {
    /// Returns the state of every target with clients or load, by name.
    pub fn targets(&self, now: Duration) -> Vec<SharedTargetStatus> {
        let mut names: Vec<&String> = self.targets.keys().chain(self.loads.keys()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.target_status(name, now)).collect()
    }

    fn name_and_class(&self, key: GrantClientNumber) -> (String, String) {
        self.clients
            .get(&key)
            .map_or_else(Default::default, |client| (client.name.clone(), client.class.clone()))
    }

    fn target_status(&self, name: &str, now: Duration) -> SharedTargetStatus {
        let told = self.loads.get(name).copied().filter(|told| told.is_known(now));
        let allowance = TargetAllowance::new(&self.settings, told, now);
        let load = told.map(|told| told.load);
        let mut view = SharedTargetStatus {
            target: name.to_owned(),
            load: load.map(|TargetComputeLoad { present, .. }| present),
            load_expected: load.map(|TargetComputeLoad { expected, .. }| expected),
            users_max: allowance.users,
            burst_ms: millis(allowance.burst),
            holders: Vec::new(),
            waiting: Vec::new(),
        };
        let Some(target) = self.targets.get(name) else { return view };
        for holding in target.holdings().iter().filter(|holding| holding.until > now) {
            let (client, class) = self.name_and_class(holding.client);
            view.holders.push(ViewOfHolder {
                client,
                class,
                starts_in_us: micros(holding.start.saturating_sub(now)),
                ends_in_us: micros(holding.until.saturating_sub(now)),
                bytes: holding.used.bytes,
            });
        }
        // A holder that asks for its next burst does not wait.
        let holdings = target.holdings();
        for (key, since) in target.waiting_clients() {
            if holdings.iter().any(|holding| holding.client == key && holding.until > now) {
                continue;
            }
            let (client, class) = self.name_and_class(key);
            view.waiting.push(WaitingClientView {
                client,
                class,
                waits_ms: millis(now.saturating_sub(since)),
            });
        }
        view.holders.sort_by_key(|holder| holder.starts_in_us);
        view.waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.waits_ms));
        view
    }
}
