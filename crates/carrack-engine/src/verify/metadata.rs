//! The comparison of two entries' metadata, for the kinds that a copy keeps. Pure, except for the names of
//! hard links, which are remembered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use carrack_model::{
    FailureSide, FileFlags, KeptMetadata, MetadataFidelity, ModifyWindow, Timestamp, UserOrGroup,
};
use carrack_storage::{BrowsedKind, are_within, may_be_stored};

use crate::examine::{
    ATTRIBUTE_DIGEST_BYTES, AttributeDigest, ComparedEntryMetadata, ExaminedEntryFacts, ExaminedEntryKind,
};

/// A file whose storage lacks less than this of its size counts as one without holes: the least that a copy
/// keeps of a large file.
const HOLES_BYTES_MIN: u64 = 64 << 10;

/// The metadata to compare. By default those that a copy keeps without options: modification times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChecks {
    /// The metadata that the copy keeps. Changes of owners ([`MetadataFidelity::user`] and the like) and of
    /// modes do not count here.
    pub fidelity: MetadataFidelity,
    /// True to compare holes too.
    pub holes: bool,
    /// The largest difference of equal times.
    pub window: ModifyWindow,
}

/// Metadata of an entry that differs between the ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataDifference {
    /// Permission bits, set-ID bits and the sticky bit.
    Mode {
        /// At the source.
        source: u32,
        /// At the destination.
        sink: u32,
    },
    /// The modification time.
    Time {
        /// At the source.
        source: Timestamp,
        /// At the destination.
        sink: Timestamp,
    },
    /// The owner.
    Owner {
        /// At the source.
        source: UserOrGroup,
        /// At the destination.
        sink: UserOrGroup,
    },
    /// The group.
    Group {
        /// At the source.
        source: UserOrGroup,
        /// At the destination.
        sink: UserOrGroup,
    },
    /// An extended attribute or ACL. A name that ends with `.*` stands for attributes of a name space.
    Attribute {
        /// Its name.
        name: Box<[u8]>,
        /// True if the source has it.
        in_source: bool,
        /// True if the destination has it; with another value if both do.
        in_sink: bool,
    },
    /// Attributes and ACLs of an end can't all be read.
    AttributesUnread {
        /// The end.
        side: FailureSide,
        /// The reason as a text.
        detail: String,
    },
    /// File flags that both file systems support.
    Flags {
        /// At the source.
        source: FileFlags,
        /// At the destination.
        sink: FileFlags,
    },
    /// At one end it is a hard link to another entry, at the other it is not.
    HardLink {
        /// The path of the other entry beneath the destination.
        with: Box<[u8]>,
        /// The end at which they are one file.
        linked_at: FailureSide,
    },
    /// The source's file has holes, and more than half of them are filled at the destination.
    Holes {
        /// Bytes of holes at the source.
        source: u64,
        /// Bytes of holes at the destination.
        sink: u64,
    },
}

impl MetadataChecks {
    /// Compares contents only.
    pub fn contents_only() -> MetadataChecks {
        MetadataChecks {
            fidelity: MetadataFidelity { omit_times: true, ..MetadataFidelity::default() },
            ..MetadataChecks::default()
        }
    }

    /// Returns the kinds of metadata to request, or `None` if none are compared.
    pub(super) fn requested_metadata(&self) -> Option<KeptMetadata> {
        let MetadataFidelity { kept, perms, omit_times, .. } = &self.fidelity;
        // Devices, pipes and sockets are compared by kind and number in any case.
        let kept = KeptMetadata { devices: false, specials: false, ..*kept };
        let is_asked = !kept.is_nothing() || *perms || !omit_times || self.holes;
        is_asked.then_some(kept)
    }

    /// Returns the differences of two entries of one kind. `path` is that of both.
    pub(super) fn compare(
        &self,
        links: &mut ComparedHardLinks,
        path: &[u8],
        source: &ExaminedEntryFacts,
        sink: &ExaminedEntryFacts,
    ) -> Vec<MetadataDifference> {
        let (ExaminedEntryKind::Is(kind), Some(source_has), Some(sink_has)) =
            (&source.standing, &source.metadata, &sink.metadata)
        else {
            return Vec::new();
        };
        let pair = MetadataPair { checks: self, kind: *kind, source: source_has, sink: sink_has };
        let mut found: Vec<_> = [pair.mode(), pair.time(), pair.owner(), pair.group(), pair.flags()]
            .into_iter()
            .flatten()
            .collect();
        if self.fidelity.kept.attributes || self.fidelity.kept.acls {
            found.extend(pair.attributes());
        }
        if *kind == BrowsedKind::File {
            if self.fidelity.kept.hard_links {
                found.extend(links.compare(path, source_has, sink_has));
            }
            found.extend(pair.holes(source.size, sink.size));
        }
        found
    }
}

/// An entry at both ends.
struct MetadataPair<'a> {
    checks: &'a MetadataChecks,
    kind: BrowsedKind,
    source: &'a ComparedEntryMetadata,
    sink: &'a ComparedEntryMetadata,
}

impl MetadataPair<'_> {
    fn mode(&self) -> Option<MetadataDifference> {
        let (source, sink) = (self.source.metadata.mode, self.sink.metadata.mode);
        // Linux has no modes of links.
        let is_compared = self.checks.fidelity.perms && self.kind != BrowsedKind::Symlink;
        (is_compared && source != sink).then_some(MetadataDifference::Mode { source, sink })
    }

    fn time(&self) -> Option<MetadataDifference> {
        let (source, sink) = (self.source.metadata.mtime, self.sink.metadata.mtime);
        let MetadataFidelity { omit_times, omit_dir_times, .. } = self.checks.fidelity;
        let is_omitted = omit_times || omit_dir_times && self.kind == BrowsedKind::Directory;
        let is_stored = may_be_stored(source, sink, self.sink.time_unit_ns);
        let is_same = source == sink
            || match self.checks.window {
                ModifyWindow::Exact => false,
                ModifyWindow::Stored => is_stored,
                ModifyWindow::Within { nanoseconds } => are_within(source, sink, nanoseconds) || is_stored,
            };
        (!is_omitted && !is_same).then_some(MetadataDifference::Time { source, sink })
    }

    fn owner(&self) -> Option<MetadataDifference> {
        let (source, sink) = (self.source.user.clone()?, self.sink.user.clone()?);
        (!self.is_same(&source, &sink)).then_some(MetadataDifference::Owner { source, sink })
    }

    fn group(&self) -> Option<MetadataDifference> {
        let (source, sink) = (self.source.group.clone()?, self.sink.group.clone()?);
        (!self.is_same(&source, &sink)).then_some(MetadataDifference::Group { source, sink })
    }

    /// Accounts with names at both ends are compared by name.
    fn is_same(&self, source: &UserOrGroup, sink: &UserOrGroup) -> bool {
        let by_name = !self.checks.fidelity.numeric_ids && !source.name.is_empty() && !sink.name.is_empty();
        if by_name { source.name == sink.name } else { source.number == sink.number }
    }

    fn flags(&self) -> Option<MetadataDifference> {
        let (source, sink) = (self.source.flags?, self.sink.flags?);
        source.differs_from(sink).then_some(MetadataDifference::Flags { source, sink })
    }

    fn attributes(&self) -> Vec<MetadataDifference> {
        let unread = [(FailureSide::Source, self.source), (FailureSide::Sink, self.sink)]
            .into_iter()
            .find_map(|(side, seen)| {
                let detail = seen.attributes_problem.clone()?;
                Some(MetadataDifference::AttributesUnread { side, detail })
            });
        if let Some(unread) = unread {
            return vec![unread];
        }
        let names = self.source.attributes.iter().chain(&self.sink.attributes).map(|told| &*told.name);
        let mut names: Vec<&[u8]> = names.filter(|name| self.can_be_compared(name)).collect();
        names.sort_unstable();
        names.dedup();
        let differs = names.into_iter().filter_map(|name| {
            let (source, sink) =
                (digest_in(&self.source.attributes, name), digest_in(&self.sink.attributes, name));
            // The destination's system sets some attributes itself.
            let is_its_own = source.is_none() && is_privileged(name);
            (source != sink && !is_its_own).then(|| MetadataDifference::Attribute {
                name: name.into(),
                in_source: source.is_some(),
                in_sink: sink.is_some(),
            })
        });
        differs.collect()
    }

    /// Attributes that only root may set are compared if both ends see them.
    fn can_be_compared(&self, name: &[u8]) -> bool {
        !is_privileged(name) || self.source.has_privileged && self.sink.has_privileged
    }

    /// Compares the bytes of holes. Other file systems may allocate more or fewer bytes for the same
    /// contents.
    fn holes(&self, source_size: u64, sink_size: u64) -> Option<MetadataDifference> {
        let source = source_size.saturating_sub(self.source.allocated_bytes);
        let sink = sink_size.saturating_sub(self.sink.allocated_bytes);
        let are_filled = self.checks.holes && source >= HOLES_BYTES_MIN && sink < source / 2;
        are_filled.then_some(MetadataDifference::Holes { source, sink })
    }
}

fn digest_in(attributes: &[AttributeDigest], name: &[u8]) -> Option<[u8; ATTRIBUTE_DIGEST_BYTES]> {
    attributes.iter().find(|other| *other.name == *name).map(|other| other.digest)
}

fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// The hard links at both ends. About 100 bytes and the path for each file with names that were not met yet.
#[derive(Debug, Default)]
pub(super) struct ComparedHardLinks {
    of_source: HashMap<u64, FirstHardLink>,
    of_sink: HashMap<u64, FirstHardLink>,
}

/// The first name of a file that was met.
#[derive(Debug)]
struct FirstHardLink {
    path: Box<[u8]>,
    /// The file's number at the other end.
    identity_there: u64,
    names_left: u32,
}

impl ComparedHardLinks {
    fn compare(
        &mut self,
        path: &[u8],
        source: &ComparedEntryMetadata,
        sink: &ComparedEntryMetadata,
    ) -> Option<MetadataDifference> {
        let of_source = stray_name(&mut self.of_source, path, source, sink.identity);
        let of_sink = stray_name(&mut self.of_sink, path, sink, source.identity);
        let (with, linked_at) = match (of_source, of_sink) {
            (Some(with), _) => (with, FailureSide::Source),
            (None, Some(with)) => (with, FailureSide::Sink),
            (None, None) => return None,
        };
        Some(MetadataDifference::HardLink { with, linked_at })
    }
}

/// Notes a name of a file with several names. Returns the first of its names if that is another file at the
/// other end.
fn stray_name(
    files: &mut HashMap<u64, FirstHardLink>,
    path: &[u8],
    file: &ComparedEntryMetadata,
    identity_there: u64,
) -> Option<Box<[u8]>> {
    if file.names < 2 {
        return None;
    }
    match files.entry(file.identity) {
        Entry::Vacant(vacant) => {
            vacant.insert(FirstHardLink { path: path.into(), identity_there, names_left: file.names - 1 });
            None
        }
        Entry::Occupied(mut occupied) => {
            let first = occupied.get_mut();
            let stray = (first.identity_there != identity_there).then(|| first.path.clone());
            first.names_left = first.names_left.saturating_sub(1);
            if first.names_left == 0 {
                occupied.remove();
            }
            stray
        }
    }
}

#[cfg(test)]
#[path = "metadata_tests.rs"]
mod tests;
