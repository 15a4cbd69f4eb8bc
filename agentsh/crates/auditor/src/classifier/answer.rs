//! Parses a classifier's answer strictly: any other format is not a score.

use serde_json::Value;

/// `{"score": S}`, a label with its score, or a list of labels with theirs (also inside one more list).
///
/// # Errors
/// Why it is not a score.
pub(super) fn json(body: &[u8], labels: &[String]) -> Result<f64, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON".to_owned())?;
    match &answer {
        Value::Object(members) if members.contains_key("label") => {
            attack_score(std::slice::from_ref(&answer), labels)
        }
        Value::Object(members) => score_of(members.get("score")),
        Value::Array(items) => match items.as_slice() {
            [Value::Array(inner)] => attack_score(inner, labels),
            items => attack_score(items, labels),
        },
        _ => Err(UNEXPECTED_FORMAT.to_owned()),
    }
}

const UNEXPECTED_FORMAT: &str = "its answer does not have the requested format";

/// Scores of labels: those that mean an attack are added up.
fn attack_score(items: &[Value], labels: &[String]) -> Result<f64, String> {
    let (mut sum, mut known) = (0.0, false);
    for item in items {
        let label = item.get("label").and_then(Value::as_str).ok_or(UNEXPECTED_FORMAT)?;
        let score = score_of(item.get("score"))?;
        if labels.contains(&label.to_lowercase()) {
            known = true;
            sum += score;
        }
    }
    match (items.len(), known) {
        (0, _) => Err(UNEXPECTED_FORMAT.to_owned()),
        // Only the best label was sent, and it does not mean an attack.
        (1, false) => Ok(0.0),
        // All labels, and none of them means an attack: they have other names.
        (_, false) => Err("none of its labels is listed under sandbox.mcp.classifier.labels".to_owned()),
        (_, true) => Ok(sum.min(1.0)),
    }
}

/// The one line of a chat model.
///
/// # Errors
/// Why it is not a score.
pub(super) fn chat(body: &[u8], code: &str) -> Result<f64, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON".to_owned())?;
    let [choice] = answer["choices"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        return Err("its answer does not have exactly one text".to_owned());
    };
    if choice["finish_reason"] != "stop" {
        return Err("its answer is not finished".to_owned());
    }
    let text = choice["message"]["content"].as_str().ok_or(UNEXPECTED_FORMAT)?;
    let text = crate::without_thoughts(text.trim()).ok_or(UNEXPECTED_FORMAT)?;
    let number = text.strip_prefix("SCORE ").and_then(|rest| rest.strip_prefix(code)).map(str::trim_start);
    let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    let score = number.and_then(|number| number.parse::<f64>().ok()).ok_or(UNEXPECTED_FORMAT)?;
    in_range(score)
}

fn score_of(value: Option<&Value>) -> Result<f64, String> {
    in_range(value.and_then(Value::as_f64).ok_or(UNEXPECTED_FORMAT)?)
}

fn in_range(score: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&score) {
        true => Ok(score),
        false => Err("its score is not between 0 and 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        vec!["injection".to_owned(), "jailbreak".to_owned()]
    }

    #[test]
    fn scores_and_labels_are_read() {
        for (text, score) in [
            (r#"{"score": 0.25}"#, 0.25),
            (r#"{"score": 1}"#, 1.0),
            (r#"{"label": "INJECTION", "score": 0.9}"#, 0.9),
            (r#"{"label": "BENIGN", "score": 0.9}"#, 0.0),
            (r#"[{"label": "SAFE", "score": 0.5}, {"label": "Injection", "score": 0.5}]"#, 0.5),
            (
                r#"[[{"label": "JAILBREAK", "score": 0.75}, {"label": "INJECTION", "score": 0.5}, {"label": "x", "score": 0}]]"#,
                1.0,
            ),
        ] {
            assert_eq!(json(text.as_bytes(), &labels()), Ok(score), "{text}");
        }
    }

    #[test]
    fn malformed_classifier_answer_is_no_score() {
        for text in [
            "",
            "{",
            "null",
            "[]",
            "[[]]",
            "NaN",
            r#"{"score": NaN}"#,
            r#"{"score": "0.1"}"#,
            r#"{"score": -0.1}"#,
            r#"{"score": 1.5}"#,
            r#"{"score": 1e400}"#,
            r#"{}"#,
            r#"[{"score": 1}]"#,
            r#"[0.1]"#,
            r#"[{"label": "A", "score": 0.1}, {"label": "B", "score": 0.9}]"#,
        ] {
            assert!(json(text.as_bytes(), &labels()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_chat_model_answers_with_its_code() {
        let body = |text: &str| {
            serde_json::json!({"choices": [{"finish_reason": "stop", "message": {"content": text}}]})
                .to_string()
        };
        assert_eq!(chat(body("<think>hm</think>\nSCORE ab 0.97").as_bytes(), "ab"), Ok(0.97));
        for text in [
            "SCORE cd 0.1",
            "SCORE ab",
            "SCORE ab nan",
            "SCORE ab -0.1",
            "SCORE ab 7",
            "0.1",
            "SCORE ab 0.1 no",
        ] {
            assert!(chat(body(text).as_bytes(), "ab").is_err(), "{text}");
        }
        assert!(chat(b"{}", "ab").is_err());
    }
}
