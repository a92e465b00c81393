// The elementary functions of the CPU (`math.rs` of atta-kernels): the same polynomials, step by step.

const LOG2_E: f32 = 1.44269504088896340736;
const ROUND: f32 = 12582912.0;

fn power_of_two(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}

fn step_of(y: f32, x: f32, coefficient: f32) -> f32 {
    return add(mul(y, x), coefficient);
}

// `e^x` is `(m + 1)·2^n`; the bits of n.
struct Parts {
    m: f32,
    n: i32,
}

fn exp_parts(x: f32) -> Parts {
    let shifted = add(mul(x, LOG2_E), ROUND);
    let n = sub(shifted, ROUND);
    let r = sub(sub(x, mul(n, 0.6933594)), mul(n, -2.1219444e-4));
    var y = 1.9875691e-4;
    y = step_of(y, r, 1.3981999e-3);
    y = step_of(y, r, 8.333452e-3);
    y = step_of(y, r, 4.1665796e-2);
    y = step_of(y, r, 1.6666665e-1);
    y = step_of(y, r, 0.5);
    let m = add(mul(y, mul(r, r)), r);
    return Parts(m, bitcast<i32>(bitcast<u32>(shifted) - 0x4b400000u));
}

fn exp_of(x: f32) -> f32 {
    let above = select(x, -104.0, x < -104.0);
    let parts = exp_parts(select(above, 89.0, above > 89.0));
    let both = parts.n >> 1u;
    let first = mul(add(parts.m, 1.0), power_of_two(both));
    return mul(first, power_of_two(parts.n - both));
}

// `e^x` for x ≤ 0, and 0 below −87.
fn exp_weight(x: f32) -> f32 {
    let parts = exp_parts(select(x, -87.0, x < -87.0));
    return select(mul(add(parts.m, 1.0), power_of_two(parts.n)), 0.0, x < -87.0);
}

fn tanh_of(x: f32) -> f32 {
    let a = magnitude(x);
    let z = mul(x, x);
    var y = -5.7049887e-3;
    y = step_of(y, z, 2.0639089e-2);
    y = step_of(y, z, -5.3739715e-2);
    y = step_of(y, z, 1.3331442e-1);
    y = step_of(y, z, -3.3333282e-1);
    let near = add(mul(mul(y, z), a), a);
    let far = sub(1.0, div(2.0, add(exp_of(mul(2.0, a)), 1.0)));
    return with_sign(select(far, near, a < 0.625), x);
}

fn sigmoid(x: f32) -> f32 {
    return div(1.0, add(1.0, exp_of(negative(x))));
}

fn erf_of_near(a: f32, z: f32) -> f32 {
    var y = 7.853862e-5;
    y = step_of(y, z, -8.0101936e-4);
    y = step_of(y, z, 5.1883277e-3);
    y = step_of(y, z, -2.6853812e-2);
    y = step_of(y, z, 1.1283585e-1);
    y = step_of(y, z, -3.7612627e-1);
    y = step_of(y, z, 1.1283792);
    return mul(a, y);
}

fn erf_of_middle(q: f32) -> f32 {
    var y = 2.3268199e-2;
    y = step_of(y, q, -1.3870394e-1);
    y = step_of(y, q, 3.6874247e-1);
    y = step_of(y, q, -5.824733e-1);
    y = step_of(y, q, 6.2100046e-1);
    y = step_of(y, q, -4.9445153e-1);
    y = step_of(y, q, 3.40488e-1);
    y = step_of(y, q, -2.741127e-1);
    return step_of(y, q, 5.6382596e-1);
}

fn erf_of_far(q: f32) -> f32 {
    var y = -1.0477664e1;
    y = step_of(y, q, 1.29772e1);
    y = step_of(y, q, -7.495519);
    y = step_of(y, q, 2.921019);
    y = step_of(y, q, -1.0152653);
    y = step_of(y, q, 4.2184633e-1);
    y = step_of(y, q, -2.8207675e-1);
    return step_of(y, q, 5.641895e-1);
}

fn erf_of(x: f32) -> f32 {
    let a = magnitude(x);
    let z = mul(a, a);
    let q = div(1.0, select(1.0, a, a > 1.0));
    let square = mul(q, q);
    let tail = select(erf_of_far(square), erf_of_middle(square), a < 2.0);
    let far = sub(1.0, mul(mul(exp_of(negative(z)), q), tail));
    return with_sign(select(far, erf_of_near(a, z), a < 1.0), x);
}

// `e^x − 1` for x ≤ 0, and 0 above.
fn exp_m1(x: f32) -> f32 {
    let above = select(x, -87.0, x < -87.0);
    let parts = exp_parts(select(above, 0.0, above > 0.0));
    let power = power_of_two(parts.n);
    return add(mul(parts.m, power), sub(power, 1.0));
}

const SILU: u32 = 0u;
const GELU_TANH: u32 = 1u;
const GELU: u32 = 2u;
const RELU2: u32 = 3u;
const SIGMOID: u32 = 4u;
const XIELU: u32 = 5u;
const CLAMPED: u32 = 6u;

// ln(1 + e^x): ln(1 + t) = 2·artanh s.
fn softplus(x: f32) -> f32 {
    let t = exp_of(negative(magnitude(x)));
    let s = div(t, add(2.0, t));
    let z = mul(s, s);
    var y = 6.66666701e-2;
    y = step_of(y, z, 7.69230798e-2);
    y = step_of(y, z, 9.09090936e-2);
    y = step_of(y, z, 0.111111112);
    y = step_of(y, z, 0.142857149);
    y = step_of(y, z, 0.200000003);
    y = step_of(y, z, 0.333333343);
    y = step_of(y, z, 1.0);
    return add(select(x, 0.0, x < 0.0), mul(mul(2.0, s), y));
}

fn gelu_tanh(x: f32) -> f32 {
    let cube = mul(0.044715, mul(mul(x, x), x));
    return mul(mul(0.5, x), add(1.0, tanh_of(mul(0.7978846, add(x, cube)))));
}

fn gelu(x: f32) -> f32 {
    return mul(mul(0.5, x), add(1.0, erf_of(mul(x, 0.70710678118654752440))));
}

// `numbers` are alpha_p, alpha_n, beta and eps.
fn xielu(x: f32, numbers: vec4<f32>) -> f32 {
    let exponent = select(numbers.w, x, x < numbers.w);
    let below = mul(sub(exp_m1(exponent), x), numbers.y);
    let above = mul(mul(numbers.x, x), x);
    return add(select(below, above, x > 0.0), mul(numbers.z, x));
}

// The gate of a clamped one: `numbers` are alpha and limit.
fn clamped_gate(x: f32, numbers: vec4<f32>) -> f32 {
    let gate = select(x, numbers.y, x > numbers.y);
    return mul(gate, sigmoid(mul(numbers.x, gate)));
}

// Its other factor.
fn clamped_up(x: f32, limit: f32) -> f32 {
    let below = select(x, limit, x > limit);
    return add(select(below, negative(limit), below < negative(limit)), 1.0);
}

fn activate(kind: u32, x: f32, numbers: vec4<f32>) -> f32 {
    switch kind {
        case SILU: { return mul(x, sigmoid(x)); }
        case GELU_TANH: { return gelu_tanh(x); }
        case GELU: { return gelu(x); }
        case RELU2: { return select(mul(x, x), 0.0, x < 0.0); }
        case SIGMOID: { return sigmoid(x); }
        case XIELU: { return xielu(x, numbers); }
        default: { return mul(clamped_gate(x, numbers), clamped_up(1.0, numbers.y)); }
    }
}

fn gated(kind: u32, x: f32, up: f32, numbers: vec4<f32>) -> f32 {
    if kind == CLAMPED {
        return mul(clamped_gate(x, numbers), clamped_up(up, numbers.y));
    }
    return mul(activate(kind, x, numbers), up);
}
