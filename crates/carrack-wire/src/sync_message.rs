//! What is selected at the source, as it travels.

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
}
