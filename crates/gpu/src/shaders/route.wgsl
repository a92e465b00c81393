// The experts of a row, from the router's logits (`routing.rs` and `selection.rs` of atta-model).
//
//     p = softmax(logits), or sigmoid;   s = p + b, and -inf where the group of the expert is not among the best
//     e_1..k = the experts of largest s, the lower id on ties;   w_i = p_i / (p_1 + … + p_k)·scale
//
// A workgroup has a row. In a sparse mixer p are logits, and w_i is a share in a softmax of those that are near and were
// not chosen before. A route is two words: expert and weight.

struct Params {
    zero: u32,
    probs_at: u32,
    n_experts: u32,
    n_used: u32,
    bias_at: u32,
    gating: u32,
    // Multiplies the logits.
    router_scale: f32,
    renormalizes: u32,
    weights_scale: f32,
    // Groups, or 0; how many are used; 1 if their score is that of their two best.
    n_groups: u32,
    n_used_groups: u32,
    adds_two: u32,
    tolerance: f32,
    routes_at: u32,
}

const THREADS: u32 = 64u;
const SOFTMAX: u32 = 0u;
const SIGMOID_GATING: u32 = 1u;
const SPARSE_MIXER: u32 = 2u;

var<workgroup> probs: array<f32, 1024>;
var<workgroup> scores: array<f32, 1024>;
// Whether an expert, then a group, was taken.
var<workgroup> is_taken: array<u32, 1024>;
var<workgroup> best: array<vec2<u32>, 64>;
var<workgroup> sum: f32;
var<workgroup> group_scores: array<f32, 64>;
var<workgroup> is_used: array<u32, 64>;
var<workgroup> chosen: array<u32, 64>;
var<workgroup> factors: array<f32, 64>;

// Numbers in the order of unsigned integers; 0 is below all, and NaN is that.
fn ordered(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) > INFINITE {
        return 0u;
    }
    return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

// The larger number, of equal ones the lower id: pairs of order and id, NONE being no id.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let is_b = a.y == NONE || (b.y != NONE && (b.x > a.x || (b.x == a.x && b.y < a.y)));
    return select(a, b, is_b);
}

// The best expert that was not taken; all threads call it.
fn best_expert(t: u32) -> u32 {
    var own = vec2<u32>(0u, NONE);
    for (var e = t; e < p.n_experts; e += THREADS) {
        if is_taken[e] == 0u {
            own = better(own, vec2<u32>(ordered(scores[e]), e));
        }
    }
    best[t] = own;
    workgroupBarrier();
    for (var i = 0u; i < THREADS; i++) {
        own = better(own, best[i]);
    }
    workgroupBarrier();
    return own.y;
}

fn largest_logit() -> f32 {
    var largest = probs[0];
    for (var e = 1u; e < p.n_experts; e++) {
        largest = select(largest, probs[e], probs[e] > largest);
    }
    return largest;
}

fn sum_of_probs() -> f32 {
    var total = 0.0;
    for (var e = 0u; e < p.n_experts; e++) {
        total = add(total, probs[e]);
    }
    return total;
}

fn softmax(t: u32) {
    let largest = largest_logit();
    workgroupBarrier();
    for (var e = t; e < p.n_experts; e += THREADS) {
        probs[e] = exp_of(sub(probs[e], largest));
    }
    workgroupBarrier();
    if t == 0u {
        sum = sum_of_probs();
    }
    workgroupBarrier();
    for (var e = t; e < p.n_experts; e += THREADS) {
        probs[e] = div(probs[e], sum);
    }
}

fn group_score(g: u32) -> f32 {
    let n = p.n_experts / p.n_groups;
    var first = bitcast<f32>(0xff800000u ^ p.zero);
    var second = first;
    for (var e = g * n; e < (g + 1u) * n; e++) {
        if scores[e] > first {
            second = first;
            first = scores[e];
        } else if scores[e] > second {
            second = scores[e];
        }
    }
    if p.adds_two != 0u {
        return add(first, second);
    }
    return first;
}

fn best_group() -> u32 {
    var own = vec2<u32>(0u, NONE);
    for (var g = 0u; g < p.n_groups; g++) {
        if is_used[g] == 0u {
            own = better(own, vec2<u32>(ordered(group_scores[g]), g));
        }
    }
    return own.y;
}

// Lowers the scores of the experts of all groups but the best; all threads call it.
fn mask_groups(t: u32) {
    if t < p.n_groups {
        group_scores[t] = group_score(t);
        is_used[t] = 0u;
    }
    workgroupBarrier();
    if t == 0u {
        for (var i = 0u; i < p.n_used_groups; i++) {
            is_used[best_group()] = 1u;
        }
    }
    workgroupBarrier();
    for (var e = t; e < p.n_experts; e += THREADS) {
        if is_used[e / (p.n_experts / p.n_groups)] == 0u {
            scores[e] = bitcast<f32>(0xff800000u ^ p.zero);
        }
    }
}

// The share of a logit in a softmax of those that are near and were not taken.
fn share_of(expert: u32) -> f32 {
    let top = scores[expert];
    var total = 0.0;
    for (var e = 0u; e < p.n_experts; e++) {
        let size = magnitude(scores[e]);
        let larger = select(top, size, size > top);
        if is_taken[e] == 0u && sub(top, scores[e]) <= mul(p.tolerance, larger) {
            total = add(total, exp_of(sub(scores[e], top)));
        }
    }
    return div(exp_of(mul(0.0, top)), total);
}

fn factor_of(expert: u32) -> f32 {
    if p.gating == SPARSE_MIXER {
        return share_of(expert);
    }
    return probs[expert];
}

fn write_routes(row: u32) {
    var total = 1.0;
    if p.renormalizes != 0u {
        total = 0.0;
        for (var i = 0u; i < p.n_used; i++) {
            total = add(total, factors[i]);
        }
    }
    for (var i = 0u; i < p.n_used; i++) {
        let at = p.routes_at + 2u * (row * p.n_used + i);
        acts[at] = chosen[i];
        acts[at + 1u] = bitcast<u32>(mul(div(factors[i], total), p.weights_scale));
    }
}

fn load_probs(row: u32, t: u32) {
    for (var e = t; e < p.n_experts; e += THREADS) {
        let logit = values[p.probs_at + row * p.n_experts + e];
        probs[e] = mul(logit, p.router_scale);
        if p.gating == SIGMOID_GATING {
            probs[e] = sigmoid(probs[e]);
        }
        is_taken[e] = 0u;
    }
    workgroupBarrier();
    if p.gating == SOFTMAX {
        softmax(t);
    }
    for (var e = t; e < p.n_experts; e += THREADS) {
        scores[e] = probs[e];
        if p.bias_at != NONE {
            scores[e] = add(scores[e], vector(p.bias_at + e));
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    load_probs(group.x, t);
    if p.n_groups != 0u {
        mask_groups(t);
    }
    workgroupBarrier();
    for (var i = 0u; i < p.n_used; i++) {
        let expert = best_expert(t);
        if t == 0u {
            chosen[i] = expert;
            factors[i] = factor_of(expert);
            is_taken[expert] = 1u;
        }
        workgroupBarrier();
    }
    if t == 0u {
        write_routes(group.x);
    }
}
