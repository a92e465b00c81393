//! The two checksums of QSF files: CRC-32 of IEEE 802.3 in what the plan has, CRC-32C (Castagnoli)
//! in the extension.

/// Remainders of all bytes, for a polynomial with its bits reversed.
const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut i = 0;
        while i < 8 {
            rest = rest >> 1 ^ if rest & 1 == 1 { polynomial } else { 0 };
            i += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
}

static IEEE: [u32; 256] = table(0xedb8_8320);
static CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);

/// A checksum of bytes that come in parts.
#[derive(Clone, Copy)]
pub struct Checksum {
    table: &'static [u32; 256],
    state: u32,
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({:08x})", self.value())
    }
}

impl Checksum {
    /// CRC-32 of no bytes.
    pub fn ieee() -> Self {
        Self {
            table: &IEEE,
            state: !0,
        }
    }

    /// CRC-32C of no bytes.
    pub fn castagnoli() -> Self {
        Self {
            table: &CASTAGNOLI,
            state: !0,
        }
    }

    /// Appends bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = usize::from(self.state as u8 ^ byte);
            self.state = self.state >> 8 ^ self.table[at];
        }
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u32 {
        !self.state
    }
}

/// CRC-32 of some bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = Checksum::ieee();
    sum.add(bytes);
    sum.value()
}

/// CRC-32C of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = Checksum::castagnoli();
    sum.add(bytes);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_those_of_the_catalogue() {
        // "Catalogue of parametrised CRC algorithms": CRC-32/ISO-HDLC and CRC-32/ISCSI.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!((crc32(b""), crc32c(b"")), (0, 0));
    }
}
