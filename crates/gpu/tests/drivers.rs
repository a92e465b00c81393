//! Every kernel on every driver of this machine, byte by byte beside the CPU.
//!
//! A harness of its own, because what no driver computes must be seen to be skipped. With
//! `ATTA_REQUIRE_GPU` set to a number, fewer drivers fail. `VK_ADD_DRIVER_FILES` adds a driver to
//! those that are installed.

#[cfg(not(feature = "native"))]
fn main() {
    println!("skipped: built without drivers (feature `native`)");
}

#[cfg(feature = "native")]
fn main() -> std::process::ExitCode {
    native::main()
}

#[cfg(feature = "native")]
#[path = "drivers/mutations.rs"]
mod mutations;

#[cfg(feature = "native")]
mod native {
    use crate::mutations::are_found;
    use atta_gpu::{Bindings, CASES, CopyBlocks, Error, GpuStats, Host, NativeHost, Shader};
    use std::process::ExitCode;

    /// A thing that a driver must do besides computing.
    struct Duty {
        name: &'static str,
        check: fn(&mut NativeHost),
    }

    const DUTIES: [Duty; 6] = [
        Duty {
            name: "bytes come back as they were written",
            check: bytes_come_back,
        },
        Duty {
            name: "a range outside of a buffer is refused",
            check: ranges_are_checked,
        },
        Duty {
            name: "a kernel is compiled once",
            check: kernels_are_compiled_once,
        },
        Duty {
            name: "kernels recorded ahead run if they are submitted next, with the contents of then",
            check: ahead_is_as_good,
        },
        Duty {
            name: "kernels that are wrong on purpose are found",
            check: are_found,
        },
        Duty {
            name: "a destroyed device is lost at every call",
            check: loss_is_seen,
        },
    ];

    pub(super) fn main() -> ExitCode {
        let adapters = NativeHost::adapters();
        let n_required = std::env::var("ATTA_REQUIRE_GPU").map_or(0, |n| n.parse().unwrap_or(1));
        if adapters.len() < n_required {
            println!("FAILED: {} GPUs, {n_required} are required", adapters.len());
            return ExitCode::FAILURE;
        }
        if adapters.is_empty() {
            println!("no driver of a GPU: {} cases skipped", n_cases());
            return ExitCode::SUCCESS;
        }
        let failed: usize = (0..adapters.len()).map(run_on).sum();
        println!(
            "{failed} failed, {} passed",
            n_cases() * adapters.len() - failed
        );
        ExitCode::from(u8::from(failed > 0))
    }

    fn n_cases() -> usize {
        CASES.len() + DUTIES.len()
    }

    /// Runs everything on one adapter and returns how much failed.
    fn run_on(index: usize) -> usize {
        let mut host = NativeHost::open(index).unwrap();
        println!("\n{:?}", host.info());
        let mut failed = 0;
        for case in CASES {
            let start = std::time::Instant::now();
            let done = case.run(&mut host);
            let line = match &done {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("FAILED: {error}"),
            };
            println!(
                "{} … {line} ({} ms)",
                case.name,
                start.elapsed().as_millis()
            );
            failed += usize::from(done.is_err());
        }
        for duty in DUTIES {
            (duty.check)(&mut host);
            println!("{} … ok", duty.name);
        }
        failed
    }

    fn bytes_come_back(host: &mut NativeHost) {
        let bytes: Vec<u8> = (0..4096).map(|i| (i * 7) as u8).collect();
        let buffer = host.buffer(8192).unwrap();
        host.write(buffer, 1024, &bytes).unwrap();
        let before = host.stats();
        let mut out = vec![1; 8192];
        host.read(buffer, 0, &mut out).unwrap();
        assert_eq!(out[1024..5120], bytes);
        assert!(
            out[..1024]
                .iter()
                .chain(&out[5120..])
                .all(|&byte| byte == 0)
        );
        let expected = GpuStats {
            waits: before.waits + 1,
            bytes_down: before.bytes_down + 8192,
            ..before
        };
        assert_eq!(host.stats(), expected);
        host.free(buffer);
    }

    fn ranges_are_checked(host: &mut NativeHost) {
        let buffer = host.buffer(16).unwrap();
        for (at, len) in [(16, 4), (12, 8), (2, 4), (0, 3), (u64::MAX - 3, 8)] {
            let refused = host.write(buffer, at, &vec![0; len]);
            assert!(matches!(refused, Err(Error::Range { .. })), "{at} {len}");
        }
        let most = host.info().buffer_bytes;
        let refused = host.buffer(most.saturating_add(4));
        assert!(matches!(refused, Err(Error::BufferSize { .. })));
    }

    fn kernels_are_compiled_once(host: &mut NativeHost) {
        let first = host.pipeline(&Shader::quantize()).unwrap();
        let before = host.stats().pipelines;
        assert_eq!(host.pipeline(&Shader::quantize()).unwrap(), first);
        assert_eq!(host.stats().pipelines, before);
    }

    fn ahead_is_as_good(host: &mut NativeHost) {
        let pipeline = host.pipeline(&Shader::copy_blocks()).unwrap();
        let buffers = [0; 5].map(|_| host.buffer(1024).unwrap());
        let [weights, kv, tables, acts, values] = buffers;
        let copy = CopyBlocks {
            pairs: 0,
            n_pairs: 1,
            block_words: 4,
        };
        let bindings = Bindings {
            weights,
            kv,
            tables,
            acts,
            values,
        };
        let dispatch = copy.dispatch(pipeline, bindings);
        host.record_ahead(&[dispatch]);
        // It copies the bytes of that moment when it runs, to where the tables say then.
        host.write(kv, 0, &[7; 16]).unwrap();
        let words = [0u32, 8].map(u32::to_le_bytes).concat();
        host.write(tables, 0, &words).unwrap();
        let before = host.stats().ahead;
        host.submit(&[dispatch]).unwrap();
        assert_eq!(host.stats().ahead, before + 1);
        let mut out = [0; 16];
        host.read(kv, 32, &mut out).unwrap();
        assert_eq!(out, [7; 16]);
        // Other kernels are recorded when they are submitted.
        host.record_ahead(&[dispatch]);
        host.submit(&[dispatch, dispatch]).unwrap();
        assert_eq!(host.stats().ahead, before + 1);
        buffers.into_iter().for_each(|buffer| host.free(buffer));
    }

    /// The last duty: nothing works afterwards.
    fn loss_is_seen(host: &mut NativeHost) {
        let buffer = host.buffer(16).unwrap();
        host.destroy();
        let answers = [
            host.write(buffer, 0, &[0; 4]),
            host.read(buffer, 0, &mut [0; 4]),
            host.submit(&[]),
            host.buffer(16).map(|_| ()),
            host.pipeline(&Shader::quantize()).map(|_| ()),
        ];
        for answer in answers {
            assert!(matches!(answer, Err(Error::DeviceLost(_))), "{answer:?}");
        }
    }
}
