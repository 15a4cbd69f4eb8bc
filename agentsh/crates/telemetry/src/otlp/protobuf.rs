//! The same messages as Protocol Buffers: a table maps each name of the JSON form to its number and type, as in
//! opentelemetry-proto 1.

use serde_json::Value;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// Written in hexadecimal in JSON.
    Bytes,
    Integer,
    Flag,
    Double,
    /// Eight bytes, with or without a sign.
    Fixed,
    PackedFixed,
    PackedDouble,
    Message(&'static [Field]),
}

type Field = (&'static str, u32, Kind);

const ANY_VALUE: &[Field] = &[
    ("stringValue", 1, Kind::Text),
    ("boolValue", 2, Kind::Flag),
    ("intValue", 3, Kind::Integer),
    ("doubleValue", 4, Kind::Double),
];
const KEY_VALUE: &[Field] = &[("key", 1, Kind::Text), ("value", 2, Kind::Message(ANY_VALUE))];
const RESOURCE: &[Field] = &[("attributes", 1, Kind::Message(KEY_VALUE))];
const SCOPE: &[Field] = &[("name", 1, Kind::Text), ("version", 2, Kind::Text)];

const STATUS: &[Field] = &[("message", 2, Kind::Text), ("code", 3, Kind::Integer)];
const SPAN: &[Field] = &[
    ("traceId", 1, Kind::Bytes),
    ("spanId", 2, Kind::Bytes),
    ("parentSpanId", 4, Kind::Bytes),
    ("name", 5, Kind::Text),
    ("kind", 6, Kind::Integer),
    ("startTimeUnixNano", 7, Kind::Fixed),
    ("endTimeUnixNano", 8, Kind::Fixed),
    ("attributes", 9, Kind::Message(KEY_VALUE)),
    ("status", 15, Kind::Message(STATUS)),
];
const LOG_RECORD: &[Field] = &[
    ("timeUnixNano", 1, Kind::Fixed),
    ("severityNumber", 2, Kind::Integer),
    ("severityText", 3, Kind::Text),
    ("body", 5, Kind::Message(ANY_VALUE)),
    ("attributes", 6, Kind::Message(KEY_VALUE)),
    ("traceId", 9, Kind::Bytes),
    ("spanId", 10, Kind::Bytes),
    ("observedTimeUnixNano", 11, Kind::Fixed),
    ("eventName", 12, Kind::Text),
];
const NUMBER_POINT: &[Field] = &[
    ("startTimeUnixNano", 2, Kind::Fixed),
    ("timeUnixNano", 3, Kind::Fixed),
    ("asInt", 6, Kind::Fixed),
    ("attributes", 7, Kind::Message(KEY_VALUE)),
];
const HISTOGRAM_POINT: &[Field] = &[
    ("startTimeUnixNano", 2, Kind::Fixed),
    ("timeUnixNano", 3, Kind::Fixed),
    ("count", 4, Kind::Fixed),
    ("sum", 5, Kind::Double),
    ("bucketCounts", 6, Kind::PackedFixed),
    ("explicitBounds", 7, Kind::PackedDouble),
    ("attributes", 9, Kind::Message(KEY_VALUE)),
];
const SUM: &[Field] = &[
    ("dataPoints", 1, Kind::Message(NUMBER_POINT)),
    ("aggregationTemporality", 2, Kind::Integer),
    ("isMonotonic", 3, Kind::Flag),
];
const HISTOGRAM: &[Field] =
    &[("dataPoints", 1, Kind::Message(HISTOGRAM_POINT)), ("aggregationTemporality", 2, Kind::Integer)];
const METRIC: &[Field] = &[
    ("name", 1, Kind::Text),
    ("description", 2, Kind::Text),
    ("unit", 3, Kind::Text),
    ("sum", 7, Kind::Message(SUM)),
    ("histogram", 9, Kind::Message(HISTOGRAM)),
];

const SCOPE_SPANS: &[Field] = &[("scope", 1, Kind::Message(SCOPE)), ("spans", 2, Kind::Message(SPAN))];
const SCOPE_LOGS: &[Field] =
    &[("scope", 1, Kind::Message(SCOPE)), ("logRecords", 2, Kind::Message(LOG_RECORD))];
const SCOPE_METRICS: &[Field] = &[("scope", 1, Kind::Message(SCOPE)), ("metrics", 2, Kind::Message(METRIC))];
const RESOURCE_SPANS: &[Field] =
    &[("resource", 1, Kind::Message(RESOURCE)), ("scopeSpans", 2, Kind::Message(SCOPE_SPANS))];
const RESOURCE_LOGS: &[Field] =
    &[("resource", 1, Kind::Message(RESOURCE)), ("scopeLogs", 2, Kind::Message(SCOPE_LOGS))];
const RESOURCE_METRICS: &[Field] =
    &[("resource", 1, Kind::Message(RESOURCE)), ("scopeMetrics", 2, Kind::Message(SCOPE_METRICS))];
/// The three requests have different names for their one field.
const REQUEST: &[Field] = &[
    ("resourceSpans", 1, Kind::Message(RESOURCE_SPANS)),
    ("resourceLogs", 1, Kind::Message(RESOURCE_LOGS)),
    ("resourceMetrics", 1, Kind::Message(RESOURCE_METRICS)),
];

/// A request of OTLP in its JSON form, as Protocol Buffers.
#[must_use]
pub fn request(json: &Value) -> Vec<u8> {
    let mut written = Vec::new();
    message(json, REQUEST, &mut written);
    written
}

fn message(json: &Value, fields: &[Field], written: &mut Vec<u8>) {
    for &(name, number, kind) in fields {
        match (json.get(name), kind) {
            (None | Some(Value::Null), _) => {}
            (Some(Value::Array(items)), Kind::PackedFixed | Kind::PackedDouble) => {
                let bytes: Vec<u8> = items.iter().flat_map(|item| eight(item, kind)).collect();
                write_delimited(number, &bytes, written);
            }
            (Some(Value::Array(items)), _) => {
                items.iter().for_each(|item| field(item, number, kind, written));
            }
            (Some(value), _) => field(value, number, kind, written),
        }
    }
}

fn field(value: &Value, number: u32, kind: Kind, written: &mut Vec<u8>) {
    match kind {
        Kind::Text => write_delimited(number, value.as_str().unwrap_or_default().as_bytes(), written),
        Kind::Bytes => write_delimited(number, &bytes(value.as_str().unwrap_or_default()), written),
        Kind::Message(fields) => {
            let mut inner = Vec::new();
            message(value, fields, &mut inner);
            write_delimited(number, &inner, written);
        }
        Kind::Integer => {
            tag(number, 0, written);
            variable(integer(value), written);
        }
        Kind::Flag => {
            tag(number, 0, written);
            variable(u64::from(value.as_bool().unwrap_or_default()), written);
        }
        Kind::Fixed | Kind::Double | Kind::PackedFixed | Kind::PackedDouble => {
            tag(number, 1, written);
            written.extend(eight(value, kind));
        }
    }
}

fn eight(value: &Value, kind: Kind) -> [u8; 8] {
    match kind {
        Kind::Double | Kind::PackedDouble => value.as_f64().unwrap_or_default().to_le_bytes(),
        _ => integer(value).to_le_bytes(),
    }
}

/// JSON has no room for 64 bits, so they are text there.
fn integer(value: &Value) -> u64 {
    let signed = |text: &str| text.parse::<i64>().ok().map(i64::cast_unsigned);
    match value {
        Value::String(text) => text.parse().ok().or_else(|| signed(text)).unwrap_or_default(),
        other => other.as_u64().or_else(|| other.as_i64().map(i64::cast_unsigned)).unwrap_or_default(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).filter_map(|at| hex.get(2 * at..2 * at + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

fn write_delimited(number: u32, bytes: &[u8], written: &mut Vec<u8>) {
    tag(number, 2, written);
    variable(bytes.len() as u64, written);
    written.extend_from_slice(bytes);
}

fn tag(number: u32, wire: u32, written: &mut Vec<u8>) {
    variable(u64::from(number << 3 | wire), written);
}

fn variable(mut number: u64, written: &mut Vec<u8>) {
    while number >= 0x80 {
        written.push((number as u8 & 0x7f) | 0x80);
        number >>= 7;
    }
    written.push(number as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn protobuf_bytes_match_the_format() {
        let span = json!({"traceId": "0102", "name": "ab", "kind": 3, "startTimeUnixNano": "258",
            "attributes": [{"key": "k", "value": {"intValue": "300"}}]});
        let request = request(&json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}));
        let span = [
            &[0x0a, 2, 1, 2][..],
            &[0x2a, 2, b'a', b'b'],
            &[0x30, 3],
            &[0x39, 2, 1, 0, 0, 0, 0, 0, 0],
            &[0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x18, 0xac, 2],
        ]
        .concat();
        let wrap = |number: u8, inner: Vec<u8>| [&[number << 3 | 2, inner.len() as u8][..], &inner].concat();
        assert_eq!(request, wrap(1, wrap(2, wrap(2, span))));
    }

    #[test]
    fn lists_of_numbers_are_packed() {
        let point = json!({"bucketCounts": ["1", "2"], "explicitBounds": [0.5]});
        let mut written = Vec::new();
        message(&point, HISTOGRAM_POINT, &mut written);
        let counts = [&[0x32, 16][..], &1u64.to_le_bytes(), &2u64.to_le_bytes()].concat();
        assert_eq!(written, [&counts[..], &[0x3a, 8], &0.5f64.to_le_bytes()].concat());
    }
}
