//! What is selected at the source, and what is asked where a destination is made like its sources.

/// Which entries of the sources are copied; see `carrack_model::Selection`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Selection {
    /// Lines as in gitignore(5).
    #[prost(string, repeated, tag = "1")]
    pub patterns: Vec<String>,
    /// Bytes that a file has at least.
    #[prost(uint64, tag = "2")]
    pub size_min: u64,
    /// Bytes that a file has at most; nothing for any number.
    #[prost(uint64, optional, tag = "3")]
    pub size_max: Option<u64>,
    /// Files were modified later than this, in seconds since 1970; nothing for any time.
    #[prost(int64, optional, tag = "4")]
    pub newer_s: Option<i64>,
    /// 0 to 999,999,999.
    #[prost(uint32, tag = "5")]
    pub newer_ns: u32,
    /// Directories lie on the file system of their source.
    #[prost(bool, tag = "6")]
    pub one_file_system: bool,
    /// Symbolic links are left out.
    #[prost(bool, tag = "7")]
    pub skips_links: bool,
    /// `names` says what is taken, even if it is empty.
    #[prost(bool, tag = "8")]
    pub is_listed: bool,
    /// Paths beneath the source.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub names: Vec<Vec<u8>>,
    /// Symbolic links are copied as what they lead to. A source knows of it that says `knows_links` in its `Welcome`.
    #[prost(bool, tag = "10")]
    pub follows_links: bool,
    /// Symbolic links that lead out of the source are left out; as `follows_links`.
    #[prost(bool, tag = "11")]
    pub safe_links: bool,
}

/// How a destination is made like its sources; see `carrack_model::Sync`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sync {
    /// Contents are compared.
    #[prost(bool, tag = "1")]
    pub by_contents: bool,
    /// What is newer at the destination stays.
    #[prost(bool, tag = "2")]
    pub update: bool,
    /// What is not at the destination is not made.
    #[prost(bool, tag = "3")]
    pub existing: bool,
    /// What is at the destination stays.
    #[prost(bool, tag = "4")]
    pub ignore_existing: bool,
    /// What is not at the source is removed.
    #[prost(bool, tag = "5")]
    pub deletes: bool,
    /// Entries at most; nothing for any number.
    #[prost(uint64, optional, tag = "6")]
    pub delete_most: Option<u64>,
    /// It is removed before anything is sent. A source knows of it that says `prunes_first` in its `Welcome`.
    #[prost(bool, tag = "7")]
    pub deletes_first: bool,
    /// Also where a source has no entry at all.
    #[prost(bool, tag = "8")]
    pub by_empty_sources: bool,
    /// Also what the patterns leave out.
    #[prost(bool, tag = "9")]
    pub deletes_excluded: bool,
    /// Also in file systems that are mounted beneath the destination.
    #[prost(bool, tag = "10")]
    pub deletes_mounts: bool,
    /// Percent at most of the entries at the destination; nothing for any number.
    #[prost(uint32, optional, tag = "11")]
    pub delete_percent: Option<u32>,
    /// A directory beneath the destination to which entries are moved in place of being removed.
    #[prost(bytes = "vec", optional, tag = "12")]
    pub backup_directory: Option<Vec<u8>>,
    /// They are moved to a directory in the destination's `.carrack-trash`.
    #[prost(bool, tag = "13")]
    pub uses_trash: bool,
    /// Nanoseconds that the times of equal files may be apart; -1 for none, where else a coarse file system's times are taken as it
    /// stores them.
    #[prost(sint64, optional, tag = "15")]
    pub modify_window_ns: Option<i64>,
}

/// Everything is sent, or nothing is, and the source has met no failure: what it does not have may go.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Prune {
    /// Paths of the directories beneath which that is so.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub trees: Vec<Vec<u8>>,
}

/// Names at the destination.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stand {
    /// Counts from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Their directory.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// 512 at most.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub names: Vec<Vec<u8>>,
}

/// What the source has of them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stands {
    /// The question's.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A byte for each name: 0 nothing, as is proven, 1 something that is no directory, 2 a directory, 3 what can't be told, or was not
    /// scanned.
    #[prost(bytes = "vec", tag = "2")]
    pub kinds: Vec<u8>,
}

/// What may go is gone.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Pruned {}
