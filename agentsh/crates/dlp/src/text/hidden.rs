//! Text in characters that show nothing: tags, variation selectors, and zero-width characters as bits.

use agentsh_secrets::views::invisible;

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    // The first bytes of such characters.
    if [0xe2, 0xef, 0xf3].map(|first| profile.count(first)).iter().sum::<usize>() < 4 {
        return;
    }
    walk.work(text.len());
    for view in invisible::smuggled_texts(text) {
        walk.found_text(Step::Invisible, &view.text, view.original_range(0..view.text.len()));
    }
}
