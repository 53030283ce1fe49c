//! Whether two recordings say the same.

use gputrace_trace::tables::{TABLE_NAMES, Tables};
use gputrace_trace::{Interner, NameId, Process, Recording, Table};

/// A process's rows, each as text, in order.
fn rows(process: &Process, names: &Interner, common: &mut Interner) -> Vec<(String, Vec<String>)> {
    let mut tables = process.tables.clone();
    // Control characters become spaces.
    let clean = |text: &str| text.replace(char::is_control, " ");
    let numbers: Vec<_> = (0..names.len())
        .map(|number| common.intern(&clean(names.get(NameId(number as u32)))))
        .collect();
    tables.renumber(&numbers);
    let mut all = Vec::new();
    macro_rules! add {
        ($($table:ident),* $(,)?) => {
            // A table that is not listed would not be compared.
            assert_eq!([$(stringify!($table)),*].as_slice(), TABLE_NAMES);
            $(
                let table = &tables.$table;
                let mut rows: Vec<String> = (0..table.len()).map(|row| format!("{:?}", table.row(row))).collect();
                rows.sort();
                all.push((stringify!($table).to_owned(), rows));
            )*
        };
    }
    let _: &Tables = &tables;
    add!(
        kernels,
        copies,
        memsets,
        graph_nodes,
        graph_launches,
        untimed_operations,
        collectives,
        nccl_channels,
        nccl_proxy,
        communicators,
        api_calls,
        synchronizations,
        event_records,
        overheads,
        modules,
        compilations,
        markers,
        payload_fields,
        object_names,
        operators,
        memory,
        memory_pools,
        counters,
        external_correlations,
        contexts,
        streams,
        clocks,
        windows,
        losses,
    );
    all
}

/// Compares all that both say; rows may be in another order.
#[track_caller]
pub fn assert_same(before: &Recording, after: &Recording) {
    assert_eq!(before.manifest, after.manifest);
    assert_eq!(before.losses, after.losses);
    assert_eq!(before.notes, after.notes);
    assert_eq!(before.unaligned, after.unaligned);
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
