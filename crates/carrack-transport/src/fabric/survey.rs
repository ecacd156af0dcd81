//! libfabric's offers on this host.

use std::path::Path;

/// The reason in a build without libfabric.
#[cfg(not(feature = "fabric"))]
pub(super) const ABSENT: &str = "this carrack was built without libfabric";

/// A domain of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricProviderDomain {
    /// The provider's name in libfabric: `tcp;ofi_rxm`, `shm`, `verbs;ofi_rxm`.
    pub provider: String,
    /// The network's name in libfabric.
    pub network: String,
    /// The device.
    pub domain: String,
    /// The device's PCI address, as sysfs writes it.
    pub pci: Option<String>,
    /// The NUMA node of the device.
    pub numa_node: Option<u32>,
    /// True if an endpoint can be opened on the domain: reliable datagrams with messages and RMA.
    pub is_usable: bool,
}

/// Returns true if an RDMA device of this name is installed hardware, and not an emulation.
pub fn is_installed_device(domain: &str) -> bool {
    let device = domain.split('-').next().unwrap_or_default();
    let is_name = !device.is_empty() && !device.contains(['/', '\0']) && !device.starts_with('.');
    is_name
        && ["infiniband", "cxi"]
            .iter()
            .any(|class| Path::new(&format!("/sys/class/{class}/{device}/device")).exists())
}

/// The version of libfabric.
///
/// # Errors
/// It is not installed, or this program was built without it.
pub fn library_version() -> Result<(u16, u16), String> {
    imp::library_version()
}

/// All offers of libfabric, usable or not.
///
/// # Errors
/// The reason why libfabric does not answer.
pub fn offers() -> Result<Vec<FabricProviderDomain>, String> {
    imp::offers()
}

/// The offers that an endpoint can be opened on, of this provider or of all.
///
/// # Errors
/// The reason why there are none.
pub fn usable_offers(provider: Option<&str>) -> Result<Vec<FabricProviderDomain>, String> {
    imp::usable_offers(provider)
}

#[cfg(not(feature = "fabric"))]
mod imp {
    use super::{ABSENT, FabricProviderDomain};

    pub fn library_version() -> Result<(u16, u16), String> {
        Err(ABSENT.to_owned())
    }

    pub fn offers() -> Result<Vec<FabricProviderDomain>, String> {
        Err(ABSENT.to_owned())
    }

    pub fn usable_offers(_provider: Option<&str>) -> Result<Vec<FabricProviderDomain>, String> {
        Err(ABSENT.to_owned())
    }
}

#[cfg(feature = "fabric")]
mod imp {
    use carrack_fabric::{FabricError, FabricInterfaceProperties, ProviderOfferFilter};

    use super::FabricProviderDomain;

    pub fn library_version() -> Result<(u16, u16), String> {
        carrack_fabric::load_library().map_err(error_text)
    }

    pub fn offers() -> Result<Vec<FabricProviderDomain>, String> {
        let all = carrack_fabric::all_offers(&ProviderOfferFilter::default()).map_err(error_text)?;
        let usable = carrack_fabric::usable_offers(&ProviderOfferFilter::default()).unwrap_or_default();
        let mut offers = Vec::<FabricProviderDomain>::new();
        for offer in &all {
            let FabricInterfaceProperties { provider, domain, .. } = &offer.description;
            let is_usable = usable
                .iter()
                .any(|other| (&other.description.provider, &other.description.domain) == (provider, domain));
            let offered = provider_domain_of(&offer.description, is_usable);
            if !offers.contains(&offered) {
                offers.push(offered);
            }
        }
        Ok(offers)
    }

    pub fn usable_offers(provider: Option<&str>) -> Result<Vec<FabricProviderDomain>, String> {
        let filter = ProviderOfferFilter { provider: provider.map(str::to_owned), source: None };
        let offers = carrack_fabric::usable_offers(&filter).map_err(error_text)?;
        Ok(offers.iter().map(|offer| provider_domain_of(&offer.description, true)).collect())
    }

    fn provider_domain_of(description: &FabricInterfaceProperties, is_usable: bool) -> FabricProviderDomain {
        FabricProviderDomain {
            provider: description.provider.clone(),
            network: description.fabric.clone(),
            domain: description.domain.clone(),
            pci: description.pci.clone(),
            numa_node: description.numa_node,
            is_usable,
        }
    }

    fn error_text(error: FabricError) -> String {
        error.to_string()
    }
}
