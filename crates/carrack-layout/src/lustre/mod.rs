//! Lustre: stripes over object storage targets (L1).
//!
//! Layouts are read and set through the attribute `lustre.lov`, unprivileged, as in `llapi_layout_get_by_fd`
//! and `llapi_layout_file_open`. Only the MDT of a file with data on it takes an `ioctl`, and only where
//! there are several.

mod blob;
mod client_osts;
mod mirror_choice;
mod ost_choice;
mod pools;
mod requested_striping;
mod servers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use carrack_model::TargetId;
use rustix::fs::{OFlags, XattrFlags, fsetxattr, setxattr};
use rustix::io::Errno;
use rustix::ioctl::Opcode;

pub use blob::{LovComponent, LovError, LovFile, LovStripes, parse_lov};

use self::client_osts::{ClientOstList, OstSpace};
use self::ost_choice::KnownOst;
use self::pools::LustrePoolLists;
use self::servers::LustreConnections;
use super::StripeOutcome;
use super::file_ref::{LayoutQueryFile, descriptor_path};
use super::ioctl::{call_ioctl, read_opcode};
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;

/// The attribute that contains the layout.
const LOV: &str = "lustre.lov";

/// `O_LOV_DELAY_CREATE` (`O_NOCTTY | FASYNC`): the file gets no objects before its layout is set.
const DELAY_CREATE: OFlags = OFlags::from_bits_retain(0x2100);

/// `LL_IOC_GET_MDTIDX`: the number of a file's MDT.
const GET_MDT: Opcode = read_opcode::<4>(b'f', 175);

/// The target of data on a metadata server, if it is unknown which one.
const UNKNOWN_MDT: &str = "MDT";

/// Lustre, or a file system that answers like Lustre.
#[derive(Debug)]
pub(super) struct LustreProvider {
    pools: LustrePoolLists,
    connections: LustreConnections,
    osts: ClientOstList,
    /// The OST with which the next choice begins, counted on.
    turn: AtomicUsize,
}

/// The targets of one file.
struct LustreFileTargets<'a> {
    file: &'a LayoutQueryFile<'a>,
    pieces: &'a FileSystemTargets,
    connections: &'a LustreConnections,
}

impl LustreFileTargets<'_> {
    fn ost(&self, index: u32) -> TargetId {
        self.target(&format!("OST{index:04x}"))
    }

    /// The MDT of the file, by the name in Lustre's own tools.
    fn mdt(&self) -> TargetId {
        match self.connections.only_mdt() {
            Some(mdt) => self.target(mdt),
            None => self.target(&self.ask_for_mdt().unwrap_or_else(|| UNKNOWN_MDT.to_owned())),
        }
    }

    fn ask_for_mdt(&self) -> Option<String> {
        let held = self.file.descriptor().ok()?;
        let mut number = [0; 4];
        call_ioctl::<GET_MDT, 4>(held.as_fd(), &mut number).ok()?;
        u16::try_from(u32::from_ne_bytes(number)).ok().map(|number| format!("MDT{number:04x}"))
    }

    fn target(&self, name: &str) -> TargetId {
        self.pieces.target_on_server(name, || self.connections.server_of(name))
    }

    /// The target of bytes without a known one.
    fn own(&self) -> TargetId {
        self.pieces.own_target()
    }
}

impl LustreProvider {
    /// Creates the provider of the file system `name`. Without a name, its pools and servers are unknown.
    pub(super) fn new(name: Option<&str>) -> LustreProvider {
        LustreProvider {
            pools: LustrePoolLists::of_client(name),
            connections: LustreConnections::of_client(name),
            osts: ClientOstList::of_client(name),
            // Sessions that begin together must not begin with the same OST.
            turn: AtomicUsize::new(std::process::id() as usize),
        }
    }

    /// Returns true if a file or directory has a Lustre layout.
    pub(super) fn answers(file: &LayoutQueryFile<'_>) -> bool {
        file.read_attribute(LOV).is_ok_and(|value| parse_lov(&value).is_ok())
    }
}

impl LayoutProvider for LustreProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let value = match file.read_attribute(LOV) {
            Ok(value) => value,
            Err(Errno::NODATA) => return Err(MissingLayoutReason::Default),
            Err(errno) => return Err(MissingLayoutReason::problem("reading lustre.lov", errno)),
        };
        let layout =
            parse_lov(&value).map_err(|error| MissingLayoutReason::problem("reading lustre.lov", error))?;
        let targets = LustreFileTargets { file, pieces, connections: &self.connections };
        Ok(mirror_choice::resolve_layout(&layout, size, &targets))
    }

    fn request_bytes(&self) -> Option<u32> {
        Some(self.osts.request_bytes())
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        pieces: &FileSystemTargets,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        file.create_and_set(DELAY_CREATE, |created| self.set_striping(file, created, request, pieces))
    }

    fn open_shared(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        pieces: &FileSystemTargets,
    ) -> Result<OwnedFd, Errno> {
        file.open_and_set(DELAY_CREATE, |opened| self.set_striping(file, opened, request, pieces))
    }

    fn set_default(&self, directory: BorrowedFd<'_>, request: &StripeRequest<'_>) -> StripeOutcome {
        let path = descriptor_path(directory);
        let set = self.set(request, |value| setxattr(&*path, LOV, value, XattrFlags::empty()));
        set.unwrap_or_else(StripeOutcome::Refused)
    }
}

/// Sets the layout of a file. A shared file that has one got it from another session.
fn set_value(file: BorrowedFd<'_>, value: &[u8], is_shared: bool) -> Result<(), Errno> {
    match fsetxattr(file, LOV, value, XattrFlags::empty()) {
        Err(Errno::EXIST) if is_shared => Ok(()),
        answer => answer,
    }
}

impl LustreProvider {
    /// Sets the striping of a file that was opened with `O_LOV_DELAY_CREATE`. A shared file may have been
    /// given it by another session.
    fn set_striping(
        &self,
        file: &LayoutFileToCreate<'_>,
        opened: BorrowedFd<'_>,
        request: &StripeRequest<'_>,
        pieces: &FileSystemTargets,
    ) -> Result<StripeOutcome, String> {
        let osts = request.auto.and_then(|auto| {
            let known = self.known_osts(auto.avoided, pieces, file.directory)?;
            let count = request.count.unwrap_or(1);
            let turn = self.turn.fetch_add(count as usize, Relaxed);
            ost_choice::choose_osts(&known, count, auto.file_bytes, turn)
        });
        let value = osts.as_deref().and_then(requested_striping::encode_osts);
        // An OST may be gone by now; then Lustre chooses.
        if value.is_some_and(|value| set_value(opened, &value, file.is_shared).is_ok()) {
            return Ok(StripeOutcome::Set);
        }
        self.set(request, |value| set_value(opened, value, file.is_shared))
    }

    /// Sets as much of the request as the file system accepts; reports its first refusal. Lustre would take a
    /// pool that it does not have.
    fn set(
        &self,
        request: &StripeRequest<'_>,
        set: impl Fn(&[u8]) -> Result<(), Errno>,
    ) -> Result<StripeOutcome, String> {
        let mut why = None;
        for attempt in requested_striping::candidate_values(request, |pool| self.pools.lack(pool)) {
            match set(&attempt.value) {
                Ok(()) => return Ok(outcome(attempt.given_up, why)),
                Err(errno) => why = why.or(Some(format!("setting lustre.lov: {errno}"))),
            }
        }
        Err(why.unwrap_or_else(|| "nothing of it can be set".to_owned()))
    }

    /// Returns the OSTs that a new file in a directory may get; none if they are not known, or all of them
    /// will do as far as it is known.
    fn known_osts(
        &self,
        avoided: &[TargetId],
        pieces: &FileSystemTargets,
        directory: BorrowedFd<'_>,
    ) -> Option<Vec<KnownOst>> {
        let listed = self.osts.spaces();
        if listed.is_empty() && avoided.is_empty() {
            return None;
        }
        let met = pieces.met();
        let met = met.iter().filter_map(|(name, id)| Some((mirror_choice::ost_index(name)?, *id)));
        let met: BTreeMap<u32, TargetId> = met.collect();
        let is_avoided = |index| met.get(&index).is_some_and(|id| avoided.contains(id));
        let with_space = |ost: &OstSpace| KnownOst {
            index: ost.index,
            space: Some((ost.total_bytes, ost.available_bytes)),
            is_avoided: is_avoided(ost.index),
        };
        let without_space =
            |index: &u32| KnownOst { index: *index, space: None, is_avoided: is_avoided(*index) };
        let mut known: Vec<KnownOst> = match &listed[..] {
            [] => met.keys().map(without_space).collect(),
            listed => listed.iter().map(with_space).collect(),
        };
        for pool in default_pools(directory) {
            let members = self.pools.members(&pool)?;
            known.retain(|ost| members.contains(&ost.index));
        }
        Some(known)
    }
}

/// Returns the pools that the layout of a directory's new files names.
fn default_pools(directory: BorrowedFd<'_>) -> Vec<String> {
    let value = LayoutQueryFile::Held(directory).read_attribute(LOV).unwrap_or_default();
    let stripes = match parse_lov(&value) {
        Ok(LovFile::Plain(stripes)) => vec![stripes],
        Ok(LovFile::Composite(parts)) => parts.into_iter().filter_map(|part| part.stripes).collect(),
        _ => Vec::new(),
    };
    stripes.into_iter().filter_map(|stripes| stripes.pool).collect()
}

fn outcome(given_up: Option<String>, why: Option<String>) -> StripeOutcome {
    match (given_up, why) {
        (None, _) => StripeOutcome::Set,
        (Some(given_up), None) => StripeOutcome::Refused(given_up),
        (Some(given_up), Some(why)) => StripeOutcome::Refused(format!("{given_up}: {why}")),
    }
}
