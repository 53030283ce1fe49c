//! The recording behind a timeline: as it was read, or packed once its analysis is there.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use gputrace_trace::packed::{Packed, PackedColumn, PackedTables};
use gputrace_trace::tables::{
    ApiCalls, Collective, Compilation, Copies, GraphLaunches, Kernels, LaunchStacks, Markers, Memsets,
    NcclChannels, NcclProxySteps, Operators, Overheads, PythonFrames, Synchronizations, Tables,
};
use gputrace_trace::{Process, Recording, Table, parallel};

use super::pieces::Pieces;

/// A table that is packed where a recording is.
pub(crate) trait Stored: Table + 'static {
    /// Its number among those.
    const PLACE: usize;
    fn of(tables: &Tables) -> &Self;
    fn packed(tables: &PackedTables) -> &Packed<Self>;
}

/// How many tables these are.
pub(crate) const STORED: usize = 13;

macro_rules! stored {
    ($($place:literal $Columns:ident: $field:ident,)*) => {$(
        impl Stored for $Columns {
            const PLACE: usize = $place;
            fn of(tables: &Tables) -> &Self {
                &tables.$field
            }
            fn packed(tables: &PackedTables) -> &Packed<Self> {
                &tables.$field
            }
        }
    )*
        /// Their rows.
        pub(crate) fn rows_of(tables: &Tables) -> [usize; STORED] {
            [$( tables.$field.len(), )*]
        }
    };
}

stored! {
    0 Kernels: kernels,
    1 Copies: copies,
    2 Memsets: memsets,
    3 GraphLaunches: graph_launches,
    4 ApiCalls: api_calls,
    5 Synchronizations: synchronizations,
    6 Overheads: overheads,
    7 Markers: markers,
    8 Operators: operators,
    9 NcclProxySteps: nccl_proxy,
    10 NcclChannels: nccl_channels,
    11 PythonFrames: python_frames,
    12 LaunchStacks: launch_stacks,
}

/// Rows that are unpacked at once.
const BLOCK: usize = 4096;

/// Shows the rows of a packed table, block by block.
pub(crate) fn unpacked_blocks<T: Table>(table: &Packed<T>, see: &mut impl FnMut(&T)) {
    for first in (0..table.len()).step_by(BLOCK) {
        see(&table.rows(first..(first + BLOCK).min(table.len())));
    }
}

/// A column of 32-bit numbers.
#[derive(Clone, Copy)]
pub(crate) enum Words<'a> {
    Plain(&'a [u32]),
    Packed(&'a PackedColumn),
}

impl Words<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(words) => words.len(),
            Self::Packed(column) => column.len(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> u32 {
        match self {
            Self::Plain(words) => words[row],
            Self::Packed(column) => column.word(row),
        }
    }
}

/// A recording that is still being read: there once it is, nothing where that failed.
pub(crate) type Coming = Arc<OnceLock<Option<Arc<Recording>>>>;

/// A recording, whole, packed or on its way.
pub(crate) struct Store {
    /// Everything that is not packed, nor on its way.
    outline: Arc<Recording>,
    /// The whole recording, where only its outline was read first.
    coming: Option<Coming>,
    /// By process; nothing where the recording is whole.
    packed: Vec<PackedTables>,
    /// By process, of a recording that grows.
    pieces: Vec<Pieces>,
    /// The same of what recorders sampled of their hosts.
    of_hosts: Vec<Pieces>,
    /// The whole recording while anybody has it.
    unpacked: Mutex<Weak<Recording>>,
}

impl Store {
    pub(crate) fn whole(recording: Arc<Recording>) -> Self {
        Self {
            outline: recording,
            coming: None,
            packed: Vec::new(),
            pieces: Vec::new(),
            of_hosts: Vec::new(),
            unpacked: Mutex::default(),
        }
    }

    /// A recording that grows, so far: its outline, and by process and host the pieces of the rest.
    pub(crate) fn growing(outline: Arc<Recording>, pieces: Vec<Pieces>, of_hosts: Vec<Pieces>) -> Self {
        Self {
            pieces,
            of_hosts,
            ..Self::whole(outline)
        }
    }

    /// An outline, of which the whole is on its way: who asks for a row waits for it.
    pub(crate) fn outlined(outline: Arc<Recording>, coming: Coming) -> Self {
        Self {
            coming: Some(coming),
            ..Self::whole(outline)
        }
    }

    /// Whether the whole recording is still being read.
    pub(crate) fn is_waiting(&self) -> bool {
        self.coming.as_ref().is_some_and(|coming| coming.get().is_none())
    }

    /// Whether the whole recording was waited for and did not come: only the outline is there.
    pub(crate) fn is_abandoned(&self) -> bool {
        let coming = self.coming.as_ref().and_then(|coming| coming.get());
        coming.is_some_and(Option::is_none)
    }

    /// The recording that is not packed: as it was read, or, where that failed, its outline.
    fn plain(&self) -> &Arc<Recording> {
        let coming = self.coming.as_ref().and_then(|coming| coming.wait().as_ref());
        coming.unwrap_or(&self.outline)
    }

    /// The same packed.
    pub(crate) fn pack(&self) -> Self {
        if !self.packed.is_empty() || !self.pieces.is_empty() {
            return Self {
                outline: self.outline.clone(),
                coming: None,
                packed: self.packed.clone(),
                pieces: self.pieces.clone(),
                of_hosts: self.of_hosts.clone(),
                unpacked: Mutex::default(),
            };
        }
        let whole = self.plain();
        let packed = parallel::map(whole.processes.len(), |place| {
            PackedTables::new(&whole.processes[place].tables)
        });
        let others = |processes: &[Process]| -> Vec<Process> {
            let other = |process: &Process| Process {
                folder: process.folder.clone(),
                header: process.header.clone(),
                tables: PackedTables::others(&process.tables),
            };
            processes.iter().map(other).collect()
        };
        let outline = Recording {
            path: whole.path.clone(),
            manifest: whole.manifest.clone(),
            processes: others(&whole.processes),
            hosts: whole.hosts.clone(),
            names: whole.names.clone(),
            losses: whole.losses.clone(),
            notes: whole.notes.clone(),
            unaligned: whole.unaligned.clone(),
            clocks: whole.clocks.clone(),
        };
        Self {
            outline: Arc::new(outline),
            coming: None,
            packed,
            pieces: Vec::new(),
            of_hosts: Vec::new(),
            unpacked: Mutex::default(),
        }
    }

    /// The recording, but for those tables of its processes that are packed or on their way.
    pub(crate) fn outline(&self) -> &Arc<Recording> {
        &self.outline
    }

    /// The whole recording; where it is packed, made anew unless somebody still has it. Who asks meanwhile waits.
    pub(crate) fn recording(&self) -> Arc<Recording> {
        if self.packed.is_empty() && self.pieces.is_empty() {
            return self.plain().clone();
        }
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = unpacked.upgrade() {
            return whole;
        }
        let mut whole = Recording::clone(&self.outline);
        for (process, packed) in whole.processes.iter_mut().zip(&self.packed) {
            packed.unpack_into(&mut process.tables);
        }
        let processes = whole.processes.iter_mut().zip(&self.pieces);
        for (process, pieces) in processes.chain(whole.hosts.iter_mut().zip(&self.of_hosts)) {
            pieces.unpack_into(&mut process.tables);
        }
        let whole = Arc::new(whole);
        *unpacked = Arc::downgrade(&whole);
        whole
    }

    /// Bytes of what is packed.
    pub(crate) fn bytes(&self) -> usize {
        let pieces = self.pieces.iter().map(Pieces::bytes);
        self.packed.iter().map(PackedTables::bytes).chain(pieces).sum()
    }

    pub(crate) fn process(&self, process: u32) -> Option<&Process> {
        self.outline.processes.get(process as usize)
    }

    /// A row of a process's table.
    pub(crate) fn row<T: Stored>(&self, process: u32, row: usize) -> Option<T::Row> {
        if let Some(pieces) = self.pieces.get(process as usize) {
            return pieces.row::<T>(row);
        }
        match self.packed.get(process as usize) {
            Some(packed) => {
                let table = T::packed(packed);
                (row < table.len()).then(|| table.row(row))
            }
            None => {
                let table = T::of(&self.plain().processes.get(process as usize)?.tables);
                (row < table.len()).then(|| table.row(row))
            }
        }
    }

    /// Shows all rows of a process's table, in their order, a block after the other: what is packed is unpacked no further.
    pub(crate) fn blocks<T: Stored>(&self, process: u32, mut see: impl FnMut(&T)) {
        if let Some(pieces) = self.pieces.get(process as usize) {
            return pieces.blocks(see);
        }
        match self.packed.get(process as usize) {
            Some(packed) => unpacked_blocks(T::packed(packed), &mut see),
            None => {
                if let Some(process) = self.plain().processes.get(process as usize) {
                    see(T::of(&process.tables));
                }
            }
        }
    }

    /// What NCCL told of an operation, as it was enqueued.
    pub(crate) fn collective(&self, process: u32, row: usize) -> Option<Collective> {
        if let Some(pieces) = self.pieces.get(process as usize) {
            return pieces.collectives.row(row);
        }
        let rows = &self.process(process)?.tables.collectives;
        (row < rows.len()).then(|| rows.row(row))
    }

    /// A compilation.
    pub(crate) fn compilation(&self, process: u32, row: usize) -> Option<Compilation> {
        if let Some(pieces) = self.pieces.get(process as usize) {
            return pieces.compilations.row(row);
        }
        let rows = &self.process(process)?.tables.compilations;
        (row < rows.len()).then(|| rows.row(row))
    }

    /// Of a recording that grows, the rows with this correlation id; nothing of others, whose columns are asked for as wholes.
    pub(crate) fn rows_with<T: Stored>(&self, process: u32, id: u32) -> Option<Vec<usize>> {
        let pieces = self.pieces.get(process as usize)?;
        Some(pieces.rows_with::<T>(id))
    }

    /// A column of 32-bit numbers, by name; without rows where there is no such column, and of a recording that grows.
    pub(crate) fn words<T: Stored>(&self, process: u32, name: &str) -> Words<'_> {
        let nothing = Words::Plain(&[]);
        match self.packed.get(process as usize) {
            Some(packed) => T::packed(packed).column(name).map_or(nothing, Words::Packed),
            None => {
                let column = || {
                    let table = T::of(&self.plain().processes.get(process as usize)?.tables);
                    let place = T::schema().index_of(name).ok()?;
                    table.columns().get(place)?.downcast_ref::<Vec<u32>>()
                };
                column().map_or(nothing, |words| Words::Plain(words))
            }
        }
    }
}
