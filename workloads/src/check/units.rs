//! The units of the networks: their gradients against differences of their outputs, and their 16-bit variants against
//! f32.

use super::chain::{Chain, Run};
use super::difference::{Trial, check_gradients_by};
use super::numbers::{numbers, rounded, rounding_error, whole_numbers, wide};
use super::operation::{Input, Kind, Operation, Output};
use super::report::{Report, worst_error};
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, copy};
use crate::model::{Network, Role, Start, Tensor, UnitSpec};

/// How units are tried. A wrong gradient is wrong by far more than this limit.
const TRIAL: Trial = Trial {
    // Layer norms of few columns bend.
    step: 1.0 / 32.0,
    is_length: true,
    limit: 5e-4,
};
/// Linear layers don't bend, but what ReLU lets through rounds more than what is sought.
const LINEAR_TRIAL: Trial = Trial {
    step: 1.0 / 8.0,
    ..TRIAL
};
/// Roundings that may add up in a 16-bit network, by the largest value.
const ROUNDINGS: f64 = 16.0;

/// Units with something to compute on.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) specs: Vec<UnitSpec>,
    pub(super) rows: usize,
    /// Columns of the input, or words if it is tokens.
    columns: usize,
    kind: Kind,
}

impl Case {
    pub(super) fn new(name: &str, specs: Vec<UnitSpec>, rows: usize) -> Self {
        let (columns, kind) = match specs[0] {
            UnitSpec::Linear { inputs, .. } => (inputs, Kind::Typed),
            UnitSpec::Embedding { vocabulary, .. } => (vocabulary, Kind::Int),
            UnitSpec::Block { width, .. } | UnitSpec::Head { width, .. } => (width, Kind::Typed),
        };
        Self {
            name: name.to_owned(),
            specs,
            rows,
            columns,
            kind,
        }
    }

    /// Whether a gradient by the input exists, divided or not: the network's first units owe nobody one.
    pub(super) fn has_input_gradient(&self) -> bool {
        let is_first = matches!(
            self.specs[0],
            UnitSpec::Embedding { .. }
                | UnitSpec::Linear {
                    role: Role::Column { first: true },
                    ..
                }
        );
        !is_first
    }

    pub(super) fn input(&self, random: &mut Random) -> Input {
        match self.kind {
            Kind::Int => Input::int(whole_numbers(random, self.rows, self.columns)),
            _ => Input::typed(numbers(random, self.rows * self.columns, 1.0)),
        }
    }

    fn is_linear(&self) -> bool {
        self.specs
            .iter()
            .all(|spec| matches!(spec, UnitSpec::Linear { .. }))
    }

    /// Tensors of all units, in order.
    fn tensors(&self) -> Vec<Tensor> {
        self.specs.iter().flat_map(UnitSpec::tensors).collect()
    }

    /// Values for all tensors: larger than a network begins with, so that every path counts.
    pub(super) fn parameters(&self, random: &mut Random) -> Vec<Vec<f32>> {
        self.tensors()
            .iter()
            .map(|tensor| {
                let count = tensor.rows * tensor.columns;
                match tensor.start {
                    Start::Uniform(_) if tensor.rows > 1 => {
                        numbers(random, count, 1.5 / (tensor.rows as f32).sqrt() / 4.0)
                    }
                    // ReLU is no smooth function at 0: large biases keep its input away from there.
                    Start::Uniform(_) => numbers(random, count, 0.5)
                        .iter()
                        .map(|value| value + 3.0 * value.signum())
                        .collect(),
                    Start::Constant(1.0) => numbers(random, count, 0.3).iter().map(|v| v + 1.0).collect(),
                    _ if tensor.rows > 1 => numbers(random, count, 1.5 / (tensor.rows as f32).sqrt()),
                    _ => numbers(random, count, 0.5),
                }
            })
            .collect()
    }
}

/// One unit of each kind, and whole networks.
fn cases() -> Vec<Case> {
    let linear = |relu| UnitSpec::Linear {
        inputs: 9,
        outputs: 7,
        relu,
        role: Role::Whole,
    };
    let embedding = UnitSpec::Embedding {
        vocabulary: 7,
        context: 4,
        width: 6,
    };
    let block = UnitSpec::Block {
        width: 6,
        heads: 2,
        context: 5,
        blocks: 1,
    };
    let head = UnitSpec::Head {
        width: 6,
        vocabulary: 9,
    };
    vec![
        Case::new("linear", vec![linear(false)], 5),
        Case::new("linear with relu", vec![linear(true)], 5),
        Case::new("embedding", vec![embedding], 12),
        Case::new("block", vec![block], 10),
        Case::new("head", vec![head], 5),
        Case::new("perceptron", Network::perceptron(&[6, 8, 7, 5]).units, 4),
        Case::new("transformer", Network::transformer(7, 4, 6, 3, 2).units, 8),
    ]
}

/// Whole units on one GPU.
pub(super) fn check(gpu: &Gpu, report: &mut Report) -> Result<(), Error> {
    for case in cases() {
        let mut random = Random::new(11);
        let chain = Chain::new(gpu, &case.specs, case.rows, case.has_input_gradient(), None);
        let mut inputs: Vec<Input> = case
            .parameters(&mut random)
            .into_iter()
            .map(Input::typed)
            .collect();
        inputs.push(case.input(&mut random));
        let output_count = chain.edge_bytes(DataType::F32)[1] / size_of::<f32>();

        let forward = Operation::new([Output::New(Kind::Typed, output_count)], |_, ty, from, to| {
            let flat = Flat::gather(gpu, &chain, ty, from)?;
            let run = chain.run(ty, &flat.addresses(), from[from.len() - 1], None)?;
            copy(&gpu.compute, to[0], run.output.address(), run.output.bytes())
        });
        let tensors = case.tensors();
        let mut by: Vec<usize> = (0..tensors.len()).collect();
        let mut gradients: Vec<Output> = tensors
            .iter()
            .map(|tensor| Output::New(Kind::Typed, tensor.rows * tensor.columns))
            .collect();
        if chain.has_input_gradient {
            by.push(tensors.len());
            gradients.push(Output::New(Kind::Typed, inputs[tensors.len()].values.len()));
        }
        // The last input is the gradient by the output.
        let both = Operation::new(gradients, |_, ty, from, to| {
            let [input, delta] = [from[from.len() - 2], from[from.len() - 1]];
            let flat = Flat::gather(gpu, &chain, ty, &from[..from.len() - 1])?;
            let run = chain.run(ty, &flat.addresses(), input, Some(delta))?;
            Flat::scatter(gpu, &chain, ty, &run, to)
        });
        check_gradients_by(
            gpu,
            report,
            &format!("unit {}", case.name),
            &forward,
            &inputs,
            &by,
            &|inputs, weights| {
                let mut inputs = inputs.to_vec();
                inputs.push(Input::typed(weights.to_vec()));
                both.run(gpu, DataType::F32, &inputs)
            },
            if case.is_linear() { LINEAR_TRIAL } else { TRIAL },
        )?;
        inputs.push(Input::typed(numbers(&mut random, output_count, 1.0)));
        check_types(gpu, report, &case.name, &both, &inputs)?;
        let name = format!("unit {} memory, readiness", case.name);
        report.add(&name, chain.faults() as f64, 0.0);
    }
    Ok(())
}

/// Gradients in 16 bits against those in f32 of the same values.
fn check_types(
    gpu: &Gpu,
    report: &mut Report,
    name: &str,
    both: &Operation<'_>,
    inputs: &[Input],
) -> Result<(), Error> {
    for ty in [DataType::Bf16, DataType::F16] {
        let mut inputs = inputs.to_vec();
        for input in inputs.iter_mut().filter(|input| input.kind == Kind::Typed) {
            input.values = rounded(ty, &input.values);
        }
        let want = both.run(gpu, DataType::F32, &inputs)?.concat();
        let got = both.run(gpu, ty, &inputs)?.concat();
        let suffix = ty.suffix().trim_start_matches('_');
        let limit = ROUNDINGS * rounding_error(ty);
        report.add(
            &format!("unit {name} {suffix}"),
            worst_error(&got, &wide(&want)),
            limit,
        );
    }
    Ok(())
}

/// Each unit's flat parameters.
struct Flat {
    units: Vec<Buffer>,
}

impl Flat {
    /// Puts tensors behind each other. `from` has all units' tensors.
    fn gather(gpu: &Gpu, chain: &Chain<'_>, ty: DataType, from: &[u64]) -> Result<Self, Error> {
        let mut from = from.iter();
        let mut units = Vec::new();
        for unit in &chain.units {
            let layout = unit.layout();
            let buffer = gpu.buffer(layout.elements * ty.bytes())?;
            for (index, (place, &from)) in layout.places.iter().zip(&mut from).enumerate() {
                let to = layout.address(buffer.address(), index, ty.bytes());
                copy(&gpu.compute, to, from, place.elements.len() * ty.bytes())?;
            }
            units.push(buffer);
        }
        Ok(Self { units })
    }

    /// Copies a run's gradients to `to`: each tensor's, then that by the input.
    fn scatter(gpu: &Gpu, chain: &Chain<'_>, ty: DataType, run: &Run, to: &[u64]) -> Result<(), Error> {
        let mut to = to.iter();
        for (unit, gradients) in chain.units.iter().zip(&run.gradients) {
            let layout = unit.layout();
            for (index, (place, &to)) in layout.places.iter().zip(&mut to).enumerate() {
                let from = layout.address(gradients.address(), index, ty.bytes());
                copy(&gpu.compute, to, from, place.elements.len() * ty.bytes())?;
            }
        }
        if let (Some(gradient), Some(&to)) = (&run.input_gradient, to.next()) {
            copy(&gpu.compute, to, gradient.address(), gradient.bytes())?;
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<u64> {
        self.units.iter().map(Buffer::address).collect()
    }
}
