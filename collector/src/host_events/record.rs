//! Kinds of records. The fields of each are where they are made.

/// A text: its hash, and the text as bytes.
pub(crate) const TEXT: u8 = 1;
/// A range or mark that is over (`nvtx::Range`).
pub(crate) const RANGE: u8 = 2;
/// The beginning of a range that may end on another thread: its number, then as [`RANGE`].
pub(crate) const RANGE_START: u8 = 3;
/// Its end: number and time.
pub(crate) const RANGE_END: u8 = 4;
/// An operation that NCCL has enqueued (`nccl::Operation`).
pub(crate) const OPERATION: u8 = 5;
/// A communicator that was set up (`nccl::Communicator`).
pub(crate) const COMMUNICATOR: u8 = 6;
/// A call of NCCL (`nccl::Api`).
pub(crate) const NCCL_API: u8 = 7;
/// A kernel that was launched into a CUDA graph: plan, communicator, rank, group.
pub(crate) const NCCL_CAPTURED: u8 = 16;
/// The end of a group of calls: its number, and whether its kernels were launched on the same thread.
pub(crate) const NCCL_GROUP_END: u8 = 8;
/// The beginning of something within an operation (`nccl::Detail`).
pub(crate) const NCCL_DETAIL: u8 = 9;
/// A change of its state: number, state, time, value.
pub(crate) const NCCL_DETAIL_STATE: u8 = 10;
/// Its end: number and time.
pub(crate) const NCCL_DETAIL_END: u8 = 11;
/// A name that the program gave to something (`nvtx::NameRecord`).
pub(crate) const NAME: u8 = 12;
/// A schema: domain, number, name; then its fields as bytes.
pub(crate) const SCHEMA: u8 = 13;
/// An enumeration: domain, number, bytes of a value; then values and names as bytes.
pub(crate) const ENUM: u8 = 14;
/// A payload with a schema (`nvtx::PayloadRecord`), and its bytes.
pub(crate) const PAYLOAD: u8 = 15;
/// A finished range around an operator of PyTorch's (`nvtx::Operator`).
pub(crate) const OPERATOR_RANGE: u8 = 17;
/// A finished range around a module of PyTorch's or a function of Python's: the fields of [`RANGE`], up to the text.
pub(crate) const PYTHON_RANGE: u8 = 18;
/// A call that puts work on a device: when, and its correlation id with the number of the stack above it.
pub(crate) const LAUNCH: u8 = 19;
