//! Units divided over the ranks of tensor parallelism, with and without sequence parallelism, against the same units
//! whole: outputs and gradients.

use std::rc::Rc;

use super::chain::{Chain, Guarded};
use super::numbers::{from_bytes, numbers, to_bytes, wide};
use super::operation::{Input, Kind, upload};
use super::report::{Report, worst_error};
use super::units::Case;
use crate::comm::Communicator;
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::model::{Network, Role, TensorParallel, UnitSpec};

/// How far apart they may be, relative to the largest value: what f32 gives for sums in another order.
const LIMIT: f64 = 1e-5;
const TYPE: DataType = DataType::F32;

/// Networks that so many ranks can divide.
fn cases(ranks: usize) -> Vec<Case> {
    let linear = |inputs, outputs, role| UnitSpec::Linear {
        inputs,
        outputs,
        relu: true,
        role,
    };
    let pair = vec![
        linear(5, 3 * ranks, Role::Column { first: false }),
        linear(3 * ranks, 4, Role::Row),
    ];
    let (context, heads) = (2 * ranks, 2 * ranks);
    let block = UnitSpec::Block {
        width: 3 * heads,
        heads,
        context,
        blocks: 1,
    };
    let perceptron = Network::perceptron(&[6, 4 * ranks, 5, 2 * ranks, 4, 3]).units;
    let transformer = Network::transformer(11, context, 3 * heads, heads, 2).units;
    vec![
        Case::new("pair of linears", pair, 3 * ranks),
        Case::new("perceptron", perceptron, 3 * ranks),
        Case::new("block", vec![block], context * ranks),
        // A sample for each rank; a part of one.
        Case::new("transformer", transformer.clone(), context * ranks),
        Case::new("transformer, one sample", transformer, context),
    ]
}

/// Divided units, on all ranks of a communicator at a time.
pub(super) fn check(gpu: &Gpu, report: &mut Report, communicator: &Rc<Communicator>) -> Result<(), Error> {
    for case in cases(communicator.ranks() as usize) {
        let whole = Whole::compute(gpu, &case)?;
        for sequence in [false, true] {
            let parallel = TensorParallel::new(gpu, Rc::clone(communicator), sequence)?;
            whole.compare(gpu, report, &case, &parallel)?;
        }
    }
    Ok(())
}

/// What the undivided units make of an input and a gradient by their output.
struct Whole {
    /// Each unit's flat parameters.
    parameters: Vec<Vec<f32>>,
    input: Vec<u8>,
    delta: Vec<f32>,
    output: Vec<f32>,
    gradients: Vec<Vec<f32>>,
    input_gradient: Option<Vec<f32>>,
}

fn upload_all(gpu: &Gpu, units: &[Vec<f32>]) -> Result<Vec<Buffer>, Error> {
    units
        .iter()
        .map(|values| upload(gpu, &to_bytes(TYPE, values)))
        .collect()
}

fn floats(gpu: &Gpu, memory: &Guarded) -> Result<Vec<f32>, Error> {
    Ok(from_bytes(TYPE, &memory.read(gpu)?))
}

fn input_bytes(input: &Input) -> Vec<u8> {
    match input.kind {
        Kind::Int => input
            .values
            .iter()
            .flat_map(|&word| (word as i32).to_le_bytes())
            .collect(),
        _ => to_bytes(TYPE, &input.values),
    }
}

/// This rank's part of rows that are divided: `own` bytes of all; everything, if it has everything.
fn own_part(all: &[u8], own: usize, rank: usize) -> &[u8] {
    if own == all.len() {
        all
    } else {
        &all[rank * own..(rank + 1) * own]
    }
}

impl Whole {
    fn compute(gpu: &Gpu, case: &Case) -> Result<Self, Error> {
        // The same on every rank.
        let mut random = Random::new(5);
        let chain = Chain::new(gpu, &case.specs, case.rows, case.has_input_gradient(), None);
        let mut tensors = case.parameters(&mut random).into_iter();
        let parameters: Vec<Vec<f32>> = case
            .specs
            .iter()
            .map(|spec| tensors.by_ref().take(spec.tensors().len()).flatten().collect())
            .collect();
        let input = input_bytes(&case.input(&mut random));
        let delta = numbers(&mut random, chain.edge_bytes(TYPE)[1] / TYPE.bytes(), 1.0);

        let buffers = upload_all(gpu, &parameters)?;
        let addresses: Vec<u64> = buffers.iter().map(Buffer::address).collect();
        let input_buffer = upload(gpu, &input)?;
        let delta_buffer = upload(gpu, &to_bytes(TYPE, &delta))?;
        let run = chain.run(
            TYPE,
            &addresses,
            input_buffer.address(),
            Some(delta_buffer.address()),
        )?;
        Ok(Self {
            parameters,
            input,
            delta,
            output: floats(gpu, &run.output)?,
            gradients: run
                .gradients
                .iter()
                .map(|memory| floats(gpu, memory))
                .collect::<Result<_, _>>()?,
            input_gradient: run
                .input_gradient
                .map(|memory| floats(gpu, &memory))
                .transpose()?,
        })
    }

    /// Divided units on this rank's part of the same.
    fn compare(
        &self,
        gpu: &Gpu,
        report: &mut Report,
        case: &Case,
        parallel: &TensorParallel,
    ) -> Result<(), Error> {
        let rank = parallel.shard().rank;
        let chain = Chain::new(
            gpu,
            &case.specs,
            case.rows,
            self.input_gradient.is_some(),
            Some(parallel),
        );
        let layouts = chain.units.iter().map(|unit| unit.layout());
        let own: Vec<Vec<f32>> = layouts
            .zip(&self.parameters)
            .map(|(layout, values)| layout.take(values))
            .collect();
        let buffers = upload_all(gpu, &own)?;
        let addresses: Vec<u64> = buffers.iter().map(Buffer::address).collect();
        let [input_bytes, output_bytes] = chain.edge_bytes(TYPE);
        let input = upload(gpu, own_part(&self.input, input_bytes, rank))?;
        let delta = to_bytes(TYPE, &self.delta);
        let delta = upload(gpu, own_part(&delta, output_bytes, rank))?;
        let run = chain.run(TYPE, &addresses, input.address(), Some(delta.address()))?;

        let part = |values: &[f32], bytes| {
            let all = to_bytes(TYPE, values);
            wide(&from_bytes(TYPE, own_part(&all, bytes, rank)))
        };
        let way = if parallel.sequence() { "sequence" } else { "tensor" };
        let mut add = |what: &str, got: &[f32], want: &[f64]| {
            let name = format!("{way} parallel {}: {what}", case.name);
            report.add(&name, worst_error(got, want), LIMIT);
        };
        add(
            "output",
            &floats(gpu, &run.output)?,
            &part(&self.output, output_bytes),
        );
        if let (Some(got), Some(want)) = (&run.input_gradient, &self.input_gradient) {
            add("gradient by input", &floats(gpu, got)?, &part(want, input_bytes));
        }
        for ((unit, memory), want) in chain.units.iter().zip(&run.gradients).zip(&self.gradients) {
            let layout = unit.layout();
            let want = wide(&layout.take(want));
            let partial = layout
                .places
                .iter()
                .filter(|place| parallel.sequence() && place.partial_in_sequence_parallel);
            for place in partial {
                let address = memory.address() + (place.elements.start * TYPE.bytes()) as u64;
                parallel.all_reduce(gpu, TYPE, address, place.elements.len())?;
            }
            let got = floats(gpu, memory)?;
            for place in &layout.places {
                let elements = place.elements.clone();
                add("gradients", &got[elements.clone()], &want[elements]);
            }
        }
        let name = format!("{way} parallel {}: memory, readiness", case.name);
        report.add(&name, chain.faults() as f64, 0.0);
        Ok(())
    }
}
