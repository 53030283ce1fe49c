//! What `gputrace record` makes of programs, whatever they and the machine do.

#[path = "../common/mod.rs"]
mod common;

mod bubble;
mod causes;
mod checkpoints;
mod clock_step;
mod collective_times;
mod compared;
mod cost;
mod dump;
mod faults;
mod graphs;
mod hang;
mod hosts;
mod killed;
mod launches;
mod library;
mod links;
mod live_line;
mod losses;
mod nccl_graphs;
mod nvtx_programs;
mod parallelisms;
mod puzzlers;
mod python_marks;
mod pytorch_operators;
mod rank_dies;
mod record_options;
mod rivals;
mod safety_ends;
mod safety_faults;
mod safety_files;
mod safety_forks;
mod safety_limits;
mod safety_python;
mod safety_threads;
mod sbatch;
mod second_subscriber;
mod shapes;
mod steps_ahead;
mod stream_waits;
mod trouble;
mod truth;
mod windows;
mod workload_check;
