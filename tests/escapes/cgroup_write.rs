//! Move out of the cgroup that holds the limits.
//! Stopped by: no cgroup file system is mounted, nor can one be.

use crate::support::{everywhere, no, yes};

#[test]
fn process_cannot_leave_its_cgroup() {
    everywhere(|sandbox| {
        let mut expected = Vec::new();
        for directory in
            ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"]
        {
            expected.push(no(format!("append {directory}/cgroup.procs")));
            expected.push(no(format!("append {directory}/tasks")));
            expected.push(no(format!("mkdir {directory}/mine")));
        }
        expected.push(no("append /proc/sys/kernel/core_pattern"));
        expected.push(no("append /proc/sysrq-trigger"));
        expected.push(yes("read /proc/self/cgroup /"));
        sandbox.holds(&expected);
    });
}
