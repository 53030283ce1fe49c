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
    /// Where the table has no index by id: the row of each.
    rows: Option<FxHashMap<i64, i64>>,
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

/// The first row of each id, where to find one by its id SQLite would go through the whole table: Nsight Systems makes the id
/// the table's key.
fn rows_by_id(database: &Database) -> Option<FxHashMap<i64, i64>> {
    let plan = format!("EXPLAIN QUERY PLAN SELECT value FROM {TABLE} WHERE id = 1");
    let found: String = database
        .connection
        .query_row(&plan, [], |row| row.get("detail"))
        .ok()?;
    if found.starts_with("SEARCH") {
        return None;
    }
    let mut rows = FxHashMap::default();
    let select = format!(
        "SELECT id, rowid FROM {TABLE} ORDER BY rowid LIMIT {}",
        database.most_rows
    );
    let mut statement = database.connection.prepare(&select).ok()?;
    let mut found = statement.query([]).ok()?;
    // Where the table ends early, what was found of it is all there is.
    while let Ok(Some(row)) = found.next() {
        if let (Ok(id), Ok(number)) = (row.get::<_, i64>(0), row.get(1)) {
            rows.entry(id).or_insert(number);
        }
    }
    Some(rows)
}

impl<'a> Strings<'a> {
    pub(super) fn new(database: &'a Database) -> Self {
        let is_there = database.has_column(TABLE, "id") && database.has_column(TABLE, "value");
        let rows = if is_there { rows_by_id(database) } else { None };
        let key = if rows.is_some() { "rowid" } else { "id" };
        let statement = format!("SELECT value FROM {TABLE} WHERE {key} = ?1 LIMIT 1");
        let lookup = is_there
            .then(|| database.connection.prepare(&statement).ok())
            .flatten();
        Self {
            lookup,
            rows,
            texts: FxHashMap::default(),
            calls: FxHashMap::default(),
            missing: 0,
        }
    }

    /// Bytes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let rows = self
            .rows
            .as_ref()
            .map_or(0, |rows| rows.capacity() * size_of::<(i64, i64)>());
        let texts = self.texts.capacity() * size_of::<(i64, Option<NameId>)>();
        rows + texts + self.calls.capacity() * size_of::<(i64, NameId)>()
    }

    /// The string of an id; `None` where the file has none, or an empty one.
    pub(super) fn text(&mut self, id: i64, names: &mut Interner) -> Option<NameId> {
        if let Some(known) = self.texts.get(&id) {
            return *known;
        }
        let found = self.lookup.as_mut().and_then(|statement| {
            let key = match &self.rows {
                Some(rows) => *rows.get(&id)?,
                None => id,
            };
            let mut rows = statement.query([key]).ok()?;
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
