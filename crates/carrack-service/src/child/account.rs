//! The irreversible change of a process's user.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{
    Gid, Uid, User, getegid, geteuid, getgrouplist, getresgid, getresuid, setgid, setgroups, setuid,
};

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemAccount {
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    home: PathBuf,
}

impl SystemAccount {
    /// Looks an account up. This may ask other hosts, and so comes before the sandbox.
    ///
    /// # Errors
    /// `NotFound` if there is none; the system's errors.
    pub fn look_up(name: &str) -> io::Result<SystemAccount> {
        let user = User::from_name(name)?.ok_or(io::ErrorKind::NotFound)?;
        let c_name = CString::new(name)?;
        let groups = getgrouplist(&c_name, user.gid)?;
        Ok(SystemAccount { name: name.to_owned(), uid: user.uid, gid: user.gid, groups, home: user.dir })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its home directory, which may not exist.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Becomes this account. Groups first, while the right to change them is still there; then the user,
    /// which gives up every capability (capabilities(7)). A process that has this user already stays as it
    /// is.
    ///
    /// # Errors
    /// `PermissionDenied` if this process may not change, or could change back; its rights must not be used
    /// then.
    pub fn apply_to_process(&self) -> io::Result<()> {
        if geteuid() == self.uid && !self.uid.is_root() {
            return Ok(());
        }
        if self.uid.is_root() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "root is nobody to become"));
        }
        // In the kernel these calls change the calling thread only, and glibc changes the others: there must
        // be none.
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the process has several threads already"));
        }
        setgroups(&self.groups)?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        self.check_privileges_dropped()
    }

    /// Checks that no earlier right is left.
    fn check_privileges_dropped(&self) -> io::Result<()> {
        let (users, groups) = (getresuid()?, getresgid()?);
        let is_whole = [users.real, users.effective, users.saved].iter().all(|uid| *uid == self.uid)
            && [groups.real, groups.effective, groups.saved].iter().all(|gid| *gid == self.gid);
        let goes_back = setuid(Uid::from_raw(0)).is_ok()
            || (!self.is_of_root_group() && setgid(Gid::from_raw(0)).is_ok());
        if is_whole && !goes_back && geteuid() == self.uid && getegid() == self.gid {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the privileges could not be given up for good"))
    }

    fn is_of_root_group(&self) -> bool {
        self.gid.as_raw() == 0 || self.groups.iter().any(|gid| gid.as_raw() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_becomes_root_or_nobody_at_all() {
        assert_eq!(SystemAccount::look_up("no such account").unwrap_err().kind(), io::ErrorKind::NotFound);
        let root = SystemAccount::look_up("root").unwrap();
        assert_eq!(root.apply_to_process().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_process_with_threads_keeps_what_it_has() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can become somebody else");
            return;
        }
        // The test's own thread is the second one.
        let error = SystemAccount::look_up("nobody").unwrap().apply_to_process().unwrap_err();
        assert!(error.to_string().contains("several threads"), "{error}");
        assert!(geteuid().is_root());
    }
}
