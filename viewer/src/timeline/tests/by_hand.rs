//! Each answer about the small job, by hand.

use regex::Regex;

use super::*;

#[test]
fn rows_are_told_by_rank_stream_thread_and_communicator() {
    let (plain, whole) = timelines(recording());
    let keys = |timeline: &Timeline| -> Vec<(String, String, u32)> {
        let rows = timeline.rows().iter();
        rows.map(|row| (row.key.clone(), row.path.join(" > "), row.slices))
            .collect()
    };
    let of_rank = |rank: u32| {
        [
            ("gpu0/stream7/0", "GPU 0 > stream 7", 3),
            ("gpu0/stream8/0", "GPU 0 > stream 8", 1),
            ("nvtx/11/0", "NVTX > thread 11", 1),
            ("nvtx/11/1", "NVTX > thread 11", 1),
            ("thread/11/0", "thread 11", 5),
            ("thread/11/1", "thread 11", 2),
        ]
        .map(|(key, path, slices)| {
            (
                format!("r{rank}.p0/{key}"),
                format!("rank {rank} > {path}"),
                slices,
            )
        })
    };
    let mut expected: Vec<(String, String, u32)> = of_rank(0).into_iter().chain(of_rank(1)).collect();
    assert_eq!(keys(&plain), expected);
    let communicator = |rank: u32, slices| {
        let key = format!("communicator/0x0000000000000abc/r{rank}.p0/gpu0/0");
        (
            key,
            format!("communicators > world · 2 ranks > rank {rank}"),
            slices,
        )
    };
    let projected = |rank: u32, lane: u32| {
        let path = format!("rank {rank} > GPU 0 > NVTX on the GPU > thread 11");
        (format!("r{rank}.p0/gpu0/nvtx/11/{lane}"), path, 1)
    };
    expected.splice(6..6, [projected(1, 0), projected(1, 1)]);
    expected.splice(0..0, [projected(0, 0), projected(0, 1)]);
    expected.splice(0..0, [communicator(0, 2), communicator(1, 1)]);
    assert_eq!(keys(&whole), expected);
    assert!((0..).zip(whole.rows()).all(|(place, row)| row.row == place));
    assert_eq!((whole.origin_ns(), whole.begin(), whole.end()), (STARTED, 0, 910));
    assert_eq!(plain.events(), 26);
    let bands: Vec<(Option<u32>, u32)> = whole
        .bands()
        .iter()
        .map(|band| (band.rank, band.process))
        .collect();
    assert_eq!(bands, [(Some(0), 0), (Some(1), 1)]);
}

#[test]
fn tiles_are_columns_of_the_rows_that_were_asked_for() {
    let (_, whole) = timelines(recording());
    let (stream, missing) = (row_of(&whole, "r0.p0/gpu0/stream7/0"), 999);
    let communicator = row_of(&whole, "communicator/0x0000000000000abc/r0.p0/gpu0/0");
    let (words, _) = decoded(&whole.tile(0, 0, &[missing, stream, communicator]));
    assert_eq!(words[..8], [0x454C_4954, 1, 0, 2, stream, communicator, 3, 2]);
    let floats: Vec<f32> = words[8..].iter().map(|word| f32::from_bits(*word)).collect();
    assert_eq!(floats[..6], [200.0, 300.0, 600.0, 300.0, 400.0, 700.0]);
    let kinds: Vec<u32> = words[17..20].iter().map(|meta| meta & 0xff_ffff).collect();
    assert_eq!(kinds, [255 << 8, 255 << 8 | 2, 255 << 8]);
    assert_eq!(words[20..23], [0, 1, 2]);
    // The wait until the last rank comes, and the transfer.
    assert_eq!(floats[15..19], [650.0, 740.0, 740.0, 900.0]);
    let kinds: Vec<u32> = words[29..31].iter().map(|meta| meta & 255).collect();
    assert_eq!(kinds, [13, 9]);
    let names = whole.names(&[words[14], words[15], words[27], words[28], u32::MAX], false);
    let texts: Vec<&str> = names.names.values().map(String::as_str).collect();
    assert_eq!(
        texts,
        [
            "gemm",
            "AllReduce",
            "AllReduce: wait",
            "Memcpy HtoD (Pinned -> Device)"
        ]
    );
    assert!(names.colors.is_empty());
    let ranges = whole.slices(row_of(&whole, "r0.p0/nvtx/11/0")).unwrap();
    assert_eq!(
        whole
            .names(&[ranges.name(0)], false)
            .colors
            .values()
            .next()
            .unwrap(),
        "#123456"
    );
}

#[test]
fn overviews_are_shares_of_time() {
    let (plain, whole) = timelines(recording());
    for timeline in [&plain, &whole] {
        let (words, floats) = decoded(&timeline.overview(0, 1000, 2));
        assert_eq!(words[..4], [0x5245_564F, 1, 2, 2]);
        // Rank 0, halves of 500 ns: compute 200 to 300, copy 300 to 400; compute 600 to 650, both to 700, then alone.
        assert_eq!(floats[..8], [0.2, 0.1, 0.0, 0.1, 0.0, 0.4, 0.2, 0.0]);
        // Rank 1 communicates from 740 on.
        assert_eq!(floats[8..], [0.2, 0.2, 0.0, 0.0, 0.0, 0.32, 0.2, 0.0]);
    }
    let (_, floats) = decoded(&whole.overview(250, 250, 1));
    assert_eq!(floats[..4], [1.0, 0.0, 0.0, 0.0]);
    let (_, floats) = decoded(&whole.overview(i64::MIN, i64::MAX, 1));
    assert!(floats.len() == 8 && floats.iter().all(|share| (0.0..1e-12).contains(share)));
}

fn field<'a>(slice: &'a SliceDetails, label: &str) -> &'a str {
    let field = slice.fields.iter().find(|field| field.label == label);
    &field
        .unwrap_or_else(|| panic!("no {label} in {:?}", slice.fields))
        .value
}

fn links(slice: &SliceDetails) -> Vec<(&str, &str, &str, i64)> {
    let links = slice.links.iter();
    links
        .map(|link| {
            (
                link.link_type,
                link.label.as_str(),
                link.reference.name.as_str(),
                link.reference.start,
            )
        })
        .collect()
}

#[test]
fn a_kernel_is_known_with_its_launch_ranges_and_the_gap_before_it() {
    let (plain, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let gemm = whole.slice(row, 0).unwrap();
    assert_eq!(gemm.full_name, "net::gemm(float*)");
    assert_eq!(
        (gemm.reference.name.as_str(), gemm.reference.kind, gemm.end),
        ("gemm", 0, 300)
    );
    assert_eq!(field(&gemm, "Grid"), "8 × 2 × 1 (16 blocks)");
    assert_eq!(field(&gemm, "Block"), "128 × 1 × 1 (128 threads)");
    assert_eq!(field(&gemm, "Occupancy, theoretical"), "100.0");
    assert_eq!(field(&gemm, "From its call to its start"), "90 ns");
    assert_eq!(field(&gemm, "From its call's end to its start"), "80 ns");
    assert_eq!(gemm.nvtx, ["step 0", "forward"]);
    assert_eq!(links(&gemm), [("launch", "launched by", "cudaLaunchKernel", 110)]);
    assert_eq!((gemm.before, gemm.collective), (None, None));
    // Idle from 400 to 600: the call that ends it began at 550, so the host was late for most of it.
    let relu = whole.slice(row, 2).unwrap();
    let before = relu.before.unwrap();
    assert_eq!(
        (before.from, before.to, before.cause),
        (400, 600, Some("host_late"))
    );
    let text =
        "The GPU was idle for 200 ns: the host launched late. Thread 11 was in step 0 for 150 ns of it.";
    assert_eq!(before.text, text);
    assert_eq!(relu.nvtx, ["step 0"]);
    // Without an analysis the gap is known, and its cause is not.
    let early = plain.slice(row_of(&plain, "r0.p0/gpu0/stream7/0"), 2).unwrap();
    let before = early.before.unwrap();
    assert_eq!(
        (before.from, before.cause, before.text.as_str()),
        (400, None, "The GPU was idle for 200 ns.")
    );
    let copy = whole.slice(row, 1).unwrap();
    assert_eq!(
        (field(&copy, "Bytes"), field(&copy, "Bandwidth")),
        ("1.50 kB (1\u{202f}500 B)", "15.0")
    );
    assert_eq!(whole.slice(row, 3), None);
    assert_eq!(whole.slice(999, 0), None);
}

#[test]
fn calls_and_synchronizations_lead_to_what_they_are_about() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r1.p0/thread/11/0");
    let copy = whole.slice(row, 1).unwrap();
    assert_eq!(
        links(&copy),
        [("operation", "launched", "Memcpy HtoD (Pinned -> Device)", 300)]
    );
    let wait = whole.slice(row, 4).unwrap();
    let kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
    assert_eq!(
        links(&wait),
        [
            ("synchronization", "stream synchronize", "stream synchronize", 591),
            ("synchronization", "waited for", kernel, 740)
        ]
    );
    let inner = whole.slice(row_of(&whole, "r1.p0/thread/11/1"), 1).unwrap();
    assert_eq!(
        links(&inner),
        [
            ("synchronization", "called by", "cudaStreamSynchronize", 590),
            ("synchronization", "waited for", kernel, 740)
        ]
    );
}

#[test]
fn a_range_on_a_device_spans_what_was_launched_in_it() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/nvtx/11/0");
    // The calls from 110 to 565: the first kernel starts at 200, the AllReduce ends at 900.
    let step = whole.slice(row, 0).unwrap();
    let told = (
        step.full_name.as_str(),
        step.reference.start,
        step.end,
        step.reference.kind,
    );
    assert_eq!(told, ("step 0", 200, 900, 6));
    assert_eq!(field(&step, "On the host"), "900 ns");
    assert_eq!(links(&step), [("launch", "on its thread", "step 0", 0)]);
    assert_eq!(step.nvtx, Vec::<String>::new());
    // The calls at 110 and 130: a kernel from 200 and a copy until 400.
    let forward = whole.slice(row + 1, 0).unwrap();
    assert_eq!(
        (forward.full_name.as_str(), forward.reference.start, forward.end),
        ("forward", 200, 400)
    );
    assert_eq!(forward.nvtx, ["step 0"]);
}

#[test]
fn a_collective_is_known_with_its_peers() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream8/0");
    let kernel = whole.slice(row, 0).unwrap();
    assert_eq!(kernel.reference.kind, 1);
    assert_eq!(
        (
            field(&kernel, "Waited for other ranks"),
            field(&kernel, "Transfer")
        ),
        ("90 ns", "160 ns")
    );
    assert_eq!(
        (field(&kernel, "Bytes"), field(&kernel, "Algorithm")),
        ("1.00 kB (1\u{202f}000 B)", "RING")
    );
    let collective = kernel.collective.as_ref().unwrap();
    assert_eq!(
        (collective.collective.start_ns, collective.collective.skew_ns),
        (Some(TimeNs(650)), Some(90))
    );
    let told: Vec<_> = collective
        .participants
        .iter()
        .map(|part| {
            let row = part.reference.as_ref().map(|reference| reference.row);
            (part.rank, part.arrival, part.wait, part.transfer, row)
        })
        .collect();
    let other = row_of(&whole, "r1.p0/gpu0/stream8/0");
    assert_eq!(
        told,
        [
            (Some(0), Some(650), Some(90), Some(160), Some(row)),
            (Some(1), Some(740), Some(0), Some(160), Some(other))
        ]
    );
    let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
    assert_eq!(
        links(&kernel),
        [
            ("launch", "launched by", "cudaLaunchKernel", 565),
            ("collective", "on its communicator", "AllReduce", 740),
            ("launch", "enqueued by", "AllReduce", 562),
            ("collective", "rank 1", name, 740),
        ]
    );
    // The stream had nothing before it, and the device was busy.
    assert_eq!(kernel.before, None);
    let enqueued = whole.slice_at("r0.p0/thread/11/0", 562);
    assert_eq!(enqueued.as_ref().map(|at| at.name.as_str()), Some("AllReduce"));
    let line = row_of(&whole, "communicator/0x0000000000000abc/r0.p0/gpu0/0");
    let wait = whole.slice(line, 0).unwrap();
    assert_eq!(
        (wait.full_name.as_str(), wait.reference.duration),
        ("AllReduce: wait", 90)
    );
    assert_eq!(wait.nvtx, ["step 0"]);
    let all = whole.collectives(&CollectiveQuery {
        limit: 10,
        last_rank: Some(1),
        ..CollectiveQuery::default()
    });
    assert_eq!(
        (
            all.total,
            all.collectives.len(),
            all.collectives[0].participants.len()
        ),
        (1, 1, 2)
    );
    let none = CollectiveQuery {
        limit: 10,
        last_rank: Some(0),
        ..CollectiveQuery::default()
    };
    assert_eq!(whole.collectives(&none).total, 0);
}

#[test]
fn slices_are_found_by_place_name_and_neighbourhood() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let start = |reference: Option<Ref>| reference.map(|reference| reference.start);
    assert_eq!(start(whole.hit(row, 250, 0)), Some(200));
    assert_eq!(start(whole.hit(row, 300, 0)), Some(300));
    assert_eq!(start(whole.hit(row, 410, 0)), None);
    assert_eq!(start(whole.hit(row, 410, 11)), Some(300));
    assert_eq!(start(whole.hit(row, 590, 11)), Some(600));
    assert_eq!(start(whole.hit(row, i64::MAX, 11)), None);
    assert_eq!(start(whole.neighbour(row, 1, Direction::Next, false)), Some(600));
    assert_eq!(
        start(whole.neighbour(row, 1, Direction::Previous, false)),
        Some(200)
    );
    assert_eq!(start(whole.neighbour(row, 0, Direction::Previous, false)), None);
    assert_eq!(start(whole.neighbour(row, 0, Direction::Next, true)), None);
    let calls = row_of(&whole, "r0.p0/thread/11/0");
    assert_eq!(start(whole.neighbour(calls, 0, Direction::Next, true)), Some(550));
    assert_eq!(start(whole.slice_at("r0.p0/gpu0/stream7/0", 300)), Some(300));
    assert_eq!(whole.slice_at("r0.p0/gpu0/stream7/0", 301), None);
    assert_eq!(whole.slice_at("nowhere", 300), None);
    let found = whole.search(&Regex::new("(?i)GEMM").unwrap(), 1, 0);
    assert_eq!((found.total, found.names, found.truncated), (2, 1, true));
    assert_eq!((found.hits[0].row, found.hits[0].start), (row, 200));
    // 200 of 910 ns in 512ths is the 112th.
    assert_eq!(
        (
            found.ticks.len(),
            found.ticks[112],
            found.ticks.iter().sum::<u32>()
        ),
        (512, 2, 2)
    );
    let rest = whole.search(&Regex::new("gemm").unwrap(), 5, 1);
    assert_eq!((rest.hits.len(), rest.truncated), (1, false));
    assert_eq!(rest.hits[0].row, row_of(&whole, "r1.p0/gpu0/stream7/0"));
    assert_eq!(whole.search(&Regex::new("nothing").unwrap(), 5, 0).total, 0);
    // A range is on its thread, and not once more on the GPU.
    let ranges = whole.search(&Regex::new("forward").unwrap(), 5, 0);
    assert_eq!(ranges.total, 2);
    assert!(
        ranges
            .hits
            .iter()
            .all(|hit| whole.rows()[hit.row as usize].device.is_none())
    );
    // Of one row and one time: its end is not in it.
    let starts_of = |rows: Option<Vec<u32>>, starts: Option<(i64, i64)>| -> Vec<i64> {
        let place = Where { rows, starts };
        let found = whole.search_where(&Regex::new("gemm").unwrap(), &place, 5, 0);
        assert_eq!(found.total, found.hits.len() as u64);
        found.hits.iter().map(|hit| hit.start).collect()
    };
    assert_eq!(starts_of(Some(vec![row]), None), [200]);
    assert_eq!(
        starts_of(None, Some((200, 201))),
        starts_of(None, Some((i64::MIN, 201)))
    );
    assert_eq!(starts_of(Some(vec![row]), Some((201, i64::MAX))), [0i64; 0]);
    assert_eq!(starts_of(Some(vec![row]), Some((100, 200))), [0i64; 0]);
    assert_eq!(starts_of(Some(vec![]), None), [0i64; 0]);
}

#[test]
fn an_area_sums_up_what_lies_in_it() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let area = whole.area(250, 650, Some(&[row, 999]));
    assert_eq!(
        area.rows,
        [AreaRow {
            row,
            count: 3,
            busy: 50 + 100 + 50,
            idle: 200
        }]
    );
    let names: Vec<(&str, u64, i64)> = area
        .names
        .iter()
        .map(|name| (name.name.as_str(), name.count, name.total))
        .collect();
    assert_eq!(names.len(), 3);
    assert!(names.contains(&("gemm", 1, 100)));
    assert_eq!((area.count, area.total, area.more), (3, 300, 0));
    assert_eq!(whole.area(0, 1000, None).count, 26 + 3 + 4);
    assert_eq!(whole.area(500, 400, None).count, 0);
}

/// Path of names, count, total and own time of each node of a tree.
fn nodes(tree: &Tree) -> Vec<(String, u64, i64, i64)> {
    let mut paths: Vec<String> = Vec::new();
    let mut nodes = Vec::new();
    for node in &tree.nodes {
        let path = match node.parent {
            Some(parent) => format!("{}/{}", paths[parent as usize], node.name),
            None => node.name.clone(),
        };
        paths.push(path.clone());
        nodes.push((path, node.count, node.total, node.self_ns));
    }
    nodes
}

#[test]
fn names_are_short_or_whole() {
    let (_, whole) = timelines(recording());
    let slices = whole.slices(row_of(&whole, "r0.p0/gpu0/stream7/0")).unwrap();
    let gemm = slices.name(0);
    assert_eq!(whole.names(&[gemm], false).names[&gemm], "gemm");
    assert_eq!(whole.names(&[gemm], true).names[&gemm], "net::gemm(float*)");
}

#[test]
fn a_tree_merges_what_threads_were_in() {
    let (_, whole) = timelines(recording());
    let node = |path: &str, count, total, own| (path.to_owned(), count, total, own);
    // Of both ranks: each "step 0" of 900 has "forward" of 300, a launch of 10 and an enqueueing of 22 in it; the
    // synchronization outlasts it and stands beside it.
    let tree = whole.tree(TreeOf::Threads, 0, 1000, None, true);
    assert_eq!(
        nodes(&tree),
        [
            node("step 0", 2, 1800, 2 * (900 - 300 - 10 - 22)),
            node("step 0/forward", 2, 600, 2 * (300 - 10 - 20)),
            node("step 0/forward/cudaMemcpyAsync", 2, 40, 40),
            node("step 0/forward/cudaLaunchKernel", 2, 20, 20),
            node("step 0/AllReduce", 2, 44, 2 * (22 - 15)),
            node("step 0/AllReduce/cudaLaunchKernel", 2, 30, 30),
            node("step 0/cudaLaunchKernel", 2, 20, 20),
            node("cudaStreamSynchronize", 2, 640, 2 * (320 - 318)),
            node("cudaStreamSynchronize/stream synchronize", 2, 636, 636),
        ]
    );
    assert_eq!(
        (tree.threads, tree.total, tree.more, tree.left_out),
        (2, 2440, 0, 0)
    );
    let longest = &tree.nodes[0].longest;
    assert_eq!(
        (longest.start, longest.duration, longest.name.as_str()),
        (0, 900, "step 0")
    );
    assert_eq!(
        whole
            .slice_at(&whole.rows()[longest.row as usize].key, 0)
            .as_ref(),
        Some(longest)
    );
    // Of one rank, cut: a row stands for its thread, whichever it is.
    let row = row_of(&whole, "r1.p0/nvtx/11/1");
    assert_eq!(
        nodes(&whole.tree(TreeOf::Ranges, 300, 500, Some(&[row]), true)),
        [node("step 0", 1, 200, 100), node("step 0/forward", 1, 100, 100)]
    );
    assert_eq!(
        nodes(&whole.tree(
            TreeOf::Calls,
            0,
            200,
            Some(&[row_of(&whole, "r0.p0/thread/11/0")]),
            false
        )),
        [
            node("cudaMemcpyAsync", 1, 20, 20),
            node("cudaLaunchKernel", 1, 10, 10)
        ]
    );
    // On the device "forward" lasts from its first kernel to the end of its copy.
    let tree = whole.tree(TreeOf::DeviceRanges, 0, 1000, None, false);
    assert_eq!(nodes(&tree)[1], node("step 0/forward", 2, 400, 400));
    assert_eq!(
        whole.tree(TreeOf::Threads, 10_000, 20_000, None, true),
        Tree::default()
    );
    assert_eq!(
        whole.tree(TreeOf::Threads, 0, 1000, Some(&[]), true),
        Tree::default()
    );
}

#[test]
fn a_tree_merges_numbered_ranges() {
    let mut recording = Recording::default();
    let mut process = Process::default();
    process.header.rank = Some(0);
    for step in 3..6 {
        let start = 100 * step;
        let number = recording.names.intern(&format!("step {step}"));
        range(&mut process.tables, number, 11, start, start + 90);
        let layer = recording
            .names
            .intern(if step == 4 { "layer 1" } else { "attention" });
        range(&mut process.tables, layer, 11, start + 10, start + 20 + step);
    }
    recording.processes.push(process);
    let whole = Timeline::build(&Arc::new(recording));
    let node = |path: &str, count, total, own| (path.to_owned(), count, total, own);
    let merged = whole.tree(TreeOf::Ranges, 0, 1000, None, true);
    assert_eq!(
        nodes(&merged),
        [
            node("step *", 3, 270, 270 - 42),
            node("step */attention", 2, 13 + 15, 28),
            node("step */layer 1", 1, 14, 14),
        ]
    );
    // Since the first range, at 300.
    assert_eq!(merged.nodes[1].longest.start, 510 - 300);
    let each = whole.tree(TreeOf::Ranges, 0, 1000, None, false);
    assert_eq!(each.nodes.len(), 6);
    assert_eq!(nodes(&each)[0], node("step 3", 1, 90, 77));
}
