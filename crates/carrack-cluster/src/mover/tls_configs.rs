//! TLS configurations of a mover's sessions: made once for the same certificates, and not for each session. Whether a certificate is valid
//! is looked at in each handshake all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use carrack_trust::{ClientIdentity, ClientTrust, ServerTrust, TlsError, client_config, server_config};
use rustls::{ClientConfig, ServerConfig};

/// Movers whose configurations are kept. Where there are more, those of all are made anew.
const CLIENTS_MAX: usize = 256;

/// The configurations that were made last.
#[derive(Default)]
pub(super) struct TlsConfigs {
    /// By the CA of the mover that is called, PEM.
    clients: Mutex<HashMap<String, Arc<ClientConfig>>>,
    /// With the CAs of all movers that may call, PEM.
    server: Mutex<Option<(Vec<u8>, Arc<ServerConfig>)>>,
}

impl TlsConfigs {
    /// For calling a mover that has this CA.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    pub fn client(&self, ca_pem: &str, identity: &ClientIdentity) -> Result<Arc<ClientConfig>, TlsError> {
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

    /// For being called; the last one, if the CAs of `trust` are the same as then.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    pub fn server(&self, trust: ServerTrust) -> Result<Arc<ServerConfig>, TlsError> {
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

    use carrack_trust::PassingAuthority;

    use super::*;

    #[test]
    fn a_configuration_is_made_anew_when_certificates_are_others() {
        let [own, first, second] =
            ["own", "first", "second"].map(|id| PassingAuthority::make(id, SystemTime::now()).unwrap());
        let pem = |authority: &PassingAuthority| String::from_utf8(authority.ca.clone()).unwrap();
        let configs = TlsConfigs::default();
        let client = |to: &PassingAuthority| configs.client(&pem(to), &own.client).unwrap();
        assert!(Arc::ptr_eq(&client(&first), &client(&first)));
        assert!(!Arc::ptr_eq(&client(&first), &client(&second)));
        let server = |cas: &[&PassingAuthority]| {
            let (chain, key) = (own.server_chain.clone(), own.server_key.clone());
            let client_cas = cas.iter().flat_map(|ca| ca.ca.clone()).collect();
            configs.server(ServerTrust { chain, key, client_cas, ..ServerTrust::default() }).unwrap()
        };
        let both = server(&[&first, &second]);
        assert!(Arc::ptr_eq(&both, &server(&[&first, &second])));
        assert!(!Arc::ptr_eq(&both, &server(&[&first])), "one that is gone is not believed any more");
    }
}
