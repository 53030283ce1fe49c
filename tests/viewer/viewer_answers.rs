//! What the viewer's server answers of a recording, and what it refuses.

use crate::common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use common::http::{Answer, small_recording, view};
use common::{expect_status, gputrace};
use serde_json::Value;

/// The greatest number that is the same in a browser.
const LAST_SAFE: f64 = 9_007_199_254_740_991.0;

fn assert_safe(value: &Value, path: &str) {
    match value {
        Value::Number(number) => {
            let number = number.as_f64().expect("a number");
            assert!(number.abs() <= LAST_SAFE, "{path}: {number}");
        }
        Value::Array(list) => list.iter().for_each(|value| assert_safe(value, path)),
        Value::Object(members) => members
            .iter()
            .for_each(|(key, value)| assert_safe(value, &format!("{path}.{key}"))),
        _ => {}
    }
}

#[test]
fn every_route_answers_of_a_recording() {
    let viewer = view(&[small_recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    let (begin, end) = (info["begin"].as_i64().unwrap(), info["end"].as_i64().unwrap());
    assert!(
        0 <= begin && begin < end && end < 3_600_000_000_000,
        "{begin} {end}"
    );
    let origin: i64 = info["origin_ns"].as_str().unwrap().parse().unwrap();
    assert!(origin > 1_500_000_000_000_000_000);
    assert_eq!(info["simulated"], true);
    assert_eq!(info["bands"].as_array().unwrap().len(), 2);
    assert_eq!(info["steps"].as_array().unwrap().len(), 4);
    let rows = viewer.json(&format!("{base}/rows"));
    let rows = rows["rows"].as_array().unwrap();
    let stream = rows.iter().find(|row| row["what"] == "stream").expect("a stream");
    let row = &stream["row"];
    // The first and the last slice of a row, by every way to them.
    let first = viewer.json(&format!("{base}/slice?row={row}&index=0"));
    let start = &first["start"];
    assert_eq!(*start, stream["begin"]);
    let hit = viewer.json(&format!("{base}/hit?row={row}&at={start}&tolerance=0"));
    assert_eq!((&hit["index"], &hit["start"]), (&first["index"], start));
    let key = stream["key"].as_str().unwrap();
    let linked = viewer.json(&format!("{base}/slice_at?key={key}&start={start}"));
    assert_eq!(linked, hit);
    let next = viewer.json(&format!("{base}/neighbour?row={row}&index=0&direction=next"));
    assert_eq!(next["index"], 1);
    let back = viewer.json(&format!(
        "{base}/neighbour?row={row}&index=1&direction=previous&same_name=0"
    ));
    assert_eq!(back, hit);
    let mut answers: Vec<(String, Value)> = Vec::new();
    let mut ask = |path: String| {
        let answer = viewer.json(&path);
        answers.push((path, answer));
    };
    for path in [
        format!("{base}/analysis"),
        format!("{base}/analysis?steps=1-2"),
        format!("{base}/whatif"),
        format!("{base}/whatif?set=host%3Dnone&steps=1-2"),
        format!("{base}/critical_path"),
        format!("{base}/collectives?limit=1000"),
        format!("{base}/collectives?sort=skew&order=descending"),
        format!("{base}/area?from={begin}&to={end}"),
        format!("{base}/tree?of=threads&from={begin}&to={end}&merge_numbers=1"),
        format!("{base}/search?q=gemm"),
        format!("{base}/search?q=%5Eg&regex=1&case=1&limit=5"),
        format!("{base}/names?ids=0-99"),
        format!("{base}/rows"),
        format!("{base}/slice?row={row}&index=0"),
        format!("/api/rec/{id}/live"),
        format!("/api/rec/{id}/info"),
        format!("/api/compare?a={id}&b={id}"),
        "/api/recordings".to_owned(),
        "/api/openapi.json".to_owned(),
    ] {
        ask(path);
    }
    for row in rows {
        let slice = viewer.get(&format!("{base}/slice?row={}&index=0", row["row"]));
        if slice.status == 200 {
            answers.push(("slice".to_owned(), slice.json()));
        }
    }
    for (path, answer) in &answers {
        assert_safe(answer, path);
    }
    // Stamps of the analysis lie within the recording, and are those of the command line.
    let analysis = viewer.json(&format!("{base}/analysis"));
    assert_eq!(analysis.get("collectives"), None);
    let whole = common::analysis(small_recording());
    for (rank, same) in analysis["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .zip(whole["ranks"].as_array().unwrap())
    {
        assert_eq!(rank["busy_ns"], same["busy_ns"]);
        let steps = rank["steps"].as_array().unwrap().iter();
        for (step, same) in steps.zip(same["steps"].as_array().unwrap()) {
            let stamp = step["start_ns"].as_i64().unwrap();
            assert_eq!(stamp + origin, same["start_ns"].as_i64().unwrap());
        }
    }
    let listed = viewer.json(&format!("{base}/collectives?limit=1000"));
    assert_eq!(
        listed["total"].as_u64().unwrap() as usize,
        whole["collectives"].as_array().unwrap().len(),
        "{listed} at {base}, {}",
        viewer.get(&format!("/api/rec/{id}/live")).text()
    );
    // Pictures.
    let tile = viewer.get(&format!("{base}/tiles/20/0?rows=0-{}", rows.len().min(256) - 1));
    assert_eq!(tile.status, 200);
    assert_eq!(&tile.body[..4], b"TILE".as_slice());
    assert_eq!(tile.header("content-type"), Some("application/octet-stream"));
    assert_eq!(
        tile.header("cache-control"),
        Some("private, max-age=31536000, immutable")
    );
    let counters = viewer.get(&format!(
        "{base}/counters/20/0?rows=0-{}",
        rows.len().min(256) - 1
    ));
    assert_eq!(&counters.body[..4], b"CNTR".as_slice());
    let overview = viewer.get(&format!("{base}/overview?from={begin}&to={end}&bins=100"));
    assert_eq!(&overview.body[..4], b"OVER".as_slice());
    assert_eq!(overview.body.len(), 16 + 2 * 4 * 100 * 4);
}

#[test]
fn parameters_have_limits() {
    let viewer = view(&[small_recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    for (path, status) in [
        ("tiles/51/0?rows=0", 400),
        ("tiles/-1/0?rows=0", 400),
        ("tiles/0/-1?rows=0", 400),
        ("tiles/50/18446744073709551615?rows=0", 200),
        ("tiles/0/99999999999999999999?rows=0", 400),
        ("tiles/20/0", 400),
        ("tiles/20/0?rows=x", 400),
        ("tiles/20/0?rows=5-2", 400),
        ("tiles/20/0?rows=0-4294967295", 413),
        ("tiles/20/0?rows=0-255", 200),
        ("tiles/20/0?rows=0-256", 413),
        ("tiles/20/0?rows=4294967295", 200),
        ("tiles/20/0?rows=0&more=1", 400),
        ("counters/51/0?rows=0", 400),
        ("overview?from=0&to=1000&bins=4097", 400),
        ("overview?from=0&to=1000&bins=0", 400),
        ("overview?from=5&to=5&bins=1", 400),
        ("overview?from=0&to=31536000000000000&bins=100", 200),
        (
            "overview?from=-9223372036854775808&to=9223372036854775807&bins=4096",
            200,
        ),
        ("names?ids=0-1000", 413),
        ("names?ids=4294967295", 200),
        ("slice?row=0&index=4294967295", 404),
        ("slice?row=4294967295&index=0", 404),
        ("slice?row=-1&index=0", 400),
        ("slice_at?key=nothing&start=0", 404),
        (
            "hit?row=0&at=-9223372036854775808&tolerance=9223372036854775807",
            200,
        ),
        (
            "hit?row=0&at=9223372036854775807&tolerance=9223372036854775807",
            200,
        ),
        ("hit?row=0&at=0&tolerance=-1", 400),
        ("neighbour?row=0&index=0&direction=up", 400),
        ("area?from=0&to=0", 200),
        ("area?from=10&to=0", 400),
        ("area?from=-9223372036854775808&to=9223372036854775807", 200),
        ("search?q=", 400),
        ("search?q=(&regex=1", 400),
        ("search?q=(a%7B1000%7D)%7B1000%7D&regex=1", 400),
        ("search?q=(a*)*b&regex=1", 200),
        ("search?q=a&limit=1001", 400),
        ("search?q=a&limit=0", 200),
        ("search?q=a&offset=18446744073709551615", 200),
        ("search?q=a&case=2", 400),
        ("search?q=a&from=5&to=4", 400),
        ("search?q=a&from=5&to=5&rows=0-1", 200),
        ("search?q=a&rows=x", 400),
        ("analysis?steps=2-1", 400),
        ("analysis?steps=1000-2000", 404),
        ("analysis?steps=x", 400),
        ("whatif?set=rank:99=none", 400),
        ("whatif?set=faster", 400),
        ("whatif?set=rank:0=none&set=rank:0=2x", 400),
        ("whatif?set=host=none&set=communication=0.5x", 200),
        ("whatif?change=host=none", 400),
        ("whatif?steps=2-1", 400),
        ("whatif?steps=1000-2000", 404),
        ("critical_path?steps=x", 400),
        ("critical_path?set=host=none", 400),
        ("critical_path/pieces?limit=65537", 400),
        ("critical_path/pieces?offset=18446744073709551615", 200),
        ("collectives?limit=1001", 400),
        ("collectives?sort=nothing", 400),
        ("collectives?offset=18446744073709551615", 200),
        ("tree?of=threads&from=0&to=0", 200),
        ("tree?of=threads&from=10&to=0", 400),
        ("tree?of=nothing&from=0&to=1", 400),
        ("tree?from=0&to=1", 400),
        (
            "tree?of=device_ranges&from=-9223372036854775808&to=9223372036854775807",
            200,
        ),
        ("tree?of=threads&from=0&to=1&rows=0-4096", 413),
        ("tree?of=threads&from=0&to=1&merge_numbers=2", 400),
        ("export?format=exe", 400),
        ("export?format=chrome&steps=3-1", 400),
        ("export?format=chrome&steps=1000-2000", 404),
        ("export?format=csv&table=kernels&steps=1000", 404),
        ("export?format=html&steps=1000", 404),
        ("export?format=html&steps=1000&from=0&to=1000000000", 404),
        // Step 2 is long after the first microsecond.
        ("export?format=html&steps=2&from=0&to=1000", 404),
        ("export?format=csv&table=kernels&steps=1&from=0&to=1000", 400),
        ("export?format=analysis&steps=1&from=0&to=1000", 400),
        ("export?format=chrome&ranks=7", 404),
        ("export?format=chrome&ranks=x", 400),
        ("export?format=csv", 400),
        ("export?format=csv&table=..%2fx", 400),
        ("export?format=chrome&table=kernels", 400),
        ("export?format=chrome&from=5&to=1", 400),
        ("nothing", 404),
    ] {
        let answer = viewer.get(&format!("{base}/{path}"));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        if status >= 400 {
            let error = answer.json()["error"].as_str().expect("a reason").to_owned();
            assert!(
                !error.is_empty() && error.lines().count() == 1,
                "{path}: {error:?}"
            );
        }
    }
    let long = "a".repeat(2000);
    assert_eq!(viewer.get(&format!("{base}/search?q={long}")).status, 400);
    let longer = "a".repeat(20_000);
    assert_eq!(viewer.get(&format!("{base}/search?q={longer}")).status, 414);
    assert_eq!(viewer.get(&format!("/api/rec/{id}/1/rows")).status, 410);
    assert_eq!(viewer.get(&format!("/api/rec/{id}/x/rows")).status, 400);
    // What is no request at all ends the connection, and nobody else's.
    for wrong in [
        b"\r\n\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        [
            b"GET / HTTP/1.1\r\nX: ".as_slice(),
            &vec![b'a'; 200_000],
            b"\r\n\r\n",
        ]
        .concat(),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        drop(stream.write_all(&wrong));
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    assert_eq!(viewer.get("/api/recordings").status, 200);
}

/// The files of an archive, by name.
fn untar(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    let text = |field: &[u8]| {
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    };
    while bytes[at] != 0 {
        let header = &bytes[at..at + 512];
        let size = usize::from_str_radix(text(&header[124..136]).trim(), 8).expect("a size");
        let (name, before) = (text(&header[..100]), text(&header[345..500]));
        let name = if before.is_empty() {
            name
        } else {
            format!("{before}/{name}")
        };
        files.insert(name, bytes[at + 512..at + 512 + size].to_vec());
        at += 512 + size.div_ceil(512) * 512;
    }
    files
}

/// The files below a folder, by name with another folder's before it.
/// The files of an exported folder, without its own list of them: an archive is replaced by nobody.
fn files_below(folder: &Path, name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let own = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path(), &own));
        } else if entry.file_name() != gputrace_trace::place::MARK_FILE {
            files.insert(own, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[test]
fn downloads() {
    let viewer = view(&[small_recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    let events = |answer: &Answer| {
        let json = answer.json();
        let all = json["traceEvents"].as_array().expect("events");
        all.iter().filter(|event| event["cat"] == "kernel").count()
    };
    let whole = viewer.get(&format!("{base}/export?format=chrome"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("attachment; filename=\"ddp_run.json\"")
    );
    let first = &info["steps"][1];
    let part = viewer.get(&format!(
        "{base}/export?format=chrome&from={}&to={}",
        first["begin"], first["end"]
    ));
    assert_eq!(
        part.header("content-disposition"),
        Some("attachment; filename=\"ddp_run.part.json\"")
    );
    let (all, some) = (events(&whole), events(&part));
    assert!(0 < some && some < all, "{some} of {all}");
    let packed = viewer.get(&format!("{base}/export?format=chrome&gzip=1"));
    assert_eq!(&packed.body[..2], [0x1f, 0x8b]);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_end(&mut plain)
        .unwrap();
    assert_eq!(plain, whole.body);
    // Every format is as the command line writes it.
    let folder = tempfile::tempdir().unwrap();
    for format in info["capabilities"]["exports"].as_array().unwrap() {
        let format = format.as_str().unwrap();
        if ["analysis", "csv"].contains(&format) {
            continue;
        }
        // The command line writes a file a rank unless one is named.
        let path = folder
            .path()
            .join(if format == "chrome" { "chrome.json" } else { format });
        expect_status(
            gputrace()
                .arg("export")
                .arg(small_recording())
                .args(["--format", format, "-o"])
                .arg(&path),
            0,
        );
        let download = viewer.get(&format!("{base}/export?format={format}"));
        assert_eq!(download.status, 200, "{format}: {}", download.text());
        if path.is_file() {
            assert!(download.body == std::fs::read(&path).unwrap(), "{format} differs");
        } else {
            let archive: BTreeMap<String, Vec<u8>> = untar(&download.body);
            let wanted = files_below(&path, "ddp_run");
            let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&archive), names(&wanted), "{format}");
            assert!(archive == wanted, "{format} differs");
        }
        let part = viewer.get(&format!(
            "{base}/export?format={format}&from={}&to={}",
            first["begin"], first["end"]
        ));
        assert_eq!(part.status, 200, "{format}");
        // A page has the whole analysis, and a picture of the part.
        assert!(
            format == "html" || part.body.len() < download.body.len(),
            "{format}"
        );
        let name = part.header("content-disposition").unwrap();
        assert!(name.contains("filename=\"ddp_run.part."), "{name}");
        // Some steps of one rank, as the command line has them.
        let path = folder
            .path()
            .join(format!("part-{}", path.file_name().unwrap().display()));
        expect_status(
            gputrace()
                .arg("export")
                .arg(small_recording())
                .args(["--format", format, "--steps", "1..2", "--ranks", "1", "-o"])
                .arg(&path),
            0,
        );
        let chosen = viewer.get(&format!("{base}/export?format={format}&steps=1-2&ranks=1"));
        assert_eq!(chosen.status, 200, "{format}: {}", chosen.text());
        let same = if path.is_file() {
            chosen.body == std::fs::read(&path).unwrap()
        } else {
            untar(&chosen.body) == files_below(&path, "ddp_run.steps1-2.rank1")
        };
        assert!(same, "{format} of steps differs");
        let name = chosen.header("content-disposition").unwrap();
        assert!(name.contains("filename=\"ddp_run.steps1-2.rank1."), "{name}");
        let nothing = viewer.get(&format!(
            "{base}/export?format={format}&from=900000000000000&to=900000000000001"
        ));
        assert_eq!(nothing.status, 404, "{format}");
        assert!(
            nothing.text().contains("no event in that time"),
            "{}",
            nothing.text()
        );
    }
    // The analysis is that of the command line.
    let analysis = viewer.get(&format!("{base}/export?format=analysis")).json();
    assert_eq!(analysis, common::analysis(small_recording()));
    let one = viewer
        .get(&format!("{base}/export?format=analysis&steps=1-2&ranks=1"))
        .json();
    assert_eq!(one["ranks"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["ranks"][0]["rank"], 1);
    assert_eq!(one["ranks"][0]["steps"].as_array().map(Vec::len), Some(2));
    let table = viewer.get(&format!("{base}/export?format=csv&table=kernels"));
    assert_eq!(table.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(table.text().starts_with("rank,device_index,name,kind,"));
    assert_eq!(
        viewer
            .get(&format!("{base}/export?format=csv&table=hangs"))
            .status,
        404
    );
    // Every table that the analysis writes has a name here.
    let folder = tempfile::tempdir().unwrap();
    expect_status(
        gputrace()
            .arg("analyze")
            .arg(small_recording())
            .arg("--tables")
            .arg(folder.path()),
        0,
    );
    let known = info["capabilities"]["tables"].as_array().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    for file in files
        .map(|file| file.path())
        .filter(|file| file.extension().is_some_and(|end| end == "csv"))
    {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(known.iter().any(|table| *table == name.as_str()), "{name}");
        let same = viewer.get(&format!("{base}/export?format=csv&table={name}"));
        assert_eq!(same.body, std::fs::read(&file).unwrap(), "{name}");
    }
}
