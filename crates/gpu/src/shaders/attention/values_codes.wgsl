// Values of codes: weights become 16-bit codes, too, and weighted sums are integers (`values16.rs` of atta-kernels).
//
//     w = e·scale, below 2^-100: 0;   S = min(262112 / g, 32639 / max w),  g = the largest sum of 32 weights
//     Σ e·v ≈ (Σ of the groups in turn, of Σ rne(w·S)·code) / S
//
// A shader that includes this says how many positions are a group (`VALUE_GROUP`; of 128 the sums of weights do not limit
// S), and has `scale_of_value`, `prepare_values` and `value_pair`.

// Scales of values are lifted by 2^64, so that no weight is subnormal: that, what takes it back, and 2^-100 lifted.
const LIFT: f32 = 18446744073709551616.0;
const LOWER: f32 = 5.421010862427522e-20;
const LEAST: f32 = 1.4551915228366852e-11;

var<workgroup> weight_codes: array<i32, 128>;

// The largest sum of the weights of 32 positions: of each, sixteen lanes of two.
fn largest_group() -> f32 {
    var largest = 0.0;
    for (var g = 0u; g < CHUNK; g += 32u) {
        var sums: array<f32, 16>;
        for (var i = 0u; i < 16u; i++) {
            sums[i] = add(weights_of[g + i], weights_of[g + 16u + i]);
        }
        let sum = sum_of_lanes(sums);
        largest = select(largest, sum, sum > largest);
    }
    return largest;
}

fn factor_of_weights(peak: u32) -> f32 {
    let by_peak = div(32639.0, bitcast<f32>(peak));
    if VALUE_GROUP == CHUNK {
        return by_peak;
    }
    let by_group = div(262112.0, largest_group());
    return select(by_peak, by_group, by_group < by_peak);
}

// Turns the weights into codes and returns what a code stands for.
fn encode_weights(row: Row, head: u32, position: u32, t: u32) -> f32 {
    var w = 0.0;
    if sees(row, position) {
        w = mul(weights_of[t], mul(scale_of_value(row, head, position, t), LIFT));
        w = select(w, 0.0, w < LEAST);
    }
    let peak = largest_of_all(bitcast<u32>(w) & 0x7fffffffu, t);
    weights_of[t] = w;
    weight_codes[t] = 0;
    workgroupBarrier();
    if peak == 0u || peak > INFINITE {
        return bitcast<f32>(peak ^ p.zero);
    }
    let s = factor_of_weights(peak);
    weight_codes[t] = code16(mul(w, s));
    return mul(div(1.0, s), LOWER);
}

// Two elements of the weighted sum.
fn sums_of_pair(row: Row, head: u32, start: u32, i: u32) -> vec2<f32> {
    var sums = vec2<f32>(0.0);
    for (var g = 0u; g < CHUNK; g += VALUE_GROUP) {
        var both = vec2<i32>(0);
        for (var j = g; j < g + VALUE_GROUP; j++) {
            let code = weight_codes[j];
            if code != 0 {
                both += code * value_pair(row, head, start + j, i);
            }
        }
        sums = vec2<f32>(add(sums.x, to_float(both.x)), add(sums.y, to_float(both.y)));
    }
    return sums;
}

fn add_values(row: Row, head: u32, start: u32, out: u32, t: u32) {
    let ratio = encode_weights(row, head, start + t, t);
    workgroupBarrier();
    for (var first = 0u; first < p.d_head / 2u; first += THREADS) {
        prepare_values(row, head, start + t, first, t);
        let i = first + t;
        if i < p.d_head / 2u {
            let sums = sums_of_pair(row, head, start, i);
            acts[out + 2u * i] = bitcast<u32>(mul(sums.x, ratio));
            acts[out + 2u * i + 1u] = bitcast<u32>(mul(sums.y, ratio));
        }
    }
}
