//! Modules from PTX: each `.entry` must name a kernel that this library can compute (see `kernels`).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::{current_context, handle_of};
use super::entry::{Call, driver_functions, put};
use super::{error, next_handle};
use crate::clock::now_ns;
use crate::cupti::{self, ModuleData, event};
use crate::device::KernelResources;
use crate::kernels::{self, CpuKernel};

/// A kernel that can be launched.
pub(super) struct Function {
    /// Its name, alive for ever: CUPTI hands the pointer out.
    pub(super) name: &'static CStr,
    /// Sizes of its parameters in bytes, from the PTX.
    pub(super) parameter_bytes: Vec<usize>,
    pub(super) kernel: CpuKernel,
    /// What its threads and blocks take, from the PTX.
    pub(super) resources: KernelResources,
    /// CUPTI's id of the context that its module was loaded into: only that context's streams run it.
    pub(super) context: u32,
}

struct Entry {
    name: String,
    parameter_bytes: Vec<usize>,
    local_bytes: u32,
    shared_bytes: u32,
}

struct Module {
    /// CUPTI's id of its context.
    context: u32,
    /// CUPTI's id of the module.
    id: u32,
    entries: Vec<Entry>,
    /// What it was loaded from: tools may read it until it is unloaded.
    image: Arc<CStr>,
}

impl Module {
    fn data(id: u32, image: &CStr) -> ModuleData {
        ModuleData {
            id,
            bytes: image.to_bytes().len(),
            image: image.as_ptr(),
        }
    }
}

#[derive(Default)]
struct Books {
    modules: BTreeMap<u64, Module>,
    functions: BTreeMap<u64, Arc<Function>>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
});

fn books() -> std::sync::MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The function of a handle.
pub(super) fn function(handle: u64) -> Result<Arc<Function>, u32> {
    books()
        .functions
        .get(&handle)
        .cloned()
        .ok_or(error::INVALID_HANDLE)
}

/// The entries of a PTX text with their parameters' sizes.
fn parse_ptx(text: &str) -> Option<Vec<Entry>> {
    if !text.contains(".version") || !text.contains(".target") {
        return None;
    }
    let outside: Vec<(&str, u32)> = outside(text).collect();
    let mut entries = Vec::new();
    for part in text.split(".entry").skip(1) {
        let (name, rest) = part.split_once('(')?;
        let (parameters, _) = rest.split_once(')')?;
        let parameter_bytes = parameters.split(',').filter_map(parameter_bytes).collect();
        let after = part.split_once('{').map_or("", |(_, after)| after);
        let body = after.split_once("\n}").map_or(after, |(body, _)| body);
        let inside = variables(body, ".shared").map(|(_, bytes)| bytes);
        // Those of the module count where the kernel names them.
        let outside = outside.iter().filter(|(name, _)| body.contains(name));
        entries.push(Entry {
            name: name.trim().to_owned(),
            parameter_bytes,
            local_bytes: variables(body, ".local").map(|(_, bytes)| bytes).sum(),
            shared_bytes: inside.chain(outside.map(|(_, bytes)| *bytes)).sum(),
        });
    }
    Some(entries)
}

/// Names and bytes of a state space's variables in a text: `.shared .align 4 .b8 name[128];`.
fn variables<'a>(text: &'a str, space: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        let declaration = line.strip_prefix(space).filter(|rest| rest.starts_with(' '))?;
        let bytes = u32::try_from(parameter_bytes(declaration)?).ok()?;
        let name = declaration.split_whitespace().last()?;
        Some((name.split(['[', ';']).next()?, bytes))
    })
}

/// Shared variables of the module itself: their lines are not indented.
fn outside(text: &str) -> impl Iterator<Item = (&str, u32)> {
    let lines = text.lines().filter(|line| line.starts_with(".shared"));
    lines.flat_map(|line| variables(line, ".shared"))
}

/// The size of `.param .align 8 .b8 name[24]`, `.param .u64 name`, ...
fn parameter_bytes(parameter: &str) -> Option<usize> {
    let kind = parameter.split_whitespace().find(|word| {
        word.strip_prefix(['.'])
            .is_some_and(|word| word.starts_with(['u', 's', 'f', 'b']) && word[1..].parse::<usize>().is_ok())
    })?;
    let bits: usize = kind[2..].parse().ok()?;
    let count = match parameter.split_once('[') {
        Some((_, rest)) => rest.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    Some(bits / 8 * count)
}

fn load(call: &Call, place: *mut u64, image: *const c_void) -> Result<(), u32> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let context = current_context()?;
    if image.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: PTX images are zero-terminated text; the caller says that this is one. (A cubin has zero bytes early
    // and fails the parse.)
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let start_ns = now_ns();
    let entries = text
        .to_str()
        .ok()
        .and_then(parse_ptx)
        .ok_or(error::INVALID_IMAGE)?;
    let handle = next_handle();
    let module = Module {
        context: context.id,
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        entries,
        image: Arc::from(text),
    };
    let (id, image) = (module.id, Arc::clone(&module.image));
    books().modules.insert(handle, module);
    put(place, handle)?;
    // What the driver's compiler does with PTX; here it is only read.
    cupti::memory::compiled(context.device, call.correlation, start_ns);
    cupti::memory::module_loaded(context.id, id, &image);
    let data = Module::data(id, &image);
    cupti::resource(event::MODULE_LOADED, context.handle, 0, Some(&data));
    Ok(())
}

driver_functions! {
    /// cuModuleLoadData, for PTX.
    fn cuModuleLoadData = CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData(module: *mut u64, image: *const c_void) |call| {
        load(call, module, image)
    }

    /// cuModuleLoadDataEx, for PTX; options are for the compiler, of which there is none.
    fn cuModuleLoadDataEx = CUPTI_DRIVER_TRACE_CBID_cuModuleLoadDataEx(module: *mut u64, image: *const c_void, _count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void) |call| {
        load(call, module, image)
    }

    /// cuModuleUnload.
    fn cuModuleUnload = CUPTI_DRIVER_TRACE_CBID_cuModuleUnload(module: u64) |_| {
        let removed = books().modules.remove(&module).ok_or(error::INVALID_HANDLE)?;
        let data = Module::data(removed.id, &removed.image);
        cupti::resource(event::MODULE_UNLOAD_STARTING, handle_of(removed.context), 0, Some(&data));
        Ok(())
    }

    /// cuModuleGetFunction.
    fn cuModuleGetFunction = CUPTI_DRIVER_TRACE_CBID_cuModuleGetFunction(place: *mut u64, module: u64, name: *const c_char) |call| {
        let start_ns = now_ns();
        if name.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: the C interface has the caller pass a zero-terminated name.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let mut books = books();
        let Module { context, entries, .. } = books.modules.get(&module).ok_or(error::INVALID_HANDLE)?;
        let entry = entries.iter().find(|entry| entry.name == name).ok_or(error::NOT_FOUND)?;
        let Some(kernel) = kernels::find(&name) else {
            eprintln!("simgpu: kernel {name}: the simulated GPU has no CPU function of that name");
            return Err(error::NOT_FOUND);
        };
        let (context, parameter_bytes) = (*context, entry.parameter_bytes.clone());
        let resources = KernelResources {
            registers: kernels::REGISTERS,
            local_bytes: entry.local_bytes,
            static_shared_bytes: entry.shared_bytes,
            dynamic_shared_bytes: 0,
        };
        let name: &'static CStr = Box::leak(CString::new(name.as_ref()).map_err(|_| error::INVALID_VALUE)?.into_boxed_c_str());
        let handle = next_handle();
        books.functions.insert(handle, Arc::new(Function { name, parameter_bytes, kernel, resources, context }));
        drop(books);
        cupti::memory::function_loaded(call.correlation, start_ns);
        put(place, handle)
    }

    /// cuFuncGetAttribute: what a small kernel would have.
    fn cuFuncGetAttribute = CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute(value: *mut c_int, attribute: c_int, handle: u64) |_| {
        let resources = function(handle)?.resources;
        put(value, match attribute {
            0 => 1024,
            1 => resources.static_shared_bytes.cast_signed(),
            3 => resources.local_bytes.cast_signed(),
            4 => c_int::from(kernels::REGISTERS),
            _ => 0,
        })
    }

    /// cuFuncSetAttribute.
    fn cuFuncSetAttribute = CUPTI_DRIVER_TRACE_CBID_cuFuncSetAttribute(handle: u64, _attribute: c_int, _value: c_int) |_| {
        function(handle).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_parameters_are_found() {
        let ptx = ".version 8.1\n.target sm_80\n.visible .entry add(\n .param .u64 add_param_0,\n .param .f32 add_param_1,\n\
                   .param .align 8 .b8 add_param_2[24]\n)\n{ ret; }\n.visible .entry none()\n{ ret; }";
        let entries = parse_ptx(ptx).expect("PTX");
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].name.as_str(), &entries[0].parameter_bytes[..]),
            ("add", &[8, 4, 24][..])
        );
        assert!(entries[1].parameter_bytes.is_empty());
        assert!(parse_ptx("hello").is_none());
    }

    #[test]
    fn shared_and_local_memory_are_counted() {
        let ptx = ".version 8.1\n.target sm_80\n.shared .align 4 .b8 of_both[128];\n.shared .align 8 .b64 of_none;\n\
                   .visible .entry one(\n .param .u64 p\n)\n{\n\t.local .align 4 .b8 \t__local_depot0[40];\n\
                   \t.shared .align 4 .b8 own[4224];\n\tst.shared.f32 [of_both], %f1;\n}\n\
                   .visible .entry two()\n{\n\tld.shared.f32 %f1, [of_both];\n}\n";
        let entries = parse_ptx(ptx).expect("PTX");
        assert_eq!(
            (entries[0].shared_bytes, entries[0].local_bytes),
            (4224 + 128, 40)
        );
        assert_eq!((entries[1].shared_bytes, entries[1].local_bytes), (128, 0));
    }
}
