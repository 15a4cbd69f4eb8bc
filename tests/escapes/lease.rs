//! A lease on a file: whoever opens it on the host waits for the one who holds it.
//! Stopped by: the system call filter.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn lease_on_a_file_is_refused() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let file = place.write("file", "");
        sandbox.holds(&[
            no_with(format!("lease {}", file.display()), "REFUSED EPERM"),
            yes(format!("append {}", file.display())),
            yes("native-call"),
        ]);
        outside_twin(place, &format!("lease {}", file.display()));
    });
}
