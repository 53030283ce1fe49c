//! NVML's values by number (nvmlDeviceGetFieldValues): what the wrapper's own calls do not give.
//!
//! The wrapper's call leaves out the link that a value is of, and so gives the first NVLink's alone; it is called here
//! directly for all of them.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_ECC_DBE_VOL_TOTAL, NVML_FI_DEV_ECC_SBE_VOL_TOTAL, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
};
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

/// One value.
pub struct Field {
    /// NVML_FI_DEV_*.
    pub id: u32,
    /// As notes call it.
    pub what: &'static str,
    /// The counter that it becomes.
    pub counter: &'static str,
    /// For a value that counts up, of which the rate is kept: bytes of a unit.
    pub rate_of: Option<f64>,
}

/// What PCIe's counters are called; where they are missing there is another way.
pub const PCIE: &str = "count of PCIe bytes";
const NVLINK: &str = "NVLink throughput";
const ECC: &str = "ECC errors";

/// Those that are read.
pub const FIELDS: &[Field] = &[
    Field {
        id: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        what: NVLINK,
        counter: "nvlink_sent_bytes_per_second",
        rate_of: Some(1024.0),
    },
    Field {
        id: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        what: NVLINK,
        counter: "nvlink_received_bytes_per_second",
        rate_of: Some(1024.0),
    },
    Field {
        id: NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        what: PCIE,
        counter: "pcie_sent_bytes_per_second",
        rate_of: Some(1.0),
    },
    Field {
        id: NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        what: PCIE,
        counter: "pcie_received_bytes_per_second",
        rate_of: Some(1.0),
    },
    Field {
        id: NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
        what: ECC,
        counter: "ecc_corrected_errors",
        rate_of: None,
    },
    Field {
        id: NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
        what: ECC,
        counter: "ecc_uncorrected_errors",
        rate_of: None,
    },
];

/// The scope that means all links together; other values ignore it.
const ALL_LINKS: u32 = u32::MAX;

/// Reads them with one call.
pub fn read(device: &Device<'_>, fields: &[&Field]) -> Result<Vec<Result<u64, NvmlError>>, NvmlError> {
    let call = device
        .nvml()
        .lib()
        .nvmlDeviceGetFieldValues
        .as_ref()
        .map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let mut values: Vec<nvmlFieldValue_t> = fields
        .iter()
        .map(|field| {
            // SAFETY: a C struct of integers and a union of numbers: all zeros is a value of it.
            let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            value.fieldId = field.id;
            value.scopeId = if field.what == NVLINK { ALL_LINKS } else { 0 };
            value
        })
        .collect();
    let count = i32::try_from(values.len()).unwrap_or(i32::MAX);
    // SAFETY: the handle is the device's own, which NVML keeps until it is shut down, after all devices are gone; the
    // values are as many as is said, and NVML fills them in.
    nvml_try(unsafe { call(device.handle(), count, values.as_mut_ptr()) })?;
    Ok(values.iter().map(value_of).collect())
}

fn value_of(value: &nvmlFieldValue_t) -> Result<u64, NvmlError> {
    nvml_try(value.nvmlReturn)?;
    // SAFETY: every member of the union is a number of at most eight bytes, all of which NVML or we have filled in.
    let number = unsafe {
        match value.valueType {
            // nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, long long, int, unsigned short.
            0 => value.value.dVal as u64,
            1 => u64::from(value.value.uiVal),
            2 => value.value.ulVal,
            3 => value.value.ullVal,
            4 => u64::try_from(value.value.sllVal).unwrap_or(0),
            5 => u64::try_from(value.value.siVal).unwrap_or(0),
            6 => u64::from(value.value.usVal),
            _ => return Err(NvmlError::NotSupported),
        }
    };
    Ok(number)
}
