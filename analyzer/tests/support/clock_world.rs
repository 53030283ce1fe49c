//! Hosts with clocks that are wrong in known ways, and the collectives of their ranks.

#![allow(dead_code, reason = "test and bench each use a part")]

use gputrace_analyzer::clocks::{Estimated, Meeting, Member, estimate};

/// Numbers that look random: SplitMix64.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Evenly from 0 to 1.
    pub fn even(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly from -1 to 1.
    pub fn about(&mut self) -> f64 {
        2.0 * self.even() - 1.0
    }

    /// Normal, of variance 1.
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (self.even().max(1e-300), self.even());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// Exponential, of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.even().max(1e-300).ln()
    }
}

/// What is wrong, and how much there is to see it by.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub hosts: usize,
    /// Ranks of each host.
    pub ranks: usize,
    pub collectives: usize,
    /// Seconds from one collective to the next.
    pub apart_s: f64,
    /// Clocks are off by at most this.
    pub offset_s: f64,
    /// And drift by at most this.
    pub drift_ppm: f64,
    /// Microseconds in a second.
    pub wander_us: f64,
    /// How often a clock is set, of all together, and by at most how much; at least by a tenth of that.
    pub steps: usize,
    pub step_ms: f64,
    /// Scatter of ends, microseconds.
    pub scatter_us: f64,
    /// Share of ends that come late, and by how much in the mean.
    pub late: f64,
    pub late_us: f64,
    /// A host leaves a kind of collective later by at most this, always.
    pub bias_us: f64,
    pub kinds: u32,
    /// A host leaves all kinds later by at most this, always.
    pub common_us: f64,
    /// A host begins a kind later than its stamps say by at most this, always.
    pub begins_us: f64,
    /// By how much collectives take longer or less long than usual, of that; at most.
    pub uneven: f64,
    /// Stamps of the first host, the third and so on are multiples of the first, those of the others of the second.
    pub quantum_ns: [i64; 2],
    /// Share of collectives that a rank of the first host lacks.
    pub lacking: f64,
    /// Each host meets only the one before it.
    pub chain: bool,
    /// Share of collectives that are matched with the one before.
    pub mismatched: f64,
}

pub const PLAIN: World = World {
    hosts: 2,
    ranks: 4,
    collectives: 200,
    apart_s: 0.05,
    offset_s: 1.0,
    drift_ppm: 100.0,
    wander_us: 0.0,
    steps: 0,
    step_ms: 0.0,
    scatter_us: 2.0,
    late: 0.0,
    late_us: 0.0,
    bias_us: 0.0,
    kinds: 4,
    common_us: 0.0,
    begins_us: 0.0,
    uneven: 0.0,
    quantum_ns: [1; 2],
    lacking: 0.0,
    chain: false,
    mismatched: 0.0,
};

/// One host's clock, at each collective and once between.
struct Clock {
    offset_ns: f64,
    drift: f64,
    /// The wandering at grid points.
    walk: Vec<f64>,
    grid_s: f64,
    steps: Vec<(f64, f64)>,
}

impl Clock {
    /// What it shows beyond the truth.
    fn ahead(&self, time_s: f64) -> f64 {
        let place = (time_s / self.grid_s).max(0.0);
        let index = (place as usize).min(self.walk.len() - 2);
        let part = place - index as f64;
        let walk = self.walk[index] + (self.walk[index + 1] - self.walk[index]) * part.min(1.0);
        let set = self.steps.iter().filter(|(when, _)| *when <= time_s);
        let set: f64 = set.map(|(_, by)| by).sum();
        self.offset_ns + self.drift * time_s * 1e9 + walk + set
    }

    fn stamp(&self, time_s: f64, quantum_ns: i64) -> i64 {
        const BEGIN_NS: i64 = 1_700_000_000_000_000_000;
        let ns = BEGIN_NS + (time_s * 1e9).round() as i64 + self.ahead(time_s).round() as i64;
        ns.div_euclid(quantum_ns) * quantum_ns
    }
}

/// How estimates of a world's clocks turned out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Moments that were looked at, and those in which the true offset was inside the 99 % interval, and inside the bounds.
    pub moments: usize,
    pub covered: usize,
    pub bounded: usize,
    /// Distances of estimates from the truth, and half widths, nanoseconds.
    pub errors: Vec<f64>,
    pub widths: Vec<f64>,
}

impl World {
    fn clocks(&self, draw: &mut Draw) -> Vec<Clock> {
        let length_s = (self.collectives + 2) as f64 * self.apart_s;
        let points = (8 * self.collectives + 16).min(400_000);
        let grid_s = length_s / points as f64;
        let mut clocks: Vec<Clock> = (0..self.hosts)
            .map(|_| {
                let mut walk = vec![0.0];
                for place in 0..points {
                    let step = self.wander_us * 1e3 * grid_s.sqrt() * draw.normal();
                    walk.push(walk[place] + step);
                }
                Clock {
                    offset_ns: self.offset_s * 1e9 * draw.about(),
                    drift: self.drift_ppm * 1e-6 * draw.about(),
                    walk,
                    grid_s,
                    steps: Vec::new(),
                }
            })
            .collect();
        for _ in 0..self.steps {
            let host = 1 + (draw.even() * (self.hosts - 1) as f64) as usize;
            // Two that lie closer together are found as one.
            let mut when = length_s * (0.2 + 0.6 * draw.even());
            while clocks[host]
                .steps
                .iter()
                .any(|(other, _): &(f64, f64)| (when - other).abs() < 24.0 * self.apart_s)
            {
                when = length_s * (0.2 + 0.6 * draw.even());
            }
            let by = draw.about();
            clocks[host]
                .steps
                .push((when, self.step_ms * 1e6 * (0.1 * by.signum() + 0.9 * by)));
        }
        clocks
    }

    /// Lets the ranks meet and estimates the clocks: what comes out for each, against the truth.
    pub fn meet(&self, seed: u64) -> (Vec<Meeting>, impl Fn(&[Estimated], &mut Outcome)) {
        let world = *self;
        let mut draw = Draw::new(seed);
        let clocks = self.clocks(&mut draw);
        // How late each host leaves each kind, and how long each kind takes.
        let bias: Vec<Vec<f64>> = (0..self.hosts)
            .map(|_| (0..self.kinds).map(|_| self.bias_us * draw.even()).collect())
            .collect();
        // Drawn apart, so that whoever asks for none of it gets the world that was.
        let mut apart = Draw::new(seed ^ 0x5ca1_ab1e);
        let common: Vec<f64> = (0..self.hosts).map(|_| self.common_us * apart.even()).collect();
        let begins: Vec<Vec<f64>> = (0..self.hosts)
            .map(|_| (0..self.kinds).map(|_| self.begins_us * apart.even()).collect())
            .collect();
        let takes: Vec<f64> = (0..self.kinds)
            .map(|_| 20.0 * 10f64.powf(2.0 * draw.even()))
            .collect();
        let mut meetings = Vec::with_capacity(self.collectives);
        let mut before: Option<Vec<(i64, i64)>> = None;
        for number in 0..self.collectives {
            let kind = (draw.even() * f64::from(self.kinds)) as u32 % self.kinds;
            // A training step: when the last rank arrives is not even.
            let arrived_s = (number as f64 + 1.0 + 0.5 * draw.even()) * self.apart_s;
            let takes_us = takes[kind as usize] * (1.0 + self.uneven * apart.about());
            let last = (draw.even() * (self.hosts * self.ranks) as f64) as usize;
            let over_s = arrived_s + (takes_us + begins[last / self.ranks][kind as usize]) * 1e-6;
            let mut members = Vec::new();
            let hosts = if self.chain {
                let first = number % (self.hosts - 1);
                first..first + 2
            } else {
                0..self.hosts
            };
            for host in hosts {
                for rank in 0..self.ranks {
                    let waits_us = if host * self.ranks + rank == last {
                        0.0
                    } else {
                        50.0 * draw.exponential()
                    };
                    let mut late_us =
                        common[host] + bias[host][kind as usize] + (self.scatter_us * draw.normal()).abs();
                    if draw.even() < self.late {
                        late_us += self.late_us * draw.exponential();
                    }
                    let stamp = |time_s: f64| clocks[host].stamp(time_s, self.quantum_ns[host % 2]);
                    let member = Member {
                        clock: host as u32,
                        start_ns: stamp(arrived_s - waits_us * 1e-6),
                        end_ns: stamp(over_s + late_us * 1e-6),
                    };
                    if !(host == 0 && rank == 0 && draw.even() < self.lacking) {
                        members.push(member);
                    }
                }
            }
            let stamps = members
                .iter()
                .map(|member| (member.start_ns, member.end_ns))
                .collect();
            if draw.even() < self.mismatched
                && let Some(before) = &before
            {
                for (member, (start_ns, end_ns)) in members.iter_mut().zip(before) {
                    if member.clock == 1 {
                        (member.start_ns, member.end_ns) = (*start_ns, *end_ns);
                    }
                }
            }
            before = Some(stamps);
            meetings.push(Meeting {
                class: kind,
                kind,
                work: kind,
                members,
            });
        }
        let judge = move |estimated: &[Estimated], outcome: &mut Outcome| {
            const MOMENTS: usize = 60;
            for (host, estimate) in estimated.iter().enumerate() {
                let reference = estimate.reference as usize;
                if reference == host {
                    continue;
                }
                for moment in 0..MOMENTS {
                    let share = (moment as f64 + 0.5) / MOMENTS as f64;
                    let time_s = world.apart_s * (1.5 + share * (world.collectives as f64 - 1.0));
                    let local_ns = clocks[host].stamp(time_s, 1);
                    let truth = (local_ns - clocks[reference].stamp(time_s, 1)) as f64;
                    let found = estimate.course.at(local_ns);
                    let off = (found.offset_ns as f64 - truth).abs();
                    outcome.moments += 1;
                    outcome.covered += usize::from(off <= found.half_width_ns as f64);
                    let (low, high) = estimate
                        .course
                        .bounds_at(local_ns)
                        .unwrap_or((i64::MIN, i64::MAX));
                    outcome.bounded += usize::from(low as f64 <= truth && truth <= high as f64);
                    outcome.errors.push(off);
                    outcome.widths.push(found.half_width_ns as f64);
                }
            }
        };
        (meetings, judge)
    }

    /// The same for several seeds.
    pub fn judge(&self, seeds: std::ops::Range<u64>) -> Outcome {
        let mut outcome = Outcome::default();
        for seed in seeds {
            let (meetings, judge) = self.meet(seed);
            judge(&estimate(self.hosts, &meetings), &mut outcome);
        }
        outcome
    }
}

impl Outcome {
    pub fn coverage(&self) -> f64 {
        self.covered as f64 / self.moments.max(1) as f64
    }

    pub fn is_always_bounded(&self) -> bool {
        self.bounded == self.moments
    }

    /// The value that a share of all do not exceed.
    pub fn quantile(values: &[f64], share: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let place = (share * (sorted.len().max(1) - 1) as f64).round() as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }

    /// The root of the mean of the squares of the errors.
    pub fn deviation(&self) -> f64 {
        let squares: f64 = self.errors.iter().map(|error| error * error).sum();
        (squares / self.errors.len().max(1) as f64).sqrt()
    }
}

/// What is known not to be covered.
pub fn gaps() -> [(&'static str, World); 2] {
    let set = World {
        collectives: 8,
        steps: 1,
        step_ms: 0.1,
        ..PLAIN
    };
    let late = World {
        hosts: 8,
        collectives: 1000,
        common_us: 3.0,
        ..PLAIN
    };
    [
        ("gap: 8, set by 0.1 ms", set),
        ("gap: 8 hosts, late in all", late),
    ]
}

/// Named settings: what is wrong with clocks and ends, one at a time and together.
#[rustfmt::skip]
pub fn settings() -> Vec<(&'static str, World)> {
    let few = World { collectives: 8, ..PLAIN };
    let many = World { collectives: 100_000, apart_s: 0.01, ..PLAIN };
    let fleet = World { hosts: 16, ranks: 2, ..PLAIN };
    let rough = World {
        late: 0.05,
        late_us: 100.0,
        bias_us: 3.0,
        scatter_us: 3.0,
        ..PLAIN
    };
    vec![
        ("plain", PLAIN),
        ("no drift", World { drift_ppm: 0.0, ..PLAIN }),
        ("one rank a host", World { ranks: 1, ..PLAIN }),
        ("4 hosts", World { hosts: 4, ..PLAIN }),
        ("8 hosts", World { hosts: 8, ..PLAIN }),
        ("16 hosts", fleet),
        ("scatter 5 us", World { scatter_us: 5.0, ..PLAIN }),
        ("scatter 10 us", World { scatter_us: 10.0, ..PLAIN }),
        ("wander 0.1", World { wander_us: 0.1, ..PLAIN }),
        ("wander 0.3", World { wander_us: 0.3, ..PLAIN }),
        ("wander 1", World { wander_us: 1.0, ..PLAIN }),
        ("wander 3", World { wander_us: 3.0, ..PLAIN }),
        ("wander 10", World { wander_us: 10.0, ..PLAIN }),
        ("wander 10, 1 s apart", World { wander_us: 10.0, apart_s: 1.0, ..PLAIN }),
        ("wander 3, 16 hosts", World { wander_us: 3.0, ..fleet }),
        ("wander 10, 16 hosts", World { wander_us: 10.0, ..fleet }),
        ("late 2 %", World { late: 0.02, late_us: 100.0, ..PLAIN }),
        ("late 5 %", World { late: 0.05, late_us: 300.0, ..PLAIN }),
        ("late 10 %, 20 us", World { late: 0.1, late_us: 20.0, ..PLAIN }),
        ("bias 0.2 us", World { bias_us: 0.2, ..PLAIN }),
        ("bias 0.5 us", World { bias_us: 0.5, ..PLAIN }),
        ("bias 1 us", World { bias_us: 1.0, ..PLAIN }),
        ("bias 3 us", World { bias_us: 3.0, ..PLAIN }),
        ("bias 3 us, 2 kinds", World { bias_us: 3.0, kinds: 2, ..PLAIN }),
        ("bias 3 us, 3 kinds", World { bias_us: 3.0, kinds: 3, ..PLAIN }),
        ("bias 3 us, 8 kinds", World { bias_us: 3.0, kinds: 8, ..PLAIN }),
        ("late in all by 3 us", World { common_us: 3.0, ..PLAIN }),
        ("late in all, bias 1 us", World { common_us: 3.0, bias_us: 1.0, ..PLAIN }),
        ("begins 3 us late", World { begins_us: 3.0, ..PLAIN }),
        ("begins late, bias 3 us", World { begins_us: 3.0, bias_us: 3.0, ..PLAIN }),
        ("begins late, bias 1 us", World { begins_us: 3.0, bias_us: 1.0, ..PLAIN }),
        ("uneven, bias 3 us", World { uneven: 0.1, bias_us: 3.0, ..PLAIN }),
        ("one kind", World { kinds: 1, ..PLAIN }),
        ("one kind, bias 3 us", World { kinds: 1, bias_us: 3.0, ..PLAIN }),
        ("one kind, wander 10", World { kinds: 1, wander_us: 10.0, ..PLAIN }),
        ("step 5 ms", World { steps: 1, step_ms: 5.0, ..PLAIN }),
        ("3 steps 1 s", World { steps: 3, step_ms: 1000.0, hosts: 4, ..PLAIN }),
        ("step 0.2 ms, wander 3", World { steps: 1, step_ms: 0.2, wander_us: 3.0, ..PLAIN }),
        ("2 steps, 16 hosts", World { steps: 2, step_ms: 5.0, ..fleet }),
        ("8 collectives", few),
        ("8, wander 3", World { wander_us: 3.0, ..few }),
        ("8, wander 10", World { wander_us: 10.0, ..few }),
        ("8, bias and late", World { collectives: 8, ..rough }),
        ("8, 16 hosts", World { collectives: 8, ..fleet }),
        ("8, one kind", World { kinds: 1, ..few }),
        ("12 collectives, rough", World { collectives: 12, ..rough }),
        ("30 collectives, rough", World { collectives: 30, ..rough }),
        ("100 collectives, rough", World { collectives: 100, ..rough }),
        ("1,000, rough", World { collectives: 1000, ..rough }),
        ("1,000, rough, wander 3", World { collectives: 1000, wander_us: 3.0, ..rough }),
        ("10,000", World { collectives: 10_000, ..PLAIN }),
        ("10,000, wander 3", World { collectives: 10_000, wander_us: 3.0, ..PLAIN }),
        ("100,000", many),
        ("100,000, wander 10", World { wander_us: 10.0, ..many }),
        ("100,000, rough, wander 1", World { wander_us: 1.0, late: 0.05, late_us: 100.0, bias_us: 3.0, ..many }),
        ("chain of 4", World { hosts: 4, chain: true, ..PLAIN }),
        ("chain of 16", World { hosts: 16, ranks: 2, chain: true, collectives: 1000, ..PLAIN }),
        ("chain of 8, wander 3", World { hosts: 8, ranks: 2, chain: true, collectives: 700, wander_us: 3.0, ..PLAIN }),
        ("stamps of 1 us", World { quantum_ns: [1000; 2], ..PLAIN }),
        ("stamps of 1 us, sharp", World { quantum_ns: [1000; 2], scatter_us: 0.2, drift_ppm: 0.0, ..PLAIN }),
        ("stamps of 1 us and 1 ns", World { quantum_ns: [1, 1000], ..PLAIN }),
        ("stamps of 10 us", World { quantum_ns: [10_000; 2], drift_ppm: 1.0, ..PLAIN }),
        ("a rank lacks half", World { lacking: 0.5, ..PLAIN }),
        ("2 % matched wrongly", World { mismatched: 0.02, ..PLAIN }),
        ("all of it", World { hosts: 8, wander_us: 3.0, steps: 2, step_ms: 5.0, collectives: 400, quantum_ns: [1000; 2], ..rough }),
    ]
}
