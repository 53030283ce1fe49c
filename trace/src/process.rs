//! One process of a recording, in memory.

use crate::manifest::ProcessHeader;
use crate::tables::Tables;

/// One process of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// The name of its folder.
    pub folder: String,
    /// Its header; defaults where `process.json` could not be read.
    pub header: ProcessHeader,
    /// Its events. Names are numbers in [`crate::Recording::names`].
    pub tables: Tables,
}
