//! The kernels of the decoder: embeddings, layer norm, GELU, attention's softmax and heads, cross-entropy.

use super::difference::check_gradients;
use super::numbers::{numbers, whole_numbers, wide};
use super::operation::{Input, Kind, Operation, Output};
use super::report::Report;
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

const SIZES: [(usize, usize); 4] = [(1, 4), (3, 5), (7, 33), (37, 300)];
/// f32's rounding, in sums of some hundred numbers.
const LIMIT: f64 = 5e-6;

pub(super) fn check(gpu: &Gpu, report: &mut Report) -> Result<(), Error> {
    let mut random = Random::new(2);
    for (rows, columns) in SIZES {
        layer_norm(gpu, report, &mut random, rows, columns)?;
        gelu(gpu, report, &mut random, rows * columns)?;
        cross_entropy(gpu, report, &mut random, rows, columns)?;
    }
    // Rows are no multiple of the context in the second and third: the last sequence is cut short.
    for (rows, context, width, vocabulary) in [(1, 1, 1, 1), (7, 3, 5, 4), (50, 33, 3, 7), (64, 16, 300, 40)]
    {
        embedding(gpu, report, &mut random, rows, context, width, vocabulary)?;
    }
    for (rows, context) in [(1, 1), (7, 3), (10, 33), (9, 9), (270, 260)] {
        softmax(gpu, report, &mut random, rows, context)?;
    }
    for sizes in [
        [1, 1, 1, 1, 1],
        [2, 3, 3, 2, 5],
        [3, 7, 1, 5, 3],
        [2, 33, 3, 4, 16],
    ] {
        heads(gpu, report, &mut random, sizes)?;
    }
    Ok(())
}

fn layer_norm(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    rows: usize,
    columns: usize,
) -> Result<(), Error> {
    let count = rows * columns;
    let forward = Operation::new(
        [
            Output::New(Kind::Typed, count),
            Output::New(Kind::Float, rows),
            Output::New(Kind::Float, rows),
        ],
        move |queue, ty, inputs, new| {
            let (x, gamma, beta) = (inputs[0], inputs[1], inputs[2]);
            queue.layer_norm(ty, new[0], new[1], new[2], x, gamma, beta, rows, columns)
        },
    );
    // Far apart beside the difference's step: the deviation of near numbers bends too much for it.
    let mut x = numbers(random, count, 4.0);
    for (index, x) in x.iter_mut().enumerate() {
        *x += if index % 2 == 0 { 6.0 } else { -2.0 };
    }
    let inputs = [
        Input::typed(x),
        Input::typed(numbers(random, columns, 1.0)),
        Input::typed(numbers(random, columns, 1.0)),
    ];
    let (gamma, beta) = (wide(&inputs[1].values), wide(&inputs[2].values));
    let mut want = [Vec::new(), Vec::new(), Vec::new()];
    for row in wide(&inputs[0].values).chunks_exact(columns) {
        let mean = row.iter().sum::<f64>() / columns as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / columns as f64;
        let rstd = 1.0 / (variance + 1e-5).sqrt();
        for ((x, gamma), beta) in row.iter().zip(&gamma).zip(&beta) {
            want[0].push((x - mean) * rstd * gamma + beta);
        }
        want[1].push(mean);
        want[2].push(rstd);
    }
    forward.check(gpu, report, "layer_norm", &inputs, &want, LIMIT)?;

    let by_input = Operation::new(
        [Output::New(Kind::Typed, count)],
        move |queue, ty, inputs, new| {
            let [dy, x, mean, rstd, gamma] = inputs else {
                return Err(Error::new("five inputs"));
            };
            queue.layer_norm_backward(ty, new[0], *dy, *x, *mean, *rstd, *gamma, rows, columns)
        },
    );
    let by_parameters = Operation::new(
        [
            Output::New(Kind::Typed, columns),
            Output::New(Kind::Typed, columns),
        ],
        move |queue, ty, inputs, new| {
            let [dy, x, mean, rstd, _] = inputs else {
                return Err(Error::new("five inputs"));
            };
            queue.layer_norm_gradients(ty, new[0], new[1], *dy, *x, *mean, *rstd, rows, columns)
        },
    );
    let saved = |inputs: &[Input], gradient: &[f32]| -> Result<[Input; 5], Error> {
        let results = forward.run(gpu, DataType::F32, inputs)?;
        Ok([
            Input::typed(gradient.to_vec()),
            inputs[0].clone(),
            Input::float(results[1].clone()),
            Input::float(results[2].clone()),
            inputs[1].clone(),
        ])
    };
    check_gradients(
        gpu,
        report,
        "layer_norm",
        &forward,
        &inputs,
        &[0, 1, 2],
        &|inputs, gradient| {
            let saved = saved(inputs, gradient)?;
            let mut gradients = by_input.run(gpu, DataType::F32, &saved)?;
            gradients.extend(by_parameters.run(gpu, DataType::F32, &saved)?);
            Ok(gradients)
        },
    )?;
    let saved = saved(&inputs, &numbers(random, count, 1.0))?;
    by_input.check_types(gpu, report, "layer_norm_backward", &saved)?;
    by_parameters.check_types(gpu, report, "layer_norm_gradients", &saved)
}

fn gelu(gpu: &Gpu, report: &mut Report, random: &mut Random, count: usize) -> Result<(), Error> {
    let forward = Operation::new(
        [Output::New(Kind::Typed, count)],
        move |queue, ty, inputs, new| queue.gelu(ty, new[0], inputs[0], count),
    );
    let inputs = [Input::typed(numbers(random, count, 4.0))];
    let want = wide(&inputs[0].values)
        .iter()
        .map(|x| 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh()))
        .collect();
    forward.check(gpu, report, "gelu", &inputs, &[want], LIMIT)?;
    let backward = Operation::new([Output::Input(0)], move |queue, ty, inputs, _| {
        queue.gelu_backward(ty, inputs[0], inputs[1], count)
    });
    check_gradients(
        gpu,
        report,
        "gelu",
        &forward,
        &inputs,
        &[0],
        &|inputs, gradient| {
            let inputs = [Input::typed(gradient.to_vec()), inputs[0].clone()];
            backward.run(gpu, DataType::F32, &inputs)
        },
    )?;
    let gradient = Input::typed(numbers(random, count, 1.0));
    backward.check_types(gpu, report, "gelu_backward", &[gradient, inputs[0].clone()])
}

/// Also in place, and with rows whose target is no class.
fn cross_entropy(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    rows: usize,
    classes: usize,
) -> Result<(), Error> {
    let (scale, count) = (1.0 / rows as f32, rows * classes);
    let operation = |gradient_scale: f32, in_place: bool| {
        let gradient = if in_place {
            Output::Input(1)
        } else {
            Output::New(Kind::Typed, count)
        };
        Operation::new([Output::Input(0), gradient], move |queue, ty, inputs, new| {
            let [loss, logits, targets] = inputs else {
                return Err(Error::new("three inputs"));
            };
            let gradient = if in_place { *logits } else { new[0] };
            queue.cross_entropy(
                ty,
                *loss,
                gradient,
                *logits,
                *targets,
                rows,
                classes,
                scale,
                gradient_scale,
            )
        })
    };
    let mut targets = whole_numbers(random, rows, classes);
    if rows > 2 {
        targets[1] = -1.0;
    }
    let inputs = [
        Input::float(vec![0.5]),
        Input::typed(numbers(random, count, 3.0)),
        Input::int(targets),
    ];
    let (mut loss, mut gradient) = (0.5, Vec::new());
    let logits = wide(&inputs[1].values);
    for (row, &target) in logits.chunks_exact(classes).zip(&inputs[2].values) {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        let each = if target < 0.0 { 0.0 } else { f64::from(scale) };
        if target >= 0.0 {
            loss += each * (sum.ln() - row[target as usize]);
        }
        gradient.extend(row.iter().enumerate().map(|(class, logit)| {
            let own = if class as f32 == target { 1.0 } else { 0.0 };
            16.0 * each * (logit.exp() / sum - own)
        }));
    }
    let want = [vec![loss], gradient];
    operation(16.0, false).check(gpu, report, "cross_entropy", &inputs, &want, LIMIT)?;
    operation(16.0, true).check(gpu, report, "cross_entropy in place", &inputs, &want, LIMIT)?;
    let unscaled = operation(1.0, false);
    check_gradients(
        gpu,
        report,
        "cross_entropy",
        &unscaled,
        &inputs,
        &[1],
        &|inputs, _| Ok(vec![unscaled.run(gpu, DataType::F32, inputs)?.swap_remove(1)]),
    )
}

fn embedding(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    rows: usize,
    context: usize,
    width: usize,
    vocabulary: usize,
) -> Result<(), Error> {
    let forward = Operation::new(
        [Output::New(Kind::Typed, rows * width)],
        move |queue, ty, inputs, new| {
            let (tokens, table, positions) = (inputs[0], inputs[1], inputs[2]);
            queue.embedding_forward(ty, new[0], tokens, table, positions, rows, context, width)
        },
    );
    let inputs = [
        Input::int(whole_numbers(random, rows, vocabulary)),
        Input::typed(numbers(random, vocabulary * width, 1.0)),
        Input::typed(numbers(random, context * width, 1.0)),
    ];
    let (table, positions) = (wide(&inputs[1].values), wide(&inputs[2].values));
    let mut want = Vec::new();
    for (row, &token) in inputs[0].values.iter().enumerate() {
        let (word, position) = (token as usize * width, row % context * width);
        want.extend((0..width).map(|column| table[word + column] + positions[position + column]));
    }
    forward.check(gpu, report, "embedding_forward", &inputs, &[want], 1e-6)?;
    let backward = Operation::new(
        [
            Output::New(Kind::Typed, vocabulary * width),
            Output::New(Kind::Typed, context * width),
        ],
        move |queue, ty, inputs, new| {
            let (tokens, dy) = (inputs[0], inputs[1]);
            queue.embedding_backward(ty, new[0], new[1], tokens, dy, rows, context, width, vocabulary)
        },
    );
    check_gradients(
        gpu,
        report,
        "embedding",
        &forward,
        &inputs,
        &[1, 2],
        &|inputs, gradient| {
            let inputs = [inputs[0].clone(), Input::typed(gradient.to_vec())];
            backward.run(gpu, DataType::F32, &inputs)
        },
    )?;
    let gradient = Input::typed(numbers(random, rows * width, 1.0));
    backward.check_types(gpu, report, "embedding_backward", &[inputs[0].clone(), gradient])
}

fn softmax(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    rows: usize,
    context: usize,
) -> Result<(), Error> {
    let (count, scale) = (rows * context, 0.35f32);
    let forward = Operation::new(
        [Output::New(Kind::Typed, count)],
        move |queue, ty, inputs, new| queue.causal_softmax(ty, new[0], inputs[0], scale, rows, context),
    );
    let inputs = [Input::typed(numbers(random, count, 5.0))];
    let mut want = Vec::new();
    for (row, scores) in wide(&inputs[0].values).chunks_exact(context).enumerate() {
        let seen = row % context + 1;
        let values: Vec<f64> = scores[..seen]
            .iter()
            .map(|score| (f64::from(scale) * score).exp())
            .collect();
        let sum: f64 = values.iter().sum();
        want.extend(values.iter().map(|value| value / sum));
        want.extend(std::iter::repeat_n(0.0, context - seen));
    }
    forward.check(gpu, report, "causal_softmax", &inputs, &[want], LIMIT)?;
    for in_place in [false, true] {
        let output = if in_place {
            Output::Input(1)
        } else {
            Output::New(Kind::Typed, count)
        };
        let backward = Operation::new([output], move |queue, ty, inputs, new| {
            let (p, dp) = (inputs[0], inputs[1]);
            let result = if in_place { dp } else { new[0] };
            queue.causal_softmax_backward(ty, result, p, dp, scale, rows, context)
        });
        let name = if in_place {
            "causal_softmax in place"
        } else {
            "causal_softmax"
        };
        check_gradients(gpu, report, name, &forward, &inputs, &[0], &|inputs, gradient| {
            let p = forward.run(gpu, DataType::F32, inputs)?.swap_remove(0);
            let inputs = [Input::typed(p), Input::typed(gradient.to_vec())];
            backward.run(gpu, DataType::F32, &inputs)
        })?;
        let p = forward.run(gpu, DataType::F32, &inputs)?.swap_remove(0);
        let gradient = Input::typed(numbers(random, count, 1.0));
        let name = if in_place {
            "causal_softmax_backward in place"
        } else {
            "causal_softmax_backward"
        };
        backward.check_types(gpu, report, name, &[Input::typed(p), gradient])?;
    }
    Ok(())
}

/// Against the definition, and back again.
fn heads(
    gpu: &Gpu,
    report: &mut Report,
    random: &mut Random,
    [batch, context, parts, heads, width]: [usize; 5],
) -> Result<(), Error> {
    let count = batch * context * parts * heads * width;
    let permute = |inverse: bool| {
        Operation::new(
            [Output::New(Kind::Typed, count)],
            move |queue, ty, inputs, new| {
                queue.permute_heads(
                    ty, new[0], inputs[0], batch, context, parts, heads, width, inverse,
                )
            },
        )
    };
    // Whole numbers that every type has.
    let inputs = [Input::typed(whole_numbers(random, count, 256))];
    let mut want = vec![0.0; count];
    let mut from = 0;
    for b in 0..batch {
        for t in 0..context {
            for part in 0..parts {
                for head in 0..heads {
                    for d in 0..width {
                        let to = (((part * batch + b) * heads + head) * context + t) * width + d;
                        want[to] = f64::from(inputs[0].values[from]);
                        from += 1;
                    }
                }
            }
        }
    }
    for ty in DataType::ALL {
        let suffix = if ty == DataType::F32 { "_f32" } else { ty.suffix() }.trim_start_matches('_');
        let permuted = permute(false).run(gpu, ty, &inputs)?.swap_remove(0);
        let back = permute(true)
            .run(gpu, ty, &[Input::typed(permuted.clone())])?
            .swap_remove(0);
        for (name, got, want) in [
            ("permute_heads", permuted, want.clone()),
            ("permute_heads back", back, wide(&inputs[0].values)),
        ] {
            report.add(
                &format!("{name} {suffix}"),
                super::report::worst_error(&got, &want),
                0.0,
            );
        }
    }
    Ok(())
}
