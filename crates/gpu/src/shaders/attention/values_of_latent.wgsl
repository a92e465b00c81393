// Values that are keys of 16-bit codes from an element on. Their codes may be larger than those of values, and are shifted:
//
//     code = (c + 2^(j-1)) >> j,  scale·2^j      the least j for which no code is above 8191 in magnitude

const VALUE_GROUP: u32 = 32u;
const VALUE_MAX: i32 = 8191;

var<workgroup> shifts: array<u32, 128>;

fn shifted(code: i32, shift: u32) -> i32 {
    return (code + ((1 << shift) >> 1u)) >> shift;
}

fn word_of_value(row: Row, head: u32, position: u32, i: u32) -> u32 {
    let rows = code_rows(row, p.v_at, head, position, n_key_sections());
    return kv[rows + (position % p.block_len) * (p.d_head / 2u) + i];
}

// The least shift for the codes of a position.
fn shift_of(row: Row, head: u32, position: u32) -> u32 {
    var low = 0;
    var high = 0;
    for (var i = p.value_from / 2u; i < p.d_head / 2u; i++) {
        let word = word_of_value(row, head, position, i);
        low = min(low, min(first_of(word), second_of(word)));
        high = max(high, max(first_of(word), second_of(word)));
    }
    for (var j = 0u; j < 2u; j++) {
        if shifted(low, j) >= -VALUE_MAX && shifted(high, j) <= VALUE_MAX {
            return j;
        }
    }
    return 2u;
}

fn scale_of_value(row: Row, head: u32, position: u32, t: u32) -> f32 {
    let rows = code_rows(row, p.v_at, head, position, n_key_sections());
    let last = p.d_head / 2u + n_key_sections() - 1u;
    let scale = bitcast<f32>(kv[rows + last * p.block_len + position % p.block_len]);
    shifts[t] = shift_of(row, head, position);
    return mul(scale, to_float(1 << shifts[t]));
}

fn prepare_values(row: Row, head: u32, position: u32, first: u32, t: u32) {}

fn value_pair(row: Row, head: u32, position: u32, i: u32) -> vec2<i32> {
    if 2u * i < p.value_from {
        return vec2<i32>(0);
    }
    let word = word_of_value(row, head, position, i);
    let shift = shifts[position % CHUNK];
    return vec2<i32>(shifted(first_of(word), shift), shifted(second_of(word), shift));
}
