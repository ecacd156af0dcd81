//! A socket outside the mount that controls the double: it replies while operations hang, and while nothing
//! is mounted.
//!
//! A connection carries one line, and the reply: lines, and `ok`, or `error: WHY`.
//!
//! | line | effect |
//! | --- | --- |
//! | `rule RULE` | adds a rule, see `faults` |
//! | `rules` | lists the rules, with matches and hits, the number of hanging operations, and flipped bits |
//! | `clear` | removes all rules; hanging operations continue |
//! | `release` | hanging operations continue |
//! | `flip OFFSET BIT PATH` | flips a bit of a file at rest |
//! | `record` | makes the present image durable, and begins a new log |
//! | `log` | lists the operations since then, a line each |
//! | `image OPERATIONS SEED DIR` | writes the image of a power cut after this number of operations |
//! | `live DIR` | writes the live image to an empty directory |
//! | `unmount` | unmounts; hanging operations continue |
//! | `mount` | mounts again |
//! | `cut OPERATIONS SEED` | cuts the power: unmounts, and mounts the image that is left |
//! | `quit` | unmounts and ends |
//!
//! `image` writes to an empty directory, and replies with the weather.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::image::Image;
use crate::plain_directory;
use crate::power_cut::Weather;
use crate::station::Station;

/// Serves requests until `quit`.
pub fn serve(listener: &UnixListener, path: &Path, station: &Arc<Station>) {
    let is_over = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        if is_over.load(Relaxed) {
            return;
        }
        let (station, is_over, path) = (station.clone(), is_over.clone(), path.to_owned());
        thread::spawn(move || {
            // An error means that the client has hung up.
            let _ = stream.and_then(|stream| answer(stream, &station, &is_over));
            if is_over.load(Relaxed) {
                // The connection wakes the loop above, which then ends.
                let _ = UnixStream::connect(path);
            }
        });
    }
}

/// Sends a request to a double; returns the reply.
pub fn ask(socket: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn answer(stream: UnixStream, station: &Station, is_over: &AtomicBool) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let line = line.trim_end_matches('\n');
    let said = obey(station, line);
    if line == "quit" && said.is_ok() {
        is_over.store(true, Relaxed);
    }
    let mut stream = &stream;
    match said {
        Ok(text) => writeln!(stream, "{text}ok"),
        Err(why) => writeln!(stream, "error: {why}"),
    }
}

fn obey(station: &Station, line: &str) -> Result<String, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let double = &station.double;
    let said = |result: io::Result<()>| result.map(|()| String::new()).map_err(|error| error.to_string());
    match word {
        "rule" => double.faults.add(rest.parse().map_err(|error| format!("{error}"))?),
        "rules" => return Ok(double.faults.report()),
        "clear" => double.faults.clear(),
        "release" => double.faults.release(),
        "flip" => {
            let (offset, rest) = number(rest)?;
            let (bit, path) = number(rest)?;
            double.flip(path, offset, bit as u8).map_err(|errno| format!("{path}: {errno}"))?;
        }
        "record" => double.record(),
        "log" => return Ok(double.log().iter().map(|line| format!("{line}\n")).collect()),
        "image" => {
            let (image, weather, directory) = image(station, rest)?;
            said(plain_directory::write(&image, &PathBuf::from(directory)))?;
            return Ok(weather);
        }
        "live" => return said(plain_directory::write(&double.live(), Path::new(rest))),
        "unmount" => return said(station.unmount()),
        "mount" => return said(station.mount()),
        "cut" => {
            let (image, weather, _) = image(station, rest)?;
            said(station.unmount())?;
            double.restart(image);
            said(station.mount())?;
            return Ok(weather);
        }
        "quit" => return said(station.unmount()),
        _ => return Err(format!("no command: {word}")),
    }
    Ok(String::new())
}

/// Parses `OPERATIONS SEED` and the rest: returns the image, and its weather as a line.
fn image<'a>(station: &Station, words: &'a str) -> Result<(Image, String, &'a str), String> {
    let (operations, rest) = number(words)?;
    let (seed, rest) = number(rest)?;
    let image = station.double.image(operations as usize, seed);
    let image = image.ok_or_else(|| format!("the log has no {operations} operations"))?;
    Ok((image, format!("{:?}\n", Weather::of(seed)), rest))
}

fn number(words: &str) -> Result<(u64, &str), String> {
    let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
    Ok((word.parse().map_err(|_| format!("no number: {word}"))?, rest))
}
