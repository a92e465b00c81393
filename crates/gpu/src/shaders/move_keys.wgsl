// Keys that move to other positions (a context shift): those of a block, turned in place by the same angles.
//
// A workgroup has one KV head of one position.

struct Params {
    zero: u32,
    d_head: u32,
    block_len: u32,
    elem: u32,
    // The blocks, as first words of them among the tables, and the first word of the keys of this layer in a block.
    blocks_at: u32,
    k_at: u32,
    angles_at: u32,
    d_rope: u32,
    pairs_are_neighbours: u32,
    // Positions of the first block that stay.
    n_kept: u32,
    // Elements of a block of the rotation of stored keys; 0: none.
    rotation: u32,
    // The first element of the value in a key that is one; NONE: values are apart.
    value_from: u32,
}

fn elem_of(is_value: bool) -> u32 {
    return p.elem;
}

fn half_at(at: u32) -> u32 {
    return (kv_word(at / 2u) >> (16u * (at & 1u))) & 0xffffu;
}

fn key_of_codes(rows: u32, position: u32, i: u32) -> f32 {
    let width = p.d_head / 2u;
    let both = kv_word(rows + position * width + i / 2u);
    let code = select(first_of(both), second_of(both), (i & 1u) != 0u);
    let scale = kv_word(rows + (width + section_with(i)) * p.block_len + position);
    return mul(to_float(code), bitcast<f32>(scale));
}

fn key_of_bytes(rows: u32, position: u32, i: u32) -> f32 {
    let row = 2u * rows + position * (p.d_head / 2u + 1u);
    let both = half_at(row + 1u + i / 2u);
    let code = bitcast<i32>(both << (24u - 8u * (i & 1u))) >> 24u;
    return mul(from_f16(half_at(row)), to_float(code));
}

fn key_of_nibbles(rows: u32, position: u32, i: u32) -> f32 {
    let g = i / NIBBLE_GROUP;
    let half = group_len(p.d_head, g) / 2u;
    let inside = i % NIBBLE_GROUP;
    let is_high = inside >= half;
    let byte = inside - select(0u, half, is_high);
    let at = rows + position * nibble_words(p.d_head) + g * GROUP_WORDS;
    let code = (kv_word(at + 1u + byte / 4u) >> (8u * (byte & 3u) + select(0u, 4u, is_high))) & 15u;
    let both = kv_word(at);
    return add(from_f16(both >> 16u), mul(from_f16(both & 0xffffu), to_float(i32(code))));
}

// Element `i` of a key at a position of the rows that begin at a word.
fn stored_key(rows: u32, position: u32, i: u32) -> f32 {
    switch p.elem {
        case FLOATS: { return bitcast<f32>(kv_word(rows + position * p.d_head + i)); }
        case CODES: { return key_of_codes(rows, position, i); }
        case BYTES: { return key_of_bytes(rows, position, i); }
        default: { return key_of_nibbles(rows, position, i); }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    if group.z == 0u && group.x < p.n_kept {
        return;
    }
    let rows = tables[p.blocks_at + group.z] + p.k_at + group.y * head_words(false);
    for (var i = t; i < p.d_head; i += THREADS) {
        head[i] = stored_key(rows, group.x, i);
    }
    if p.rotation != 0u {
        rotate_head(p.d_head, p.rotation, t);
    }
    turn(p.angles_at, p.d_rope, p.pairs_are_neighbours != 0u, t);
    if p.rotation != 0u {
        rotate_head(p.d_head, p.rotation, t);
    }
    store_head(rows, group.x, false, t);
}
