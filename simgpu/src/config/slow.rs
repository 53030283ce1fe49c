//! What is slow on purpose: SIMGPU_SLOW.

use wildmatch::WildMatch;

/// What is slow on this rank, and how many times slower it is.
pub(crate) struct Slow {
    /// This rank's device.
    pub(crate) device: f64,
    /// Kernels on this rank's device: a pattern of their names, factor.
    kernels: Vec<(WildMatch, f64)>,
    /// Links: device, device, factor.
    links: Vec<(u32, u32, f64)>,
    /// Nodes whose links to other nodes are slow: node, factor.
    nics: Vec<(u32, f64)>,
}

impl Slow {
    /// Nothing is.
    pub(super) fn nothing() -> Self {
        Self {
            device: 1.0,
            kernels: Vec::new(),
            links: Vec::new(),
            nics: Vec::new(),
        }
    }

    /// Adds one part of the setting, as this rank has it.
    pub(super) fn add(&mut self, part: &str, own_rank: u32) -> Option<()> {
        let (what, by) = part.split_once('=')?;
        let by = factor(by)?;
        match what.split_once(':')? {
            ("rank", rank) => {
                if rank.parse::<u32>().ok()? == own_rank {
                    self.device = by;
                }
            }
            ("kernel", kernels) => {
                let (pattern, is_here) = match kernels.split_once('@') {
                    Some((pattern, rank)) => (pattern, rank.parse::<u32>().ok()? == own_rank),
                    None => (kernels, true),
                };
                if pattern.is_empty() {
                    return None;
                }
                if is_here {
                    self.kernels.push((WildMatch::new(pattern), by));
                }
            }
            ("link", ends) => {
                let (a, b) = ends.split_once('-')?;
                self.links.push((a.parse().ok()?, b.parse().ok()?, by));
            }
            ("nic", node) => self.nics.push((node.parse().ok()?, by)),
            _ => return None,
        }
        Some(())
    }

    /// The link between two devices, each given with its node.
    pub(super) fn link(&self, [(a, node_a), (b, node_b)]: [(u32, u32); 2]) -> f64 {
        let links = self.links.iter();
        let links = links.filter(|(x, y, _)| (*x, *y) == (a, b) || (*y, *x) == (a, b));
        let nics = self.nics.iter();
        let nics = nics.filter(|(node, _)| node_a != node_b && [node_a, node_b].contains(node));
        links
            .map(|(.., factor)| *factor)
            .chain(nics.map(|(_, factor)| *factor))
            .fold(1.0, f64::max)
    }

    /// Whether any kernels are, beside the whole device.
    pub(crate) fn has_kernels(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// Kernels of this name, beside the whole device.
    pub(crate) fn kernel(&self, name: &str) -> f64 {
        self.kernels
            .iter()
            .filter(|(pattern, _)| pattern.matches(name))
            .map(|(_, factor)| *factor)
            .fold(1.0, f64::max)
    }
}

/// How many times slower: from 1 on.
pub(super) fn factor(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|factor: &f64| factor.is_finite() && *factor >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::with;

    #[test]
    fn ranks_and_links_are_slow_by_number() {
        let config = with(&[("RANK", "3"), ("SIMGPU_SLOW", "rank:3=2.5,link:0-1=4")]);
        assert!(config.wrong.is_none());
        assert_eq!(config.slow.device, 2.5);
        assert_eq!(config.slow.links, [(0, 1, 4.0)]);
        assert!(!config.slow.has_kernels());
    }

    #[test]
    fn kernels_are_slow_by_name_and_rank() {
        let config = |rank: &'static str| {
            let slow = "kernel:*sgemm*_n?=3,kernel:add@1=2,kernel:*@1=1.5,rank:0=4";
            with(&[("RANK", rank), ("SIMGPU_SLOW", slow)])
        };
        let factors = |rank| {
            let config = config(rank);
            assert!(config.wrong.is_none(), "{:?}", config.wrong);
            [
                "simulated_sgemm_128x128_nt",
                "simulated_sgemm_128x128_tn",
                "add",
                "add_bias",
            ]
            .map(|name| config.slow.kernel(name))
        };
        assert_eq!(factors("0"), [3.0, 1.0, 1.0, 1.0]);
        assert_eq!(factors("1"), [3.0, 1.5, 2.0, 1.5]);
        for wrong in [
            "kernel:=2",
            "kernel:@1=2",
            "kernel:add@x=2",
            "kernel:add",
            "kernel:add=0.5",
            "nic:x=2",
            "gpu:1=2",
        ] {
            assert!(with(&[("SIMGPU_SLOW", wrong)]).wrong.is_some(), "{wrong}");
        }
    }

    #[test]
    fn slow_adapters_are_those_between_nodes() {
        let config = with(&[
            ("SIMGPU_TOPOLOGY", "two-nodes"),
            ("SIMGPU_SLOW", "nic:1=3,link:0-9=5,link:8-9=2"),
        ]);
        let factors = [(0, 1), (0, 8), (9, 0), (8, 9), (9, 10)].map(|(a, b)| config.link_factor(a, b));
        assert_eq!(factors, [1.0, 3.0, 5.0, 2.0, 1.0]);
    }

    #[test]
    fn a_pattern_is_the_whole_name() {
        let is_slow = |pattern: &str, name: &str| {
            let config = with(&[("SIMGPU_SLOW", &format!("kernel:{pattern}=2"))]);
            config.slow.kernel(name) > 1.0
        };
        for (pattern, name, expected) in [
            ("*gemm*", "simulated_sgemm_128x128_nn", true),
            ("relu", "relu_backward", false),
            ("relu?backward", "relu_backward", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a*b", "a_b_c", false),
            ("a?", "a", false),
            ("?*", "a", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(is_slow(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!is_slow(&"a*".repeat(40), &"a".repeat(39)));
        assert!(!is_slow(&format!("{}b", "a*".repeat(40)), &"a".repeat(1000)));
    }
}
