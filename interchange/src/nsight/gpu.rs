//! What ran on devices: kernels, copies, memory sets; and allocations of device memory.

use gputrace_trace::Table;
use gputrace_trace::tables::{Copy, Kernel, MemoryEvent, Memset};

use super::database::Database;
use super::rows::{Import, Wanted, maybe, narrow};

const KERNELS: Wanted = Wanted {
    table: "CUPTI_ACTIVITY_KIND_KERNEL",
    needed: &["start", "end", "deviceId", "contextId", "streamId"],
    optional: &[
        "globalPid",
        "correlationId",
        "demangledName",
        "mangledName",
        "shortName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "graphId",
        "graphNodeId",
    ],
    affects: "kernels: busy time, overlap and idle time",
};

const COPIES: Wanted = Wanted {
    table: "CUPTI_ACTIVITY_KIND_MEMCPY",
    needed: &[
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "bytes",
        "copyKind",
    ],
    optional: &[
        "globalPid",
        "correlationId",
        "srcKind",
        "dstKind",
        "srcDeviceId",
        "dstDeviceId",
        "graphId",
        "graphNodeId",
    ],
    affects: "copies: busy time, bandwidth and idle time",
};

const MEMSETS: Wanted = Wanted {
    table: "CUPTI_ACTIVITY_KIND_MEMSET",
    needed: &["start", "end", "deviceId", "contextId", "streamId", "bytes"],
    optional: &[
        "globalPid",
        "correlationId",
        "value",
        "memKind",
        "graphId",
        "graphNodeId",
    ],
    affects: "memory sets: busy time and idle time",
};

const MEMORY: Wanted = Wanted {
    table: "CUDA_GPU_MEMORY_USAGE_EVENTS",
    needed: &[
        "start",
        "globalPid",
        "address",
        "bytes",
        "memKind",
        "memoryOperationType",
    ],
    optional: &["deviceId", "contextId", "correlationId"],
    affects: "allocations of device memory",
};

/// Reads all tables of device work but that of whole graphs.
pub(super) fn read(import: &mut Import<'_>) {
    let kinds = MemoryKinds::of(import.database);
    kernels(import);
    copies(import, &kinds);
    memsets(import, &kinds);
    memory(import, &kinds);
}

fn kernels(import: &mut Import<'_>) {
    import.read(&KERNELS, |import, cells| {
        let [start, end, device, context, stream] = cells.needed()?;
        let [
            pid,
            correlation,
            demangled,
            mangled,
            short,
            x,
            y,
            z,
            bx,
            by,
            bz,
            registers,
            fixed,
            dynamic,
            graph,
            node,
        ] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let size = |value: Option<i64>| narrow(value.unwrap_or(0));
        let name = [demangled, mangled, short];
        let mut kernel = Kernel {
            start_ns,
            duration_ns,
            device: narrow(device)?,
            context: narrow(context)?,
            stream: narrow(stream)?,
            correlation: narrow(correlation.unwrap_or(0))?,
            grid_x: size(x)?,
            grid_y: size(y)?,
            grid_z: size(z)?,
            block_x: size(bx)?,
            block_y: size(by)?,
            block_z: size(bz)?,
            registers: narrow(registers.unwrap_or(0))?,
            static_shared_bytes: size(fixed)?,
            dynamic_shared_bytes: size(dynamic)?,
            graph: maybe(graph)?,
            graph_node: node.map(i64::cast_unsigned),
            ..Kernel::default()
        };
        kernel.name = import.strings.first_of(&name, &mut import.names);
        import.tables(pid)?.kernels.push(kernel);
        Ok(())
    });
}

fn copies(import: &mut Import<'_>, kinds: &MemoryKinds) {
    let mut migrations = 0u64;
    import.read(&COPIES, |import, cells| {
        let [start, end, device, context, stream, bytes, kind] = cells.needed()?;
        let [
            pid,
            correlation,
            source,
            destination,
            source_device,
            destination_device,
            graph,
            node,
        ] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let copy = Copy {
            start_ns,
            duration_ns,
            device: narrow(device)?,
            context: narrow(context)?,
            stream: narrow(stream)?,
            correlation: narrow(correlation.unwrap_or(0))?,
            copy_kind: copy_kind(narrow(kind)?),
            source_kind: kinds.cupti(source),
            destination_kind: kinds.cupti(destination),
            // Nsight Systems does not keep whether a copy was asynchronous.
            flags: 0,
            bytes: narrow(bytes)?,
            source_device: maybe(source_device)?,
            destination_device: maybe(destination_device)?,
            graph: maybe(graph)?,
            graph_node: node.map(i64::cast_unsigned),
        };
        import.tables(pid)?.copies.push(copy);
        migrations += u64::from((11..=13).contains(&kind));
        Ok(())
    });
    if migrations > 0 {
        import.notes.push(format!(
            "{migrations} migrations of unified memory are counted as copies"
        ));
    }
}

fn memsets(import: &mut Import<'_>, kinds: &MemoryKinds) {
    import.read(&MEMSETS, |import, cells| {
        let [start, end, device, context, stream, bytes] = cells.needed()?;
        let [pid, correlation, value, kind, graph, node] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let memset = Memset {
            start_ns,
            duration_ns,
            device: narrow(device)?,
            context: narrow(context)?,
            stream: narrow(stream)?,
            correlation: narrow(correlation.unwrap_or(0))?,
            bytes: narrow(bytes)?,
            // The low 32 bits are the value; some versions write it signed.
            value: value.unwrap_or(0) as u32,
            memory_kind: kinds.cupti(kind).into(),
            flags: 0,
            graph: maybe(graph)?,
            graph_node: node.map(i64::cast_unsigned),
        };
        import.tables(pid)?.memsets.push(memset);
        Ok(())
    });
}

fn memory(import: &mut Import<'_>, kinds: &MemoryKinds) {
    import.read(&MEMORY, |import, cells| {
        let [time, pid, address, bytes, kind, operation] = cells.needed()?;
        let [device, context, correlation] = cells.optional()?;
        let event = MemoryEvent {
            time_ns: import.time(time)?,
            // ENUM_CUDA_DEV_MEM_EVENT_OPER counts from 0, CUPTI from 1.
            operation: narrow(operation.saturating_add(1))?,
            memory_kind: kinds.cupti(Some(kind)).into(),
            address: address.cast_unsigned(),
            bytes: narrow(bytes)?,
            device: narrow(device.unwrap_or(0))?,
            context: narrow(context.unwrap_or(0))?,
            correlation: narrow(correlation.unwrap_or(0))?,
            ..MemoryEvent::default()
        };
        import.tables(Some(pid))?.memory.push(event);
        Ok(())
    });
}

/// `ENUM_CUDA_MEMCPY_OPER` as `CUpti_ActivityMemcpyKind`: equal but for the migrations of unified memory at its end.
fn copy_kind(kind: u8) -> u8 {
    match kind {
        11 => 1,
        12 => 2,
        13 => 8,
        other => other,
    }
}

/// `ENUM_CUDA_MEM_KIND` as `CUpti_ActivityMemoryKind`.
struct MemoryKinds(Vec<(i64, u8)>);

/// What the enum's symbols end in, in the order of CUPTI's numbers.
const SYMBOLS: [&str; 8] = [
    "_KIND_UNKNOWN",
    "_KIND_PAGEABLE",
    "_KIND_PINNED",
    "_KIND_DEVICE",
    "_KIND_ARRAY",
    "_KIND_MANAGED",
    "_KIND_DEVICE_STATIC",
    "_KIND_MANAGED_STATIC",
];

impl MemoryKinds {
    /// As the file itself says, or as it has been in all versions: pageable is 0, unknown 7.
    fn of(database: &Database) -> Self {
        let mut kinds = Vec::new();
        let read = database.each("ENUM_CUDA_MEM_KIND", &["id", "name"], |cells| {
            let (Ok(Some(id)), Ok(Some(name))) = (cells.integer(0), cells.text(1)) else {
                return;
            };
            if let Some(kind) = SYMBOLS.iter().position(|symbol| name.ends_with(symbol)) {
                kinds.push((id, u8::try_from(kind).unwrap_or(0)));
            }
        });
        if read.is_err() || kinds.is_empty() {
            kinds = (0..7).zip(1..8).collect();
        }
        Self(kinds)
    }

    fn cupti(&self, kind: Option<i64>) -> u8 {
        let found = self.0.iter().find(|(id, _)| Some(*id) == kind);
        found.map_or(0, |(_, cupti)| *cupti)
    }
}
