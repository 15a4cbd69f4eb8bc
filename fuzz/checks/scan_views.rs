//! Every view leads back to places of its text, in any nesting; all views together are bounded.

use super::secrets::views;

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mut bytes, mut count) = (0, 0);
    views::visit(&text, &mut |view, _| {
        bytes += view.text.len();
        count += 1;
        let length = view.text.len();
        let step = length / 64 + 1;
        for start in (0..length).step_by(step) {
            let place = view.original_range(start..(start + step).min(length));
            assert!(place.start <= place.end && place.end <= text.len(), "{place:?} of {}", text.len());
        }
    });
    assert!(bytes <= text.len() * 64 + 65_536, "{bytes} bytes in {count} views of {}", text.len());
    let folded = views::folded_view(&text);
    assert_eq!(views::folded_view(&folded.text).text, folded.text, "folded twice it is something else");
}
