//! RMA reads and writes of 1 MiB slots between two processes, per provider, beside one TCP connection.
//!
//! usage: rma_bench [SECONDS [PROVIDER...]]
//!
//! Prints GB/s (10^9 bytes) and CPU seconds of both processes for a GB, each the median of three rounds of
//! SECONDS (1.5). Nothing is verified here: the tests do that.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carrack_fabric::{
    EndpointEvent, EndpointOperationLimits, FabricEndpoint, FabricInfoEntry, FabricMemoryAccess, FabricPeer,
    FabricPostRefusal, ProviderOfferFilter, RemoteMemory, RmaTransfer, usable_offers,
};
use carrack_machine::SlotPool;

const SLOT_BYTES: usize = 1 << 20;
const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 3;
const PROVIDERS: [&str; 4] = ["tcp;ofi_rxm", "net", "shm", "sockets"];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--peer") => return serve(&arguments[1]),
        Some("--tcp-peer") => return serve_tcp(&arguments[1]),
        _ => {}
    }
    let seconds = arguments.first().map_or(Ok(1.5), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    println!("{:<16} {:<6} {:>8} {:>14}", "transport", "way", "GB/s", "CPU s per GB");
    report("tcp sockets", "stream", || measure_tcp(time));
    let chosen: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    for provider in if chosen.is_empty() { PROVIDERS.to_vec() } else { chosen } {
        report(provider, "read", || measure(provider, false, time));
        report(provider, "write", || measure(provider, true, time));
    }
    Ok(())
}

/// What one round moved, in which time, with how much CPU time.
struct Round {
    bytes: f64,
    seconds: f64,
    cpu_seconds: f64,
}

fn report(transport: &str, way: &str, measure: impl Fn() -> Result<Round, Failure>) {
    let rounds: Result<Vec<Round>, Failure> = (0..ROUNDS).map(|_| measure()).collect();
    match rounds {
        Ok(rounds) => {
            let median = |value: fn(&Round) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[ROUNDS / 2]
            };
            let rate = median(|round| round.bytes / round.seconds / 1e9);
            let cost = median(|round| round.cpu_seconds / (round.bytes / 1e9));
            println!("{transport:<16} {way:<6} {rate:>8.2} {cost:>14.3}");
        }
        Err(error) => println!("{transport:<16} {way:<6} {error}"),
    }
}

fn offer(provider: &str) -> Result<FabricInfoEntry, Failure> {
    let source = (provider != "shm").then(|| "127.0.0.1".to_string());
    let offers = usable_offers(&ProviderOfferFilter { provider: Some(provider.to_string()), source })?;
    Ok(offers.into_iter().next().ok_or("none")?)
}

/// User and system time of a process so far, from /proc/PID/stat (proc(5)): ticks of 10 ms.
fn cpu_seconds(pid: u32) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').ok_or("stat")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

fn cpu_of_both(child: &Child) -> Result<f64, Failure> {
    Ok(cpu_seconds(std::process::id())? + cpu_seconds(child.id())?)
}

fn start(arguments: &[&str]) -> Result<(Child, ChildStdin, BufReader<impl Read + use<>>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (child.stdin.take().ok_or("stdin")?, child.stdout.take().ok_or("stdout")?);
    Ok((child, input, BufReader::new(output)))
}

/// Lets the thread rest while there is nothing to poll.
fn rest(endpoint: &FabricEndpoint, idle_turns: u32) -> io::Result<()> {
    if endpoint.readiness().is_none() && idle_turns < 1000 {
        std::thread::yield_now();
        return Ok(());
    }
    endpoint.wait(Duration::from_millis(1))
}

/// The other process: slots to read from and a window to write to, until its input ends.
fn serve(provider: &str) -> Result<(), Failure> {
    let mut endpoint = FabricEndpoint::open(&offer(provider)?, EndpointOperationLimits::default())?;
    let pool = SlotPool::new((IN_FLIGHT * SLOT_BYTES) as u64, SLOT_BYTES)?;
    let region = endpoint.register(&pool, FabricMemoryAccess::PeersRead)?;
    let window = endpoint.open_window(IN_FLIGHT * SLOT_BYTES)?;
    let mut slots: Vec<_> = (0..IN_FLIGHT).filter_map(|_| pool.try_lease()).collect();
    slots.iter_mut().for_each(|slot| slot.bytes_mut().fill(7));
    let first = slots
        .iter()
        .filter_map(|slot| region.remote_memory_of(slot))
        .min_by_key(|place| place.address)
        .ok_or("no slot")?;
    let name: Vec<String> = endpoint.name()?.iter().map(u8::to_string).collect();
    let to = window.remote_memory_at(0);
    println!("{} {} {} {} {}", first.address, first.key, to.address, to.key, name.join(","));
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    endpoint.add_peer(&bytes_of(&line)?)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    let (mut events, mut idle) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        idle = if endpoint.poll(&mut events)? > 0 { 0 } else { idle + 1 };
        events.clear();
        rest(&endpoint, idle)?;
    }
    Ok(())
}

fn bytes_of(text: &str) -> Result<Vec<u8>, Failure> {
    Ok(text.trim().split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn measure(provider: &str, is_write: bool, time: Duration) -> Result<Round, Failure> {
    let mut endpoint = FabricEndpoint::open(&offer(provider)?, EndpointOperationLimits::default())?;
    let (mut child, mut input, mut output) = start(&["--peer", provider])?;
    let mut line = String::new();
    output.read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [read_at, read_key, write_at, write_key, name] = words[..] else {
        return Err("the peer failed".into());
    };
    let (address, key) = if is_write { (write_at, write_key) } else { (read_at, read_key) };
    let place = RemoteMemory { address: address.parse()?, key: key.parse()? };
    let peer = endpoint.add_peer(&bytes_of(name)?)?;
    let ours: Vec<String> = endpoint.name()?.iter().map(u8::to_string).collect();
    writeln!(input, "{}", ours.join(","))?;
    // Connects, and has every page touched.
    move_for(&mut endpoint, peer, place, is_write, time / 5)?;
    let (began, cpu) = (Instant::now(), cpu_of_both(&child)?);
    let bytes = move_for(&mut endpoint, peer, place, is_write, time)? as f64;
    let round =
        Round { bytes, seconds: began.elapsed().as_secs_f64(), cpu_seconds: cpu_of_both(&child)? - cpu };
    drop(input);
    child.wait()?;
    Ok(round)
}

/// Keeps operations in flight for some time; the bytes they moved.
fn move_for(
    endpoint: &mut FabricEndpoint,
    peer: FabricPeer,
    place: RemoteMemory,
    is_write: bool,
    time: Duration,
) -> Result<u64, Failure> {
    let pool = SlotPool::new((IN_FLIGHT * SLOT_BYTES) as u64, SLOT_BYTES)?;
    let region = endpoint.register(&pool, FabricMemoryAccess::Local)?;
    let (began, mut moved, mut next, mut idle) = (Instant::now(), 0, 0, 0);
    let mut events = Vec::new();
    while began.elapsed() < time || endpoint.operations_under_way() > 0 {
        while let Some(slot) = pool.try_lease().filter(|_| began.elapsed() < time) {
            let place = place.plus((next % IN_FLIGHT * SLOT_BYTES) as u64);
            let transfer = RmaTransfer { slot, at: 0, bytes: SLOT_BYTES, place, tag: 0 };
            let posted = match is_write {
                true => endpoint.write(peer, &region, transfer, None),
                false => endpoint.read(peer, &region, transfer),
            };
            match posted {
                Ok(()) => next += 1,
                Err(FabricPostRefusal::Full(_)) => break,
                Err(FabricPostRefusal::Failed(_, error)) => return Err(error.into()),
            }
        }
        idle = if endpoint.poll(&mut events)? > 0 { 0 } else { idle + 1 };
        for event in events.drain(..) {
            if let EndpointEvent::Read { result, .. } | EndpointEvent::Written { result, .. } = event {
                result?;
                moved += SLOT_BYTES as u64;
            }
        }
        if idle > 0 {
            rest(endpoint, idle)?;
        }
    }
    Ok(moved)
}

fn serve_tcp(address: &str) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    let slots = vec![7u8; IN_FLIGHT * SLOT_BYTES];
    loop {
        for slot in slots.chunks(SLOT_BYTES) {
            if stream.write_all(slot).is_err() {
                return Ok(());
            }
        }
    }
}

fn measure_tcp(time: Duration) -> Result<Round, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut child, _input, _output) = start(&["--tcp-peer", &listener.local_addr()?.to_string()])?;
    let (mut stream, _) = listener.accept()?;
    let mut slots = vec![0u8; IN_FLIGHT * SLOT_BYTES];
    let mut fill_for = |time: Duration| -> Result<f64, Failure> {
        let (began, mut bytes) = (Instant::now(), 0.0);
        loop {
            for slot in slots.chunks_mut(SLOT_BYTES) {
                stream.read_exact(slot)?;
                bytes += SLOT_BYTES as f64;
                if began.elapsed() >= time {
                    return Ok(bytes);
                }
            }
        }
    };
    fill_for(time / 5)?;
    let (began, cpu) = (Instant::now(), cpu_of_both(&child)?);
    let bytes = fill_for(time)?;
    let round =
        Round { bytes, seconds: began.elapsed().as_secs_f64(), cpu_seconds: cpu_of_both(&child)? - cpu };
    drop(stream);
    child.wait()?;
    Ok(round)
}
