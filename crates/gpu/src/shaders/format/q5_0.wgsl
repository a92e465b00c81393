// Q5_0: five bits less 16.

fn less_sixteen(codes: vec4<u32>) -> vec4<u32> {
    return ((codes | vec4<u32>(0x80808080u)) - vec4<u32>(0x10101010u)) ^ vec4<u32>(0x80808080u);
}

fn codes_of(w: u32) -> Codes {
    let codes = five_bits_of(w);
    return Codes(less_sixteen(codes.low), less_sixteen(codes.high));
}
