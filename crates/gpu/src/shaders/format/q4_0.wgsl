// Q4_0: nibbles less 8.

fn less_eight(codes: vec4<u32>) -> vec4<u32> {
    return ((codes | vec4<u32>(0x80808080u)) - vec4<u32>(0x08080808u)) ^ vec4<u32>(0x80808080u);
}

fn codes_of(w: u32) -> Codes {
    let codes = nibbles_of(w);
    return Codes(less_eight(codes.low), less_eight(codes.high));
}
