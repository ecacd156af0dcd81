//! What libfabric offers on this host.

use std::path::Path;

/// Why a build has none.
#[cfg(not(feature = "fabric"))]
pub(super) const ABSENT: &str = "this carrack was built without libfabric";

/// A domain of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// As libfabric names it: `tcp;ofi_rxm`, `shm`, `verbs;ofi_rxm`.
    pub provider: String,
    /// The network, as libfabric names it.
    pub network: String,
    /// The device.
    pub domain: String,
    /// Its PCI address, as sysfs writes it.
    pub pci: Option<String>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// Whether an endpoint could be opened on it: reliable datagrams with messages and RMA.
    pub is_usable: bool,
}

/// Whether an RDMA device of this name is hardware that is installed here, and no software in its place.
pub fn is_installed_device(domain: &str) -> bool {
    let device = domain.split('-').next().unwrap_or_default();
    let is_name = !device.is_empty() && !device.contains(['/', '\0']) && !device.starts_with('.');
    is_name
        && ["infiniband", "cxi"]
            .iter()
            .any(|class| Path::new(&format!("/sys/class/{class}/{device}/device")).exists())
}

/// The version of libfabric, or why there is none.
///
/// # Errors
/// It is not installed, or was not there when this was built.
pub fn library() -> Result<(u16, u16), String> {
    imp::library()
}

/// All that it offers, usable or not.
///
/// # Errors
/// Why it can't be asked.
pub fn offers() -> Result<Vec<Offered>, String> {
    imp::offers()
}

/// What an endpoint can be opened on, of this provider or of all.
///
/// # Errors
/// Why there is nothing.
pub fn usable_offers(provider: Option<&str>) -> Result<Vec<Offered>, String> {
    imp::usable_offers(provider)
}

#[cfg(not(feature = "fabric"))]
mod imp {
    use super::{ABSENT, Offered};

    pub fn library() -> Result<(u16, u16), String> {
        Err(ABSENT.to_owned())
    }

    pub fn offers() -> Result<Vec<Offered>, String> {
        Err(ABSENT.to_owned())
    }

    pub fn usable_offers(_provider: Option<&str>) -> Result<Vec<Offered>, String> {
        Err(ABSENT.to_owned())
    }
}

#[cfg(feature = "fabric")]
mod imp {
    use carrack_fabric::{Description, FabricError, Filter};

    use super::Offered;

    pub fn library() -> Result<(u16, u16), String> {
        carrack_fabric::library().map_err(told)
    }

    pub fn offers() -> Result<Vec<Offered>, String> {
        let all = carrack_fabric::all_offers(&Filter::default()).map_err(told)?;
        let usable = carrack_fabric::usable_offers(&Filter::default()).unwrap_or_default();
        let is_usable = |one: &Description| {
            let same = |other: &Description| (&other.provider, &other.domain) == (&one.provider, &one.domain);
            usable.iter().any(|offer| same(&offer.description))
        };
        let mut offers = Vec::<Offered>::new();
        for offer in &all {
            let offered = offered(&offer.description, is_usable(&offer.description));
            if !offers.contains(&offered) {
                offers.push(offered);
            }
        }
        Ok(offers)
    }

    pub fn usable_offers(provider: Option<&str>) -> Result<Vec<Offered>, String> {
        let filter = Filter { provider: provider.map(str::to_owned), source: None };
        let offers = carrack_fabric::usable_offers(&filter).map_err(told)?;
        Ok(offers.iter().map(|offer| offered(&offer.description, true)).collect())
    }

    fn offered(description: &Description, is_usable: bool) -> Offered {
        Offered {
            provider: description.provider.clone(),
            network: description.fabric.clone(),
            domain: description.domain.clone(),
            pci: description.pci.clone(),
            numa_node: description.numa_node,
            is_usable,
        }
    }

    fn told(error: FabricError) -> String {
        error.to_string()
    }
}
