// Reads segments of the index: a length, a checksum, then the record.
use std::io::{self, Read};

pub struct Record {
    pub key: u64,
    pub payload: Vec<u8>,
}

pub fn read_record(input: &mut impl Read) -> io::Result<Option<Record>> {
    let mut head = [0_u8; 16];
    match input.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let key = u64::from_le_bytes([head[8], head[9], head[10], head[11], head[12], head[13], head[14], head[15]]);
    let mut payload = vec![0; length];
    input.read_exact(&mut payload)?;
    Ok(Some(Record { key, payload }))
}
