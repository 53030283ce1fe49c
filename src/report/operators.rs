//! Tables of who launched what: operators, shapes, matrix products, modules, stacks.

use clap::ValueEnum;
use gputrace_analyzer::{
    AllocatedBytes, Analysis, Attribution, MemoryPart, ModuleTimes, OperatorAnalysis, ProductAnalysis,
    StackAnalysis, Unattributed,
};

use super::cells::{name, name_width, or_dash};
use super::table::{Overflow, print_table};
use crate::text::{bytes, duration, percent, shorten, shorten_middle, thousands};

/// By what the operations of the GPUs are put together.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Operators of PyTorch
    Operator,
    /// Operators with the shapes and types of their inputs
    Shape,
    /// Matrix products, attention and convolutions: how fast they go, and how fast the GPU can
    Product,
    /// Modules of the network, as a tree
    Module,
    /// Modules by class
    Class,
    /// Stacks of the host, as a tree: Python functions and native ones
    Stack,
    /// Operators, by the GPU memory that they allocated
    Memory,
    /// Kernels
    Kernel,
}

/// Rows of the table that stands among all others.
const ROWS_AMONG_OTHERS: usize = 10;
/// What the other columns take of a line.
const OTHERS: usize = 64;
/// Branches of a tree with less than this part of the time are left out.
const LEAST_OF_TREE: f64 = 0.005;

/// A rate in trillions a second.
fn tera(rate: Option<f64>) -> String {
    or_dash(rate, |rate| format!("{:.1}", rate / 1e12))
}

fn operator_cells(operator: &OperatorAnalysis) -> Vec<String> {
    vec![
        thousands(operator.calls),
        thousands(operator.kernels),
        duration(operator.direct_ns),
        percent(operator.share),
        duration(operator.subtree_ns),
        duration(operator.host_self_ns),
        duration(operator.host_total_ns),
        duration(operator.host_calls_ns),
    ]
}

const OPERATOR_HEADINGS: [&str; 8] = [
    "calls",
    "kernels",
    "direct",
    "share",
    "subtree",
    "host self",
    "host total",
    "in CUDA calls",
];

fn operators(all: &Attribution, top: usize) -> Vec<Vec<String>> {
    let rows = all.operators.iter().take(top).map(|operator| {
        let mut row = vec![name(&operator.name, OTHERS)];
        row.extend(operator_cells(operator));
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    // What is nobody's is as much a part of the whole.
    let Some(unattributed) = all.unattributed.filter(|_| !all.operators.is_empty()) else {
        return rows;
    };
    let others = all.operators.get(top..).unwrap_or_default();
    let of_others = others
        .iter()
        .fold(0, |sum: i64, one| sum.saturating_add(one.direct_ns));
    let others = (of_others > 0).then(|| (format!("({} more operators)", others.len()), of_others));
    let nobodys = remainders(&unattributed).map(|(what, time_ns)| (what.to_owned(), time_ns));
    for (what, time_ns) in others.into_iter().chain(nobodys) {
        let mut row = vec![what, "-".to_owned(), "-".to_owned(), duration(time_ns)];
        row.push(percent(share(time_ns, &unattributed)));
        row.resize(OPERATOR_HEADINGS.len() + 1, "-".to_owned());
        rows.push(row);
    }
    rows
}

fn remainders(unattributed: &Unattributed) -> impl Iterator<Item = (&'static str, i64)> + use<> {
    let graph_ns = unattributed.graph_ns;
    [
        ("(no operator: graph)", graph_ns),
        ("(no operator)", unattributed.no_operator_ns - graph_ns),
        ("(launch not recorded)", unattributed.launch_not_recorded_ns),
    ]
    .into_iter()
    .filter(|(_, time_ns)| *time_ns > 0)
}

fn share(time_ns: i64, unattributed: &Unattributed) -> Option<f64> {
    let all = unattributed.operations_ns;
    (all > 0).then(|| time_ns as f64 / all as f64)
}

fn product_cells(product: &ProductAnalysis) -> Vec<String> {
    let sizes = [product.batch, product.m, product.n, product.k];
    let sizes: Option<Vec<String>> = sizes
        .into_iter()
        .map(|size| size.map(|size| size.to_string()))
        .collect();
    let size = match (sizes, &product.input_dims) {
        (Some(sizes), _) => sizes.join("x"),
        (None, dims) => shorten(dims.as_deref().unwrap_or("-"), 40),
    };
    vec![
        size,
        thousands(product.calls),
        duration(product.time_ns),
        tera(product.flops_per_second),
        percent(product.peak_share),
        or_dash(product.bound, str::to_owned),
        product.dtype.trim_start_matches("c10::").to_owned(),
        format!("{:.3}", product.flops as f64 / 1e12),
        or_dash(product.bytes_per_second, |rate| format!("{:.2}", rate / 1e12)),
    ]
}

const MEMORY_HEADINGS: [&str; 6] = [
    "live at peak",
    "with nested",
    "allocated",
    "with nested",
    "live at end",
    "with nested",
];

fn memory_cells(memory: &AllocatedBytes) -> Vec<String> {
    [
        memory.live_at_peak_bytes,
        memory.subtree_live_at_peak_bytes,
        memory.allocated_bytes,
        memory.subtree_allocated_bytes,
        memory.live_at_end_bytes,
        memory.subtree_live_at_end_bytes,
    ]
    .into_iter()
    .map(|size| or_dash(size, bytes))
    .collect()
}

/// Operators by what they allocated, with nested ones; and what is nobody's.
fn memory(all: &Attribution, top: usize) -> Vec<Vec<String>> {
    let Some(unattributed) = &all.unattributed_memory else {
        return Vec::new();
    };
    let mut operators: Vec<&OperatorAnalysis> = all
        .operators
        .iter()
        .filter(|operator| {
            let memory = &operator.memory;
            [memory.subtree_allocated_bytes, memory.subtree_live_at_peak_bytes]
                .iter()
                .any(|size| size.is_some_and(|size| size > 0))
        })
        .collect();
    let size = |size: Option<u64>| std::cmp::Reverse(size.unwrap_or(0));
    operators.sort_by_key(|operator| {
        let memory = &operator.memory;
        (
            size(memory.subtree_live_at_peak_bytes),
            size(memory.subtree_allocated_bytes),
            &operator.name,
        )
    });
    let (shown, others) = operators.split_at(operators.len().min(top));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for operator in shown {
        let mut row = vec![name(&operator.name, OTHERS), thousands(operator.calls)];
        row.extend(memory_cells(&operator.memory));
        rows.push(row);
    }
    // Of those that are not shown only what they allocated themselves can be added up.
    let sum = |of: fn(&AllocatedBytes) -> Option<u64>| {
        let sizes = others.iter().filter_map(|operator| of(&operator.memory));
        sizes.fold(0, u64::saturating_add)
    };
    let of_others = [
        sum(|memory| memory.live_at_peak_bytes),
        sum(|memory| memory.allocated_bytes),
        sum(|memory| memory.live_at_end_bytes),
    ];
    let parts = |part: &MemoryPart| {
        [
            part.live_at_peak_bytes,
            part.allocated_bytes,
            part.live_at_end_bytes,
        ]
    };
    let not_seen = unattributed.not_seen_at_peak_bytes;
    let remainders = [
        (format!("({} more operators)", others.len()), of_others),
        ("(no operator)".to_owned(), parts(&unattributed.no_operator)),
        (
            "(caller not recorded)".to_owned(),
            parts(&unattributed.caller_not_recorded),
        ),
        (
            "(not seen: allocated before)".to_owned(),
            [u64::try_from(not_seen).unwrap_or(0), 0, 0],
        ),
        (
            "(not seen: frees missing)".to_owned(),
            [not_seen.min(0).unsigned_abs(), 0, 0],
        ),
    ];
    for (what, sizes) in remainders
        .into_iter()
        .filter(|(_, sizes)| sizes.iter().any(|size| *size > 0))
    {
        let mut row = vec![what, "-".to_owned()];
        row.extend(sizes.into_iter().flat_map(|size| [bytes(size), "-".to_owned()]));
        rows.push(row);
    }
    let mut row = vec!["(all)".to_owned(), "-".to_owned()];
    row.extend(
        parts(&unattributed.all)
            .into_iter()
            .flat_map(|size| [bytes(size), "-".to_owned()]),
    );
    rows.push(row);
    rows
}

const TIMES_HEADINGS: [&str; 5] = ["calls", "forward", "own", "recomputed", "backward"];

fn times_cells(calls: u64, times: &ModuleTimes) -> Vec<String> {
    vec![
        thousands(calls),
        duration(times.forward_ns),
        duration(times.forward_self_ns),
        duration(times.recompute_ns),
        duration(times.backward_ns),
    ]
}

/// How far in a row of a tree stands, and whether it is all that is shown of what the row above stands for. Such a row stands no
/// further in: callers call callers, and names need the room.
#[derive(Clone, Copy)]
struct Depth {
    levels: usize,
    is_only: bool,
}

/// The rows of a tree whose items come after what they are in, those of one parent with most time first; branches with little
/// time are left out, and so is what is beyond `most` rows.
fn tree<T>(
    items: &[T],
    parent: impl Fn(&T) -> Option<usize>,
    time_ns: impl Fn(&T) -> i64,
    least_ns: i64,
    most: usize,
    cells: impl Fn(&T, Depth) -> Vec<String>,
) -> Vec<Vec<String>> {
    let mut inside: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    let mut outermost = Vec::new();
    for (place, item) in items.iter().enumerate() {
        match parent(item) {
            Some(parent) => inside[parent].push(place),
            None => outermost.push(place),
        }
    }
    let least_last = |mut places: Vec<usize>| {
        places.retain(|place| time_ns(&items[*place]) >= least_ns.max(1));
        places.sort_by_key(|place| (time_ns(&items[*place]), std::cmp::Reverse(*place)));
        places
    };
    let first = Depth {
        levels: 0,
        is_only: false,
    };
    let mut open: Vec<(usize, Depth)> = least_last(outermost)
        .into_iter()
        .map(|place| (place, first))
        .collect();
    let mut rows = Vec::new();
    while let Some((place, depth)) = open.pop() {
        if rows.len() == most {
            break;
        }
        rows.push(cells(&items[place], depth));
        let places = least_last(std::mem::take(&mut inside[place]));
        let is_only = places.len() == 1;
        let levels = depth.levels + usize::from(!is_only);
        open.extend(places.into_iter().map(|place| (place, Depth { levels, is_only })));
    }
    rows
}

/// Characters that are left of a name in a tree, however deep.
const LEAST_OF_NAME: usize = 14;

/// A name of a tree, as far in as it is deep, beside columns that need `others` characters.
fn indented(text: &str, depth: Depth, others: usize) -> String {
    let sign = if depth.is_only { "└ " } else { "" };
    let before = format!("{}{sign}", "  ".repeat(depth.levels.min(40)));
    let room = name_width(others).saturating_sub(before.chars().count());
    format!("{before}{}", shorten_middle(text, room.max(LEAST_OF_NAME)))
}

/// The line of a function: without what its file's path begins with.
fn short_frame(frame: &str) -> &str {
    let path_end = frame.find('(').unwrap_or(frame.len());
    match frame[..path_end].rmatch_indices('/').nth(1) {
        Some((slash, _)) => &frame[slash + 1..],
        None => frame,
    }
}

fn stack_cells(stack: &StackAnalysis, depth: Depth, unattributed: &Unattributed) -> Vec<String> {
    vec![
        indented(short_frame(&stack.name), depth, 44),
        thousands(stack.kernels),
        duration(stack.subtree_ns),
        percent(share(stack.subtree_ns, unattributed)),
        duration(stack.direct_ns),
        duration(stack.backward_ns),
    ]
}

/// Prints one of the tables, summed over ranks, with `head` before it. `false`, and nothing printed, where the recording has
/// nothing of the kind.
pub(super) fn print_by(analysis: &Analysis, by: By, top: usize, head: impl Fn()) -> bool {
    let Some(all) = analysis.attribution() else {
        return false;
    };
    let unattributed = all.unattributed.unwrap_or_default();
    let over = match analysis.ranks.len() {
        1 => String::new(),
        ranks => format!(", over {ranks} GPUs"),
    };
    let print = |title: &str, first: &str, headings: &[&str], rows: &[Vec<String>], overflow: Overflow| {
        if rows.is_empty() {
            return false;
        }
        head();
        let headings: Vec<&str> = [first].iter().chain(headings).copied().collect();
        print_table(&format!("{title}{over}"), &headings, rows, overflow);
        true
    };
    let least_ns = (unattributed.operations_ns as f64 * LEAST_OF_TREE) as i64;
    match by {
        By::Kernel => true,
        By::Operator => print(
            "Operators (times are sums, not time passed; direct and what is in brackets sum to all GPU time)",
            "operator",
            &OPERATOR_HEADINGS,
            &operators(all, top),
            Overflow::Drop,
        ),
        By::Shape => {
            let rows = all.shapes.iter().take(top).map(|shape| {
                let mut row = vec![
                    name(&shape.operator.name, 100),
                    shorten(shape.input_dims.as_deref().unwrap_or("-"), 48),
                    thousands(shape.operator.calls),
                    duration(shape.operator.direct_ns),
                    percent(shape.operator.share),
                    duration(shape.operator.subtree_ns),
                ];
                row.push(tera(shape.flops_per_second));
                row
            });
            let headings = ["inputs", "calls", "direct", "share", "subtree", "TFLOP/s"];
            print(
                "Operators by shape",
                "operator",
                &headings,
                &rows.collect::<Vec<_>>(),
                Overflow::Drop,
            )
        }
        By::Product => {
            let rows: Vec<Vec<String>> = all
                .products
                .iter()
                .take(top)
                .map(|product| {
                    let mut row = vec![name(&product.name, 86)];
                    row.extend(product_cells(product));
                    row
                })
                .collect();
            let headings = [
                "size", "calls", "time", "TFLOP/s", "of peak", "bound by", "type", "TFLOP", "TB/s",
            ];
            let title = match &all.peak {
                Some(peak) => format!(
                    "Matrix products, attention, convolutions (batch x m x n x k; peak of {}: {:.1} TFLOP/s, {:.2} TB/s; {})",
                    peak.dtype.trim_start_matches("c10::"),
                    peak.flops_per_second / 1e12,
                    peak.bytes_per_second / 1e12,
                    peak.source
                ),
                None => "Matrix products, attention, convolutions (batch x m x n x k)".to_owned(),
            };
            print(&title, "operator", &headings, &rows, Overflow::Drop)
        }
        By::Module => {
            let rows = tree(
                &all.modules,
                |module| module.parent,
                |module| module.times.total_ns(),
                least_ns,
                top,
                |module, depth| {
                    let mut row = vec![indented(&module.name, depth, OTHERS)];
                    row.extend(times_cells(module.calls, &module.times));
                    row
                },
            );
            print("Modules", "module", &TIMES_HEADINGS, &rows, Overflow::Drop)
        }
        By::Class => {
            let rows: Vec<Vec<String>> = all
                .module_classes
                .iter()
                .take(top)
                .map(|class| {
                    let mut row = vec![name(&class.name, OTHERS), thousands(class.modules)];
                    row.extend(times_cells(class.calls, &class.times));
                    row
                })
                .collect();
            let headings: Vec<&str> = ["modules"].iter().chain(&TIMES_HEADINGS).copied().collect();
            print("Modules by class", "class", &headings, &rows, Overflow::Drop)
        }
        By::Memory => {
            let headings: Vec<&str> = ["calls"].iter().chain(&MEMORY_HEADINGS).copied().collect();
            print(
                "GPU memory by operator (those without \"with nested\" sum to all; frees count where they were allocated)",
                "operator",
                &headings,
                &memory(all, top),
                Overflow::Drop,
            )
        }
        By::Stack => {
            let rows = tree(
                &all.stacks,
                |stack| stack.parent,
                |stack| stack.subtree_ns,
                least_ns,
                top,
                |stack, depth| stack_cells(stack, depth, &unattributed),
            );
            let headings = ["kernels", "with callees", "share", "own", "of it backward"];
            print("Stacks", "function", &headings, &rows, Overflow::Drop)
        }
    }
}

/// Prints the operators that launched most, where there are any.
pub(super) fn print(analysis: &Analysis) {
    print_by(analysis, By::Operator, ROWS_AMONG_OTHERS, || {});
    print_by(analysis, By::Product, ROWS_AMONG_OTHERS / 2, || {});
}
