//! `StringIds`: the names of kernels, calls and ranges, looked up as they are met.
//!
//! The table also holds the symbols of every sampled call stack, often far more than the names that are wanted, so it is
//! not read as a whole.

use gputrace_trace::{Interner, NameId};
use rusqlite::Statement;
use rustc_hash::FxHashMap;

use super::database::{Cells, Database};

const TABLE: &str = "StringIds";

/// Names by their ids in the file.
pub(super) struct Strings<'a> {
    lookup: Option<Statement<'a>>,
    texts: FxHashMap<i64, Option<NameId>>,
    calls: FxHashMap<i64, NameId>,
    /// How many of the ids asked for the file has no string of.
    pub(super) missing: u64,
}

/// `cudaLaunchKernel_v7000` is `cudaLaunchKernel`, and `cudaLaunchKernel_ptsz_v7000` is `cudaLaunchKernel_ptsz`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, version))
            if !stem.is_empty()
                && version.len() >= 4
                && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            stem
        }
        _ => name,
    }
}

impl<'a> Strings<'a> {
    pub(super) fn new(database: &'a Database) -> Self {
        let lookup = if database.has_column(TABLE, "id") && database.has_column(TABLE, "value") {
            let statement = format!("SELECT value FROM {TABLE} WHERE id = ?1 LIMIT 1");
            database.connection.prepare(&statement).ok()
        } else {
            None
        };
        Self {
            lookup,
            texts: FxHashMap::default(),
            calls: FxHashMap::default(),
            missing: 0,
        }
    }

    /// The string of an id; `None` where the file has none, or an empty one.
    pub(super) fn text(&mut self, id: i64, names: &mut Interner) -> Option<NameId> {
        if let Some(known) = self.texts.get(&id) {
            return *known;
        }
        let found = self.lookup.as_mut().and_then(|statement| {
            let mut rows = statement.query([id]).ok()?;
            let row = rows.next().ok()??;
            let cells = Cells { row, needed: 1 };
            Some(names.intern(&cells.text(0).ok()??))
        });
        self.missing += u64::from(found.is_none());
        let found = found.filter(|name| *name != NameId::default());
        self.texts.insert(id, found);
        found
    }

    /// The first of `ids` that has a string. Where none has, one that keeps what was told apart apart.
    pub(super) fn first_of(&mut self, ids: &[Option<i64>], names: &mut Interner) -> NameId {
        let known = ids.iter().flatten().find_map(|&id| self.text(id, names));
        known.unwrap_or_else(|| match ids.iter().flatten().next() {
            Some(id) => names.intern(&format!("[string {id}]")),
            None => NameId::default(),
        })
    }

    /// The name of a call of CUDA's, without the version that it ends in.
    pub(super) fn call(&mut self, id: i64, names: &mut Interner) -> NameId {
        if let Some(known) = self.calls.get(&id) {
            return *known;
        }
        let whole = self.first_of(&[Some(id)], names);
        let name = without_version(names.get(whole)).to_owned();
        let name = names.intern(&name);
        self.calls.insert(id, name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_are_cut_off() {
        assert_eq!(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(
            without_version("cudaGraphLaunch_ptsz_v10000"),
            "cudaGraphLaunch_ptsz"
        );
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc_v2");
        assert_eq!(
            without_version("cuModuleGetLoadingMode"),
            "cuModuleGetLoadingMode"
        );
        assert_eq!(without_version("_v7000"), "_v7000");
    }
}
