//! A site's authority and what it has issued, for the targets that need keys which nobody else has. Made anew by each process.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use carrack_trust::{CertificateAuthority, CLIENT_LIFETIME, KeySignatureAlgorithm, SERVER_LIFETIME, CertificateUse};

/// A directory with an authority, a server's certificate and alice's.
pub struct Site {
    path: PathBuf,
}

impl Site {
    /// A line of a public keys file.
    pub const SSH_KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ bob\n";

    /// Makes it below the directory for temporary files.
    pub fn new() -> Site {
        let path = std::env::temp_dir().join(format!("carrack-fuzz-site-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a scratch directory");
        let now = SystemTime::now();
        let authority =
            CertificateAuthority::init(&path.join("authority"), "us", KeySignatureAlgorithm::Ed25519, now).expect("an authority");
        let server = CertificateUse::Server { names: vec!["localhost".to_owned()] };
        authority.issue("server", &server, SERVER_LIFETIME, &path, now).expect("a certificate");
        let alice = CertificateUse::Client { subject: "alice".to_owned() };
        authority.issue("alice", &alice, CLIENT_LIFETIME, &path, now).expect("a certificate");
        Site { path }
    }

    /// The content of one of its files.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).expect("a file of the site")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Default for Site {
    fn default() -> Self {
        Site::new()
    }
}
