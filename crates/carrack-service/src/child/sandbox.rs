//! The sandbox of a session's process, in addition to the change of its user.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, chdir, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::set_no_new_privs;

/// The newest version of Landlock whose rights are requested (Linux 6.10); older kernels enforce those that
/// they know.
const LANDLOCK: ABI = ABI::V5;

/// Directories of libraries and of facts about the machine, which a session loads and reads.
const READ_ONLY: [&str; 8] = ["/usr", "/lib", "/lib64", "/opt", "/etc/ld.so.cache", "/proc", "/sys", "/dev"];

/// Restricts the process at its start. Its memory goes into no core file, and no other process of its user
/// may read it (ptrace(2)); it does not outlive its parent, which alone keeps track of sessions; no program
/// that it starts gets more rights than it has.
pub fn restrict_at_start() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_no_new_privs(true)?;
    // A working directory that the daemon was started in would keep its file system mounted.
    Ok(chdir("/")?)
}

/// Restores two restrictions after the last change of the user, with which the kernel clears them (prctl(2)).
/// From now on [`super::guard`] informs the client of the parent's end.
pub fn restore_after_user_change() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// Restricts the process to the files beneath an export and to its spill directories, even if the rest of the
/// program is compromised: a second confinement in addition to `openat2`. Kernels without Landlock have none.
/// Returns the result in words.
pub fn restrict_to_export(
    export: impl AsFd,
    flash: impl Iterator<Item = impl AsRef<Path>>,
) -> Result<&'static str, RulesetError> {
    // A log has no name: it is created there, written and read.
    let of_log = AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::ReadFile;
    let reading = AccessFs::from_read(LANDLOCK);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .create()?
        .add_rule(PathBeneath::new(export, AccessFs::from_all(LANDLOCK)))?;
    for place in flash.filter_map(|directory| PathFd::new(directory).ok()) {
        ruleset = ruleset.add_rule(PathBeneath::new(place, of_log))?;
    }
    for path in READ_ONLY {
        // A missing directory needs no rule.
        let Ok(place) = PathFd::new(path) else { continue };
        let rights = if Path::new(path).is_dir() { reading } else { reading & AccessFs::from_file(LANDLOCK) };
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights))?;
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => "Landlock keeps it to its export",
        RulesetStatus::PartiallyEnforced => "Landlock keeps it to its export, as far as this kernel can",
        RulesetStatus::NotEnforced => "this kernel has no Landlock",
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use carrack_machine::SpillDataFile;

    use super::*;

    #[test]
    fn what_is_outside_is_out_of_reach() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let flash = tempfile::tempdir_in("/var/tmp").unwrap();
        let secret = outside.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        // A sandbox is its thread's own.
        let walled = std::thread::spawn({
            let (inside, secret) = (inside.path().to_path_buf(), secret.clone());
            let flash = flash.path().to_path_buf();
            move || {
                let said = restrict_to_export(File::open(&inside).unwrap(), [&flash].into_iter()).unwrap();
                SpillDataFile::create(&flash, 1 << 20, 1 << 16).unwrap();
                fs::write(inside.join("a"), "a").unwrap();
                fs::create_dir(inside.join("d")).unwrap();
                fs::rename(inside.join("a"), inside.join("d/a")).unwrap();
                assert!(fs::exists("/proc/self/status").unwrap());
                (said, fs::read(&secret).is_err(), fs::write(&secret, "changed").is_err())
            }
        });
        let (said, keeps_from_reading, keeps_from_writing) = walled.join().unwrap();
        if said.contains("no Landlock") {
            eprintln!("skipped: {said}");
            return;
        }
        assert!(said.contains("keeps it to its export"), "{said}");
        assert!(keeps_from_reading && keeps_from_writing);
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }
}
