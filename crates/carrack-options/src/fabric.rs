//! The choice of the transport of objects.

use carrack_engine::FabricWanted;
use clap::Args;

use crate::transfer_args::CONNECTION;

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct FabricTransportArgs {
    /// The transport of objects: auto, off (TCP), or a libfabric provider, which is required, or preferred
    /// (try:)
    ///
    /// Over a fabric the end that writes reads the objects out of the other end's memory (RMA). auto takes an
    /// RDMA network to which both hosts are connected, if their hardware beats TCP, and else TCP; --verbose
    /// tells why. try:PROVIDER takes this provider if both hosts have it, and else TCP. With both, TCP also
    /// takes over if a session breaks. Not between two far hosts, and not to a daemon. `carrack fabric` lists
    /// the providers.
    #[arg(long, value_name = "auto|off|[try:]PROVIDER", env = "CARRACK_FABRIC", default_value = "auto", value_parser = parse, help_heading = CONNECTION)]
    fabric: FabricOption,
}

/// The value on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricOption(FabricWanted);

fn parse(text: &str) -> Result<FabricOption, String> {
    let provider = text.strip_prefix("try:");
    Ok(FabricOption(match (text, provider.unwrap_or(text)) {
        ("auto", _) => FabricWanted::Auto,
        ("off", _) => FabricWanted::Off,
        (_, "") => return Err("a provider's name is needed, or auto, or off".to_owned()),
        (_, name) if !name.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err("no provider has such a name".to_owned());
        }
        (_, name) if provider.is_some() => FabricWanted::Preferred(name.to_owned()),
        (_, name) => FabricWanted::Provider(name.to_owned()),
    }))
}

impl FabricTransportArgs {
    /// Returns the chosen transport.
    pub fn wanted_fabric(&self) -> FabricWanted {
        self.fabric.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str) -> Result<FabricWanted, String> {
        parse(text).map(|choice| choice.0)
    }

    #[test]
    fn names_are_providers() {
        assert_eq!((wanted("auto"), wanted("off")), (Ok(FabricWanted::Auto), Ok(FabricWanted::Off)));
        assert_eq!(wanted("tcp;ofi_rxm"), Ok(FabricWanted::Provider("tcp;ofi_rxm".into())));
        assert_eq!(wanted("try:shm"), Ok(FabricWanted::Preferred("shm".into())));
        assert!(
            wanted("try:").is_err()
                && wanted("try:a b").is_err()
                && wanted("").is_err()
                && wanted("a b").is_err()
        );
    }
}
