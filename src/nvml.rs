//! Opening NVML: the driver's, or the simulated GPUs'.

use nvml_wrapper::Nvml;

use crate::device::Device;
use crate::libraries;

/// NVML for a device; the error says why there is none.
pub fn open(device: Device) -> Result<Nvml, String> {
    let opened = match device {
        Device::Cuda => Nvml::init(),
        Device::Sim => {
            let folder = libraries::stand_in_folder().map_err(|failure| failure.to_string())?;
            Nvml::builder()
                .lib_path(folder.join("libnvidia-ml.so.1").as_os_str())
                .init()
        }
    };
    opened.map_err(|error| error.to_string())
}

/// A UUID of NVML ("GPU-6ee0..., with dashes") as CUPTI's records have it: 32 hexadecimal digits.
pub fn plain_uuid(uuid: &str) -> String {
    let digits = uuid.strip_prefix("GPU-").unwrap_or(uuid);
    digits.replace('-', "").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_lose_their_dress() {
        let plain = "6ee0a1b2c3d4e5f60718293a4b5c6d7e";
        assert_eq!(plain_uuid("GPU-6EE0a1b2-c3d4-e5f6-0718-293a4b5c6d7e"), plain);
        assert_eq!(plain_uuid(plain), plain);
    }
}
