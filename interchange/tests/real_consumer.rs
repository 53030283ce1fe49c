//! The export in front of a consumer that is not ours: Holistic Trace Analysis, from PyPI.
//!
//! Skipped, loudly, where pip can't fetch it; never under CI=true.

use crate::consumers::hta;
use crate::support;

use gputrace_interchange::export::chrome::export_chrome_ranks;
use gputrace_interchange::export::files::write_folder;
use gputrace_trace::Derived;
use support::two_ranks;

#[test]
fn holistic_trace_analysis_computes_the_numbers_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ranks");
    write_folder(&out, |files| {
        export_chrome_ranks(&two_ranks(), &Derived::default(), true, files)
    })
    .unwrap();
    let Some(result) = hta::analyses(&out) else { return };
    // Compute is [100, 320); the collective [280, 420) or [280, 400): 40 us of 140 or of 120 are hidden. Over all
    // operations the span is [20, end) with the copy [20, 60) and the memset [90.001, 95) before compute.
    for (rank, end, overlap) in [("0", 420.0, 28.57), ("1", 400.0, 33.33)] {
        let is = |what: &str, value: &serde_json::Value, expected: f64| {
            let value = value.as_f64().unwrap_or(f64::NAN);
            assert!(
                (value - expected).abs() <= 0.01,
                "rank {rank}: {what} is {value}, not {expected}: {result}"
            );
        };
        let of = &result[rank];
        is("overlap", &of["overlap"], overlap);
        is("compute", &of["compute_us"], 220.0);
        is("span", &of["span_us"], end - 20.0);
        // Before compute: [60, 90.001) and [95, 100).
        is("idle", &of["idle_us"], 35.001);
        let nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)";
        for (kernel, total) in [
            ("add(float*, int)", 270.0),
            (nccl, end - 280.0),
            ("Memcpy HtoD (Pinned -> Device)", 40.0),
            ("Memset (Device)", 4.999),
        ] {
            is(kernel, &of["kernels"][kernel], total);
        }
        // One operation a stream leaves no gap; what overlaps its predecessor on stream 7 by 50 us counts as less than none.
        let idle = |stream: &str| -> f64 {
            let causes = of["streams"][stream].as_object().unwrap();
            causes.values().filter_map(serde_json::Value::as_f64).sum()
        };
        assert_eq!((idle("20"), idle("21")), (0.0, 0.0));
        assert!((idle("7") - (5.0 - 50.0)).abs() <= 0.01, "{result}");
    }
}
