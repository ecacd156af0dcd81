//! What `carrack targets` shows: who holds and who waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::health::{Allowance, Load};
use super::messages::{micros, millis};
use super::server::GrantServer;
use super::turns::ClientKey;

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetView {
    /// Its name.
    pub target: String,
    /// What computation uses of it, if that is known, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// What it is expected to use, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_expected: Option<f64>,
    /// Clients that may use it at a time.
    pub users_max: usize,
    /// Length of a burst now, in milliseconds.
    pub burst_ms: u64,
    /// Who has it, now or next.
    pub holders: Vec<ViewOfHolder>,
    /// Who waits, the longest first.
    pub waiting: Vec<ViewOfWaiting>,
}

/// Who has a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewOfHolder {
    /// The client.
    pub client: String,
    /// Its class.
    pub class: String,
    /// When it begins; 0 for those that have it now.
    pub starts_in_us: u64,
    /// When it ends, unless it goes on.
    pub ends_in_us: u64,
    /// Bytes moved under the grant, as far as they were told.
    pub bytes: u64,
}

/// Who waits for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewOfWaiting {
    /// The client.
    pub client: String,
    /// Its class.
    pub class: String,
    /// For how long.
    pub waits_ms: u64,
}

impl GrantServer {
    /// Every target that anybody speaks of, by name.
    pub fn targets(&self, now: Duration) -> Vec<TargetView> {
        let mut names: Vec<&String> = self.targets.keys().chain(self.loads.keys()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.view(name, now)).collect()
    }

    fn name_and_class(&self, key: ClientKey) -> (String, String) {
        self.clients
            .get(&key)
            .map_or_else(Default::default, |client| (client.name.clone(), client.class.clone()))
    }

    fn view(&self, name: &str, now: Duration) -> TargetView {
        let told = self.loads.get(name).copied().filter(|told| told.is_known(now));
        let allowance = Allowance::new(&self.settings, told, now);
        let load = told.map(|told| told.load);
        let mut view = TargetView {
            target: name.to_owned(),
            load: load.map(|Load { present, .. }| present),
            load_expected: load.map(|Load { expected, .. }| expected),
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
        // Whoever has it and asks for its next burst does not wait.
        let has = |key| target.holdings().iter().any(|holding| holding.client == key && holding.until > now);
        for (key, since) in target.waiting().filter(|(key, _)| !has(*key)) {
            let (client, class) = self.name_and_class(key);
            view.waiting.push(ViewOfWaiting { client, class, waits_ms: millis(now.saturating_sub(since)) });
        }
        view.holders.sort_by_key(|holder| holder.starts_in_us);
        view.waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.waits_ms));
        view
    }
}
