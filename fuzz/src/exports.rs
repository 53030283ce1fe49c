//! Exports of Nsight Systems made of fuzzed bytes: a database with the tables that the reader knows, in whatever selection of
//! columns, with values most of which are possible and some of which are not.

use arbitrary::{Result, Unstructured};
use rusqlite::Connection;
use rusqlite::types::Value;

/// Tables and columns of an export, as far as the reader looks at them.
const TABLES: &[(&str, &str)] = &[
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "start end deviceId contextId streamId globalPid correlationId demangledName mangledName shortName gridX gridY \
         gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory graphId graphNodeId",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "start end deviceId contextId streamId bytes copyKind globalPid correlationId srcKind dstKind srcDeviceId \
         dstDeviceId graphId graphNodeId",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "start end deviceId contextId streamId bytes globalPid correlationId value memKind graphId graphNodeId",
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start end globalTid nameId eventClass correlationId returnValue",
    ),
    ("StringIds", "id value"),
    (
        "NVTX_EVENTS",
        "start eventType globalTid end textId domainId category color text uint64Value doubleValue",
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "start end syncType globalPid contextId streamId eventId correlationId",
    ),
    (
        "CUPTI_ACTIVITY_KIND_DRIVER",
        "start end globalTid nameId eventClass correlationId returnValue",
    ),
    (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "start end deviceId contextId streamId graphId globalPid correlationId",
    ),
    (
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "start globalPid address bytes memKind memoryOperationType deviceId contextId correlationId",
    ),
    ("PROFILER_OVERHEAD", "start end globalTid nameId"),
    ("MPI_COLLECTIVES_EVENTS", "start end globalTid textId"),
    ("MPI_RANKS", "globalTid rank"),
    ("MPI_COMMUNICATORS", "size"),
    ("DIAGNOSTIC_EVENT", "severity text globalPid"),
    ("META_DATA_EXPORT", "name value"),
    ("META_DATA_CAPTURE", "name value"),
    ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
    ("TARGET_INFO_SYSTEM_ENV", "name value"),
    (
        "TARGET_INFO_GPU",
        "id name totalMemory memoryBandwidth smCount uuid cuDevice computeMajor computeMinor",
    ),
    ("TARGET_INFO_CUDA_DEVICE", "pid cudaId gpuId"),
    (
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        "processId vmId contextId deviceId nullStreamId",
    ),
    (
        "TARGET_INFO_CUDA_NULL_STREAM",
        "processId vmId contextId deviceId streamId",
    ),
    (
        "TARGET_INFO_CUDA_STREAM",
        "processId vmId contextId streamId flag priority",
    ),
    ("PROCESSES", "globalPid name"),
    ("ENUM_CUDA_MEM_KIND", "id name"),
    ("OTHER_EVENTS", "start"),
];

/// Texts that mean something to the reader somewhere.
const TEXTS: &[&str] = &[
    "cudaLaunchKernel_v7000",
    "cuLaunchKernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "MPI Rank 1",
    "12 CUDA events were dropped",
    "NVTX events were lost: 3",
    "EXPORT_SCHEMA_VERSION",
    "3.13.2",
    "EXPORT_PARAM_TIME_NORMALIZE",
    "true",
    "DeviceEnvironment",
    "RANK=1;WORLD_SIZE=2;LOCAL_RANK=1",
    "PROCESS_0:ENVIRONMENT_VARIABLE",
    "SLURM_PROCID=\"3\"",
    "PROCESS_0:COMMAND",
    "PROCESS_0:ARGUMENT_0",
    "Hostname",
    "CudaDriverVersion",
    "12040",
    "GPU-00112233-4455-6677-8899-aabbccddeeff",
    "CUDA_MEMKIND_KIND_PINNED",
    "CUPTI: Buffer flush",
    "step 1",
    "\u{e9}\u{2028}\0 ",
];

/// A table that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Its name.
    pub table: &'static str,
    /// Rows in it.
    pub rows: u64,
}

/// A value as the column of that name could have.
fn possible(column: &str, from: u8) -> Value {
    let number = i64::from(from);
    Value::Integer(match column {
        "start" => number * 1000,
        "end" => 200_000 + number * 1000,
        // Host and virtual machine, process, thread.
        "globalPid" | "globalTid" => {
            (1 << 56) | (i64::from(from >> 7) << 48) | ((1 + number % 3) << 24) | (number % 5)
        }
        "processId" | "pid" => 1 + number % 3,
        "vmId" => i64::from(from >> 7),
        "eventType" => [59, 60, 34, 39, 75, 70, 71, 36][usize::from(from % 8)],
        "eventClass" => [0, 1, 67, 2][usize::from(from % 4)],
        "severity" => 1 + number % 3,
        "utcEpochNs" => 1_700_000_000_000_000_000 + number,
        "name" | "text" | "uuid" | "value" => return text(from),
        _ => number % 17,
    })
}

fn text(from: u8) -> Value {
    Value::Text(TEXTS[usize::from(from) % TEXTS.len()].to_owned())
}

/// A value: mostly a possible one, else anything.
fn cell(column: &str, bytes: &mut Unstructured<'_>) -> Result<Value> {
    let kind: u8 = bytes.arbitrary()?;
    Ok(match kind {
        0..=231 => possible(column, kind.wrapping_mul(29)),
        232..=235 => possible(column, bytes.arbitrary()?),
        236..=238 => Value::Null,
        239..=242 => Value::Integer(bytes.arbitrary()?),
        243..=244 => Value::Integer(i64::from(bytes.arbitrary::<i8>()?)),
        245..=246 => Value::Real(bytes.arbitrary()?),
        247..=248 => Value::Text(bytes.arbitrary()?),
        249..=250 => Value::Blob(bytes.arbitrary()?),
        other => text(other),
    })
}

fn add_table(connection: &Connection, bytes: &mut Unstructured<'_>) -> rusqlite::Result<Option<Written>> {
    let mut plan = || -> Result<(usize, u32, u8)> {
        let table = bytes.choose_index(TABLES.len())?;
        // One table in four has not all columns.
        let left_out = if bytes.ratio(1u8, 4u8)? {
            bytes.arbitrary()?
        } else {
            0
        };
        Ok((table, left_out, bytes.int_in_range(0..=12)?))
    };
    let Ok((table, left_out, rows)) = plan() else {
        return Ok(None);
    };
    let (table, columns) = TABLES[table];
    let columns: Vec<&str> = columns
        .split_whitespace()
        .enumerate()
        .filter(|(index, _)| left_out >> (index % 32) & 1 == 0)
        .map(|(_, column)| column)
        .collect();
    if columns.is_empty() {
        return Ok(Some(Written { table, rows: 0 }));
    }
    let list: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    // A table that is there already stays as it is, with its own columns.
    if connection
        .execute(&format!("CREATE TABLE \"{table}\" ({})", list.join(", ")), [])
        .is_err()
    {
        return Ok(Some(Written { table, rows: 0 }));
    }
    let places = vec!["?"; columns.len()].join(", ");
    let mut insert = connection.prepare(&format!("INSERT INTO \"{table}\" VALUES ({places})"))?;
    let mut written = 0;
    for _ in 0..rows {
        let cells: Result<Vec<Value>> = columns.iter().map(|column| cell(column, bytes)).collect();
        let Ok(cells) = cells else { break };
        insert.execute(rusqlite::params_from_iter(cells))?;
        written += 1;
    }
    Ok(Some(Written { table, rows: written }))
}

/// Makes a database of fuzzed bytes: its file's bytes, and the tables in it.
///
/// # Errors
/// When SQLite refuses: a text or a blob with which it can't do.
pub fn database(data: &[u8]) -> rusqlite::Result<(Vec<u8>, Vec<Written>)> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = OFF; BEGIN;")?;
    let mut bytes = Unstructured::new(data);
    let mut tables = Vec::new();
    while !bytes.is_empty() && tables.len() < 40 {
        match add_table(&connection, &mut bytes)? {
            Some(written) => tables.push(written),
            None => break,
        }
    }
    connection.execute_batch("COMMIT;")?;
    let file = connection.serialize("main")?.to_vec();
    Ok((file, tables))
}
