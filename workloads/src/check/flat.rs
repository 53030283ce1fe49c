//! Kernels on flat vectors: optimizers, casts, sums, and the fused accumulation.

use super::numbers::{from_bytes, numbers, rounded, to_bytes, wide};
use super::operation::{Input, Operation, Output, download, upload};
use super::report::{Report, worst_error};
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

const SIZES: [usize; 4] = [1, 31, 257, 10_007];
const LIMIT: f64 = 1e-6;

pub(super) fn check(gpu: &Gpu, report: &mut Report) -> Result<(), Error> {
    let mut random = Random::new(3);
    for count in SIZES {
        scale(gpu, report, &mut random, count)?;
        sum_of_squares(gpu, report, &mut random, count)?;
        sgd(gpu, report, &mut random, count)?;
        adam(gpu, report, &mut random, count)?;
        for ty in DataType::ALL {
            accumulate(gpu, report, &mut random, ty, count)?;
        }
    }
    for ty in [DataType::Bf16, DataType::F16] {
        casts(gpu, report, ty)?;
    }
    for ty in DataType::ALL {
        overflow(gpu, report, ty)?;
        concurrent(gpu, report, ty)?;
    }
    Ok(())
}

fn scale(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    let operation = Operation::new([Output::Input(0)], move |queue, _, inputs, _| {
        queue.scale(inputs[0], -0.75, count)
    });
    let x = numbers(random, count, 1.0);
    let want: Vec<f64> = x.iter().map(|x| -0.75 * f64::from(*x)).collect();
    let got = operation.run(gpu, DataType::F32, &[Input::float(x)])?;
    report.add("scale", worst_error(&got[0], &want), LIMIT);
    Ok(())
}

fn sum_of_squares(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    let operation = Operation::new([Output::Input(0)], move |queue, _, inputs, _| {
        queue.sum_of_squares(inputs[0], inputs[1], count)
    });
    let inputs = [Input::float(vec![2.5]), Input::float(numbers(random, count, 1.0))];
    let want = 2.5 + wide(&inputs[1].values).iter().map(|x| x * x).sum::<f64>();
    let got = operation.run(gpu, DataType::F32, &inputs)?;
    report.add("sum_of_squares", worst_error(&got[0], &[want]), LIMIT);
    Ok(())
}

fn sgd(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    let operation = Operation::new([Output::Input(0)], move |queue, _, inputs, _| {
        (0..3).try_for_each(|_| queue.sgd_step(inputs[0], inputs[1], 0.1, count))
    });
    let inputs = [1.0, 2.0].map(|limit| Input::float(numbers(random, count, limit)));
    let want: Vec<f64> = wide(&inputs[0].values)
        .iter()
        .zip(wide(&inputs[1].values))
        .map(|(parameter, gradient)| parameter - 3.0 * f64::from(0.1f32) * gradient)
        .collect();
    let got = operation.run(gpu, DataType::F32, &inputs)?;
    report.add("sgd_step", worst_error(&got[0], &want), LIMIT);
    Ok(())
}

/// Five steps from moments of zero, with the same gradient each.
fn adam(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    const STEPS: i32 = 5;
    let (rate, betas, epsilon) = (0.01f32, [0.9f32, 0.999], 1e-8f32);
    let operation = Operation::new([0, 2, 3].map(Output::Input), move |queue, _, inputs, _| {
        let [parameters, gradients, first, second] = inputs else {
            return Err(Error::new("four inputs"));
        };
        (1..=STEPS).try_for_each(|step| {
            let [correction1, correction2] = betas.map(|beta| 1.0 - beta.powi(step));
            queue.adam_step(
                *parameters,
                *gradients,
                *first,
                *second,
                rate,
                betas[0],
                betas[1],
                epsilon,
                correction1,
                correction2,
                count,
            )
        })
    });
    let inputs = [
        Input::float(numbers(random, count, 1.0)),
        Input::float(numbers(random, count, 0.1)),
        Input::float(vec![0.0; count]),
        Input::float(vec![0.0; count]),
    ];
    let betas = betas.map(f64::from);
    let mut want = [wide(&inputs[0].values), vec![0.0; count], vec![0.0; count]];
    for step in 1..=STEPS {
        let [correction1, correction2] = betas.map(|beta| 1.0 - beta.powi(step));
        for (index, gradient) in wide(&inputs[1].values).into_iter().enumerate() {
            want[1][index] = betas[0] * want[1][index] + (1.0 - betas[0]) * gradient;
            want[2][index] = betas[1] * want[2][index] + (1.0 - betas[1]) * gradient * gradient;
            let (first, second) = (want[1][index] / correction1, want[2][index] / correction2);
            want[0][index] -= f64::from(rate) * first / (second.sqrt() + f64::from(epsilon));
        }
    }
    let got = operation.run(gpu, DataType::F32, &inputs)?;
    for ((name, got), want) in ["adam_step", "adam_step moments", "adam_step moments"]
        .iter()
        .zip(&got)
        .zip(&want)
    {
        // 1 - beta is rounded in f32, by a part in 10^4 where beta is 0.999.
        let limit = if *name == "adam_step" { 2e-6 } else { 2e-4 };
        report.add(name, worst_error(got, want), limit);
    }
    Ok(())
}

/// All values of the 16-bit type, and f32 of all kinds: how many results differ by a bit.
fn casts(gpu: &Gpu, report: &mut Report, ty: DataType) -> Result<(), Error> {
    let name = ty.suffix().trim_start_matches('_');
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let count = all.len() / 2;
    let input = upload(gpu, &all)?;
    let output = gpu.buffer(count * 4)?;
    gpu.work()
        .cast(ty, DataType::F32, output.address(), input.address(), count)?;
    let got = from_bytes(DataType::F32, &download(gpu, &output)?);
    let want = from_bytes(ty, &all);
    let wrong = different_bits(&got, &want);
    report.add(&format!("cast {name} to f32, wrong elements"), wrong, 0.0);

    // What lies on, between and just beside neighbouring values, and any bit patterns.
    let mut values = Vec::new();
    for pair in want.windows(2) {
        let middle = ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
        values.extend([pair[0], middle, middle.next_up(), middle.next_down()]);
    }
    let mut bits = 1u32;
    values.extend((0..200_000).map(|_| {
        // A multiplicative generator: all bits vary.
        bits = bits.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        f32::from_bits(bits ^ (bits >> 15))
    }));
    let count = values.len();
    let input = upload(gpu, &to_bytes(DataType::F32, &values))?;
    let output = gpu.buffer(count * 2)?;
    gpu.work()
        .cast(DataType::F32, ty, output.address(), input.address(), count)?;
    let got = from_bytes(ty, &download(gpu, &output)?);
    let wrong = different_bits(&got, &rounded(ty, &values));
    report.add(&format!("cast f32 to {name}, wrong elements"), wrong, 0.0);
    Ok(())
}

/// How many elements are not the same, zeros of either sign told apart; any NaN is as good as another.
fn different_bits(got: &[f32], want: &[f32]) -> f64 {
    let differ =
        |(got, want): &(&f32, &f32)| got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan());
    let missing = got.len().abs_diff(want.len());
    (got.iter().zip(want).filter(differ).count() + missing) as f64
}

fn type_name(ty: DataType) -> &'static str {
    match ty {
        DataType::F32 => "f32",
        DataType::Bf16 => "bf16",
        DataType::F16 => "f16",
    }
}

/// The fused kernel on finite gradients: sums, and no overflow.
fn accumulate(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    ty: DataType,
    count: usize,
) -> Result<(), Error> {
    let gradient = rounded(ty, &numbers(random, count, 300.0));
    let accumulator = numbers(random, count, 1.0);
    let want: Vec<f64> = wide(&accumulator)
        .iter()
        .zip(wide(&gradient))
        .map(|(sum, gradient)| sum + gradient / 256.0)
        .collect();
    let got = run_fused(gpu, ty, (accumulator, gradient), 1.0 / 256.0)?;
    let name = type_name(ty);
    report.add(
        &format!("scale_accumulate {name}"),
        worst_error(&got[0], &want),
        LIMIT,
    );
    report.add(
        &format!("scale_accumulate {name}, overflow flag"),
        f64::from(got[1][0]),
        0.0,
    );
    Ok(())
}

fn run_fused(
    gpu: &Gpu,
    ty: DataType,
    (accumulator, gradient): (Vec<f32>, Vec<f32>),
    scale: f32,
) -> Result<Vec<Vec<f32>>, Error> {
    let count = gradient.len();
    let operation = Operation::new(
        [Output::Input(0), Output::Input(2)],
        move |queue, ty, inputs, _| queue.scale_accumulate(ty, inputs[0], inputs[1], scale, count, inputs[2]),
    );
    let inputs = [
        Input::float(accumulator),
        Input::typed(gradient),
        Input::int(vec![0.0]),
    ];
    operation.run(gpu, ty, &inputs)
}

/// One element that is not finite, anywhere: all others are added, and the flag is set.
fn overflow(gpu: &Gpu, report: &mut Report, ty: DataType) -> Result<(), Error> {
    let mut wrong = 0.0;
    let large = if ty == DataType::F16 { 6e4 } else { 3e38 };
    for count in [1usize, 300, 5000] {
        for place in [0, count / 2, count - 1] {
            // The last is finite until it is scaled.
            for (value, scale) in [
                (f32::NAN, 0.5),
                (f32::INFINITY, 0.5),
                (f32::NEG_INFINITY, 0.5),
                (large, 1e35),
            ] {
                let mut gradient = vec![0.0; count];
                gradient[place] = value;
                if ty == DataType::F16 && value == large {
                    gradient[place] = 65504.0;
                }
                let got = run_fused(gpu, ty, (vec![1.0; count], gradient), scale)?;
                let added = got[0].iter().filter(|&&sum| sum != 1.0).count();
                wrong += added as f64 + f64::from(u8::from(got[1] != [1.0]));
            }
        }
    }
    let name = type_name(ty);
    report.add(&format!("scale_accumulate {name}, overflows missed"), wrong, 0.0);
    Ok(())
}

/// Two streams add to the same accumulator at a time: nothing is lost.
fn concurrent(gpu: &Gpu, report: &mut Report, ty: DataType) -> Result<(), Error> {
    const COUNT: usize = 20_000;
    const ROUNDS: usize = 20;
    let gradient = upload(gpu, &to_bytes(ty, &[1.0; COUNT]))?;
    let accumulator = upload(gpu, &to_bytes(DataType::F32, &[0.0; COUNT]))?;
    let overflow = upload(gpu, &[0; 4])?;
    let other = gpu.context.new_stream()?;
    gpu.compute.synchronize()?;
    for _ in 0..ROUNDS {
        for queue in [gpu.work(), gpu.work_on(&other)] {
            queue.scale_accumulate(
                ty,
                accumulator.address(),
                gradient.address(),
                1.0,
                COUNT,
                overflow.address(),
            )?;
        }
    }
    other.synchronize()?;
    let got = from_bytes(DataType::F32, &download(gpu, &accumulator)?);
    let wrong = got.iter().filter(|&&sum| sum != (2 * ROUNDS) as f32).count();
    let name = type_name(ty);
    report.add(
        &format!("scale_accumulate {name} on two streams, sums lost"),
        wrong as f64,
        0.0,
    );
    Ok(())
}
