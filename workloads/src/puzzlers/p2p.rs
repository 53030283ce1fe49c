//! `p2p`: one GPU copies the same tensors to several others, a stream for each; why do the copies take unequal time?

use std::sync::Arc;

use clap::Args;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result};

use super::link::{Link, Links};
use super::{
    Memory, bytes_text, device_count, gigabytes_per_second, json, microseconds_between, open_device,
    parse_bytes, timed_event,
};
use crate::error::Error;
use crate::gpu::enable_peer_access;
use crate::nvtx::Range;
use crate::rank::Rank;

/// What `p2p` can be asked for.
#[derive(Args, Debug, Clone)]
pub(crate) struct P2pOptions {
    /// GPUs: one copies to all others
    #[arg(long, default_value = "4", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) ranks: u32,
    /// The GPU that copies
    #[arg(long, default_value = "0", value_name = "GPU")]
    pub(crate) source: u32,
    /// Bytes of each tensor, such as 256K,1M,4M [default: sized for the device]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) tensors: Option<Vec<usize>>,
    /// How often the list is copied; times are means
    #[arg(long, visible_alias = "steps", default_value = "3", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) iterations: u32,
    /// Leave peer access off: copies go through the host's memory
    #[arg(long)]
    pub(crate) no_peer_access: bool,
    /// Copy also one after the other on one stream, each link alone
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Don't compare what arrived with what was sent
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl P2pOptions {
    /// How many processes it takes: one, with all GPUs. What can be told wrong without a GPU is told here.
    pub(crate) fn processes(&self) -> Result<u32, Error> {
        if self.source >= self.ranks {
            return Err(Error::new(format!(
                "--source {}: with --ranks {} the GPUs are 0 to {}",
                self.source,
                self.ranks,
                self.ranks - 1
            )));
        }
        Ok(1)
    }
}

/// One GPU that receives.
struct Destination {
    device: usize,
    context: Arc<CudaContext>,
    /// On the source's GPU: its copy engines do the work.
    stream: Arc<CudaStream>,
    tensors: Vec<Memory>,
    link: Link,
}

/// One tensor's way to one GPU: times are means over the iterations.
#[derive(Clone)]
struct Copy {
    bytes: usize,
    to: usize,
    /// From the pass's start to the copy's.
    start_us: f64,
    time_us: f64,
}

/// Everything that is copied, and between what.
struct Machine {
    name: String,
    source: usize,
    context: Arc<CudaContext>,
    tensors: Vec<Memory>,
    destinations: Vec<Destination>,
}

/// Byte `index` of tensor `tensor`: no two neighbours and no two tensors alike.
fn pattern(tensor: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index.wrapping_mul(0x9e37_79b1) >> 11).wrapping_add(tensor * 29) as u8)
        .collect()
}

impl Machine {
    fn open(options: &P2pOptions) -> Result<Self, Error> {
        let (ranks, source) = (options.ranks as usize, options.source as usize);
        let count = device_count()?;
        if ranks > count {
            return Err(Error::new(format!(
                "--ranks {ranks}: {ranks} GPUs are needed, this process sees {count}"
            )));
        }
        let contexts = (0..ranks).map(open_device).collect::<Result<Vec<_>, _>>()?;
        let links = Links::open(&contexts);
        let context = Arc::clone(&contexts[source]);
        let name = context.name()?;
        let sizes = options.tensors.clone().unwrap_or_else(|| {
            if name.starts_with("Simulated") {
                vec![256 << 10, 1 << 20, 4 << 20]
            } else {
                vec![16 << 20, 64 << 20, 256 << 20]
            }
        });
        let mut destinations = Vec::new();
        for (device, peer) in contexts
            .iter()
            .enumerate()
            .filter(|(device, _)| *device != source)
        {
            // Both ways: whichever of the two drives the copy then reaches the other's memory.
            let direct = !options.no_peer_access
                && enable_peer_access(&context, peer)?
                && enable_peer_access(peer, &context)?;
            let tensors = sizes
                .iter()
                .map(|bytes| Memory::new(peer, *bytes))
                .collect::<Result<Vec<_>, _>>()?;
            context.bind_to_thread()?;
            destinations.push(Destination {
                device,
                context: Arc::clone(peer),
                stream: context.new_stream()?,
                tensors,
                link: links.between(source, device, direct),
            });
        }
        context.bind_to_thread()?;
        let tensors = sizes
            .iter()
            .enumerate()
            .map(|(tensor, bytes)| {
                let memory = Memory::new(&context, *bytes)?;
                memory.write(0, &pattern(tensor, *bytes))?;
                Ok(memory)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            name,
            source,
            context,
            tensors,
            destinations,
        })
    }

    fn enqueue(&self, tensor: usize, to: &Destination, stream: &CudaStream) -> Result<(), Error> {
        let bytes = self.tensors[tensor].bytes;
        let _range = Range::new(&format!(
            "copy {} GPU {} -> GPU {}",
            bytes_text(bytes),
            self.source,
            to.device
        ));
        // SAFETY: both buffers hold `bytes` and live until the streams were waited for; each is in the context given.
        unsafe {
            result::memcpy_peer_async(
                to.context.cu_ctx(),
                to.tensors[tensor].address,
                self.context.cu_ctx(),
                self.tensors[tensor].address,
                bytes,
                stream.cu_stream(),
            )?;
        }
        Ok(())
    }

    /// Copies every tensor to every GPU, `iterations` times: at the same time, or one after the other on one stream.
    fn pass(&self, name: &str, iterations: u32, sequential: bool) -> Result<Vec<Copy>, Error> {
        let _range = Range::new(name);
        let mut sums: Vec<Copy> = Vec::new();
        for _ in 0..iterations {
            let times = self.once(sequential)?;
            if sums.is_empty() {
                sums = times;
            } else {
                for (sum, copy) in sums.iter_mut().zip(times) {
                    sum.start_us += copy.start_us;
                    sum.time_us += copy.time_us;
                }
            }
        }
        for copy in &mut sums {
            copy.start_us /= f64::from(iterations);
            copy.time_us /= f64::from(iterations);
        }
        Ok(sums)
    }

    fn once(&self, sequential: bool) -> Result<Vec<Copy>, Error> {
        let first = &self.destinations[0].stream;
        let begin = timed_event(&self.context)?;
        begin.record(first)?;
        let mut marks: Vec<(usize, usize, [CudaEvent; 2])> = Vec::new();
        for destination in &self.destinations {
            let stream = if sequential { first } else { &destination.stream };
            // All streams begin together.
            stream.wait(&begin)?;
            for tensor in 0..self.tensors.len() {
                let events = [timed_event(&self.context)?, timed_event(&self.context)?];
                events[0].record(stream)?;
                self.enqueue(tensor, destination, stream)?;
                events[1].record(stream)?;
                marks.push((tensor, destination.device, events));
            }
        }
        for destination in &self.destinations {
            destination.stream.synchronize()?;
        }
        marks
            .iter()
            .map(|(tensor, to, [start, end])| {
                Ok(Copy {
                    bytes: self.tensors[*tensor].bytes,
                    to: *to,
                    start_us: microseconds_between(&begin, start)?,
                    time_us: microseconds_between(start, end)?,
                })
            })
            .collect()
    }

    /// How many bytes arrived wrong.
    fn wrong_bytes(&self) -> Result<usize, Error> {
        let mut wrong = 0;
        for destination in &self.destinations {
            for (tensor, buffer) in destination.tensors.iter().enumerate() {
                let arrived = buffer.read(0, buffer.bytes)?;
                let sent = pattern(tensor, arrived.len());
                wrong += arrived
                    .iter()
                    .zip(&sent)
                    .filter(|(one, other)| one != other)
                    .count();
            }
        }
        self.context.bind_to_thread()?;
        Ok(wrong)
    }
}

/// From a pass's start to the end of its last copy.
fn length_us(copies: &[Copy]) -> f64 {
    copies
        .iter()
        .map(|copy| copy.start_us + copy.time_us)
        .fold(0.0, f64::max)
}

/// One GPU's copies together.
#[derive(Debug, Clone, PartialEq)]
struct Total {
    to: usize,
    bytes: usize,
    time_us: f64,
}

fn totals(copies: &[Copy]) -> Vec<Total> {
    let mut totals: Vec<Total> = Vec::new();
    for copy in copies {
        match totals.iter_mut().find(|total| total.to == copy.to) {
            Some(total) => {
                total.bytes += copy.bytes;
                total.time_us += copy.time_us;
            }
            None => totals.push(Total {
                to: copy.to,
                bytes: copy.bytes,
                time_us: copy.time_us,
            }),
        }
    }
    totals
}

/// From this ratio on times are called unequal.
const UNEQUAL: f64 = 1.15;

/// Why the copies took as long as they did, a line for each thing to know. `alone` are the times without company.
fn reasons(links: &[(usize, Link)], together: &[Total], alone: Option<&[Total]>) -> Vec<String> {
    let link_of = |to: usize| {
        links
            .iter()
            .find(|(device, _)| *device == to)
            .map(|(_, link)| link)
    };
    let time_of = |totals: &[Total], to: usize| {
        totals
            .iter()
            .find(|total| total.to == to)
            .map(|total| total.time_us)
    };
    let Some(fastest) = together.iter().min_by(|a, b| a.time_us.total_cmp(&b.time_us)) else {
        return Vec::new();
    };
    let Some(fast_link) = link_of(fastest.to) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for total in together.iter().filter(|total| total.to != fastest.to) {
        let (Some(link), ratio) = (link_of(total.to), total.time_us / fastest.time_us) else {
            continue;
        };
        if ratio < UNEQUAL {
            continue;
        }
        let took = format!(
            "GPU {} took {ratio:.1} times as long as GPU {}",
            total.to, fastest.to
        );
        let alone_ratio =
            alone.and_then(|alone| Some(time_of(alone, total.to)? / time_of(alone, fastest.to)?));
        if link.way() != fast_link.way() {
            let alone = alone_ratio.map_or_else(String::new, |ratio| format!(" (alone {ratio:.1} times)"));
            lines.push(format!(
                "{took}{alone}: {}, against {}",
                link.words(),
                fast_link.words()
            ));
            continue;
        }
        let same = if link.name() == "?" {
            "over a link that NVML tells nothing of".to_owned()
        } else {
            format!("over the same kind of link: {}", link.words())
        };
        lines.push(match alone_ratio {
            Some(ratio) if ratio < UNEQUAL => {
                format!(
                    "{took} {same}; alone they are equally fast, so the copies share something on the way"
                )
            }
            Some(ratio) => {
                format!("{took} {same}; and alone {ratio:.1} times: this link is slower than the other")
            }
            None => {
                format!("{took} {same}; it is slower than the other, or shared: --sequential tells which")
            }
        });
    }
    if lines.is_empty() {
        lines.push(if together.len() == 1 {
            format!("one GPU, one link: {}", fast_link.words())
        } else {
            format!(
                "all took the same time within {:.0} %: {}",
                (UNEQUAL - 1.0) * 100.0,
                fast_link.words()
            )
        });
    }
    if let Some(alone) = alone {
        let slower: Vec<_> = together
            .iter()
            .filter_map(|total| {
                let ratio = total.time_us / time_of(alone, total.to)?;
                (ratio >= UNEQUAL).then(|| format!("GPU {} {ratio:.1} times", total.to))
            })
            .collect();
        if !slower.is_empty() {
            lines.push(format!(
                "in company copies take longer than alone ({}): they share the way out of the source",
                slower.join(", ")
            ));
        }
    }
    lines
}

fn print_pass(title: &str, machine: &Machine, copies: &[Copy]) {
    println!("#\n# {title}");
    println!(
        "#{:>11} {:>5} {:>5} {:>6} {:>9} {:>11} {:>11} {:>9}",
        "bytes", "from", "to", "link", "path", "start(us)", "time(us)", "GB/s"
    );
    for copy in copies {
        let link = machine
            .destinations
            .iter()
            .find(|destination| destination.device == copy.to);
        let (name, path) = link.map_or(("?".to_owned(), "?"), |destination| {
            (destination.link.name(), destination.link.path())
        });
        println!(
            "{:>12} {:>5} {:>5} {:>6} {:>9} {:>11.1} {:>11.1} {:>9.3}",
            copy.bytes,
            machine.source,
            copy.to,
            name,
            path,
            copy.start_us,
            copy.time_us,
            gigabytes_per_second(copy.bytes, copy.time_us)
        );
    }
}

fn pass_json(copies: &[Copy]) -> String {
    json::array(copies.iter().map(|copy| {
        json::object(&[
            ("bytes", copy.bytes.to_string()),
            ("to", copy.to.to_string()),
            ("start_us", json::number(copy.start_us)),
            ("time_us", json::number(copy.time_us)),
            (
                "gb_s",
                json::number(gigabytes_per_second(copy.bytes, copy.time_us)),
            ),
        ])
    }))
}

fn link_json(destination: &Destination) -> String {
    let link = &destination.link;
    json::object(&[
        ("to", destination.device.to_string()),
        ("link", json::string(&link.name())),
        ("peer_access", link.direct.to_string()),
        ("path", json::string(link.path())),
        ("peak_gb_s", json::optional(link.peak_gb_s().map(json::number))),
        ("words", json::string(&link.words())),
    ])
}

/// Runs `p2p`; 1 when a byte arrived wrong.
pub(crate) fn run(options: &P2pOptions, rank: &Rank) -> Result<i32, Error> {
    options.processes()?;
    if rank.ranks != 1 {
        return Err(Error::new(
            "p2p is one process with several GPUs: start it once, --ranks says how many GPUs",
        ));
    }
    let machine = Machine::open(options)?;
    // The first copy over a link makes the mappings.
    machine.pass("warm-up", 1, false)?;
    let together = machine.pass("concurrent", options.iterations, false)?;
    let alone = options
        .sequential
        .then(|| machine.pass("sequential", options.iterations, true))
        .transpose()?;
    let wrong = if options.no_check {
        0
    } else {
        machine.wrong_bytes()?
    };
    let links: Vec<_> = machine
        .destinations
        .iter()
        .map(|destination| (destination.device, destination.link.clone()))
        .collect();
    let reasons = reasons(
        &links,
        &totals(&together),
        alone.as_deref().map(totals).as_deref(),
    );
    if options.json {
        println!(
            "{}",
            json::object(&[
                ("device", json::string(&machine.name)),
                ("source", machine.source.to_string()),
                ("links", json::array(machine.destinations.iter().map(link_json))),
                ("concurrent", pass_json(&together)),
                ("sequential", json::optional(alone.as_deref().map(pass_json))),
                (
                    "why",
                    json::array(reasons.iter().map(|reason| json::string(reason)))
                ),
                ("wrong_bytes", wrong.to_string()),
            ])
        );
        return Ok(i32::from(wrong > 0));
    }
    println!(
        "# {}: GPU {} copies {} to {} GPUs, mean of {}",
        machine.name,
        machine.source,
        match machine.tensors.len() {
            1 => "a tensor".to_owned(),
            count => format!("{count} tensors"),
        },
        machine.destinations.len(),
        options.iterations
    );
    for destination in &machine.destinations {
        println!(
            "# GPU {} -> GPU {}: {:<5} {}",
            machine.source,
            destination.device,
            destination.link.name(),
            destination.link.words()
        );
    }
    print_pass("concurrent: a stream for each GPU", &machine, &together);
    if let Some(alone) = &alone {
        print_pass(
            "sequential: one stream, one copy after the other",
            &machine,
            alone,
        );
    }
    println!("#\n# why");
    for reason in &reasons {
        println!("# {reason}");
    }
    if let Some(alone) = &alone {
        println!(
            "# all of it took {:.1} us at once, {:.1} us one after the other",
            length_us(&together),
            length_us(alone)
        );
    }
    if !options.no_check {
        println!(
            "# Wrong bytes          : {wrong} {}",
            if wrong == 0 { "OK" } else { "FAILED" }
        );
    }
    Ok(i32::from(wrong > 0))
}

#[cfg(test)]
mod tests {
    use super::super::link::Ancestor;
    use super::*;

    fn nvlink(nvlinks: u32) -> Link {
        Link {
            nvlinks,
            nvlink_version: Some(4),
            ancestor: Some(Ancestor::Node),
            pcie: Some((5, 16)),
            direct: true,
        }
    }

    fn total(to: usize, time_us: f64) -> Total {
        Total {
            to,
            bytes: 1000,
            time_us,
        }
    }

    #[test]
    fn an_unequal_link_is_named_as_the_reason() {
        let links = [(1, nvlink(18)), (2, nvlink(0)), (3, nvlink(18))];
        let lines = reasons(&links, &[total(1, 10.0), total(2, 70.0), total(3, 11.0)], None);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("GPU 2 took 7.0 times as long as GPU 1: "),
            "{lines:?}"
        );
        assert!(lines[0].contains("against 18 x NVLink 4"), "{lines:?}");
    }

    #[test]
    fn a_slow_link_and_a_shared_one_are_told_apart() {
        let links = [(1, nvlink(18)), (2, nvlink(18))];
        let together = [total(1, 10.0), total(2, 40.0)];
        let slow = reasons(&links, &together, Some(&[total(1, 10.0), total(2, 40.0)]));
        assert!(
            slow[0].contains("slower than the other") && !slow[0].contains("or shared"),
            "{slow:?}"
        );
        let shared = reasons(&links, &together, Some(&[total(1, 10.0), total(2, 10.0)]));
        assert!(shared[0].contains("share something"), "{shared:?}");
        assert!(shared[1].contains("GPU 2 4.0 times"), "{shared:?}");
    }

    #[test]
    fn equal_links_are_called_equal() {
        let lines = reasons(
            &[(1, nvlink(18)), (2, nvlink(18))],
            &[total(1, 10.0), total(2, 10.5)],
            None,
        );
        assert!(lines[0].starts_with("all took the same time"), "{lines:?}");
    }

    #[test]
    fn patterns_differ_between_tensors() {
        assert_ne!(pattern(0, 64), pattern(1, 64));
        assert_eq!(pattern(1, 64), pattern(1, 64));
    }
}
