//! What a rank's run came to, in lines for the terminal.

use crate::error::Error;
use crate::store::Store;

use super::meter::StageTimes;
use super::pipeline;
use super::runner::Runner;

impl Runner {
    /// How busy each stage was, in lines for the terminal of the first rank. All ranks must call.
    pub(super) fn stage_times(&self, store: &Store) -> Result<Vec<String>, Error> {
        if self.mesh.stage.ranks == 1 {
            return Ok(Vec::new());
        }
        let own = self.pipeline.as_ref().map(|pipe| pipe.meter.times());
        let StageTimes { busy_ms, window_ms } = own.unwrap_or_default();
        let counts = self.mesh.data.rank == 0 && self.mesh.tensor.rank == 0;
        let text = if counts {
            format!("{} {busy_ms} {window_ms}", self.mesh.stage.rank)
        } else {
            String::new()
        };
        let Some(all) = store.gather(text.as_bytes())? else {
            return Ok(Vec::new());
        };
        let mut stages: Vec<[f64; 3]> = all
            .iter()
            .filter_map(|bytes| {
                let text = String::from_utf8_lossy(bytes);
                let numbers: Vec<f64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
                numbers.try_into().ok()
            })
            .collect();
        stages.sort_by(|a, b| a[0].total_cmp(&b[0]));
        // The first stage begins first and ends last: its window is the pipeline's.
        let window = stages.first().map_or(0.0, |stage| stage[2]);
        let formula = pipeline::bubble(stages.len(), self.microbatches);
        let mut lines = vec![format!(
            "pipeline of {} stages, {} microbatches: {window:.2} ms a step; bubble by the formula {:.1} %",
            stages.len(),
            self.microbatches,
            formula * 100.0
        )];
        for [stage, busy, _] in stages {
            lines.push(format!(
                "  stage {stage}: {busy:.2} ms of passes, bubble {:.1} %",
                (1.0 - busy / window) * 100.0
            ));
        }
        Ok(lines)
    }

    /// The greatest norms of the last step's gradients, where they are watched. All ranks must call.
    pub(super) fn norms(&self) -> Result<Vec<String>, Error> {
        let Some(norms) = self.sharing.norms(&self.gpu)? else {
            return Ok(Vec::new());
        };
        let mut named: Vec<(f32, &String)> = norms.into_iter().zip(&self.tensors).collect();
        named.sort_by(|a, b| b.0.total_cmp(&a.0));
        let first = "norms of the last step's gradients, the greatest first:".to_owned();
        let rest = named
            .iter()
            .take(5)
            .map(|(norm, name)| format!("  {name}: {norm:.6}"));
        Ok(std::iter::once(first).chain(rest).collect())
    }
}
