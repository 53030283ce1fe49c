//! What operators could do better, computed by hand on jobs of three equal steps.

use gputrace_analyzer::{Facts, Finding, Options, analyze};
use gputrace_trace::tables::{ApiCall, Kernel, Marker, MemoryEvent, Operator, PythonFrame};
use gputrace_trace::{DurationNs, Recording, Table, TimeNs};

use crate::support::Build;

const STEPS: i64 = 3;
/// What the host takes for an operator.
const HOST_NS: i64 = 1_000;

/// Kernels as PyTorch calls them.
const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)";
const COPY: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)";
const GEMM: &str = "ampere_bf16_s16816gemm_bf16_128x128";
const SGEMM: &str = "ampere_sgemm_128x128_nn";

/// One thread that launches, and one stream.
struct Job {
    recording: Recording,
    host_ns: i64,
    gpu_ns: i64,
    launched: u32,
    gpu_name: &'static str,
}

impl Job {
    fn new(device: &str) -> Self {
        let mut recording = Build::new(1).recording;
        device.clone_into(&mut recording.processes[0].header.devices[0].name);
        Self {
            recording,
            host_ns: 1_000,
            gpu_ns: 0,
            launched: 0,
            gpu_name: "",
        }
    }

    /// A span on the host around what `inside` launches: at what time, and how long.
    fn around(&mut self, inside: impl FnOnce(&mut Self)) -> (TimeNs, DurationNs) {
        let start = self.host_ns;
        inside(self);
        (TimeNs(start), DurationNs(self.host_ns - start))
    }

    fn operator(&mut self, name: &str, row: &Operator, inside: impl FnOnce(&mut Self)) {
        let (start_ns, duration_ns) = self.around(inside);
        let name = self.recording.names.intern(name);
        self.recording.processes[0].tables.operators.push(Operator {
            start_ns,
            duration_ns,
            name,
            ..row.clone()
        });
    }

    fn module(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        let (start_ns, duration_ns) = self.around(inside);
        let name = self.recording.names.intern(&format!("nn.Module: {name}"));
        self.recording.processes[0]
            .tables
            .python_frames
            .push(PythonFrame {
                start_ns,
                duration_ns,
                name,
                ..PythonFrame::default()
            });
    }

    /// A kernel that takes so long, launched by an operator with these inputs.
    fn run(&mut self, name: &str, dims: &str, types: &str, kernel: &'static str, takes_ns: i64) {
        let names = &mut self.recording.names;
        let row = Operator {
            input_dims: Some(names.intern(dims)),
            input_types: Some(names.intern(types)),
            sequence: Some(1),
            ..Operator::default()
        };
        self.gpu_name = kernel;
        self.operator(name, &row, |job| job.launch(takes_ns));
    }

    fn launch(&mut self, takes_ns: i64) {
        self.launched += 1;
        let names = &mut self.recording.names;
        let (call, kernel) = (names.intern("cudaLaunchKernel"), names.intern(self.gpu_name));
        let tables = &mut self.recording.processes[0].tables;
        tables.api_calls.push(ApiCall {
            start_ns: TimeNs(self.host_ns + 200),
            duration_ns: DurationNs(500),
            name: call,
            correlation: self.launched,
            ..ApiCall::default()
        });
        self.gpu_ns = self.gpu_ns.max(self.host_ns + 700);
        tables.kernels.push(Kernel {
            start_ns: TimeNs(self.gpu_ns),
            duration_ns: DurationNs(takes_ns),
            name: kernel,
            stream: 7,
            correlation: self.launched,
            ..Kernel::default()
        });
        self.gpu_ns += takes_ns;
        self.host_ns += HOST_NS;
    }

    /// The same thing in each step, and the findings about it.
    fn findings(mut self, mut step: impl FnMut(&mut Self)) -> Vec<Finding> {
        for number in 0..STEPS {
            let (start_ns, duration_ns) = self.around(&mut step);
            let name = self.recording.names.intern(&format!("ProfilerStep#{number}"));
            self.recording.processes[0].tables.markers.push(Marker {
                start_ns,
                duration_ns: Some(duration_ns),
                name,
                ..Marker::default()
            });
        }
        analyze(&self.recording, &Options::default()).findings
    }
}

fn saves(finding: &Finding) -> [Option<i64>; 2] {
    [finding.saves_low_ns, finding.saves_high_ns]
}

/// The only finding of a kind.
fn only<T>(findings: &[Finding], is_meant: impl Fn(&Finding) -> Option<T>) -> T {
    let mut found: Vec<T> = findings.iter().filter_map(is_meant).collect();
    assert_eq!(found.len(), 1, "{findings:?}");
    found.remove(0)
}

/// A matrix product of 2 x 4096 x n x 4096 FLOP in bf16.
fn product(job: &mut Job, n: u64, takes_ns: i64) {
    job.run(
        "aten::mm",
        &format!("[[4096, 4096], [4096, {n}]]"),
        r#"["c10::BFloat16", "c10::BFloat16"]"#,
        GEMM,
        takes_ns,
    );
}

#[test]
fn a_product_slower_than_its_neighbours_saves_up_to_their_rate() {
    let findings = Job::new("a GPU without a data sheet").findings(|job| {
        product(job, 4096, 600_000);
        // Almost as much to do, but with rows that are no multiple of 16 bytes: a third of the rate.
        product(job, 4095, 1_800_000);
    });
    let (facts, saved) = only(&findings, |finding| match &finding.facts {
        Facts::SlowProduct {
            n,
            calls,
            time_ns,
            reason,
            ..
        } => Some(((*n, *calls, *time_ns, reason.clone()), saves(finding))),
        _ => None,
    });
    assert_eq!(facts, (4095, 3, 5_400_000, Some("alignment".to_owned())));
    // The kernel would take 600,000 x 4095 / 4096 = 599,853.5 at best.
    let [low, high] = saved;
    assert_eq!(low, Some(0));
    assert!((high.unwrap() - 1_200_147).abs() < 100, "{saved:?}");
}

#[test]
fn a_product_far_from_the_limits_of_the_gpu_is_slow_without_neighbours() {
    // 2 x 4096^3 FLOP at 312 TFLOP/s take 440.5 us: four times that and more is slow.
    for (takes_ns, is_slow) in [(1_700_000, false), (1_800_000, true)] {
        let findings = Job::new("NVIDIA A100-SXM4-80GB").findings(|job| product(job, 4096, takes_ns));
        let told: Vec<_> = findings
            .iter()
            .filter_map(|finding| match &finding.facts {
                Facts::SlowProduct {
                    others_flops_per_second,
                    ..
                } => Some((*others_flops_per_second, finding.saves_high_ns)),
                _ => None,
            })
            .collect();
        assert_eq!(told.len(), usize::from(is_slow), "{findings:?}");
        for (others, high) in told {
            assert_eq!(others, None);
            let least = 2.0 * 4096f64.powi(3) / 312e12 * 1e9;
            assert!(
                (high.unwrap() as f64 - (takes_ns as f64 - least)).abs() < 100.0,
                "{high:?}"
            );
        }
    }
}

#[test]
fn float32_without_tf32_is_told_where_the_gpu_has_it() {
    let single = |device: &str, kernel: &'static str| {
        Job::new(device).findings(|job| {
            job.run(
                "aten::mm",
                "[[4096, 4096], [4096, 4096]]",
                r#"["float", "float"]"#,
                kernel,
                9_000_000,
            );
        })
    };
    let is_told = |findings: &[Finding]| {
        let mut all = findings.iter();
        all.any(|finding| {
            matches!(
                finding.facts,
                Facts::Tf32Off {
                    calls: 3,
                    time_ns: 27_000_000
                }
            )
        })
    };
    assert!(is_told(&single("NVIDIA A100-SXM4-80GB", SGEMM)));
    assert!(!is_told(&single("Tesla V100-SXM2-32GB", SGEMM)));
    assert!(!is_told(&single(
        "NVIDIA A100-SXM4-80GB",
        "ampere_s1688gemm_tf32_128x128"
    )));
}

#[test]
fn chains_of_elementwise_kernels_save_all_but_the_longest_of_each() {
    let add = |job: &mut Job, size: u32, takes_ns| {
        let dims = format!("[[{size}], [{size}], []]");
        job.run(
            "aten::add",
            &dims,
            r#"["float", "float", "Scalar"]"#,
            ADD,
            takes_ns,
        );
    };
    let findings = Job::new("GPU").findings(|job| {
        product(job, 4096, 1_000_000);
        add(job, 1000, 100_000);
        add(job, 1000, 300_000);
        add(job, 1000, 100_000);
        // Over other numbers: a chain of its own, of one.
        add(job, 2000, 500_000);
        product(job, 4096, 1_000_000);
        add(job, 1000, 100_000);
    });
    let (facts, saved) = only(&findings, |finding| match finding.facts {
        Facts::ElementwiseChains {
            chains,
            kernels,
            total_ns,
        } => Some(((chains, kernels, total_ns), saves(finding))),
        _ => None,
    });
    // The last one of a step and the product that begins the next are no chain.
    assert_eq!(facts, (3, 9, 1_500_000));
    assert_eq!(saved, [Some(0), Some(200_000)]);
}

#[test]
fn casts_and_copies_are_told_apart_by_their_types() {
    let copy = |job: &mut Job, types: &str, takes_ns| {
        job.run("aten::copy_", "[[1000], [1000], []]", types, COPY, takes_ns);
    };
    let findings = Job::new("GPU").findings(|job| {
        product(job, 4096, 1_000_000);
        copy(job, r#"["c10::BFloat16", "float", "Scalar"]"#, 300_000);
        product(job, 4096, 1_000_000);
        copy(job, r#"["float", "float", "Scalar"]"#, 200_000);
    });
    let (facts, saved) = only(&findings, |finding| match finding.facts {
        Facts::CopiesAndCasts {
            casts,
            casts_ns,
            copies,
            copies_ns,
        } => Some(([(casts, casts_ns), (copies, copies_ns)], saves(finding))),
        _ => None,
    });
    assert_eq!(facts, [(3, 900_000), (3, 600_000)]);
    assert_eq!(saved, [Some(0), Some(500_000)]);
}

/// A step whose backward pass does 400 us of the forward pass again.
fn checkpointed(job: &mut Job) {
    job.module("Model_0", |job| product(job, 4096, 400_000));
    let evaluate = "autograd::engine::evaluate_function: CheckpointFunctionBackward";
    job.operator(evaluate, &Operator::default(), |job| {
        job.module("Model_0", |job| product(job, 4096, 400_000));
        product(job, 4096, 800_000);
    });
}

#[test]
fn recomputation_saves_what_it_takes_unless_the_memory_is_needed() {
    let findings = Job::new("GPU").findings(checkpointed);
    let (facts, saved) = only(&findings, |finding| match finding.facts {
        Facts::Recomputation {
            operations,
            time_ns,
            peak_memory_bytes,
            memory_bytes,
        } => Some((
            (operations, time_ns, peak_memory_bytes, memory_bytes),
            saves(finding),
        )),
        _ => None,
    });
    assert_eq!(facts, (3, 1_200_000, None, None));
    assert_eq!(saved, [Some(400_000), Some(400_000)]);
    for (bytes, is_told) in [(60, true), (70, false)] {
        let mut job = Job::new("GPU");
        let process = &mut job.recording.processes[0];
        process.header.devices[0].memory_bytes = Some(100);
        process.tables.memory.push(MemoryEvent {
            operation: 1,
            memory_kind: 3,
            address: 4096,
            bytes,
            ..MemoryEvent::default()
        });
        let findings = job.findings(checkpointed);
        let mut all = findings.iter();
        let told = all.any(|finding| matches!(finding.facts, Facts::Recomputation { .. }));
        assert_eq!(told, is_told, "{findings:?}");
    }
}

/// A step that the GPU waits for: an optimizer launches so many kernels of 100 ns each.
fn optimizer(job: &mut Job, operator: &str, kernels: usize) {
    product(job, 4096, 50_000);
    job.operator("Optimizer.step#SGD.step", &Operator::default(), |job| {
        for _ in 0..kernels {
            job.run(
                operator,
                "[[10], [10], []]",
                r#"["float", "float", "Scalar"]"#,
                ADD,
                100,
            );
        }
    });
}

#[test]
fn an_optimizer_that_loops_over_tensors_saves_up_to_its_time_on_the_host() {
    let findings = Job::new("GPU").findings(|job| optimizer(job, "aten::add_", 200));
    let (facts, [low, high]) = only(&findings, |finding| match finding.facts {
        Facts::OptimizerLoop {
            steps,
            operations,
            time_ns,
            host_ns,
            ..
        } => Some(((steps, operations, time_ns, host_ns), saves(finding))),
        _ => None,
    });
    assert_eq!(facts, (3, 600, 60_000, 600_000));
    // A step takes 201 us on the host, and the GPU follows; without the optimizer's launches the product and 200 kernels are left, 70 us.
    assert_eq!(low, Some(0));
    assert!((100_000..=200_000).contains(&high.unwrap()), "{high:?}");
    for (operator, kernels) in [("aten::_foreach_add_", 200), ("aten::add_", 50)] {
        let findings = Job::new("GPU").findings(|job| optimizer(job, operator, kernels));
        let mut all = findings.iter();
        assert!(!all.any(|finding| matches!(finding.facts, Facts::OptimizerLoop { .. })));
    }
}

#[test]
fn modules_that_are_launched_more_slowly_than_they_run_are_named_by_the_inner_class() {
    let findings = Job::new("GPU").findings(|job| {
        product(job, 4096, 30_000);
        job.module("Model_0", |job| {
            for layer in 0..4 {
                job.module(&format!("Block_{layer}"), |job| {
                    for _ in 0..25 {
                        job.run("aten::relu", "[[10]]", r#"["float"]"#, "relu_kernel", 200);
                    }
                });
            }
        });
    });
    let (facts, [low, high]) = only(&findings, |finding| match &finding.facts {
        Facts::LaunchBoundModules {
            class,
            calls,
            kernels,
            kernels_ns,
            host_ns,
        } => Some((
            (class.clone(), *calls, *kernels, *kernels_ns, *host_ns),
            saves(finding),
        )),
        _ => None,
    });
    assert_eq!(facts, ("Block".to_owned(), 12, 300, 60_000, 300_000));
    // 101 us a step by the host, 50 us by the GPU.
    assert_eq!(low, Some(0));
    assert!((45_000..=52_000).contains(&high.unwrap()), "{high:?}");
}
