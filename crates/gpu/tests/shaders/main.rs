//! Every kernel without a driver: its text is valid, fits every GPU, can be written in the
//! languages of all drivers, and computes floats in guarded places only.

mod floats;

use atta_gpu::shaders;
use floats::unguarded;
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module};
use std::sync::LazyLock;

/// What every device of WebGPU has.
const WORKGROUP_BYTES: u32 = 16 << 10;
const INVOCATIONS: u32 = 256;
const STORAGE_BUFFERS: usize = 8;

fn parsed(name: &str, text: &str) -> (Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(text)));
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
    let info = validator
        .validate(&module)
        .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(text)));
    (module, info)
}

/// Every kernel, parsed once for all tests.
static KERNELS: LazyLock<Vec<Parsed>> = LazyLock::new(|| {
    let all = shaders().into_iter().map(|shader| {
        let (module, info) = parsed(&shader.name, &shader.text);
        Parsed {
            name: shader.name,
            module,
            info,
        }
    });
    all.collect()
});

struct Parsed {
    name: String,
    module: Module,
    info: ModuleInfo,
}

#[test]
fn every_kernel_is_valid_without_any_optional_feature() {
    assert!(KERNELS.len() >= 70);
}

#[test]
fn every_kernel_fits_the_smallest_gpu() {
    for Parsed { name, module, .. } in KERNELS.iter() {
        let of = |space: fn(AddressSpace) -> bool| {
            let globals = module.global_variables.iter();
            globals.filter(move |(_, global)| space(global.space))
        };
        let workgroup = of(|space| space == AddressSpace::WorkGroup);
        let bytes: u32 = workgroup
            .map(|(_, global)| module.types[global.ty].inner.size(module.to_ctx()))
            .sum();
        assert!(bytes <= WORKGROUP_BYTES, "{name}: {bytes}");
        let storage = of(|space| matches!(space, AddressSpace::Storage { .. }));
        assert!(storage.count() <= STORAGE_BUFFERS, "{name}");
        let size: u32 = module.entry_points[0].workgroup_size.iter().product();
        assert!(size <= INVOCATIONS, "{name}: {size}");
    }
}

#[test]
fn every_kernel_can_be_written_for_every_driver() {
    for Parsed { name, module, info } in KERNELS.iter() {
        let words = spv::write_vec(module, info, &spv::Options::default(), None);
        assert!(!words.unwrap().is_empty(), "{name}");
        let (options, pipeline) = (msl::Options::default(), msl::PipelineOptions::default());
        let (text, _) = msl::write_string(module, info, &options, &pipeline).unwrap();
        assert!(text.contains("kernel void"), "{name}");
        let options = hlsl::Options::default();
        let pipeline = hlsl::PipelineOptions::default();
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(module, info, None)
            .unwrap();
        assert!(text.contains("numthreads"), "{name}");
    }
}

#[test]
fn every_float_operation_is_guarded() {
    for Parsed { name, module, info } in KERNELS.iter() {
        assert_eq!(unguarded(module, info), Vec::<String>::new(), "{name}");
    }
}

/// Kernels, pieces of their texts, and other pieces in their place.
const MUTATIONS: [(&str, &str, &str); 11] = [
    (
        "matmul q4_k columns",
        "return guard(a + b);",
        "return a + b;",
    ),
    (
        "matmul q4_k columns",
        "return guard(a - b);",
        "return a - b;",
    ),
    (
        "matmul q4_k columns",
        "return guard(a * b);",
        "return a * b;",
    ),
    (
        "matmul q4_k columns",
        "4096.0 + f32(i & 4095));",
        "4096.0 + f32(i & 4095)) * 2.0;",
    ),
    ("matmul q4_k columns", "^ p.zero", "^ 0u"),
    (
        "matmul q4_k columns",
        "sub(mul(d.x, to_float(sums.x))",
        "sub(d.x * to_float(sums.x)",
    ),
    ("matmul q8_0 columns", "to_float(sum)", "f32(sum)"),
    (
        "matmul f32 columns",
        "add(mul(weight(w, i), bitcast<f32>(acts[x + i])), sum)",
        "fma(weight(w, i), bitcast<f32>(acts[x + i]), sum)",
    ),
    (
        "quantize",
        "bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u)",
        "-x",
    ),
    (
        "quantize",
        "div(1.0, sqrt_of(add(variance, p.eps)))",
        "inverseSqrt(add(variance, p.eps))",
    ),
    (
        "quantize",
        "bitcast<i32>(bitcast<u32>(add(x, 12582912.0)) - 0x4b400000u)",
        "i32(x)",
    ),
];

#[test]
fn a_guard_that_is_dropped_anywhere_is_found() {
    for (name, from, to) in MUTATIONS {
        let shader = shaders().into_iter().find(|shader| shader.name == name);
        let text = shader.unwrap().text;
        assert!(text.contains(from), "{name}: {from}");
        let (module, info) = parsed(name, &text.replacen(from, to, 1));
        assert_ne!(
            unguarded(&module, &info),
            Vec::<String>::new(),
            "{name}: {to}"
        );
    }
}
