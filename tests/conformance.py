"""NVIDIA's own libcupti and headers against what the stand-in writes.

    conformance.py walk VERSION BUFFER...    cuptiActivityGetNextRecord of that version over the raw buffers:
                                             one line "KIND OFFSET" a record, then "end STATUS"
    conformance.py layouts VERSION           sizeof and offsetof by a C program against that version's headers:
                                             one line "STRUCT.MEMBER OFFSET" or "STRUCT SIZE"
    conformance.py subscribers VERSION NAME...   the same for the structs of CUPTI's functions of a subscriber, and the
                                             numbers of enumerators: one line "NAME NUMBER"
    conformance.py fetch                     fetches all that these use

Wheels are fetched with pip into the folder that CONFORMANCE_CACHE names, once. Exit status 77: something is missing
here (pip, gcc, the wheels), said on stderr.
"""

import ctypes
import fcntl
import os
import pathlib
import subprocess
import sys
import zipfile

CACHE = pathlib.Path(os.environ["CONFORMANCE_CACHE"])
# CUPTI's version, and the wheels that hold it and the headers that its own include.
CUPTI = {
    "12.0": ["nvidia-cuda-cupti-cu12==12.0.146"],
    "12.8": ["nvidia-cuda-cupti-cu12==12.8.90"],
    "13.0": ["nvidia-cuda-cupti==13.0.85"],
    "13.3": ["nvidia-cuda-cupti==13.3.75"],
    "13.4": ["nvidia-cuda-cupti==13.4.92"],
    "13.5": ["nvidia-cuda-cupti==13.5.25"],
}
HEADERS = {
    "12.0": ["nvidia-cuda-runtime-cu12==12.0.146", "nvidia-cuda-nvcc-cu12==12.0.140"],
    "12.8": ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-nvcc-cu12==12.8.93"],
    "13.0": ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"],
    "13.3": ["nvidia-cuda-runtime==13.3.29", "nvidia-cuda-crt==13.3.73"],
    "13.4": ["nvidia-cuda-runtime==13.4.92", "nvidia-cuda-crt==13.4.92"],
    "13.5": ["nvidia-cuda-runtime==13.4.92", "nvidia-cuda-crt==13.4.92"],
}
# The versions that STRUCTS names structs of.
STRUCT_VERSIONS = ["12.0", "12.8", "13.0", "13.4"]
# The structs of the functions of a subscriber, and their members; those of a last column since 13.4.
SUBSCRIBER_STRUCTS = [
    ("CUpti_SubscriberParams", "structSize subscriberName oldSubscriberName oldSubscriberSize allowMultipleSubscribers", ""),
    ("CUpti_ActivityFieldSelection", "structSize numFields pFieldIds", ""),
    ("CUpti_ActivityConfig", "structSize fieldSelection", "pKindOptions"),
    ("CUpti_ActivityFieldLayoutEntry", "structSize fieldId offset size alignment", ""),
    ("CUpti_ActivityRecordLayout", "structSize pEntries numFields recordSize", ""),
    ("CUpti_BufferCallbackCompleteInfo", "structSize threadId ppRecordLayouts numRecordLayouts", ""),
]
# The struct of each record in each version, the members that the stand-in writes, and those of them that came after 12.0.
STRUCTS = {
    "kernel": (["Kernel9", "Kernel9", "Kernel10", "Kernel13"], "registersPerThread start end deviceId contextId streamId "
               "gridX gridY gridZ blockX blockY blockZ dynamicSharedMemory correlationId gridId name graphNodeId graphId"),
    "memcpy": (["Memcpy5", "Memcpy6", "Memcpy6", "Memcpy7"], "copyKind srcKind dstKind flags bytes start end deviceId "
               "contextId streamId correlationId graphNodeId graphId"),
    "peer": (["MemcpyPtoP4"] * 4, "copyKind srcKind dstKind flags bytes start end deviceId contextId streamId srcDeviceId "
             "srcContextId dstDeviceId dstContextId correlationId"),
    "memset": (["Memset4", "Memset4", "Memset4", "Memset5"], "value bytes start end deviceId contextId streamId "
               "correlationId flags memoryKind"),
    "api": (["API"] * 4, "cbid start end processId threadId correlationId returnValue"),
    "external": (["ExternalCorrelation"] * 4, "externalKind externalId correlationId"),
    "synchronization": (["Synchronization", "Synchronization2", "Synchronization2", "Synchronization2"],
                        "type start end correlationId contextId streamId cudaEventId", "cudaEventSyncId returnValue"),
    "event": (["CudaEvent", "CudaEvent2", "CudaEvent2", "CudaEvent2"], "correlationId contextId streamId eventId",
              "deviceId deviceTimestamp cudaEventSyncId"),
    "device": (["Device4", "Device5", "Device5", "Device6"], "globalMemoryBandwidth globalMemorySize l2CacheSize "
               "numThreadsPerWarp coreClockRate numMemcpyEngines numMultiprocessors maxThreadsPerBlock "
               "computeCapabilityMajor computeCapabilityMinor id uuid name isCudaVisible"),
    "context": (["Context", "Context3", "Context3", "Context4"], "contextId deviceId computeApiKind nullStreamId"),
    "stream": (["Stream"] * 4, "contextId streamId priority flag"),
    "overhead": (["Overhead", "Overhead3", "Overhead3", "Overhead3"], "overheadKind objectKind objectId start end"),
}


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(77)


def wheel(requirement):
    """The unpacked wheel, fetched at its first use. Tests run side by side: one fetches, the others wait."""
    name, version = requirement.split("==")
    folder = CACHE / f"{name}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(CACHE)]
        done = subprocess.run([*fetch, requirement], capture_output=True, text=True)
        if done.returncode:
            skip(f"pip cannot fetch {requirement}: {done.stderr.strip().splitlines()[-1:]}")
        path = next(CACHE.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        part = folder.with_suffix(".part")
        with zipfile.ZipFile(path) as archive:
            archive.extractall(part)
        part.rename(folder)
        path.unlink()
    return folder


def walk(version, buffers):
    library = next(p for r in CUPTI[version] for p in wheel(r).rglob("libcupti.so.1[23]"))
    cupti = ctypes.CDLL(str(library))
    next_record = cupti.cuptiActivityGetNextRecord
    next_record.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
    for path in buffers:
        data = pathlib.Path(path).read_bytes()
        buffer = (ctypes.c_uint64 * (len(data) // 8 + 1))()
        base = ctypes.addressof(buffer)
        ctypes.memmove(base, data, len(data))
        record = ctypes.c_void_p()
        while (status := next_record(base, len(data), ctypes.byref(record))) == 0:
            offset = record.value - base
            print(int.from_bytes(data[offset:offset + 4], "little"), offset)
        print("end", status)


def ask_headers(version, lines):
    """Runs the lines of a C program's main against that version's headers and prints what it prints."""
    folders = [wheel(r) for r in CUPTI[version] + HEADERS[version]]
    includes = {str(p.parent) for f in folders for name in ("cupti.h", "cuda.h", "crt/host_defines.h") for p in f.rglob(name)}
    includes |= {str(pathlib.Path(p).parent) for p in includes if p.endswith("/crt")}
    lines = ["#include <stdio.h>", "#include <stddef.h>", "#include <cuda.h>", "#include <cupti.h>", "int main(void) {",
             *lines, "return 0; }"]
    source = CACHE / f"headers-{version}-{os.getpid()}.c"
    program = source.with_suffix("")
    source.write_text("\n".join(lines))
    compiler = os.environ.get("CC", "gcc")
    try:
        flags = [f"-I{path}" for path in sorted(includes)]
        built = subprocess.run([compiler, "-Wno-deprecated-declarations", *flags, str(source), "-o", str(program)],
                               capture_output=True, text=True)
    except FileNotFoundError:
        skip(f"no C compiler: {compiler}")
    if built.returncode:
        sys.exit(built.stderr)
    print(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout, end="")
    source.unlink()
    program.unlink()


def layouts(version):
    index = STRUCT_VERSIONS.index(version)
    lines = []
    for label, (versions, members, *later) in STRUCTS.items():
        struct = f"CUpti_Activity{versions[index]}"
        members = " ".join([members, *(later if index > 0 else [])])
        lines.append(f'printf("{label} %zu\\n", sizeof({struct}));')
        lines += [f'printf("{label}.{m} %zu\\n", offsetof({struct}, {m}));' for m in members.split()]
    ask_headers(version, lines)


def subscribers(version, names):
    lines = [f'printf("{name} %d\\n", (int){name});' for name in names]
    for struct, members, later in SUBSCRIBER_STRUCTS:
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        members = members.split() + (later.split() if version != "13.3" else [])
        lines += [f'printf("{struct}.{m} %zu\\n", offsetof({struct}, {m}));' for m in members]
    ask_headers(version, lines)


def fetch():
    for requirement in sorted({r for table in (CUPTI, HEADERS) for wheels in table.values() for r in wheels}):
        wheel(requirement)


if __name__ == "__main__":
    {"fetch": fetch, "walk": lambda: walk(sys.argv[2], sys.argv[3:]), "layouts": lambda: layouts(sys.argv[2]),
     "subscribers": lambda: subscribers(sys.argv[2], sys.argv[3:])}[sys.argv[1]]()
