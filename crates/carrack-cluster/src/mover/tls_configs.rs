//! TLS configurations of a mover's sessions, reused for the same certificates instead of made for each
//! session. Each handshake still checks the validity of certificates.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use carrack_trust::{
    ClientCredential, ClientTrust, TlsConfigError, TlsServerCredentials, client_config, server_config,
};
use rustls::{ClientConfig, ServerConfig};

/// Upper bound of movers with a cached configuration; beyond it all are dropped.
const CLIENTS_MAX: usize = 256;

/// The cached configurations.
#[derive(Default)]
pub(super) struct TlsConfigs {
    /// Client configurations by the CA of the other mover, PEM.
    clients: Mutex<HashMap<String, Arc<ClientConfig>>>,
    /// The server configuration, with the CAs of all movers that may connect, PEM.
    server: Mutex<Option<(Vec<u8>, Arc<ServerConfig>)>>,
}

impl TlsConfigs {
    /// Returns the configuration for a connection to the mover with this CA.
    ///
    /// # Errors
    /// An invalid certificate.
    pub fn client(
        &self,
        ca_pem: &str,
        identity: &ClientCredential,
    ) -> Result<Arc<ClientConfig>, TlsConfigError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = clients.get(ca_pem) {
            return Ok(Arc::clone(config));
        }
        let cas = Some(ca_pem.as_bytes().to_vec());
        let config = client_config(&ClientTrust { cas, crls: Vec::new(), identity: Some(identity.clone()) })?;
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(ca_pem.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    /// Returns the configuration for accepted connections; the cached one if `trust` has the same CAs.
    ///
    /// # Errors
    /// An invalid certificate.
    pub fn server(&self, trust: TlsServerCredentials) -> Result<Arc<ServerConfig>, TlsConfigError> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cas, config)) = &*server
            && *cas == trust.client_cas
        {
            return Ok(Arc::clone(config));
        }
        let config = server_config(&trust)?;
        *server = Some((trust.client_cas, Arc::clone(&config)));
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use carrack_trust::EphemeralAuthority;

    use super::*;

    #[test]
    fn a_configuration_is_made_anew_when_certificates_are_others() {
        let [own, first, second] =
            ["own", "first", "second"].map(|id| EphemeralAuthority::make(id, SystemTime::now()).unwrap());
        let configs = TlsConfigs::default();
        let clients = [&first, &first, &second].map(|to| {
            let ca = std::str::from_utf8(&to.ca).unwrap();
            configs.client(ca, &own.client).unwrap()
        });
        assert!(Arc::ptr_eq(&clients[0], &clients[1]));
        assert!(!Arc::ptr_eq(&clients[0], &clients[2]));
        let servers = [&[&first, &second][..], &[&first, &second], &[&first]].map(|cas| {
            let (chain, key) = (own.server_chain.clone(), own.server_key.clone());
            let client_cas = cas.iter().flat_map(|ca| ca.ca.clone()).collect();
            configs
                .server(TlsServerCredentials { chain, key, client_cas, ..TlsServerCredentials::default() })
                .unwrap()
        });
        assert!(Arc::ptr_eq(&servers[0], &servers[1]));
        assert!(!Arc::ptr_eq(&servers[0], &servers[2]), "one that is gone is not believed any more");
    }
}
