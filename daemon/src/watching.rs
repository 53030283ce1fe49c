//! What is done about what is noticed.

use crate::state::State;

impl State {
    /// Steps of a job may have ended.
    pub fn steps_ended(&mut self, id: &str, now_ns: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.history.complete(now_ns);
    }

    /// Rows of a job were lost.
    pub fn rows_were_lost(&mut self, _id: &str, _rank: u32, _lost: u64, _now_ns: i64) {}
}
