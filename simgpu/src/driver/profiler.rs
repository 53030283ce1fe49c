//! cuProfilerStart and cuProfilerStop: they only tell profilers, who see the calls.

use super::context::current_context;
use super::entry::driver_functions;

driver_functions! {
    /// cuProfilerStart.
    fn cuProfilerStart = CUPTI_DRIVER_TRACE_CBID_cuProfilerStart() |_| {
        current_context().map(|_| ())
    }

    /// cuProfilerStop.
    fn cuProfilerStop = CUPTI_DRIVER_TRACE_CBID_cuProfilerStop() |_| {
        current_context().map(|_| ())
    }
}
