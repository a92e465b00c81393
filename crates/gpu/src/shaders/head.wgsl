// A head of a row in the memory of a workgroup of 64 threads: its sums in lanes, its rotation by a Hadamard matrix
// (`hadamard.rs` of atta-kernels).

const THREADS: u32 = 64u;

var<workgroup> head: array<f32, 1024>;
var<workgroup> lanes: array<f32, 16>;
var<workgroup> peaks: array<u32, 64>;

fn total() -> f32 {
    var row: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        row[i] = lanes[i];
    }
    return sum_of_lanes(row);
}

// The sum of the elements before `end`; all threads call it.
fn sum_of_elements(end: u32, t: u32) -> f32 {
    workgroupBarrier();
    if t < 16u {
        var sum = 0.0;
        for (var i = t; i < end; i += 16u) {
            sum = add(sum, head[i]);
        }
        lanes[t] = sum;
    }
    workgroupBarrier();
    return total();
}

// The sum of squares of some elements less a center; all threads call it.
fn sum_of_squares(first: u32, end: u32, center: f32, t: u32) -> f32 {
    workgroupBarrier();
    if t < 16u {
        var sum = 0.0;
        for (var i = first + t; i < end; i += 16u) {
            let x = sub(head[i], center);
            sum = add(sum, mul(x, x));
        }
        lanes[t] = sum;
    }
    workgroupBarrier();
    return total();
}

// The bits of the largest magnitude of some elements; all threads call it.
fn peak_of(first: u32, end: u32, t: u32) -> u32 {
    workgroupBarrier();
    var peak = 0u;
    for (var i = first + t; i < end; i += THREADS) {
        peak = max(peak, bitcast<u32>(head[i]) & 0x7fffffffu);
    }
    peaks[t] = peak;
    workgroupBarrier();
    for (var i = 0u; i < THREADS; i++) {
        peak = max(peak, peaks[i]);
    }
    return peak;
}

// Blocks of `n` elements, a power of two, times the matrix over √n; all threads call it.
fn rotate_head(d: u32, n: u32, t: u32) {
    for (var reach = 1u; reach < n; reach = reach << 1u) {
        workgroupBarrier();
        for (var i = t; i < d / 2u; i += THREADS) {
            let low = ((i & ~(reach - 1u)) << 1u) | (i & (reach - 1u));
            let a = head[low];
            let b = head[low + reach];
            head[low] = add(a, b);
            head[low + reach] = sub(a, b);
        }
    }
    workgroupBarrier();
    if n > 1u {
        let factor = div(1.0, sqrt_of(to_float(i32(n))));
        for (var i = t; i < d; i += THREADS) {
            head[i] = mul(head[i], factor);
        }
    }
    workgroupBarrier();
}
