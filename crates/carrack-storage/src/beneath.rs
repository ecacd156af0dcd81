//! Resolution of a relative path beneath a held directory, which no path leaves.
//!
//! `openat2` resolves in the kernel, with one call for each 4 KiB of path. Kernels before 5.6 (and seccomp
//! filters of that time) get a walk component by component. Neither follows a symbolic link, and a
//! [`RelPath`] contains no `..`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use carrack_model::RelPath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, Result};

/// Longest path of a single system call (`PATH_MAX` without its NUL).
const PIECE_BYTES_MAX: usize = 4_095;

/// Calls of `openat2` that a concurrent rename may interrupt. After these the walk by components decides,
/// which no rename interrupts.
const ATTEMPTS_MAX: usize = 8;

/// Flags of a directory that is read and resolves names.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags of a directory that only resolves names; opening it needs no read permission.
pub(crate) const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the directory `path` beneath `base` with `flags`.
///
/// A symbolic link in the path fails with `ELOOP` or `ENOTDIR`.
pub(crate) fn open_beneath(base: BorrowedFd<'_>, path: &RelPath, flags: OFlags) -> Result<OwnedFd> {
    if path.is_root() {
        return openat(base, c".", flags, Mode::empty());
    }
    if has_openat2() {
        open_by_pieces(base, path.as_bytes(), flags, resolve_piece)
    } else {
        open_by_components(base, path.components(), flags, open_child)
    }
}

/// Opens the directory `path` like [`open_beneath`], but follows symbolic links, also out of `base`.
pub(crate) fn open_following_links(base: BorrowedFd<'_>, path: &RelPath, flags: OFlags) -> Result<OwnedFd> {
    if path.is_root() {
        return open_followed(base, b".", flags);
    }
    match open_by_pieces(base, path.as_bytes(), flags, open_followed) {
        // More links than the kernel follows in one call.
        Err(Errno::LOOP) => open_by_components(base, path.components(), flags, open_followed),
        answer => answer,
    }
}

fn open_followed(base: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd> {
    openat(base, piece, flags, Mode::empty())
}

/// Opens the single name `name` in `base` with `flags`, without following a link.
pub(crate) fn open_child(base: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    openat(base, name, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// Decided once for the process: a seccomp filter that answers `EPERM` does so for every call.
fn has_openat2() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let probe = openat2(CWD, c".", PASSAGE, Mode::empty(), ResolveFlags::BENEATH);
        !matches!(probe, Err(Errno::NOSYS | Errno::PERM))
    })
}

fn open_by_pieces(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    open: impl Fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let mut rest = path;
    let mut held: Option<OwnedFd> = None;
    loop {
        let from = held.as_ref().map_or(base, AsFd::as_fd);
        let (piece, after) = cut_piece(rest);
        if after.is_empty() {
            return open(from, piece, flags);
        }
        held = Some(open(from, piece, PASSAGE)?);
        rest = after;
    }
}

/// Splits off as many whole components as one system call takes; returns them and the rest.
fn cut_piece(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE_BYTES_MAX {
        return (path, b"");
    }
    match path[..=PIECE_BYTES_MAX].iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, b""),
    }
}

fn resolve_piece(base: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS_MAX {
        match openat2(base, piece, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            answer => return answer,
        }
    }
    open_by_components(base, piece.split(|&b| b == b'/'), flags, open_child)
}

fn open_by_components<'a>(
    base: BorrowedFd<'_>,
    components: impl Iterator<Item = &'a [u8]>,
    flags: OFlags,
    open: impl Fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let mut components = components.peekable();
    let mut held: Option<OwnedFd> = None;
    while let Some(component) = components.next() {
        let from = held.as_ref().map_or(base, AsFd::as_fd);
        let flags = if components.peek().is_some() { PASSAGE } else { flags };
        held = Some(open(from, component, flags)?);
    }
    held.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileIdentity;
    use std::os::unix::fs::symlink;

    fn identity(fd: Result<OwnedFd>) -> FileIdentity {
        FileIdentity::of_open(fd.unwrap()).unwrap()
    }

    #[test]
    fn both_ways_find_the_same_directory_and_refuse_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        symlink("b", dir.path().join("a/link")).unwrap();
        symlink("/", dir.path().join("root")).unwrap();
        let base = openat(CWD, dir.path(), PASSAGE, Mode::empty()).unwrap();
        let path = RelPath::new(b"a/b/c").unwrap();
        let whole = identity(open_by_pieces(base.as_fd(), path.as_bytes(), DIRECTORY, resolve_piece));
        assert_eq!(
            whole,
            identity(open_by_components(base.as_fd(), path.components(), DIRECTORY, open_child))
        );
        for planted in [&b"a/link/c"[..], b"root/etc", b"a/link", b"root"] {
            let path = RelPath::new(planted).unwrap();
            for refused in [
                open_by_pieces(base.as_fd(), planted, DIRECTORY, resolve_piece),
                open_by_components(base.as_fd(), path.components(), DIRECTORY, open_child),
            ] {
                assert!(matches!(refused, Err(Errno::LOOP | Errno::NOTDIR)), "{planted:?} {refused:?}");
            }
        }
    }

    #[test]
    fn links_are_followed_where_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("..", dir.path().join("a/up")).unwrap();
        symlink("self", dir.path().join("self")).unwrap();
        let base = openat(CWD, dir.path(), PASSAGE, Mode::empty()).unwrap();
        fn open(base: &OwnedFd, path: &str) -> Result<OwnedFd> {
            open_following_links(base.as_fd(), &RelPath::new(path.as_bytes()).unwrap(), DIRECTORY)
        }
        let there = identity(open(&base, "a/b"));
        assert_eq!(identity(open(&base, "a/up/a/b")), there);
        // More links than the kernel follows in one call, and a path of several pieces.
        assert_eq!(identity(open(&base, &format!("{}a/b", "a/up/".repeat(45)))), there);
        assert_eq!(identity(open(&base, &format!("{}a/b", "a/up/".repeat(2_000)))), there);
        assert_eq!(open(&base, "self").unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn pieces_hold_whole_components_and_lose_none() {
        let path = [b"x".repeat(200), b"/".to_vec()].concat().repeat(300);
        let path = &path[..path.len() - 1];
        let (mut rest, mut rebuilt) = (path, Vec::new());
        while !rest.is_empty() {
            let (piece, after) = cut_piece(rest);
            assert!(piece.len() <= PIECE_BYTES_MAX && !piece.ends_with(b"/") && !piece.starts_with(b"/"));
            rebuilt.push(piece.to_vec());
            rest = after;
        }
        assert_eq!(rebuilt.join(&b'/'), path);
        let exact = [b"a".repeat(4_095), b"b".to_vec()].join(&b'/');
        assert_eq!(cut_piece(&exact), (&exact[..4_095], &b"b"[..]));
    }
}
