//! Between two protocols: for any input of either side, only messages are forwarded, and at most a few for each.

use super::gateway::translation::{Step, Translation};
use super::json;

/// First byte, odd: a client with sessions. Then lines, those of the server with an `s` in front, others of the client.
pub fn check(data: &[u8]) {
    let Some((mode, lines)) = data.split_first() else { return };
    let mut between =
        if mode % 2 == 1 { Translation::with_sessions() } else { Translation::without_sessions() };
    for line in lines.split(|byte| *byte == b'\n').filter(|line| json::read(&line[line.len().min(1)..]).is_ok()) {
        let steps = match line.split_first() {
            Some((b's', line)) => between.on_server_message(line),
            Some((b't', _)) => between.on_silence(),
            Some((_, line)) => between.on_client_message(line),
            None => continue,
        };
        for step in &steps {
            let (Step::ToServer(line) | Step::ToClient(line)) = step;
            assert!(json::read(line).is_ok(), "no message: {}", String::from_utf8_lossy(line));
            assert!(!line.contains(&b'\n'), "a line break");
        }
    }
}
