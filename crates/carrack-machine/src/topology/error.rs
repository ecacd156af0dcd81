//! Errors of machine descriptions.

use std::io;

/// Reasons why there is no topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// Only hwloc can read a synthetic description.
    #[error("hwloc can't be loaded: {0}")]
    NoLibrary(String),
    /// A call of hwloc failed.
    #[error("hwloc: {call}: {error}")]
    Library {
        /// The failed function.
        call: &'static str,
        /// Its errno.
        error: io::Error,
    },
    /// The synthetic description is invalid.
    #[error("'{0}' is not a description that hwloc understands")]
    BadSynthetic(String),
    /// The text exceeds the limit.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// The text is not XML.
    #[error("not XML: {0}")]
    NotXml(#[from] roxmltree::Error),
    /// XML of another format, or of an unsupported version.
    #[error("not a topology of hwloc's format 2 or 3")]
    OtherFormat,
    /// Objects are nested deeper than in any machine.
    #[error("objects are nested too deeply")]
    TooDeep,
    /// An attribute has an invalid value.
    #[error("{attribute}=\"{value}\" makes no sense")]
    BadAttribute {
        /// Attribute name.
        attribute: String,
        /// Attribute value, or its beginning.
        value: String,
    },
    /// No CPU may be used.
    #[error("there is no CPU in it")]
    NoCpus,
    /// No node has memory that may be used.
    #[error("there is no NUMA node in it")]
    NoNodes,
}

impl TopologyError {
    /// Advice for the user.
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
