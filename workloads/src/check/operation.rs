//! Running one operation on arrays from the host: what every check of a kernel does.

use cudarc::driver::result;

use super::numbers::{from_bytes, rounded, rounding_error, to_bytes, wide};
use super::report::{Report, worst_error, worst_relative_error};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, Queue};

/// What the elements of an array are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Of the type that the kernel is for.
    Typed,
    /// f32 for every type.
    Float,
    /// i32; on the host whole numbers.
    Int,
}

/// An array that an operation reads, and maybe changes.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) kind: Kind,
    pub(super) values: Vec<f32>,
}

impl Input {
    pub(super) fn typed(values: Vec<f32>) -> Self {
        let kind = Kind::Typed;
        Self { kind, values }
    }

    pub(super) fn float(values: Vec<f32>) -> Self {
        let kind = Kind::Float;
        Self { kind, values }
    }

    pub(super) fn int(values: Vec<f32>) -> Self {
        let kind = Kind::Int;
        Self { kind, values }
    }
}

/// Where a result is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// An array of its own, of so many elements.
    New(Kind, usize),
    /// In place of an input.
    Input(usize),
}

/// Launches kernels: queue, type, the inputs' addresses and those of the new outputs.
pub(super) type Launch<'a> = dyn Fn(&Queue<'_>, DataType, &[u64], &[u64]) -> Result<(), Error> + 'a;

/// Kernels with their arguments.
pub(super) struct Operation<'a> {
    pub(super) outputs: Vec<Output>,
    pub(super) launch: Box<Launch<'a>>,
}

impl<'a> Operation<'a> {
    pub(super) fn new(
        outputs: impl Into<Vec<Output>>,
        launch: impl Fn(&Queue<'_>, DataType, &[u64], &[u64]) -> Result<(), Error> + 'a,
    ) -> Self {
        Self {
            outputs: outputs.into(),
            launch: Box::new(launch),
        }
    }

    /// Runs it on the GPU and gives its outputs. New ones hold NaN before, so that what is not written shows.
    pub(super) fn run(&self, gpu: &Gpu, ty: DataType, inputs: &[Input]) -> Result<Vec<Vec<f32>>, Error> {
        let element = |kind| if kind == Kind::Typed { ty } else { DataType::F32 };
        let buffers = inputs
            .iter()
            .map(|input| match input.kind {
                Kind::Int => {
                    let bytes: Vec<u8> = input
                        .values
                        .iter()
                        .flat_map(|&value| (value as i32).to_le_bytes())
                        .collect();
                    upload(gpu, &bytes)
                }
                kind => upload(gpu, &to_bytes(element(kind), &input.values)),
            })
            .collect::<Result<Vec<Buffer>, Error>>()?;
        let mut new = Vec::new();
        for output in &self.outputs {
            if let &Output::New(kind, count) = output {
                new.push(upload(gpu, &to_bytes(element(kind), &vec![f32::NAN; count]))?);
            }
        }
        let addresses: Vec<u64> = buffers.iter().map(Buffer::address).collect();
        let new_addresses: Vec<u64> = new.iter().map(Buffer::address).collect();
        (self.launch)(&gpu.work(), ty, &addresses, &new_addresses)?;
        let mut new = new.iter();
        let mut results = Vec::new();
        for output in &self.outputs {
            let (kind, buffer) = match *output {
                Output::New(kind, _) => (kind, new.next()),
                Output::Input(index) => (inputs[index].kind, Some(&buffers[index])),
            };
            let bytes = match buffer {
                Some(buffer) => download(gpu, buffer)?,
                None => Vec::new(),
            };
            results.push(match kind {
                Kind::Int => bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&bytes| i32::from_le_bytes(bytes) as f32)
                    .collect(),
                kind => from_bytes(element(kind), &bytes),
            });
        }
        Ok(results)
    }

    /// Holds the f32 results against definitions, and those of the 16-bit variants against f32 results of the same
    /// inputs, which differ by one rounding.
    pub(super) fn check(
        &self,
        gpu: &Gpu,
        report: &mut Report,
        name: &str,
        inputs: &[Input],
        want: &[Vec<f64>],
        limit: f64,
    ) -> Result<(), Error> {
        let got = self.run(gpu, DataType::F32, inputs)?;
        let errors = got.iter().zip(want).map(|(got, want)| worst_error(got, want));
        let worst = errors.fold(0.0, f64::max);
        report.add(&format!("{name} f32"), worst, limit);
        self.check_types(gpu, report, name, inputs)
    }

    /// The 16-bit half of [`Operation::check`].
    pub(super) fn check_types(
        &self,
        gpu: &Gpu,
        report: &mut Report,
        name: &str,
        inputs: &[Input],
    ) -> Result<(), Error> {
        for ty in [DataType::Bf16, DataType::F16] {
            let inputs: Vec<Input> = inputs
                .iter()
                .map(|input| {
                    let mut input = input.clone();
                    if input.kind == Kind::Typed {
                        input.values = rounded(ty, &input.values);
                    }
                    input
                })
                .collect();
            let want = self.run(gpu, DataType::F32, &inputs)?;
            let got = self.run(gpu, ty, &inputs)?;
            let errors = got
                .iter()
                .zip(&want)
                .map(|(got, want)| worst_relative_error(got, &wide(want)));
            let worst = errors.fold(0.0, f64::max);
            let suffix = ty.suffix().trim_start_matches('_');
            // Besides the rounding, the variants may add in another order.
            report.add(
                &format!("{name} {suffix}"),
                worst,
                rounding_error(ty) * 1.01 + 1e-6,
            );
        }
        Ok(())
    }
}

/// Device memory with these bytes.
pub(super) fn upload(gpu: &Gpu, bytes: &[u8]) -> Result<Buffer, Error> {
    let buffer = gpu.buffer(bytes.len())?;
    // SAFETY: the buffer has room for the bytes; memory that is not pinned is read before the call returns.
    unsafe { result::memcpy_htod_async(buffer.address(), bytes, gpu.compute.cu_stream())? };
    Ok(buffer)
}

/// The bytes of device memory, once the compute stream is done with them.
pub(super) fn download(gpu: &Gpu, buffer: &Buffer) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0u8; buffer.bytes()];
    // SAFETY: the vector has room for the buffer's bytes and outlives the copy, which is waited for.
    unsafe { result::memcpy_dtoh_async(&mut bytes, buffer.address(), gpu.compute.cu_stream())? };
    gpu.compute.synchronize()?;
    Ok(bytes)
}
