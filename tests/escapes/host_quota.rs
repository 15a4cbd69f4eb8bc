//! Resources that the kernel counts per user or for the whole machine, across sandboxes: used up inside, they are
//! missing outside. Stopped by: lower shares in the sandbox's user namespace, limits, and calls that do not exist.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no, no_with, yes};

#[test]
fn sandbox_gets_only_a_part_of_the_host_quotas() {
    let all: u64 =
        std::fs::read_to_string("/proc/sys/user/max_inotify_instances").unwrap().trim().parse().unwrap();
    everywhere(|sandbox| {
        sandbox.policy("limits: {open_files: 4096}");
        sandbox.holds(&[
            no_with(format!("inotify-instances {}", all / 2 + 1), "REFUSED EMFILE"),
            no("raise-share max_inotify_instances 100000"),
            no("raise-share max_user_namespaces 100"),
            no_with("queued-signals 5000", "REFUSED EAGAIN"),
            no_with("aio", "REFUSED ENOSYS"),
            no_with("secret-memory", "REFUSED ENOSYS"),
            yes("inotify-instances 8"),
            yes("queued-signals 500"),
        ]);
        outside_twin(&sandbox.place, "aio");
        outside_twin(&sandbox.place, "secret-memory");
        let twin = format!("inotify-instances {}", all / 2 + 1);
        assert_eq!(sandbox.place.outside(&[&twin, "queued-signals 5000"]), ["DONE", "DONE"]);
    });
}
