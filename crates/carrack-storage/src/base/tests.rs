//! The access that a base grants and denies.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use PathPurpose::{Browse, Read, ReadThrough, Write};

const PURPOSES: [PathPurpose; 4] = [Read, ReadThrough, Write, Browse];

/// `top/export` with links of all sorts, and `top/secret` outside it.
fn fixture() -> (tempfile::TempDir, PathBase) {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("export/a/b")).unwrap();
    fs::create_dir(top.join("secret")).unwrap();
    fs::write(top.join("secret/f"), "secret").unwrap();
    fs::write(top.join("export/a/f"), "inside").unwrap();
    for (text, link) in [
        ("b", "export/a/near"),
        ("../a/b", "export/a/round"),
        ("f", "export/a/file"),
        ("near", "export/a/twice"),
        (".", "export/a/itself"),
        ("..", "export/a/up"),
        ("nothing", "export/a/dangling"),
        ("loop", "export/a/loop"),
        ("../../secret", "export/a/out"),
        ("../..", "export/a/above"),
        ("../../export/a", "export/a/out-and-in"),
        ("../../secret/f", "export/a/out-file"),
        ("/proc/self/root", "export/a/magic"),
    ] {
        symlink(text, top.join(link)).unwrap();
    }
    symlink(top.join("export/a/b"), top.join("export/a/absolute")).unwrap();
    let base = PathBase::beneath(RootDirectory::open(&top.join("export")).unwrap());
    (dir, base)
}

fn ino(dir: &tempfile::TempDir, path: &str) -> u64 {
    fs::metadata(dir.path().join("export").join(path)).unwrap().ino()
}

#[test]
fn paths_begin_at_the_base_with_or_without_a_slash() {
    let (dir, base) = fixture();
    for purpose in PURPOSES {
        for (typed, path) in
            [("a/b", "a/b"), ("/a/b", "a/b"), ("//a/./b//", "a/b"), ("", ""), ("/", ""), (".", "")]
        {
            let root = base.open(Path::new(typed), purpose).unwrap();
            assert_eq!((root.identity().ino, root.path()), (ino(&dir, path), Path::new(typed)));
            assert_eq!(base.look(Path::new(typed), purpose).unwrap().identity, root.identity());
        }
    }
}

#[test]
fn a_source_may_lead_through_links_that_stay_beneath() {
    let (dir, base) = fixture();
    for (typed, path) in [
        ("a/near", "a/b"),
        ("a/round", "a/b"),
        ("a/twice", "a/b"),
        ("a/itself/itself/near", "a/b"),
        ("a/up/a/near/", "a/b"),
        ("a/up", ""),
        ("a/itself", "a"),
    ] {
        let root = base.open(Path::new(typed), ReadThrough).unwrap();
        assert_eq!(root.identity().ino, ino(&dir, path), "{typed}");
        for refused in [Write, Browse] {
            let errno = base.open(Path::new(typed), refused).unwrap_err().raw_os_error();
            assert!(matches!(errno, Some(libc::ENOTDIR | libc::ELOOP)), "{typed}: {errno:?}");
        }
    }
    let link = base.look(Path::new("a/up/a/near"), Read).unwrap();
    assert!(link.is_symlink && !link.is_directory);
}

#[test]
fn no_link_leads_out() {
    let (_dir, base) = fixture();
    for typed in ["a/out", "a/above", "a/out-and-in", "a/out-file", "a/magic", "a/absolute", "a/loop"] {
        for path in [typed.to_owned(), format!("{typed}/f"), format!("a/near/../{typed}")] {
            assert!(base.open(Path::new(&path), ReadThrough).is_err(), "{path}");
            assert!(base.look(Path::new(&path), ReadThrough).is_err(), "{path}");
            assert!(base.hold(Path::new(&path), true).is_err(), "{path}");
            assert!(base.open_to_ask(Path::new(&path)).is_err(), "{path}");
            assert!(base.make_destination(Path::new(&format!("{path}/new"))).is_err(), "{path}");
        }
        let errno = base.open(Path::new(typed), ReadThrough).unwrap_err().raw_os_error();
        let expected = if typed == "a/loop" { libc::ELOOP } else { libc::EXDEV };
        assert_eq!(errno, Some(expected), "{typed}");
    }
}

#[test]
fn what_holds_a_file_is_found_behind_links() {
    let (dir, base) = fixture();
    let named = base.hold(Path::new("/a/up/a/file"), true).unwrap();
    assert_eq!((named.root.identity().ino, &*named.name, named.follow), (ino(&dir, "a"), &b"f"[..], false));
    assert_eq!(named.root.path(), Path::new("/a"));
    assert_eq!(base.leads_to(Path::new("a/file")).unwrap(), (named.root.identity(), b"f"[..].into()));
    let named = base.hold(Path::new("a/file"), false).unwrap();
    assert_eq!((&*named.name, named.follow, named.root.path()), (&b"file"[..], false, Path::new("a")));
    assert!(base.hold(Path::new("/"), true).is_err() && base.hold(Path::new("a/up"), true).is_err());
    let named = PathBase::Anywhere.hold(&dir.path().join("export/a/file"), true).unwrap();
    assert_eq!((&*named.name, named.follow), (&b"file"[..], true));
    let found = PathBase::Anywhere.leads_to(&dir.path().join("export/a/file")).unwrap();
    assert_eq!((found.0.ino, &*found.1), (ino(&dir, "a"), &b"f"[..]));
}

#[test]
fn what_is_looked_at_is_what_stands_there() {
    let (_dir, base) = fixture();
    fn kind(base: &PathBase, path: &str, purpose: PathPurpose) -> Result<(bool, bool), io::ErrorKind> {
        let looked = base.look(Path::new(path), purpose).map_err(|error| error.kind())?;
        Ok((looked.is_directory, looked.is_symlink))
    }
    assert_eq!(kind(&base, "a/near", Write), Ok((false, true)), "a link is no destination");
    assert_eq!(kind(&base, "a/near", ReadThrough), Ok((true, false)));
    assert_eq!(kind(&base, "a/f", Read), Ok((false, false)));
    for purpose in PURPOSES {
        assert_eq!(kind(&base, "a/f/", purpose), Err(io::ErrorKind::NotADirectory));
        assert_eq!(kind(&base, "a/nothing", purpose), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(&base, "a/../a", purpose), Err(io::ErrorKind::InvalidInput));
    }
    assert_eq!(kind(&base, "a/dangling", ReadThrough), Err(io::ErrorKind::NotFound));
}

#[test]
fn ancestors_end_at_the_base_and_are_not_told_from_outside() {
    let (dir, base) = fixture();
    let root = base.open(Path::new("a/b"), Write).unwrap();
    let inos: Vec<u64> = root.ancestors().unwrap().iter().map(|identity| identity.ino).collect();
    assert_eq!(inos, [ino(&dir, "a/b"), ino(&dir, "a"), ino(&dir, "")]);
    assert_eq!(base.open(Path::new("/"), Write).unwrap().ancestors().unwrap().len(), 1);
    fs::rename(dir.path().join("export/a/b"), dir.path().join("moved")).unwrap();
    assert!(root.ancestors().unwrap_err().to_string().contains("moved out"));
}

#[test]
fn a_destination_is_made_once_and_never_through_a_link() {
    let (dir, base) = fixture();
    base.make_destination(Path::new("/a/new")).unwrap();
    base.make_destination(Path::new("/a/new/")).unwrap();
    base.make_destination(Path::new("/")).unwrap();
    let mode = fs::metadata(dir.path().join("export/a/new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1700, "for its owner, until it has its mode");
    for refused in ["a/near/new", "a/out/new", "nothing/new", "../new"] {
        assert!(base.make_destination(Path::new(refused)).is_err(), "{refused}");
    }
    assert_eq!(fs::read_dir(dir.path().join("secret")).unwrap().count(), 1);
}

#[test]
fn anywhere_is_the_users_own_view() {
    let (dir, _) = fixture();
    let export = dir.path().join("export");
    let base = PathBase::Anywhere;
    assert!(base.look(&export.join("a/out"), Write).unwrap().is_directory);
    assert!(base.look(&export.join("a/out"), Read).unwrap().is_symlink);
    assert!(base.open(&export.join("a/out/../secret"), Write).is_ok());
    assert!(base.open_to_ask(&export.join("a/out-file")).is_ok());
    assert!(base.open(&export.join("a/out"), Browse).is_err(), "the last name is itself");
    assert!(base.open(&export.join("a/b"), Write).unwrap().ancestors().unwrap().len() > 3);
}

/// Directories that serve as parts or lie outside them, with links between both.
fn scoped_fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let top_path = dir.path();
    for directory in ["pub/d", "secret/d", "more"] {
        fs::create_dir_all(top_path.join(directory)).unwrap();
    }
    fs::write(top_path.join("secret/key"), "secret").unwrap();
    fs::write(top_path.join("pub/d/f"), "inside").unwrap();
    fs::write(top_path.join("alone"), "one file").unwrap();
    for (text, link) in [
        ("../secret/key", "pub/out-file"),
        ("../secret/nothing", "pub/out-nothing"),
        ("../secret", "pub/out"),
        ("../pub/d", "pub/out-and-in"),
        ("../more", "pub/other-part"),
        ("d", "pub/near"),
        ("d/f", "pub/file"),
        ("secret", "link"),
        ("alone", "link-to-file"),
    ] {
        symlink(text, top_path.join(link)).unwrap();
    }
    dir
}

fn errno(result: io::Result<()>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn look(base: &PathBase, path: &str, purpose: PathPurpose) -> io::Result<()> {
    base.look(Path::new(path), purpose).map(drop)
}

#[test]
fn a_scoped_base_reaches_its_parts_and_nothing_beside_them() {
    let dir = scoped_fixture();
    let top_path = dir.path();
    let top = RootDirectory::open(dir.path()).unwrap();
    let parts = ["pub", "pub/d", "more", "alone", "new", "link", "link-to-file", "no/such"];
    let base = PathBase::scoped(&top, parts.map(|part| RelPath::new(part.as_bytes()).unwrap()).to_vec());

    for path in ["/pub", "pub/d/f", "pub/near/f", "pub/file", "more", "alone"] {
        look(&base, path, ReadThrough).unwrap();
    }
    let named = base.hold(Path::new("/pub/file"), true).unwrap();
    assert_eq!((named.root.path(), &*named.name), (Path::new("/pub/d"), &b"f"[..]));
    for path in ["/", "secret", "secret/key", "nothing", "pub-lic", "nothing/at/all"] {
        for purpose in PURPOSES {
            assert_eq!(errno(look(&base, path, purpose)), Some(libc::EACCES), "{path}: existence is told");
            assert!(base.open(Path::new(path), purpose).is_err());
        }
        assert!(
            base.make_directory(Path::new(path), true).is_err() && base.open_parent(Path::new(path)).is_err()
        );
    }
    for path in
        ["pub/out-file", "pub/out-nothing", "pub/out", "pub/out-and-in/f", "pub/other-part", "link-to-file"]
    {
        assert_eq!(errno(look(&base, path, ReadThrough)), Some(libc::EXDEV), "{path}");
        assert_eq!(errno(base.hold(Path::new(path), true).map(drop)), Some(libc::EXDEV), "{path}");
        assert!(
            base.open(Path::new(path), ReadThrough).is_err() && base.open_to_ask(Path::new(path)).is_err()
        );
    }
    for path in ["link/key", "link/d", "alone/x", "new/x", "no/such/x"] {
        assert!(PURPOSES.iter().all(|&purpose| look(&base, path, purpose).is_err()), "{path}");
    }

    // A missing name is created, but its directory stays closed for other uses.
    assert_eq!(base.open_parent(Path::new("/new")).unwrap().identity(), top.identity());
    assert!(base.open(Path::new("/"), Write).is_err() && base.open_parent(Path::new("/pub")).is_err());
    base.make_destination(Path::new("/new")).unwrap();
    assert_eq!(
        base.open(Path::new("/new"), Write).unwrap().identity().ino,
        fs::metadata(top_path.join("new")).unwrap().ino()
    );

    // An open part stays the same directory after a rename or exchange.
    fs::rename(top_path.join("pub"), top_path.join("away")).unwrap();
    symlink("secret", top_path.join("pub")).unwrap();
    assert_eq!(
        base.open(Path::new("/pub/d"), Write).unwrap().identity().ino,
        fs::metadata(top_path.join("away/d")).unwrap().ino()
    );
    fs::rename(top_path.join("away/d"), top_path.join("away/e")).unwrap();
    symlink("../secret/d", top_path.join("away/d")).unwrap();
    assert!(PURPOSES.iter().all(|&purpose| base.open(Path::new("/pub/d/x"), purpose).is_err()));
}
