// Values of 16-bit codes.

const VALUE_GROUP: u32 = 32u;

fn scale_of_value(row: Row, head: u32, position: u32, t: u32) -> f32 {
    let rows = code_rows(row, p.v_at, head, position, 1u);
    return bitcast<f32>(kv[rows + (p.d_head / 2u) * p.block_len + position % p.block_len]);
}

fn prepare_values(row: Row, head: u32, position: u32, first: u32, t: u32) {}

fn value_pair(row: Row, head: u32, position: u32, i: u32) -> vec2<i32> {
    let rows = code_rows(row, p.v_at, head, position, 1u);
    let word = kv[rows + (position % p.block_len) * (p.d_head / 2u) + i];
    return vec2<i32>(first_of(word), second_of(word));
}
