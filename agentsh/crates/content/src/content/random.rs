//! Random numbers for markers.

/// Numbers for markers: none of them is a secret, they only must not collide often.
pub(super) struct Random(u64);

impl Random {
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new() -> std::io::Result<Self> {
        agentsh_base::random::bytes().map(|seed| Self(u64::from_le_bytes(seed)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    }
}
