//! Memory segments of the host, named by a number.
//! Stopped by: an IPC namespace per sandbox.

use crate::support::{everywhere, no, yes};

struct Segment {
    id: i32,
    key: i32,
}

#[allow(unsafe_code, reason = "no safe wrapper makes a segment")]
impl Segment {
    fn new() -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let thread: i32 =
            thread.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
        let key = 0x0A61_0000 + i32::try_from(std::process::id() % 4096).unwrap() * 16 + thread % 16;
        // SAFETY: plain numbers.
        let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) };
        assert!(id >= 0);
        Self { id, key }
    }
}

impl Drop for Segment {
    #[allow(unsafe_code, reason = "no safe wrapper removes a segment")]
    fn drop(&mut self) {
        // SAFETY: the segment is this test's own.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

#[test]
fn shared_memory_of_the_host_is_not_found() {
    let segment = Segment::new();
    everywhere(|sandbox| {
        let attempt = format!("shared-segment {}", segment.key);
        sandbox.holds(&[no(&attempt), yes("own-segment")]);
        assert_eq!(sandbox.place.outside(&[&attempt]), ["DONE"]);
    });
}
