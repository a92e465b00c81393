// The 16 values of MXFP4, doubled, as bytes.

const VALUES: vec4<u32> = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
