//! Operations of a stream as Perfetto's render stages.

use std::io;

use super::arguments::{Arguments, Key};
use super::fields::{packet, stage};
use super::packets::Packets;
use super::process::Exporter;
use super::stages::{COPY_STAGE, KERNEL_STAGE, MEMSET_STAGE};
use crate::export::layout::{Row, RowKey, Slice, Source};
use crate::export::protobuf::ProtoBuffer;

impl Exporter<'_, '_> {
    /// Writes the operations of a stream. Of those that overlap Perfetto makes tracks of their own.
    pub(super) fn write_stages(&mut self, row: &Row, packets: &mut Packets<'_>) -> io::Result<()> {
        let RowKey::Stream { device, context, .. } = row.key else {
            return Ok(());
        };
        let layout = self.layout;
        let title = format!("{}, GPU {device}: {}", self.process_name(), row.name);
        let Some((gpus, numbers)) = &mut self.stages else {
            return Ok(());
        };
        let gpu = gpus.number(layout.number, layout.process, self.identity, device);
        let queue = numbers.queue(&title, packets)?;
        let context = numbers.context(context, self.identity.pid, packets)?;
        for slice in &row.slices {
            self.write_stage(slice, (gpu, queue, context), packets)?;
        }
        Ok(())
    }

    fn write_stage(
        &mut self,
        slice: &Slice,
        (gpu, queue, context): (u32, u64, u64),
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let kernels = &self.layout.process.tables.kernels;
        let index = slice.index as usize;
        let name = self.slice_name(slice, packets)?;
        let kernel = match slice.source() {
            Source::Kernel => {
                let (name, device) = (kernels.name[index], kernels.device[index]);
                let text = self.layout.recording.names.get(name);
                let architecture = self.device(device).and_then(|device| device.compute_capability);
                let numbers = self.stages.as_mut().map(|(_, numbers)| numbers);
                let kernel = (name.number(), device);
                numbers
                    .map(|numbers| numbers.kernel(kernel, text, architecture, packets))
                    .transpose()?
            }
            _ => None,
        };
        let stage_iid = match slice.source() {
            Source::Copy => COPY_STAGE,
            Source::Memset => MEMSET_STAGE,
            _ => KERNEL_STAGE,
        };
        let has_arguments = packets.has_arguments();
        packets.timed(slice.start_ns, |fields| {
            fields.message(packet::GPU_RENDER_STAGE_EVENT, |fields| {
                fields.uint(stage::EVENT_ID, self.flows.event_id(slice));
                let duration_ns = slice.end_ns.saturating_sub(slice.start_ns);
                fields.uint(stage::DURATION, duration_ns.cast_unsigned());
                fields.uint(stage::CONTEXT, context);
                fields.uint(stage::GPU_ID, gpu.into());
                fields.uint(stage::HW_QUEUE_IID, queue);
                fields.uint(stage::STAGE_IID, stage_iid);
                fields.uint(stage::NAME_IID, name);
                if let Some(kernel) = kernel {
                    fields.uint(stage::KERNEL_IID, kernel);
                }
                fields.message(stage::LAUNCH, |launch| {
                    if kernel.is_some() {
                        let grid = [
                            kernels.grid_x[index],
                            kernels.grid_y[index],
                            kernels.grid_z[index],
                        ];
                        let block = [
                            kernels.block_x[index],
                            kernels.block_y[index],
                            kernels.block_z[index],
                        ];
                        extent(launch, stage::GRID_SIZE, grid);
                        extent(launch, stage::WORKGROUP_SIZE, block);
                    }
                    let mut arguments = Arguments::of_launch(launch);
                    if !has_arguments {
                        // Perfetto groups operations by these.
                        self.write_place(slice, &mut arguments);
                        return;
                    }
                    self.write_arguments(slice, &mut arguments);
                    self.launch_arguments(slice, &mut arguments);
                });
            });
        })
    }

    /// Facts of the launch in the words of Perfetto's page for kernels.
    fn launch_arguments(&self, slice: &Slice, arguments: &mut Arguments<'_>) {
        if let Some(id) = self.collective_id(slice) {
            arguments.hexadecimal(Key::CollectiveId, id);
        }
        if slice.source() != Source::Kernel {
            return;
        }
        let kernels = &self.layout.process.tables.kernels;
        let index = slice.index as usize;
        let sizes = [
            kernels.grid_x[index],
            kernels.grid_y[index],
            kernels.grid_z[index],
            kernels.block_x[index],
            kernels.block_y[index],
            kernels.block_z[index],
        ];
        let threads = sizes
            .iter()
            .map(|&size| i64::from(size))
            .fold(1, i64::saturating_mul);
        arguments.int(Key::ThreadCount, threads);
        arguments.int(Key::SharedMemStatic, kernels.static_shared_bytes[index]);
        arguments.int(Key::SharedMemDynamic, kernels.dynamic_shared_bytes[index]);
        if kernels.shared_executed_bytes[index] != 0 {
            arguments.uint(Key::SharedMemConfig, kernels.shared_executed_bytes[index]);
        }
    }
}

/// Dim3: sizes are unsigned.
fn extent(fields: &mut ProtoBuffer, field: u32, sizes: [i32; 3]) {
    fields.message(field, |fields| {
        for (field, size) in (1..).zip(sizes) {
            fields.uint(field, u64::try_from(size).unwrap_or(0));
        }
    });
}
