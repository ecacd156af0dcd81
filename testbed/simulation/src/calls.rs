//! The work of the replaced functions: files, directories, streams, waiting.

use crate::change::{Attributes, Change};
use crate::descriptors::{DescriptorKind, OpenDescription};
use crate::faults::CallKind;
use crate::image::{Contents, ROOT};
use crate::pages::{PAGE_BYTES, Pages};
use crate::scheduler::{self, EndProcess, WaitCondition};
use crate::volumes::{BRANCH, NodeRef, SINK, SOURCE, TOP, WalkRules, WalkedPath, system_time};
use crate::world::{kill, world};

/// A call's result, or its error number.
pub type CallAnswer = Result<i64, i32>;

/// The begin of every call: the process may die here, and another thread may run.
pub fn begin(call: CallKind) {
    world().step(call);
    if call.may_crash() && crash_is_due() {
        scheduler::stop_here();
    }
    scheduler::maybe_switch(call == CallKind::Yield);
}

/// Kills a process if its time has come; returns true if it is the caller's.
fn crash_is_due() -> bool {
    let world = world();
    let process = world.process();
    let Some(crash) = &mut world.faults.crash else { return false };
    if crash.process != process {
        return false;
    }
    if crash.after > 0 {
        crash.after -= 1;
        return false;
    }
    let (cuts_power, seed) = (crash.cuts_power, world.chance.next());
    world.faults.crash = None;
    kill(process);
    if cuts_power && process == EndProcess::Sink {
        for volume in [SINK, BRANCH] {
            crate::world::world().volumes.get(volume).cut_power(seed);
        }
    }
    true
}

/// Fails or delays a call on a volume, if the seed wants it.
fn meet(volume: usize, call: CallKind) -> Result<(), i32> {
    let world = world();
    if let Some(errno) = world.faults.error_of(volume, call) {
        world.note("fault", volume as i64, errno.into());
        return Err(errno);
    }
    if let Some((slow, one_in, most_ns)) = world.faults.slow
        && slow == volume
        && world.chance.one_in(one_in)
    {
        let until = world.now + world.chance.below(most_ns);
        scheduler::wait(WaitCondition::Time, Some(until));
    }
    Ok(())
}

fn node_of(fd: i32) -> Result<NodeRef, i32> {
    if fd == libc::AT_FDCWD {
        return Ok(NodeRef { volume: TOP, ino: ROOT });
    }
    match world().descriptors.get(fd)?.kind {
        DescriptorKind::Node { node, .. } => Ok(node),
        _ => Err(libc::ENOTDIR),
    }
}

/// The number of the machine's present boot. The program reads it once: where the power will be cut there is none,
/// and each session counts as a boot.
pub const BOOT_ID: &[u8] = b"/proc/sys/kernel/random/boot_id";

/// Paths elsewhere lead nowhere: the machine has nothing but the volumes.
fn is_elsewhere(path: &[u8]) -> bool {
    let begins = |with: &[u8]| path.starts_with(with);
    path.first() == Some(&b'/')
        && path.len() > 1
        && !begins(b"/source")
        && !begins(b"/there")
        && !begins(b"//")
        && (path != BOOT_ID || !world().has_boot_id)
}

fn descriptor_path(path: &[u8]) -> Option<i32> {
    let number = path.strip_prefix(b"/proc/self/fd/")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn walk(dirfd: i32, path: &[u8], rules: WalkRules) -> Result<WalkedPath, i32> {
    if is_elsewhere(path) {
        return Err(libc::ENOENT);
    }
    let start =
        if path.first() == Some(&b'/') { NodeRef { volume: TOP, ino: ROOT } } else { node_of(dirfd)? };
    world().volumes.walk(start, path, rules)
}

/// A node by descriptor and path, as calls with `AT_EMPTY_PATH` and `AT_SYMLINK_NOFOLLOW` find it.
fn find(dirfd: i32, path: &[u8], follows: bool, flags: i32) -> Result<NodeRef, i32> {
    if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        return node_of(dirfd);
    }
    if let Some(fd) = descriptor_path(path) {
        return node_of(fd);
    }
    walk(dirfd, path, WalkRules { follows, ..WalkRules::default() })?.node.ok_or(libc::ENOENT)
}

/// `open`, `openat`, `openat2`.
pub fn open(dirfd: i32, path: &[u8], flags: i32, mode: u32, rules: WalkRules) -> CallAnswer {
    if is_elsewhere(path) && descriptor_path(path).is_none() {
        return Err(libc::ENOENT);
    }
    let is_temporary = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let creates = flags & libc::O_CREAT != 0 || is_temporary;
    begin(if creates { CallKind::Create } else { CallKind::Open });
    let follows = flags & libc::O_NOFOLLOW == 0
        && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL;
    let node = match descriptor_path(path) {
        Some(fd) => node_of(fd)?,
        None => {
            let walked = walk(dirfd, path, WalkRules { follows, ..rules })?;
            let volume = walked.node.map_or(walked.parent.volume, |node| node.volume);
            meet(volume, if creates { CallKind::Create } else { CallKind::Open })?;
            opened(walked, flags, mode)?
        }
    };
    let world = world();
    let is_path = flags & libc::O_PATH != 0;
    let access = flags & libc::O_ACCMODE;
    let contents = &world.volumes.node(node)?.contents;
    let is_directory = matches!(contents, Contents::Directory(_));
    if flags & libc::O_DIRECTORY != 0 && !is_directory && !is_temporary {
        return Err(libc::ENOTDIR);
    }
    if matches!(contents, Contents::Link(_)) && !is_path {
        return Err(libc::ELOOP);
    }
    if is_directory && access != libc::O_RDONLY && !is_path {
        return Err(libc::EISDIR);
    }
    if matches!(contents, Contents::Special(_)) && !is_path {
        return Err(libc::ENXIO);
    }
    let now = world.now;
    if flags & libc::O_TRUNC != 0 && access != libc::O_RDONLY {
        world.volumes.get(node.volume).resize(node.ino, 0, now);
    }
    let kind = DescriptorKind::Node {
        node,
        reads: access != libc::O_WRONLY && !is_path,
        writes: access != libc::O_RDONLY && !is_path,
        listed: None,
    };
    let process = world.process();
    let mut description = OpenDescription::new(kind);
    description.flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC);
    description.appends = flags & libc::O_APPEND != 0;
    let fd = world.descriptors.add(process, description);
    world.tell(|| format!("open {} = {fd}", path.escape_ascii()));
    Ok(fd.into())
}

fn opened(walked: WalkedPath, flags: i32, mode: u32) -> Result<NodeRef, i32> {
    let world = world();
    let (now, mode) = (world.now, mode & !world.umask);
    let file = Contents::File(Pages::default());
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        let directory = walked.node.ok_or(libc::ENOENT)?;
        let volume = world.volumes.get(directory.volume);
        if !volume.has_tmpfile {
            return Err(libc::EOPNOTSUPP);
        }
        let ino = volume.make(None, file, mode, now);
        return Ok(NodeRef { volume: directory.volume, ino });
    }
    match walked.node {
        Some(_) if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL => {
            Err(libc::EEXIST)
        }
        Some(node) => Ok(node),
        None if flags & libc::O_CREAT == 0 => Err(libc::ENOENT),
        None => {
            let volume = walked.parent.volume;
            let at = Some((walked.parent.ino, &walked.name[..]));
            let ino = world.volumes.get(volume).make(at, file, mode, now);
            let node = NodeRef { volume, ino };
            world.named(walked.parent, &walked.name, node);
            Ok(node)
        }
    }
}

/// `read`, `pread`.
pub fn read(fd: i32, buffer: &mut [u8], offset: Option<u64>) -> CallAnswer {
    if let DescriptorKind::Stream { .. } = world().descriptors.get(fd)?.kind {
        return receive(fd, buffer, 0);
    }
    begin(CallKind::Read);
    let world = world();
    let description = world.descriptors.get_mut(fd)?;
    match &mut description.kind {
        DescriptorKind::Event(count) => {
            if *count == 0 {
                return Err(libc::EAGAIN);
            }
            buffer[..8].copy_from_slice(&std::mem::take(count).to_ne_bytes());
            Ok(8)
        }
        DescriptorKind::Node { node, reads: true, .. } => {
            let (node, at) = (*node, offset.unwrap_or(description.position));
            meet(node.volume, CallKind::Read)?;
            let world = crate::world::world();
            let count = world.faults.shortened(&mut world.chance, buffer.len());
            let pages = world.volumes.get(node.volume).live.file(node.ino).map_err(|e| e.raw_os_error())?;
            let data = pages.read(at, count);
            buffer[..data.len()].copy_from_slice(&data);
            if offset.is_none() {
                world.descriptors.get_mut(fd)?.position = at + data.len() as u64;
            }
            Ok(data.len() as i64)
        }
        _ => Err(libc::EBADF),
    }
}

/// `write`, `pwrite`.
pub fn write(fd: i32, data: &[u8], offset: Option<u64>) -> CallAnswer {
    if let DescriptorKind::Stream { .. } = world().descriptors.get(fd)?.kind {
        return send(fd, &[data], 0);
    }
    begin(CallKind::Write);
    let description = world().descriptors.get_mut(fd)?;
    match &mut description.kind {
        DescriptorKind::Event(count) => {
            let more = u64::from_ne_bytes(data.try_into().map_err(|_| libc::EINVAL)?);
            if more > u64::MAX - 1 - *count {
                return Err(libc::EAGAIN);
            }
            *count += more;
            Ok(8)
        }
        DescriptorKind::Node { node, writes: true, .. } => {
            let (node, appends, position) = (*node, description.appends, description.position);
            meet(node.volume, CallKind::Write)?;
            let world = crate::world::world();
            let count = world.faults.shortened(&mut world.chance, data.len());
            let size = world.volumes.node(node)?.bytes();
            let at = if appends { size } else { offset.unwrap_or(position) };
            let now = world.now;
            world.volumes.get(node.volume).write(node.ino, at, &data[..count], now);
            world.written(node);
            if offset.is_none() {
                world.descriptors.get_mut(fd)?.position = at + count as u64;
            }
            Ok(count as i64)
        }
        _ => Err(libc::EBADF),
    }
}

/// Receives from a pipe or connection.
pub fn receive(fd: i32, buffer: &mut [u8], flags: i32) -> CallAnswer {
    begin(CallKind::Receive);
    lose_connection(fd);
    let mut got = 0;
    let begun = world().now;
    loop {
        let world = world();
        let now = world.now;
        let description = world.descriptors.get(fd)?;
        let DescriptorKind::Stream { input: Some(input), .. } = description.kind else {
            return Err(libc::EBADF);
        };
        let is_nonblocking = description.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let timeout = description.receive_timeout;
        let pipe = &mut world.descriptors.pipes[input];
        if pipe.is_reset {
            return if got > 0 { Ok(got as i64) } else { Err(libc::ECONNRESET) };
        }
        let room = buffer.len() - got;
        let most = world.faults.shortened_stream(&mut world.chance, room);
        let count = pipe.pull(now, &mut buffer[got..got + most], flags & libc::MSG_PEEK != 0);
        got += count;
        let is_enough = got == buffer.len() || (got > 0 && flags & libc::MSG_WAITALL == 0);
        if is_enough || (count == 0 && pipe.readable(now)) {
            world.note("received", fd.into(), got as i64);
            return Ok(got as i64);
        }
        if count > 0 {
            continue;
        }
        if is_nonblocking {
            return if got > 0 { Ok(got as i64) } else { Err(libc::EAGAIN) };
        }
        let deadline = timeout.map(|timeout| begun + timeout);
        if !scheduler::wait(WaitCondition::Bytes(input), deadline) {
            return if got > 0 { Ok(got as i64) } else { Err(libc::EAGAIN) };
        }
    }
}

/// Sends into a pipe or connection.
pub fn send(fd: i32, parts: &[&[u8]], flags: i32) -> CallAnswer {
    begin(CallKind::Send);
    lose_connection(fd);
    let begun = world().now;
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut sent = 0;
    loop {
        let world = world();
        let now = world.now;
        let description = world.descriptors.get(fd)?;
        let DescriptorKind::Stream { output: Some(output), .. } = description.kind else {
            return Err(libc::EPIPE);
        };
        let is_nonblocking = description.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let timeout = description.send_timeout;
        let pipe = &mut world.descriptors.pipes[output];
        if pipe.is_reset || pipe.is_abandoned(now) {
            return Err(if pipe.is_network { libc::ECONNRESET } else { libc::EPIPE });
        }
        let most = world.faults.shortened_stream(&mut world.chance, total - sent);
        let (mut skip, mut left) = (sent, most);
        for part in parts {
            let from = skip.min(part.len());
            skip -= from;
            let data = &part[from..from + left.min(part.len() - from)];
            let flips =
                pipe.may_flip && data.len() >= PAGE_BYTES && world.chance.one_in(world.faults.flip_one_in);
            let count = if flips {
                let mut changed = data.to_vec();
                changed[world.chance.below(data.len() as u64) as usize] ^= 1 << world.chance.below(8);
                pipe.push(now, &changed)
            } else if data.is_empty() {
                0
            } else {
                pipe.push(now, data)
            };
            sent += count;
            left -= count;
            if count < data.len() || left == 0 {
                break;
            }
        }
        if sent == total || (sent > 0 && is_nonblocking) {
            world.note("sent", fd.into(), sent as i64);
            return Ok(sent as i64);
        }
        if is_nonblocking {
            return Err(libc::EAGAIN);
        }
        if pipe.writable(now) {
            continue;
        }
        let deadline = timeout.map(|timeout| begun + timeout);
        if !scheduler::wait(WaitCondition::Room(output), deadline) {
            return if sent > 0 { Ok(sent as i64) } else { Err(libc::EAGAIN) };
        }
    }
}

/// Breaks connections if their time has come.
fn lose_connection(fd: i32) {
    let world = world();
    let is_network = match world.descriptors.get(fd).map(|description| &description.kind) {
        Ok(DescriptorKind::Stream { input, output }) => {
            let pipes = [*input, *output];
            pipes.into_iter().flatten().any(|pipe| world.descriptors.pipes[pipe].is_network)
        }
        _ => false,
    };
    let Some(lost) = world.faults.lost.as_mut().filter(|_| is_network) else { return };
    if lost.after > 0 {
        lost.after -= 1;
        return;
    }
    let (is_all, is_silent) = (lost.is_all, lost.is_silent);
    world.faults.lost = None;
    let choice = world.chance.next();
    let count = world.descriptors.break_connections(choice, is_all, is_silent);
    world.note("lost", count as i64, is_silent.into());
}

/// `poll`.
pub fn poll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> CallAnswer {
    begin(CallKind::Poll);
    let deadline = timeout_ns.map(|timeout| world().now.saturating_add(timeout));
    loop {
        let world = world();
        let mut count = 0;
        for entry in fds.iter_mut() {
            entry.revents = world.descriptors.events(entry.fd, entry.events, world.now).0;
            count += i64::from(entry.revents != 0);
        }
        if count > 0 || deadline.is_some_and(|deadline| deadline <= world.now) {
            return Ok(count);
        }
        let events = fds.iter().map(|entry| (entry.fd, entry.events)).collect();
        scheduler::wait(WaitCondition::Events(events), deadline);
    }
}

/// Closes a descriptor.
pub fn close(fd: i32) -> CallAnswer {
    begin(CallKind::Close);
    let world = world();
    world.descriptors.close(fd, world.now)?;
    Ok(0)
}

/// `fsync`, `fdatasync`.
pub fn sync(fd: i32, data_only: bool) -> CallAnswer {
    begin(CallKind::Sync);
    let node = node_of(fd)?;
    if let Err(errno) = meet(node.volume, CallKind::Sync) {
        world().volumes.get(node.volume).change(Change::SyncFailed { ino: node.ino });
        return Err(errno);
    }
    world().volumes.get(node.volume).change(Change::Synced { ino: node.ino, data_only });
    Ok(0)
}

/// `syncfs`.
pub fn sync_volume(fd: i32) -> CallAnswer {
    begin(CallKind::Sync);
    let node = node_of(fd)?;
    meet(node.volume, CallKind::Sync)?;
    world().volumes.get(node.volume).sync_all();
    Ok(0)
}

/// `mkdirat`, `symlinkat`, `mknodat`.
pub fn make(dirfd: i32, path: &[u8], contents: Contents, mode: u32) -> CallAnswer {
    let call =
        if matches!(contents, Contents::Directory(_)) { CallKind::MakeDirectory } else { CallKind::Link };
    begin(call);
    let walked = walk(dirfd, path, WalkRules::default())?;
    if walked.node.is_some() {
        return Err(libc::EEXIST);
    }
    meet(walked.parent.volume, call)?;
    let world = world();
    let (now, umask) = (world.now, world.umask);
    let mode = if matches!(contents, Contents::Link(_)) { 0o777 } else { mode & !umask };
    let at = Some((walked.parent.ino, &walked.name[..]));
    // Another thread may have been faster.
    if world.volumes.lookup(walked.parent, &walked.name)?.is_some() {
        return Err(libc::EEXIST);
    }
    world.volumes.get(walked.parent.volume).make(at, contents, mode, now);
    Ok(0)
}

/// `unlinkat`.
pub fn remove(dirfd: i32, path: &[u8], is_directory: bool) -> CallAnswer {
    begin(CallKind::Unlink);
    let before = walk(dirfd, path, WalkRules::default())?;
    meet(before.parent.volume, CallKind::Unlink)?;
    let walked = walk(dirfd, path, WalkRules::default())?;
    let node = walked.node.ok_or(libc::ENOENT)?;
    if walked.name.is_empty() || node.volume != walked.parent.volume {
        return Err(libc::EBUSY);
    }
    let world = world();
    match (&world.volumes.node(node)?.contents, is_directory) {
        (Contents::Directory(_), false) => return Err(libc::EISDIR),
        (Contents::Directory(names), true) if !names.is_empty() => return Err(libc::ENOTEMPTY),
        (Contents::Directory(_), true) | (_, false) => {}
        (_, true) => return Err(libc::ENOTDIR),
    }
    world.tell(|| format!("unlink {}", walked.name.escape_ascii()));
    let removes = vec![(walked.parent.ino, walked.name, node.ino)];
    let time = system_time(world.now);
    world.volumes.get(node.volume).change(Change::Names { made: None, removes, sets: vec![], time });
    Ok(0)
}

/// `renameat2`.
pub fn rename(from: (i32, &[u8]), to: (i32, &[u8]), flags: u32) -> CallAnswer {
    begin(CallKind::Rename);
    let before = walk(to.0, to.1, WalkRules::default())?;
    meet(before.parent.volume, CallKind::Rename)?;
    let source = walk(from.0, from.1, WalkRules::default())?;
    let target = walk(to.0, to.1, WalkRules::default())?;
    let node = source.node.ok_or(libc::ENOENT)?;
    let is_mount = |walked: &WalkedPath| walked.node.is_some_and(|node| node.volume != walked.parent.volume);
    if source.name.is_empty() || target.name.is_empty() || is_mount(&source) || is_mount(&target) {
        return Err(libc::EBUSY);
    }
    if source.parent.volume != target.parent.volume {
        return Err(libc::EXDEV);
    }
    let world = world();
    let moved = (source.parent.ino, source.name.clone(), node.ino);
    let mut removes = vec![moved];
    let mut sets = vec![(target.parent.ino, target.name.clone(), node.ino)];
    if let Some(replaced) = target.node {
        if flags & libc::RENAME_NOREPLACE != 0 {
            return Err(libc::EEXIST);
        }
        if replaced == node {
            return Ok(0);
        }
        if flags & libc::RENAME_EXCHANGE != 0 {
            removes.push((target.parent.ino, target.name.clone(), replaced.ino));
            sets.push((source.parent.ino, source.name.clone(), replaced.ino));
        } else {
            let is_directory = matches!(world.volumes.node(node)?.contents, Contents::Directory(_));
            match (&world.volumes.node(replaced)?.contents, is_directory) {
                (Contents::Directory(_), false) => return Err(libc::EISDIR),
                (Contents::Directory(names), true) if !names.is_empty() => return Err(libc::ENOTEMPTY),
                (Contents::Directory(_), true) | (_, false) => {}
                (_, true) => return Err(libc::ENOTDIR),
            }
        }
    } else if flags & libc::RENAME_EXCHANGE != 0 {
        return Err(libc::ENOENT);
    }
    world.tell(|| format!("rename {} to {}", source.name.escape_ascii(), target.name.escape_ascii()));
    let time = system_time(world.now);
    world.volumes.get(node.volume).change(Change::Names { made: None, removes, sets, time });
    world.named(target.parent, &target.name, node);
    Ok(0)
}

/// `linkat`.
pub fn link(from: (i32, &[u8]), to: (i32, &[u8]), flags: i32) -> CallAnswer {
    begin(CallKind::Link);
    let before = walk(to.0, to.1, WalkRules::default())?;
    meet(before.parent.volume, CallKind::Link)?;
    let node = find(from.0, from.1, flags & libc::AT_SYMLINK_FOLLOW != 0, flags)?;
    let target = walk(to.0, to.1, WalkRules::default())?;
    if target.node.is_some() {
        return Err(libc::EEXIST);
    }
    if node.volume != target.parent.volume {
        return Err(libc::EXDEV);
    }
    let world = world();
    world.tell(|| format!("link to {}", target.name.escape_ascii()));
    let sets = vec![(target.parent.ino, target.name.clone(), node.ino)];
    let time = system_time(world.now);
    world.volumes.get(node.volume).change(Change::Names { made: None, removes: vec![], sets, time });
    world.named(target.parent, &target.name, node);
    Ok(0)
}

/// `readlinkat`.
pub fn read_link(dirfd: i32, path: &[u8], buffer: &mut [u8]) -> CallAnswer {
    if let Some(fd) = descriptor_path(path) {
        let text = world().volumes.path(node_of(fd)?);
        let count = text.len().min(buffer.len());
        buffer[..count].copy_from_slice(&text[..count]);
        return Ok(count as i64);
    }
    begin(CallKind::Look);
    let node = if path.is_empty() { node_of(dirfd)? } else { find(dirfd, path, false, 0)? };
    match &world().volumes.node(node)?.contents {
        Contents::Link(target) => {
            let count = target.len().min(buffer.len());
            buffer[..count].copy_from_slice(&target[..count]);
            Ok(count as i64)
        }
        _ => Err(libc::EINVAL),
    }
}

/// `ftruncate`.
pub fn resize(fd: i32, bytes: u64) -> CallAnswer {
    begin(CallKind::Resize);
    let node = node_of(fd)?;
    meet(node.volume, CallKind::Resize)?;
    let world = world();
    let now = world.now;
    world.volumes.get(node.volume).resize(node.ino, bytes, now);
    world.written(node);
    Ok(0)
}

/// `fallocate`.
pub fn allocate(fd: i32, mode: i32, offset: u64, bytes: u64) -> CallAnswer {
    begin(CallKind::Resize);
    let node = node_of(fd)?;
    meet(node.volume, CallKind::Resize)?;
    let world = world();
    let now = world.now;
    let size = world.volumes.node(node)?.bytes();
    let volume = world.volumes.get(node.volume);
    if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
        volume.change(Change::Zero { ino: node.ino, offset, bytes, time: system_time(now) });
    } else if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
        return Err(libc::EOPNOTSUPP);
    } else if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && offset + bytes > size {
        volume.resize(node.ino, offset + bytes, now);
    }
    Ok(0)
}

/// `lseek`.
pub fn seek(fd: i32, offset: i64, whence: i32) -> CallAnswer {
    let node = node_of(fd)?;
    if whence == libc::SEEK_DATA || whence == libc::SEEK_HOLE {
        begin(CallKind::Look);
    }
    let world = world();
    let size = world.volumes.node(node)?.bytes();
    let description = world.descriptors.get_mut(fd)?;
    let position = match whence {
        libc::SEEK_SET => offset,
        libc::SEEK_CUR => description.position as i64 + offset,
        libc::SEEK_END => size as i64 + offset,
        _ => {
            let at = offset as u64;
            if at >= size {
                return Err(libc::ENXIO);
            }
            let pages = world.volumes.get(node.volume).pages(node.ino).ok_or(libc::EINVAL)?;
            let found = seek_page(pages, at, size, whence == libc::SEEK_DATA);
            let found = found.ok_or(libc::ENXIO)?;
            world.descriptors.get_mut(fd)?.position = found;
            return Ok(found as i64);
        }
    };
    if position < 0 {
        return Err(libc::EINVAL);
    }
    description.position = position as u64;
    if let DescriptorKind::Node { listed, .. } = &mut description.kind {
        *listed = None;
    }
    Ok(position)
}

fn seek_page(pages: &Pages, at: u64, size: u64, for_data: bool) -> Option<u64> {
    let mut position = at;
    for (start, data) in pages.filled() {
        let end = start + PAGE_BYTES as u64;
        if data.is_empty() || end <= position {
            continue;
        }
        if for_data {
            return Some(position.max(start));
        }
        if start > position {
            return Some(position);
        }
        position = end;
    }
    if for_data { None } else { Some(position.min(size)) }
}

/// Attributes of a node by its descriptor or path.
pub fn set_attributes(
    dirfd: i32,
    path: &[u8],
    flags: i32,
    set: impl FnOnce(u64) -> Attributes,
) -> CallAnswer {
    begin(CallKind::Attributes);
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let node = find(dirfd, path, follows, flags)?;
    meet(node.volume, CallKind::Attributes)?;
    let world = world();
    let now = world.now;
    let mut attributes = set(now);
    attributes.time = Some(system_time(now));
    world.volumes.get(node.volume).set_attributes(node.ino, attributes);
    Ok(0)
}

/// The facts of a node, for `stat` and `statx`.
pub struct NodeFacts {
    /// Which.
    pub node: NodeRef,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Access, change of contents, change, since 1970 in nanoseconds.
    pub times: [i128; 3],
    /// Owner and group.
    pub owner: (u32, u32),
    /// A device's number.
    pub device: u32,
}

/// Looks at a node.
pub fn look(dirfd: i32, path: &[u8], flags: i32) -> Result<NodeFacts, i32> {
    if is_elsewhere(path) && descriptor_path(path).is_none() {
        return Err(libc::ENOENT);
    }
    if path.is_empty()
        && let Ok(OpenDescription { kind, .. }) = world().descriptors.get(dirfd)
        && !matches!(kind, DescriptorKind::Node { .. })
    {
        let node = NodeRef { volume: TOP, ino: 0 };
        let (mode, times) = (libc::S_IFSOCK | 0o600, [0; 3]);
        return Ok(NodeFacts { node, mode, links: 1, size: 0, blocks: 0, times, owner: (0, 0), device: 0 });
    }
    begin(CallKind::Look);
    let node = find(dirfd, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0, flags)?;
    meet(node.volume, CallKind::Look)?;
    let found = world().volumes.node(node)?;
    let since = |time: std::time::SystemTime| match time.duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    let (blocks, device) = match &found.contents {
        Contents::File(pages) => (pages.count() * (PAGE_BYTES as u64 / 512), 0),
        Contents::Special(device) => (0, *device),
        Contents::Directory(_) | Contents::Link(_) => (0, 0),
    };
    Ok(NodeFacts {
        node,
        mode: found.mode,
        links: found.links,
        size: found.bytes(),
        blocks,
        times: [since(found.atime), since(found.mtime), since(found.ctime)],
        owner: (found.uid, found.gid),
        device,
    })
}

/// The next name of a directory, with inode and type (`DT_*`).
pub fn next_name(fd: i32) -> Result<Option<(u64, u8, Vec<u8>)>, i32> {
    let world = world();
    let description = world.descriptors.get_mut(fd)?;
    let DescriptorKind::Node { node, listed, .. } = &mut description.kind else { return Err(libc::ENOTDIR) };
    let node = *node;
    let position = description.position;
    description.position += 1;
    if position < 2 {
        let name = if position == 0 { b".".to_vec() } else { b"..".to_vec() };
        return Ok(Some((node.ino, libc::DT_DIR, name)));
    }
    let Contents::Directory(names) = &world.volumes.node(node)?.contents else { return Err(libc::ENOTDIR) };
    let after = match listed {
        Some(name) => std::ops::Bound::Excluded(name.clone()),
        None => std::ops::Bound::Unbounded,
    };
    let Some((name, &ino)) = names.range((after, std::ops::Bound::Unbounded)).next() else { return Ok(None) };
    let name = name.clone();
    *listed = Some(name.clone());
    let kind = (world.volumes.node(NodeRef { volume: node.volume, ino })?.mode >> 12) as u8;
    Ok(Some((ino, kind, name)))
}

/// Begins or goes on with a listing.
pub fn begin_listing(fd: i32) -> Result<(), i32> {
    begin(CallKind::List);
    meet(node_of(fd)?.volume, CallKind::List)
}

/// `flock`.
pub fn lock(fd: i32, operation: i32) -> CallAnswer {
    begin(CallKind::Other);
    let index = world().descriptors.index(fd)?;
    let is_exclusive = operation & libc::LOCK_EX != 0;
    loop {
        let world = world();
        if operation & libc::LOCK_UN != 0 {
            world.descriptors.get_mut(fd)?.lock = None;
            return Ok(0);
        }
        if world.descriptors.is_lock_free(index, is_exclusive) {
            world.descriptors.get_mut(fd)?.lock = Some(is_exclusive);
            return Ok(0);
        }
        if operation & libc::LOCK_NB != 0 {
            return Err(libc::EWOULDBLOCK);
        }
        world.descriptors.want_lock(index, is_exclusive);
        scheduler::wait(WaitCondition::FileLock(index), None);
    }
}

/// A connection to a listener: this end's input and output.
pub fn connect(fd: i32, port: u16) -> CallAnswer {
    begin(CallKind::Connect);
    let world = world();
    let (bytes, delay) = (world.connection_bytes, world.connection_delay_ns);
    let (there, back) = world.descriptors.pipes(bytes);
    for pipe in [there, back] {
        let pipe = &mut world.descriptors.pipes[pipe];
        (pipe.is_network, pipe.may_flip, pipe.delay_ns) = (true, true, delay);
    }
    let Some(waiting) = world.descriptors.listener(port) else { return Err(libc::ECONNREFUSED) };
    waiting.push((there, back));
    world.descriptors.pipes[there].readers += 1;
    world.descriptors.pipes[there].writers += 1;
    world.descriptors.pipes[back].readers += 1;
    world.descriptors.pipes[back].writers += 1;
    world.descriptors.get_mut(fd)?.kind = DescriptorKind::Stream { input: Some(back), output: Some(there) };
    Ok(0)
}

/// Takes a connection that waits.
pub fn accept(fd: i32) -> CallAnswer {
    begin(CallKind::Connect);
    loop {
        let world = world();
        let process = world.process();
        let description = world.descriptors.get_mut(fd)?;
        let is_nonblocking = description.is_nonblocking;
        let DescriptorKind::Listener { waiting, .. } = &mut description.kind else {
            return Err(libc::EINVAL);
        };
        if !waiting.is_empty() {
            let (input, output) = waiting.remove(0);
            let kind = DescriptorKind::Stream { input: Some(input), output: Some(output) };
            let accepted = world.descriptors.add(process, OpenDescription::new(kind));
            // The listener held both until now.
            world.descriptors.pipes[input].readers -= 1;
            world.descriptors.pipes[output].writers -= 1;
            return Ok(accepted.into());
        }
        if is_nonblocking {
            return Err(libc::EAGAIN);
        }
        scheduler::wait(WaitCondition::Events(vec![(fd, libc::POLLIN)]), None);
    }
}

/// `shutdown` of sending.
pub fn finish_sending(fd: i32) -> CallAnswer {
    begin(CallKind::Send);
    let world = world();
    if let DescriptorKind::Stream { output, .. } = &mut world.descriptors.get_mut(fd)?.kind
        && let Some(pipe) = output.take()
    {
        world.descriptors.pipes[pipe].writers -= 1;
    }
    Ok(0)
}

/// The number of the type of a descriptor's file system.
pub fn volume_magic(fd: i32) -> Result<i64, i32> {
    let node = node_of(fd)?;
    Ok(world().volumes.get(node.volume).magic)
}

/// `copy_file_range` and `sendfile` from a file: the bytes to copy.
pub fn bytes_of(fd: i32, offset: u64, count: usize) -> Result<Vec<u8>, i32> {
    let node = node_of(fd)?;
    meet(if node.volume == SOURCE { SOURCE } else { node.volume }, CallKind::Read)?;
    let world = world();
    let count = world.faults.shortened(&mut world.chance, count);
    Ok(world.volumes.get(node.volume).pages(node.ino).ok_or(libc::EINVAL)?.read(offset, count))
}
