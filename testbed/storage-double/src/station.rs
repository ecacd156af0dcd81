//! The double at its mount point, which can be mounted and unmounted. One lock: mounts don't overlap.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use fuser::{Config, MountOption, Session, SessionACL};

use crate::double::Double;
use crate::mount::Mount;

/// A double and its mount point.
pub struct Station {
    /// The double.
    pub double: Arc<Double>,
    mount_point: PathBuf,
    is_direct: bool,
    threads: usize,
    session: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Station {
    /// Creates a station that is not mounted yet.
    pub fn new(double: Double, mount_point: &Path, is_direct: bool, threads: usize) -> Station {
        let (double, mount_point) = (Arc::new(double), mount_point.to_owned());
        Station { double, mount_point, is_direct, threads, session: Mutex::default() }
    }

    /// Mounts the double, unless it is mounted.
    pub fn mount(&self) -> io::Result<()> {
        let mut running = self.session();
        if running.is_none() {
            let mount = Mount::new(self.double.clone(), self.is_direct);
            let session = Session::new(mount, &self.mount_point, &config(self.threads))?;
            *running = Some(thread::spawn(move || carrack_testbed_fuse::run(session)));
        }
        Ok(())
    }

    /// Unmounts the double, if it is mounted: an error if it stays busy. Hanging operations continue first.
    pub fn unmount(&self) -> io::Result<()> {
        let mut running = self.session();
        let Some(session) = running.take() else { return Ok(()) };
        self.double.faults.release();
        if let Err(error) = carrack_testbed_fuse::unmount(&self.mount_point) {
            *running = Some(session);
            return Err(error);
        }
        session.join().map_err(|_| io::Error::other("the session panicked"))?
    }

    /// Returns true if the double is mounted.
    pub fn is_mounted(&self) -> bool {
        self.session().is_some()
    }

    fn session(&self) -> MutexGuard<'_, Option<JoinHandle<io::Result<()>>>> {
        self.session.lock().expect("never poisoned: nothing panics")
    }
}

fn config(threads: usize) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("storage-double".into()),
        MountOption::Subtype("storage-double".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    config.clone_fd = true;
    config
}
