//! The kernels of the multilayer perceptron.

use super::difference::check_gradients;
use super::numbers::{numbers, wide};
use super::operation::{Input, Kind, Operation, Output};
use super::report::Report;
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

/// Rows and columns: one element, few, more than a warp, more than a block.
const SIZES: [(usize, usize); 4] = [(1, 1), (3, 5), (7, 33), (37, 300)];
const LIMIT: f64 = 1e-6;

pub(super) fn check(gpu: &Gpu, report: &mut Report) -> Result<(), Error> {
    let mut random = Random::new(1);
    for (rows, columns) in SIZES {
        bias(gpu, report, &mut random, (rows, columns), false)?;
        bias(gpu, report, &mut random, (rows, columns), true)?;
        add(gpu, report, &mut random, rows * columns)?;
        squared_error(gpu, report, &mut random, rows * columns)?;
    }
    Ok(())
}

/// Biases, ReLU and the gradients of both.
fn bias(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    (rows, columns): (usize, usize),
    relu: bool,
) -> Result<(), Error> {
    let count = rows * columns;
    let bias = numbers(random, columns, 1.0);
    let mut y = numbers(random, count, 2.0);
    for (y, bias) in y.iter_mut().zip(bias.iter().cycle()) {
        // Far from ReLU's corner, where there is no slope.
        if (*y + bias).abs() < 0.5 {
            *y = (if *y > -bias { 0.75 } else { -0.75 }) - bias;
        }
    }
    let forward = Operation::new([Output::Input(0)], move |queue, ty, inputs, _| {
        queue.add_bias(ty, inputs[0], inputs[1], rows, columns, relu)
    });
    let inputs = [Input::typed(y), Input::typed(bias)];
    let want: Vec<f64> = wide(&inputs[0].values)
        .iter()
        .zip(wide(&inputs[1].values).iter().cycle())
        .map(|(y, bias)| {
            let sum = y + bias;
            if relu { sum.max(0.0) } else { sum }
        })
        .collect();
    let name = if relu { "add_bias_relu" } else { "add_bias" };
    forward.check(gpu, report, name, &inputs, &[want], LIMIT)?;

    let columns_sum = Operation::new(
        [Output::New(Kind::Typed, columns)],
        move |queue, ty, inputs, new| queue.bias_gradient(ty, new[0], inputs[0], rows, columns),
    );
    let cut = Operation::new([Output::Input(0)], move |queue, ty, inputs, _| {
        queue.relu_backward(ty, inputs[0], inputs[1], count)
    });
    check_gradients(
        gpu,
        report,
        name,
        &forward,
        &inputs,
        &[0, 1],
        &|inputs, gradient| {
            let mut by_sum = gradient.to_vec();
            if relu {
                let y = forward.run(gpu, DataType::F32, inputs)?.swap_remove(0);
                let inputs = [Input::typed(by_sum), Input::typed(y)];
                by_sum = cut.run(gpu, DataType::F32, &inputs)?.swap_remove(0);
            }
            let by_bias = columns_sum.run(gpu, DataType::F32, &[Input::typed(by_sum.clone())])?;
            Ok(vec![by_sum, by_bias.concat()])
        },
    )?;
    let gradient = Input::typed(numbers(random, count, 1.0));
    if relu {
        cut.check_types(gpu, report, "relu_backward", &[gradient, inputs[0].clone()])?;
    } else {
        columns_sum.check_types(gpu, report, "bias_gradient", &[gradient])?;
    }
    Ok(())
}

fn add(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    let inputs = [0, 1].map(|_| Input::typed(numbers(random, count, 2.0)));
    let want = inputs[0].values.iter().zip(&inputs[1].values);
    let want = want.map(|(y, x)| f64::from(*y) + f64::from(*x)).collect();
    let operation = Operation::new([Output::Input(0)], move |queue, ty, inputs, _| {
        queue.add(ty, inputs[0], inputs[1], count)
    });
    operation.check(gpu, report, "add", &inputs, &[want], LIMIT)
}

/// The mean squared error, added to a loss that is there, and its scaled gradient.
fn squared_error(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    // Gradients of about 1, as loss scaling would have them: f16 knows none below 6e-8.
    let (scale, gradient_scale) = (1.0 / count as f32, count as f32);
    let operation = |gradient_scale: f32| {
        Operation::new(
            [Output::Input(0), Output::New(Kind::Typed, count)],
            move |queue, ty, inputs, new| {
                let [loss, prediction, target] = inputs else {
                    return Err(Error::new("three inputs"));
                };
                queue.mse_loss(
                    ty,
                    *loss,
                    new[0],
                    *prediction,
                    *target,
                    count,
                    scale,
                    gradient_scale,
                )
            },
        )
    };
    let inputs = [
        Input::float(vec![0.25]),
        Input::typed(numbers(random, count, 1.0)),
        Input::float(numbers(random, count, 1.0)),
    ];
    let differences: Vec<f64> = wide(&inputs[1].values)
        .iter()
        .zip(wide(&inputs[2].values))
        .map(|(prediction, target)| prediction - target)
        .collect();
    let squares: f64 = differences.iter().map(|difference| difference * difference).sum();
    let scale = f64::from(scale);
    let gradient = differences.iter().map(|difference| 2.0 * difference);
    let want = [vec![0.25 + scale * squares], gradient.collect()];
    operation(gradient_scale).check(gpu, report, "mse_loss", &inputs, &want, LIMIT)?;
    let unscaled = operation(1.0);
    check_gradients(gpu, report, "mse_loss", &unscaled, &inputs, &[1], &|inputs, _| {
        Ok(vec![unscaled.run(gpu, DataType::F32, inputs)?.swap_remove(1)])
    })
}
