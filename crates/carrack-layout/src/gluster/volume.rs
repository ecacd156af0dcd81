//! The description of a volume that its client has, and the distribution of directories' entries over bricks.
//!
//! Pure: bytes in, values out. GlusterFS keeps a file of a sharded volume as its first shard under the file's
//! name, and the others as `.shard/GFID.1`, `.shard/GFID.2`, ..., which are distributed like all entries of a
//! directory: each subvolume has a range of the hashes of names. No client may look into `.shard`; so its
//! ranges are computed by the rule for new directories, if that rule explains the ranges of the root.

use std::collections::HashMap;

use super::pathinfo::bricks_of;

/// Default of `features.shard-block-size`.
const SHARD_BYTES_DEFAULT: u64 = 64 << 20;

/// Default of `cluster.min-free-disk`.
const MIN_FREE_PERCENT_DEFAULT: u64 = 10;

/// Bound of the subvolumes of a volume.
const SUBVOLUMES_MAX: usize = 4_096;

/// The directory of the shards, from the root of the volume.
const SHARD_DIRECTORY: &str = "/.shard";

/// A volume, as its client's description (`volfile`) has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlusterVolume {
    /// Bytes of a shard of new files; none if files are whole.
    pub shard_bytes: Option<u64>,
    /// Percentage of free space below which a brick's new files go to other bricks.
    pub min_free_percent: u64,
    /// The parts over which files are distributed, sorted by their names.
    pub subvolumes: Vec<GlusterSubvolume>,
}

/// A part of a volume: a brick, or a set of bricks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlusterSubvolume {
    /// Its name: "v-client-0", "v-replicate-1".
    pub name: String,
    /// Host and directory of a single brick; none for a set.
    pub brick: Option<(String, String)>,
}

/// A translator of the description.
#[derive(Default)]
struct GlusterTranslator<'a> {
    kind: &'a str,
    options: HashMap<&'a str, &'a str>,
    subvolumes: Vec<&'a str>,
}

/// Parses a client's description of a volume; unknown lines are ignored.
pub fn parse_volfile(text: &str) -> GlusterVolume {
    let translators = parse_translators(text);
    let shard = translators.values().find(|translator| translator.kind == "features/shard");
    let distribute = translators.values().find(|translator| translator.kind == "cluster/distribute");
    let names = distribute.map_or(&[][..], |distribute| &distribute.subvolumes);
    let mut subvolumes: Vec<GlusterSubvolume> =
        names.iter().map(|name| subvolume(name, translators.get(name))).collect();
    subvolumes.sort_by(|first, second| first.name.cmp(&second.name));
    let min_free = distribute.and_then(|distribute| distribute.options.get("min-free-disk"));
    let min_free = min_free.and_then(|text| text.strip_suffix('%')?.trim().parse::<f64>().ok());
    GlusterVolume {
        min_free_percent: min_free.map_or(MIN_FREE_PERCENT_DEFAULT, |percent| percent.ceil() as u64),
        shard_bytes: shard.map(|shard| {
            let bytes = shard.options.get("shard-block-size").and_then(|text| parse_bytes(text));
            bytes.unwrap_or(SHARD_BYTES_DEFAULT)
        }),
        subvolumes,
    }
}

fn parse_translators(text: &str) -> HashMap<&str, GlusterTranslator<'_>> {
    let mut translators: HashMap<&str, GlusterTranslator<'_>> = HashMap::new();
    let mut name = "";
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("volume") => name = words.next().unwrap_or_default(),
            Some("type") => translators.entry(name).or_default().kind = words.next().unwrap_or_default(),
            Some("option") => {
                let key = words.next().unwrap_or_default();
                translators.entry(name).or_default().options.insert(key, words.next().unwrap_or_default());
            }
            Some("subvolumes") => {
                translators.entry(name).or_default().subvolumes = words.take(SUBVOLUMES_MAX).collect();
            }
            _ => {}
        }
    }
    translators
}

fn subvolume(name: &str, translator: Option<&GlusterTranslator<'_>>) -> GlusterSubvolume {
    let client = translator.filter(|translator| translator.kind == "protocol/client");
    let option = |key| client.and_then(|client| client.options.get(key)).map(|value| (*value).to_owned());
    let brick = option("remote-host").zip(option("remote-subvolume"));
    GlusterSubvolume { name: name.to_owned(), brick }
}

/// Parses a size as GlusterFS does: a number, and KB, MB, GB or TB of powers of 1,024.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// The ranges of hashes of the shards' directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlusterShardRanges {
    /// The first hash of each range, rising from 0, and the index of its subvolume.
    starts: Vec<(u32, usize)>,
}

impl GlusterShardRanges {
    /// Computes the ranges from the `pathinfo` of the volume's root; none if the root's ranges are not those
    /// of a new directory, as after bricks were added or removed.
    pub fn of_root(volume: &GlusterVolume, root: &str) -> Option<GlusterShardRanges> {
        let mut ranges = root_ranges(root)?;
        ranges.sort();
        let names = ranges.iter().map(|(name, ..)| *name);
        if ranges.is_empty() || !names.eq(volume.subvolumes.iter().map(|subvolume| &*subvolume.name)) {
            return None;
        }
        let sizes = range_sizes(&ranges)?;
        let told: Vec<u32> = ranges.iter().map(|(_, start, _)| *start).collect();
        let starts = starts_of_new("/", &sizes);
        let explained = starts.iter().all(|(start, index)| told[*index] == *start);
        explained.then(|| GlusterShardRanges { starts: starts_of_new(SHARD_DIRECTORY, &sizes) })
    }

    /// The index of the subvolume that has a shard after the first of the file with this GFID.
    pub fn subvolume_of(&self, gfid: &str, shard: u64) -> usize {
        let hash = name_hash(format!("{gfid}.{shard}").as_bytes());
        let behind = self.starts.partition_point(|(start, _)| *start <= hash);
        self.starts[behind.saturating_sub(1)].1
    }
}

/// The ranges in `... (v-dht-layout (v-client-0 0 2147483646) (v-client-1 2147483647 4294967295)))`.
fn root_ranges(root: &str) -> Option<Vec<(&str, u32, u32)>> {
    let (_, ranges) = root.rsplit_once("-layout ")?;
    let items = ranges.split(['(', ')', '\0']).map(str::trim).filter(|item| !item.is_empty());
    let items = items.take(SUBVOLUMES_MAX).map(|item| {
        let mut words = item.split(' ');
        Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    });
    items.collect()
}

/// The number of hashes of each range. The last range has the remainder of the division, too, which is left
/// out if the others are equal.
fn range_sizes(ranges: &[(&str, u32, u32)]) -> Option<Vec<u32>> {
    let sizes = ranges.iter().map(|(_, start, stop)| stop.checked_sub(*start)?.checked_add(1));
    // A single range has all 2^32 hashes.
    let mut sizes: Vec<u32> =
        if ranges.len() == 1 { vec![u32::MAX] } else { sizes.collect::<Option<_>>()? };
    let last = ranges.iter().position(|(_, _, stop)| *stop == u32::MAX)?;
    let mut others = sizes.iter().enumerate().filter(|(index, _)| *index != last).map(|(_, size)| *size);
    if let Some(first) = others.next()
        && others.all(|size| size == first)
        && sizes[last].abs_diff(first) <= ranges.len() as u32
    {
        sizes[last] = first;
    }
    Some(sizes)
}

/// The first hash of each subvolume's range in a new directory: they follow each other from the subvolume
/// that the hash of the path chooses.
fn starts_of_new(path: &str, sizes: &[u32]) -> Vec<(u32, usize)> {
    let first = name_hash(path.as_bytes()) as usize % sizes.len();
    let order = (first..sizes.len()).chain(0..first);
    let mut next = 0u32;
    order
        .map(|index| {
            let start = next;
            next = next.saturating_add(sizes[index]);
            (start, index)
        })
        .collect()
}

/// The label of a subvolume's files, and its host, as the `pathinfo` of a file names them; none if the bricks
/// of the root, which it is looked up in, don't tell.
pub fn place_of(subvolume: &GlusterSubvolume, root: &str) -> Option<(String, Option<String>)> {
    let Some((host, directory)) = &subvolume.brick else { return Some((subvolume.name.clone(), None)) };
    let bricks = bricks_of(root.as_bytes());
    let alike: Vec<_> = bricks.iter().filter(|(_, brick)| brick == directory).collect();
    // A description may have the address of a host that has a name.
    let [(named, _)] = alike[..] else {
        let named = alike.iter().find(|(named, _)| first_label(named) == first_label(host));
        return named.map(|(named, brick)| (format!("{named}:{brick}"), Some(named.clone())));
    };
    Some((format!("{named}:{directory}"), Some(named.clone())))
}

fn first_label(host: &str) -> &str {
    let is_address = host.starts_with(|char: char| char.is_ascii_digit()) || host.contains(':');
    if is_address { host } else { host.split('.').next().unwrap_or(host) }
}

/// The hash of a name: Davies-Meyer over TEA (`libglusterfs/src/hashfn.c`).
fn name_hash(name: &[u8]) -> u32 {
    const FULL_ROUNDS: u32 = 10;
    const PART_ROUNDS: u32 = 6;
    let mut state = (0x9464_A485, 0x542E_1A94);
    let (blocks, rest) = name.as_chunks::<16>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        let mut array = [0; 4];
        array.iter_mut().zip(words).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
        mix(PART_ROUNDS, array, &mut state);
    }
    let length = name.len() as u32;
    let pad = length | length << 8;
    let mut array = [pad | pad << 16; 4];
    let (words, bytes) = rest.as_chunks::<4>();
    array.iter_mut().zip(words).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
    for byte in bytes {
        // A `char` is signed.
        array[words.len()] = array[words.len()] << 8 | i32::from(*byte as i8) as u32;
    }
    mix(FULL_ROUNDS, array, &mut state);
    state.0 ^ state.1
}

fn mix(rounds: u32, [a, b, c, d]: [u32; 4], state: &mut (u32, u32)) {
    const DELTA: u32 = 0x9E37_79B9;
    let (mut first, mut second, mut sum) = (state.0, state.1, 0u32);
    for _ in 0..rounds {
        sum = sum.wrapping_add(DELTA);
        let turn = |half: u32, left: u32, right: u32| {
            (half << 4).wrapping_add(left) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(right)
        };
        first = first.wrapping_add(turn(second, a, b));
        second = second.wrapping_add(turn(first, c, d));
    }
    *state = (state.0.wrapping_add(first), state.1.wrapping_add(second));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GFID: &str = "4a0b3f6e-3f0c-4c0b-9a53-1c0a9f2f7f11";

    /// A client's description of a volume over `count` bricks, with or without shards.
    fn volfile(count: usize, shard: &str) -> String {
        let clients = (0..count).map(|number| {
            format!(
                "volume v-client-{number}\n    type protocol/client\n    option remote-host 10.0.0.{number}\n    \
                 option remote-subvolume /b{number}\n    option transport-type tcp\nend-volume\n\n"
            )
        });
        let names: Vec<String> = (0..count).rev().map(|number| format!("v-client-{number}")).collect();
        let distribute = format!(
            "volume v-dht\n    type cluster/distribute\n    subvolumes {}\nend-volume\n",
            names.join(" ")
        );
        let shards =
            format!("volume v-shard\n    type features/shard\n{shard}    subvolumes v-dht\nend-volume\n");
        clients.chain([distribute, if shard.is_empty() { String::new() } else { shards }]).collect()
    }

    /// The `pathinfo` of the root of that volume, with ranges as of a new directory.
    fn root(count: u32) -> String {
        let size = u32::MAX / count;
        let ranges = (0..count).map(|number| {
            let stop = if number + 1 == count { u32::MAX } else { (number + 1) * size - 1 };
            format!("(v-client-{number} {} {stop})", number * size)
        });
        let bricks = (0..count).map(|number| format!("<POSIX(/b{number}):host{number}:/b{number}/>"));
        let [bricks, ranges] = [bricks.collect::<Vec<_>>(), ranges.collect()].map(|items| items.join(" "));
        format!("((<DISTRIBUTE:v-dht> {bricks}) (v-dht-layout {ranges}))\0")
    }

    #[test]
    fn names_have_the_hashes_of_glusterfs() {
        for (name, hash) in [
            ("/", 0x8619_BD58),
            ("/.shard", 0xD539_E092),
            ("a", 0x3A17_E4E6),
            ("f.1", 0x0972_258D),
            ("0123456789abcdef", 0x6ECB_5ADA),
            ("4a0b3f6e-3f0c-4c0b-9a53-1c0a9f2f7f11.7", 0x6BC3_540F),
        ] {
            assert_eq!(name_hash(name.as_bytes()), hash, "{name}");
        }
    }

    #[test]
    fn a_description_has_the_shards_and_the_bricks() {
        let volume = parse_volfile(&volfile(3, "    option shard-block-size 4MB\n"));
        let expected = ["0", "1", "2"].map(|number| GlusterSubvolume {
            name: format!("v-client-{number}"),
            brick: Some((format!("10.0.0.{number}"), format!("/b{number}"))),
        });
        assert_eq!((volume.shard_bytes, &volume.subvolumes[..]), (Some(4 << 20), &expected[..]));
        let bytes = |text: &str| parse_volfile(&volfile(1, text)).shard_bytes;
        let full = volfile(1, "").replace("    subvolumes", "    option min-free-disk 1%\n    subvolumes");
        assert_eq!((volume.min_free_percent, parse_volfile(&full).min_free_percent), (10, 1));
        assert_eq!((bytes(""), bytes("    option strict-o-direct on\n")), (None, Some(64 << 20)));
        let set = "volume v-replicate-0\ntype cluster/replicate\nsubvolumes v-client-0\nend-volume\n\
                   volume v-dht\ntype cluster/distribute\nsubvolumes v-replicate-0\nend-volume\n";
        let [set] = &parse_volfile(set).subvolumes[..] else { panic!("one set") };
        assert_eq!(place_of(set, ""), Some(("v-replicate-0".to_owned(), None)));
    }

    #[test]
    fn shards_lie_in_the_range_of_their_name() {
        let volume = parse_volfile(&volfile(4, "    option shard-block-size 4MB\n"));
        let ranges = GlusterShardRanges::of_root(&volume, &root(4)).unwrap();
        // The ranges of the shards begin with the third brick; a quarter has 0x3FFFFFFF hashes.
        let expected = [(0, 2), (0x3FFF_FFFF, 3), (0x7FFF_FFFE, 0), (0xBFFF_FFFD, 1)];
        assert_eq!(ranges.starts, expected);
        assert_eq!(ranges.subvolume_of(GFID, 7), 3, "0x6BC3540F");
        let place = place_of(&volume.subvolumes[3], &root(4));
        assert_eq!(place, Some(("host3:/b3".to_owned(), Some("host3".to_owned()))));
    }

    #[test]
    fn a_volume_that_was_changed_is_not_computed() {
        let volume = parse_volfile(&volfile(4, "    option shard-block-size 4MB\n"));
        let swapped = root(4).replace("v-client-0 ", "x ").replace("v-client-1 ", "v-client-0 ");
        let swapped = swapped.replace("(x ", "(v-client-1 ");
        for root in [root(3), root(5), swapped, root(4).replace("1073741823", "1073741824"), String::new()] {
            assert_eq!(GlusterShardRanges::of_root(&volume, &root), None, "{root}");
        }
        assert_eq!(GlusterShardRanges::of_root(&GlusterVolume::default(), &root(1)), None);
    }

    #[test]
    fn bricks_of_one_path_are_told_apart_by_their_hosts() {
        let root = "(<POSIX(/b):node1:/b/> <POSIX(/b):node2:/b/> <POSIX(/c):10.0.0.7:/c/>)";
        let place = |host: &str, brick: &str| {
            let brick = Some((host.to_owned(), brick.to_owned()));
            place_of(&GlusterSubvolume { name: "v-client-0".into(), brick }, root).map(|(label, _)| label)
        };
        assert_eq!(place("node2.example", "/b").as_deref(), Some("node2:/b"));
        assert_eq!(place("10.0.0.2", "/b"), None);
        assert_eq!(place("anything", "/c").as_deref(), Some("10.0.0.7:/c"));
        assert_eq!(place("node1", "/none"), None);
    }

    proptest! {
        #[test]
        fn every_shard_has_a_subvolume(count in 1..40u32, shard: u64, text in ".{0,200}") {
            let volume = parse_volfile(&volfile(count as usize, "    option shard-block-size 4MB\n"));
            // More than ten bricks are sorted by name, not by number: the root's ranges then differ.
            if let Some(ranges) = GlusterShardRanges::of_root(&volume, &root(count)) {
                prop_assert!(ranges.subvolume_of(GFID, shard) < count as usize);
            }
            parse_volfile(&text);
            prop_assert!(GlusterShardRanges::of_root(&volume, &text).is_none());
        }
    }
}
