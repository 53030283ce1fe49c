//! On the writer's side: stacks become a tree of functions, and launches name its leaves.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gputrace_trace::names::NameId;
use gputrace_trace::tables::{LaunchStack, StackFrame};
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

use super::known::{self, Address, NewStack};
use super::objects::Object;
use super::symbols;
use crate::decode::is_work;
use crate::host_events::Launch;

/// Functions in the tree, at the most: as many rows as each segment of a recording begins with.
const MOST_FRAMES: usize = 1 << 16;
/// Addresses whose functions are remembered.
const MOST_FUNCTIONS: usize = 1 << 16;
/// Stands for no frame.
const NONE: u32 = u32::MAX;

/// Libraries whose functions stand between the program and the device: the driver's, the runtime's, CUPTI's and those that stand in
/// for them. Their names begin so.
const OF_CUDA: [&str; 6] = [
    "libcuda.so",
    "libcudart.so",
    "libcudart-",
    "libcupti.so",
    "libnvidia-",
    "libsimgpu",
];
/// What functions of the runtime are called where it is linked into a program.
const OF_STATIC_RUNTIME: &str = "libcudart_static_";

/// The function that an address is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Function {
    /// The object's number, or [`NONE`].
    object: u32,
    /// Where it begins in the object, or the address itself where no function is known.
    start: u64,
    name: Option<NameId>,
}

/// What stands for callers that were not recorded.
const CUT: Function = Function {
    object: NONE,
    start: 0,
    name: None,
};

/// An object, as rows say it.
struct Known {
    path: NameId,
    build_id: Option<NameId>,
    file: Vec<u8>,
    id: Vec<u8>,
    base: usize,
    /// Whether its functions stand between the program and the device.
    is_between: bool,
}

/// What the writer knows of stacks.
#[derive(Default)]
pub(crate) struct Rows {
    objects: Vec<Known>,
    /// By object and address in it.
    functions: HashMap<(u32, u64), Function>,
    /// Frames by caller and function.
    frames: HashMap<(u32, Function), u32>,
    /// By a stack's number its innermost frame, or [`NONE`].
    leaves: Vec<u32>,
}

impl Rows {
    /// Makes rows of launches. Stacks that they name were made known before them.
    pub(crate) fn take(&mut self, launches: &mut Vec<Launch>, writer: &mut ProcessWriter) {
        if launches.is_empty() && !super::are_wanted() {
            return;
        }
        let taken = known::take(self.objects.len());
        for object in &taken.objects {
            let known = known_object(object, writer);
            self.objects.push(known);
        }
        self.name(&taken.addresses, writer);
        let mut addresses = &taken.addresses[..];
        let mut too_many = 0;
        for stack in taken.stacks {
            let (of_stack, rest) = addresses.split_at(stack.frames.min(addresses.len()));
            addresses = rest;
            let leaf = self.leaf(&stack, of_stack, writer);
            let place = stack.number as usize;
            if self.leaves.len() <= place {
                self.leaves.resize(place + 1, NONE);
            }
            self.leaves[place] = leaf;
        }
        for (number, launch) in launches.drain(..).enumerate() {
            let leaf = self.leaves.get(launch.stack as usize).copied().unwrap_or(NONE);
            if leaf == NONE {
                too_many += 1;
                continue;
            }
            writer.tables.launch_stacks.push(LaunchStack {
                time_ns: launch.time_ns,
                thread: launch.thread,
                correlation: launch.correlation,
                frame: leaf,
            });
            if (number + 1).is_multiple_of(BATCH_ROWS) {
                // A full batch goes to the disk before the next is begun; a refusal is told of by the caller's flush.
                drop(writer.flush(BATCH_ROWS));
            }
        }
        writer.lose(
            "launches from stacks beyond those that there is room for",
            too_many,
            "stacks",
        );
    }

    /// Finds the functions of addresses.
    fn name(&mut self, addresses: &[Address], writer: &mut ProcessWriter) {
        if self.functions.len() > MOST_FUNCTIONS {
            self.functions.clear();
        }
        let mut unknown: Vec<(u32, u64)> = addresses
            .iter()
            .filter_map(|address| self.place(address))
            .filter(|place| !self.functions.contains_key(place))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        for of_object in unknown.chunk_by(|a, b| a.0 == b.0) {
            let object = of_object[0].0;
            let Some(known) = self.objects.get(object as usize) else {
                continue;
            };
            // The call lies before the address that it returns to.
            let calls: Vec<u64> = of_object.iter().map(|(_, address)| address - 1).collect();
            let found = symbols::functions(
                Path::new(std::ffi::OsStr::from_bytes(&known.file)),
                &known.id,
                &calls,
            );
            for (place, found) in of_object.iter().zip(found) {
                let function = match found {
                    Some(function) => Function {
                        object,
                        start: function.start,
                        name: Some(writer.names.intern(&function.name)),
                    },
                    None => Function {
                        object,
                        start: place.1,
                        name: None,
                    },
                };
                self.functions.insert(*place, function);
            }
        }
    }

    /// An address by its object.
    fn place(&self, address: &Address) -> Option<(u32, u64)> {
        let object = address.object?;
        let base = self.objects.get(object as usize)?.base;
        let in_object = address.address.wrapping_sub(base) as u64;
        (in_object > 0).then_some((object, in_object))
    }

    fn function(&self, address: &Address) -> Function {
        let place = self.place(address);
        let known = place.and_then(|place| self.functions.get(&place).copied());
        known.unwrap_or(Function {
            object: NONE,
            start: address.address as u64,
            name: None,
        })
    }

    /// The innermost frame of a stack, without what stands between the program and the device.
    fn leaf(&mut self, stack: &NewStack, addresses: &[Address], writer: &mut ProcessWriter) -> u32 {
        let functions: Vec<Function> = addresses.iter().map(|address| self.function(address)).collect();
        let is_between = |function: &Function| {
            let of_object = self.objects.get(function.object as usize);
            of_object.is_some_and(|object| object.is_between)
                || function
                    .name
                    .map(|name| writer.names.get(name))
                    .is_some_and(|name| name.starts_with(OF_STATIC_RUNTIME) || is_call(name))
        };
        let between = functions
            .iter()
            .take_while(|function| is_between(function))
            .count();
        let outermost_first = functions[between..].iter().rev().copied();
        let mut frame = NONE;
        for function in stack.is_cut.then_some(CUT).into_iter().chain(outermost_first) {
            frame = match self.frame(frame, function, writer) {
                Some(frame) => frame,
                None => return NONE,
            };
        }
        frame
    }

    /// The frame of a function that was called by another.
    fn frame(&mut self, parent: u32, function: Function, writer: &mut ProcessWriter) -> Option<u32> {
        if let Some(frame) = self.frames.get(&(parent, function)) {
            return Some(*frame);
        }
        if self.frames.len() >= MOST_FRAMES {
            return None;
        }
        let frame = self.frames.len() as u32;
        let object = self.objects.get(function.object as usize);
        writer.tables.stack_frames.push(StackFrame {
            frame,
            parent: (parent != NONE).then_some(parent),
            function: function.name,
            object: object.map(|object| object.path),
            address: function.start,
            build_id: object.and_then(|object| object.build_id),
        });
        self.frames.insert((parent, function), frame);
        if self.frames.len().is_multiple_of(BATCH_ROWS) {
            drop(writer.flush(BATCH_ROWS));
        }
        Some(frame)
    }
}

/// Whether a function is one of CUDA's that puts work on a device: the runtime's, where it is linked into the program.
fn is_call(name: &str) -> bool {
    let bare = name.trim_start_matches('_');
    let follows = |prefix: &str| {
        let rest = bare.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    (follows("cuda") || follows("cu")) && is_work(name)
}

fn known_object(object: &Object, writer: &mut ProcessWriter) -> Known {
    let is_program = object.path.is_empty();
    let file = if is_program {
        b"/proc/self/exe".to_vec()
    } else {
        object.path.clone()
    };
    let shown = if is_program {
        let link = std::fs::read_link("/proc/self/exe");
        link.map_or_else(|_| "the program".to_owned(), |path| path.display().to_string())
    } else {
        String::from_utf8_lossy(&object.path).into_owned()
    };
    let name = shown.rsplit('/').next().unwrap_or(&shown);
    let is_between = !is_program && OF_CUDA.iter().any(|begin| name.starts_with(begin)) || is_ours(object);
    let id: String = object.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    Known {
        path: writer.names.intern(&shown),
        build_id: (!id.is_empty()).then(|| writer.names.intern(&id)),
        file,
        id: object.build_id.clone(),
        base: object.base,
        is_between,
    }
}

/// Whether an object is this library, and not a program that it is linked into (our tests).
fn is_ours(object: &Object) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of our own functions; `info` is a valid place for the result.
    let found = unsafe { libc::dladdr(is_ours as *const () as *const _, info.as_mut_ptr()) } != 0;
    // SAFETY: dladdr filled it in.
    !object.path.is_empty() && found && unsafe { info.assume_init() }.dli_fbase as usize == object.base
}
