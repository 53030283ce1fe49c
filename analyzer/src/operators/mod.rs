//! Who launched what, in the words of who wrote the program: operators with their shapes, modules, Python stacks.
//!
//! A GPU operation is matched to its launch call by correlation id. The call belongs to the innermost operator, and the innermost
//! Python function, that was running on its thread when it began. `docs/measures.md` has the rules and the measures.

mod advice;
mod allocations;
mod attribution;
mod branches;
mod by_operator;
mod launched;
mod launched_by;
mod launched_operations;
mod modules;
mod native;
mod nesting;
mod over_ranks;
mod peaks;
mod products;
mod shape;
mod stacks;
mod work;

use gputrace_trace::pytorch::module_name;
use gputrace_trace::{Interner, NameId, Process, derived};

use crate::calls::Calls;
use crate::measures::ratio;
use crate::operation_name::Name;
use crate::operations::Operation;
use crate::steps::StepAnalysis;

pub(crate) use advice::{Advice, Better};
use allocations::Allocated;
pub(crate) use allocations::DeviceMemory;
pub use allocations::{AllocatedBytes, MemoryPart, UnattributedMemory};
pub use attribution::{Attribution, Unattributed};
use branches::{Branches, Sum};
use by_operator::{HostTimes, OfDevice};
pub use by_operator::{OperatorAnalysis, ShapeAnalysis};
use launched::Launched;
use launched_by::LaunchedBy;
pub use launched_operations::{LaunchedOperations, Launcher, OperationRow};
use modules::Modules;
pub use modules::{ModuleAnalysis, ModuleClassAnalysis, ModuleTimes};
use native::Native;
pub use native::{native_name, runs_python};
use nesting::{NONE, Nesting};
pub(crate) use over_ranks::over_ranks;
use peaks::Peaks;
pub use products::{Peak, ProductAnalysis};
pub use stacks::StackAnalysis;

/// What is found of a device.
#[derive(Default)]
pub(crate) struct OnDevice {
    pub(crate) attribution: Attribution,
    pub(crate) advice: Vec<Advice>,
    /// For pictures, where they are asked for.
    pub(crate) launched: Option<LaunchedOperations>,
}

/// Attributes the operations of a process's devices.
pub(crate) struct Attributions<'a> {
    process: &'a Process,
    names: &'a Interner,
    by: LaunchedBy<'a>,
    native: Native,
    host: HostTimes,
    modules: Modules<'a>,
    /// The first device: it also lists the operators that launched nothing.
    first: Option<u32>,
    chosen: Option<(i64, i64)>,
}

impl<'a> Attributions<'a> {
    /// `first` is the process's first device. With `chosen`, only operators that begin in `[start, end)` on the host count as calls.
    pub(crate) fn new(
        process: &'a Process,
        names: &'a Interner,
        first: Option<u32>,
        chosen: Option<(i64, i64)>,
    ) -> Self {
        let by = LaunchedBy::new(process, names);
        let host = HostTimes::new(&by, &process.tables.operators, chosen);
        let modules = Modules::new(&by, &process.tables.python_frames, names, chosen);
        Self {
            process,
            names,
            by,
            native: Native::new(process, names),
            host,
            modules,
            first,
            chosen,
        }
    }

    /// Attributes a device's operations, fills in the FLOP, MFU and HFU of its steps, and says what its operators could do better.
    /// `memory`: what is known of its memory. `held`: the most bytes that were held at once, and all that the device has.
    pub(crate) fn of(
        &self,
        device: u32,
        device_name: Option<&str>,
        operations: &[Operation],
        steps: &mut [StepAnalysis],
        memory: Option<&DeviceMemory>,
        held: Option<(u64, u64)>,
        in_detail: bool,
    ) -> OnDevice {
        let by = &self.by;
        if by.operators.is_empty() && by.frames.is_empty() && self.native.is_empty() {
            return OnDevice::default();
        }
        let mut unattributed = Unattributed::default();
        let mut launched = Vec::with_capacity(operations.len());
        let mut is_tf32 = products::Tf32Names::default();
        for (place, operation) in (0u32..).zip(operations) {
            let sum = Sum::of(operation.end - operation.start);
            add(&mut unattributed.operations_ns, sum);
            let Some(call) = operation.call(&self.process.tables.api_calls) else {
                add(&mut unattributed.launch_not_recorded_ns, sum);
                continue;
            };
            let (pass, module) = by.module(call.row);
            let one = Launched {
                place,
                sum,
                operator: by.operator(call.row),
                frame: by.frame(call.row),
                native: self
                    .native
                    .leaf(self.process.tables.api_calls.correlation[call.row as usize]),
                module,
                pass,
                is_tf32: is_tf32.is(operation.name, self.names),
            };
            if one.operator == NONE {
                add(&mut unattributed.no_operator_ns, sum);
                if self.is_replay(operation, call.row) {
                    add(&mut unattributed.graph_ns, sum);
                }
            }
            if one.module == NONE {
                add(&mut unattributed.no_module_ns, sum);
            }
            if one.frame == NONE && one.native == NONE {
                add(&mut unattributed.no_stack_ns, sum);
            }
            launched.push(one);
        }
        let by_operator: Branches<2> = Branches::new(
            &by.operators,
            launched
                .iter()
                .map(|one| (one.operator, usize::from(one.is_tf32), one.sum)),
        );
        let peaks = device_name.and_then(Peaks::of);
        let operators = &self.process.tables.operators;
        let worked = products::Worked::new(by, &by_operator, operators, self.names);
        let products = worked.analyses(peaks);
        let peak = products::peak(&products, peaks);
        worked.say(steps, peak.as_ref());
        let is_first = self.first == Some(device);
        let all_ns = unattributed.operations_ns;
        let allocated = memory.map(|memory| Allocated::new(self.process, by, memory, self.chosen));
        let (modules, module_classes) = self
            .modules
            .on_device(by, &launched, allocated.as_ref(), is_first);
        let of = OfDevice {
            branches: &by_operator,
            nesting: &by.operators,
            operators,
            names: self.names,
            all_ns,
            allocated: allocated.as_ref(),
        };
        let seen = advice::Seen {
            process: self.process,
            names: self.names,
            by,
            operations,
            launched: &launched,
            branches: &by_operator,
            worked: &worked,
            products: &products,
            peaks,
            all_ns,
            memory: held,
        };
        let advice = advice::advice(&seen);
        let attribution = Attribution {
            operators: self.host.operators(&of, is_first),
            shapes: self.host.shapes(&of, &worked, is_first),
            modelled_share: ratio(worked.time_ns(), all_ns),
            peak,
            products: products.into_iter().map(|(_, product)| product).collect(),
            modules,
            module_classes,
            stacks: stacks::stacks(
                &by.frames,
                &self.native,
                &launched,
                &self.process.tables.python_frames,
                self.names,
            ),
            unattributed: Some(unattributed),
            unattributed_memory: allocated.map(|allocated| allocated.unattributed),
        };
        OnDevice {
            attribution,
            advice,
            launched: in_detail.then(|| self.launched(operations, &launched)),
        }
    }

    fn launched(&self, operations: &[Operation], launched: &[Launched]) -> LaunchedOperations {
        let (frames, names) = (&self.by.frames, &self.process.tables.python_frames.name);
        LaunchedOperations::new(
            operations,
            launched,
            (self.names, &self.native),
            (|place| frames.parent(place), |place| self.by.module_around(place)),
            |place| names[frames.row(place)],
            |text| module_name(text).unwrap_or(text),
        )
    }

    /// Whether operators are recorded, and whether modules are.
    pub(crate) fn know(&self) -> (bool, bool) {
        let modules = |place: u32| self.by.is_module(place);
        (
            !self.by.operators.is_empty(),
            self.by.frames.places().any(modules),
        )
    }

    /// The names of the innermost operator and module around a row of the table of calls.
    pub(crate) fn around(&self, call: u32) -> (Option<NameId>, Option<NameId>) {
        let tables = &self.process.tables;
        let row = |nesting: &Nesting<'_>, place: u32| (place != NONE).then(|| nesting.row(place));
        (
            row(&self.by.operators, self.by.operator(call)).map(|row| tables.operators.name[row]),
            row(&self.by.frames, self.by.module(call).1).map(|row| tables.python_frames.name[row]),
        )
    }

    /// Operator, shapes and module of each kernel, by row; empty columns without operators and Python functions.
    pub(crate) fn of_kernels(process: &'a Process, names: &'a Interner) -> derived::LaunchedBy {
        let by = LaunchedBy::new(process, names);
        let mut columns = derived::LaunchedBy::default();
        if by.operators.is_empty() && by.frames.is_empty() {
            return columns;
        }
        let tables = &process.tables;
        let mut calls = Calls::new(&tables.api_calls);
        for correlation in &tables.kernels.correlation {
            let call = calls.row(*correlation);
            let row = |nesting: &Nesting<'_>, place: u32| (place != NONE).then(|| nesting.row(place));
            let operator = call.and_then(|call| row(&by.operators, by.operator(call)));
            let module = call.and_then(|call| row(&by.frames, by.module(call).1));
            columns
                .operator
                .push(operator.map(|row| tables.operators.name[row]));
            columns
                .input_dims
                .push(operator.and_then(|row| tables.operators.input_dims[row]));
            columns
                .module
                .push(module.map(|row| tables.python_frames.name[row]));
        }
        columns
    }

    /// Whether a replay of a CUDA graph launched it.
    fn is_replay(&self, operation: &Operation, call: u32) -> bool {
        let tables = &self.process.tables;
        matches!(operation.name, Name::Graph { .. })
            || self
                .names
                .get(tables.api_calls.name[call as usize])
                .contains("GraphLaunch")
    }
}

fn add(total_ns: &mut i64, sum: Sum) {
    // Sums of a damaged trace may be as great as numbers go.
    *total_ns = total_ns.saturating_add(sum.time_ns);
}
