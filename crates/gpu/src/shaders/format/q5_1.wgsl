// Q5_1: five bits.

fn codes_of(w: u32) -> Codes {
    return five_bits_of(w);
}
