//! Small exports, built here, in both families of schema.

use std::fs;
use std::path::{Path, PathBuf};

use gputrace_interchange::nsight;
use gputrace_trace::{Process, Recording};
use rusqlite::Connection;
use tempfile::TempDir;

/// The start of the small recordings.
pub const EPOCH: i64 = 1_700_000_000_000_000_000;
/// The global ids of the small recordings' processes: host 1, no virtual machine.
pub const fn pid(number: i64) -> i64 {
    (1 << 56) | (number << 24)
}
pub const fn tid(process: i64, thread: i64) -> i64 {
    pid(process) | thread
}

pub fn import(path: &Path) -> Recording {
    nsight::import(path, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn name<'a>(recording: &'a Recording, id: &gputrace_trace::NameId) -> &'a str {
    recording.names.get(*id)
}

pub fn notes(recording: &Recording, words: &str) -> bool {
    recording.notes.iter().any(|note| note.contains(words))
}

pub fn loss<'a>(recording: &'a Recording, words: &str) -> &'a gputrace_trace::Loss {
    let found = recording.losses.iter().find(|loss| loss.what.contains(words));
    found.unwrap_or_else(|| panic!("no loss {words:?} in {:?}", recording.losses))
}

/// The schema of 2024 and later, with the columns that matter here; `old` is that of 2022.
pub const NEW: &str = "
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.5.1.113'),
        ('EXPORT_SCHEMA_VERSION', '3.13.2'), ('EXPORT_PARAM_TIME_NORMALIZE', 'false');
    CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
    INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
        (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
        (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'), (7, 'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN', 'Unknown');
    CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO (nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL,
        vmId INTEGER NOT NULL, processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
        parentContextId INTEGER, isGreenContext INTEGER);
    CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL,
        uuid TEXT NOT NULL, numMultiprocessors INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
        registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
        blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
        dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER, graphId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,
        dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER,
        migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
        correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
        bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
        correlationId INTEGER);
    CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL);
    CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
        commHandle INTEGER, rootRank INTEGER, size INTEGER, recvSize INTEGER, requestHandle INTEGER);
    CREATE TABLE MPI_START_WAIT_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
        requestHandle INTEGER);
    CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL,
        severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER);
    CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
";
pub const OLD: &str = "
    CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
    INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_PRODUCT_VERSION', '2022.2.1.31'), ('EXPORT_SCHEMA_VERSION', '2.9.1');
    CREATE TABLE TARGET_INFO_CUDA_NULL_STREAM (streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL,
        processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
        registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
        blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
        dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER,
        dstDeviceId INTEGER, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
";
/// What both have. The strings are few, so that tests can name them by number.
pub const BOTH: &str = "
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    INSERT INTO StringIds VALUES (0, '[Unknown]'), (1, 'void gemm<float>(int)'), (2, 'gemm'), (3, '_Z4gemmIfEvi'),
        (4, ''), (5, 'cudaLaunchKernel_v7000'), (6, 'cuMemAlloc_v2'), (7, 'MPI_Allreduce'), (8, 'MPI_Wait'),
        (9, 'step'), (10, 'CUPTI: Buffer flush'), (11, 'train');
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER NOT NULL, utcTime TEXT, localTime TEXT);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
        nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
    INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 1, 'node7'), (0, '', 'CudaDriverVersion', 2, '12040');
    CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER NOT NULL,
        memoryBandwidth INTEGER NOT NULL, smCount INTEGER NOT NULL, uuid TEXT, cuDevice INTEGER,
        computeMajor INTEGER, computeMinor INTEGER);
    CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL,
        processId INTEGER NOT NULL, contextId INTEGER NOT NULL, priority INTEGER NOT NULL, flag INTEGER NOT NULL);
    CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
        returnValue INTEGER NOT NULL, callchainId INTEGER);
    CREATE TABLE PROFILER_OVERHEAD (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
        nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
        category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
        domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
        int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
";

/// A database in a folder of its own.
pub struct Export {
    pub folder: TempDir,
    pub path: PathBuf,
    pub database: Connection,
}

impl Export {
    pub fn named(file: &str, schema: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(file);
        let database = Connection::open(&path).unwrap();
        database.execute_batch(schema).unwrap();
        Self {
            folder,
            path,
            database,
        }
    }

    pub fn new() -> Self {
        Self::named("report.sqlite", &format!("{NEW}{BOTH}"))
    }

    pub fn old() -> Self {
        Self::named("report.sqlite", &format!("{OLD}{BOTH}"))
    }

    pub fn run(&self, statements: &str) -> &Self {
        self.database.execute_batch(statements).unwrap();
        self
    }

    /// A kernel of 100 ns on stream 7, launched by correlation `correlation`.
    pub fn kernel(&self, process: i64, start: i64, correlation: i64) -> &Self {
        self.run(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
                demangledName, shortName, mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,
                staticSharedMemory, dynamicSharedMemory)
             VALUES ({start}, {start} + 100, 0, 1, 7, {correlation}, {}, 1, 2, 3, 32, 4, 5, 6, 128, 2, 1, 1024, 2048)",
            pid(process)
        ))
    }

    pub fn import(&self) -> Recording {
        let recording = import(&self.path);
        let beside = fs::read_dir(self.folder.path()).unwrap().count();
        assert_eq!(beside, 1, "nothing is written beside the file");
        recording
    }

    pub fn only(&self) -> (Recording, Process) {
        let recording = self.import();
        let folders: Vec<_> = recording
            .processes
            .iter()
            .map(|process| (process.folder.clone(), process.tables.row_counts()))
            .collect();
        assert_eq!(folders.len(), 1, "{folders:?} {:?}", recording.losses);
        let process = recording.processes[0].clone();
        (recording, process)
    }

    pub fn refusal(&self) -> String {
        refusal(&self.path)
    }
}

pub fn refusal(path: &Path) -> String {
    let error = nsight::import(path, &|_, _| ())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    assert!(
        error.starts_with(&path.display().to_string()),
        "the file first: {error}"
    );
    error
}
