//! Sources of advisories that are larger than the memory they may use.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::json;

use crate::support::{Mode, Outcome, Place, processes};

/// A record of its own package, padded to `size` bytes with text that compresses badly.
fn record(number: usize, size: usize) -> String {
    let mut noise = String::with_capacity(size);
    let mut state = number as u64 + 1;
    while noise.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push_str(&format!("{:016x}", state));
    }
    json!({"id": format!("GHSA-{number}"), "modified": "2026-01-01T00:00:00Z", "details": noise, "affected":
        [{"package": {"ecosystem": "npm", "name": format!("package{number}")}, "versions": ["1.0.0"]}]})
    .to_string()
}

struct Zip {
    file: BufWriter<File>,
    at: u32,
    directory: Vec<u8>,
    count: u16,
}

impl Zip {
    fn make(path: &Path) -> Self {
        Self { file: BufWriter::new(File::create(path).unwrap()), at: 0, directory: Vec::new(), count: 0 }
    }

    /// `packed`: deflated, else as it is.
    fn add(&mut self, name: &str, content: &[u8], packed: bool) {
        let mut data = content.to_vec();
        if packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(content).unwrap();
            data = encoder.finish().unwrap();
        }
        let number = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
        let short = |value: usize| u16::try_from(value).unwrap().to_le_bytes();
        let method = short(if packed { 8 } else { 0 });
        let sizes = [[0; 4], number(data.len()), number(content.len())].concat();
        let tail = [sizes, short(name.len()).to_vec()].concat();
        let head = [&[20, 0, 0, 0][..], &method, &[0; 4], &tail, &[0; 2]].concat();
        let local = [&b"PK\x03\x04"[..], &head, name.as_bytes()].concat();
        self.directory.extend(
            [&b"PK\x01\x02\x14\0"[..], &head, &[0; 10], &self.at.to_le_bytes(), name.as_bytes()].concat(),
        );
        self.file.write_all(&local).unwrap();
        self.file.write_all(&data).unwrap();
        self.at += u32::try_from(local.len() + data.len()).unwrap();
        self.count += 1;
    }

    fn finish(mut self) {
        let size = u32::try_from(self.directory.len()).unwrap().to_le_bytes();
        self.file.write_all(&self.directory).unwrap();
        let end = [
            &b"PK\x05\x06"[..],
            &[0; 4],
            &self.count.to_le_bytes(),
            &self.count.to_le_bytes(),
            &size,
            &self.at.to_le_bytes(),
            &[0; 2],
        ];
        self.file.write_all(&end.concat()).unwrap();
        self.file.flush().unwrap();
    }
}

/// How it ended, and the most memory that it had.
fn update(place: &Place, source: &Path) -> (Outcome, u64) {
    let mut command = place.agentsh(&["advisories", "update", "--source", source.to_str().unwrap()]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(processes::peak_memory(child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (
        Outcome {
            code: ended.status.code().unwrap(),
            stdout: text(ended.stdout),
            stderr: text(ended.stderr),
        },
        most,
    )
}

fn shows(place: &Place, id: &str) -> bool {
    Outcome::of(&mut place.agentsh(&["advisories", "show", id])).code == 0
}

/// Memory limit, for a record of 2 MiB in several forms and the program itself.
const MAX_COUNT: u64 = 96 << 20;

#[test]
#[ignore = "takes long"]
fn advisory_archive_may_be_of_any_size() {
    let place = Place::new(Mode::Invoker);
    let path = place.path("all.zip");
    let mut zip = Zip::make(&path);
    // More than half a GiB when it is unpacked, and 160 MiB packed.
    let filler = vec![b' '; 4 << 20];
    for number in 0..120 {
        zip.add(&format!("filler{number}.txt"), &filler, true);
    }
    for number in 0..80 {
        zip.add(&format!("GHSA-{number}.json"), record(number, 2 << 20).as_bytes(), number % 2 == 0);
    }
    zip.add("broken.json", b"{", false);
    zip.add("large.json", &vec![b'x'; 3 << 20], false);
    zip.finish();
    assert!(std::fs::metadata(&path).unwrap().len() > 120 << 20);
    let (outcome, most) = update(&place, &path);
    assert_eq!(outcome.code, 0, "{outcome}");
    assert!(outcome.stdout.contains(": 80 read, 2 not read (broken.json"), "{outcome}");
    assert!(most < MAX_COUNT, "{most} bytes of memory");
    assert!(shows(&place, "GHSA-0") && shows(&place, "GHSA-79") && !shows(&place, "GHSA-80"));

    // All of it or nothing: the last file has an unknown compression.
    let other = place.path("other.zip");
    let mut zip = Zip::make(&other);
    for number in 100..110 {
        zip.add(&format!("GHSA-{number}.json"), record(number, 2 << 20).as_bytes(), false);
    }
    zip.add("odd.json", b"{}", true);
    zip.finish();
    let mut bytes = std::fs::read(&other).unwrap();
    let entry = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    bytes[entry + 10] = 99;
    std::fs::write(&other, bytes).unwrap();
    let (outcome, _) = update(&place, &other);
    assert!(
        outcome.code == 125 && outcome.stdout.contains("uses an unsupported compression method (99)"),
        "{outcome}"
    );
    assert!(!shows(&place, "GHSA-100") && shows(&place, "GHSA-0"));
}

#[test]
#[ignore = "takes long"]
fn advisory_lists_and_lines_may_be_of_any_size() {
    let place = Place::new(Mode::Invoker);
    let write = |name: &str, parts: &[&str], separator: &str, records: std::ops::Range<usize>| {
        let path = place.path(name);
        let mut file = BufWriter::new(File::create(&path).unwrap());
        file.write_all(parts[0].as_bytes()).unwrap();
        for number in records {
            file.write_all(record(number, 2 << 20).as_bytes()).unwrap();
            file.write_all(separator.as_bytes()).unwrap();
        }
        file.write_all(parts[1].as_bytes()).unwrap();
        file.flush().unwrap();
        path
    };
    let list = write("list.json", &["[", "{\"x\": 1}]"], ",", 0..50);
    let (outcome, most) = update(&place, &list);
    assert!(outcome.code == 0 && outcome.stdout.contains(": 50 read, 1 not read (entry 51"), "{outcome}");
    assert!(most < MAX_COUNT, "{most} bytes of memory");
    let lines = write("lines.jsonl", &["", "{\"x\": 1}\n"], "\n", 50..100);
    let (outcome, most) = update(&place, &lines);
    assert!(outcome.code == 0 && outcome.stdout.contains(": 50 read, 1 not read (line 51"), "{outcome}");
    assert!(most < MAX_COUNT, "{most} bytes of memory");
    assert!(shows(&place, "GHSA-49") && shows(&place, "GHSA-99"));
    // Cut off: nothing of it counts.
    let cut = write("cut.json", &["[", ""], ",", 200..210);
    let (outcome, _) = update(&place, &cut);
    assert!(outcome.code == 125 && !shows(&place, "GHSA-200"), "{outcome}");
    // One record that is as long as a list.
    let long = place.write("long.json", format!("[{}]", record(300, 6 << 20)));
    let (outcome, _) = update(&place, &long);
    assert!(outcome.code == 125 && outcome.stdout.contains("larger than 4 MiB"), "{outcome}");
    let nothing = place.write("nothing.txt", vec![b'a'; 17 << 20]);
    let (outcome, _) = update(&place, &nothing);
    assert!(
        outcome.code == 125 && outcome.stdout.contains("is not an archive, a list or records"),
        "{outcome}"
    );
}

/// The signatures of a deny list are next to it in its archive, whatever the archive's size.
#[test]
fn a_deny_list_in_an_archive_counts_by_its_own_signatures() {
    let place = Place::new(Mode::Invoker);
    let key = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
    place.user_policy(&format!(
        "sandbox: {{mcp: {{advisories: {{community: block, quorum: 1, signers: [{:?}]}}}}}}\n",
        key.pk.to_base64()
    ));
    let list = |version: u64| {
        json!({"format": "agentsh-deny/1", "name": "watch", "version": version, "expires": "2099-01-01T00:00:00Z",
            "entries": [{"host": "mcp.evil.test", "reason": "steals tokens"}]})
        .to_string()
    };
    let archive = |version: u64, signed: Option<u64>, filled: usize| {
        let path = place.path("lists.zip");
        let mut zip = Zip::make(&path);
        zip.add("lists/watch.json", list(version).as_bytes(), true);
        if let Some(signed) = signed {
            let signature = minisign::sign(None, &key.sk, list(signed).as_bytes(), None, None).unwrap();
            zip.add("lists/watch.json.minisig", signature.to_string().as_bytes(), true);
        }
        for number in 0..filled {
            zip.add(&format!("GHSA-{number}.json"), record(number, 2 << 20).as_bytes(), false);
        }
        zip.finish();
        update(&place, &path).0
    };
    for (round, filled) in [(0, 0), (10, 10)] {
        archive(round + 1, Some(round + 1), filled).expect_code(0);
        // Another list than the signed one, and none: what was taken before stays.
        let changed = archive(round + 2, Some(round + 1), filled).expect_code(125);
        assert!(changed.stdout.contains("also inside an archive"), "{changed}");
        let unsigned = archive(round + 2, None, filled).expect_code(125);
        let told = match filled {
            0 => "'watch' has no signatures in FILE.minisig next to it in the archive, and",
            _ => "'watch' is not signed by a key in",
        };
        assert!(unsigned.stdout.replace('\n', " ").contains(told), "{unsigned}");
        let older = archive(round, Some(round), filled).expect_code(125);
        assert!(older.stdout.contains(&format!("version {} is already stored", round + 1)), "{older}");
    }
}

/// Members next to lists are held until the lists are read: their size is bounded, names included.
#[test]
fn files_of_signatures_in_an_archive_are_bounded() {
    let place = Place::new(Mode::Invoker);
    for (count, length, told) in
        [(10_001, 10, "more than 10000 files in it end in .minisig"), (300, 60_000, "larger than 16 MiB")]
    {
        let path = place.path("many.zip");
        let mut zip = Zip::make(&path);
        for number in 0..count {
            zip.add(&format!("{number:0length$}.minisig"), b"", false);
        }
        zip.add("GHSA-1.json", record(1, 1000).as_bytes(), false);
        zip.finish();
        let (outcome, most) = update(&place, &path);
        assert!(outcome.code == 125 && outcome.stdout.replace('\n', " ").contains(told), "{outcome}");
        assert!(most < MAX_COUNT, "{most} bytes of memory");
    }
}
