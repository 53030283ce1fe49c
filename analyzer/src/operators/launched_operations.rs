//! For pictures: under which modules and functions each operation of a device was launched.

use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;

use super::launched::Launched;
use super::native::{Below, Native};
use super::nesting::NONE;
use crate::operation_name::Name;
use crate::operations::Operation;

/// An operation, as a row of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationRow {
    /// Of kernels.
    Kernel(u32),
    /// Of copies.
    Copy(u32),
    /// Of memory sets.
    Memset(u32),
    /// Of launches of graphs that were recorded as wholes.
    GraphLaunch(u32),
}

impl OperationRow {
    fn of(operation: &Operation) -> Self {
        match operation.name {
            Name::Kernel(_) => Self::Kernel(operation.row),
            Name::Copy { .. } => Self::Copy(operation.row),
            Name::Memset { .. } => Self::Memset(operation.row),
            Name::Graph { .. } => Self::GraphLaunch(operation.row),
        }
    }
}

/// What launched an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A module.
    Module,
    /// A function, of Python or native.
    Function,
}

/// Modules or functions by what they were called from.
#[derive(Clone, Debug, Default)]
struct Paths {
    names: Vec<String>,
    /// What it was called from, which comes before it; or [`NONE`].
    parents: Vec<u32>,
}

/// Paths while they are found.
struct Finding<'a> {
    paths: Paths,
    known: FxHashMap<(u32, NameId), u32>,
    /// The same of native functions, by the numbers of their names.
    known_native: FxHashMap<(u32, u32), u32>,
    /// By place of a frame: its path.
    of_place: FxHashMap<u32, u32>,
    names: &'a Interner,
}

impl<'a> Finding<'a> {
    fn new(names: &'a Interner) -> Self {
        Self {
            paths: Paths::default(),
            known: FxHashMap::default(),
            known_native: FxHashMap::default(),
            of_place: FxHashMap::default(),
            names,
        }
    }

    /// The path of the frame at a place, where one is.
    fn path(
        &mut self,
        place: u32,
        parent: impl Fn(u32) -> Option<u32>,
        name: impl Fn(u32) -> NameId,
        text: impl Fn(&'a str) -> &'a str,
    ) -> u32 {
        let mut new: Vec<u32> = Vec::new();
        let mut around = Some(place).filter(|place| *place != NONE);
        let mut path = NONE;
        while let Some(one) = around {
            if let Some(known) = self.of_place.get(&one) {
                path = *known;
                break;
            }
            new.push(one);
            around = parent(one);
        }
        while let Some(one) = new.pop() {
            let (names, paths, above) = (self.names, &mut self.paths, path);
            path = *self.known.entry((above, name(one))).or_insert_with(|| {
                paths.names.push(text(names.get(name(one))).to_owned());
                paths.parents.push(above);
                u32::try_from(paths.names.len() - 1).unwrap_or(NONE)
            });
            self.of_place.insert(one, path);
        }
        path
    }
}

impl Finding<'_> {
    /// The path of a native function below another path.
    fn native(&mut self, above: u32, name: u32, text: &str) -> u32 {
        let paths = &mut self.paths;
        *self.known_native.entry((above, name)).or_insert_with(|| {
            paths.names.push(text.to_owned());
            paths.parents.push(above);
            u32::try_from(paths.names.len() - 1).unwrap_or(NONE)
        })
    }
}

/// The operations of a device by the modules and functions that launched them.
#[derive(Clone, Debug, Default)]
pub struct LaunchedOperations {
    /// The process's place in the recording.
    pub process: u32,
    /// Device index within the process.
    pub device_index: u32,
    modules: Paths,
    functions: Paths,
    /// With their paths.
    operations: Vec<(OperationRow, u32, u32)>,
}

impl LaunchedOperations {
    /// `frame`, `module`: what a frame, or a module's frame, was called from. `name`: of a frame.
    pub(super) fn new<'a>(
        operations: &[Operation],
        launched: &[Launched],
        (names, native): (&'a Interner, &Native),
        (frame, module): (impl Fn(u32) -> Option<u32>, impl Fn(u32) -> Option<u32>),
        name: impl Fn(u32) -> NameId,
        module_name: impl Fn(&'a str) -> &'a str,
    ) -> Self {
        let (mut modules, mut functions) = (Finding::new(names), Finding::new(names));
        let mut below = Below::new(native);
        let of = launched
            .iter()
            .filter(|one| one.module != NONE || one.frame != NONE || one.native != NONE)
            .map(|one| {
                let python = functions.path(one.frame, &frame, &name, |text| text);
                let function = below.find(python, one.native, |above, name| {
                    functions.native(above, name, native.text(name))
                });
                (
                    OperationRow::of(&operations[one.place as usize]),
                    modules.path(one.module, &module, &name, &module_name),
                    function,
                )
            });
        let operations = of.collect();
        Self {
            operations,
            modules: modules.paths,
            functions: functions.paths,
            ..Self::default()
        }
    }

    /// Says whose they are.
    pub(crate) fn of(self, process: u32, device_index: u32) -> Self {
        Self {
            process,
            device_index,
            ..self
        }
    }

    /// The operations that were launched within what matches, also by what it called.
    pub fn within(
        &self,
        launcher: Launcher,
        matches: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = OperationRow> {
        let paths = match launcher {
            Launcher::Module => &self.modules,
            Launcher::Function => &self.functions,
        };
        let mut meant: Vec<bool> = Vec::with_capacity(paths.names.len());
        let mut by_name: FxHashMap<&str, bool> = FxHashMap::default();
        for (name, parent) in paths.names.iter().zip(&paths.parents) {
            let above = meant.get(*parent as usize).copied().unwrap_or(false);
            let is_meant = above || *by_name.entry(name).or_insert_with(|| matches(name));
            meant.push(is_meant);
        }
        self.operations.iter().filter_map(move |(row, module, function)| {
            let path = match launcher {
                Launcher::Module => *module,
                Launcher::Function => *function,
            };
            meant
                .get(path as usize)
                .is_some_and(|meant| *meant)
                .then_some(*row)
        })
    }

    /// The names of all modules or functions.
    pub fn names(&self, launcher: Launcher) -> impl Iterator<Item = &str> {
        let paths = match launcher {
            Launcher::Module => &self.modules,
            Launcher::Function => &self.functions,
        };
        paths.names.iter().map(String::as_str)
    }
}
