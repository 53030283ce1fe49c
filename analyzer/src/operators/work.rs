//! How much an operator has to do: FLOP and bytes, from the shapes of its inputs.
//!
//! The formulas of `torch.utils.flop_counter` (2026-08), which counts a multiplication and an addition as two. Unlike there a causal
//! mask halves attention's. Bytes are of each tensor once.

use serde_json::Value;

/// What an operator has to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) flops: u64,
    /// Bytes of the tensors that it reads and writes, where their type's size is known.
    pub(crate) bytes: Option<u64>,
    /// The type of its first operand.
    pub(crate) dtype: String,
    /// Of a matrix product: how many, rows, columns, and what is summed over.
    pub(crate) gemm: Option<[u64; 4]>,
}

/// An operator's inputs as they are recorded.
struct Inputs {
    dims: Vec<Value>,
    types: Vec<Value>,
    values: Vec<Value>,
}

fn list(text: Option<&str>) -> Vec<Value> {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes
        .iter()
        .try_fold(1u64, |product, size| product.checked_mul(*size))
}

/// Bytes of an element of a type as PyTorch calls it.
fn bytes_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "double" | "long int" | "long" | "c10::complex<float>" => 8,
        "float" | "int" => 4,
        "c10::Half" | "c10::BFloat16" | "short int" | "short" => 2,
        "signed char" | "unsigned char" | "bool" => 1,
        other if other.starts_with("c10::Float8") => 1,
        _ => return None,
    })
}

impl Inputs {
    /// The sizes of a tensor; `None` for what is none, and for lists of tensors.
    fn tensor(&self, index: usize) -> Option<Vec<u64>> {
        let sizes = self.dims.get(index)?.as_array()?;
        sizes.iter().map(Value::as_u64).collect()
    }

    /// Of a tensor with so many dimensions.
    fn sized<const N: usize>(&self, index: usize) -> Option<[u64; N]> {
        self.tensor(index)?.try_into().ok()
    }

    fn dtype(&self, index: usize) -> &str {
        self.types.get(index).and_then(Value::as_str).unwrap_or_default()
    }

    /// A value as Python writes it: "True", "1", "[1, 1]".
    fn value(&self, index: usize) -> &str {
        self.values.get(index).and_then(Value::as_str).unwrap_or_default()
    }

    fn numbers(&self, index: usize) -> Option<Vec<u64>> {
        serde_json::from_str(self.value(index)).ok()
    }

    fn is_true(&self, index: usize) -> bool {
        matches!(self.value(index), "True" | "true" | "1")
    }

    /// Bytes of so many elements, each of the type of a tensor.
    fn bytes(&self, index: usize, elements: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
        let of_one = bytes_of(self.dtype(index))?;
        elements.into_iter().try_fold(0u64, |sum, elements| {
            sum.checked_add(elements?.checked_mul(of_one)?)
        })
    }

    /// A product of (stacks of) matrices, the inputs `a` and the one after it.
    fn gemm<const BATCHED: bool>(&self, a: usize) -> Option<Work> {
        let (batch, m, k, n) = if BATCHED {
            let ([batch, m, k], [batch_b, k_b, n]) = (self.sized::<3>(a)?, self.sized::<3>(a + 1)?);
            if batch != batch_b || k != k_b {
                return None;
            }
            (batch, m, k, n)
        } else {
            let ([m, k], [k_b, n]) = (self.sized::<2>(a)?, self.sized::<2>(a + 1)?);
            if k != k_b {
                return None;
            }
            (1, m, k, n)
        };
        // What is added is read too.
        let added = (a > 0).then(|| self.tensor(0).and_then(|sizes| product(&sizes)).or(Some(0)));
        let tensors = [&[batch, m, k], &[batch, k, n], &[batch, m, n]].map(|sizes| product(sizes));
        Some(Work {
            flops: product(&[2, batch, m, n, k])?,
            bytes: self.bytes(a, tensors.into_iter().chain(added)),
            dtype: self.dtype(a).to_owned(),
            gemm: Some([batch, m, n, k]),
        })
    }

    /// Rows of `a` go to different matrices of `b`.
    fn grouped_gemm(&self) -> Option<Work> {
        let ([m, k], [groups, k_b, n]) = (self.sized::<2>(0)?, self.sized::<3>(1)?);
        if k != k_b {
            return None;
        }
        let tensors = [product(&[m, k]), product(&[groups, k, n]), product(&[m, n])];
        Some(Work {
            flops: product(&[2, m, n, k])?,
            bytes: self.bytes(0, tensors),
            dtype: self.dtype(0).to_owned(),
            gemm: None,
        })
    }

    /// Attention of queries, keys and values, which are inputs from `query` on, with heads before or behind positions. How many
    /// products go over the size of a query's head and over a value's: forward one each, backward three and two.
    fn attention(&self, kind: &Attention) -> Option<Work> {
        let Attention {
            query,
            heads_first,
            causal,
            products: [over_query, over_value],
        } = *kind;
        let (first, second) = if heads_first { (1, 2) } else { (2, 1) };
        let [q, k, v] = [0, 1, 2].map(|place| self.sized::<4>(query + place));
        let (q, k, v) = (q?, k?, v?);
        let sums = (over_query * q[3]).checked_add(over_value * v[3])?;
        let mut flops = product(&[2, q[0], q[first], q[second], k[second], sums])?;
        if self.is_true(causal) {
            flops /= 2;
        }
        let out = [q[0], q[1], q[2], v[3]];
        Some(Work {
            flops,
            bytes: self.bytes(query, [&q, &k, &v, &out].map(|sizes| product(sizes))),
            dtype: self.dtype(query).to_owned(),
            gemm: None,
        })
    }

    /// `aten::convolution`: input, weight, bias, stride, padding, dilation, transposed, ...
    fn convolution(&self) -> Option<Work> {
        let (x, w) = (self.tensor(0)?, self.tensor(1)?);
        let spatial = x.len().checked_sub(2)?;
        let over = product(w.get(1..)?)?;
        let (out, elements) = if self.is_true(6) {
            (None, product(&x)?)
        } else {
            let [stride, padding, dilation] = [3, 4, 5].map(|index| self.numbers(index));
            let (stride, padding, dilation) = (stride?, padding?, dilation?);
            let mut out = vec![*x.first()?, *w.first()?];
            for place in 0..spatial {
                // One number stands for all.
                let of = |list: &[u64]| list.get(place).or_else(|| list.first()).copied();
                let window = of(&dilation)?.checked_mul(w.get(place + 2)?.checked_sub(1)?)? + 1;
                let room = x[place + 2].checked_add(2 * of(&padding)?)?.checked_sub(window)?;
                out.push(room.checked_div(of(&stride)?)? + 1);
            }
            let elements = product(&out)?;
            (Some(elements), elements)
        };
        Some(Work {
            flops: product(&[2, elements, over])?,
            bytes: self.bytes(0, [product(&x), product(&w), out]),
            dtype: self.dtype(0).to_owned(),
            gemm: None,
        })
    }

    /// `aten::convolution_backward`: gradient, input, weight, bias' sizes, stride, padding, dilation, transposed, output padding,
    /// groups, which gradients are wanted (of input, weight and bias; the last is no product).
    fn convolution_backward(&self) -> Option<Work> {
        let [gradient, x, w] = [0, 1, 2].map(|index| self.tensor(index));
        let (gradient, x, w) = (gradient?, x?, w?);
        let wanted = self.value(10).to_lowercase();
        let wanted: Vec<bool> = serde_json::from_str(&wanted).ok()?;
        let terms = wanted.iter().take(2).filter(|wanted| **wanted).count() as u64;
        let elements = product(if self.is_true(7) { &x } else { &gradient })?;
        let tensors = [product(&gradient), product(&x), product(&w)];
        let written = [product(&x), product(&w)].into_iter().zip(wanted);
        let written = written.filter_map(|(elements, wanted)| wanted.then_some(elements));
        Some(Work {
            flops: product(&[2, terms, elements, product(w.get(1..)?)?])?,
            bytes: self.bytes(1, tensors.into_iter().chain(written)),
            dtype: self.dtype(1).to_owned(),
            gemm: None,
        })
    }
}

/// Where an operator has what attention's work depends on.
struct Attention {
    query: usize,
    heads_first: bool,
    /// The input that says whether it is causal.
    causal: usize,
    products: [u64; 2],
}

/// The signatures in PyTorch's native_functions.yaml (2026-08), and flash-attn's own operator.
fn attention(name: &str) -> Option<Attention> {
    let (query, heads_first, causal, products) = match name {
        "aten::_scaled_dot_product_flash_attention" => (0, true, 4, [1, 1]),
        "aten::_scaled_dot_product_efficient_attention" | "aten::_scaled_dot_product_cudnn_attention" => {
            (0, true, 6, [1, 1])
        }
        "aten::_flash_attention_forward" => (0, false, 8, [1, 1]),
        "aten::_efficient_attention_forward" => (0, false, 9, [1, 1]),
        "flash_attn::_flash_attn_forward" => (0, false, 5, [1, 1]),
        "aten::_scaled_dot_product_flash_attention_backward"
        | "aten::_scaled_dot_product_efficient_attention_backward" => (1, true, 11, [3, 2]),
        "aten::_scaled_dot_product_cudnn_attention_backward" => (1, true, 14, [3, 2]),
        "aten::_flash_attention_backward" => (1, false, 11, [3, 2]),
        "aten::_efficient_attention_backward" => (1, false, 14, [3, 2]),
        _ => return None,
    };
    Some(Attention {
        query,
        heads_first,
        causal,
        products,
    })
}

/// What an operator has to do, from its inputs as they are recorded; `None` for operators without a model, and where what it needs is
/// not recorded.
pub(crate) fn work(name: &str, dims: &str, types: Option<&str>, values: Option<&str>) -> Option<Work> {
    let inputs = || Inputs {
        dims: list(Some(dims)),
        types: list(types),
        values: list(values),
    };
    match name {
        "aten::mm" | "aten::_int_mm" | "aten::_scaled_mm" => inputs().gemm::<false>(0),
        "aten::addmm" | "aten::_addmm_activation" => inputs().gemm::<false>(1),
        "aten::bmm" => inputs().gemm::<true>(0),
        "aten::baddbmm" => inputs().gemm::<true>(1),
        "aten::_grouped_mm" | "aten::_scaled_grouped_mm" => inputs().grouped_gemm(),
        "aten::convolution" | "aten::_convolution" => inputs().convolution(),
        "aten::convolution_backward" => inputs().convolution_backward(),
        _ => inputs().attention(&attention(name)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flops(name: &str, dims: &str, values: &str) -> Option<u64> {
        work(name, dims, None, Some(values)).map(|work| work.flops)
    }

    #[test]
    fn matrix_products() {
        let of = |name, dims| {
            work(
                name,
                dims,
                Some(r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]"#),
                None,
            )
        };
        let mm = of("aten::mm", "[[4, 5], [5, 6]]").unwrap();
        // 2 x 4 x 6 x 5; 20 + 30 + 24 elements of two bytes.
        assert_eq!(
            (mm.flops, mm.bytes, mm.gemm),
            (240, Some(148), Some([1, 4, 6, 5]))
        );
        let addmm = of("aten::addmm", "[[6], [4, 5], [5, 6], [], []]").unwrap();
        assert_eq!((addmm.flops, addmm.bytes), (240, Some(160)));
        let bmm = of("aten::bmm", "[[3, 4, 5], [3, 5, 6]]").unwrap();
        assert_eq!((bmm.flops, bmm.gemm), (720, Some([3, 4, 6, 5])));
        assert_eq!(of("aten::mm", "[[4, 5], [7, 6]]"), None);
        assert_eq!(of("aten::mm", "[[], []]"), None);
        assert_eq!(of("aten::mm", "no list"), None);
        assert_eq!(of("aten::mm", "[[[4, 5]], [5, 6]]"), None);
        assert_eq!(of("aten::add", "[[4, 5], [5, 6]]"), None);
    }

    #[test]
    fn attention_forward_backward_and_masked() {
        // 2 sequences, 3 heads, 8 positions, heads of 16: 2 x 2 x 3 x 8 x 8 x (16 + 16) = 24576.
        let heads_first = "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16], [], [], [], []]";
        let name = "aten::_scaled_dot_product_flash_attention";
        assert_eq!(
            flops(name, heads_first, r#"["", "", "", "0.", "False", "False", ""]"#),
            Some(24_576)
        );
        assert_eq!(
            flops(name, heads_first, r#"["", "", "", "0.", "True", "False", ""]"#),
            Some(12_288)
        );
        let backward = "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]]";
        assert_eq!(
            flops(
                "aten::_scaled_dot_product_flash_attention_backward",
                backward,
                "[]"
            ),
            Some(61_440)
        );
        let heads_last = "[[2, 8, 3, 16], [2, 8, 3, 16], [2, 8, 3, 16]]";
        assert_eq!(
            flops("aten::_flash_attention_forward", heads_last, "[]"),
            Some(24_576)
        );
        // Fewer heads of keys and values than of queries.
        let grouped = "[[2, 3, 8, 16], [2, 1, 8, 16], [2, 1, 8, 16]]";
        assert_eq!(flops(name, grouped, "[]"), Some(24_576));
    }

    #[test]
    fn convolutions() {
        // 10 pictures of 3 x 224 x 224, 64 windows of 7 x 7 at every second place: out 10 x 64 x 112 x 112, over 3 x 7 x 7.
        let dims = "[[10, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]";
        let values = r#"["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]"#;
        let expected = 2 * (10 * 64 * 112 * 112) * (3 * 7 * 7);
        assert_eq!(flops("aten::convolution", dims, values), Some(expected));
        let dims = "[[10, 64, 112, 112], [10, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], [], []]";
        let wanted = |mask: &str| {
            let values = format!(
                r#"["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "{mask}"]"#
            );
            flops("aten::convolution_backward", dims, &values)
        };
        assert_eq!(wanted("[True, True, False]"), Some(2 * expected));
        assert_eq!(wanted("[False, True, True]"), Some(expected));
        assert_eq!(wanted(""), None);
        // What the sizes of the window's moves are is not recorded.
        assert_eq!(
            flops("aten::convolution", "[[10, 3, 224, 224], [64, 3, 7, 7]]", "[]"),
            None
        );
    }

    #[test]
    fn what_does_not_fit_into_64_bits_has_no_number() {
        let big = "[[4294967296, 4294967296], [4294967296, 4294967296]]";
        assert_eq!(flops("aten::mm", big, "[]"), None);
    }
}
