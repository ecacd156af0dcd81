//! Identifiers. Newtypes, so that a file's number can't be passed where an object's is meant.

/// A file that travels as objects of its own, numbered by the source within a session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// An object (or a bundle) that travels, numbered by the source within a session, from 1.
///
/// A second reading of the same extent is a new object with a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// One independent piece of storage (L2's "OST"): opaque, equal for two extents exactly if they lie on the same piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u64);
