//! The ID of a transfer: the same for the same command, at any time.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path};

use carrack_model::{MetadataFidelity, PartialCopyRange, TransferId};
use rustix::system::uname;

use crate::remote::location::FarEndAddress;
use crate::remote::route::{RemoteEnds, TransferEndsAndPaths};

/// Separates these IDs from other uses of the same hash (BLAKE3's key derivation mode).
const CONTEXT: &str = "carrack 2026 transfer id v1";

/// Returns the first 16 bytes of a BLAKE3 hash over the places of the sources and the destination, over the
/// metadata kept beyond the default, if any, and over the range of a partial transfer. Local paths are made
/// absolute with the working directory, without resolving links, and belong to this host: another host that
/// copies a path of the same name to the same place has another transfer. Of far ends the host counts as it
/// was typed. A slash at the end of a path counts, as it has a meaning.
///
/// # Errors
/// If there is no working directory.
pub fn transfer_id(
    route: &TransferEndsAndPaths,
    fidelity: &MetadataFidelity,
    part: Option<PartialCopyRange>,
) -> io::Result<TransferId> {
    let (source, sink) = match &route.far {
        RemoteEnds::Neither => (None, None),
        RemoteEnds::Source(source) => (Some(source), None),
        RemoteEnds::Sink(sink) => (None, Some(sink)),
        RemoteEnds::Both(source, sink) => (Some(source), Some(sink)),
    };
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&(route.sources.len() as u64).to_le_bytes());
    for path in &route.sources {
        add_place(&mut hasher, source, path)?;
    }
    add_place(&mut hasher, sink, &route.destination)?;
    if *fidelity != MetadataFidelity::default() {
        add_fidelity(&mut hasher, fidelity);
    }
    if let Some(PartialCopyRange { offset, length }) = part {
        hasher.update(b"part");
        hasher.update(&offset.to_le_bytes());
        hasher.update(&[u8::from(length.is_some())]);
        hasher.update(&length.unwrap_or(0).to_le_bytes());
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    Ok(TransferId(id))
}

/// Adds the kept metadata: objects that an earlier session completed must be complete for this session too.
fn add_fidelity(hasher: &mut blake3::Hasher, fidelity: &MetadataFidelity) {
    let MetadataFidelity {
        kept,
        numeric_ids,
        user,
        group,
        user_map,
        group_map,
        perms,
        mode_change,
        omit_times,
        omit_dir_times,
    } = fidelity;
    hasher.update(&kept.bits().to_le_bytes());
    hasher.update(&[u8::from(*numeric_ids)]);
    for account in [user, group] {
        let Some(account) = account else {
            hasher.update(&[0]);
            continue;
        };
        hasher.update(&[1]);
        hasher.update(&account.number.to_le_bytes());
        hasher.update(&(account.name.len() as u64).to_le_bytes());
        hasher.update(&account.name);
    }
    // Without rules the ID stays as it was before there were rules.
    if !user_map.is_empty() || !group_map.is_empty() {
        for map in [user_map, group_map] {
            hasher.update(&(map.as_str().len() as u64).to_le_bytes());
            hasher.update(map.as_str().as_bytes());
        }
    }
    // Likewise for modes and times.
    let modes = [*perms, *omit_times, *omit_dir_times];
    if modes != [false; 3] || !mode_change.is_empty() {
        hasher.update(b"modes");
        hasher.update(&modes.map(u8::from));
        hasher.update(mode_change.as_str().as_bytes());
    }
}

/// Adds a host and a path, each with its length in front, so that no two lists of places are the same bytes.
fn add_place(hasher: &mut blake3::Hasher, far: Option<&FarEndAddress>, path: &Path) -> io::Result<()> {
    let (host, path) = match far {
        Some(far) => (far.to_string(), path.to_path_buf()),
        // No far host contains a NUL.
        None => (format!("\0{}", uname().nodename().to_string_lossy()), path::absolute(path)?),
    };
    for part in [host.as_bytes(), path.as_os_str().as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use carrack_model::{FileOwnerMap, KeptMetadata, UserOrGroup};

    use super::*;

    fn id(sources: &[&str], destination: &str) -> TransferId {
        let sources: Vec<OsString> = sources.iter().map(OsString::from).collect();
        let route = TransferEndsAndPaths::parse(&sources, OsStr::new(destination)).unwrap();
        transfer_id(&route, &MetadataFidelity::default(), None).unwrap()
    }

    #[test]
    fn the_same_places_are_the_same_transfer() {
        let here = std::env::current_dir().unwrap();
        let absolute = here.join("a");
        assert_eq!(id(&["a"], "h:b"), id(&[absolute.to_str().unwrap()], "h:b"));
        assert_eq!(id(&["./a"], "h:b"), id(&["a"], "h:b"));
        assert_eq!(id(&["a"], "carrack://h:7512/x/b"), id(&["a"], "carrack://h/x/b"));
    }

    #[test]
    fn what_is_kept_makes_another_transfer() {
        let route = TransferEndsAndPaths::parse(&["a".into()], OsStr::new("h:b")).unwrap();
        let user = Some(UserOrGroup { number: 0, name: Default::default() });
        let ids = [
            MetadataFidelity::default(),
            MetadataFidelity { numeric_ids: true, ..MetadataFidelity::default() },
            MetadataFidelity { kept: KeptMetadata::ALL, ..MetadataFidelity::default() },
            MetadataFidelity { user: user.clone(), ..MetadataFidelity::default() },
            MetadataFidelity { group: user, ..MetadataFidelity::default() },
            MetadataFidelity { user_map: FileOwnerMap::parse("a:b").unwrap(), ..MetadataFidelity::default() },
            MetadataFidelity {
                group_map: FileOwnerMap::parse("a:b").unwrap(),
                ..MetadataFidelity::default()
            },
        ]
        .map(|fidelity| transfer_id(&route, &fidelity, None).unwrap());
        for (i, one) in ids.iter().enumerate() {
            assert!(ids[..i].iter().all(|other| other != one), "{i}");
        }
        assert_eq!(ids[0], id(&["a"], "h:b"));
    }

    #[test]
    fn a_part_is_another_transfer_than_the_whole_and_other_parts() {
        let route = TransferEndsAndPaths::parse(&["a".into()], OsStr::new("h:b")).unwrap();
        let parts = [(0, None), (1, None), (0, Some(1)), (1, Some(1)), (0, Some(0))];
        let parts = parts.into_iter().map(|(offset, length)| Some(PartialCopyRange { offset, length }));
        let ids = [None].into_iter().chain(parts);
        let ids = ids.map(|part| transfer_id(&route, &MetadataFidelity::default(), part).unwrap());
        let ids: Vec<_> = ids.collect();
        for (i, one) in ids.iter().enumerate() {
            assert!(ids[..i].iter().all(|other| other != one), "{i}");
        }
    }

    #[test]
    fn other_places_are_another_transfer() {
        let ids = [
            id(&["a"], "h:b"),
            id(&["a/"], "h:b"),
            id(&["h:a"], "b"),
            id(&["a"], "b"),
            id(&["a"], "me@h:b"),
            id(&["a", "h"], "b"),
            id(&["a"], "carrack://h/x/b"),
            id(&["a"], "carrack://h:1/x/b"),
            id(&["h:a"], "h:b"),
            id(&["h:a", "h:b"], "h:"),
        ];
        for (i, one) in ids.iter().enumerate() {
            assert!(ids[..i].iter().all(|other| other != one), "{i}");
        }
    }
}
