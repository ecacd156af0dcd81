//! A tree with everything that a copy can lose.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Timespec, Timestamps, UTIME_OMIT, XattrFlags, lremovexattr, lsetxattr, utimensat,
};

use super::specials::node;
use crate::common::tree::{noise, plant_rich};

/// Owners without accounts.
const NOBODYS: [(u32, u32); 4] = [(1, 1), (54_321, 54_322), (0, 54_323), (u32::MAX - 1, 0)];

/// Plants all metadata that root can set on this file system. Times come last.
pub fn plant(root: &Path) {
    plant_rich(root);
    plant_owners(&root.join("owners"));
    plant_attributes(&root.join("attributes"));
    plant_acls(&root.join("acls"));
    plant_set_id(&root.join("set-id"));
    plant_holes(&root.join("holes"));
    plant_small_holes(&root.join("small-holes"));
    plant_hard_links(&root.join("hard-links"));
    plant_specials(&root.join("specials"));
    plant_times(&root.join("times"));
}

/// Changes only owners, attributes and ACLs at either end: some are added, removed, or changed.
pub fn change_extras(tree: &Path, copy: &Path) {
    let set = |path: &Path, name: &str, value: &[u8]| {
        let _ = lsetxattr(path, name, value, XattrFlags::empty());
    };
    let remove = |path: &Path, name: &str| {
        let _ = lremovexattr(path, name);
    };
    set(&tree.join("attributes/255-2000000"), "user.size2", b"another");
    set(&tree.join("attributes/3000-10"), "user.new", &noise(2_000));
    remove(&tree.join("attributes/257-0"), "user.size4");
    set(&copy.join("attributes/1-0"), "user.only-there", b"value");
    set(&copy.join("attributes"), "user.only-there", b"value");
    set(&tree.join("attributes"), "user.of-the-root", b"another");
    remove(&tree.join("acls/large"), "system.posix_acl_access");
    remove(&copy.join("acls/file"), "system.posix_acl_access");
    remove(&tree.join("acls/directory"), "system.posix_acl_default");
    for name in ["file1", "link1", "directory1"] {
        lchown(tree.join("owners").join(name), Some(7), Some(8)).unwrap();
    }
    // Without an ACL the mode's group bits are no longer those of the mask.
    for path in [tree, copy] {
        fs::set_permissions(path.join("owners/file1"), Permissions::from_mode(0o640)).unwrap();
    }
}

/// Gives a directory an ACL for its new entries; returns false if that is not possible.
pub fn share_by_default(directory: &Path) -> bool {
    let entries =
        [(1, 7, u32::MAX), (2, 7, 54_321), (4, 7, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    lsetxattr(directory, "system.posix_acl_default", &acl(&entries), XattrFlags::empty()).is_ok()
}

fn plant_owners(root: &Path) {
    fs::create_dir(root).unwrap();
    for (number, (uid, gid)) in NOBODYS.into_iter().enumerate() {
        let (file, large) = (root.join(format!("file{number}")), root.join(format!("large{number}")));
        let (link, directory) = (root.join(format!("link{number}")), root.join(format!("directory{number}")));
        fs::write(&file, "somebody's").unwrap();
        fs::write(&large, noise(3_000_000)).unwrap();
        std::os::unix::fs::symlink("somewhere", &link).unwrap();
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("inside"), "of another's directory").unwrap();
        for path in [file, large, link, directory] {
            lchown(path, Some(uid), Some(gid)).unwrap();
        }
    }
}

/// Plants names, and values of all sizes up to `limit`, on all entries that can have them. Values that the
/// file system refuses are left out.
fn plant_attributes(root: &Path) {
    fs::create_dir(root).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        // Not every file system has attributes, or such large ones.
        let _ = lsetxattr(path, name, value, XattrFlags::empty());
    };
    for (number, size) in [0, 1, 255, 256, 257, 3_000, 30_000, 65_536].into_iter().enumerate() {
        for bytes in [0, 10, 2_000_000] {
            let path = root.join(format!("{size}-{bytes}"));
            fs::write(&path, noise(bytes)).unwrap();
            set(&path, &format!("user.size{number}"), &noise(size));
        }
    }
    let (many, longest) = (root.join("many"), root.join("longest"));
    fs::write(&many, "many").unwrap();
    (0..20).for_each(|number| set(&many, &format!("user.{number}"), b"value"));
    fs::write(&longest, "longest").unwrap();
    set(&longest, &format!("user.{}", "n".repeat(250)), b"a name of 255 bytes");
    for (name, mode) in [("read-only", 0o444), ("closed", 0o000)] {
        let path = root.join(name);
        fs::write(&path, name).unwrap();
        set(&path, "user.comment", name.as_bytes());
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let (link, directory) = (root.join("link"), root.join("directory"));
    std::os::unix::fs::symlink("many", &link).unwrap();
    set(&link, "trusted.of-a-link", b"value");
    fs::create_dir(&directory).unwrap();
    set(&directory, "user.of-a-directory", &noise(1_000));
    set(&directory, "trusted.of-a-directory", b"value");
    fs::set_permissions(&directory, Permissions::from_mode(0o555)).unwrap();
    set(root, "user.of-the-root", b"value");
}

/// Encodes as in `linux/posix_acl_xattr.h`: version 2, then tag, permissions and number of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn plant_acls(root: &Path) {
    const NOBODY: u32 = u32::MAX;
    // Owner, a user, the group, the mask, the others.
    let value = acl(&[(1, 6, NOBODY), (2, 7, 54_321), (4, 4, NOBODY), (0x10, 5, NOBODY), (0x20, 0, NOBODY)]);
    fs::create_dir(root).unwrap();
    let (file, large, directory) = (root.join("file"), root.join("large"), root.join("directory"));
    fs::write(&file, "shared").unwrap();
    fs::write(&large, noise(2_000_000)).unwrap();
    fs::create_dir(&directory).unwrap();
    for path in [&file, &large, &directory] {
        let _ = lsetxattr(path, "system.posix_acl_access", &value, XattrFlags::empty());
    }
    let _ = lsetxattr(&directory, "system.posix_acl_default", &value, XattrFlags::empty());
    fs::write(directory.join("inherits"), "from its directory").unwrap();
    fs::create_dir(directory.join("inherits-too")).unwrap();
}

fn plant_set_id(root: &Path) {
    fs::create_dir(root).unwrap();
    for mode in [0o4755, 0o2755, 0o6711, 0o1644, 0o7777] {
        for (kind, bytes) in [("small", 10), ("large", 2_000_000)] {
            let path = root.join(format!("{kind}-{mode:o}"));
            fs::write(&path, noise(bytes)).unwrap();
            lchown(&path, Some(54_321), Some(54_322)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        let directory = root.join(format!("directory-{mode:o}"));
        fs::create_dir(&directory).unwrap();
        lchown(&directory, Some(54_321), Some(54_322)).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    }
}

/// Plants a hundred names in ten directories for a small file, an empty one and a large one with an owner and
/// an attribute.
fn plant_hard_links(root: &Path) {
    fs::create_dir(root).unwrap();
    for (name, bytes) in [("empty", 0), ("small", 100), ("large", 3_000_000)] {
        let first = root.join(name);
        fs::write(&first, noise(bytes)).unwrap();
        lchown(&first, Some(54_321), Some(54_322)).unwrap();
        let _ = lsetxattr(&first, "user.of", name.as_bytes(), XattrFlags::empty());
        for number in 0..99 {
            let directory = root.join(format!("{}/beneath", number % 10));
            fs::create_dir_all(&directory).unwrap();
            fs::hard_link(&first, directory.join(format!("{name}{number}"))).unwrap();
        }
    }
}

/// Plants special files of all kinds and owners, with attributes and ACLs, in a directory that gives its
/// entries an ACL.
fn plant_specials(root: &Path) {
    const NOBODY: u32 = u32::MAX;
    let of_all = acl(&[(1, 7, NOBODY), (4, 7, NOBODY), (0x20, 7, NOBODY)]);
    let own = acl(&[(1, 6, NOBODY), (2, 7, 54_321), (4, 4, NOBODY), (0x10, 5, NOBODY), (0x20, 0, NOBODY)]);
    fs::create_dir(root).unwrap();
    let _ = lsetxattr(root, "system.posix_acl_default", &of_all, XattrFlags::empty());
    for (kind, name, number) in [
        (FileType::Fifo, "pipe", (0, 0)),
        (FileType::Socket, "socket", (0, 0)),
        (FileType::CharacterDevice, "null", (1, 3)),
        (FileType::CharacterDevice, "none", (0, 0)),
        (FileType::CharacterDevice, "last", (4_095, (1 << 20) - 1)),
        (FileType::BlockDevice, "disk", (8, 256)),
    ] {
        for (mode, owner) in [(0o600, 0), (0o666, 1), (0o7777, 54_321), (0o000, 54_322)] {
            let path = root.join(format!("{name}-{mode:o}"));
            // Not every machine lets its root make devices.
            if node(&path, kind, number, mode) {
                lchown(&path, Some(owner), Some(owner)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                let _ = lsetxattr(&path, "trusted.of-a-node", name.as_bytes(), XattrFlags::empty());
                if owner == 1 {
                    let _ = lsetxattr(&path, "system.posix_acl_access", &own, XattrFlags::empty());
                }
            }
        }
    }
}

/// Plants holes at the start, between data, at the end, and everywhere.
fn plant_holes(root: &Path) {
    fs::create_dir(root).unwrap();
    const SIZE: u64 = 64 << 20;
    for (name, data) in [
        ("start", vec![SIZE - 5_000]),
        ("between", vec![0, 20 << 20, SIZE - 100]),
        ("end", vec![0, 4_096]),
        ("odd", vec![(1 << 20) - 1, (30 << 20) + 12_345]),
        ("everywhere", vec![]),
    ] {
        let file = File::create(root.join(name)).unwrap();
        file.set_len(SIZE + 3).unwrap();
        data.iter().for_each(|&offset| file.write_all_at(&noise(100), offset).unwrap());
    }
}

/// Plants the same in files smaller than an object of some file systems, and of all. Data and holes in turn
/// are far enough apart for holes to stay where they are kept in multiples of 64 KiB.
fn plant_small_holes(root: &Path) {
    fs::create_dir(root).unwrap();
    for (size, step) in [(900 << 10, 256 << 10), (120 << 10, 24 << 10)] {
        let in_turn = (0..size).step_by(step).collect();
        for (name, data) in [
            ("start", vec![size - 100]),
            ("between", vec![0, size / 2, size - 100]),
            ("end", vec![0]),
            ("everywhere", vec![]),
            ("in-turn", in_turn),
        ] {
            let file = File::create(root.join(format!("{name}-{size}"))).unwrap();
            file.set_len(size).unwrap();
            data.iter().for_each(|&offset| file.write_all_at(&noise(100), offset).unwrap());
        }
        // Written zeros are not a hole.
        fs::write(root.join(format!("zeros-{size}")), vec![0; size as usize]).unwrap();
    }
}

/// Plants times before 1970, before 1901, after 2038, and after 2106, as far as the file system has them.
fn plant_times(root: &Path) {
    fs::create_dir(root).unwrap();
    for seconds in [-1, -2_147_483_648, -2_147_483_649, 2_147_483_648, 4_294_967_296, 15_000_000_000] {
        let (file, link, directory) = (
            root.join(format!("{seconds}")),
            root.join(format!("link{seconds}")),
            root.join(format!("d{seconds}")),
        );
        fs::write(&file, "old or new").unwrap();
        std::os::unix::fs::symlink("x", &link).unwrap();
        fs::create_dir(&directory).unwrap();
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: 999_999_999 },
        };
        for path in [file, link, directory] {
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
}
