//! Operations on rows of floats: norms, rope, sums, rows of the cache.

use super::*;

#[test]
fn norms_agree_with_f64() {
    let mut random = Random(10);
    for (k, d) in kernels().flat_map(|k| [1, 5, 16, 33, 1000].map(|d| (k, d))) {
        let (x, weight, bias) = (random.floats(d), random.floats(d), random.floats(d));
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let (wide_x, wide_weight, wide_bias) = (wide(&x), wide(&weight), wide(&bias));
        let mean_square = wide_x.iter().map(|x| x * x).sum::<f64>() / d as f64;
        let want: Vec<f64> = (0..d)
            .map(|i| wide_x[i] / (mean_square + f64::from(1e-5f32)).sqrt() * wide_weight[i])
            .collect();
        let (mut out, mut inplace) = (vec![0.0; d], x.clone());
        k.rms_norm(&x, &weight, 1e-5, &mut out);
        k.rms_norm_inplace(&mut inplace, &weight, 1e-5);
        assert!(nmse(&out, &want) < 1e-12, "rms_norm {d}");
        assert_eq!(bits(&out), bits(&inplace));
        let mean = wide_x.iter().sum::<f64>() / d as f64;
        let scale = 1.0
            / (wide_x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64
                + f64::from(1e-5f32))
            .sqrt();
        let want: Vec<f64> = (0..d)
            .map(|i| (wide_x[i] - mean) * scale * wide_weight[i] + wide_bias[i])
            .collect();
        k.layer_norm(&x, (&weight, Some(&bias)), 1e-5, &mut out);
        assert!(nmse(&out, &want) < 1e-11, "layer_norm {d}");
    }
}

#[test]
fn every_instruction_set_sums_and_mixes_streams_alike() {
    let mut random = Random(12);
    let scalar = Kernels::named("scalar").unwrap();
    for (k, d) in kernels().flat_map(|k| [1, 5, 16, 33, 100].map(|d| (k, d))) {
        let (a, b) = (random.floats(d), random.floats(d));
        let wide = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b);
        let expected: f64 = a.iter().zip(&b).map(wide).sum();
        let sum = k.dot_product(&a, &b);
        assert!((f64::from(sum) - expected).abs() < 1e-4, "dot_product {d}");
        assert_eq!(sum.to_bits(), scalar.dot_product(&a, &b).to_bits());
        let (streams, coefs) = (random.floats(3 * d), random.floats(9));
        let (mut mixed, mut large) = (streams.clone(), a.clone());
        k.mix_streams(&mut mixed, &coefs);
        k.statistical_top_k(&mut large, 0.3);
        let (mut by_scalar, mut large_by_scalar) = (streams.clone(), a.clone());
        scalar.mix_streams(&mut by_scalar, &coefs);
        scalar.statistical_top_k(&mut large_by_scalar, 0.3);
        assert_eq!(bits(&mixed), bits(&by_scalar));
        assert_eq!(bits(&large), bits(&large_by_scalar));
        for (i, e) in (0..3).flat_map(|i| [0, d - 1].map(|e| (i, e))) {
            let others = (0..3).map(|j| coefs[3 * i + j] * streams[j * d + e]);
            let expected = streams[i * d + e] + others.sum::<f32>();
            assert!((mixed[i * d + e] - expected).abs() < 1e-4, "stream {i}");
        }
    }
}

#[test]
fn gates_far_above_their_mean_are_kept() {
    for k in kernels() {
        let mut x = vec![1.0, 1.0, 1.0, 5.0];
        k.statistical_top_k(&mut x, 1.0);
        // The mean is 2, the standard deviation √3.
        assert_eq!(x[..3], [0.0; 3]);
        assert!((x[3] - (3.0 - 3f32.sqrt())).abs() < 1e-6);
        let mut half = vec![1.0, 3.0];
        k.scaled_sum(&mut half, &[1.0, 1.0], 0.5);
        assert_eq!(half, [1.0, 2.0]);
        k.add_multiple(&mut half, -2.0, &[0.5, 0.0]);
        assert_eq!(half, [0.0, 2.0]);
    }
}

#[test]
fn rope_turns_neighbours_or_halves_and_leaves_the_rest() {
    let x: Vec<f32> = (1..=8).map(|i| i as f32).collect();
    let quarter_turn_then_none = [0.0, 1.0, 1.0, 0.0];
    for k in kernels() {
        let (mut norm, mut neox) = (x.clone(), x.clone());
        k.rope(&mut norm, &quarter_turn_then_none, RopePairing::Norm);
        k.rope(&mut neox, &quarter_turn_then_none, RopePairing::Neox);
        assert_eq!(norm, [-2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(neox, [-3.0, 2.0, 1.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }
}

#[test]
fn sums_and_cache_rows_are_plain() {
    for k in kernels() {
        let mut out = vec![1.0, 2.0, 3.0];
        k.add_assign(&mut out, &[0.5, 0.25, -3.0]);
        assert_eq!(out, [1.5, 2.25, 0.0]);
        let mut floats = [0; 12];
        k.store_kv(&out, keys(KvElem::F32, 3), 0, &mut floats);
        assert_eq!(floats[4..8], 2.25f32.to_le_bytes());
    }
}

#[test]
fn row_operations_of_every_isa_give_the_bits_of_scalar() {
    let scalar = Kernels::named("scalar").unwrap();
    for (k, d) in kernels().flat_map(|k| [1, 7, 16, 40, 64, 255, 2048].map(|d| (k, d))) {
        let mut random = Random(20 + d as u64);
        let (x, weight, bias) = (random.floats(d), random.floats(d), random.floats(d));
        let large: Vec<f32> = x.iter().map(|x| x * 30.0).collect();
        let run = |k: Kernels| {
            let (mut out, mut all) = (vec![0.0; d], vec![]);
            k.rms_norm(&x, &weight, 1e-5, &mut out);
            all.extend(bits(&out));
            k.layer_norm(&x, (&weight, Some(&bias)), 1e-5, &mut out);
            all.extend(bits(&out));
            for activation in ACTIVATIONS {
                out.copy_from_slice(&large);
                k.gate(activation, &mut out, &weight);
                all.extend(bits(&out));
                out.copy_from_slice(&large);
                k.activate(activation, &mut out);
                all.extend(bits(&out));
            }
            for pairing in [RopePairing::Norm, RopePairing::Neox] {
                k.rope(&mut out, &bias[..d / 4 * 2], pairing);
                all.extend(bits(&out));
            }
            k.add_assign(&mut out, &x);
            all.extend(bits(&out));
            for elem in [KvElem::F16, KvElem::F32] {
                let mut bytes = vec![0; keys(elem, d).row_bytes()];
                k.store_kv(&large, keys(elem, d), 0, &mut bytes);
                all.extend(bytes.into_iter().map(u32::from));
            }
            all
        };
        assert!(run(k) == run(scalar), "{} {d}", k.isa());
    }
}
