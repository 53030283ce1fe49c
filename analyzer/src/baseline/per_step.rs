//! Series being filled: what each device took in each step, by what took it.

use std::collections::BTreeMap;

use super::model::{By, Series};

/// What series are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) by: By,
    pub(super) name: String,
    pub(super) what: &'static str,
}

#[derive(Clone, Debug, Default)]
struct OfDevice {
    values: Vec<i64>,
    count: u64,
}

/// All series of a run, by device.
pub(super) struct PerStep {
    steps: usize,
    devices: usize,
    all: BTreeMap<Key, BTreeMap<u32, OfDevice>>,
}

impl PerStep {
    pub(super) fn new(steps: usize, devices: usize) -> Self {
        Self {
            steps,
            devices,
            all: BTreeMap::new(),
        }
    }

    /// Adds to what a device took in a step.
    pub(super) fn add(&mut self, key: Key, device: u32, step: usize, time_ns: i64, count: u32) {
        let of_device = self.all.entry(key).or_default().entry(device).or_default();
        of_device.values.resize(self.steps, 0);
        let value = &mut of_device.values[step];
        *value = value.saturating_add(time_ns);
        of_device.count += u64::from(count);
    }

    /// Each device's series and their means over all devices (0 where a device has none), longest first.
    pub(super) fn series(self) -> Vec<Series> {
        let mut series = Vec::new();
        let devices = i128::try_from(self.devices.max(1)).unwrap_or(1);
        for (key, of_devices) in self.all {
            let mut sums = vec![0i128; self.steps];
            let (mut total, mut count) = (0i64, 0);
            let of = |values, total_ns, count, device| Series {
                by: key.by,
                name: key.name.clone(),
                what: key.what.to_owned(),
                device,
                values,
                total_ns,
                count,
            };
            let alone = self.devices == 1;
            for (device, of_device) in of_devices {
                let sum = crate::statistics::sum(&of_device.values);
                for (sum, value) in sums.iter_mut().zip(&of_device.values) {
                    *sum += i128::from(*value);
                }
                total = total.saturating_add(sum);
                count += of_device.count;
                // Of one device alone this is the mean too.
                if !alone {
                    series.push(of(of_device.values, sum, of_device.count, Some(device)));
                }
            }
            let means = sums.into_iter().map(|sum| sum.div_euclid(devices) as i64);
            series.push(of(means.collect(), total, count, None));
        }
        series.sort_by(|a, b| {
            let order = |series: &Series| (std::cmp::Reverse(series.total_ns), series.by, series.device);
            order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name))
        });
        series
    }
}
