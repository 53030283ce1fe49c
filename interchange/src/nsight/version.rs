//! Whether a database is an export at all, of which version, and what of it nothing here reads.

use std::collections::BTreeMap;

use super::database::Database;
use super::rows::{Import, one_line};

/// Tables with name and value of the export itself; older versions have the second.
const META_TABLES: [&str; 2] = ["META_DATA_EXPORT", "EXPORT_META_DATA"];
/// Schema versions of which real files were read.
const TRIED: [(u32, u32); 2] = [(2, 9), (3, 13)];
/// Tables of events that are read.
const USED: &[&str] = &[
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "PROFILER_OVERHEAD",
    "NVTX_EVENTS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
    "DIAGNOSTIC_EVENT",
];

/// What an export says of itself.
#[derive(Debug, Default)]
pub(super) struct Version {
    schema: Option<String>,
    product: Option<String>,
    /// When recording started, by the epoch's time.
    pub(super) started_ns: Option<i64>,
    /// Its times are the epoch's already, instead of counting from the start.
    normalized: bool,
}

/// Names of tables are the same in small letters.
fn begins_with(table: &str, start: &str) -> bool {
    table
        .get(..start.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// Whether it is an export, by the tables that every version has.
pub(super) fn is_export(database: &Database) -> bool {
    META_TABLES.iter().any(|table| database.has(table))
        || database.tables().any(|table| begins_with(table, "CUPTI_ACTIVITY_KIND_"))
        || (database.has("StringIds") && database.tables().any(|table| begins_with(table, "TARGET_INFO_")))
        // A damaged list of tables may be all that is left of one.
        || database.unreadable.iter().any(|table| table.starts_with("CUPTI_ACTIVITY_KIND_"))
}

/// The line that refuses a database of something else.
pub(super) fn no_export(database: &Database) -> String {
    let mut tables: Vec<String> = database.tables().map(one_line).collect();
    let more = if tables.len() > 3 { ", ..." } else { "" };
    tables.truncate(3);
    let holds = if tables.is_empty() {
        "it has no tables".to_owned()
    } else {
        format!("its tables are {}{more}", tables.join(", "))
    };
    format!(
        "an SQLite database, but no export of Nsight Systems ({holds}): `nsys export --type sqlite REPORT.nsys-rep` \
         makes one of a report"
    )
}

/// Reads what the export says of itself.
pub(super) fn read(database: &Database) -> Version {
    let mut words = BTreeMap::new();
    for table in META_TABLES {
        // A table that is cut says what it can.
        drop(database.each(table, &["name", "value"], |cells| {
            if let (Ok(Some(name)), Ok(Some(value))) = (cells.text(0), cells.text(1)) {
                words.insert(name.into_owned(), value.into_owned());
            }
        }));
    }
    let mut start = None;
    drop(
        database.each("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |cells| {
            start = start.or(cells.integer(0).ok().flatten());
        }),
    );
    Version {
        schema: words.remove("EXPORT_SCHEMA_VERSION"),
        product: words.remove("EXPORT_PRODUCT_VERSION"),
        started_ns: start.filter(|start| (0..1 << 61).contains(start)),
        // `--ts-normalize=true` was given.
        normalized: words
            .get("EXPORT_PARAM_TIME_NORMALIZE")
            .is_some_and(|value| value == "true"),
    }
}

impl Version {
    /// What makes the epoch's times of the file's.
    pub(super) fn offset_ns(&self) -> i64 {
        if self.normalized {
            0
        } else {
            self.started_ns.unwrap_or(0)
        }
    }

    /// Says in notes what of the version is worth knowing.
    pub(super) fn say(&self, notes: &mut Vec<String>) {
        let product = self.product.as_deref().map_or_else(String::new, |product| {
            format!(" (exported by version {})", one_line(product))
        });
        match &self.schema {
            None => notes.push(format!(
                "it does not say its Nsight Systems schema version{product}: read by the columns that are there"
            )),
            Some(schema) if !tried(schema) => notes.push(format!(
                "Nsight Systems schema {}: read by documented schema, never tried on a real file of it{product}",
                one_line(&major_minor(schema))
            )),
            Some(_) => {}
        }
        if self.started_ns.is_none() && !self.normalized {
            notes.push(
                "it does not say when it was recorded: times count from the start of recording".to_owned(),
            );
        }
    }
}

fn major_minor(schema: &str) -> String {
    let mut parts = schema.split('.');
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => schema.to_owned(),
    }
}

fn tried(schema: &str) -> bool {
    TRIED
        .iter()
        .any(|(major, minor)| major_minor(schema) == format!("{major}.{minor}"))
}

/// Notes the tables of events that nothing here reads, and counts names that are not there.
pub(super) fn say_what_is_unused(import: &mut Import<'_>) {
    let database = import.database;
    let is_event = |table: &&str| {
        let table = table.to_ascii_uppercase();
        let events = ["_EVENTS", "_API", "_WORKLOAD", "_METRICS"];
        (events.iter().any(|ending| table.ends_with(ending)) || table.starts_with("CUPTI_ACTIVITY_KIND_"))
            && !table.starts_with("TARGET_INFO_")
            && !USED.contains(&table.as_str())
            && !database.is_empty(&table)
    };
    let unused: Vec<String> = database.tables().filter(is_event).map(one_line).collect();
    if !unused.is_empty() {
        import.notes.push(format!(
            "tables that no measure uses are left out: {}",
            unused.join(", ")
        ));
    }
    if import.strings.missing > 0 {
        import.losses.lose(
            "names whose text the file does not have; they are called \"[string N]\"".to_owned(),
            Some(import.strings.missing),
            "names of kernels, calls and ranges",
        );
    }
}
