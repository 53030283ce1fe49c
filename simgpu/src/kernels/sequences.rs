//! Kernels of a decoder that know about tokens and their places: embeddings, attention's softmax, heads.

use super::losses::{exponentials, sum};
use super::{Arguments, Element, Prepared, time_ns};
use crate::driver::error;

/// `embedding_forward(T* y, const int* tokens, const T* table, const T* positions, int rows, int context, int width)`.
/// A token beyond the table's memory gives a row of NaN: a GPU would read what lies there.
pub(super) fn embedding_forward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, context, width) = (arguments.count(4)?, arguments.count(5)?, arguments.count(6)?);
    if context == 0 {
        return Err(error::INVALID_VALUE);
    }
    let y = arguments.array::<T>(0, rows * width)?;
    let tokens = arguments.array::<i32>(1, rows)?;
    let table = arguments.array_to_end::<T>(2)?;
    let positions = arguments.array::<T>(3, rows.min(context) * width)?;
    Ok(Box::new(move || {
        let mut scratch: [Vec<f32>; 3] = Default::default();
        let [of_y, of_word, of_position] = &mut scratch;
        for (row, &token) in tokens.get().iter().enumerate() {
            let word = usize::try_from(token)
                .ok()
                .and_then(|token| table.get().get(token * width..(token + 1) * width));
            let position = row % context * width;
            let position = T::read(&positions.get()[position..position + width], of_position);
            let y = &mut y.get_mut()[row * width..(row + 1) * width];
            T::write(y, of_y, |y| match word {
                Some(word) => {
                    let word = T::read(word, of_word);
                    for ((y, word), position) in y.iter_mut().zip(word).zip(position) {
                        *y = word + position;
                    }
                }
                None => y.fill(f32::NAN),
            });
        }
        time_ns(3 * rows * width * size_of::<T>(), rows * width)
    }))
}

/// `embedding_backward(T* dtable, T* dpositions, const int* tokens, const T* dy, int rows, int context, int width,
/// int vocabulary)`.
pub(super) fn embedding_backward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, context) = (arguments.count(4)?, arguments.count(5)?);
    let (width, vocabulary) = (arguments.count(6)?, arguments.count(7)?);
    if context == 0 {
        return Err(error::INVALID_VALUE);
    }
    let table = arguments.array::<T>(0, vocabulary * width)?;
    let positions = arguments.array::<T>(1, context * width)?;
    let tokens = arguments.array::<i32>(2, rows)?;
    let dy = arguments.array::<T>(3, rows * width)?;
    Ok(Box::new(move || {
        let mut scratch = Vec::new();
        let mut of_table = vec![0.0f32; vocabulary * width];
        let mut of_positions = vec![0.0f32; context * width];
        for (row, &token) in tokens.get().iter().enumerate() {
            let dy = T::read(&dy.get()[row * width..(row + 1) * width], &mut scratch);
            let token = usize::try_from(token).ok().filter(|&token| token < vocabulary);
            let word = token.map(|token| &mut of_table[token * width..(token + 1) * width]);
            let position = &mut of_positions[row % context * width..(row % context + 1) * width];
            for sums in word.into_iter().chain([position]) {
                for (sum, dy) in sums.iter_mut().zip(dy) {
                    *sum += dy;
                }
            }
        }
        T::write(table.get_mut(), &mut scratch, |table| {
            table.copy_from_slice(&of_table);
        });
        T::write(positions.get_mut(), &mut scratch, |positions| {
            positions.copy_from_slice(&of_positions);
        });
        let moved = 2 * rows + vocabulary + context;
        time_ns(moved * width * size_of::<T>(), 2 * rows * width)
    }))
}

/// `causal_softmax(T* p, const T* scores, float scale, int rows, int context)`; p may be scores.
pub(super) fn causal_softmax<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (scale, rows, context) = (arguments.float(2)?, arguments.count(3)?, arguments.count(4)?);
    let probabilities = arguments.array::<T>(0, rows * context)?;
    let scores = arguments.array::<T>(1, rows * context)?;
    Ok(Box::new(move || {
        let (mut of_scores, mut of_result, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let (start, seen) = (row * context, row % context + 1);
            values.clear();
            values.extend_from_slice(T::read(&scores.get()[start..start + seen], &mut of_scores));
            let (_, sum) = exponentials(&mut values, scale);
            let row = &mut probabilities.get_mut()[start..start + context];
            T::write(row, &mut of_result, |row| {
                for (probability, value) in row.iter_mut().zip(&values) {
                    *probability = value / sum;
                }
                row[seen..].fill(0.0);
            });
        }
        time_ns(2 * rows * context * size_of::<T>(), 8 * rows * context)
    }))
}

/// `causal_softmax_backward(T* dscores, const T* p, const T* dp, float scale, int rows, int context)`; dscores may
/// be dp.
pub(super) fn causal_softmax_backward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (scale, rows, context) = (arguments.float(3)?, arguments.count(4)?, arguments.count(5)?);
    let result = arguments.array::<T>(0, rows * context)?;
    let probabilities = arguments.array::<T>(1, rows * context)?;
    let gradient = arguments.array::<T>(2, rows * context)?;
    Ok(Box::new(move || {
        let mut scratch: [Vec<f32>; 3] = Default::default();
        let [of_p, of_dp, of_result] = &mut scratch;
        let mut values = Vec::new();
        for row in 0..rows {
            let (start, seen) = (row * context, row % context + 1);
            let p = T::read(&probabilities.get()[start..start + seen], of_p);
            values.clear();
            values.extend_from_slice(T::read(&gradient.get()[start..start + seen], of_dp));
            let product = sum(p.iter().zip(&values).map(|(p, dp)| p * dp));
            let row = &mut result.get_mut()[start..start + context];
            T::write(row, of_result, |row| {
                for ((result, p), dp) in row.iter_mut().zip(p).zip(&values) {
                    *result = scale * p * (dp - product);
                }
                row[seen..].fill(0.0);
            });
        }
        time_ns(3 * rows * context * size_of::<T>(), 5 * rows * context)
    }))
}

/// `permute_heads(T* out, const T* in, int batch, int context, int parts, int heads, int head_width, int inverse)`.
pub(super) fn permute_heads<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (batch, context, parts) = (arguments.count(2)?, arguments.count(3)?, arguments.count(4)?);
    let (heads, width, inverse) = (arguments.count(5)?, arguments.count(6)?, arguments.count(7)? != 0);
    let count = batch * context * parts * heads * width;
    let (output, input) = (arguments.array::<T>(0, count)?, arguments.array::<T>(1, count)?);
    if output.is(input) && count > 0 {
        // A permutation in place would read what it has overwritten.
        return Err(error::INVALID_VALUE);
    }
    Ok(Box::new(move || {
        let (output, input) = (output.get_mut(), input.get());
        let mut by_token = 0;
        for b in 0..batch {
            for t in 0..context {
                for part in 0..parts {
                    for head in 0..heads {
                        let by_head = (((part * batch + b) * heads + head) * context + t) * width;
                        let (to, from) = if inverse {
                            (by_token, by_head)
                        } else {
                            (by_head, by_token)
                        };
                        output[to..to + width].copy_from_slice(&input[from..from + width]);
                        by_token += width;
                    }
                }
            }
        }
        time_ns(2 * count * size_of::<T>(), 0)
    }))
}
