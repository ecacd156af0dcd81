//! A test double of a striped Lustre: a FUSE file system whose files really are cut into stripes over several
//! directories.
//!
//! It is not Lustre, but shows a mover the same interface. Each target is a directory, which may lie on a
//! throttled disk of its own or have an injected delay; `lustre.lov` returns and accepts layouts as Lustre's
//! client does, including its errors and silent refusals. One metadata directory holds the names. It serves
//! until it is unmounted or gets SIGTERM or SIGINT, which unmount it.

mod attributes;
mod control;
mod file_system;
mod lov;
mod namespace;
mod striped_file;
mod stripes;
mod targets;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::Parser;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use file_system::LustreDouble;
use lov::ALL_TARGETS;
use namespace::Namespace;
use targets::{Defaults, Target, Targets};

/// A test double of a striped Lustre (FUSE).
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The targets' directories: OST 0, 1, ...
    #[arg(long, value_delimiter = ',', value_name = "DIR,...", required = true)]
    targets: Vec<PathBuf>,
    /// The directory of the metadata target; it keeps attributes named trusted.*
    #[arg(long, value_name = "DIR")]
    mdt: PathBuf,
    /// Read and write the targets past the page cache (O_DIRECT), so that the speed of their disks shows
    #[arg(long)]
    direct: bool,
    /// Default striping of files; -1 are all targets
    #[arg(long, value_name = "COUNT:BYTES", default_value = "1:1048576", value_parser = defaults,
        allow_hyphen_values = true)]
    stripe: Defaults,
    /// A pool of targets; can be given again
    #[arg(long, value_name = "NAME=OST,...", value_parser = pool)]
    pool: Vec<(String, Vec<u32>)>,
    /// A delay before each read and write of a target; can be given again, and changed in .control/delay
    #[arg(long, value_name = "OST:MS")]
    delay_ms: Vec<String>,
    /// Answer EEXIST to a layout for a file that has one, as Lustre's server does; its client says nothing
    #[arg(long)]
    refuse_late_layouts: bool,
    /// Requests served at once
    #[arg(long, default_value_t = 32)]
    threads: usize,
    /// Directory to mount it at
    mount_point: PathBuf,
}

fn defaults(words: &str) -> Result<Defaults, String> {
    let (count, bytes) = words.split_once(':').ok_or("it is COUNT:BYTES")?;
    let stripe_count = match count {
        "-1" => ALL_TARGETS,
        count => count.parse().map_err(|_| format!("no count: {count}"))?,
    };
    let stripe_bytes: u32 = bytes.parse().map_err(|_| format!("no number of bytes: {bytes}"))?;
    if stripe_count == 0 || stripe_bytes == 0 || !stripe_bytes.is_multiple_of(1 << 16) {
        return Err("a stripe is a multiple of 65536 bytes, a file has at least one".into());
    }
    Ok(Defaults { stripe_bytes, stripe_count })
}

fn pool(words: &str) -> Result<(String, Vec<u32>), String> {
    let (name, members) = words.split_once('=').ok_or("it is NAME=OST,...")?;
    if name.is_empty() || name.len() > 15 {
        return Err("a pool's name has 1 to 15 bytes".into());
    }
    let member = |words: &str| words.parse().map_err(|_| format!("no target: {words}"));
    Ok((name.into(), members.split(',').map(member).collect::<Result<_, _>>()?))
}

fn main() -> ExitCode {
    match serve(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("carrack-testbed-lustre: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: Arguments) -> io::Result<()> {
    allow_many_descriptors()?;
    let targets = Arc::new(targets_of(&arguments)?);
    let root = arguments.mdt.join("root");
    fs::create_dir_all(&root)?;
    // The modes from clients are final.
    rustix::process::umask(Mode::empty());
    let namespace = Namespace::new(targets.clone(), &root)?;
    let double = LustreDouble::new(namespace, targets, arguments.refuse_late_layouts);
    let session = Session::new(double, &arguments.mount_point, &config(arguments.threads))?;

    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if let Err(error) = carrack_testbed_fuse::unmount(&arguments.mount_point) {
                eprintln!("carrack-testbed-lustre: error: unmounting: {error}");
            }
        }
    });
    carrack_testbed_fuse::run(session)
}

/// Every inode that the kernel remembers takes a descriptor.
fn allow_many_descriptors() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

fn targets_of(arguments: &Arguments) -> io::Result<Targets> {
    let target = |directory| Target::new(directory, arguments.direct);
    let osts: Vec<Target> = arguments.targets.iter().map(|path| target(path)).collect::<io::Result<_>>()?;
    let mdt = target(&arguments.mdt.join("data"))?;
    let pools: BTreeMap<_, _> = arguments.pool.iter().cloned().collect();
    if let Some(missing) = pools.values().flatten().find(|&&member| member as usize >= osts.len()) {
        return Err(io::Error::other(format!("a pool names OST {missing}, which doesn't exist")));
    }
    let targets = Targets::new(osts, mdt, pools, arguments.stripe);
    for delay in &arguments.delay_ms {
        control::set_delay(&targets, delay)
            .map_err(|_| io::Error::other(format!("no delay of a target: {delay}")))?;
    }
    Ok(targets)
}

fn config(threads: usize) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("lustre-double".into()),
        MountOption::Subtype("lustre-double".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    config.clone_fd = true;
    config
}
