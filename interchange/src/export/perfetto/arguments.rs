//! What events say beside names and times ("debug annotations"): names with units, and values.

use super::fields::{annotation, event, stage};
use super::text::without_nul;
use crate::export::protobuf::ProtoBuffer;
use gputrace_trace::measures::{CATALOGUE, Getter, Measures};

macro_rules! argument_names {
    ($($name:ident = $text:literal,)*) => {
        /// The name of an argument. In Perfetto's SQL it is `debug.` and the text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($name,)*
        }

        /// The texts of all, in order.
        const KEY_NAMES: &[&str] = &[$($text,)*];
    };
}

argument_names! {
    Device = "device",
    Context = "context",
    Stream = "stream",
    Correlation = "correlation",
    Grid = "grid",
    Block = "block",
    Cluster = "cluster",
    Registers = "registers_per_thread",
    StaticShared = "static_shared_bytes",
    DynamicShared = "dynamic_shared_bytes",
    Local = "local_bytes",
    BlocksPerMultiprocessor = "blocks_per_sm",
    WarpsPerMultiprocessor = "warps_per_sm",
    Graph = "graph",
    GraphNode = "graph_node",
    Operator = "operator",
    Module = "module",
    InputDims = "input_dims",
    InputTypes = "input_types",
    InputValues = "input_values",
    SequenceNumber = "sequence_number",
    ForwardThread = "forward_thread",
    Collective = "collective",
    Communicator = "communicator",
    CommunicatorName = "communicator_name",
    Sequence = "sequence",
    Ranks = "ranks",
    Bytes = "bytes",
    Elements = "elements",
    DataType = "dtype",
    AlgorithmBandwidth = "algbw_gb_per_s",
    BusBandwidth = "busbw_gb_per_s",
    Wait = "wait_ns",
    Transfer = "transfer_ns",
    Exposed = "exposed_ns",
    Skew = "skew_ns",
    LastRank = "last_rank",
    WarmUp = "warm_up",
    Collectives = "collectives",
    Algorithm = "algorithm",
    Protocol = "protocol",
    Channels = "channels",
    Root = "root",
    Peer = "peer",
    Bandwidth = "gb_per_s",
    SourceDevice = "source_device",
    DestinationDevice = "destination_device",
    Value = "value",
    Callback = "callback",
    Result = "result",
    RecordedDuration = "recorded_duration_ns",
    Event = "event",
    EndDevice = "end_device",
    EndContext = "end_context",
    FirstStep = "first_step",
    Repeat = "repeat",
    Unit = "unit",
    CacheBytes = "cache_bytes",
    CachePath = "cache_path",
    Rank = "rank",
    Number = "number",
    Parent = "parent",
    Channel = "channel",
    Steps = "steps",
    GpuWait = "gpu_wait_ns",
    PeerWait = "peer_wait_ns",
    Network = "network_ns",
    Flush = "flush_ns",
    Operation = "operation",
    DeviceStart = "device_start_ns",
    DeviceEnd = "device_end_ns",
    Domain = "domain",
    Kind = "kind",
    Color = "color",
    Payload = "payload",
    Address = "address",
    MemoryKind = "memory_kind",
    Name = "name",
    Source = "source",
    PoolAddress = "pool_address",
    PoolBytes = "pool_bytes",
    PoolUsedBytes = "pool_used_bytes",
    ReleaseThreshold = "release_threshold_bytes",
    LeastKept = "least_bytes_kept",
    StartKnown = "start_known",
    Detected = "detected",
    Outlier = "outlier",
    HostDuration = "host_duration_ns",
    Count = "count",
    Affects = "affects",
    Command = "command",
    Host = "host",
    Started = "started_ns",
    Ended = "ended_ns",
    Version = "gputrace",
    Shift = "times_shifted_by_ns",
    Clock = "clock",
    ClockOffset = "clock_offset_ns",
    ClockError = "clock_half_width_ns",
    ClockReference = "clock_reference",
    Text = "text",
    ExitStatus = "exit_status",
    CollectiveId = "collective_id",
    ThreadCount = "thread_count",
    SharedMemStatic = "shared_mem_static",
    SharedMemDynamic = "shared_mem_dynamic",
    SharedMemConfig = "shared_mem_config_size",
}

/// The names of all arguments, each with the number that events refer to it by: those of [`Key`], then the measures.
pub(super) fn argument_names() -> impl Iterator<Item = (u64, &'static str)> {
    let measures = CATALOGUE.iter().map(|measure| measure.name);
    (1..).zip(KEY_NAMES.iter().copied().chain(measures))
}

/// The most that `[x,y,z]` takes: numbers of 20 bytes at most.
const EXTENT_BYTES: usize = 3 * 20 + 4;

/// The numbers of the fields that say the same in two messages.
#[derive(Clone, Copy)]
struct Fields {
    list: u32,
    name_iid: u32,
    uint: u32,
    int: u32,
    double: u32,
    text: u32,
}

/// Writes the arguments of one event.
pub(super) struct Arguments<'b> {
    message: &'b mut ProtoBuffer,
    fields: Fields,
}

impl<'b> Arguments<'b> {
    /// Those of a track's event.
    pub(super) fn new(message: &'b mut ProtoBuffer) -> Self {
        let fields = Fields {
            list: event::ANNOTATIONS,
            name_iid: annotation::NAME_IID,
            uint: annotation::UINT,
            int: annotation::INT,
            double: annotation::DOUBLE,
            text: annotation::TEXT,
        };
        Self { message, fields }
    }

    /// Those of a launch, in Perfetto's vocabulary for GPUs.
    pub(super) fn of_launch(message: &'b mut ProtoBuffer) -> Self {
        let fields = Fields {
            list: stage::ARGUMENTS,
            name_iid: stage::ARGUMENT_NAME_IID,
            uint: stage::ARGUMENT_UINT,
            int: stage::ARGUMENT_INT,
            double: stage::ARGUMENT_DOUBLE,
            text: stage::ARGUMENT_TEXT,
        };
        Self { message, fields }
    }

    #[inline]
    fn annotation(&mut self, key: Key, write: impl FnOnce(&mut ProtoBuffer, &Fields)) {
        self.numbered(key as u64 + 1, write);
    }

    #[inline]
    fn numbered(&mut self, name_iid: u64, write: impl FnOnce(&mut ProtoBuffer, &Fields)) {
        let numbers = self.fields;
        self.message.message(numbers.list, |fields| {
            fields.uint(numbers.name_iid, name_iid);
            write(fields, &numbers);
        });
    }

    /// All measures of the catalogue, but for ratios that are not known.
    pub(super) fn measures(&mut self, measures: &Measures) {
        for (name_iid, measure) in (KEY_NAMES.len() as u64 + 1..).zip(CATALOGUE) {
            match measure.get {
                Getter::Ns(get) => {
                    self.numbered(name_iid, |fields, numbers| fields.int(numbers.int, get(measures)));
                }
                Getter::Ratio(get) => {
                    if let Some(ratio) = get(measures) {
                        self.numbered(name_iid, |fields, numbers| fields.double(numbers.double, ratio));
                    }
                }
            }
        }
    }

    pub(super) fn int(&mut self, key: Key, value: impl Into<i64>) {
        let value = value.into();
        self.annotation(key, |fields, numbers| fields.int(numbers.int, value));
    }

    /// A number that Perfetto's SQL can't hold is a text.
    pub(super) fn uint(&mut self, key: Key, value: impl Into<u64>) {
        let value = value.into();
        if i64::try_from(value).is_ok() {
            self.annotation(key, |fields, numbers| fields.uint(numbers.uint, value));
        } else {
            self.text(key, &value.to_string());
        }
    }

    /// Not a number, or an infinite one, is a text: SQL has none such.
    pub(super) fn double(&mut self, key: Key, value: f64) {
        if value.is_finite() {
            self.annotation(key, |fields, numbers| fields.double(numbers.double, value));
        } else {
            self.text(key, &value.to_string());
        }
    }

    pub(super) fn text(&mut self, key: Key, value: &str) {
        let value = without_nul(value);
        self.annotation(key, |fields, numbers| fields.text(numbers.text, &value));
    }

    /// An address, a handle or a hash.
    pub(super) fn hexadecimal(&mut self, key: Key, value: u64) {
        self.text(key, &format!("{value:#x}"));
    }

    pub(super) fn maybe_int(&mut self, key: Key, value: Option<impl Into<i64>>) {
        if let Some(value) = value {
            self.int(key, value);
        }
    }

    pub(super) fn maybe_uint(&mut self, key: Key, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.uint(key, value);
        }
    }

    pub(super) fn maybe_double(&mut self, key: Key, value: Option<f64>) {
        if let Some(value) = value {
            self.double(key, value);
        }
    }

    /// Nothing where it is empty.
    pub(super) fn some_text(&mut self, key: Key, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    /// Said only where it is so.
    pub(super) fn flag(&mut self, key: Key, is_so: bool) {
        if is_so {
            self.uint(key, 1u8);
        }
    }

    /// `[x,y,z]`.
    pub(super) fn extent(&mut self, key: Key, sizes: [i64; 3]) {
        // Written by hand: two of these are in every kernel, and formatting them took a third of the time.
        let mut text = [0; EXTENT_BYTES];
        let mut begin = EXTENT_BYTES;
        let mut put = |byte: u8| {
            begin -= 1;
            text[begin] = byte;
        };
        put(b']');
        for (place, size) in sizes.into_iter().enumerate().rev() {
            let mut rest = size.unsigned_abs();
            loop {
                put(b'0' + (rest % 10) as u8);
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            if size < 0 {
                put(b'-');
            }
            put(if place == 0 { b'[' } else { b',' });
        }
        self.annotation(key, |fields, numbers| fields.blob(numbers.text, &text[begin..]));
    }

    /// Bytes and, where there was time, their rate.
    pub(super) fn transfer(&mut self, bytes: u64, duration_ns: i64) {
        self.uint(Key::Bytes, bytes);
        if duration_ns > 0 {
            // A byte a nanosecond is a gigabyte a second.
            self.double(Key::Bandwidth, bytes as f64 / duration_ns as f64);
        }
    }

    /// A negative duration can't be drawn; it is kept beside the 0 that is.
    pub(super) fn recorded_duration(&mut self, duration_ns: i64) {
        if duration_ns < 0 {
            self.int(Key::RecordedDuration, duration_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_texts() {
        for sizes in [[1, 20, 300], [0, -1, 5], [i64::MIN, i64::MAX, i64::MIN]] {
            let mut written = ProtoBuffer::default();
            Arguments::new(&mut written).extent(Key::Grid, sizes);
            let [x, y, z] = sizes;
            let text = format!("[{x},{y},{z}]");
            assert!(written.bytes().ends_with(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn numbers_of_arguments_are_short_and_names_are_told_once() {
        // Beyond 127 each use would be a byte longer.
        let mut names: Vec<&str> = argument_names().map(|(_, name)| name).collect();
        let count = names.len();
        assert!(count < 128);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(KEY_NAMES[Key::SharedMemConfig as usize], "shared_mem_config_size");
    }
}
