// swift-tools-version:5.9
// The package Atta over libatta. On Linux the library is the one that crates/capi/install installed; on systems of
// Apple it is CAtta.xcframework beside this file, which .github/workflows/phones.yml makes.
// Neither this file nor the sources have been compiled: no Swift compiler was at hand (docs/embedding.md).

import PackageDescription

#if os(Linux)
let library: Target = .systemLibrary(name: "CAtta", pkgConfig: "atta")
#else
let library: Target = .binaryTarget(name: "CAtta", path: "CAtta.xcframework")
#endif

let package = Package(
    name: "Atta",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [
        .library(name: "Atta", targets: ["Atta"]),
        .executable(name: "story", targets: ["story"]),
    ],
    targets: [
        library,
        .target(name: "Atta", dependencies: ["CAtta"]),
        .executableTarget(name: "story", dependencies: ["Atta"]),
        .testTarget(name: "AttaTests", dependencies: ["Atta"]),
    ]
)
