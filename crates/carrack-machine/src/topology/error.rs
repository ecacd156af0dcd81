//! Why a description of a machine can't be used.

use std::io;

/// Why there is no topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A synthetic description can be read by hwloc only.
    #[error("hwloc can't be loaded: {0}")]
    NoLibrary(String),
    /// hwloc refused.
    #[error("hwloc: {call}: {error}")]
    Library {
        /// The function that failed.
        call: &'static str,
        /// What it left in errno.
        error: io::Error,
    },
    /// The synthetic description is none.
    #[error("'{0}' is not a description that hwloc understands")]
    BadSynthetic(String),
    /// More than is read.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// The text is not XML.
    #[error("not XML: {0}")]
    NotXml(#[from] roxmltree::Error),
    /// It is XML of something else, or of a version that this build does not know.
    #[error("not a topology of hwloc's format 2 or 3")]
    OtherFormat,
    /// Objects lie in objects, deeper than in any machine.
    #[error("objects are nested too deeply")]
    TooDeep,
    /// An attribute does not hold what it has to.
    #[error("{attribute}=\"{value}\" makes no sense")]
    BadAttribute {
        /// Its name.
        attribute: String,
        /// Its value, or the beginning of it.
        value: String,
    },
    /// There is no CPU that may be used.
    #[error("there is no CPU in it")]
    NoCpus,
    /// There is no node whose memory may be used.
    #[error("there is no NUMA node in it")]
    NoNodes,
}

impl TopologyError {
    /// What the user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            TopologyError::NoLibrary(_) => {
                Some("install libhwloc15, or give an XML file that `lstopo FILE.xml` made elsewhere")
            }
            TopologyError::BadSynthetic(_) => Some("such as 'pack:2 numa:2 core:6 pu:1', see hwloc(7)"),
            TopologyError::OtherFormat => {
                Some("`lstopo FILE.xml` of hwloc 2 or newer writes what is read here")
            }
            _ => None,
        }
    }
}
