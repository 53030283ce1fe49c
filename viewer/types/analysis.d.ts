// Made of the analyzer's types by analyzer/tests/declarations.rs, which also says how to make it again.

/** A moment: nanoseconds since the epoch, or in the answers of the page's server since the recording's origin. */
export type Stamp = number;

/** Everything that is known of a recording. */
export type Analysis = {
  /** "gputrace.analysis/1". */
  schema: string;
  /** Where the recording is. */
  source: string;
  /** "cuda", "sim" or "imported"; "unknown" where nothing is left that says. */
  device: string;
  /**
   * What the recorded command ended with, as a shell gives it (128 and the signal's number for a signal); null where that
   * isn't known.
   */
  exit_status: number | null;
  /** How many of the job's ranks all numbers are of, and which are missing. */
  job_ranks: JobRanks;
  /** The job's step, over all ranks; null without steps. */
  step: JobStep | null;
  /** One entry for each rank and device, by rank. */
  ranks: RankAnalysis[];
  /**
   * Who launched what over all of `ranks`: sums by name, shape, size or place in a tree. Null where there is one alone, or
   * nobody is known.
   */
  over_ranks: Attribution | null;
  /** Matched over ranks, by when they were enqueued. */
  collectives: Collective[];
  /** Who is in which communicator, and what it cost; those first that a rank waits longest on without computing. */
  communicators: CommunicatorAnalysis[];
  /** Sends and receives by pair of ranks. */
  transfers: TransferAnalysis[];
  /** How fast collectives of each kind and size went, where the source says their bytes. */
  collective_sizes: CollectiveSize[];
  /** How each rank came to its collectives. */
  arrivals: ArrivalAnalysis[];
  /** The catalogue of measures: what of `ranks` and their `steps` is one, and what each means. */
  measures: Measure[];
  /** What is assumed of the ranks' clocks wherever ranks are compared. */
  clock: string;
  /** Each clock that stamped the recording, by its lowest rank. */
  clocks: ClockAnalysis[];
  /**
   * Median difference between the first and the last rank's end of collectives that no rank can leave early: about as
   * much can clocks differ. Null without such collectives.
   */
  clock_end_spread_ns: number | null;
  /** Operations that ranks waited in and that never ended: those first that explain others. */
  hangs: Hang[];
  /** What had begun and not ended when the recording did; of each process the first hundred. */
  unfinished: UnfinishedOperation[];
  /** What recording cost each process, as its collector measured it itself. */
  recording_cost: RecordingCost[];
  /** What recording added to the steps; null where it was not switched off and on to measure that. */
  recording_overhead: RecordingOverhead | null;
  /** The GPUs while the run went on, as the recorder sampled them. */
  device_state: DeviceState[];
  /** The processes' host side while the run went on, likewise. */
  host_state: HostState[];
  /** What the steps' time was spent on, over all ranks; null where nothing ran, or where a single step is too much to follow. */
  critical_path: CriticalPath | null;
  /** Hangs first, then by what mending them surely saves, then by what it may save. */
  findings: Finding[];
  /** What was lost, while recording and in the analysis. */
  losses: Loss[];
  /** What was ignored, rebuilt or assumed. */
  notes: string[];
};

/**
 * How one rank's device came to its collectives. Warm-ups are left out, and so is what has a root or is between two ranks,
 * where no rank waits for all; operations that share a kernel count once.
 */
export type ArrivalAnalysis = {
  /** The rank. */
  rank: number;
  /** Device index within its process. */
  device_index: number;
  /** Collectives whose arrivals could be compared. */
  collectives: number;
  /** Those in which it came last. */
  last_count: number;
  /** Over those: its arrival minus that of the last but one, which is what it alone cost. */
  cost_ns: number;
  /** Over all: how long it waited for the last to arrive. */
  wait_ns: number;
  /** Those in which it was last by the stamps, but clocks are not exact enough to decide it: not in `last_count`. */
  undecided_count: number;
  /** How far off `wait_ns` may be because of the clocks (99 %): the sum over all, since they are off alike for long. */
  clock_error_ns: number;
  /** Over those in which it came last: how long the first rank waited for it. */
  skew_ns: number;
  /** Whose fault it was that it came last, by what that cost, greatest first; of the steps that were replayed. Empty without. */
  caused_by: LateBecause[];
};

/** What each operator, module and function of the host launched on a device. */
export type Attribution = {
  /** By operator name, longest `direct_ns` first. Operators that launched nothing are listed under the process's first device. */
  operators: OperatorAnalysis[];
  /** The same by operator name and the shapes and types of its inputs. */
  shapes: ShapeAnalysis[];
  /** Matrix products, attention and convolutions by size, longest first. */
  products: ProductAnalysis[];
  /** The network's modules as a tree: a parent comes before its children. */
  modules: ModuleAnalysis[];
  /** Modules by class, longest first. */
  module_classes: ModuleClassAnalysis[];
  /** Stacks of the host as a tree, of Python's functions and native ones: a caller comes before the functions that it calls. */
  stacks: StackAnalysis[];
  /** GPU time that can't be attributed; null where neither operators nor functions of the host are recorded. */
  unattributed: Unattributed | null;
  /**
   * The device's memory, and how much of it nobody is known for; null where neither operators nor Python functions, or no
   * allocations are recorded.
   */
  unattributed_memory: UnattributedMemory | null;
  /** Share of GPU time in operators that have a FLOP model; null without operators. */
  modelled_share: number | null;
  /** The device's peak rate for the data type with the most FLOP; null where the device is unknown or no FLOP are counted. */
  peak: Peak | null;
};

/** A clock, against the one that stamps were moved to. */
export type ClockAnalysis = {
  /** The host; empty where the source does not name it. Several clocks may have one name. */
  host: string;
  /** The ranks that it stamped. */
  ranks: number[];
  /**
   * The place among the clocks of the one that it is compared with, which may be itself. Clocks of different references have
   * nothing in common.
   */
  reference: number;
  /** The moment in the middle of what it was compared by, by itself, for which the next numbers are; null where it was not. */
  at_ns: Stamp | null;
  /** What it showed beyond the reference then; null where that is not known. */
  offset_ns: number | null;
  /** By how much that grows, of the time that passes: 1e-6 is a microsecond a second. */
  drift: number | null;
  /** With a probability of 99 % the offset is right within this; null where that is not known. */
  half_width_ns: number | null;
  /** The offset cannot be smaller: an operation would have ended before another had begun that it needed. */
  hard_low_ns: number | null;
  /** Nor greater. */
  hard_high_ns: number | null;
  /** How many collectives that rests on; of a reference, how many it shares with others. */
  collectives: number;
  /** Collectives that were left out because the others contradict them: wrong matches. */
  contradicted: number;
  /**
   * How much longer collectives take when the last rank to arrive is one of its own than when it is one of the clock's that it was
   * compared with: by how much it leaves late, or begins late. Null where too few say so: then nothing says whether it leaves
   * collectives of all kinds late alike, and only the hard limits have room for that.
   */
  longer_ns: number | null;
  /** With a probability of 99 % that is right within this. */
  longer_half_width_ns: number | null;
  /** When it was set while the recording went on, as far as that was found by comparing. */
  set: ClockSet[];
  /** The offset over time, at most 65 moments of it. */
  course: ClockMoment[];
  /** What the numbers rest on, or why there are none. */
  source: string;
};

/** A clock at a moment. */
export type ClockMoment = {
  /** By itself. */
  at_ns: Stamp;
  /** What it shows beyond the reference. */
  offset_ns: number;
  /** With a probability of 99 % that is right within this. */
  half_width_ns: number;
};

/** A clock was set. */
export type ClockSet = {
  /** About when, by itself. */
  at_ns: Stamp;
  /** Forward where positive. */
  by_ns: number;
};

/** One collective over the ranks that took part. */
export type Collective = {
  /** "AllReduce", ... */
  name: string;
  /** The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart. */
  communicator: string;
  /** The communicator's name, where it has one. */
  communicator_name: string | null;
  /** Its number on the communicator: NCCL counts those of each name, PyTorch all. */
  sequence: number | null;
  /** The ranks (in the job; where no process says its rank, their order) that were recorded. */
  ranks: number[];
  /** Ranks in the communicator, recorded or not; null where that is not known. Of a transfer between two ranks it is 2. */
  communicator_ranks: number | null;
  /** Of a transfer between two ranks: the job's rank that sends; null of all else, and where that end was not recorded. */
  sender: number | null;
  /** The rank that receives, likewise. */
  receiver: number | null;
  /** Start of its first kernel on any rank; null without one. */
  start_ns: Stamp | null;
  /**
   * Bytes as nccl-tests counts them: count x size, and ranks times that for AllGather, ReduceScatter, AlltoAll, Gather and
   * Scatter; null where the source does not say.
   */
  bytes: number | null;
  /** The data type, as the source calls it. */
  dtype: string;
  /** The longest of its kernels, waiting included; null without one. */
  longest_kernel_ns: number | null;
  /** Bytes over the transfer's time, GB/s; null where the time is not known. */
  algbw: number | null;
  /** algbw times nccl-tests' factor for the operation. */
  busbw: number | null;
  /** What algbw is between, where clocks differ by as much as they may; null where algbw is. */
  algbw_range: BandwidthRange | null;
  /**
   * Of several hosts: with a probability of 99 % each wait, transfer and skew is right within this. 0 by one clock; null where
   * arrivals are not compared.
   */
  clock_error_ns: number | null;
  /**
   * By rank: from its own arrival to the last rank's, or to its own end where that comes first. Where several GPUs of a
   * process take part the key is "rank.device".
   */
  wait_ns: Record<string, number>;
  /** By rank: the rest of its kernel. */
  transfer_ns: Record<string, number>;
  /** Last arrival minus first; null with a rank alone or where clocks can't be compared. */
  skew_ns: number | null;
  /** The rank that arrived last; null where all arrived at the same time or that is not known. */
  last_rank: number | null;
  /** Why it is not known, where clocks are not exact enough: which it seems to be, and by how much; else null. */
  last_undecided: Undecided | null;
  /** Last arrival minus the last but one: what the last rank alone cost. */
  last_rank_cost_ns: number | null;
  /** "communicator and sequence", or "order" where there is no sequence number: the n-th of its kind on each rank. */
  matched_by: string;
  /** The communicator's first operation, left out of means. */
  warm_up: boolean;
  /** Operations that ran in the same kernel; with more than one the times are those of all of them. */
  shared_kernel: number;
};

/** What a bandwidth lies between. */
export type BandwidthRange = {
  /** At least, GB/s. */
  low: number;
  /** At most; null where the time may have been nothing. */
  high: number | null;
};

/**
 * The collectives of one kind on so many ranks, in one range of sizes (warm-ups, shared kernels and what has no kernel left
 * out).
 */
export type CollectiveSize = {
  /** "AllReduce", ... */
  name: string;
  /** Ranks in the communicator; null where that is not known. */
  ranks: number | null;
  /** The range: at least so many bytes, a power of two. */
  bytes_from: number;
  /** And fewer than so many. */
  bytes_below: number;
  /** How many. */
  count: number;
  /** Those whose transfer is known apart from the waiting. */
  timed: number;
  /** Bytes of those over the time of their transfers, GB/s; null without any. */
  algbw: number | null;
  /** The same times nccl-tests' factor. */
  busbw: number | null;
  /** What `algbw` lies between, where clocks differ by as much as they may. */
  algbw_range: BandwidthRange | null;
  /** Greatest busbw of one. */
  best_busbw: number | null;
  /** The longest kernel of each, with the waiting. */
  kernel: Distribution;
  /** Bytes of all over the time of those kernels, GB/s: as low as the waiting makes it. Null without kernels. */
  algbw_with_waiting: number | null;
};

/** One communicator over all ranks. */
export type CommunicatorAnalysis = {
  /** Its hash, in hexadecimal; "unknown" where the source does not tell communicators apart. */
  communicator: string;
  /** Its name, where it has one. */
  communicator_name: string | null;
  /** Ranks in it, recorded or not; null where that is not known. */
  communicator_ranks: number | null;
  /** The job's ranks that were recorded in it, each once: by their rank in the communicator where the source says that. */
  ranks: number[];
  /** Collectives and transfers between two ranks, each once for all who took part. */
  operations: number;
  /** Bytes of those, as each counts; null where none says how many. */
  bytes: number | null;
  /**
   * By rank: time passed with at least one of its operations. Where several GPUs of a process take part the key is
   * "rank.device".
   */
  time_ns: Record<string, number>;
  /** By rank: the part of that in which no compute runs. */
  exposed_ns: Record<string, number>;
};

/** Two analyses compared. */
export type Comparison = {
  /** What changed in a step, and how sure that is. */
  diff: Diff;
  /** By rank and device. */
  ranks: ComparedRank[];
  /** By place. */
  steps: ComparedStep[];
  /** By name, the greatest difference first. */
  kernels: ComparedKernel[];
};

/** Operations of one name, over all ranks. */
export type ComparedKernel = {
  /** The name. */
  name: string;
  /** Its kind. */
  kind: string;
  /** How many in the first run. */
  count_a: number;
  /** How many in the second. */
  count_b: number;
  /** Sum of durations in the first run. */
  total_a_ns: number;
  /** Sum of durations in the second. */
  total_b_ns: number;
  /** Second minus first. */
  difference_ns: number;
  /** What became of it. */
  change: Verdict;
};

/** One rank's device. */
export type ComparedRank = {
  /** The rank. */
  rank: number | null;
  /** The device. */
  device_index: number;
  /** The first run's measures. */
  a: Measures | null;
  /** The second run's measures. */
  b: Measures | null;
  /** What the first run's span is made of. */
  parts_a: Parts | null;
  /** What the second run's span is made of. */
  parts_b: Parts | null;
  /** What became of its span. */
  change: Verdict;
};

/** Steps that stand at the same place of their runs, on one rank's device. */
export type ComparedStep = {
  /** The rank. */
  rank: number | null;
  /** The device. */
  device_index: number;
  /** The step's place in its run, from 0. */
  place: number;
  /** Its name in the first run. */
  name_a: string | null;
  /** Its name in the second run. */
  name_b: string | null;
  /** Its duration in the first run. */
  duration_a_ns: number | null;
  /** Its duration in the second run. */
  duration_b_ns: number | null;
  /** What became of it. */
  change: Verdict;
};

/** What the steps' time was spent on, one thing at a time: whatever the next thing was waiting for. */
export type CriticalPath = {
  /** The time of the steps that were followed. */
  total_ns: number;
  /** How many steps that are. */
  steps: number;
  /** By what, name and rank, longest first; they sum to the total. */
  parts: PathPart[];
};

/** One GPU over the run. */
export type DeviceState = {
  /** Its host. */
  host: string;
  /** NVML's index of it. */
  index: number;
  /** Its name. */
  name: string | null;
  /** The ranks that used it, by its UUID. */
  ranks: number[];
  /** By counter, as docs/formats.md lists them; all but the throttle reasons. */
  values: Record<string, Sampled>;
  /** Share of the samples in which the clock was held down, by why. */
  throttled: Record<string, number>;
  /** Mean clock of the multiprocessors in the samples in which heat or the hardware held it down; null without any. */
  throttled_clock_mhz: number | null;
};

/** Two sides compared. */
export type Diff = {
  /** "gputrace.diff/1". */
  schema: string;
  /** The first side's runs. */
  a: Run[];
  /** The second side's runs. */
  b: Run[];
  /** The step. */
  step: StepChange;
  /** What the step's change is made of, in nanoseconds a step: the parts sum to `step.change_ns`. */
  parts: Record<string, number>;
  /** What the step is made of in the first: sums to `step.a_ns`. */
  parts_a: Record<string, number>;
  /** In the second. */
  parts_b: Record<string, number>;
  /** What became of each part, and of the `step` itself on the mean GPU. */
  part_verdicts: Record<string, Verdict>;
  /** All else, what is sure and costs most first. */
  rows: Row[];
  /** Kernels with other names in the second run, at the same place of a step. */
  renamed: Renamed[];
  /** How much of the time has something to be compared with. */
  coverage: Coverage[];
  /** What can't be compared, and what has to be known to read this. */
  notes: string[];
};

/**
 * How much of what took time has something to be compared with: sums of durations over the steps that count, on all GPUs. Matched
 * and unmatched sum to the total.
 */
export type Coverage = {
  /** What it is matched by. */
  by: By;
  /** All time of the first side. */
  total_a_ns: number;
  /** What of it is in both. */
  matched_a_ns: number;
  /** What is gone. */
  unmatched_a_ns: number;
  /** All time of the second side. */
  total_b_ns: number;
  /** What of it is in both. */
  matched_b_ns: number;
  /** What is new. */
  unmatched_b_ns: number;
};

/** What a series, or a row of a comparison, is of. */
export type By = "kernel" | "operator" | "module" | "collective" | "step" | "rank" | "measure";

/** What is said of many durations. */
export type Distribution = {
  /** Mean, rounded down. */
  mean_ns: number;
  /** Shortest. */
  min_ns: number;
  /** Longest. */
  max_ns: number;
  /** Median (nearest rank). */
  p50_ns: number;
  /** 99th percentile (nearest rank). */
  p99_ns: number;
};

/** One finding. */
export type Finding = Facts & {
  /** What it is and what to try. */
  text: string;
  /** The figures behind it. */
  evidence: string;
  /** The rank that it is worst on, or whose fault it is; null where that has no number, and where it is of several. */
  rank: number | null;
  /** The device of that rank, index within its process; null where it is of no single one. */
  device_index: number | null;
  /** The ranks that are at fault or that it is about; empty where `rank` says it all. */
  ranks: number[];
  /**
   * Time over the whole run that it could save at most; null of a hang, which has no end. Where all ranks' steps were replayed
   * (`saves_low_ns` is there) it is what they would lose if this alone were mended.
   */
  saves_ns: number | null;
  /** The same for a step; null without steps. */
  saves_per_step_ns: number | null;
  /** Low end of what a replay says of `saves_per_step_ns`, which is the middle; null where there was none. */
  saves_low_ns: number | null;
  /** High end. */
  saves_high_ns: number | null;
  /** From what is to be mended to what is seen of it. */
  cause: CauseLink[];
};

/** One link of the chain from a cause to its symptoms. */
export type CauseLink = {
  /** "kernel", "copy", "memset", "host", "call", "transfer", "clock", "collective": what kind of thing it is. */
  what: string;
  /** Whose. */
  rank: number | null;
  /** Its name, or what happened to it. */
  name: string;
  /** One place where it can be seen. */
  start_ns: Stamp | null;
};

/**
 * The code of a finding, and what it names. The codes do not change; in the JSON they are in small letters with
 * underscores ("exposed_communication").
 */
export type Facts =
  /** An operation of a communicator that ranks wait in does not end. */
  | {
    code: "hang";
    facts: {
      /** The communicator's hash, in hexadecimal. */
      communicator: string;
      /** Its name, where it has one. */
      communicator_name: string | null;
      /** "AllReduce", ..., "Send" or "Recv". */
      operation: string;
      /** NCCL's number of it. */
      sequence: number | null;
      /** The ranks that wait in it, those that are known. */
      waiting: number[];
      /** The ranks that it waits for, those that are known. */
      absent: number[];
      /** Hangs that this one explains. */
      followed_by: number;
    };
  }
  /** Communication is not hidden behind compute. */
  | {
    code: "exposed_communication";
    facts: {
      /** Communication without compute. */
      exposed_ns: number;
      /** All communication. */
      communication_ns: number;
      /** The collective that is exposed most, where any is known: "AllReduce", ... */
      collective: string | null;
      /** Its communicator's hash, in hexadecimal, or "unknown". */
      communicator: string | null;
      /** How much of it is exposed. */
      collective_exposed_ns: number | null;
    };
  }
  /** The GPU waits for the host to launch work. */
  | {
    code: "host_late";
    facts: {
      /** Idle time before the next launch was called. */
      idle_ns: number;
      /** What the launching thread was doing, as in `host_late_by`. */
      by: Record<string, number>;
    };
  }
  /** Streams wait for events of other streams while the GPU is idle. */
  | {
    code: "event_wait";
    facts: {
      /** Idle time by this cause. */
      idle_ns: number;
    };
  }
  /** The host waits for other ranks while the GPU is idle. */
  | {
    code: "peer_wait";
    facts: {
      /** Idle time by this cause. */
      idle_ns: number;
    };
  }
  /** Launches wait for room in a stream's queue while the GPU is idle. */
  | {
    code: "queue_full";
    facts: {
      /** Idle time by this cause. */
      idle_ns: number;
    };
  }
  /** No thread submits anything while the GPU is idle. */
  | {
    code: "nothing_submitted";
    facts: {
      /** Idle time by this cause. */
      idle_ns: number;
    };
  }
  /** Most kernels are shorter than a launch takes. */
  | {
    code: "short_kernels";
    facts: {
      /** Compute kernels of names whose mean is short. */
      short: number;
      /** All compute kernels. */
      kernels: number;
      /** What is short: a mean below this. */
      below_ns: number;
      /** Idle time around launches. */
      idle_ns: number;
    };
  }
  /** Copies are far from what their link carries. */
  | {
    code: "slow_copies";
    facts: {
      /** "HtoD", ... */
      direction: string;
      /** Where they come from: as in `copies`. */
      source: string;
      /** Where they go to. */
      destination: string;
      /** How many. */
      count: number;
      /** Bytes in all. */
      bytes: number;
      /** Time with one of them. */
      time_ns: number;
      /** What they reach, GB/s. */
      bandwidth: number | null;
      /** What the link carries, GB/s. */
      nominal_bandwidth: number | null;
      /** The link's name. */
      link: string | null;
    };
  }
  /** Copies go through pageable memory. */
  | {
    code: "pageable_copies";
    facts: {
      /** How many. */
      count: number;
      /** Sum of their durations. */
      total_ns: number;
    };
  }
  /** A rank computes longer than the others. */
  | {
    code: "uneven_compute";
    facts: {
      /** Its `compute_ns`. */
      compute_ns: number;
      /** The mean of the others'. */
      others_ns: number;
    };
  }
  /** Some steps take much longer than the others. */
  | {
    code: "uneven_steps";
    facts: {
      /** The names of the longer ones. */
      steps: string[];
      /** How many steps there are. */
      count: number;
      /** The median of their durations. */
      median_ns: number;
    };
  }
  /** Kernels' sizes differ from rank to rank: one has more to do than another. */
  | {
    code: "uneven_work";
    facts: {
      /** What the rank with most of it computes of these kernels in a step. */
      most_ns: number;
      /** The mean of all ranks. */
      mean_ns: number;
      /** Whether another rank has most in most steps: no one rank is to blame. */
      differs_by_step: boolean;
    };
  }
  /** The host waits for the GPU within the step. */
  | {
    code: "synchronization";
    facts: {
      /** The call that waits most. */
      name: string;
      /** Calls of it in a step and rank, but for the step's last wait. */
      count: number;
      /** How long they wait, in a step and rank. */
      waits_ns: number;
    };
  }
  /** Many small collectives, of which each costs a fixed time. */
  | {
    code: "small_collectives";
    facts: {
      /** "AllReduce", ... */
      collective: string;
      /** The communicator's hash, in hexadecimal. */
      communicator: string;
      /** How many in a step and rank. */
      count: number;
      /** Their bytes in the mean. */
      mean_bytes: number;
      /** What each costs without its bytes. */
      fixed_ns: number;
    };
  }
  /** A rank began its first step long after the others. */
  | {
    code: "late_start";
    facts: {
      /** How long after the last but one. */
      late_ns: number;
    };
  }
  /** Ranks take longer than the others for the same things, and the others wait for them. */
  | {
    code: "slow_rank";
    facts: {
      /** "kernel", "copy", "memset", "host" or "call": what most of it is. */
      by: string;
      /** The name of what takes most of it. */
      name: string;
      /** What that takes these ranks in the mean, in a step. */
      own_ns: number;
      /** What it takes the others. */
      others_ns: number;
      /** How long each other rank waits for these in collectives, in the mean of a step. */
      waited_ns: number;
    };
  }
  /** The collectives of one communicator take longer than those of others like it. */
  | {
    code: "slow_communicator";
    facts: {
      /** Its hash, in hexadecimal. */
      communicator: string;
      /** Its name, where it has one. */
      communicator_name: string | null;
      /** What its transfers take in a step. */
      own_ns: number;
      /** What those of the others take, or what they should. */
      others_ns: number;
      /** What the NVLinks between its ranks carry, GB/s in one direction; null where that is not known. */
      link_gb_per_s: number | null;
    };
  }
  /** A rank keeps the others waiting. */
  | {
    code: "late_rank";
    facts: {
      /** Collectives at which it arrived last, */
      last_count: number;
      /** of so many. */
      collectives: number;
      /** How long the first rank waited for it, summed over those. */
      skew_ns: number;
      /** What of that it alone cost. */
      cost_ns: number;
    };
  }
  /** A GPU's clock is held down. */
  | {
    code: "clock_held_down";
    facts: {
      /** The GPU's host. */
      host: string;
      /** NVML's index of the GPU there. */
      index: number;
      /** The share of samples in which it was held down. */
      share: number;
      /** Its clock then, MHz. */
      clock_mhz: number;
      /** The greatest clock seen, MHz. */
      greatest_mhz: number;
      /** By reason, the share of samples in which NVML gave it. */
      reasons: Record<string, number>;
    };
  }
  /** The thread that launches work waits for a processor. */
  | {
    code: "starved_thread";
    facts: {
      /** The thread's id. */
      thread: number;
      /** Its name. */
      name: string;
      /** The share of time in which it could have run and had no processor. */
      run_delay_ratio: number;
      /** Idle time of the GPU in which nothing was launched. */
      idle_ns: number;
    };
  }
  /** The process waits for pages from the disk. */
  | {
    code: "disk_faults";
    facts: {
      /** Page faults a second that needed the disk, in the mean. */
      mean_per_second: number;
      /** The most in a second. */
      max_per_second: number;
      /** Idle time of the GPU in which nothing was launched. */
      idle_ns: number;
    };
  }
  /** Matrix products of one size are far slower than others like them, or than the device could be. */
  | {
    code: "slow_product";
    facts: {
      /** The operator: "aten::mm". */
      name: string;
      /** Products a call. */
      batch: number;
      /** Rows of the result. */
      m: number;
      /** Its columns. */
      n: number;
      /** What is summed over. */
      k: number;
      /** The type of the first operand. */
      dtype: string;
      /** How often it ran. */
      calls: number;
      /** Sum of durations of what it launched. */
      time_ns: number;
      /** How fast it is. */
      flops_per_second: number;
      /** How fast the fastest of like size is; null where none is far faster, and the device's limits are what it is far from. */
      others_flops_per_second: number | null;
      /** Its share of the device's peak rate; null where that is not known. */
      peak_share: number | null;
      /** "alignment" or "small", where its size says why. */
      reason: string | null;
    };
  }
  /** Matrix products in float32 on a device that has TF32. */
  | {
    code: "tf32_off";
    facts: {
      /** How many. */
      calls: number;
      /** Sum of durations of what they launched. */
      time_ns: number;
    };
  }
  /** The forward pass is done once more in the backward pass. */
  | {
    code: "recomputation";
    facts: {
      /** Operations that were launched by it. */
      operations: number;
      /** Sum of their durations. */
      time_ns: number;
      /** Most device memory that was held at once; null where it is not recorded. */
      peak_memory_bytes: number | null;
      /** All that the device has; null likewise. */
      memory_bytes: number | null;
    };
  }
  /** Tensors are copied on the device. */
  | {
    code: "copies_and_casts";
    facts: {
      /** Operations that copied to another type. */
      casts: number;
      /** Sum of their durations. */
      casts_ns: number;
      /** Other copies. */
      copies: number;
      /** Sum of their durations. */
      copies_ns: number;
    };
  }
  /** Elementwise kernels follow each other on a stream. */
  | {
    code: "elementwise_chains";
    facts: {
      /** Two or more that follow each other, over as many numbers where that is known. */
      chains: number;
      /** Kernels in them. */
      kernels: number;
      /** Sum of their durations. */
      total_ns: number;
    };
  }
  /** An optimizer goes over its tensors one by one. */
  | {
    code: "optimizer_loop";
    facts: {
      /** "Optimizer.step#AdamW.step". */
      name: string;
      /** Its steps. */
      steps: number;
      /** Operations that were launched in them. */
      operations: number;
      /** Sum of their durations. */
      time_ns: number;
      /** How long the steps took on the host. */
      host_ns: number;
    };
  }
  /** The kernels of a class of modules are shorter than the host takes to launch them. */
  | {
    code: "launch_bound_modules";
    facts: {
      /** The class. */
      class: string;
      /** Calls of its modules. */
      calls: number;
      /** Operations that were launched in them. */
      kernels: number;
      /** Sum of their durations. */
      kernels_ns: number;
      /** How long the calls took on the host. */
      host_ns: number;
    };
  };

/** One operation that does not end, with who waits in it and what the others did instead. */
export type Hang = {
  /** The communicator's hash, in hexadecimal. */
  communicator: string;
  /** Its name, where it has one. */
  communicator_name: string | null;
  /** Ranks in it, recorded or not. */
  communicator_ranks: number | null;
  /** "AllReduce", ..., "Send" or "Recv". */
  name: string;
  /** NCCL's number of it among those of its name; of a transfer, its place among those of its pair, from 0. */
  sequence: number | null;
  /** Elements, as NCCL counts them for this function. */
  count: number;
  /** "ncclFloat32", ... */
  dtype: string;
  /** Bytes of `count` elements. */
  bytes: number;
  /** The ranks that have enqueued it and have not finished it. */
  waiting: Waiting[];
  /** Those that it waits for; empty where all have joined and it does not end all the same. */
  absent: Absent[];
  /** Operations enqueued earlier on this communicator by a rank that waits, which have no recorded end either. */
  unfinished_before: number;
  /** Whether another hang explains this one: all that it waits for wait there. */
  follows: boolean;
  /** How long no GPU of the job had finished anything when this was noticed. */
  silent_ns: number;
  /** When it was noticed, nanoseconds since the epoch. */
  noticed_ns: Stamp;
};

/** A rank that the operation waits for. */
export type Absent = {
  /** Its rank in the job, where that is known. */
  rank: number | null;
  /** Its rank in the communicator. */
  communicator_rank: number;
  /**
   * "nothing" (it enqueued no more on this communicator), "other" (another operation), "differs" (the same with
   * another size, type or root), "enqueued" (the same, but its process does not run any more), "behind" (it has enqueued it behind one that waits itself), "waits" (nothing, as it
   * waits in another hang), or "not recorded".
   */
  did: string;
  /**
   * Its process: "running", "stopped", "ended"; "silent" where all that is known is that its recording ends before the
   * others'.
   */
  process: string;
  /** The same in words: what stands after "rank 3". */
  text: string;
};

/** One process's host side over the run. */
export type HostState = {
  /** Its host. */
  host: string;
  /** Its number there. */
  pid: number;
  /** Its rank. */
  rank: number | null;
  /** By counter, as docs/formats.md lists them. */
  values: Record<string, Sampled>;
  /** The threads that were watched, the busiest first. */
  threads: ThreadState[];
};

/** The ranks that an analysis is of, and those that it lacks. */
export type JobRanks = {
  /** Processes that it is of. */
  here: number;
  /** Processes that the job has: as many as recordings or the processes themselves say, the larger number. */
  of: number;
  /** Those that are not here, in the order of their ranks. */
  missing: MissingRanks[];
};

/** The step of the job: what tables, report and page call its time. */
export type JobStep = {
  /** Mean, over the steps without warm-up, of the longest that a step took on any rank's device. */
  mean_ns: number;
  /** How many steps there are, warm-up among them. */
  count: number;
  /** The names of those that are left out of the mean, by the rule of `StepSummary` for these longest durations. */
  warm_up: string[];
};

/** The rank that made another late, or itself: the one that took longest beyond its peers along what the late one waited for. */
export type LateBecause = {
  /** The rank at fault. */
  rank: number;
  /** In how many collectives. */
  count: number;
  /** What the late rank alone cost in these. */
  cost_ns: number;
};

/** Something lost: never zero, never silent. */
export type Loss = {
  /** What was lost, in a few words. */
  what: string;
  /** How many; `None` where that can't be known. */
  count: number | null;
  /** Which numbers it touches. */
  affects: string;
};

/** One measure of the catalogue. */
export type Measure = {
  /** Its name wherever programs read it. */
  name: string;
  /** "ns" or "ratio". */
  unit: string;
  /** Its name in tables that people read. */
  label: string;
  /** What it is, in a line. */
  definition: string;
};

/** The measures of one device over a window. */
export type Measures = {
  /** first operation's start to last operation's end, less pauses in recording in which nothing ran */
  span_ns: number;
  /** union of all operations */
  busy_ns: number;
  /** span minus busy */
  idle_ns: number;
  /** idle over span; null without a span */
  idle_ratio: number | null;
  /** union of kernels that are not communication, with communication beside them or not */
  compute_ns: number;
  /** union of communication kernels */
  communication_ns: number;
  /** the part of communication's union that lies in compute's union */
  communication_hidden_ns: number;
  /** the rest of communication's union */
  communication_exposed_ns: number;
  /** hidden over communication; null without communication */
  overlap_ratio: number | null;
  /** union of copies */
  copy_ns: number;
  /** the part of copies' union that lies outside compute's union */
  copy_exposed_ns: number;
  /** union of memsets */
  memset_ns: number;
};

/** Ranks that follow each other and are missing, or a process without a rank. */
export type MissingRanks = {
  /** The first of them; null of a process without a rank. */
  first: number | null;
  /** The last of them, counted too. */
  last: number | null;
  /** The process's folder, where it has no rank. */
  folder: string | null;
  /** Why they are missing; null where that is not known. */
  why: string | null;
};

/** A module. Times are sums over operations, not time passed. */
export type ModuleAnalysis = ModuleTimes & AllocatedBytes & {
  /** Its class and number: "Linear_3". */
  name: string;
  /** The one that it is in most often, by its place in the list; null where it is in none. */
  parent: number | null;
  /** How often it ran. */
  calls: number;
};

/** Device memory that operators or modules asked for, all null where it is not recorded. What is within others counts once a name. */
export type AllocatedBytes = {
  /** Bytes allocated in it itself. */
  allocated_bytes: number | null;
  /** The same with what is nested in it. */
  subtree_allocated_bytes: number | null;
  /** The part of `allocated_bytes` that was in use when the device's memory was used most. */
  live_at_peak_bytes: number | null;
  /** The same with what is nested in it. */
  subtree_live_at_peak_bytes: number | null;
  /** The part of `allocated_bytes` that was still in use at the recording's end. */
  live_at_end_bytes: number | null;
  /** The same with what is nested in it. */
  subtree_live_at_end_bytes: number | null;
};

/** All modules of a class. */
export type ModuleClassAnalysis = ModuleTimes & AllocatedBytes & {
  /** The class: "Linear". */
  name: string;
  /** How many modules. */
  modules: number;
  /** How often they ran. */
  calls: number;
};

/** Sums of durations of operations launched for a module, by pass. */
export type ModuleTimes = {
  /** Launched in its forward pass, modules inside it included. */
  forward_ns: number;
  /** The same without modules inside it. */
  forward_self_ns: number;
  /** Launched when its forward pass was done once more in the backward pass. */
  recompute_ns: number;
  /** The same without modules inside it. */
  recompute_self_ns: number;
  /** Launched in the backward pass of what it did. */
  backward_ns: number;
  /** The same without modules inside it. */
  backward_self_ns: number;
};

/** All operators of one name. Times are sums over operations or operators, not time passed. */
export type OperatorAnalysis = AllocatedBytes & {
  /** Its name: "aten::mm". */
  name: string;
  /** How often it ran. */
  calls: number;
  /** Operations of the device (kernels, copies, memsets) that it launched itself. */
  kernels: number;
  /** Sum of their durations. */
  direct_ns: number;
  /** The same including nested operators, each operation counted once. These overlap, so they do not add up over operators. */
  subtree_ns: number;
  /** `direct_ns` over the sum of durations of all operations of the device; null where that is 0. */
  share: number | null;
  /** Time on the host, without nested operators. */
  host_self_ns: number;
  /** Time on the host with nested operators; calls nested in a call of the same name are not counted twice. */
  host_total_ns: number;
  /** The part of `host_self_ns` spent in CUDA calls. */
  host_calls_ns: number;
};

/** Parts of a stretch of time, in nanoseconds. Each moment is in one of them. */
export type Parts = {
  /** kernels compute, and nothing is communicated */
  compute: number;
  /** communication while kernels compute: it costs no time of its own */
  hidden: number;
  /** communication while nothing computes */
  exposed: number;
  /** copies and memsets while nothing else runs */
  copies: number;
  /** the device runs nothing */
  idle: number;
};

/** One kind of thing on the path. */
export type PathPart = {
  /** "kernel", "transfer", "copy", "memset", "host", "call", "latency" (of launches, and from one operation to the next) or "unexplained". */
  what: string;
  /** Of a kernel its short name, of a transfer the collective's, of the host what it was doing. */
  name: string;
  /** Whose; null where that is not known. */
  rank: number | null;
  /** Its time on the path. */
  time_ns: number;
};

/** What a device can do at most. */
export type Peak = {
  /** FLOP a second, without sparsity. */
  flops_per_second: number;
  /** With this type, as PyTorch calls it; "float (TF32)" on TF32 matrix units. */
  dtype: string;
  /** Bytes a second from and to its memory. */
  bytes_per_second: number;
  /** Where the numbers are from. */
  source: string;
};

/** Matrix products, attention or convolutions of one size. Of nested operators only the outermost with a FLOP model counts. */
export type ProductAnalysis = {
  /** The operator. */
  name: string;
  /** Matrix products per call; null for attention and convolutions, as are `m`, `n` and `k`. */
  batch: number | null;
  /** Rows of the result. */
  m: number | null;
  /** Its columns. */
  n: number | null;
  /** The inner dimension, which is summed over. */
  k: number | null;
  /** The sizes of the inputs of attention and convolutions. */
  input_dims: string | null;
  /** The type of the first operand, as PyTorch calls it. */
  dtype: string;
  /** How often it ran. */
  calls: number;
  /** Floating-point operations, of all of them. */
  flops: number;
  /** Bytes of its tensors, each once, of all of them; null where a type's size is not known. */
  bytes: number | null;
  /** Sum of durations of what it launched. */
  time_ns: number;
  /** `flops` over that. */
  flops_per_second: number | null;
  /** `bytes` over that. */
  bytes_per_second: number | null;
  /** What the device can do at most with this type, FLOP a second; null where its data sheet is not known. */
  peak_flops_per_second: number | null;
  /** `flops_per_second` over that. */
  peak_share: number | null;
  /** "compute" or "memory": which would take longer at its peak rate (roofline). */
  bound: string | null;
};

/** One rank's device. */
export type RankAnalysis = Measures & Attribution & {
  /** The rank in the job, where it is known. */
  rank: number | null;
  /** Device index within the process. */
  device_index: number;
  /** The device's name, where it is known. */
  device_name: string | null;
  /** Host of the process. */
  host: string;
  /** From the run's first operation (on any device) to this device's; null where the ranks' times do not overlap. */
  idle_before_ns: number | null;
  /** From this device's last operation to the run's; null where the ranks' times do not overlap. */
  idle_after_ns: number | null;
  /** What the span is made of; the parts sum to `span_ns`. */
  parts: Parts;
  /** Idle time by cause; the parts sum to `idle_ns`. */
  idle_causes: Record<string, number>;
  /** The cause `host_late` by what the launching thread was doing; the parts sum to it. */
  host_late_by: Record<string, number>;
  /** The longest gaps, longest first. */
  longest_gaps: Gap[];
  /** By stream. */
  streams: StreamAnalysis[];
  /** By kind. */
  kinds: KindAnalysis[];
  /** By name. */
  kernels: KernelAnalysis[];
  /** By communicator and collective. */
  communication: CommunicationAnalysis[];
  /** By direction and pair of places. */
  copies: CopyAnalysis[];
  /** By launching call. */
  launches: LaunchAnalysis[];
  /** How full the streams' queues were. */
  queues: QueueAnalysis[];
  /** Device memory; null where it is not recorded. */
  memory: MemoryAnalysis | null;
  /** By training step. */
  steps: StepAnalysis[];
  /** The steps summed up; null without steps. */
  step_summary: StepSummary | null;
};

/** The communication of one kind on one communicator, on one device. */
export type CommunicationAnalysis = {
  /** The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart. */
  communicator: string;
  /** Its name, where it has one. */
  communicator_name: string | null;
  /** "AllReduce", ... */
  name: string;
  /** How many operations. */
  count: number;
  /** Bytes of all that say how many; null where none does. */
  bytes: number | null;
  /** Sum of the kernels' durations; one that several operations share counts once. */
  total_ns: number;
  /** Time passed with at least one of them. */
  time_ns: number;
  /** The part of that in which compute runs too. */
  hidden_ns: number;
  /** The rest of it. */
  exposed_ns: number;
  /** Hidden over time. */
  overlap_ratio: number | null;
};

/** The copies of one device in one direction between one pair of places. */
export type CopyAnalysis = {
  /** "HtoD", "DtoH", "DtoD", "PtoP", ... */
  direction: string;
  /** "host", "GPU n", "peer" (another GPU, not named) or "unknown". */
  source: string;
  /** The same. */
  destination: string;
  /** How many. */
  count: number;
  /** Bytes in all. */
  bytes: number;
  /** Sum of their durations. */
  total_ns: number;
  /** Time passed with at least one of them. */
  time_ns: number;
  /** Bytes over the sum of durations (so each copy weighs by its time), GB/s; null without bytes or time. */
  bandwidth: number | null;
  /** What the link carries in one direction by data sheet, GB/s; null where the GPU is not known. */
  nominal_bandwidth: number | null;
  /** The link: "PCIe 4.0 x16", "NVLink 4", ... */
  link: string | null;
};

/** One gap. */
export type Gap = {
  /** End of the operation before it. */
  start_ns: Stamp;
  /** Start of the operation that ends it. */
  end_ns: Stamp;
  /** The cause of its longest part. */
  cause: string;
  /** The operation that ends it. */
  next_operation: string;
};

/** All operations of one name on one device. Times are sums and statistics over operations, not time passed. */
export type KernelAnalysis = Distribution & {
  /** The kernel's name, or the copy's kind. */
  name: string;
  /** "compute", "communication", "copy" or "memset". */
  kind: string;
  /** How the kind is known: "record", "nccl plugin", "trace metadata" or "name". */
  kind_from: string;
  /** The same in words. */
  kind_reason: string;
  /** How many. */
  count: number;
  /** Sum of their durations. */
  total_ns: number;
  /** Total over the total of all operations of the device. */
  share: number;
  /** Theoretical occupancy, 0 to 1: the mean over its time; null where the launches or the device do not tell. */
  occupancy: number | null;
};

/** All operations of one kind on one device. */
export type KindAnalysis = {
  /** "compute", "communication", "copy" or "memset". */
  kind: string;
  /** How many. */
  count: number;
  /** Sum of their durations. */
  total_ns: number;
  /** Time passed with at least one of them. */
  time_ns: number;
};

/** The launches of one device by one call. */
export type LaunchAnalysis = {
  /** The call: "cudaLaunchKernel", "cudaGraphLaunch", "hipMemcpyAsync", ... */
  call: string;
  /** Calls. */
  calls: number;
  /** Operations that they launched: a graph launch has many. */
  operations: number;
  /** Sum of the calls' times on the host. */
  call_total_ns: number;
  /** The calls' times. */
  call_time: Distribution;
  /** Operations whose stream was empty when they were launched. */
  unqueued: number;
  /** From the call's start to the operation's start, of operations that nothing on their stream held up: launch latency. */
  latency: Distribution;
  /** From the call's end to the operation's start or 0, of all operations: with the waiting behind earlier ones. */
  delay: Distribution;
};

/** Memory of one device of one process. */
export type MemoryAnalysis = {
  /**
   * Most bytes in use at once: by the allocator's own count where it is recorded, else allocations minus frees seen, so
   * without what was allocated before the recording began.
   */
  peak_bytes: number;
  /** When. */
  peak_at_ns: Stamp;
  /** Most bytes that the allocator held at once; null where it did not say. */
  peak_reserved_bytes: number | null;
  /** The most that memory pools of this process held at once, summed over pools; null without pools. */
  peak_pool_bytes: number | null;
  /** The most of that which was in use at once. */
  peak_pool_used_bytes: number | null;
  /** Allocations. */
  allocations: number;
  /** Frees. */
  frees: number;
  /** "allocator" or "allocations and frees". */
  counted_by: string;
  /** Time and bytes in use: at most 200 points, each the most until the next. */
  timeline: [Stamp, number][];
};

/** The queue of one stream over its time: from its first launch to its last operation's start. */
export type QueueAnalysis = {
  /** CUPTI's stream id. */
  stream: number;
  /** Most operations that waited at once. */
  max_depth: number;
  /** Mean over time, not over changes. */
  mean_depth: number;
  /** Time with at least 1,024 waiting operations. */
  full_ns: number;
  /** Time and greatest depth from then to the next point, at most 100 points. */
  timeline: [Stamp, number][];
};

/** One measure of each rank in each step. */
export type RankCells = {
  /** Its name. */
  measure: string;
  /** What a cell shows of several steps: "max" or "median". */
  binned: string;
  /** Places of the first and the last step of each column. */
  columns: [number, number][];
  /** By row and column; null where nothing is known, and nothing at all of a row without a device. */
  values: ((number | null)[])[];
  /** By column: the median over the rows; null where no row has a value. */
  medians: (number | null)[];
  /**
   * By row, over its single steps: the mean distance from the median of all rows in that step, in the measure's unit. Null without a
   * value.
   */
  distances: (number | null)[];
};

/** Who the ranks are, which steps there are, and what is known of them. */
export type RankOverview = {
  /** What a picture can show. */
  measures: StepMeasure[];
  /** Whether ranks were compared with each other: until then measures that need it have no values. */
  compared: boolean;
  /** Ranks that are here. */
  here: number;
  /** Ranks of the job, as far as that is known. */
  all: number;
  /** The steps, by time. */
  steps: StepColumn[];
  /** By rank and device. */
  rows: RankRow[];
  /** Those that any row is in: the largest first. */
  communicators: RankCommunicator[];
};

/** A communicator with the rows that are in it. */
export type RankCommunicator = {
  /** Its hash, in hexadecimal. */
  communicator: string;
  /** Its name; null where it has none. */
  name: string | null;
  /** Ranks in it, recorded or not; null where that is not known. */
  ranks: number | null;
  /** Places of the rows. */
  rows: number[];
};

/** A row: a device of a rank, or a rank of which nothing is here. */
export type RankRow = {
  /** The rank in the job; null where it is not known. */
  rank: number | null;
  /** Device index within the process; null of a rank that is not here. */
  device_index: number | null;
  /** The device's name; null where it is not known. */
  device_name: string | null;
  /** Host of the process; empty where it is not known. */
  host: string;
  /** Whether it is here. */
  state: RankState;
  /** Its pipeline stage: its place in a communicator that is named after a pipeline. Null where there is none. */
  stage: number | null;
  /** How many of the steps it has. */
  steps: number;
};

/** How far a rank's recording was read. */
export type RankState = "here" | "reading" | "missing" | "nothing";

/** The cost in one process. */
export type RecordingCost = {
  /** The rank in the job, where it is known. */
  rank: number | null;
  /** Host of the process. */
  host: string;
  /** Process id. */
  pid: number;
  /** How long it was recorded. */
  wall_ns: number;
  /** CPU time of the collector's own threads. */
  own_cpu_ns: number;
  /** The same over `wall_ns`: what share of one processor core. */
  own_cpu_share: number;
  /** Time of the program's threads inside the collector, by samples. */
  callback_ns: number;
  /** The same over `wall_ns`. */
  callback_share: number;
  /** Records that CUPTI delivered. */
  records: number;
  /** Driver calls among them that were folded into the runtime calls that made them. */
  folded_calls: number;
  /** Rows written. */
  rows: number;
  /** CPU time of the collector's own threads over rows; null without rows. */
  own_cpu_ns_per_row: number | null;
  /** Bytes on the disk over rows; null without rows. */
  bytes_per_row: number | null;
  /** Bytes on the disk. */
  bytes_written: number;
  /** The most memory that buffers, queues and waiting rows took at a time. */
  peak_memory_bytes: number;
  /** Buffers that CUPTI asked for in vain. */
  buffers_refused: number;
  /** The longest that asking CUPTI for its buffers took, on a thread of the collector. */
  longest_flush_ns: number;
};

/** What recording added, by blocks of steps with and without it. */
export type RecordingOverhead = {
  /** Ranks whose blocks are averaged. */
  processes: number;
  /** Blocks that were compared; the first of the run is not. */
  blocks: number;
  /** Steps in recorded blocks of one process. */
  steps_on: number;
  /** Steps in blocks that were not. */
  steps_off: number;
  /** A step without recording: the mean over its blocks. */
  step_off_ns: number;
  /** What recording adds to a step. */
  difference_ns: number;
  /** The interval of that, at 95 %. */
  difference_low_ns: number;
  /** Its upper end. */
  difference_high_ns: number;
  /** The same over a step without recording. */
  relative: number;
  /** Lower end of the interval, over a step without recording. */
  relative_low: number;
  /** Upper end. */
  relative_high: number;
};

/** Kernels of the first run in whose place others run in the second, in the step of median length on the first GPU. */
export type Renamed = {
  /** In the first, in order. */
  a: string[];
  /** In the second. */
  b: string[];
  /** The operator that launches them in both; null where that is not known. */
  operator: string | null;
  /** In how many places of the step. */
  places: number;
  /** What those of the first take there: the sum of their durations. */
  a_ns: number;
  /** Those of the second. */
  b_ns: number;
  /** Second minus first. */
  change_ns: number;
};

/** One thing compared, in nanoseconds a step. */
export type Row = {
  /** What it is. */
  by: By;
  /** Its name. */
  name: string;
  /** "time"; of collectives "transfer" and "wait". */
  what: string;
  /** The rank; null is the mean over all GPUs. */
  rank: number | null;
  /** The device, where the rank has several. */
  device_index: number | null;
  /** What it typically takes in a step of the first: as `crate::diff::StepChange::a_ns`. Null where it is not in the first. */
  a_ns: number | null;
  /** In the second. */
  b_ns: number | null;
  /** Second minus first; what is not there takes nothing. */
  change_ns: number;
  /** From here ... */
  low_ns: number | null;
  /** ... to here: the change's 95 % confidence interval. Null where there are too few steps, and of what is new or gone. */
  high_ns: number | null;
  /** What became of it. All rows are tested at once: of those that are called slower or faster at most one in twenty is not. */
  verdict: Verdict;
  /** How many there were in a step of the first, on all GPUs or on the one; null of what is not counted. */
  count_a: number | null;
  /** In the second. */
  count_b: number | null;
};

/** One run of a side. */
export type Run = {
  /** Where it is. */
  source: string;
  /** "cuda", "sim" or "imported". */
  device: string;
  /** How many GPUs it has. */
  gpus: number;
  /** How many steps count. */
  steps: number;
  /** How many slow first ones are left out. */
  warm_up: number;
  /** How many of the job's ranks it is of, and which are missing. */
  job_ranks: JobRanks;
  /** What was lost. */
  losses: Loss[];
};

/** What a sampled quantity came to. */
export type Sampled = {
  /** Samples. */
  count: number;
  /** Their mean: samples are taken at equal distances. */
  mean: number;
  /** The least. */
  min: number;
  /** The greatest. */
  max: number;
};

/** All operators of one name with inputs of the same shapes and types. */
export type ShapeAnalysis = OperatorAnalysis & {
  /** The sizes of its inputs as a list in JSON: "[[8944, 1024], [1024, 2816]]"; null where they are not recorded. */
  input_dims: string | null;
  /** Their types likewise. */
  input_types: string | null;
  /** Floating-point operations; null for operators without a FLOP model. */
  flops: number | null;
  /** That over `subtree_ns`. */
  flops_per_second: number | null;
};

/** A function as it was called from another: of Python, and below it native ones. Times are sums over operations, not time passed. */
export type StackAnalysis = {
  /** Of Python: file, line and function, or the module. Of native code: the function, and the program or library that it is in. */
  name: string;
  /** Its caller, by its place in the list; null for the outermost. */
  parent: number | null;
  /** Operations launched by it and by no function that it called. */
  kernels: number;
  /** Sum of their durations. */
  direct_ns: number;
  /** The part of that which its backward pass launched. */
  backward_ns: number;
  /** `direct_ns` including the functions that it called. */
  subtree_ns: number;
};

/** One step on one device. */
export type StepAnalysis = Measures & {
  /** The range's text. */
  name: string;
  /** Start of the first operation that was launched in it. */
  start_ns: Stamp;
  /**
   * Start of the first operation that was launched in the next step; the last end of what was launched in this one where
   * none follows.
   */
  end_ns: Stamp;
  /** Whether the step was guessed from a pattern; never, where ranges name it. */
  detected: boolean;
  /** End minus start. */
  duration_ns: number;
  /** Start of its range on the host; null where no range names it. */
  host_start_ns: Stamp | null;
  /** From there to the start of the next step's range, or to the end of its own where none follows; null likewise. */
  host_duration_ns: number | null;
  /** Whether it took much longer or shorter than the others: see `StepSummary`. */
  outlier: boolean;
  /** Whether it is one of the slow first ones, which are left out of means. */
  warm_up: boolean;
  /**
   * Floating-point operations of the operators that the host began in it, as far as their work is known; null where that is
   * of none.
   */
  flops: number | null;
  /**
   * Those of the forward and backward pass over what the device can do at most in the step's time (model FLOP utilization);
   * null where that is not known.
   */
  mfu: number | null;
  /** The same with what was recomputed (hardware FLOP utilization). */
  hfu: number | null;
  /** What the step is made of; the parts sum to `duration_ns`. */
  parts: Parts;
};

/** The step of the job. */
export type StepChange = {
  /** What it typically takes in the first: the median over its steps; over several runs the mean of their medians. */
  a_ns: number;
  /** In the second. */
  b_ns: number;
  /** Second minus first. */
  change_ns: number;
  /** From here ... */
  low_ns: number | null;
  /** ... to here: the change's 95 % confidence interval. Null where there are too few steps. */
  high_ns: number | null;
  /** What became of it. */
  verdict: Verdict;
  /** The smallest change that these runs could show; null likewise. */
  least_ns: number | null;
};

/** A column. */
export type StepColumn = {
  /** The step's number. */
  number: number;
  /** How often a rank had that number before (where numbers begin anew). */
  repeat: number;
  /** Its name. */
  name: string;
};

/** A measure of a rank in a step, as a page lists it. */
export type StepMeasure = {
  /** Its name. */
  name: string;
  /** "ns" or "ratio". */
  unit: string;
  /** Its name for readers. */
  label: string;
  /** What it is, in a line. */
  definition: string;
  /** Whether it needs other ranks: then it is there when they have been compared. */
  compared: boolean;
};

/** All steps of one device. */
export type StepSummary = Distribution & {
  /** How many, warm-up among them. */
  count: number;
  /** Whether they were guessed from a pattern. */
  detected: boolean;
  /** Standard deviation of their durations without warm-up (of a sample: over count - 1); 0 of one step. */
  standard_deviation_ns: number;
  /**
   * Steps whose duration is further from the median than three times 1.4826 times the median of such distances (what three
   * standard deviations are where most steps are alike), and than 5 % of the median.
   */
  outliers: string[];
  /** Those of the outliers that are first of all and longer than the median: at most three, and fewer than half of all steps. */
  warm_up: string[];
};

/** One stream's operations. */
export type StreamAnalysis = {
  /** CUPTI's stream id. */
  stream: number;
  /** How many operations. */
  ops: number;
  /** First start to last end. */
  span_ns: number;
  /** Union of its operations. */
  busy_ns: number;
  /** Span minus busy. */
  idle_ns: number;
  /** Idle over span; null without a span. */
  idle_ratio: number | null;
  /** Time with a compute kernel of the stream. */
  compute_ns: number;
  /** Time with a communication kernel of the stream. */
  communication_ns: number;
  /** The part of that in which the device computes too, on any stream. */
  communication_hidden_ns: number;
  /** The rest of it. */
  communication_exposed_ns: number;
  /** Hidden over communication; null without communication. */
  overlap_ratio: number | null;
  /** Time with a copy of the stream. */
  copy_ns: number;
  /** Time with a memset of the stream. */
  memset_ns: number;
  /** HTA's host wait: gaps that end with an operation launched after the one before it had ended. */
  idle_host_wait_ns: number;
  /** HTA's kernel wait: gaps shorter than 30 us that were launched in time. */
  idle_kernel_wait_ns: number;
  /** HTA's other: the rest. */
  idle_other_ns: number;
};

/** One thread over the run. */
export type ThreadState = {
  /** Its number. */
  thread: number;
  /** Its name. */
  name: string;
  /** Whether it made most of the calls that launch GPU work. */
  launches: boolean;
  /** By counter. */
  values: Record<string, Sampled>;
};

/** What one rank sent to another on one communicator. */
export type TransferAnalysis = {
  /** The communicator's hash, in hexadecimal. */
  communicator: string;
  /** Its name, where it has one. */
  communicator_name: string | null;
  /** The job's rank that sends; null where that end was not recorded. */
  sender: number | null;
  /** The job's rank that receives; null where that end was not recorded. */
  receiver: number | null;
  /** Transfers: a Send with its Recv. */
  count: number;
  /** Those of them in a kernel with other operations. */
  shared: number;
  /** Bytes of all. */
  bytes: number | null;
  /** Transfers whose ends' times can be compared. */
  timed: number;
  /** Over those: from the sender's kernel's start to the receiver's, where the sender came first. */
  sender_wait_ns: number;
  /** Over those: from the receiver's kernel's start to the sender's, where the receiver came first. */
  receiver_wait_ns: number;
  /** Over those: from when both were there to the later end of the two kernels. */
  transfer_ns: number;
  /** Those of them in which clocks are not exact enough to say which end came first. */
  undecided: number;
  /** How far off each of the three times may be because of the clocks (99 %). */
  clock_error_ns: number;
  /** What `bandwidth` lies between, where clocks differ by as much as they may. */
  bandwidth_range: BandwidthRange | null;
  /** Bytes of those over `transfer_ns`, GB/s. Where kernels are shared their whole transfer counts: it is at least as much. */
  bandwidth: number | null;
};

/**
 * GPU time (sums of durations) that can't be attributed. Operators' `direct_ns`, `no_operator_ns` and `launch_not_recorded_ns`
 * sum to `operations_ns`; so do stacks' `direct_ns`, `no_stack_ns` and `launch_not_recorded_ns`.
 */
export type Unattributed = {
  /** All operations of the device. */
  operations_ns: number;
  /** Launched by a call outside of all operators. */
  no_operator_ns: number;
  /** The part of that which replays of CUDA graphs launched. */
  graph_ns: number;
  /** No call is recorded for it. */
  launch_not_recorded_ns: number;
  /** Launched by a call outside of all modules, and not in the backward pass of one. */
  no_module_ns: number;
  /**
   * Launched by a call whose stack is not known: outside of all Python functions, and not in the backward pass of what one did, and
   * without native functions.
   */
  no_stack_ns: number;
};

/**
 * Device memory as a whole, and how much of it nobody is known for. What operators allocated themselves, `no_operator` and
 * `caller_not_recorded` sum to `all`; so do modules', `no_module` and `caller_not_recorded`; at the peak with `not_seen_at_peak_bytes`.
 */
export type UnattributedMemory = {
  /** All that was allocated; at the peak, `peak_bytes` of the device's memory. */
  all: MemoryPart;
  /** Allocated outside of all operators. */
  no_operator: MemoryPart;
  /** Allocated outside of all modules, and not in the backward pass of one. */
  no_module: MemoryPart;
  /** Neither the thread that asked for it nor its call is recorded. */
  caller_not_recorded: MemoryPart;
  /**
   * In use at the peak, but allocated before the recording began or at an address that is not recorded. Negative where frees are
   * missing.
   */
  not_seen_at_peak_bytes: number;
};

/** A part of a device's memory. */
export type MemoryPart = {
  /** Bytes allocated. */
  allocated_bytes: number;
  /** What was in use of it when the device's memory was used most. */
  live_at_peak_bytes: number;
  /** What was in use of it at the recording's end. */
  live_at_end_bytes: number;
};

/** Who was last cannot be decided: clocks may be off by more than what lies between. */
export type Undecided = {
  /** The rank that was last by the stamps. */
  rank: number;
  /** By how much, before the one that may have been last as well. */
  margin_ns: number;
  /** By how much their clocks may be off (99 %). */
  clock_error_ns: number;
};

/** Something that began, and whose end is not recorded. */
export type UnfinishedOperation = {
  /** The rank in the job, where it is known. */
  rank: number | null;
  /** Host of the process. */
  host: string;
  /** "kernel", "copy", "memset", "call", "synchronization", "graph" or "other". */
  what: string;
  /** A kernel's or call's name; null for the others. */
  name: string | null;
  /** Device index within the process; null for what happens on the host. */
  device_index: number | null;
  /** CUPTI's stream id. */
  stream: number | null;
  /** Host thread of a call. */
  thread: number | null;
  /** Joins it to its call. */
  correlation: number;
  /** When it began. */
  start_ns: Stamp;
  /** From then to the last moment that the process's recording knows of: it took at least so long. */
  at_least_ns: number;
};

/** What became of something from the first side to the second. */
export type Verdict = "slower" | "faster" | "same" | "unknown" | "new" | "gone";

/** A rank that waits. */
export type Waiting = {
  /** Its rank in the job, where that is known. */
  rank: number | null;
  /** Its rank in the communicator. */
  communicator_rank: number;
  /** When it enqueued the operation, nanoseconds since the epoch. */
  since_ns: Stamp;
};

/** A prediction. */
export type WhatIf = {
  /** "gputrace.whatif/1". */
  schema: string;
  /** "cuda", "sim" or "imported". */
  device: string;
  /** The changes, as they are written for `--set`. */
  changes: string[];
  /** The first and the last of the steps that were replayed. */
  steps: [string, string];
  /** How many of them. */
  step_count: number;
  /** Steps of the recording that were not: they don't fit. */
  steps_left_out: number;
  /**
   * The mean step as recorded, nanoseconds: from when all ranks were through with one to when they were through with the
   * next.
   */
  measured_step_ns: number;
  /** The same by a replay without changes. */
  replayed_step_ns: number;
  /** With the changes. */
  predicted_step_ns: Interval;
  /** Measured over the middle of what is predicted. */
  speedup: number;
  /** The share of the step that no rule explains: a replay without it is shorter by so much. */
  unexplained_ratio: number;
  /** The time of each of the steps that follow another. */
  step_times_ns: StepTimes;
  /** Without changes: single ones that are worth trying, those first that save most. */
  singles: Single[];
  /** What the steps' time was spent on, without the changes. */
  critical_path: CriticalPath;
  /** Where the mean step goes on each device, without and with the changes. */
  ranks: RankTimes[];
  /** Operations that were replayed. */
  operations: number;
  /** Of those, how many have no recorded launch. */
  without_launch: number;
  /** Of those, how many are taken to have waited for what ended right before, on another stream. */
  in_time: number;
  /** Operations that are taken to have waited for another rank, by time alone. */
  hidden: number;
  /** Waits that were left out because the recorded times contradict them. */
  contradicted: number;
  /** Matches that were left out because they make a circle. */
  circles: number;
};

/** Low and high end of what is predicted. */
export type Interval = {
  /** The least. */
  low: number;
  /** The most. */
  high: number;
};

/** A device's mean step without and with the changes; unexplained gaps are kept. */
export type RankTimes = {
  /** Its rank. */
  rank: number | null;
  /** Its index within its process. */
  device_index: number;
  /** By a replay without changes. */
  replayed: RankTime;
  /** With them. */
  predicted: RankTime;
};

/**
 * What the mean step of a device is made of, nanoseconds; the parts sum to the step of the job. What happens at one time counts as
 * the first of them that it is.
 */
export type RankTime = {
  /** Kernels compute. */
  compute_ns: number;
  /** Data is on the wire. */
  transfer_ns: number;
  /** A kernel of a collective or transfer waits for other ranks. */
  waiting_ns: number;
  /** Copies and memsets. */
  copy_ns: number;
  /** The device has nothing to do. */
  idle_ns: number;
};

/** What a single change would bring. */
export type Single = {
  /** The change, as it is written for `--set`. */
  change: string;
  /** The mean step with it. */
  predicted_step_ns: Interval;
  /** What the step loses by it. */
  saves_per_step_ns: Interval;
};

/** The time of each step, nanoseconds; their means are those of the prediction. */
export type StepTimes = {
  /** Their names. */
  names: string[];
  /** As recorded. */
  measured: number[];
  /** With the changes: the middle of what is predicted. */
  predicted: number[];
};
