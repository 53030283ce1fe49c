//! Whether two recordings say the same.

use gputrace_trace::table::TableVisitor;
use gputrace_trace::{Interner, NameId, Process, Recording, Table};

/// Each table's rows, each as text, in order.
#[derive(Default)]
struct Rows(Vec<(&'static str, Vec<String>)>);

impl TableVisitor for Rows {
    fn table<T: Table>(&mut self, table: &T) {
        let mut rows: Vec<String> = (0..table.len())
            .map(|row| format!("{:?}", table.row(row)))
            .collect();
        rows.sort();
        self.0.push((T::NAME, rows));
    }
}

/// A process's rows, with names by their numbers in `common`.
fn rows(process: &Process, names: &Interner, common: &mut Interner) -> Vec<(&'static str, Vec<String>)> {
    let mut tables = process.tables.clone();
    // Control characters become spaces.
    let clean = |text: &str| text.replace(char::is_control, " ");
    let numbers: Vec<_> = (0..names.len())
        .map(|number| common.intern(&clean(names.get(NameId::new(number as u32)))))
        .collect();
    tables.renumber(&numbers);
    let mut rows = Rows::default();
    tables.visit(&mut rows);
    rows.0
}

/// Compares all that both say; rows may be in another order.
#[track_caller]
pub fn assert_same(before: &Recording, after: &Recording) {
    assert_eq!(before.manifest, after.manifest);
    assert_eq!(before.losses, after.losses);
    assert_eq!(before.notes, after.notes);
    assert_eq!(before.unaligned, after.unaligned);
    assert_eq!(before.clocks, after.clocks);
    for (of, before_list, after_list) in [
        ("process", &before.processes, &after.processes),
        ("host", &before.hosts, &after.hosts),
    ] {
        assert_eq!(before_list.len(), after_list.len(), "{of}");
        for (one, other) in before_list.iter().zip(after_list) {
            assert_eq!((&one.folder, &one.header), (&other.folder, &other.header));
            let mut common = Interner::default();
            let one_rows = rows(one, &before.names, &mut common);
            let other_rows = rows(other, &after.names, &mut common);
            for ((table, one), (_, other)) in one_rows.iter().zip(&other_rows) {
                assert_eq!(one.len(), other.len(), "{of}: {table}: rows");
                for (one, other) in one.iter().zip(other) {
                    assert_eq!(one, other, "{of}: {table}");
                }
            }
        }
    }
}
