// The 16 values of IQ4_NL and IQ4_XS, as bytes.

const VALUES: vec4<u32> = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
