//! Every place that a scan names lies in the text; what was sanitised or redacted once stays as it is.

use super::scan::{Channel, sanitised, scan_text};

pub fn check(data: &[u8]) {
    let Some((channel, bytes)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    let channel = [Channel::Output, Channel::Definition, Channel::Outbound][usize::from(*channel % 3)];
    let once = sanitised(&text);
    let twice = sanitised(&once);
    assert_eq!(twice, once, "sanitised twice it is something else");
    assert!(once.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r')), "{once:?}");
    let scan = scan_text(&text, channel);
    assert!(scan.score <= 100);
    let mut end = 0;
    for redaction in &scan.redactions {
        assert!(redaction.start >= end && text.get(redaction.start..redaction.end).is_some(), "{redaction:?}");
        end = redaction.end;
    }
    for finding in &scan.findings {
        assert!(finding.start <= finding.end && finding.end <= text.len(), "{finding:?}");
    }
    if let Some(rewrite) = scan.rewrites.first().filter(|_| channel == Channel::Output) {
        let again = scan_text(&rewrite.text, channel);
        let same = again.rewrites.first().is_none_or(|again| again.text == rewrite.text);
        assert!(same || rewrite.text.contains('<'), "{:?} is rewritten again", rewrite.text);
    }
}
