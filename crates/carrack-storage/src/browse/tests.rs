//! Browsing beneath a base and anywhere.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow::{Break, Continue};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use crate::RootDirectory;

/// The same directory, as a base and by its own path.
fn fixture() -> (tempfile::TempDir, [(PathBase, PathBuf); 2]) {
    let dir = tempfile::tempdir().unwrap();
    let base = PathBase::beneath(RootDirectory::open(dir.path()).unwrap());
    let ways = [(base, PathBuf::from("/")), (PathBase::Anywhere, dir.path().to_path_buf())];
    (dir, ways)
}

fn list(base: &PathBase, path: &Path) -> io::Result<BTreeMap<Vec<u8>, ListedEntry>> {
    let mut all = BTreeMap::new();
    base.list(path, &mut |listing| {
        match listing {
            ListingItem::Entries(entries) => all.extend(entries.into_iter().map(|e| (e.name.to_vec(), e))),
            ListingItem::Failed { name, error } => panic!("{name:?}: {error}"),
        }
        Continue(())
    })?;
    Ok(all)
}

/// Removes `path`; returns the result and the reported failures.
fn remove(
    base: &PathBase,
    path: impl AsRef<Path>,
    recursive: bool,
) -> io::Result<(TreeRemovalResult, Vec<String>)> {
    let mut failures = Vec::new();
    let removal = base.remove(path.as_ref(), recursive, &mut |told| {
        if let RemovalEvent::Failed { path, error } = told {
            failures.push(format!("{}: {error}", carrack_model::escape(&path)));
        }
        Continue(())
    })?;
    assert_eq!(removal.failed_count, failures.len() as u64);
    Ok((removal, failures))
}

#[test]
fn lists_and_looks_without_following() {
    let (dir, ways) = fixture();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), "12345").unwrap();
    fs::set_permissions(dir.path().join("d/f"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("/etc", dir.path().join("d/link")).unwrap();
    fs::create_dir(dir.path().join("d/sub")).unwrap();
    for (base, top) in ways {
        let found = list(&base, &top.join("d")).unwrap();
        assert_eq!(found.keys().map(Vec::as_slice).collect::<Vec<_>>(), [&b"f"[..], b"link", b"sub"]);
        let (file, real) = (&found[&b"f"[..]], fs::metadata(dir.path().join("d/f")).unwrap());
        assert_eq!((file.kind, file.size, file.mode), (BrowsedKind::File, 5, 0o4751));
        assert_eq!((file.uid, file.gid), (real.uid(), real.gid()));
        let mtime = (file.mtime.seconds, i64::from(file.mtime.nanoseconds));
        assert_eq!(mtime, (real.mtime(), real.mtime_nsec()));
        assert_eq!((found[&b"link"[..]].kind, found[&b"link"[..]].size), (BrowsedKind::Symlink, 4));
        assert_eq!(found[&b"sub"[..]].kind, BrowsedKind::Directory);
        assert_eq!(base.stat(&top.join("d/f")).unwrap(), *file);
        assert_eq!(base.stat(&top.join("d/link")).unwrap(), found[&b"link"[..]]);
        for refused in ["d/link", "d/f", "d/nothing"] {
            assert!(list(&base, &top.join(refused)).is_err(), "{refused}");
        }
    }
}

#[test]
fn a_large_directory_comes_in_bounded_batches_until_enough() {
    let (dir, ways) = fixture();
    (0..3_000).for_each(|n| drop(fs::write(dir.path().join(n.to_string()), "")));
    for (base, top) in ways {
        let (mut batches, mut count) = (0, 0);
        let listed = base.list(&top, &mut |listing| {
            let ListingItem::Entries(entries) = listing else { panic!("{listing:?}") };
            assert!(!entries.is_empty() && entries.len() <= 256);
            (batches, count) = (batches + 1, count + entries.len());
            if count >= 3_000 { Break(()) } else { Continue(()) }
        });
        listed.unwrap();
        assert_eq!((batches, count), (12, 3_000));
        let mut calls = 0;
        let listed = base.list(&top, &mut |_| {
            calls += 1;
            Break(())
        });
        listed.unwrap();
        assert_eq!(calls, 1);
    }
}

#[test]
fn directories_are_made_with_their_parents_or_without() {
    use io::ErrorKind::{AlreadyExists, NotFound};
    for index in 0..2 {
        let (dir, ways) = fixture();
        let (base, top) = &ways[index];
        for (path, parents, expected) in [
            ("a/b/c", false, Err(NotFound)),
            ("a/b/c", true, Ok(())),
            ("a/b/c/", true, Ok(())),
            ("a/b/c", false, Err(AlreadyExists)),
            ("a/d", false, Ok(())),
            ("", true, Ok(())),
            ("", false, Err(AlreadyExists)),
        ] {
            let made = base.make_directory(&top.join(path), parents).map_err(|error| error.kind());
            assert_eq!(made, expected, "{path} {parents}");
        }
        fs::write(dir.path().join("file"), "").unwrap();
        for path in ["file/x", "file"] {
            assert!(base.make_directory(&top.join(path), true).is_err(), "{path}");
        }
        assert!(dir.path().join("a/b/c").is_dir() && dir.path().join("a/d").is_dir());
    }
}

#[test]
fn removes_files_links_and_empty_directories() {
    for index in 0..2 {
        let (dir, ways) = fixture();
        let (base, top) = &ways[index];
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        fs::create_dir(dir.path().join("full")).unwrap();
        fs::write(dir.path().join("full/f"), "").unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path(), dir.path().join("full/link")).unwrap();
        assert_eq!(remove(base, top.join("link/"), true).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(remove(base, top.join("full/f/"), true).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        for gone in ["empty", "link", "full/f"] {
            let (removal, _) = remove(base, top.join(gone), false).unwrap();
            assert_eq!((removal.removed_count, removal.failed_count), (1, 0), "{gone}");
            assert!(!dir.path().join(gone).exists());
        }
        let (removal, failures) = remove(base, top.join("full"), false).unwrap();
        assert_eq!((removal.removed_count, removal.failed_count), (0, 1));
        assert!(failures[0].starts_with(top.join("full: ").to_str().unwrap()), "{failures:?}");
        assert_eq!(remove(base, top.join("full/"), true).unwrap().0.removed_count, 2);
        assert_eq!(remove(base, top.join("full"), true).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(outside.path().join("kept").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn the_base_itself_stays() {
    let (dir, [(base, _), _]) = fixture();
    fs::write(dir.path().join("f"), "").unwrap();
    for path in ["", "/", ".", "./", "//."] {
        let error = remove(&base, path, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{path}");
    }
    for path in ["/", "//", "/."] {
        assert!(remove(&PathBase::Anywhere, path, false).is_err());
    }
    assert!(dir.path().join("f").exists());
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_deep_tree_takes_few_descriptors() {
    let (dir, [(base, _), _]) = fixture();
    let root = RootDirectory::open(dir.path()).unwrap();
    let deep = carrack_model::RelPath::new(&vec![&b"d"[..]; 1_000].join(&b'/')).unwrap();
    root.make_directory(&deep).unwrap();
    // Each of these levels has further entries on the way back.
    for level in 1..200 {
        let path = carrack_model::RelPath::new(&vec![&b"d"[..]; level].join(&b'/')).unwrap();
        let held = root.open_directory(&path).unwrap();
        for n in 0..3 {
            rustix::fs::mkdirat(&held, format!("e{n}"), mode_of_new_directory()).unwrap();
            rustix::fs::symlinkat("/", &held, format!("l{n}")).unwrap();
        }
    }
    let before = descriptors();
    let mut most = 0;
    let removal = base.remove(Path::new("d"), true, &mut |_| {
        most = most.max(descriptors());
        Continue(())
    });
    let expected = TreeRemovalResult { removed_count: 1_000 + 199 * 6, failed_count: 0, is_cut_short: false };
    assert_eq!(removal.unwrap(), expected);
    assert!(most > 0 && most < before + 200, "{most} descriptors, {before} before");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_deeper_than_any_path_is_told_and_the_rest_goes() {
    let (dir, [(base, _), _]) = fixture();
    let root = RootDirectory::open(dir.path()).unwrap();
    let name = [b'd'; 255];
    let deep = carrack_model::RelPath::new(&vec![&name[..]; 255].join(&b'/')).unwrap();
    let mut held = root.make_directory(&deep).unwrap();
    for _ in 0..5 {
        rustix::fs::mkdirat(&held, &name[..], mode_of_new_directory()).unwrap();
        held = crate::beneath::open_child(std::os::fd::AsFd::as_fd(&held), &name, crate::beneath::DIRECTORY)
            .unwrap();
    }
    rustix::fs::mkdirat(
        rustix::fs::CWD,
        dir.path().join(std::str::from_utf8(&name).unwrap()).join("e"),
        mode_of_new_directory(),
    )
    .unwrap();
    let top = std::str::from_utf8(&name).unwrap();
    let (removal, failures) = remove(&base, top, true).unwrap();
    assert_eq!((removal.removed_count, removal.failed_count), (1, 1), "{}", failures.len());
    assert!(failures[0].contains("too long"), "{}", failures[0]);
    // Without its upper part the path is short enough.
    let deep = vec![top; 200].join("/");
    let (removal, _) = remove(&base, deep, true).unwrap();
    assert_eq!((removal.removed_count, removal.failed_count), (61, 0));
    assert_eq!(remove(&base, top, true).unwrap().0.removed_count, 199);
}

#[test]
fn what_can_not_be_removed_is_told_once_and_the_rest_goes() {
    let (dir, [(base, _), _]) = fixture();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make files immutable");
        return;
    }
    fs::create_dir_all(dir.path().join("t/a/b")).unwrap();
    for n in 0..1_000 {
        fs::write(dir.path().join(format!("t/a/{n}")), "").unwrap();
        fs::create_dir(dir.path().join(format!("t/a/b/{n}"))).unwrap();
    }
    let stuck = fs::File::create(dir.path().join("t/a/b/500/stuck")).unwrap();
    if let Err(errno) = rustix::fs::ioctl_setflags(&stuck, rustix::fs::IFlags::IMMUTABLE) {
        println!("skipped: no immutable files here: {errno}");
        return;
    }
    let removed = remove(&base, "/t/", true);
    rustix::fs::ioctl_setflags(&stuck, rustix::fs::IFlags::empty()).unwrap();
    let (removal, failures) = removed.unwrap();
    assert_eq!((removal.removed_count, removal.failed_count), (1_999, 1));
    assert!(failures[0].starts_with("/t/a/b/500/stuck: "), "{failures:?}");
    assert_eq!(remove(&base, "t", true).unwrap().0.removed_count, 5);
}

#[test]
fn a_removal_can_be_broken_off() {
    let (dir, [(base, _), _]) = fixture();
    fs::create_dir(dir.path().join("t")).unwrap();
    (0..5_000).for_each(|n| drop(fs::write(dir.path().join(format!("t/{n}")), "")));
    let removal = base.remove(Path::new("t"), true, &mut |_| Break(())).unwrap();
    assert_eq!(removal, TreeRemovalResult { removed_count: 1_000, failed_count: 0, is_cut_short: true });
    assert_eq!(fs::read_dir(dir.path().join("t")).unwrap().count(), 4_000);
}

/// `levels` directories in each other, with a file in each and `files` in the last.
fn chain(top: &Path, levels: usize, files: usize) {
    let mut path = top.to_path_buf();
    for _ in 0..levels {
        path.push("d");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("zz"), "").unwrap();
    }
    (0..files).for_each(|n| drop(fs::write(path.join(n.to_string()), "")));
}

fn count_beneath(path: &Path) -> usize {
    fs::read_dir(path).map_or(0, |all| all.map(|entry| 1 + count_beneath(&entry.unwrap().path())).sum())
}

#[test]
fn the_way_back_leads_to_the_same_directories_or_nowhere() {
    for by_link in [true, false] {
        let (dir, [(base, _), _]) = fixture();
        let outside = tempfile::tempdir().unwrap();
        chain(&dir.path().join("t"), 200, 1_500);
        chain(outside.path(), 200, 0);
        let before = count_beneath(outside.path());
        let mut failures = Vec::new();
        let mut swaps = 0;
        let removal = base.remove(Path::new("t"), true, &mut |told| {
            match told {
                RemovalEvent::Failed { error, .. } => failures.push(error),
                RemovalEvent::Removed(_) if swaps == 0 => {
                    // Deep down, where the directories near the top are released.
                    swaps += 1;
                    fs::rename(dir.path().join("t/d"), dir.path().join("moved")).unwrap();
                    let fake = dir.path().join("t/d");
                    if by_link {
                        symlink(outside.path().join("d"), fake).unwrap();
                    } else {
                        fs::rename(outside.path().join("d"), fake).unwrap();
                    }
                }
                RemovalEvent::Removed(_) | RemovalEvent::Mounted(_) => {}
            }
            Continue(())
        });
        let (removal, place) =
            (removal.unwrap(), if by_link { outside.path() } else { &dir.path().join("t") });
        assert!(removal.failed_count > 0 && removal.failed_count == failures.len() as u64, "{removal:?}");
        assert_eq!((swaps, count_beneath(place)), (1, before), "by a link: {by_link}");
    }
}

#[test]
fn what_would_be_removed_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["t/a/b", "t/spared"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    for path in ["t/f", "t/a/b/g", "t/spared/h"] {
        fs::write(dir.path().join(path), "").unwrap();
    }
    let held = fs::File::open(dir.path()).unwrap();
    for (name, going, staying) in [(&b"t"[..], 5, 1), (b"gone", 1, 0)] {
        let entry = (std::os::fd::AsFd::as_fd(&held), name);
        let count = crate::count_removable(entry, false, &|_, path| path.ends_with(b"spared"));
        assert_eq!(count, crate::RemovalPreviewCount { going, staying });
    }
}
