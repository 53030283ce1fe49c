//! What each unit of a network costs on this device, measured: for stages of equal weight.

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, result};

use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::model::Network;
use crate::nvtx::Range;
use crate::schedule::Optimizer;
use crate::store::Store;

use super::plan::Balance;
use super::replicated::{Recipe, Replicated};
use super::stage::Stage;

/// Passes of a unit that are timed, after one that is not.
const PASSES: usize = 3;

/// The weight of each unit, the same on all ranks: measured by the first.
pub(crate) fn weights(
    gpu: &Gpu,
    network: &Network,
    microbatch: (usize, DataType),
    by: Balance,
    store: &Store,
) -> Result<Vec<f64>, Error> {
    let measured = if store.is_first() {
        let _range = Range::new("measure units");
        let mut bytes = Vec::new();
        for index in 0..network.units.len() {
            let weight = measure(gpu, network, index, microbatch, by)?;
            bytes.extend_from_slice(&weight.to_le_bytes());
        }
        Some(bytes)
    } else {
        None
    };
    let bytes = store.broadcast(measured.as_deref())?;
    Ok(bytes
        .chunks_exact(8)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        .collect())
}

/// One unit's time in milliseconds, or its memory in bytes.
fn measure(
    gpu: &Gpu,
    network: &Network,
    index: usize,
    (rows, data_type): (usize, DataType),
    by: Balance,
) -> Result<f64, Error> {
    gpu.compute.synchronize()?;
    let free_before = result::mem_get_info()?.0;
    let unit = network.units[index].build(None);
    let layout = unit.layout().clone();
    let (input_bytes, output_bytes) = (
        unit.input_bytes(rows, data_type),
        unit.output_bytes(rows, data_type),
    );
    let recipe = Recipe {
        data_type,
        optimizer: Optimizer::Sgd,
        accumulates: true,
        saves: false,
        saves_undivided: false,
    };
    let values = network.units[index].initial(index, 1);
    let mut sharing = Replicated::new(gpu, &[layout], &values, &recipe, None, None)?;
    let stage = Stage::new(gpu, vec![unit], (rows, data_type), 1, 0)?;
    let input = gpu.buffer(input_bytes)?;
    let delta = gpu.buffer(output_bytes)?;
    let to = (index > 0).then(|| gpu.buffer(input_bytes)).transpose()?;
    gpu.compute.synchronize()?;
    let bytes = free_before.saturating_sub(result::mem_get_info()?.0);
    let event = || gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
    let (start, stop): (CudaEvent, CudaEvent) = (event()?, event()?);
    for pass in 0..=PASSES {
        if pass == 1 {
            start.record(&gpu.compute)?;
        }
        stage.forward(gpu, 0, input.address(), &mut sharing)?;
        let gradient = (delta.address(), to.as_ref().map(Buffer::address));
        stage.backward(gpu, (0, input.address()), gradient, false, &mut sharing)?;
    }
    stop.record(&gpu.compute)?;
    gpu.compute.synchronize()?;
    Ok(match by {
        Balance::Memory => bytes as f64,
        Balance::Time | Balance::Layers => f64::from(start.elapsed_ms(&stop)?) / PASSES as f64,
    })
}
