// Values of int8: a chunk is one group.

const VALUE_GROUP: u32 = 128u;

fn scale_of_value(row: Row, head: u32, position: u32, t: u32) -> f32 {
    return from_f16(kv_half(byte_row(row, p.v_at, head, position)));
}

fn prepare_values(row: Row, head: u32, position: u32, first: u32, t: u32) {}

fn value_pair(row: Row, head: u32, position: u32, i: u32) -> vec2<i32> {
    let both = bitcast<i32>(kv_half(byte_row(row, p.v_at, head, position) + 1u + i));
    return vec2<i32>((both << 24u) >> 24u, (both << 16u) >> 24u);
}
