//! Which GPU a command gets: the machine's own, or the simulated one.

use std::ffi::OsString;

use nvml_wrapper::Nvml;

use crate::cli::DeviceChoice;
use crate::failure::Failure;
use crate::libraries;

/// Names the device to a `gputrace workload` that another gputrace started and already set up.
pub const DEVICE_VARIABLE: &str = "GPUTRACE_DEVICE";

/// What a command runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The machine's own GPUs.
    Cuda,
    /// The stand-in.
    Sim,
}

impl Device {
    /// As the manifest and the JSON call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Sim => "sim",
        }
    }

    /// The variables that a command needs to run on this device.
    pub fn environment(self) -> Result<Vec<(OsString, OsString)>, Failure> {
        let mut variables = vec![(DEVICE_VARIABLE.into(), self.name().into())];
        if self == Self::Sim {
            variables.push((
                "LD_LIBRARY_PATH".into(),
                libraries::library_path_with(&libraries::stand_in_folder()?),
            ));
        }
        Ok(variables)
    }
}

/// How many GPUs NVIDIA's driver knows here; the error says why that can't be told.
pub fn count_gpus() -> Result<u32, String> {
    let nvml = Nvml::init().map_err(|error| error.to_string())?;
    nvml.device_count().map_err(|error| error.to_string())
}

/// Decides what a command runs on. `bundled`: whether it is one of our workloads; only those get the stand-in unasked.
pub fn choose(choice: DeviceChoice, bundled: bool) -> Result<Device, Failure> {
    match choice {
        DeviceChoice::Sim => Ok(Device::Sim),
        DeviceChoice::Cuda => match count_gpus() {
            Ok(count) if count > 0 => Ok(Device::Cuda),
            Ok(_) => Err(Failure::new(
                "--device cuda: the driver knows no GPU here; `gputrace doctor` says more",
            )),
            Err(error) => Err(Failure::new(format!(
                "--device cuda: no GPU can be used here ({error}); `gputrace doctor` says more"
            ))),
        },
        DeviceChoice::Auto if bundled && !count_gpus().is_ok_and(|count| count > 0) => Ok(Device::Sim),
        DeviceChoice::Auto => Ok(Device::Cuda),
    }
}
