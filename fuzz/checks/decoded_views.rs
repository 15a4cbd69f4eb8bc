//! Every view comes from a place in the text, within the limits, and work and output are in proportion to the text.

use super::dlp::text::{Limits, visit, visit_orders};

/// Bytes looked at for each byte of the text and of what decodes from it, and on top for any text, whose samples are
/// probed however short it is. Four times the worst that was found.
const WORK_PER_BYTE: u64 = 256;
const WORK_FLOOR: u64 = 1 << 20;

pub fn check(data: &[u8]) {
    let Some(([depth, per_byte, floor], bytes)) = data.split_first_chunk() else { return };
    let text = String::from_utf8_lossy(bytes);
    let limits = match depth {
        0 => Limits::default(),
        _ => Limits {
            depth: usize::from(depth % 8),
            output_per_byte: usize::from(per_byte % 12),
            output_floor: usize::from(*floor) * 16,
        },
    };
    let bound = text.len() * limits.output_per_byte + limits.output_floor;
    let (mut views, mut output, mut first) = (0_u64, 0, true);
    let mut digest = 0_u64;
    let outcome = visit(&text, &limits, &mut |view| {
        assert!(text.get(view.at.clone()).is_some(), "a view from {:?}", view.at);
        assert!(view.how.len() <= limits.depth);
        assert_eq!(view.how.is_empty(), first, "the text itself comes first and once");
        if first {
            assert!(view.text == text && view.at == (0..text.len()));
        } else {
            output += view.text.len();
        }
        first = false;
        views += 1;
        digest = view.text.bytes().fold(digest, |sum, byte| sum.rotate_left(5) ^ u64::from(byte));
    });
    assert_eq!(outcome.output, output);
    assert!(output <= bound, "{output} bytes of views, {bound} are allowed");
    let size = u64::try_from(text.len() + output).unwrap_or(u64::MAX);
    assert!(outcome.work <= size * WORK_PER_BYTE + WORK_FLOOR, "{} bytes looked at for {size}", outcome.work);
    let mut again = (0_u64, 0_u64);
    let second = visit(&text, &limits, &mut |view| {
        again.0 += 1;
        again.1 = view.text.bytes().fold(again.1, |sum, byte| sum.rotate_left(5) ^ u64::from(byte));
    });
    assert_eq!((second, again), (outcome, (views, digest)), "a second visit saw something else");
    let mut ordered = 0;
    visit_orders(&text, &limits, &mut |view| {
        assert!(text.get(view.at.clone()).is_some() && !view.how.is_empty());
        ordered += view.text.len();
    });
    // Like [`visit_orders`] is bounded.
    assert!(ordered <= text.len() * 64);
}
