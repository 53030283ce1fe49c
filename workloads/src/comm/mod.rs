//! NCCL: communicators and their operations, on device addresses and streams.
//!
//! cudarc's own `Comm` has no split, no name, no asynchronous errors and hides its handle; so this is ours, thin.

mod library;

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use cudarc::driver::CudaStream;

use crate::error::Error;
use crate::gpu::DataType;
use library::{Exchange, Library, library, missing};

/// ncclUniqueId.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// Element types, by their numbers in ncclDataType_t (nccl.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Element {
    I8 = 0,
    U8 = 1,
    I32 = 2,
    U32 = 3,
    I64 = 4,
    U64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
}

impl Element {
    /// Bytes of one element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

impl From<DataType> for Element {
    fn from(data_type: DataType) -> Self {
        match data_type {
            DataType::F32 => Self::F32,
            DataType::Bf16 => Self::Bf16,
            DataType::F16 => Self::F16,
        }
    }
}

/// Reductions, by their numbers in ncclRedOp_t (nccl.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Reduction {
    Sum = 0,
    Product = 1,
    Max = 2,
    Min = 3,
    Average = 4,
}

/// A new unique id, to be told to all ranks.
pub(crate) fn unique_id() -> Result<UniqueId, Error> {
    let library = library()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: `id` is a valid place for the result.
    let code = unsafe { (library.get_unique_id)(&raw mut id) };
    library.check("unique id", code, null_mut())?;
    Ok(id)
}

/// NCCL's version: major * 10000 + minor * 100 + patch.
pub(crate) fn version() -> Result<i32, Error> {
    library()?.number()
}

/// Runs `body` between ncclGroupStart and ncclGroupEnd: its operations are launched together at the end.
pub(crate) fn group<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let library = library()?;
    // SAFETY: no arguments.
    library.check("group start", unsafe { (library.group_start)() }, null_mut())?;
    let result = body();
    // Ended even after an error: the thread's group must not stay open.
    // SAFETY: no arguments.
    let ended = library.check("group end", unsafe { (library.group_end)() }, null_mut());
    let result = result?;
    ended?;
    Ok(result)
}

/// One rank's communicator. Counts are elements; addresses are of device memory that holds them and outlives the
/// stream's work. Operations of one communicator run one after the other, whatever their streams.
pub(crate) struct Communicator {
    library: &'static Library,
    handle: *mut c_void,
    rank: u32,
    ranks: u32,
    /// Whether something went wrong: then it is aborted, since destroying it would wait for the others.
    failed: Cell<bool>,
}

impl Communicator {
    /// Joins the ranks of `id`, on the context that is current; waits for all of them. Profilers see the name.
    pub(crate) fn new(id: UniqueId, rank: u32, ranks: u32, name: &str) -> Result<Self, Error> {
        let library = library()?;
        let name = c_name(name)?;
        let (count, own) = (ranks.cast_signed(), rank.cast_signed());
        let mut handle = null_mut();
        // SAFETY: `handle` is a valid place; the id came from rank 0; NCCL copies the configuration's name.
        let code = unsafe {
            match library.config(&name)? {
                Some(mut config) => {
                    (library.init_rank_config)(&raw mut handle, count, id, own, &raw mut config)
                }
                None => (library.init_rank)(&raw mut handle, count, id, own),
            }
        };
        library.check("init", code, null_mut())?;
        Ok(Self::of(library, handle, rank, ranks))
    }

    fn of(library: &'static Library, handle: *mut c_void, rank: u32, ranks: u32) -> Self {
        Self {
            library,
            handle,
            rank,
            ranks,
            failed: Cell::new(false),
        }
    }

    /// A communicator of the ranks that give the same `color`, in the order of `key`; all ranks must call.
    /// `members` and `position` are what the caller knows of the outcome: how many ranks, and which one this is.
    pub(crate) fn split(
        &self,
        color: u32,
        key: u32,
        (position, members): (u32, u32),
        name: &str,
    ) -> Result<Self, Error> {
        let name = c_name(name)?;
        let (color, key) = (color.cast_signed(), key.cast_signed());
        let mut config = self.library.config(&name)?;
        let config = config.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let mut handle = null_mut();
        let split = self.library.split.ok_or_else(|| missing("ncclCommSplit"))?;
        // SAFETY: a communicator of ours, a valid place, and null or a configuration.
        let code = unsafe { split(self.handle, color, key, &raw mut handle, config) };
        self.check("split", code)?;
        Ok(Self::of(self.library, handle, position, members))
    }

    /// This rank's number in the communicator.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks it has.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), Error> {
        let checked = self.library.check(what, code, self.handle);
        if checked.is_err() {
            self.failed.set(true);
        }
        checked
    }

    /// Calls one of the many functions that take two buffers, a count, a type, and a reduction or a root.
    ///
    /// The addresses must hold what the function's documentation in nccl.h demands.
    fn exchange(
        &self,
        name: &str,
        function: Exchange,
        [send, receive]: [u64; 2],
        count: usize,
        (element, reduction_or_root): (Element, c_int),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (send, receive) = (send as *const c_void, receive as *mut c_void);
        let kind = element as c_int;
        // SAFETY: addresses as the type's and the function's documentation demand; the handle is a communicator.
        let code = unsafe {
            function(
                send,
                receive,
                count,
                kind,
                reduction_or_root,
                self.handle,
                raw(stream),
            )
        };
        self.check(name, code)
    }

    /// All ranks get the reduction of all ranks' elements.
    pub(crate) fn all_reduce(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        (element, reduction): (Element, Reduction),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let all = self.library.all_reduce;
        self.exchange(
            "all-reduce",
            all,
            [send, receive],
            count,
            (element, reduction as c_int),
            stream,
        )
    }

    /// `root` gets the reduction of all ranks' elements.
    pub(crate) fn reduce(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        (element, reduction): (Element, Reduction),
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (kind, operation, root) = (element as c_int, reduction as c_int, root.cast_signed());
        // SAFETY: as in `all_reduce`.
        let code = unsafe {
            (self.library.reduce)(
                send as _,
                receive as _,
                count,
                kind,
                operation,
                root,
                self.handle,
                raw(stream),
            )
        };
        self.check("reduce", code)
    }

    /// Each rank gets its part (`receive_count` elements) of the reduction of all ranks' elements.
    pub(crate) fn reduce_scatter(
        &self,
        [send, receive]: [u64; 2],
        receive_count: usize,
        (element, reduction): (Element, Reduction),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let all = self.library.reduce_scatter;
        self.exchange(
            "reduce-scatter",
            all,
            [send, receive],
            receive_count,
            (element, reduction as c_int),
            stream,
        )
    }

    /// All ranks get `root`'s elements.
    pub(crate) fn broadcast(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        element: Element,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (all, what) = (self.library.broadcast, (element, root.cast_signed()));
        self.exchange("broadcast", all, [send, receive], count, what, stream)
    }

    /// All ranks get all ranks' elements, `send_count` of each, in the order of the ranks.
    pub(crate) fn all_gather(
        &self,
        [send, receive]: [u64; 2],
        send_count: usize,
        element: Element,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let kind = element as c_int;
        // SAFETY: as in `all_reduce`; `receive` has room for every rank's elements.
        let code = unsafe {
            (self.library.all_gather)(
                send as _,
                receive as _,
                send_count,
                kind,
                self.handle,
                raw(stream),
            )
        };
        self.check("all-gather", code)
    }

    /// Every rank sends `count` elements to every rank: part p of `send` goes to rank p.
    pub(crate) fn all_to_all(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        element: Element,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        if let Some(all_to_all) = self.library.all_to_all {
            let kind = element as c_int;
            // SAFETY: as in `all_reduce`; both hold `count` elements for every rank.
            let code = unsafe { all_to_all(send as _, receive as _, count, kind, self.handle, raw(stream)) };
            return self.check("all-to-all", code);
        }
        group(|| {
            for peer in 0..self.ranks {
                let part = (peer as usize * count * element.bytes()) as u64;
                self.send(send + part, count, element, peer, stream)?;
                self.receive(receive + part, count, element, peer, stream)?;
            }
            Ok(())
        })
    }

    /// `root` gets all ranks' elements, `count` of each, in the order of the ranks.
    pub(crate) fn gather(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        element: Element,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        if let Some(gather) = self.library.gather {
            let what = (element, root.cast_signed());
            return self.exchange("gather", gather, [send, receive], count, what, stream);
        }
        group(|| {
            self.send(send, count, element, root, stream)?;
            for peer in (0..self.ranks).filter(|_| self.rank == root) {
                let part = (peer as usize * count * element.bytes()) as u64;
                self.receive(receive + part, count, element, peer, stream)?;
            }
            Ok(())
        })
    }

    /// Each rank gets its `count` elements of `root`'s.
    pub(crate) fn scatter(
        &self,
        [send, receive]: [u64; 2],
        count: usize,
        element: Element,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        if let Some(scatter) = self.library.scatter {
            let what = (element, root.cast_signed());
            return self.exchange("scatter", scatter, [send, receive], count, what, stream);
        }
        group(|| {
            for peer in (0..self.ranks).filter(|_| self.rank == root) {
                let part = (peer as usize * count * element.bytes()) as u64;
                self.send(send + part, count, element, peer, stream)?;
            }
            self.receive(receive, count, element, root, stream)
        })
    }

    /// Sends `count` elements to `peer`, which must receive them.
    pub(crate) fn send(
        &self,
        address: u64,
        count: usize,
        element: Element,
        peer: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (kind, peer) = (element as c_int, peer.cast_signed());
        let send = self.library.send.ok_or_else(|| missing("ncclSend"))?;
        // SAFETY: as in `all_reduce`.
        let code = unsafe { send(address as _, count, kind, peer, self.handle, raw(stream)) };
        self.check("send", code)
    }

    /// Receives `count` elements that `peer` sends.
    pub(crate) fn receive(
        &self,
        address: u64,
        count: usize,
        element: Element,
        peer: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (kind, peer) = (element as c_int, peer.cast_signed());
        let receive = self.library.receive.ok_or_else(|| missing("ncclRecv"))?;
        // SAFETY: as in `all_reduce`.
        let code = unsafe { receive(address as _, count, kind, peer, self.handle, raw(stream)) };
        self.check("receive", code)
    }

    /// What went wrong behind the calls' back, if anything: a peer that died, say.
    pub(crate) fn check_health(&self) -> Result<(), Error> {
        let mut error = 0;
        // SAFETY: `error` is a valid place for the result.
        let code = unsafe { (self.library.async_error)(self.handle, &raw mut error) };
        self.check("health", code)?;
        self.check("collective", error)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // SAFETY: the handle that init gave, ended once. Nobody is left to hear of an error.
        unsafe {
            if self.failed.get() {
                (self.library.abort)(self.handle);
            } else {
                (self.library.finalize)(self.handle);
                (self.library.destroy)(self.handle);
            }
        }
    }
}

fn c_name(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error::new("a communicator's name holds a zero byte"))
}

/// A stream as C takes it.
fn raw(stream: &CudaStream) -> *mut c_void {
    stream.cu_stream().cast()
}

/// Whether a library of this name can be loaded.
pub(crate) fn can_load(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: loads one of NVIDIA's libraries, as every CUDA program does.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
}
