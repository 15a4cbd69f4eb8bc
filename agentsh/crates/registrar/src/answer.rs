//! Rows as the JSON that clients read. Interface and summary are stored in their final form, so a row is written by
//! joining texts.

use agentsh_base::json;

use crate::db::Value;

/// `id, name, hash, interface, registered_at, summary, status, registered_by, expires_at`.
pub fn server(row: &[Value], out: &mut String) {
    let [id, name, hash, interface, at, summary, status, by, expires] = row else { return };
    write_members(
        out,
        &[
            ("id", id.as_int().to_string()),
            ("name", quote(name.as_text())),
            ("hash", quote(hash.as_text())),
            ("interface", interface.as_text().to_owned()),
            ("registered_at", quote(at.as_text())),
            ("summary", summary.as_text().to_owned()),
            ("status", quote(status.as_text())),
            ("registered_by", quote(by.as_text())),
            ("expires_at", optional(expires)),
        ],
    );
}

/// `id, name, recorded_hash, new_hash, new_interface, diff, status, created_at, resolved_at, summary,
/// submitted_diff, expires_at, resolved_by, reason`.
pub fn approval(row: &[Value], out: &mut String) {
    let [id, name, recorded, new, interface, diff, status, created, resolved, summary, rest @ ..] = row
    else {
        return;
    };
    let [submitted, expires, by, reason] = rest else { return };
    write_members(
        out,
        &[
            ("id", id.as_int().to_string()),
            ("name", quote(name.as_text())),
            ("recorded_hash", optional(recorded)),
            ("new_hash", quote(new.as_text())),
            ("new_interface", interface.as_text().to_owned()),
            ("diff", quote(diff.as_text())),
            ("status", quote(status.as_text())),
            ("created_at", quote(created.as_text())),
            ("resolved_at", optional(resolved)),
            ("summary", summary.as_text().to_owned()),
            ("submitted_diff", quote(submitted.as_text())),
            ("expires_at", quote(expires.as_text())),
            ("resolved_by", optional(by)),
            ("reason", optional(reason)),
        ],
    );
}

fn quote(text: &str) -> String {
    format!("\"{}\"", json::escape_text(text))
}

fn optional(value: &Value) -> String {
    value.as_option().map_or_else(|| "null".to_owned(), quote)
}

fn write_members(out: &mut String, members: &[(&str, String)]) {
    for (index, (name, value)) in members.iter().enumerate() {
        out.push_str(if index == 0 { "{\"" } else { ",\"" });
        out.push_str(name);
        out.push_str("\":");
        out.push_str(value);
    }
    out.push('}');
}

pub fn array(rows: &[Vec<Value>], write: fn(&[Value], &mut String)) -> String {
    let mut out = String::from("[");
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(row, &mut out);
    }
    out.push(']');
    out
}

#[cfg(feature = "server")]
pub fn reply(status: hyper::StatusCode, body: String) -> axum::response::Response {
    use hyper::header;
    axum::response::IntoResponse::into_response((
        status,
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")],
        body,
    ))
}
