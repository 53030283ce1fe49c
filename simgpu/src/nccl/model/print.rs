//! The model's times as JSON lines, for comparison with NCCL's formulas.

use super::{Function, Link, Shape, choose_on, send_receive};

const USE: &str = "arguments: [hgx|pcie|two-nodes] [RANKS] [SCALE]; two-nodes puts half of the ranks on each";

/// Writes one line for each function and power of two from 128 bytes to 1 GiB: operation, bytes, ranks, nodes,
/// algorithm, protocol, channels, threads, microseconds. Send/Recv is between the first and the last rank.
///
/// # Errors
/// Says what is wrong with the arguments.
pub fn times(arguments: &[String], out: &mut dyn std::io::Write) -> Result<(), String> {
    let wrong = |what: &str| format!("{what}; {USE}");
    let topology = arguments.first().map_or("hgx", String::as_str);
    let ranks: u32 = match arguments.get(1) {
        None => 8,
        Some(ranks) => ranks
            .parse()
            .ok()
            .filter(|ranks| (2..=1024).contains(ranks))
            .ok_or_else(|| wrong("RANKS is a number from 2 on"))?,
    };
    let slower: f64 = match arguments.get(2) {
        None => 1.0,
        Some(scale) => scale
            .parse()
            .ok()
            .filter(|scale: &f64| scale.is_finite() && *scale > 0.0)
            .ok_or_else(|| wrong("SCALE is a positive number"))?,
    };
    let (nodes, link) = match topology {
        "hgx" => (1, Link::NvSwitch),
        "pcie" if ranks <= 4 => (1, Link::PcieSocket),
        "pcie" => (1, Link::PcieSystem),
        "two-nodes" if ranks.is_multiple_of(2) => (2, Link::NvSwitch),
        "two-nodes" => return Err(wrong("two nodes need an even number of RANKS")),
        _ => return Err(wrong("unknown topology")),
    };
    let shape = Shape {
        ranks,
        nodes,
        fewest_local: ranks / nodes,
        link,
        slower,
    };
    let pair = Shape {
        ranks: 2,
        fewest_local: 2 / nodes,
        ..shape
    };
    for power in 7..=30 {
        let bytes = 1u64 << power;
        let collectives = Function::ALL.iter().map(|function| {
            (
                function.name().to_string_lossy(),
                choose_on(&shape, *function, bytes, 1),
            )
        });
        let all = collectives.chain([("SendRecv".into(), send_receive(&pair, bytes))]);
        for (operation, choice) in all {
            let line = serde_json::json!({
                "operation": operation, "bytes": bytes, "topology": topology, "ranks": ranks, "nodes": nodes,
                "scale": slower, "algorithm": choice.algorithm.to_string_lossy(),
                "protocol": choice.protocol.to_string_lossy(), "channels": choice.channels,
                "threads": choice.threads, "us": choice.transfer_ns as f64 / 1e3,
            });
            writeln!(out, "{line}").map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
