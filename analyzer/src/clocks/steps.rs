//! Where a clock was set: differences that are other ones from one operation on.

use super::normal::OF_MEDIAN;

/// Operations on either side whose medians are compared: few find a step quickly, many find a small one.
const WINDOWS: [usize; 3] = [8, 64, 512];
/// So many times the scatter of such differences is a step.
const TIMES: f64 = 12.0;
/// Below this nothing is taken for a step, nanoseconds.
const LEAST_NS: f64 = 3_000.0;
/// Steps that are looked for.
const MOST: usize = 64;

/// The median; 0 of none. Reorders.
pub(super) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let place = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable_by(place, f64::total_cmp);
    if !is_even {
        return *middle;
    }
    f64::midpoint(below.iter().copied().fold(f64::MIN, f64::max), *middle)
}

/// The slope, robustly: the median over neighbours that are some apart.
fn slope(xs: &[f64], ys: &[f64], apart: usize) -> f64 {
    let mut slopes: Vec<f64> = (apart..xs.len())
        .filter_map(|place| {
            let dx = xs[place] - xs[place - apart];
            (dx > 0.0).then(|| (ys[place] - ys[place - apart]) / dx)
        })
        .collect();
    median(&mut slopes)
}

/// The place where one stretch is split best in two of constant value.
fn best_split(ys: &[f64]) -> usize {
    let cost = |values: &[f64]| {
        let mut values = values.to_vec();
        let middle = median(&mut values);
        values.iter().map(|value| (value - middle).abs()).sum::<f64>()
    };
    (1..ys.len())
        .map(|place| (cost(&ys[..place]) + cost(&ys[place..]), place))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(0, |(_, place)| place)
}

/// The place where few values that drift are split best in two; `None` of too few.
pub(super) fn split(xs: &[f64], ys: &[f64]) -> Option<usize> {
    let drift = slope(xs, ys, 1);
    let flat: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - drift * (x - xs[0])).collect();
    (ys.len() > 1).then(|| best_split(&flat))
}

/// The places before which the clock was set, in order. `xs` ascend.
pub(super) fn steps(xs: &[f64], ys: &[f64]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for window in WINDOWS {
        let window = if window == WINDOWS[0] {
            window.min(ys.len() / 4)
        } else {
            window
        };
        if window < 3 || ys.len() < 4 * window {
            continue;
        }
        let mut bounds = vec![0];
        bounds.extend(&found);
        bounds.push(ys.len());
        for pair in bounds.windows(2) {
            let (xs, ys) = (&xs[pair[0]..pair[1]], &ys[pair[0]..pair[1]]);
            if ys.len() >= 4 * window {
                let inside = within(xs, ys, window).into_iter();
                found.extend(inside.map(|place| place + pair[0]));
            }
        }
        found.sort_unstable();
        found.dedup();
    }
    found
}

fn within(xs: &[f64], ys: &[f64], window: usize) -> Vec<usize> {
    let drift = slope(xs, ys, 2 * window);
    let flat: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - drift * x).collect();
    // Of long windows not every place: the place is found afterwards.
    let stride = (window / 8).max(1);
    let middle = |range: std::ops::Range<usize>| median(&mut flat[range].to_vec());
    let differences: Vec<(usize, f64)> = (window..=flat.len() - window)
        .step_by(stride)
        .map(|place| {
            (
                place,
                middle(place..place + window) - middle(place - window..place),
            )
        })
        .collect();
    let usual = median(&mut differences.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    let mut off: Vec<f64> = differences
        .iter()
        .map(|(_, value)| (value - usual).abs())
        .collect();
    let limit = (TIMES * OF_MEDIAN * median(&mut off)).max(LEAST_NS);
    let mut left: Vec<(usize, f64)> = differences
        .into_iter()
        .map(|(place, value)| (place, (value - usual).abs()))
        .filter(|(_, value)| *value > limit)
        .collect();
    let mut found = Vec::new();
    while let Some((place, _)) = left.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)) {
        let from = place.saturating_sub(window);
        let to = (place + window).min(flat.len());
        found.push(from + best_split(&flat[from..to]));
        left.retain(|(other, _)| other.abs_diff(place) > window);
        if found.len() == MOST {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0]), 3.0);
        assert_eq!(median(&mut [5.0, 1.0]), 3.0);
        assert_eq!(median(&mut [5.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 5.0, 1.0, 2.0]), 3.5);
    }

    fn scattered(count: usize) -> (Vec<f64>, Vec<f64>) {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / f64::from(1 << 24) - 0.5
        };
        let xs: Vec<f64> = (0..count).map(|place| place as f64 * 0.01).collect();
        let ys = xs.iter().map(|x| 1e8 + 5e4 * x + 2000.0 * draw()).collect();
        (xs, ys)
    }

    #[test]
    fn a_step_is_found_at_its_place_and_nowhere_else() {
        let (xs, mut ys) = scattered(200);
        assert!(steps(&xs, &ys).is_empty());
        for y in &mut ys[120..] {
            *y += 3e6;
        }
        for y in &mut ys[150..] {
            *y -= 40_000.0;
        }
        assert_eq!(steps(&xs, &ys), [120, 150]);
    }

    #[test]
    fn late_ends_are_no_steps() {
        let (xs, mut ys) = scattered(200);
        for y in ys.iter_mut().step_by(9) {
            *y += 5e5;
        }
        assert!(steps(&xs, &ys).is_empty());
        assert!(steps(&xs[..5], &ys[..5]).is_empty());
    }
}
