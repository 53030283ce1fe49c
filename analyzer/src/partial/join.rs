//! The analysis of what a partial holds.

use gputrace_trace::recording::{segment_of, unchecked_note};
use gputrace_trace::{Loss, Process};

use super::clocks::unaligned;
use super::parts::{Part, Partial};
use crate::alone::ForGraph;
use crate::analysis::Analysis;
use crate::graph::rows::Rows;
use crate::hangs::{self, Situation};
use crate::job_ranks::{Away, Lost, listed};
use crate::options::Options;
use crate::{align, reduce};

impl Partial {
    /// Everything that is known of the job, and whether it is simulated. `lost` are processes that could not be read, with why.
    #[must_use]
    pub fn analysis(mut self, options: &Options, lost: Vec<Lost>) -> (Analysis, bool) {
        self.sort();
        let named = self.missing();
        let (here, all) = self.here();
        let unchecked: Vec<(usize, usize)> = self
            .bases
            .iter()
            .zip(&self.parts)
            .map(|(base, parts)| {
                let own: usize = parts.iter().map(|part| part.unchecked).sum();
                (base.unchecked + own, base.folders)
            })
            .collect();
        let recordings: Vec<_> = self.bases.iter().map(|base| &base.recording).collect();
        let unaligned = unaligned(&recordings);
        // Whoever was aligned when it was read has said so in its notes.
        let untold = self.bases.iter().any(|base| !base.was_aligned);
        // What a recorder noticed; rows to look at are there only if no recording ended well.
        let manifests = self.bases.iter().map(|base| &base.recording.manifest);
        let noticed = manifests.clone().find(|manifest| !manifest.hangs.is_empty());
        let noticed = noticed.map(|manifest| manifest.hangs.clone());
        let is_looked_at = manifests.clone().all(hangs::may_have_hung);
        let mut bases = self.bases.into_iter().map(|base| {
            let mut recording = base.recording;
            if let Some(alignment) = recording.clocks.take_if(|_| !base.was_aligned) {
                // Its processes were aligned when they were read; what was sampled of hosts was not.
                recording.align(alignment);
            }
            recording
        });
        let mut whole = bases.next().unwrap_or_default();
        whole.unaligned = unaligned;
        let mut paths = vec![whole.path.display().to_string()];
        for other in bases {
            paths.push(other.path.display().to_string());
            whole.absorb(other);
        }
        whole.path = paths.join(" ").into();
        let clocks = whole.clocks.clone().filter(|_| untold);
        let mut parts: Vec<Part> = Vec::new();
        for mut of_base in self.parts {
            of_base.sort_by(|a, b| segment_of(&a.folder).cmp(&segment_of(&b.folder)));
            parts.extend(of_base);
        }
        for (unchecked, folders) in unchecked {
            whole.notes.extend(unchecked_note(unchecked, folders));
        }
        for part in &mut parts {
            whole.losses.append(&mut part.losses);
            whole.notes.append(&mut part.notes);
        }
        parts.sort_by(|a, b| place(a).cmp(&place(b)));
        let mut of = Vec::with_capacity(parts.len());
        for part in parts {
            let Part {
                folder,
                header,
                alone,
                mut rows,
                kept,
                mut hang,
                names,
                ..
            } = part;
            if let Some(numbers) = whole.names.take_in(names) {
                rows.renumber(&numbers);
                hang.renumber(&numbers);
            }
            whole.processes.push(Process {
                folder: folder.clone(),
                header,
                tables: hang,
            });
            let process = Process {
                folder,
                tables: rows,
                ..Process::default()
            };
            of.push((alone, ForGraph::Rows(Box::new(Rows { process, kept }))));
        }
        if let Some(alignment) = &clocks {
            align::tell(&mut whole, alignment);
        }
        if !named.is_empty() {
            let name = |(folder, rank): &(String, Option<u32>)| match rank {
                Some(rank) => format!("rank {rank}"),
                None => folder.clone(),
            };
            let names: Vec<String> = named.iter().map(name).collect();
            let were = if names.len() == 1 { "was" } else { "were" };
            whole.losses.push(Loss {
                what: format!(
                    "{here} of {all} processes are here: {} {were} not put together",
                    listed(&names)
                ),
                count: Some(names.len() as u64),
                affects: "everything of those processes, and whatever compares or sums ranks".to_owned(),
            });
        }
        for lost in lost.iter().filter(|lost| lost.ranks.is_empty()) {
            whole.losses.push(Loss {
                what: format!("left out: {}", lost.why),
                count: Some(1),
                affects: "the ranks of that file".to_owned(),
            });
        }
        let is_simulated = whole.is_simulated();
        let hangs = noticed.unwrap_or_else(|| match is_looked_at {
            true => hangs::hangs(&whole, &Situation::default()),
            false => Vec::new(),
        });
        let away = Away { named, lost };
        let analysis = reduce::reduce(&whole, of, hangs, &away, options, false).0;
        (analysis, is_simulated)
    }
}

fn place(part: &Part) -> (u32, &str) {
    (part.header.rank.unwrap_or(u32::MAX), &part.folder)
}
