//! Blobs of every kind, built byte by byte after the tables of `lustre_user.h`, in both byte orders.

use std::os::fd::AsFd;
use std::sync::Arc;

use proptest::prelude::*;

use super::LustreFileTargets;
use super::blob::{LovComponent, LovError, LovFile, parse_lov};
use super::mirror_choice::resolve_layout;
use super::servers::{LustreConnections, tests as server_tests};
use crate::StripePattern;
use crate::TargetAttachmentKind;
use crate::file_ref::LayoutQueryFile;
use crate::provider::FoundLayout;
use crate::target::TargetLabelAndName;
use crate::target_registry::{FileSystemTargets, TargetKey, TargetRegistry};

const V1: u32 = 0x0BD1_0BD0;
const V3: u32 = 0x0BD3_0BD0;
const SPECIFIC: u32 = 0x0BD5_0BD0;
const COMPOSITE: u32 = 0x0BD6_0BD0;
const FOREIGN: u32 = 0x0BD7_0BD0;
const SEL: u32 = 0x0BD8_0BD0;

const RAID0: u32 = 1;
const MDT: u32 = 0x100;
const MIB: u64 = 1 << 20;

/// Writes integers in one byte order.
#[derive(Clone, Copy)]
struct LovWriter {
    is_big: bool,
}

/// A component: id, flags, range, blob.
type TestLayoutComponent<'a> = (u32, u32, (u64, u64), &'a [u8]);

impl LovWriter {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// `lov_user_md_v1` or `_v3` with one object on each of `osts`.
    fn stripes(self, magic: u32, pattern: u32, stripe_bytes: u64, count: u16, osts: &[u32]) -> Vec<u8> {
        let mut blob = Vec::new();
        blob.extend(self.u32(magic));
        blob.extend(self.u32(pattern));
        blob.extend(self.u64(0x1234)); // lmm_oi: id
        blob.extend(self.u64(0x2_0000_0402)); // and sequence
        blob.extend(self.u32(stripe_bytes as u32));
        blob.extend(self.u16(count));
        blob.extend(self.u16(7)); // layout generation
        if magic != V1 {
            blob.extend(b"flash\0\0\0\0\0\0\0\0\0\0\0");
        }
        for (number, ost) in osts.iter().enumerate() {
            blob.extend(self.u64(0x5000 + number as u64)); // l_ost_oi
            blob.extend(self.u64(0));
            blob.extend(self.u32(0)); // generation
            blob.extend(self.u32(*ost));
        }
        blob
    }

    /// `lov_comp_md_v1` with its entries and their blobs.
    fn composite(self, magic: u32, mirrors: u16, parts: &[TestLayoutComponent<'_>]) -> Vec<u8> {
        let blobs = 32 + 48 * parts.len();
        let size = blobs + parts.iter().map(|part| part.3.len()).sum::<usize>();
        let mut blob = Vec::new();
        blob.extend(self.u32(magic));
        blob.extend(self.u32(size as u32));
        blob.extend(self.u32(3)); // generation
        blob.extend(self.u16(0)); // flags
        blob.extend(self.u16(parts.len() as u16));
        blob.extend(self.u16(mirrors - 1));
        blob.extend([0; 14]); // EC count and padding
        let mut offset = blobs;
        for (id, flags, (start, end), part) in parts {
            blob.extend(self.u32(*id));
            blob.extend(self.u32(*flags));
            blob.extend(self.u64(*start));
            blob.extend(self.u64(*end));
            blob.extend(self.u32(offset as u32));
            blob.extend(self.u32(part.len() as u32));
            blob.extend([0; 16]); // generation, time, mirror link, EC and compression
            offset += part.len();
        }
        parts.iter().for_each(|part| blob.extend(part.3));
        blob
    }
}

const ORDERS: [LovWriter; 2] = [LovWriter { is_big: false }, LovWriter { is_big: true }];

struct LayoutFixture {
    registry: Arc<TargetRegistry>,
    pieces: FileSystemTargets,
    connections: LustreConnections,
}

impl LayoutFixture {
    /// A file system whose client lists no connections.
    fn new() -> LayoutFixture {
        LayoutFixture::with(LustreConnections::of_client(None))
    }

    fn with(connections: LustreConnections) -> LayoutFixture {
        let registry = Arc::new(TargetRegistry::default());
        let own = registry
            .get_or_insert(
                TargetKey::FileSystem(5),
                || TargetLabelAndName::new("/lustre", None),
                TargetAttachmentKind::Network,
                1,
            )
            .unwrap();
        let pieces = FileSystemTargets::new(registry.clone(), 5, &own, None);
        LayoutFixture { registry, pieces, connections }
    }

    fn place(&self, blob: &[u8], size: u64) -> FoundLayout {
        let any_file = tempfile::tempfile().unwrap();
        let file = &LayoutQueryFile::Open(any_file.as_fd());
        let targets = LustreFileTargets { file, pieces: &self.pieces, connections: &self.connections };
        resolve_layout(&parse_lov(blob).unwrap(), size, &targets)
    }

    /// The label of the target at each of `offsets`.
    fn labels(&self, found: &FoundLayout, offsets: &[u64]) -> Vec<String> {
        let layout = found.layout.as_ref().unwrap();
        let targets = offsets.iter().map(|&offset| layout.extent_at(offset).target);
        targets.map(|id| self.registry.get(id).unwrap().label.to_string()).collect()
    }
}

#[test]
fn plain_stripes_go_round_their_osts() {
    for writer in ORDERS {
        for magic in [V1, V3, SPECIFIC] {
            let site = LayoutFixture::new();
            let found = site.place(&writer.stripes(magic, RAID0, MIB, 3, &[7, 0x1f, 2]), 100 * MIB);
            assert_eq!(
                site.labels(&found, &[0, MIB, 2 * MIB, 3 * MIB]),
                ["OST0007", "OST001f", "OST0002", "OST0007"]
            );
            assert_eq!(found.layout.unwrap().extent_at(MIB + 5).end, 2 * MIB);
            assert_eq!((found.is_released, found.problem), (false, None));
            let geometry = found.geometry.unwrap();
            let component = &geometry.components[0];
            assert_eq!((component.stripe_count, component.stripe_bytes), (3, MIB));
            assert_eq!(component.pool.as_deref(), (magic != V1).then_some("flash"));
        }
    }
}

#[test]
fn an_overstriped_target_is_one_target() {
    let site = LayoutFixture::new();
    let found = site.place(&ORDERS[0].stripes(V3, RAID0 | 0x200, MIB, 4, &[1, 2, 1, 2]), MIB);
    assert_eq!(found.layout.as_ref().unwrap().targets().len(), 2);
    assert_eq!(found.geometry.unwrap().components[0].pattern, StripePattern::Overstriped);
}

#[test]
fn a_progressive_file_with_data_on_the_mdt() {
    for writer in ORDERS {
        let site = LayoutFixture::new();
        let on_mdt = writer.stripes(V1, MDT, MIB, 0, &[]);
        let narrow = writer.stripes(V3, RAID0, MIB, 1, &[3]);
        let wide = writer.stripes(V3, RAID0, 4 * MIB, 2, &[4, 5]);
        let later = writer.stripes(V3, RAID0, 4 * MIB, 0xffff, &[]);
        let blob = writer.composite(
            COMPOSITE,
            1,
            &[
                (1, 0x10, (0, MIB), &on_mdt),
                (2, 0x10, (MIB, 16 * MIB), &narrow),
                (3, 0x10, (16 * MIB, 64 * MIB), &wide),
                (4, 0, (64 * MIB, u64::MAX), &later),
            ],
        );
        let found = site.place(&blob, 64 * MIB);
        assert_eq!(
            site.labels(&found, &[0, MIB, 15 * MIB, 16 * MIB, 20 * MIB, 60 * MIB]),
            ["MDT", "OST0003", "OST0003", "OST0004", "OST0005", "OST0005"]
        );
        assert_eq!((&found.problem, found.is_released), (&None, false));
        let geometry = found.geometry.unwrap();
        assert_eq!(geometry.components.len(), 4);
        assert_eq!(geometry.widest().unwrap().stripe_count, u32::MAX);
        // Data in a range without objects: the layout has changed since.
        let found = site.place(&blob, 65 * MIB);
        assert!(found.problem.unwrap().starts_with("1048576 bytes"));
    }
}

#[test]
fn targets_have_the_servers_that_the_client_is_connected_with() {
    let lists = server_tests::lists();
    let site = LayoutFixture::with(server_tests::connections(&lists, Some("lfs")));
    let writer = ORDERS[0];
    let (on_mdt, rest) =
        (writer.stripes(V1, MDT, MIB, 0, &[]), writer.stripes(V1, RAID0, MIB, 3, &[1, 10, 4]));
    let parts: [TestLayoutComponent<'_>; 2] =
        [(1, 0x10, (0, MIB), &on_mdt), (2, 0x10, (MIB, u64::MAX), &rest)];
    let found = site.place(&writer.composite(COMPOSITE, 1, &parts), 9 * MIB);
    let targets = found.layout.as_ref().unwrap().targets().iter();
    let named = targets.map(|id| site.registry.get(*id).unwrap()).map(|target| {
        let server = target.server.map_or_else(String::new, |server| server.name.to_string());
        format!("{} {server}", target.label)
    });
    let expected = ["MDT0000 10.0.0.1@tcp", "OST0001 10.0.0.2@tcp", "OST000a 10.0.0.3@tcp", "OST0004 "];
    assert_eq!(named.collect::<Vec<_>>(), expected);
}

#[test]
fn room_for_growth_holds_nothing() {
    let site = LayoutFixture::new();
    let writer = ORDERS[0];
    let (first, rest) = (writer.stripes(V1, RAID0, MIB, 1, &[1]), writer.stripes(V1, RAID0, MIB, 1, &[]));
    let parts: [TestLayoutComponent<'_>; 2] =
        [(1, 0x10, (0, 64 * MIB), &first), (2, 0x40, (64 * MIB, u64::MAX), &rest)];
    let found = site.place(&writer.composite(SEL, 1, &parts), 10 * MIB);
    assert_eq!(site.labels(&found, &[0]), ["OST0001"]);

    // As `lfs setstripe -E 128M -c 1 -z 64M -E -1 -c 4 -z 64M` makes it: behind the room for growth a
    // component without bytes, and its own room.
    let growing: [TestLayoutComponent<'_>; 4] = [
        (1, 0x10, (0, 64 * MIB), &first),
        (2, 0x40, (64 * MIB, 128 * MIB), &rest),
        (3, 0, (128 * MIB, 128 * MIB), &rest),
        (4, 0x40, (128 * MIB, u64::MAX), &rest),
    ];
    let found = site.place(&writer.composite(SEL, 1, &growing), 10 * MIB);
    assert!(found.problem.is_none() && !found.is_foreign);
    assert_eq!(site.labels(&found, &[0]), ["OST0001"]);
    let shape: Vec<_> =
        found.geometry.unwrap().components.into_iter().map(|c| (c.start, c.end, c.pattern)).collect();
    let extending = StripePattern::Extending;
    assert_eq!(shape, [(0, 64 * MIB, extending), (128 * MIB, u64::MAX, extending)]);
    assert_eq!(found.problem, None);
}

#[test]
fn one_whole_mirror_is_read() {
    let site = LayoutFixture::new();
    let writer = ORDERS[1];
    let [a, b, c] = [1, 2, 3].map(|ost| writer.stripes(V1, RAID0, MIB, 1, &[ost]));
    let blobs = [(0x1_0001, &a), (0x2_0002, &b), (0x3_0003, &c)];
    let [init, stale, preferred, offline, parity] = [0x10, 0x11, 0x12, 0x18, 0x90];
    for (flags, ost) in [
        ([init, init, init], "OST0001"),
        ([stale, init, init], "OST0002"),
        ([init, init, preferred], "OST0003"),
        ([init, offline, preferred | 1], "OST0001"),
        ([parity, init, 0], "OST0002"),
    ] {
        let parts = [0, 1, 2].map(|i| (blobs[i].0, flags[i], (0, u64::MAX), &blobs[i].1[..]));
        let found = site.place(&writer.composite(COMPOSITE, 3, &parts), 5 * MIB);
        assert_eq!(site.labels(&found, &[0, 4 * MIB]), [ost, ost]);
        assert_eq!(found.problem, None);
    }
    let flags = [stale, offline, 0];
    let parts = [0, 1, 2].map(|i| (blobs[i].0, flags[i], (0, u64::MAX), &blobs[i].1[..]));
    let found = site.place(&writer.composite(COMPOSITE, 3, &parts), 5 * MIB);
    assert!(found.layout.is_none() && found.problem.is_some());
    assert_eq!(found.geometry.unwrap().mirrors, 3);
}

#[test]
fn a_hole_between_components_is_the_file_systems() {
    let site = LayoutFixture::new();
    let writer = ORDERS[0];
    let (a, b) = (writer.stripes(V1, RAID0, MIB, 1, &[1]), writer.stripes(V1, RAID0, MIB, 1, &[2]));
    let parts: [TestLayoutComponent<'_>; 2] =
        [(2, 0x10, (4 * MIB, 8 * MIB), &b), (1, 0x10, (MIB, 2 * MIB), &a)];
    let found = site.place(&writer.composite(COMPOSITE, 1, &parts), 8 * MIB);
    assert_eq!(
        site.labels(&found, &[0, MIB, 2 * MIB, 4 * MIB]),
        ["/lustre", "OST0001", "/lustre", "OST0002"]
    );
    assert!(found.problem.unwrap().starts_with("3145728 bytes"));
}

#[test]
fn released_and_foreign_files_have_no_place() {
    for writer in ORDERS {
        let site = LayoutFixture::new();
        let released = writer.stripes(V1, RAID0 | 0x8000_0000, MIB, 2, &[]);
        let found = site.place(&released, MIB);
        assert!(found.is_released && found.layout.is_none() && found.problem.is_none());
        assert_eq!(found.geometry.unwrap().components[0].stripe_count, 2);
        let parts: [TestLayoutComponent<'_>; 1] = [(1, 0x10, (0, u64::MAX), &released)];
        assert!(site.place(&writer.composite(COMPOSITE, 1, &parts), MIB).is_released);
        let mut foreign = writer.u32(FOREIGN).to_vec();
        foreign.extend(writer.u32(4));
        foreign.extend([0; 12]);
        assert!(site.place(&foreign, MIB).problem.is_some());
        let parts: [TestLayoutComponent<'_>; 1] = [(1, 0x10, (0, u64::MAX), &foreign)];
        assert!(site.place(&writer.composite(COMPOSITE, 1, &parts), MIB).layout.is_none());
    }
}

#[test]
fn an_empty_file_without_objects_is_no_problem() {
    let site = LayoutFixture::new();
    let found = site.place(&ORDERS[0].stripes(V3, RAID0, MIB, 2, &[]), 0);
    assert!(found.layout.is_none() && found.problem.is_none());
    let found = site.place(&ORDERS[0].composite(COMPOSITE, 1, &[]), 0);
    assert!(found.layout.is_none() && found.problem.is_none());
}

#[test]
fn lies_are_refused() {
    let writer = ORDERS[0];
    let good = writer.stripes(V1, RAID0, MIB, 2, &[1, 2]);
    for len in (0..good.len()).filter(|&len| len != 32) {
        assert_eq!(parse_lov(&good[..len]), Err(LovError::CutOff), "{len}");
    }
    assert_eq!(parse_lov(b"user"), Err(LovError::UnknownMagic(u32::from_le_bytes(*b"user"))));
    let many = writer.stripes(V1, RAID0, MIB, 2_001, &[1]);
    assert_eq!(parse_lov(&many), Err(LovError::TooManyStripes(2_001)));
    assert_eq!(parse_lov(&writer.stripes(V1, RAID0, 0, 1, &[1])), Err(LovError::NoStripeSize));
    let backwards = writer.composite(COMPOSITE, 1, &[(1, 0x10, (6, 5), &good)]);
    assert_eq!(parse_lov(&backwards), Err(LovError::BadRange));
    let forwards = writer.composite(COMPOSITE, 1, &[(1, 0x10, (5, 6), &good)]);
    assert!(matches!(parse_lov(&forwards), Ok(LovFile::Composite(_))));
    // A component that contains the whole value again.
    let mut nested = writer.composite(COMPOSITE, 1, &[(1, 0x10, (0, 5), &good)]);
    nested[32 + 24..32 + 28].fill(0);
    assert_eq!(parse_lov(&nested), Err(LovError::Nested));
}

#[test]
fn components_that_share_objects_are_bounded() {
    let writer = ORDERS[0];
    let wide = writer.stripes(V1, RAID0, MIB, 1_000, &[1; 1_000]);
    let mut parts: Vec<TestLayoutComponent<'_>> = vec![(1, 0x10, (0, 1), &wide)];
    parts.extend((1..300).map(|n| (n, 0x10, (u64::from(n), u64::from(n) + 1), &[][..])));
    let mut blob = writer.composite(COMPOSITE, 1, &parts);
    let place = blob[32 + 24..32 + 32].to_vec();
    (0..300).for_each(|n| blob[32 + 48 * n + 24..32 + 48 * n + 32].copy_from_slice(&place));
    assert_eq!(parse_lov(&blob), Err(LovError::Nested));
}

proptest! {
    #[test]
    fn anything_is_placed_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        magic in proptest::sample::select(vec![V1, V3, SPECIFIC, COMPOSITE, FOREIGN, SEL]),
        count in 0u16..6,
        size: u64,
    ) {
        if bytes.len() >= 32 {
            bytes[..4].copy_from_slice(&magic.to_le_bytes());
            bytes[14..16].copy_from_slice(&count.to_le_bytes());
        }
        if parse_lov(&bytes).is_ok() {
            let found = LayoutFixture::new().place(&bytes, size);
            if let Some(layout) = found.layout {
                for offset in [0, 1, size / 2, size.min(u64::MAX - 1)] {
                    prop_assert!(layout.extent_at(offset).end > offset);
                }
            }
        }
    }

    #[test]
    fn every_byte_lies_in_the_component_that_holds_it(
        lens in proptest::collection::vec((1u64..50, 1usize..4, any::<bool>()), 1..8),
        is_big: bool,
    ) {
        let writer = LovWriter { is_big };
        let (mut start, mut ost, mut blobs) = (0, 0, Vec::new());
        for (len, count, has_objects) in &lens {
            let osts: Vec<u32> = (ost..ost + *count as u32).collect();
            ost += *count as u32;
            let flags = if *has_objects { LovComponent::INIT } else { 0 };
            let osts = if *has_objects { osts } else { vec![] };
            let range = (start * MIB, (start + len) * MIB);
            blobs.push((flags, range, osts.clone(), writer.stripes(V1, RAID0, MIB, *count as u16, &osts)));
            start += len;
        }
        let parts: Vec<TestLayoutComponent<'_>> =
            blobs.iter().zip(1..).map(|((flags, range, _, blob), id)| (id, *flags, *range, &blob[..])).collect();
        let site = LayoutFixture::new();
        let found = site.place(&writer.composite(COMPOSITE, 1, &parts), start * MIB);
        let Some(layout) = found.layout else { return Ok(()) };
        for (_, range, osts, _) in blobs.iter().filter(|(_, _, osts, _)| !osts.is_empty()) {
            for offset in (range.0..range.1).step_by(MIB as usize) {
                let ost = osts[(offset / MIB) as usize % osts.len()];
                let target = site.registry.get(layout.extent_at(offset).target).unwrap();
                prop_assert_eq!(&*target.label, format!("OST{ost:04x}"));
            }
        }
    }
}
