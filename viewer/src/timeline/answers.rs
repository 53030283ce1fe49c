//! What the timeline answers, as it stands in the API. Times are nanoseconds since the recording's origin.

use std::collections::BTreeMap;

use serde::Serialize;

/// One slice, by the place where it is and with what is drawn of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ref {
    /// The row.
    pub row: u32,
    /// Its place among the row's slices.
    pub index: u32,
    /// Start.
    pub start: i64,
    /// End minus start.
    pub duration: i64,
    /// A name short enough for a label.
    pub name: String,
    /// A number of [`super::kinds::NAMES`].
    pub kind: u8,
}

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Operations of a stream.
    Stream,
    /// Collectives of a communicator on one rank.
    Communicator,
    /// Calls of a host thread.
    Thread,
    /// NVTX ranges of a host thread.
    Nvtx,
    /// Samples of a quantity.
    Counter,
    /// Device memory in use.
    Memory,
    /// A device as a whole.
    Summary,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its number in this timeline.
    pub row: u32,
    /// Its name in links: the same whenever the recording is loaded.
    pub key: String,
    /// "slices" or "counter".
    #[serde(rename = "type")]
    pub row_type: &'static str,
    /// What it is of.
    pub what: What,
    /// Where it hangs in the tree; lanes of one thing have the same.
    pub path: Vec<String>,
    /// What to call it.
    pub label: String,
    /// More about it, in a line; empty where there is no more.
    pub detail: String,
    /// Which lane of its thing.
    pub lane: u32,
    /// Lanes of its thing.
    pub lanes: u32,
    /// Slices, or samples of a counter.
    pub slices: u32,
    /// The rank that it belongs to.
    pub rank: Option<u32>,
    /// The process's place in the recording.
    pub process: Option<u32>,
    /// The device's index within the process.
    pub device: Option<u32>,
    /// CUPTI's stream id.
    pub stream: Option<u32>,
    /// The host thread.
    pub thread: Option<u32>,
    /// The communicator's hash in hexadecimal.
    pub communicator: Option<String>,
    /// A counter's unit: "W", "B", "%", ...
    pub unit: Option<String>,
    /// A counter's least value.
    pub min: Option<f64>,
    /// A counter's greatest value.
    pub max: Option<f64>,
    /// Where its first slice starts.
    pub begin: i64,
    /// Where its last slice ends.
    pub end: i64,
}

/// A device of a rank: a band of the overview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Band {
    /// The rank; where no process says its rank, their order.
    pub rank: Option<u32>,
    /// The process's place in the recording.
    pub process: u32,
    /// The device's index within the process.
    pub device_index: u32,
    /// Its name.
    pub device_name: Option<String>,
    /// The process's host.
    pub host: String,
}

/// A stretch of time in which a process did not record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRecorded {
    /// The process's place in the recording.
    pub process: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// Start.
    pub from: i64,
    /// End.
    pub to: i64,
    /// Why: "not recorded", "taken by another profiler", ...
    pub what: String,
}

/// Texts for the numbers of names in tiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// At most 200 characters each.
    pub names: BTreeMap<u32, String>,
    /// "#rrggbb" for those that the program gave a colour.
    pub colors: BTreeMap<u32, String>,
}

/// One thing that is known of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// What it is.
    pub label: String,
    /// The value, as it is to be read.
    pub value: String,
    /// Its unit; empty where it has none.
    pub unit: &'static str,
}

/// The idle time before an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Before {
    /// Start.
    pub from: i64,
    /// End: the operation's start.
    pub to: i64,
    /// The analysis's word for the greatest part of it ("host_late", ...); "stream" where only the stream was idle; null
    /// before there is an analysis.
    pub cause: Option<&'static str>,
    /// The same in a sentence.
    pub text: String,
}

/// A slice that another one leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// "launch", "operation", "collective" or "synchronization".
    #[serde(rename = "type")]
    pub link_type: &'static str,
    /// What it is to the slice.
    pub label: String,
    /// The other slice.
    #[serde(rename = "ref")]
    pub reference: Ref,
}

/// One rank's part in a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParticipantRef {
    /// Its rank.
    pub rank: Option<u32>,
    /// Its kernel.
    #[serde(rename = "ref")]
    pub reference: Option<Ref>,
    /// When the kernel began.
    pub arrival: Option<i64>,
    /// From then until the last rank's kernel began.
    pub wait: Option<i64>,
    /// The rest of it.
    pub transfer: Option<i64>,
    /// Which clock stamped it; `None` where those of the recording were not compared.
    pub clock: Option<u32>,
    /// With a probability of 99 % that clock stands to the one that times are given by as it is taken to, within this.
    pub clock_error: Option<i64>,
}

/// A collective, and who took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveRefs {
    /// As the analysis has it, but for `start_ns`, which counts from the origin.
    #[serde(flatten)]
    pub collective: gputrace_analyzer::Collective,
    /// Its place in the analysis's list.
    pub number: u32,
    /// By rank.
    pub participants: Vec<ParticipantRef>,
}

/// Everything that is known of a slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceDetails {
    /// The slice.
    #[serde(flatten)]
    pub reference: Ref,
    /// Its end.
    pub end: i64,
    /// Whether it had not ended when the recording did: the end is the last moment that is known of.
    pub unfinished: bool,
    /// The whole name.
    pub full_name: String,
    /// The process's folder.
    pub process: String,
    /// Its rank.
    pub rank: Option<u32>,
    /// Whatever else its record says.
    pub fields: Vec<Field>,
    /// The idle time before it.
    pub before: Option<Before>,
    /// The NVTX ranges that it was called in, outermost first.
    pub nvtx: Vec<String>,
    /// Who launched it; null where neither operators nor Python functions are recorded around its call.
    pub launched_by: Option<LaunchedBy>,
    /// What it leads to.
    pub links: Vec<Link>,
    /// How many more there are.
    pub more_links: usize,
    /// The collective that it is part of.
    pub collective: Option<CollectiveRefs>,
}

/// Who launched an operation, or called, in the words of who wrote the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchedBy {
    /// The innermost operator around the call.
    pub operator: Option<OperatorOf>,
    /// The innermost module around it, or around the forward operator whose backward pass it is of.
    pub module: Option<String>,
    /// "forward", "recomputed" or "backward": in which pass of the module.
    pub pass: Option<&'static str>,
    /// Functions, innermost first: native ones of its stack, then those of Python around it; where there are none of Python, those
    /// around the forward operator. Of native functions only those that Python's innermost called.
    pub stack: Vec<String>,
    /// How many of these are native.
    pub native_frames: usize,
    /// How many more functions there are.
    pub more_frames: usize,
}

/// An operator with its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorOf {
    /// Its name.
    pub name: String,
    /// The sizes of its inputs as a list in JSON; null where they are not recorded.
    pub input_dims: Option<String>,
    /// Their types.
    pub input_types: Option<String>,
    /// Where it is.
    #[serde(rename = "ref")]
    pub reference: Ref,
}

/// What lies in a stretch of one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AreaRow {
    /// The row.
    pub row: u32,
    /// Slices with a part in it.
    pub count: u64,
    /// Time with one of them, nanoseconds.
    pub busy: i64,
    /// The rest.
    pub idle: i64,
}

/// What has one name in an area. Durations are of whole slices, also where the area cuts them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AreaName {
    /// Its number in tiles.
    pub id: u32,
    /// The short name.
    pub name: String,
    /// A number of [`super::kinds::NAMES`].
    pub kind: u8,
    /// How many slices have a part in the area.
    pub count: u64,
    /// Sum of their durations.
    pub total: i64,
    /// Mean duration.
    pub mean: f64,
    /// Shortest.
    pub min: i64,
    /// Longest.
    pub max: i64,
    /// Median (nearest rank).
    pub p50: i64,
    /// 99th percentile (nearest rank).
    pub p99: i64,
}

/// Statistics of a stretch of time over some rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Area {
    /// By row, in the order in which they were asked for.
    pub rows: Vec<AreaRow>,
    /// By name, at most 500, greatest total first.
    pub names: Vec<AreaName>,
    /// All slices.
    pub count: u64,
    /// Sum of all durations.
    pub total: i64,
    /// Names that are not listed.
    pub more: usize,
}

/// Slices of one name in slices of the same names, over all threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TreeNode {
    /// The place of what it lies in among the tree's nodes; null for the outermost.
    pub parent: Option<u32>,
    /// Its name's number in tiles; of ranges that were merged, that of one of them.
    pub id: u32,
    /// The short name; with `*` for numbers that were merged.
    pub name: String,
    /// A number of [`super::kinds::NAMES`].
    pub kind: u8,
    /// How many slices have a part in the stretch.
    pub count: u64,
    /// Sum of these parts.
    pub total: i64,
    /// Of it, the time without a slice in them.
    #[serde(rename = "self")]
    pub self_ns: i64,
    /// The longest of them, whole.
    pub longest: Ref,
}

/// What threads were in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// Threads with something in the stretch.
    pub threads: usize,
    /// Sum of the totals of the outermost nodes.
    pub total: i64,
    /// About 2000 at most, each behind its parent, those of one parent greatest first.
    pub nodes: Vec<TreeNode>,
    /// Nodes that are not listed: those with the smallest totals.
    pub more: usize,
    /// Slices that no node counts, as there would have been too many.
    pub left_out: u64,
}

/// Slices whose names match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// How many slices.
    pub total: u64,
    /// How many names.
    pub names: usize,
    /// Some of them, by start.
    pub hits: Vec<Ref>,
    /// How many start in each 512th of the time from begin to end.
    pub ticks: Vec<u32>,
    /// Whether there are more behind the last of `hits`.
    pub truncated: bool,
}

/// Some of the collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CollectivePage {
    /// How many there are.
    pub total: usize,
    /// Those that were asked for.
    pub collectives: Vec<CollectiveRefs>,
}
