//! Floods of packed files, databases and recordings.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gputrace_trace::json_file::write_json;

use gputrace_trace::manifest::{PROCESS_FILE, ProcessHeader};
use gputrace_trace::tables::{Collective, Communicator, Context, Kernel};
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, TimeNs};

/// A packed file of blanks, behind an event: so many MiB.
fn blanks(count: usize, out: &mut dyn Write) {
    let block = vec![b' '; 1 << 20];
    let kernel = r#"{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1,"dur":5,"args":{"device":0,"stream":7}}"#;
    write!(out, "{{\"traceEvents\":[{kernel}").expect("written");
    for _ in 0..count {
        out.write_all(&block).expect("written");
    }
    write!(out, "]}}").expect("written");
}

pub(super) fn gzip_bomb(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("rank0.json.gz");
    let file = File::create(&path).expect("a file");
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::new(6));
    blanks(count, &mut packed);
    packed.finish().expect("written");
    path
}

pub(super) fn zstd_bomb(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("rank0.json.zst");
    let file = File::create(&path).expect("a file");
    let mut packed = zstd::stream::write::Encoder::new(file, 1).expect("a packer");
    blanks(count, &mut packed);
    packed.finish().expect("written");
    path
}

/// A packed file of one string: so many MiB.
pub(super) fn gzip_bomb_of_one_string(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("rank0.json.gz");
    let file = File::create(&path).expect("a file");
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::new(6));
    let block = vec![b'x'; 1 << 20];
    write!(packed, "{{\"traceEvents\":[{{\"name\":\"").expect("written");
    for _ in 0..count {
        packed.write_all(&block).expect("written");
    }
    packed.finish().expect("written");
    path
}

/// Each event packed alone.
pub(super) fn gzip_members(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("rank0.json.gz");
    let mut out = BufWriter::new(File::create(&path).expect("a file"));
    let mut member = |text: &str| {
        let mut packed = flate2::write::GzEncoder::new(&mut out, flate2::Compression::new(1));
        packed.write_all(text.as_bytes()).expect("written");
        packed.finish().expect("written");
    };
    member("{\"traceEvents\":[");
    for at in 0..count {
        let comma = if at > 0 { "," } else { "" };
        member(&format!(
            r#"{comma}{{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":{at},"dur":1,"args":{{"device":0,"stream":7}}}}"#
        ));
    }
    member("]}");
    out.flush().expect("written");
    path
}

/// An export of Nsight Systems with so many of each thing that one can have: processes, devices, streams, names, tables.
fn database(path: &Path, fill: impl FnOnce(&rusqlite::Transaction<'_>)) {
    let mut connection = rusqlite::Connection::open(path).expect("a database");
    connection
        .execute_batch(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
             CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
                textId INTEGER, domainId INTEGER);
             CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, cuDevice INTEGER);
             CREATE TABLE TARGET_INFO_CUDA_DEVICE (pid INTEGER, cudaId INTEGER, gpuId INTEGER);
             CREATE TABLE TARGET_INFO_CUDA_STREAM (processId INTEGER, vmId INTEGER, contextId INTEGER, streamId INTEGER,
                flag INTEGER, priority INTEGER);
             INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');",
        )
        .expect("tables");
    let rows = connection.transaction().expect("a transaction");
    fill(&rows);
    rows.commit().expect("written");
}

const ONE_PROCESS: i64 = 4711 << 24;

fn insert_kernel(rows: &rusqlite::Transaction<'_>, at: i64, process: i64, device: i64, name: i64) {
    rows.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?7)",
        [at * 10 + 5, at * 10 + 10, device, 7, at + 1, process, name],
    )
    .expect("a row");
    rows.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 0, ?3, ?4, 2, 0)",
        [at * 10, at * 10 + 2, process + 1, at + 1],
    )
    .expect("a row");
}

pub(super) fn sqlite_processes(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("report.sqlite");
    database(&path, |rows| {
        for at in 0..count as i64 {
            insert_kernel(rows, at, (at + 1) << 24, 0, 1);
            rows.execute(
                "INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (?1, 0, 1, 7, 0, 0)",
                [at + 1],
            )
            .expect("a row");
        }
    });
    path
}

pub(super) fn sqlite_devices(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("report.sqlite");
    database(&path, |rows| {
        for at in 0..count as i64 {
            insert_kernel(rows, at, ONE_PROCESS, at, 1);
            rows.execute("INSERT INTO TARGET_INFO_GPU VALUES (?1, 'H200', ?1)", [at])
                .expect("a row");
            rows.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (4711, ?1, ?1)", [at])
                .expect("a row");
        }
    });
    path
}

/// Names in a table without an index.
pub(super) fn sqlite_names(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("report.sqlite");
    database(&path, |rows| {
        rows.execute_batch(
            "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT); INSERT INTO StringIds VALUES (2, 'cudaLaunchKernel');",
        )
        .expect("a table");
        for at in 0..count as i64 {
            rows.execute("INSERT INTO StringIds VALUES (?1, 'kernel_' || ?1)", [at + 10])
                .expect("a row");
            insert_kernel(rows, at, ONE_PROCESS, 0, at + 10);
        }
    });
    path
}

pub(super) fn sqlite_tables(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("report.sqlite");
    database(&path, |rows| {
        insert_kernel(rows, 0, ONE_PROCESS, 0, 1);
        for at in 0..count {
            rows.execute_batch(&format!("CREATE TABLE T{at}_EVENTS (start INTEGER)"))
                .expect("a table");
        }
    });
    path
}

pub(super) fn sqlite_nested_ranges(count: usize, folder: &Path) -> PathBuf {
    let path = folder.join("report.sqlite");
    database(&path, |rows| {
        insert_kernel(rows, 0, ONE_PROCESS, 0, 1);
        for at in 0..count as i64 {
            rows.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, 'range ' || ?1, ?3, NULL, 0)",
                [at, 2 * count as i64 - at, ONE_PROCESS + 1],
            )
            .expect("a row");
        }
        insert_kernel(rows, count as i64, ONE_PROCESS, 0, 1);
    });
    path
}

/// A process of a recording of ours: a kernel, a collective and a communicator of all.
fn process_of_ours(folder: &Path, rank: usize, of: usize) {
    let rank = u32::try_from(rank).expect("a rank");
    let mut writer = ProcessWriter::create(folder).expect("a folder");
    let time = |ns: i64| TimeNs(1_700_000_000_000_000_000 + ns);
    let name = writer.names.intern(&format!("ncclDevKernel_{rank}"));
    writer.tables.kernels.push(Kernel {
        start_ns: time(1000),
        duration_ns: DurationNs(500),
        name,
        correlation: 1,
        ..Kernel::default()
    });
    let function = writer.names.intern("AllReduce");
    writer.tables.collectives.push(Collective {
        start_ns: time(900),
        duration_ns: DurationNs(10),
        communicator: 0xabc,
        rank,
        sequence: Some(1),
        function,
        bytes: 4096,
        ..Collective::default()
    });
    writer.tables.communicators.push(Communicator {
        created_ns: time(1),
        communicator: 0xabc,
        rank,
        ranks: u32::try_from(of).expect("a number"),
        ..Communicator::default()
    });
    writer.tables.contexts.push(Context::default());
    let rows = writer.close().expect("written");
    let mut header = ProcessHeader {
        rank: Some(rank),
        pid: rank + 100,
        host: "host".to_owned(),
        started_ns: time(0).0,
        ended_ns: Some(time(5000).0),
        rows: rows
            .into_iter()
            .map(|(table, rows)| (table.to_owned(), rows))
            .collect(),
        ..ProcessHeader::new()
    };
    writer.sign(&mut header);
    write_json(&folder.join(PROCESS_FILE), &header).expect("written");
}

pub(super) fn recorded_processes(count: usize, folder: &Path) -> PathBuf {
    let recording = folder.join("recording");
    std::fs::create_dir(&recording).expect("a folder");
    for rank in 0..count {
        process_of_ours(&recording.join(format!("rank{rank}")), rank, count);
    }
    recording
}

/// A process in many parts, as a limit of size makes them.
pub(super) fn recorded_parts(count: usize, folder: &Path) -> PathBuf {
    let recording = folder.join("recording");
    std::fs::create_dir(&recording).expect("a folder");
    process_of_ours(&recording.join("rank0"), 0, 1);
    for part in 1..count {
        process_of_ours(&recording.join(format!("rank0.{part}")), 0, 1);
    }
    recording
}
