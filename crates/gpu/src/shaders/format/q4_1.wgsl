// Q4_1: nibbles.

fn codes_of(w: u32) -> Codes {
    return nibbles_of(w);
}
