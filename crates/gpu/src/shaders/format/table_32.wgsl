// IQ4_NL and MXFP4: nibbles that stand for values.

fn codes_of(w: u32) -> Codes {
    let codes = nibbles_of(w);
    return Codes(values_of_four(codes.low), values_of_four(codes.high));
}
