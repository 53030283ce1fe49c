//! What GPUs can do at most, by their data sheets.

/// Peak rates of a GPU without sparsity, TFLOP/s and TB/s; 0 where its data sheet has none.
struct DataSheet {
    /// Words that its name has.
    name: &'static [&'static str],
    bf16: f64,
    f16: f64,
    tf32: f64,
    single: f64,
    double: f64,
    eighth: f64,
    memory: f64,
}

macro_rules! sheets {
    ($($name:expr, $bf16:literal, $f16:literal, $tf32:literal, $single:literal, $double:literal, $eighth:literal, $memory:literal;)*) => {
        &[$(DataSheet {
            name: &$name,
            bf16: $bf16,
            f16: $f16,
            tf32: $tf32,
            single: $single,
            double: $double,
            eighth: $eighth,
            memory: $memory,
        }),*]
    };
}

/// The first whose words are all in the name counts. NVIDIA's data sheets of the GPUs ("with sparsity" halved), AMD's product pages
/// (matrix rates). Columns: bf16, f16, TF32, f32, f64 (matrix units where it has such), 8 bits (f8 or int8), memory.
#[rustfmt::skip]
const SHEETS: &[DataSheet] = sheets! {
    ["GB200"],                 2500.0,  2500.0,  1250.0,    80.0,    40.0,  5000.0, 8.0;
    ["B200"],                  2250.0,  2250.0,  1125.0,    75.0,    37.0,  4500.0, 8.0;
    ["H200"],                   989.4,   989.4,   494.7,    66.9,    66.9,  1978.9, 4.8;
    ["H100", "PCIe"],           756.0,   756.0,   378.0,    51.0,    51.0,  1513.0, 2.0;
    ["H100", "HBM2e"],          756.0,   756.0,   378.0,    51.0,    51.0,  1513.0, 2.0;
    ["H100", "NVL"],            835.5,   835.5,   417.7,    60.0,    60.0,  1670.5, 3.9;
    ["H100"],                   989.4,   989.4,   494.7,    66.9,    66.9,  1978.9, 3.35;
    ["H20"],                    148.0,   148.0,    74.0,    44.0,     1.0,   296.0, 4.0;
    ["A100", "80GB", "SXM4"],   312.0,   312.0,   156.0,    19.5,    19.5,   624.0, 2.039;
    ["A100", "80GB"],           312.0,   312.0,   156.0,    19.5,    19.5,   624.0, 1.935;
    ["A100"],                   312.0,   312.0,   156.0,    19.5,    19.5,   624.0, 1.555;
    ["A800", "80GB"],           312.0,   312.0,   156.0,    19.5,     0.0,   624.0, 2.039;
    ["A40"],                    149.7,   149.7,    74.8,    37.4,     0.6,   299.3, 0.696;
    ["A10"],                    125.0,   125.0,    62.5,    31.2,     0.0,   250.0, 0.6;
    ["L40S"],                   362.0,   362.0,   183.0,    91.6,     1.4,   733.0, 0.864;
    ["L4"],                     121.0,   121.0,    60.0,    30.3,     0.5,   242.5, 0.3;
    ["V100", "PCIE"],             0.0,   112.0,     0.0,    14.0,     7.0,     0.0, 0.9;
    ["V100"],                     0.0,   125.0,     0.0,    15.7,     7.8,     0.0, 0.9;
    ["T4"],                       0.0,    65.0,     0.0,     8.1,     0.0,   130.0, 0.32;
    ["MI355X"],                2516.6,  2516.6,     0.0,   157.3,    78.6,  5033.2, 8.0;
    ["MI325X"],                1307.4,  1307.4,   653.7,   163.4,   163.4,  2614.9, 6.0;
    ["MI300X"],                1307.4,  1307.4,   653.7,   163.4,   163.4,  2614.9, 5.3;
    ["MI250X"],                 383.0,   383.0,     0.0,    95.7,    95.7,   383.0, 3.28;
};

/// Where the numbers are from.
pub(crate) const SOURCE: &str = "data sheet, without sparsity";

/// What a GPU can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peaks {
    sheet: usize,
}

impl Peaks {
    /// Of the device of this name; `None` for one that is not known, and for simulated ones.
    pub(crate) fn of(device: &str) -> Option<Self> {
        if device.starts_with("Simulated") {
            return None;
        }
        let is_word = |word: &str| {
            let upper = device.to_uppercase();
            let word = word.to_uppercase();
            // "H200" is no "H20", "GH200" no "H200", nor "A10G" an "A10".
            upper.match_indices(&word).any(|(at, _)| {
                let is_end =
                    |letter: Option<char>| !letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
                is_end(upper[at + word.len()..].chars().next()) && is_end(upper[..at].chars().next_back())
            })
        };
        let sheet = SHEETS
            .iter()
            .position(|sheet| sheet.name.iter().all(|word| is_word(word)))?;
        Some(Self { sheet })
    }

    /// FLOP a second for inputs of a type as PyTorch calls it; of `float` by the unit that works on it.
    pub(crate) fn flops_per_second(self, dtype: &str, is_tf32: bool) -> Option<f64> {
        let sheet = &SHEETS[self.sheet];
        let teraflops = match dtype {
            "c10::BFloat16" => sheet.bf16,
            "c10::Half" => sheet.f16,
            "float" if is_tf32 => sheet.tf32,
            "float" => sheet.single,
            "double" => sheet.double,
            "signed char" | "unsigned char" => sheet.eighth,
            other if other.starts_with("c10::Float8") => sheet.eighth,
            _ => 0.0,
        };
        (teraflops > 0.0).then_some(teraflops * 1e12)
    }

    /// Bytes a second from and to its memory.
    pub(crate) fn bytes_per_second(self) -> f64 {
        SHEETS[self.sheet].memory * 1e12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(device: &str) -> Option<f64> {
        Peaks::of(device)?.flops_per_second("c10::BFloat16", false)
    }

    #[test]
    fn devices_are_known_by_their_names() {
        assert_eq!(half("NVIDIA H100 80GB HBM3"), Some(989.4e12));
        assert_eq!(half("NVIDIA H100 PCIe"), Some(756.0e12));
        assert_eq!(half("NVIDIA H200"), Some(989.4e12));
        assert_eq!(half("NVIDIA H20"), Some(148.0e12));
        assert_eq!(half("AMD Instinct MI300X"), Some(1307.4e12));
        assert_eq!(half("NVIDIA A10"), Some(125.0e12));
        assert_eq!(half("NVIDIA A10G"), None);
        assert_eq!(half("NVIDIA GH200 480GB"), None);
        assert_eq!(half("NVIDIA L40S"), Some(362.0e12));
        assert_eq!(half("Simulated H200"), None);
        assert_eq!(half("NVIDIA GeForce RTX 9999"), None);
        let memory = |device| Peaks::of(device).map(|peaks| (peaks.bytes_per_second() / 1e9).round());
        assert_eq!(memory("NVIDIA A100-SXM4-80GB"), Some(2039.0));
        assert_eq!(memory("NVIDIA A100-PCIE-40GB"), Some(1555.0));
        // It multiplies f16, and knows no bf16.
        let volta = Peaks::of("Tesla V100-SXM2-32GB").unwrap();
        assert_eq!(volta.flops_per_second("c10::Half", false), Some(125.0e12));
        assert_eq!(volta.flops_per_second("c10::BFloat16", false), None);
        assert_eq!(Peaks::of("Tesla V100S-PCIE-32GB"), None);
    }

    #[test]
    fn a_float_is_as_fast_as_the_unit_that_works_on_it() {
        let peaks = Peaks::of("NVIDIA A100-SXM4-40GB").unwrap();
        assert_eq!(peaks.flops_per_second("float", false), Some(19.5e12));
        assert_eq!(peaks.flops_per_second("float", true), Some(156.0e12));
        assert_eq!(
            peaks.flops_per_second("c10::Float8_e4m3fn", false),
            Some(624.0e12)
        );
        assert_eq!(peaks.flops_per_second("bool", false), None);
    }
}
