//! A test double of storage that loses power and fails: a FUSE file system in memory with a live image, a log
//! of all changes, and so the image that a power cut would leave after each operation; and errors, delays,
//! hangs and flipped bits by rule. `docs/design/testing-faults.md` has the model.

mod change;
mod control;
mod double;
mod faults;
mod image;
mod mount;
mod pages;
mod plain_directory;
mod power_cut;
mod station;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use clap::{Parser, Subcommand};
use rustix::fs::Mode;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use double::Double;
use faults::Rule;
use image::Image;
use station::Station;

/// A test double of storage that loses power and fails (FUSE).
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Mount it and serve until `quit`, SIGTERM or SIGINT
    Serve(Serve),
    /// Send a request to a running double, as src/control.rs has it: `ask SOCKET rule EIO:sync:nth=3`
    Ask {
        /// Its control socket
        socket: PathBuf,
        /// The request
        #[arg(required = true)]
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// Path of the control socket, which is created
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Initial contents: a copy of this directory
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Log all operations from the start; the initial contents are durable. Keeps all data that is written
    #[arg(long)]
    record: bool,
    /// Bypass the kernel's page cache, so that every read arrives at the double
    #[arg(long)]
    direct: bool,
    /// A rule of src/faults.rs, such as ENOSPC:write:after=1048576:count=all; can be given again
    #[arg(long, value_name = "RULE")]
    rule: Vec<Rule>,
    /// Requests served at once; each that hangs takes one
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// Directory to mount it at
    mount_point: PathBuf,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve(arguments) => serve(arguments),
        Command::Ask { socket, words } => ask(&socket, &words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("carrack-testbed-storage: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(socket: &std::path::Path, words: &[String]) -> io::Result<()> {
    let answer = control::ask(socket, &words.join(" "))?;
    match answer.strip_suffix("ok\n") {
        Some(answer) => print!("{answer}"),
        None => return Err(io::Error::other(answer.trim_end().to_owned())),
    }
    Ok(())
}

fn serve(arguments: Serve) -> io::Result<()> {
    // The modes from clients are final.
    rustix::process::umask(Mode::empty());
    let image = match &arguments.from {
        Some(directory) => plain_directory::read(directory)?,
        None => Image::new(SystemTime::now()),
    };
    let double = Double::new(image);
    if arguments.record {
        double.record();
    }
    for rule in arguments.rule {
        double.faults.add(rule);
    }
    let station = Arc::new(Station::new(double, &arguments.mount_point, arguments.direct, arguments.threads));
    let listener = UnixListener::bind(&arguments.control)?;
    // Signals are caught before others can see the mount, and so end the double.
    let signals = Signals::new([SIGTERM, SIGINT])?;
    station.mount()?;
    quit_on_signals(signals, station.clone(), arguments.control.clone());
    control::serve(&listener, &arguments.control, &station);
    std::fs::remove_file(&arguments.control)
}

/// Unmounts and ends, even if the socket is gone.
fn quit_on_signals(mut signals: Signals, station: Arc<Station>, socket: PathBuf) {
    thread::spawn(move || {
        for _ in signals.forever() {
            match station.unmount() {
                Ok(()) => {
                    // There may be no socket to remove.
                    let _ = std::fs::remove_file(&socket);
                    std::process::exit(0);
                }
                Err(error) => eprintln!("carrack-testbed-storage: error: unmounting: {error}"),
            }
            // It is busy if it is still mounted, and ends by another signal.
            if !station.is_mounted() {
                std::process::exit(1);
            }
        }
    });
}
