//! A server's answers to two calls, as public reports show them, and mutations of these.

use std::fmt::Write;

use serde_json::json;

/// The ids in a row: `{a}` and `{b}`; `{t}` is the progress token of the first.
const ROWS: &[&[&str]] = &[
    &[A, B],
    &[B, A],
    // Ids as some servers spell them.
    &[
        r#"{"jsonrpc":"2.0","id":"{a}","result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":{b}.0,"result":{}}"#,
    ],
    &[
        r#"{"jsonrpc":"2.0","id":{a}e0,"result":{"n":1}}"#,
        r#"{"jsonrpc":"2.0","id":" {b} ","result":{"n":2}}"#,
    ],
    // Logs, banners and what is not a message between the answers.
    &[r#"{"level":"info","msg":"listening"}"#, A, "Server running on stdio", B],
    &["{}", "null", "[]", "42", "\"text\"", A, B],
    &[r#"{"jsonrpc":"2.0","result":{}}"#, A, B],
    &[r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, B, A],
    &["", "   ", "\r", A, "\t", B],
    &["{\"jsonrpc\":\"2.0\",\"id\":", A, "}}}", B],
    &[r#"{"jsonrpc":"2.0","id":{b},"result":{"con"#, A, B],
    // Members twice.
    &[r#"{"jsonrpc":"2.0","id":{a},"result":{"content":[{"type":"text","text":"x","type":"text"}]}}"#, B],
    &[r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":{a},"id":{a},"result":{}}"#, B],
    &[r#"{"jsonrpc":"2.0","id":{a},"id":{a},"result":{"x":1,"x":2}}"#, B],
    // Answers that are invalid, unsolicited, or repeated.
    &[A, A, B, B],
    &[r#"{"jsonrpc":"2.0","id":999999999,"result":{}}"#, A, B],
    &[r#"{"jsonrpc":"2.0","id":"unknown","error":{"code":-32000,"message":"x"}}"#, A, B],
    &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#, A, B],
    &[r#"{"jsonrpc":"2.0","id":{a},"result":null}"#, B],
    &[r#"{"jsonrpc":"2.0","id":{a},"result":"text"}"#, B],
    &[r#"{"id":{a},"result":{}}"#, B],
    &[r#"{"jsonrpc":"2.0","id":{a},"result":{},"error":{"code":1,"message":"x"}}"#, B],
    &[r#"[{"jsonrpc":"2.0","id":{a},"result":{}}]"#, B],
    // Errors.
    &[r#"{"jsonrpc":"2.0","id":{a},"error":{"code":-32603,"message":"","data":{"x":[1.0,null]}}}"#, B],
    &[r#"{"jsonrpc":"2.0","id":{a},"error":{"code":0,"message":"zero"}}"#, B],
    // Other messages in between.
    &[
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"{t}","progress":1}}"#,
        A,
        B,
    ],
    &[
        A,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"said of {a}"}}"#,
        B,
    ],
    &[r#"{"jsonrpc":"2.0","method":"notifications/vendor","params":{"z":{a}},"extension":true}"#, B, A],
    &[r#"{"jsonrpc":"2.0","method":"notifications/vendor/{a}","params":null}"#, A, B],
    &[r#"{"jsonrpc":"2.0","id":"s-{a}","method":"ping"}"#, A, B],
    // Spelling.
    &[r#" { "result" : { "isError" : false , "content" : [ ] } , "id" : {a} , "jsonrpc" : "2.0" } "#, B],
    &[
        r#"{"jsonrpc":"2.0","id":{a},"result":{"content":[{"type":"text","text":"\u00e9\u2028 é 😀 \ud83d\ude00 \/ \u0000"}]}}"#,
        B,
    ],
    &[
        r#"{"jsonrpc":"2.0","id":{a},"result":{"big":1e300,"exact":0.1,"small":-0,"long":9007199254740993},"x":1}"#,
        B,
    ],
];

const A: &str = r#"{"jsonrpc":"2.0","id":{a},"result":{"content":[{"type":"text","text":"first of {a}"}]}}"#;
const B: &str =
    r#"{"jsonrpc":"2.0","id":{b},"result":{"content":[{"type":"text","text":"second"}],"isError":false}}"#;

#[derive(Clone, Debug)]
pub struct Recording {
    first: i64,
    /// With ids filled in.
    pub lines: Vec<String>,
    /// Where the bytes are cut, to be written one after the other.
    cuts: Vec<usize>,
    /// Whether there are members with one name and unequal values.
    pub has_unequal: bool,
    /// The last line has no end.
    open: bool,
    /// Then the server exits, with this status.
    pub end: Option<u8>,
}

impl Recording {
    pub fn new(number: u64, lines: &[&str]) -> Self {
        let first = 1000 + 2 * i64::try_from(number).unwrap();
        let fill = |line: &&str| {
            let line = line.replace("{a}", &first.to_string()).replace("{b}", &(first + 1).to_string());
            line.replace("{t}", &format!("t{first}"))
        };
        let has_unequal = lines.iter().any(|line| line.contains(r#""x":1,"x":2"#));
        let lines = lines.iter().map(fill).collect();
        Self { first, lines, cuts: Vec::new(), has_unequal, open: false, end: None }
    }

    pub fn pair(&self) -> (i64, i64) {
        (self.first, self.first + 1)
    }

    /// Which one of a list it is.
    pub fn number(&self) -> i64 {
        (self.first - 1000) / 2
    }

    /// Ids of the calls, with their progress tokens.
    pub fn ids(&self) -> impl Iterator<Item = (i64, String)> {
        let (first, second) = self.pair();
        [first, second].into_iter().map(|id| (id, format!("t{id}")))
    }

    /// For the server that plays it.
    pub fn line(&self) -> String {
        let mut bytes = self.lines.join("\n").into_bytes();
        if !self.open {
            bytes.push(b'\n');
        }
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut % bytes.len()).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<String> = cuts.windows(2).map(|pair| hex(&bytes[pair[0]..pair[1]])).collect();
        json!({"pieces": pieces, "end": self.end}).to_string()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

/// Lines of the rows, without ids.
pub fn texts() -> &'static [&'static [&'static str]] {
    ROWS
}

pub fn rows() -> Vec<Recording> {
    (0..).zip(ROWS).map(|(number, lines)| Recording::new(number, lines)).collect()
}

/// Servers that end: after their answers, before them, and in the middle of one.
pub fn ends() -> Vec<Recording> {
    let lines: [(&[&str], bool); 5] = [
        (&[A, B], false),
        (&[A], false),
        (&[A, "noise"], false),
        (&[A, B], true),
        (&["{\"jsonrpc\":"], true),
    ];
    let all = lines.iter().flat_map(|(lines, open)| [0, 3].map(|status| (lines, *open, status)));
    all.map(|(lines, open, status)| Recording { open, end: Some(status), ..Recording::new(0, lines) })
        .collect()
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Copy)]
pub struct Seed(u64);

impl Seed {
    /// `AGENTSH_TEST_SEED` gives others.
    pub fn of_environment() -> Self {
        Self(std::env::var("AGENTSH_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(42))
    }

    /// Another one for each number.
    pub fn of(self, number: u64) -> Self {
        Self(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// One of the rows with up to four changes.
pub fn mutated(seed: Seed, number: u64) -> Recording {
    let mut seed = seed.of(number);
    let mut recording = Recording::new(number, ROWS[seed.below(ROWS.len())]);
    for _ in 0..=seed.below(4) {
        change(&mut seed, &mut recording);
    }
    recording
}

fn change(seed: &mut Seed, recording: &mut Recording) {
    const BETWEEN: &[&str] = &[
        "[INFO] ready",
        r#"{"time":1,"message":"log"}"#,
        "",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/vendor","params":{"n":{a}}}"#,
        r#"{"jsonrpc":"2.0","id":"ask-{a}","method":"roots/list"}"#,
    ];
    let at = seed.below(recording.lines.len());
    let (first, second) = (recording.first, recording.first + 1);
    match seed.below(12) {
        0 => {
            let line = BETWEEN[seed.below(BETWEEN.len())].replace("{a}", &first.to_string());
            recording.lines.insert(at, line);
        }
        1 => recording.lines.insert(at, recording.lines[at].clone()),
        2 => {
            let other = seed.below(recording.lines.len());
            recording.lines.swap(at, other);
        }
        3 => recording.cuts.extend((0..=seed.below(5)).map(|_| seed.below(1 << 16))),
        4 => recording.lines[at].push_str(["\r", " ", "\t\r"][seed.below(3)]),
        // Ids in another spelling.
        5 => {
            let id = if seed.below(2) == 0 { first } else { second };
            let other =
                [format!("\"{id}\""), format!("{id}.0"), format!("\"unknown-{id}\""), "null".to_owned()];
            let other = format!("\"id\":{}", other[seed.below(4)]);
            let line = &mut recording.lines[at];
            *line = line.replace(&format!("\"id\":{id}"), &other);
        }
        // A member twice, or one more.
        6 => {
            let _is_object = put(&mut recording.lines[at], "\"jsonrpc\":\"2.0\",");
        }
        7 => {
            recording.has_unequal |= put(&mut recording.lines[at], "\"jsonrpc\":\"1.0\",");
        }
        8 => {
            let _is_object = put(&mut recording.lines[at], "\"_vendor\":{\"a\":[]},");
        }
        // Cut off, or lost.
        9 => {
            let line = &mut recording.lines[at];
            let length = line.char_indices().map(|(at, _)| at).nth(seed.below(line.len().max(1)));
            line.truncate(length.unwrap_or_default());
        }
        10 if recording.lines.len() > 1 => drop(recording.lines.remove(at)),
        // Two messages on one line.
        11 if at > 0 => {
            let line = recording.lines.remove(at);
            recording.lines[at - 1].push_str(&line);
        }
        _ => recording.lines[at].insert(0, ' '),
    }
}

/// Puts a member in front; false where the line is not an object.
fn put(line: &mut String, member: &str) -> bool {
    let is_object = line.starts_with("{\"");
    if is_object {
        line.insert_str(1, member);
    }
    is_object
}
