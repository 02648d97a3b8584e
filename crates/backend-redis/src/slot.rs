//! Which of a cluster's 16,384 slots a key lies in.

/// The slot of a key: CRC16 (XMODEM) of its hash tag if it has one, else of the whole key.
///
/// ```
/// use tollgate_redis::key_slot;
///
/// assert_eq!(key_slot("123456789"), 0x31C3);
/// assert_eq!(key_slot("{user}.a"), key_slot("{user}.b"));
/// ```
#[must_use]
pub fn key_slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16_384;

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}
