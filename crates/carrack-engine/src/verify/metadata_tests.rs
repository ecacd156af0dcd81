use carrack_model::{IMMUTABLE, Metadata, NO_DUMP};

use super::*;
use MetadataDifference::{Attribute, AttributesUnread, Flags, Group, HardLink, Holes, Mode, Owner, Time};

const MTIME: Timestamp = Timestamp { seconds: 1_600_000_000, nanoseconds: 123_456_789 };
const ACL: &[u8] = b"system.posix_acl_access";

fn account(number: u32, name: &str) -> UserOrGroup {
    UserOrGroup { number, name: name.as_bytes().into() }
}

fn attribute(name: &[u8], value: u8) -> AttributeDigest {
    AttributeDigest { name: name.into(), digest: [value; 16] }
}

fn seen() -> ComparedEntryMetadata {
    ComparedEntryMetadata {
        metadata: Metadata { mode: 0o644, mtime: MTIME },
        time_unit_ns: 1,
        names: 1,
        identity: 7,
        allocated_bytes: 4_096,
        user: Some(account(1_000, "alice")),
        group: Some(account(100, "users")),
        attributes: vec![attribute(b"user.a", 1), attribute(ACL, 2)],
        attributes_problem: None,
        has_privileged: true,
        flags: Some(FileFlags::new(NO_DUMP | IMMUTABLE, NO_DUMP)),
    }
}

fn sight(kind: BrowsedKind, seen: ComparedEntryMetadata) -> ExaminedEntryFacts {
    let metadata = Some(Box::new(seen));
    ExaminedEntryFacts {
        standing: ExaminedEntryKind::Is(kind),
        size: 4_096,
        stamp: 0,
        digest: None,
        special: None,
        metadata,
    }
}

fn all() -> MetadataChecks {
    let fidelity = MetadataFidelity { kept: KeptMetadata::ALL, perms: true, ..MetadataFidelity::default() };
    MetadataChecks { fidelity, holes: true, ..MetadataChecks::default() }
}

fn compare_as(
    checks: &MetadataChecks,
    kind: BrowsedKind,
    change: impl FnOnce(&mut ComparedEntryMetadata),
) -> Vec<MetadataDifference> {
    let mut other = seen();
    change(&mut other);
    checks.compare(&mut ComparedHardLinks::default(), b"f", &sight(kind, seen()), &sight(kind, other))
}

fn compare(change: impl FnOnce(&mut ComparedEntryMetadata)) -> Vec<MetadataDifference> {
    compare_as(&all(), BrowsedKind::File, change)
}

#[test]
fn each_difference_is_told_alone() {
    assert_eq!(compare(|_| {}), []);
    assert_eq!(compare(|sink| sink.metadata.mode = 0o600), [Mode { source: 0o644, sink: 0o600 }]);
    let later = Timestamp { nanoseconds: 123_456_790, ..MTIME };
    assert_eq!(compare(|sink| sink.metadata.mtime = later), [Time { source: MTIME, sink: later }]);
    let (source, sink) = (account(1_000, "alice"), account(1_000, "bob"));
    assert_eq!(compare(|other| other.user = Some(sink.clone())), [Owner { source, sink: sink.clone() }]);
    let (source, sink) = (account(100, "users"), account(0, ""));
    assert_eq!(compare(|other| other.group = Some(sink.clone())), [Group { source, sink: sink.clone() }]);
    let (source, sink) = (FileFlags::new(NO_DUMP | IMMUTABLE, NO_DUMP), FileFlags::new(NO_DUMP, 0));
    assert_eq!(compare(|other| other.flags = Some(sink)), [Flags { source, sink }]);
    assert_eq!(compare(|other| other.flags = None), [], "a file system that tells none");
}

#[test]
fn nothing_is_told_of_what_is_not_kept() {
    let change = |other: &mut ComparedEntryMetadata| {
        other.metadata = Metadata { mode: 0, mtime: Timestamp::default() };
        other.user = None;
        other.group = None;
        other.attributes.clear();
        other.flags = None;
        other.names = 2;
    };
    let times = MetadataChecks::default();
    assert_eq!(times.requested_metadata(), Some(KeptMetadata::default()));
    let file = compare_as(&times, BrowsedKind::File, change);
    assert_eq!(file, [Time { source: MTIME, sink: Timestamp::default() }]);
    let no_directories = MetadataChecks {
        fidelity: MetadataFidelity { omit_dir_times: true, ..MetadataFidelity::default() },
        ..MetadataChecks::default()
    };
    assert_eq!(compare_as(&no_directories, BrowsedKind::Directory, change), []);
    assert_eq!(compare_as(&no_directories, BrowsedKind::Symlink, change).len(), 1);
    assert_eq!(MetadataChecks::contents_only().requested_metadata(), None);
    let link = compare_as(&all(), BrowsedKind::Symlink, |other| other.metadata.mode = 0o777);
    assert_eq!(link, [], "links have no modes");
}

#[test]
fn accounts_are_compared_by_name_where_both_have_one() {
    let whose = |numeric_ids, source: UserOrGroup, sink: UserOrGroup| {
        let mut checks = all();
        checks.fidelity.numeric_ids = numeric_ids;
        let with = |user| sight(BrowsedKind::File, ComparedEntryMetadata { user: Some(user), ..seen() });
        checks.compare(&mut ComparedHardLinks::default(), b"f", &with(source), &with(sink)).is_empty()
    };
    let alice = || account(1_000, "alice");
    assert!(whose(false, alice(), account(7, "alice")) && !whose(true, alice(), account(7, "alice")));
    assert!(!whose(false, alice(), account(1_000, "bob")) && whose(true, alice(), account(1_000, "bob")));
    assert!(whose(false, alice(), account(1_000, "")) && !whose(false, alice(), account(7, "")));
    assert!(whose(false, account(0, ""), account(0, "")) && !whose(false, account(0, ""), alice()));
}

#[test]
fn coarse_times_are_equal_to_what_is_stored_of_the_source() {
    let second = Timestamp { nanoseconds: 0, ..MTIME };
    let at = |window, time_unit_ns, mtime| {
        let checks = MetadataChecks { window, ..MetadataChecks::default() };
        compare_as(&checks, BrowsedKind::File, |sink| {
            sink.metadata.mtime = mtime;
            sink.time_unit_ns = time_unit_ns;
        })
        .is_empty()
    };
    assert!(at(ModifyWindow::Stored, 1_000_000_000, second));
    assert!(!at(ModifyWindow::Stored, 1, second) && !at(ModifyWindow::Exact, 1_000_000_000, second));
    let within = ModifyWindow::Within { nanoseconds: 2_000_000_000 };
    let later = |seconds| Timestamp { seconds: MTIME.seconds + seconds, ..MTIME };
    assert!(at(within, 1, later(2)) && !at(within, 1, later(3)) && at(within, 1, MTIME));
    // Values that an end sends must not lead to a division by zero.
    assert!(!at(ModifyWindow::Stored, 0, second) && !at(ModifyWindow::Stored, u32::MAX, later(9)));
}

#[test]
fn attributes_are_compared_where_both_ends_see_them() {
    let told = |name: &[u8], in_source, in_sink| Attribute { name: name.into(), in_source, in_sink };
    let with = |source: &[AttributeDigest], sink: &[AttributeDigest], sees: bool| {
        let side = |attributes: &[AttributeDigest], has_privileged| {
            let attributes = attributes.to_vec();
            sight(BrowsedKind::File, ComparedEntryMetadata { attributes, has_privileged, ..seen() })
        };
        all().compare(&mut ComparedHardLinks::default(), b"f", &side(source, true), &side(sink, sees))
    };
    let (user, acl, label) = (attribute(b"user.a", 1), attribute(ACL, 1), attribute(b"security.selinux", 1));
    let others = [attribute(b"user.a", 2), attribute(b"user.b", 2), label.clone()];
    assert_eq!(
        with(&[user.clone(), acl.clone()], &others, true),
        [told(ACL, true, false), told(b"user.a", true, true), told(b"user.b", false, true)],
        "the system's own label counts for nothing"
    );
    assert_eq!(with(std::slice::from_ref(&label), &[], true), [told(b"security.selinux", true, false)]);
    assert_eq!(with(&[label], &[], false), [], "who is not root does not see it");
    let unread = compare(|sink| sink.attributes_problem = Some("no".into()));
    assert_eq!(unread, [AttributesUnread { side: FailureSide::Sink, detail: "no".into() }]);
}

#[test]
fn names_of_one_file_are_so_at_both_ends() {
    let mut links = ComparedHardLinks::default();
    let mut met = |path: &[u8], source: (u64, u32), sink: (u64, u32)| {
        let side =
            |(identity, names)| sight(BrowsedKind::File, ComparedEntryMetadata { identity, names, ..seen() });
        all().compare(&mut links, path, &side(source), &side(sink))
    };
    // Three names at the source; two of them are one file at the sink, the third is another file.
    assert_eq!(met(b"a", (1, 3), (11, 2)), []);
    assert_eq!(met(b"b", (1, 3), (11, 2)), []);
    let with = |path: &[u8], linked_at| [HardLink { with: path.into(), linked_at }];
    assert_eq!(met(b"c", (1, 3), (12, 1)), with(b"a", FailureSide::Source));
    // Two files at the source are one file at the sink.
    assert_eq!(met(b"d", (2, 1), (13, 2)), []);
    assert_eq!(met(b"e", (3, 1), (13, 2)), with(b"d", FailureSide::Sink));
    // A name outside the tree does not matter.
    assert_eq!(met(b"f", (4, 2), (14, 1)), []);
    assert_eq!((links.of_source.len(), links.of_sink.len()), (1, 0), "nothing is kept of what is complete");
}

#[test]
fn holes_may_be_others_but_not_be_filled() {
    const SIZE: u64 = 1 << 20;
    let holes = |source_allocated, sink_allocated| {
        let side = |allocated_bytes| ExaminedEntryFacts {
            size: SIZE,
            ..sight(BrowsedKind::File, ComparedEntryMetadata { allocated_bytes, ..seen() })
        };
        all().compare(&mut ComparedHardLinks::default(), b"f", &side(source_allocated), &side(sink_allocated))
    };
    assert_eq!(holes(0, SIZE), [Holes { source: SIZE, sink: 0 }]);
    assert_eq!(holes(SIZE / 2, SIZE + 4_096), [Holes { source: SIZE / 2, sink: 0 }]);
    for (source, sink) in [(0, SIZE / 2), (SIZE, SIZE), (SIZE - 4_096, SIZE), (SIZE, 0)] {
        assert_eq!(holes(source, sink), [], "{source} {sink}");
    }
}
